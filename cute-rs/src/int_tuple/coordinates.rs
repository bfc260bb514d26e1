//! Conversions between the coordinates of a shape and integers.

use super::{IntTuple, MAX_LEAVES};
use crate::error::LayoutError;

impl IntTuple {
    /// Converts a coordinate of the shape `self` to an integer, with the leftmost leaf fastest:
    /// `sum over leaves of c_i * (a_0 * … * a_{i-1})`. The coordinate may be coarser than the shape.
    ///
    /// ```
    /// # use cute_rs::IntTuple;
    /// let shape = IntTuple::from((3, (2, 3)));
    /// for coord in [IntTuple::int(16), IntTuple::from((1, 5)), IntTuple::from((1, (1, 2)))] {
    ///     assert_eq!(shape.crd2idx(&coord)?, 16);
    /// }
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Rank`] where the coordinate has a tuple for an integer mode, or a tuple of another
    /// rank; [`LayoutError::Wide`] if the integer does not fit into 64 bits.
    pub const fn crd2idx(&self, coord: &Self) -> Result<i64, LayoutError> {
        match ok!(self.indexed(coord, Some(1))) {
            (Some(index), _) => Ok(index),
            (None, _) => Err(LayoutError::Wide { number: "index", tuple: *coord, other: Some(*self) }),
        }
    }

    /// The index of `coord` in steps of `step`, and the step after the shape; `None` for a number that does
    /// not fit into 64 bits.
    const fn indexed(
        &self,
        coord: &Self,
        step: Option<i64>,
    ) -> Result<(Option<i64>, Option<i64>), LayoutError> {
        if coord.is_int() {
            let index = if coord.leaf(0) == 0 { Some(0) } else { checked_mul(Some(coord.leaf(0)), step) };
            return Ok((index, checked_mul(self.checked_product(), step)));
        }
        if self.is_int() || self.rank() != coord.rank() {
            return Err(LayoutError::Rank { needed: self.rank(), given: coord.rank() });
        }
        let mut index: Option<i64> = Some(0);
        let mut step = step;
        each!(i, 0..self.rank(), {
            match self.mode(i).indexed(&coord.mode(i), step) {
                Ok((part, next)) => {
                    index = match (index, part) {
                        (Some(index), Some(part)) => index.checked_add(part),
                        (None, _) | (_, None) => None,
                    };
                    step = next;
                }
                Err(error) => return Err(error),
            }
        });
        Ok((index, step))
    }

    /// Converts an integer to the coordinate with the nesting of the shape `self`: the inverse of
    /// [`crd2idx`](Self::crd2idx). Beyond the size, the digit of the last leaf exceeds its extent. A negative
    /// integer has negative digits.
    ///
    /// ```
    /// # use cute_rs::IntTuple;
    /// assert_eq!(IntTuple::from((3, (2, 3))).idx2crd(16).to_string(), "(1,(1,2))");
    /// ```
    pub const fn idx2crd(&self, index: i64) -> Self {
        let mut digits = [0; MAX_LEAVES];
        let mut rest = index;
        each!(i, 0..self.len(), {
            let extent = self.leaves[i];
            if i + 1 == self.len() || extent < 1 {
                digits[i] = rest;
                rest = 0;
            } else {
                digits[i] = rest % extent;
                rest /= extent;
            }
        });
        self.with_leaves(&digits)
    }

    /// Converts a coordinate of the shape `self` to the coordinate of the shape `to` with the same integer.
    ///
    /// `idx2crd(crd2idx(coord, from), to)`
    ///
    /// ```
    /// # use cute_rs::IntTuple;
    /// let (from, to) = (IntTuple::from((3, 6)), IntTuple::from((9, 2)));
    /// assert_eq!(from.crd2crd(&IntTuple::from((1, 5)), &to)?.to_string(), "(7,1)");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`crd2idx`](Self::crd2idx).
    pub const fn crd2crd(&self, coord: &Self, to: &Self) -> Result<Self, LayoutError> {
        Ok(to.idx2crd(ok!(self.crd2idx(coord))))
    }

    /// The next coordinate of the shape `self`, with the leftmost leaf fastest; `None` after the last one.
    /// Also `None` if the coordinate does not have the nesting of the shape.
    ///
    /// ```
    /// # use cute_rs::IntTuple;
    /// let shape = IntTuple::from((2, (1, 3)));
    /// assert_eq!(shape.increment(&IntTuple::from((1, (0, 1)))), Some(IntTuple::from((0, (0, 2)))));
    /// assert_eq!(shape.increment(&IntTuple::from((1, (0, 2)))), None);
    /// ```
    pub const fn increment(&self, coord: &Self) -> Option<Self> {
        if !self.congruent(coord) {
            return None;
        }
        let mut digits = coord.leaves;
        each!(i, 0..self.len(), {
            if digits[i] < self.leaves[i] && digits[i] + 1 < self.leaves[i] {
                digits[i] += 1;
                return Some(self.with_leaves(&digits));
            }
            digits[i] = 0;
        });
        None
    }

    /// All coordinates of the shape `self`, in the order of their integers.
    ///
    /// ```
    /// # use cute_rs::IntTuple;
    /// let coords: Vec<_> = IntTuple::from((2, 2)).coords().map(|coord| coord.to_string()).collect();
    /// assert_eq!(coords, ["(0,0)", "(1,0)", "(0,1)", "(1,1)"]);
    /// ```
    pub fn coords(&self) -> impl Iterator<Item = Self> + use<> {
        let shape = *self;
        let first = (shape.is_empty() || shape.min() > 0).then(|| shape.filled(0));
        core::iter::successors(first, move |coord| shape.increment(coord))
    }
}

/// The product of two numbers; `None` if one is missing or the product does not fit into 64 bits.
const fn checked_mul(a: Option<i64>, b: Option<i64>) -> Option<i64> {
    match (a, b) {
        (Some(a), Some(b)) => a.checked_mul(b),
        (None, _) | (_, None) => None,
    }
}
