//! Coalescing and filtering: the same function with fewer leaves.

use super::Modes;
use crate::error::LayoutError;
use crate::int_tuple::{IntTuple, MAX_LEAVES};
use crate::layout::Layout;

impl Layout {
    /// The same function with the fewest leaves: `R(i) = L(i)` for every `i < size(L)`, and `depth(R) <= 1`.
    ///
    /// ```
    /// # use cute_rs::{IntTuple, Layout};
    /// let layout = Layout::new(IntTuple::from((2, (1, 6))), IntTuple::from((1, (6, 2))))?;
    /// assert_eq!(layout.coalesce().to_string(), "12:1");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    pub const fn coalesce(&self) -> Self {
        match self.merged(false).layout() {
            Ok(layout) => layout,
            Err(_) => *self,
        }
    }

    /// The same function of *all* integers, also beyond the size, with the fewest leaves: `R(i) = L(i)` for
    /// every `i`. A last leaf of extent 1 stays, because beyond the size the layout continues along the last
    /// leaf.
    ///
    /// ```
    /// # use cute_rs::Layout;
    /// let layout = Layout::flat(&[4, 1], &[1, 10])?;
    /// assert_eq!(layout.coalesce_x().to_string(), "(4,1):(1,10)");
    /// assert_eq!((layout.at(5), layout.coalesce_x().at(5), layout.coalesce().at(5)), (11, 11, 5));
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    pub const fn coalesce_x(&self) -> Self {
        match self.merged(true).layout() {
            Ok(layout) => layout,
            Err(_) => *self,
        }
    }

    /// Coalesces the part of the layout at each leaf of `profile` separately: `R(c) = L(c)` for every
    /// coordinate `c` with the nesting of the profile. Modes beyond the profile's last mode stay.
    ///
    /// ```
    /// # use cute_rs::{IntTuple, Layout};
    /// let layout = Layout::new(IntTuple::from((2, (1, 6))), IntTuple::from((1, (6, 2))))?;
    /// assert_eq!(layout.coalesce_by(&IntTuple::from((1, 1)))?.to_string(), "(2,6):(1,2)");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Profile`] if the profile has more modes than the layout or a finer nesting.
    pub const fn coalesce_by(&self, profile: &IntTuple) -> Result<Self, LayoutError> {
        if profile.is_int() {
            return Ok(self.coalesce());
        }
        let rank = self.rank();
        if self.shape().is_int() || profile.rank() > rank {
            return Err(LayoutError::Profile { tuple: self.shape(), profile: *profile });
        }
        let mut result = Self::EMPTY;
        each!(i, 0..rank, {
            let mut mode = self.mode(i);
            if i < profile.rank() {
                mode = ok!(mode.coalesce_by(&profile.mode(i)));
            }
            ok!(result.extend(&mode));
        });
        result.close()
    }

    /// Sets the extent of every leaf of stride 0 to 1, so that nothing repeats: R has the nesting and the
    /// offsets of L.
    ///
    /// ```
    /// # use cute_rs::Layout;
    /// assert_eq!(Layout::flat(&[4, 3, 2], &[1, 0, 4])?.filter_zeros().to_string(), "(4,1,2):(1,0,4)");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    pub const fn filter_zeros(&self) -> Self {
        let (shape, stride) = (self.shape(), self.stride());
        let mut extents = [1; MAX_LEAVES];
        each!(i, 0..shape.len(), {
            if stride.leaf(i) != 0 {
                extents[i] = shape.leaf(i);
            }
        });
        Self::from_parts(shape.with_leaves(&extents), stride)
    }

    /// Removes leaves of stride 0 and of extent 1, and coalesces. The offsets of L remain in their order,
    /// without the repetitions that broadcasts cause.
    ///
    /// ```
    /// # use cute_rs::Layout;
    /// assert_eq!(Layout::flat(&[4, 3, 2], &[1, 0, 4])?.filter().to_string(), "8:1");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    pub const fn filter(&self) -> Self {
        self.filter_zeros().coalesce()
    }

    /// Filters the part of the layout at each leaf of `profile` separately.
    ///
    /// ```
    /// # use cute_rs::{IntTuple, Layout};
    /// let layout = Layout::flat(&[4, 3, 2], &[1, 0, 4])?;
    /// assert_eq!(layout.filter_by(&IntTuple::from((1, 1, 1)))?.to_string(), "(4,1,2):(1,0,4)");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`coalesce_by`](Self::coalesce_by).
    pub const fn filter_by(&self, profile: &IntTuple) -> Result<Self, LayoutError> {
        self.filter_zeros().coalesce_by(profile)
    }

    /// The merged leaves. With `endless`, a last leaf of extent 1 stays. Then `R(i) = L(i)` also from
    /// `size(L)` on, where the layout continues along its last leaf.
    pub(super) const fn merged(&self, endless: bool) -> Modes {
        let (shape, stride) = (self.shape_ref(), self.stride_ref());
        let mut modes = Modes::new();
        each!(i, 0..shape.len(), {
            if shape.leaf(i) > 1 || endless && i + 1 == shape.len() {
                // There are no more modes than leaves, so they fit.
                let _ = modes.push(shape.leaf(i), stride.leaf(i), stride.axis(i));
            }
        });
        modes
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
}
