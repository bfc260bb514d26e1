//! The tensors of attention: what is read as it lies, and what is copied.

use falchion::attention::HeadsRef;
use falchion::collective::Format;
use falchion_core::{Heads, Operation, Refusal};
use pyo3::prelude::*;

use crate::array::{Access, Array, Elements, Fill, Found, Rule, invalid, shape_words};
use crate::error::{about, of_refusal};

/// The elements of Q, whose format is that of the request; `named` is the one that an argument says. They may have 8 bits if that is `narrow`.
pub(crate) fn elements(
    q: &Found<'_>,
    named: Option<Format>,
    heads: &mut Heads,
    narrow: bool,
) -> PyResult<Elements> {
    const NARROW: [Format; 3] = [Format::Bf16, Format::F16, Format::E4m3];
    let known: (&[Format], _) = match narrow {
        true => (&NARROW, "float16, bfloat16 or float8_e4m3fn"),
        false => (&HALVES, "float16 or bfloat16"),
    };
    let (format, elements) = one_of(("q", q), named, known)?;
    (heads.request.format, heads.request.output) =
        (format, if format.bits() == 8 { Format::Bf16 } else { format });
    Ok(elements)
}

/// The formats of attention's tensors of 16 bits.
pub(crate) const HALVES: [Format; 2] = [Format::Bf16, Format::F16];

/// The elements of an array, whose format is one of these; `named` is the one that an argument says.
pub(crate) fn one_of(
    (name, array): (&str, &Found<'_>),
    named: Option<Format>,
    (formats, words): (&[Format], &str),
) -> PyResult<(Format, Elements)> {
    match (array.format(), named) {
        (_, Some(named)) => Ok((named, Elements::OrBits(named))),
        (Some(format), None) if formats.contains(&format) => Ok((format, Elements::Of(format))),
        (found, None) => {
            let hint = match found {
                None => ", or types= for unsigned integers of the same size, for example \"bf16\"",
                Some(_) => "",
            };
            invalid(format!("{name} has elements of {}, {words} was needed{hint}", array.type_words()))
        }
    }
}

/// The elements of K and V, where those of Q are known: they may have 8 bits, and Q 16.
pub(crate) fn elements_of_keys(k: &Found<'_>, of_q: Elements, heads: &mut Heads) -> Elements {
    if k.format() == Some(Format::E4m3) && heads.request.format.bits() == 16 {
        heads.request.cache = Some(Format::E4m3);
        return Elements::Of(Format::E4m3);
    }
    of_q
}

/// Says the elements of a head of Q and K, and of V and O.
pub(crate) fn say_elements(q: &Found<'_>, d: [i64; 2], heads: &mut Heads) -> PyResult<()> {
    let Ok([d, dv]) = all(d.map(u32::try_from)) else {
        return invalid(format!("q has shape {}, extents below 2^31 were needed", q.shape_words()));
    };
    (heads.request.head, heads.dv) = ([d, dv], Some(dv));
    Ok(())
}

/// The arguments of which an error of the kernel is one.
pub(crate) const WHO: &str = "q, k, v";

/// Why what was asked of an operation is refused: of the argument that the words begin with, or of the tensors.
pub(crate) fn refused<D, G>(py: Python<'_>, operation: &Operation<D, G>, refusal: &Refusal) -> PyErr {
    let (words, error) = (refusal.to_string(), of_refusal(refusal));
    let first = words.split(' ').next();
    if operation.python().any(|of| of.name() == first) { error } else { about(py, WHO, error) }
}

/// Checks the shape of an array.
pub(crate) fn needed(name: &str, array: &Found<'_>, shape: &[i64]) -> PyResult<()> {
    if array.shape() == shape {
        return Ok(());
    }
    let (found, needed) = (array.shape_words(), shape_words(shape));
    invalid(format!("{name} has shape {found}, {needed} was needed"))
}

/// The results, if none failed.
pub(crate) fn all<T: Copy + Default, E, const N: usize>(results: [Result<T, E>; N]) -> Result<[T; N], E> {
    let mut whole = [T::default(); N];
    for (place, result) in whole.iter_mut().zip(results) {
        *place = result?;
    }
    Ok(whole)
}

/// The array of an argument, with what can be said of it alone.
pub(crate) fn readable<'py>(name: &str, object: &Bound<'py, PyAny>) -> PyResult<Found<'py>> {
    let found = Found::of(name, object)?;
    if !matches!(found.rank(), 3 | 4) {
        return invalid(format!(
            "{name} has shape {}, (batch, heads, length, d) or (heads, length, d) was needed",
            found.shape_words()
        ));
    }
    Ok(found)
}

/// The log-sum-exp of queries, or a number for each of them: a packed array of this shape, in the place of another one.
pub(crate) fn sums<'py>(
    (name, object): (&str, &Bound<'py, PyAny>),
    needed: &[i64],
    (like, q): (&str, &Array<'py>),
    access: Access,
) -> PyResult<Array<'py>> {
    let rule = Rule::new(Elements::Of(Format::F32), access).at(q.place(), like).without_gradient(None);
    let sums = Found::of(name, object)?.admit(name, &rule)?;
    if sums.shape() != needed || !sums.is_packed() {
        let strided = if sums.is_packed() { "" } else { " with gaps" };
        return invalid(format!(
            "{name} has shape {}{strided}, a packed array of shape {} was needed",
            sums.shape_words(),
            shape_words(needed)
        ));
    }
    Ok(sums)
}

/// Where the rows of an array are; `None` if the elements of a head are not contiguous, or a stride is negative.
pub(crate) fn heads_of(array: &Array<'_>) -> Option<HeadsRef> {
    let [d, step] = array.last(0);
    let any = d.unsigned_abs().next_multiple_of(16);
    // What has no elements is nowhere.
    if array.is_empty() {
        return Some(HeadsRef { address: 0, row: any, head: any, batch: any });
    }
    if d > 1 && step != 1 {
        return None;
    }
    let stride = |i: usize| {
        let [extent, stride] = array.last(i);
        // After the only one nothing follows: any legal distance.
        if extent > 1 { u64::try_from(stride).ok() } else { Some(any) }
    };
    Some(HeadsRef { address: array.address(), row: stride(1)?, head: stride(2)?, batch: stride(3)? })
}

/// Whether an array begins at a multiple of 16 bytes, and so do its rows.
fn on_16(of: &HeadsRef, array: &Array<'_>) -> bool {
    let bytes = u64::from(array.bytes());
    [of.address, of.row * bytes, of.head * bytes, of.batch * bytes].iter().all(|at| at.is_multiple_of(16))
}

/// The array as kernels read it: as it lies, or a copy.
pub(crate) fn aligned<'py>(name: &str, array: Array<'py>) -> PyResult<(Array<'py>, HeadsRef)> {
    // Rows that overlap are not distinct for tensor copies; a copy's are.
    let fits = |array: &Array<'py>| {
        heads_of(array).filter(|of| on_16(of, array) && of.row >= array.last(0)[0].unsigned_abs())
    };
    if let Some(of) = fits(&array) {
        return Ok((array, of));
    }
    let [_, view] = array.in_lines(name, (16, Fill::Nothing), false)?;
    match fits(&view) {
        Some(of) => Ok((view, of)),
        None => invalid(format!("{name} of shape {} cannot be copied", array.shape_words())),
    }
}
