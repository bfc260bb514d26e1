//! Lookup of the group of a tile, for groups that follow each other.

use core::fmt;

/// Finds the group of a tile. The groups' tiles follow each other, one group after the other.
pub(super) trait Table<I>: fmt::Debug {
    /// The last group whose first tile is `tile` or before. That group is not empty if the launch has tile
    /// `tile`.
    fn find(&self, tile: I) -> Found<I>;
}

/// A tile's group, and its place in it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found<I> {
    pub(super) group: I,
    /// The tile, counted from the group's first tile.
    pub(super) tile: I,
    /// The group's first row.
    pub(super) first: I,
    /// One past the group's last row.
    pub(super) end: I,
}

/// The table on the host: one entry per group, in the order of their tiles. `tile` of an entry is the group's
/// first tile.
#[derive(Debug)]
pub(super) struct Listed(Vec<Found<u32>>);

impl Listed {
    /// Makes the table from each group's number, number of tiles and range of rows, in the order of their
    /// tiles. Also returns the number of all tiles.
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

/// The first row of each group and one past its last, for consecutive groups with these numbers of rows.
pub(super) fn rows_of(rows: &[u32]) -> impl Iterator<Item = [u32; 2]> {
    rows.iter().scan(0u32, |end, &rows| {
        let first = *end;
        *end = end.saturating_add(rows);
        Some([first, *end])
    })
}
