//! Composed layouts: layouts followed by a swizzle, with the whole algebra.
//!
//! Operations on coordinates act on the layout before the swizzle, since `C = Sw o offset o L` and
//! `C o B = Sw o offset o (L o B)`. Operations on offsets, such as inverses and recasts, take the swizzle
//! into account.

mod offsets;
mod tiles;

use core::fmt;

use crate::algebra::Tiler;
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
    /// The shape, which is the shape of the layout.
    ///
    /// ```
    /// # use cute_rs::{IntTuple, Layout, Swizzle};
    /// let tile = Swizzle::new(3, 3, 3)?.after(Layout::flat(&[8, 64], &[64, 1])?);
    /// assert_eq!(tile.shape(), IntTuple::from((8, 64)));
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    pub const fn shape(&self) -> IntTuple {
        self.layout.shape()
    }

    /// Number of modes.
    ///
    /// ```
    /// # use cute_rs::{Layout, Swizzle};
    /// let tile = Swizzle::new(3, 3, 3)?.after(Layout::flat(&[8, 64], &[64, 1])?);
    /// assert_eq!(tile.rank(), 2);
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    pub const fn rank(&self) -> usize {
        self.layout.rank()
    }

    /// Number of coordinates.
    ///
    /// ```
    /// # use cute_rs::{Layout, Swizzle};
    /// let tile = Swizzle::new(3, 3, 3)?.after(Layout::flat(&[8, 64], &[64, 1])?);
    /// assert_eq!(tile.size(), 512);
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    pub const fn size(&self) -> i64 {
        self.layout.size()
    }

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

    /// Mode `i` as its own layout, with the offset: the offsets at which all other coordinates are 0.
    ///
    /// ```
    /// # use cute_rs::{Layout, Swizzle};
    /// let tile = Swizzle::new(3, 3, 3)?.after(Layout::flat(&[8, 64], &[64, 1])?);
    /// assert_eq!(tile.mode(0).to_string(), "Sw<3,3,3> o 0 o 8:64");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    pub const fn mode(&self, i: usize) -> Self {
        Self { layout: self.layout.mode(i), ..*self }
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
        match self.layout.at_coord(coord) {
            Ok(offset) => Ok(self.swizzled(offset)),
            Err(error) => Err(error),
        }
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

    /// The layout, which is evaluated first.
    pub(crate) const fn inner(&self) -> &Layout {
        &self.layout
    }

    /// The same with another layout before the swizzle.
    pub(crate) const fn with_inner(&self, layout: Layout) -> Self {
        Self { layout, ..*self }
    }

    /// The same with another layout before the swizzle.
    const fn with(&self, layout: Result<Layout, LayoutError>) -> Result<Self, LayoutError> {
        match layout {
            Ok(layout) => Ok(Self { layout, ..*self }),
            Err(error) => Err(error),
        }
    }

    /// The same function with the fewest leaves: `R(i) = C(i)`. See [`Layout::coalesce`].
    ///
    /// ```
    /// # use cute_rs::{Layout, Swizzle};
    /// let tile = Swizzle::new(3, 3, 3)?.after(Layout::flat(&[8, 64], &[64, 1])?);
    /// let columns = tile.select(&[1, 0])?;
    /// assert_eq!(columns.coalesce().to_string(), "Sw<3,3,3> o 0 o 512:1");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    #[must_use]
    pub const fn coalesce(&self) -> Self {
        Self { layout: self.layout.coalesce(), ..*self }
    }

    /// The same function without nesting: `R(i) = C(i)`. See [`Layout::flatten`].
    ///
    /// ```
    /// # use cute_rs::{Layout, Swizzle};
    /// let tile = Swizzle::new(3, 3, 3)?.after(Layout::flat(&[8, 64], &[64, 1])?);
    /// assert_eq!(tile.group(0, 2)?.flatten(), tile);
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    #[must_use]
    pub const fn flatten(&self) -> Self {
        Self { layout: self.layout.flatten(), ..*self }
    }

    /// `R(c) = C(B(c))`. See [`Layout::composition`].
    ///
    /// ```
    /// # use cute_rs::{Layout, Swizzle};
    /// let tile = Swizzle::new(3, 3, 3)?.after(Layout::flat(&[8, 64], &[64, 1])?);
    /// let every_other_row = Layout::flat(&[4, 64], &[2, 8])?;
    /// assert_eq!(tile.composition(&every_other_row)?.to_string(), "Sw<3,3,3> o 0 o (4,64):(128,1)");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Layout::composition`].
    pub const fn composition(&self, b: &Layout) -> Result<Self, LayoutError> {
        self.with(self.layout.composition(b))
    }

    /// `R((c0,c1,…)) = C((T0(c0),T1(c1),…))`. See [`Layout::composition_by`].
    ///
    /// ```
    /// # use cute_rs::{IntTuple, Layout, Swizzle, Tiler};
    /// let tile = Swizzle::new(3, 3, 3)?.after(Layout::flat(&[8, 64], &[64, 1])?);
    /// let corner = tile.composition_by(&Tiler::Shape(&IntTuple::from((4, 16))))?;
    /// assert_eq!(corner.to_string(), "Sw<3,3,3> o 0 o (4,16):(64,1)");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Layout::composition_by`].
    pub const fn composition_by(&self, tiler: &Tiler<'_>) -> Result<Self, LayoutError> {
        self.with(self.layout.composition_by(tiler))
    }

    /// Gives the elements another shape: `R(i) = C(i)`. See [`Layout::with_shape`].
    ///
    /// ```
    /// # use cute_rs::{IntTuple, Layout, Swizzle};
    /// let tile = Swizzle::new(3, 3, 3)?.after(Layout::flat(&[8, 64], &[64, 1])?);
    /// assert_eq!(tile.with_shape(IntTuple::from((8, (8, 8))))?.to_string(), "Sw<3,3,3> o 0 o (8,(8,8)):(64,(1,8))");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Layout::with_shape`].
    pub const fn with_shape(&self, shape: IntTuple) -> Result<Self, LayoutError> {
        self.with(self.layout.with_shape(shape))
    }

    /// Coalesces at the leaves of a profile: `R(c) = C(c)` for coordinates with the nesting of the profile.
    /// See [`Layout::coalesce_by`].
    ///
    /// ```
    /// # use cute_rs::{IntTuple, Layout, Swizzle};
    /// let tile = Swizzle::new(3, 3, 3)?.after(Layout::flat(&[8, 64], &[64, 1])?);
    /// let chunks = tile.with_shape(IntTuple::from((8, (8, 8))))?;
    /// assert_eq!(chunks.coalesce_by(&IntTuple::from((1, 1)))?, tile);
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Layout::coalesce_by`].
    pub const fn coalesce_by(&self, profile: &IntTuple) -> Result<Self, LayoutError> {
        self.with(self.layout.coalesce_by(profile))
    }

    /// Groups modes `begin..end` into one mode: `R(i) = C(i)`. See [`Layout::group`].
    ///
    /// ```
    /// # use cute_rs::{Layout, Swizzle};
    /// let tile = Swizzle::new(3, 3, 3)?.after(Layout::flat(&[8, 64], &[64, 1])?);
    /// assert_eq!(tile.group(0, 2)?.to_string(), "Sw<3,3,3> o 0 o ((8,64)):((64,1))");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Layout::group`].
    pub const fn group(&self, begin: usize, end: usize) -> Result<Self, LayoutError> {
        self.with(self.layout.group(begin, end))
    }

    /// Selects modes in the given order. See [`Layout::select`].
    ///
    /// ```
    /// # use cute_rs::{Layout, Swizzle};
    /// let tile = Swizzle::new(3, 3, 3)?.after(Layout::flat(&[8, 64], &[64, 1])?);
    /// assert_eq!(tile.select(&[1, 0])?.to_string(), "Sw<3,3,3> o 0 o (64,8):(1,64)");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Layout::select`].
    pub const fn select(&self, modes: &[usize]) -> Result<Self, LayoutError> {
        self.with(self.layout.select(modes))
    }

    /// Modes `begin..end`. See [`Layout::take`].
    ///
    /// ```
    /// # use cute_rs::{Layout, Swizzle};
    /// let tile = Swizzle::new(3, 3, 3)?.after(Layout::flat(&[8, 64], &[64, 1])?);
    /// assert_eq!(tile.take(1, 2)?.to_string(), "Sw<3,3,3> o 0 o (64):(1)");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Layout::take`].
    pub const fn take(&self, begin: usize, end: usize) -> Result<Self, LayoutError> {
        self.with(self.layout.take(begin, end))
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
        match part {
            Ok((layout, offset)) => match added(self.offset, offset) {
                Ok(offset) => Ok(Self { layout, offset, swizzle: self.swizzle }),
                Err(error) => Err(error),
            },
            Err(error) => Err(error),
        }
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
