//! The errors of this crate.

use core::fmt;

use falchion_core::Refusal;

/// Why a GEMM or a file was refused.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Error {
    /// A shape does not fit.
    Shape {
        /// Name of the argument.
        argument: &'static str,
        /// Its shape.
        found: Vec<usize>,
        /// What was needed, in words.
        needed: String,
    },
    /// The kernels on the card do not support the element type.
    Element {
        /// Name of the argument.
        argument: &'static str,
        /// Its type.
        found: String,
        /// What was needed, in words.
        needed: String,
    },
    /// A device that is not supported, or tensors on different devices.
    Device {
        /// Name of the argument.
        argument: &'static str,
        /// Its device.
        found: String,
        /// What was needed, in words.
        needed: String,
    },
    /// A tensor of a file is missing or does not fit: its name, what it has and what was needed.
    File(String),
    /// The message of falchion, cubecl or the driver.
    Card(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shape { argument, found, needed } => {
                write!(f, "{argument} has shape {found:?}, {needed} was needed")
            }
            Self::Element { argument, found, needed } => {
                write!(f, "{argument} has elements of {found}, {needed} was needed")
            }
            Self::Device { argument, found, needed } => {
                write!(f, "{argument} is on {found}, {needed} was needed")
            }
            Self::File(words) | Self::Card(words) => words.fmt(f),
        }
    }
}

impl std::error::Error for Error {}

/// Of a layer in a file.
impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        Self::File(refusal.to_string())
    }
}
