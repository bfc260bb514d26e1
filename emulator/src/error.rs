//! What can go wrong around a program: wrong use of the emulator, apart from the program's own faults.

use core::fmt;

use ptx::abi::{ArgumentError, TensorMapError};

use crate::trap::Trap;

/// A wrong use of the emulator.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EmulatorError {
    /// Bytes that lie in no allocation.
    NotAllocated {
        /// First byte.
        address: u64,
        /// How many.
        bytes: usize,
    },
    /// An extent of the grid is zero or not a multiple of the cluster's.
    Grid {
        /// The grid in CTAs.
        ctas: [u32; 3],
        /// The cluster in CTAs.
        cluster: [u32; 3],
    },
    /// A tensor map's description breaks a rule.
    TensorMap(TensorMapError),
    /// The host would not start the threads.
    Threads {
        /// How many were asked for.
        asked: usize,
        /// What the host said.
        reason: String,
    },
}

impl fmt::Display for EmulatorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAllocated { address, bytes } => {
                write!(f, "{bytes} B at device address {address:#x} lie in no allocation")
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

/// Why a launch ended early.
#[derive(Debug)]
#[non_exhaustive]
pub enum Failure {
    /// Arguments that do not fit the function's parameters.
    Argument(ArgumentError),
    /// The emulator was used wrongly.
    Emulator(EmulatorError),
    /// The program is at fault.
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
