//! Workers that take the next tile when they come to it, for machines on which not all are equally fast.

use core::marker::PhantomData;
use std::sync::Arc;

use ptx::{Builder, Value};

use crate::persistent::Walk;
use crate::single::whole;
use crate::{Facts, Raster, RasterSpec, Schedule, SchedulerSpec, TileScheduler, Tiles, Work, WorkLoop};

/// How the threads of a worker learn its next number.
///
/// All of a worker's threads that walk its tiles call both functions once for each tile, in this order.
pub trait Draw<'f> {
    /// Emitted before a tile is computed: somebody asks for the next number, and does not wait for the answer.
    ///
    /// Over all workers, the first `numbers` questions of a launch are answered by 0, 1, … `numbers - 1`, each once, and
    /// the last of them makes the counter ready for the next launch.
    fn ask(&self, numbers: Value<'f, u32>);

    /// Emitted behind the tile: the answer, for each thread.
    fn answer(&self) -> Value<'f, u32>;
}

/// As [`Persistent`](crate::Persistent), but only a worker's first tile is fixed: worker `w` of `W` begins with tile `w` of the order `R`, and
/// before it computes a tile it draws the number of its next one, tile `W + d` for the `d`-th draw of all workers.
///
/// A worker that comes late or has a slow multiprocessor, because another kernel runs beside this one, then takes fewer
/// tiles than the others, and all end within about two tiles of each other. Every tile is asked for once: so a launch
/// draws exactly as many numbers as there are tiles, and a counter that wraps after as many is zero again behind it.
#[derive(Clone, Copy, Debug)]
pub struct Dynamic<R>(PhantomData<R>);

impl<R: Raster> TileScheduler for Dynamic<R> {
    const FACTS: Facts = SchedulerSpec::Dynamic(Drawn { raster: R::RASTER }).checked_facts();

    fn schedule() -> Arc<dyn Schedule> {
        Arc::new(Drawn { raster: R::RASTER })
    }
}

/// [`Dynamic`] as a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Drawn {
    /// The order of tiles.
    pub raster: RasterSpec,
}

impl Schedule for Drawn {
    fn name(&self) -> String {
        format!("dynamic_{}", self.raster.name())
    }

    fn describe(&self) -> String {
        format!("persistent CTAs that draw their tiles, {}", self.raster.describe())
    }

    fn facts(&self) -> Facts {
        SchedulerSpec::Dynamic(*self).facts()
    }

    fn spec(&self) -> Option<SchedulerSpec> {
        Some(SchedulerSpec::Dynamic(*self))
    }

    fn workers(&self, tiles: Tiles<u32>, slots: u32) -> u32 {
        Walk { raster: self.raster }.workers(tiles, slots)
    }

    /// Equally fast workers draw in turn: the deal of [`Persistent`](crate::Persistent).
    fn work(&self, tiles: Tiles<u32>, worker: u32, workers: u32) -> Box<dyn Iterator<Item = Work<u32>>> {
        Walk { raster: self.raster }.work(tiles, worker, workers)
    }

    fn emit<'f>(&self, f: &'f Builder, loop_: &mut WorkLoop<'_, 'f>) {
        let (raster, tiles) = (self.raster, loop_.tiles);
        drawn(f, tiles.m * tiles.n, loop_, &|id| whole(raster, id, tiles, f.constant(0)));
    }
}

/// Emits a worker's loop over its numbers below `count`, each of which is a `piece`: the first is its own, the others are drawn.
pub(crate) fn drawn<'f>(
    f: &'f Builder,
    count: Value<'f, u32>,
    WorkLoop { worker, workers, draw, body, .. }: &mut WorkLoop<'_, 'f>,
    piece: &dyn Fn(Value<'f, u32>) -> Work<Value<'f, u32>>,
) {
    let (id, workers) = (f.variable(*worker), *workers);
    f.while_(
        || id.get().less_than(count),
        || {
            if let Some(draw) = draw {
                draw.ask(count);
            }
            body(piece(id.get()));
            id.set(match draw {
                Some(draw) => workers + draw.answer(),
                None => id.get() + workers,
            });
        },
    );
}
