//! The place of a tile in its GEMM, and how tiles are converted to elements.

use crate::Index;

/// The place of a tile: its GEMM, its index in it, and its elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place<I, R> {
    /// The number of the GEMM; `None` if the launch has only one.
    pub group: Option<I>,
    /// The tile's index in its GEMM, along M and N.
    pub tile: [I; 2],
    /// The tile's first element along M and N. For groups of rows, counted over the rows of all groups.
    pub first: [I; 2],
    /// One past the last element along M and N: of the group, or of the tile under
    /// [`Groups::balanced`](super::Groups::balanced). `None` in a direction where the extent of the launch is the end.
    pub ends: [Option<I>; 2],
    /// The record of the GEMM under [`Groups::described`](super::Groups::described), otherwise `None`.
    pub record: Option<R>,
}

impl<I: Index, R> Place<I, R> {
    /// A tile whose first element follows from its index alone.
    pub(super) fn of(group: Option<I>, tile: [I; 2], elements: &impl TileElements<I, Record = R>) -> Self {
        let first = [elements.first(0, None, tile[0]), elements.first(1, None, tile[1])];
        Self { group, tile, first, ends: [None; 2], record: None }
    }
}

/// Converts tiles to elements, and reads the records of GEMMs.
pub trait TileElements<I> {
    /// The record that describes a GEMM.
    type Record;

    /// The first element of tile `index` along M (`axis` 0) or N (`axis` 1). Tile 0 begins at element `from`,
    /// or at element 0 of the output if `from` is `None`.
    fn first(&self, axis: usize, from: Option<I>, index: I) -> I;

    /// The record of the GEMM with number `group`.
    fn record(&self, group: I) -> Self::Record;
}

/// On the host: the elements of a tile along M and N. There are no records.
impl TileElements<u32> for [u32; 2] {
    type Record = ();

    fn first(&self, axis: usize, from: Option<u32>, index: u32) -> u32 {
        from.unwrap_or(0) + index * self[axis]
    }

    fn record(&self, _group: u32) {}
}
