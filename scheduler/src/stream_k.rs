//! Stream-K and split-K: tiles that do not fill a wave are split along K, so that all workers end at the same
//! time.
//!
//! Source of the idea: Osama et al., "Stream-K: Work-centric Parallel Decomposition for Dense Matrix-Matrix
//! GemmDesc on the GPU" (PPoPP 2023).

use core::fmt::Debug;
use core::marker::PhantomData;

use ptx::Builder;
use typenum::{U4, U28};

use crate::single::whole;
use crate::{
    Divided, Index, Natural, OfSpec, Raster, RasterSpec, Rule, SchedulerSpec, Shares, Tiles, Work, WorkLoop,
};

/// How the partial sums of a split tile are added up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReductionKind {
    /// The worker with the tile's last k-tile waits for the others and adds their partial sums in a fixed
    /// order. With the same number of workers the result has the same bits in every run.
    Ordered,
    /// Each worker adds its partial sum to one sum atomically; the last one to arrive finishes the tile. No
    /// worker waits. The order of additions varies from run to run.
    Atomic,
    /// Each worker writes its partial sum to the workspace, waits for the other workers of the tile, and then
    /// reduces and finishes a part of the tile. For tiles of many work units. The order is fixed as for
    /// [`Ordered`](Self::Ordered). Tiles must be split into equal work units, so that each unit belongs to
    /// one tile.
    Separate,
    /// As [`Separate`](Self::Separate), but among the CTAs of a cluster, through distributed shared memory.
    /// Only for [`ClusterK`](crate::ClusterK).
    Clustered,
}

impl ReductionKind {
    /// The estimated cost of adding one more partial sum to a tile, in units of the time of one k-tile.
    pub const fn cost(self) -> u32 {
        match self {
            Self::Ordered => 3,
            Self::Atomic => 1,
            Self::Separate | Self::Clustered => 0,
        }
    }
}

/// A [`ReductionKind`] as a type.
pub trait Reduction: Copy + Default + Debug + Send + Sync + 'static {
    /// The reduction as a value.
    const KIND: ReductionKind;
}

/// [`ReductionKind::Ordered`] as a type: partial sums are added in a fixed order.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ordered;

/// [`ReductionKind::Atomic`] as a type: partial sums are added atomically.
#[derive(Clone, Copy, Debug, Default)]
pub struct Atomic;

/// [`ReductionKind::Separate`] as a type: each worker of a tile reduces a part of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Separate;

impl Reduction for Ordered {
    const KIND: ReductionKind = ReductionKind::Ordered;
}

impl Reduction for Atomic {
    const KIND: ReductionKind = ReductionKind::Atomic;
}

impl Reduction for Separate {
    const KIND: ReductionKind = ReductionKind::Separate;
}

/// Which tiles are split, into how many units, and the smallest work unit, as a type: [`Remainder`],
/// [`EveryTile`] or [`Heuristic`].
pub trait Divide: Copy + Default + Debug + Send + Sync + 'static {
    /// The rule as a value.
    const DIVIDE: DivideSpec;

    /// The smallest number of k-tiles of a work unit.
    const LEAST: u32;
}

/// Stream-K: the tiles of an incomplete last wave, and those of the wave before, are split evenly among all
/// workers. The other tiles stay whole. Each work unit has at least `Least` k-tiles (default 4).
#[derive(Clone, Copy, Debug, Default)]
pub struct Remainder<Least = U4>(PhantomData<Least>);

/// Split-K: each tile is split into `S` equal work units. Fewer if they would have less than `Least` k-tiles
/// (default 4).
#[derive(Clone, Copy, Debug, Default)]
pub struct EveryTile<S, Least = U4>(PhantomData<(S, Least)>);

/// Chooses the predicted fastest of [`Remainder`], equal splits of every tile, and no split. Each work unit
/// has at least `Least` k-tiles (default 4).
///
/// If there are more tiles than workers, splitting must save at least `Gain` k-tiles (default 28) plus 3 % of
/// the busiest worker's time. Partial sums of large tiles are expensive to exchange, and large tiles run at
/// the speed that the power limit allows, so idle workers cost little. For narrow tiles, which are bound by
/// memory, choose a smaller `Gain`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Heuristic<Gain = U28, Least = U4>(PhantomData<(Gain, Least)>);

impl<Least: Natural> Divide for Remainder<Least> {
    const DIVIDE: DivideSpec = DivideSpec::Remainder;
    const LEAST: u32 = Least::U32;
}

impl<S: Natural, Least: Natural> Divide for EveryTile<S, Least> {
    const DIVIDE: DivideSpec = DivideSpec::EveryTile(S::U32);
    const LEAST: u32 = Least::U32;
}

impl<Gain: Natural, Least: Natural> Divide for Heuristic<Gain, Least> {
    const DIVIDE: DivideSpec = DivideSpec::Heuristic { gain: Gain::U32 };
    const LEAST: u32 = Least::U32;
}

/// Which tiles are split, and into how many units.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DivideSpec {
    /// [`Remainder`].
    Remainder,
    /// [`EveryTile`]: the number of work units per tile.
    EveryTile(u32),
    /// [`Heuristic`].
    Heuristic {
        /// The number of k-tiles that splitting has to save if there are more tiles than workers.
        gain: u32,
    },
}

impl DivideSpec {
    /// [`Heuristic`] with its default gain.
    pub const HEURISTIC: Self = <Heuristic as Divide>::DIVIDE;

    /// An identifier.
    pub(crate) fn name(self) -> String {
        match self {
            Self::Remainder => "remainder".to_owned(),
            Self::EveryTile(parts) => format!("split_{parts}"),
            Self::HEURISTIC => "heuristic".to_owned(),
            Self::Heuristic { gain } => format!("heuristic_{gain}"),
        }
    }

    /// A description in words, for output to people.
    pub(crate) fn describe(self) -> String {
        match self {
            Self::Remainder => "the last waves divided along K among all CTAs".to_owned(),
            Self::EveryTile(parts) => format!("each tile divided along K by {parts}"),
            Self::Heuristic { .. } => "divided along K where that helps".to_owned(),
        }
    }
}

/// Persistent scheduling in the order `R` where tiles may be split along K: Stream-K and split-K. Use it for
/// outputs whose last wave leaves many SMs idle, or with fewer tiles than SMs.
///
/// `D` says which tiles are split into *units* ([`Split`](crate::Split)), and `A` how partial sums are added
/// up. Worker `w` of `W` computes units `w`, `w + W`, …, each from its last tile to its first. Then it
/// computes whole tiles with the same stride. Where tiles are split into equal parts that all run at once,
/// the units come in an order in which consecutive workers have the same K-range of different tiles
/// ([`Shares::unit`]): so they read the same operands at the same time.
///
/// Under [`Ordered`], a unit waits only for units with smaller numbers. So resident workers always make
/// progress, whatever order they began in.
#[derive(Clone, Copy, Debug, Default)]
pub struct StreamK<R, A = Ordered, D = Heuristic>(PhantomData<(R, A, D)>);

impl<R: Raster, A: Reduction, D: Divide> OfSpec for StreamK<R, A, D> {
    const SPEC: SchedulerSpec = SchedulerSpec {
        raster: R::RASTER,
        rule: Rule::StreamK { reduction: A::KIND, divide: D::DIVIDE, least: D::LEAST },
    };
}

/// [`StreamK`] as a value.
#[derive(Clone, Copy)]
pub(crate) struct Streamed {
    pub(crate) raster: RasterSpec,
    pub(crate) reduction: ReductionKind,
    pub(crate) divide: DivideSpec,
    pub(crate) least: u32,
}

impl Streamed {
    fn shares(&self, tiles: Tiles<u32>, workers: u32) -> Shares<u32> {
        if tiles.count().is_none() {
            return Shares::NONE;
        }
        let shares = match self.divide {
            DivideSpec::Remainder => self.remainder(tiles, workers),
            // The work units of a tile may wait for each other, so a tile has at most as many as there are
            // workers.
            DivideSpec::EveryTile(parts) => {
                Shares::of_each(tiles.m * tiles.n, tiles.k, parts.min(workers), self.least)
            }
            DivideSpec::Heuristic { gain } => self.heuristic(gain, tiles, workers),
        };
        shares.abreast(tiles.k, workers)
    }

    fn remainder(&self, tiles: Tiles<u32>, workers: u32) -> Shares<u32> {
        let all = tiles.m * tiles.n;
        let rest = all % workers.max(1);
        if rest == 0 || tiles.k < 2 * self.least {
            return Shares::NONE;
        }
        let split = if all > workers { rest + workers } else { rest };
        Shares::across(split, tiles.k, workers, self.least)
    }

    /// Compares the predicted times, in k-tiles: those of the busiest worker, plus the cost of adding up
    /// partial sums.
    fn heuristic(&self, gain: u32, tiles: Tiles<u32>, workers: u32) -> Shares<u32> {
        let (least, cost) = (self.least, self.reduction.cost());
        let of_one_tile = matches!(self.reduction, ReductionKind::Separate);
        let (all, workers) = (tiles.m * tiles.n, workers.max(1));
        if all == 0 {
            return Shares::NONE;
        }
        let k = u64::from(tiles.k);
        let waves = u64::from(all.div_ceil(workers));
        let whole = waves * k;
        let even = (u64::from(all) * k).div_ceil(u64::from(workers));
        // The cost of splitting that does not depend on the number of work units.
        let fixed = if all > workers { u64::from(gain) + whole * 3 / 100 } else { u64::from(2 * cost) };
        let remainder = {
            let parts = u64::from(workers.div_ceil(all)) + 1;
            even + fixed + parts * u64::from(cost)
        };
        // All units of that number of parts run at once.
        let most = (workers / all.max(1)).min(tiles.k / least.max(1));
        let equal = fewest(tiles.k, cost, most).map(|(time, count)| (time + fixed, count));
        let streamed = if of_one_tile || tiles.k < 2 * least { u64::MAX } else { remainder };
        match equal {
            Some((time, count)) if time < whole && time <= streamed => {
                Shares::of_each(all, tiles.k, count, least)
            }
            _ if streamed < whole => self.remainder(tiles, workers),
            _ => Shares::NONE,
        }
    }

    /// The work unit of a Stream-K unit in `tile`, when `begin..end` of the unit is left to compute. K-tiles
    /// are counted over all split tiles.
    fn in_tile<I: Index>(
        &self,
        shares: &Shares<I>,
        tiles: Tiles<I>,
        [unit, tile, begin, end]: [I; 4],
    ) -> Work<I> {
        let start = tile * tiles.k;
        let (m, n) = self.raster.tile(tile, tiles);
        let split = Some(shares.split(unit, tile, tiles.k, self.least));
        Work { m, n, k_begin: begin.most(start) - start, k_end: end - start, split, slice: None }
    }
}

/// The number of equal parts, 2 to `most`, of a tile of `k` k-tiles that ends first if all run at once, and its time before that:
/// k-tiles of the longest part, and `cost` for each further part. The smallest such number; `None` if `most` is less than 2.
fn fewest(k: u32, cost: u32, most: u32) -> Option<(u64, u32)> {
    if most < 2 {
        return None;
    }
    if cost == 0 {
        let length = k.div_ceil(most);
        return Some((length.into(), k.div_ceil(length)));
    }
    let mut best = (u64::MAX, 2);
    for parts in 2..=most {
        let added = u64::from(cost) * u64::from(parts - 1);
        // From here on, the additions alone take longer.
        if added >= best.0 {
            break;
        }
        best = best.min((u64::from(k.div_ceil(parts)) + added, parts));
    }
    Some(best)
}

impl Streamed {
    pub(crate) fn workers(&self, tiles: Tiles<u32>, resident: u32) -> u32 {
        let Some(all) = tiles.count() else { return 0 };
        let resident = resident.max(1);
        if all < resident { all.max(self.shares(tiles, resident).units).min(resident) } else { resident }
    }

    pub(crate) fn divided(&self, tiles: Tiles<u32>, workers: u32) -> Divided {
        let Shares { tiles, units, .. } = self.shares(tiles, workers);
        Divided { units, tiles }
    }

    pub(crate) fn parameters(&self, tiles: Tiles<u32>, workers: u32) -> Vec<(&'static str, u32)> {
        let mut parameters = Vec::new();
        self.shares(tiles, workers).named(|name, value| {
            parameters.push((name, value));
            value
        });
        parameters
    }

    pub(crate) fn work(
        &self,
        tiles: Tiles<u32>,
        worker: u32,
        workers: u32,
    ) -> Box<dyn Iterator<Item = Work<u32>>> {
        let Some(all) = tiles.count() else { return Box::new(core::iter::empty()) };
        let (rule, shares) = (*self, self.shares(tiles, workers));
        let step = workers.max(1) as usize;
        let units = (worker..shares.units).step_by(step).flat_map(move |position| {
            let unit = shares.unit(position);
            let at = |unit| shares.begin(unit, tiles.k, rule.least);
            let (begin, mut end) = (at(unit), at(unit + 1));
            core::iter::from_fn(move || {
                (begin < end).then(|| {
                    let tile = (end - 1) / tiles.k;
                    let work = rule.in_tile(&shares, tiles, [unit, tile, begin, end]);
                    end = begin.max(tile * tiles.k);
                    work
                })
            })
        });
        let others = (shares.tiles.saturating_add(worker)..all).step_by(step);
        Box::new(units.chain(others.map(move |id| whole(rule.raster, id, tiles, 0))))
    }

    pub(crate) fn emit<'f>(&self, f: &'f Builder, loop_: &mut WorkLoop<'_, 'f>) {
        let WorkLoop { tiles, worker, workers, ref mut body, .. } = *loop_;
        let shares = Shares::NAMES.named(|name, ()| f.parameter(name));
        let all = tiles.m * tiles.n;
        // Without k-tiles no tile is split. The code divides by `k`, so `k` is at least 1 here.
        let some = Tiles { k: tiles.k.max(1), ..tiles };
        let at = |unit| shares.begin(unit, some.k, self.least);
        // The position of the present unit, and the end of what is left of it. The largest number stands for a
        // unit that is not begun.
        let (position, left) = (f.variable(worker), f.variable(u32::MAX));
        // Whole tiles are numbered after the split tiles.
        let id = f.variable(shares.tiles + worker);
        f.loop_(|| {
            f.break_if(!(position.get().less_than(shares.units) | id.get().less_than(all)));
            // No branch decides which unit is next: behind one, ptxas no longer takes the numbers of the
            // consumers' loops for the same in all lanes, and each `wgmma` waits for its descriptors. A unit is
            // empty if its begin and its end were moved to the same tile edge. Then it is its worker's only
            // unit, so whole tiles come next.
            let unit = shares.unit(position.get());
            let begin = at(unit);
            let end = at(unit + 1).min(left.get());
            let divided = position.get().less_than(shares.units) & begin.less_than(end);
            f.break_if(!(divided | id.get().less_than(all)));
            let tile = ((end - 1) / some.k).where_or(divided, id.get());
            let work = self.in_tile(&shares, some, [unit, tile, begin, end]);
            let k_begin = work.k_begin.where_or(divided, 0);
            let k_end = work.k_end.where_or(divided, tiles.k);
            // Advance before the work unit is computed: fewer registers are live during it.
            let start = tile * some.k;
            let done = begin.at_least(start);
            id.set(id.get().where_or(divided, id.get() + workers));
            position.set((position.get() + workers).where_or(divided & done, position.get()));
            left.set(f.constant(u32::MAX).where_or(done, start));
            body(Work { k_begin, k_end, ..work });
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fewest_parts_are_the_smallest_of_the_fastest() {
        for k in (1_u32..200).chain([511, 512, 1000, 4097]) {
            for cost in [0, 1, 3, 7] {
                for most in [0, 1, 2, 3, 5, 16, 33, 132].map(|most| k.min(most)) {
                    let time = |parts: u32| u64::from(k.div_ceil(parts)) + u64::from(cost * (parts - 1));
                    let every = (2..=most).map(|parts| (time(parts), parts)).min();
                    assert_eq!(fewest(k, cost, most), every, "{k} k-tiles at {cost}, {most} parts at most");
                }
            }
        }
    }
}
