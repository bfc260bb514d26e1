//! Divides: cutting layouts into tiles.

use super::Tiler;
use super::tiler::{Arrangement, Operation, arranged};
use crate::error::LayoutError;
use crate::layout::Layout;

impl Layout {
    /// Divides L by a tiler T: `R = L o (T, complement(T, size(L)))`. Mode 0 of R moves inside a tile, and
    /// mode 1 moves from tile to tile. A last tile may reach beyond the size of L.
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
        let rest = ok!(tiler.complement(self.size()));
        self.composition(&ok!(Self::concat(&[*tiler, rest])))
    }

    /// Divides mode by mode: mode `i` of R is `logical_divide(L_i, T_i)`. Modes with `_` or without a tiler
    /// stay as they are.
    ///
    /// ```
    /// # use cute_rs::{IntTuple, Layout, Tiler};
    /// let matrix = Layout::flat(&[8, 6], &[1, 8])?;
    /// let tiles = matrix.logical_divide_by(&Tiler::Shape(&IntTuple::from((4, 2))))?;
    /// assert_eq!(tiles.to_string(), "((4,2),(2,3)):((1,4),(8,16))");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Rank`] if the tiler has more modes than L; those of
    /// [`logical_divide`](Self::logical_divide).
    pub const fn logical_divide_by(&self, tiler: &Tiler<'_>) -> Result<Self, LayoutError> {
        self.by_mode(tiler, Operation::Divide)
    }

    /// Divides mode by mode and gathers the halves: with `(A_i, B_i) = logical_divide(L_i, T_i)`,
    /// `R = ((A_0,A_1,…),(B_0,B_1,…))`. Mode 0 of R moves inside a tile, and mode 1 moves from tile to tile.
    /// A mode without a tiler goes to mode 1 undivided.
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
    /// [`LayoutError::Rank`] without a tiler, or for more tilers than modes; those of
    /// [`Layout::logical_divide`].
    pub const fn zipped_divide(&self, tilers: &[Self]) -> Result<Self, LayoutError> {
        let rank = self.rank();
        if tilers.is_empty() || tilers.len() > rank {
            return Err(LayoutError::Rank { needed: rank, given: tilers.len() });
        }
        let (mut tiles, mut rests) = (Self::EMPTY, Self::EMPTY);
        each!(i, 0..rank, {
            let mut rest = self.mode(i);
            if i < tilers.len() {
                let divided = ok!(rest.logical_divide(&tilers[i]));
                ok!(tiles.extend(&divided.mode(0)));
                rest = divided.mode(1);
            }
            ok!(rests.extend(&rest));
        });
        Self::concat(&[ok!(tiles.close()), ok!(rests.close())])
    }

    /// Divides mode by mode, following the nesting of the tiler, and gathers the halves:
    /// `R = ((tile, tile, …), (rest, rest, …))`. Modes with `_` go to the rest undivided. A tiler that is one
    /// layout divides the whole layout: `R = logical_divide(L, T)`.
    ///
    /// ```
    /// # use cute_rs::{IntTuple, Layout, Tiler};
    /// let a = Layout::new(IntTuple::from((9, (4, 8))), IntTuple::from((59, (13, 1))))?;
    /// let rows = Layout::new(IntTuple::int(3), IntTuple::int(3))?;
    /// let columns = Layout::flat(&[2, 4], &[1, 8])?;
    /// let tiles = a.zipped_divide_by(&Tiler::Modes(&[Tiler::By(&rows), Tiler::By(&columns)]))?;
    /// assert_eq!(tiles.to_string(), "((3,(2,4)),(3,(2,2))):((177,(13,2)),(59,(26,1)))");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`logical_divide_by`](Self::logical_divide_by).
    pub const fn zipped_divide_by(&self, tiler: &Tiler<'_>) -> Result<Self, LayoutError> {
        arranged(self.split(tiler, Operation::Divide), Arrangement::Zipped)
    }

    /// [`zipped_divide_by`](Self::zipped_divide_by) with each rest as its own mode:
    /// `R = ((tile, tile, …), rest, rest, …)`.
    ///
    /// ```
    /// # use cute_rs::{IntTuple, Layout, Tiler};
    /// let matrix = Layout::flat(&[8, 6], &[1, 8])?;
    /// let tiles = matrix.tiled_divide(&Tiler::Shape(&IntTuple::from((4, 2))))?;
    /// assert_eq!(tiles.to_string(), "((4,2),2,3):((1,8),4,16)");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`logical_divide_by`](Self::logical_divide_by).
    pub const fn tiled_divide(&self, tiler: &Tiler<'_>) -> Result<Self, LayoutError> {
        arranged(self.split(tiler, Operation::Divide), Arrangement::Tiled)
    }

    /// [`zipped_divide_by`](Self::zipped_divide_by) with each tile and each rest as its own mode:
    /// `R = (tile, tile, …, rest, rest, …)`.
    ///
    /// ```
    /// # use cute_rs::{IntTuple, Layout, Tiler};
    /// let matrix = Layout::flat(&[8, 6], &[1, 8])?;
    /// let tiles = matrix.flat_divide(&Tiler::Shape(&IntTuple::from((4, 2))))?;
    /// assert_eq!(tiles.to_string(), "(4,2,2,3):(1,8,4,16)");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`logical_divide_by`](Self::logical_divide_by).
    pub const fn flat_divide(&self, tiler: &Tiler<'_>) -> Result<Self, LayoutError> {
        arranged(self.split(tiler, Operation::Divide), Arrangement::Flat)
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
}
