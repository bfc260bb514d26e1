//! Drawn tiles, of which the last are divided along K: for launches of a few waves whose tiles are not alike.

use core::marker::PhantomData;

use ptx::abi::Argument;
use ptx::{Builder, Value};
use typenum::{U3, U16, Unsigned};

use crate::dynamic::drawn;
use crate::{Divided, Draw, Index, Raster, ReductionKind, Shares, Split, TileScheduler, Tiles, Work};

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
    /// How many parts a tile has; refused at compile time where there are none, or so many that k-tiles cannot be counted.
    const PARTS: u32 = {
        assert!(0 < Parts::U32 && Parts::U32 <= 16, "a tile has 1 to 16 parts: use DividedTail<_, U3>, say");
        Parts::U32
    };

    /// Most tiles that are divided: a workspace has room for so many parts and a counter in front of their flags.
    const MOST: u32 = (Shares::<u32>::MOST_UNITS - 1) / Self::PARTS;

    fn numbers<I: Index>(tiles: Tiles<I>, workers: I) -> Numbers<I> {
        let all = tiles.m * tiles.n;
        let zero = all.constant(0);
        let last = all.least(workers).at_most(Self::MOST);
        let few = all.less(workers * MANY_WAVES, last, zero);
        let divided = tiles.k.less(all.constant(Self::PARTS * Least::U32), zero, few);
        Numbers { whole: all - divided, divided }
    }

    /// Those of whole tiles and parts.
    fn count<I: Index>(Numbers { whole, divided }: Numbers<I>) -> I {
        whole + divided * Self::PARTS
    }

    fn piece<I: Index>(id: I, Numbers { whole, .. }: Numbers<I>, tiles: Tiles<I>) -> Work<I> {
        let unit = id.most(whole) - whole;
        let (tile, part) = (unit / Self::PARTS, unit % Self::PARTS);
        let (m, n) = R::tile(id.less(whole, id, whole + tile), tiles);
        let at = |part: I| tiles.k * part / Self::PARTS;
        let k_begin = id.less(whole, id.constant(0), at(part));
        let k_end = id.less(whole, tiles.k, at(part + id.constant(1)));
        let first = unit - part;
        let split = Some(Split { unit, first, last: first + id.constant(Self::PARTS - 1), tile });
        Work { m, n, k_begin, k_end, split }
    }
}

impl<R: Raster, Parts: Unsigned + 'static, Least: Unsigned + 'static> TileScheduler
    for DividedTail<R, Parts, Least>
{
    const REDUCTION: Option<ReductionKind> = Some(ReductionKind::Ordered);
    const DRAWS: bool = true;
    const ROWS_LAST: bool = R::ROWS_LAST;
    const BAND: u32 = R::BAND;
    const TILES_ON_DEVICE: bool = true;

    fn name() -> String {
        let least = if Least::U32 == 16 { String::new() } else { format!("_by_{}", Least::U32) };
        format!("dynamic_tail_{}{least}_{}", Parts::U32, R::name())
    }

    fn describe() -> String {
        format!(
            "persistent CTAs that draw their tiles, {}, the last of few waves in {} parts of K",
            R::describe(),
            Parts::U32
        )
    }

    type Device<'f> = ();

    fn declare(_f: &Builder) {}

    fn parameters(_tiles: Tiles<u32>, _workers: u32) -> Vec<Argument> {
        Vec::new()
    }

    /// The host may know no more than how many tiles there are at most, and fewer may be divided where more are not.
    fn workers(tiles: Tiles<u32>, slots: u32) -> u32 {
        let all = u64::from(tiles.count().unwrap_or(0)) * u64::from(Self::PARTS);
        u32::try_from(all).unwrap_or(u32::MAX).min(slots.max(1))
    }

    /// Whatever the number of tiles.
    fn divided(tiles: Tiles<u32>, workers: u32) -> Divided {
        let least = Tiles { m: workers.min(Self::MOST), n: 1, ..tiles };
        let Numbers { divided, .. } = Self::numbers(least, workers);
        Divided { units: divided * Self::PARTS, tiles: divided }
    }

    fn work(tiles: Tiles<u32>, worker: u32, workers: u32) -> Box<dyn Iterator<Item = Work<u32>>> {
        let tiles = tiles.count().map_or(Tiles { m: 0, n: 0, ..tiles }, |_| tiles);
        let numbers = Self::numbers(tiles, workers);
        let ids = (worker..Self::count(numbers)).step_by(workers.max(1) as usize);
        Box::new(ids.map(move |id| Self::piece(id, numbers, tiles)))
    }

    fn emit<'f>(
        f: &'f Builder,
        _device: (),
        tiles: Tiles<Value<'f, u32>>,
        worker: Value<'f, u32>,
        workers: Value<'f, u32>,
        draw: Option<&dyn Draw<'f>>,
        body: impl FnOnce(Work<Value<'f, u32>>),
    ) {
        let numbers = Self::numbers(tiles, workers);
        drawn(f, [worker, workers], Self::count(numbers), draw, |id| body(Self::piece(id, numbers, tiles)));
    }
}
