//! Tile schedulers: which worker computes which output tile and which part of K, in which order.
//!
//! A *worker* is whatever computes one tile at a time: a CTA, later a cluster or one of two warpgroups that take
//! turns. The scheduler knows nothing about what a worker does with its tile, and nothing about clusters: the
//! kernel says which worker runs and how many there are.
//!
//! Each schedule exists twice, from one description. The order of tiles ([`Raster`]) is generic over [`Index`], so
//! the very same function runs on host integers and emits device code; the loop around it is written once for the
//! device ([`TileScheduler::emit`]) and once for the host ([`TileScheduler::work`]), and the tests hold the two
//! against each other, piece by piece.
//!
//! ```
//! use scheduler::{AlongM, Grouped, Persistent, TileScheduler, Tiles};
//! use typenum::U8;
//!
//! type Mine = Persistent<Grouped<AlongM, U8>>;
//! let tiles = Tiles { m: 64, n: 32, k: 128 };
//! let workers = Mine::workers(tiles, 132);
//! assert_eq!(workers, 132);
//! let first: Vec<_> = Mine::work(tiles, 0, workers).map(|work| (work.m, work.n)).take(3).collect();
//! assert_eq!(first, [(0, 0), (4, 16), (8, 1)]);
//! ```
#![forbid(unsafe_code)]

mod hilbert;
mod index;
mod persistent;
mod raster;
mod single;

pub use hilbert::Hilbert;
pub use index::Index;
pub use persistent::Persistent;
pub use raster::{AlongM, AlongN, Grouped, Raster};
pub use single::OneTile;

use ptx::{Builder, Value};

/// A problem's extent in tiles; the last tile of each direction may hang over the edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tiles<I> {
    /// Output tiles along M.
    pub m: I,
    /// Output tiles along N.
    pub n: I,
    /// Tiles of the reduction, K.
    pub k: I,
}

/// One piece of work: an output tile and the k-tiles `k_begin..k_end` that are summed for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work<I> {
    /// The tile's index along M.
    pub m: I,
    /// The tile's index along N.
    pub n: I,
    /// First k-tile.
    pub k_begin: I,
    /// One past the last k-tile.
    pub k_end: I,
}

/// A rule that hands tiles to workers.
///
/// Every implementation covers each output tile's every k-tile exactly once over all workers.
pub trait TileScheduler: 'static {
    /// What [`describe`](TileScheduler::describe) and kernel names call it: an identifier.
    fn name() -> String;

    /// One sentence for people.
    fn describe() -> String;

    /// How many workers to launch where `slots` can run at once.
    fn workers(tiles: Tiles<u32>, slots: u32) -> u32;

    /// The host model: what `worker` of `workers` computes, in order.
    fn work(tiles: Tiles<u32>, worker: u32, workers: u32) -> Box<dyn Iterator<Item = Work<u32>>>;

    /// Emits the same for the device: `body` is called once and its statements run for each piece of work.
    fn emit<'f>(
        f: &'f Builder,
        tiles: Tiles<Value<'f, u32>>,
        worker: Value<'f, u32>,
        workers: Value<'f, u32>,
        body: impl FnOnce(Work<Value<'f, u32>>),
    );
}
