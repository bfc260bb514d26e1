//! Reductions in a fixed order: the same bits in every run.
//!
//! Warpgroups store partial results in scratch memory and increment a counter. The last warpgroup to arrive,
//! whichever it is, combines all partial results in the order of their places in memory. No warpgroup waits
//! for another.

use core::marker::PhantomData;

use ptx::inst::{AtomicOp, AtomicSem, Scope};
use ptx::{Builder, Location, StoreOrder, Value};

use super::reduce::{across, join_pair, to_column, to_number};
use super::{
    Begin, ColumnArgument, Destination, Given, Node, NodeState, NodeTile, Pair, Part, Reduce, Reduced,
    RowArgument, Shape, Site, State, Supply,
};

/// Device memory for partial results. Its address must be a multiple of 16 bytes. It must be zero before the
/// first launch. Consecutive launches may share it without clearing it; concurrent launches may not share it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scratch {
    /// Device address.
    pub address: u64,
    /// Size in bytes: see [`Reduced::scratch_bytes`].
    pub bytes: u64,
}

impl Scratch {
    fn visit(&mut self, needed: u64, site: &mut Site<'_>) {
        let (mut here, Self { address, bytes }) = (site.then("scratch"), self);
        if !address.is_multiple_of(16) {
            here.refuse(format!("it begins at {address:#x}, a multiple of 16 B was needed"));
        }
        if *bytes < needed {
            here.refuse(format!("it has {bytes} B, {needed} were needed"));
        }
        here.visit.form(u32::from(*bytes >= needed));
        here.reduces(address, needed.div_ceil(4));
    }
}

/// Bytes of `count` counters; the partial results begin after them.
fn counter_bytes(count: u32) -> u64 {
    (u64::from(count) * 4).next_multiple_of(16)
}

/// Address of the partial results, computed on the device.
fn behind_counters<'f>(base: Value<'f, u64>, count: Value<'f, u32>) -> Value<'f, u64> {
    base + ((count + 3) >> 2).mul_wide(16)
}

/// Number of partial results whose loads are in flight at a time.
const AT_ONCE: u32 = 8;

/// Combines `count` rows of `N` partial results in order. `stride` is the distance between rows in bytes.
fn combine<'f, O: Reduce, const N: usize>(
    f: &'f Builder,
    base: Value<'f, u64>,
    stride: Value<'f, u32>,
    count: Value<'f, u32>,
) -> [Value<'f, f32>; N] {
    let totals: [_; N] = core::array::from_fn(|_| f.variable(O::IDENTITY));
    let index = f.variable(0u32);
    f.while_(
        || index.get().less_than(count),
        || {
            // Loads past the last row are clamped to it, and the values are not combined.
            let loaded: Vec<_> = (0..AT_ONCE)
                .map(|i| {
                    let at = base + (index.get() + i).min(count - 1).mul_wide(stride);
                    (index.get() + i, f.load_global_vector::<f32, N>(at, 0))
                })
                .collect();
            for (number, values) in loaded {
                let exists = number.less_than(count);
                for (total, value) in totals.iter().zip(values) {
                    total.set(O::combine(total.get(), value).where_or(exists, total.get()));
                }
            }
            index.set(index.get() + AT_ONCE);
        },
    );
    totals.map(|total| total.get())
}

/// Adds `amount` to a counter and returns whether it has reached `total`. Then all partial results that were
/// counted have been stored, and the counter is zero again. All threads of the warpgroup call it.
fn last<'f>(
    tile: &NodeTile<'f>,
    counter: Value<'f, u64>,
    amount: u32,
    total: Value<'f, u32>,
) -> Value<'f, bool> {
    let (f, speaks) = (tile.f, tile.thread.equals(0));
    let is_last = f.variable(0u32);
    f.barrier_sync(tile.barrier, 128);
    f.if_(speaks, || {
        let order = (AtomicSem::AcquireRelease, Scope::Gpu);
        let before = f.atomic(AtomicOp::Add, Location::global(counter, 0), f.constant(amount), order);
        let complete = (before + amount).equals(total);
        is_last.set(f.constant(1u32).where_or(complete, 0));
        f.if_(complete, || {
            let place = Location::global(counter, 0);
            f.store_ordered(StoreOrder::Relaxed(Scope::Gpu), place, [f.constant(0u32)]);
        });
    });
    f.barrier_any(tile.barrier, 128, is_last.get().differs_from(0))
}

/// Combines a total with the result in memory.
fn finish<'f, O: Reduce>(f: &'f Builder, address: Value<'f, u64>, total: Value<'f, f32>) {
    let before = f.load_global::<f32>(address, 0);
    f.store_global(address, 0, [O::combine(before, total)]);
}

/// As [`ReduceRow`](super::ReduceRow), in a fixed order: the result has the same bits in every run, for
/// kernels of every tile shape.
pub type OrderedRow<Op, X> = Reduced<Op, (RowArgument, Scratch), X>;

/// As [`ReduceColumn`](super::ReduceColumn), in a fixed order: the result has the same bits in every run of a
/// kernel.
pub type OrderedColumn<Op, X> = Reduced<Op, (ColumnArgument, Scratch), X>;

/// As [`ReduceScalar`](super::ReduceScalar), in a fixed order: the result has the same bits in every run of a
/// kernel.
pub type OrderedScalar<Op, X> = Reduced<Op, (u64, Scratch), X>;

/// A [`Destination`] to which values can be reduced in order.
pub trait OrderedDestination: Destination {
    /// Bytes of [`Scratch`] to reduce a value of this shape, enough for every tile shape.
    fn scratch_bytes(shape: Shape) -> u64;

    /// The state of a node that reduces to the results at an address, through scratch memory.
    fn ordered<'f, O: Reduce>(tile: &NodeTile<'f>, places: [Value<'f, u64>; 2], x: &Begin<'f>) -> State<'f>;
}

impl<Op, D: OrderedDestination, X> Reduced<Op, (D, Scratch), X> {
    /// Bytes of [`Scratch`] for a value of this shape, enough for every tile shape.
    pub fn scratch_bytes(shape: Shape) -> u64 {
        D::scratch_bytes(shape)
    }
}

impl<D: OrderedDestination> Destination for (D, Scratch) {
    const NAME: &'static str = D::NAME;
    const IN_ORDER: bool = true;

    fn visit(&mut self, shape: Shape, site: &mut Site<'_>) {
        self.0.visit(shape, site);
        self.1.visit(D::scratch_bytes(shape), &mut site.second());
    }

    fn supply(from: &mut dyn Supply, identity: f32, shape: Shape) -> Self {
        (D::supply(from, identity, shape), from.scratch(D::scratch_bytes(shape)))
    }

    fn at(&self, at: [u32; 2]) -> u64 {
        self.0.at(at)
    }

    fn device<'f, O: Reduce, X: Node>(given: &mut Given<'f>) -> Begin<'f> {
        let (places, x) = ([given.parameter(), given.parameter()], X::device(given));
        Box::new(move |tile| D::ordered::<O>(tile, places, &x))
    }
}

impl OrderedDestination for RowArgument {
    fn scratch_bytes(shape: Shape) -> u64 {
        let groups = u64::from(shape.m.div_ceil(16));
        counter_bytes(shape.n.div_ceil(8)) + groups * (u64::from(shape.n).next_multiple_of(8) * 4)
    }

    fn ordered<'f, O: Reduce>(
        tile: &NodeTile<'f>,
        [result, counters]: [Value<'f, u64>; 2],
        x: &Begin<'f>,
    ) -> State<'f> {
        let eights = (tile.columns.n + 7) >> 3;
        let (partials, stride) = (behind_counters(counters, eights), eights * 32);
        let (partial, op) = (Vec::new(), PhantomData::<O>);
        Box::new(ToRow { result, counters, partials, stride, partial, x: [x(tile)], op })
    }
}

/// The state of an [`OrderedRow`].
struct ToRow<'f, O> {
    result: Value<'f, u64>,
    counters: Value<'f, u64>,
    partials: Value<'f, u64>,
    /// Bytes from the partial results of 16 rows to those of the next 16.
    stride: Value<'f, u32>,
    /// By pair of a part.
    partial: Vec<[Option<Value<'f, f32>>; 2]>,
    x: [State<'f>; 1],
    op: PhantomData<O>,
}

impl<'f, O: Reduce> NodeState<'f> for ToRow<'f, O> {
    fn children(&mut self) -> &mut [State<'f>] {
        &mut self.x
    }

    fn load(&mut self, part: &Part<'f>) {
        self.partial = vec![[None; 2]; part.pairs.len()];
        self.x[0].load(part);
    }

    fn compute(&mut self, part: &Part<'f>, row: usize, pair: usize) -> Pair<'f> {
        let f = part.tile.f;
        let values = self.x[0].compute(part, row, pair);
        let values = join_pair::<O>(part, row, pair, values, &mut self.partial[pair]);
        if row + 1 < part.rows.len() {
            return values;
        }
        if let [Some(even), Some(odd)] = self.partial[pair] {
            let partial = [even, odd].map(|partial| across::<O>(f, partial, &[4, 8, 16]));
            // The 16 rows of a warp begin at a multiple of 16.
            let group = part.rows[row].row >> 4;
            let mut stores = (part.tile.thread % 32).less_than(4);
            if !part.tile.whole {
                let groups = (part.tile.extent.m + 15) >> 4;
                stores = stores & group.less_than(groups) & part.columns.more_than(part.pairs[pair]);
            }
            f.if_(stores, || {
                let column = part.column + part.pairs[pair];
                let at = self.partials + group.mul_wide(self.stride) + column.mul_wide(4);
                f.store_global(at, 0, partial);
            });
        }
        values
    }

    fn end(&mut self, tile: &NodeTile<'f>) {
        let f = tile.f;
        let first = tile.first_column();
        let [rows, _] = tile.cluster_tile;
        let total = tile.extent.m.div_ceil(rows) * (rows / 16);
        f.if_(first.less_than(tile.columns.n), || {
            let counter = self.counters + (first >> 3).mul_wide(4);
            f.if_(last(tile, counter, tile.blocks * 4, total), || {
                let groups = (tile.extent.m + 15) >> 4;
                // Two columns per thread at a time. If the last column is odd, the partial result next to it
                // exists too.
                for pairs in (0..tile.columns.pairs * 4).step_by(128) {
                    let own = tile.thread + pairs;
                    let column = first + own * 2;
                    let mut combines = column.less_than(tile.columns.n);
                    if !(tile.columns.pairs * 4).is_multiple_of(128) {
                        combines = combines & own.less_than(tile.columns.pairs * 4);
                    }
                    f.if_(combines, || {
                        let base = self.partials + column.mul_wide(4);
                        let [even, odd] = combine::<O, 2>(f, base, self.stride, groups);
                        let place = self.result + column.mul_wide(4);
                        finish::<O>(f, place, even);
                        f.if_((column + 1).less_than(tile.columns.n), || finish::<O>(f, place + 4, odd));
                    });
                }
            });
        });
        self.x[0].end(tile);
    }
}

impl OrderedDestination for ColumnArgument {
    fn scratch_bytes(shape: Shape) -> u64 {
        let rows = u64::from(shape.m).next_multiple_of(16);
        counter_bytes(shape.m.div_ceil(64)) + u64::from(shape.n.div_ceil(8)) * rows * 4
    }

    fn ordered<'f, O: Reduce>(
        tile: &NodeTile<'f>,
        [result, counters]: [Value<'f, u64>; 2],
        x: &Begin<'f>,
    ) -> State<'f> {
        to_column::<O>(x(tile), move |tile, rows| {
            let f = tile.f;
            let (width, first, m) = (tile.columns.pairs * 8, tile.first_column(), tile.extent.m);
            let [_, columns] = tile.cluster_tile;
            let partials = behind_counters(counters, (m + 63) >> 6);
            let stride = ((m + 15) >> 4) * 64;
            let own = partials + (first / width).mul_wide(stride);
            for (row, partial) in rows.across::<O>(f) {
                let stores = (tile.thread % 4).equals(0) & row.less_than(m) & first.less_than(tile.columns.n);
                f.if_(stores, || f.store_global(own + row.mul_wide(4), 0, [partial]));
            }
            // Warpgroups below the last row do not count.
            let top = tile.first_row;
            f.if_(top.less_than(m), || {
                let total = tile.extent.n.div_ceil(columns) * (columns / tile.doubled.pairs / 8);
                let counter = counters + (top >> 6).mul_wide(4);
                f.if_(last(tile, counter, 1, total), || {
                    let count = tile.columns.n.div_ceil(width);
                    for first in (0..tile.blocks * 64).step_by(128) {
                        let own = tile.thread + first;
                        let row = top + own;
                        let mut combines = row.less_than(m);
                        if !(tile.blocks * 64).is_multiple_of(128) {
                            combines = combines & own.less_than(tile.blocks * 64);
                        }
                        f.if_(combines, || {
                            let base = partials + row.mul_wide(4);
                            let [sum] = combine::<O, 1>(f, base, stride, count);
                            finish::<O>(f, result + row.mul_wide(4), sum);
                        });
                    }
                });
            });
        })
    }
}

impl OrderedDestination for u64 {
    fn scratch_bytes(shape: Shape) -> u64 {
        16 + u64::from(shape.m.div_ceil(64)) * u64::from(shape.n.div_ceil(8)) * 16
    }

    fn ordered<'f, O: Reduce>(
        tile: &NodeTile<'f>,
        [result, counter]: [Value<'f, u64>; 2],
        x: &Begin<'f>,
    ) -> State<'f> {
        to_number::<O>(x(tile), move |tile, all| {
            let f = tile.f;
            let (width, first, top) = (tile.columns.pairs * 8, tile.first_column(), tile.first_row);
            // Tiles of warpgroups that have elements inside, and those that count.
            let rows = tile.blocks * 64;
            let inside = tile.columns.n.div_ceil(width);
            let unit = top / rows * inside + first / width;
            let units = tile.extent.m.div_ceil(rows) * inside;
            let partials = counter + 16;
            let lane = tile.thread % 32;
            let stores = lane.equals(0) & top.less_than(tile.extent.m) & first.less_than(tile.columns.n);
            f.if_(stores, || {
                let at = partials + unit.mul_wide(16) + (tile.thread / 32).mul_wide(4);
                f.store_global(at, 0, [all]);
            });
            let [cluster_m, cluster_n] = tile.cluster_tile;
            let total = tile.extent.m.div_ceil(cluster_m)
                * (cluster_m / rows)
                * tile.extent.n.div_ceil(cluster_n)
                * (cluster_n / tile.doubled.pairs / 8);
            let last = last(tile, counter, 1, total);
            f.if_(last & tile.thread.less_than(32), || {
                // Lane l combines l, l + 32, ..
                let count = (units * 4 + 31 - lane) / 32;
                let [own] = combine::<O, 1>(f, partials + lane.mul_wide(4), f.constant(128), count);
                let all = across::<O>(f, own, &[1, 2, 4, 8, 16]);
                f.if_(lane.equals(0), || finish::<O>(f, result, all));
            });
        })
    }
}
