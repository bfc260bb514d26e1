//! Layouts: functions from coordinates to offsets, given by a shape and a congruent stride.

mod compact;
mod edit;
mod slice;

use core::fmt;

use crate::error::LayoutError;
use crate::int_tuple::{IntTuple, MAX_LEAVES};

pub use slice::Coord;

/// A function from coordinates to offsets, written `shape:stride`, such as `(4,(2,2)):(2,(1,8))`.
///
/// A coordinate is an integer below [`size`](Layout::size), with the leftmost leaf varying fastest, or a
/// tuple with one coordinate per mode. The offset is the sum of leaf coordinates times leaf strides. Strides
/// may be zero or negative.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Layout {
    shape: IntTuple,
    stride: IntTuple,
}

impl Layout {
    /// Creates the layout `shape:stride`.
    ///
    /// ```
    /// # use cute_rs::{IntTuple, Layout, LayoutError};
    /// let (shape, stride) = (IntTuple::from((4, (2, 3))), IntTuple::from((6, (3, 1))));
    /// assert_eq!(Layout::new(shape, stride)?.to_string(), "(4,(2,3)):(6,(3,1))");
    /// assert_eq!(Layout::new(shape, IntTuple::int(1)), Err(LayoutError::Congruence { shape, stride: IntTuple::int(1) }));
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Congruence`] if the nesting differs; [`LayoutError::Extent`] for an extent below 1;
    /// [`LayoutError::Overflow`] if the size or an offset exceeds 2^62.
    pub const fn new(shape: IntTuple, stride: IntTuple) -> Result<Self, LayoutError> {
        if !shape.congruent(&stride) {
            return Err(LayoutError::Congruence { shape, stride });
        }
        each!(i, 0..shape.len(), {
            if shape.leaf(i) < 1 {
                return Err(LayoutError::Extent { shape });
            }
        });
        Self::bounded(shape, stride)
    }

    /// The layout of a legal shape and a congruent stride, if its size and offsets are at most 2^62.
    pub(crate) const fn bounded(shape: IntTuple, stride: IntTuple) -> Result<Self, LayoutError> {
        const LIMIT: i64 = 1 << 62;
        let mut reach: i64 = 0;
        each!(i, 0..shape.len(), {
            // Includes one extent more than the offsets: code may also compute extent times stride.
            let walk = shape.leaf(i).saturating_mul(stride.leaf(i)).saturating_abs();
            reach = reach.saturating_add(walk);
        });
        if reach > LIMIT || shape.size() > LIMIT {
            return Err(LayoutError::Overflow { shape, stride });
        }
        Ok(Self { shape, stride })
    }

    /// A layout of a legal shape and a congruent stride, unchecked.
    pub(crate) const fn from_parts(shape: IntTuple, stride: IntTuple) -> Self {
        Self { shape, stride }
    }

    /// Creates the flat layout `(s0,s1,…):(d0,d1,…)`.
    ///
    /// ```
    /// # use cute_rs::Layout;
    /// assert_eq!(Layout::flat(&[4, 8], &[8, 1])?.to_string(), "(4,8):(8,1)");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Layout::new`]; [`LayoutError::Capacity`] above [`MAX_LEAVES`] modes.
    pub const fn flat(shape: &[i64], stride: &[i64]) -> Result<Self, LayoutError> {
        Self::new(ok!(IntTuple::flat(shape)), ok!(IntTuple::flat(stride)))
    }

    /// `n:d`.
    pub(crate) const fn leaf(shape: i64, stride: i64) -> Self {
        Self { shape: IntTuple::int(shape), stride: IntTuple::int(stride) }
    }

    /// The compact layout whose leftmost leaf is contiguous: `(2,3):(1,2)`.
    ///
    /// ```
    /// # use cute_rs::{IntTuple, Layout};
    /// let matrix = Layout::column_major(IntTuple::from((2, 3)))?;
    /// assert_eq!((matrix.to_string().as_str(), matrix.at_modes(&[1, 2])), ("(2,3):(1,2)", 5));
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Extent`] for an extent below 1; [`LayoutError::Overflow`] above 2^62.
    pub const fn column_major(shape: IntTuple) -> Result<Self, LayoutError> {
        let mut strides = [0; MAX_LEAVES];
        let mut stride: i64 = 1;
        each!(i, 0..shape.len(), {
            strides[i] = stride;
            stride = shape.leaf(i).saturating_mul(stride);
        });
        Self::new(shape, shape.with_leaves(&strides))
    }

    /// The compact layout whose rightmost leaf is contiguous: `(2,3):(3,1)`.
    ///
    /// ```
    /// # use cute_rs::{IntTuple, Layout};
    /// let matrix = Layout::row_major(IntTuple::from((2, 3)))?;
    /// assert_eq!((matrix.to_string().as_str(), matrix.at_modes(&[1, 2])), ("(2,3):(3,1)", 5));
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Extent`] for an extent below 1; [`LayoutError::Overflow`] above 2^62.
    pub const fn row_major(shape: IntTuple) -> Result<Self, LayoutError> {
        let mut strides = [0; MAX_LEAVES];
        let mut stride: i64 = 1;
        let mut i = shape.len();
        while i > 0 {
            i -= 1;
            strides[i] = stride;
            stride = shape.leaf(i).saturating_mul(stride);
        }
        Self::new(shape, shape.with_leaves(&strides))
    }

    /// Concatenates layouts as the modes of one layout: `(A,B)`. CuTe's `make_layout(A, B, …)`.
    ///
    /// ```
    /// # use cute_rs::{IntTuple, Layout};
    /// let (rows, columns) = (Layout::flat(&[4], &[8])?.mode(0), Layout::flat(&[2, 4], &[4, 1])?);
    /// assert_eq!(Layout::concat(&[rows, columns])?.to_string(), "(4,(2,4)):(8,(4,1))");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Capacity`] above [`MAX_LEAVES`] leaves; [`LayoutError::EmptyMode`] for a layout
    /// `():()`.
    pub const fn concat(modes: &[Self]) -> Result<Self, LayoutError> {
        let mut joined = Self::EMPTY;
        each!(i, 0..modes.len(), {
            ok!(joined.extend(&modes[i]));
        });
        joined.close()
    }

    /// Adds a mode as the next member of a tuple that is still open.
    pub(crate) const fn extend(&mut self, mode: &Self) -> Result<(), LayoutError> {
        if mode.shape.is_empty() {
            return Err(LayoutError::EmptyMode { mode: self.shape.len() });
        }
        match (self.shape.extend(&mode.shape), self.stride.extend(&mode.stride)) {
            (Ok(()), Ok(())) => Ok(()),
            (Err(error), _) | (_, Err(error)) => Err(error),
        }
    }

    /// Adds all modes of a layout, one by one.
    pub(crate) const fn extend_modes(&mut self, modes: &Self) -> Result<(), LayoutError> {
        let rank = modes.rank();
        each!(i, 0..rank, {
            ok!(self.extend(&modes.mode(i)));
        });
        Ok(())
    }

    /// Adds a leaf as the next member of a tuple that is still open.
    pub(crate) const fn push(&mut self, shape: i64, stride: i64, axis: u8) -> Result<(), LayoutError> {
        ok!(self.shape.push(shape, 0));
        self.stride.push(stride, axis)
    }

    /// Adds parentheses around leaves `start..end`.
    pub(crate) const fn wrap_leaves(
        &mut self,
        start: usize,
        end: usize,
        opens: usize,
        closes: usize,
    ) -> Result<(), LayoutError> {
        ok!(self.shape.wrap_leaves(start, end, opens, closes));
        self.stride.wrap_leaves(start, end, opens, closes)
    }

    /// The layout as the only mode of another: `R((c)) = L(c)`.
    ///
    /// ```
    /// # use cute_rs::{IntTuple, Layout};
    /// assert_eq!(Layout::new(IntTuple::int(8), IntTuple::int(2))?.wrap()?.to_string(), "(8):(2)");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Depth`] above 255 levels.
    pub const fn wrap(&self) -> Result<Self, LayoutError> {
        self.close()
    }

    /// Closes the tuple that [`extend`](Self::extend) filled.
    pub(crate) const fn close(&self) -> Result<Self, LayoutError> {
        Self::bounded(ok!(self.shape.close()), ok!(self.stride.close()))
    }

    /// The layout `()`. It also serves as an open tuple without members.
    pub(crate) const EMPTY: Self = Self { shape: IntTuple::EMPTY, stride: IntTuple::EMPTY };

    /// The shape.
    ///
    /// ```
    /// # use cute_rs::{IntTuple, Layout};
    /// assert_eq!(Layout::flat(&[4, 8], &[8, 1])?.shape(), IntTuple::from((4, 8)));
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    pub const fn shape(&self) -> IntTuple {
        self.shape
    }

    pub(crate) const fn shape_ref(&self) -> &IntTuple {
        &self.shape
    }

    pub(crate) const fn stride_ref(&self) -> &IntTuple {
        &self.stride
    }

    /// The stride, congruent to the shape.
    ///
    /// ```
    /// # use cute_rs::{IntTuple, Layout};
    /// assert_eq!(Layout::flat(&[4, 8], &[8, 1])?.stride(), IntTuple::from((8, 1)));
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    pub const fn stride(&self) -> IntTuple {
        self.stride
    }

    /// Number of modes.
    ///
    /// ```
    /// # use cute_rs::Layout;
    /// assert_eq!(Layout::flat(&[4, 8], &[8, 1])?.rank(), 2);
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    pub const fn rank(&self) -> usize {
        self.shape.rank()
    }

    /// Levels of nesting of the modes: 0 for an integer layout, 1 for a flat one.
    ///
    /// ```
    /// # use cute_rs::Layout;
    /// assert_eq!(Layout::flat(&[4, 8], &[8, 1])?.group(0, 2)?.depth(), 2);
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    pub const fn depth(&self) -> usize {
        self.shape.depth()
    }

    /// Mode `i` as its own layout.
    ///
    /// ```
    /// # use cute_rs::Layout;
    /// assert_eq!(Layout::flat(&[4, 8], &[8, 1])?.mode(1).to_string(), "8:1");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    pub const fn mode(&self, i: usize) -> Self {
        Self { shape: self.shape.mode(i), stride: self.stride.mode(i) }
    }

    /// Number of coordinates.
    ///
    /// ```
    /// # use cute_rs::Layout;
    /// assert_eq!(Layout::flat(&[4, 8], &[100, 1])?.size(), 32);
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    pub const fn size(&self) -> i64 {
        self.shape.size()
    }

    /// One past the largest offset: the number of elements that an array needs if the layout starts at its
    /// offset 0.
    ///
    /// ```
    /// # use cute_rs::Layout;
    /// assert_eq!(Layout::flat(&[4, 8], &[100, 1])?.cosize(), 3 * 100 + 7 + 1);
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    pub const fn cosize(&self) -> i64 {
        let mut last = 0;
        each!(i, 0..self.shape.len(), {
            let reach = (self.shape.leaf(i) - 1) * self.stride.leaf(i);
            if reach > 0 {
                last += reach;
            }
        });
        last + 1
    }

    /// The offset of an integer coordinate: `sum over leaves of c_i * d_i`. Here `c_i` are the digits of
    /// `coord` in the mixed radix of the shape, leftmost first.
    ///
    /// For a coordinate beyond the size, the digit of the last leaf exceeds its extent. A negative coordinate
    /// has negative digits: `L(-c) = -L(c)`. Offsets of coordinates that far out may wrap around.
    ///
    /// ```
    /// # use cute_rs::Layout;
    /// let rows = Layout::flat(&[2, 3], &[3, 1])?;
    /// assert_eq!([0, 1, 2, 3].map(|i| rows.at(i)), [0, 3, 1, 4]);
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    pub const fn at(&self, coord: i64) -> i64 {
        let mut rest = coord;
        let mut offset: i64 = 0;
        each!(i, 0..self.shape.len(), {
            let digit = if i + 1 == self.shape.len() { rest } else { rest % self.shape.leaf(i) };
            offset = offset.wrapping_add(digit.wrapping_mul(self.stride.leaf(i)));
            rest /= self.shape.leaf(i);
        });
        offset
    }

    /// The offset at one integer coordinate per mode. Missing coordinates count as zero.
    ///
    /// ```
    /// # use cute_rs::Layout;
    /// assert_eq!(Layout::flat(&[2, 3], &[3, 1])?.at_modes(&[1, 2]), 5);
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    pub const fn at_modes(&self, coords: &[i64]) -> i64 {
        let mut offset: i64 = 0;
        let mut i = 0;
        let rank = self.rank();
        while i < coords.len() && i < rank {
            offset = offset.wrapping_add(self.mode(i).at(coords[i]));
            i += 1;
        }
        offset
    }

    /// The offset of a coordinate with the nesting of the shape or a coarser one.
    ///
    /// ```
    /// # use cute_rs::{IntTuple, Layout};
    /// let layout = Layout::new(IntTuple::from((4, (2, 3))), IntTuple::from((6, (3, 1))))?;
    /// assert_eq!(layout.at_coord(&IntTuple::from((3, (1, 2))))?, 3 * 6 + 3 + 2);
    /// assert_eq!(layout.at_coord(&IntTuple::from((3, 5)))?, 3 * 6 + 3 + 2);
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Rank`] where the coordinate has a tuple for an integer mode, or a tuple of another
    /// rank.
    pub const fn at_coord(&self, coord: &IntTuple) -> Result<i64, LayoutError> {
        if coord.is_int() {
            return Ok(self.at(coord.leaf(0)));
        }
        if self.shape.is_int() || coord.rank() != self.rank() {
            return Err(LayoutError::Rank { needed: self.rank(), given: coord.rank() });
        }
        let mut offset: i64 = 0;
        each!(i, 0..self.rank(), {
            offset = offset.wrapping_add(ok!(self.mode(i).at_coord(&coord.mode(i))));
        });
        Ok(offset)
    }

    /// Converts an integer coordinate to the coordinate with the nesting of the shape.
    ///
    /// ```
    /// # use cute_rs::Layout;
    /// assert_eq!(Layout::flat(&[4, 8], &[8, 1])?.coord(14).to_string(), "(2,3)");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    pub const fn coord(&self, coord: i64) -> IntTuple {
        self.shape.idx2crd(coord)
    }

    /// The same function of integer coordinates, with all nesting removed.
    ///
    /// ```
    /// # use cute_rs::{IntTuple, Layout};
    /// let layout = Layout::new(IntTuple::from((4, (2, 3))), IntTuple::from((6, (3, 1))))?;
    /// assert_eq!(layout.flatten().to_string(), "(4,2,3):(6,3,1)");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    pub const fn flatten(&self) -> Self {
        Self { shape: self.shape.flatten(), stride: self.stride.flatten() }
    }

    /// Groups modes `begin..end` into one mode: `group(1, 3)` makes `(A,(B,C),D)` of `(A,B,C,D)`. The
    /// function of integer coordinates does not change: `R(i) = L(i)`.
    ///
    /// ```
    /// # use cute_rs::Layout;
    /// let layout = Layout::flat(&[2, 3, 5, 7], &[1, 2, 6, 30])?;
    /// assert_eq!(layout.group(1, 3)?.to_string(), "(2,(3,5),7):(1,(2,6),30)");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Rank`] if `end` is beyond the rank; [`LayoutError::EmptyMode`] unless `begin < end`.
    pub const fn group(&self, begin: usize, end: usize) -> Result<Self, LayoutError> {
        let (shape, stride) = (ok!(self.shape.group(begin, end)), ok!(self.stride.group(begin, end)));
        Ok(Self { shape, stride })
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.shape, self.stride)
    }
}

impl fmt::Debug for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;
    use std::vec::Vec;

    fn layout(shape: impl Into<IntTuple>, stride: impl Into<IntTuple>) -> Layout {
        Layout::new(shape.into(), stride.into()).unwrap()
    }

    #[test]
    fn only_congruent_positive_layouts_exist() {
        let (flat, nested): (IntTuple, IntTuple) = ((2, 3).into(), ((2, 3),).into());
        let zero = (2, 0).into();
        for (why, shape, stride, want) in [
            ("another nesting", flat, nested, LayoutError::Congruence { shape: flat, stride: nested }),
            ("another rank", flat, 6.into(), LayoutError::Congruence { shape: flat, stride: 6.into() }),
            ("an extent of 0", zero, flat, LayoutError::Extent { shape: zero }),
        ] {
            assert_eq!(Layout::new(shape, stride), Err(want), "{why}");
        }
    }

    #[test]
    fn compact_layouts() {
        let shape = IntTuple::from((2, (3, 4), 5));
        assert_eq!(Layout::column_major(shape).unwrap().to_string(), "(2,(3,4),5):(1,(2,6),24)");
        assert_eq!(Layout::row_major(shape).unwrap().to_string(), "(2,(3,4),5):(60,(20,5),1)");
    }

    #[test]
    fn offsets_and_extents() {
        for (why, layout, size, cosize, offsets) in [
            ("padded rows", layout((2, 2), (8, 1)), 4, 10, &[0, 8, 1, 9][..]),
            ("a broadcast", layout((2, 2), (0, 3)), 4, 4, &[0, 0, 3, 3]),
            ("backwards", layout(3, -2), 3, 1, &[0, -2, -4]),
            ("nested", layout((2, (2, 2)), (4, (2, 1))), 8, 8, &[0, 4, 2, 6, 1, 5, 3, 7]),
            (
                "beyond the size the last leaf goes on",
                layout((2, 2), (1, 10)),
                4,
                12,
                &[0, 1, 10, 11, 20, 21],
            ),
            ("a point", layout(IntTuple::EMPTY, IntTuple::EMPTY), 1, 1, &[0]),
        ] {
            assert_eq!((layout.size(), layout.cosize()), (size, cosize), "{why}");
            let got: Vec<_> = (0..).take(offsets.len()).map(|i| layout.at(i)).collect();
            assert_eq!(got, offsets, "{why}");
        }
    }

    #[test]
    fn coordinates_may_be_nested_as_deeply_as_the_shape() {
        let layout = layout((4, (2, 3)), (6, (3, 1)));
        for (why, coord, want) in [
            ("an integer", IntTuple::int(4 + 3), Ok(3 * 6 + 3)),
            ("one a mode", (3, 5).into(), Ok(3 * 6 + 3 + 2)),
            ("one a leaf", (3, (1, 2)).into(), Ok(3 * 6 + 3 + 2)),
            ("too deep", ((1, 2), 3).into(), Err(LayoutError::Rank { needed: 1, given: 2 })),
            ("too many", (1, 2, 3).into(), Err(LayoutError::Rank { needed: 2, given: 3 })),
        ] {
            assert_eq!(layout.at_coord(&coord), want, "{why}");
        }
        for i in 0..layout.size() {
            let coord = layout.coord(i);
            assert!(coord.congruent(&layout.shape()));
            assert_eq!(layout.at_coord(&coord), Ok(layout.at(i)), "{coord} is coordinate {i}");
        }
    }

    #[test]
    fn modes_are_grouped_and_sliced() {
        let layout = layout((2, 3, (4, 5)), (60, 20, (5, 1)));
        for (why, begin, end, want) in [
            ("a pair", 0, 2, Ok("((2,3),(4,5)):((60,20),(5,1))")),
            ("a nested pair", 1, 3, Ok("(2,(3,(4,5))):(60,(20,(5,1)))")),
            ("all", 0, 3, Ok("((2,3,(4,5))):((60,20,(5,1)))")),
            ("one", 1, 2, Ok("(2,(3),(4,5)):(60,(20),(5,1))")),
            ("none", 1, 1, Err(LayoutError::EmptyMode { mode: 1 })),
            ("too many", 1, 4, Err(LayoutError::Rank { needed: 4, given: 3 })),
        ] {
            assert_eq!(layout.group(begin, end).map(|r| r.to_string()), want.map(Into::into), "{why}");
        }
        for (why, coord, want) in [
            ("two are fixed", &[Some(1), None, Some(6)][..], Ok(("(3):(20)", 60 + 2 * 5 + 1))),
            ("all are fixed", &[Some(0), Some(2), Some(0)], Ok(("():()", 40))),
            ("none is fixed", &[None; 3], Ok(("(2,3,(4,5)):(60,20,(5,1))", 0))),
            ("too few", &[None], Err(LayoutError::Rank { needed: 3, given: 1 })),
        ] {
            let got = layout.slice(coord).map(|(rest, offset)| (rest.to_string(), offset));
            assert_eq!(got, want.map(|(text, offset)| (text.into(), offset)), "{why}");
        }
    }
}
