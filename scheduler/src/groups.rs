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
//! | [`Fitted`] | the same | one column; groups are cut into tiles of nearly equal width, wide ones first |
//! | [`Described`] | of any shapes | one column; each product column by column |
//!
//! Each is written once, for numbers of the host and values of the device ([`Index`]). What exists twice is the table of where
//! groups begin: the host has it in a list, a CTA writes it to shared memory ([`SharedTable`]) from what device memory says.

mod batched;
mod described;
mod fitted;
mod order;
mod ragged;
mod shared;
mod table;

pub use batched::Batched;
pub use described::Described;
pub use fitted::{Cut, Fitted};
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
    Fitted(Fitted<'a, I>),
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
            Self::Fitted(fitted) => fitted.tiles(),
            Self::Described(described) => described.tiles(),
        }
    }

    /// Where one of these tiles lies. On the device, emits what finds it.
    pub fn place<E: Elements<I>>(&self, tile: [I; 2], elements: &E) -> Place<I, E::Record> {
        match self {
            Self::Single(_) => Place::of(None, tile, elements),
            Self::Batched(batched) => batched.place(tile, elements),
            Self::Ragged(ragged) => ragged.place(tile, elements),
            Self::Fitted(fitted) => fitted.place(tile, elements),
            Self::Described(described) => described.place(tile, elements),
        }
    }
}

/// Where a tile of a launch lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place<I, R> {
    /// The number of its product; `None` where there is but one.
    pub group: Option<I>,
    /// Its index among the tiles of its product, along M and N.
    pub tile: [I; 2],
    /// Its first element along M and N. Of groups of rows, counted over the rows of all.
    pub first: [I; 2],
    /// One past the last element along M and N that is the group's, or the tile's where groups are cut into tiles. `None` in
    /// directions in which the launch's own extent says it.
    pub ends: [Option<I>; 2],
    /// What is known of its product, where each is described.
    pub record: Option<R>,
}

impl<I: Index, R> Place<I, R> {
    /// A tile whose index says where it begins.
    fn of(group: Option<I>, tile: [I; 2], elements: &impl Elements<I, Record = R>) -> Self {
        let first = [elements.first(0, None, tile[0]), elements.first(1, None, tile[1])];
        Self { group, tile, first, ends: [None; 2], record: None }
    }
}

/// What a place is counted in: says where tiles begin, and what is known of a product.
pub trait Elements<I> {
    /// What is known of a product that is described.
    type Record;

    /// The first element of the tile `index` along M (`axis` 0) or N (1), where the first tile begins at the element `from`; at
    /// the output's first without.
    fn first(&self, axis: usize, from: Option<I>, index: I) -> I;

    /// What is known of the product `group`.
    fn record(&self, group: I) -> Self::Record;
}

/// Tiles of so many elements along M and N, on the host: products are known by their numbers alone.
impl Elements<u32> for [u32; 2] {
    type Record = ();

    fn first(&self, axis: usize, from: Option<u32>, index: u32) -> u32 {
        from.unwrap_or(0) + index * self[axis]
    }

    fn record(&self, _group: u32) {}
}
