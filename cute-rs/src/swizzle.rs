//! Swizzles: permutations of offsets that spread a column of a tile over all memory banks.

use core::fmt;

use crate::composed::ComposedLayout;
use crate::error::LayoutError;
use crate::evaluate::Arithmetic;
use crate::layout::Layout;

/// The number of bits of an offset that a swizzle can read or change.
const WIDTH: u32 = 62;

/// `Sw<B,M,S>`: XORs B bits of an offset onto B others. If S is positive, the bits from `M + S` up are XORed
/// onto the bits from M up. If S is negative, the bits from M up are XORed onto the bits from `M - S` up.
/// Since `|S| >= B`, a swizzle is its own inverse: `Sw(Sw(x)) = x`.
///
/// ```
/// # use cute_rs::Swizzle;
/// let swizzle = Swizzle::new(2, 0, 3)?;
/// assert_eq!(swizzle.to_string(), "Sw<2,0,3>");
/// assert_eq!(swizzle.apply(0b01_000), 0b01_001);
/// assert_eq!(swizzle.apply(swizzle.apply(29)), 29);
/// # Ok::<(), cute_rs::LayoutError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Swizzle {
    /// B: the number of bits.
    pub bits: u32,
    /// M: the lowest bit that is read or changed; runs of `2^M` elements stay together.
    pub base: u32,
    /// S: the distance in bits from the changed bits up to the source bits; negative if these are below.
    /// `|S|` is at least B.
    pub shift: i32,
}

impl Swizzle {
    /// The identity.
    pub const NONE: Self = Self { bits: 0, base: 0, shift: 0 };

    /// Creates the swizzle `Sw<B,M,S>`.
    ///
    /// ```
    /// # use cute_rs::Swizzle;
    /// let swizzle = Swizzle::new(3, 4, 3)?; // Bits 7, 8, 9 onto bits 4, 5, 6.
    /// assert_eq!(swizzle.to_string(), "Sw<3,4,3>");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::SwizzleBits`] if source and target bits overlap (`|S| < B`) or reach above bit 62.
    pub const fn new(bits: u32, base: u32, shift: i32) -> Result<Self, LayoutError> {
        let span = bits.saturating_add(base).saturating_add(shift.unsigned_abs());
        if bits > shift.unsigned_abs() || span > WIDTH {
            return Err(LayoutError::SwizzleBits { bits, base, shift });
        }
        Ok(Self { bits, base, shift })
    }

    /// The swizzle that XORs the bits of the mask `source` onto those of the mask `target`. Each mask is one
    /// run of bits, and both have the same length.
    ///
    /// ```
    /// # use cute_rs::Swizzle;
    /// assert_eq!(Swizzle::from_masks(0b11_1000_0000, 0b111_0000)?.to_string(), "Sw<3,4,3>");
    /// assert_eq!(Swizzle::from_masks(0b0011, 0b1100)?.to_string(), "Sw<2,0,-2>");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::SwizzlePair`] for masks with gaps or of different lengths; those of [`new`](Self::new).
    pub const fn from_masks(source: u64, target: u64) -> Result<Self, LayoutError> {
        if source == 0 && target == 0 {
            return Ok(Self::NONE);
        }
        let (from, to) = (source.trailing_zeros(), target.trailing_zeros());
        let bits = source.count_ones();
        if bits != target.count_ones() || ones(bits, from) != source || ones(bits, to) != target {
            return Err(LayoutError::SwizzlePair { first: source, second: target });
        }
        Self::new(bits, if from < to { from } else { to }, from.cast_signed() - to.cast_signed())
    }

    /// The bits that are read.
    ///
    /// ```
    /// # use cute_rs::Swizzle;
    /// assert_eq!(Swizzle::new(3, 4, 3)?.source_mask(), 0b11_1000_0000);
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    pub const fn source_mask(self) -> u64 {
        ones(
            self.bits,
            if self.shift > 0 { self.base.saturating_add(self.shift.unsigned_abs()) } else { self.base },
        )
    }

    /// The bits that change.
    ///
    /// ```
    /// # use cute_rs::Swizzle;
    /// assert_eq!(Swizzle::new(3, 4, 3)?.target_mask(), 0b111_0000);
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    pub const fn target_mask(self) -> u64 {
        ones(
            self.bits,
            if self.shift < 0 { self.base.saturating_add(self.shift.unsigned_abs()) } else { self.base },
        )
    }

    /// Swizzles an offset.
    ///
    /// ```
    /// # use cute_rs::Swizzle;
    /// let swizzle = Swizzle::new(3, 4, 3)?;
    /// assert_eq!(swizzle.apply(0b010_000_0101), 0b010_010_0101);
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    pub const fn apply(self, offset: u64) -> u64 {
        let (source, by) = (offset & self.source_mask(), self.shift.unsigned_abs());
        if source == 0 || by > 63 {
            return offset;
        }
        offset ^ if self.shift >= 0 { source >> by } else { source << by }
    }

    /// Swizzles an offset with `V`'s operators; equals [`apply`](Self::apply) within 32 bits. Use it in
    /// device code.
    ///
    /// ```
    /// # use cute_rs::Swizzle;
    /// assert_eq!(Swizzle::new(3, 4, 3)?.apply_to(0b010_000_0101_u32), 0b010_010_0101);
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    pub fn apply_to<V: Arithmetic>(self, offset: V) -> V {
        let by = self.shift.unsigned_abs();
        match self.shift {
            _ if self.bits == 0 || by > 31 => offset,
            0.. => offset ^ ((offset >> by) & self.target_mask() as u32),
            ..0 => offset ^ ((offset & self.source_mask() as u32) << by),
        }
    }

    /// The layout followed by this swizzle: `c -> Sw(L(c))`.
    ///
    /// ```
    /// # use cute_rs::{Layout, Swizzle};
    /// let tile = Swizzle::new(3, 3, 3)?.after(Layout::flat(&[8, 64], &[64, 1])?);
    /// assert_eq!(tile.to_string(), "Sw<3,3,3> o 0 o (8,64):(64,1)");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    pub const fn after(self, layout: Layout) -> ComposedLayout {
        ComposedLayout { swizzle: self, offset: 0, layout }
    }

    /// Combines two swizzles into one: `R(x) = A(B(x))`, where A is `self`.
    ///
    /// ```
    /// # use cute_rs::Swizzle;
    /// let (low, high) = (Swizzle::new(1, 4, 3)?, Swizzle::new(2, 5, 3)?);
    /// assert_eq!(low.composition(high)?.to_string(), "Sw<3,4,3>");
    /// assert_eq!(high.composition(high)?.to_string(), "Sw<0,0,0>");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::SwizzlePair`] if the shifts differ, if the bits do not join into one run, or if A reads
    /// bits that B changes.
    pub const fn composition(self, other: Self) -> Result<Self, LayoutError> {
        if self.bits == 0 {
            return Ok(other);
        }
        if other.bits == 0 {
            return Ok(self);
        }
        let (first, second) = (self.source_mask(), other.source_mask());
        if self.shift != other.shift || first & other.target_mask() != 0 {
            return Err(LayoutError::SwizzlePair { first, second });
        }
        // Bits that both XOR cancel out.
        match Self::from_masks(first ^ second, self.target_mask() ^ other.target_mask()) {
            Ok(swizzle) => Ok(swizzle),
            Err(_) => Err(LayoutError::SwizzlePair { first, second }),
        }
    }

    /// The swizzle that undoes this one, which is the swizzle itself: `R(Sw(x)) = x`.
    ///
    /// ```
    /// # use cute_rs::Swizzle;
    /// let swizzle = Swizzle::new(3, 4, 3)?;
    /// assert_eq!(swizzle.inverse().apply(swizzle.apply(1234)), 1234);
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    #[must_use]
    pub const fn inverse(self) -> Self {
        self
    }

    /// The swizzle in elements that are `n` times as large: `R(floor(x / n)) = floor(Sw(x) / n)`.
    ///
    /// ```
    /// # use cute_rs::Swizzle;
    /// assert_eq!(Swizzle::new(3, 4, 3)?.upcast(2)?.to_string(), "Sw<3,3,3>");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::PowerOfTwo`] unless `n` is a power of two; [`LayoutError::Recast`] if bits inside an
    /// element are XORed onto bits above it, so that its parts move to different places.
    pub const fn upcast(self, n: i64) -> Result<Self, LayoutError> {
        let by = ok!(log2(n));
        if self.bits == 0 {
            return Ok(self);
        }
        // Bits that are now inside an element take no part.
        let bits = self.bits.saturating_sub(by.saturating_sub(self.base));
        let above = self.target_mask() >> by;
        if self.shift < 0 && self.base < by && above != 0 {
            return Err(LayoutError::Recast { shape: self.max_alignment(), stride: 1, factor: n });
        }
        if bits == 0 || above == 0 {
            return Ok(Self::NONE);
        }
        Ok(Self { bits, base: self.base.saturating_sub(by), shift: self.shift })
    }

    /// The swizzle in elements that are `n` times as small: `R(n * x + j) = n * Sw(x) + j` for `0 <= j < n`.
    ///
    /// ```
    /// # use cute_rs::Swizzle;
    /// assert_eq!(Swizzle::new(3, 3, 3)?.downcast(2)?.to_string(), "Sw<3,4,3>");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::PowerOfTwo`] unless `n` is a power of two; [`LayoutError::SwizzleBits`] above bit 62.
    pub const fn downcast(self, n: i64) -> Result<Self, LayoutError> {
        match ok!(log2(n)) {
            _ if self.bits == 0 => Ok(self),
            by => Self::new(self.bits, self.base.saturating_add(by), self.shift),
        }
    }

    /// The number of consecutive elements that stay together, `2^M`: a run of that length that begins at a
    /// multiple of it moves as a whole. For the identity it is `2^62`.
    ///
    /// ```
    /// # use cute_rs::Swizzle;
    /// assert_eq!(Swizzle::new(3, 4, 3)?.max_alignment(), 16);
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    pub const fn max_alignment(self) -> i64 {
        1 << if self.bits == 0 || self.base > WIDTH { WIDTH } else { self.base }
    }

    /// The number of offsets after which the pattern repeats: `Sw(x + R) = Sw(x) + R` for every `x`.
    ///
    /// ```
    /// # use cute_rs::Swizzle;
    /// assert_eq!(Swizzle::new(3, 4, 3)?.period(), 1024);
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    pub const fn period(self) -> i64 {
        let span = self.bits.saturating_add(self.base).saturating_add(self.shift.unsigned_abs());
        1 << if self.bits == 0 {
            0
        } else if span > WIDTH {
            WIDTH
        } else {
            span
        }
    }
}

/// A mask of `bits` ones from bit `from` up.
const fn ones(bits: u32, from: u32) -> u64 {
    if bits == 0 || from > 63 {
        return 0;
    }
    (if bits > 63 { u64::MAX } else { (1 << bits) - 1 }) << from
}

/// The exponent of a power of two.
const fn log2(n: i64) -> Result<u32, LayoutError> {
    if n > 0 && n.cast_unsigned().is_power_of_two() {
        Ok(n.trailing_zeros())
    } else {
        Err(LayoutError::PowerOfTwo { value: n })
    }
}

impl fmt::Display for Swizzle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sw<{},{},{}>", self.bits, self.base, self.shift)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_move_onto_lower_bits() {
        let swizzle = |bits, base, shift| Swizzle { bits, base, shift };
        for (why, swizzle, offset, want) in [
            ("the identity", Swizzle::NONE, 0xFFFF, 0xFFFF),
            ("below the source bits nothing changes", swizzle(3, 4, 3), 0x7F, 0x7F),
            ("bits 7..10 go onto bits 4..7", swizzle(3, 4, 3), 0x280, 0x280 ^ 0x50),
            ("bit 10 is no source", swizzle(3, 4, 3), 0x400, 0x400),
            ("one bit", swizzle(1, 4, 3), 0x180, 0x180 ^ 0x10),
            ("a negative shift goes up", swizzle(2, 1, -3), 0b110, 0b110_110),
            ("a shift above the width", swizzle(2, 0, 5), 0b11_00000, 0b11_00011),
        ] {
            assert_eq!(swizzle.apply(offset), want, "{why}");
            assert_eq!(u64::from(swizzle.apply_to(offset as u32)), want, "{why}, with operators");
            assert_eq!(swizzle.apply(want), offset, "{why}, undone");
        }
    }
}
