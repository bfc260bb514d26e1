//! Where groups begin that lie one after the other.

use core::fmt;

/// Says of a tile which group it is of, where tiles of groups lie one group after the other.
pub(super) trait Table<I>: fmt::Debug {
    /// The last group that begins at a tile or before. It is not empty, if there is such a tile.
    fn find(&self, tile: I) -> Found<I>;
}

/// A tile's place among groups.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found<I> {
    pub(super) group: I,
    /// The tile, counted from the group's first.
    pub(super) tile: I,
    /// The group's first row.
    pub(super) first: I,
    /// One past its last.
    pub(super) end: I,
}

/// The table on the host: an entry for each group, in the order of their tiles, whose `tile` is the group's first.
#[derive(Debug)]
pub(super) struct Listed(Vec<Found<u32>>);

impl Listed {
    /// Groups with their tiles and their rows, in the order of their tiles. Also returns how many tiles there are.
    pub(super) fn new(groups: impl IntoIterator<Item = (u32, u64, [u32; 2])>) -> (Self, u128) {
        let mut all = 0;
        let entry = |(group, tiles, [first, end]): (u32, u64, [u32; 2])| {
            let tile = u32::try_from(all).unwrap_or(u32::MAX);
            all += u128::from(tiles);
            Found { group, tile, first, end }
        };
        let entries = groups.into_iter().map(entry).collect();
        (Self(entries), all)
    }
}

impl Table<u32> for Listed {
    fn find(&self, tile: u32) -> Found<u32> {
        let place = self.0.partition_point(|group| group.tile <= tile).saturating_sub(1);
        let found = self.0[place];
        Found { tile: tile - found.tile, ..found }
    }
}

/// The first row of each group, and one past its last, where groups of so many rows lie one after the other.
pub(super) fn rows_of(rows: &[u32]) -> impl Iterator<Item = [u32; 2]> {
    rows.iter().scan(0u32, |end, &rows| {
        let first = *end;
        *end = end.saturating_add(rows);
        Some([first, *end])
    })
}
