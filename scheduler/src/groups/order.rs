//! How groups are cut into tiles of nearly equal width, and the order of the groups.
//!
//! Groups with wide tiles come first, so that workers end on narrow tiles. In launches of many tiles, groups
//! of few rows are spread evenly among the others: groups of few rows are bound by memory, the others by the
//! tensor cores, so the two kinds overlap. In launches of few tiles per worker they are not spread, because
//! it matters more that all workers end at the same time.

use core::cmp::Reverse;

use crate::Index;

/// Groups of fewer rows are bound by memory: reading their weights takes longer than multiplying them.
/// Assumes 16-bit weights and some hundred multiplications per byte.
pub(super) const FEW_ROWS: u32 = 192;

/// A launch has many tiles from this number on: groups times tiles along M, per worker.
pub(super) const MANY_TILES: u32 = 4;

/// How groups are cut into tiles.
#[derive(Clone, Copy, Debug)]
pub struct TileWidths {
    /// The largest width of a tile in rows of the group, 1 or more. The rows of a group are along N of the
    /// tiles.
    pub width: u32,
    /// Widths of tiles are multiples of this number of rows, 1 or more, except for the last tile of a group.
    pub step: u32,
}

impl TileWidths {
    /// Tiles of a group along N.
    pub(super) fn tiles<I: Index>(self, rows: I) -> I {
        rows.parts(self.width)
    }

    /// The sort key of a group: in bit 16 whether it has fewer than `few` rows; below, the steps of its
    /// widest tile.
    pub(super) fn key<I: Index>(self, rows: I, few: I) -> I {
        let one = rows.constant(1);
        let (steps, tiles) = (rows.parts(self.step), self.tiles(rows).most(one));
        let kind = rows.less(few, 1 << 16, 0);
        kind + (steps + tiles - one) / tiles
    }

    /// Steps of the widest tile.
    pub(super) const fn most_steps(self) -> u32 {
        self.width.div_ceil(self.step)
    }

    /// The groups in the order of their tiles.
    pub(super) fn order(self, rows: &[u32], few: u32) -> Vec<u32> {
        let key = |&group: &u32| self.key(rows[group as usize], few);
        let [many, few] = [0, 1].map(|kind| {
            let mut own: Vec<u32> = (0..).take(rows.len()).filter(|group| key(group) >> 16 == kind).collect();
            own.sort_by_key(|group| Reverse(key(group)));
            own
        });
        // The `i`-th of the `count` groups of a kind is at `(2 i + 1) / count`. Of two equal places, the
        // group of many rows comes first. Both kinds are scaled by the product of their counts, so that
        // places are integers.
        let places = |own: &[u32], others: usize| -> Vec<(usize, u32)> {
            own.iter().enumerate().map(|(i, &group)| ((2 * i + 1) * others, group)).collect()
        };
        let mut all = [places(&many, few.len()), places(&few, many.len())].concat();
        all.sort_by_key(|&(place, _)| place);
        all.into_iter().map(|(_, group)| group).collect()
    }
}
