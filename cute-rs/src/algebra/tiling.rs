//! Cutting layouts into tiles and repeating them as blocks.

use crate::error::LayoutError;
use crate::int_tuple::MAX_LEAVES;
use crate::layout::Layout;

impl Layout {
    /// Divides L by a tiler T: `R = L o (T, complement(T, size(L)))`. Mode 0 of R walks inside a tile, mode 1
    /// from tile to tile. A last tile may reach beyond the size of L.
    ///
    /// ```
    /// # use cute_rs::Layout;
    /// let layout = Layout::flat(&[4, 6], &[6, 1])?;
    /// let pairs_of_rows = Layout::flat(&[2], &[2])?;
    /// assert_eq!(layout.logical_divide(&pairs_of_rows)?.to_string(), "((2),(2,6)):((12),(6,1))");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Layout::composition`] and [`Layout::complement`].
    pub const fn logical_divide(&self, tiler: &Self) -> Result<Self, LayoutError> {
        let rest = match tiler.complement(self.size()) {
            Ok(rest) => rest,
            Err(error) => return Err(error),
        };
        match Self::concat(&[*tiler, rest]) {
            Ok(both) => self.composition(&both),
            Err(error) => Err(error),
        }
    }

    /// Divides mode by mode and gathers: with `(A_i, B_i) = logical_divide(L_i, T_i)` this is
    /// `R = ((A_0,A_1,…),(B_0,B_1,…))`. Mode 0 of R walks inside a tile, mode 1 from tile to tile. A mode that has
    /// no tiler goes to mode 1 whole.
    ///
    /// ```
    /// # use cute_rs::Layout;
    /// let matrix = Layout::flat(&[8, 6], &[1, 8])?;
    /// let (rows, columns) = (Layout::flat(&[4], &[1])?, Layout::flat(&[2], &[1])?);
    /// let tiles = matrix.zipped_divide(&[rows, columns])?;
    /// assert_eq!(tiles.to_string(), "(((4),(2)),(2,3)):(((1),(8)),(4,16))");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Rank`] with no tiler or more tilers than modes, and those of [`Layout::logical_divide`].
    pub const fn zipped_divide(&self, tilers: &[Self]) -> Result<Self, LayoutError> {
        let rank = self.rank();
        if tilers.is_empty() || tilers.len() > rank {
            return Err(LayoutError::Rank { needed: rank, given: tilers.len() });
        }
        let mut tiles = [Self::leaf(1, 0); MAX_LEAVES];
        let mut rests = [Self::leaf(1, 0); MAX_LEAVES];
        let mut i = 0;
        while i < rank {
            rests[i] = self.mode(i);
            if i < tilers.len() {
                let divided = match rests[i].logical_divide(&tilers[i]) {
                    Ok(divided) => divided,
                    Err(error) => return Err(error),
                };
                (tiles[i], rests[i]) = (divided.mode(0), divided.mode(1));
            }
            i += 1;
        }
        match (Self::concat(tiles.split_at(tilers.len()).0), Self::concat(rests.split_at(rank).0)) {
            (Ok(tiles), Ok(rests)) => Self::concat(&[tiles, rests]),
            (Err(error), _) | (_, Err(error)) => Err(error),
        }
    }

    /// Repeats L as T arranges it: `R = (L, complement(L, size(L) * cosize(T)) o T)`. Mode 0 of R is L, mode 1
    /// walks over its copies.
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
        let rest = match self.complement(self.size() * tiler.cosize()) {
            Ok(rest) => rest,
            Err(error) => return Err(error),
        };
        match rest.composition(tiler) {
            Ok(copies) => Self::concat(&[*self, copies]),
            Err(error) => Err(error),
        }
    }

    /// Repeats a block over a grid of blocks, mode by mode: mode `i` of R is `(block_i, copies_i)` with
    /// `(block, copies) = logical_product(block, grid)`, and inside it the block varies fastest.
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
    /// [`LayoutError::Rank`] where the ranks differ, and those of [`Layout::logical_product`].
    pub const fn blocked_product(&self, grid: &Self) -> Result<Self, LayoutError> {
        let rank = self.rank();
        if grid.rank() != rank {
            return Err(LayoutError::Rank { needed: rank, given: grid.rank() });
        }
        let product = match self.logical_product(grid) {
            Ok(product) => product,
            Err(error) => return Err(error),
        };
        let (block, copies) = (product.mode(0), product.mode(1));
        let mut modes = [Self::leaf(1, 0); MAX_LEAVES];
        let mut i = 0;
        while i < rank {
            // The copies refine the grid, so an integer grid may have become a tuple that is one mode still.
            let copies = if grid.shape().is_int() { copies } else { copies.mode(i) };
            modes[i] = match Self::concat(&[block.mode(i), copies]) {
                Ok(mode) => mode,
                Err(error) => return Err(error),
            };
            i += 1;
        }
        Self::concat(modes.split_at(rank).0)
    }

    /// Repeats a block until it fills a shape: the blocked product of L with a compact grid of
    /// `shape_i / size(L_i)` blocks a mode. Blocks follow each other first along mode `order[0]`, then along
    /// `order[1]`, and so on.
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
    /// [`LayoutError::Rank`] where `shape` or `order` has not one entry a mode; [`LayoutError::Order`] where
    /// `order` does not name each mode once; [`LayoutError::ShapeDivisibility`] where an extent is not a positive
    /// multiple of the block's; those of [`Layout::blocked_product`].
    pub const fn tile_to_shape(&self, shape: &[i64], order: &[usize]) -> Result<Self, LayoutError> {
        let rank = self.rank();
        if shape.len() != rank || order.len() != rank {
            let given = if shape.len() != rank { shape.len() } else { order.len() };
            return Err(LayoutError::Rank { needed: rank, given });
        }
        let mut counts = [0; MAX_LEAVES];
        let mut strides = [0; MAX_LEAVES];
        let mut stride = 1;
        let mut i = 0;
        while i < rank {
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
            stride *= counts[mode];
            i += 1;
        }
        match Self::flat(counts.split_at(rank).0, strides.split_at(rank).0) {
            Ok(grid) => self.blocked_product(&grid),
            Err(error) => Err(error),
        }
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
    fn divides_into_tiles() {
        let nested = layout((4, 2, 3), (2, 1, 8));
        for (why, a, tiler, want) in [
            ("a tile that is spread out", nested, layout(4, 2), "((2,2),(2,3)):((4,1),(2,8))"),
            ("a run", layout(12, 5), layout(4, 1), "(4,3):(5,20)"),
            ("the last tile is padded", layout(10, 1), layout(4, 1), "(4,3):(1,4)"),
            ("a tile larger than all", layout(10, 1), layout(16, 1), "(16,1):(1,0)"),
            ("a tile of two modes", layout(24, 1), layout((2, 3), (1, 8)), "((2,3),4):((1,8),2)"),
        ] {
            assert_eq!(a.logical_divide(&tiler).map(|r| r.to_string()), Ok(want.into()), "{why}");
        }
    }

    #[test]
    fn divides_mode_by_mode() {
        let matrix = layout((8, 6), (6, 1));
        let all = [layout(4, 1), layout(3, 2)];
        for (why, tilers, want) in [
            ("every mode", &all[..], Ok("((4,3),(2,2)):((6,2),(24,1))")),
            ("a mode without a tiler goes on whole", &all[..1], Ok("((4),(2,6)):((6),(24,1))")),
            ("no tiler at all", &[], Err(LayoutError::Rank { needed: 2, given: 0 })),
            ("too many tilers", &[all[0]; 3], Err(LayoutError::Rank { needed: 2, given: 3 })),
        ] {
            assert_eq!(matrix.zipped_divide(tilers).map(|r| r.to_string()), want.map(Into::into), "{why}");
        }
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
