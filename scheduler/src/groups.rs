//! Which GEMM of a launch a tile belongs to: batched, ragged and grouped launches.
//!
//! A launch may compute several GEMMs. A [`Schedule`](crate::Schedule) sees their tiles as the tiles of one
//! output. [`Groups`] gives the extent of that output. For each tile it says which GEMM the tile belongs to
//! and which element it begins at.
//!
//! | variant | GEMMs | tiles of the launch |
//! |---|---|---|
//! | [`Single`](Groups::Single) | one | the tiles of that GEMM |
//! | [`Batched`] | of one shape | the outputs stacked along M or N |
//! | [`GroupedContiguous`] | groups of rows of one matrix (MoE) | the groups' rows of tiles, one group after the other |
//! | [`Balanced`] | the same | one column of tiles; tiles of nearly equal width, wide ones first |
//! | [`Described`] | of any shapes (pointer array) | one column of tiles; each GEMM column by column |
//!
//! The lookup is written once, for host integers and device values ([`Index`]). Only the table of the groups'
//! first tiles exists twice: on the host it is a list; on the device each CTA writes it to shared memory
//! ([`SharedTable`]) from offsets or records in global memory.
//!
//! ```
//! use scheduler::Tiles;
//! use scheduler::groups::{Groups, GroupedContiguous};
//!
//! // Groups of 130, 0 and 64 rows in tiles of 128 by 64, under 256 columns: three rows of tiles.
//! let groups = Groups::GroupedContiguous(GroupedContiguous::listed(&[130, 0, 64], 128, 0, Tiles { m: 0, n: 4, k: 16 })?);
//! assert_eq!((groups.tiles().m, groups.tiles().n), (3, 4));
//! # Ok::<(), scheduler::TooManyTiles>(())
//! ```

mod balanced;
mod batched;
mod described;
mod order;
mod place;
mod ragged;
mod shared;
mod sorted;
mod table;

pub use balanced::Balanced;
pub use batched::Batched;
pub use described::Described;
pub use order::Cut;
pub use place::{Elements, Place};
pub use ragged::GroupedContiguous;
pub use shared::{Offsets, SharedTable};

use crate::{Index, Tiles};

/// The GEMMs of a launch and their tiles.
#[derive(Debug)]
pub enum Groups<'a, I> {
    /// One GEMM.
    Single(Tiles<I>),
    /// GEMMs of one shape.
    Batched(Batched<I>),
    /// Groups of rows of one matrix.
    GroupedContiguous(GroupedContiguous<'a, I>),
    /// Groups of rows, cut into tiles of nearly equal width.
    Balanced(Balanced<'a, I>),
    /// GEMMs of any shapes.
    Described(Described<'a, I>),
}

impl<I: Index> Groups<'_, I> {
    /// The tiles of all GEMMs, as one output for a schedule.
    pub fn tiles(&self) -> Tiles<I> {
        match self {
            Self::Single(tiles) => *tiles,
            Self::Batched(batched) => batched.tiles(),
            Self::GroupedContiguous(ragged) => ragged.tiles(),
            Self::Balanced(balanced) => balanced.tiles(),
            Self::Described(described) => described.tiles(),
        }
    }

    /// The place of a tile, given by its index along M and N among [`tiles`](Self::tiles). On the device,
    /// emits the code that finds it.
    pub fn place<E: Elements<I>>(&self, tile: [I; 2], elements: &E) -> Place<I, E::Record> {
        match self {
            Self::Single(_) => Place::of(None, tile, elements),
            Self::Batched(batched) => batched.place(tile, elements),
            Self::GroupedContiguous(ragged) => ragged.place(tile, elements),
            Self::Balanced(balanced) => balanced.place(tile, elements),
            Self::Described(described) => described.place(tile, elements),
        }
    }
}
