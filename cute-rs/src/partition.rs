//! Partitions: a layout cut into equal parts that begin in different places.
//!
//! A part is a layout together with its start: an offset, or the first coordinate for a [`CoordLayout`]. Both
//! the tiles of a tensor and the elements that each thread has of a tile come from a divide. One half of the
//! divide is the part, and the other half, evaluated at a coordinate, is the start.

mod tensor;

use crate::algebra::Tiler;
use crate::composed::{ComposedLayout, added};
use crate::coord_layout::CoordLayout;
use crate::error::LayoutError;
use crate::int_tuple::{IntTuple, MAX_LEAVES};
use crate::layout::Layout;

pub use tensor::{Pattern, Predicate, Start, Tensor};

/// The parts of a layout L, one for each coordinate `c`: `L(element x of part c) = starts(c) + part(x)`.
///
/// ```
/// # use cute_rs::{IntTuple, Layout, Tiler};
/// let matrix = Layout::flat(&[8, 6], &[1, 8])?;
/// let tiles = matrix.inner_partition(&Tiler::Shape(&IntTuple::from((4, 2))))?;
/// assert_eq!(tiles.part().to_string(), "(4,2):(1,8)");
/// assert_eq!(tiles.starts().to_string(), "(2,3):(4,16)");
/// assert_eq!(tiles.at(&[Some(1), Some(2)])?, (tiles.part(), 4 + 2 * 16));
/// # Ok::<(), cute_rs::LayoutError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Partition<L> {
    part: L,
    /// Strides count along components if the parts are coordinate layouts.
    starts: Layout,
}

impl<L: Copy> Partition<L> {
    /// The layout of a part, without its start. It is the same for all parts.
    pub const fn part(&self) -> L {
        self.part
    }

    /// Number of parts.
    pub const fn count(&self) -> i64 {
        self.starts.size()
    }

    /// Number of modes of the coordinate that selects a part.
    pub const fn rank(&self) -> usize {
        self.starts.rank()
    }

    /// The same partition with another kind of part.
    const fn with<M: Copy>(&self, part: M) -> Partition<M> {
        Partition { part, starts: self.starts }
    }
}

impl Partition<Layout> {
    pub(crate) const fn new(part: Layout, starts: Layout) -> Self {
        Self { part, starts }
    }

    /// The same partition of another kind of layout.
    pub(crate) fn of<L: Pattern>(&self, layout: &L) -> Partition<L> {
        self.with(layout.with_function(self.part))
    }

    /// The offset at which each part begins, as a layout.
    pub const fn starts(&self) -> Layout {
        self.starts
    }

    /// The part at a coordinate, and the offset at which it begins. An open mode, `None`, becomes the last
    /// mode of the part. A single integer numbers all parts.
    ///
    /// # Errors
    /// [`LayoutError::Rank`] unless there is one entry per mode, or a single entry.
    pub const fn at(&self, coord: &[Option<i64>]) -> Result<(Layout, i64), LayoutError> {
        let starts = ok!(self.starts.numbered(coord));
        let (open, offset) = ok!(starts.slice(coord));
        Ok((ok!(joined(&self.part, &open)), offset))
    }
}

impl Partition<ComposedLayout> {
    /// The offset at which each part begins, before the swizzle and relative to the offset of the partitioned
    /// layout.
    pub const fn starts(&self) -> Layout {
        self.starts
    }

    /// The part at a coordinate; its offset says where it begins. See [`Partition::<Layout>::at`].
    ///
    /// # Errors
    /// [`LayoutError::Rank`] unless there is one entry per mode, or a single entry.
    pub const fn at(&self, coord: &[Option<i64>]) -> Result<ComposedLayout, LayoutError> {
        let (layout, offset) = ok!(self.with(self.part.layout).at(coord));
        let offset = ok!(added(self.part.offset, offset));
        Ok(ComposedLayout { layout, offset, ..self.part })
    }
}

impl Partition<CoordLayout> {
    /// The first coordinate of each part, as a coordinate layout.
    pub const fn starts(&self) -> CoordLayout {
        self.part.with_inner(self.starts)
    }

    /// The part at a coordinate, and its first coordinate. See [`Partition::<Layout>::at`].
    ///
    /// # Errors
    /// [`LayoutError::Rank`] unless there is one entry per mode, or a single entry.
    pub const fn at(&self, coord: &[Option<i64>]) -> Result<(CoordLayout, IntTuple), LayoutError> {
        let starts = self.part.with_inner(ok!(self.starts.numbered(coord)));
        let (open, start) = ok!(starts.slice(coord));
        let part = ok!(joined(self.part.inner(), open.inner()));
        Ok((self.part.with_inner(part), start))
    }
}

/// A part with the open modes of the coordinate appended.
const fn joined(part: &Layout, open: &Layout) -> Result<Layout, LayoutError> {
    if open.shape_ref().is_empty() {
        return Ok(*part);
    }
    let mut joined = Layout::EMPTY;
    ok!(joined.extend_modes(part));
    ok!(joined.extend_modes(open));
    joined.close()
}

impl Layout {
    /// The layout as one mode if the coordinate is a single integer for all modes.
    const fn numbered(&self, coord: &[Option<i64>]) -> Result<Self, LayoutError> {
        if coord.len() == 1 && self.rank() != 1 { self.wrap() } else { Ok(*self) }
    }

    /// Partitions a layout into tiles: with `(tile, rest) = zipped_divide(L, T)`, there is one tile per
    /// coordinate of the rest.
    ///
    /// `L((x,c)) = starts(c) + part(x)` with `part = tile`, `starts = rest`
    ///
    /// # Errors
    /// Those of [`Layout::zipped_divide_by`].
    pub const fn inner_partition(&self, tiler: &Tiler<'_>) -> Result<Partition<Self>, LayoutError> {
        let both = ok!(self.zipped_divide_by(tiler));
        Ok(Partition { part: both.mode(0), starts: both.mode(1) })
    }

    /// Partitions a layout by the place in the tile: with `(tile, rest) = zipped_divide(L, T)`, each part is
    /// what is at one place of every tile.
    ///
    /// `L((c,x)) = starts(c) + part(x)` with `part = rest`, `starts = tile`
    ///
    /// ```
    /// # use cute_rs::{IntTuple, Layout, Tiler};
    /// let matrix = Layout::flat(&[8, 6], &[1, 8])?;
    /// let places = matrix.outer_partition(&Tiler::Shape(&IntTuple::from((4, 2))))?;
    /// assert_eq!(places.part().to_string(), "(2,3):(4,16)");
    /// assert_eq!(places.at(&[Some(3), Some(1)])?.1, 3 + 8);
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Layout::zipped_divide_by`].
    pub const fn outer_partition(&self, tiler: &Tiler<'_>) -> Result<Partition<Self>, LayoutError> {
        let both = ok!(self.zipped_divide_by(tiler));
        Ok(Partition { part: both.mode(1), starts: both.mode(0) })
    }

    /// Partitions a layout among threads: each thread has one element of every tile. The threads' layout maps
    /// a place in the tile to the number of the thread. Mode `i` of L is divided by the extent of mode `i` of
    /// the threads.
    ///
    /// `L((p,x)) = starts(threads(p)) + part(x)`
    ///
    /// ```
    /// # use cute_rs::Layout;
    /// let matrix = Layout::flat(&[4, 8], &[1, 4])?;
    /// let threads = Layout::flat(&[2, 4], &[4, 1])?; // Thread 5 is at row 1, column 1.
    /// let parts = matrix.thread_partition(&threads)?;
    /// assert_eq!(parts.part().to_string(), "(2,2):(2,16)");
    /// assert_eq!(parts.at(&[Some(5)])?.1, 1 + 4);
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::NotInjective`] unless each mode of the threads steps over all smaller ones; those of
    /// [`zipped_divide_by`](Self::zipped_divide_by) and [`composition`](Self::composition).
    pub const fn thread_partition(&self, threads: &Self) -> Result<Partition<Self>, LayoutError> {
        self.thread_partition_along(threads, &[])
    }

    /// [`thread_partition`](Self::thread_partition) along some modes of the threads only: those for which
    /// `along` is true are modes of L. Threads that differ only in the other modes have the same part. Modes
    /// beyond the end of `along` count as `true`. CuTe's projection.
    ///
    /// ```
    /// # use cute_rs::Layout;
    /// // Of 2 x 4 threads, the threads of one row share a part of the column vector.
    /// let (column, threads) = (Layout::flat(&[6], &[1])?, Layout::flat(&[2, 4], &[4, 1])?);
    /// let parts = column.thread_partition_along(&threads, &[true, false])?;
    /// assert_eq!(parts.part().to_string(), "(3):(2)");
    /// assert_eq!([0, 3, 4, 7].map(|thread| parts.at(&[Some(thread)]).map(|part| part.1)), [Ok(0), Ok(0), Ok(1), Ok(1)]);
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`thread_partition`](Self::thread_partition).
    pub const fn thread_partition_along(
        &self,
        threads: &Self,
        along: &[bool],
    ) -> Result<Partition<Self>, LayoutError> {
        let (tile, places) = ok!(places(threads, along));
        let parts = ok!(self.outer_partition(&Tiler::Shape(&tile)));
        let starts = ok!(parts.starts.composition(&places));
        let starts = ok!(starts.wrap());
        Ok(Partition { part: parts.part, starts })
    }

    /// One tile of a layout and the offset at which it begins: tile `coord` of
    /// [`inner_partition`](Self::inner_partition). An open mode of the coordinate, `None`, keeps that mode of
    /// tiles at the end: `(tile, tile, …, rest, …)`.
    ///
    /// ```
    /// # use cute_rs::{IntTuple, Layout, Tiler};
    /// // All k-tiles of the second row of 64 x 32 tiles of a row-major 128 x 96 matrix.
    /// let matrix = Layout::flat(&[128, 96], &[96, 1])?;
    /// let tiler = IntTuple::from((64, 32));
    /// let (tiles, start) = matrix.local_tile(&Tiler::Shape(&tiler), &[Some(1), None])?;
    /// assert_eq!((tiles.to_string().as_str(), start), ("(64,32,3):(96,1,32)", 64 * 96));
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`inner_partition`](Self::inner_partition); [`LayoutError::Rank`] unless there is one entry
    /// per mode, or a single entry.
    pub const fn local_tile(
        &self,
        tiler: &Tiler<'_>,
        coord: &[Option<i64>],
    ) -> Result<(Self, i64), LayoutError> {
        ok!(self.inner_partition(tiler)).at(coord)
    }

    /// [`local_tile`](Self::local_tile) for one of several layouts that share a tiler and a coordinate. L has
    /// those of the shared modes for which `along` is true. CuTe's projection.
    ///
    /// ```
    /// # use cute_rs::{IntTuple, Layout, Tiler};
    /// // A tile (M,N,K) = (64,128,32) and its coordinate (1,5,_): A has modes M and K.
    /// let tile = [64, 128, 32].map(IntTuple::int);
    /// let a = Layout::flat(&[128, 96], &[96, 1])?;
    /// let tiler = [Tiler::Shape(&tile[0]), Tiler::Shape(&tile[1]), Tiler::Shape(&tile[2])];
    /// let (tiles, start) = a.local_tile_along(&tiler, &[Some(1), Some(5), None], &[true, false, true])?;
    /// assert_eq!((tiles.to_string().as_str(), start), ("(64,32,3):(96,1,32)", 64 * 96));
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`local_tile`](Self::local_tile); [`LayoutError::Rank`] if tiler, coordinate and `along`
    /// differ in length; [`LayoutError::Capacity`] above [`MAX_LEAVES`] modes.
    pub const fn local_tile_along(
        &self,
        tiler: &[Tiler<'_>],
        coord: &[Option<i64>],
        along: &[bool],
    ) -> Result<(Self, i64), LayoutError> {
        let mut tilers = [Tiler::Keep; MAX_LEAVES];
        let mut coords = [None; MAX_LEAVES];
        if tiler.len() != along.len() || coord.len() != along.len() {
            let given = if tiler.len() == along.len() { coord.len() } else { tiler.len() };
            return Err(LayoutError::Rank { needed: along.len(), given });
        }
        if along.len() > MAX_LEAVES {
            return Err(LayoutError::Capacity { leaves: along.len() });
        }
        let mut count = 0;
        each!(i, 0..along.len(), {
            if along[i] {
                tilers[count] = tiler[i];
                coords[count] = coord[i];
                count += 1;
            }
        });
        self.local_tile(&Tiler::Modes(tilers.split_at(count).0), coords.split_at(count).0)
    }

    /// The elements of one thread, and the offset at which they begin: part `index` of
    /// [`thread_partition`](Self::thread_partition).
    ///
    /// ```
    /// # use cute_rs::Layout;
    /// let tile = Layout::flat(&[8, 8], &[8, 1])?;
    /// let (part, start) = tile.local_partition(&Layout::flat(&[2, 4], &[4, 1])?, 6)?;
    /// assert_eq!((part.to_string().as_str(), start), ("(4,2):(16,4)", 8 + 2));
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`thread_partition`](Self::thread_partition).
    pub const fn local_partition(&self, threads: &Self, index: i64) -> Result<(Self, i64), LayoutError> {
        ok!(self.thread_partition(threads)).at(&[Some(index)])
    }
}

/// The tile that the threads fill, and the layout `thread -> integer coordinate in the tile`. Gaps in the
/// thread numbers, such as the lane where only warps count, do not change the place.
const fn places(threads: &Layout, along: &[bool]) -> Result<(IntTuple, Layout), LayoutError> {
    let rank = threads.rank();
    // Extent, stride and step in the tile of each leaf, smallest stride first.
    let mut leaves = [(1, 0, 0); MAX_LEAVES];
    let mut count = 0;
    let mut tile = IntTuple::EMPTY;
    let mut step: i64 = 1;
    each!(m, 0..rank, {
        let mode = threads.mode(m);
        let counts = m >= along.len() || along[m];
        let (shape, stride) = (mode.shape(), mode.stride());
        each!(i, 0..shape.len(), {
            let (s, d) = (shape.leaf(i), stride.leaf(i));
            if s > 1 {
                if d < 1 {
                    return Err(LayoutError::NotInjective { stride: d, reach: 1 });
                }
                let mut at = count;
                while at > 0 && leaves[at - 1].1 > d {
                    leaves[at] = leaves[at - 1];
                    at -= 1;
                }
                leaves[at] = (s, d, if counts { step } else { 0 });
                count += 1;
            }
            if counts {
                step = step.saturating_mul(s);
            }
        });
        if counts {
            ok!(tile.push(mode.size(), 0));
        }
    });
    let mut places = Layout::EMPTY;
    let mut reach: i64 = 1;
    each!(i, 0..count, {
        let (s, d, step) = leaves[i];
        if d % reach != 0 {
            return Err(LayoutError::NotInjective { stride: d, reach });
        }
        if d > reach {
            ok!(places.push(d / reach, 0, 0));
        }
        ok!(places.push(s, step, 0));
        reach = d.saturating_mul(s);
    });
    if count == 0 {
        ok!(places.push(1, 0, 0));
    }
    Ok((ok!(tile.close()), ok!(places.close())))
}

/// Implements the partitions for layouts that contain a [`Layout`].
macro_rules! partitions {
    ($($kind:ident: $inner:ident -> $at:ty, $located:literal;)+) => {$(
        impl $kind {
            /// The tiles. See [`Layout::inner_partition`].
            ///
            /// # Errors
            /// Those of [`Layout::inner_partition`].
            pub const fn inner_partition(&self, tiler: &Tiler<'_>) -> Result<Partition<Self>, LayoutError> {
                self.parts(self.$inner().inner_partition(tiler))
            }

            /// What is at one place of every tile. See [`Layout::outer_partition`].
            ///
            /// # Errors
            /// Those of [`Layout::outer_partition`].
            pub const fn outer_partition(&self, tiler: &Tiler<'_>) -> Result<Partition<Self>, LayoutError> {
                self.parts(self.$inner().outer_partition(tiler))
            }

            /// The elements of each thread. See [`Layout::thread_partition`].
            ///
            /// # Errors
            /// Those of [`Layout::thread_partition`].
            pub const fn thread_partition(&self, threads: &Layout) -> Result<Partition<Self>, LayoutError> {
                self.parts(self.$inner().thread_partition(threads))
            }

            #[doc = concat!("One tile, ", $located, ". See [`Layout::local_tile`].")]
            ///
            /// # Errors
            /// Those of [`Layout::local_tile`].
            pub const fn local_tile(
                &self,
                tiler: &Tiler<'_>,
                coord: &[Option<i64>],
            ) -> Result<$at, LayoutError> {
                ok!(self.inner_partition(tiler)).at(coord)
            }

            #[doc = concat!("What one thread has, ", $located, ". See [`Layout::local_partition`].")]
            ///
            /// # Errors
            /// Those of [`Layout::local_partition`].
            pub const fn local_partition(&self, threads: &Layout, index: i64) -> Result<$at, LayoutError> {
                ok!(self.thread_partition(threads)).at(&[Some(index)])
            }

            /// Parts of this kind.
            pub(crate) const fn parts(
                &self,
                parts: Result<Partition<Layout>, LayoutError>,
            ) -> Result<Partition<Self>, LayoutError> {
                let parts = ok!(parts);
Ok(parts.with(self.with_inner(parts.part)))
            }
        }
    )+};
}

partitions! {
    ComposedLayout: inner -> Self, "whose offset says where it begins";
    CoordLayout: inner -> (Self, IntTuple), "and its first coordinate";
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    fn layout(shape: impl Into<IntTuple>, stride: impl Into<IntTuple>) -> Layout {
        Layout::new(shape.into(), stride.into()).unwrap()
    }

    #[test]
    fn threads_have_parts() {
        let matrix = layout((8, 8), (1, 8));
        for (why, threads, part, thread, start) in [
            ("one element in two", layout((2, 2), (1, 2)), "(4,4):(2,16)", 3, 1 + 8),
            ("rows first", layout((2, 2), (2, 1)), "(4,4):(2,16)", 1, 8),
            ("a nested mode", layout(((2, 2), 2), ((1, 4), 2)), "(2,4):(4,16)", 5, 3),
            ("warps, whichever lane", layout((2, 2), (32, 64)), "(4,4):(2,16)", 32 + 17, 1),
        ] {
            let (got, offset) = matrix.local_partition(&threads, thread).unwrap();
            assert_eq!((got.to_string().as_str(), offset), (part, start), "{why}");
        }
        for (why, threads, want) in [
            (
                "two places of one thread",
                layout((2, 2), (1, 0)),
                LayoutError::NotInjective { stride: 0, reach: 1 },
            ),
            (
                "threads that overlap",
                layout((4, 2), (1, 2)),
                LayoutError::NotInjective { stride: 2, reach: 4 },
            ),
        ] {
            assert_eq!(matrix.local_partition(&threads, 0), Err(want), "{why}");
        }
    }

    #[test]
    fn coordinates_choose_parts() {
        let matrix = layout((8, 6), (6, 1));
        let shape = IntTuple::from((4, 2));
        let tiles = matrix.inner_partition(&Tiler::Shape(&shape)).unwrap();
        for (why, coord, want) in [
            ("one a mode", &[Some(1), Some(2)][..], Ok(("(4,2):(6,1)", 24 + 4))),
            ("one for all", &[Some(1 + 2 * 2)], Ok(("(4,2):(6,1)", 24 + 4))),
            ("columns stay", &[Some(1), None], Ok(("(4,2,3):(6,1,2)", 24))),
            ("all stay", &[None], Ok(("(4,2,(2,3)):(6,1,(24,2))", 0))),
            ("too many", &[Some(1); 3], Err(LayoutError::Rank { needed: 2, given: 3 })),
        ] {
            let got = tiles.at(coord).map(|(part, start)| (part.to_string(), start));
            assert_eq!(got, want.map(|(part, start)| (part.to_string(), start)), "{why}");
        }
        assert_eq!((tiles.count(), tiles.rank()), (6, 2));
    }
}
