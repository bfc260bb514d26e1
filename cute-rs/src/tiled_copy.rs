//! Copies by a group of threads: which thread reads and writes which elements of a tile.

use crate::algebra::Tiler;
use crate::error::LayoutError;
use crate::int_tuple::{IntTuple, MAX_LEAVES};
use crate::layout::Layout;
use crate::partition::{Partition, Pattern};
use crate::thread_value::ThreadValue;

/// A copy of a tile by a group of threads. It has two layouts
/// `(thread, value) -> integer coordinate in the tile`: one for what each thread reads, one for what it
/// writes. They differ if the instruction moves elements between threads.
///
/// ```
/// # use cute_rs::{Layout, TiledCopy};
/// // 4 x 8 threads along rows, each with 2 x 4 elements.
/// let (threads, values) = (Layout::flat(&[4, 8], &[8, 1])?, Layout::flat(&[2, 4], &[4, 1])?);
/// let copy = TiledCopy::new(&threads, &values)?;
/// assert_eq!((copy.tile().to_string().as_str(), copy.threads(), copy.values()), ("(8,32)", 32, 8));
/// assert_eq!(copy.source().to_string(), "((8,4),(4,2)):((32,2),(8,1))");
///
/// // The elements of a row-major 16 x 64 matrix that thread 9 reads.
/// let parts = copy.partition_s(&Layout::flat(&[16, 64], &[64, 1])?)?;
/// assert_eq!(parts.part().to_string(), "((4,2),2,2):((1,64),512,32)");
/// assert_eq!(parts.at(&[Some(9)])?.1, 2 * 64 + 4);
/// # Ok::<(), cute_rs::LayoutError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TiledCopy {
    source: Layout,
    destination: Layout,
    tile: IntTuple,
}

impl TiledCopy {
    /// Creates a copy from an arrangement of threads and an arrangement of each thread's values. Thread `t`
    /// is at the place where the threads' layout is `t`. Value `v` is at the place where the values' layout
    /// is `v`.
    ///
    /// `tile = size(threads_i) * size(values_i)` in mode `i`, and
    /// `coordinate(t, v) = v_i + size(values_i) * t_i` where `threads(t_0, t_1, …) = t`, `values(v_0, v_1, …) = v`
    ///
    /// # Errors
    /// [`LayoutError::Rank`] if the ranks differ; [`LayoutError::NotCompact`] unless threads and values each
    /// take every number below their size once; those of [`Layout::raked_product`] and
    /// [`Layout::with_shape`].
    pub const fn new(threads: &Layout, values: &Layout) -> Result<Self, LayoutError> {
        ok!(compact(threads));
        ok!(compact(values));
        // The thread and value of each place of the tile: thread + threads * value.
        let holder = ok!(threads.raked_product(values));
        let tile = ok!(holder.shape().product_each());
        let pair = ok!(IntTuple::flat(&[threads.size(), values.size()]));
        Self::of(ok!(ok!(holder.right_inverse()).with_shape(pair)), tile)
    }

    /// Creates a copy from a layout `(thread, value) -> integer coordinate` in a tile of this shape. Each
    /// thread writes what it read.
    ///
    /// # Errors
    /// [`LayoutError::Rank`] unless the layout has two modes; [`LayoutError::NegativeStride`];
    /// [`LayoutError::Outside`] if it leaves the tile.
    pub const fn of(layout: Layout, tile: IntTuple) -> Result<Self, LayoutError> {
        Self::between(layout, layout, tile)
    }

    /// Creates a copy that reads by `source` and writes by `destination`, each a layout
    /// `(thread, value) -> integer coordinate` in a tile of this shape. Use it for an instruction that
    /// exchanges elements between threads.
    ///
    /// # Errors
    /// Those of [`of`](Self::of).
    pub const fn between(source: Layout, destination: Layout, tile: IntTuple) -> Result<Self, LayoutError> {
        ok!(within(&source, &tile));
        ok!(within(&destination, &tile));
        Ok(Self { source, destination, tile })
    }

    /// Creates a copy in which each thread reads and writes the elements that it holds in a fragment.
    ///
    /// # Errors
    /// Those of [`of`](Self::of).
    pub const fn of_fragment(fragment: &ThreadValue) -> Result<Self, LayoutError> {
        let (rows, columns) = fragment.tile();
        Self::of(fragment.layout(), ok!(IntTuple::flat(&[rows, columns])))
    }

    /// Repeats the copy over groups of threads, each with its own tile: `groups[i]` groups along mode `i`.
    /// Threads of one group are consecutive, and groups count along mode 0 first. CuTe's tiled copy of an
    /// instruction.
    ///
    /// `coordinate(t + threads * g, v) = coordinate(t, v) + tile_i * g_i` in mode `i`
    ///
    /// ```
    /// # use cute_rs::atom::stmatrix;
    /// // Four warps, one below the other, store what a warpgroup's accumulators have in 16 columns.
    /// let store = stmatrix::stmatrix(4, false)?.in_groups(&[4, 1])?;
    /// assert_eq!((store.tile().to_string().as_str(), store.threads()), ("(64,16)", 128));
    /// assert_eq!(store.destination().at_modes(&[32 + 21, 0]), 16 + 5 + 64 * 8);
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Rank`] unless there is one number per mode of the tile; [`LayoutError::Extent`] for
    /// less than one group; [`LayoutError::Capacity`] above [`MAX_LEAVES`] modes.
    pub const fn in_groups(&self, groups: &[i64]) -> Result<Self, LayoutError> {
        let tile = ok!(self.tile.product_each());
        if groups.len() != tile.len() {
            return Err(LayoutError::Rank { needed: tile.len(), given: groups.len() });
        }
        let mut extents = [1; MAX_LEAVES];
        let (mut inside, mut between) = ([0; MAX_LEAVES], [0; MAX_LEAVES]);
        let mut step: i64 = 1;
        each!(i, 0..groups.len(), {
            if groups[i] < 1 {
                return Err(LayoutError::Extent { shape: IntTuple::int(groups[i]) });
            }
            extents[i] = tile.leaf(i).saturating_mul(groups[i]);
            inside[i] = step;
            between[i] = step.saturating_mul(tile.leaf(i));
            step = step.saturating_mul(extents[i]);
        });
        let rank = groups.len();
        let shape = ok!(IntTuple::flat(groups));
        let groups = ok!(Layout::new(shape, ok!(IntTuple::flat(between.split_at(rank).0))));
        let inside = ok!(Layout::new(tile, tile.with_leaves(&inside)));
        let whole = ok!(IntTuple::flat(extents.split_at(rank).0));
        let (source, destination) =
            (ok!(grouped(&self.source, &inside, &groups)), ok!(grouped(&self.destination, &inside, &groups)));
        Self::between(source, destination, whole)
    }

    /// The layout of the elements that are read: `(thread, value) -> integer coordinate`.
    pub const fn source(&self) -> Layout {
        self.source
    }

    /// The layout of the elements that are written: `(thread, value) -> integer coordinate`.
    pub const fn destination(&self) -> Layout {
        self.destination
    }

    /// The shape of the tile.
    pub const fn tile(&self) -> IntTuple {
        self.tile
    }

    /// Number of threads that read.
    pub const fn threads(&self) -> i64 {
        self.source.mode(0).size()
    }

    /// Number of elements of the tile that a thread reads.
    pub const fn values(&self) -> i64 {
        self.source.mode(1).size()
    }

    /// Partitions a layout by what each thread reads. Part `t` is `(value, rest, rest, …)`: the thread's
    /// values in every tile.
    ///
    /// `part_t(v, r) = L(source(t, v) in tile r)`
    ///
    /// # Errors
    /// Those of [`Layout::inner_partition`] and [`Layout::composition`].
    pub fn partition_s<L: Pattern>(&self, layout: &L) -> Result<Partition<L>, LayoutError> {
        Ok(dealt(layout.function(), &self.tile, &self.source)?.of(layout))
    }

    /// Partitions a layout by what each thread writes. See [`partition_s`](Self::partition_s).
    ///
    /// # Errors
    /// Those of [`Layout::inner_partition`] and [`Layout::composition`].
    pub fn partition_d<L: Pattern>(&self, layout: &L) -> Result<Partition<L>, LayoutError> {
        Ok(dealt(layout.function(), &self.tile, &self.destination)?.of(layout))
    }

    /// The order of this copy's values in the registers of a fragment: `source(t, v) = fragment(t, R(v))` for
    /// every thread. The fragment must be of the same tile and the same threads. Use it to pass registers
    /// that one instruction has filled to another instruction.
    ///
    /// ```
    /// # use cute_rs::{Layout, TiledCopy, atom::wgmma};
    /// // Accumulators of 64 x 16 in the order in which they are stored: one row after the other.
    /// let fragment = wgmma::accumulator(16)?;
    /// let by_rows = cute_rs::IntTuple::from(((4, 8, 4), (2, 2, 2)));
    /// let strides = cute_rs::IntTuple::from(((128, 1, 16), (64, 512, 8)));
    /// let store = TiledCopy::of(Layout::new(by_rows, strides)?, cute_rs::IntTuple::from((64, 16)))?;
    /// assert_eq!(store.retile(&fragment.layout())?.to_string(), "(2,2,2):(1,4,2)");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::OtherThread`] if the fragment gives an element to another thread; [`LayoutError::Rank`]
    /// unless the fragment has two modes; those of [`Layout::left_inverse`] and [`Layout::composition`].
    pub const fn retile(&self, fragment: &Layout) -> Result<Layout, LayoutError> {
        if fragment.rank() != 2 {
            return Err(LayoutError::Rank { needed: 2, given: fragment.rank() });
        }
        let inverse = ok!(fragment.left_inverse());
        // (thread, value) of this copy -> thread + threads * value of the fragment.
        let there = ok!(inverse.composition(&self.source));
        let threads = fragment.mode(0).size();
        let mut thread = 0;
        while thread < self.threads() {
            let other = there.mode(0).at(thread);
            if other != thread || thread >= threads {
                return Err(LayoutError::OtherThread { thread, other: other % threads });
            }
            thread += 1;
        }
        let values = there.mode(1);
        let (shape, mut strides) = (values.shape(), [0; MAX_LEAVES]);
        each!(i, 0..shape.len(), {
            let stride = values.stride_ref().leaf(i);
            if stride % threads != 0 {
                return Err(LayoutError::OtherThread { thread: 0, other: stride % threads });
            }
            strides[i] = stride / threads;
        });
        Layout::new(shape, shape.with_leaves(&strides))
    }
}

/// `((thread, group), value)` of a thread-value layout, in a tile that the layout `inside` places in a larger
/// one.
const fn grouped(layout: &Layout, inside: &Layout, groups: &Layout) -> Result<Layout, LayoutError> {
    let inner = ok!(inside.composition(layout));
    Layout::concat(&[ok!(Layout::concat(&[inner.mode(0), *groups])), inner.mode(1)])
}

/// Whether a layout takes every number below its size once.
const fn compact(layout: &Layout) -> Result<(), LayoutError> {
    match ok!(layout.right_inverse()) {
        inverse if inverse.size() == layout.size() => Ok(()),
        inverse => Err(LayoutError::NotCompact { size: layout.size(), run: inverse.size() }),
    }
}

/// Whether a thread-value layout stays within a tile.
const fn within(layout: &Layout, tile: &IntTuple) -> Result<(), LayoutError> {
    if layout.rank() != 2 {
        return Err(LayoutError::Rank { needed: 2, given: layout.rank() });
    }
    each!(i, 0..layout.stride_ref().len(), {
        let stride = layout.stride_ref().leaf(i);
        if stride < 0 {
            return Err(LayoutError::NegativeStride { stride });
        }
    });
    if layout.cosize() > tile.size() {
        return Err(LayoutError::Outside { last: layout.cosize() - 1, size: tile.size() });
    }
    Ok(())
}

/// `(thread, (value, rest, rest, …))` of a layout in tiles of `tile`. `layout` assigns the elements of a tile
/// to threads.
pub(crate) const fn dealt(
    whole: &Layout,
    tile: &IntTuple,
    layout: &Layout,
) -> Result<Partition<Layout>, LayoutError> {
    let tiles = ok!(whole.inner_partition(&Tiler::Shape(tile)));
    let owned = ok!(tiles.part().composition(layout));
    let mut part = Layout::EMPTY;
    ok!(part.extend(&owned.mode(1)));
    ok!(part.extend_modes(&tiles.starts()));
    Ok(Partition::new(ok!(part.close()), ok!(owned.mode(0).wrap())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::atom::wgmma;
    use std::string::ToString;

    fn layout(shape: impl Into<IntTuple>, stride: impl Into<IntTuple>) -> Layout {
        Layout::new(shape.into(), stride.into()).unwrap()
    }

    #[test]
    fn threads_and_values_interleave() {
        for (why, threads, values, tile, tv) in [
            ("a row of vectors", layout((1, 4), (4, 1)), layout((1, 2), (2, 1)), "(1,8)", "(4,2):(2,1)"),
            ("rows first", layout((2, 2), (1, 2)), layout((2, 1), (1, 2)), "(4,2)", "(4,2):(2,1)"),
            ("one thread", layout((1, 1), (1, 1)), layout((2, 2), (2, 1)), "(2,2)", "(1,(2,2)):(0,(2,1))"),
        ] {
            let copy = TiledCopy::new(&threads, &values).unwrap();
            let tv_got = copy.source().coalesce_by(&(1, 1).into()).unwrap();
            assert_eq!((copy.tile().to_string().as_str(), tv_got.to_string().as_str()), (tile, tv), "{why}");
            assert_eq!(copy.destination(), copy.source(), "{why}: nobody exchanges anything");
        }
    }

    #[test]
    fn what_is_no_copy() {
        let square = IntTuple::from((4, 4));
        for (why, got, want) in [
            (
                "threads with a gap",
                TiledCopy::new(&layout((2, 2), (1, 4)), &layout((1, 1), (1, 1))),
                LayoutError::NotCompact { size: 4, run: 2 },
            ),
            (
                "values twice",
                TiledCopy::new(&layout((2, 2), (1, 2)), &layout((2, 2), (0, 1))),
                LayoutError::NotCompact { size: 4, run: 2 },
            ),
            ("one mode", TiledCopy::of(layout(4, 1), square), LayoutError::Rank { needed: 2, given: 1 }),
            (
                "backwards",
                TiledCopy::of(layout((4, 4), (1, -4)), square),
                LayoutError::NegativeStride { stride: -4 },
            ),
            (
                "beyond the tile",
                TiledCopy::of(layout((4, 4), (1, 5)), square),
                LayoutError::Outside { last: 18, size: 16 },
            ),
        ] {
            assert_eq!(got, Err(want), "{why}");
        }
    }

    #[test]
    fn other_threads_hold_other_values() {
        let fragment = wgmma::accumulator(16).unwrap();
        let rows = TiledCopy::new(&layout((128, 1), (1, 128)), &layout((1, 8), (8, 1))).unwrap();
        assert_eq!(
            TiledCopy::of_fragment(&fragment).unwrap().retile(&rows.source()),
            Err(LayoutError::OtherThread { thread: 1, other: 0 }),
            "a thread's row is not its fragment"
        );
    }
}
