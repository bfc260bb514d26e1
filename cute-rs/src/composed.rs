//! Composed layouts: layouts followed by a swizzle, with the whole algebra.
//!
//! Operations on coordinates act on the layout before the swizzle, since `C = Sw o offset o L` and
//! `C o B = Sw o offset o (L o B)`. Operations on offsets, such as inverses and recasts, take the swizzle
//! into account.

mod offsets;
mod tiles;

use core::fmt;

use crate::error::LayoutError;
use crate::evaluate::{Arithmetic, unsigned};
use crate::int_tuple::{IntTuple, div_up};
use crate::layout::{Coord, Layout};
use crate::swizzle::Swizzle;

pub use offsets::SwizzledInverse;

/// A swizzled layout: `c -> swizzle(offset + layout(c))`, written `Sw<B,M,S> o offset o shape:stride`.
///
/// Offsets before the swizzle must not be negative. In the equations below, C is the composed layout and L
/// the layout in it.
///
/// ```
/// # use cute_rs::{Layout, Swizzle};
/// let tile = Swizzle::new(3, 3, 3)?.after(Layout::flat(&[8, 64], &[64, 1])?);
/// let columns = tile.zipped_divide(&[Layout::flat(&[8], &[1])?, Layout::flat(&[8], &[1])?])?;
/// let (third, _) = (columns.slice(&[None, Some(2)])?, ());
/// assert_eq!(third.to_string(), "Sw<3,3,3> o 16 o (((8),(8))):(((64),(1)))");
/// assert_eq!(third.at(1), tile.at_modes(&[1, 16]));
/// # Ok::<(), cute_rs::LayoutError>(())
/// ```
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
    /// The number of elements that an array needs for the layout. It is `offset + cosize(L)`, rounded up to
    /// whole patterns of the swizzle, because the swizzle moves elements anywhere inside a pattern.
    ///
    /// ```
    /// # use cute_rs::{Layout, Swizzle};
    /// let tile = Swizzle::new(3, 3, 3)?.after(Layout::flat(&[8, 60], &[64, 1])?);
    /// assert_eq!((tile.layout.cosize(), tile.cosize()), (508, 512));
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    pub const fn cosize(&self) -> i64 {
        let (reach, period) = (self.offset.saturating_add(self.layout.cosize()), self.swizzle.period());
        div_up(reach, period).saturating_mul(period)
    }

    /// The offset of an integer coordinate.
    ///
    /// ```
    /// # use cute_rs::{Layout, Swizzle};
    /// let tile = Swizzle::new(3, 3, 3)?.after(Layout::flat(&[8, 64], &[64, 1])?);
    /// assert_eq!(tile.at(1), 64 ^ 8); // Row 1: the swizzle swaps its chunks of 8 elements in pairs.
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    pub const fn at(&self, coord: i64) -> i64 {
        self.swizzled(self.layout.at(coord))
    }

    /// The offset at one integer coordinate per mode.
    ///
    /// ```
    /// # use cute_rs::{Layout, Swizzle};
    /// let tile = Swizzle::new(3, 3, 3)?.after(Layout::flat(&[8, 64], &[64, 1])?);
    /// assert_eq!(tile.at_modes(&[1, 17]), 64 + (17 ^ 8));
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    pub const fn at_modes(&self, coords: &[i64]) -> i64 {
        self.swizzled(self.layout.at_modes(coords))
    }

    /// The offset of a coordinate with the nesting of the shape or a coarser one.
    ///
    /// ```
    /// # use cute_rs::{IntTuple, Layout, Swizzle};
    /// let tile = Swizzle::new(3, 3, 3)?.after(Layout::flat(&[8, 64], &[64, 1])?);
    /// assert_eq!(tile.at_coord(&IntTuple::from((1, 17)))?, 64 + (17 ^ 8));
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Layout::at_coord`].
    pub const fn at_coord(&self, coord: &IntTuple) -> Result<i64, LayoutError> {
        Ok(self.swizzled(ok!(self.layout.at_coord(coord))))
    }

    const fn swizzled(&self, offset: i64) -> i64 {
        self.swizzle.apply(self.offset.wrapping_add(offset).cast_unsigned()).cast_signed()
    }

    /// The offset at one coordinate per mode, computed with `V`'s operators.
    ///
    /// ```
    /// # use cute_rs::{Layout, Swizzle};
    /// let tile = Swizzle::new(3, 3, 3)?.after(Layout::flat(&[8, 64], &[64, 1])?);
    /// assert_eq!(tile.apply_modes(&[1_u32, 17])?, 64 + (17 ^ 8));
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Layout::apply_modes`]; [`LayoutError::NegativeStride`] or [`LayoutError::Width`] for an
    /// offset that does not fit into a `u32`.
    pub fn apply_modes<V: Arithmetic>(&self, coords: &[V]) -> Result<V, LayoutError> {
        let start = unsigned(self.offset)?;
        let inner = self.layout.apply_modes(coords)?;
        Ok(self.swizzle.apply_to(if start == 0 { inner } else { inner + start }))
    }

    /// Appends a mode before the swizzle: `R((c,b)) = Sw(offset + L(c) + B(b))`. See [`Layout::append`].
    ///
    /// ```
    /// # use cute_rs::{Layout, Swizzle};
    /// let tile = Swizzle::new(3, 3, 3)?.after(Layout::flat(&[8, 64], &[64, 1])?);
    /// let stages = tile.append(&Layout::flat(&[4], &[512])?.mode(0))?;
    /// assert_eq!(stages.to_string(), "Sw<3,3,3> o 0 o (8,64,4):(64,1,512)");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Layout::append`].
    pub const fn append(&self, mode: &Layout) -> Result<Self, LayoutError> {
        self.with(self.layout.append(mode))
    }

    /// Fixes some modes: `None` keeps a mode, and `Some(c)` fixes it at `c` and adds its offset to the offset
    /// of the result. `R(kept coordinates) = C(c)`.
    ///
    /// ```
    /// # use cute_rs::{Layout, Swizzle};
    /// let tile = Swizzle::new(3, 0, 3)?.after(Layout::flat(&[8, 8], &[8, 1])?);
    /// let row_5 = tile.slice(&[Some(5), None])?;
    /// assert_eq!(row_5.to_string(), "Sw<3,0,3> o 40 o (8):(1)");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Layout::slice`].
    pub const fn slice(&self, coord: &[Option<i64>]) -> Result<Self, LayoutError> {
        self.moved(self.layout.slice(coord))
    }

    /// Fixes modes at any depth, as [`slice`](Self::slice) does: `R(kept coordinates) = C(c)`.
    ///
    /// ```
    /// # use cute_rs::{Coord, Layout, Swizzle};
    /// let tile = Swizzle::new(3, 3, 3)?.after(Layout::flat(&[8, 64], &[64, 1])?);
    /// let row = tile.slice_at(&Coord::Modes(&[Coord::At(5), Coord::Keep]))?;
    /// assert_eq!(row.to_string(), "Sw<3,3,3> o 320 o (64):(1)");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Layout::slice_at`].
    pub const fn slice_at(&self, coord: &Coord<'_>) -> Result<Self, LayoutError> {
        self.moved(self.layout.slice_at(coord))
    }

    /// The layout that begins at a coordinate: `R(x) = C(c + x)` as long as no digit carries.
    ///
    /// ```
    /// # use cute_rs::{IntTuple, Layout, Swizzle};
    /// let tile = Swizzle::new(3, 3, 3)?.after(Layout::flat(&[8, 64], &[64, 1])?);
    /// let from_there = tile.domain_offset(&IntTuple::from((4, 8)))?;
    /// assert_eq!(from_there.at_modes(&[1, 2]), tile.at_modes(&[5, 10]));
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Layout::at_coord`].
    pub const fn domain_offset(&self, coord: &IntTuple) -> Result<Self, LayoutError> {
        self.moved(self.layout.domain_offset(coord))
    }

    const fn moved(&self, part: Result<(Layout, i64), LayoutError>) -> Result<Self, LayoutError> {
        let (layout, offset) = ok!(part);
        let offset = ok!(added(self.offset, offset));
        Ok(Self { layout, offset, swizzle: self.swizzle })
    }
}

/// The sum of two offsets.
pub(crate) const fn added(offset: i64, further: i64) -> Result<i64, LayoutError> {
    match offset.checked_add(further) {
        Some(sum) => Ok(sum),
        None => {
            let other = Some(IntTuple::int(further));
            Err(LayoutError::Wide { number: "sum", tuple: IntTuple::int(offset), other })
        }
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
