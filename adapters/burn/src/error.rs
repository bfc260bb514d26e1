//! What can go wrong.

use core::fmt;

/// Why a product was refused.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Error {
    /// Shapes that do not fit.
    Shape {
        /// The argument.
        argument: &'static str,
        /// Its shape.
        found: Vec<usize>,
        /// In words.
        needed: String,
    },
    /// Elements of another type than those of the card's kernels.
    Element {
        /// The argument.
        argument: &'static str,
        /// Its type.
        found: String,
        /// In words.
        needed: String,
    },
    /// The words of falchion, of cubecl or of the driver.
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
            Self::Card(words) => words.fmt(f),
        }
    }
}

impl std::error::Error for Error {}
