//! Why a text is not a spec.

use collective::FormulaError;

use crate::legal::IllegalKernel;

/// Why a text is not a legal spec of a kernel.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpecError {
    /// A word without `=`.
    #[error("`{word}` is not a `key=value` of a spec")]
    Word {
        /// The word.
        word: String,
    },
    /// A key that does not exist.
    #[error("a spec has no key `{key}`; the keys are {}", known.join(", "))]
    Key {
        /// The key.
        key: String,
        /// The keys that exist.
        known: Vec<&'static str>,
    },
    /// A key that is given twice.
    #[error("`{key}` is given twice")]
    Twice {
        /// The key.
        key: String,
    },
    /// A value that the key does not accept.
    #[error("{key} is `{value}`, {needed} was needed")]
    Value {
        /// The key.
        key: &'static str,
        /// The value that was given.
        value: String,
        /// The values that the key accepts.
        needed: String,
    },
    /// A key that the chosen scheduler or store does not have.
    #[error("{key}={value} belongs to {of}")]
    Unused {
        /// The key.
        key: &'static str,
        /// The value that was given.
        value: String,
        /// What the key belongs to.
        of: &'static str,
    },
    /// An epilogue that is no formula.
    #[error("epilogue is neither linear nor sourced: {0}")]
    Formula(#[from] FormulaError),
    /// A legal text of an illegal kernel.
    #[error("{error}{}", nearest.as_ref().map_or_else(String::new, |nearest| format!("; the nearest legal spec has {nearest}")))]
    Illegal {
        /// The rule that the kernel breaks.
        error: IllegalKernel,
        /// The change that gives the nearest legal spec, as `key=value`.
        nearest: Option<String>,
    },
}

/// The beginning of a user's text, to quote in an error.
pub(super) fn shortened(text: &str) -> String {
    const MOST: usize = 40;
    if text.chars().count() <= MOST {
        text.to_owned()
    } else {
        text.chars().take(MOST).chain(['…']).collect()
    }
}
