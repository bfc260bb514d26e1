//! Drawn tiles, of which the last are divided along K: for launches of a few waves whose tiles are not alike.

use core::marker::PhantomData;
use std::sync::Arc;

use ptx::Builder;
use typenum::{U3, U16, Unsigned};

use crate::dynamic::drawn;
use crate::{
    Divided, Facts, Index, Raster, RasterSpec, Schedule, SchedulerSpec, Shares, Split, TileScheduler, Tiles,
    Work, WorkLoop,
};

/// As [`Dynamic`](crate::Dynamic), but the last tiles of the order `R`, as many as there are workers, come in `Parts` equal
/// parts along K, each with a number of its own. So all workers end within about a part of each other, and nobody has to
/// know beforehand how many tiles there are. Sums are added up as [`Ordered`](crate::Ordered) does it.
///
/// A tile's parts have numbers that follow each other, and whoever has the last one waits for the others, whose numbers were
/// taken before. So a part waits for smaller numbers only, and the smallest that is not done goes on.
///
/// No tile is divided where there are eight waves or more, which end evenly enough, or where a part would have fewer than
/// `Least` k-tiles.
#[derive(Clone, Copy, Debug)]
pub struct DividedTail<R, Parts = U3, Least = U16>(PhantomData<(R, Parts, Least)>);

/// Waves from which on nothing is divided.
const MANY_WAVES: u32 = 8;

/// The numbers of a launch: those of whole tiles, then those of parts.
#[derive(Clone, Copy)]
struct Numbers<I> {
    /// Whole tiles.
    whole: I,
    /// Tiles that are divided.
    divided: I,
}

impl<R: Raster, Parts: Unsigned + 'static, Least: Unsigned + 'static> DividedTail<R, Parts, Least> {
    const VALUE: Tailed = Tailed { raster: R::RASTER, parts: Parts::U32, least: Least::U32 };
}

impl<R: Raster, Parts: Unsigned + 'static, Least: Unsigned + 'static> TileScheduler
    for DividedTail<R, Parts, Least>
{
    const FACTS: Facts = SchedulerSpec::DividedTail(Self::VALUE).checked_facts();

    fn schedule() -> Arc<dyn Schedule> {
        Arc::new(Self::VALUE)
    }
}

/// [`DividedTail`] as a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tailed {
    /// The order of tiles.
    pub raster: RasterSpec,
    /// Parts of a tile that is divided, 1 to [`MOST_PARTS`](Self::MOST_PARTS).
    pub parts: u32,
    /// Fewest k-tiles of a part.
    pub least: u32,
}

impl Tailed {
    /// Most parts of a tile: more, and k-tiles could not be counted.
    pub const MOST_PARTS: u32 = 16;

    /// Most tiles that are divided: a workspace has room for so many parts and a counter in front of their flags.
    const fn most(self) -> u32 {
        (Shares::<u32>::MOST_UNITS - 1) / self.parts
    }

    fn numbers<I: Index>(self, tiles: Tiles<I>, workers: I) -> Numbers<I> {
        let all = tiles.m * tiles.n;
        let zero = all.constant(0);
        let last = all.least(workers).at_most(self.most());
        let few = all.less(workers * MANY_WAVES, last, zero);
        let divided = tiles.k.less(all.constant(self.parts.saturating_mul(self.least)), zero, few);
        Numbers { whole: all - divided, divided }
    }

    /// Those of whole tiles and parts.
    fn count<I: Index>(self, Numbers { whole, divided }: Numbers<I>) -> I {
        whole + divided * self.parts
    }

    fn piece<I: Index>(self, id: I, Numbers { whole, .. }: Numbers<I>, tiles: Tiles<I>) -> Work<I> {
        let unit = id.most(whole) - whole;
        let (tile, part) = (unit / self.parts, unit % self.parts);
        let (m, n) = self.raster.tile(id.less(whole, id, whole + tile), tiles);
        let at = |part: I| tiles.k * part / self.parts;
        let k_begin = id.less(whole, id.constant(0), at(part));
        let k_end = id.less(whole, tiles.k, at(part + id.constant(1)));
        let first = unit - part;
        let split = Some(Split { unit, first, last: first + id.constant(self.parts - 1), tile });
        Work { m, n, k_begin, k_end, split }
    }
}

impl Schedule for Tailed {
    fn name(&self) -> String {
        let least = if self.least == 16 { String::new() } else { format!("_by_{}", self.least) };
        format!("dynamic_tail_{}{least}_{}", self.parts, self.raster.name())
    }

    fn describe(&self) -> String {
        format!(
            "persistent CTAs that draw their tiles, {}, the last of few waves in {} parts of K",
            self.raster.describe(),
            self.parts
        )
    }

    fn facts(&self) -> Facts {
        SchedulerSpec::DividedTail(*self).facts()
    }

    fn spec(&self) -> Option<SchedulerSpec> {
        Some(SchedulerSpec::DividedTail(*self))
    }

    /// The host may know no more than how many tiles there are at most, and fewer may be divided where more are not.
    fn workers(&self, tiles: Tiles<u32>, slots: u32) -> u32 {
        let all = u64::from(tiles.count().unwrap_or(0)) * u64::from(self.parts);
        u32::try_from(all).unwrap_or(u32::MAX).min(slots.max(1))
    }

    /// Whatever the number of tiles.
    fn divided(&self, tiles: Tiles<u32>, workers: u32) -> Divided {
        let least = Tiles { m: workers.min(self.most()), n: 1, ..tiles };
        let Numbers { divided, .. } = self.numbers(least, workers);
        Divided { units: divided * self.parts, tiles: divided }
    }

    fn work(&self, tiles: Tiles<u32>, worker: u32, workers: u32) -> Box<dyn Iterator<Item = Work<u32>>> {
        let tiles = tiles.count().map_or(Tiles { m: 0, n: 0, ..tiles }, |_| tiles);
        let (rule, numbers) = (*self, self.numbers(tiles, workers));
        let ids = (worker..self.count(numbers)).step_by(workers.max(1) as usize);
        Box::new(ids.map(move |id| rule.piece(id, numbers, tiles)))
    }

    fn emit<'f>(&self, f: &'f Builder, loop_: &mut WorkLoop<'_, 'f>) {
        let tiles = loop_.tiles;
        let numbers = self.numbers(tiles, loop_.workers);
        drawn(f, self.count(numbers), loop_, &|id| self.piece(id, numbers, tiles));
    }
}
