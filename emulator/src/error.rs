//! Errors of a launch: wrong use of the emulator. The program's own faults are [`crate::Fault`]s.

use ptx::abi::{ArgumentError, TensorMapError};

use crate::trap::Trap;

/// A wrong use of the emulator.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EmulatorError {
    /// A host access to bytes outside every allocation.
    #[error("{bytes} B at device address {address:#x} are outside every allocation")]
    NotAllocated {
        /// Device address of the first byte.
        address: u64,
        /// Number of bytes.
        bytes: usize,
    },
    /// An extent of the grid is zero, or is not a multiple of the cluster's extent.
    #[error("a grid of {} CTAs is not a positive multiple of the cluster {}", box_of(.ctas), box_of(.cluster))]
    Grid {
        /// The grid in CTAs.
        ctas: [u32; 3],
        /// The cluster in CTAs.
        cluster: [u32; 3],
    },
    /// Launches that cannot run together.
    #[error(
        "{launches} launches together, on GPUs up to {gpu}: 1 to 16 launches on GPUs 0 to 15 can run together"
    )]
    Together {
        /// Number of launches.
        launches: usize,
        /// The largest number of a GPU.
        gpu: u32,
    },
    /// The description of a tensor map is not valid.
    #[error("a tensor map in memory: {0}")]
    TensorMap(#[source] TensorMapError),
    /// The host could not start the threads.
    #[error("the host did not start {asked} threads: {reason}")]
    Threads {
        /// Number of threads requested ([`Options::threads`](crate::Options::threads)).
        asked: usize,
        /// The host's error message.
        reason: String,
    },
}

/// Why a launch did not complete.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// The arguments do not match the function's parameters.
    #[error("{0}")]
    Argument(#[from] ArgumentError),
    /// The emulator was used wrongly.
    #[error("{0}")]
    Emulator(#[from] EmulatorError),
    /// The program has a fault.
    #[error("{0}")]
    Trap(#[from] Box<Trap>),
    /// The caller ended the launch ([`Options::stop`](crate::Options::stop)).
    #[error("the launch was stopped after {ctas} of {of} CTAs")]
    Stopped {
        /// Number of CTAs that ran to their end.
        ctas: u64,
        /// Number of CTAs of the grid.
        of: u64,
    },
}

fn box_of([x, y, z]: &[u32; 3]) -> String {
    format!("{x} x {y} x {z}")
}
