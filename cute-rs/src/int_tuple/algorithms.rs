//! CuTe's tuple algorithms that Rust's iterators do not have, and the iterators that replace the others.

use super::{IntTuple, MAX_LEAVES};
use crate::error::LayoutError;
use crate::layout::Layout;

impl IntTuple {
    /// The leaves, from the left through all parentheses. Together with the methods of [`Iterator`] they
    /// replace CuTe's `fold`, `find_if`, `any_of`, `all_of` and `none_of`.
    ///
    /// ```
    /// # use cute_rs::IntTuple;
    /// let shape = IntTuple::from((8, (4, 2)));
    /// assert_eq!(shape.leaves().collect::<Vec<_>>(), [8, 4, 2]);
    /// assert!(shape.leaves().all(|extent| extent % 2 == 0));
    /// assert_eq!(shape.leaves().fold(0, |sum, leaf| 10 * sum + leaf), 842);
    /// ```
    pub fn leaves(&self) -> impl DoubleEndedIterator<Item = i64> + ExactSizeIterator + '_ {
        self.leaves[..self.len()].iter().copied()
    }

    /// The modes, from the left: [`mode`](Self::mode) `0`, `1`, … Together with [`concat`](Self::concat) and
    /// the methods of [`Iterator`] they replace CuTe's `for_each`, `transform` and `filter_tuple`.
    ///
    /// ```
    /// # use cute_rs::IntTuple;
    /// let shape = IntTuple::from((8, (4, 2), 1));
    /// let wide: Vec<_> = shape.modes().filter(|mode| mode.product() != Ok(1)).collect();
    /// assert_eq!(IntTuple::tuple(&wide)?.to_string(), "(8,(4,2))");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    pub fn modes(&self) -> impl DoubleEndedIterator<Item = Self> + ExactSizeIterator + '_ {
        (0..self.rank()).map(|i| self.mode(i))
    }

    /// Applies a function to each leaf and keeps the nesting: `R_i = f(L_i)`. CuTe's `transform_leaf`.
    ///
    /// ```
    /// # use cute_rs::IntTuple;
    /// assert_eq!(IntTuple::from((8, (4, 2))).map(|extent| extent / 2).to_string(), "(4,(2,1))");
    /// ```
    #[must_use]
    pub fn map(&self, mut f: impl FnMut(i64) -> i64) -> Self {
        let mut leaves = [0; MAX_LEAVES];
        for (new, old) in leaves.iter_mut().zip(self.leaves()) {
            *new = f(old);
        }
        self.with_leaves(&leaves)
    }

    /// Concatenates the modes of all tuples: `(1,(2,3))` and `(4)` give `(1,(2,3),4)`. An integer counts as
    /// its own only mode. CuTe's `tuple_cat`.
    ///
    /// ```
    /// # use cute_rs::IntTuple;
    /// let tuples = [IntTuple::from((1, (2, 3))), IntTuple::int(4), IntTuple::EMPTY, IntTuple::from((5, 6))];
    /// assert_eq!(IntTuple::concat(&tuples)?.to_string(), "(1,(2,3),4,5,6)");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Capacity`] above [`MAX_LEAVES`] leaves.
    pub const fn concat(tuples: &[Self]) -> Result<Self, LayoutError> {
        let mut joined = Self::EMPTY;
        each!(k, 0..tuples.len(), {
            each!(i, 0..tuples[k].rank(), {
                ok!(joined.extend(&tuples[k].mode(i)));
            });
        });
        joined.close()
    }

    /// The same nesting, where each leaf is the product of all leaves before it: `R_i = L_0 * … * L_{i-1}`.
    /// These are the strides of a column-major layout. CuTe's `escan` with products.
    ///
    /// ```
    /// # use cute_rs::IntTuple;
    /// assert_eq!(IntTuple::from((3, (2, 4))).prefix_product()?.to_string(), "(1,(3,6))");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Wide`] if a product does not fit into 64 bits.
    pub const fn prefix_product(&self) -> Result<Self, LayoutError> {
        let mut products = [1_i64; MAX_LEAVES];
        each!(i, 1..self.len(), {
            products[i] = match products[i - 1].checked_mul(self.leaves[i - 1]) {
                Some(product) => product,
                None => {
                    return Err(LayoutError::Wide { number: "running product", tuple: *self, other: None });
                }
            };
        });
        Ok(self.with_leaves(&products))
    }

    /// All coordinates of the shape `self` in the order of [`Layout::ordered`]: the leaf with the smallest
    /// number in `order` varies fastest. `ordered(self, order)(R_i) = i`.
    ///
    /// ```
    /// # use cute_rs::IntTuple;
    /// // The k-tiles of a convolution: channels first, then filter columns, then filter rows.
    /// let (shape, order) = (IntTuple::from((2, (2, 2))), IntTuple::from((2, (1, 0))));
    /// let coords: Vec<_> = shape.coords_in(&order)?.map(|coord| coord.to_string()).take(3).collect();
    /// assert_eq!(coords, ["(0,(0,0))", "(0,(0,1))", "(0,(1,0))"]);
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Layout::ordered`].
    pub fn coords_in(&self, order: &Self) -> Result<impl Iterator<Item = Self> + use<>, LayoutError> {
        let places = Layout::ordered(*self, order)?;
        Ok((0..places.size()).map(move |place| {
            let mut digits = [0; MAX_LEAVES];
            for (i, digit) in digits.iter_mut().enumerate().take(places.shape_ref().len()) {
                *digit = place / places.stride_ref().leaf(i) % places.shape_ref().leaf(i);
            }
            places.shape_ref().with_leaves(&digits)
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;
    use std::vec::Vec;

    #[test]
    fn leaves_and_modes() {
        let nested = IntTuple::from((2, (3, 4)));
        for (why, tuple, leaves, modes) in [
            ("an integer is its own mode", IntTuple::int(7), &[7][..], &["7"][..]),
            ("nothing", IntTuple::EMPTY, &[], &[]),
            ("nested", nested, &[2, 3, 4], &["2", "(3,4)"]),
        ] {
            assert_eq!(tuple.leaves().collect::<Vec<_>>(), leaves, "{why}");
            assert_eq!(tuple.modes().map(|mode| mode.to_string()).collect::<Vec<_>>(), modes, "{why}");
        }
        assert_eq!(nested.leaves().rev().collect::<Vec<_>>(), [4, 3, 2]);
    }

    #[test]
    fn orders_that_do_not_fit_are_refused() {
        let shape = IntTuple::from((2, (3, 4)));
        for (why, shape, order) in [
            ("finer than the shape", IntTuple::int(6), IntTuple::from((0, 1))),
            ("another rank", shape, IntTuple::from((0, 1, 2))),
            ("an extent of 0", IntTuple::from((2, 0)), IntTuple::from((0, 1))),
        ] {
            assert!(shape.coords_in(&order).is_err(), "{why}");
        }
    }
}
