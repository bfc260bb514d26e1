//! The operations of a layout that contains a [`Layout`], written once: they act on the layout in it.

use crate::algebra::Tiler;
use crate::composed::ComposedLayout;
use crate::coord_layout::CoordLayout;
use crate::error::LayoutError;
use crate::int_tuple::IntTuple;
use crate::layout::Layout;

macro_rules! lifted {
    ($($of:ident)+) => {$(
        impl $of {
            /// The shape, which is the shape of the layout.
            pub const fn shape(&self) -> IntTuple {
                self.layout.shape()
            }

            /// Number of modes.
            pub const fn rank(&self) -> usize {
                self.layout.rank()
            }

            /// Number of coordinates.
            pub const fn size(&self) -> i64 {
                self.layout.size()
            }

            /// Mode `i` as its own layout, with the offset: the offsets at which all other coordinates are 0.
            pub const fn mode(&self, i: usize) -> Self {
                Self { layout: self.layout.mode(i), ..*self }
            }

            /// The layout whose strides carry their components.
            pub(crate) const fn inner(&self) -> &Layout {
                &self.layout
            }

            /// The same with another layout whose strides carry components.
            pub(crate) const fn with_inner(&self, layout: Layout) -> Self {
                Self { layout, ..*self }
            }

            /// The same with another layout.
            pub(crate) const fn with(&self, layout: Result<Layout, LayoutError>) -> Result<Self, LayoutError> {
                let layout = ok!(layout);
Ok(Self { layout, ..*self })
            }

            /// The same function with the fewest leaves: `R(i) = L(i)`. Leaves along different components are not
            /// merged.
            ///
            #[must_use]
            pub const fn coalesce(&self) -> Self {
                Self { layout: self.layout.coalesce(), ..*self }
            }

            /// The same function without nesting: `R(i) = L(i)`.
            ///
            #[must_use]
            pub const fn flatten(&self) -> Self {
                Self { layout: self.layout.flatten(), ..*self }
            }

            /// `R(c) = L(B(c))`. See [`Layout::composition`].
            ///
            /// # Errors
            /// Those of [`Layout::composition`].
            pub const fn composition(&self, b: &Layout) -> Result<Self, LayoutError> {
                self.with(self.layout.composition(b))
            }

            /// `R((c0,c1,…)) = L((T0(c0),T1(c1),…))`. See [`Layout::composition_by`].
            ///
            /// # Errors
            /// Those of [`Layout::composition_by`].
            pub const fn composition_by(&self, tiler: &Tiler<'_>) -> Result<Self, LayoutError> {
                self.with(self.layout.composition_by(tiler))
            }

            /// Gives the elements another shape: `R(i) = L(i)`. See [`Layout::with_shape`].
            ///
            /// # Errors
            /// Those of [`Layout::with_shape`].
            pub const fn with_shape(&self, shape: IntTuple) -> Result<Self, LayoutError> {
                self.with(self.layout.with_shape(shape))
            }

            /// Coalesces at the leaves of a profile: `R(c) = L(c)` for coordinates with the nesting of the profile.
            /// See [`Layout::coalesce_by`].
            ///
            /// # Errors
            /// Those of [`Layout::coalesce_by`].
            pub const fn coalesce_by(&self, profile: &IntTuple) -> Result<Self, LayoutError> {
                self.with(self.layout.coalesce_by(profile))
            }

            /// Groups modes `begin..end` into one mode: `R(i) = L(i)`. See [`Layout::group`].
            ///
            /// # Errors
            /// Those of [`Layout::group`].
            pub const fn group(&self, begin: usize, end: usize) -> Result<Self, LayoutError> {
                self.with(self.layout.group(begin, end))
            }

            /// Selects modes in the given order. See [`Layout::select`].
            ///
            /// # Errors
            /// Those of [`Layout::select`].
            pub const fn select(&self, modes: &[usize]) -> Result<Self, LayoutError> {
                self.with(self.layout.select(modes))
            }

            /// Modes `begin..end`. See [`Layout::take`].
            ///
            /// # Errors
            /// Those of [`Layout::take`].
            pub const fn take(&self, begin: usize, end: usize) -> Result<Self, LayoutError> {
                self.with(self.layout.take(begin, end))
            }

            /// `R = L o (T, complement(T, size(L)))`. See [`Layout::logical_divide`].
            ///
            /// # Errors
            /// Those of [`Layout::logical_divide`].
            pub const fn logical_divide(&self, tiler: &Layout) -> Result<Self, LayoutError> {
                self.with(self.layout.logical_divide(tiler))
            }

            /// [`logical_divide`](Self::logical_divide) mode by mode. See [`Layout::logical_divide_by`].
            ///
            /// # Errors
            /// Those of [`Layout::logical_divide_by`].
            pub const fn logical_divide_by(&self, tiler: &Tiler<'_>) -> Result<Self, LayoutError> {
                self.with(self.layout.logical_divide_by(tiler))
            }

            /// Mode by mode, `R = ((tile, tile, …), (rest, rest, …))`. See [`Layout::zipped_divide`].
            ///
            /// # Errors
            /// Those of [`Layout::zipped_divide`].
            pub const fn zipped_divide(&self, tilers: &[Layout]) -> Result<Self, LayoutError> {
                self.with(self.layout.zipped_divide(tilers))
            }

            /// Follows the nesting of the tiler: `R = ((tile, tile, …), (rest, rest, …))`. See
            /// [`Layout::zipped_divide_by`].
            ///
            /// # Errors
            /// Those of [`Layout::zipped_divide_by`].
            pub const fn zipped_divide_by(&self, tiler: &Tiler<'_>) -> Result<Self, LayoutError> {
                self.with(self.layout.zipped_divide_by(tiler))
            }

            /// `R = ((tile, tile, …), rest, rest, …)`. See [`Layout::tiled_divide`].
            ///
            /// # Errors
            /// Those of [`Layout::tiled_divide`].
            pub const fn tiled_divide(&self, tiler: &Tiler<'_>) -> Result<Self, LayoutError> {
                self.with(self.layout.tiled_divide(tiler))
            }

            /// `R = (tile, tile, …, rest, rest, …)`. See [`Layout::flat_divide`].
            ///
            /// # Errors
            /// Those of [`Layout::flat_divide`].
            pub const fn flat_divide(&self, tiler: &Tiler<'_>) -> Result<Self, LayoutError> {
                self.with(self.layout.flat_divide(tiler))
            }
        }
    )+};
}

lifted! { ComposedLayout CoordLayout }

#[cfg(test)]
mod tests {
    use super::*;
    use crate::swizzle::Swizzle;
    use std::string::ToString;

    #[test]
    fn swizzled_layouts_keep_their_swizzle() -> Result<(), LayoutError> {
        let tile = Swizzle::new(3, 3, 3)?.after(Layout::flat(&[8, 64], &[64, 1])?);
        assert_eq!(tile.shape(), IntTuple::from((8, 64)));
        assert_eq!(tile.rank(), 2);
        assert_eq!(tile.size(), 512);
        assert_eq!(tile.mode(0).to_string(), "Sw<3,3,3> o 0 o 8:64");
        let columns = tile.select(&[1, 0])?;
        assert_eq!(columns.coalesce().to_string(), "Sw<3,3,3> o 0 o 512:1");
        assert_eq!(tile.group(0, 2)?.flatten(), tile);
        let every_other_row = Layout::flat(&[4, 64], &[2, 8])?;
        assert_eq!(tile.composition(&every_other_row)?.to_string(), "Sw<3,3,3> o 0 o (4,64):(128,1)");
        let corner = tile.composition_by(&Tiler::Shape(&IntTuple::from((4, 16))))?;
        assert_eq!(corner.to_string(), "Sw<3,3,3> o 0 o (4,16):(64,1)");
        assert_eq!(
            tile.with_shape(IntTuple::from((8, (8, 8))))?.to_string(),
            "Sw<3,3,3> o 0 o (8,(8,8)):(64,(1,8))"
        );
        let chunks = tile.with_shape(IntTuple::from((8, (8, 8))))?;
        assert_eq!(chunks.coalesce_by(&IntTuple::from((1, 1)))?, tile);
        assert_eq!(tile.group(0, 2)?.to_string(), "Sw<3,3,3> o 0 o ((8,64)):((64,1))");
        assert_eq!(tile.select(&[1, 0])?.to_string(), "Sw<3,3,3> o 0 o (64,8):(1,64)");
        assert_eq!(tile.take(1, 2)?.to_string(), "Sw<3,3,3> o 0 o (64):(1)");
        let row_by_row = tile.select(&[1, 0])?.logical_divide(&Layout::flat(&[64], &[1])?.mode(0))?;
        assert_eq!(row_by_row.to_string(), "Sw<3,3,3> o 0 o (64,8):(1,64)");
        let chunks =
            tile.logical_divide_by(&Tiler::Modes(&[Tiler::Keep, Tiler::Shape(&IntTuple::int(8))]))?;
        assert_eq!(chunks.to_string(), "Sw<3,3,3> o 0 o (8,(8,8)):(64,(1,8))");
        let chunks =
            tile.zipped_divide(&[Layout::flat(&[1], &[1])?.mode(0), Layout::flat(&[8], &[1])?.mode(0)])?;
        assert_eq!(chunks.to_string(), "Sw<3,3,3> o 0 o ((1,8),(8,8)):((0,1),(64,8))");
        let chunks = tile.zipped_divide_by(&Tiler::Shape(&IntTuple::from((8, 8))))?;
        assert_eq!(chunks.to_string(), "Sw<3,3,3> o 0 o ((8,8),(1,8)):((64,1),(0,8))");
        let chunks = tile.tiled_divide(&Tiler::Shape(&IntTuple::from((8, 8))))?;
        assert_eq!(chunks.to_string(), "Sw<3,3,3> o 0 o ((8,8),1,8):((64,1),0,8)");
        let chunks = tile.flat_divide(&Tiler::Shape(&IntTuple::from((8, 8))))?;
        assert_eq!(chunks.to_string(), "Sw<3,3,3> o 0 o (8,8,1,8):(64,1,0,8)");
        Ok(())
    }

    #[test]
    fn coordinate_layouts_keep_their_components() -> Result<(), LayoutError> {
        let identity = CoordLayout::identity(IntTuple::from((8, 6)))?;
        assert_eq!(identity.shape(), IntTuple::from((8, 6)));
        assert_eq!(identity.rank(), 2);
        assert_eq!(identity.size(), 48);
        assert_eq!(identity.mode(1).to_string(), "6:1@1");
        let tiles = identity.logical_divide_by(&Tiler::Shape(&IntTuple::from((2, 6))))?;
        assert_eq!(tiles.to_string(), "((2,4),(6,1)):((1@0,2@0),(1@1,0))");
        assert_eq!(tiles.coalesce(), identity);
        assert_eq!(identity.group(0, 2)?.flatten(), identity);
        let every_other_row = identity.composition(&Layout::flat(&[4, 6], &[2, 8])?)?;
        assert_eq!(every_other_row.to_string(), "(4,6):(2@0,1@1)");
        let corner = identity.composition_by(&Tiler::Shape(&IntTuple::from((4, 2))))?;
        assert_eq!(corner.to_string(), "(4,2):(1@0,1@1)");
        assert_eq!(identity.with_shape(IntTuple::from((4, 12)))?.to_string(), "(4,(2,6)):(1@0,(4@0,1@1))");
        let split = identity.with_shape(IntTuple::from(((2, 4), 6)))?;
        assert_eq!(split.coalesce_by(&IntTuple::from((1, 1)))?, identity);
        assert_eq!(identity.group(0, 2)?.to_string(), "((8,6)):((1@0,1@1))");
        assert_eq!(identity.select(&[1, 0])?.to_string(), "(6,8):(1@1,1@0)");
        assert_eq!(identity.take(1, 2)?.to_string(), "(6):(1@1)");
        let pairs = identity.logical_divide(&Layout::flat(&[2], &[1])?.mode(0))?;
        assert_eq!(pairs.to_string(), "(2,(4,6)):(1@0,(2@0,1@1))");
        let tiles = identity.logical_divide_by(&Tiler::Shape(&IntTuple::from((4, 2))))?;
        assert_eq!(tiles.to_string(), "((4,2),(2,3)):((1@0,4@0),(1@1,2@1))");
        let tiles = identity
            .zipped_divide(&[Layout::flat(&[4], &[1])?.mode(0), Layout::flat(&[2], &[1])?.mode(0)])?;
        assert_eq!(tiles.to_string(), "((4,2),(2,3)):((1@0,1@1),(4@0,2@1))");
        let tiles = identity.zipped_divide_by(&Tiler::Shape(&IntTuple::from((4, 2))))?;
        assert_eq!(tiles.at_modes(&[0, 3]), IntTuple::from((4, 2))); // Tile 3 begins here.
        let tiles = identity.tiled_divide(&Tiler::Shape(&IntTuple::from((4, 2))))?;
        assert_eq!(tiles.to_string(), "((4,2),2,3):((1@0,1@1),4@0,2@1)");
        let tiles = identity.flat_divide(&Tiler::Shape(&IntTuple::from((4, 2))))?;
        assert_eq!(tiles.to_string(), "(4,2,2,3):(1@0,1@1,4@0,2@1)");
        Ok(())
    }
}
