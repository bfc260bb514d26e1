//! Tile schedulers: which worker computes which output tile and which range of K, in which order.
//!
//! Use this crate to choose a kernel's scheduler, or to write one of your own.
//!
//! | scheduler | rule |
//! |---|---|
//! | [`OneTile`] | one tile per CTA; the hardware assigns CTAs to SMs |
//! | [`Persistent`] | as many CTAs as can be resident; each walks the tiles with a fixed stride |
//! | [`Dynamic`] | persistent; each CTA takes its next tile from a counter in global memory |
//! | [`DividedTail`] | as `Dynamic`, with the last tiles split along K |
//! | [`StreamK`] | Stream-K and split-K: tiles split along K, so that all CTAs end at the same time |
//! | [`ClusterK`] | one tile per cluster, split along K among the cluster's CTAs |
//! | [`NarrowTail`] | as `Persistent`, with the tiles of the last wave sliced along N |
//!
//! A *worker* walks its work units one after the other. It is a CTA, or a cluster of CTAs that the mainloop
//! forms. The scheduler does not know what a worker does with its tile, and it does not know clusters. The
//! kernel tells it which worker runs and how many workers there are.
//!
//! A *work unit* ([`Work`]) is an output tile with a range of k-tiles (CUTLASS: work tile). A tile that has
//! more than one work unit is *split*.
//!
//! A kernel names its scheduler as a type ([`TileScheduler`], the one trait that a scheduler of your own implements). The type gives
//! an object ([`Schedule`]). The schedulers of this crate also exist as plain data ([`SchedulerSpec`]).
//!
//! Each schedule exists for the device and for the host. The raster order ([`Raster`], also one of your own) is written once
//! for any [`Index`]: the same function computes on host integers and emits device code. The loop around it
//! is written once for the device ([`TileScheduler::emit`]) and once for the host ([`TileScheduler::work`]). Tests
//! compare the two, work unit by work unit.
//!
//! A scheduler may get words in device memory from a call ([`TileScheduler::visit`]): an order of tiles, or flags that say which
//! operands are there ([`TileScheduler::ready`], [`await_flag`]).
//!
//! A launch may compute several GEMMs (batched, grouped, ragged). A schedule sees their tiles as the tiles of
//! one output. [`groups`] says which GEMM a tile belongs to.
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
mod given;
pub mod groups;
mod hilbert;
mod index;
mod loads;
mod narrow_tail;
pub mod orders;
mod persistent;
mod raster;
mod schedule;
mod shares;
mod single;
mod spec;
mod stream_k;
mod tail;
mod timeline;

pub use check::{CoverageError, CoverageFault, covered, covers};
pub use cluster_k::ClusterK;
pub use dynamic::{Draw, Dynamic};
pub use error::{ScheduleError, TooManyTiles};
pub use given::{ScheduleVisit, WordContents, Words, await_flag, raise_flag};
pub use index::{Index, IntoIndex};
pub use loads::Loads;
pub use narrow_tail::NarrowTail;
pub use orders::*;
pub use persistent::Persistent;
pub use raster::{Raster, RasterOrder, RasterSize, RasterSpec};
pub use schedule::{Natural, OfSpec, Schedule, TileScheduler, WorkLoop};
pub use shares::Shares;
pub use single::OneTile;
pub use spec::{Rule, SchedulerSpec};
pub use stream_k::{
    Atomic, Divide, DivideSpec, EveryTile, Heuristic, Ordered, Reduction, ReductionKind, Remainder, Separate,
    StreamK,
};
pub use tail::DividedTail;
pub use timeline::{Activity, Span, Timeline};

/// The extent of a problem in tiles. The last tile in each direction may extend past the edge of the matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tiles<I> {
    /// Output tiles along M.
    pub m: I,
    /// Output tiles along N.
    pub n: I,
    /// Tiles along K (k-tiles) of each output tile.
    pub k: I,
}

impl Tiles<u32> {
    /// The largest number of output tiles in a launch: 2^31 - 1.
    pub const MOST: u32 = i32::MAX as u32;

    /// Makes an extent of `m` x `n` output tiles with `k` k-tiles each.
    ///
    /// # Errors
    /// More than `most` output tiles. `most` must not exceed [`MOST`](Self::MOST).
    pub fn counted([m, n]: [u128; 2], k: u32, most: u32) -> Result<Self, TooManyTiles> {
        let fits = m.checked_mul(n).is_some_and(|all| all <= most.into());
        match (u32::try_from(m), u32::try_from(n)) {
            (Ok(m), Ok(n)) if fits => Ok(Self { m, n, k }),
            _ => Err(TooManyTiles { m, n, most }),
        }
    }

    /// The number of output tiles, or `None` if it is above [`MOST`](Self::MOST).
    pub fn count(self) -> Option<u32> {
        self.m.checked_mul(self.n).filter(|&all| all <= Self::MOST)
    }
}

/// One work unit: an output tile and the range `k_begin..k_end` of k-tiles to accumulate for it.
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
    /// The other work units of the same tile. `None` if the scheduler assigns only whole tiles. Without
    /// meaning if this work unit covers all of K.
    pub split: Option<Split<I>>,
    /// Which columns of the tile. `None` if the scheduler never slices tiles.
    pub slice: Option<Slice<I>>,
}

/// The columns of a tile that a work unit has: `count` of its `of` equal slices along N, from slice `first`
/// on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice<I> {
    /// The first slice.
    pub first: I,
    /// The number of slices: `of` for a whole tile.
    pub count: I,
    /// The number of slices of each tile.
    pub of: u32,
}

/// The position of a work unit among the work units of its tile. Their partial sums have to be added up.
///
/// A *unit* (Stream-K unit) is a run of k-tiles, over one or more consecutive tiles, that one worker
/// computes. The worker goes from the unit's last tile to its first, so the partial sum that another worker
/// waits for comes first. Only the first work unit that it computes can end before the last k-tile of its
/// tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Split<I> {
    /// The unit that the work unit belongs to.
    pub unit: I,
    /// The unit with the tile's first k-tile. The units of a tile are numbered consecutively.
    pub first: I,
    /// The unit with the tile's last k-tile.
    pub last: I,
    /// The tile's number among the split tiles.
    pub tile: I,
}

/// The amount of workspace that split tiles need.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Divided {
    /// Number of units. Each has at most one partial sum that another worker finishes.
    pub units: u32,
    /// Number of split tiles.
    pub tiles: u32,
}

/// What a kernel has to know about a scheduler before the kernel is emitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SchedulerTraits {
    /// How the partial sums of a split tile are added up. `None` if every work unit is a whole tile.
    pub reduction: Option<ReductionKind>,
    /// Whether workers draw: they take their next tile number from a counter while the kernel runs
    /// ([`Draw`]).
    pub draws: bool,
    /// Whether the order reaches the end of M last: see [`RasterSpec::rows_last`].
    pub rows_last: bool,
    /// Width of a band of the order, in tiles: see [`RasterSpec::band`].
    pub band: u32,
    /// Whether the device can compute the schedule without the host: no parameter depends on the number of
    /// tiles, and any number of workers is allowed.
    pub tiles_on_device: bool,
    /// Number of CTAs of a cluster among which each tile is split along K. They exchange partial sums through
    /// distributed shared memory. 1 if the scheduler does not form clusters.
    pub parts: u32,
    /// Number of equal slices along N in which a work unit may have a tile ([`Slice`]). 1 if every work unit
    /// has all columns of its tile.
    pub slices: u32,
    /// Whether it can schedule several outputs, stacked along M or N, as the tiles of one output.
    pub batches: bool,
    /// Whether the launch itself writes operands that its units wait for ([`TileScheduler::ready`]). Then what a call writes may
    /// share memory with what it reads.
    pub feeds: bool,
}

impl SchedulerTraits {
    /// Whole tiles of one output, assigned by the host.
    pub const WHOLE: Self = Self {
        reduction: None,
        draws: false,
        rows_last: true,
        band: 1,
        tiles_on_device: false,
        parts: 1,
        slices: 1,
        batches: false,
        feeds: false,
    };
}
