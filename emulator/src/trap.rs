//! Faults of the program: what went wrong, which warp did it, and where in the kernel's source.

mod display;
mod fault;
mod own;
mod rule;
mod tensor;
mod warnings;

use ptx::{Name, SourceSite};

pub use fault::{Fault, Owner};
pub use own::OwnFault;
pub use rule::Rule;
pub use tensor::TensorFault;
pub use warnings::Warnings;

/// A fault and its place. Its `Display` text is the report that users read.
#[derive(Clone, Debug, PartialEq)]
pub struct Trap {
    /// The kernel's name.
    pub kernel: String,
    /// What went wrong.
    pub fault: Fault,
    /// The name of the shared memory at fault, if the program names it
    /// ([`Builder::name_shared`](ptx::Builder::name_shared)).
    pub region: Option<String>,
    /// The name of the register at fault, if the program has names for its registers ([`Function::names`](ptx::Function::names)).
    pub register: Option<String>,
    /// The warp and instruction at fault; `None` if no instruction is, as in a hang.
    pub place: Option<Place>,
}

/// An instruction of one warp: where it is in the program, and which warp executed it.
#[derive(Clone, Debug, PartialEq)]
pub struct Place {
    /// The statement's line in the kernel's source; `None` at the end of the program.
    pub site: Option<SourceSite>,
    /// The instruction's name.
    pub instruction: &'static str,
    /// The GPU, if several run together.
    pub gpu: Option<u32>,
    /// The CTA's coordinates in the grid.
    pub cta: [u32; 3],
    /// The CTA's rank in its cluster.
    pub rank: u32,
    /// The warp's index in its CTA.
    pub warp: u32,
    /// The lane at fault; `None` if it is not a single lane.
    pub lane: Option<u32>,
    /// The enclosing scopes, outermost first.
    pub scopes: Vec<Name>,
}

/// What one waiting warp waits for.
#[derive(Clone, Debug, PartialEq)]
pub struct Waiting {
    /// The warp and its statement.
    pub place: Place,
    /// What it waits for.
    pub on: Wait,
}

/// What a warp can wait for. Offsets are bytes from the beginning of the CTA's shared memory.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Wait {
    /// `mbarrier.try_wait`.
    Mbarrier {
        /// Offset of the mbarrier.
        offset: u32,
        /// Its name, if the program has named it.
        name: Option<String>,
        /// The parity that the wait names.
        parity: u32,
        /// Number of the current phase, which has not completed.
        phase: u64,
        /// Number of arrivals that the phase still needs.
        pending: u32,
        /// Number of arrivals that each phase needs.
        expected: u32,
        /// Bytes announced but not yet arrived; negative if more bytes arrived than were announced.
        outstanding: i64,
    },
    /// `bar.sync`.
    Named {
        /// Number of the barrier, 0 to 15.
        id: u32,
        /// Number of threads that the barrier waits for.
        threads: u32,
        /// Number of threads that have arrived.
        arrived: u32,
    },
    /// `barrier.cluster.wait`.
    Cluster {
        /// Number of warps that have arrived.
        arrived: u32,
        /// Number of warps in the cluster.
        warps: u32,
    },
    /// `wgmma.wait_group` for a multiply that not every warp of the warpgroup has issued.
    Warpgroup {
        /// Number of the multiply in its warpgroup, counted from 0.
        multiply: u64,
        /// Warps of the CTA that have not issued it.
        missing: Vec<u32>,
    },
    /// `cp.async.bulk.wait_group` for stores that have not completed.
    Stores {
        /// Number of the newest groups that may stay pending.
        pending: u32,
    },
    /// `setmaxnreg.inc` for registers that no warp has released yet.
    Registers {
        /// Registers requested per thread.
        asked: u32,
        /// Registers that each thread holds.
        held: u32,
        /// Free registers in the CTA's pool, over all threads.
        free: u32,
    },
    /// No instruction that blocks: the warp runs a loop.
    Polling,
}

/// A fault that a step returns, with the lane at fault if there is one.
#[derive(Debug)]
pub(crate) struct Stop {
    pub(crate) fault: Box<Fault>,
    pub(crate) lane: Option<u32>,
    /// The warp and operation at fault, if they are not the ones being executed.
    pub(crate) by: Option<(usize, usize)>,
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Self {
        Self { fault: Box::new(fault), lane: None, by: None }
    }
}

impl Fault {
    /// The offset in shared memory of the bytes at fault; `None` if the fault is about other things.
    pub(crate) fn offset(&self) -> Option<u32> {
        let (Self::SharedRace { offset, .. }
        | Self::SharedUninitialised { offset, .. }
        | Self::SharedInFlight { offset, .. }
        | Self::SharedBarrier { offset }
        | Self::MissingProxyFence { offset, .. }
        | Self::MbarrierUninitialised { offset }
        | Self::MbarrierLive { offset }
        | Self::MbarrierCount { offset, .. }
        | Self::MbarrierNoComplete { offset, .. }
        | Self::MbarrierOverArrival { offset, .. }
        | Self::MbarrierBytes { offset, .. }
        | Self::MbarrierNotFenced { offset, .. }
        | Self::MbarrierState { offset, .. }
        | Self::MbarrierMissed { offset, .. }
        | Self::MbarrierNotObserved { offset, .. }) = self
        else {
            return None;
        };
        Some(*offset)
    }

    /// The number of the register at fault; `None` if the fault is about other things.
    pub(crate) fn register(&self) -> Option<u32> {
        let (Self::RegisterUninitialised { register }
        | Self::RegisterInFlight { register, .. }
        | Self::MissingWgmmaFence { register }) = self
        else {
            return None;
        };
        Some(*register)
    }

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

/// A result in one lane.
pub(crate) trait InLane<T> {
    /// The result; a fault is one of this lane.
    fn lane(self, lane: usize) -> Result<T, Stop>;
}

impl<T> InLane<T> for Result<T, Fault> {
    fn lane(self, lane: usize) -> Result<T, Stop> {
        self.map_err(|fault| fault.lane(lane))
    }
}

impl std::error::Error for Trap {}
