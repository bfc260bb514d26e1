//! Numbers of the heads of attention: slopes, sinks, and the factors of 8-bit tensors.

use falchion::attention::{ArrayRef, HeadNumbers};
use falchion::collective::Format;
use falchion_core::Heads;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::array::{Access, Array, Elements, Found, Place, Rule, extent as extent_of, invalid, shape_words};
use crate::named::Named;

/// The arguments with factors, of Q, K and V.
const FACTORS: [&str; 3] = ["q_descale", "k_descale", "v_descale"];

/// A packed array of `f32` in the place of Q, which has one of these shapes; and which one.
fn vector<'py>(
    (name, object): (&str, &Bound<'py, PyAny>),
    shapes: &[&[i64]],
    place: Place,
) -> PyResult<(Array<'py>, usize)> {
    let rule = Rule::new(Elements::Of(Format::F32), Access::Copied).at(place, "q");
    let rule = rule.without_gradient(Some("falchion.torch.attention"));
    let array = Found::of(name, object)?.admit(name, &rule)?;
    let Some(which) = shapes.iter().position(|shape| array.shape() == **shape) else {
        let needed = shapes.iter().map(|shape| shape_words(shape)).collect::<Vec<_>>().join(" or ");
        return invalid(format!("{name} has shape {}, {needed} was needed", array.shape_words()));
    };
    Ok((if array.is_packed() { array } else { array.copied(name, false)? }, which))
}

/// Says the arrays of formulas, which lie as their strides say. Returns them: the call reads them.
fn arrays<'py>(named: &Named<'py>, place: Place, heads: &mut Heads) -> PyResult<Vec<Array<'py>>> {
    let Some(given) = named.get("arrays") else { return Ok(Vec::new()) };
    let Ok(given) = given.cast::<PyDict>() else {
        return invalid(format!(
            "arrays is a {}, a dict of arrays by their names was needed",
            given.get_type().name()?
        ));
    };
    let needed = heads.request.arrays();
    let mut kept = Vec::new();
    for (key, object) in given {
        let name: String =
            key.extract().or_else(|_| invalid("arrays has a key that is no str, names were needed"))?;
        let label = format!("arrays[\"{name}\"]");
        let Some((_, format, dimensions)) = needed.iter().find(|(of, ..)| *of == name) else {
            return invalid(format!(
                "{label} is given, and neither score nor sees reads it: it was not needed"
            ));
        };
        let rule = Rule::new(Elements::Of(*format), Access::Copied).at(place, "q");
        let rule = rule.without_gradient(Some("a formula without gradients of its arrays"));
        let array = Found::of(&label, &object)?.admit(&label, &rule)?;
        if array.rank() != *dimensions || array.is_empty() {
            let found = array.shape_words();
            return invalid(format!(
                "{label} has shape {found}, {dimensions} dimensions with elements were needed"
            ));
        }
        let falls = (0..*dimensions).any(|i| array.last(i)[0] > 1 && array.last(i)[1] < 0);
        let array = if falls { array.copied(&label, false)? } else { array };
        let mut of = ArrayRef { address: array.address(), ..ArrayRef::default() };
        for [extent, stride] in (0..*dimensions).rev().map(|i| array.last(i)) {
            of.shape.push(extent_of(&label, &array, extent)?);
            of.strides.push(if extent > 1 { stride.unsigned_abs() } else { 0 });
        }
        heads.arrays.push((name, of));
        kept.push(array);
    }
    Ok(kept)
}

/// Says the slopes, sinks, factors and arrays of formulas that are given, of heads whose extents are known. Returns the arrays, which the call reads.
pub(crate) fn say<'py>(named: &Named<'py>, place: Place, heads: &mut Heads) -> PyResult<Vec<Array<'py>>> {
    let problem = heads.request.problem;
    let [batch, of_queries] = [problem.batch, problem.heads[0]].map(i64::from);
    let shared = heads.shared.map_or(of_queries, i64::from);
    let mut kept = arrays(named, place, heads)?;
    if let Some(slopes) = named.get("alibi_slopes") {
        let shapes: [&[i64]; 2] = [&[of_queries], &[batch, of_queries]];
        let (slopes, which) = vector(("alibi_slopes", slopes), &shapes, place)?;
        heads.request.alibi = true;
        heads.call.head_numbers = HeadNumbers { addresses: vec![slopes.address()], per_sequence: which == 1 };
        kept.push(slopes);
    }
    if let Some(sinks) = named.get("sinks") {
        let (sinks, _) = vector(("sinks", sinks), &[&[of_queries]], place)?;
        heads.request.sinks = true;
        heads.call.sinks = sinks.address();
        kept.push(sinks);
    }
    let mut before = None;
    for (i, name) in FACTORS.into_iter().enumerate() {
        let Some(given) = named.get(name) else { continue };
        let of_16_bits = heads.request.format.bits() > 8;
        if of_16_bits && (i == 0 || heads.request.cache.is_none()) {
            let of = ["q", "k", "v"][i];
            return invalid(format!(
                "{name} is given and {of} has elements of 16 bits, float8_e4m3fn was needed"
            ));
        }
        let shapes: [&[i64]; 3] = [&[], &[1], &[shared]];
        let (factor, which) = vector((name, given), &shapes, place)?;
        let wrong = |reals: Vec<f64>| reals.into_iter().find(|&real| !(real > 0.0 && real.is_finite()));
        if let Some(real) = factor.reals()?.filter(|_| i < 2).and_then(wrong) {
            return invalid(format!("{name} has {real}, a finite number above zero was needed"));
        }
        let per_head = which == 2;
        if let Some((other, is)) = before.filter(|(_, is)| *is != per_head) {
            let needed = shape_words(&[if is { shared } else { 1 }]);
            return invalid(format!(
                "{name} has shape {}, {needed} was needed as {other} has: one for all heads, or one for each",
                factor.shape_words()
            ));
        }
        before = Some((name, per_head));
        heads.call.factors.per_head = per_head;
        heads.call.factors.addresses[i] = factor.address();
        kept.push(factor);
    }
    Ok(kept)
}
