//! What a launch did, step by step: for looking at, and for counting bank conflicts.
//!
//! ```
//! use emulator::{Memory, Options, Program, Recorder, Schedule};
//! use ptx::abi::Grid;
//! use ptx::{Builder, Entry, Function, Special, Target};
//!
//! let entry =
//!     Entry { name: "columns".into(), target: Target::Sm90a, threads: 32, shared_bytes: 4096, cluster: [1, 1, 1] };
//! let function = Function::build(entry, |f: &Builder| {
//!     let lane = f.special(Special::Lane);
//!     f.scope("column", || f.store_shared(f.shared_base() + lane * 128, 0, [lane]));
//! });
//! let recorder = Recorder::default();
//! let options = Options { schedule: Schedule::Paced, trace: Some(&recorder), ..Options::default() };
//! Program::new(&function.verify()?).launch(Grid { ctas: [1, 1, 1] }, &[], &Memory::new(), &options)?;
//!
//! let trace = recorder.into_trace();
//! assert_eq!((trace.shared[0].wavefronts, trace.shared[0].ideal), (32, 1), "every lane uses bank 0");
//! assert!(trace.chrome_json().contains("column"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Steps are not time
//!
//! The unit of [`Event::start`] is a step of the emulator. Under [`Schedule::Paced`](crate::Schedule::Paced) every
//! warp that can go on executes one instruction a step, and asynchronous work takes a nominal number of steps; under
//! the other schedules a step is one instruction of one warp. A trace shows who waits for whom and what overlaps, not
//! how long a GPU takes. Each cluster's steps begin at 0.
//!
//! Under [`Schedule::Earliest`](crate::Schedule::Earliest) asynchronous work is done where it is issued and does not
//! show.

mod banks;
mod chrome;
mod lanes;
mod record;
mod svg;

pub use lanes::Lane;
pub(crate) use record::Tracer;

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use ptx::Site;

use crate::trap::Wait;

/// Collects the trace of a launch; see [`Options::trace`](crate::Options::trace).
#[derive(Debug, Default)]
pub struct Recorder(Mutex<Recorded>);

#[derive(Debug, Default)]
struct Recorded {
    kernel: String,
    events: Vec<Event>,
    /// By the operation's index in the program.
    shared: BTreeMap<usize, SharedAccess>,
    phases: Vec<Phase>,
}

/// Everything that a launch did, up to its end or to the trap that ended it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    /// The kernel's name.
    pub kernel: String,
    /// By CTA, then by track, then by start.
    pub events: Vec<Event>,
    /// The instructions that access shared memory, in the program's order.
    pub shared: Vec<SharedAccess>,
    /// The phases of mbarriers that completed: by CTA, then by barrier, then in order.
    pub phases: Vec<Phase>,
}

/// A phase of an mbarrier that completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Phase {
    /// The CTA's coordinates in the grid.
    pub cta: [u32; 3],
    /// Where the barrier lies, in bytes from the beginning of the CTA's dynamic shared memory.
    pub offset: u32,
    /// The phase, counted from 0.
    pub phase: u64,
    /// Arrivals that a phase needs.
    pub expected: u32,
    /// The step in which it completed.
    pub step: u64,
}

/// Something that took a while.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// The CTA's coordinates in the grid.
    pub cta: [u32; 3],
    /// Who did it.
    pub track: Track,
    /// What was done.
    pub activity: Activity,
    /// The pipeline stage, where it is known: the position of the mbarrier among its neighbours of the same arrival
    /// count, or of the mbarrier that the data came with.
    pub stage: Option<u32>,
    /// The scopes around the statement, outermost first; the issuer's for asynchronous work.
    pub scopes: Vec<&'static str>,
    /// The statement, the first one of several; the issuer's for asynchronous work.
    pub site: Option<Site>,
    /// The step in which it began.
    pub start: u64,
    /// The step in which it was over.
    pub end: u64,
}

/// Who did something: a warp, or a machine that works on its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Track {
    /// A warp, by its index in the CTA.
    Warp(u32),
    /// The copies into the CTA's shared memory.
    Loads,
    /// The matrix multiplies of a warpgroup, by its index in the CTA.
    Multiplies(u32),
    /// The copies out of the CTA's shared memory.
    Stores,
}

/// What was done.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Activity {
    /// A warp executed instructions, most of them of one class.
    Run {
        /// The class.
        class: Class,
        /// How many instructions.
        instructions: u64,
    },
    /// A warp waited.
    Wait(Wait),
    /// A tensor copy brought a box.
    Load {
        /// Its size.
        bytes: u32,
    },
    /// A warpgroup's matrix multiply.
    Multiply {
        /// Columns of D.
        n: u32,
    },
    /// A tensor copy took a box away.
    Store {
        /// Its size.
        bytes: u32,
    },
}

/// A class of instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// Arithmetic and control flow.
    Compute,
    /// Accesses to global memory.
    Global,
    /// Accesses to shared memory.
    Shared,
    /// Barriers and fences.
    Synchronise,
    /// Starting asynchronous copies.
    Copy,
    /// Starting matrix multiplies.
    Multiply,
}

/// How an instruction's accesses to shared memory fall on the 32 banks of 4 bytes.
///
/// The warp's request is served in parts: all lanes where each accesses up to 4 bytes, half of them at 8, a quarter at
/// 16, and a matrix of 8 rows at a time for `stmatrix`. A part takes as many wavefronts as different words of it lie
/// in one bank.
#[derive(Clone, Debug, PartialEq)]
pub struct SharedAccess {
    /// The statement.
    pub site: Option<Site>,
    /// The instruction's name.
    pub instruction: &'static str,
    /// The scopes around it, outermost first.
    pub scopes: Vec<&'static str>,
    /// How often a warp executed it.
    pub executed: u64,
    /// Wavefronts it took in all.
    pub wavefronts: u64,
    /// Wavefronts that the same bytes would have taken without conflicts.
    pub ideal: u64,
}

impl Recorder {
    /// What has been recorded.
    pub fn into_trace(self) -> Trace {
        let Recorded { kernel, mut events, shared, mut phases } =
            self.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        events.sort_by_key(|event| (event.cta, event.track, event.start, event.end));
        phases.sort_by_key(|phase| (phase.cta, phase.offset, phase.phase));
        Trace { kernel, events, shared: shared.into_values().collect(), phases }
    }
}

impl Trace {
    /// The trace in the format that <https://ui.perfetto.dev> and `chrome://tracing` open. A microsecond there is a
    /// step here.
    pub fn chrome_json(&self) -> String {
        chrome::write(self)
    }

    /// A picture: a row for each warp and each asynchronous machine, steps from left to right.
    pub fn svg(&self) -> String {
        svg::write(self)
    }

    /// Rows of a picture, CTA by CTA: one for each track, and more where a track's events overlap.
    pub fn lanes(&self) -> Vec<Lane<'_>> {
        lanes::lanes(self)
    }

    /// Steps of the longest cluster.
    pub fn steps(&self) -> u64 {
        self.events.iter().map(|event| event.end).max().unwrap_or(0)
    }
}

impl Event {
    /// A few words: what a box in a picture is called.
    pub fn label(&self) -> &'static str {
        match &self.activity {
            Activity::Run { class, .. } => class.name(),
            Activity::Wait(Wait::Mbarrier { .. }) => "wait for mbarrier",
            Activity::Wait(Wait::Named { .. }) => "wait for barrier",
            Activity::Wait(Wait::Cluster { .. }) => "wait for cluster",
            Activity::Wait(Wait::Warpgroup { .. }) => "wait for wgmma",
            Activity::Wait(Wait::Stores { .. }) => "wait for stores",
            Activity::Wait(Wait::Registers { .. }) => "wait for registers",
            Activity::Wait(Wait::Polling) => "poll",
            Activity::Load { .. } => "load",
            Activity::Multiply { .. } => "wgmma",
            Activity::Store { .. } => "store",
        }
    }
}

impl Class {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Compute => "compute",
            Self::Global => "global memory",
            Self::Shared => "shared memory",
            Self::Synchronise => "synchronise",
            Self::Copy => "issue copies",
            Self::Multiply => "issue wgmma",
        }
    }
}

#[cfg(test)]
mod tests;
