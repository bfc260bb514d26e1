//! Arguments: each kind by its keys.

use serde::Deserialize;

use super::maps::{RawIm2col, RawTiled};
use super::{data, only};
use crate::check::Element;
use crate::check::element::Number;
use crate::check::launch::{Argument, Data, Pointer};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawPointer {
    at: u64,
    buffer: String,
    #[serde(default)]
    offset: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawValue {
    at: u64,
    scalar: Element,
    value: Literal,
}

/// A number: TOML's own, or a text for what these do not hold (`"0xffffffffffffffff"`, `"inf"`).
#[derive(Deserialize)]
#[serde(untagged)]
enum Literal {
    Bool(bool),
    Integer(i64),
    Float(f64),
    Text(String),
}

/// An argument: its keys say of which kind.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawArgument {
    /// For readers only.
    #[serde(rename = "name")]
    _name: Option<String>,
    buffer: Option<String>,
    offset: Option<u64>,
    null: Option<bool>,
    scalar: Option<Element>,
    value: Option<Literal>,
    tensor_map: Option<RawTiled>,
    im2col_map: Option<RawIm2col>,
    bytes: Option<u64>,
    file: Option<String>,
    at: Option<u64>,
    hex: Option<String>,
    #[serde(default)]
    values: Vec<RawValue>,
    #[serde(default)]
    pointers: Vec<RawPointer>,
    #[serde(default)]
    tensor_maps: Vec<RawTiled>,
    #[serde(default)]
    im2col_maps: Vec<RawIm2col>,
}

impl RawPointer {
    pub(super) fn pointer(self) -> (u64, Pointer) {
        (self.at, Pointer { buffer: Some(self.buffer), offset: self.offset })
    }
}

impl Literal {
    /// The bytes of the number as an element.
    fn memory(&self, element: Element) -> Result<Vec<u8>, String> {
        let number = match self {
            Self::Bool(value) => Number::Integer((*value).into()),
            Self::Integer(value) => Number::Integer((*value).into()),
            Self::Float(value) => Number::Float(*value),
            Self::Text(text) => {
                let hex = text.strip_prefix("0x").and_then(|hex| u64::from_str_radix(hex, 16).ok());
                let integer = hex.map(i128::from).or_else(|| text.parse().ok());
                let float = || text.parse().ok().map(Number::Float);
                let number = integer.map(Number::Integer).or_else(float);
                number.ok_or_else(|| format!("`{text}` is no number"))?
            }
        };
        element.memory(number).ok_or_else(|| format!("{number} is no {element}"))
    }
}

impl RawArgument {
    pub(super) fn argument(self) -> Result<Argument, String> {
        if self.at.is_some() && self.file.is_none() {
            return Err("`at` is an offset in a `file`".into());
        }
        let stray = [
            ("offset", self.offset.is_some(), self.buffer.is_some(), "buffer"),
            ("value", self.value.is_some(), self.scalar.is_some(), "scalar"),
            ("file", self.file.is_some(), self.bytes.is_some(), "bytes"),
            ("hex", self.hex.is_some(), self.bytes.is_some(), "bytes"),
            ("values", !self.values.is_empty(), self.bytes.is_some(), "bytes"),
            ("pointers", !self.pointers.is_empty(), self.bytes.is_some(), "bytes"),
            ("tensor_maps", !self.tensor_maps.is_empty(), self.bytes.is_some(), "bytes"),
            ("im2col_maps", !self.im2col_maps.is_empty(), self.bytes.is_some(), "bytes"),
        ];
        if let Some((key, .., needs)) = stray.iter().find(|(_, given, has, _)| *given && !has) {
            return Err(format!("`{key}` needs `{needs}`"));
        }
        let structure = match self.bytes {
            Some(bytes) => {
                let data = data(self.file, self.at, self.hex)?;
                let zeros = || Data::Bytes(vec![0; usize::try_from(bytes).unwrap_or(0).min(MOST)]);
                let mut data = data.unwrap_or_else(zeros);
                for RawValue { at, scalar, value } in &self.values {
                    let memory = value.memory(*scalar)?;
                    let Data::Bytes(all) = &mut data else {
                        return Err("`values` are not written into a `file`".into());
                    };
                    let place = usize::try_from(*at).ok().and_then(|at| all.get_mut(at..at + memory.len()));
                    place
                        .ok_or_else(|| format!("the value at byte {at} is beyond the {bytes} B"))?
                        .copy_from_slice(&memory);
                }
                let mut maps =
                    self.tensor_maps.into_iter().map(RawTiled::map).collect::<Result<Vec<_>, _>>()?;
                maps.extend(self.im2col_maps.into_iter().map(RawIm2col::map).collect::<Result<Vec<_>, _>>()?);
                let pointers = self.pointers.into_iter().map(RawPointer::pointer).collect();
                Some(Argument::Structure { data, bytes, pointers, maps })
            }
            None => None,
        };
        let scalar = match (self.scalar, self.value) {
            (Some(element), Some(value)) => Some(Argument::Scalar(value.memory(element)?)),
            (Some(_), None) => return Err("`scalar` needs `value`".into()),
            (None, _) => None,
        };
        let offset = self.offset.unwrap_or(0);
        let pointer = self.buffer.map(|buffer| Argument::Pointer(Pointer { buffer: Some(buffer), offset }));
        let kinds = [
            pointer,
            self.null.filter(|null| *null).map(|_| Argument::Pointer(Pointer::default())),
            scalar,
            self.tensor_map.map(|map| map.map().map(Argument::Map)).transpose()?,
            self.im2col_map.map(|map| map.map().map(Argument::Map)).transpose()?,
            structure,
        ];
        let kind = only(kinds, KINDS)?;
        kind.ok_or_else(|| format!("one of {KINDS} was needed"))
    }
}

/// Most bytes of parameters.
const MOST: usize = 1 << 16;
/// The keys of which one says what an argument is.
const KINDS: &str = "`buffer`, `null`, `scalar`, `tensor_map`, `im2col_map` and `bytes`";
