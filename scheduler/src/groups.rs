//! Which product a tile of a launch is of.
//!
//! A launch may compute several products. A [`Schedule`](crate::Schedule) sees the tiles of all of them as those of one output;
//! [`Groups`] says which tiles these are, and for each of them which product it is of and where it begins.
//!
//! | variant | products | tiles of all |
//! |---|---|---|
//! | [`Single`](Groups::Single) | one | its own |
//! | [`Batched`] | of one shape | one output, as many times as high or as wide |
//! | [`Ragged`] | groups of rows of one matrix | rows of tiles of all groups, one group after the other |
//! | [`Balanced`] | the same | one column; groups are cut into tiles of nearly equal width, wide ones first |
//! | [`Described`] | of any shapes | one column; each product column by column |
//!
//! Each is written once, for numbers of the host and values of the device ([`Index`]). What exists twice is the table of where
//! groups begin: the host has it in a list, a CTA writes it to shared memory ([`SharedTable`]) from what device memory says.
//!
//! ```
//! use scheduler::Tiles;
//! use scheduler::groups::{Groups, Ragged};
//!
//! // Groups of 130, 0 and 64 rows in tiles of 128 by 64, under 256 columns: three rows of tiles.
//! let groups = Groups::Ragged(Ragged::listed(&[130, 0, 64], 128, 0, Tiles { m: 0, n: 4, k: 16 })?);
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
pub use ragged::Ragged;
pub use shared::{Offsets, SharedTable};

use crate::{Index, Tiles};

/// The products of a launch, and the tiles of all of them.
#[derive(Debug)]
pub enum Groups<'a, I> {
    /// One product.
    Single(Tiles<I>),
    /// Products of one shape.
    Batched(Batched<I>),
    /// Groups of rows.
    Ragged(Ragged<'a, I>),
    /// Groups of rows, cut into tiles of nearly equal width.
    Balanced(Balanced<'a, I>),
    /// Products of any shapes.
    Described(Described<'a, I>),
}

impl<I: Index> Groups<'_, I> {
    /// The tiles of all products, as a schedule numbers them.
    pub fn tiles(&self) -> Tiles<I> {
        match self {
            Self::Single(tiles) => *tiles,
            Self::Batched(batched) => batched.tiles(),
            Self::Ragged(ragged) => ragged.tiles(),
            Self::Balanced(balanced) => balanced.tiles(),
            Self::Described(described) => described.tiles(),
        }
    }

    /// Where one of these tiles lies. On the device, emits what finds it.
    pub fn place<E: Elements<I>>(&self, tile: [I; 2], elements: &E) -> Place<I, E::Record> {
        match self {
            Self::Single(_) => Place::of(None, tile, elements),
            Self::Batched(batched) => batched.place(tile, elements),
            Self::Ragged(ragged) => ragged.place(tile, elements),
            Self::Balanced(balanced) => balanced.place(tile, elements),
            Self::Described(described) => described.place(tile, elements),
        }
    }
}
