//! Shares of a reduction: how the k-tiles of some output tiles are divided into units of nearly the same size.

use crate::{Index, Split};

/// Divides the `tiles * k` k-tiles of `tiles` output tiles, one after the other, into `units` units.
///
/// Unit `u` begins at `u * base + min(u, longer)`, moved to the nearest tile edge where that is less than `least`
/// k-tiles away. So the pieces of a tile are `least` k-tiles or more each, if `base` is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shares<I> {
    /// Tiles that are divided.
    pub tiles: I,
    /// Units they are divided into.
    pub units: I,
    /// K-tiles of a unit.
    pub base: I,
    /// The first so many units have one more.
    pub longer: I,
}

impl Shares<u32> {
    /// No tile is divided.
    pub const NONE: Self = Self { tiles: 0, units: 0, base: 1, longer: 0 };

    /// Most units that tiles are divided into.
    pub const MOST_UNITS: u32 = 1024;

    /// `tiles` tiles of `k` k-tiles each in `units` units, or in as many as leave each `least` k-tiles. None where there
    /// would be more than [`MOST_UNITS`](Self::MOST_UNITS) units or 2^31 k-tiles.
    pub fn new(tiles: u32, k: u32, units: u32, least: u32) -> Self {
        let all = u64::from(tiles) * u64::from(k);
        match u32::try_from(all) {
            Ok(all) if all > 0 && all < 1 << 31 => {
                let units = units.min(all / least.max(1)).max(1);
                if units > Self::MOST_UNITS {
                    return Self::NONE;
                }
                Self { tiles, units, base: all / units, longer: all % units }
            }
            Ok(_) | Err(_) => Self::NONE,
        }
    }
}

impl<I: Index> Shares<I> {
    /// The k-tile at which a unit begins before it is moved to an edge.
    fn even(&self, unit: I) -> I {
        unit * self.base + unit.least(self.longer)
    }

    /// The unit that would have a k-tile if none were moved.
    fn owner(&self, k_tile: I) -> I {
        let one = k_tile.constant(1);
        let long = self.longer * (self.base + one);
        let behind = self.longer + (k_tile.most(long) - long) / self.base;
        k_tile.less(long, k_tile / (self.base + one), behind)
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
