//! Workers that take the next tile when they come to it, for machines on which not all are equally fast.

use core::marker::PhantomData;

use ptx::abi::Argument;
use ptx::{Builder, Value};

use crate::persistent::Persistent;
use crate::single::whole;
use crate::{Raster, TileScheduler, Tiles, Work};

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

/// As [`Persistent`], but only a worker's first tile is fixed: worker `w` of `W` begins with tile `w` of the order `R`, and
/// before it computes a tile it draws the number of its next one, tile `W + d` for the `d`-th draw of all workers.
///
/// A worker that comes late or has a slow multiprocessor, because another kernel runs beside this one, then takes fewer
/// tiles than the others, and all end within about two tiles of each other. Every tile is asked for once: so a launch
/// draws exactly as many numbers as there are tiles, and a counter that wraps after as many is zero again behind it.
#[derive(Clone, Copy, Debug)]
pub struct Dynamic<R>(PhantomData<R>);

impl<R: Raster> TileScheduler for Dynamic<R> {
    const DRAWS: bool = true;
    const ROWS_LAST: bool = R::ROWS_LAST;
    const BAND: u32 = R::BAND;
    const TILES_ON_DEVICE: bool = true;

    fn name() -> String {
        format!("dynamic_{}", R::name())
    }

    fn describe() -> String {
        format!("persistent CTAs that draw their tiles, {}", R::describe())
    }

    type Device<'f> = ();

    fn declare(_f: &Builder) {}

    fn parameters(_tiles: Tiles<u32>, _workers: u32) -> Vec<Argument> {
        Vec::new()
    }

    fn workers(tiles: Tiles<u32>, slots: u32) -> u32 {
        Persistent::<R>::workers(tiles, slots)
    }

    /// Equally fast workers draw in turn: the deal of [`Persistent`].
    fn work(tiles: Tiles<u32>, worker: u32, workers: u32) -> Box<dyn Iterator<Item = Work<u32>>> {
        Persistent::<R>::work(tiles, worker, workers)
    }

    fn emit<'f>(
        f: &'f Builder,
        _device: (),
        tiles: Tiles<Value<'f, u32>>,
        worker: Value<'f, u32>,
        workers: Value<'f, u32>,
        draw: Option<&dyn Draw<'f>>,
        body: impl FnOnce(Work<Value<'f, u32>>),
    ) {
        drawn(f, [worker, workers], tiles.m * tiles.n, draw, |id| {
            body(whole::<R, _>(id, tiles, f.constant(0)));
        });
    }
}

/// Emits a worker's loop over its numbers below `count`: the first is its own, the others are drawn.
pub(crate) fn drawn<'f>(
    f: &'f Builder,
    [worker, workers]: [Value<'f, u32>; 2],
    count: Value<'f, u32>,
    draw: Option<&dyn Draw<'f>>,
    body: impl FnOnce(Value<'f, u32>),
) {
    let id = f.variable(worker);
    f.while_(
        || id.get().less_than(count),
        || {
            if let Some(draw) = draw {
                draw.ask(count);
            }
            body(id.get());
            id.set(match draw {
                Some(draw) => workers + draw.answer(),
                None => id.get() + workers,
            });
        },
    );
}
