//! Layouts: functions from coordinates to offsets, given by a shape and a congruent stride.

use core::fmt;

use crate::error::LayoutError;
use crate::int_tuple::{IntTuple, MAX_LEAVES};

/// A function from coordinates to offsets, written `shape:stride`, such as `(4,(2,2)):(2,(1,8))`.
///
/// A coordinate is an integer below [`size`](Layout::size), read with the leftmost leaf varying fastest, or a
/// tuple of one coordinate a mode. The offset is the sum of leaf coordinates times leaf strides. Strides may be
/// zero or negative.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Layout {
    shape: IntTuple,
    stride: IntTuple,
}

impl Layout {
    /// The layout `shape:stride`.
    ///
    /// # Errors
    /// [`LayoutError::Congruence`] where the nesting differs, [`LayoutError::Extent`] for an extent below 1.
    pub const fn new(shape: IntTuple, stride: IntTuple) -> Result<Self, LayoutError> {
        if !shape.congruent(&stride) {
            return Err(LayoutError::Congruence { shape, stride });
        }
        let mut i = 0;
        while i < shape.len() {
            if shape.leaf(i) < 1 {
                return Err(LayoutError::Extent { shape });
            }
            i += 1;
        }
        Ok(Self { shape, stride })
    }

    /// The flat layout `(s0,s1,…):(d0,d1,…)`.
    ///
    /// # Errors
    /// As [`Layout::new`]; [`LayoutError::Capacity`] above [`MAX_LEAVES`] modes.
    pub const fn flat(shape: &[i64], stride: &[i64]) -> Result<Self, LayoutError> {
        match (IntTuple::flat(shape), IntTuple::flat(stride)) {
            (Ok(shape), Ok(stride)) => Self::new(shape, stride),
            (Err(error), _) | (_, Err(error)) => Err(error),
        }
    }

    /// `n:d`.
    pub(crate) const fn leaf(shape: i64, stride: i64) -> Self {
        Self { shape: IntTuple::int(shape), stride: IntTuple::int(stride) }
    }

    /// Compact, the leftmost leaf contiguous: `(2,3):(1,2)`.
    ///
    /// # Errors
    /// [`LayoutError::Extent`] for an extent below 1.
    pub const fn column_major(shape: IntTuple) -> Result<Self, LayoutError> {
        let mut strides = [0; MAX_LEAVES];
        let mut stride = 1;
        let mut i = 0;
        while i < shape.len() {
            strides[i] = stride;
            stride *= shape.leaf(i);
            i += 1;
        }
        Self::new(shape, shape.with_leaves(&strides))
    }

    /// Compact, the rightmost leaf contiguous: `(2,3):(3,1)`.
    ///
    /// # Errors
    /// [`LayoutError::Extent`] for an extent below 1.
    pub const fn row_major(shape: IntTuple) -> Result<Self, LayoutError> {
        let mut strides = [0; MAX_LEAVES];
        let mut stride = 1;
        let mut i = shape.len();
        while i > 0 {
            i -= 1;
            strides[i] = stride;
            stride *= shape.leaf(i);
        }
        Self::new(shape, shape.with_leaves(&strides))
    }

    /// Layouts side by side as the modes of one: `(A,B)`.
    ///
    /// # Errors
    /// [`LayoutError::Capacity`] above [`MAX_LEAVES`] leaves.
    pub const fn concat(modes: &[Self]) -> Result<Self, LayoutError> {
        let mut shapes = [IntTuple::EMPTY; MAX_LEAVES];
        let mut strides = [IntTuple::EMPTY; MAX_LEAVES];
        if modes.len() > MAX_LEAVES {
            return Err(LayoutError::Capacity { leaves: modes.len() });
        }
        let mut i = 0;
        while i < modes.len() {
            shapes[i] = modes[i].shape;
            strides[i] = modes[i].stride;
            i += 1;
        }
        let (shapes, strides) = (shapes.split_at(modes.len()).0, strides.split_at(modes.len()).0);
        match (IntTuple::tuple(shapes), IntTuple::tuple(strides)) {
            (Ok(shape), Ok(stride)) => Ok(Self { shape, stride }),
            (Err(error), _) | (_, Err(error)) => Err(error),
        }
    }

    /// The shape.
    pub const fn shape(&self) -> IntTuple {
        self.shape
    }

    /// The stride, congruent to the shape.
    pub const fn stride(&self) -> IntTuple {
        self.stride
    }

    /// Number of modes.
    pub const fn rank(&self) -> usize {
        self.shape.rank()
    }

    /// Nesting of the modes.
    pub const fn depth(&self) -> usize {
        self.shape.depth()
    }

    /// Mode `i` as a layout of its own.
    pub const fn mode(&self, i: usize) -> Self {
        Self { shape: self.shape.mode(i), stride: self.stride.mode(i) }
    }

    /// Number of coordinates.
    pub const fn size(&self) -> i64 {
        self.shape.product()
    }

    /// One past the largest offset: the elements an array needs that the layout addresses from offset 0.
    pub const fn cosize(&self) -> i64 {
        let mut last = 0;
        let mut i = 0;
        while i < self.shape.len() {
            let reach = (self.shape.leaf(i) - 1) * self.stride.leaf(i);
            if reach > 0 {
                last += reach;
            }
            i += 1;
        }
        last + 1
    }

    /// The offset of an integer coordinate: `sum over leaves of c_i * d_i`, where `c_i` are the digits of
    /// `coord` in the mixed radix of the shape, leftmost first. Beyond the size the last leaf goes on.
    ///
    /// ```
    /// # use cute_rs::Layout;
    /// let rows = Layout::flat(&[2, 3], &[3, 1])?;
    /// assert_eq!([0, 1, 2, 3].map(|i| rows.at(i)), [0, 3, 1, 4]);
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    pub const fn at(&self, coord: i64) -> i64 {
        let mut rest = coord;
        let mut offset = 0;
        let mut i = 0;
        while i < self.shape.len() {
            if i + 1 == self.shape.len() {
                offset += rest * self.stride.leaf(i);
            } else {
                offset += rest % self.shape.leaf(i) * self.stride.leaf(i);
                rest /= self.shape.leaf(i);
            }
            i += 1;
        }
        offset
    }

    /// The offset of one integer coordinate a mode; missing coordinates count as zero.
    ///
    /// ```
    /// # use cute_rs::Layout;
    /// assert_eq!(Layout::flat(&[2, 3], &[3, 1])?.at_modes(&[1, 2]), 5);
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    pub const fn at_modes(&self, coords: &[i64]) -> i64 {
        let mut offset = 0;
        let mut i = 0;
        while i < coords.len() && i < self.rank() {
            offset += self.mode(i).at(coords[i]);
            i += 1;
        }
        offset
    }

    /// The offset of a coordinate that is nested like the shape or coarser.
    ///
    /// # Errors
    /// [`LayoutError::Rank`] where a tuple meets an integer mode or another number of modes.
    pub const fn at_coord(&self, coord: &IntTuple) -> Result<i64, LayoutError> {
        if coord.is_int() {
            return Ok(self.at(coord.leaf(0)));
        }
        if self.shape.is_int() || coord.rank() != self.rank() {
            return Err(LayoutError::Rank { needed: self.rank(), given: coord.rank() });
        }
        let mut offset = 0;
        let mut i = 0;
        while i < self.rank() {
            match self.mode(i).at_coord(&coord.mode(i)) {
                Ok(part) => offset += part,
                Err(error) => return Err(error),
            }
            i += 1;
        }
        Ok(offset)
    }

    /// The coordinate, nested like the shape, that an integer coordinate stands for.
    pub const fn coord(&self, coord: i64) -> IntTuple {
        let mut digits = [0; MAX_LEAVES];
        let mut rest = coord;
        let mut i = 0;
        while i < self.shape.len() {
            if i + 1 == self.shape.len() {
                digits[i] = rest;
            } else {
                digits[i] = rest % self.shape.leaf(i);
                rest /= self.shape.leaf(i);
            }
            i += 1;
        }
        self.shape.with_leaves(&digits)
    }

    /// The same function of integer coordinates with all nesting removed.
    pub const fn flatten(&self) -> Self {
        Self { shape: self.shape.flatten(), stride: self.stride.flatten() }
    }

    /// Modes `begin..end` as one mode: `group(1, 3)` makes `(A,(B,C),D)` of `(A,B,C,D)`. The function of integer
    /// coordinates stays: `R(i) = L(i)`.
    ///
    /// ```
    /// # use cute_rs::Layout;
    /// let layout = Layout::flat(&[2, 3, 5, 7], &[1, 2, 6, 30])?;
    /// assert_eq!(layout.group(1, 3)?.to_string(), "(2,(3,5),7):(1,(2,6),30)");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Rank`] where `end` is beyond the rank, [`LayoutError::EmptyMode`] unless `begin < end`.
    pub const fn group(&self, begin: usize, end: usize) -> Result<Self, LayoutError> {
        let rank = self.rank();
        if end > rank {
            return Err(LayoutError::Rank { needed: end, given: rank });
        }
        if begin >= end {
            return Err(LayoutError::EmptyMode { mode: begin });
        }
        let mut modes = [Self::leaf(1, 0); MAX_LEAVES];
        let mut i = 0;
        while i < rank {
            modes[i] = self.mode(i);
            i += 1;
        }
        let group = match Self::concat(modes.split_at(end).0.split_at(begin).1) {
            Ok(group) => group,
            Err(error) => return Err(error),
        };
        modes[begin] = group;
        let mut i = end;
        while i < rank {
            modes[begin + 1 + i - end] = self.mode(i);
            i += 1;
        }
        Self::concat(modes.split_at(rank + 1 - (end - begin)).0)
    }

    /// Fixes some modes: `None` keeps a mode, `Some(c)` evaluates it. Returns the layout of the kept modes and
    /// the offset of the fixed ones: `L(c) = offset + R(kept coordinates)`.
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
    /// [`LayoutError::Rank`] where there is not one entry a mode.
    pub const fn slice(&self, coord: &[Option<i64>]) -> Result<(Self, i64), LayoutError> {
        if coord.len() != self.rank() {
            return Err(LayoutError::Rank { needed: self.rank(), given: coord.len() });
        }
        let mut kept = [Self::leaf(1, 0); MAX_LEAVES];
        let mut count = 0;
        let mut offset = 0;
        let mut i = 0;
        while i < coord.len() {
            match coord[i] {
                None => {
                    kept[count] = self.mode(i);
                    count += 1;
                }
                Some(c) => offset += self.mode(i).at(c),
            }
            i += 1;
        }
        match Self::concat(kept.split_at(count).0) {
            Ok(layout) => Ok((layout, offset)),
            Err(error) => Err(error),
        }
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
