//! Tiles split along K among the CTAs of a cluster, which exchange partial sums through distributed shared
//! memory.

use core::marker::PhantomData;

use crate::{Index, Natural, OfSpec, Raster, RasterSpec, Rule, SchedulerSpec, Split, Tiles, Work};

/// Split-K inside a cluster: each tile, in the order `R`, is computed by a cluster of `Parts` CTAs. Use it
/// for outputs of few tiles with a long K.
///
/// Each CTA multiplies a K-range of the tile. Then each CTA reduces and finishes some of the tile's columns:
/// it reads the partial sums of the other CTAs from their shared memory. So no partial sum passes through L2
/// and no workspace is needed. The order of additions is fixed. A CTA computes one work unit and ends.
///
/// ```
/// use scheduler::{AlongM, ClusterK, TileScheduler, Tiles};
/// use typenum::U4;
///
/// let schedule = ClusterK::<AlongM, U4>::schedule();
/// let tiles = Tiles { m: 2, n: 3, k: 10 };
/// assert_eq!(schedule.workers(tiles, 132), 24);
/// let parts: Vec<_> = (0..4).flat_map(|worker| schedule.work(tiles, worker, 24)).map(|work| [work.k_begin, work.k_end]).collect();
/// assert_eq!(parts, [[0, 2], [2, 5], [5, 7], [7, 10]]);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct ClusterK<R, Parts>(PhantomData<(R, Parts)>);

impl<R: Raster, Parts: Natural> OfSpec for ClusterK<R, Parts> {
    const SPEC: SchedulerSpec =
        SchedulerSpec { raster: R::RASTER, rule: Rule::ClusterK { parts: Parts::U32 } };
}

/// CTAs of the largest portable cluster: every card of the architecture can run it.
pub(crate) const MOST_PARTS: u32 = 8;

/// The work unit of a worker, one of `parts` that share a tile.
pub(crate) fn part<I: Index>(raster: RasterSpec, parts: u32, worker: I, tiles: Tiles<I>) -> Work<I> {
    let (tile, part) = (worker / parts, worker % parts);
    let (m, n) = raster.tile(tile, tiles);
    let at = |part: I| tiles.k * part / parts;
    let first = worker - part;
    let split = Some(Split { unit: worker, first, last: first + worker.constant(parts - 1), tile });
    Work { m, n, k_begin: at(part), k_end: at(part + worker.constant(1)), split, slice: None }
}
