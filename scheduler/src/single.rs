//! One tile per worker: as many workers as tiles. The hardware assigns them to SMs.

use core::marker::PhantomData;
use std::sync::Arc;

use ptx::Builder;

use crate::{
    Index, Raster, RasterSpec, Schedule, SchedulerSpec, SchedulerTraits, TileScheduler, Tiles, Work, WorkLoop,
};

/// Non-persistent scheduling: each worker computes exactly one tile, in the order `R`.
#[derive(Clone, Copy, Debug)]
pub struct OneTile<R>(PhantomData<R>);

impl<R: Raster> TileScheduler for OneTile<R> {
    const TRAITS: SchedulerTraits = SchedulerSpec::OneTile(Whole { raster: R::RASTER }).checked_traits();

    fn schedule() -> Arc<dyn Schedule> {
        Arc::new(Whole { raster: R::RASTER })
    }
}

/// [`OneTile`] as a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Whole {
    /// The order of tiles.
    pub raster: RasterSpec,
}

impl Schedule for Whole {
    fn name(&self) -> String {
        format!("one_tile_{}", self.raster.name())
    }

    fn describe(&self) -> String {
        format!("one tile per CTA, {}", self.raster.describe())
    }

    fn traits(&self) -> SchedulerTraits {
        SchedulerSpec::OneTile(*self).traits()
    }

    fn spec(&self) -> Option<SchedulerSpec> {
        Some(SchedulerSpec::OneTile(*self))
    }

    fn workers(&self, tiles: Tiles<u32>, _slots: u32) -> u32 {
        tiles.count().unwrap_or(0)
    }

    fn work(&self, tiles: Tiles<u32>, worker: u32, _workers: u32) -> Box<dyn Iterator<Item = Work<u32>>> {
        let inside = worker < tiles.count().unwrap_or(0);
        Box::new(inside.then(|| whole(self.raster, worker, tiles, 0)).into_iter())
    }

    fn emit<'f>(&self, f: &'f Builder, WorkLoop { tiles, worker, body, .. }: &mut WorkLoop<'_, 'f>) {
        body(whole(self.raster, *worker, *tiles, f.constant(0)));
    }
}

/// The work unit of tile number `id` with all of K.
pub(crate) fn whole<I: Index>(raster: RasterSpec, id: I, tiles: Tiles<I>, zero: I) -> Work<I> {
    let (m, n) = raster.tile(id, tiles);
    Work { m, n, k_begin: zero, k_end: tiles.k, split: None, slice: None }
}
