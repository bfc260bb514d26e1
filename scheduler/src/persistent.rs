//! Static persistent scheduling: as many workers as can be resident; each walks the tiles with a fixed
//! stride.

use core::marker::PhantomData;
use std::sync::Arc;

use ptx::Builder;

use crate::single::whole;
use crate::{
    Raster, RasterSpec, Schedule, SchedulerSpec, SchedulerTraits, TileScheduler, Tiles, Work, WorkLoop,
};

/// Static persistent scheduling: worker `w` of `W` computes tiles `w`, `w + W`, `w + 2W`, … of the order `R`.
/// The default choice for outputs of several waves.
///
/// Loads of the next tile overlap the epilogue of the current one. Tiles that are neighbours in the order run
/// at the same time, so the order determines which operands are in L2.
#[derive(Clone, Copy, Debug)]
pub struct Persistent<R>(PhantomData<R>);

impl<R: Raster> TileScheduler for Persistent<R> {
    const TRAITS: SchedulerTraits = SchedulerSpec::Persistent(Walk { raster: R::RASTER }).checked_traits();

    fn schedule() -> Arc<dyn Schedule> {
        Arc::new(Walk { raster: R::RASTER })
    }
}

/// [`Persistent`] as a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Walk {
    /// The order of tiles.
    pub raster: RasterSpec,
}

impl Schedule for Walk {
    fn name(&self) -> String {
        format!("persistent_{}", self.raster.name())
    }

    fn describe(&self) -> String {
        format!("persistent CTAs, {}", self.raster.describe())
    }

    fn traits(&self) -> SchedulerTraits {
        SchedulerSpec::Persistent(*self).traits()
    }

    fn spec(&self) -> Option<SchedulerSpec> {
        Some(SchedulerSpec::Persistent(*self))
    }

    fn workers(&self, tiles: Tiles<u32>, slots: u32) -> u32 {
        tiles.count().unwrap_or(0).min(slots.max(1))
    }

    fn work(&self, tiles: Tiles<u32>, worker: u32, workers: u32) -> Box<dyn Iterator<Item = Work<u32>>> {
        let (all, raster) = (tiles.count().unwrap_or(0), self.raster);
        let step = workers.max(1) as usize;
        Box::new((worker..all).step_by(step).map(move |id| whole(raster, id, tiles, 0)))
    }

    fn emit<'f>(&self, f: &'f Builder, WorkLoop { tiles, worker, workers, body, .. }: &mut WorkLoop<'_, 'f>) {
        let all = tiles.m * tiles.n;
        let id = f.variable(*worker);
        f.while_(
            || id.get().less_than(all),
            || {
                body(whole(self.raster, id.get(), *tiles, f.constant(0)));
                id.set(id.get() + *workers);
            },
        );
    }
}
