//! Sequences of different lengths in one launch.

use kernel::operands::Visit;
use ptx::{Builder, Value};

use crate::problem::Packed;

/// Where sequences of different lengths begin.
#[derive(Clone, Copy)]
pub(crate) struct Lengths<'f> {
    pub(crate) queries: Beginnings<'f>,
    /// `None` if keys are in pages, or not needed.
    pub(crate) keys: Option<Beginnings<'f>>,
    batch: Value<'f, u32>,
}

/// Where the rows of each sequence begin in a tensor.
#[derive(Clone, Copy)]
pub(crate) struct Beginnings<'f> {
    /// Address of the table.
    table: Value<'f, u64>,
    /// Rows of all sequences.
    pub(crate) rows: Value<'f, u32>,
}

impl<'f> Lengths<'f> {
    /// The parameters, without or with those of keys.
    pub(crate) fn of(f: &'f Builder, keys: bool) -> Self {
        let (queries, keys) = (f.parameter("queries_begin"), keys.then(|| f.parameter("keys_begin")));
        let queries = Beginnings { table: queries, rows: f.parameter("all_queries") };
        let keys = keys.map(|table| Beginnings { table, rows: f.parameter("all_keys") });
        Self { queries, keys, batch: f.parameter("batch") }
    }

    /// States the parameters.
    pub(crate) fn state(packed: &Packed, batch: u32, keys: bool, visit: &mut dyn Visit) {
        visit.address("queries_begin", "the beginnings of queries");
        if keys {
            visit.address("keys_begin", "the beginnings of keys");
        }
        visit.number("all_queries", Some(packed.rows[0]));
        if keys {
            visit.number("all_keys", Some(packed.rows[1]));
        }
        visit.number("batch", Some(batch));
    }

    /// The sequence of a tile of `height` rows of `of`, and the tile's number in it.
    pub(crate) fn find(
        &self,
        of: Beginnings<'f>,
        height: u32,
        tile: Value<'f, u32>,
    ) -> (Value<'f, u32>, Value<'f, u32>) {
        let f = tile.builder();
        let first = |batch| of.first_tile(height, batch);
        let (low, high) = (f.variable(0u32), f.variable(self.batch - 1));
        f.while_(
            || low.get().less_than(high.get()),
            || {
                let middle = (low.get() + high.get() + 1) / 2;
                let before = first(middle).at_most(tile);
                low.set(middle.where_or(before, low.get()));
                high.set(high.get().where_or(before, middle - 1));
            },
        );
        let batch = low.get();
        (batch, tile - first(batch))
    }
}

impl<'f> Beginnings<'f> {
    /// Tiles of a head are numbered so that sequence `b` has those from `begin(b) / height + b` on: at least as many as
    /// it needs, and one more at most.
    pub(crate) fn first_tile(&self, height: u32, batch: Value<'f, u32>) -> Value<'f, u32> {
        self.begin(batch) / height + batch
    }

    fn begin(&self, batch: Value<'f, u32>) -> Value<'f, u32> {
        let begin: Value<'f, u32> = batch.builder().load_global(self.table + batch.mul_wide(4u32), 0);
        begin.min(self.rows)
    }

    /// Rows before a sequence, and its own.
    pub(crate) fn sequence(&self, batch: Value<'f, u32>) -> (Value<'f, u32>, Value<'f, u32>) {
        let (begin, end) = (self.begin(batch), self.begin(batch + 1));
        (begin, end.max(begin) - begin)
    }
}
