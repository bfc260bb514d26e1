//! How the operands and the result lie in memory, as kernels take them.

use falchion::collective::{Format, MatrixRef};
use falchion::cute_rs::atom::Major;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::array::{Array, Fill, invalid};

/// A matrix of a call, or one per GEMM.
#[derive(Debug)]
pub(crate) struct Operand<'py> {
    /// The array that is multiplied: the caller's, or a copy.
    pub(crate) array: Array<'py>,
    pub(crate) matrix: MatrixRef,
    pub(crate) major: Major,
}

/// An operand: its rows along M (or columns along N), and its K.
pub(crate) struct Sides {
    pub(crate) name: &'static str,
    /// Whether it is B, whose rows are along K.
    pub(crate) is_b: bool,
    pub(crate) format: Format,
    /// Whether only tensor copies load it: its address, rows and distances are multiples of 16 bytes.
    pub(crate) aligned: bool,
    /// Whether it is one matrix, whatever its dimensions.
    pub(crate) single: bool,
}

/// Whether instructions multiply a format only if it is contiguous along K.
fn along_k_alone(format: Format) -> bool {
    format.bits() != 16 && format != Format::F32
}

impl Sides {
    /// The operand that is multiplied: the array as it lies, if a kernel takes it so, or else a copy.
    pub(crate) fn of<'py>(&self, array: Array<'py>) -> PyResult<Operand<'py>> {
        if let Some(found) = self.found(&array) {
            let (matrix, major) = found;
            return Ok(Operand { array, matrix, major });
        }
        let turned = self.is_b && (along_k_alone(self.format) || self.aligned);
        let copy = array.copied(self.name, turned)?;
        if let Some((matrix, major)) = self.found(&copy) {
            return Ok(Operand { array: copy, matrix, major });
        }
        // Rows that begin at multiples of 16 bytes.
        let [_, view] = copy.in_lines(self.name, (i64::from(16 / copy.bytes()), Fill::Nothing), turned)?;
        match self.found(&view) {
            Some((matrix, major)) => Ok(Operand { array: view, matrix, major }),
            None => invalid(format!("{} of shape {} cannot be copied", self.name, array.shape_words())),
        }
    }

    /// Where the operand is, if a kernel takes it as it lies.
    fn found(&self, array: &Array<'_>) -> Option<(MatrixRef, Major)> {
        let (k, mn) = if self.is_b { (array.last(1), array.last(0)) } else { (array.last(0), array.last(1)) };
        let [count, distance] = array.last(2);
        let stride = if count <= 1 || self.single { Some(0) } else { u64::try_from(distance).ok() }?;
        let units = |ld: u64| {
            let bytes = u64::from(array.bytes());
            [array.address(), ld * bytes, stride * bytes].iter().all(|of| of.is_multiple_of(16))
        };
        let at = |ld, major| {
            let matrix = MatrixRef { address: array.address(), ld, stride };
            (!self.aligned || units(ld)).then_some((matrix, major))
        };
        let along_k = || at(leading(k, mn, array.bytes())?, Major::K);
        let along_mn = || {
            if along_k_alone(self.format) || self.aligned {
                return None;
            }
            at(leading(mn, k, array.bytes())?, Major::Mn)
        };
        along_k().or_else(along_mn)
    }
}

/// The leading dimension of lines; `None` if their elements are not next to each other, or lines overlap.
fn leading(line: [i64; 2], lines: [i64; 2], bytes: u32) -> Option<u64> {
    let [length, step] = line;
    if length > 1 && step != 1 && lines[0] > 0 {
        return None;
    }
    if lines[0] <= 1 || length == 0 {
        // There is one line: any distance is right, and this one serves most kernels.
        return Some(u64::try_from(length.max(1)).ok()?.next_multiple_of(u64::from(16 / bytes.min(16))));
    }
    u64::try_from(lines[1]).ok().filter(|&ld| ld >= length.unsigned_abs().max(1))
}

/// A row-major matrix that is used as it lies, or one per GEMM.
pub(crate) fn row_major(name: &str, array: &Array<'_>) -> PyResult<MatrixRef> {
    let ld = leading(array.last(0), array.last(1), array.bytes());
    let [count, distance] = array.last(2);
    let stride = if count <= 1 { Some(0) } else { u64::try_from(distance).ok() };
    let (Some(ld), Some(stride)) = (ld, stride) else {
        return Err(PyValueError::new_err(format!(
            "{name} of shape {} has no contiguous rows, a row-major array was needed",
            array.shape_words()
        )));
    };
    let ld = if array.last(1)[0] <= 1 { ld.max(array.last(0)[0].unsigned_abs()) } else { ld };
    Ok(MatrixRef { address: array.address(), ld, stride })
}
