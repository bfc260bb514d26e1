//! Groups of rows of one matrix. The schedule sees the groups' tiles one group after the other, along M or N.
//! Each group begins with a new tile.

use ptx::{Special, Value};

use super::place::{Place, TileElements};
use super::shared::{Measured, Offsets, SharedTable, Stored, scan};
use super::table::{Listed, Table, rows_of};
use super::{Groups, Order};
use crate::{Index, Tiles, TooManyTiles};

impl Groups<'static, u32> {
    /// Groups of rows of one matrix. `rows` has the number of rows per group, along M (`axis` 0) or N (`axis` 1), in
    /// tiles of `tile` rows. `tiles` has the number of tiles in the other direction and the k-tiles.
    ///
    /// # Errors
    /// More than [`Tiles::MOST`] tiles.
    pub fn contiguous(rows: &[u32], tile: u32, axis: usize, tiles: Tiles<u32>) -> Result<Self, TooManyTiles> {
        let groups = (0..).zip(rows_of(rows)).zip(rows);
        let entries = groups.map(|((group, range), rows)| (group, rows.div_ceil(tile).into(), range));
        let (table, count) = Listed::new(entries);
        let mut all = [tiles.m, tiles.n].map(u128::from);
        all[axis] = count;
        let tiles = Tiles::counted(all, tiles.k, Tiles::MOST)?;
        Ok(Self { tiles, order: Order::Contiguous(Box::new(table), axis) })
    }
}

impl<'f> Groups<'f, Value<'f, u32>> {
    /// As [`contiguous`](Groups::contiguous), on the device: emits the code by which all threads of a CTA write the table to shared memory. Groups are along M
    /// (`axis` 0) or N (`axis` 1). `tile` has the elements of a tile along M and N, `extent` the elements in
    /// the other direction.
    pub fn contiguous_on_device(
        table: SharedTable<'f>,
        offsets: Offsets<'f>,
        (axis, tile): (usize, [u32; 2]),
        [extent, k]: [Value<'f, u32>; 2],
    ) -> Self {
        let SharedTable { f, at, span, .. } = table;
        let write = || {
            let (lane, tiles) = (f.special(Special::Lane), f.variable(0u32));
            let begin = |first| f.store_shared(at, 0, [f.constant(0), first]);
            offsets.each_group(f, span, &begin, &|groups| {
                let own = groups.iter().map(|group| (group.end - group.begin).div_ceil(tile[axis]));
                let own = own.reduce(|a, b| a + b).unwrap_or(f.constant(0));
                let count = scan(f, lane, own, &|a, b| a + b) + tiles.get();
                if let [first, ..] = groups {
                    let end = groups.last().unwrap_or(first).end;
                    let entry = if span == 1 { first.number } else { first.number / span };
                    f.if_(first.exists, || f.store_shared(at + entry * 8, 8, [count, end]));
                }
                tiles.set(f.shuffle(count, 31));
            });
        };
        let measure = move |[group, before]: [Value<'f, u32>; 2]| {
            let [first, end] = offsets.range(f, group, before);
            Measured { first, tiles: (end - first).div_ceil(tile[axis]), end }
        };
        let (stored, all) = Stored::new(table, (offsets.groups, offsets.room), write, Box::new(measure));
        let tiles = match axis {
            0 => Tiles { m: all, n: extent.div_ceil(tile[1]), k },
            _ => Tiles { m: extent.div_ceil(tile[0]), n: all, k },
        };
        Self { tiles, order: Order::Contiguous(Box::new(stored), axis) }
    }
}

pub(super) fn place<I: Index, E: TileElements<I>>(
    table: &dyn Table<I>,
    groups: usize,
    mut tile: [I; 2],
    elements: &E,
) -> Place<I, E::Record> {
    let found = table.find(tile[groups]);
    tile[groups] = found.tile;
    let own = |axis, value| (axis == groups).then_some(value);
    Place {
        group: Some(found.group),
        tile,
        first: [0, 1].map(|axis| elements.first(axis, own(axis, found.first), tile[axis])),
        ends: [0, 1].map(|axis| own(axis, found.end)),
        record: None,
    }
}
