//! Complements: the offsets that a layout leaves out.

use super::Modes;
use crate::error::LayoutError;
use crate::int_tuple::MAX_LEAVES;
use crate::int_tuple::div_up;
use crate::layout::Layout;

impl Layout {
    /// The layout of the offsets that L leaves out: together with L it reaches every offset below `cotarget`
    /// once. More precisely, all sums of an offset of L and an offset of R are different, R is increasing,
    /// and `cosize((L,R)) >= cotarget`. Modes of stride 0 do not count as part of L.
    ///
    /// ```
    /// # use cute_rs::Layout;
    /// assert_eq!(Layout::flat(&[2, 2], &[1, 6])?.complement(24)?.to_string(), "(3,2):(2,12)");
    /// assert_eq!(Layout::flat(&[2, 4], &[1, 6])?.complement(24)?.to_string(), "3:2");
    /// assert_eq!(Layout::flat(&[4], &[2])?.complement(24)?.to_string(), "(2,3):(1,8)"); // The gaps, then copies.
    /// assert_eq!(Layout::flat(&[4, 6], &[1, 4])?.complement(24)?.to_string(), "1:0"); // Nothing is left out.
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::NotInjective`] if L repeats offsets or its modes interleave;
    /// [`LayoutError::NegativeStride`]; [`LayoutError::Overflow`]; [`LayoutError::Capacity`] for a layout of
    /// [`MAX_LEAVES`] modes.
    pub const fn complement(&self, cotarget: i64) -> Result<Self, LayoutError> {
        let (shape, stride) = (self.shape_ref(), self.stride_ref());
        let mut taken = [false; MAX_LEAVES];
        let mut modes = Modes::new();
        let mut reach: i64 = 1;
        loop {
            // The smallest remaining stride.
            let mut best = MAX_LEAVES;
            each!(i, 0..shape.len(), {
                let skip = taken[i] || shape.leaf(i) == 1 || stride.leaf(i) == 0;
                if !skip && (best == MAX_LEAVES || stride.leaf(i) < stride.leaf(best)) {
                    best = i;
                }
            });
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
            if d > reach {
                ok!(modes.push(d / reach, reach, 0));
            }
            reach = d.saturating_mul(s);
        }
        let rest = div_up(cotarget, reach);
        if rest > 1 {
            ok!(modes.push(rest, reach, 0));
        }
        modes.layout()
    }

    /// The layout of the gaps in L: [`complement`](Self::complement) up to `cosize(L)`.
    ///
    /// ```
    /// # use cute_rs::Layout;
    /// assert_eq!(Layout::flat(&[2, 2], &[1, 6])?.complement_all()?.to_string(), "3:2");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`complement`](Self::complement).
    pub const fn complement_all(&self) -> Result<Self, LayoutError> {
        self.complement(self.cosize())
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
}
