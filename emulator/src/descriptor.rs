//! Matrix descriptors: where the 16-byte chunks of a `wgmma` operand lie in shared memory.
//!
//! Source: PTX ISA "Matrix descriptor" and its canonical layouts. With W = 2, 4 or 8 chunks in a swizzle span of
//! 32, 64 or 128 bytes, the chunk (r, j) of a K-major operand (row r, elements 8j.. of the K slice) lies at
//!
//! * no swizzle: `(r % 8) * 16 + (r / 8) * SBO + j * LBO`,
//! * swizzled: `(r % 8) * 16W + (r / 8) * SBO + j * 16`,
//!
//! and the chunk (b, k) of an MN-major operand (elements 8b.. of row k) at
//!
//! * no swizzle: `b * SBO + (k % 8) * 16 + (k / 8) * LBO`,
//! * swizzled: `(b % W) * 16 + (b / W) * LBO + (k % 8) * 16W + (k / 8) * SBO`,
//!
//! from the start, whereupon the swizzle XORs bits of the absolute address. A slice of K has two chunks a row; that of
//! a sparse multiply's B has four.

use crate::tensor_map::swizzled;
use crate::trap::Fault;

/// A decoded matrix descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Descriptor {
    start: u32,
    /// The leading-dimension byte offset.
    leading: u32,
    /// The stride-dimension byte offset.
    stride: u32,
    /// Bits that the swizzle exchanges: 0 to 3.
    swizzle: u32,
}

/// An operand: its descriptor, its extents, and its major.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tile {
    pub(crate) descriptor: Descriptor,
    /// 64 for A, N for B.
    pub(crate) extent: u32,
    /// Chunks of 16 bytes that the slice of K has: 2, or 4 for the B of a sparse multiply.
    pub(crate) units: u32,
    /// Whether M or N runs through a chunk, and not K.
    pub(crate) transposed: bool,
}

impl Descriptor {
    pub(crate) fn decode(bits: u64) -> Result<Self, Fault> {
        let field = |at: u32| ((bits >> at & 0x3FFF) as u32) << 4;
        if bits >> 49 & 7 != 0 {
            return Err(Fault::Descriptor { descriptor: bits, reason: "its base offset is not zero" });
        }
        let swizzle = match bits >> 62 {
            0 => 0,
            1 => 3,
            2 => 2,
            _ => 1,
        };
        Ok(Self { start: field(0), leading: field(16), stride: field(32), swizzle })
    }
}

impl Tile {
    /// The operand of a descriptor's bits.
    pub(crate) fn new(bits: u64, extent: u32, units: u32, transposed: bool) -> Result<Self, Fault> {
        let descriptor = Descriptor::decode(bits)?;
        let span = 16 << descriptor.swizzle;
        if descriptor.swizzle > 0 && !transposed && descriptor.start % span + 16 * units > span {
            return Err(Fault::Descriptor {
                descriptor: bits,
                reason: "its slice of K leaves the span of its swizzle",
            });
        }
        Ok(Self { descriptor, extent, units, transposed })
    }

    /// How many chunks the operand has.
    pub(crate) fn chunks(&self) -> u32 {
        self.extent * self.units
    }

    /// The offset in shared memory of chunk `index`: (row, chunk of the K slice) for K-major operands, (k, block
    /// of 8 rows) for MN-major ones, which have 16 bits, the latter of each pair running faster.
    pub(crate) fn chunk(&self, index: u32) -> u32 {
        let Descriptor { start, leading, stride, swizzle } = self.descriptor;
        let width = 1 << swizzle;
        let offset = match (self.transposed, swizzle) {
            (false, 0) => {
                let (row, j) = (index / self.units, index % self.units);
                (row % 8) * 16 + (row / 8) * stride + j * leading
            }
            (false, _) => {
                let (row, j) = (index / self.units, index % self.units);
                (row % 8) * 16 * width + (row / 8) * stride + j * 16
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
        swizzled(start + offset, swizzle)
    }

    /// The K row and the block of 8 of a chunk of an MN-major operand.
    pub(crate) fn column(&self, index: u32) -> (u32, u32) {
        let blocks = self.extent / 8;
        (index / blocks, index % blocks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Offset of element (mn, k) by a tile's chunks.
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
        let descriptor = Descriptor { start: 0x400, leading: 128, stride: 256, swizzle: 0 };
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
        let refused =
            |bits, units| matches!(Tile::new(bits, 16, units, false), Err(Fault::Descriptor { .. }));
        assert!(refused(0x4000_0040_0001_0046, 4), "32 bytes are left of the row");
        assert!(!refused(0x4000_0040_0001_0046, 2));
        assert!(refused(0xC000_0010_0001_0040, 4), "a 32-byte swizzle cannot hold 64 bytes of K");
    }

    #[test]
    fn a_base_offset_is_refused() {
        let bits = 1 << 49;
        assert!(
            matches!(Descriptor::decode(bits), Err(Fault::Descriptor { descriptor, .. }) if descriptor == bits)
        );
    }
}
