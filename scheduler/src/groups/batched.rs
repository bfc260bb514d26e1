//! GEMMs of one shape. Their outputs are stacked along M or along N.

use ptx::Value;

use super::place::{Place, TileElements};
use super::{Groups, Order};
use crate::{Index, Tiles, TooManyTiles};

impl Groups<'static, u32> {
    /// `count` GEMMs of the extent `one`, stacked along M (`axis` 0) or N (`axis` 1).
    ///
    /// # Errors
    /// More than [`Tiles::MOST`] tiles.
    pub fn batched(one: Tiles<u32>, count: u32, axis: usize) -> Result<Self, TooManyTiles> {
        let mut all = [one.m, one.n].map(u128::from);
        all[axis] *= u128::from(count);
        let tiles = Tiles::counted(all, one.k, Tiles::MOST)?;
        Ok(Self { tiles, order: Order::Batched(one, axis) })
    }
}

impl<'f> Groups<'f, Value<'f, u32>> {
    /// As [`batched`](Groups::batched), on the device. Does not check the number of tiles.
    pub fn batched_on_device(one: Tiles<Value<'f, u32>>, count: Value<'f, u32>, axis: usize) -> Self {
        let tiles = match axis {
            0 => Tiles { m: one.m * count, ..one },
            _ => Tiles { n: one.n * count, ..one },
        };
        Self { tiles, order: Order::Batched(one, axis) }
    }
}

pub(super) fn place<I: Index, E: TileElements<I>>(
    one: Tiles<I>,
    axis: usize,
    [m, n]: [I; 2],
    elements: &E,
) -> Place<I, E::Record> {
    let (group, tile) = match axis {
        0 => (m / one.m, [m % one.m, n]),
        _ => (n / one.n, [m, n % one.n]),
    };
    Place::of(Some(group), tile, elements)
}
