//! Slices: parts of a layout at fixed coordinates.

use super::Layout;
use crate::error::LayoutError;
use crate::int_tuple::IntTuple;

/// A coordinate that may leave modes open, such as `(2,_)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coord<'a> {
    /// `_`: the whole mode.
    Keep,
    /// One integer coordinate.
    At(i64),
    /// One coordinate per mode.
    Modes(&'a [Self]),
}

impl Layout {
    /// Fixes some modes: `None` keeps a mode, and `Some(c)` fixes it at coordinate `c`. Returns the layout of
    /// the kept modes and the offset of the fixed ones: `L(c) = offset + R(kept coordinates)`.
    ///
    /// ```
    /// # use cute_rs::Layout;
    /// let rows = Layout::flat(&[4, 8], &[8, 1])?;
    /// let (row_2, offset) = rows.slice(&[Some(2), None])?;
    /// assert_eq!((row_2.to_string().as_str(), offset), ("(8):(1)", 16));
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Rank`] unless there is exactly one entry per mode.
    pub const fn slice(&self, coord: &[Option<i64>]) -> Result<(Self, i64), LayoutError> {
        let mut kept = Self::EMPTY;
        let mut offset = 0;
        ok!(self.part(coord, true, &mut kept, &mut offset));
        closed(kept, offset)
    }

    /// The modes that [`slice`](Self::slice) fixes: `Some` keeps a mode, and `None` drops it.
    ///
    /// ```
    /// # use cute_rs::Layout;
    /// let layout = Layout::flat(&[4, 8, 2], &[8, 1, 32])?;
    /// assert_eq!(layout.dice(&[Some(2), None, Some(0)])?.to_string(), "(4,2):(8,32)");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Rank`] unless there is exactly one entry per mode.
    pub const fn dice(&self, coord: &[Option<i64>]) -> Result<Self, LayoutError> {
        let mut kept = Self::EMPTY;
        ok!(self.part(coord, false, &mut kept, &mut 0));
        kept.close()
    }

    const fn part(
        &self,
        coord: &[Option<i64>],
        open: bool,
        kept: &mut Self,
        offset: &mut i64,
    ) -> Result<(), LayoutError> {
        let rank = self.rank();
        if coord.len() != rank {
            return Err(LayoutError::Rank { needed: rank, given: coord.len() });
        }
        each!(i, 0..rank, {
            let mode = self.mode(i);
            if let Some(c) = coord[i] {
                *offset = offset.wrapping_add(mode.at(c));
            }
            if coord[i].is_none() == open {
                ok!(kept.extend(&mode));
            }
        });
        Ok(())
    }

    /// Fixes modes at any depth, like `L(2,(_,1))`. The kept modes become the modes of the result, in order
    /// and without the nesting around them: `L(c) = offset + R(kept coordinates)`.
    ///
    /// ```
    /// # use cute_rs::{Coord, IntTuple, Layout};
    /// let layout = Layout::new(IntTuple::from((3, (2, 3))), IntTuple::from((3, (12, 1))))?;
    /// let (part, offset) = layout.slice_at(&Coord::Modes(&[
    ///     Coord::Keep,
    ///     Coord::Modes(&[Coord::At(1), Coord::Keep]),
    /// ]))?;
    /// assert_eq!((part.to_string().as_str(), offset), ("(3,3):(3,1)", 12));
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Rank`] where the coordinate has a tuple for an integer mode, or a tuple of another
    /// rank.
    pub const fn slice_at(&self, coord: &Coord<'_>) -> Result<(Self, i64), LayoutError> {
        let mut kept = Self::EMPTY;
        let mut offset = 0;
        match self.part_at(coord, true, &mut kept, &mut offset) {
            // A layout that is kept whole keeps its own parentheses.
            Ok(()) if matches!(coord, Coord::Keep) => Ok((*self, 0)),
            Ok(()) => closed(kept, offset),
            Err(error) => Err(error),
        }
    }

    /// The modes that [`slice_at`](Self::slice_at) fixes, at any depth. CuTe's `dice`.
    ///
    /// ```
    /// # use cute_rs::{Coord, IntTuple, Layout};
    /// let layout = Layout::new(IntTuple::from((3, (2, 3))), IntTuple::from((3, (12, 1))))?;
    /// let coord = [Coord::Keep, Coord::Modes(&[Coord::At(1), Coord::Keep])];
    /// assert_eq!(layout.dice_at(&Coord::Modes(&coord))?.to_string(), "(2):(12)");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`slice_at`](Self::slice_at).
    pub const fn dice_at(&self, coord: &Coord<'_>) -> Result<Self, LayoutError> {
        let mut kept = Self::EMPTY;
        match ok!(self.part_at(coord, false, &mut kept, &mut 0)) {
            () if matches!(coord, Coord::At(_)) => Ok(*self),
            () => kept.close(),
        }
    }

    const fn part_at(
        &self,
        coord: &Coord<'_>,
        open: bool,
        kept: &mut Self,
        offset: &mut i64,
    ) -> Result<(), LayoutError> {
        match *coord {
            Coord::Keep if open => kept.extend(self),
            Coord::Keep => Ok(()),
            Coord::At(c) => {
                *offset = offset.wrapping_add(self.at(c));
                if open { Ok(()) } else { kept.extend(self) }
            }
            Coord::Modes(modes) => {
                let rank = self.rank();
                if self.shape.is_int() || modes.len() != rank {
                    return Err(LayoutError::Rank { needed: rank, given: modes.len() });
                }
                each!(i, 0..rank, {
                    ok!(self.mode(i).part_at(&modes[i], open, kept, offset));
                });
                Ok(())
            }
        }
    }

    /// The layout that begins at a coordinate, and the offset where it begins: `L(c + x) = offset + R(x)`.
    /// This holds as long as no digit of `c + x` carries.
    ///
    /// ```
    /// # use cute_rs::{IntTuple, Layout};
    /// let rows = Layout::flat(&[4, 8], &[8, 1])?;
    /// let (from_there, offset) = rows.domain_offset(&IntTuple::from((1, 2)))?;
    /// assert_eq!(offset + from_there.at_modes(&[2, 3]), rows.at_modes(&[3, 5]));
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Layout::at_coord`].
    pub const fn domain_offset(&self, coord: &IntTuple) -> Result<(Self, i64), LayoutError> {
        Ok((*self, ok!(self.at_coord(coord))))
    }

    /// The coordinate at which the layout has a given offset: `L(R) = offset`. It has the nesting of the
    /// shape.
    ///
    /// The coordinate is found for every offset of a layout whose modes each step over all smaller ones, such
    /// as a compact layout. Leaves of stride 0 get coordinate 0. `None` if no coordinate is found.
    ///
    /// ```
    /// # use cute_rs::Layout;
    /// let rows = Layout::flat(&[4, 8], &[8, 1])?;
    /// assert_eq!(rows.coord_of(19).map(|coord| coord.to_string()).as_deref(), Some("(2,3)"));
    /// assert_eq!(rows.coord_of(32), None);
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    pub const fn coord_of(&self, offset: i64) -> Option<IntTuple> {
        let mut digits = [0; crate::int_tuple::MAX_LEAVES];
        each!(i, 0..self.shape.len(), {
            let d = self.stride.leaf(i);
            if d != 0 {
                digits[i] = offset.wrapping_div(d) % self.shape.leaf(i);
            }
        });
        let coord = self.shape.with_leaves(&digits);
        match self.at_coord(&coord) {
            Ok(found) if found == offset && coord.min() >= 0 => Some(coord),
            _ => None,
        }
    }

    /// The integer coordinate at which the layout has a given offset: [`coord_of`](Self::coord_of) as one
    /// number.
    ///
    /// ```
    /// # use cute_rs::Layout;
    /// assert_eq!(Layout::flat(&[4, 8], &[8, 1])?.index_of(19), Some(2 + 4 * 3));
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    pub const fn index_of(&self, offset: i64) -> Option<i64> {
        match self.coord_of(offset) {
            Some(coord) => match self.shape.crd2idx(&coord) {
                Ok(index) => Some(index),
                Err(_) => None,
            },
            None => None,
        }
    }
}

const fn closed(kept: Layout, offset: i64) -> Result<(Layout, i64), LayoutError> {
    Ok((ok!(kept.close()), offset))
}
