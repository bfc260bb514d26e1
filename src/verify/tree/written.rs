//! What a tree writes: D, and everything else, by address.

use core::ops::Range;

use collective::tree::{Host, HostMemory, Shape, Written};
use collective::{Arithmetic, Bounded};
use reference::Wanted;
use reference::memory::{Contents, Writes};

use super::places::Places;
use crate::verify::Format;

/// A byte that, repeated, is NaN in every float format.
pub(super) const POISON: u8 = 0xff;

/// Evaluates a tree for an element of D, and writes the value to an address.
pub(super) type Element<'a> = &'a dyn Fn(&mut Host<'_>, u64, [u32; 2]);

/// D in device memory.
#[derive(Clone, Copy)]
pub(super) struct Output {
    pub(super) shape: Shape,
    pub(super) address: u64,
    /// Leading dimension in elements.
    pub(super) ld: u64,
    /// Of its elements.
    pub(super) format: collective::Format,
}

impl Output {
    fn element(&self, [row, column]: [u32; 2]) -> u64 {
        self.address + (u64::from(row) * self.ld + u64::from(column)) * u64::from(self.format.bytes())
    }

    /// The memory of its rows.
    pub(super) fn rows(self) -> impl Iterator<Item = Range<u64>> {
        let bytes = u64::from(self.shape.n) * u64::from(self.format.bytes());
        (0..self.shape.m).map(move |row| self.element([row, 0])..self.element([row, 0]) + bytes)
    }

    /// The first element that has the poison of before the run. `begin` is the address of its buffer.
    /// Of 8-bit integers, poison is a number like any other.
    pub(super) fn unwritten(self, begin: u64, before: &[u8], after: &[u8]) -> Option<[u32; 2]> {
        if !self.format.is_float() && self.format.bytes() == 1 {
            return None;
        }
        let poisoned = |bytes: &[u8]| bytes.iter().all(|&byte| byte == POISON);
        (0..).zip(self.rows()).find_map(|(row, Range { start, end })| {
            let part = (start - begin) as usize..(end - begin) as usize;
            let elements = |bytes| <[u8]>::chunks_exact(bytes, self.format.bytes() as usize);
            let mut both = elements(before.get(part.clone())?).zip(elements(after.get(part)?));
            let column = both.position(|(was, is)| poisoned(was) && poisoned(is))?;
            Some([row, column as u32])
        })
    }
}

/// The host's copies of the uploads, as the memory that a tree reads.
pub(super) struct Remembered<'a>(pub(super) &'a Contents);

impl HostMemory for Remembered<'_> {
    fn read(&self, address: u64, bytes: u32) -> Option<u64> {
        self.0.read(address, bytes)
    }
}

/// What a tree writes for some elements of D. `element` evaluates it for an element of D, and writes the value
/// to an address.
pub(super) fn writes(
    contents: &Contents,
    accumulator: &dyn Fn([u32; 2]) -> Bounded,
    (d, places): (Output, &Places),
    element: Element<'_>,
) -> Writes {
    let memory = Remembered(contents);
    let mut host = Host::new(d.shape, &memory, accumulator).computing_in(Arithmetic::of(d.format));
    let mut of_d = Vec::with_capacity(places.rows.len() * places.columns.len());
    for &row in &places.rows {
        for &column in &places.columns {
            let (at, address) = ([row, column], d.element([row, column]));
            element(&mut host, address, at);
            of_d.push((address, at));
        }
    }
    Writes::new(wanted(host), of_d)
}

/// What a tree has written, by address.
pub(super) fn wanted(host: Host<'_>) -> Vec<(u64, Wanted)> {
    let wanted = |(address, Written { format, unrounded, value })| {
        let format = Format::named(format.name())?;
        Some((address, Wanted { format, unrounded, value: value.value, error: value.error }))
    };
    host.finish().into_iter().filter_map(wanted).collect()
}

/// The most memory in bytes that evaluating a tree on a D of this shape needs, in addition to the matrices.
/// `whole` says that the tree reduces all of D to one number.
pub(in crate::verify) fn evaluated_bytes(shape: Shape, whole: bool) -> u64 {
    // Sums, expected values and places, in maps by address.
    const EACH: u64 = 320;
    EACH.saturating_mul(Places::at_most(shape, whole))
}
