//! What can go wrong in a group of ranks.

use std::io;
use std::time::Duration;

use falchion::kernel::EngineError;
use falchion_core::Refusal;

/// Why a group could not be formed, or could not do something.
///
/// What fails on one rank fails on every rank: each returns [`Lost`](Self::Lost) with the same sentence.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A variable of the environment: its name, the value found, and what was needed.
    #[error("{name} is {}, {needed} was needed", found.as_ref().map_or("not set".to_owned(), |found| format!("`{found}`")))]
    Environment {
        /// The variable.
        name: String,
        /// Its value; `None` if it is not set.
        found: Option<String>,
        /// What was needed.
        needed: String,
    },
    /// The ranks did not find each other, or may not form a group.
    #[error("the group was not formed: {0}")]
    Meeting(String),
    /// The group has failed: a rank ended, did not come, or wanted something else.
    #[error("the group has failed: {0}")]
    Lost(String),
    /// An argument: its name, the value found, and what was needed.
    #[error("{field} is {found}, {needed} was needed")]
    Argument {
        /// The argument.
        field: String,
        /// The value found.
        found: String,
        /// What was needed.
        needed: String,
    },
    /// NCCL is missing, is too old, or returned an error.
    #[error("NCCL: {0}")]
    Nccl(String),
    /// No kernel can do it.
    #[error("{0}")]
    Kernel(String),
    /// A driver error, or a fault of a kernel.
    #[error("{0}")]
    Engine(String),
    /// The system refused something.
    #[error("{what}: {reason}")]
    System {
        /// What was tried.
        what: String,
        /// The system's words.
        reason: String,
    },
}

impl Error {
    pub(crate) fn argument(
        field: impl Into<String>,
        found: impl ToString,
        needed: impl Into<String>,
    ) -> Self {
        Self::Argument { field: field.into(), found: found.to_string(), needed: needed.into() }
    }

    pub(crate) fn system(what: impl Into<String>, error: &io::Error) -> Self {
        Self::System { what: what.into(), reason: error.to_string() }
    }

    /// That ranks did not come in time.
    pub(crate) fn late(what: &str, ranks: &[u32], within: Duration) -> String {
        let (word, list) = (if ranks.len() == 1 { "rank" } else { "ranks" }, list(ranks));
        format!("{word} {list} did not come to {what} within {} s", within.as_secs_f64())
    }
}

/// Numbers as words.
pub(crate) fn list(numbers: &[u32]) -> String {
    numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}

impl From<EngineError> for Error {
    fn from(error: EngineError) -> Self {
        Self::Engine(error.to_string())
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        Self::Kernel(refusal.to_string())
    }
}
