//! The text of an epilogue, completed by what the arguments say, and its arguments.

use std::collections::HashMap;
use std::sync::Arc;

use falchion::collective::process::Locked;
use falchion::collective::tree::{DropoutArgument, Scratch};
use falchion::collective::{Format, Formula, Input};
use falchion_core::{Kind, Slot};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::array::{Access, Array, Elements, Fill, Found, Rule, invalid, number, shape_words, type_name};
use crate::error::of_refusal;
use crate::operand::row_major;
use crate::place::KEPT;

/// An argument by name: a number, an array, or whatever else was given.
pub(crate) struct Given<'py> {
    pub(crate) name: String,
    pub(crate) value: Value<'py>,
}

pub(crate) enum Value<'py> {
    Number(f64),
    Array(Found<'py>),
    Mask(DropoutArgument),
}

impl<'py> Given<'py> {
    pub(crate) fn of(name: String, object: &Bound<'py, PyAny>) -> PyResult<Self> {
        let value = match number(object) {
            Some(number) => Value::Number(number),
            // Without this question, every array would make an error first.
            None if object.is_instance_of::<PyTuple>() => {
                let Ok((probability, seed, offset)) = object.extract() else {
                    return invalid(format!(
                        "{name} is {object}, a tuple of probability, seed and offset was needed"
                    ));
                };
                Value::Mask(DropoutArgument { probability, seed, offset })
            }
            None => Value::Array(Found::of(&name, object)?),
        };
        Ok(Self { name, value })
    }

    fn format(&self) -> Option<Format> {
        if let Value::Array(array) = &self.value { array.format() } else { None }
    }
}

/// The scales of a whole matrix, in the text of an epilogue: what follows `acc`.
pub(crate) struct Scaled(pub(crate) &'static str);

/// The formula of a text. Arrays have the format of their elements, where the text does not say another one;
/// D has the format `d`, if it is given.
pub(crate) fn formula(
    text: &str,
    given: &[Given<'_>],
    scaled: &Scaled,
    (operand, d): (Format, Option<Format>),
) -> PyResult<Formula> {
    type Known = HashMap<String, Vec<(Vec<Option<Format>>, &'static str, Format, Option<Format>, Formula)>>;
    static KNOWN: Locked<Option<Known>> = Locked::new(None);
    let mut known = KNOWN.lock();
    let known = known.get_or_insert_default();
    let found = known.get(text).and_then(|all| {
        all.iter().find(|(formats, by, of, to, _)| {
            *by == scaled.0
                && *of == operand
                && *to == d
                && formats.len() == given.len()
                && formats.iter().zip(given).all(|(format, given)| *format == given.format())
        })
    });
    if let Some((.., formula)) = found {
        return Ok(*formula);
    }
    let whole = completed(text, given, scaled);
    let formula = falchion_core::formula(&whole, operand, d).map_err(|refusal| of_refusal(&refusal))?;
    let formats = given.iter().map(Given::format).collect();
    if known.len() >= KEPT {
        known.clear();
    }
    known.entry(text.to_owned()).or_default().push((formats, scaled.0, operand, d, formula));
    Ok(formula)
}

/// Whether a text says the format of an argument: `bias[n]:bf16`.
fn says_format(text: &str, name: &str) -> bool {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.match_indices(name).any(|(at, _)| {
        let (before, after) = (&text[..at], &text[at + name.len()..]);
        let index = if after.starts_with('[') { after.find(']').map_or(0, |end| end + 1) } else { 0 };
        !before.ends_with(word) && !after.starts_with(word) && after[index..].starts_with(':')
    })
}

/// The text with the format of each array, and with scales after `acc`.
fn completed(text: &str, given: &[Given<'_>], scaled: &Scaled) -> String {
    let text = Formula::NAMED.iter().find(|(name, _)| *name == text.trim()).map_or(text, |(_, text)| text);
    let mut whole = String::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
        if end == 0 {
            whole.push(first);
            rest = &rest[first.len_utf8()..];
            continue;
        }
        let (word, after) = rest.split_at(end);
        rest = after;
        if word == "acc" && !scaled.0.is_empty() {
            whole.push_str(&format!("(acc{})", scaled.0));
            continue;
        }
        whole.push_str(word);
        let format = given.iter().find(|given| given.name == word).and_then(Given::format);
        let index = if after.starts_with('[') { after.find(']').map_or(0, |end| end + 1) } else { 0 };
        if let Some(format) = format.filter(|format| format.is_float() && *format != Format::F64)
            && (index > 0 || word == "c")
            && !after[index..].starts_with(':')
        {
            whole.push_str(if index > 0 { &after[..index] } else { "[m,n]" });
            whole.push_str(&format!(":{format}"));
            rest = &after[index..];
        }
    }
    whole
}

/// An argument per slot, and what was allocated for them.
type Inputs<'py> = (Vec<Option<Input>>, Vec<Bound<'py, PyAny>>);

/// The arguments of the slots of a text, and what was allocated for them. With `bits`, `types=` says what unsigned integers are.
pub(crate) fn inputs<'py>(
    slots: &Arc<[Slot]>,
    given: &[Given<'py>],
    (text, bits): (&str, bool),
    (like, count, instead): (&Array<'py>, u32, Option<&str>),
) -> PyResult<Inputs<'py>> {
    for Given { name, .. } in given {
        if !slots.iter().any(|slot| slot.name == name) {
            let names: Vec<&str> = slots.iter().map(|slot| slot.name).collect();
            return invalid(format!(
                "{name} is no argument of the epilogue: its arguments are {}",
                if names.is_empty() { "none".to_owned() } else { names.join(", ") }
            ));
        }
    }
    let mut kept = Vec::new();
    let mut all = Vec::with_capacity(slots.len());
    for slot in slots.iter() {
        let value = given.iter().find(|given| given.name == slot.name).map(|given| &given.value);
        let input = match (slot.kind, value) {
            (Kind::Scalar, Some(Value::Number(number))) => Some(Input::Scalar(*number)),
            (Kind::Scalar, None) if matches!(slot.name, "alpha" | "beta") => None,
            (Kind::Mask, Some(Value::Mask(mask))) => Some(Input::Dropout(*mask)),
            (Kind::Scratch(bytes), None) => {
                let room = like.alike(slot.name, &[bytes as i64], Format::U8, Fill::Zeros)?;
                kept.push(room.object().clone());
                Some(Input::Scratch(Scratch { address: room.address(), bytes }))
            }
            (Kind::Memory { format, writes, .. }, Some(Value::Array(array))) => {
                let bits = bits || says_format(text, slot.name);
                let elements = if bits { Elements::OrBits(format) } else { Elements::Of(format) };
                let access = if writes { Access::Written } else { Access::Read };
                let rule = Rule::new(elements, access).at(like.place(), "a").without_gradient(instead);
                let array = array.clone().admit(slot.name, &rule)?;
                kept.push(array.object().clone());
                Some(memory(slot, &array, count)?)
            }
            // C is not read where beta is 0.
            (Kind::Memory { .. }, None) if slot.name == "c" => None,
            (_, value) => return Err(other(slot, value)),
        };
        all.push(input);
    }
    Ok((all, kept))
}

fn other(slot: &Slot, value: Option<&Value<'_>>) -> PyErr {
    let needed = match slot.kind {
        Kind::Scalar => "a number".to_owned(),
        Kind::Mask => "a tuple of probability, seed and offset".to_owned(),
        Kind::Scratch(_) => "nothing".to_owned(),
        Kind::Memory { format, extents, matrix, .. } => {
            let shape: Vec<i64> = extents[usize::from(!matrix)..].iter().map(|&of| of.into()).collect();
            format!("an array of {} of shape {}", type_name(format), shape_words(&shape))
        }
    };
    let found = match value {
        None => "not given".to_owned(),
        Some(Value::Number(number)) => format!("the number {number}"),
        Some(Value::Mask(_)) => "a tuple".to_owned(),
        Some(Value::Array(array)) => format!("an array of shape {}", array.shape_words()),
    };
    PyValueError::new_err(format!("{} is {found}, {needed} was needed", slot.name))
}

/// An array that an epilogue reads or writes.
fn memory(slot: &Slot, array: &Array<'_>, count: u32) -> PyResult<Input> {
    let Kind::Memory { extents: [rows, columns], matrix, each, .. } = slot.kind else {
        return Err(other(slot, None));
    };
    let name = slot.name;
    let mut needed = Vec::new();
    if each {
        needed.push(i64::from(count));
    }
    if matrix {
        needed.push(i64::from(rows));
    }
    needed.push(i64::from(columns));
    let one = !matrix && !each && columns == 1 && array.shape().iter().all(|&extent| extent == 1);
    if array.shape() != needed && !one {
        return invalid(format!(
            "{name} has shape {}, {} was needed",
            array.shape_words(),
            shape_words(&needed)
        ));
    }
    let [length, step] = array.last(0);
    if length > 1 && step != 1 {
        return invalid(format!("{name} has elements {step} apart, contiguous ones were needed"));
    }
    let first = row_major(name, array)?;
    if each {
        let distance = array.last(if matrix { 2 } else { 1 })[1];
        let stride = u64::try_from(distance).unwrap_or(0) * u64::from(array.bytes());
        if count > 1 && !stride.is_multiple_of(4) {
            return invalid(format!(
                "{name} has {stride} bytes from one GEMM to the next, a multiple of 4 was needed"
            ));
        }
        return Ok(Input::Each { address: array.address(), ld: first.ld, stride });
    }
    Ok(if matrix { Input::matrix(array.address(), first.ld) } else { Input::Address(array.address()) })
}
