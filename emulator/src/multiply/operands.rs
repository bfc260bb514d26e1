//! Operands of a multiply as matrices of raw elements, from shared memory or registers.

use ptx::WgmmaTypes;
use ptx::inst::{Int8, Reg, WgmmaElement, WgmmaSum};

use crate::descriptor::Chunks;
use crate::lanes::Lanes;
use crate::shared::Shared;
use crate::trap::Fault;
use crate::warp::Registers;

/// A `(64, k_a)` and B `(n, k_b)`, with K contiguous. The bits of an element are zero-extended. Single-bit
/// elements are kept in words of 32 bits; then each word counts as an element.
#[derive(Debug)]
pub(crate) struct Matrices {
    pub(crate) types: WgmmaTypes,
    pub(crate) a: Vec<u32>,
    pub(crate) b: Vec<u32>,
    pub(crate) k_a: usize,
    pub(crate) k_b: usize,
    /// For a sparse A: the position along K of each of its elements. Empty otherwise.
    places: Vec<u16>,
    /// Number of bytes of an element.
    width: usize,
}

impl Default for Matrices {
    fn default() -> Self {
        let types = WgmmaTypes::Bf16F32;
        Self { types, a: Vec::new(), b: Vec::new(), k_a: 0, k_b: 0, places: Vec::new(), width: 2 }
    }
}

impl Matrices {
    pub(crate) fn begin(&mut self, types: WgmmaTypes, n: u32, sparse: bool) {
        self.types = types;
        self.width = if types.a() == WgmmaElement::B1 { 4 } else { types.element_bits() as usize / 8 };
        self.k_a = 32 / self.width;
        self.k_b = if sparse { 2 * self.k_a } else { self.k_a };
        self.a.resize(64 * self.k_a, 0);
        self.b.resize(n as usize * self.k_b, 0);
        self.places.clear();
    }

    pub(crate) fn fill_a(&mut self, shared: &Shared, chunks: &Chunks) {
        fill(&mut self.a, self.k_a, self.width, shared, chunks);
    }

    pub(crate) fn fill_b(&mut self, shared: &Shared, chunks: &Chunks) {
        fill(&mut self.b, self.k_b, self.width, shared, chunks);
    }

    /// Fills A from registers. With p elements per register, register r of lane 4g + c holds row g + 8 (r %
    /// 2), elements pc.. of half r / 2 of the slice of K.
    pub(crate) fn fill_fragment(&mut self, quarter: usize, fragment: &[Lanes<u32>; 4]) {
        let packed = 4 / self.width;
        for (r, lanes) in fragment.iter().enumerate() {
            for (lane, bits) in lanes.iter().enumerate() {
                let row = quarter * 16 + r % 2 * 8 + lane / 4;
                let k = r / 2 * self.k_a / 2 + lane % 4 * packed;
                let place = &mut self.a[row * self.k_a + k..][..packed];
                for (element, bytes) in place.iter_mut().zip(bits.to_le_bytes().chunks_exact(self.width)) {
                    *element = bytes.iter().rev().fold(0, |bits, &byte| bits << 8 | u32::from(byte));
                }
            }
        }
    }

    /// Finds the position along K of every element of a sparse A. [`ptx::WgmmaSparse`] documents the
    /// metadata.
    pub(crate) fn select(&mut self, selector: u32, metadata: &[Lanes<u32>; 4]) -> Result<(), Fault> {
        let (kept, of) = if self.width == 4 { (1, 2) } else { (2, 4) };
        let chunks = self.k_a / kept;
        for row in 0..64 {
            let (warp, g, upper) = (&metadata[row / 16], row % 8, row / 8 % 2);
            for chunk in 0..chunks {
                let (half, shift) = (chunk * 2 / chunks, chunk % (chunks / 2) * 4);
                let bits = if self.width == 1 {
                    warp[4 * g + 2 * half + upper] >> shift
                } else {
                    warp[4 * g + 2 * selector as usize + half] >> (shift + 16 * upper)
                } & 0xF;
                let (first, second) = (bits & 3, bits >> 2);
                let start = (of * chunk) as u16;
                match (kept, bits) {
                    (1, 0b0100) => self.places.push(start),
                    (1, 0b1110) => self.places.push(start + 1),
                    (2, _) if first < second => {
                        self.places.extend([start + first as u16, start + second as u16]);
                    }
                    _ => return Err(Fault::SparseMetadata { row: row as u32, chunk: chunk as u32, bits }),
                }
            }
        }
        Ok(())
    }

    /// For a sparse A: the positions along K of the elements of a row.
    pub(crate) fn places(&self, row: usize) -> Option<&[u16]> {
        self.places.get(row * self.k_a..(row + 1) * self.k_a)
    }

    /// The pairs of elements that are multiplied for one element of D.
    fn pairs(&self, row: usize, column: usize) -> impl Iterator<Item = (u32, u32)> {
        let a = &self.a[row * self.k_a..][..self.k_a];
        let b = &self.b[column * self.k_b..][..self.k_b];
        let places = self.places(row);
        a.iter().enumerate().map(move |(i, &a)| (a, b[places.map_or(i, |places| places[i].into())]))
    }

    /// An element of D, for integer types.
    pub(crate) fn integer(&self, row: usize, column: usize, old: i32) -> i32 {
        let WgmmaTypes::Int8 { a: of_a, b: of_b, saturate } = self.types else {
            let bits: u32 = self.pairs(row, column).map(|(a, b)| (a & b).count_ones()).sum();
            return old.wrapping_add(bits.cast_signed());
        };
        let value = |bits: u32, format| match format {
            Int8::S8 => i64::from((bits as u8).cast_signed()),
            Int8::U8 => i64::from(bits),
        };
        let products: i64 = self.pairs(row, column).map(|(a, b)| value(a, of_a) * value(b, of_b)).sum();
        let sum = i64::from(old) + products;
        if saturate { sum.clamp(i32::MIN.into(), i32::MAX.into()) as i32 } else { sum as i32 }
    }

    /// Replaces each element of D that one warp holds, given its row, column and old bits. Value v of lane 4g
    /// + c is in row g + 8 (v / 2 % 2), column 8 (v / 4) + 2c + v % 2.
    pub(crate) fn each_sum(
        &self,
        registers: &mut Registers<'_>,
        quarter: usize,
        d: &[Reg],
        mut replace: impl FnMut(usize, usize, u32) -> u32,
    ) {
        let halves = self.types.d() == WgmmaSum::F16;
        for (r, &reg) in d.iter().enumerate() {
            for (lane, bits) in registers.lent(reg).iter_mut().enumerate() {
                let row = |v: usize| quarter * 16 + v / 2 % 2 * 8 + lane / 4;
                let column = |v: usize| v / 4 * 8 + lane % 4 * 2 + v % 2;
                if halves {
                    let v = 2 * r;
                    let low = replace(row(v), column(v), *bits & 0xFFFF);
                    let high = replace(row(v + 1), column(v + 1), *bits >> 16);
                    *bits = low & 0xFFFF | high << 16;
                } else {
                    *bits = replace(row(r), column(r), *bits);
                }
            }
        }
    }
}

/// Reads an operand of `k` elements a row from shared memory.
fn fill(matrix: &mut [u32], k: usize, width: usize, shared: &Shared, chunks: &Chunks) {
    match width {
        1 => fill_with::<16>(matrix, k, shared, chunks, |chunk| chunk.map(u32::from)),
        2 => fill_with::<8>(matrix, k, shared, chunks, |chunk| {
            let (halves, _) = chunk.as_chunks::<2>();
            core::array::from_fn(|i| u16::from_le_bytes(halves[i]).into())
        }),
        _ => fill_with::<4>(matrix, k, shared, chunks, |chunk| {
            let (words, _) = chunk.as_chunks::<4>();
            core::array::from_fn(|i| u32::from_le_bytes(words[i]))
        }),
    }
}

/// The same with `E` elements in a chunk.
fn fill_with<const E: usize>(
    matrix: &mut [u32],
    k: usize,
    shared: &Shared,
    Chunks { tile, chunks, .. }: &Chunks,
    elements: impl Fn([u8; 16]) -> [u32; E],
) {
    for (index, &chunk) in (0..).zip(chunks) {
        let values = elements(shared.chunk(chunk));
        if tile.transposed {
            let (at, block) = tile.column(index);
            for (i, value) in values.into_iter().enumerate() {
                matrix[(block as usize * 8 + i) * k + at as usize] = value;
            }
        } else {
            matrix[index as usize * E..][..E].copy_from_slice(&values);
        }
    }
}
