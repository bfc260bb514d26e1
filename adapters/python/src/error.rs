//! The errors of kernels, as Python's.

use falchion::kernel::EngineError;
use falchion_core::Refusal;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;

pub(crate) fn of_engine(error: &EngineError) -> PyErr {
    match error {
        EngineError::Call { source, .. } => PyValueError::new_err(source.to_string()),
        EngineError::Trap { .. } => crate::Fault::new_err(error.to_string()),
        _ => PyRuntimeError::new_err(error.to_string()),
    }
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
