//! Shares of a reduction: how the k-tiles of some output tiles are divided into units of nearly the same size.

use crate::{Index, Split};

/// Divides the `tiles * k` k-tiles of `tiles` output tiles, one tile after the other, into units: every span of `span`
/// k-tiles into `each` of them.
///
/// Unit `u` of a span begins at its k-tile `u * base + min(u, longer)`, moved to the nearest tile edge where that is less
/// than `least` k-tiles away. So the pieces of a tile are `least` k-tiles or more each, if `base` is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shares<I> {
    /// Tiles that are divided.
    pub tiles: I,
    /// Units in all.
    pub units: I,
    /// Units of a span.
    pub each: I,
    /// K-tiles of a span: one tile's, or all.
    pub span: I,
    /// K-tiles of a unit.
    pub base: I,
    /// The first so many units of a span have one more.
    pub longer: I,
}

impl Shares<u32> {
    /// Most units that tiles are divided into.
    pub const MOST_UNITS: u32 = 1024;

    /// No tile is divided.
    pub const NONE: Self = Self { tiles: 0, units: 0, each: 1, span: 1, base: 1, longer: 0 };

    /// `tiles` tiles of `k` k-tiles each in `units` units, whatever the tiles' edges, or in as many as leave each `least`
    /// k-tiles.
    pub fn across(tiles: u32, k: u32, units: u32, least: u32) -> Self {
        let all = u64::from(tiles) * u64::from(k);
        let units = u64::from(units).min(all / u64::from(least.max(1))).max(1);
        Self::new(tiles, u64::from(k), all, units)
    }

    /// Each of `tiles` tiles of `k` k-tiles in `parts` units, or in as many as leave each `least` k-tiles.
    pub fn of_each(tiles: u32, k: u32, parts: u32, least: u32) -> Self {
        let parts = parts.min(k / least.max(1)).max(1);
        if parts == 1 {
            return Self::NONE;
        }
        Self::new(tiles, u64::from(k), u64::from(k), parts.into())
    }

    /// None where there would be more than [`MOST_UNITS`](Self::MOST_UNITS) units or 2^31 k-tiles.
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
        let [units, each, span, base, longer] =
            [units, each, span, span / each, span % each].map(|number| u32::try_from(number).unwrap_or(0));
        Self { tiles, units, each, span, base, longer }
    }
}

impl<I: Index> Shares<I> {
    /// The k-tile at which a unit begins before it is moved to an edge.
    fn even(&self, unit: I) -> I {
        let inside = unit % self.each;
        unit / self.each * self.span + inside * self.base + inside.least(self.longer)
    }

    /// The unit that would have a k-tile if none were moved.
    fn owner(&self, k_tile: I) -> I {
        let one = k_tile.constant(1);
        let long = self.longer * (self.base + one);
        let inside = k_tile % self.span;
        let behind = self.longer + (inside.most(long) - long) / self.base;
        k_tile / self.span * self.each + inside.less(long, inside / (self.base + one), behind)
    }

    /// The k-tile at which a unit begins, counted over all divided tiles of `k` k-tiles each.
    pub fn begin(&self, unit: I, k: I, least: u32) -> I {
        let (at, least) = (self.even(unit), unit.constant(least));
        let inside = at % k;
        let start = at - inside;
        let unless_late = (k - inside).less(least, start + k, at);
        inside.less(least, start, unless_late)
    }

    /// The units that have a part of a tile: the first and the last.
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

    /// The place of a unit's piece among those of its tile.
    pub fn split(&self, unit: I, tile: I, k: I, least: u32) -> Split<I> {
        let (first, last) = self.of_tile(tile, k, least);
        Split { unit, first, last, tile }
    }
}
