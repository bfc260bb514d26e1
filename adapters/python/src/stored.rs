//! Operands that are stored in fewer bits than are multiplied, or with half of their elements.

use falchion::collective::{Format, GroupScales, MatrixRef, WeightsSpec};
use falchion::kernel::Types;
use pyo3::prelude::*;

use crate::array::{Array, invalid};

/// A prepared operand: few-bit weights, or a sparse matrix.
pub(crate) struct Stored<'py> {
    /// Codes, or the elements that are kept.
    pub(crate) values: Array<'py>,
    pub(crate) matrix: MatrixRef,
    /// Rows and columns as they are multiplied.
    pub(crate) shape: [i64; 2],
    pub(crate) groups: Option<GroupScales>,
    pub(crate) metadata: Option<MatrixRef>,
    pub(crate) weights: Option<WeightsSpec>,
    /// The format that is multiplied, of a sparse matrix.
    format: Option<Format>,
    pub(crate) kept: Vec<Bound<'py, PyAny>>,
}

/// The prepared operand of an argument; `None` for an array.
pub(crate) fn of<'py>(_name: &str, _object: &Bound<'py, PyAny>) -> PyResult<Option<Stored<'py>>> {
    Ok(None)
}

/// The types of a GEMM with a prepared operand.
pub(crate) fn types(
    _stored: &[Option<Stored<'_>>; 2],
    _arrays: [&Array<'_>; 2],
    _out: Option<&Array<'_>>,
    _given: Option<&str>,
) -> PyResult<(Types, Option<Format>)> {
    invalid("")
}
