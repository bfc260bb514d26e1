//! Why there is no kernel for a description, and the addresses that descriptions have.

use core::fmt;

use falchion::kernel::EngineError;

/// Why there is no kernel for a description.
#[derive(Clone, Debug)]
pub enum Refusal {
    /// An argument is invalid: its name, the value found and what was needed.
    Invalid(String),
    /// No kernel supports the GEMM, with the reason.
    NoKernel(String),
    /// The driver is missing, or returned an error.
    Driver(String),
    /// A mistake of this library.
    Internal(String),
}

impl Refusal {
    /// The same of a part of an argument.
    #[must_use]
    pub fn of(self, part: &str) -> Self {
        match self {
            Self::Invalid(words) if !words.starts_with(part) => Self::Invalid(format!("{part}: {words}")),
            other => other,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Invalid(words) | Self::NoKernel(words) | Self::Driver(words) | Self::Internal(words)) =
            self;
        f.write_str(words)
    }
}

impl core::error::Error for Refusal {}

/// An address for a description: a multiple of `bytes`, a power of two up to 256, and of no more.
pub const fn aligned(bytes: u32) -> u64 {
    (1 << 20) | bytes as u64
}

pub(crate) fn of_driver(error: EngineError) -> Refusal {
    match error {
        EngineError::NoKernel { .. } => Refusal::NoKernel(error.to_string()),
        _ => Refusal::Driver(error.to_string()),
    }
}
