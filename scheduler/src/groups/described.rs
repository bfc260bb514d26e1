//! GEMMs of any shapes, each described by a record. The schedule sees one column of tiles: each GEMM column
//! by column, one GEMM after the other.

use ptx::{Special, Value};

use super::place::{Place, TileElements};
use super::shared::{Measured, SharedTable, Stored, scan, times};
use super::table::{Listed, Table};
use super::{Groups, Order};
use crate::{Index, Tiles, TooManyTiles};

impl Groups<'static, u32> {
    /// GEMMs of any shapes. `products` has the number of tiles of each GEMM along M and N. `k` is the largest
    /// number of k-tiles of a GEMM.
    ///
    /// # Errors
    /// More than [`Tiles::MOST`] tiles.
    pub fn described(products: impl IntoIterator<Item = [u32; 2]>, k: u32) -> Result<Self, TooManyTiles> {
        let products = (0..).zip(products);
        let (table, all) =
            Listed::new(products.map(|(group, [m, n])| (group, u64::from(m) * u64::from(n), [0, m])));
        let tiles = Tiles::counted([all, 1], k, Tiles::MOST)?;
        Ok(Self { tiles, order: Order::Described(Box::new(table)) })
    }
}

impl<'a, 'f: 'a> Groups<'a, Value<'f, u32>> {
    /// As [`described`](Groups::described), on the device: emits the code by which all threads of a CTA write the table to shared memory. There are `groups`
    /// GEMMs, in tiles of `tile` elements along M and N. `extents` emits the code that reads the extents of a
    /// GEMM along M and N, in elements.
    pub fn described_on_device(
        table: SharedTable<'f>,
        [groups, k]: [Value<'f, u32>; 2],
        tile: [u32; 2],
        extents: impl Fn(Value<'f, u32>) -> [Value<'f, u32>; 2] + Clone + 'a,
    ) -> Self {
        let SharedTable { f, at, span, .. } = table;
        // Tiles of a GEMM along M, and along N.
        let height = move |m: Value<'f, u32>| m.div_ceil(tile[0]);
        let width = move |n: Value<'f, u32>| n.div_ceil(tile[1]);
        let write = || {
            let lane = f.special(Special::Lane);
            let zero = f.constant(0u32);
            f.if_(lane.equals(0), || f.store_shared(at, 0, [zero, zero]));
            let (tiles, base) = (f.variable(0u32), f.variable(0u32));
            f.while_(
                || base.get().less_than(groups),
                || {
                    let first = base.get() + times(lane, span);
                    let of_lane = (0..span).map(|i| {
                        let group = if i == 0 { first } else { first + i };
                        let inside = group.less_than(groups);
                        // Lanes past the last GEMM read the last one again.
                        let [m, n] = extents(group.min(groups - 1));
                        let height = height(m);
                        (inside, height, (height * width(n)).where_or(inside, 0))
                    });
                    let of_lane: Vec<_> = of_lane.collect();
                    let own = of_lane.iter().map(|&(.., own)| own).reduce(|a, b| a + b).unwrap_or(zero);
                    let count = scan(f, lane, own, &|a, b| a + b) + tiles.get();
                    if let [(inside, height, _), ..] = of_lane[..] {
                        let entry = if span == 1 { first } else { first / span };
                        f.if_(inside, || f.store_shared(at + entry * 8, 8, [count, height]));
                    }
                    tiles.set(f.shuffle(count, 31));
                    base.set(base.get() + 32 * span);
                },
            );
        };
        let measure = {
            let extents = extents.clone();
            move |[group, before]: [Value<'f, u32>; 2]| {
                let [m, n] = extents(group);
                let end = height(m);
                Measured { first: before, tiles: end * width(n), end }
            }
        };
        let (stored, all) = Stored::new(table, (groups, None), write, Box::new(measure));
        let tiles = Tiles { m: all, n: f.constant(1), k };
        Self { tiles, order: Order::Described(Box::new(stored)) }
    }
}

pub(super) fn place<I: Index, E: TileElements<I>>(
    table: &dyn Table<I>,
    number: I,
    elements: &E,
) -> Place<I, E::Record> {
    // Here `end` of an entry is the number of tiles of the GEMM along M.
    let found = table.find(number);
    let record = elements.record(found.group);
    let height = found.end.most(1);
    let m = found.tile % height;
    let first_m = elements.first(0, None, m);
    let n = found.tile / height;
    let first = [first_m, elements.first(1, None, n)];
    Place { group: Some(found.group), tile: [m, n], first, ends: [None; 2], record: Some(record) }
}
