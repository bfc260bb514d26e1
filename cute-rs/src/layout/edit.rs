//! Editing: layouts made from the modes of others.

use super::Layout;
use crate::error::LayoutError;
use crate::int_tuple::IntTuple;

/// The layout of a shape and a stride that were edited in the same way.
const fn both(
    shape: Result<IntTuple, LayoutError>,
    stride: Result<IntTuple, LayoutError>,
) -> Result<Layout, LayoutError> {
    Layout::bounded(ok!(shape), ok!(stride))
}

impl Layout {
    /// The sub-layout at a mode path: `get(&[1, 0])` is mode 0 of mode 1.
    ///
    /// ```
    /// # use cute_rs::{IntTuple, Layout};
    /// let layout = Layout::new(IntTuple::from((4, (2, 3))), IntTuple::from((6, (3, 1))))?;
    /// assert_eq!(layout.get(&[1, 0])?.to_string(), "2:3");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Mode`] if the path leaves the layout.
    pub const fn get(&self, path: &[usize]) -> Result<Self, LayoutError> {
        both(self.shape.get(path), self.stride.get(path))
    }

    /// Appends a mode: `R((a,b)) = A(a) + B(b)`. An integer layout counts as its own only mode.
    ///
    /// ```
    /// # use cute_rs::Layout;
    /// let layout = Layout::flat(&[2, 3], &[1, 2])?.append(&Layout::flat(&[4], &[6])?.mode(0))?;
    /// assert_eq!(layout.to_string(), "(2,3,4):(1,2,6)");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Capacity`]; [`LayoutError::EmptyMode`] for a mode `():()`.
    pub const fn append(&self, mode: &Self) -> Result<Self, LayoutError> {
        both(self.shape.append(&mode.shape), self.stride.append(&mode.stride))
    }

    /// Prepends a mode: `R((b,a)) = A(a) + B(b)`.
    ///
    /// ```
    /// # use cute_rs::Layout;
    /// let layout = Layout::flat(&[2, 3], &[4, 8])?.prepend(&Layout::flat(&[4], &[1])?.mode(0))?;
    /// assert_eq!(layout.to_string(), "(4,2,3):(1,4,8)");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub const fn prepend(&self, mode: &Self) -> Result<Self, LayoutError> {
        both(self.shape.prepend(&mode.shape), self.stride.prepend(&mode.stride))
    }

    /// Appends modes `1:0` until the rank is `rank`: `R(i) = L(i)` within the size. Use it to make ranks
    /// equal.
    ///
    /// ```
    /// # use cute_rs::Layout;
    /// assert_eq!(Layout::flat(&[8], &[2])?.padded(2)?.to_string(), "(8,1):(2,0)");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Capacity`] above [`MAX_LEAVES`](crate::MAX_LEAVES) leaves.
    pub const fn padded(&self, rank: usize) -> Result<Self, LayoutError> {
        let mut padded = *self;
        while padded.rank() < rank {
            padded = ok!(padded.append(&Self::leaf(1, 0)));
        }
        Ok(padded)
    }

    /// Inserts a mode before mode `at`; with `at` equal to the rank, at the end.
    ///
    /// ```
    /// # use cute_rs::Layout;
    /// let layout = Layout::flat(&[2, 3], &[1, 8])?.insert(1, &Layout::flat(&[4], &[2])?.mode(0))?;
    /// assert_eq!(layout.to_string(), "(2,4,3):(1,2,8)");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Mode`] beyond the rank; those of [`append`](Self::append).
    pub const fn insert(&self, at: usize, mode: &Self) -> Result<Self, LayoutError> {
        both(self.shape.insert(at, &mode.shape), self.stride.insert(at, &mode.stride))
    }

    /// Removes mode `at`.
    ///
    /// ```
    /// # use cute_rs::Layout;
    /// assert_eq!(Layout::flat(&[2, 3, 4], &[1, 2, 6])?.remove(1)?.to_string(), "(2,4):(1,6)");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Mode`] beyond the rank.
    pub const fn remove(&self, at: usize) -> Result<Self, LayoutError> {
        both(self.shape.remove(at), self.stride.remove(at))
    }

    /// Replaces mode `at` by another layout.
    ///
    /// ```
    /// # use cute_rs::Layout;
    /// let layout = Layout::flat(&[2, 3], &[1, 2])?;
    /// assert_eq!(layout.replace(1, &Layout::flat(&[5, 6], &[7, 8])?)?.to_string(), "(2,(5,6)):(1,(7,8))");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Mode`] beyond the rank; those of [`append`](Self::append).
    pub const fn replace(&self, at: usize, mode: &Self) -> Result<Self, LayoutError> {
        both(self.shape.replace(at, &mode.shape), self.stride.replace(at, &mode.stride))
    }

    /// Modes `begin..end` as the modes of a new layout.
    ///
    /// ```
    /// # use cute_rs::Layout;
    /// assert_eq!(Layout::flat(&[2, 3, 4], &[1, 2, 6])?.take(1, 3)?.to_string(), "(3,4):(2,6)");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Mode`] beyond the rank.
    pub const fn take(&self, begin: usize, end: usize) -> Result<Self, LayoutError> {
        both(self.shape.take(begin, end), self.stride.take(begin, end))
    }

    /// Selects modes in the given order: mode `k` of R is mode `modes[k]` of L. A mode may be selected
    /// several times.
    ///
    /// ```
    /// # use cute_rs::Layout;
    /// assert_eq!(Layout::flat(&[2, 3, 4], &[1, 2, 6])?.select(&[2, 0])?.to_string(), "(4,2):(6,1)");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Mode`] beyond the rank; [`LayoutError::Capacity`].
    pub const fn select(&self, modes: &[usize]) -> Result<Self, LayoutError> {
        both(self.shape.select(modes), self.stride.select(modes))
    }

    /// Nests the leaves like `profile`: `R(i) = L(i)`.
    ///
    /// ```
    /// # use cute_rs::{IntTuple, Layout};
    /// let nested = Layout::flat(&[2, 3, 4], &[1, 2, 6])?.unflatten(&IntTuple::from((0, (0, 0))))?;
    /// assert_eq!(nested.to_string(), "(2,(3,4)):(1,(2,6))");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Profile`] if the numbers of leaves differ.
    pub const fn unflatten(&self, profile: &IntTuple) -> Result<Self, LayoutError> {
        both(self.shape.unflatten(profile), self.stride.unflatten(profile))
    }

    /// The modes in reverse order, at every depth: mode `k` of R is mode `rank - 1 - k` of L, reversed.
    ///
    /// ```
    /// # use cute_rs::Layout;
    /// assert_eq!(Layout::flat(&[2, 3], &[1, 2])?.reverse().to_string(), "(3,2):(2,1)");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    pub const fn reverse(&self) -> Self {
        Self { shape: self.shape.reverse(), stride: self.stride.reverse() }
    }

    /// Pairs the modes of two layouts: `R(((a0,b0),(a1,b1),…)) = A((a0,a1,…)) + B((b0,b1,…))`.
    ///
    /// ```
    /// # use cute_rs::Layout;
    /// let (tile, rest) = (Layout::flat(&[2, 4], &[1, 2])?, Layout::flat(&[3, 5], &[8, 24])?);
    /// assert_eq!(tile.zip(&rest)?.to_string(), "((2,3),(4,5)):((1,8),(2,24))");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Rank`] if the ranks differ; [`LayoutError::Capacity`].
    pub const fn zip(&self, other: &Self) -> Result<Self, LayoutError> {
        both(self.shape.zip(&other.shape), self.stride.zip(&other.stride))
    }

    /// Gives the elements another shape, in the same order: `R(i) = L(i)`. The shape of R refines `shape`.
    ///
    /// ```
    /// # use cute_rs::{IntTuple, Layout};
    /// let rows = Layout::flat(&[4, 6], &[6, 1])?;
    /// assert_eq!(rows.with_shape(IntTuple::from((2, 12)))?.to_string(), "(2,(2,6)):(6,(12,1))");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Layout::composition`]; [`LayoutError::Extent`] for an extent below 1.
    pub const fn with_shape(&self, shape: IntTuple) -> Result<Self, LayoutError> {
        self.composition(&ok!(Self::column_major(shape)))
    }
}
