//! Why a kernel of a family is wrong, or was not checked.

use emulator::Schedule;
use kernel::{EngineError, LaunchError, Unanswered};
use ptx::VerifyError;
use thiserror::Error;

/// Why a kernel is wrong, or was not checked.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum FamilyError {
    /// The kernel could not be run.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The verifier refused the program.
    #[error("{0}")]
    Program(#[from] VerifyError),
    /// The call is illegal.
    #[error("{0}")]
    Call(#[from] LaunchError),
    /// The kernel is one for other requests.
    #[error("{0}")]
    Other(String),
    /// An element is wrong.
    #[error(
        "element {index} of {name} is {found}, {expected} was expected, with an error of {bound} at most"
    )]
    Element {
        /// The piece.
        name: &'static str,
        /// The element's number in the order of the piece's lines.
        index: usize,
        /// What the kernel wrote.
        found: f64,
        /// The reference.
        expected: f64,
        /// The largest legal error.
        bound: f64,
    },
    /// Memory changed that the kernel must not write.
    #[error("byte {byte} of {name} changed, and no element is there")]
    Outside {
        /// The piece.
        name: &'static str,
        /// The number of the byte; below 0, if it is before the piece.
        byte: i64,
    },
    /// A later launch left other bits than the first one.
    #[error(
        "byte {byte} of {name} is {now:#04x} after launch {launch}, and was {first:#04x} after the first"
    )]
    Changed {
        /// The piece.
        name: &'static str,
        /// The number of the byte.
        byte: usize,
        /// Number of the launch; the first is 1.
        launch: u32,
        /// The byte after the first launch.
        first: u8,
        /// The byte after this one.
        now: u8,
    },
    /// An element that is expected is outside the piece.
    #[error("element {index} of {name} is expected, it has {count}")]
    Extents {
        /// The piece.
        name: &'static str,
        /// The element's number.
        index: usize,
        /// Number of elements of the piece.
        count: usize,
    },
    /// The reference asked for what the call does not have.
    #[error(transparent)]
    Question(#[from] Unanswered),
    /// There is nothing to compare the results with.
    #[error("there is nothing to compare with: {0}")]
    Unexpected(String),
    /// The reference expects something of memory that the kernel does not write.
    #[error("the reference expects elements of `{name}`, the kernel writes {writes}")]
    NotWritten {
        /// The name.
        name: &'static str,
        /// The names of what it writes.
        writes: String,
    },
    /// The reference says nothing of a piece of memory that the kernel writes.
    #[error("the kernel writes {name}, and of its {count} elements none was compared")]
    LeftOut {
        /// The piece.
        name: &'static str,
        /// Number of its elements.
        count: usize,
    },
    /// The kernel says of no memory that it writes it.
    #[error("no memory is visited as written, so nothing can be compared")]
    Nothing,
    /// A bound is no bound.
    #[error("the bound of element {index} of {name} is {bound}, a number from 0 on was needed")]
    Bound {
        /// The piece.
        name: &'static str,
        /// The element's number.
        index: usize,
        /// The bound.
        bound: f64,
    },
    /// Elements were not written.
    #[error("no element of {name} from {index} on was written, in {count} of them")]
    Unwritten {
        /// The piece.
        name: &'static str,
        /// The first element's number.
        index: usize,
        /// Number of elements.
        count: usize,
    },
    /// The unbroken kernel failed in the emulator.
    #[error("the unbroken kernel under {schedule:?}, seed {seed}: {reason}")]
    Unbroken {
        /// The schedule.
        schedule: Schedule,
        /// Its seed.
        seed: u64,
        /// The emulator's report, or what differs.
        reason: String,
    },
}
