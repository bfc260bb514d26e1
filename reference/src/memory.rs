//! Device memory as the host remembers it, and what a run must make of it.
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

/// What buffers hold, by address: as they were uploaded, or as the last run left them.
#[derive(Clone, Debug, Default)]
pub struct Contents(BTreeMap<u64, Vec<u8>>);

/// All elements that a kernel has to write, to D and beside it.
#[derive(Clone, Debug, Default)]
pub struct Writes {
    elements: BTreeMap<u64, Wanted>,
    /// Rows and columns of those that are D's.
    places: BTreeMap<u64, [u32; 2]>,
}

/// What a comparison that found nothing wrong has seen.
#[derive(Clone, Debug, Default)]
pub struct Compared {
    /// The largest error as a part of its bound.
    pub ratio: f64,
    /// Elements compared.
    pub elements: usize,
    /// D's elements, by address.
    pub d: Vec<f64>,
}

/// The first thing that is wrong with a buffer.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    /// An element is further from its value than its bound.
    Value {
        /// Its byte of the buffer.
        byte: usize,
        /// Row and column if it is an element of D.
        place: Option<[u32; 2]>,
        /// What is there.
        got: f64,
        /// What should be there.
        expected: Wanted,
    },
    /// A byte was written where nothing has to be.
    Beside {
        /// Its byte of the buffer.
        byte: usize,
        /// Before.
        was: u8,
        /// After.
        is: u8,
    },
}

impl Writes {
    /// These, by address; `places` says which of them are D's, and where.
    pub fn new(elements: BTreeMap<u64, Wanted>, places: BTreeMap<u64, [u32; 2]>) -> Self {
        Self { elements, places }
    }
}

impl Contents {
    /// Remembers a buffer.
    pub fn insert(&mut self, address: u64, bytes: Vec<u8>) {
        self.0.insert(address, bytes);
    }

    /// What the buffer that begins at an address holds.
    pub fn buffer(&self, address: u64) -> Option<&[u8]> {
        self.0.get(&address).map(Vec::as_slice)
    }

    /// A matrix that lies at an address; zero where there is no memory.
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

    /// Compares what a buffer holds after a run, `after`, with what must have been written, adds to `compared`, and
    /// remembers it. What was never remembered held zeros.
    ///
    /// # Errors
    /// The first thing that is wrong.
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
    /// `bytes` bytes (8 at most) from an address on, as a little-endian number; `None` where there is no memory.
    pub fn read(&self, address: u64, bytes: u32) -> Option<u64> {
        let (&begin, contents) = self.0.range(..=address).next_back()?;
        let at = usize::try_from(address - begin).ok()?;
        let found = contents.get(at..at.checked_add(bytes as usize)?)?;
        Some(found.iter().rev().fold(0, |bits, &byte| bits << 8 | u64::from(byte)))
    }
}
