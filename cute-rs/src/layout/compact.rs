//! Compact layouts: generated strides for a shape.

use super::Layout;
use crate::error::LayoutError;
use crate::int_tuple::{IntTuple, MAX_LEAVES};

impl Layout {
    /// The compact layout of a shape with its modes in a given order: the mode with the smallest number in
    /// `order` is contiguous, and ties count from the left. CuTe's `make_ordered_layout`.
    ///
    /// The order may be coarser than the shape; inside one of its leaves the shape is column-major.
    ///
    /// R takes every value below its size once. The stride of an entry is the product of all extents that
    /// come before it.
    ///
    /// ```
    /// # use cute_rs::{IntTuple, Layout};
    /// let layout = Layout::ordered(IntTuple::from((3, (2, 4))), &IntTuple::from((2, (3, 1))))?;
    /// assert_eq!(layout.to_string(), "(3,(2,4)):(4,(12,1))");
    /// let coarse = Layout::ordered(IntTuple::from((3, (2, 4))), &IntTuple::from((1, 0)))?;
    /// assert_eq!(coarse.to_string(), "(3,(2,4)):(8,(1,2))");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Profile`] if the order is finer than the shape; [`LayoutError::Extent`] for an extent
    /// below 1; [`LayoutError::Overflow`].
    pub const fn ordered(shape: IntTuple, order: &IntTuple) -> Result<Self, LayoutError> {
        let sizes = ok!(shape.product_like(order));
        let mut strides = [0; MAX_LEAVES];
        let (mut leaf, mut i) = (0, 0);
        while i < order.len() {
            // The stride where this entry of the order begins: after all entries that come before it.
            let mut stride: i64 = 1;
            each!(other, 0..order.len(), {
                let (theirs, ours) = (order.leaf(other), order.leaf(i));
                if theirs < ours || theirs == ours && other < i {
                    stride = stride.saturating_mul(sizes.leaf(other));
                }
            });
            // The leaves of the entry are consecutive.
            loop {
                strides[leaf] = stride;
                stride = stride.saturating_mul(shape.leaf(leaf));
                leaf += 1;
                if leaf == shape.len() || ends(&shape, order, i, leaf) {
                    break;
                }
            }
            i += 1;
        }
        Self::new(shape, shape.with_leaves(&strides))
    }

    /// A compact layout of the same shape whose strides have the same order as L's. Leaves of stride 0 keep
    /// it.
    ///
    /// With `n` the size of L without its broadcasts, R takes every value below `n`. Where
    /// `stride_i(L) < stride_j(L)`, also `stride_i(R) < stride_j(R)`.
    ///
    /// ```
    /// # use cute_rs::{IntTuple, Layout};
    /// let padded = Layout::flat(&[4, 8, 3], &[100, 2, 0])?;
    /// assert_eq!(padded.compact_like()?.to_string(), "(4,8,3):(8,1,0)");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// None at present; the `Result` allows refusing layouts in a later version.
    pub const fn compact_like(&self) -> Result<Self, LayoutError> {
        self.compacted(0)
    }

    /// A compact layout for registers. Mode 0, the elements of one instruction, comes first and is
    /// column-major. The other modes follow in the order of their strides. Leaves of stride 0 keep it.
    ///
    /// ```
    /// # use cute_rs::{IntTuple, Layout};
    /// let (shape, stride) = (IntTuple::from(((2, 2), 4, 3)), IntTuple::from(((8, 1), 64, 16)));
    /// let fragment = Layout::new(shape, stride)?.fragment_like()?;
    /// assert_eq!(fragment.to_string(), "((2,2),4,3):((1,2),12,4)");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// None at present; the `Result` allows refusing layouts in a later version.
    pub const fn fragment_like(&self) -> Result<Self, LayoutError> {
        self.compacted(self.shape.mode_range(0).1)
    }

    /// A compact layout: the leaves below `first` in order from the left, then the others by their strides.
    const fn compacted(&self, first: usize) -> Result<Self, LayoutError> {
        let mut strides = [0; MAX_LEAVES];
        each!(i, 0..self.shape.len(), {
            let mut stride: i64 = 1;
            each!(other, 0..self.shape.len(), {
                let before = if i < first {
                    other < i
                } else if other < first {
                    true
                } else {
                    let (theirs, ours) = (self.stride.leaf(other), self.stride.leaf(i));
                    theirs < ours || theirs == ours && other < i
                };
                if before && self.stride.leaf(other) != 0 {
                    stride = stride.saturating_mul(self.shape.leaf(other));
                }
            });
            strides[i] = if self.stride.leaf(i) == 0 { 0 } else { stride };
        });
        Self::new(self.shape, self.shape.with_leaves(&strides))
    }
}

/// Whether the leaves of a shape that belong to leaf `entry` of a coarser profile end before leaf `next`.
const fn ends(shape: &IntTuple, profile: &IntTuple, entry: usize, next: usize) -> bool {
    // Inside the entry, the shape has more open parentheses than the profile after it.
    let (mut ours, mut theirs) = (0_i64, 0_i64);
    each!(i, 0..next, {
        let (opens, closes) = shape.parentheses(i);
        ours += opens as i64 - closes as i64;
    });
    let mut i = 0;
    while i <= entry {
        let (opens, closes) = profile.parentheses(i);
        theirs += opens as i64 - closes as i64;
        i += 1;
    }
    ours == theirs
}
