//! Dynamic persistent scheduling: a worker takes its next tile from a counter when it is ready for one. Use
//! it where workers are not equally fast.

use core::marker::PhantomData;

use ptx::{Builder, Value};

use crate::{OfSpec, Raster, Rule, SchedulerSpec, Work, WorkLoop};

/// How the threads of a worker get its next tile number (they *draw* it).
///
/// All threads of a worker that walk its tiles call both functions once per tile, in this order.
pub trait Draw<'f> {
    /// Emitted before a tile is computed: one thread requests the next number and does not wait for it.
    ///
    /// Over all workers, the first `numbers` requests of a launch get 0, 1, … `numbers - 1`, each once. The
    /// last of these requests resets the counter for the next launch.
    fn ask(&self, numbers: Value<'f, u32>);

    /// Emitted after the tile: returns the requested number in each thread.
    fn answer(&self) -> Value<'f, u32>;
}

/// A persistent scheduler whose workers take their tiles from a counter in global memory. Use it on a card
/// that other kernels share.
///
/// Only the first tile of a worker is fixed: worker `w` of `W` begins with tile `w` of the order `R`. Before
/// a worker computes a tile, it draws the number of its next one. The `d`-th draw over all workers, from 0,
/// gives tile `W + d`.
///
/// A worker that starts late, or whose SM is slow because another kernel runs there, computes fewer tiles.
/// All workers end within about two tiles of each other. A launch makes exactly one draw per tile. So a
/// counter that wraps after that number of draws is zero again after the launch.
#[derive(Clone, Copy, Debug, Default)]
pub struct Dynamic<R>(PhantomData<R>);

impl<R: Raster> OfSpec for Dynamic<R> {
    const SPEC: SchedulerSpec = SchedulerSpec { raster: R::RASTER, rule: Rule::Dynamic };
}

/// Emits a worker's loop over its numbers below `count`. The first number is the worker's own, the others are
/// drawn, if there is a counter; `unit` gives the work unit of a number.
pub(crate) fn drawn<'f>(
    f: &'f Builder,
    count: Value<'f, u32>,
    WorkLoop { worker, workers, draw, body, .. }: &mut WorkLoop<'_, 'f>,
    unit: &dyn Fn(Value<'f, u32>) -> Work<Value<'f, u32>>,
) {
    let (id, workers) = (f.variable(*worker), *workers);
    f.while_(
        || id.get().less_than(count),
        || {
            if let Some(draw) = draw {
                draw.ask(count);
            }
            body(unit(id.get()));
            id.set(match draw {
                Some(draw) => workers + draw.answer(),
                None => id.get() + workers,
            });
        },
    );
}
