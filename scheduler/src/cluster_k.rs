//! Tiles split along K among the CTAs of a cluster, which exchange partial sums through distributed shared
//! memory.

use core::marker::PhantomData;
use std::sync::Arc;

use ptx::Builder;
use typenum::Unsigned;

use crate::{
    Divided, Index, Raster, RasterSpec, Schedule, SchedulerSpec, SchedulerTraits, Split, TileScheduler,
    Tiles, Work, WorkLoop,
};

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
#[derive(Clone, Copy, Debug)]
pub struct ClusterK<R, Parts>(PhantomData<(R, Parts)>);

impl<R: Raster, Parts: Unsigned + 'static> ClusterK<R, Parts> {
    const VALUE: Clustered = Clustered { raster: R::RASTER, parts: Parts::U32 };
}

impl<R: Raster, Parts: Unsigned + 'static> TileScheduler for ClusterK<R, Parts> {
    const TRAITS: SchedulerTraits = SchedulerSpec::ClusterK(Self::VALUE).checked_traits();

    fn schedule() -> Arc<dyn Schedule> {
        Arc::new(Self::VALUE)
    }
}

/// [`ClusterK`] as a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Clustered {
    /// The order of tiles.
    pub raster: RasterSpec,
    /// CTAs per cluster, 2 to [`MOST_PARTS`](Self::MOST_PARTS). Each has a K-range of the tile, which may be
    /// empty.
    pub parts: u32,
}

impl Clustered {
    /// CTAs of the largest portable cluster: every card of the architecture can run it.
    pub const MOST_PARTS: u32 = 8;

    fn piece<I: Index>(self, worker: I, tiles: Tiles<I>) -> Work<I> {
        let (tile, part) = (worker / self.parts, worker % self.parts);
        let (m, n) = self.raster.tile(tile, tiles);
        let at = |part: I| tiles.k * part / self.parts;
        let first = worker - part;
        let split = Some(Split { unit: worker, first, last: first + worker.constant(self.parts - 1), tile });
        Work { m, n, k_begin: at(part), k_end: at(part + worker.constant(1)), split, slice: None }
    }
}

impl Schedule for Clustered {
    fn name(&self) -> String {
        format!("cluster_k_{}_{}", self.parts, self.raster.name())
    }

    fn describe(&self) -> String {
        format!("one tile per cluster, split along K among {} CTAs, {}", self.parts, self.raster.describe())
    }

    fn traits(&self) -> SchedulerTraits {
        SchedulerSpec::ClusterK(*self).traits()
    }

    fn spec(&self) -> Option<SchedulerSpec> {
        Some(SchedulerSpec::ClusterK(*self))
    }

    /// The product saturates: then there are more workers than a launch can have, and the launch is refused.
    fn workers(&self, tiles: Tiles<u32>, _slots: u32) -> u32 {
        tiles.count().unwrap_or(0).saturating_mul(self.parts)
    }

    fn divided(&self, tiles: Tiles<u32>, workers: u32) -> Divided {
        Divided { units: workers, tiles: tiles.count().unwrap_or(0) }
    }

    fn work(&self, tiles: Tiles<u32>, worker: u32, _workers: u32) -> Box<dyn Iterator<Item = Work<u32>>> {
        let inside = worker / self.parts < tiles.count().unwrap_or(0);
        Box::new(inside.then(|| self.piece(worker, tiles)).into_iter())
    }

    fn emit<'f>(&self, _: &'f Builder, WorkLoop { tiles, worker, body, .. }: &mut WorkLoop<'_, 'f>) {
        body(self.piece(*worker, *tiles));
    }
}
