//! Matrix descriptors: they tell `wgmma` where an operand tile is in shared memory.
//!
//! A descriptor holds a start address, two strides and the swizzle mode. The strides are read from the tile's
//! layout. Their meaning depends on the mode and on the contiguous direction; see the table in PTX ISA
//! "Matrix Descriptor Format". Address bits from 18 up are masked, because a shared address in a cluster has
//! the CTA's rank there.
//!
//! ```
//! use cute_rs::atom::descriptor::MatrixDescriptor;
//! use cute_rs::atom::{Major, SwizzleMode};
//!
//! let a = MatrixDescriptor::new(Major::K, SwizzleMode::B128, 16, 64, 64)?;
//! assert_eq!(a.k_offset_bytes(1), 32); // the next 16 of K, in the same row of the swizzle
//! assert_eq!(a.bits(1024) & 0x3fff, 1024 >> 4); // addresses are in units of 16 bytes
//! # Ok::<(), cute_rs::LayoutError>(())
//! ```

use super::{Major, SwizzleMode, smem};
use crate::error::LayoutError;
use crate::layout::Layout;

/// The descriptor of one operand tile, without its start address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MatrixDescriptor {
    /// Leading-dimension byte offset (LBO), in bytes.
    pub leading_bytes: u32,
    /// Stride-dimension byte offset (SBO), in bytes.
    pub stride_bytes: u32,
    /// Swizzle mode.
    pub mode: SwizzleMode,
    /// The tile without its swizzle, which the hardware applies to the final address.
    layout: Layout,
    element_bits: u32,
}

/// The value of a field that the hardware does not read.
const UNUSED: u32 = 16;

impl MatrixDescriptor {
    /// Creates the descriptor of the tile that [`smem::tile`] describes.
    ///
    /// # Errors
    /// Those of [`smem::tile`].
    pub const fn new(
        major: Major,
        mode: SwizzleMode,
        element_bits: u32,
        mn: u32,
        k: u32,
    ) -> Result<Self, LayoutError> {
        let layout = ok!(smem::tile(major, mode, element_bits, mn, k)).layout;
        let mut descriptor = Self { leading_bytes: UNUSED, stride_bytes: UNUSED, mode, layout, element_bits };
        let width = mode.elements(element_bits);
        let next_8_rows = if mn > 8 { descriptor.offset_bytes(8, 0) } else { UNUSED };
        let next_8_k = if k > 8 { descriptor.offset_bytes(0, 8) } else { UNUSED };
        let next_width_rows = if mn > width { descriptor.offset_bytes(width, 0) } else { UNUSED };
        let next_width_k = if k > width { descriptor.offset_bytes(0, width) } else { UNUSED };
        (descriptor.leading_bytes, descriptor.stride_bytes) = match (major, mode) {
            (Major::K, SwizzleMode::None) => (next_width_k, next_8_rows),
            // The hardware reads it if a slice of K is longer than the swizzle's width: 64 bytes of B in a
            // sparse multiply.
            (Major::K, SwizzleMode::B32) => (next_width_k, next_8_rows),
            (Major::K, _) => (UNUSED, next_8_rows),
            (Major::Mn, SwizzleMode::None) => (next_8_k, next_width_rows),
            (Major::Mn, _) => (next_width_rows, next_8_k),
        };
        Ok(descriptor)
    }

    /// The layout `(mn, k) -> offset` of the tile, in elements and without its swizzle. The hardware applies
    /// the swizzle to the final address.
    pub const fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Byte offset of element `(mn, k)` before the swizzle.
    const fn offset_bytes(&self, mn: u32, k: u32) -> u32 {
        (self.layout.at_modes(&[mn as i64, k as i64]) as u32) * self.element_bits / 8
    }

    /// The 64 bits of the descriptor for a start address in shared memory. The address is a multiple of the
    /// mode's alignment plus offsets from [`k_offset_bytes`](Self::k_offset_bytes) and
    /// [`mn_offset_bytes`](Self::mn_offset_bytes).
    ///
    /// ```
    /// # use cute_rs::atom::{Major, SwizzleMode, descriptor::MatrixDescriptor};
    /// let a = MatrixDescriptor::new(Major::K, SwizzleMode::B128, 16, 64, 64)?;
    /// assert_eq!(a.bits(0x400), 0x4000_0040_0001_0040);
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    pub const fn bits(&self, start_address: u32) -> u64 {
        const fn field(bytes: u32) -> u64 {
            ((bytes & 0x3_FFFF) >> 4) as u64
        }
        let mode: u64 = match self.mode {
            SwizzleMode::None => 0,
            SwizzleMode::B128 => 1,
            SwizzleMode::B64 => 2,
            SwizzleMode::B32 => 3,
        };
        field(start_address) | field(self.leading_bytes) << 16 | field(self.stride_bytes) << 32 | mode << 62
    }

    /// The offset in bytes to add to the start address for slice `step` of K. A slice is 32 bytes, which is
    /// one instruction's K.
    pub const fn k_offset_bytes(&self, step: u32) -> u32 {
        self.offset_bytes(0, step * (256 / self.element_bits))
    }

    /// The offset in bytes to add to the start address to begin at row `row` of M or N. The row must be a
    /// multiple of 8 (K-major) or of the swizzle's width (MN-major).
    pub const fn mn_offset_bytes(&self, row: u32) -> u32 {
        self.offset_bytes(row, 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::atom::tests::{swizzled_address, tiles};

    /// A start address of a tile: aligned to the period of every pattern, and not to more.
    const BASE: u32 = 0x400;

    /// The canonical layouts of the PTX manual, in bytes before the swizzle, from a descriptor's two strides.
    fn canonical(major: Major, descriptor: &MatrixDescriptor, bytes: u32, mn: u32, k: u32) -> u32 {
        let unit = 16 / bytes;
        let (width, row) = (descriptor.mode.elements(bytes * 8), descriptor.mode.bytes());
        let (leading, stride) = (descriptor.leading_bytes, descriptor.stride_bytes);
        match (major, descriptor.mode) {
            (Major::K, SwizzleMode::None) => {
                mn % 8 * 16 + mn / 8 * stride + k % unit * bytes + k / unit * leading
            }
            (Major::K, SwizzleMode::B32 | SwizzleMode::B64 | SwizzleMode::B128) => {
                mn % 8 * row + mn / 8 * stride + k * bytes
            }
            (Major::Mn, SwizzleMode::None) => {
                mn % unit * bytes + mn / unit * stride + k % 8 * 16 + k / 8 * leading
            }
            (Major::Mn, SwizzleMode::B32 | SwizzleMode::B64 | SwizzleMode::B128) => {
                mn % width * bytes + mn / width * leading + k % 8 * row + k / 8 * stride
            }
        }
    }

    #[test]
    fn what_an_instruction_reads_is_the_tile() {
        for (major, mode, bits, mn, k) in tiles() {
            let tile = smem::tile(major, mode, bits, mn, k).unwrap();
            let descriptor = MatrixDescriptor::new(major, mode, bits, mn, k).unwrap();
            let (bytes, slice) = (bits / 8, 256 / bits);
            let rows = match major {
                Major::K => 8,
                Major::Mn => mode.elements(bits),
            };
            // The instruction may begin at any whole group of rows and at any slice of K.
            for (first, step) in (0..mn / rows).flat_map(|i| (0..k / slice).map(move |step| (i * rows, step)))
            {
                let start = BASE + descriptor.mn_offset_bytes(first) + descriptor.k_offset_bytes(step);
                assert_eq!(start % 16, 0, "start addresses are counted in 16 bytes");
                for (m, kk) in (0..slice).flat_map(|kk| (0..mn - first).map(move |m| (m, kk))) {
                    let address = swizzled_address(mode, start + canonical(major, &descriptor, bytes, m, kk));
                    let element = tile.at_modes(&[(first + m).into(), (step * slice + kk).into()]);
                    assert_eq!(
                        i64::from(address - BASE),
                        element * i64::from(bytes),
                        "({m},{kk}) from row {first} and step {step} of {mn}x{k}, {major:?}, {mode:?}, {bits} bits"
                    );
                }
            }
        }
    }

    #[test]
    fn a_sparse_slice_of_b_is_the_tile() {
        for (mode, bits) in SwizzleMode::ALL.into_iter().flat_map(|mode| [8, 16, 32].map(|bits| (mode, bits)))
        {
            let (slice, width) = (512 / bits, mode.elements(bits));
            let (rows, k) = (24, 2 * slice.max(width));
            let tile = smem::tile(Major::K, mode, bits, rows, k).unwrap();
            let descriptor = MatrixDescriptor::new(Major::K, mode, bits, rows, k).unwrap();
            for (row, at, step) in
                (0..rows).flat_map(|n| (0..slice).flat_map(move |k| [0, 1].map(|s| (n, k, s))))
            {
                // Spans of the swizzle's width, one leading-dimension offset apart.
                let (span, inside) = (at / width, at % width * bits / 8);
                let leading = span * descriptor.leading_bytes;
                let place = leading + row / 8 * descriptor.stride_bytes + row % 8 * mode.bytes() + inside;
                let address = swizzled_address(mode, BASE + descriptor.k_offset_bytes(2 * step) + place);
                let element = tile.at_modes(&[row.into(), (step * slice + at).into()]);
                assert_eq!(
                    i64::from(address - BASE),
                    element * i64::from(bits / 8),
                    "({row},{at}), {mode:?}"
                );
            }
        }
    }

    #[test]
    fn worked_examples() {
        for (why, major, (mn, k), bits, starts) in [
            ("64x64 K-major", Major::K, (64, 64), 0x4000_0040_0001_0040, [0x40, 0x42, 0x44, 0x46]),
            ("128x64 MN-major", Major::Mn, (128, 64), 0x4000_0040_0200_0040, [0x40, 0xC0, 0x140, 0x1C0]),
        ] {
            let descriptor = MatrixDescriptor::new(major, SwizzleMode::B128, 16, mn, k).unwrap();
            assert_eq!(descriptor.bits(BASE), bits, "{why}");
            for (step, start) in (0..).zip(starts) {
                let got = descriptor.bits(BASE + descriptor.k_offset_bytes(step));
                assert_eq!(got, bits & !0x3FFF | start, "{why}, step {step}");
            }
        }
        let rows = MatrixDescriptor::new(Major::K, SwizzleMode::B128, 16, 128, 64).unwrap();
        assert_eq!(rows.mn_offset_bytes(64), 8192, "the second warpgroup's rows");
    }

    #[test]
    fn equal_bytes_have_equal_descriptors() {
        let of = |bits, k| MatrixDescriptor::new(Major::K, SwizzleMode::B128, bits, 64, k).unwrap();
        for (why, other) in [("8-bit elements", of(8, 128)), ("32-bit elements", of(32, 32))] {
            let wanted = of(16, 64);
            assert_eq!(other.bits(BASE), wanted.bits(BASE), "{why}");
            for step in 0..4 {
                assert_eq!(other.k_offset_bytes(step), wanted.k_offset_bytes(step), "{why}, step {step}");
            }
        }
    }

    #[test]
    fn fields_and_modes() {
        for (why, mode, code, stride) in [
            ("none", SwizzleMode::None, 0, 128),
            ("32 bytes", SwizzleMode::B32, 3, 256),
            ("64 bytes", SwizzleMode::B64, 2, 512),
            ("128 bytes", SwizzleMode::B128, 1, 1024),
        ] {
            let descriptor = MatrixDescriptor::new(Major::K, mode, 16, 64, 64).unwrap();
            let bits = descriptor.bits(BASE);
            assert_eq!(bits >> 62, code, "{why}");
            assert_eq!((bits >> 32) & 0x3FFF, stride / 16, "{why}");
            let of_rank_3 = descriptor.bits(3 << 24 | BASE);
            assert_eq!(of_rank_3, bits, "{why}: a CTA's rank in a cluster stays out of the fields");
        }
    }
}
