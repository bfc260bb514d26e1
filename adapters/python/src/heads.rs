//! The tensors of attention: what is read as it lies, and what is copied.

use falchion::attention::HeadsRef;
use falchion::collective::Format;
use pyo3::prelude::*;
use pyo3::types::PyEllipsis;

use crate::array::{Array, Library, invalid, shape_words, type_name};

/// The name of the type of an array's elements.
pub(crate) fn words(array: &Array<'_>) -> &'static str {
    array.format.map_or("integers", type_name)
}

/// The format that is multiplied.
pub(crate) fn format(q: &Array<'_>, named: Option<Format>) -> PyResult<Format> {
    match (q.format, named) {
        (Some(format @ (Format::Bf16 | Format::F16)), None) => Ok(format),
        (Some(format), Some(named)) if format == named => Ok(named),
        (None, Some(named)) if q.bytes == 2 => Ok(named),
        (None, None) if q.bytes == 2 => {
            invalid("q has elements that are no numbers of a kernel: types= was needed, for example \"bf16\"")
        }
        (_, named) => {
            let needed = named.map_or("float16 or bfloat16", type_name);
            invalid(format!("q has elements of {}, {needed} was needed", words(q)))
        }
    }
}

/// The array of an argument, with what can be said of it alone.
pub(crate) fn readable<'py>(name: &str, object: &Bound<'py, PyAny>) -> PyResult<Array<'py>> {
    let array = Array::of(name, object)?;
    if !matches!(array.rank(), 3 | 4) {
        return invalid(format!(
            "{name} has shape {}, (batch, heads, length, d) or (heads, length, d) was needed",
            array.shape_words()
        ));
    }
    if array.recorded()? {
        return invalid(format!(
            "{name} requires a gradient, which this function does not have: falchion.torch.attention or torch.no_grad() was needed"
        ));
    }
    Ok(array)
}

pub(crate) fn writable(name: &str, array: &Array<'_>) -> PyResult<()> {
    if array.library == Library::Numpy && !array.object.getattr("flags")?.getattr("writeable")?.is_truthy()? {
        return invalid(format!("{name} is read-only, a writable array was needed"));
    }
    Ok(())
}

/// Whether the elements of an array follow each other without gaps.
pub(crate) fn packed(array: &Array<'_>) -> bool {
    let stride = (0..array.rank()).try_fold(1, |stride, i| {
        let [extent, found] = array.last(i);
        (extent <= 1 || found == stride).then_some(stride * extent.max(1))
    });
    stride.is_some()
}

/// The log-sum-exp of queries: a packed array of this shape, in the place of Q.
pub(crate) fn sums<'py>(object: &Bound<'py, PyAny>, needed: &[i64], q: &Array<'py>) -> PyResult<Array<'py>> {
    let sums = Array::of("log_sum_exp", object)?;
    if sums.shape() != needed || sums.format != Some(Format::F32) || !packed(&sums) || sums.place != q.place {
        return invalid(format!(
            "log_sum_exp has shape {} of {} in {}, a packed array of shape {} of float32 in {} was needed",
            sums.shape_words(),
            words(&sums),
            sums.place.words(),
            shape_words(needed),
            q.place.words()
        ));
    }
    Ok(sums)
}

/// Where the rows of an array are; `None` if the elements of a head are not contiguous, or a stride is negative.
pub(crate) fn heads_of(array: &Array<'_>) -> Option<HeadsRef> {
    let [d, step] = array.last(0);
    if d > 1 && step != 1 {
        return None;
    }
    let stride = |i: usize| {
        let [extent, stride] = array.last(i);
        // After the only one nothing follows: any legal distance.
        if extent > 1 { u64::try_from(stride).ok() } else { Some(d.unsigned_abs().next_multiple_of(8)) }
    };
    Some(HeadsRef { address: array.address, row: stride(1)?, head: stride(2)?, batch: stride(3)? })
}

/// Whether an array begins at a multiple of 16 bytes, and so do its rows.
pub(crate) fn on_16(of: &HeadsRef, array: &Array<'_>) -> bool {
    let bytes = u64::from(array.bytes);
    [of.address, of.row * bytes, of.head * bytes, of.batch * bytes].iter().all(|at| at.is_multiple_of(16))
}

/// The array as kernels read it: as it lies, or a copy.
pub(crate) fn aligned<'py>(
    py: Python<'py>,
    name: &str,
    array: Array<'py>,
) -> PyResult<(Array<'py>, HeadsRef)> {
    // Rows that overlap are not distinct for tensor copies; a copy's are.
    let fits = |array: &Array<'py>| {
        heads_of(array).filter(|of| on_16(of, array) && of.row >= array.last(0)[0].unsigned_abs())
    };
    if let Some(of) = fits(&array) {
        return Ok((array, of));
    }
    let room = array.room(&array.shape())?;
    room.set_item(PyEllipsis::get(py), &array.object)?;
    let copy = Array::of(name, &room)?;
    match fits(&copy) {
        Some(of) => Ok((copy, of)),
        None => {
            let found = copy.last(0)[0];
            invalid(format!("{name} has heads of {found} elements, 64, 96, 128, 192 or 256 were needed"))
        }
    }
}
