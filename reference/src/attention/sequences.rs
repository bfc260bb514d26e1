//! Sequences of queries and keys: where their rows are, and the gradients of each row.

use super::Score;
use super::gradients::{Erring, Gradient, Query, QueryKey};
use crate::{Format, Wanted};

/// Where the rows of queries (0) and of keys (1) are.
#[derive(Clone, Debug)]
pub struct SequenceRows {
    /// Heads of queries and of keys.
    pub heads: [usize; 2],
    /// The sequences.
    pub sequences: Vec<Sequence>,
    /// Whether the rows of all sequences follow each other in a head.
    pub packed: bool,
}

impl SequenceRows {
    /// The places of sequences of these queries and keys.
    pub fn of(lengths: impl IntoIterator<Item = [u32; 2]>, heads: [u32; 2], packed: bool) -> Self {
        let mut sums = [0; 2];
        let sequence = |rows: [u32; 2]| {
            let before = sums;
            sums = [0, 1].map(|i| sums[i] + rows[i]);
            Sequence { before, rows }
        };
        let sequences = lengths.into_iter().map(sequence).collect();
        Self { heads: heads.map(|count| count as usize), sequences, packed }
    }

    /// Rows of all sequences, of a side.
    pub fn all(&self, side: usize) -> u32 {
        self.sequences.last().map_or(0, |last| last.before[side] + last.rows[side])
    }

    /// The extents of a side's tensors: sequences, heads and rows.
    pub fn extents(&self, side: usize) -> [u32; 3] {
        let (heads, rows) = (self.heads[side] as u32, self.sequences.first().map_or(0, |of| of.rows[side]));
        if self.packed { [1, heads, self.all(side)] } else { [self.sequences.len() as u32, heads, rows] }
    }

    /// Rows of a sequence, of a side.
    pub fn rows(&self, sequence: usize, side: usize) -> usize {
        self.sequences[sequence].rows[side] as usize
    }

    /// The number of a row of a sequence's head.
    pub fn index(&self, side: usize, [sequence, head, row]: [usize; 3]) -> usize {
        let before = self.sequences[sequence].before[side] as usize;
        if self.packed {
            return head * self.all(side) as usize + before + row;
        }
        (sequence * self.heads[side] + head) * self.rows(sequence, side) + row
    }

    /// The sequence, the head and the row with a number.
    pub fn place(&self, side: usize, index: usize) -> [usize; 3] {
        if self.packed {
            let all = self.all(side) as usize;
            let (head, row) = (index / all, index % all);
            let end = |of: &Sequence| of.before[side] + of.rows[side];
            let sequence = self.sequences.partition_point(|of| end(of) as usize <= row);
            return [sequence, head, row - self.sequences[sequence].before[side] as usize];
        }
        let rows = self.rows(0, side);
        [index / rows / self.heads[side], index / rows % self.heads[side], index % rows]
    }
}

/// A sequence: queries and keys of those before it, and its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sequence {
    /// Queries and keys of all sequences before it.
    pub before: [u32; 2],
    /// Its queries and keys.
    pub rows: [u32; 2],
}

/// The expected gradients.
#[derive(Clone, Copy)]
pub struct Gradients<'a> {
    /// Where rows are.
    pub places: &'a SequenceRows,
    /// The factor of scores.
    pub scale: f32,
    /// The format of the tensors.
    pub format: Format,
    /// What becomes of the product of a query and a key times the scale, in a sequence and a head: the score, and its derivative.
    pub score: &'a (dyn Fn([usize; 4], Score) -> (Score, Erring) + Sync),
    /// Whether, in a sequence and a head, a query sees a key.
    pub sees: &'a (dyn Fn([usize; 4]) -> bool + Sync),
    /// A row of a tensor of a name.
    pub row: &'a (dyn Fn(&str, usize) -> Vec<f64> + Sync),
    /// The log-sum-exp of a query.
    pub log_sum_exp: &'a (dyn Fn(usize) -> f64 + Sync),
}

impl core::fmt::Debug for Gradients<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Gradients").field("places", &self.places).finish_non_exhaustive()
    }
}

impl Gradients<'_> {
    /// Heads of queries that share one of keys.
    fn share(&self) -> usize {
        let [heads, shared] = self.places.heads;
        heads / shared
    }

    /// A query with what belongs to it.
    fn with_query<R>(&self, index: usize, body: impl FnOnce(&Query<'_>) -> R) -> R {
        let [q, o, d_o] = ["Q", "O", "dO"].map(|tensor| (self.row)(tensor, index));
        let row_sum = Query::row_sum(&o, &d_o);
        body(&Query { q: &q, d_o: &d_o, log_sum_exp: (self.log_sum_exp)(index), row_sum })
    }

    /// A query and a key.
    fn pair(&self, query: &Query<'_>, place: [usize; 4], [k, v]: [&[f64]; 2]) -> QueryKey {
        let (score, slope) = (self.score)(place, Score::of(query.q, k, self.scale));
        QueryKey::changed(query, v, score, slope)
    }

    /// A row of dQ.
    pub fn query(&self, index: usize) -> Vec<Wanted> {
        let [b, h, r] = self.places.place(0, index);
        self.with_query(index, |query| {
            let mut d_q = Gradient::new(self.format, query.q.len());
            for key in (0..self.places.rows(b, 1)).filter(|&key| (self.sees)([b, h, r, key])) {
                let at = self.places.index(1, [b, h / self.share(), key]);
                let [k, v] = ["K", "V"].map(|tensor| (self.row)(tensor, at));
                d_q.add(self.pair(query, [b, h, r, key], [&k, &v]).difference, &k);
            }
            d_q.row(self.scale)
        })
    }

    /// A row of dK, and of dV.
    pub fn key(&self, index: usize) -> [Vec<Wanted>; 2] {
        let (scale, share) = (self.scale, self.share());
        let [b, h, key] = self.places.place(1, index);
        let [k, v] = ["K", "V"].map(|tensor| (self.row)(tensor, index));
        let [mut d_k, mut d_v] = [&k, &v].map(|row| Gradient::new(self.format, row.len()));
        for head in h * share..(h + 1) * share {
            for r in (0..self.places.rows(b, 0)).filter(|&r| (self.sees)([b, head, r, key])) {
                self.with_query(self.places.index(0, [b, head, r]), |query| {
                    let pair = self.pair(query, [b, head, r, key], [&k, &v]);
                    d_k.add(pair.difference, query.q);
                    d_v.add(pair.weight, query.d_o);
                });
            }
        }
        [d_k.row(scale), d_v.row(1.0)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LENGTHS: [[u32; 2]; 5] = [[5, 9], [0, 4], [7, 0], [0, 0], [8, 11]];
    const HEADS: [u32; 2] = [4, 2];

    /// Every row of every head has a number, in the order of memory, and its place can be told from the number.
    #[test]
    fn rows_have_numbers() {
        for side in [0, 1] {
            let packed = SequenceRows::of(LENGTHS, HEADS, true);
            assert_eq!(packed.all(side), [20, 24][side]);
            assert_eq!(packed.extents(side), [1, HEADS[side], packed.all(side)]);
            let heads = 0..HEADS[side] as usize;
            let rows = |of: [u32; 2]| 0..of[side] as usize;
            let mut next = 0..;
            for head in heads.clone() {
                for (sequence, of) in LENGTHS.into_iter().enumerate() {
                    assert_eq!(packed.rows(sequence, side), of[side] as usize);
                    for (row, number) in rows(of).zip(next.by_ref()) {
                        assert_eq!(packed.index(side, [sequence, head, row]), number);
                        assert_eq!(packed.place(side, number), [sequence, head, row]);
                    }
                }
            }
            let equal = SequenceRows::of([[6, 10]; 3], HEADS, false);
            assert_eq!(equal.extents(side), [3, HEADS[side], [6, 10][side]]);
            let places = (0..3).flat_map(|sequence| heads.clone().map(move |head| (sequence, head)));
            let places =
                places.flat_map(|(sequence, head)| rows([6, 10]).map(move |row| [sequence, head, row]));
            for (number, place) in places.enumerate() {
                assert_eq!((equal.index(side, place), equal.place(side, number)), (number, place));
            }
            assert_eq!(SequenceRows::of([], HEADS, true).all(side), 0);
        }
    }
}
