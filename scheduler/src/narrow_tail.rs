//! Static persistent scheduling with the tiles of the last wave sliced along N.

use core::marker::PhantomData;

use typenum::U2;

use crate::{Index, Natural, OfSpec, Raster, RasterSpec, Rule, SchedulerSpec, Slice, Tiles, Work};

/// As [`Persistent`](crate::Persistent), but the tiles of a last, partial wave of the order `R` are computed
/// in `Parts` slices along N (default 2). Use it for a single GEMM or a batch whose last wave has few tiles.
///
/// Each slice is a work unit with all of K, so no partial sums are exchanged. A launch of 1.3 waves takes the
/// time of about 1.6 tiles and not of 2. Tiles are sliced only if no worker gets two slices: a slice of half
/// of the columns takes more than half of a tile's time, because all rows of A are loaded for it.
///
/// The mainloop must be able to narrow its tile to the slice's columns.
///
/// ```
/// use scheduler::{AlongM, NarrowTail, TileScheduler, Tiles};
///
/// let schedule = NarrowTail::<AlongM>::schedule();
/// let tiles = Tiles { m: 6, n: 1, k: 10 };
/// let work = |worker| schedule.work(tiles, worker, 4).map(|work| (work.m, work.slice.map(|slice| [slice.first, slice.count])));
/// assert_eq!(work(0).collect::<Vec<_>>(), [(0, Some([0, 2])), (4, Some([0, 1]))]);
/// assert_eq!(work(3).collect::<Vec<_>>(), [(3, Some([0, 2])), (5, Some([1, 1]))]);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct NarrowTail<R, Parts = U2>(PhantomData<(R, Parts)>);

impl<R: Raster, Parts: Natural> OfSpec for NarrowTail<R, Parts> {
    const SPEC: SchedulerSpec =
        SchedulerSpec { raster: R::RASTER, rule: Rule::NarrowTail { parts: Parts::U32 } };
}

/// The work units of a launch, by number: first whole tiles, then slices.
#[derive(Clone, Copy)]
struct Numbers<I> {
    /// Number of whole tiles.
    whole: I,
    /// Number of work units.
    all: I,
}

/// The largest number of slices per tile.
pub(crate) const MOST_PARTS: u32 = 8;

/// The largest number of workers, far more than a card holds, so that no number of a work unit overflows.
pub(crate) const MOST_WORKERS: u32 = 1 << 16;

/// The number of work units of a launch, and the work unit of a number.
pub(crate) fn units<I: Index>(
    raster: RasterSpec,
    parts: u32,
    tiles: Tiles<I>,
    workers: I,
) -> (I, impl Fn(I) -> Work<I>) {
    let numbers = numbers(parts, tiles, workers);
    (numbers.all, move |id| unit(raster, parts, (id, numbers), tiles))
}

fn numbers<I: Index>(parts: u32, Tiles { m, n, .. }: Tiles<I>, workers: I) -> Numbers<I> {
    let all = m * n;
    let rest = all % workers;
    let sliced = workers.less(rest * parts, 0, rest);
    Numbers { whole: all - sliced, all: all + sliced * (parts - 1) }
}

fn unit<I: Index>(
    raster: RasterSpec,
    parts: u32,
    (id, Numbers { whole, .. }): (I, Numbers<I>),
    tiles: Tiles<I>,
) -> Work<I> {
    let unit = id.most(whole) - whole;
    let tile = id.less(whole, id, whole + unit / parts);
    let (m, n) = raster.tile(tile, tiles);
    let slice = Slice { first: unit % parts, count: id.less(whole, parts, 1), of: parts };
    Work { m, n, k_begin: id.constant(0), k_end: tiles.k, split: None, slice: Some(slice) }
}

/// The number of workers: one per tile, or one per slice if all slices can be resident.
pub(crate) fn workers(parts: u32, all: u32, resident: u32) -> u32 {
    let resident = resident.clamp(1, MOST_WORKERS);
    if all >= resident {
        return resident;
    }
    let slices = all * parts;
    if slices <= resident { slices } else { all }
}
