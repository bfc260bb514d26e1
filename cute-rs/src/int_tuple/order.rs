//! Orders and divisibility of integer tuples.

use super::IntTuple;
use super::arithmetic::unsigned_gcd;

impl IntTuple {
    /// Whether every leaf of `self` is below the leaf of `other` at the same place. Use it to test whether a
    /// coordinate is inside a shape. False if the nesting differs.
    ///
    /// `elem_less(a, b)` is `a_i < b_i` for all leaves `i`.
    ///
    /// ```
    /// # use cute_rs::IntTuple;
    /// let shape = IntTuple::from((128, 64));
    /// assert!(IntTuple::from((127, 0)).elem_less(&shape));
    /// assert!(!IntTuple::from((128, 0)).elem_less(&shape));
    /// ```
    pub const fn elem_less(&self, other: &Self) -> bool {
        self.every(other, true)
    }

    /// Whether every leaf of `self` is at most the leaf of `other` at the same place: `a_i <= b_i` for all
    /// leaves `i`. False if the nesting differs.
    ///
    /// ```
    /// # use cute_rs::IntTuple;
    /// assert!(IntTuple::from((4, (2, 1))).elem_leq(&IntTuple::from((4, (3, 1)))));
    /// ```
    pub const fn elem_leq(&self, other: &Self) -> bool {
        self.every(other, false)
    }

    const fn every(&self, other: &Self, strict: bool) -> bool {
        if !self.congruent(other) {
            return false;
        }
        each!(i, 0..self.len(), {
            let (a, b) = (self.leaf(i), other.leaf(i));
            if a > b || strict && a == b {
                return false;
            }
        });
        true
    }

    /// Whether `self` comes before `other` in lexicographic order: at the *first* leaf that differs,
    /// `a_i < b_i`. False if the nesting differs.
    ///
    /// ```
    /// # use cute_rs::IntTuple;
    /// assert!(IntTuple::from((1, 9)).lex_less(&IntTuple::from((2, 0))));
    /// ```
    pub const fn lex_less(&self, other: &Self) -> bool {
        self.congruent(other) && self.first_difference(other, false) < 0
    }

    /// Whether `self` equals `other` or comes before it in lexicographic order.
    ///
    /// ```
    /// # use cute_rs::IntTuple;
    /// assert!(IntTuple::from((1, 9)).lex_leq(&IntTuple::from((1, 9))));
    /// ```
    pub const fn lex_leq(&self, other: &Self) -> bool {
        self.congruent(other) && self.first_difference(other, false) <= 0
    }

    /// Whether `self` comes before `other` in colexicographic order: at the *last* leaf that differs,
    /// `a_i < b_i`. This is the order of integer coordinates. False if the nesting differs.
    ///
    /// ```
    /// # use cute_rs::IntTuple;
    /// assert!(IntTuple::from((9, 1)).colex_less(&IntTuple::from((0, 2))));
    /// ```
    pub const fn colex_less(&self, other: &Self) -> bool {
        self.congruent(other) && self.first_difference(other, true) < 0
    }

    /// Whether `self` equals `other` or comes before it in colexicographic order.
    ///
    /// ```
    /// # use cute_rs::IntTuple;
    /// assert!(IntTuple::from((9, 1)).colex_leq(&IntTuple::from((9, 1))));
    /// ```
    pub const fn colex_leq(&self, other: &Self) -> bool {
        self.congruent(other) && self.first_difference(other, true) <= 0
    }

    /// The sign of `a_i - b_i` at the first leaf that differs, or at the last.
    const fn first_difference(&self, other: &Self, backwards: bool) -> i32 {
        each!(k, 0..self.len(), {
            let i = if backwards { self.len() - 1 - k } else { k };
            let (a, b) = (self.leaf(i), other.leaf(i));
            if a != b {
                return if a < b { -1 } else { 1 };
            }
        });
        0
    }

    /// Whether the shape `divisor` divides the shape `self` leaf by leaf: the nesting is the same, and
    /// `a_i % b_i = 0`. If `divisor` is an integer and `self` a tuple, it must divide the product.
    ///
    /// ```
    /// # use cute_rs::IntTuple;
    /// let shape = IntTuple::from((8, (6, 4)));
    /// assert!(shape.evenly_divides(&IntTuple::from((4, 12))));
    /// assert!(!shape.evenly_divides(&IntTuple::from((3, 12))));
    /// ```
    pub const fn evenly_divides(&self, divisor: &Self) -> bool {
        if divisor.is_int() {
            // The divisor without the factors that each leaf absorbs. It divides the product if this ends at
            // 1.
            let mut rest = divisor.leaf(0).unsigned_abs();
            let mut i = 0;
            while i < self.len() && rest > 1 {
                rest /= unsigned_gcd(rest, self.leaf(i).unsigned_abs());
                i += 1;
            }
            return rest == 1;
        }
        if self.is_int() || self.rank() != divisor.rank() {
            return false;
        }
        each!(i, 0..self.rank(), {
            if !self.mode(i).evenly_divides(&divisor.mode(i)) {
                return false;
            }
        });
        true
    }
}
