//! Integer tuples: integers, or nested tuples of them, such as `(8,(4,2))`.
//!
//! A tuple is stored as a flat list of leaves. Each leaf has the number of parentheses that open before it
//! and close after it. So a tuple is a `Copy` value without a heap, and constants can be computed from it.

mod algorithms;
mod arithmetic;
mod coordinates;
mod edit;
mod order;
mod relations;

use core::fmt;

use crate::error::LayoutError;

pub(crate) use arithmetic::{div_up, gcd};

/// The largest number of leaves of one tuple.
pub const MAX_LEAVES: usize = 32;

/// An integer or a nested tuple of integers.
///
/// The empty tuple `()` exists on its own, with rank 0, but not nested in another tuple. Integers and Rust
/// tuples convert into integer tuples; see [`Nest`](crate::Nest).
///
/// ```
/// # use cute_rs::IntTuple;
/// let shape = IntTuple::from((8, (4, 2)));
/// assert_eq!(shape.to_string(), "(8,(4,2))");
/// assert_eq!((shape.rank(), shape.depth(), shape.product()?), (2, 2, 64));
/// assert_eq!(shape.mode(1).to_string(), "(4,2)");
/// # Ok::<(), cute_rs::LayoutError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct IntTuple {
    leaves: [i64; MAX_LEAVES],
    opens: [u8; MAX_LEAVES],
    closes: [u8; MAX_LEAVES],
    /// The component of a coordinate that a leaf counts along, from 1; 0 for a plain integer. Only the
    /// strides of a [`CoordLayout`](crate::CoordLayout) have components.
    axes: [u8; MAX_LEAVES],
    len: u8,
}

impl IntTuple {
    /// The empty tuple `()`.
    pub const EMPTY: Self = Self {
        leaves: [0; MAX_LEAVES],
        opens: [0; MAX_LEAVES],
        closes: [0; MAX_LEAVES],
        axes: [0; MAX_LEAVES],
        len: 0,
    };

    /// A single integer.
    ///
    /// ```
    /// # use cute_rs::IntTuple;
    /// assert_eq!(IntTuple::int(8).to_string(), "8");
    /// ```
    pub const fn int(value: i64) -> Self {
        let mut tuple = Self::EMPTY;
        tuple.leaves[0] = value;
        tuple.len = 1;
        tuple
    }

    /// A tuple of integers: `(2,3)` from `[2, 3]`.
    ///
    /// ```
    /// # use cute_rs::IntTuple;
    /// assert_eq!(IntTuple::flat(&[2, 3])?.to_string(), "(2,3)");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Capacity`] above [`MAX_LEAVES`] integers.
    pub const fn flat(values: &[i64]) -> Result<Self, LayoutError> {
        let mut tuple = Self::EMPTY;
        if values.len() > MAX_LEAVES {
            return Err(LayoutError::Capacity { leaves: values.len() });
        }
        each!(i, 0..values.len(), {
            tuple.leaves[i] = values[i];
        });
        tuple.len = values.len() as u8;
        Ok(tuple.enclosed())
    }

    /// A tuple of tuples: `(2,(3,4))` from `[2, (3,4)]`.
    ///
    /// ```
    /// # use cute_rs::IntTuple;
    /// let modes = [IntTuple::int(2), IntTuple::from((3, 4))];
    /// assert_eq!(IntTuple::tuple(&modes)?.to_string(), "(2,(3,4))");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Capacity`] above [`MAX_LEAVES`] leaves; [`LayoutError::EmptyMode`] for a nested `()`;
    /// [`LayoutError::Depth`] above 255 levels.
    pub const fn tuple(modes: &[Self]) -> Result<Self, LayoutError> {
        let mut tuple = Self::EMPTY;
        each!(i, 0..modes.len(), {
            if modes[i].len == 0 {
                return Err(LayoutError::EmptyMode { mode: i });
            }
            tuple = ok!(tuple.followed_by(&modes[i]));
        });
        let limit = u8::MAX as usize;
        if !tuple.is_empty()
            && (tuple.parentheses(0).0 == limit || tuple.parentheses(tuple.len() - 1).1 == limit)
        {
            return Err(LayoutError::Depth { limit });
        }
        Ok(tuple.enclosed())
    }

    /// The leaves of `self`, then those of `other`, each with its parentheses.
    const fn followed_by(mut self, other: &Self) -> Result<Self, LayoutError> {
        ok!(self.extend(other));
        Ok(self)
    }

    /// Adds the leaves of `other` with their parentheses, as the next member of a tuple that is still open.
    pub(crate) const fn extend(&mut self, other: &Self) -> Result<(), LayoutError> {
        let start = self.len as usize;
        let end = start + other.len as usize;
        if end > MAX_LEAVES {
            return Err(LayoutError::Capacity { leaves: end });
        }
        each!(i, start..end, {
            self.leaves[i] = other.leaves[i - start];
            self.opens[i] = other.opens[i - start];
            self.closes[i] = other.closes[i - start];
            self.axes[i] = other.axes[i - start];
        });
        self.len = end as u8;
        Ok(())
    }

    /// Adds one leaf, as the next member of a tuple that is still open.
    pub(crate) const fn push(&mut self, value: i64, axis: u8) -> Result<(), LayoutError> {
        let i = self.len as usize;
        if i == MAX_LEAVES {
            return Err(LayoutError::Capacity { leaves: i + 1 });
        }
        self.leaves[i] = value;
        self.opens[i] = 0;
        self.closes[i] = 0;
        self.axes[i] = axis;
        self.len += 1;
        Ok(())
    }

    /// Adds parentheses around leaves `start..end`; the range must not be empty.
    pub(crate) const fn wrap_leaves(
        &mut self,
        start: usize,
        end: usize,
        opens: usize,
        closes: usize,
    ) -> Result<(), LayoutError> {
        let limit = u8::MAX as usize;
        let (opened, closed) = (self.opens[start] as usize + opens, self.closes[end - 1] as usize + closes);
        if opened > limit || closed > limit {
            return Err(LayoutError::Depth { limit });
        }
        self.opens[start] = opened as u8;
        self.closes[end - 1] = closed as u8;
        Ok(())
    }

    /// Closes the tuple that [`extend`](Self::extend) and [`push`](Self::push) filled.
    pub(crate) const fn close(mut self) -> Result<Self, LayoutError> {
        if self.len == 0 {
            return Ok(self);
        }
        ok!(self.wrap_leaves(0, self.len as usize, 1, 1));
        Ok(self)
    }

    /// The component that leaf `i` counts along, from 1; 0 for an integer.
    pub(crate) const fn axis(&self, i: usize) -> u8 {
        if i < self.len() { self.axes[i] } else { 0 }
    }

    /// The same tuple with leaves that count along these components.
    pub(crate) const fn with_axes(mut self, axes: &[u8; MAX_LEAVES]) -> Self {
        each!(i, 0..self.len(), {
            self.axes[i] = if self.leaves[i] == 0 { 0 } else { axes[i] };
        });
        self
    }

    const fn enclosed(mut self) -> Self {
        if self.len > 0 {
            self.opens[0] += 1;
            self.closes[self.len as usize - 1] += 1;
        }
        self
    }

    /// Number of leaves.
    ///
    /// ```
    /// # use cute_rs::IntTuple;
    /// assert_eq!(IntTuple::from((2, (3, 4))).len(), 3);
    /// ```
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether this is `()`.
    ///
    /// ```
    /// # use cute_rs::IntTuple;
    /// assert!(IntTuple::EMPTY.is_empty());
    /// ```
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether this is an integer rather than a tuple.
    ///
    /// ```
    /// # use cute_rs::IntTuple;
    /// assert!(IntTuple::from(8).is_int() && !IntTuple::from((8,)).is_int());
    /// ```
    pub const fn is_int(&self) -> bool {
        self.len == 1 && self.opens[0] == 0
    }

    /// Leaf `i`, counted from the left through all parentheses; 0 beyond the last leaf.
    ///
    /// ```
    /// # use cute_rs::IntTuple;
    /// assert_eq!(IntTuple::from((2, (3, 4))).leaf(2), 4);
    /// ```
    pub const fn leaf(&self, i: usize) -> i64 {
        if i < self.len() { self.leaves[i] } else { 0 }
    }

    /// The number of parentheses that open before leaf `i`, and that close after it.
    pub(crate) const fn parentheses(&self, i: usize) -> (usize, usize) {
        (self.opens[i] as usize, self.closes[i] as usize)
    }

    /// Number of modes: 1 for an integer, 0 for `()`.
    ///
    /// ```
    /// # use cute_rs::IntTuple;
    /// assert_eq!(IntTuple::from((2, (3, 4))).rank(), 2);
    /// ```
    pub const fn rank(&self) -> usize {
        let mut modes = 0;
        let mut start = 0;
        while start < self.len() {
            start = self.mode_end(start);
            modes += 1;
        }
        modes
    }

    /// The end of the top-level mode that begins at leaf `start`.
    const fn mode_end(&self, start: usize) -> usize {
        let outer: i32 = if self.is_int() { 0 } else { 1 };
        let mut depth = if start == 0 { -outer } else { 0 };
        let mut i = start;
        while i < self.len() {
            depth += self.opens[i] as i32;
            depth -= self.closes[i] as i32;
            i += 1;
            if depth <= 0 {
                break;
            }
        }
        i
    }

    /// The range of leaves `start..end` of mode `mode`.
    pub(crate) const fn mode_range(&self, mode: usize) -> (usize, usize) {
        let mut start = 0;
        let mut i = 0;
        while i < mode && start < self.len() {
            start = self.mode_end(start);
            i += 1;
        }
        (start, if start < self.len() { self.mode_end(start) } else { start })
    }

    /// Mode `i`. An integer is its own mode 0; beyond the last mode the result is `()`.
    ///
    /// ```
    /// # use cute_rs::IntTuple;
    /// assert_eq!(IntTuple::from((2, (3, 4))).mode(1).to_string(), "(3,4)");
    /// ```
    pub const fn mode(&self, i: usize) -> Self {
        let (start, end) = self.mode_range(i);
        let mut tuple = Self::EMPTY;
        each!(leaf, start..end, {
            tuple.leaves[leaf - start] = self.leaves[leaf];
            tuple.opens[leaf - start] = self.opens[leaf];
            tuple.closes[leaf - start] = self.closes[leaf];
            tuple.axes[leaf - start] = self.axes[leaf];
        });
        tuple.len = (end - start) as u8;
        if !self.is_int() && tuple.len > 0 {
            if start == 0 {
                tuple.opens[0] -= 1;
            }
            if end == self.len() {
                tuple.closes[end - start - 1] -= 1;
            }
        }
        tuple
    }

    /// Levels of nesting: 0 for an integer, 1 for a flat tuple.
    ///
    /// ```
    /// # use cute_rs::IntTuple;
    /// assert_eq!(IntTuple::from((2, (3, 4))).depth(), 2);
    /// ```
    pub const fn depth(&self) -> usize {
        let mut depth: usize = 0;
        let mut deepest = 0;
        each!(i, 0..self.len(), {
            depth += self.opens[i] as usize;
            if depth > deepest {
                deepest = depth;
            }
            depth -= self.closes[i] as usize;
        });
        deepest
    }

    /// The same leaves in one flat tuple; an integer stays an integer.
    ///
    /// ```
    /// # use cute_rs::IntTuple;
    /// assert_eq!(IntTuple::from((2, (3, (4, 5)))).flatten().to_string(), "(2,3,4,5)");
    /// ```
    pub const fn flatten(&self) -> Self {
        if self.is_int() {
            return *self;
        }
        let mut tuple = Self::EMPTY;
        tuple.leaves = self.leaves;
        tuple.axes = self.axes;
        tuple.len = self.len;
        tuple.enclosed()
    }

    /// The product of all leaves, which is the size of a shape; 1 for `()`.
    ///
    /// ```
    /// # use cute_rs::IntTuple;
    /// assert_eq!(IntTuple::from((2, (3, 4))).product()?, 24);
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Wide`] if the product does not fit into 64 bits.
    pub const fn product(&self) -> Result<i64, LayoutError> {
        match self.checked_product() {
            Some(product) => Ok(product),
            None => Err(LayoutError::Wide { number: "product", tuple: *self, other: None }),
        }
    }

    /// The product of all leaves; `None` if it does not fit into 64 bits. With any leaf of 0, the product is
    /// 0.
    pub(crate) const fn checked_product(&self) -> Option<i64> {
        let mut product: Option<i64> = Some(1);
        each!(i, 0..self.len(), {
            product = match product {
                _ if self.leaves[i] == 0 => return Some(0),
                Some(product) => product.checked_mul(self.leaves[i]),
                None => None,
            };
        });
        product
    }

    /// The product of the extents of a legal layout's shape, which is at most 2^62.
    pub(crate) const fn size(&self) -> i64 {
        match self.checked_product() {
            Some(size) => size,
            None => i64::MAX,
        }
    }

    /// The same nesting with other leaves, all plain integers.
    pub(crate) const fn with_leaves(mut self, leaves: &[i64; MAX_LEAVES]) -> Self {
        each!(i, 0..self.len(), {
            self.leaves[i] = leaves[i];
            self.axes[i] = 0;
        });
        self
    }
}

impl fmt::Display for IntTuple {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("()");
        }
        for i in 0..self.len() {
            if i > 0 {
                f.write_str(",")?;
            }
            (0..self.opens[i]).try_for_each(|_| f.write_str("("))?;
            write!(f, "{}", self.leaves[i])?;
            (0..self.closes[i]).try_for_each(|_| f.write_str(")"))?;
        }
        Ok(())
    }
}

impl fmt::Debug for IntTuple {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;
    use std::vec::Vec;

    #[test]
    fn shape_of_the_nesting() {
        let nested_one = IntTuple::tuple(&[IntTuple::from((2, 3))]).unwrap();
        let cases = [
            ("an integer is its own mode", IntTuple::int(6), 1, 1, 0, 6, &["6"][..]),
            ("the empty tuple has no mode and size 1", IntTuple::EMPTY, 0, 0, 0, 1, &[]),
            ("a flat tuple", IntTuple::from((2, 3, 4)), 3, 3, 1, 24, &["2", "3", "4"]),
            (
                "modes are taken out with their parentheses",
                IntTuple::from((2, (3, 4))),
                2,
                3,
                2,
                24,
                &["2", "(3,4)"],
            ),
            ("a mode that opens twice", IntTuple::from((((2, 3), 4), 5)), 2, 4, 3, 120, &["((2,3),4)", "5"]),
            ("a tuple around one tuple", nested_one, 1, 2, 2, 6, &["(2,3)"]),
        ];
        for (why, tuple, rank, len, depth, product, modes) in cases {
            assert_eq!((tuple.rank(), tuple.len(), tuple.depth()), (rank, len, depth), "{why}");
            assert_eq!(tuple.product(), Ok(product), "{why}");
            let taken: Vec<_> = (0..tuple.rank()).map(|i| tuple.mode(i).to_string()).collect();
            assert_eq!(taken, modes, "{why}");
            assert_eq!(tuple.mode(rank), IntTuple::EMPTY, "{why}: beyond the last mode");
            if !tuple.is_int() {
                let parts: Vec<_> = (0..rank).map(|i| tuple.mode(i)).collect();
                assert_eq!(IntTuple::tuple(&parts), Ok(tuple), "{why}: put together again");
            }
        }
    }

    #[test]
    fn flattening_keeps_integers() {
        for (why, tuple, want) in [
            ("an integer", IntTuple::int(6), "6"),
            ("nothing", IntTuple::EMPTY, "()"),
            ("all parentheses but the outer go", IntTuple::from(((2, (3, 4)), 5)), "(2,3,4,5)"),
        ] {
            assert_eq!(tuple.flatten().to_string(), want, "{why}");
        }
    }

    #[test]
    fn limits_are_errors() {
        let full = IntTuple::flat(&[1; MAX_LEAVES]).unwrap();
        let mut deep = IntTuple::int(1);
        for _ in 0..255 {
            deep = IntTuple::tuple(&[deep]).unwrap();
        }
        let leaves = MAX_LEAVES + 1;
        for (why, got, want) in [
            ("a leaf too many", IntTuple::flat(&[1; MAX_LEAVES + 1]), LayoutError::Capacity { leaves }),
            ("nested, too", IntTuple::tuple(&[full, IntTuple::int(1)]), LayoutError::Capacity { leaves }),
            ("an empty mode", IntTuple::tuple(&[full, IntTuple::EMPTY]), LayoutError::EmptyMode { mode: 1 }),
            ("a level too many", IntTuple::tuple(&[deep]), LayoutError::Depth { limit: 255 }),
        ] {
            assert_eq!(got, Err(want), "{why}");
        }
        assert_eq!(deep.depth(), 255);
    }
}
