//! Editing: tuples made from the modes of others.

use super::{IntTuple, MAX_LEAVES};
use crate::error::LayoutError;

/// Refuses a mode beyond the rank.
pub(crate) const fn mode_exists(mode: usize, rank: usize) -> Result<(), LayoutError> {
    if mode < rank { Ok(()) } else { Err(LayoutError::Mode { mode, rank }) }
}

impl IntTuple {
    /// The sub-tuple at a mode path: `get(&[1, 0])` is mode 0 of mode 1, and `get(&[])` is the whole tuple.
    /// An integer is its own mode 0.
    ///
    /// ```
    /// # use cute_rs::IntTuple;
    /// assert_eq!(IntTuple::from((2, (3, 4))).get(&[1, 0])?, IntTuple::int(3));
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Mode`] if the path leaves the tuple.
    pub const fn get(&self, path: &[usize]) -> Result<Self, LayoutError> {
        let mut part = *self;
        each!(i, 0..path.len(), {
            ok!(mode_exists(path[i], part.rank()));
            part = part.mode(path[i]);
        });
        Ok(part)
    }

    /// Appends a mode: `(2,3)` and `4` give `(2,3,4)`. An integer counts as its own only mode.
    ///
    /// ```
    /// # use cute_rs::IntTuple;
    /// assert_eq!(IntTuple::from((2, 3)).append(&IntTuple::int(4))?.to_string(), "(2,3,4)");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Capacity`] above [`MAX_LEAVES`] leaves; [`LayoutError::EmptyMode`] for a mode `()`.
    pub const fn append(&self, mode: &Self) -> Result<Self, LayoutError> {
        self.insert(self.rank(), mode)
    }

    /// Prepends a mode: `(2,3)` and `4` give `(4,2,3)`.
    ///
    /// ```
    /// # use cute_rs::IntTuple;
    /// assert_eq!(IntTuple::from((2, 3)).prepend(&IntTuple::int(4))?.to_string(), "(4,2,3)");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`append`](Self::append).
    pub const fn prepend(&self, mode: &Self) -> Result<Self, LayoutError> {
        self.insert(0, mode)
    }

    /// Inserts a mode before mode `at`; with `at` equal to the rank, at the end.
    ///
    /// ```
    /// # use cute_rs::IntTuple;
    /// assert_eq!(IntTuple::from((2, 3)).insert(1, &IntTuple::int(4))?.to_string(), "(2,4,3)");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Mode`] beyond the rank; those of [`append`](Self::append).
    pub const fn insert(&self, at: usize, mode: &Self) -> Result<Self, LayoutError> {
        self.splice(at, at, mode, true)
    }

    /// Removes mode `at`.
    ///
    /// ```
    /// # use cute_rs::IntTuple;
    /// assert_eq!(IntTuple::from((2, 3, 4)).remove(1)?.to_string(), "(2,4)");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Mode`] beyond the rank.
    pub const fn remove(&self, at: usize) -> Result<Self, LayoutError> {
        ok!(mode_exists(at, self.rank()));
        self.splice(at, at + 1, &Self::EMPTY, false)
    }

    /// Replaces mode `at` by another mode.
    ///
    /// ```
    /// # use cute_rs::IntTuple;
    /// assert_eq!(IntTuple::from((2, 3, 4)).replace(1, &IntTuple::from((5, 6)))?.to_string(), "(2,(5,6),4)");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Mode`] beyond the rank; those of [`append`](Self::append).
    pub const fn replace(&self, at: usize, mode: &Self) -> Result<Self, LayoutError> {
        ok!(mode_exists(at, self.rank()));
        if self.is_int() { Ok(*mode) } else { self.splice(at, at + 1, mode, true) }
    }

    /// Modes `begin..end` as a tuple.
    ///
    /// ```
    /// # use cute_rs::IntTuple;
    /// assert_eq!(IntTuple::from((2, 3, 4)).take(1, 3)?.to_string(), "(3,4)");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Modes`] if the range begins after its end; [`LayoutError::Mode`] beyond the rank.
    pub const fn take(&self, begin: usize, end: usize) -> Result<Self, LayoutError> {
        let rank = self.rank();
        if begin > end {
            return Err(LayoutError::Modes { begin, end, rank });
        }
        if end > rank {
            return Err(LayoutError::Mode { mode: end - 1, rank });
        }
        let mut taken = Self::EMPTY;
        each!(i, begin..end, {
            ok!(taken.extend(&self.mode(i)));
        });
        taken.close()
    }

    /// Selects modes in the given order. A mode may be selected several times.
    ///
    /// ```
    /// # use cute_rs::IntTuple;
    /// assert_eq!(IntTuple::from((2, 3, 4)).select(&[2, 0])?.to_string(), "(4,2)");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Mode`] beyond the rank; [`LayoutError::Capacity`].
    pub const fn select(&self, modes: &[usize]) -> Result<Self, LayoutError> {
        let mut selected = Self::EMPTY;
        each!(i, 0..modes.len(), {
            ok!(mode_exists(modes[i], self.rank()));
            ok!(selected.extend(&self.mode(modes[i])));
        });
        selected.close()
    }

    /// Groups modes `begin..end` into one mode: `group(1, 3)` makes `(2,(3,4),5)` of `(2,3,4,5)`.
    ///
    /// ```
    /// # use cute_rs::IntTuple;
    /// assert_eq!(IntTuple::from((2, 3, 4, 5)).group(1, 3)?.to_string(), "(2,(3,4),5)");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Rank`] if `end` is beyond the rank; [`LayoutError::EmptyMode`] unless `begin < end`.
    pub const fn group(&self, begin: usize, end: usize) -> Result<Self, LayoutError> {
        let rank = self.rank();
        if end > rank {
            return Err(LayoutError::Rank { needed: end, given: rank });
        }
        if begin >= end {
            return Err(LayoutError::EmptyMode { mode: begin });
        }
        let mut grouped = *self;
        if self.is_int() {
            return grouped.close();
        }
        // Removes the outer parentheses, so that the group's own parentheses are inside them.
        let last = self.len() - 1;
        grouped.opens[0] -= 1;
        grouped.closes[last] -= 1;
        let (start, stop) = (self.mode_range(begin).0, self.mode_range(end - 1).1);
        ok!(grouped.wrap_leaves(start, stop, 1, 1));
        grouped.close()
    }

    /// A tuple of `count` copies of this mode.
    ///
    /// ```
    /// # use cute_rs::IntTuple;
    /// assert_eq!(IntTuple::from((2, 3)).repeat(2)?.to_string(), "((2,3),(2,3))");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Capacity`]; [`LayoutError::EmptyMode`] for copies of `()`.
    pub const fn repeat(&self, count: usize) -> Result<Self, LayoutError> {
        let mut repeated = Self::EMPTY;
        if self.is_empty() && count > 0 {
            return Err(LayoutError::EmptyMode { mode: 0 });
        }
        each!(_i, 0..count, {
            ok!(repeated.extend(self));
        });
        repeated.close()
    }

    /// The same nesting with one value in every leaf.
    ///
    /// ```
    /// # use cute_rs::IntTuple;
    /// assert_eq!(IntTuple::from((2, (3, 4))).filled(1).to_string(), "(1,(1,1))");
    /// ```
    pub const fn filled(&self, value: i64) -> Self {
        self.with_leaves(&[value; MAX_LEAVES])
    }

    /// The modes in reverse order, at every depth.
    ///
    /// ```
    /// # use cute_rs::IntTuple;
    /// assert_eq!(IntTuple::from((2, (3, 4))).reverse().to_string(), "((4,3),2)");
    /// ```
    pub const fn reverse(&self) -> Self {
        let mut reversed = *self;
        each!(i, 0..self.len(), {
            let from = self.len() - 1 - i;
            reversed.leaves[i] = self.leaves[from];
            reversed.axes[i] = self.axes[from];
            reversed.opens[i] = self.closes[from];
            reversed.closes[i] = self.opens[from];
        });
        reversed
    }

    /// Nests the leaves like `profile`.
    ///
    /// ```
    /// # use cute_rs::IntTuple;
    /// let nested = IntTuple::from((2, 3, 4)).unflatten(&IntTuple::from((0, (0, 0))))?;
    /// assert_eq!(nested.to_string(), "(2,(3,4))");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Profile`] if the numbers of leaves differ.
    pub const fn unflatten(&self, profile: &Self) -> Result<Self, LayoutError> {
        if self.len != profile.len {
            return Err(LayoutError::Profile { tuple: *self, profile: *profile });
        }
        Ok(profile.with_leaves(&self.leaves).with_axes(&self.axes))
    }

    /// The tuple as the only mode of another: `6` gives `(6)`.
    ///
    /// ```
    /// # use cute_rs::IntTuple;
    /// assert_eq!(IntTuple::int(6).wrap()?.to_string(), "(6)");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Depth`] above 255 levels.
    pub const fn wrap(&self) -> Result<Self, LayoutError> {
        self.close()
    }

    /// The tuple without the parentheses around a single mode: `((6))` gives `6`.
    ///
    /// ```
    /// # use cute_rs::IntTuple;
    /// assert_eq!(IntTuple::from(((2, 3),)).unwrap_modes().to_string(), "(2,3)");
    /// ```
    pub const fn unwrap_modes(&self) -> Self {
        let mut inner = *self;
        while !inner.is_int() && inner.rank() == 1 {
            inner = inner.mode(0);
        }
        inner
    }

    /// Pairs the modes of two tuples: `(a,b)` and `(c,d)` give `((a,c),(b,d))`.
    ///
    /// ```
    /// # use cute_rs::IntTuple;
    /// assert_eq!(IntTuple::from((2, 3)).zip(&IntTuple::from((4, 5)))?.to_string(), "((2,4),(3,5))");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Rank`] if the ranks differ; [`LayoutError::Capacity`].
    pub const fn zip(&self, other: &Self) -> Result<Self, LayoutError> {
        if self.rank() != other.rank() {
            return Err(LayoutError::Rank { needed: self.rank(), given: other.rank() });
        }
        let mut zipped = Self::EMPTY;
        each!(i, 0..self.rank(), {
            let start = zipped.len();
            ok!(zipped.extend(&self.mode(i)));
            ok!(zipped.extend(&other.mode(i)));
            ok!(zipped.wrap_leaves(start, zipped.len(), 1, 1));
        });
        zipped.close()
    }

    /// Replaces modes `begin..end` by one mode, or removes them.
    const fn splice(
        &self,
        begin: usize,
        end: usize,
        mode: &Self,
        with_mode: bool,
    ) -> Result<Self, LayoutError> {
        let rank = self.rank();
        if begin > rank {
            return Err(LayoutError::Mode { mode: begin, rank });
        }
        if with_mode && mode.is_empty() {
            return Err(LayoutError::EmptyMode { mode: begin });
        }
        let mut spliced = Self::EMPTY;
        let mut i = 0;
        while i <= rank {
            if i == begin && with_mode {
                ok!(spliced.extend(mode));
            }
            if i < rank && (i < begin || i >= end) {
                ok!(spliced.extend(&self.mode(i)));
            }
            i += 1;
        }
        spliced.close()
    }
}
