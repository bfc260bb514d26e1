//! The types of elements: the names of numpy (with `ml_dtypes`) and of torch.

use falchion::collective::Format;
use pyo3::prelude::*;

/// A type of elements.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Element {
    /// Its name in numpy, `ml_dtypes` and torch.
    pub(super) name: &'static str,
    /// The format that it is.
    pub(super) format: Option<Format>,
    /// Bytes per element.
    pub(super) bytes: u32,
}

const fn element(name: &'static str, format: Option<Format>, bytes: u32) -> Element {
    Element { name, format, bytes }
}

/// The types that some argument may have. All others are refused.
pub(super) static TYPES: [Element; 12] = [
    element("float32", Some(Format::F32), 4),
    element("float16", Some(Format::F16), 2),
    element("bfloat16", Some(Format::Bf16), 2),
    element("float8_e4m3fn", Some(Format::E4m3), 1),
    element("float8_e5m2", Some(Format::E5m2), 1),
    element("int8", Some(Format::S8), 1),
    element("uint8", Some(Format::U8), 1),
    element("int32", Some(Format::S32), 4),
    element("float64", Some(Format::F64), 8),
    element("uint16", None, 2),
    element("uint32", None, 4),
    element("int64", None, 8),
];

impl Element {
    pub(super) fn named(name: &str) -> Option<&'static Self> {
        TYPES.iter().find(|known| known.name == name)
    }

    /// Whether its numbers are bits of whatever a caller says.
    pub(super) fn is_unsigned(&self) -> bool {
        self.name.starts_with("uint")
    }

    /// Whether elements of this type are of a format: they are its numbers or, with `bits`, unsigned integers of the size of its floats.
    pub(super) fn is_of(&self, format: Format, bits: bool) -> bool {
        let own = self.format == Some(format) || self.format == Some(Format::F32) && format == Format::Tf32;
        own || bits && format.is_float() && self.is_unsigned() && self.bytes == format.bytes()
    }
}

/// The name of the type of a format's elements.
pub(crate) fn type_name(format: Format) -> &'static str {
    let format = if format == Format::Tf32 { Format::F32 } else { format };
    TYPES.iter().find(|of| of.format == Some(format)).map_or("float32", |of| of.name)
}

/// The format of a type's name.
pub(crate) fn format_of(name: &str) -> Option<Format> {
    Element::named(name).and_then(|of| of.format)
}

/// The names of the types that are multiplied.
pub(crate) fn names() -> String {
    let names: Vec<&str> = TYPES.iter().filter(|of| of.format.is_some()).map(|of| of.name).collect();
    names.join(", ")
}

/// The names of formats in place of those of numpy and torch.
pub(crate) fn short(types: &str) -> String {
    let word =
        |word: &str| format_of(word).map_or_else(|| word.to_owned(), |format| format.name().to_owned());
    types.split('-').map(word).collect::<Vec<_>>().join("-")
}

/// numpy's type for a format: of `ml_dtypes` where numpy has none, or else unsigned integers of its size.
pub(super) fn numpy_type<'py>(py: Python<'py>, format: Format) -> PyResult<Bound<'py, PyAny>> {
    let (numpy, name) = (py.import("numpy")?, type_name(format));
    if let Ok(found) = numpy.getattr(name) {
        return numpy.call_method1("dtype", (found,));
    }
    match py.import("ml_dtypes").and_then(|types| types.getattr(name)) {
        Ok(found) => numpy.call_method1("dtype", (found,)),
        Err(_) => numpy.call_method1("dtype", (if format.bytes() == 1 { "uint8" } else { "uint16" },)),
    }
}

/// A shape as Python writes it.
pub(crate) fn shape_words(shape: &[i64]) -> String {
    let words: Vec<String> = shape.iter().map(i64::to_string).collect();
    if let [one] = words.as_slice() { format!("({one},)") } else { format!("({})", words.join(", ")) }
}
