//! Stream-K units: how the k-tiles of the split tiles are divided into units of nearly the same size.

use crate::{Index, Split};

/// The division of `tiles` output tiles into Stream-K units.
///
/// The k-tiles of the split tiles are numbered one tile after the other, `0..tiles * k`. Each span of `span`
/// k-tiles is divided into `each` units. A span is one tile (split-K) or all of them (Stream-K).
///
/// Unit `u` of a span begins at k-tile `u * base + min(u, longer)` of the span. If a tile edge is less than
/// `least` k-tiles away, the unit begins at that edge instead. So each work unit has at least `least`
/// k-tiles, if `base` is at least `least`.
///
/// Units are numbered tile by tile. Workers take them in the order of [`unit`](Self::unit): under split-K, the same K-range
/// of all tiles first. CTAs that are launched one after the other then read the same part of A and B at the same time, and
/// the hardware joins their requests before L2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shares<I> {
    /// Number of split tiles.
    pub tiles: I,
    /// Number of units of all spans.
    pub units: I,
    /// Number of units per span.
    pub each: I,
    /// Number of k-tiles per span: those of one tile, or of all split tiles.
    pub span: I,
    /// Number of k-tiles per unit, rounded down.
    pub base: I,
    /// Number of units per span, the first ones, that have one k-tile more.
    pub longer: I,
    /// Number of tiles whose units of the same K-range consecutive workers take. 1 if workers take the units in the order of
    /// their numbers.
    pub abreast: I,
}

impl Shares<()> {
    /// The names alone.
    pub(crate) const NAMES: Self =
        Self { tiles: (), units: (), each: (), span: (), base: (), longer: (), abreast: () };
}

impl<I> Shares<I> {
    /// The same numbers as something else, made of the names of their kernel parameters and of them, in the parameters' order.
    pub(crate) fn named<J>(self, mut make: impl FnMut(&'static str, I) -> J) -> Shares<J> {
        let Self { tiles, units, each, span, base, longer, abreast } = self;
        Shares {
            tiles: make("split_tiles", tiles),
            units: make("units", units),
            each: make("span_units", each),
            span: make("span_k", span),
            base: make("unit_k", base),
            longer: make("longer_units", longer),
            abreast: make("tiles_abreast", abreast),
        }
    }
}

impl Shares<u32> {
    /// The largest number of units in a launch.
    pub const MOST_UNITS: u32 = 1024;

    /// No tile is split.
    pub const NONE: Self = Self { tiles: 0, units: 0, each: 1, span: 1, base: 1, longer: 0, abreast: 1 };

    /// Stream-K: `tiles` tiles of `k` k-tiles each in `units` units that may cross tile edges. Fewer units if
    /// they would have less than `least` k-tiles.
    pub fn across(tiles: u32, k: u32, units: u32, least: u32) -> Self {
        let all = u64::from(tiles) * u64::from(k);
        let units = u64::from(units).min(all / u64::from(least.max(1))).max(1);
        Self::new(tiles, u64::from(k), all, units)
    }

    /// Split-K: each of `tiles` tiles of `k` k-tiles in `parts` units. Fewer units if they would have less
    /// than `least` k-tiles; [`NONE`](Self::NONE) if only one is left.
    pub fn of_each(tiles: u32, k: u32, parts: u32, least: u32) -> Self {
        let parts = parts.min(k / least.max(1)).max(1);
        if parts == 1 {
            return Self::NONE;
        }
        Self::new(tiles, u64::from(k), u64::from(k), parts.into())
    }

    /// [`NONE`](Self::NONE) if there would be more than [`MOST_UNITS`](Self::MOST_UNITS) units, 2^31 or more
    /// k-tiles, or no k-tiles.
    fn new(tiles: u32, k: u64, span: u64, each: u64) -> Self {
        let all = u64::from(tiles) * k;
        if all == 0 || all >= 1 << 31 {
            return Self::NONE;
        }
        let units = all / span * each;
        if units > u64::from(Self::MOST_UNITS) {
            return Self::NONE;
        }
        // All are less than 2^31.
        let (units, each, span) = (units as u32, each as u32, span as u32);
        Self { tiles, units, each, span, base: span / each, longer: span % each, abreast: 1 }
    }

    /// The same units for `workers` workers, in the order in which the same K-range of all tiles comes first. The order
    /// stays as it is if units cross tile edges, or if there are more units than workers: units of one tile wait for each
    /// other, and those of this order are far apart.
    #[must_use]
    pub const fn abreast(self, k: u32, workers: u32) -> Self {
        let abreast = if self.span == k && self.units <= workers && self.tiles > 0 { self.tiles } else { 1 };
        Self { abreast, ..self }
    }
}

impl<I: Index> Shares<I> {
    /// The number of the unit that is taken at a position of the workers' order. Each position below
    /// [`units`](Self::units) has a unit of its own.
    #[track_caller]
    pub fn unit(&self, position: I) -> I {
        position % self.abreast * self.each + position / self.abreast
    }

    /// The k-tile at which a unit begins, before the begin is moved to a tile edge.
    #[track_caller]
    fn even(&self, unit: I) -> I {
        let inside = unit % self.each;
        unit / self.each * self.span + inside * self.base + inside.least(self.longer)
    }

    /// The unit that a k-tile belongs to, before begins are moved to tile edges.
    #[track_caller]
    fn owner(&self, k_tile: I) -> I {
        let one = k_tile.constant(1);
        let long = self.longer * (self.base + one);
        let inside = k_tile % self.span;
        let behind = self.longer + (inside.most(long) - long) / self.base;
        k_tile / self.span * self.each + inside.less(long, inside / (self.base + one), behind)
    }

    /// The k-tile at which a unit begins, counted over all split tiles of `k` k-tiles each.
    #[track_caller]
    pub fn begin(&self, unit: I, k: I, least: u32) -> I {
        let (at, least) = (self.even(unit), unit.constant(least));
        let inside = at % k;
        let start = at - inside;
        let unless_late = (k - inside).less(least, start + k, at);
        inside.less(least, start, unless_late)
    }

    /// The first and the last unit that have k-tiles of a tile.
    #[track_caller]
    pub fn of_tile(&self, tile: I, k: I, least: u32) -> (I, I) {
        let one = tile.constant(1);
        let (start, end) = (tile * k, tile * k + k - one);
        let (first, last) = (self.owner(start), self.owner(end));
        let first = start.less(self.begin(first + one, k, least), first, first + one);
        // No unit begins before the first one.
        let late = last.most(one) - one;
        let last = end.less(self.begin(last, k, least), late, last);
        (first, last)
    }

    /// The position of a unit's work unit among those of its tile.
    #[track_caller]
    pub fn split(&self, unit: I, tile: I, k: I, least: u32) -> Split<I> {
        let (first, last) = self.of_tile(tile, k, least);
        Split { unit, first, last, tile }
    }
}
