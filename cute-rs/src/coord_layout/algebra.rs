//! The algebra of coordinate layouts: the operations of layouts, with strides that keep their components.

use super::CoordLayout;
use crate::algebra::walk_components;
use crate::error::LayoutError;
use crate::int_tuple::{IntTuple, MAX_LEAVES};
use crate::layout::Coord;

impl CoordLayout {
    /// Fixes some modes: `None` keeps a mode, and `Some(c)` fixes it at `c`. Returns the layout of the kept
    /// modes and the coordinate of the fixed ones: `L(c) = offset + R(kept coordinates)`.
    ///
    /// ```
    /// # use cute_rs::{CoordLayout, IntTuple, Tiler};
    /// let identity = CoordLayout::identity(IntTuple::from((128, 64)))?;
    /// let tiles = identity.zipped_divide_by(&Tiler::Shape(&IntTuple::from((32, 16))))?;
    /// let (tile, start) = tiles.slice(&[None, Some(1 + 4 * 2)])?;
    /// assert_eq!(start.to_string(), "(32,32)");
    /// assert_eq!(tile.to_string(), "((32,16)):((1@0,1@1))");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Layout::slice`](crate::Layout::slice).
    pub const fn slice(&self, coord: &[Option<i64>]) -> Result<(Self, IntTuple), LayoutError> {
        let (layout, _) = ok!(self.layout.slice(coord));
        let mut sums = [0; MAX_LEAVES];
        each!(i, 0..coord.len(), {
            if let Some(c) = coord[i] {
                self.mode(i).add_coord(&IntTuple::int(c), &mut sums);
            }
        });
        Ok((Self { layout, ..*self }, self.profile.with_leaves(&sums)))
    }

    /// Fixes modes at any depth, as [`slice`](Self::slice) does: `L(c) = offset + R(kept coordinates)`.
    ///
    /// ```
    /// # use cute_rs::{Coord, CoordLayout, IntTuple};
    /// let identity = CoordLayout::identity(IntTuple::from((8, 6)))?;
    /// let (row, start) = identity.slice_at(&Coord::Modes(&[Coord::At(5), Coord::Keep]))?;
    /// assert_eq!((row.to_string(), start.to_string()), ("(6):(1@1)".into(), "(5,0)".into()));
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Layout::slice_at`](crate::Layout::slice_at).
    pub const fn slice_at(&self, coord: &Coord<'_>) -> Result<(Self, IntTuple), LayoutError> {
        let (layout, _) = ok!(self.layout.slice_at(coord));
        let mut sums = [0; MAX_LEAVES];
        self.add_fixed(coord, &mut sums);
        Ok((Self { layout, ..*self }, self.profile.with_leaves(&sums)))
    }

    const fn add_fixed(&self, coord: &Coord<'_>, sums: &mut [i64; MAX_LEAVES]) {
        match *coord {
            Coord::Keep => {}
            Coord::At(c) => self.add_coord(&IntTuple::int(c), sums),
            Coord::Modes(modes) => {
                each!(i, 0..modes.len(), {
                    self.mode(i).add_fixed(&modes[i], sums);
                });
            }
        }
    }

    /// Applies another coordinate layout after this one: `R(c) = A(L(c))`.
    ///
    /// ```
    /// # use cute_rs::{Basis, CoordLayout, IntTuple};
    /// let identity = CoordLayout::identity(IntTuple::from((8, 6)))?;
    /// let strides = [Basis::new(1, &[1])?, Basis::new(1, &[0])?];
    /// let transposed = CoordLayout::new(IntTuple::from((8, 6)), &strides, IntTuple::from((0, 0)))?;
    /// assert_eq!(identity.then(&transposed)?.to_string(), "(8,6):(1@1,1@0)");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Layout::composition_coords`](crate::Layout::composition_coords).
    pub const fn then(&self, a: &Self) -> Result<Self, LayoutError> {
        a.with(walk_components(&a.layout, &self.layout, &self.profile))
    }
}
