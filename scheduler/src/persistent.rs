//! Persistent workers: as many as run at once, each walking the tiles with a fixed stride.

use core::marker::PhantomData;

use ptx::abi::Argument;
use ptx::{Builder, Value};

use crate::single::whole;
use crate::{Draw, Raster, TileScheduler, Tiles, Work};

/// Worker `w` of `W` computes tiles `w`, `w + W`, `w + 2W`, … of the order `R`.
///
/// Loads of the next tile overlap the epilogue of the last, and neighbours in the order run at the same time, so
/// the order decides what L2 holds.
#[derive(Clone, Copy, Debug)]
pub struct Persistent<R>(PhantomData<R>);

impl<R: Raster> TileScheduler for Persistent<R> {
    fn name() -> String {
        format!("persistent_{}", R::name())
    }

    fn describe() -> String {
        format!("persistent CTAs, {}", R::describe())
    }

    const ROWS_LAST: bool = R::ROWS_LAST;
    const BAND: u32 = R::BAND;
    const TILES_ON_DEVICE: bool = true;

    type Device<'f> = ();

    fn declare(_f: &Builder) {}

    fn parameters(_tiles: Tiles<u32>, _workers: u32) -> Vec<Argument> {
        Vec::new()
    }

    fn workers(tiles: Tiles<u32>, slots: u32) -> u32 {
        tiles.count().unwrap_or(0).min(slots.max(1))
    }

    fn work(tiles: Tiles<u32>, worker: u32, workers: u32) -> Box<dyn Iterator<Item = Work<u32>>> {
        let all = tiles.count().unwrap_or(0);
        let step = workers.max(1) as usize;
        Box::new((worker..all).step_by(step).map(move |id| whole::<R, _>(id, tiles, 0)))
    }

    fn emit<'f>(
        f: &'f Builder,
        _device: (),
        tiles: Tiles<Value<'f, u32>>,
        worker: Value<'f, u32>,
        workers: Value<'f, u32>,
        _draw: Option<&dyn Draw<'f>>,
        body: impl FnOnce(Work<Value<'f, u32>>),
    ) {
        let all = tiles.m * tiles.n;
        let id = f.variable(worker);
        f.while_(
            || id.get().less_than(all),
            || {
                body(whole::<R, _>(id.get(), tiles, f.constant(0)));
                id.set(id.get() + workers);
            },
        );
    }
}
