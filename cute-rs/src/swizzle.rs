//! Swizzles: permutations of offsets that spread a column of a tile over all memory banks.

use core::fmt;

use crate::error::LayoutError;
use crate::evaluate::{Arithmetic, unsigned};
use crate::layout::Layout;

/// `Sw<B,M,S>`: `x ^ (((x >> S) & (2^B - 1) << M))`. The `bits` bits above bit `base + shift` are XORed onto the
/// `bits` bits above bit `base`. It is its own inverse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Swizzle {
    /// B: how many bits.
    pub bits: u32,
    /// M: the lowest bit that changes; runs of `2^M` stay together.
    pub base: u32,
    /// S: how far above the changed bits the source bits are; at least B.
    pub shift: u32,
}

impl Swizzle {
    /// The identity.
    pub const NONE: Self = Self { bits: 0, base: 0, shift: 0 };

    const fn mask(self) -> u32 {
        ((1 << self.bits) - 1) << self.base
    }

    /// The swizzled offset.
    pub const fn apply(self, offset: u64) -> u64 {
        offset ^ ((offset >> self.shift) & self.mask() as u64)
    }

    /// The swizzled offset, computed with `V`'s operators.
    pub fn apply_to<V: Arithmetic>(self, offset: V) -> V {
        if self.bits == 0 { offset } else { offset ^ ((offset >> self.shift) & self.mask()) }
    }
}

impl fmt::Display for Swizzle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sw<{},{},{}>", self.bits, self.base, self.shift)
    }
}

/// A swizzled layout: `c -> swizzle(offset + layout(c))`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ComposedLayout {
    /// Applied last.
    pub swizzle: Swizzle,
    /// Added before the swizzle.
    pub offset: i64,
    /// Applied first.
    pub layout: Layout,
}

impl ComposedLayout {
    /// Number of coordinates.
    pub const fn size(&self) -> i64 {
        self.layout.size()
    }

    /// The offset of an integer coordinate.
    pub const fn at(&self, coord: i64) -> i64 {
        self.swizzled(self.layout.at(coord))
    }

    /// The offset of one integer coordinate a mode.
    pub const fn at_modes(&self, coords: &[i64]) -> i64 {
        self.swizzled(self.layout.at_modes(coords))
    }

    const fn swizzled(&self, offset: i64) -> i64 {
        self.swizzle.apply((self.offset + offset).cast_unsigned()).cast_signed()
    }

    /// The offset of one coordinate a mode, computed with `V`'s operators.
    ///
    /// # Errors
    /// Those of [`Layout::apply_modes`]; [`LayoutError::NegativeStride`] or [`LayoutError::Width`] for an offset
    /// that is no `u32`.
    pub fn apply_modes<V: Arithmetic>(&self, coords: &[V]) -> Result<V, LayoutError> {
        let start = unsigned(self.offset)?;
        let inner = self.layout.apply_modes(coords)?;
        Ok(self.swizzle.apply_to(if start == 0 { inner } else { inner + start }))
    }
}

impl fmt::Display for ComposedLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} o {} o {}", self.swizzle, self.offset, self.layout)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;
    use std::vec::Vec;

    #[test]
    fn bits_move_onto_lower_bits() {
        let swizzle = |bits, base, shift| Swizzle { bits, base, shift };
        for (why, swizzle, offset, want) in [
            ("the identity", Swizzle::NONE, 0xFFFF, 0xFFFF),
            ("below the source bits nothing changes", swizzle(3, 4, 3), 0x7F, 0x7F),
            ("bits 7..10 go onto bits 4..7", swizzle(3, 4, 3), 0x280, 0x280 ^ 0x50),
            ("bit 10 is no source", swizzle(3, 4, 3), 0x400, 0x400),
            ("one bit", swizzle(1, 4, 3), 0x180, 0x180 ^ 0x10),
            ("a shift above the width", swizzle(2, 0, 5), 0b11_00000, 0b11_00011),
        ] {
            assert_eq!(swizzle.apply(offset), want, "{why}");
            assert_eq!(u64::from(swizzle.apply_to(offset as u32)), want, "{why}, with operators");
            assert_eq!(swizzle.apply(want), offset, "{why}, undone");
        }
    }

    #[test]
    fn swizzled_layouts_add_then_permute() {
        let layout = Layout::flat(&[8, 8], &[8, 1]).unwrap();
        let tile = ComposedLayout { swizzle: Swizzle { bits: 3, base: 0, shift: 3 }, offset: 64, layout };
        assert_eq!((tile.to_string().as_str(), tile.size()), ("Sw<3,0,3> o 64 o (8,8):(8,1)", 64));
        for row in 0..8_u32 {
            let columns: Vec<_> = (0..8_u32).map(|c| tile.apply_modes(&[row, c]).unwrap()).collect();
            for (column, &offset) in (0..8).zip(&columns) {
                assert_eq!(offset, 64 + 8 * row + (column ^ row), "element ({row},{column})");
                assert_eq!(tile.at_modes(&[row.into(), column.into()]), offset.into());
                assert_eq!(tile.at((row + 8 * column).into()), offset.into());
            }
        }
    }

    #[test]
    fn offsets_need_32_bits() {
        let layout = Layout::flat(&[2], &[1]).unwrap();
        for (why, offset, want) in [
            ("negative", -1, LayoutError::NegativeStride { stride: -1 }),
            ("too wide", 1 << 32, LayoutError::Width { value: 1 << 32 }),
        ] {
            let tile = ComposedLayout { swizzle: Swizzle::NONE, offset, layout };
            assert_eq!(tile.apply_modes(&[0_u32]), Err(want), "{why}");
        }
    }
}
