//! A record of what a launch did, step by step. Use it to look at a run, or to count bank conflicts.
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
//! The unit of [`Event::start`] is a step of the emulator. Under [`Schedule::Paced`](crate::Schedule::Paced)
//! every warp that can continue executes one instruction per step, and asynchronous work takes a nominal
//! number of steps. Under the other schedules a step is one instruction of one warp. A trace shows which warp
//! waits for what, and what overlaps. It does not show how long a GPU takes. The steps of each cluster begin
//! at 0.
//!
//! Under [`Schedule::Earliest`](crate::Schedule::Earliest) asynchronous work completes when it is issued, and
//! is not in the trace.

mod banks;
mod chrome;
mod lanes;
mod svg;
mod tracer;

pub(crate) use banks::{together, wavefronts};
pub use lanes::Lane;
pub(crate) use tracer::{Issued, Run, Tracer};

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use ptx::{Name, SourceSite};

use crate::trap::Wait;

/// Collects the trace of a launch. Pass it as [`Options::trace`](crate::Options::trace).
#[derive(Debug, Default)]
pub struct Recorder(pub(crate) Mutex<Recorded>);

#[derive(Debug, Default)]
pub(crate) struct Recorded {
    pub(crate) kernel: String,
    pub(crate) events: Vec<Event>,
    /// By index of the operation in the program.
    pub(crate) shared: BTreeMap<usize, SharedAccess>,
    pub(crate) phases: Vec<Phase>,
}

/// Everything that a launch did, up to its end or to the trap that ended it.
///
/// [`Recorder::into_trace`] returns it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    /// The kernel's name.
    pub kernel: String,
    /// All events, sorted by CTA, then by track, then by start.
    pub events: Vec<Event>,
    /// The instructions that access shared memory, in program order.
    pub shared: Vec<SharedAccess>,
    /// The completed phases of mbarriers, sorted by CTA, then by offset of the mbarrier, then by number.
    pub phases: Vec<Phase>,
}

/// A completed phase of an mbarrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Phase {
    /// The CTA's coordinates in the grid.
    pub cta: [u32; 3],
    /// Offset of the mbarrier: bytes from the beginning of the CTA's dynamic shared memory.
    pub offset: u32,
    /// Number of the phase, counted from 0.
    pub phase: u64,
    /// Number of arrivals that each phase needs.
    pub expected: u32,
    /// The step in which the phase completed.
    pub step: u64,
}

/// An activity of one warp or asynchronous engine, with its first and last step.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// The CTA's coordinates in the grid.
    pub cta: [u32; 3],
    /// The warp or engine that did it.
    pub track: Track,
    /// What was done.
    pub activity: Activity,
    /// The pipeline stage, if known: the position of the mbarrier among its neighbours with the same arrival
    /// count. For a copy or a multiply, the stage of the mbarrier on which its data arrived.
    pub stage: Option<u32>,
    /// The scopes around the statement, outermost first. For asynchronous work: those of the instruction that
    /// issued it.
    pub scopes: Vec<Name>,
    /// The statement, or the first one of several. For asynchronous work: the statement that issued it.
    pub site: Option<SourceSite>,
    /// The step in which the activity began.
    pub start: u64,
    /// The step in which the activity ended.
    pub end: u64,
}

/// A row of the timeline of a CTA: a warp, or an engine that works asynchronously.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Track {
    /// A warp, by index in the CTA.
    Warp(u32),
    /// The copies into the CTA's shared memory.
    Loads,
    /// The matrix multiplies of a warpgroup, by index in the CTA.
    Multiplies(u32),
    /// The copies out of the CTA's shared memory.
    Stores,
}

/// What a warp or engine did.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Activity {
    /// A warp executed instructions, most of them of one class.
    Run {
        /// The class.
        class: Class,
        /// Number of instructions.
        instructions: u64,
    },
    /// A warp waited.
    Wait(Wait),
    /// A copy wrote to shared memory.
    Load {
        /// Size of the copy in bytes.
        bytes: u32,
    },
    /// A warpgroup's matrix multiply.
    Multiply {
        /// Number of columns of D.
        n: u32,
    },
    /// A copy read from shared memory.
    Store {
        /// Size of the copy in bytes.
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
    /// Instructions that issue asynchronous copies.
    Copy,
    /// Instructions that issue matrix multiplies.
    Multiply,
}

/// Bank conflicts of one instruction: how its accesses to shared memory fall on the 32 banks of 4 bytes.
///
/// The hardware serves a warp's request in parts: all lanes at once if each accesses up to 4 bytes, half of
/// the lanes at 8 bytes, a quarter at 16, and one matrix of 8 rows at a time for `ldmatrix` and `stmatrix`.
/// The number of wavefronts of a part is the largest number of different words that fall on one bank.
#[derive(Clone, Debug, PartialEq)]
pub struct SharedAccess {
    /// The statement.
    pub site: Option<SourceSite>,
    /// The instruction's name.
    pub instruction: &'static str,
    /// The scopes around it, outermost first.
    pub scopes: Vec<Name>,
    /// Number of executions, counted per warp.
    pub executed: u64,
    /// Total number of wavefronts.
    pub wavefronts: u64,
    /// Total number of wavefronts that the same bytes would take without bank conflicts.
    pub ideal: u64,
}

impl Recorder {
    /// Returns what has been recorded, sorted.
    pub fn into_trace(self) -> Trace {
        let Recorded { kernel, mut events, shared, mut phases } =
            self.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        events.sort_by_key(|event| (event.cta, event.track, event.start, event.end));
        phases.sort_by_key(|phase| (phase.cta, phase.offset, phase.phase));
        Trace { kernel, events, shared: shared.into_values().collect(), phases }
    }
}

impl Trace {
    /// The trace as JSON that <https://ui.perfetto.dev> and `chrome://tracing` open. One step is shown as one
    /// microsecond.
    pub fn chrome_json(&self) -> String {
        chrome::write(self)
    }

    /// The trace as an SVG picture: one row per warp and per asynchronous engine, steps from left to right.
    pub fn svg(&self) -> String {
        svg::write(self)
    }

    /// The rows of a picture, CTA by CTA: one per track, or more if events of the track overlap.
    pub fn lanes(&self) -> Vec<Lane<'_>> {
        lanes::lanes(self)
    }

    /// Number of steps of the longest cluster.
    pub fn steps(&self) -> u64 {
        self.events.iter().map(|event| event.end).max().unwrap_or(0)
    }
}

impl Event {
    /// A label of a few words for pictures.
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
    /// The name of the class, for pictures.
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
