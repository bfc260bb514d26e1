//! One tile per worker: as many workers as tiles, and the hardware deals them out.

use core::marker::PhantomData;

use ptx::abi::Argument;
use ptx::{Builder, Value};

use crate::{Draw, Raster, TileScheduler, Tiles, Work};

/// Every worker computes exactly one tile, in the order `R`.
#[derive(Clone, Copy, Debug)]
pub struct OneTile<R>(PhantomData<R>);

impl<R: Raster> TileScheduler for OneTile<R> {
    const BATCHES: bool = true;

    fn name() -> String {
        format!("one_tile_{}", R::name())
    }

    fn describe() -> String {
        format!("one tile a CTA, {}", R::describe())
    }

    const ROWS_LAST: bool = R::ROWS_LAST;

    type Device<'f> = ();

    fn declare(_f: &Builder) {}

    fn parameters(_tiles: Tiles<u32>, _workers: u32) -> Vec<Argument> {
        Vec::new()
    }

    fn workers(tiles: Tiles<u32>, _slots: u32) -> u32 {
        tiles.m * tiles.n
    }

    fn work(tiles: Tiles<u32>, worker: u32, _workers: u32) -> Box<dyn Iterator<Item = Work<u32>>> {
        let inside = worker < tiles.m * tiles.n;
        Box::new(inside.then(|| whole::<R, _>(worker, tiles, 0)).into_iter())
    }

    fn emit<'f>(
        f: &'f Builder,
        _device: (),
        tiles: Tiles<Value<'f, u32>>,
        worker: Value<'f, u32>,
        _workers: Value<'f, u32>,
        _draw: Option<&dyn Draw<'f>>,
        body: impl FnOnce(Work<Value<'f, u32>>),
    ) {
        body(whole::<R, _>(worker, tiles, f.constant(0)));
    }
}

/// The `id`-th tile with all of K.
pub(crate) fn whole<R: Raster, I: crate::Index>(id: I, tiles: Tiles<I>, zero: I) -> Work<I> {
    let (m, n) = R::tile(id, tiles);
    Work { m, n, k_begin: zero, k_end: tiles.k, split: None }
}
