//! Tile schedulers: which worker computes which output tile and which part of K, in which order.
//!
//! A *worker* is whatever computes one tile at a time: a CTA, later a cluster or one of two warpgroups that take
//! turns. The scheduler knows nothing about what a worker does with its tile, and nothing about clusters: the
//! kernel says which worker runs and how many there are.
//!
//! A kernel names its scheduler as a type ([`TileScheduler`]), which gives a value ([`Schedule`]); those of this crate are
//! plain data ([`SchedulerSpec`]).
//!
//! Each schedule exists twice, from one description. The order of tiles ([`RasterSpec`]) is computed on any [`Index`], so
//! the very same function runs on host integers and emits device code; the loop around it is written once for the
//! device ([`Schedule::emit`]) and once for the host ([`Schedule::work`]), and the tests hold the two
//! against each other, piece by piece.
//!
//! A launch may compute several products. A schedule sees the tiles of all of them as those of one output; [`groups`] says which
//! product a tile is of.
//!
//! ```
//! use scheduler::{AlongM, Grouped, Persistent, TileScheduler, Tiles};
//! use typenum::U8;
//!
//! type Mine = Persistent<Grouped<AlongM, U8>>;
//! let schedule = Mine::schedule();
//! let tiles = Tiles { m: 64, n: 32, k: 128 };
//! let workers = schedule.workers(tiles, 132);
//! assert_eq!(workers, 132);
//! let first: Vec<_> = schedule.work(tiles, 0, workers).map(|work| (work.m, work.n)).take(3).collect();
//! assert_eq!(first, [(0, 0), (4, 16), (8, 1)]);
//! ```
#![forbid(unsafe_code)]

mod check;
mod cluster_k;
mod dynamic;
mod error;
pub mod groups;
mod hilbert;
mod index;
mod persistent;
mod raster;
mod shares;
mod single;
mod spec;
mod stream_k;
mod tail;
mod timeline;

pub use check::{CoverageError, CoverageFault, covered, covers};
pub use cluster_k::{ClusterK, Clustered};
pub use dynamic::{Draw, Drawn, Dynamic};
pub use error::{ScheduleError, TooManyTiles};
pub use index::Index;
pub use persistent::{Persistent, Walk};
pub use raster::{AlongM, AlongN, Grouped, Hilbert, Raster, RasterSpec};
pub use shares::Shares;
pub use single::{OneTile, Whole};
pub use spec::SchedulerSpec;
pub use stream_k::{
    Atomic, Divide, DivideSpec, EveryTile, Heuristic, Ordered, Reduction, ReductionKind, Remainder, Separate,
    StreamK, Streamed,
};
pub use tail::{DividedTail, Tailed};
pub use timeline::{Activity, Span, Timeline};

use core::fmt;
use std::sync::Arc;

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

impl Tiles<u32> {
    /// Most output tiles that a launch numbers.
    pub const MOST: u32 = i32::MAX as u32;

    /// So many output tiles along M and N, and k-tiles.
    ///
    /// # Errors
    /// More than `most` output tiles, which are [`MOST`](Self::MOST) or fewer.
    pub fn counted([m, n]: [u128; 2], k: u32, most: u32) -> Result<Self, TooManyTiles> {
        let fits = m.checked_mul(n).is_some_and(|all| all <= most.into());
        match (u32::try_from(m), u32::try_from(n)) {
            (Ok(m), Ok(n)) if fits => Ok(Self { m, n, k }),
            _ => Err(TooManyTiles { m, n, most }),
        }
    }

    /// How many output tiles there are; `None` where they are more than [`MOST`](Self::MOST).
    pub fn count(self) -> Option<u32> {
        self.m.checked_mul(self.n).filter(|&all| all <= Self::MOST)
    }
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

/// What a kernel has to know of a scheduler before it is emitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// How the sums of a tile's pieces are added up; `None` where every piece is a whole tile.
    pub reduction: Option<ReductionKind>,
    /// Whether workers draw the numbers of their tiles from a counter while the kernel runs ([`Draw`]).
    pub draws: bool,
    /// Whether M is the direction whose end is reached last: see [`RasterSpec::rows_last`].
    pub rows_last: bool,
    /// Tiles across a band of the order: see [`RasterSpec::band`].
    pub band: u32,
    /// Whether the device computes the same without the host: no parameter depends on the number of tiles, and there may
    /// be any number of workers.
    pub tiles_on_device: bool,
    /// CTAs of a cluster that compute a part of K of one tile each, and exchange sums through its shared memory; 1 where clusters are the
    /// mainloop's.
    pub parts: u32,
    /// Whether it deals out tiles of many outputs, which lie below or beside each other as one for it: what it says of the
    /// tiles of one output holds for those of all.
    pub batches: bool,
}

impl Facts {
    /// Whole tiles of one output, dealt out by the host.
    pub const WHOLE: Self = Self {
        reduction: None,
        draws: false,
        rows_last: true,
        band: 1,
        tiles_on_device: false,
        parts: 1,
        batches: false,
    };
}

/// A rule that hands tiles to workers as a type: the third role of a kernel.
///
/// The type says what a plan needs while it compiles, and gives the value that emits: a [`Schedule`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a tile scheduler",
    note = "write `Persistent<Grouped<AlongM, U8>>`, or give a type of your own a `Schedule`"
)]
pub trait TileScheduler: 'static {
    /// What the plan needs.
    const FACTS: Facts;

    /// The rule as a value.
    fn schedule() -> Arc<dyn Schedule>;
}

/// A rule that hands tiles to workers.
///
/// Every implementation covers each output tile's every k-tile exactly once over all workers.
pub trait Schedule: fmt::Debug + Send + Sync {
    /// What [`describe`](Schedule::describe) and kernel names call it: an identifier.
    fn name(&self) -> String;

    /// One sentence for people.
    fn describe(&self) -> String;

    /// What a kernel has to know of it, the same as [`TileScheduler::FACTS`].
    fn facts(&self) -> Facts;

    /// The rule as plain data; `None` for one of your own.
    fn spec(&self) -> Option<SchedulerSpec> {
        None
    }

    /// How many workers to launch where `slots` can run at once; 0 where the tiles cannot be [counted](Tiles::count).
    fn workers(&self, tiles: Tiles<u32>, slots: u32) -> u32;

    /// The tiles that are divided.
    fn divided(&self, _tiles: Tiles<u32>, _workers: u32) -> Divided {
        Divided::default()
    }

    /// Declares its kernel parameters beside the extents, in the order of [`parameters`](Schedule::parameters).
    fn declare<'f>(&self, _f: &'f Builder) -> Vec<Value<'f, u32>> {
        Vec::new()
    }

    /// The values of its parameters.
    fn parameters(&self, _tiles: Tiles<u32>, _workers: u32) -> Vec<u32> {
        Vec::new()
    }

    /// The host model: what `worker` of `workers` computes, in order; nothing where the tiles cannot be
    /// [counted](Tiles::count). Where workers [draw](Facts::draws), what
    /// they would compute if all were equally fast.
    fn work(&self, tiles: Tiles<u32>, worker: u32, workers: u32) -> Box<dyn Iterator<Item = Work<u32>>>;

    /// Emits the same for the device.
    fn emit<'f>(&self, f: &'f Builder, loop_: &mut WorkLoop<'_, 'f>);
}

/// What a schedule is emitted with.
pub struct WorkLoop<'a, 'f> {
    /// The values of [`Schedule::declare`].
    pub parameters: &'a [Value<'f, u32>],
    /// The problem's extent.
    pub tiles: Tiles<Value<'f, u32>>,
    /// Which worker runs.
    pub worker: Value<'f, u32>,
    /// How many there are.
    pub workers: Value<'f, u32>,
    /// Whom schedules that [draw](Facts::draws) ask for further numbers; where there is nobody, they take those of the
    /// host model.
    pub draw: Option<&'a dyn Draw<'f>>,
    /// Called once; its statements run for each piece of work.
    pub body: &'a mut dyn FnMut(Work<Value<'f, u32>>),
}

impl fmt::Debug for WorkLoop<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkLoop").field("tiles", &self.tiles).finish_non_exhaustive()
    }
}
