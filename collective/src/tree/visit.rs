//! What a node sees while it emits code: a tile, a part of it, a row.

use core::cell::RefCell;

use ptx::{Builder, Value};

use super::share::Binding;
use crate::extent::Extent;
use crate::real::{Arithmetic, Number};

/// Values of two neighbouring columns.
pub type Pair<'f> = [Number<'f>; 2];

/// A tile that a consumer warpgroup has computed.
#[derive(Clone, Copy, Debug)]
pub struct NodeTile<'f> {
    /// The builder.
    pub f: &'f Builder,
    /// What the tree computes in.
    pub arithmetic: Arithmetic,
    /// Whether the whole tile is inside the output and every access to a pair can be one access.
    pub whole: bool,
    /// The GEMM's extents.
    pub extent: Extent<'f>,
    /// Bytes to add to addresses for the vectors and matrices of this GEMM; `None` if there is only one.
    pub displacement: Option<Value<'f, u64>>,
    /// Index of the thread in the warpgroup.
    pub thread: Value<'f, u32>,
    /// Whether there are registers for the row vectors of the whole tile.
    pub ahead: bool,
    /// The columns of the tile at this node.
    pub columns: Columns<'f>,
    /// The columns whose pairs become these columns; equal to them if columns are not joined.
    pub doubled: Columns<'f>,
    /// The first row of the warpgroup.
    pub first_row: Value<'f, u32>,
    /// Whether the row of index 0, without the lane's part, is a multiple of 16. Then rows of indices `2 i`
    /// and `2 i + 1` are 8 apart and in the same 16.
    pub aligned: bool,
    /// Number of 64-row blocks of the warpgroup, one below the other.
    pub blocks: u32,
    /// What a cluster computes at a time, in rows and columns of the GEMM.
    pub cluster_tile: [u32; 2],
    /// A named barrier of the warpgroup's 128 threads.
    pub barrier: Value<'f, u32>,
}

impl<'f> NodeTile<'f> {
    /// The first column of the tile at this node.
    #[track_caller]
    pub fn first_column(&self) -> Value<'f, u32> {
        self.columns.first - (self.thread % 4) * 2
    }
}

impl<'f> NodeTile<'f> {
    /// The address for the tile's GEMM of data that begins at `address` for the first GEMM.
    pub fn place(&self, address: Value<'f, u64>) -> Value<'f, u64> {
        match self.displacement {
            Some(displacement) => address + displacement,
            None => address,
        }
    }
}

/// The columns of a tile that a thread holds: pairs, with eight columns from one pair to the next.
#[derive(Clone, Copy, Debug)]
pub struct Columns<'f> {
    /// The first column.
    pub first: Value<'f, u32>,
    /// Number of pairs.
    pub pairs: u32,
    /// Number of columns of the value, over all tiles.
    pub n: Value<'f, u32>,
}

/// A row of a part.
#[derive(Clone, Debug)]
pub struct PartRow<'f> {
    /// Index of the row among the thread's rows of the tile.
    pub index: usize,
    /// The row in the output.
    pub row: Value<'f, u32>,
    /// Number of columns, from the thread's first on, that are inside the value; zero if the row is outside.
    pub columns: Value<'f, u32>,
    /// The accumulators of the pairs; empty if the columns have been halved.
    pub accumulators: Vec<Pair<'f>>,
}

/// Some rows and neighbouring columns of a tile, as a thread holds them.
#[derive(Clone, Debug)]
pub struct Part<'f> {
    /// The tile.
    pub tile: NodeTile<'f>,
    /// The rows.
    pub rows: Vec<PartRow<'f>>,
    /// Column of the thread's first value in the tile.
    pub column: Value<'f, u32>,
    /// Number of columns, from the thread's first on, that are inside the value.
    pub columns: Value<'f, u32>,
    /// First column of each pair, relative to `column`.
    pub pairs: Vec<u32>,
    /// The part whose pairs of columns became these columns; or the parts of gates and of ups, if they are
    /// split. Empty if columns are not joined.
    pub doubled: Vec<Part<'f>>,
    /// Values of enclosing bindings, outermost first.
    pub(crate) bound: RefCell<Vec<Binding<'f>>>,
}

impl<'f> Part<'f> {
    /// Emits `then` for an element that is inside; without a test if the tile is whole.
    #[track_caller]
    pub fn if_inside(&self, row: usize, column: u32, then: impl FnOnce()) {
        if self.tile.whole {
            then();
        } else {
            self.tile.f.if_(self.rows[row].columns.more_than(column), then);
        }
    }

    /// Emits `then` for a column that is inside; without a test if the tile is whole.
    #[track_caller]
    pub fn if_column_inside(&self, column: u32, then: impl FnOnce()) {
        if self.tile.whole {
            then();
        } else {
            self.tile.f.if_(self.columns.more_than(column), then);
        }
    }

    /// `value`, which is of `f32`, if the element is inside, else `other`.
    #[track_caller]
    pub fn inside_or(&self, row: usize, column: u32, value: Number<'f>, other: f32) -> Value<'f, f32> {
        let value = value.single();
        if self.tile.whole {
            return value;
        }
        value.where_or(self.rows[row].columns.more_than(column), other)
    }
}
