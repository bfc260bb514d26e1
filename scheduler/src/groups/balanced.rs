//! Groups of rows that are cut into tiles of nearly equal width. The schedule sees one column of tiles.
//!
//! The rows of a group are along N of the tiles, and N is the direction in which tiles are narrowed. Within a
//! group, tiles are ordered row by row: those of the first row of tiles come first.
//!
//! The tiles of a group are consecutive, and so are those that multiply the same weights. Their widths differ
//! by at most one step, so they read the same k-tiles of the weights at nearly the same time: the weights are
//! read from memory once.

use ptx::Value;

use super::order::{FEW_ROWS, MANY_TILES, TileWidths};
use super::place::{Place, TileElements};
use super::shared::{Offsets, SharedTable};
use super::sorted::Sorted;
use super::table::{Listed, Table, rows_of};
use super::{Groups, Order};
use crate::{Index, Tiles, TooManyTiles};

impl Groups<'static, u32> {
    /// The largest number of tiles of [`balanced`](Self::balanced) for a table of `most` groups, limited by a word of the table
    /// in shared memory: 2^23 - 1 up to 512 groups, 2^20 - 1 for 4096.
    pub const fn most_balanced(most: u32) -> u32 {
        Sorted::most_tiles(most)
    }

    /// Groups of rows of one matrix, in tiles of nearly equal width. `rows` has the number of rows per group. Each group has `height` tiles along M and
    /// `k` k-tiles. The table in shared memory has room for `most` groups. `workers` returns the number of workers for an
    /// extent in tiles.
    ///
    /// # Errors
    /// More than [`most_balanced`](Self::most_balanced) tiles.
    pub fn balanced(
        rows: &[u32],
        (cut, most): (TileWidths, u32),
        [height, k]: [u32; 2],
        workers: impl Fn(Tiles<u32>) -> u32,
    ) -> Result<Self, TooManyTiles> {
        let count = |rows: u32| u64::from(cut.tiles(rows)) * u64::from(height);
        let all = rows.iter().map(|&rows| u128::from(count(rows))).sum();
        let tiles = Tiles::counted([all, 1], k, Self::most_balanced(most))?;
        let many = rows.len() as u64 * u64::from(height) >= u64::from(workers(tiles)) * u64::from(MANY_TILES);
        let ranges: Vec<[u32; 2]> = rows_of(rows).collect();
        let entry = |group: u32| (group, count(rows[group as usize]), ranges[group as usize]);
        let order = cut.order(rows, if many { FEW_ROWS } else { 0 });
        let (table, _) = Listed::new(order.into_iter().map(entry));
        Ok(Self { tiles, order: Order::Balanced(Box::new(table), cut) })
    }
}

impl<'f> Groups<'f, Value<'f, u32>> {
    /// As [`balanced`](Groups::balanced), on the device: emits the code by which all threads of a CTA write the table to shared memory. Each group has `height`
    /// tiles along M and `k` k-tiles. The launch has `workers` workers.
    pub fn balanced_on_device(
        table: SharedTable<'f>,
        offsets: Offsets<'f>,
        cut: TileWidths,
        [height, workers, k]: [Value<'f, u32>; 3],
    ) -> Self {
        let (sorted, all) = Sorted::new(table, offsets, cut, [height, workers]);
        let tiles = Tiles { m: all, n: table.f.constant(1), k };
        Self { tiles, order: Order::Balanced(Box::new(sorted), cut) }
    }
}

pub(super) fn place<I: Index, E: TileElements<I>>(
    table: &dyn Table<I>,
    cut: TileWidths,
    number: I,
    elements: &E,
) -> Place<I, E::Record> {
    let (found, step) = (table.find(number), cut.step);
    let rows = found.end - found.first;
    let (tiles, steps) = (cut.tiles(rows).most(1), rows.parts(step));
    let (m, tile) = (found.tile / tiles, found.tile % tiles);
    // The first tiles of the group are one step wider.
    let (least, more) = (steps / tiles, steps % tiles);
    let before = least * tile + tile.least(more);
    let own = least + tile.less(more, 1, 0);
    let first = found.first + before * step;
    let end = (first + own * step).least(found.end);
    Place {
        group: Some(found.group),
        tile: [m, tile],
        first: [elements.first(0, None, m), first],
        ends: [None, Some(end)],
        record: None,
    }
}
