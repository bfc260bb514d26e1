//! Stream-K: tiles that do not fill a wave are divided along K, so that all workers end at the same time.
//!
//! Source of the idea: Osama et al., "Stream-K: Work-centric Parallel Decomposition for Dense Matrix-Matrix
//! Multiplication on the GPU" (PPoPP 2023).

use core::marker::PhantomData;

use ptx::abi::Argument;
use ptx::{Builder, Value};
use typenum::{U4, U28, Unsigned};

use crate::single::whole;
use crate::{Divided, Draw, Index, Raster, Shares, TileScheduler, Tiles, Work};

/// How the sums of a tile's pieces are added up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
}

impl ReductionKind {
    /// What it costs to add one more piece to a tile, in k-tiles of the multiplication.
    pub const fn cost(self) -> u32 {
        match self {
            Self::Ordered => 3,
            Self::Atomic => 1,
            Self::Separate => 0,
        }
    }
}

/// A [`ReductionKind`] as a type.
pub trait Reduction: 'static {
    /// Which.
    const KIND: ReductionKind;
    /// What it adds to a scheduler's name.
    const SUFFIX: &'static str;
}

/// [`ReductionKind::Ordered`].
#[derive(Clone, Copy, Debug)]
pub struct Ordered;

/// [`ReductionKind::Atomic`].
#[derive(Clone, Copy, Debug)]
pub struct Atomic;

impl Reduction for Ordered {
    const KIND: ReductionKind = ReductionKind::Ordered;
    const SUFFIX: &'static str = "";
}

/// [`ReductionKind::Separate`].
#[derive(Clone, Copy, Debug)]
pub struct Separate;

impl Reduction for Separate {
    const KIND: ReductionKind = ReductionKind::Separate;
    const SUFFIX: &'static str = "_separate";
}

impl Reduction for Atomic {
    const KIND: ReductionKind = ReductionKind::Atomic;
    const SUFFIX: &'static str = "_atomic";
}

/// What one more piece of a tile costs, and what pieces may be.
#[derive(Clone, Copy, Debug)]
pub struct Pieces {
    /// Fewest k-tiles of a piece.
    pub least: u32,
    /// What adding one more piece to a tile costs, in k-tiles of the multiplication.
    pub cost: u32,
    /// Whether each unit has to be of one tile.
    pub of_one_tile: bool,
}

/// Which tiles are divided, and into how many units.
pub trait Divide: 'static {
    /// Whether all its units are of one tile each where [`Pieces::of_one_tile`] asks for it.
    const OF_ONE_TILE: bool;

    /// An identifier.
    fn name() -> String;

    /// One sentence for people.
    fn describe() -> String;

    /// The division for some workers.
    fn divide(tiles: Tiles<u32>, workers: u32, pieces: Pieces) -> Shares<u32>;
}

/// The tiles of the last wave and of the one before are divided among all workers; the others stay whole.
#[derive(Clone, Copy, Debug)]
pub struct Remainder;

/// Every tile is divided into `S` equal parts.
#[derive(Clone, Copy, Debug)]
pub struct EveryTile<S>(PhantomData<S>);

/// [`Remainder`], equal parts of every tile, or no division: whichever should be fastest.
///
/// Where there are more tiles than workers, a division has to save `Gain` k-tiles and 3 % of the busiest worker's: large
/// tiles are expensive to exchange, and run at the speed that power allows, so that idle workers cost little. Tiles of few
/// columns, which wait for memory, are worth dividing for less.
#[derive(Clone, Copy, Debug)]
pub struct Heuristic<Gain = U28>(PhantomData<Gain>);

impl Divide for Remainder {
    const OF_ONE_TILE: bool = false;

    fn name() -> String {
        "remainder".to_owned()
    }

    fn describe() -> String {
        "the last waves divided among all".to_owned()
    }

    fn divide(tiles: Tiles<u32>, workers: u32, Pieces { least, .. }: Pieces) -> Shares<u32> {
        let all = tiles.m * tiles.n;
        let rest = all % workers.max(1);
        if rest == 0 || tiles.k < 2 * least {
            return Shares::NONE;
        }
        let split = if all > workers { rest + workers } else { rest };
        Shares::across(split, tiles.k, workers, least)
    }
}

impl<S: Unsigned + 'static> Divide for EveryTile<S> {
    const OF_ONE_TILE: bool = true;

    fn name() -> String {
        format!("split_{}", S::U32)
    }

    fn describe() -> String {
        format!("every tile in {} parts of K", S::U32)
    }

    /// Parts of a tile may wait for each other, so there are never more than workers.
    fn divide(tiles: Tiles<u32>, workers: u32, Pieces { least, .. }: Pieces) -> Shares<u32> {
        let parts = const { parts(S::U32) }.min(workers);
        Shares::of_each(tiles.m * tiles.n, tiles.k, parts, least)
    }
}

/// The number of parts, refused at compile time where it is zero.
const fn parts(parts: u32) -> u32 {
    assert!(parts > 0, "a tile has at least one part: use EveryTile<U1> or more");
    parts
}

impl<Gain: Unsigned + 'static> Divide for Heuristic<Gain> {
    const OF_ONE_TILE: bool = true;

    fn name() -> String {
        if Gain::U32 == 28 { "heuristic".to_owned() } else { format!("heuristic_{}", Gain::U32) }
    }

    fn describe() -> String {
        "divided along K where that helps".to_owned()
    }

    /// Compares the k-tiles that the busiest worker computes, with what adding pieces up costs.
    fn divide(tiles: Tiles<u32>, workers: u32, pieces: Pieces) -> Shares<u32> {
        let Pieces { least, cost, of_one_tile } = pieces;
        let (all, workers) = (tiles.m * tiles.n, workers.max(1));
        let k = u64::from(tiles.k);
        let waves = u64::from(all.div_ceil(workers));
        let whole = waves * k;
        let even = (u64::from(all) * k).div_ceil(u64::from(workers));
        // What a division costs however few pieces there are.
        let fixed = if all > workers { Gain::U64 + whole * 3 / 100 } else { u64::from(2 * cost) };
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
            _ if streamed < whole => Remainder::divide(tiles, workers, pieces),
            _ => Shares::NONE,
        }
    }
}

/// As [`Persistent`](crate::Persistent), but tiles may be divided along K into *units*, as `D` says: worker `w` of `W`
/// computes units `w`, `w + W`, …, each from its last tile to its first, then whole tiles with the same stride. The sums
/// of a tile's pieces are added up as `A` says. No piece has fewer than `Least` k-tiles.
///
/// Units wait only for units before them: all that run at once go on, in whatever order they began.
#[derive(Clone, Copy, Debug)]
pub struct StreamK<R, A = Ordered, D = Heuristic, Least = U4>(PhantomData<(R, A, D, Least)>);

impl<R: Raster, A: Reduction, D: Divide, Least: Unsigned + 'static> StreamK<R, A, D, Least> {
    fn shares(tiles: Tiles<u32>, workers: u32) -> Shares<u32> {
        let of_one_tile = matches!(A::KIND, ReductionKind::Separate);
        D::divide(tiles, workers, Pieces { least: Least::U32, cost: A::KIND.cost(), of_one_tile })
    }

    /// The piece of a unit that lies in `tile`, if of the unit `begin..end` is left: k-tiles counted over all divided
    /// tiles.
    fn piece<I: Index>(shares: &Shares<I>, tiles: Tiles<I>, [unit, tile, begin, end]: [I; 4]) -> Work<I> {
        let start = tile * tiles.k;
        let (m, n) = R::tile(tile, tiles);
        let split = Some(shares.split(unit, tile, tiles.k, Least::U32));
        Work { m, n, k_begin: begin.most(start) - start, k_end: end - start, split }
    }
}

/// The device's numbers of [`StreamK`].
type Device<'f> = Shares<Value<'f, u32>>;

impl<R: Raster, A: Reduction, D: Divide, Least: Unsigned + 'static> TileScheduler
    for StreamK<R, A, D, Least>
{
    const BATCHES: bool = true;

    fn name() -> String {
        let least = if Least::U32 == 4 { String::new() } else { format!("_by_{}", Least::U32) };
        format!("stream_k_{}{}{least}_{}", D::name(), A::SUFFIX, R::name())
    }

    fn describe() -> String {
        format!("persistent CTAs, {}, {}", R::describe(), D::describe())
    }

    const REDUCTION: Option<ReductionKind> = {
        assert!(
            !matches!(A::KIND, ReductionKind::Separate) || D::OF_ONE_TILE,
            "Separate adds up tiles of equal parts only: divide by EveryTile<S> or Heuristic, or add up by Ordered"
        );
        Some(A::KIND)
    };

    const ROWS_LAST: bool = R::ROWS_LAST;

    type Device<'f> = Device<'f>;

    fn workers(tiles: Tiles<u32>, slots: u32) -> u32 {
        let slots = slots.max(1);
        let shares = Self::shares(tiles, slots);
        (tiles.m * tiles.n).max(shares.units).min(slots)
    }

    fn divided(tiles: Tiles<u32>, workers: u32) -> Divided {
        let Shares { tiles, units, .. } = Self::shares(tiles, workers);
        Divided { units, tiles }
    }

    fn declare(f: &Builder) -> Device<'_> {
        Shares {
            tiles: f.param("split_tiles"),
            units: f.param("units"),
            each: f.param("span_units"),
            span: f.param("span_k"),
            base: f.param("unit_k"),
            longer: f.param("longer_units"),
        }
    }

    fn parameters(tiles: Tiles<u32>, workers: u32) -> Vec<Argument> {
        let Shares { tiles, units, each, span, base, longer } = Self::shares(tiles, workers);
        [tiles, units, each, span, base, longer].map(Argument::from).to_vec()
    }

    fn work(tiles: Tiles<u32>, worker: u32, workers: u32) -> Box<dyn Iterator<Item = Work<u32>>> {
        let shares = Self::shares(tiles, workers);
        let step = workers.max(1) as usize;
        let units = (worker..shares.units).step_by(step).flat_map(move |unit| {
            let at = |unit| shares.begin(unit, tiles.k, Least::U32);
            let (begin, mut end) = (at(unit), at(unit + 1));
            core::iter::from_fn(move || {
                (begin < end).then(|| {
                    let tile = (end - 1) / tiles.k;
                    let work = Self::piece(&shares, tiles, [unit, tile, begin, end]);
                    end = begin.max(tile * tiles.k);
                    work
                })
            })
        });
        let all = tiles.m * tiles.n;
        let others = (shares.tiles.saturating_add(worker)..all).step_by(step);
        Box::new(units.chain(others.map(move |id| whole::<R, _>(id, tiles, 0))))
    }

    fn emit<'f>(
        f: &'f Builder,
        shares: Device<'f>,
        tiles: Tiles<Value<'f, u32>>,
        worker: Value<'f, u32>,
        workers: Value<'f, u32>,
        _draw: Option<&dyn Draw<'f>>,
        body: impl FnOnce(Work<Value<'f, u32>>),
    ) {
        let all = tiles.m * tiles.n;
        // No tile is divided where there are no k-tiles, and nothing may be divided by their number.
        let some = Tiles { k: tiles.k.max(1), ..tiles };
        let at = |unit| shares.begin(unit, some.k, Least::U32);
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
            let piece = Self::piece(&shares, some, [unit.get(), tile, begin.get(), end.get()]);
            let k_begin = piece.k_begin.where_or(divided, 0);
            let k_end = piece.k_end.where_or(divided, tiles.k);
            // What comes next, before the piece is computed: fewer numbers have to be kept meanwhile.
            id.set(id.get().where_or(divided, id.get() + workers));
            end.set(begin.get().max(tile * some.k).where_or(divided, end.get()));
            body(Work { k_begin, k_end, ..piece });
        });
    }
}
