//! The header of an `.npy` file: a Python dictionary with element type, order and shape, before the elements.

use std::io::Read;

use serde::Deserialize;

/// The contents of a header, and where the elements begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// NumPy's name of the element type, such as `<f4`.
    pub(super) element: String,
    /// Whether the matrix is column-major.
    pub(super) fortran: bool,
    pub(super) shape: Vec<u64>,
    /// Offset of the first element in bytes.
    pub(super) bytes: u64,
}

/// The first bytes of every file.
const MAGIC: &[u8] = b"\x93NUMPY";

/// Largest header in bytes that is read. NumPy itself writes about a hundred.
const MOST: u64 = 1 << 16;

/// Alignment of the first element in bytes.
const ALIGNMENT: usize = 64;

impl Header {
    /// Reads the header from the beginning of a file of `length` bytes.
    pub(super) fn read(file: &mut impl Read, length: u64) -> Result<Self, String> {
        let mut part = |bytes: u64| -> Result<Vec<u8>, String> {
            let mut read = Vec::new();
            file.take(bytes).read_to_end(&mut read).map_err(|error| error.to_string())?;
            if read.len() as u64 == bytes { Ok(read) } else { Err("it ends inside its header".to_owned()) }
        };
        let start = part(8.min(length))?;
        if !start.starts_with(MAGIC) {
            return Err("it does not begin with \\x93NUMPY".to_owned());
        }
        let width = match start.get(6) {
            Some(1) => 2,
            Some(2 | 3) => 4,
            Some(other) => return Err(format!("its version is {other}, 1, 2 or 3 was needed")),
            None => return Err("it ends inside its header".to_owned()),
        };
        let mut size = [0; 8];
        size[..width].copy_from_slice(&part(width as u64)?);
        let size = u64::from_le_bytes(size);
        let begin = 8 + width as u64;
        if size > MOST.min(length.saturating_sub(begin)) {
            return Err(format!(
                "its header has {size} B, the file {length} B in all; at most {MOST} B of a header are read"
            ));
        }
        let text = part(size)?;
        let text = String::from_utf8_lossy(&text);
        let Some(Dictionary { descr: element, fortran_order: fortran, shape }) = Dictionary::parse(&text)
        else {
            return Err(format!("its header is `{}`", crate::cli::output::shortened(text.trim())));
        };
        Ok(Self { element, fortran, shape, bytes: begin + size })
    }

    /// The header of a row-major matrix; `transposed`, of the column-major matrix that is its transpose.
    pub(super) fn of_matrix(element: &str, [rows, columns]: [u32; 2], transposed: bool) -> Vec<u8> {
        let (order, [rows, columns]) =
            if transposed { ("True", [columns, rows]) } else { ("False", [rows, columns]) };
        let text =
            format!("{{'descr': '{element}', 'fortran_order': {order}, 'shape': ({rows}, {columns}), }}");
        // The text ends with a newline, just before the first element.
        let size = (MAGIC.len() + 4 + text.len() + 1).next_multiple_of(ALIGNMENT) - MAGIC.len() - 4;
        let mut bytes = [MAGIC, &[1, 0]].concat();
        // The text is short: an element type and two extents of at most ten digits.
        bytes.extend((size as u16).to_le_bytes());
        bytes.extend(format!("{text:width$}\n", width = size - 1).into_bytes());
        bytes
    }
}

/// The dictionary of a header.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Dictionary {
    descr: String,
    fortran_order: bool,
    shape: Vec<u64>,
}

impl Dictionary {
    /// A literal of Python as JSON: no names, types and numbers in it have blanks, quotes or brackets. Python 2 writes an L
    /// after long integers.
    fn parse(text: &str) -> Option<Self> {
        let mut json: String = text.chars().filter(|c| !c.is_whitespace()).collect();
        for (python, other) in [("'", "\""), ("(", "["), (")", "]"), ("True", "true"), ("False", "false")] {
            json = json.replace(python, other);
        }
        for (python, other) in [("L,", ","), ("L]", "]"), (",]", "]"), (",}", "}")] {
            json = json.replace(python, other);
        }
        serde_json::from_str(&json).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::Header;

    fn file(version: u8, text: &str) -> Vec<u8> {
        let mut bytes = vec![0x93, b'N', b'U', b'M', b'P', b'Y', version, 0];
        match version {
            1 => bytes.extend((text.len() as u16).to_le_bytes()),
            _ => bytes.extend((text.len() as u32).to_le_bytes()),
        }
        bytes.extend(text.as_bytes());
        bytes
    }

    fn read(bytes: &[u8]) -> Result<Header, String> {
        Header::read(&mut &bytes[..], bytes.len() as u64)
    }

    #[test]
    fn headers_as_numpy_and_others_write_them() {
        for (why, version, text, want) in [
            (
                "NumPy's own",
                1,
                "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }   \n",
                (false, &[3, 4][..]),
            ),
            ("no comma, no blanks", 1, "{'descr':'<f4','fortran_order':True,'shape':(3,4)}", (true, &[3, 4])),
            (
                "another order, other quotes",
                2,
                "{\"shape\": (5,), \"fortran_order\": False, \"descr\": \"<f4\"}",
                (false, &[5]),
            ),
            ("a number alone", 3, "{'descr': '<f4', 'fortran_order': False, 'shape': ()}", (false, &[])),
            ("Python 2", 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (3L, 4L)}", (false, &[3, 4])),
        ] {
            let header = read(&file(version, text)).expect(why);
            assert_eq!(
                (header.fortran, &header.shape[..], header.element.as_str()),
                (want.0, want.1, "<f4"),
                "{why}"
            );
            assert_eq!(header.bytes as usize, file(version, text).len(), "{why}");
        }
    }

    #[test]
    fn what_is_no_header_says_why() {
        let whole = file(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }");
        let long = file(2, &" ".repeat(70_000));
        let mut huge = whole.clone();
        huge[8..10].copy_from_slice(&[0xff, 0xff]);
        for (why, bytes, word) in [
            ("nothing", vec![], "does not begin"),
            ("another file", b"PK\x03\x04 and so on".to_vec(), "does not begin"),
            ("a version of the future", [&whole[..6], &[9], &whole[7..]].concat(), "version is 9"),
            ("the magic alone", whole[..6].to_vec(), "ends inside"),
            ("half a length", whole[..9].to_vec(), "ends inside"),
            ("half a header", whole[..40].to_vec(), "has 59 B, the file 40 B"),
            ("a length beyond the file", huge, "has 65535 B"),
            ("a header of many kilobytes", long, "has 70000 B"),
            ("no dictionary", file(1, "[1, 2]"), "its header is `[1, 2]`"),
            ("a shape is missing", file(1, "{'descr': '<f4', 'fortran_order': False}"), "its header is"),
            (
                "a type of fields",
                file(1, "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (3,)}"),
                "its header",
            ),
            (
                "a negative extent",
                file(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (-3, 4)}"),
                "its header",
            ),
            (
                "an extent of 2^64",
                file(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (18446744073709551616,)}"),
                "its",
            ),
            (
                "two shapes",
                file(1, "{'shape': (3,), 'shape': (4,), 'descr': '<f4', 'fortran_order': False}"),
                "its",
            ),
            (
                "more behind it",
                file(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (3,)} 7"),
                "its header",
            ),
        ] {
            let error = read(&bytes).expect_err(why);
            assert!(error.contains(word), "{why}: {error}");
        }
    }

    #[test]
    fn what_is_written_is_read() {
        for extents in [[1, 1], [4_294_967_295, 4_294_967_295], [24, 16]] {
            let bytes = Header::of_matrix("<f2", extents, false);
            assert_eq!((bytes.len() % 64, bytes.last()), (0, Some(&b'\n')));
            let header = read(&bytes).expect("a header");
            assert_eq!((header.bytes, header.fortran), (bytes.len() as u64, false));
            assert_eq!((header.element.as_str(), header.shape), ("<f2", extents.map(u64::from).to_vec()));
        }
    }
}
