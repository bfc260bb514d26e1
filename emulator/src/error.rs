//! Errors of a launch: wrong use of the emulator. The program's own faults are [`crate::Fault`]s.

use core::fmt;

use ptx::abi::{ArgumentError, TensorMapError};

use crate::trap::Trap;

/// A wrong use of the emulator.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EmulatorError {
    /// A host access to bytes outside every allocation.
    NotAllocated {
        /// Device address of the first byte.
        address: u64,
        /// Number of bytes.
        bytes: usize,
    },
    /// An extent of the grid is zero, or is not a multiple of the cluster's extent.
    Grid {
        /// The grid in CTAs.
        ctas: [u32; 3],
        /// The cluster in CTAs.
        cluster: [u32; 3],
    },
    /// The description of a tensor map is not valid.
    TensorMap(TensorMapError),
    /// The host could not start the threads.
    Threads {
        /// Number of threads requested ([`Options::threads`](crate::Options::threads)).
        asked: usize,
        /// The host's error message.
        reason: String,
    },
}

impl fmt::Display for EmulatorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAllocated { address, bytes } => {
                write!(f, "{bytes} B at device address {address:#x} are outside every allocation")
            }
            Self::Grid { ctas: [x, y, z], cluster: [cx, cy, cz] } => {
                write!(
                    f,
                    "a grid of {x} x {y} x {z} CTAs is not a positive multiple of the cluster {cx} x {cy} x {cz}"
                )
            }
            Self::TensorMap(error) => write!(f, "a tensor map in memory: {error}"),
            Self::Threads { asked, reason } => write!(f, "the host did not start {asked} threads: {reason}"),
        }
    }
}

impl std::error::Error for EmulatorError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::TensorMap(error) => Some(error),
            Self::NotAllocated { .. } | Self::Grid { .. } | Self::Threads { .. } => None,
        }
    }
}

/// Why a launch did not complete.
#[derive(Debug)]
#[non_exhaustive]
pub enum Failure {
    /// The arguments do not match the function's parameters.
    Argument(ArgumentError),
    /// The emulator was used wrongly.
    Emulator(EmulatorError),
    /// The program has a fault.
    Trap(Box<Trap>),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Argument(error) => error.fmt(f),
            Self::Emulator(error) => error.fmt(f),
            Self::Trap(trap) => trap.fmt(f),
        }
    }
}

impl std::error::Error for Failure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Argument(error) => Some(error),
            Self::Emulator(error) => Some(error),
            Self::Trap(trap) => Some(trap),
        }
    }
}

impl From<ArgumentError> for Failure {
    fn from(error: ArgumentError) -> Self {
        Self::Argument(error)
    }
}

impl From<EmulatorError> for Failure {
    fn from(error: EmulatorError) -> Self {
        Self::Emulator(error)
    }
}

impl From<Box<Trap>> for Failure {
    fn from(trap: Box<Trap>) -> Self {
        Self::Trap(trap)
    }
}
