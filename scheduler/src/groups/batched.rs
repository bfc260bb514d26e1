//! GEMMs of one shape.

use super::place::{Elements, Place};
use crate::{Index, Tiles, TooManyTiles};

/// GEMMs of one shape. Their outputs are stacked along M or along N.
#[derive(Clone, Copy, Debug)]
pub struct Batched<I> {
    one: Tiles<I>,
    all: Tiles<I>,
    /// The direction in which the outputs are stacked: 0 for M, 1 for N.
    axis: usize,
}

impl Batched<u32> {
    /// `count` GEMMs of the extent `one`, stacked along M (`axis` 0) or N (`axis` 1), on the host.
    ///
    /// # Errors
    /// More than [`Tiles::MOST`] tiles.
    pub fn counted(one: Tiles<u32>, count: u32, axis: usize) -> Result<Self, TooManyTiles> {
        let mut all = [one.m, one.n].map(u128::from);
        all[axis] *= u128::from(count);
        Ok(Self { one, all: Tiles::counted(all, one.k, Tiles::MOST)?, axis })
    }
}

impl<I: Index> Batched<I> {
    /// `count` GEMMs of the extent `one`, stacked along M (`axis` 0) or N (`axis` 1). Does not check the
    /// number of tiles.
    pub fn new(one: Tiles<I>, count: I, axis: usize) -> Self {
        let all = match axis {
            0 => Tiles { m: one.m * count, ..one },
            _ => Tiles { n: one.n * count, ..one },
        };
        Self { one, all, axis }
    }

    pub(super) fn tiles(&self) -> Tiles<I> {
        self.all
    }

    pub(super) fn place<E: Elements<I>>(&self, [m, n]: [I; 2], elements: &E) -> Place<I, E::Record> {
        let Self { one, axis, .. } = *self;
        let (group, tile) = match axis {
            0 => (m / one.m, [m % one.m, n]),
            _ => (n / one.n, [m, n % one.n]),
        };
        Place::of(Some(group), tile, elements)
    }
}
