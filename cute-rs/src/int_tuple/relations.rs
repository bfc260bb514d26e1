//! Relations between shapes: the same nesting, or one that refines another.

use super::IntTuple;

impl IntTuple {
    /// Whether both tuples have the same nesting, such as `(2,(3,4))` and `(5,(6,7))`.
    ///
    /// ```
    /// # use cute_rs::IntTuple;
    /// assert!(IntTuple::from((2, (3, 4))).congruent(&IntTuple::from((5, (6, 7)))));
    /// assert!(!IntTuple::from((2, 12)).congruent(&IntTuple::from((5, (6, 7)))));
    /// ```
    pub const fn congruent(&self, other: &Self) -> bool {
        each!(i, 0..self.len(), {
            if self.opens[i] != other.opens[i] || self.closes[i] != other.closes[i] {
                return false;
            }
        });
        self.len == other.len
    }

    /// Whether `other` refines `self` mode by mode: where `self` has an integer, `other` may have any tuple.
    ///
    /// ```
    /// # use cute_rs::IntTuple;
    /// assert!(IntTuple::from((2, 9)).weakly_congruent(&IntTuple::from((5, (6, 7)))));
    /// assert!(!IntTuple::from((5, (6, 7))).weakly_congruent(&IntTuple::from((2, 9))));
    /// ```
    pub const fn weakly_congruent(&self, other: &Self) -> bool {
        self.refined_by(other, false)
    }

    /// Whether every coordinate of the shape `self` is also a coordinate of the shape `other`: the sizes
    /// agree wherever `self` has an integer.
    ///
    /// ```
    /// # use cute_rs::IntTuple;
    /// let shape = IntTuple::from((4, (2, 3)));
    /// assert!(IntTuple::int(24).compatible(&shape) && IntTuple::from((4, 6)).compatible(&shape));
    /// assert!(!IntTuple::from((6, 4)).compatible(&shape));
    /// ```
    pub const fn compatible(&self, other: &Self) -> bool {
        self.refined_by(other, true)
    }

    const fn refined_by(&self, other: &Self, sizes: bool) -> bool {
        if self.is_int() {
            return !sizes || matches!(other.checked_product(), Some(size) if size == self.leaves[0]);
        }
        if other.is_int() || self.rank() != other.rank() {
            return false;
        }
        each!(i, 0..self.rank(), {
            if !self.mode(i).refined_by(&other.mode(i), sizes) {
                return false;
            }
        });
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relations_of_shapes() {
        let cases = [
            ("the same nesting", IntTuple::from((2, (3, 4))), IntTuple::from((5, (6, 7))), true, true, false),
            (
                "an integer is refined by what has its size",
                IntTuple::int(12),
                IntTuple::from((3, 4)),
                false,
                true,
                true,
            ),
            (
                "an integer is refined in part",
                IntTuple::from((2, 12)),
                IntTuple::from((2, (3, 4))),
                false,
                true,
                true,
            ),
            (
                "a tuple is not refined by an integer",
                IntTuple::from((3, 4)),
                IntTuple::int(12),
                false,
                false,
                false,
            ),
            ("another rank", IntTuple::from((2, 3)), IntTuple::from((2, 3, 1)), false, false, false),
            ("itself", IntTuple::from((2, (3, 4))), IntTuple::from((2, (3, 4))), true, true, true),
            (
                "the outer parentheses differ",
                IntTuple::from(((2, 3), 4)),
                IntTuple::from((2, (3, 4))),
                false,
                false,
                false,
            ),
        ];
        for (why, a, b, congruent, weakly, compatible) in cases {
            assert_eq!(a.congruent(&b), congruent, "{why}");
            assert_eq!(a.weakly_congruent(&b), weakly, "{why}");
            assert_eq!(a.compatible(&b), compatible, "{why}");
        }
    }
}
