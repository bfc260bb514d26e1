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

    /// Whether an element of some memory that is laid out as this tensor has the bits that it has here.
    pub(super) fn keeps_an_element(&self, memory: &[u8]) -> bool {
        let width = self.format.bytes() as usize;
        (0..self.rows()).any(|index| {
            let row = self.byte(index)..self.byte(index) + self.row_bytes();
            let mut both = self.bytes[row.clone()].chunks_exact(width).zip(memory[row].chunks_exact(width));
            both.any(|(here, there)| here == there)
        })
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A tensor `(2, 3, 5, 8)` whose elements are 0, 1, 2, ...
    fn counted(layout: Layout) -> Tensor {
        let mut number = 0;
        Tensor::new(Format::F32, layout, [2, 3, 5, 8], || {
            number += 1;
            Format::F32.round(f64::from(number - 1))
        })
    }

    /// Elements from sequence to sequence, from head to head, and from row to row; and from the first one to behind the
    /// last one.
    const LAYOUTS: [(Layout, [usize; 3], usize); 3] = [
        (Layout::HeadsFirst, [120, 40, 8], 240),
        (Layout::LengthFirst, [120, 8, 24], 240),
        (Layout::Gaps, [360, 112, 16], 360 + 224 + 64 + 8),
    ];

    #[test]
    fn elements_are_where_the_layout_says() {
        for (layout, [batch, head, row], reach) in LAYOUTS {
            let tensor = counted(layout);
            assert_eq!((tensor.rows(), tensor.row_bytes()), (30, 32));
            for index in 0..30 {
                let [b, h, r] = [index / 15, index / 5 % 3, index % 5];
                assert_eq!(
                    tensor.byte(index),
                    (64 + b * batch + h * head + r * row) * 4,
                    "{layout:?}, row {index}"
                );
                let want: Vec<f64> = (index * 8..index * 8 + 8).map(|number| number as f64).collect();
                assert_eq!(tensor.values(index), want, "{layout:?}, row {index}");
                assert!(tensor.row(&tensor.bytes, index).map(|bits| Format::F32.decode(bits)).eq(want));
            }
            let all = Format::F32.values(&tensor.bytes);
            assert_eq!(all.len(), 64 + reach + 64, "{layout:?}");
            assert_eq!(all.iter().filter(|element| !element.is_nan()).count(), 240, "{layout:?}");
            let HeadsRef { address, .. } = tensor.placed(1 << 20);
            assert_eq!(address, (1 << 20) + 64 * 4);
        }
        let nothing = Tensor::new(Format::Bf16, Layout::HeadsFirst, [0, 3, 5, 8], || 0);
        assert_eq!((nothing.rows(), nothing.bytes.len()), (0, 2 * 64 * 2), "memory around nothing");
    }

    /// Whatever byte changes, it is one of an element or one around them.
    #[test]
    fn memory_around_elements_is_told_from_them() {
        for (layout, ..) in LAYOUTS {
            let tensor = counted(layout);
            let mut inside = vec![false; tensor.bytes.len()];
            (0..30).for_each(|index| inside[tensor.byte(index)..][..32].fill(true));
            for (byte, inside) in inside.into_iter().enumerate() {
                let mut memory = tensor.bytes.clone();
                memory[byte] ^= 1;
                assert_eq!(tensor.is_same_around(&memory), inside, "{layout:?}, byte {byte}");
            }
        }
    }

    /// One element of all that is as before is enough.
    #[test]
    fn elements_that_stay_are_found() {
        let tensor = counted(Layout::Gaps);
        let mut other = tensor.bytes.clone();
        (0..30).for_each(|index| other[tensor.byte(index)..][..32].iter_mut().for_each(|byte| *byte ^= 0x40));
        assert!(!tensor.keeps_an_element(&other), "what is around the elements does not count");
        for index in 0..30 {
            let at = tensor.byte(index) + index % 8 * 4;
            let mut memory = other.clone();
            memory[at..at + 4].copy_from_slice(&tensor.bytes[at..at + 4]);
            assert!(tensor.keeps_an_element(&memory), "row {index}");
        }
    }

    #[test]
    fn one_row_becomes_nan() {
        let mut tensor = counted(Layout::LengthFirst);
        tensor.poison(17);
        for index in 0..30 {
            let nan = tensor.values(index).into_iter().filter(|element| element.is_nan()).count();
            assert_eq!(nan, if index == 17 { 8 } else { 0 }, "row {index}");
        }
    }
}
