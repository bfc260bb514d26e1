//! Stream-K: tiles that do not fill a wave are divided along K, so that all workers end at the same time.
//!
//! Source of the idea: Osama et al., "Stream-K: Work-centric Parallel Decomposition for Dense Matrix-Matrix
//! Multiplication on the GPU" (PPoPP 2023).

use core::marker::PhantomData;
use std::sync::Arc;

use ptx::{Builder, Value};
use typenum::{U4, U28, Unsigned};

use crate::single::whole;
use crate::{
    Divided, Facts, Index, Raster, RasterSpec, Schedule, SchedulerSpec, Shares, TileScheduler, Tiles, Work,
    WorkLoop,
};

/// How the sums of a tile's pieces are added up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReductionKind {
    /// Whoever has a tile's last k-tile waits for the others and adds their sums in a fixed order: the result is the same,
    /// bit for bit, whenever the number of workers is.
    Ordered,
    /// Everybody adds to one sum as they come; whoever comes last finishes the tile. Nobody waits.
    Atomic,
    /// Everybody puts its sum down, waits for the others of the tile, and then adds up and finishes a part of the tile: for
    /// tiles of many pieces. The order is fixed as [`Ordered`](Self::Ordered)'s is. Tiles are divided into equal parts
    /// only, so that each unit is of one tile.
    Separate,
    /// As [`Separate`](Self::Separate), but among the CTAs of a cluster, which read each other's shared memory:
    /// [`ClusterK`](crate::ClusterK) alone.
    Clustered,
}

impl ReductionKind {
    /// What it costs to add one more piece to a tile, in k-tiles of the multiplication.
    pub const fn cost(self) -> u32 {
        match self {
            Self::Ordered => 3,
            Self::Atomic => 1,
            Self::Separate | Self::Clustered => 0,
        }
    }
}

/// A [`ReductionKind`] as a type.
pub trait Reduction: 'static {
    /// Which.
    const KIND: ReductionKind;
}

/// [`ReductionKind::Ordered`].
#[derive(Clone, Copy, Debug)]
pub struct Ordered;

/// [`ReductionKind::Atomic`].
#[derive(Clone, Copy, Debug)]
pub struct Atomic;

/// [`ReductionKind::Separate`].
#[derive(Clone, Copy, Debug)]
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

/// Which tiles are divided, into how many units, and how short a piece may be, as a type.
pub trait Divide: 'static {
    /// The rule.
    const DIVIDE: DivideSpec;

    /// Fewest k-tiles of a piece.
    const LEAST: u32;
}

/// The tiles of the last wave and of the one before are divided among all workers; the others stay whole. No piece has fewer
/// than `Least` k-tiles.
#[derive(Clone, Copy, Debug)]
pub struct Remainder<Least = U4>(PhantomData<Least>);

/// Every tile is divided into `S` equal parts, or into as many as have `Least` k-tiles or more.
#[derive(Clone, Copy, Debug)]
pub struct EveryTile<S, Least = U4>(PhantomData<(S, Least)>);

/// [`Remainder`], equal parts of every tile, or no division: whichever should be fastest. No piece has fewer than `Least`
/// k-tiles.
///
/// Where there are more tiles than workers, a division has to save `Gain` k-tiles and 3 % of the busiest worker's: large
/// tiles are expensive to exchange, and run at the speed that power allows, so that idle workers cost little. Tiles of few
/// columns, which wait for memory, are worth dividing for less.
#[derive(Clone, Copy, Debug)]
pub struct Heuristic<Gain = U28, Least = U4>(PhantomData<(Gain, Least)>);

impl<Least: Unsigned + 'static> Divide for Remainder<Least> {
    const DIVIDE: DivideSpec = DivideSpec::Remainder;
    const LEAST: u32 = Least::U32;
}

impl<S: Unsigned + 'static, Least: Unsigned + 'static> Divide for EveryTile<S, Least> {
    const DIVIDE: DivideSpec = DivideSpec::EveryTile(S::U32);
    const LEAST: u32 = Least::U32;
}

impl<Gain: Unsigned + 'static, Least: Unsigned + 'static> Divide for Heuristic<Gain, Least> {
    const DIVIDE: DivideSpec = DivideSpec::Heuristic { gain: Gain::U32 };
    const LEAST: u32 = Least::U32;
}

/// Which tiles are divided, and into how many units.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DivideSpec {
    /// [`Remainder`].
    Remainder,
    /// [`EveryTile`] in so many parts.
    EveryTile(u32),
    /// [`Heuristic`].
    Heuristic {
        /// K-tiles that a division has to save.
        gain: u32,
    },
}

impl DivideSpec {
    /// [`Heuristic`] as it is by default.
    pub const HEURISTIC: Self = <Heuristic as Divide>::DIVIDE;

    /// An identifier.
    fn name(self) -> String {
        match self {
            Self::Remainder => "remainder".to_owned(),
            Self::EveryTile(parts) => format!("split_{parts}"),
            Self::HEURISTIC => "heuristic".to_owned(),
            Self::Heuristic { gain } => format!("heuristic_{gain}"),
        }
    }

    /// One sentence for people.
    fn describe(self) -> String {
        match self {
            Self::Remainder => "the last waves divided among all".to_owned(),
            Self::EveryTile(parts) => format!("every tile in {parts} parts of K"),
            Self::Heuristic { .. } => "divided along K where that helps".to_owned(),
        }
    }
}

/// As [`Persistent`](crate::Persistent), but tiles may be divided along K into *units*, as `D` says: worker `w` of `W`
/// computes units `w`, `w + W`, …, each from its last tile to its first, then whole tiles with the same stride. The sums
/// of a tile's pieces are added up as `A` says.
///
/// Units wait only for units before them: all that run at once go on, in whatever order they began.
#[derive(Clone, Copy, Debug)]
pub struct StreamK<R, A = Ordered, D = Heuristic>(PhantomData<(R, A, D)>);

impl<R: Raster, A: Reduction, D: Divide> StreamK<R, A, D> {
    const VALUE: Streamed =
        Streamed { raster: R::RASTER, reduction: A::KIND, divide: D::DIVIDE, least: D::LEAST };
}

impl<R: Raster, A: Reduction, D: Divide> TileScheduler for StreamK<R, A, D> {
    const FACTS: Facts = SchedulerSpec::StreamK(Self::VALUE).checked_facts();

    fn schedule() -> Arc<dyn Schedule> {
        Arc::new(Self::VALUE)
    }
}

/// [`StreamK`] as a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Streamed {
    /// The order of tiles.
    pub raster: RasterSpec,
    /// How sums are added up.
    pub reduction: ReductionKind,
    /// Which tiles are divided.
    pub divide: DivideSpec,
    /// Fewest k-tiles of a piece.
    pub least: u32,
}

impl Streamed {
    fn shares(&self, tiles: Tiles<u32>, workers: u32) -> Shares<u32> {
        match self.divide {
            DivideSpec::Remainder => self.remainder(tiles, workers),
            // Parts of a tile may wait for each other, so there are never more than workers.
            DivideSpec::EveryTile(parts) => {
                Shares::of_each(tiles.m * tiles.n, tiles.k, parts.min(workers), self.least)
            }
            DivideSpec::Heuristic { gain } => self.heuristic(gain, tiles, workers),
        }
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

    /// Compares the k-tiles that the busiest worker computes, with what adding pieces up costs.
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
        // What a division costs however few pieces there are.
        let fixed = if all > workers { u64::from(gain) + whole * 3 / 100 } else { u64::from(2 * cost) };
        let remainder = {
            let parts = u64::from(workers.div_ceil(all)) + 1;
            even + fixed + parts * u64::from(cost)
        };
        let parts = |parts: u32| {
            let length = k.div_ceil(u64::from(parts));
            let waves = u64::from((all * parts).div_ceil(workers));
            waves * length + fixed + u64::from(cost * (parts - 1))
        };
        let most = (workers / all.max(1)).min(tiles.k / least.max(1));
        let equal = (2..=most).map(|count| (parts(count), count)).min();
        let streamed = if of_one_tile || tiles.k < 2 * least { u64::MAX } else { remainder };
        match equal {
            Some((time, count)) if time < whole && time <= streamed => {
                Shares::of_each(all, tiles.k, count, least)
            }
            _ if streamed < whole => self.remainder(tiles, workers),
            _ => Shares::NONE,
        }
    }

    /// The piece of a unit that lies in `tile`, if of the unit `begin..end` is left: k-tiles counted over all divided
    /// tiles.
    fn piece<I: Index>(
        &self,
        shares: &Shares<I>,
        tiles: Tiles<I>,
        [unit, tile, begin, end]: [I; 4],
    ) -> Work<I> {
        let start = tile * tiles.k;
        let (m, n) = self.raster.tile(tile, tiles);
        let split = Some(shares.split(unit, tile, tiles.k, self.least));
        Work { m, n, k_begin: begin.most(start) - start, k_end: end - start, split }
    }
}

/// The parameters' names, in the order of [`Shares`].
const PARAMETERS: [&str; 6] = ["split_tiles", "units", "span_units", "span_k", "unit_k", "longer_units"];

impl Schedule for Streamed {
    fn name(&self) -> String {
        let Self { raster, reduction, divide, least } = *self;
        let suffix = match reduction {
            ReductionKind::Ordered => "",
            ReductionKind::Atomic => "_atomic",
            ReductionKind::Separate => "_separate",
            ReductionKind::Clustered => "_clustered",
        };
        let least = if least == 4 { String::new() } else { format!("_by_{least}") };
        format!("stream_k_{}{suffix}{least}_{}", divide.name(), raster.name())
    }

    fn describe(&self) -> String {
        format!("persistent CTAs, {}, {}", self.raster.describe(), self.divide.describe())
    }

    fn facts(&self) -> Facts {
        SchedulerSpec::StreamK(*self).facts()
    }

    fn spec(&self) -> Option<SchedulerSpec> {
        Some(SchedulerSpec::StreamK(*self))
    }

    fn workers(&self, tiles: Tiles<u32>, slots: u32) -> u32 {
        let Some(all) = tiles.count() else { return 0 };
        let slots = slots.max(1);
        let shares = self.shares(tiles, slots);
        all.max(shares.units).min(slots)
    }

    fn divided(&self, tiles: Tiles<u32>, workers: u32) -> Divided {
        let Shares { tiles, units, .. } = self.shares(tiles, workers);
        Divided { units, tiles }
    }

    fn declare<'f>(&self, f: &'f Builder) -> Vec<Value<'f, u32>> {
        PARAMETERS.map(|name| f.param(name)).to_vec()
    }

    fn parameters(&self, tiles: Tiles<u32>, workers: u32) -> Vec<u32> {
        let Shares { tiles, units, each, span, base, longer } = self.shares(tiles, workers);
        vec![tiles, units, each, span, base, longer]
    }

    fn work(&self, tiles: Tiles<u32>, worker: u32, workers: u32) -> Box<dyn Iterator<Item = Work<u32>>> {
        let Some(all) = tiles.count() else { return Box::new(core::iter::empty()) };
        let (rule, shares) = (*self, self.shares(tiles, workers));
        let step = workers.max(1) as usize;
        let units = (worker..shares.units).step_by(step).flat_map(move |unit| {
            let at = |unit| shares.begin(unit, tiles.k, rule.least);
            let (begin, mut end) = (at(unit), at(unit + 1));
            core::iter::from_fn(move || {
                (begin < end).then(|| {
                    let tile = (end - 1) / tiles.k;
                    let work = rule.piece(&shares, tiles, [unit, tile, begin, end]);
                    end = begin.max(tile * tiles.k);
                    work
                })
            })
        });
        let others = (shares.tiles.saturating_add(worker)..all).step_by(step);
        Box::new(units.chain(others.map(move |id| whole(rule.raster, id, tiles, 0))))
    }

    fn emit<'f>(&self, f: &'f Builder, loop_: &mut WorkLoop<'_, 'f>) {
        let WorkLoop { parameters, tiles, worker, workers, ref mut body, .. } = *loop_;
        let numbers: [Value<'f, u32>; 6] =
            parameters.try_into().expect("the loop is emitted with what `declare` gave");
        let [split, units, each, span, base, longer] = numbers;
        let shares = Shares { tiles: split, units, each, span, base, longer };
        let all = tiles.m * tiles.n;
        // No tile is divided where there are no k-tiles, and nothing may be divided by their number.
        let some = Tiles { k: tiles.k.max(1), ..tiles };
        let at = |unit| shares.begin(unit, some.k, self.least);
        // The unit that comes next, the present one, and what is left of it: `begin..end`.
        let (next, unit) = (f.variable(worker), f.variable(worker));
        let (begin, end) = (f.variable(0u32), f.variable(0u32));
        // Whole tiles have the numbers behind those of the divided ones.
        let id = f.variable(shares.tiles + worker);
        f.loop_(|| {
            // A unit whose ends were moved to one edge has nothing.
            f.while_(
                || next.get().less_than(shares.units) & begin.get().at_least(end.get()),
                || {
                    unit.set(next.get());
                    begin.set(at(next.get()));
                    end.set(at(next.get() + 1));
                    next.set(next.get() + workers);
                },
            );
            let divided = begin.get().less_than(end.get());
            f.break_if(!(divided | id.get().less_than(all)));
            let tile = ((end.get() - 1) / some.k).where_or(divided, id.get());
            let piece = self.piece(&shares, some, [unit.get(), tile, begin.get(), end.get()]);
            let k_begin = piece.k_begin.where_or(divided, 0);
            let k_end = piece.k_end.where_or(divided, tiles.k);
            // What comes next, before the piece is computed: fewer numbers have to be kept meanwhile.
            id.set(id.get().where_or(divided, id.get() + workers));
            end.set(begin.get().max(tile * some.k).where_or(divided, end.get()));
            body(Work { k_begin, k_end, ..piece });
        });
    }
}
