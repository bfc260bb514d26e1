//! Whole numbers of Python, which have any size.

use pyo3::prelude::*;
use pyo3::types::PyInt;
use pyo3::{Borrowed, PyErr, intern};

use crate::array::invalid;

/// A whole number that was given for an argument.
#[derive(Clone, Debug)]
pub(crate) enum Whole {
    Small(i64),
    /// In words: it needs more than 64 bits.
    Large(String),
}

impl<'py> FromPyObject<'_, 'py> for Whole {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let py = object.py();
        let number = match object.cast::<PyInt>() {
            Ok(number) => number.to_owned().into_any(),
            // numpy's whole numbers are others.
            Err(_) => py.import(intern!(py, "operator"))?.call_method1(intern!(py, "index"), (object,))?,
        };
        match number.extract() {
            Ok(small) => Ok(Self::Small(small)),
            Err(_) => Ok(Self::Large(number.to_string())),
        }
    }
}

impl Whole {
    /// The number, from `least` on.
    ///
    /// # Errors
    /// `ValueError` with the argument's name, for another number.
    pub(crate) fn from<T: TryFrom<i64> + Copy + Into<i64>>(
        &self,
        name: &str,
        [least, most]: [T; 2],
    ) -> PyResult<T> {
        let range = least.into()..=most.into();
        match self {
            Self::Small(number) if range.contains(number) => match T::try_from(*number) {
                Ok(number) => Ok(number),
                Err(_) => invalid(format!("{name} is {number}, another number was needed")),
            },
            Self::Small(_) | Self::Large(_) => {
                let number = match self {
                    Self::Small(number) => number.to_string(),
                    Self::Large(words) => words.clone(),
                };
                let (least, most) = (range.start(), range.end());
                invalid(format!("{name} is {number}, a whole number from {least} to {most} was needed"))
            }
        }
    }
}

/// The numbers of keys before and after a query's own that it sees.
pub(crate) fn window_of(given: Option<&Bound<'_, PyAny>>) -> PyResult<Option<[i32; 2]>> {
    let Some(given) = given else { return Ok(None) };
    let Ok([left, right]) = given.extract::<[Whole; 2]>() else {
        return invalid(format!("window is {given}, a pair of whole numbers was needed"));
    };
    // What is no limit is -1; a number below means the same.
    let range = [i32::MIN, i32::MAX];
    Ok(Some([left.from("window", range)?, right.from("window", range)?]))
}
