//! One tile per worker: as many workers as tiles. The hardware assigns them to SMs.

use core::marker::PhantomData;

use crate::{Index, OfSpec, Raster, RasterSpec, Rule, SchedulerSpec, Tiles, Work};

/// Non-persistent scheduling: each worker computes exactly one tile, in the order `R`.
#[derive(Clone, Copy, Debug, Default)]
pub struct OneTile<R>(PhantomData<R>);

impl<R: Raster> OfSpec for OneTile<R> {
    const SPEC: SchedulerSpec = SchedulerSpec { raster: R::RASTER, rule: Rule::OneTile };
}

/// The work unit of tile number `id` with all of K.
pub(crate) fn whole<I: Index>(raster: RasterSpec, id: I, tiles: Tiles<I>, zero: I) -> Work<I> {
    let (m, n) = raster.tile(id, tiles);
    Work { m, n, k_begin: zero, k_end: tiles.k, split: None, slice: None }
}
