//! Products of swizzled layouts.

use super::ComposedLayout;
use crate::error::LayoutError;
use crate::layout::Layout;

impl ComposedLayout {
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
