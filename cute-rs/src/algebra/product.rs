//! Products: repeating layouts as blocks.

use super::Tiler;
use super::tiler::{Arrangement, Operation, arranged};
use crate::error::LayoutError;
use crate::int_tuple::MAX_LEAVES;
use crate::layout::Layout;

impl Layout {
    /// Repeats L in the arrangement of T: `R = (L, complement(L, size(L) * cosize(T)) o T)`. Mode 0 of R is
    /// L, and mode 1 moves over its copies.
    ///
    /// ```
    /// # use cute_rs::Layout;
    /// let every_other = Layout::flat(&[4], &[2])?;
    /// let copies = Layout::flat(&[4], &[1])?;
    /// assert_eq!(every_other.logical_product(&copies)?.to_string(), "((4),((2,2))):((2),((1,8)))");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Layout::composition`] and [`Layout::complement`].
    pub const fn logical_product(&self, tiler: &Self) -> Result<Self, LayoutError> {
        let rest = ok!(self.complement(self.size().saturating_mul(tiler.cosize())));
        Self::concat(&[*self, ok!(rest.composition(tiler))])
    }

    /// Repeats a block over a grid, mode by mode: mode `i` of R is `(block_i, copies_i)` with
    /// `(block, copies) = logical_product(block, grid)`. Inside a mode, the block varies fastest.
    ///
    /// ```
    /// # use cute_rs::Layout;
    /// let block = Layout::flat(&[2, 5], &[5, 1])?;
    /// let grid = Layout::flat(&[3, 4], &[1, 3])?;
    /// assert_eq!(block.blocked_product(&grid)?.to_string(), "((2,3),(5,4)):((5,10),(1,30))");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Rank`] if the ranks differ; those of [`Layout::logical_product`].
    pub const fn blocked_product(&self, grid: &Self) -> Result<Self, LayoutError> {
        let (block, copies) = ok!(self.block_and_copies(grid));
        block.zip(&copies)
    }

    /// The block and its copies over a grid, each with one mode per mode of the grid.
    const fn block_and_copies(&self, grid: &Self) -> Result<(Self, Self), LayoutError> {
        let rank = self.rank();
        if grid.rank() != rank {
            return Err(LayoutError::Rank { needed: rank, given: grid.rank() });
        }
        let product = ok!(self.logical_product(grid));
        // The copies refine the grid. So an integer grid may have become a tuple, which still counts as one
        // mode.
        let copies = if grid.shape_ref().is_int() { product.mode(1).wrap() } else { Ok(product.mode(1)) };
        let block = if self.shape_ref().is_int() { product.mode(0).wrap() } else { Ok(product.mode(0)) };
        Ok((ok!(block), ok!(copies)))
    }

    /// Repeats a block over a grid, mode by mode and interleaved: mode `i` of R is `(copies_i, block_i)`,
    /// while [`blocked_product`](Self::blocked_product) has `(block_i, copies_i)`. Neighbours in a mode of R
    /// are the same element of neighbouring copies.
    ///
    /// ```
    /// # use cute_rs::Layout;
    /// let block = Layout::flat(&[2, 5], &[5, 1])?;
    /// let grid = Layout::flat(&[3, 4], &[1, 3])?;
    /// assert_eq!(block.raked_product(&grid)?.to_string(), "((3,2),(4,5)):((10,5),(30,1))");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`blocked_product`](Self::blocked_product).
    pub const fn raked_product(&self, grid: &Self) -> Result<Self, LayoutError> {
        let (block, copies) = ok!(self.block_and_copies(grid));
        copies.zip(&block)
    }

    /// Repeats mode by mode: mode `i` of R is `logical_product(L_i, T_i)`. Modes with `_` or without a tiler
    /// stay as they are.
    ///
    /// ```
    /// # use cute_rs::{Layout, Tiler};
    /// let block = Layout::flat(&[2, 5], &[5, 1])?;
    /// let (rows, columns) = (Layout::flat(&[3], &[5])?.mode(0), Layout::flat(&[4], &[6])?.mode(0));
    /// let tiled = block.logical_product_by(&Tiler::Modes(&[Tiler::By(&rows), Tiler::By(&columns)]))?;
    /// assert_eq!(tiled.to_string(), "((2,3),(5,4)):((5,10),(1,30))");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Rank`] if the tiler has more modes than L; those of
    /// [`logical_product`](Self::logical_product).
    pub const fn logical_product_by(&self, tiler: &Tiler<'_>) -> Result<Self, LayoutError> {
        self.by_mode(tiler, Operation::Product)
    }

    /// Repeats mode by mode and gathers the halves: `R = ((block, block, …), (copies, copies, …))`. Modes
    /// with `_` go to the copies unchanged. A tiler that is one layout repeats the whole layout:
    /// `R = logical_product(L, T)`.
    ///
    /// ```
    /// # use cute_rs::{Layout, Tiler};
    /// let block = Layout::flat(&[2, 5], &[5, 1])?;
    /// let (rows, columns) = (Layout::flat(&[3], &[5])?.mode(0), Layout::flat(&[4], &[6])?.mode(0));
    /// let tiled = block.zipped_product(&Tiler::Modes(&[Tiler::By(&rows), Tiler::By(&columns)]))?;
    /// assert_eq!(tiled.to_string(), "((2,5),(3,4)):((5,1),(10,30))");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`logical_product_by`](Self::logical_product_by).
    pub const fn zipped_product(&self, tiler: &Tiler<'_>) -> Result<Self, LayoutError> {
        arranged(self.split(tiler, Operation::Product), Arrangement::Zipped)
    }

    /// [`zipped_product`](Self::zipped_product) with each mode of copies on its own:
    /// `R = ((block, block, …), copies, copies, …)`.
    ///
    /// ```
    /// # use cute_rs::{IntTuple, Layout, Tiler};
    /// let block = Layout::flat(&[2, 5], &[1, 2])?;
    /// let tiled = block.tiled_product(&Tiler::Modes(&[Tiler::Keep, Tiler::Shape(&IntTuple::int(4))]))?;
    /// assert_eq!(tiled.to_string(), "((5),2,(2,2)):((2),1,(1,10))");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`logical_product_by`](Self::logical_product_by).
    pub const fn tiled_product(&self, tiler: &Tiler<'_>) -> Result<Self, LayoutError> {
        arranged(self.split(tiler, Operation::Product), Arrangement::Tiled)
    }

    /// [`zipped_product`](Self::zipped_product) with each block and each mode of copies on its own:
    /// `R = (block, block, …, copies, copies, …)`.
    ///
    /// ```
    /// # use cute_rs::{Layout, Tiler};
    /// let block = Layout::flat(&[2, 5], &[5, 1])?;
    /// let (rows, columns) = (Layout::flat(&[3], &[5])?.mode(0), Layout::flat(&[4], &[6])?.mode(0));
    /// let tiled = block.flat_product(&Tiler::Modes(&[Tiler::By(&rows), Tiler::By(&columns)]))?;
    /// assert_eq!(tiled.to_string(), "(2,5,3,4):(5,1,10,30)");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`logical_product_by`](Self::logical_product_by).
    pub const fn flat_product(&self, tiler: &Tiler<'_>) -> Result<Self, LayoutError> {
        arranged(self.split(tiler, Operation::Product), Arrangement::Flat)
    }

    /// Repeats a block until it fills a shape: the blocked product of L with a compact grid of
    /// `shape_i / size(L_i)` blocks in mode `i`. Consecutive blocks are adjacent first along mode `order[0]`,
    /// then along `order[1]`, and so on.
    ///
    /// ```
    /// # use cute_rs::Layout;
    /// let block = Layout::flat(&[2, 4], &[4, 1])?;
    /// let rows_first = block.tile_to_shape(&[6, 8], &[0, 1])?;
    /// assert_eq!(rows_first.to_string(), "((2,3),(4,2)):((4,8),(1,24))");
    /// let columns_first = block.tile_to_shape(&[6, 8], &[1, 0])?;
    /// assert_eq!(columns_first.to_string(), "((2,3),(4,2)):((4,16),(1,8))");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Rank`] unless `shape` and `order` have one entry per mode; [`LayoutError::Order`]
    /// unless `order` names each mode once; [`LayoutError::ShapeDivisibility`] if an extent is not a positive
    /// multiple of the block's; those of [`Layout::blocked_product`].
    pub const fn tile_to_shape(&self, shape: &[i64], order: &[usize]) -> Result<Self, LayoutError> {
        let rank = self.rank();
        if shape.len() != rank || order.len() != rank {
            let given = if shape.len() != rank { shape.len() } else { order.len() };
            return Err(LayoutError::Rank { needed: rank, given });
        }
        let mut counts = [0; MAX_LEAVES];
        let mut strides = [0; MAX_LEAVES];
        let mut stride: i64 = 1;
        each!(i, 0..rank, {
            let mode = order[i];
            if mode >= rank || counts[mode] != 0 {
                return Err(LayoutError::Order { mode, rank });
            }
            let (wanted, offered) = (shape[mode], self.mode(mode).size());
            if wanted < 1 || wanted % offered != 0 {
                return Err(LayoutError::ShapeDivisibility { offered, wanted });
            }
            counts[mode] = wanted / offered;
            strides[mode] = stride;
            stride = stride.saturating_mul(counts[mode]);
        });
        self.blocked_product(&ok!(Self::flat(counts.split_at(rank).0, strides.split_at(rank).0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::int_tuple::IntTuple;
    use std::string::ToString;

    fn layout(shape: impl Into<IntTuple>, stride: impl Into<IntTuple>) -> Layout {
        Layout::new(shape.into(), stride.into()).unwrap()
    }

    #[test]
    fn products_repeat() {
        for (why, a, tiler, want) in [
            ("copies follow each other", layout(4, 1), layout(3, 1), "(4,3):(1,4)"),
            ("copies in the gaps", layout((2, 2), (4, 1)), layout(6, 1), "((2,2),(2,3)):((4,1),(2,8))"),
            (
                "in another order",
                layout((2, 2), (4, 1)),
                layout((4, 2), (2, 1)),
                "((2,2),(4,2)):((4,1),(8,2))",
            ),
        ] {
            assert_eq!(a.logical_product(&tiler).map(|r| r.to_string()), Ok(want.into()), "{why}");
        }
    }

    #[test]
    fn blocked_products_repeat_mode_by_mode() {
        for (why, block, grid, want) in [
            (
                "two modes",
                layout((2, 5), (5, 1)),
                layout((3, 4), (1, 3)),
                Ok("((2,3),(5,4)):((5,10),(1,30))"),
            ),
            (
                "an integer grid over gaps is one mode",
                layout(2, 2),
                layout(4, 1),
                Ok("((2,(2,2))):((2,(1,4)))"),
            ),
            (
                "another rank",
                layout((2, 5), (5, 1)),
                layout(4, 1),
                Err(LayoutError::Rank { needed: 2, given: 1 }),
            ),
        ] {
            assert_eq!(block.blocked_product(&grid).map(|r| r.to_string()), want.map(Into::into), "{why}");
        }
    }

    #[test]
    fn tiling_to_a_shape_asks_for_multiples_and_an_order() {
        let block = layout((2, (2, 2)), (4, (2, 1)));
        for (why, shape, order, want) in [
            ("one block", &[2, 4][..], &[0, 1][..], Ok("((2,1),((2,2),1)):((4,0),((2,1),0))")),
            ("rows first", &[4, 8], &[0, 1], Ok("((2,2),((2,2),2)):((4,8),((2,1),16))")),
            ("columns first", &[4, 8], &[1, 0], Ok("((2,2),((2,2),2)):((4,16),((2,1),8))")),
            ("no multiple", &[4, 6], &[0, 1], Err(LayoutError::ShapeDivisibility { offered: 4, wanted: 6 })),
            ("nothing", &[0, 8], &[0, 1], Err(LayoutError::ShapeDivisibility { offered: 2, wanted: 0 })),
            ("a mode twice", &[4, 8], &[1, 1], Err(LayoutError::Order { mode: 1, rank: 2 })),
            ("a mode that is not there", &[4, 8], &[0, 2], Err(LayoutError::Order { mode: 2, rank: 2 })),
            ("a short shape", &[4], &[0, 1], Err(LayoutError::Rank { needed: 2, given: 1 })),
            ("a short order", &[4, 8], &[0], Err(LayoutError::Rank { needed: 2, given: 1 })),
        ] {
            assert_eq!(
                block.tile_to_shape(shape, order).map(|r| r.to_string()),
                want.map(Into::into),
                "{why}"
            );
        }
    }
}
