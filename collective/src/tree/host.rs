//! A tree on the host: what it reads, and what it leaves behind.

use std::collections::BTreeMap;

use super::{Bounded, Shape};
use crate::element::Format;

/// Device memory as the host sees it.
pub trait Memory {
    /// `bytes` bytes (8 at most) as a little-endian number; `None` where there is no memory.
    fn read(&self, address: u64, bytes: u32) -> Option<u64>;
}

/// An element that a tree writes: to D, or beside it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Written {
    /// Its format.
    pub format: Format,
    /// Nothing rounds it once more: the bound is that of the value alone.
    pub unrounded: bool,
    /// What it is before it is rounded to its format.
    pub value: Bounded,
}

/// Reduces an old value and all new ones to one.
type Combine = fn(f64, &[Bounded]) -> Bounded;

/// What a tree is evaluated in.
pub struct Host<'a> {
    /// Extents of the value that is being evaluated: D's, and inside of a gated pair twice the columns.
    pub shape: Shape,
    /// Which of several products it is.
    pub(super) group: u32,
    /// Bytes from the first group's vectors and matrices to this one's.
    pub(super) displacement: u64,
    memory: &'a dyn Memory,
    accumulator: &'a dyn Fn([u32; 2]) -> Bounded,
    /// Elements written, by address.
    written: BTreeMap<u64, Written>,
    /// Values to be reduced, by address and then by element, and how.
    reduced: BTreeMap<u64, (Combine, BTreeMap<[u32; 2], Bounded>)>,
    /// Values of enclosing bindings, outermost first.
    pub(super) bound: Vec<Bounded>,
}

impl core::fmt::Debug for Host<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Host").field("shape", &self.shape).field("written", &self.written.len()).finish()
    }
}

impl<'a> Host<'a> {
    /// A D of this shape, of a product with these accumulators, and the memory that arguments point to.
    pub fn new(shape: Shape, memory: &'a dyn Memory, accumulator: &'a dyn Fn([u32; 2]) -> Bounded) -> Self {
        Self {
            shape,
            group: 0,
            displacement: 0,
            memory,
            accumulator,
            written: BTreeMap::new(),
            reduced: BTreeMap::new(),
            bound: Vec::new(),
        }
    }

    /// The same for one of several products.
    #[must_use]
    pub fn of_group(self, group: u32) -> Self {
        Self { group, ..self }
    }

    /// The accumulator at (row, column).
    pub fn accumulator(&self, at: [u32; 2]) -> Bounded {
        (self.accumulator)(at)
    }

    /// An element in device memory; NaN where there is none.
    pub fn read(&self, format: Format, address: u64) -> Bounded {
        let bits = self.memory.read(address + self.displacement, format.bytes());
        Bounded::exact(bits.map_or(f64::NAN, |bits| format.decode(bits)))
    }

    /// All that has been written, reductions among it.
    pub fn finish(mut self) -> BTreeMap<u64, Written> {
        for (address, (combine, elements)) in core::mem::take(&mut self.reduced) {
            let before = self.memory.read(address, 4).map_or(f64::NAN, |bits| Format::F32.decode(bits));
            let elements: Vec<Bounded> = elements.into_values().collect();
            let value = combine(before, &elements);
            self.written.insert(address, Written { format: Format::F32, unrounded: true, value });
        }
        self.written
    }

    /// Remembers an element that the tree writes.
    pub fn write(&mut self, format: Format, address: u64, value: Bounded) {
        self.note_written(address, Written { format, unrounded: false, value });
    }

    // What follows is of no type of the tree's: it is compiled here, once, and not with each tree.

    fn note_written(&mut self, address: u64, element: Written) {
        self.written.insert(address + self.displacement, element);
    }

    /// Remembers an element whose value is reduced to the `f32` at an address.
    pub(super) fn note_reduced(&mut self, combine: Combine, address: u64, at: [u32; 2], value: Bounded) {
        let (_, elements) =
            self.reduced.entry(address + self.displacement).or_insert((combine, BTreeMap::new()));
        elements.insert(at, value);
    }
}
