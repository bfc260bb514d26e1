//! Where a tile lies, and what that is counted in.

use crate::Index;

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
    pub(super) fn of(group: Option<I>, tile: [I; 2], elements: &impl Elements<I, Record = R>) -> Self {
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
