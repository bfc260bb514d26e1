//! The text of a recording: a description of a launch, as `falchion check` reads it.

use core::fmt::Write;

use crate::arguments::{Inside, Value};
use crate::maps::Map;
use crate::memory::Piece;

/// A recording as text. The parts are added in the order in which a description has them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Text {
    /// Comments and keys before the arguments.
    pub(crate) head: String,
    pub(crate) arguments: String,
    pub(crate) buffers: Vec<Buffer>,
}

/// A buffer.
#[derive(Clone, Debug)]
pub(crate) struct Buffer {
    pub(crate) piece: Piece,
    /// The name and the bytes of its elements.
    pub(crate) element: (&'static str, u64),
    /// The file of its bytes before the launch.
    pub(crate) file: String,
    /// Addresses and tensor maps in it, as keys.
    pub(crate) inside: String,
    /// What it must hold afterwards, as a key.
    pub(crate) after: String,
}

/// A text of TOML.
pub(crate) fn quoted(text: &str) -> String {
    let mut quoted = String::from('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => {
                let _ = write!(quoted, "\\u{:04X}", c as u32);
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// The name of a buffer by its number.
pub(crate) fn name(number: usize) -> String {
    format!("m{number}")
}

impl Text {
    /// The whole description.
    pub(crate) fn toml(&self) -> String {
        let mut text = self.head.clone() + &self.arguments;
        for (number, Buffer { piece, file, inside, after, element }) in self.buffers.iter().enumerate() {
            let Piece { start, bytes, whole } = piece;
            let _ = write!(text, "\n# {bytes} B at {start:#x}");
            if bytes != whole {
                let _ = write!(text, " of an allocation of {whole} B");
            }
            let _ = writeln!(text, "\n[[buffer]]\nname = \"{}\"", name(number));
            let _ = match element {
                (element, size) if *size > 1 && bytes.is_multiple_of(*size) => {
                    writeln!(text, "element = \"{element}\"\ncount = {}", bytes / size)
                }
                _ => writeln!(text, "bytes = {bytes}"),
            };
            let align = 1u64 << start.trailing_zeros().min(8);
            if align < 256 {
                let _ = writeln!(text, "align = {align}");
            }
            let _ = writeln!(text, "file = {}", quoted(file));
            text += inside;
            text += after;
        }
        text
    }
}

/// Where an address is: a buffer and an offset, as keys.
fn place(pieces: &[Piece], address: u64) -> Option<String> {
    let inside = |end: bool| {
        let found = |piece: &Piece| piece.offset(address).filter(|&offset| end || offset < piece.bytes);
        pieces.iter().enumerate().find_map(|(number, piece)| Some((number, found(piece)?)))
    };
    let (number, offset) = inside(false).or_else(|| inside(true))?;
    let offset = if offset == 0 { String::new() } else { format!(", offset = {offset}") };
    Some(format!("buffer = \"{}\"{offset}", name(number)))
}

/// The keys of a tensor map.
fn map(pieces: &[Piece], map: &Map, remarks: &mut Vec<String>) -> Option<String> {
    match (place(pieces, map.address), map.keys()) {
        (Some(place), Ok(keys)) => Some(format!("{place}, {keys}")),
        (None, _) => {
            remarks.push(format!("a tensor map of memory that is not recorded, at {:#x}", map.address));
            None
        }
        (_, Err(what)) => {
            remarks.push(format!("a tensor map with {what}, which is not known"));
            None
        }
    }
}

/// The keys of what bytes hold: lists, each on its line.
pub(crate) fn inside(pieces: &[Piece], inside: &Inside, remarks: &mut Vec<String>) -> String {
    let mut text = String::new();
    let pointer =
        |&(at, address): &(usize, u64)| Some(format!("{{ at = {at}, {} }}", place(pieces, address)?));
    let pointers: Vec<String> = inside.pointers.iter().filter_map(pointer).collect();
    let mut lists = vec![("pointers", pointers)];
    for (key, is_im2col) in [("tensor_maps", false), ("im2col_maps", true)] {
        let maps = inside.maps.iter().filter(|(_, map)| map.is_im2col() == is_im2col);
        let all =
            maps.filter_map(|(at, one)| Some(format!("{{ at = {at}, {} }}", map(pieces, one, remarks)?)));
        lists.push((key, all.collect()));
    }
    for (key, list) in lists.iter().filter(|(_, list)| !list.is_empty()) {
        let _ = writeln!(text, "{key} = [{}]", list.join(", "));
    }
    text
}

/// An argument.
pub(crate) fn argument(pieces: &[Piece], value: &Value, remarks: &mut Vec<String>) -> String {
    let mut text = String::from("\n[[argument]]\n");
    if let Some(parameter) = &value.parameter {
        let _ = writeln!(text, "name = {}", quoted(&parameter.name));
    }
    let (bytes, held) = (&value.bytes[..], &value.inside);
    let hex = || bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    match (bytes.len(), &held.pointers[..], &held.maps[..]) {
        (8, [(0, address)], _) if place(pieces, *address).is_some() => {
            let _ = writeln!(text, "{}", place(pieces, *address).unwrap_or_default().replace(", ", "\n"));
        }
        (128, [], [(0, one)]) if one.keys().is_ok() && place(pieces, one.address).is_some() => {
            let key = if one.is_im2col() { "im2col_map" } else { "tensor_map" };
            let keys = map(pieces, one, remarks).unwrap_or_default();
            let _ = writeln!(text, "{key} = {{ {keys} }}");
        }
        (1 | 2 | 4 | 8, _, _) => {
            text += &number(value);
        }
        (size, ..) => {
            let _ = writeln!(text, "bytes = {size}\nhex = \"{}\"", hex());
            text += &inside(pieces, held, remarks);
        }
    }
    text
}

/// A number: as its parameter's type has it, where a text says it exactly.
fn number(value: &Value) -> String {
    let mut word = [0; 8];
    word[..value.bytes.len()].copy_from_slice(&value.bytes);
    let (bits, bytes) = (u64::from_le_bytes(word), value.bytes.len());
    let float = match value.parameter.as_ref().map(|parameter| parameter.ty.as_str()) {
        Some("f32") => Some(f32::from_bits(bits as u32))
            .filter(|float| float.is_finite())
            .map(|float| format!("{float:?}")),
        Some("f64") => {
            Some(f64::from_bits(bits)).filter(|float| float.is_finite()).map(|float| format!("{float:?}"))
        }
        _ => None,
    };
    match float {
        Some(float) => format!("scalar = \"f{}\"\nvalue = {float}\n", bytes * 8),
        None if i64::try_from(bits).is_ok() => format!("scalar = \"u{}\"\nvalue = {bits}\n", bytes * 8),
        // More than TOML's numbers hold.
        None => format!("scalar = \"u{}\"\nvalue = \"{bits:#x}\"\n", bytes * 8),
    }
}

#[cfg(test)]
mod tests {
    use super::{number, quoted};
    use crate::arguments::{Inside, Value};
    use crate::entry::parameters;

    #[test]
    fn numbers_are_exact() {
        let text = ".entry k(.param .u32 a, .param .f32 b, .param .u64 c, .param .f64 d, .param .f32 e) {}";
        let all = parameters(text, "k").expect("they are understood");
        let bytes: [&[u8]; 5] = [
            &7u32.to_le_bytes(),
            &0.1f32.to_le_bytes(),
            &u64::MAX.to_le_bytes(),
            &1e-300f64.to_le_bytes(),
            &f32::NAN.to_le_bytes(),
        ];
        let of = |(bytes, parameter): (&[u8], _)| {
            number(&Value { bytes: bytes.to_vec(), parameter: Some(parameter), inside: Inside::default() })
        };
        let texts: Vec<_> = bytes.into_iter().zip(all).map(of).collect();
        let want = [
            "scalar = \"u32\"\nvalue = 7\n",
            "scalar = \"f32\"\nvalue = 0.1\n",
            "scalar = \"u64\"\nvalue = \"0xffffffffffffffff\"\n",
            "scalar = \"f64\"\nvalue = 1e-300\n",
            "scalar = \"u32\"\nvalue = 2143289344\n",
        ];
        assert_eq!(texts, want);
    }

    #[test]
    fn texts_are_quoted() {
        assert_eq!(quoted("a\"b\\c\n"), "\"a\\\"b\\\\c\\u000A\"");
    }
}
