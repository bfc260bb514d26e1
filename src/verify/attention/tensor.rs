//! Tensors on the host, with memory around their elements that nobody may touch.

use attention::HeadsRef;
use reference::Format;

use super::Layout;

/// A tensor on the host: elements, and where each is.
pub(super) struct Tensor {
    pub(super) format: Format,
    pub(super) extents: [u32; 4],
    at: HeadsRef,
    pub(super) bytes: Vec<u8>,
}

/// Elements before and after a tensor, which nobody may touch.
const AROUND: u64 = 64;

impl Tensor {
    /// All memory is NaN, except for the elements.
    pub(super) fn new(
        format: Format,
        layout: Layout,
        extents: [u32; 4],
        mut element: impl FnMut() -> u64,
    ) -> Self {
        let [_, heads, rows, d] = extents;
        let at = match layout {
            Layout::HeadsFirst => HeadsRef::heads_first(0, [heads, rows, d]),
            Layout::LengthFirst => HeadsRef::length_first(0, [heads, rows, d]),
            Layout::Gaps => {
                let row = u64::from(d) + 8;
                let head = (u64::from(rows) + 1) * row + 16;
                HeadsRef { address: 0, row, head, batch: u64::from(heads) * head + 24 }
            }
        };
        let elements = at.reach(extents) + 2 * AROUND;
        let width = format.bytes() as usize;
        let nan = format.round(f64::NAN).to_le_bytes();
        let mut tensor = Self { format, extents, at, bytes: nan[..width].repeat(elements as usize) };
        for index in 0..tensor.rows() {
            let first = tensor.byte(index);
            for byte in (first..).step_by(width).take(d as usize) {
                tensor.bytes[byte..byte + width].copy_from_slice(&element().to_le_bytes()[..width]);
            }
        }
        tensor
    }

    /// Makes a row NaN.
    pub(super) fn poison(&mut self, index: usize) {
        let row = self.byte(index)..self.byte(index) + self.row_bytes();
        let nan = self.format.round(f64::NAN).to_le_bytes();
        for element in self.bytes[row].chunks_exact_mut(self.format.bytes() as usize) {
            element.copy_from_slice(&nan[..element.len()]);
        }
    }

    pub(super) fn rows(&self) -> usize {
        self.extents[..3].iter().map(|&extent| extent as usize).product()
    }

    /// Where a row begins, by its index in `(batch, heads, rows)`.
    pub(super) fn byte(&self, index: usize) -> usize {
        let [_, heads, rows, _] = self.extents.map(|extent| extent as usize);
        let [b, h, r] = [index / rows / heads, index / rows % heads, index % rows].map(|i| i as u64);
        let HeadsRef { row, head, batch, .. } = self.at;
        (AROUND + b * batch + h * head + r * row) as usize * self.format.bytes() as usize
    }

    pub(super) fn row_bytes(&self) -> usize {
        (self.extents[3] * self.format.bytes()) as usize
    }

    /// The elements of a row in some memory that is laid out as this tensor.
    pub(super) fn row<'a>(&self, memory: &'a [u8], index: usize) -> impl Iterator<Item = u64> + use<'a> {
        let (first, width) = (self.byte(index), self.format.bytes() as usize);
        let bits = |element: &[u8]| element.iter().rev().fold(0, |bits, &byte| bits << 8 | u64::from(byte));
        memory[first..first + self.row_bytes()].chunks_exact(width).map(bits)
    }

    pub(super) fn values(&self, index: usize) -> Vec<f64> {
        let first = self.byte(index);
        self.format.values(&self.bytes[first..first + self.row_bytes()])
    }

    /// Whether some memory that is laid out as this tensor is the same around its elements.
    pub(super) fn is_same_around(&self, memory: &[u8]) -> bool {
        let mut around = memory.to_owned();
        for index in 0..self.rows() {
            let (byte, width) = (self.byte(index), self.row_bytes());
            around[byte..byte + width].copy_from_slice(&self.bytes[byte..byte + width]);
        }
        around == self.bytes
    }

    pub(super) fn placed(&self, address: u64) -> HeadsRef {
        HeadsRef { address: address + AROUND * u64::from(self.format.bytes()), ..self.at }
    }
}

/// Random elements, from which rows are taken at random places: a large tensor is filled in no time.
pub(super) struct Pool(Vec<u64>);

impl Pool {
    const COUNT: usize = 1 << 16;

    pub(super) fn new(mut element: impl FnMut() -> u64) -> Self {
        Self((0..Self::COUNT).map(|_| element()).collect())
    }

    /// The elements of rows of `d`.
    pub(super) fn elements<'a>(&'a self, d: u32, random: &'a mut fastrand::Rng) -> impl FnMut() -> u64 + 'a {
        let (mut place, mut left) = (0, 0);
        move || {
            if left == 0 {
                (place, left) = (random.usize(0..Self::COUNT - d as usize), d);
            }
            (place, left) = (place + 1, left - 1);
            self.0[place - 1]
        }
    }
}
