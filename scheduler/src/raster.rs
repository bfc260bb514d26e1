//! Raster orders: from a tile number to a tile. Choose one for the reuse of operands in L2, or write your own.

use core::any::type_name;
use core::fmt;
use core::hash::{Hash, Hasher};

use ptx::Value;

use crate::orders::ORDERS;
use crate::{Index, ScheduleError, Tiles, hilbert};

/// A raster order as a type: a bijection from the numbers `0..m*n` to the output tiles, one text for host and device.
///
/// The library's are in [`orders`](crate::orders). An order of your own implements the same trait, and goes into any scheduler of
/// this crate:
///
/// ```
/// use scheduler::{Index, OneTile, Raster, TileScheduler, Tiles};
///
/// /// Row by row, every second one from right to left.
/// #[derive(Clone, Copy, Debug, Default)]
/// struct Snake;
///
/// impl Raster for Snake {
///     const NAME: &'static str = "snake";
///     const ROWS_LAST: bool = true;
///     fn describe(_size: u32) -> String {
///         "row by row, to and fro".to_owned()
///     }
///     fn tile<I: Index>(id: I, tiles: Tiles<I>, _size: u32) -> (I, I) {
///         let (m, n) = (id / tiles.n, id % tiles.n);
///         (m, (m % 2).less(1, n, tiles.n - 1 - n))
///     }
/// }
/// let (schedule, tiles) = (OneTile::<Snake>::schedule(), Tiles { m: 2, n: 3, k: 1 });
/// let order = (0..6).flat_map(|worker| schedule.work(tiles, worker, 6)).map(|work| (work.m, work.n));
/// assert_eq!(order.collect::<Vec<_>>(), [(0, 0), (0, 1), (0, 2), (1, 2), (1, 1), (1, 0)]);
/// ```
pub trait Raster: Copy + Default + fmt::Debug + Send + Sync + 'static {
    /// The name that kernel names contain, without the size: an identifier. Two orders have two names.
    const NAME: &'static str;

    /// How a word of specs begins that names the order; the size follows. Empty for an order of your own, which only types name.
    const WORD: &'static str = "";

    /// What the order divides the tiles into. By default nothing.
    const SIZE: RasterSize = RasterSize::Whole;

    /// Whether the order reaches the end of M last. Then additional rows of tiles do not change the numbers
    /// of the others.
    const ROWS_LAST: bool;

    /// A description in words, for output to people.
    fn describe(size: u32) -> String;

    /// The tile `(m, n)` with number `id` in the order, with bands or squares of `size` tiles.
    fn tile<I: Index>(id: I, tiles: Tiles<I>, size: u32) -> (I, I);

    /// The order as a value.
    const RASTER: RasterSpec = RasterSpec { order: &RasterOrder::of::<Self>(), size: Self::SIZE };
}

/// What a raster order divides the tiles into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RasterSize {
    /// Nothing.
    Whole,
    /// Bands of so many tiles, at least 1.
    Bands(u32),
    /// Squares with a side of so many tiles, a power of two from 2 to 64.
    Squares(u32),
}

impl RasterSize {
    /// The number of tiles; 0 of no size.
    const fn tiles(self) -> u32 {
        match self {
            Self::Whole => 0,
            Self::Bands(tiles) | Self::Squares(tiles) => tiles,
        }
    }
}

/// A number on the device.
type OfDevice<'f> = Value<'f, u32>;

/// [`Raster::tile`] on the device.
type DeviceTile = for<'f> fn(OfDevice<'f>, Tiles<OfDevice<'f>>, u32) -> (OfDevice<'f>, OfDevice<'f>);

/// What a raster order's type says of itself, whatever its size.
pub struct RasterOrder {
    name: &'static str,
    word: &'static str,
    rows_last: bool,
    describe: fn(u32) -> String,
    /// The name of the type with `usual` tiles.
    typed: fn() -> &'static str,
    usual: RasterSize,
    host: fn(u32, Tiles<u32>, u32) -> (u32, u32),
    device: DeviceTile,
}

impl RasterOrder {
    const fn of<R: Raster>() -> Self {
        Self {
            name: R::NAME,
            word: R::WORD,
            rows_last: R::ROWS_LAST,
            describe: R::describe,
            typed: type_name::<R>,
            usual: R::SIZE,
            host: R::tile::<u32>,
            device: device::<R>,
        }
    }

    pub(crate) fn on_host(&self, id: u32, tiles: Tiles<u32>, size: u32) -> (u32, u32) {
        (self.host)(id, tiles, size)
    }

    pub(crate) fn on_device<'f>(
        &self,
        id: OfDevice<'f>,
        tiles: Tiles<OfDevice<'f>>,
        size: u32,
    ) -> (OfDevice<'f>, OfDevice<'f>) {
        (self.device)(id, tiles, size)
    }
}

fn device<'f, R: Raster>(
    id: OfDevice<'f>,
    tiles: Tiles<OfDevice<'f>>,
    size: u32,
) -> (OfDevice<'f>, OfDevice<'f>) {
    R::tile(id, tiles, size)
}

impl fmt::Debug for RasterOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// A raster order with its size, as plain data: [`Raster::RASTER`] of a type, or [`named`](Self::named) as specs name it.
#[derive(Clone, Copy, Debug)]
pub struct RasterSpec {
    order: &'static RasterOrder,
    size: RasterSize,
}

impl RasterSpec {
    /// The order of this crate whose words begin so, with a size or without one.
    pub fn named(word: &str, tiles: Option<u32>) -> Option<Self> {
        let sized = |of: &&Self| (of.size == RasterSize::Whole) == tiles.is_none();
        let found = ORDERS.iter().filter(sized).find(|of| of.order.word == word)?;
        Some(tiles.map_or(*found, |tiles| found.sized(tiles)))
    }

    /// The words of the orders of this crate, each with a usual size.
    pub fn words() -> impl Iterator<Item = String> {
        ORDERS.iter().filter_map(|of| of.word())
    }

    /// The same order with another size. An order without a size stays as it is.
    #[must_use]
    pub const fn sized(self, tiles: u32) -> Self {
        let size = match self.size {
            RasterSize::Whole => RasterSize::Whole,
            RasterSize::Bands(_) => RasterSize::Bands(tiles),
            RasterSize::Squares(_) => RasterSize::Squares(tiles),
        };
        Self { size, ..self }
    }

    /// Checks the size.
    ///
    /// # Errors
    /// A band of 0 tiles, or a side that is not a power of two from 2 to 64.
    pub const fn check(self) -> Result<(), ScheduleError> {
        match self.size {
            RasterSize::Bands(0) => Err(ScheduleError::EmptyBand),
            RasterSize::Squares(side) if !hilbert::fills(side) => Err(ScheduleError::Square { side }),
            RasterSize::Whole | RasterSize::Bands(_) | RasterSize::Squares(_) => Ok(()),
        }
    }

    /// Whether it is this order, of any size.
    pub fn is<R: Raster>(self) -> bool {
        self.order.name == R::NAME
    }

    /// The name that kernel names contain: an identifier.
    pub fn name(self) -> String {
        self.with_size(self.order.name, "_")
    }

    /// Whether a word of specs names the order, as it does those of this crate.
    pub(crate) fn is_named(self) -> bool {
        !self.order.word.is_empty()
    }

    /// The word of specs. `None` for an order of your own, which has none.
    pub fn word(self) -> Option<String> {
        self.is_named().then(|| self.with_size(self.order.word, ""))
    }

    fn with_size(self, name: &str, between: &str) -> String {
        match self.size {
            RasterSize::Whole => name.to_owned(),
            RasterSize::Bands(tiles) | RasterSize::Squares(tiles) => format!("{name}{between}{tiles}"),
        }
    }

    /// The name of its type as Rust source, which `shorten` makes of a full path: sizes are numbers of `typenum`, such as `U8`.
    pub fn rust_type(self, shorten: impl FnOnce(&'static str) -> String) -> String {
        let name = shorten((self.order.typed)());
        let number = |size: RasterSize| format!("U{}", size.tiles());
        if self.size == self.order.usual {
            name
        } else {
            name.replace(&number(self.order.usual), &number(self.size))
        }
    }

    /// A description in words, for output to people.
    pub fn describe(self) -> String {
        (self.order.describe)(self.size.tiles())
    }

    /// Whether the order reaches the end of M last: see [`Raster::ROWS_LAST`].
    pub const fn rows_last(self) -> bool {
        self.order.rows_last
    }

    /// The width of a band in tiles: along M if [`rows_last`](Self::rows_last), otherwise along N. The number
    /// of tiles of a whole band must fit in 32 bits.
    pub const fn band(self) -> u32 {
        match self.size {
            RasterSize::Whole => 1,
            RasterSize::Bands(tiles) | RasterSize::Squares(tiles) => tiles,
        }
    }

    /// The tile `(m, n)` with number `id` in the order.
    #[track_caller]
    pub fn tile<I: Index>(self, id: I, tiles: Tiles<I>) -> (I, I) {
        id.placed(self.order, tiles, self.size.tiles())
    }
}

impl PartialEq for RasterSpec {
    fn eq(&self, other: &Self) -> bool {
        self.size == other.size && self.order.name == other.order.name
    }
}

impl Eq for RasterSpec {}

impl Hash for RasterSpec {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.order.name, self.size).hash(state);
    }
}
