//! The errors of kernels, as Python's.

use falchion::kernel::{EngineError, LaunchError};
use falchion_core::{APPEND_PAGES, MERGE_ATTENTION, Refusal};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;

pub(crate) fn of_engine(error: &EngineError) -> PyErr {
    match error {
        EngineError::Call { source, .. } => PyValueError::new_err(named(source).to_string()),
        EngineError::Trap { .. } => crate::Fault::new_err(error.to_string()),
        _ => PyRuntimeError::new_err(error.to_string()),
    }
}

/// An error that names arrays, with the names of the arguments that they are.
fn named(error: &LaunchError) -> LaunchError {
    let mut error = error.clone();
    if let LaunchError::Shared { written, other, .. } = &mut error {
        for name in [written, other] {
            match name.as_str() {
                "D" | "O" => "out".clone_into(name),
                "A" | "B" | "C" | "Q" | "K" | "V" => name.make_ascii_lowercase(),
                of => {
                    let argument = MERGE_ATTENTION.given.argument(of).or(APPEND_PAGES.given.argument(of));
                    *name = argument.unwrap_or(of).to_owned();
                }
            }
        }
    }
    error
}

pub(crate) fn of_refusal(refusal: &Refusal) -> PyErr {
    match refusal {
        Refusal::Invalid(words) | Refusal::NoKernel(words) => PyValueError::new_err(words.clone()),
        Refusal::Driver(words) | Refusal::Internal(words) => PyRuntimeError::new_err(words.clone()),
    }
}

/// A `ValueError` of a kernel as one of the arguments that it is about. Errors of a text (`spec: ...`, `epilogue: ...`) say it themselves.
pub(crate) fn about(py: Python<'_>, names: &str, error: PyErr) -> PyErr {
    if !error.is_instance_of::<PyValueError>(py) {
        return error;
    }
    let words = error.value(py).to_string();
    if ["spec", "epilogue", "beta"].iter().any(|of| words.starts_with(&format!("{of}: "))) {
        return error;
    }
    PyValueError::new_err(format!("{names}: {words}"))
}
