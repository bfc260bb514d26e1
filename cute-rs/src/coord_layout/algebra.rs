//! The algebra of coordinate layouts: the operations of layouts, with strides that keep their components.

use super::CoordLayout;
use crate::algebra::{Tiler, walk_components};
use crate::error::LayoutError;
use crate::int_tuple::{IntTuple, MAX_LEAVES};
use crate::layout::{Coord, Layout};

impl CoordLayout {
    /// The same with another layout.
    const fn with(&self, layout: Result<Layout, LayoutError>) -> Result<Self, LayoutError> {
        match layout {
            Ok(layout) => Ok(Self { layout, ..*self }),
            Err(error) => Err(error),
        }
    }

    /// The same function with the fewest leaves: `R(i) = L(i)`. Leaves along different components are not
    /// merged.
    ///
    /// ```
    /// # use cute_rs::{CoordLayout, IntTuple, Tiler};
    /// let identity = CoordLayout::identity(IntTuple::from((8, 6)))?;
    /// let tiles = identity.logical_divide_by(&Tiler::Shape(&IntTuple::from((2, 6))))?;
    /// assert_eq!(tiles.to_string(), "((2,4),(6,1)):((1@0,2@0),(1@1,0))");
    /// assert_eq!(tiles.coalesce(), identity);
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    #[must_use]
    pub const fn coalesce(&self) -> Self {
        Self { layout: self.layout.coalesce(), ..*self }
    }

    /// The same function without nesting: `R(i) = L(i)`.
    ///
    /// ```
    /// # use cute_rs::{CoordLayout, IntTuple};
    /// let identity = CoordLayout::identity(IntTuple::from((8, 6)))?;
    /// assert_eq!(identity.group(0, 2)?.flatten(), identity);
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    #[must_use]
    pub const fn flatten(&self) -> Self {
        Self { layout: self.layout.flatten(), ..*self }
    }

    /// `R(c) = L(B(c))`. See [`Layout::composition`].
    ///
    /// ```
    /// # use cute_rs::{CoordLayout, IntTuple, Layout};
    /// let identity = CoordLayout::identity(IntTuple::from((8, 6)))?;
    /// let every_other_row = identity.composition(&Layout::flat(&[4, 6], &[2, 8])?)?;
    /// assert_eq!(every_other_row.to_string(), "(4,6):(2@0,1@1)");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Layout::composition`].
    pub const fn composition(&self, b: &Layout) -> Result<Self, LayoutError> {
        self.with(self.layout.composition(b))
    }

    /// `R((c0,c1,…)) = L((T0(c0),T1(c1),…))`. See [`Layout::composition_by`].
    ///
    /// ```
    /// # use cute_rs::{CoordLayout, IntTuple, Tiler};
    /// let identity = CoordLayout::identity(IntTuple::from((8, 6)))?;
    /// let corner = identity.composition_by(&Tiler::Shape(&IntTuple::from((4, 2))))?;
    /// assert_eq!(corner.to_string(), "(4,2):(1@0,1@1)");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Layout::composition_by`].
    pub const fn composition_by(&self, tiler: &Tiler<'_>) -> Result<Self, LayoutError> {
        self.with(self.layout.composition_by(tiler))
    }

    /// Gives the elements another shape: `R(i) = L(i)`. See [`Layout::with_shape`].
    ///
    /// ```
    /// # use cute_rs::{CoordLayout, IntTuple};
    /// let identity = CoordLayout::identity(IntTuple::from((8, 6)))?;
    /// assert_eq!(identity.with_shape(IntTuple::from((4, 12)))?.to_string(), "(4,(2,6)):(1@0,(4@0,1@1))");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Layout::with_shape`].
    pub const fn with_shape(&self, shape: IntTuple) -> Result<Self, LayoutError> {
        self.with(self.layout.with_shape(shape))
    }

    /// Coalesces at the leaves of a profile: `R(c) = L(c)` for coordinates with the nesting of the profile.
    /// See [`Layout::coalesce_by`].
    ///
    /// ```
    /// # use cute_rs::{CoordLayout, IntTuple};
    /// let identity = CoordLayout::identity(IntTuple::from((8, 6)))?;
    /// let split = identity.with_shape(IntTuple::from(((2, 4), 6)))?;
    /// assert_eq!(split.coalesce_by(&IntTuple::from((1, 1)))?, identity);
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Layout::coalesce_by`].
    pub const fn coalesce_by(&self, profile: &IntTuple) -> Result<Self, LayoutError> {
        self.with(self.layout.coalesce_by(profile))
    }

    /// Groups modes `begin..end` into one mode: `R(i) = L(i)`. See [`Layout::group`].
    ///
    /// ```
    /// # use cute_rs::{CoordLayout, IntTuple};
    /// let identity = CoordLayout::identity(IntTuple::from((8, 6)))?;
    /// assert_eq!(identity.group(0, 2)?.to_string(), "((8,6)):((1@0,1@1))");
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
    /// # use cute_rs::{CoordLayout, IntTuple};
    /// let identity = CoordLayout::identity(IntTuple::from((8, 6)))?;
    /// assert_eq!(identity.select(&[1, 0])?.to_string(), "(6,8):(1@1,1@0)");
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
    /// # use cute_rs::{CoordLayout, IntTuple};
    /// let identity = CoordLayout::identity(IntTuple::from((8, 6)))?;
    /// assert_eq!(identity.take(1, 2)?.to_string(), "(6):(1@1)");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Layout::take`].
    pub const fn take(&self, begin: usize, end: usize) -> Result<Self, LayoutError> {
        self.with(self.layout.take(begin, end))
    }

    /// `R = L o (T, complement(T, size(L)))`. See [`Layout::logical_divide`].
    ///
    /// ```
    /// # use cute_rs::{CoordLayout, IntTuple, Layout};
    /// let identity = CoordLayout::identity(IntTuple::from((8, 6)))?;
    /// let pairs = identity.logical_divide(&Layout::flat(&[2], &[1])?.mode(0))?;
    /// assert_eq!(pairs.to_string(), "(2,(4,6)):(1@0,(2@0,1@1))");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Layout::logical_divide`].
    pub const fn logical_divide(&self, tiler: &Layout) -> Result<Self, LayoutError> {
        self.with(self.layout.logical_divide(tiler))
    }

    /// [`logical_divide`](Self::logical_divide) mode by mode. See [`Layout::logical_divide_by`].
    ///
    /// ```
    /// # use cute_rs::{CoordLayout, IntTuple, Tiler};
    /// let identity = CoordLayout::identity(IntTuple::from((8, 6)))?;
    /// let tiles = identity.logical_divide_by(&Tiler::Shape(&IntTuple::from((4, 2))))?;
    /// assert_eq!(tiles.to_string(), "((4,2),(2,3)):((1@0,4@0),(1@1,2@1))");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Layout::logical_divide_by`].
    pub const fn logical_divide_by(&self, tiler: &Tiler<'_>) -> Result<Self, LayoutError> {
        self.with(self.layout.logical_divide_by(tiler))
    }

    /// Mode by mode, `R = ((tile, tile, …), (rest, rest, …))`. See [`Layout::zipped_divide`].
    ///
    /// ```
    /// # use cute_rs::{CoordLayout, IntTuple, Layout};
    /// let identity = CoordLayout::identity(IntTuple::from((8, 6)))?;
    /// let tiles = identity.zipped_divide(&[Layout::flat(&[4], &[1])?.mode(0), Layout::flat(&[2], &[1])?.mode(0)])?;
    /// assert_eq!(tiles.to_string(), "((4,2),(2,3)):((1@0,1@1),(4@0,2@1))");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Layout::zipped_divide`].
    pub const fn zipped_divide(&self, tilers: &[Layout]) -> Result<Self, LayoutError> {
        self.with(self.layout.zipped_divide(tilers))
    }

    /// Follows the nesting of the tiler: `R = ((tile, tile, …), (rest, rest, …))`. See
    /// [`Layout::zipped_divide_by`].
    ///
    /// ```
    /// # use cute_rs::{CoordLayout, IntTuple, Tiler};
    /// let identity = CoordLayout::identity(IntTuple::from((8, 6)))?;
    /// let tiles = identity.zipped_divide_by(&Tiler::Shape(&IntTuple::from((4, 2))))?;
    /// assert_eq!(tiles.at_modes(&[0, 3]), IntTuple::from((4, 2))); // Tile 3 begins here.
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Layout::zipped_divide_by`].
    pub const fn zipped_divide_by(&self, tiler: &Tiler<'_>) -> Result<Self, LayoutError> {
        self.with(self.layout.zipped_divide_by(tiler))
    }

    /// `R = ((tile, tile, …), rest, rest, …)`. See [`Layout::tiled_divide`].
    ///
    /// ```
    /// # use cute_rs::{CoordLayout, IntTuple, Tiler};
    /// let identity = CoordLayout::identity(IntTuple::from((8, 6)))?;
    /// let tiles = identity.tiled_divide(&Tiler::Shape(&IntTuple::from((4, 2))))?;
    /// assert_eq!(tiles.to_string(), "((4,2),2,3):((1@0,1@1),4@0,2@1)");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Layout::tiled_divide`].
    pub const fn tiled_divide(&self, tiler: &Tiler<'_>) -> Result<Self, LayoutError> {
        self.with(self.layout.tiled_divide(tiler))
    }

    /// `R = (tile, tile, …, rest, rest, …)`. See [`Layout::flat_divide`].
    ///
    /// ```
    /// # use cute_rs::{CoordLayout, IntTuple, Tiler};
    /// let identity = CoordLayout::identity(IntTuple::from((8, 6)))?;
    /// let tiles = identity.flat_divide(&Tiler::Shape(&IntTuple::from((4, 2))))?;
    /// assert_eq!(tiles.to_string(), "(4,2,2,3):(1@0,1@1,4@0,2@1)");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Layout::flat_divide`].
    pub const fn flat_divide(&self, tiler: &Tiler<'_>) -> Result<Self, LayoutError> {
        self.with(self.layout.flat_divide(tiler))
    }

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
    /// Those of [`Layout::slice`].
    pub const fn slice(&self, coord: &[Option<i64>]) -> Result<(Self, IntTuple), LayoutError> {
        match self.layout.slice(coord) {
            Ok((layout, _)) => {
                let mut sums = [0; MAX_LEAVES];
                let mut i = 0;
                while i < coord.len() {
                    if let Some(c) = coord[i] {
                        self.mode(i).add_coord(&IntTuple::int(c), &mut sums);
                    }
                    i += 1;
                }
                Ok((Self { layout, ..*self }, self.profile.with_leaves(&sums)))
            }
            Err(error) => Err(error),
        }
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
    /// Those of [`Layout::slice_at`].
    pub const fn slice_at(&self, coord: &Coord<'_>) -> Result<(Self, IntTuple), LayoutError> {
        match self.layout.slice_at(coord) {
            Ok((layout, _)) => {
                let mut sums = [0; MAX_LEAVES];
                self.add_fixed(coord, &mut sums);
                Ok((Self { layout, ..*self }, self.profile.with_leaves(&sums)))
            }
            Err(error) => Err(error),
        }
    }

    const fn add_fixed(&self, coord: &Coord<'_>, sums: &mut [i64; MAX_LEAVES]) {
        match *coord {
            Coord::Keep => {}
            Coord::At(c) => self.add_coord(&IntTuple::int(c), sums),
            Coord::Modes(modes) => {
                let mut i = 0;
                while i < modes.len() {
                    self.mode(i).add_fixed(&modes[i], sums);
                    i += 1;
                }
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
    /// Those of [`Layout::composition_coords`].
    pub const fn then(&self, a: &Self) -> Result<Self, LayoutError> {
        a.with(walk_components(&a.layout, &self.layout, &self.profile))
    }
}
