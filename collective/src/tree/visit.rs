//! Where a node is while it emits: a tile, a part of it, a row.

use core::cell::RefCell;

use ptx::{Builder, Value};

use crate::extent::Extent;

/// Values of two neighbouring columns.
pub type Pair<'f> = [Value<'f, f32>; 2];

/// The tile that a consumer warpgroup has computed.
#[derive(Clone, Copy, Debug)]
pub struct Visit<'f> {
    /// The builder.
    pub f: &'f Builder,
    /// All of the tile is inside of the output, and all accesses of pairs can be one.
    pub whole: bool,
    /// The product's extents.
    pub extent: Extent<'f>,
    /// What is added to addresses: bytes to the group's own of several vectors or matrices.
    pub displacement: Option<Value<'f, u64>>,
    /// The thread's index in the warpgroup.
    pub thread: Value<'f, u32>,
    /// Registers are left for the row vectors of all of the tile.
    pub ahead: bool,
    /// The columns of the tile at this node.
    pub columns: Columns<'f>,
    /// The columns whose pairs become these, or these themselves where columns are not joined.
    pub doubled: Columns<'f>,
    /// The first row of the warpgroup.
    pub first_row: Value<'f, u32>,
    /// The row of index 0 is a multiple of 16, but for the lane's part: two rows of indices `2 i` and `2 i + 1` are then 8 apart and
    /// of the same 16.
    pub aligned: bool,
    /// 64-row blocks of the warpgroup, one below the other.
    pub blocks: u32,
    /// What a cluster computes at a time, in rows and in columns of the product.
    pub cluster_tile: [u32; 2],
    /// A named barrier of the warpgroup's 128 threads.
    pub barrier: Value<'f, u32>,
}

impl<'f> Visit<'f> {
    /// The first column of the tile at this node.
    pub fn first_column(&self) -> Value<'f, u32> {
        self.columns.first - (self.thread % 4) * 2
    }
}

impl<'f> Visit<'f> {
    /// Where what begins at `address` for the first group begins for the tile's.
    pub fn place(&self, address: Value<'f, u64>) -> Value<'f, u64> {
        match self.displacement {
            Some(displacement) => address + displacement,
            None => address,
        }
    }
}

/// The columns of a tile that a thread has: pairs, eight columns from one to the next.
#[derive(Clone, Copy, Debug)]
pub struct Columns<'f> {
    /// The first.
    pub first: Value<'f, u32>,
    /// How many pairs there are.
    pub pairs: u32,
    /// The columns that the value has, in all tiles.
    pub n: Value<'f, u32>,
}

/// A row of a part.
#[derive(Clone, Debug)]
pub struct PartRow<'f> {
    /// Which of the thread's rows of the tile it is.
    pub index: usize,
    /// The row in the output.
    pub row: Value<'f, u32>,
    /// How many of the columns from the thread's first on are inside of the value; zero where the row is outside.
    pub columns: Value<'f, u32>,
    /// The accumulators of the pairs; none where the columns have been halved.
    pub accumulators: Vec<Pair<'f>>,
}

/// Some rows and neighbouring columns of a tile, as a thread holds them.
#[derive(Clone, Debug)]
pub struct Part<'f> {
    /// The tile.
    pub tile: Visit<'f>,
    /// The rows.
    pub rows: Vec<PartRow<'f>>,
    /// The column of the thread's first value of the tile.
    pub column: Value<'f, u32>,
    /// How many of the columns from the thread's first on are inside of the value.
    pub columns: Value<'f, u32>,
    /// The first column of each pair, counted from `column`.
    pub pairs: Vec<u32>,
    /// The part whose pairs of columns became these columns, or those of gates and of ups where they are split; empty where
    /// columns are not joined.
    pub doubled: Vec<Part<'f>>,
    /// Values of enclosing bindings, outermost first.
    pub(crate) bound: RefCell<Vec<Pair<'f>>>,
}

impl<'f> Part<'f> {
    /// Emits `then` where an element is inside; without a question where the tile is whole.
    pub fn if_inside(&self, row: usize, column: u32, then: impl FnOnce()) {
        if self.tile.whole {
            then();
        } else {
            self.tile.f.if_(self.rows[row].columns.more_than(column), then);
        }
    }

    /// Emits `then` where a column is inside.
    pub fn if_column_inside(&self, column: u32, then: impl FnOnce()) {
        if self.tile.whole {
            then();
        } else {
            self.tile.f.if_(self.columns.more_than(column), then);
        }
    }

    /// `value` where the element is inside, else `other`.
    pub fn inside_or(&self, row: usize, column: u32, value: Value<'f, f32>, other: f32) -> Value<'f, f32> {
        if self.tile.whole {
            return value;
        }
        value.where_or(self.rows[row].columns.more_than(column), other)
    }
}
