//! Dynamic persistent scheduling with the last tiles split along K. Use it for launches of a few waves whose
//! tiles take different times.

use core::marker::PhantomData;

use typenum::{U3, U16};

use crate::{
    Divided, Index, Natural, OfSpec, Raster, RasterSpec, Rule, SchedulerSpec, Shares, Split, Tiles, Work,
};

/// As [`Dynamic`](crate::Dynamic), but the last tiles of the order `R` are split along K into `Parts` equal
/// work units (default 3). Use it for ragged launches of a few waves.
///
/// As many tiles as there are workers are split, within the limits of the workspace. Each work unit has a
/// number of its own, so workers draw work units as they draw tiles. All workers end within about one work
/// unit of each other. The host need not know the number of tiles. Partial sums are added up as by
/// [`Ordered`](crate::Ordered).
///
/// The work units of a tile have consecutive numbers. The worker with the last one waits for the others,
/// whose numbers were drawn before. So a work unit waits only for smaller numbers, and there is no deadlock.
///
/// No tile is split if there are eight waves or more, because those end evenly enough, or if a work unit
/// would have fewer than `Least` k-tiles (default 16).
#[derive(Clone, Copy, Debug, Default)]
pub struct DividedTail<R, Parts = U3, Least = U16>(PhantomData<(R, Parts, Least)>);

/// From this number of waves on, no tile is split.
const MANY_WAVES: u32 = 8;

/// The numbers that workers draw in a launch: first those of whole tiles, then those of the split tiles' work
/// units.
#[derive(Clone, Copy)]
struct Numbers<I> {
    /// Number of whole tiles.
    whole: I,
    /// Number of split tiles.
    divided: I,
}

impl<R: Raster, Parts: Natural, Least: Natural> OfSpec for DividedTail<R, Parts, Least> {
    const SPEC: SchedulerSpec =
        SchedulerSpec { raster: R::RASTER, rule: Rule::DividedTail { parts: Parts::U32, least: Least::U32 } };
}

/// [`DividedTail`] as a value.
#[derive(Clone, Copy)]
pub(crate) struct Tailed {
    pub(crate) raster: RasterSpec,
    pub(crate) parts: u32,
    pub(crate) least: u32,
}

impl Tailed {
    /// The largest number of work units per split tile. With more, k-tiles times work units could exceed 32
    /// bits.
    pub(crate) const MOST_PARTS: u32 = 16;

    /// The largest number of split tiles. The workspace has room for the flags of `MOST_UNITS` units, and the
    /// counter that workers draw from takes the room of one unit.
    const fn most(self) -> u32 {
        (Shares::<u32>::MOST_UNITS - 1) / self.parts
    }

    fn numbers<I: Index>(self, tiles: Tiles<I>, workers: I) -> Numbers<I> {
        let all = tiles.m * tiles.n;
        let last = all.least(workers).least(self.most());
        let few = all.less(workers * MANY_WAVES, last, 0);
        let divided = tiles.k.less(self.parts.saturating_mul(self.least), 0, few);
        Numbers { whole: all - divided, divided }
    }

    /// How many numbers workers draw: one per whole tile and one per work unit of a split tile.
    fn count<I: Index>(self, Numbers { whole, divided }: Numbers<I>) -> I {
        whole + divided * self.parts
    }

    fn unit<I: Index>(self, id: I, Numbers { whole, .. }: Numbers<I>, tiles: Tiles<I>) -> Work<I> {
        let unit = id.most(whole) - whole;
        let (tile, part) = (unit / self.parts, unit % self.parts);
        let (m, n) = self.raster.tile(id.less(whole, id, whole + tile), tiles);
        let at = |part: I| tiles.k * part / self.parts;
        let k_begin = id.less(whole, 0, at(part));
        let k_end = id.less(whole, tiles.k, at(part + id.constant(1)));
        let first = unit - part;
        let split = Some(Split { unit, first, last: first + id.constant(self.parts - 1), tile });
        Work { m, n, k_begin, k_end, split, slice: None }
    }

    /// The number of work units of a launch, and the work unit of a number.
    pub(crate) fn units<I: Index>(self, tiles: Tiles<I>, workers: I) -> (I, impl Fn(I) -> Work<I>) {
        let numbers = self.numbers(tiles, workers);
        (self.count(numbers), move |id| self.unit(id, numbers, tiles))
    }

    /// As if every tile were split. The host may know only the largest possible number of tiles, and a
    /// smaller number of tiles may be split where a larger one is not.
    pub(crate) fn workers(self, all: u32, resident: u32) -> u32 {
        u32::try_from(u64::from(all) * u64::from(self.parts)).unwrap_or(u32::MAX).min(resident)
    }

    /// The workspace that is enough for any number of tiles.
    pub(crate) fn divided(self, tiles: Tiles<u32>, workers: u32) -> Divided {
        let least = Tiles { m: workers.min(self.most()), n: 1, ..tiles };
        let Numbers { divided, .. } = self.numbers(least, workers);
        Divided { units: divided * self.parts, tiles: divided }
    }
}
