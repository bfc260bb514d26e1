//! Thread-value layouts: which thread holds which elements of a tile.

use crate::algebra::pair;
use crate::error::LayoutError;
use crate::int_tuple::{IntTuple, MAX_LEAVES};
use crate::layout::Layout;

/// A layout `(thread, value) -> m + rows * n` onto a tile of `rows x columns` elements. It says which thread
/// holds which elements when a group of threads executes an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ThreadValue {
    layout: Layout,
    rows: i64,
    columns: i64,
}

impl ThreadValue {
    /// Creates a thread-value layout onto a tile of `rows x columns` elements.
    ///
    /// ```
    /// # use cute_rs::{IntTuple, Layout, ThreadValue};
    /// // Each of four threads holds two neighbours of a row: thread t has (t / 2, 2 * (t % 2)) and the
    /// // element to its right.
    /// let layout = Layout::new(IntTuple::from(((2, 2), 2)), IntTuple::from(((4, 1), 2)))?;
    /// let owners = ThreadValue::new(layout, 2, 4)?;
    /// assert_eq!((owners.coord(3, 0), owners.coord(3, 1)), ((1, 2), (1, 3)));
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Rank`] unless the layout has two modes; [`LayoutError::Extent`] for a tile without rows
    /// or columns.
    pub const fn new(layout: Layout, rows: i64, columns: i64) -> Result<Self, LayoutError> {
        if rows < 1 || columns < 1 {
            return Err(LayoutError::Extent { shape: IntTuple::int(if rows < 1 { rows } else { columns }) });
        }
        if layout.rank() == 2 {
            Ok(Self { layout, rows, columns })
        } else {
            Err(LayoutError::Rank { needed: 2, given: layout.rank() })
        }
    }

    /// The layout `(thread, value) -> m + rows * n`.
    ///
    /// ```
    /// # use cute_rs::{Layout, ThreadValue};
    /// let layout = Layout::flat(&[4, 2], &[2, 1])?;
    /// assert_eq!(ThreadValue::new(layout, 2, 4)?.layout(), layout);
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    pub const fn layout(&self) -> Layout {
        self.layout
    }

    /// Extents of the tile: rows, then columns.
    ///
    /// ```
    /// # use cute_rs::{Layout, ThreadValue};
    /// assert_eq!(ThreadValue::new(Layout::flat(&[4, 2], &[2, 1])?, 2, 4)?.tile(), (2, 4));
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    pub const fn tile(&self) -> (i64, i64) {
        (self.rows, self.columns)
    }

    /// The element `(m, n)` that is value `v` of thread `t`.
    ///
    /// ```
    /// # use cute_rs::{Layout, ThreadValue};
    /// assert_eq!(ThreadValue::new(Layout::flat(&[4, 2], &[2, 1])?, 2, 4)?.coord(3, 1), (1, 3));
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    pub const fn coord(&self, t: i64, v: i64) -> (i64, i64) {
        let index = self.layout.at_modes(&[t, v]);
        (index % self.rows, index / self.rows)
    }

    /// The projection onto rows: `(thread, value) -> m`.
    ///
    /// ```
    /// # use cute_rs::{Layout, ThreadValue};
    /// let owners = ThreadValue::new(Layout::flat(&[4, 2], &[2, 1])?, 2, 4)?;
    /// assert_eq!(owners.rows()?.to_string(), "(4,2):(0,1)");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Straddles`] if a mode, or the sum of several modes, changes row and column at once.
    pub const fn rows(&self) -> Result<Layout, LayoutError> {
        self.project(false)
    }

    /// The projection onto columns: `(thread, value) -> n`.
    ///
    /// ```
    /// # use cute_rs::{Layout, ThreadValue};
    /// let owners = ThreadValue::new(Layout::flat(&[4, 2], &[2, 1])?, 2, 4)?;
    /// assert_eq!(owners.columns()?.to_string(), "(4,2):(1,0)");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Straddles`] if a mode, or the sum of several modes, changes row and column at once.
    pub const fn columns(&self) -> Result<Layout, LayoutError> {
        self.project(true)
    }

    const fn project(&self, columns: bool) -> Result<Layout, LayoutError> {
        let (shape, stride) = (self.layout.shape(), self.layout.stride());
        let mut strides = [0; MAX_LEAVES];
        let mut last_row = 0;
        each!(i, 0..shape.len(), {
            let (s, d) = (shape.leaf(i), stride.leaf(i));
            let along_columns = d % self.rows == 0;
            if !along_columns {
                last_row += (s - 1) * d;
            }
            if last_row >= self.rows {
                return Err(LayoutError::Straddles { shape: s, stride: d, rows: self.rows });
            }
            strides[i] = match (columns, along_columns) {
                (true, true) => d / self.rows,
                (false, false) => d,
                _ => 0,
            };
        });
        Layout::new(shape, stride.with_leaves(&strides))
    }
}

/// The thread-value layout of an instruction fragment, from flat threads `(t0,t1,…)` and flat values
/// `(v0,v1,…)`.
pub(crate) const fn fragment(
    thread: (&[i64], &[i64]),
    value: (&[i64], &[i64]),
    tile: (i64, i64),
) -> Result<ThreadValue, LayoutError> {
    const fn both(a: &[i64], b: &[i64]) -> Result<IntTuple, LayoutError> {
        pair(ok!(IntTuple::flat(a)), ok!(IntTuple::flat(b)))
    }
    let layout = Layout::new(ok!(both(thread.0, value.0)), ok!(both(thread.1, value.1)));
    ThreadValue::new(ok!(layout), tile.0, tile.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(shape: impl Into<IntTuple>, stride: impl Into<IntTuple>) -> Layout {
        Layout::new(shape.into(), stride.into()).unwrap()
    }

    #[test]
    fn projections_agree_with_coordinates() {
        for (why, layout, rows, columns) in [
            ("threads along rows, values along columns", layout((4, 3), (1, 4)), 4, 3),
            ("both nested", layout(((2, 2), (2, 3)), ((1, 8), (2, 16))), 4, 12),
            ("values are broadcast", layout((4, 3), (1, 0)), 4, 1),
            ("steps of 3 that stay in the column", layout((3, 2), (3, 8)), 8, 2),
        ] {
            let fragment = ThreadValue::new(layout, rows, columns).unwrap();
            let (m, n) = (fragment.rows().unwrap(), fragment.columns().unwrap());
            for t in 0..layout.mode(0).size() {
                for v in 0..layout.mode(1).size() {
                    let (row, column) = fragment.coord(t, v);
                    assert!((0..rows).contains(&row) && (0..columns).contains(&column), "{why}");
                    assert_eq!((m.at_modes(&[t, v]), n.at_modes(&[t, v])), (row, column), "{why}: ({t},{v})");
                }
            }
        }
    }

    #[test]
    fn what_crosses_columns_has_no_projection() {
        for (why, layout, (shape, stride)) in [
            ("one mode", layout((4, 2), (3, 16)), (4, 3)),
            ("two modes together", layout(((4, 2), 2), ((2, 4), 8)), (2, 4)),
            ("over both tuples", layout((4, 2), (2, 4)), (2, 4)),
        ] {
            let fragment = ThreadValue::new(layout, 8, 4).unwrap();
            let want = Err(LayoutError::Straddles { shape, stride, rows: 8 });
            assert_eq!((fragment.rows(), fragment.columns()), (want, want), "{why}");
        }
        assert_eq!(
            ThreadValue::new(layout(8, 1), 8, 1),
            Err(LayoutError::Rank { needed: 2, given: 1 }),
            "threads and values are two modes"
        );
    }
}
