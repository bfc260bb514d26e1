//! Matrix descriptors: where the 16-byte chunks of a `wgmma` operand are in shared memory.
//!
//! Source: PTX ISA "Matrix descriptor" and its canonical layouts. Let W = 2, 4 or 8 be the number of chunks
//! in a swizzle span of 32, 64 or 128 bytes. Offsets are from the start address. The chunk (r, j) of a
//! K-major operand (row r, elements 8j.. of the K slice) is at
//!
//! * no swizzle: `(r % 8) * 16 + (r / 8) * SBO + j * LBO`,
//! * swizzled: `(r % 8) * 16W + (r / 8) * SBO + (j % W) * 16 + (j / W) * LBO`.
//!
//! The chunk (b, k) of an MN-major operand (elements 8b.. of row k) is at
//!
//! * no swizzle: `b * SBO + (k % 8) * 16 + (k / 8) * LBO`,
//! * swizzled: `(b % W) * 16 + (b / W) * LBO + (k % 8) * 16W + (k / 8) * SBO`.
//!
//! Then the swizzle XORs bits 7.. of the absolute address, minus the base offset, into bits 4... A slice of K
//! has two chunks per row. The B of a sparse multiply has four, and only there can j / W be 1. The manual
//! does not define the base offset, the LBO of a long slice, and slices that begin at any address. For these
//! the rules were measured on an H200 (`docs/hardware.md`).

use crate::shared::PAGE_BYTES;
use crate::trap::Fault;

/// A decoded matrix descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Descriptor {
    start: u32,
    /// The leading-dimension byte offset.
    leading: u32,
    /// The stride-dimension byte offset.
    stride: u32,
    /// Number of address bits in the swizzle: 0 to 3.
    swizzle: u32,
    /// The base offset: where in its period the swizzle pattern begins, in lines of 128 bytes.
    base: u32,
}

/// The bits between the fields, which must be zero.
const RESERVED: u64 = 3 << 14 | 3 << 30 | 7 << 46 | 0x3FF << 52;

/// An operand: its descriptor, its extents, and its major.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Tile {
    pub(crate) descriptor: Descriptor,
    /// 64 for A, N for B.
    pub(crate) extent: u32,
    /// Number of 16-byte chunks in the slice of K: 2, or 4 for the B of a sparse multiply.
    pub(crate) units: u32,
    /// Whether the operand is MN-major: M or N is contiguous in a chunk, not K.
    pub(crate) transposed: bool,
}

impl Descriptor {
    pub(crate) fn decode(bits: u64) -> Result<Self, Fault> {
        let field = |at: u32| ((bits >> at & 0x3FFF) as u32) << 4;
        if bits & RESERVED != 0 {
            let reason = "a bit between its fields is set, for instance by an address above 256 KiB";
            return Err(Fault::Descriptor { descriptor: bits, reason });
        }
        let swizzle = match bits >> 62 {
            0 => 0,
            1 => 3,
            2 => 2,
            _ => 1,
        };
        let base = (bits >> 49 & 7) as u32;
        Ok(Self { start: field(0), leading: field(16), stride: field(32), swizzle, base })
    }
}

/// The offsets of the chunks of an operand, by index of the chunk.
#[derive(Clone, Debug)]
pub(crate) struct Chunks {
    pub(crate) tile: Tile,
    pub(crate) chunks: Box<[u32]>,
    /// The first and the last of them in memory.
    pub(crate) ends: (u32, u32),
    /// The same chunks by page of shared memory, in the order of their first chunks.
    pub(crate) pieces: Box<[Piece]>,
}

/// The chunks of an operand that are in one page of shared memory; of an A, those of the rows of one warp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// The chunk with the lowest index.
    pub(crate) first: u32,
    /// The granules of the page that they are, one bit each.
    pub(crate) mask: u64,
    /// For an A: the warp of the warpgroup whose rows they have, as a mask.
    pub(crate) quarters: u8,
}

impl Chunks {
    pub(crate) fn new(tile: Tile) -> Self {
        let chunks: Box<[u32]> = (0..tile.chunks()).map(|index| tile.chunk(index)).collect();
        let ends = chunks.iter().fold((u32::MAX, 0), |(first, last), &at| (first.min(at), last.max(at)));
        let mut pieces: Vec<Piece> = Vec::new();
        for (index, &chunk) in (0..).zip(&chunks) {
            let quarters = if tile.extent == 64 { 1 << (tile.row(index) / 16) } else { 0 };
            let bit = 1 << (chunk % PAGE_BYTES / 16);
            let same = |piece: &&mut Piece| {
                piece.first / PAGE_BYTES == chunk / PAGE_BYTES && piece.quarters == quarters
            };
            match pieces.iter_mut().rev().find(same) {
                Some(piece) => piece.mask |= bit,
                None => pieces.push(Piece { first: chunk, mask: bit, quarters }),
            }
        }
        Self { tile, chunks, ends, pieces: pieces.into() }
    }
}

impl Tile {
    /// The operand of a descriptor's bits.
    pub(crate) fn new(bits: u64, extent: u32, units: u32, transposed: bool) -> Result<Self, Fault> {
        let descriptor = Descriptor::decode(bits)?;
        Ok(Self { descriptor, extent, units, transposed })
    }

    /// The number of chunks of the operand.
    pub(crate) fn chunks(&self) -> u32 {
        self.extent * self.units
    }

    /// The offset in shared memory of chunk `index`. The index counts (row, chunk of the K slice) for K-major
    /// operands, and (k, block of 8 rows) for MN-major ones, which have 16-bit elements. The second of each
    /// pair varies faster.
    pub(crate) fn chunk(&self, index: u32) -> u32 {
        let Descriptor { start, leading, stride, swizzle, base } = self.descriptor;
        let width = 1 << swizzle;
        let offset = match (self.transposed, swizzle) {
            (false, 0) => {
                let (row, j) = (index / self.units, index % self.units);
                (row % 8) * 16 + (row / 8) * stride + j * leading
            }
            (false, _) => {
                let (row, j) = (index / self.units, index % self.units);
                (row % 8) * 16 * width + (row / 8) * stride + (j % width) * 16 + (j / width) * leading
            }
            (true, 0) => {
                let (k, block) = self.column(index);
                block * stride + (k % 8) * 16 + (k / 8) * leading
            }
            (true, _) => {
                let (k, block) = self.column(index);
                (block % width) * 16 + (block / width) * leading + (k % 8) * 16 * width + (k / 8) * stride
            }
        };
        let address = start + offset;
        let line = (address >> 7).wrapping_sub(base);
        address ^ (line & (width - 1)) << 4
    }

    /// The row of A, or the column of B, to which chunk `index` belongs; for an MN-major operand, the first of eight.
    pub(crate) fn row(&self, index: u32) -> u32 {
        if self.transposed { 8 * self.column(index).1 } else { index / self.units }
    }

    /// The row k and the block of 8 elements of a chunk of an MN-major operand.
    pub(crate) fn column(&self, index: u32) -> (u32, u32) {
        let blocks = self.extent / 8;
        (index / blocks, index % blocks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The offset of element (mn, k), computed from the tile's chunks.
    fn element(tile: Tile, mn: u32, k: u32) -> u32 {
        if tile.transposed {
            tile.chunk(k * (tile.extent / 8) + mn / 8) + mn % 8 * 2
        } else {
            tile.chunk(mn * 2 + k / 8) + k % 8 * 2
        }
    }

    #[test]
    fn k_major_128_byte_worked_example() {
        for step in 0..4 {
            let tile = Tile::new(0x4000_0040_0001_0040 + 2 * step, 64, 2, false).unwrap();
            for m in 0..64 {
                for slice in 0..16 {
                    let k = u32::try_from(step).unwrap() * 16 + slice;
                    let want = 0x400 + m * 128 + (((k >> 3) ^ (m & 7)) << 4) + (k & 7) * 2;
                    assert_eq!(element(tile, m, slice), want, "({m}, {k})");
                }
            }
        }
    }

    #[test]
    fn mn_major_128_byte_worked_example() {
        for step in 0..4u32 {
            let bits = 0x4000_0040_0200_0040 + u64::from(step) * 0x80;
            let tile = Tile::new(bits, 128, 2, true).unwrap();
            for n in 0..128 {
                for slice in 0..16 {
                    let k = step * 16 + slice;
                    let want =
                        0x400 + (n >> 6) * 8192 + k * 128 + ((((n & 63) >> 3) ^ (k & 7)) << 4) + (n & 7) * 2;
                    assert_eq!(element(tile, n, slice), want, "({n}, {k})");
                }
            }
        }
    }

    #[test]
    fn unswizzled_core_matrices() {
        let descriptor = Descriptor { start: 0x400, leading: 128, stride: 256, swizzle: 0, base: 0 };
        let k_major = Tile { descriptor, extent: 64, units: 2, transposed: false };
        assert_eq!(element(k_major, 9, 10), 0x400 + 16 + 256 + 128 + 4);
        let mn_major = Tile { descriptor, extent: 64, units: 2, transposed: true };
        assert_eq!(element(mn_major, 9, 10), 0x400 + 2 + 256 + 32 + 128);
    }

    #[test]
    fn a_sparse_slice_is_four_chunks_long() {
        // A tile of 128-byte rows at 0x400, second half of its K.
        let tile = Tile::new(0x4000_0040_0001_0044, 16, 4, false).unwrap();
        assert_eq!(tile.chunks(), 64);
        for (row, j) in (0..16).flat_map(|row| (0..4).map(move |j| (row, j))) {
            assert_eq!(
                tile.chunk(row * 4 + j),
                0x400 + row * 128 + (((4 + j) ^ (row & 7)) << 4),
                "({row}, {j})"
            );
        }
        // Rows of 32 bytes at 0x400. The second 32 bytes of each row are 0x1000 further.
        let tile = Tile::new(0xC000_0010_0100_0040, 16, 4, false).unwrap();
        for (row, j) in (0..16).flat_map(|row| (0..4).map(move |j| (row, j))) {
            let place = 0x400 + j / 2 * 0x1000 + row * 32 + ((j % 2) ^ (row >> 2 & 1)) * 16;
            assert_eq!(tile.chunk(row * 4 + j), place, "({row}, {j})");
        }
    }

    #[test]
    fn a_base_offset_moves_the_pattern() {
        // A pattern of 128-byte rows that begins at line 3 of 0x400.
        let tile = Tile::new(0x4006_0040_0001_0058, 16, 2, false).unwrap();
        for (row, j) in (0..16).flat_map(|row| (0..2).map(move |j| (row, j))) {
            assert_eq!(tile.chunk(row * 2 + j), 0x580 + row * 128 + ((j ^ (row & 7)) << 4), "({row}, {j})");
        }
    }

    #[test]
    fn bits_between_the_fields_are_refused() {
        for at in [14, 15, 30, 31, 46, 48, 52, 61] {
            let bits = 1 << at;
            let fault = Descriptor::decode(bits);
            let refused = matches!(fault, Err(Fault::Descriptor { descriptor, .. }) if descriptor == bits);
            assert!(refused, "bit {at}");
        }
    }
}
