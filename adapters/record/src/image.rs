//! What a module was loaded from: its PTX, and which binaries it has.
#![allow(unsafe_code, reason = "reads images that the program has given to the driver")]

use std::path::Path;

use crate::{elf, fatbin};

/// A module as it was loaded.
#[derive(Debug, Default)]
pub(crate) struct Image {
    /// Its PTX, compressed as it was.
    pub(crate) texts: Vec<Packed>,
    /// Size and digest of each binary for a card.
    pub(crate) binaries: Vec<(usize, u64)>,
}

/// A PTX text.
#[derive(Clone, Debug)]
pub(crate) struct Packed {
    /// The architecture that it names, where the container says so: 90.
    pub(crate) target: u32,
    pub(crate) bytes: Vec<u8>,
    pub(crate) packing: Packing,
}

/// How a text is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Packing {
    Plain,
    /// To the number of bytes.
    Lz4(usize),
    Zstd(usize),
}

impl Packed {
    /// The text, if it can be read.
    pub(crate) fn text(&self) -> Option<String> {
        let mut bytes = match self.packing {
            Packing::Plain => self.bytes.clone(),
            Packing::Lz4(size) => lz4_flex::block::decompress(&self.bytes, size).ok()?,
            Packing::Zstd(size) => {
                use std::io::Read;
                let mut bytes = Vec::with_capacity(size);
                let decoder = ruzstd::decoding::StreamingDecoder::new(&self.bytes[..]).ok()?;
                decoder.take(size as u64).read_to_end(&mut bytes).ok()?;
                bytes
            }
        };
        let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
        bytes.truncate(end);
        String::from_utf8(bytes).ok()
    }
}

impl Image {
    /// An image in memory: PTX, a binary for a card, a fat binary, or what the compiler wraps around one.
    ///
    /// # Safety
    /// The driver must have loaded it.
    pub(crate) unsafe fn of_memory(image: *const u8) -> Self {
        if image.is_null() {
            return Self::default();
        }
        // SAFETY: each kind begins with four bytes at least: a PTX text is longer, and the driver has read it.
        let first: [u8; 4] = unsafe { image.cast::<[u8; 4]>().read_unaligned() };
        // SAFETY: the first bytes say which kind it is, and its headers how long.
        unsafe {
            match first {
                elf::MAGIC => Self::of_bytes(&memory(image, elf::size(&|bytes| memory(image, bytes)))),
                fatbin::WRAPPER => Self::of_memory(image.add(8).cast::<*const u8>().read_unaligned()),
                // Only headers and PTX are read: the binaries may be gigabytes that nobody has touched.
                fatbin::MAGIC => fatbin::image(&|at, bytes| Some(memory(image.add(at), bytes))),
                _ => Self::of_bytes(core::ffi::CStr::from_ptr(image.cast()).to_bytes()),
            }
        }
    }

    /// An image in a file.
    pub(crate) fn of_file(path: &Path) -> Self {
        std::fs::read(path).map(|bytes| Self::of_bytes(&bytes)).unwrap_or_default()
    }

    /// An image that is all there.
    pub(crate) fn of_bytes(bytes: &[u8]) -> Self {
        match bytes.first_chunk() {
            Some(&elf::MAGIC) => Self { binaries: vec![(bytes.len(), digest(bytes))], ..Self::default() },
            Some(&fatbin::MAGIC) => {
                fatbin::image(&|at, size| Some(bytes.get(at..at.checked_add(size)?)?.to_vec()))
            }
            _ => {
                let text = Packed { target: 0, bytes: bytes.to_vec(), packing: Packing::Plain };
                Self { texts: vec![text], ..Self::default() }
            }
        }
    }
}

/// Bytes of memory.
///
/// # Safety
/// They must be there.
unsafe fn memory(from: *const u8, bytes: usize) -> Vec<u8> {
    // SAFETY: the caller guarantees it.
    unsafe { core::slice::from_raw_parts(from, bytes) }.to_vec()
}

/// A digest (FNV-1a).
pub(crate) fn digest(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |sum, &byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::{Packed, Packing};

    #[test]
    fn compressed_texts_are_read() {
        let plain = Packed { target: 90, bytes: b".version 8.0\n\0rest".to_vec(), packing: Packing::Plain };
        assert_eq!(plain.text().as_deref(), Some(".version 8.0\n"));
        // A block of one literal run, and one that repeats it: `abcabcabcabc` and `end..`.
        let block = [0x35, b'a', b'b', b'c', 3, 0, 0x50, b'e', b'n', b'd', b'.', b'.'];
        let lz4 = Packed { target: 90, bytes: block.to_vec(), packing: Packing::Lz4(17) };
        assert_eq!(lz4.text().as_deref(), Some("abcabcabcabcend.."));
        // A frame of one raw block.
        let frame = [0x28, 0xb5, 0x2f, 0xfd, 0x20, 5, 0x29, 0, 0, b'h', b'e', b'l', b'l', b'o'];
        let zstd = Packed { target: 90, bytes: frame.to_vec(), packing: Packing::Zstd(5) };
        assert_eq!(zstd.text().as_deref(), Some("hello"));
        let broken = Packed { target: 90, bytes: vec![1, 2, 3], packing: Packing::Zstd(5) };
        assert_eq!(broken.text(), None);
    }
}
