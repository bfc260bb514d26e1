//! Sequences of different lengths in one launch: what a call says of them, and how a program finds them.

use collective::MatrixRef;
use kernel::operands::{Contents, Extents, Memory, Visit};
use kernel::{LaunchError, MatrixRule};
use ptx::{Builder, Value};

use crate::problem::{AttentionProblem, below, refused};

/// Of queries and of keys: the table, and the parameters with its address and with the number of all rows.
const SIDES: [[&str; 3]; 2] = [
    ["the beginnings of queries", "queries_begin", "all_queries"],
    ["the beginnings of keys", "keys_begin", "all_keys"],
];

/// Where sequences of different lengths begin. Their rows follow each other in each tensor, whose `batch` stride is not
/// used; the log-sum-exp is packed `(heads, queries)`.
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
    /// Checks where sequences of queries begin, and of keys, if the host knows it.
    ///
    /// # Errors
    /// The first number that is not where a sequence begins or the last one ends, or the first sequence that is longer than the problem
    /// says.
    pub fn check(&self, problem: &AttentionProblem, begins: &[&[u32]]) -> Result<(), LaunchError> {
        let most = [problem.queries, problem.keys];
        for (i, (begins, [name, ..])) in begins.iter().zip(SIDES).enumerate() {
            let (all, most) = (self.rows[i], most[i]);
            let ends = [(0, 0), (begins.len().saturating_sub(1), all)];
            if let Some((at, needed)) = ends.into_iter().find(|&(at, needed)| begins.get(at) != Some(&needed))
            {
                let found = begins.get(at).map_or_else(|| "nothing".to_owned(), u32::to_string);
                return refused(format!(
                    "{name} have {found} as number {at}, {needed} was needed: the first is 0, and the last the number of all"
                ));
            }
            let mut steps = begins.windows(2).enumerate();
            if let Some((at, pair)) = steps.find(|(_, of)| of[1] < of[0] || of[1] - of[0] > most) {
                return refused(format!(
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

    /// Checks the addresses and the numbers of rows of this number of sides. The tables themselves are in device memory.
    pub(crate) fn check_call(&self, sides: usize) -> Result<(), LaunchError> {
        for ((address, rows), [name, ..]) in self.begins.into_iter().zip(self.rows).zip(SIDES).take(sides) {
            MatrixRule { name, contiguous: 1, lines: 1, bits: 32, alignment: 4 }
                .check(MatrixRef::new(address, 1))?;
            below(
                if name == SIDES[0][0] { "the number of all queries" } else { "the number of all keys" },
                rows,
            )?;
        }
        Ok(())
    }

    /// Visits the tables, which have these numbers of entries, and the numbers of rows.
    pub(crate) fn visit(&mut self, entries: [u64; 2], visit: &mut dyn Visit) {
        for (i, address) in self.begins.iter_mut().enumerate() {
            let (extents, contents) = (Extents::line(32, entries[i]), Contents::Table);
            visit.memory(Memory { name: SIDES[i][0], address, extents, contents, writes: false });
            visit.count(&mut self.rows[i]);
        }
    }

    /// States the parameters, without or with those of keys.
    pub(crate) fn state(&self, batch: u32, keys: bool, visit: &mut dyn Visit) {
        let sides = &SIDES[..if keys { 2 } else { 1 }];
        sides.iter().for_each(|[table, begins, _]| visit.address(begins, table));
        sides.iter().zip(self.rows).for_each(|([.., all], rows)| visit.number(all, Some(rows)));
        visit.number("batch", Some(batch));
    }
}

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
    /// Finds the parameters, without or with those of keys.
    pub(crate) fn of(f: &'f Builder, keys: bool) -> Self {
        let side =
            |[_, begins, all]: [&str; 3]| Beginnings { table: f.parameter(begins), rows: f.parameter(all) };
        let [queries, of_keys] = SIDES;
        Self { queries: side(queries), keys: keys.then(|| side(of_keys)), batch: f.parameter("batch") }
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
