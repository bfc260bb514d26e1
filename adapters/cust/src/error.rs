//! What can go wrong.

use core::fmt;

use cust::error::CudaError;
use falchion::kernel::EngineError;
use falchion::kernel::driver::Activation;

/// Why a product was not enqueued, or did not end well.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// falchion's words.
    Falchion(EngineError),
    /// cust's.
    Cust(CudaError),
    /// cust's current device has a number that is none.
    Device {
        /// It.
        found: i32,
    },
    /// An activation is part of the kernels that add a bias.
    NoBias {
        /// What was asked for.
        activation: Activation,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Falchion(error) => error.fmt(f),
            Self::Cust(error) => error.fmt(f),
            Self::Device { found } => {
                write!(f, "the current device is {found}, a number from 0 on was needed")
            }
            Self::NoBias { activation } => {
                write!(
                    f,
                    "the activation is {activation:?} and there is no bias: both, or `Activation::Identity`, were needed"
                )
            }
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Falchion(error) => error.source(),
            Self::Cust(error) => error.source(),
            Self::Device { .. } | Self::NoBias { .. } => None,
        }
    }
}

impl From<EngineError> for Error {
    fn from(error: EngineError) -> Self {
        Self::Falchion(error)
    }
}

impl From<CudaError> for Error {
    fn from(error: CudaError) -> Self {
        Self::Cust(error)
    }
}
