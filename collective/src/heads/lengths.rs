//! Sequences of different lengths in one launch: what a call says of them, and how a program finds them.

use ptx::{Builder, Value};

use crate::operands::{Contents, Extents, Memory, Visit};

/// Of queries and of keys: the table, and the parameters with its address and with the number of all rows.
const SIDES: [[&str; 3]; 2] = [
    ["the beginnings of queries", "queries_begin", "all_queries"],
    ["the beginnings of keys", "keys_begin", "all_keys"],
];

/// Where sequences of different lengths begin. Their rows follow each other in each tensor, whose `batch` stride is not
/// used; what is one number per query is packed `(heads, queries)`.
///
/// Whatever is in the tables, a launch reads and writes the tensors alone. A sequence that is longer than the problem
/// says has wrong results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Packed {
    /// Device addresses of `batch + 1` numbers, `u32`: the sums of the numbers of queries, and of keys, of the sequences
    /// before. The first is 0, the last the number of all.
    pub begins: [u64; 2],
    /// Number of queries, and of keys, of all sequences.
    pub rows: [u32; 2],
}

impl Packed {
    /// The names of the tables of queries and of keys.
    pub const TABLES: [&str; 2] = [SIDES[0][0], SIDES[1][0]];

    /// Checks where sequences of queries begin, and of keys, if the host knows it. `most` are the numbers of queries and of keys that a
    /// sequence may have.
    ///
    /// # Errors
    /// The first number that is not where a sequence begins or the last one ends, or the first sequence that is longer.
    pub fn check(&self, most: [u32; 2], begins: &[&[u32]]) -> Result<(), String> {
        for (i, (begins, [name, ..])) in begins.iter().zip(SIDES).enumerate() {
            let (all, most) = (self.rows[i], most[i]);
            let ends = [(0, 0), (begins.len().saturating_sub(1), all)];
            if let Some((at, needed)) = ends.into_iter().find(|&(at, needed)| begins.get(at) != Some(&needed))
            {
                let found = begins.get(at).map_or_else(|| "nothing".to_owned(), u32::to_string);
                return Err(format!(
                    "{name} have {found} as number {at}, {needed} was needed: the first is 0, and the last the number of all"
                ));
            }
            let mut steps = begins.windows(2).enumerate();
            if let Some((at, pair)) = steps.find(|(_, of)| of[1] < of[0] || of[1] - of[0] > most) {
                return Err(format!(
                    "{name} have {} as number {at} and {} as the next, from {} to {} were needed: a sequence has at most {most}",
                    pair[0],
                    pair[1],
                    pair[0],
                    pair[0].saturating_add(most)
                ));
            }
        }
        Ok(())
    }

    /// Visits the tables, which have these numbers of entries, and the numbers of rows.
    pub fn visit(&mut self, entries: [u64; 2], visit: &mut dyn Visit) {
        for (i, address) in self.begins.iter_mut().enumerate() {
            let (extents, contents) = (Extents::line(32, entries[i]), Contents::Table);
            visit.memory(Memory { name: SIDES[i][0], address, extents, contents, writes: false });
            visit.count(&mut self.rows[i]);
        }
    }

    /// States the parameters, without or with those of keys.
    pub fn state(&self, batch: u32, keys: bool, visit: &mut dyn Visit) {
        let sides = &SIDES[..if keys { 2 } else { 1 }];
        sides.iter().for_each(|[table, begins, _]| visit.address(begins, table));
        sides.iter().zip(self.rows).for_each(|([.., all], rows)| visit.number(all, Some(rows)));
        visit.number("batch", Some(batch));
    }
}

/// Where sequences of different lengths begin, on the device.
#[derive(Clone, Copy, Debug)]
pub struct DeviceLengths<'f> {
    /// Where those of queries begin.
    pub queries: Beginnings<'f>,
    /// The same of keys; `None` if keys are in pages, or not needed.
    pub keys: Option<Beginnings<'f>>,
    batch: Value<'f, u32>,
}

/// Where the rows of each sequence begin in a tensor.
#[derive(Clone, Copy, Debug)]
pub struct Beginnings<'f> {
    /// Address of the table.
    table: Value<'f, u64>,
    /// Rows of all sequences.
    pub rows: Value<'f, u32>,
}

impl<'f> DeviceLengths<'f> {
    /// Finds the parameters that [`Packed::state`] states, without or with those of keys.
    pub fn of(f: &'f Builder, keys: bool) -> Self {
        let side =
            |[_, begins, all]: [&str; 3]| Beginnings { table: f.parameter(begins), rows: f.parameter(all) };
        let [queries, of_keys] = SIDES;
        Self { queries: side(queries), keys: keys.then(|| side(of_keys)), batch: f.parameter("batch") }
    }

    /// The sequence of a tile of `height` rows of `of`, and the tile's number in it. The tile is one of those of a head: see
    /// [`Beginnings::first_tile`].
    #[track_caller]
    pub fn find(
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
    /// The number of a sequence's first tile of `height` rows. Tiles of a head are numbered so that sequence `b` has those from `begin(b) / height + b` on: at least as many as
    /// it needs, and one more at most.
    #[track_caller]
    pub fn first_tile(&self, height: u32, batch: Value<'f, u32>) -> Value<'f, u32> {
        self.begin(batch) / height + batch
    }

    #[track_caller]
    fn begin(&self, batch: Value<'f, u32>) -> Value<'f, u32> {
        let begin: Value<'f, u32> = batch.builder().load_global(self.table + batch.mul_wide(4u32), 0);
        begin.min(self.rows)
    }

    /// Rows before a sequence, and its own.
    #[track_caller]
    pub fn sequence(&self, batch: Value<'f, u32>) -> (Value<'f, u32>, Value<'f, u32>) {
        let (begin, end) = (self.begin(batch), self.begin(batch + 1));
        (begin, end.max(begin) - begin)
    }
}
