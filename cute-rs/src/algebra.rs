//! The algebra: new layouts from old, each operation with the equation it satisfies.

mod tiling;

use crate::error::LayoutError;
use crate::int_tuple::{IntTuple, MAX_LEAVES};
use crate::layout::Layout;

/// A flat list of modes that an operation collects its result in.
#[derive(Clone, Copy)]
struct Modes {
    shape: [i64; MAX_LEAVES],
    stride: [i64; MAX_LEAVES],
    len: usize,
}

impl Modes {
    const fn new() -> Self {
        Self { shape: [1; MAX_LEAVES], stride: [0; MAX_LEAVES], len: 0 }
    }

    const fn push(mut self, shape: i64, stride: i64) -> Result<Self, LayoutError> {
        if self.len == MAX_LEAVES {
            return Err(LayoutError::Capacity { leaves: self.len + 1 });
        }
        self.shape[self.len] = shape;
        self.stride[self.len] = stride;
        self.len += 1;
        Ok(self)
    }

    /// `1:0`, `s:d`, or the flat tuple.
    const fn layout(&self) -> Result<Layout, LayoutError> {
        match self.len {
            0 => Ok(Layout::leaf(1, 0)),
            1 => Ok(Layout::leaf(self.shape[0], self.stride[0])),
            len => Layout::flat(self.shape.split_at(len).0, self.stride.split_at(len).0),
        }
    }
}

impl Layout {
    /// The same function with as few leaves as it takes: `R(i) = L(i)` for every `i < size(L)`, and
    /// `depth(R) <= 1`.
    ///
    /// ```
    /// # use cute_rs::{IntTuple, Layout};
    /// let layout = Layout::new(IntTuple::from((2, (1, 6))), IntTuple::from((1, (6, 2))))?;
    /// assert_eq!(layout.coalesce().to_string(), "12:1");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    pub const fn coalesce(&self) -> Self {
        self.merged(false)
    }

    /// Coalesces. `endless` keeps a last leaf of extent 1, so that `R(i) = L(i)` also from `size(L)` on, where the
    /// last leaf goes on.
    const fn merged(&self, endless: bool) -> Self {
        let (shape, stride) = (self.shape(), self.stride());
        let mut modes = Modes::new();
        let mut i = 0;
        while i < shape.len() {
            let (s, d) = (shape.leaf(i), stride.leaf(i));
            let last = modes.len.saturating_sub(1);
            if s == 1 && !(endless && i + 1 == shape.len()) {
                // Nothing to add.
            } else if modes.len > 0 && modes.shape[last] * modes.stride[last] == d {
                modes.shape[last] *= s;
            } else {
                modes.shape[modes.len] = s;
                modes.stride[modes.len] = d;
                modes.len += 1;
            }
            i += 1;
        }
        match modes.layout() {
            Ok(layout) => layout,
            Err(_) => *self,
        }
    }

    /// `R = A o B`: `R(c) = A(B(c))` for every coordinate `c` of B, and the shape of R refines B's. Where B reaches
    /// beyond the size of A, the last leaf of A goes on, as in [`Layout::at`].
    ///
    /// ```
    /// # use cute_rs::Layout;
    /// let a = Layout::flat(&[6, 2], &[8, 2])?;
    /// let b = Layout::flat(&[4, 3], &[3, 1])?;
    /// assert_eq!(a.composition(&b)?.to_string(), "((2,2),3):((24,2),8)");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::StrideDivisibility`] or [`LayoutError::ShapeDivisibility`] where a mode of B would cut
    /// across a mode of A; [`LayoutError::Carry`] where the sum of several modes of B would;
    /// [`LayoutError::NegativeStride`] for a negative stride in B; [`LayoutError::Capacity`] where the result has
    /// too many leaves.
    pub const fn composition(&self, b: &Self) -> Result<Self, LayoutError> {
        let a = self.merged(true);
        let mut reach = [0; MAX_LEAVES];
        let composed = match compose(&a, b, &mut reach) {
            Ok(composed) => composed,
            Err(error) => return Err(error),
        };
        // A is linear along one of its modes, so the parts of B may be added up as long as nothing is carried.
        let mut i = 0;
        while i + 1 < a.shape().len() {
            let extent = a.shape().leaf(i);
            if reach[i] >= extent {
                return Err(LayoutError::Carry { extent, reach: reach[i] });
            }
            i += 1;
        }
        Ok(composed)
    }

    /// The layout of what L leaves out up to `cotarget`: together with L it reaches every offset below
    /// `cotarget` once. That is: sums of an offset of L and one of R are all different, R is increasing, and
    /// `cosize((L,R)) >= cotarget`. Modes of stride 0 do not count as part of L.
    ///
    /// ```
    /// # use cute_rs::Layout;
    /// assert_eq!(Layout::flat(&[2, 2], &[1, 6])?.complement(24)?.to_string(), "(3,2):(2,12)");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::NotInjective`] where L repeats offsets or its modes interleave;
    /// [`LayoutError::NegativeStride`]; [`LayoutError::Capacity`] for a layout of [`MAX_LEAVES`] modes.
    pub const fn complement(&self, cotarget: i64) -> Result<Self, LayoutError> {
        let (shape, stride) = (self.shape(), self.stride());
        let mut taken = [false; MAX_LEAVES];
        let mut modes = Modes::new();
        let mut reach = 1;
        loop {
            // The smallest stride that is left.
            let mut best = MAX_LEAVES;
            let mut i = 0;
            while i < shape.len() {
                let skip = taken[i] || shape.leaf(i) == 1 || stride.leaf(i) == 0;
                if !skip && (best == MAX_LEAVES || stride.leaf(i) < stride.leaf(best)) {
                    best = i;
                }
                i += 1;
            }
            if best == MAX_LEAVES {
                break;
            }
            taken[best] = true;
            let (s, d) = (shape.leaf(best), stride.leaf(best));
            if d < 0 {
                return Err(LayoutError::NegativeStride { stride: d });
            }
            if d < reach || d % reach != 0 {
                return Err(LayoutError::NotInjective { stride: d, reach });
            }
            modes = match modes.push(d / reach, reach) {
                Ok(modes) => modes,
                Err(error) => return Err(error),
            };
            reach = d * s;
        }
        let rest = (cotarget + reach - 1) / reach;
        let modes = match modes.push(if rest < 1 { 1 } else { rest }, reach) {
            Ok(modes) => modes,
            Err(error) => return Err(error),
        };
        match modes.layout() {
            Ok(layout) => Ok(layout.coalesce()),
            Err(error) => Err(error),
        }
    }

    /// The inverse on the run of offsets `0, 1, 2, …` that modes of L build up, each beginning where the one before
    /// ends: `L(R(i)) = i` for `i < size(R)`. If L is a permutation, the run is all of it.
    ///
    /// ```
    /// # use cute_rs::Layout;
    /// let rows = Layout::flat(&[4, 8], &[8, 1])?;
    /// assert_eq!(rows.right_inverse()?.to_string(), "(8,4):(4,1)");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// None today; the `Result` leaves room for layouts that are refused.
    pub const fn right_inverse(&self) -> Result<Self, LayoutError> {
        let flat = self.coalesce();
        let (shape, stride) = (flat.shape(), flat.stride());
        let mut modes = Modes::new();
        let mut reach = 1;
        loop {
            // The mode that begins where the run ends, and the integer coordinate that steps along it.
            let mut i = 0;
            let mut step = 1;
            while i < shape.len() && stride.leaf(i) != reach {
                step *= shape.leaf(i);
                i += 1;
            }
            if i == shape.len() {
                break;
            }
            modes = match modes.push(shape.leaf(i), step) {
                Ok(modes) => modes,
                Err(error) => return Err(error),
            };
            reach *= shape.leaf(i);
        }
        match modes.layout() {
            Ok(layout) => Ok(layout.coalesce()),
            Err(error) => Err(error),
        }
    }

    /// The inverse of an injective L: `R(L(i)) = i` for every `i < size(L)`. Offsets that L leaves out are mapped
    /// to coordinates from `size(L)` on.
    ///
    /// ```
    /// # use cute_rs::Layout;
    /// let padded = Layout::flat(&[4, 3], &[1, 8])?;
    /// let inverse = padded.left_inverse()?;
    /// assert_eq!(inverse.to_string(), "(4,2,3):(1,12,4)");
    /// assert_eq!(inverse.at(padded.at(7)), 7);
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::NotInjective`] where L repeats an offset, and those of [`Layout::complement`].
    pub const fn left_inverse(&self) -> Result<Self, LayoutError> {
        let mut i = 0;
        while i < self.shape().len() {
            if self.shape().leaf(i) > 1 && self.stride().leaf(i) == 0 {
                return Err(LayoutError::NotInjective { stride: 0, reach: 1 });
            }
            i += 1;
        }
        let flat = self.coalesce();
        let rest = match flat.complement(flat.cosize()) {
            Ok(rest) => rest,
            Err(error) => return Err(error),
        };
        // With its complement L is a permutation, and the right inverse of a permutation is its inverse.
        match Self::concat(&[flat, rest]) {
            Ok(permutation) => permutation.right_inverse(),
            Err(error) => Err(error),
        }
    }
}

/// `A o B` for a coalesced A, over the nesting of B. Adds to `reach` how far B walks along each mode of A.
const fn compose(a: &Layout, b: &Layout, reach: &mut [i64; MAX_LEAVES]) -> Result<Layout, LayoutError> {
    if b.shape().is_int() {
        return compose_leaf(a, b.shape().leaf(0), b.stride().leaf(0), reach);
    }
    let mut modes = [Layout::leaf(1, 0); MAX_LEAVES];
    let mut i = 0;
    while i < b.rank() {
        modes[i] = match compose(a, &b.mode(i), reach) {
            Ok(mode) => mode,
            Err(error) => return Err(error),
        };
        i += 1;
    }
    Layout::concat(modes.split_at(b.rank()).0)
}

/// `A o (s:d)`: walks through A's modes, first past the `d` coordinates that are stepped over, then taking the
/// `s` that are visited.
const fn compose_leaf(
    a: &Layout,
    s: i64,
    d: i64,
    reach: &mut [i64; MAX_LEAVES],
) -> Result<Layout, LayoutError> {
    if d < 0 {
        return Err(LayoutError::NegativeStride { stride: d });
    }
    if d == 0 || s == 1 {
        return Ok(Layout::leaf(s, 0));
    }
    let (shape, stride) = (a.shape(), a.stride());
    let mut modes = Modes::new();
    let (mut visited, mut stepped) = (s, d);
    let mut i = 0;
    while visited > 1 {
        let extent = shape.leaf(i);
        let walked = (visited - 1) * stepped;
        let taken = if walked < extent || i + 1 == shape.len() {
            visited
        } else if stepped % extent == 0 {
            1
        } else if extent % stepped != 0 {
            return Err(LayoutError::StrideDivisibility { shape: extent, stride: stepped });
        } else if visited % (extent / stepped) != 0 {
            return Err(LayoutError::ShapeDivisibility { offered: extent / stepped, wanted: visited });
        } else {
            extent / stepped
        };
        if taken > 1 {
            reach[i] += (taken - 1) * stepped;
            modes = match modes.push(taken, stepped * stride.leaf(i)) {
                Ok(modes) => modes,
                Err(error) => return Err(error),
            };
            visited /= taken;
        }
        stepped = if stepped % extent == 0 { stepped / extent } else { 1 };
        i += 1;
    }
    modes.layout()
}

/// `(a, b)`.
pub(crate) const fn pair(a: IntTuple, b: IntTuple) -> Result<IntTuple, LayoutError> {
    IntTuple::tuple(&[a, b])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    fn layout(shape: impl Into<IntTuple>, stride: impl Into<IntTuple>) -> Layout {
        Layout::new(shape.into(), stride.into()).unwrap()
    }

    #[test]
    fn coalesce_merges_what_continues() {
        for (why, layout, want) in [
            ("a gap stays", layout((2, 6), (1, 4)), "(2,6):(1,4)"),
            ("continuing modes merge", layout((2, 6), (1, 2)), "12:1"),
            ("extent 1 vanishes whatever its stride", layout((2, (1, 6)), (1, (6, 2))), "12:1"),
            ("nothing but extent 1", layout((1, 1), (3, 5)), "1:0"),
            ("broadcasts merge", layout((2, 3), (0, 0)), "6:0"),
            ("order matters", layout((4, 8), (8, 1)), "(4,8):(8,1)"),
            ("a broken run in the middle", layout((2, 2, 2, 2), (1, 2, 8, 16)), "(4,4):(1,8)"),
            ("the empty layout is a point", layout(IntTuple::EMPTY, IntTuple::EMPTY), "1:0"),
        ] {
            assert_eq!(layout.coalesce().to_string(), want, "{why}");
        }
    }

    #[test]
    fn composition_where_it_exists() {
        for (why, a, b, want) in [
            ("modes split", layout((6, 2), (8, 2)), layout((4, 3), (3, 1)), "((2,2),3):((24,2),8)"),
            ("reshape a line to row-major", layout(20, 2), layout((5, 4), (4, 1)), "(5,4):(8,2)"),
            ("a mode's head", layout((10, 2), (16, 4)), layout((5, 4), (1, 5)), "(5,(2,2)):(16,(80,4))"),
            ("broadcasts stay", layout((4, 2), (1, 8)), layout((3, 2), (0, 4)), "(3,2):(0,8)"),
            ("a walk that ends inside a mode", layout((6, 2), (8, 2)), layout(2, 4), "2:32"),
            ("stepping over whole modes", layout((3, 4, 2), (1, 10, 100)), layout(2, 12), "2:100"),
            ("beyond the size the last mode goes on", layout((4, 2), (1, 10)), layout(12, 1), "(4,3):(1,10)"),
            ("also a last mode of extent 1", layout((4, 1), (1, 10)), layout(8, 1), "(4,2):(1,10)"),
            ("A may run backwards", layout((4, 2), (-1, 8)), layout((2, 2), (2, 4)), "(2,2):(-2,8)"),
            ("an integer A", layout(8, 3), layout((2, (2, 2)), (4, (1, 2))), "(2,(2,2)):(12,(3,6))"),
        ] {
            assert_eq!(a.composition(&b).map(|r| r.to_string()), Ok(want.into()), "{why}");
        }
    }

    #[test]
    fn composition_where_it_does_not() {
        let a = layout((6, 2), (8, 2));
        for (why, b, want) in [
            (
                "steps of 4 meet 6 in the middle",
                layout(4, 4),
                LayoutError::StrideDivisibility { shape: 6, stride: 4 },
            ),
            (
                "9 are not whole modes of 6",
                layout(9, 1),
                LayoutError::ShapeDivisibility { offered: 6, wanted: 9 },
            ),
            ("negative steps", layout(2, -1), LayoutError::NegativeStride { stride: -1 }),
            ("a sum that carries", layout((4, 2), (1, 3)), LayoutError::Carry { extent: 6, reach: 6 }),
            (
                "a repeated mode that carries",
                layout((6, 2), (1, 1)),
                LayoutError::Carry { extent: 6, reach: 6 },
            ),
        ] {
            assert_eq!(a.composition(&b), Err(want), "{why}");
        }
    }

    #[test]
    fn complement_fills_the_gaps() {
        for (why, a, cotarget, want) in [
            ("after a run", layout(4, 1), 24, "6:4"),
            ("between the elements", layout(6, 4), 24, "4:1"),
            ("nothing is left", layout((4, 6), (1, 4)), 24, "1:0"),
            ("between and after", layout((2, 2), (1, 6)), 24, "(3,2):(2,12)"),
            ("modes in any order", layout((2, 4), (1, 6)).group(0, 2).unwrap(), 24, "3:2"),
            ("a broadcast does not count", layout((4, 3), (1, 0)), 8, "2:4"),
            ("rounded up to whole copies", layout(4, 1), 10, "3:4"),
            ("a point", layout(1, 0), 5, "5:1"),
            ("a target within the layout", layout(4, 2), 3, "2:1"),
        ] {
            assert_eq!(a.complement(cotarget).map(|r| r.to_string()), Ok(want.into()), "{why}");
        }
        for (why, a, want) in [
            ("twice the same", layout((2, 2), (1, 1)), LayoutError::NotInjective { stride: 1, reach: 2 }),
            ("interleaved", layout((2, 2), (1, 3)), LayoutError::NotInjective { stride: 3, reach: 2 }),
            ("backwards", layout(2, -1), LayoutError::NegativeStride { stride: -1 }),
        ] {
            assert_eq!(a.complement(8), Err(want), "{why}");
        }
    }

    #[test]
    fn inverses() {
        for (why, a, want) in [
            ("row-major", layout((4, 8), (8, 1)), "(8,4):(4,1)"),
            ("column-major is its own inverse", layout((4, 8), (1, 4)), "32:1"),
            ("the run ends at a gap", layout((4, 2), (1, 8)), "4:1"),
            ("no offset 1, no run", layout(4, 2), "1:0"),
            ("a broadcast is stepped over", layout((3, 4), (0, 1)), "4:3"),
        ] {
            assert_eq!(a.right_inverse().map(|r| r.to_string()), Ok(want.into()), "right: {why}");
        }
        for (why, a, want) in [
            ("row-major", layout((4, 8), (8, 1)), Ok("(8,4):(4,1)")),
            ("a gap", layout(4, 2), Ok("(2,4):(4,1)")),
            ("a point", layout(1, 7), Ok("1:0")),
            ("a broadcast", layout((3, 4), (0, 1)), Err(LayoutError::NotInjective { stride: 0, reach: 1 })),
            ("a repetition", layout((2, 2), (1, 1)), Err(LayoutError::NotInjective { stride: 1, reach: 2 })),
        ] {
            assert_eq!(a.left_inverse().map(|r| r.to_string()), want.map(Into::into), "left: {why}");
        }
    }
}
