//! The errors of this crate.

use core::fmt;

use cust::error::CudaError;
use falchion::kernel::EngineError;
use falchion::kernel::driver::Activation;

/// Why a GEMM was not enqueued, or failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// An error of falchion.
    Falchion(EngineError),
    /// An error of cust.
    Cust(CudaError),
    /// cust's current device has a negative number.
    Device {
        /// The number.
        found: i32,
    },
    /// An activation was given without a bias. Only kernels that add a bias have an activation.
    NoBias {
        /// The activation that was given.
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
