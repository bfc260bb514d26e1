//! Runs that layouts have in common, and how many elements one access can move.

use super::Modes;
use crate::error::LayoutError;
use crate::int_tuple::{IntTuple, MAX_LEAVES, gcd};
use crate::layout::Layout;

impl Layout {
    /// The longest run that two layouts of the same size have in the same order, as coordinates of both:
    /// `A(R(i)) = B(R(i)) = i` for every `i < size(R)`.
    ///
    /// ```
    /// # use cute_rs::Layout;
    /// let rows = Layout::flat(&[4, 8], &[8, 1])?;
    /// let padded = Layout::flat(&[4, 8], &[12, 1])?;
    /// assert_eq!(rows.max_common_layout(&padded)?.to_string(), "8:4");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Sizes`] if the sizes differ.
    pub const fn max_common_layout(&self, other: &Self) -> Result<Self, LayoutError> {
        if self.size() != other.size() {
            return Err(LayoutError::Sizes { size: self.size(), other: other.size() });
        }
        let inverse = ok!(other.right_inverse()).merged(false);
        let run = self.merged(false);
        let mut modes = Modes::new();
        let mut reach: i64 = 1;
        // Along each mode of the inverse, the steps of A must continue where the run ends so far.
        each!(i, 0..inverse.len, {
            let (mut visited, mut step) = (inverse.shape[i], inverse.stride[i]);
            // The modes of A that these coordinates cross, as in a composition.
            let (mut k, mut before) = (0, 1);
            while visited > 1 && k < run.len {
                let extent = run.shape[k];
                if step % (before * extent) == 0 {
                    before *= extent;
                    k += 1;
                    continue;
                }
                let inner = step / before;
                let offered = if step % before != 0 || extent % inner != 0 { 1 } else { extent / inner };
                if offered == 1 || inner.saturating_mul(run.stride[k]) != reach {
                    return modes.layout();
                }
                let taken = if visited < offered { visited } else { gcd(visited, offered) };
                ok!(modes.push(taken, step, 0));
                reach = reach.saturating_mul(taken);
                if visited % offered != 0 && visited > offered {
                    return modes.layout();
                }
                visited /= taken;
                step = step.saturating_mul(taken);
            }
        });
        modes.layout()
    }

    /// The number of elements that are contiguous in both layouts, which must have the same size. It is the
    /// widest vector, in elements, that a copy between the two can move at once.
    ///
    /// ```
    /// # use cute_rs::Layout;
    /// let rows = Layout::flat(&[4, 8], &[8, 1])?;
    /// assert_eq!(rows.max_common_vector(&Layout::flat(&[4, 8], &[12, 1])?)?, 8);
    /// assert_eq!(rows.max_common_vector(&Layout::flat(&[4, 8], &[1, 4])?)?, 1);
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`max_common_layout`](Self::max_common_layout).
    pub const fn max_common_vector(&self, other: &Self) -> Result<i64, LayoutError> {
        Ok(ok!(self.max_common_layout(other)).size())
    }

    /// The first coordinates of a flat layout: mode by mode, as many as divide `n`. `R(i) = L(i)` for
    /// `i < size(R)`, and `size(R)` divides `n` and `size(L)`. For `n = 0`, all coordinates.
    pub(crate) const fn first(&self, n: i64) -> Result<Self, LayoutError> {
        let (shape, stride) = (self.shape_ref(), self.stride_ref());
        let mut modes = Modes::new();
        let mut rest = n;
        each!(i, 0..shape.len(), {
            let taken = gcd(rest, shape.leaf(i));
            if taken > 1 {
                ok!(modes.push(taken, stride.leaf(i), 0));
            }
            if taken < shape.leaf(i) {
                break;
            }
            rest /= taken;
        });
        modes.layout()
    }

    /// The largest number N of elements that can be joined into one everywhere. N divides the contiguous run
    /// that L forms from offset 0 and every stride beyond it. So offsets come in whole groups
    /// `kN, kN + 1, …, kN + N - 1`.
    ///
    /// ```
    /// # use cute_rs::Layout;
    /// assert_eq!(Layout::flat(&[8, 4], &[1, 12])?.max_alignment(), 4);
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    pub const fn max_alignment(&self) -> i64 {
        let flat = self.merged(false);
        // The run 0, 1, 2, …, mode by mode.
        let mut taken = [false; MAX_LEAVES];
        let mut run: i64 = 1;
        let mut i = 0;
        while i < flat.len {
            if !taken[i] && flat.stride[i] == run {
                taken[i] = true;
                run = run.saturating_mul(flat.shape[i]);
                i = 0;
            } else {
                i += 1;
            }
        }
        let mut alignment = run;
        each!(i, 0..flat.len, {
            if !taken[i] {
                alignment = gcd(alignment, flat.stride[i]);
            }
        });
        alignment
    }

    /// Distributes `n` items over a shape. The result is an increasing layout of size at most `n` into the
    /// integer coordinates of the shape, with steps along whole modes. Its size is `n` if the factors of `n`
    /// come in the order of the extents.
    ///
    /// `R(i) < R(i + 1)`, and each leaf of R moves within one leaf of the shape.
    ///
    /// ```
    /// # use cute_rs::{IntTuple, Layout};
    /// let threads = Layout::domain_distribute(IntTuple::from((4, 6, 8)), 8)?;
    /// assert_eq!(threads.to_string(), "8:1");
    /// let spread = Layout::domain_distribute(IntTuple::from((3, 8)), 4)?;
    /// assert_eq!(spread.to_string(), "4:3");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Extent`] for an extent or an `n` below 1.
    pub const fn domain_distribute(shape: IntTuple, n: i64) -> Result<Self, LayoutError> {
        let walk = ok!(Self::column_major(shape));
        if n < 1 {
            return Err(LayoutError::Extent { shape: IntTuple::int(n) });
        }
        let mut modes = Modes::new();
        let mut rest = n;
        each!(i, 0..shape.len(), {
            let part = gcd(shape.leaf(i), rest);
            if part > 1 {
                ok!(modes.push(part, walk.stride_ref().leaf(i), 0));
            }
            rest /= part;
        });
        modes.layout()
    }
}
