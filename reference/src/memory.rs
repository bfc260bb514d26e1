//! The expected content of device memory: buffers before a run, and the elements that the run has to write.
//!
//! ```
//! use reference::memory::Contents;
//!
//! let mut memory = Contents::default();
//! memory.insert(0x1000, vec![1, 0, 0, 0]);
//! assert_eq!((memory.read(0x1000, 4), memory.buffer(0x2000)), (Some(1), None));
//! ```

use core::ops::Range;
use std::collections::BTreeMap;

use crate::{Format, HostMatrix, Order, Wanted};

/// The content of buffers by address, as uploaded or as the last run left it.
#[derive(Clone, Debug, Default)]
pub struct Contents(BTreeMap<u64, Vec<u8>>);

/// The elements that a kernel has to write: those of D, and all others.
#[derive(Clone, Debug, Default)]
pub struct Writes {
    /// In the order of their addresses; with row and column those of D.
    elements: Vec<(u64, Wanted, Option<[u32; 2]>)>,
    /// Memory that the kernel may write with anything: its end, by its address.
    unknown: BTreeMap<u64, u64>,
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
pub enum BufferFault {
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
    /// Elements by device address, in any order; of several at one address the last one counts. `places` has the rows and
    /// columns of those that belong to D.
    pub fn new(mut elements: Vec<(u64, Wanted)>, mut places: Vec<(u64, [u32; 2])>) -> Self {
        elements.sort_by_key(|&(address, _)| address);
        places.sort_by_key(|&(address, _)| address);
        let mut places = places.into_iter().peekable();
        let mut joined: Vec<(u64, Wanted, Option<[u32; 2]>)> = Vec::with_capacity(elements.len());
        for (address, wanted) in elements {
            let mut place = None;
            while let Some((of, found)) = places.next_if(|&(of, _)| of <= address) {
                place = (of == address).then_some(found);
            }
            match joined.last_mut() {
                Some(last) if last.0 == address => last.1 = wanted,
                _ => joined.push((address, wanted, place)),
            }
        }
        Self { elements: joined, unknown: BTreeMap::new() }
    }

    /// The same if these elements are a sample: all others in `memory`, ranges of addresses, may be anything.
    #[must_use]
    pub fn among(mut self, memory: impl IntoIterator<Item = Range<u64>>) -> Self {
        for Range { start, end } in memory {
            let (mut start, mut end) = (start, end);
            // Join it with those that it overlaps.
            while let Some((&at, &stop)) =
                self.unknown.range(..=end).next_back().filter(|(_, stop)| **stop >= start)
            {
                self.unknown.remove(&at);
                (start, end) = (start.min(at), end.max(stop));
            }
            self.unknown.insert(start, end);
        }
        self
    }

    /// The first byte of a part of the buffer at `begin` that changed and must not.
    fn beside(&self, begin: u64, before: &[u8], after: &[u8], part: Range<usize>) -> Option<usize> {
        let Range { mut start, end } = part;
        loop {
            let differ = |(was, is): (&u8, &u8)| was != is;
            start += before.get(start..end)?.iter().zip(after.get(start..end)?).position(differ)?;
            let address = begin + start as u64;
            let around = self.unknown.range(..=address).next_back().filter(|(_, stop)| **stop > address);
            let Some((_, &stop)) = around else { return Some(start) };
            start = usize::try_from(stop - begin).map_or(end, |stop| stop.min(end));
        }
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

    /// The matrix at `address`, with the leading dimension `ld` in elements. Elements outside of all
    /// buffers are zero.
    pub fn matrix(
        &self,
        format: Format,
        extents: [u32; 2],
        order: Order,
        (address, ld): (u64, u32),
    ) -> HostMatrix {
        let mut host = HostMatrix::from_fn(format, extents, order, ld, |_, _| 0.0);
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
    ) -> Result<(), BufferFault> {
        let before = self.0.entry(begin).or_default();
        before.resize(after.len(), 0);
        let mut byte = 0;
        let unchanged = |before: &[u8], part: Range<usize>| match writes.beside(begin, before, after, part) {
            None => Ok(()),
            Some(byte) => Err(BufferFault::Beside { byte, was: before[byte], is: after[byte] }),
        };
        let first = writes.elements.partition_point(|&(address, ..)| address < begin);
        for &(address, element, place) in &writes.elements[first..] {
            let at = (address - begin) as usize;
            if at >= after.len() {
                break;
            }
            let end = at + element.format.bytes() as usize;
            if at < byte || end > after.len() {
                continue;
            }
            unchanged(before, byte..at)?;
            let bits = after[at..end].iter().rev().fold(0, |bits, &byte| bits << 8 | u64::from(byte));
            let got = element.format.decode(bits);
            if !element.admits(bits) {
                return Err(BufferFault::Value { byte: at, place, got, expected: element });
            }
            if place.is_some() {
                compared.d.push(got);
            }
            compared.ratio = compared.ratio.max(element.ratio(got));
            compared.elements += 1;
            byte = end;
        }
        unchanged(before, byte..after.len())?;
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A buffer of 16 bytes at 0x1000, in which the kernel writes a 1 at byte 4 and anything at bytes 8 to 12.
    #[test]
    fn what_is_not_of_the_sample_may_be_anything_and_nothing_else_may() {
        let wanted = Wanted { format: Format::F16, unrounded: false, value: 1.0, error: 0.0 };
        let one = (Format::F16.round(1.0) as u16).to_le_bytes();
        for (why, changes, fault) in [
            ("as it should be", &[][..], None),
            ("something in the rest", &[(8, 7), (11, 7)], None),
            ("before the element", &[(3, 7)], Some(3)),
            ("between the element and the rest", &[(7, 7)], Some(7)),
            ("behind the rest", &[(12, 7)], Some(12)),
            ("in the rest and behind it", &[(9, 7), (15, 7)], Some(15)),
            ("the element", &[(5, 0)], Some(4)),
        ] {
            let mut contents = Contents::default();
            contents.insert(0x1000, vec![0; 16]);
            let elements = vec![(0x1004, wanted)];
            let rest = [0x1008..0x100A, 0x100B..0x100C, 0x1009..0x100B];
            let writes = Writes::new(elements, vec![(0x1004, [0, 0])]).among(rest);
            let mut after = vec![0; 16];
            after[4..6].copy_from_slice(&one);
            for &(byte, value) in changes {
                after[byte] = value;
            }
            let mut compared = Compared::default();
            let found = match contents.compare(0x1000, &after, &writes, &mut compared) {
                Ok(()) => None,
                Err(BufferFault::Value { byte, .. } | BufferFault::Beside { byte, .. }) => Some(byte),
            };
            assert_eq!(found, fault, "{why}");
            assert_eq!(compared.elements, usize::from(fault != Some(3) && fault != Some(4)), "{why}");
        }
    }
}
