//! Divides and products of swizzled layouts.

use super::ComposedLayout;
use crate::algebra::Tiler;
use crate::error::LayoutError;
use crate::layout::Layout;

impl ComposedLayout {
    /// `R = C o (T, complement(T, size(C)))`. See [`Layout::logical_divide`].
    ///
    /// ```
    /// # use cute_rs::{Layout, Swizzle};
    /// let tile = Swizzle::new(3, 3, 3)?.after(Layout::flat(&[8, 64], &[64, 1])?);
    /// let row_by_row = tile.select(&[1, 0])?.logical_divide(&Layout::flat(&[64], &[1])?.mode(0))?;
    /// assert_eq!(row_by_row.to_string(), "Sw<3,3,3> o 0 o (64,8):(1,64)");
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
    /// # use cute_rs::{IntTuple, Layout, Swizzle, Tiler};
    /// let tile = Swizzle::new(3, 3, 3)?.after(Layout::flat(&[8, 64], &[64, 1])?);
    /// let chunks = tile.logical_divide_by(&Tiler::Modes(&[Tiler::Keep, Tiler::Shape(&IntTuple::int(8))]))?;
    /// assert_eq!(chunks.to_string(), "Sw<3,3,3> o 0 o (8,(8,8)):(64,(1,8))");
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
    /// # use cute_rs::{Layout, Swizzle};
    /// let tile = Swizzle::new(3, 3, 3)?.after(Layout::flat(&[8, 64], &[64, 1])?);
    /// let chunks = tile.zipped_divide(&[Layout::flat(&[1], &[1])?.mode(0), Layout::flat(&[8], &[1])?.mode(0)])?;
    /// assert_eq!(chunks.to_string(), "Sw<3,3,3> o 0 o ((1,8),(8,8)):((0,1),(64,8))");
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
    /// # use cute_rs::{IntTuple, Layout, Swizzle, Tiler};
    /// let tile = Swizzle::new(3, 3, 3)?.after(Layout::flat(&[8, 64], &[64, 1])?);
    /// let chunks = tile.zipped_divide_by(&Tiler::Shape(&IntTuple::from((8, 8))))?;
    /// assert_eq!(chunks.to_string(), "Sw<3,3,3> o 0 o ((8,8),(1,8)):((64,1),(0,8))");
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
    /// # use cute_rs::{IntTuple, Layout, Swizzle, Tiler};
    /// let tile = Swizzle::new(3, 3, 3)?.after(Layout::flat(&[8, 64], &[64, 1])?);
    /// let chunks = tile.tiled_divide(&Tiler::Shape(&IntTuple::from((8, 8))))?;
    /// assert_eq!(chunks.to_string(), "Sw<3,3,3> o 0 o ((8,8),1,8):((64,1),0,8)");
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
    /// # use cute_rs::{IntTuple, Layout, Swizzle, Tiler};
    /// let tile = Swizzle::new(3, 3, 3)?.after(Layout::flat(&[8, 64], &[64, 1])?);
    /// let chunks = tile.flat_divide(&Tiler::Shape(&IntTuple::from((8, 8))))?;
    /// assert_eq!(chunks.to_string(), "Sw<3,3,3> o 0 o (8,8,1,8):(64,1,0,8)");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Layout::flat_divide`].
    pub const fn flat_divide(&self, tiler: &Tiler<'_>) -> Result<Self, LayoutError> {
        self.with(self.layout.flat_divide(tiler))
    }

    /// Copies of L, each swizzled according to its offset: `R(c) = Sw(offset + (L x T)(c))`. See
    /// [`Layout::logical_product`].
    ///
    /// ```
    /// # use cute_rs::{Layout, Swizzle};
    /// let tile = Swizzle::new(3, 3, 3)?.after(Layout::flat(&[8, 64], &[64, 1])?);
    /// let stages = tile.logical_product(&Layout::flat(&[4], &[1])?.mode(0))?;
    /// assert_eq!(stages.to_string(), "Sw<3,3,3> o 0 o ((8,64),4):((64,1),512)");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Layout::logical_product`].
    pub const fn logical_product(&self, tiler: &Layout) -> Result<Self, LayoutError> {
        self.with(self.layout.logical_product(tiler))
    }

    /// Copies mode by mode, each swizzled according to its offset:
    /// `R(c) = Sw(offset + blocked_product(L,T)(c))`. See [`Layout::blocked_product`].
    ///
    /// ```
    /// # use cute_rs::{Layout, Swizzle};
    /// let tile = Swizzle::new(3, 3, 3)?.after(Layout::flat(&[8, 64], &[64, 1])?);
    /// let large = tile.blocked_product(&Layout::flat(&[4, 2], &[1, 4])?)?;
    /// assert_eq!(large.to_string(), "Sw<3,3,3> o 0 o ((8,4),(64,2)):((64,512),(1,2048))");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Layout::blocked_product`].
    pub const fn blocked_product(&self, grid: &Layout) -> Result<Self, LayoutError> {
        self.with(self.layout.blocked_product(grid))
    }

    /// Interleaved copies, each swizzled according to its offset:
    /// `R(c) = Sw(offset + raked_product(L,T)(c))`. See [`Layout::raked_product`].
    ///
    /// ```
    /// # use cute_rs::{Layout, Swizzle};
    /// let tile = Swizzle::new(3, 3, 3)?.after(Layout::flat(&[8, 64], &[64, 1])?);
    /// let large = tile.raked_product(&Layout::flat(&[4, 2], &[1, 4])?)?;
    /// assert_eq!(large.to_string(), "Sw<3,3,3> o 0 o ((4,8),(2,64)):((512,64),(2048,1))");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Layout::raked_product`].
    pub const fn raked_product(&self, grid: &Layout) -> Result<Self, LayoutError> {
        self.with(self.layout.raked_product(grid))
    }

    /// Copies that fill a shape, each swizzled according to its offset:
    /// `R(c) = Sw(offset + tile_to_shape(L)(c))`. See [`Layout::tile_to_shape`].
    ///
    /// ```
    /// # use cute_rs::{Layout, Swizzle};
    /// let tile = Swizzle::new(3, 3, 3)?.after(Layout::flat(&[8, 64], &[64, 1])?);
    /// let operand = tile.tile_to_shape(&[128, 64], &[0, 1])?;
    /// assert_eq!(operand.to_string(), "Sw<3,3,3> o 0 o ((8,16),(64,1)):((64,512),(1,0))");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Layout::tile_to_shape`].
    pub const fn tile_to_shape(&self, shape: &[i64], order: &[usize]) -> Result<Self, LayoutError> {
        self.with(self.layout.tile_to_shape(shape, order))
    }
}
