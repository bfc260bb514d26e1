//! Which GEMM of a launch a tile belongs to: batched, ragged and grouped launches.
//!
//! A launch may compute several GEMMs. A [`Schedule`](crate::Schedule) sees their tiles as the tiles of one
//! output. [`Groups`] gives the extent of that output. For each tile it says which GEMM the tile belongs to
//! and which element it begins at.
//!
//! | made by | GEMMs | tiles of the launch |
//! |---|---|---|
//! | [`single`](Groups::single) | one | the tiles of that GEMM |
//! | [`batched`](Groups::batched) | of one shape | the outputs stacked along M or N |
//! | [`contiguous`](Groups::contiguous) | groups of rows of one matrix (MoE) | the groups' rows of tiles, one group after the other |
//! | [`balanced`](Groups::balanced) | the same | one column of tiles; tiles of nearly equal width, wide ones first |
//! | [`described`](Groups::described) | of any shapes (pointer array) | one column of tiles; each GEMM column by column |
//!
//! Functions whose names end in `_on_device` emit the code that makes the same on the device.
//!
//! The lookup is written once, for host integers and device values ([`Index`]). Only the table of the groups'
//! first tiles exists twice: on the host it is a list; on the device each CTA writes it to shared memory
//! ([`SharedTable`]) from offsets or records in global memory.
//!
//! ```
//! use scheduler::Tiles;
//! use scheduler::groups::Groups;
//!
//! // Groups of 130, 0 and 64 rows in tiles of 128 by 64, under 256 columns: three rows of tiles.
//! let groups = Groups::contiguous(&[130, 0, 64], 128, 0, Tiles { m: 0, n: 4, k: 16 })?;
//! assert_eq!((groups.tiles().m, groups.tiles().n), (3, 4));
//! # Ok::<(), scheduler::TooManyTiles>(())
//! ```

mod balanced;
mod batched;
mod contiguous;
mod counting;
mod described;
mod order;
mod place;
mod shared;
mod sorted;
mod table;

pub use order::TileWidths;
pub use place::{Place, TileElements};
pub use shared::{Offsets, SharedTable};

use table::Table;

use crate::{Index, Tiles};

/// The GEMMs of a launch and their tiles.
#[derive(Debug)]
pub struct Groups<'a, I> {
    /// The tiles of all GEMMs.
    tiles: Tiles<I>,
    order: Order<'a, I>,
}

/// How the GEMMs follow each other.
#[derive(Debug)]
enum Order<'a, I> {
    Single,
    /// GEMMs of these tiles each, along M (0) or N (1).
    Batched(Tiles<I>, usize),
    /// Groups of rows, along M (0) or N (1).
    Contiguous(Box<dyn Table<I> + 'a>, usize),
    Balanced(Box<dyn Table<I> + 'a>, TileWidths),
    Described(Box<dyn Table<I> + 'a>),
}

impl<I: Index> Groups<'_, I> {
    /// One GEMM.
    pub fn single(tiles: Tiles<I>) -> Self {
        Self { tiles, order: Order::Single }
    }

    /// The tiles of all GEMMs, as one output for a schedule.
    pub fn tiles(&self) -> Tiles<I> {
        self.tiles
    }

    /// The place of a tile, given by its index along M and N among [`tiles`](Self::tiles). On the device,
    /// emits the code that finds it.
    pub fn place<E: TileElements<I>>(&self, tile: [I; 2], elements: &E) -> Place<I, E::Record> {
        match &self.order {
            Order::Single => Place::of(None, tile, elements),
            Order::Batched(one, axis) => batched::place(*one, *axis, tile, elements),
            Order::Contiguous(table, axis) => contiguous::place(&**table, *axis, tile, elements),
            Order::Balanced(table, cut) => balanced::place(&**table, *cut, tile[0], elements),
            Order::Described(table) => described::place(&**table, tile[0], elements),
        }
    }
}
