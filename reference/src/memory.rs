//! The expected content of device memory: buffers before a run, and the elements that the run has to write.
//!
//! ```
//! use reference::memory::Contents;
//!
//! let mut memory = Contents::default();
//! memory.insert(0x1000, vec![1, 0, 0, 0]);
//! assert_eq!((memory.read(0x1000, 4), memory.buffer(0x2000)), (Some(1), None));
//! ```

use std::collections::BTreeMap;

use crate::{Format, HostMatrix, Order, Wanted};

/// The content of buffers by address, as uploaded or as the last run left it.
#[derive(Clone, Debug, Default)]
pub struct Contents(BTreeMap<u64, Vec<u8>>);

/// The elements that a kernel has to write: those of D, and all others.
#[derive(Clone, Debug, Default)]
pub struct Writes {
    elements: BTreeMap<u64, Wanted>,
    /// Row and column of the elements of D.
    places: BTreeMap<u64, [u32; 2]>,
}

/// The results of comparisons without a fault.
#[derive(Clone, Debug, Default)]
pub struct Compared {
    /// The largest error, as a fraction of its bound.
    pub ratio: f64,
    /// The number of elements compared.
    pub elements: usize,
    /// The values of D's elements, in the order of their addresses.
    pub d: Vec<f64>,
}

/// The first fault in a buffer.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    /// An element is not correct.
    Value {
        /// The byte of the element in the buffer.
        byte: usize,
        /// Row and column if it is an element of D.
        place: Option<[u32; 2]>,
        /// The value found.
        got: f64,
        /// The expected value.
        expected: Wanted,
    },
    /// A byte changed that the kernel must not write.
    Beside {
        /// The index of the byte in the buffer.
        byte: usize,
        /// The byte before the run.
        was: u8,
        /// The byte after the run.
        is: u8,
    },
}

impl Writes {
    /// Elements by device address. `places` has the rows and columns of those that belong to D.
    pub fn new(elements: BTreeMap<u64, Wanted>, places: BTreeMap<u64, [u32; 2]>) -> Self {
        Self { elements, places }
    }
}

impl Contents {
    /// Stores the content of the buffer at an address.
    pub fn insert(&mut self, address: u64, bytes: Vec<u8>) {
        self.0.insert(address, bytes);
    }

    /// The content of the buffer that begins at an address, or `None`.
    pub fn buffer(&self, address: u64) -> Option<&[u8]> {
        self.0.get(&address).map(Vec::as_slice)
    }

    /// The matrix at `address`, with the leading dimension `pitch` in elements. Elements outside of all
    /// buffers are zero.
    pub fn matrix(
        &self,
        format: Format,
        extents: [u32; 2],
        order: Order,
        (address, pitch): (u64, u32),
    ) -> HostMatrix {
        let mut host = HostMatrix::from_fn(format, extents, order, pitch, |_, _| 0.0);
        let bytes = format.bytes();
        for (i, bits) in (0u64..).zip(&mut host.bits) {
            *bits = self.read(address + u64::from(bytes) * i, bytes).unwrap_or(0);
        }
        host
    }

    /// Compares `after`, the content of the buffer at `begin` after a run, with the expected writes. All
    /// other bytes must be unchanged. Adds the results to `compared` and stores `after` as the new content. A
    /// buffer that was not stored before counts as zeros.
    ///
    /// # Errors
    /// The first fault.
    pub fn compare(
        &mut self,
        begin: u64,
        after: &[u8],
        writes: &Writes,
        compared: &mut Compared,
    ) -> Result<(), Fault> {
        let before = self.0.entry(begin).or_default();
        before.resize(after.len(), 0);
        let mut byte = 0;
        while byte < after.len() {
            let address = begin + byte as u64;
            let Some(element) = writes.elements.get(&address) else {
                if before[byte] != after[byte] {
                    return Err(Fault::Beside { byte, was: before[byte], is: after[byte] });
                }
                byte += 1;
                continue;
            };
            let end = byte + element.format.bytes() as usize;
            let bits = after[byte..end].iter().rev().fold(0, |bits, &byte| bits << 8 | u64::from(byte));
            let (got, place) = (element.format.decode(bits), writes.places.get(&address).copied());
            if !element.admits(bits) {
                return Err(Fault::Value { byte, place, got, expected: *element });
            }
            if place.is_some() {
                compared.d.push(got);
            }
            let ratio = (got - element.value).abs() / element.bound();
            compared.ratio = if ratio > compared.ratio { ratio } else { compared.ratio };
            compared.elements += 1;
            byte = end;
        }
        before.copy_from_slice(after);
        Ok(())
    }
}

impl Contents {
    /// Reads `bytes` bytes (at most 8) at an address as a little-endian number. `None` if they are not all
    /// inside one buffer.
    pub fn read(&self, address: u64, bytes: u32) -> Option<u64> {
        let (&begin, contents) = self.0.range(..=address).next_back()?;
        let at = usize::try_from(address - begin).ok()?;
        let found = contents.get(at..at.checked_add(bytes as usize)?)?;
        Some(found.iter().rev().fold(0, |bits, &byte| bits << 8 | u64::from(byte)))
    }
}
