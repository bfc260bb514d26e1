//! Layouts of Hopper's instructions: where each instruction expects or leaves the elements of a tile.
//!
//! Everything else that a kernel needs is read from these layouts: descriptor fields, copy boxes, byte
//! offsets. Sources: PTX ISA "Asynchronous warpgroup-level matrix instructions" and "Tensors", and the CUDA
//! driver API.
//!
//! ```
//! use cute_rs::atom::SwizzleMode;
//!
//! assert_eq!(SwizzleMode::B128.elements(16), 64); // a row of the widest swizzle holds 64 bf16
//! assert_eq!(SwizzleMode::B128.swizzle(16).to_string(), "Sw<3,3,3>");
//! ```

pub mod boxes;
pub mod descriptor;
pub mod mma;
pub mod smem;
pub mod stmatrix;
pub mod tma;
pub mod unit;
pub mod wgmma;

use crate::swizzle::Swizzle;

/// The contiguous direction of an operand `(MN, K)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Major {
    /// K: row-major A, column-major B.
    K,
    /// M or N.
    Mn,
}

/// The swizzle modes of shared memory: four ways to permute the 16-byte chunks of a tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SwizzleMode {
    /// No permutation: rows of 16 bytes.
    None,
    /// Rows of 32 bytes.
    B32,
    /// Rows of 64 bytes.
    B64,
    /// Rows of 128 bytes.
    B128,
}

impl SwizzleMode {
    /// All modes, widest first.
    pub const ALL: [Self; 4] = [Self::B128, Self::B64, Self::B32, Self::None];

    /// Bytes in a contiguous row of the tile.
    pub const fn bytes(self) -> u32 {
        match self {
            Self::None => 16,
            Self::B32 => 32,
            Self::B64 => 64,
            Self::B128 => 128,
        }
    }

    /// The required alignment of a tile's address in shared memory, in bytes: the period of the pattern, and
    /// at least the 128 bytes that a tensor copy needs.
    pub const fn alignment(self) -> u32 {
        match self {
            Self::None => 128,
            Self::B32 => 256,
            Self::B64 => 512,
            Self::B128 => 1024,
        }
    }

    /// Elements in a contiguous row of the tile; 0 if `element_bits` is 0.
    pub const fn elements(self, element_bits: u32) -> u32 {
        match (self.bytes() * 8).checked_div(element_bits) {
            Some(elements) => elements,
            None => 0,
        }
    }

    /// The swizzle on byte addresses.
    pub const fn byte_swizzle(self) -> Swizzle {
        let bits = match self {
            Self::None => return Swizzle::NONE,
            Self::B32 => 1,
            Self::B64 => 2,
            Self::B128 => 3,
        };
        Swizzle { bits, base: 4, shift: 3 }
    }

    /// The swizzle on offsets in elements of 8, 16 or 32 bits.
    pub const fn swizzle(self, element_bits: u32) -> Swizzle {
        let bytes = self.byte_swizzle();
        if bytes.bits == 0 {
            return bytes;
        }
        let base = bytes.base.saturating_sub((element_bits / 8).trailing_zeros());
        Swizzle { bits: bytes.bits, base, shift: bytes.shift }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    /// Every kind of tile, with some extents `(mn, k)` that are multiples of the atom's and of 32 bytes of K.
    pub(super) fn tiles() -> impl Iterator<Item = (Major, SwizzleMode, u32, u32, u32)> {
        let kinds = [Major::K, Major::Mn].into_iter().flat_map(|major| {
            let modes = SwizzleMode::ALL.into_iter();
            modes.flat_map(move |mode| [8, 16, 32].map(|bits| (major, mode, bits)))
        });
        kinds.flat_map(|(major, mode, bits)| {
            let width = mode.elements(bits);
            let (mn_atom, k_atom) = match major {
                Major::K => (8, width),
                Major::Mn => (width, 8),
            };
            let slice = 256 / bits;
            let k_unit = k_atom * slice / if k_atom < slice { k_atom } else { slice };
            let extents = [1, 2, 3, 8].into_iter().flat_map(|mn| [1, 2, 5].map(|k| (mn, k)));
            extents.map(move |(mn, k)| (major, mode, bits, mn * mn_atom, k * k_unit))
        })
    }

    /// The byte swizzle as the PTX manual defines it, on an absolute address.
    pub(super) fn swizzled_address(mode: SwizzleMode, address: u32) -> u32 {
        let mask = match mode {
            SwizzleMode::None => 0,
            SwizzleMode::B32 => 1,
            SwizzleMode::B64 => 3,
            SwizzleMode::B128 => 7,
        };
        address ^ (((address >> 7) & mask) << 4)
    }

    #[test]
    fn byte_and_element_swizzles_are_one_permutation() {
        for mode in SwizzleMode::ALL {
            for address in 0..4096 {
                let want = u64::from(swizzled_address(mode, address));
                assert_eq!(mode.byte_swizzle().apply(address.into()), want, "{mode:?} at byte {address}");
                for bits in [8, 16, 32] {
                    let bytes = bits / 8;
                    if address % bytes == 0 {
                        let element = mode.swizzle(bits).apply((address / bytes).into());
                        assert_eq!(
                            element * u64::from(bytes),
                            want,
                            "{mode:?} of {bits} bits at byte {address}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn patterns_repeat_with_the_alignment() {
        for (mode, bytes, alignment) in [
            (SwizzleMode::None, 16, 128),
            (SwizzleMode::B32, 32, 256),
            (SwizzleMode::B64, 64, 512),
            (SwizzleMode::B128, 128, 1024),
        ] {
            assert_eq!((mode.bytes(), mode.alignment()), (bytes, alignment));
            let shifts = |base| (0..alignment).map(move |i| swizzled_address(mode, base + i) - base);
            let first: Vec<_> = shifts(0).collect();
            assert!((1..8).all(|i| shifts(i * alignment).eq(first.iter().copied())), "{mode:?}");
        }
    }
}
