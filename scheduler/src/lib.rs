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

mod check;
mod dynamic;
mod hilbert;
mod index;
mod persistent;
mod raster;
mod shares;
mod single;
mod stream_k;
mod tail;
mod timeline;

pub use check::{CoverageError, CoverageFault, covered, covers};
pub use dynamic::{Draw, Dynamic};
pub use hilbert::Hilbert;
pub use index::Index;
pub use persistent::Persistent;
pub use raster::{AlongM, AlongN, Grouped, Raster};
pub use shares::Shares;
pub use single::OneTile;
pub use stream_k::{
    Atomic, Divide, EveryTile, Heuristic, Ordered, Pieces, Reduction, ReductionKind, Remainder, Separate,
    StreamK,
};
pub use tail::DividedTail;
pub use timeline::{Activity, Span, Timeline};

use ptx::abi::Argument;
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
    /// Who else sums for the tile; `None` under a scheduler that deals out whole tiles only. A piece with all of K means
    /// nothing by it.
    pub split: Option<Split<I>>,
}

/// A piece's place among those of its tile, whose sums have to be added up.
///
/// A *unit* is a run of k-tiles of consecutive tiles that one worker computes, from its last tile to its first: so what
/// others wait for comes first. Of a unit's pieces, only the first computed can end before its tile's last k-tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Split<I> {
    /// The unit that the piece belongs to.
    pub unit: I,
    /// The unit that has the tile's first k-tile. Those of the tile follow each other.
    pub first: I,
    /// The unit that has the tile's last k-tile.
    pub last: I,
    /// The tile's number among those that are divided into units.
    pub tile: I,
}

/// What the pieces of divided tiles need of the workspace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Divided {
    /// Units, each of which has at most one sum that somebody else finishes.
    pub units: u32,
    /// Tiles that are divided into units.
    pub tiles: u32,
}

/// A rule that hands tiles to workers.
///
/// Every implementation covers each output tile's every k-tile exactly once over all workers.
pub trait TileScheduler: 'static {
    /// What [`describe`](TileScheduler::describe) and kernel names call it: an identifier.
    fn name() -> String;

    /// One sentence for people.
    fn describe() -> String;

    /// How the sums of a tile's pieces are added up; `None` where every piece is a whole tile.
    const REDUCTION: Option<ReductionKind> = None;

    /// Whether workers draw the numbers of their tiles from a counter while the kernel runs ([`Draw`]).
    const DRAWS: bool = false;

    /// Whether M is the direction whose end is reached last: see [`Raster::ROWS_LAST`].
    const ROWS_LAST: bool = true;

    /// Whether the device computes the same without the host: no parameter depends on the number of tiles, and there may
    /// be any number of workers.
    const TILES_ON_DEVICE: bool = false;

    /// Whether it deals out tiles of many outputs, which lie below or beside each other as one for it: what it says of the
    /// tiles of one output holds for those of all. Where the device counts the tiles it does.
    const BATCHES: bool = Self::TILES_ON_DEVICE;

    /// Its kernel parameters on the device, beside the extents.
    type Device<'f>: Copy;

    /// How many workers to launch where `slots` can run at once.
    fn workers(tiles: Tiles<u32>, slots: u32) -> u32;

    /// The tiles that are divided.
    fn divided(_tiles: Tiles<u32>, _workers: u32) -> Divided {
        Divided::default()
    }

    /// Declares its kernel parameters, in the order of [`parameters`](TileScheduler::parameters).
    fn declare(f: &Builder) -> Self::Device<'_>;

    /// The values of its parameters.
    fn parameters(tiles: Tiles<u32>, workers: u32) -> Vec<Argument>;

    /// The host model: what `worker` of `workers` computes, in order. Where workers [draw](TileScheduler::DRAWS), what
    /// they would compute if all were equally fast.
    fn work(tiles: Tiles<u32>, worker: u32, workers: u32) -> Box<dyn Iterator<Item = Work<u32>>>;

    /// Emits the same for the device: `body` is called once and its statements run for each piece of work. Schedulers
    /// that [draw](TileScheduler::DRAWS) take further numbers from `draw`; where there is none, as the host model does.
    fn emit<'f>(
        f: &'f Builder,
        device: Self::Device<'f>,
        tiles: Tiles<Value<'f, u32>>,
        worker: Value<'f, u32>,
        workers: Value<'f, u32>,
        draw: Option<&dyn Draw<'f>>,
        body: impl FnOnce(Work<Value<'f, u32>>),
    );
}
