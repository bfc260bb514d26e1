//! How groups are cut into tiles of nearly equal width, and in which order they come.
//!
//! Among groups, those of wide tiles come first, so that workers end on narrow ones. In launches of many tiles, groups of few
//! rows, which memory decides, lie evenly among the others, whose time the multiplications take: so neither waits for the
//! other. Where there are few tiles for each worker, how evenly they end decides more.

use core::cmp::Reverse;

use crate::Index;

/// Groups of fewer rows take longer to bring their weights from memory than to multiply them: 16-bit weights, some hundred
/// multiplications for each byte.
pub(super) const FEW_ROWS: u32 = 192;

/// Groups' tiles along M for each worker, from which on there are many.
pub(super) const MANY_TILES: u32 = 4;

/// How groups are cut into tiles.
#[derive(Clone, Copy, Debug)]
pub struct Cut {
    /// Rows of a tile at most, one or more. Rows of groups lie along N of the tiles.
    pub width: u32,
    /// The steps in which it is narrowed, of one row or more.
    pub step: u32,
}

impl Cut {
    /// Tiles of a group along N.
    pub(super) fn tiles<I: Index>(self, rows: I) -> I {
        rows.parts(self.width)
    }

    /// What decides the place of a group: whether it has fewer than `few` rows (bit 16), then how many steps its widest tile has.
    pub(super) fn key<I: Index>(self, rows: I, few: I) -> I {
        let one = rows.constant(1);
        let (steps, tiles) = (rows.parts(self.step), self.tiles(rows).most(one));
        let kind = rows.less(few, rows.constant(1 << 16), rows.constant(0));
        kind + (steps + tiles - one) / tiles
    }

    /// The groups in the order of their tiles.
    pub(super) fn order(self, rows: &[u32], few: u32) -> Vec<u32> {
        let key = |&group: &u32| self.key(rows[group as usize], few);
        let [many, few] = [0, 1].map(|kind| {
            let mut own: Vec<u32> = (0..).take(rows.len()).filter(|group| key(group) >> 16 == kind).collect();
            own.sort_by_key(|group| Reverse(key(group)));
            own
        });
        // The `i`-th of a kind of `count` groups is at `(2 i + 1) / count`; where two are equal, that of many rows is first.
        let places = |own: &[u32], others: usize| -> Vec<(usize, u32)> {
            own.iter().enumerate().map(|(i, &group)| ((2 * i + 1) * others, group)).collect()
        };
        let mut all = [places(&many, few.len()), places(&few, many.len())].concat();
        all.sort_by_key(|&(place, _)| place);
        all.into_iter().map(|(_, group)| group).collect()
    }
}
