//! Static persistent scheduling with the tiles of the last wave sliced along N.

use core::marker::PhantomData;
use std::sync::Arc;

use ptx::Builder;
use typenum::{U2, Unsigned};

use crate::{
    Index, Raster, RasterSpec, Schedule, SchedulerSpec, SchedulerTraits, Slice, TileScheduler, Tiles, Work,
    WorkLoop,
};

/// As [`Persistent`](crate::Persistent), but the tiles of a last, partial wave of the order `R` are computed
/// in `Parts` slices along N (default 2). Use it for a single GEMM or a batch whose last wave has few tiles.
///
/// Each slice is a work unit with all of K, so no partial sums are exchanged. A launch of 1.3 waves takes the
/// time of about 1.6 tiles and not of 2. Tiles are sliced only if no worker gets two slices: a slice of half
/// of the columns takes more than half of a tile's time, because all rows of A are loaded for it.
///
/// The mainloop must be able to narrow its tile to the slice's columns.
///
/// ```
/// use scheduler::{AlongM, NarrowTail, TileScheduler, Tiles};
///
/// let schedule = NarrowTail::<AlongM>::schedule();
/// let tiles = Tiles { m: 6, n: 1, k: 10 };
/// let work = |worker| schedule.work(tiles, worker, 4).map(|work| (work.m, work.slice.map(|slice| [slice.first, slice.count])));
/// assert_eq!(work(0).collect::<Vec<_>>(), [(0, Some([0, 2])), (4, Some([0, 1]))]);
/// assert_eq!(work(3).collect::<Vec<_>>(), [(3, Some([0, 2])), (5, Some([1, 1]))]);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct NarrowTail<R, Parts = U2>(PhantomData<(R, Parts)>);

impl<R: Raster, Parts: Unsigned + 'static> NarrowTail<R, Parts> {
    const VALUE: Narrowed = Narrowed { raster: R::RASTER, parts: Parts::U32 };
}

impl<R: Raster, Parts: Unsigned + 'static> TileScheduler for NarrowTail<R, Parts> {
    const TRAITS: SchedulerTraits = SchedulerSpec::NarrowTail(Self::VALUE).checked_traits();

    fn schedule() -> Arc<dyn Schedule> {
        Arc::new(Self::VALUE)
    }
}

/// [`NarrowTail`] as a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Narrowed {
    /// The order of tiles.
    pub raster: RasterSpec,
    /// Slices per tile of the last wave, 2 to [`MOST_PARTS`](Self::MOST_PARTS).
    pub parts: u32,
}

/// The work units of a launch, by number: first whole tiles, then slices.
#[derive(Clone, Copy)]
struct Numbers<I> {
    /// Number of whole tiles.
    whole: I,
    /// Number of work units.
    all: I,
}

impl Narrowed {
    /// The largest number of slices per tile.
    pub const MOST_PARTS: u32 = 8;

    /// The largest number of workers, far more than a card holds, so that no number of a work unit overflows.
    const MOST_WORKERS: u32 = 1 << 16;

    fn numbers<I: Index>(self, Tiles { m, n, .. }: Tiles<I>, workers: I) -> Numbers<I> {
        let all = m * n;
        let rest = all % workers;
        let sliced = workers.less(rest * self.parts, all.constant(0), rest);
        Numbers { whole: all - sliced, all: all + sliced * (self.parts - 1) }
    }

    fn piece<I: Index>(self, id: I, Numbers { whole, .. }: Numbers<I>, tiles: Tiles<I>) -> Work<I> {
        let unit = id.most(whole) - whole;
        let tile = id.less(whole, id, whole + unit / self.parts);
        let (m, n) = self.raster.tile(tile, tiles);
        let constant = |value| id.constant(value);
        let slice = Slice {
            first: unit % self.parts,
            count: id.less(whole, constant(self.parts), constant(1)),
            of: self.parts,
        };
        Work { m, n, k_begin: constant(0), k_end: tiles.k, split: None, slice: Some(slice) }
    }
}

impl Schedule for Narrowed {
    fn name(&self) -> String {
        format!("narrow_tail_{}_{}", self.parts, self.raster.name())
    }

    fn describe(&self) -> String {
        format!(
            "persistent CTAs, {}, the tiles of the last wave in {} slices along N",
            self.raster.describe(),
            self.parts
        )
    }

    fn traits(&self) -> SchedulerTraits {
        SchedulerSpec::NarrowTail(*self).traits()
    }

    fn spec(&self) -> Option<SchedulerSpec> {
        Some(SchedulerSpec::NarrowTail(*self))
    }

    /// One per tile, or one per slice if there are slots for all slices.
    fn workers(&self, tiles: Tiles<u32>, slots: u32) -> u32 {
        let (all, slots) = (tiles.count().unwrap_or(0), slots.clamp(1, Self::MOST_WORKERS));
        if all >= slots {
            return slots;
        }
        let slices = all * self.parts;
        if slices <= slots { slices } else { all }
    }

    fn work(&self, tiles: Tiles<u32>, worker: u32, workers: u32) -> Box<dyn Iterator<Item = Work<u32>>> {
        let tiles = tiles.count().map_or(Tiles { m: 0, n: 0, ..tiles }, |_| tiles);
        let workers = workers.clamp(1, Self::MOST_WORKERS);
        let (rule, numbers) = (*self, self.numbers(tiles, workers));
        let ids = (worker..numbers.all).step_by(workers as usize);
        Box::new(ids.map(move |id| rule.piece(id, numbers, tiles)))
    }

    fn emit<'f>(&self, f: &'f Builder, WorkLoop { tiles, worker, workers, body, .. }: &mut WorkLoop<'_, 'f>) {
        let numbers = self.numbers(*tiles, *workers);
        let id = f.variable(*worker);
        f.while_(
            || id.get().less_than(numbers.all),
            || {
                body(self.piece(id.get(), numbers, *tiles));
                id.set(id.get() + *workers);
            },
        );
    }
}
