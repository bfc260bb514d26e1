//! The program's faults: what was done, by whom, where in the kernel author's source.

mod display;
mod fault;

use ptx::Site;

pub use fault::{Fault, Owner};

/// A fault and its place.
#[derive(Clone, Debug, PartialEq)]
pub struct Trap {
    /// The kernel.
    pub kernel: String,
    /// What went wrong.
    pub fault: Fault,
    /// Who did it; `None` where nobody did anything, as in a hang.
    pub place: Option<Place>,
}

/// Who executed what.
#[derive(Clone, Debug, PartialEq)]
pub struct Place {
    /// The statement's line in the kernel author's source; `None` at the end of the program.
    pub site: Option<Site>,
    /// The instruction's name.
    pub instruction: &'static str,
    /// The CTA's coordinates in the grid.
    pub cta: [u32; 3],
    /// The CTA's rank in its cluster.
    pub rank: u32,
    /// The warp's index in its CTA.
    pub warp: u32,
    /// The lane at fault, where one lane is.
    pub lane: Option<u32>,
    /// The enclosing scopes, outermost first.
    pub scopes: Vec<&'static str>,
}

/// What one waiting warp waits for.
#[derive(Clone, Debug, PartialEq)]
pub struct Waiting {
    /// The warp and its statement.
    pub place: Place,
    /// What it waits for.
    pub on: Wait,
}

/// What a warp can wait for. Barrier offsets are bytes from the beginning of the CTA's dynamic shared memory.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Wait {
    /// `mbarrier.try_wait`.
    Mbarrier {
        /// Where the barrier lies.
        offset: u32,
        /// The parity waited for.
        parity: u32,
        /// The current phase, which has not completed.
        phase: u64,
        /// Arrivals that the phase still needs.
        pending: u32,
        /// Arrivals that a phase needs.
        expected: u32,
        /// Bytes announced and not arrived.
        outstanding: i64,
    },
    /// `bar.sync`.
    Named {
        /// The barrier.
        id: u32,
        /// Threads it waits for.
        threads: u32,
        /// Threads that have come.
        arrived: u32,
    },
    /// `barrier.cluster.wait`.
    Cluster {
        /// Warps that have arrived.
        arrived: u32,
        /// Warps of the cluster.
        warps: u32,
    },
    /// `wgmma.wait_group` for a multiply that not every warp of the warpgroup has issued.
    Warpgroup {
        /// The multiply, counted from 0.
        multiply: u64,
        /// Warps of the CTA that have not issued it.
        missing: Vec<u32>,
    },
    /// `cp.async.bulk.wait_group` for stores that have not been done.
    Stores {
        /// How many of the newest groups may stay pending.
        pending: u32,
    },
    /// `setmaxnreg.inc` for registers that nobody has given back.
    Registers {
        /// Registers a thread asked for.
        asked: u32,
        /// Registers a thread holds.
        held: u32,
        /// Registers of the whole pool that are free.
        free: u32,
    },
    /// Nothing: it goes round a loop.
    Polling,
}

/// A fault on its way out of a step, with the lane at fault where one is.
#[derive(Debug)]
pub(crate) struct Stop {
    pub(crate) fault: Box<Fault>,
    pub(crate) lane: Option<u32>,
    /// The warp and operation at fault, where they are not those being executed.
    pub(crate) by: Option<(usize, usize)>,
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Self {
        Self { fault: Box::new(fault), lane: None, by: None }
    }
}

impl Fault {
    /// The fault of one lane.
    pub(crate) fn lane(self, lane: usize) -> Stop {
        Stop { fault: Box::new(self), lane: u32::try_from(lane).ok(), by: None }
    }

    /// The fault of an operation that a warp executed earlier.
    pub(crate) fn by(self, warp: usize, pc: usize, lane: Option<usize>) -> Stop {
        let lane = lane.and_then(|lane| u32::try_from(lane).ok());
        Stop { fault: Box::new(self), lane, by: Some((warp, pc)) }
    }
}

impl std::error::Error for Trap {}
