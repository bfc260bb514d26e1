//! The online softmax: scores of a block become weights, relative to the largest score so far.

use collective::{Accuracy, Elementary, Fast, Fragment, Real};
use ptx::{Builder, Value, Var};

use super::{Kernel, QueryTile};

/// A query as a thread holds it.
pub(super) struct Row<'f> {
    /// The query, relative to the thread's first.
    pub(super) offset: u32,
    /// Its scores in the present block, each with its key, relative to the thread's first.
    scores: Vec<(u32, Var<'f, f32>)>,
    /// Its elements of O.
    out: Vec<Var<'f, f32>>,
    /// The largest score so far.
    most: Var<'f, f32>,
    /// The thread's part of the sum of weights.
    sum: Var<'f, f32>,
}

/// What is known of a query's scores: the largest, and the thread's part of the sum of weights.
#[derive(Clone, Copy)]
pub(super) struct Statistics<'f> {
    most: Value<'f, f32>,
    sum: Value<'f, f32>,
}

/// The queries of a thread.
pub(super) struct Softmax<'f> {
    f: &'f Builder,
    rows: Vec<Row<'f>>,
    /// The thread's first query in its tile, and its first key in a block.
    first: [Value<'f, u32>; 2],
}

/// Combines the four lanes that share a row.
fn across<'f>(
    f: &'f Builder,
    x: Value<'f, f32>,
    of: impl Fn(Value<'f, f32>, Value<'f, f32>) -> Value<'f, f32>,
) -> Value<'f, f32> {
    [1, 2].iter().fold(x, |x, &mask| of(x, f.shuffle_xor(x, mask)))
}

impl<'f> Softmax<'f> {
    /// The queries whose scores and elements of O are in these fragments, which begin at query 0 and key 0.
    pub(super) fn new(f: &'f Builder, scores: &Fragment<'f, f32>, out: &Fragment<'f, f32>) -> Self {
        let pairs = scores.variables(0).into_iter().zip(out.variables(0));
        let row =
            |(scores, out): (collective::RowVariables<'f, f32>, collective::RowVariables<'f, f32>)| Row {
                offset: scores.row,
                scores: scores.elements,
                out: out.elements.into_iter().map(|(_, element)| element).collect(),
                most: f.uninitialised(),
                sum: f.uninitialised(),
            };
        Self { f, rows: pairs.map(row).collect(), first: scores.start() }
    }

    /// Begins a tile.
    pub(super) fn begin(&self) {
        for row in &self.rows {
            row.most.set(f32::NEG_INFINITY);
            row.sum.set(0.0);
        }
    }

    /// Gives scores their final values: those of a block that some query does not see whole are minus infinity
    /// where they are not seen.
    pub(super) fn score(
        &self,
        kernel: &Kernel<'_, 'f>,
        unit: QueryTile<'f>,
        block: Value<'f, u32>,
        masked: bool,
    ) {
        let (changes, masks) = (kernel.scores.changes(), masked && kernel.scores.masks());
        if !changes && !masked {
            return;
        }
        let scope = kernel.scope(unit.head, unit.batch);
        let first_key = (block * kernel.plan.spec.tile[1] + self.first[1]).cast::<i32>();
        let first_row = (unit.row + self.first[0]).cast::<i32>();
        for row in &self.rows {
            let at = first_row + row.offset.cast_signed();
            for &(column, score) in &row.scores {
                let key = first_key + column.cast_signed();
                if changes {
                    let x = score.get() * kernel.parameters.scale;
                    score.set(kernel.scores.score(&scope, [at, key], x));
                }
                if masked {
                    let inside = key.less_than(scope.keys);
                    let seen = if masks { inside & kernel.scores.sees(&scope, at, key) } else { inside };
                    score.set(score.get().where_or(seen, f32::NEG_INFINITY));
                }
            }
        }
    }

    /// Replaces scores by their weights. Returns by row the factor of what was summed before.
    pub(super) fn weigh(&self, to_log2: Value<'f, f32>) -> Vec<Value<'f, f32>> {
        let f = self.f;
        let exp2 = |x: Value<'f, f32>| Fast::of(Elementary::Exp2, x);
        let each = |row: &Row<'f>| {
            let largest = row.scores.iter().map(|(_, score)| score.get()).reduce(Real::max);
            let largest = largest.unwrap_or(f.constant(f32::NEG_INFINITY));
            let before = row.most.get();
            let most = Real::max(before, across(f, largest, Real::max));
            row.most.set(most);
            // A row that has seen no key has weights of zero.
            let base = f.constant(0.0).where_or(most.equals(f32::NEG_INFINITY), most);
            let less = base * to_log2;
            let weights: Vec<_> =
                row.scores.iter().map(|(_, score)| exp2(score.get().mul_add(to_log2, -less))).collect();
            row.scores.iter().zip(&weights).for_each(|((_, score), &weight)| score.set(weight));
            // Exactly 1 if the largest score is the same.
            let kept = exp2((before - base) * to_log2);
            let sum = weights.into_iter().reduce(|a, b| a + b).unwrap_or(f.constant(0.0));
            row.sum.set(row.sum.get().mul_add(kept, sum));
            kept
        };
        self.rows.iter().map(each).collect()
    }

    /// Multiplies the elements of O by the factors of their rows.
    pub(super) fn rescale(&self, factors: &[Value<'f, f32>]) {
        for (row, &factor) in self.rows.iter().zip(factors) {
            row.out.iter().for_each(|out| out.set(out.get() * factor));
        }
    }

    /// The statistics of all rows, before the next tile begins.
    pub(super) fn statistics(&self) -> Vec<Statistics<'f>> {
        self.rows.iter().map(|row| Statistics { most: row.most.get(), sum: row.sum.get() }).collect()
    }

    /// Ends a tile: divides O by the sums of weights, and stores the log-sum-exp.
    pub(super) fn finish(
        &self,
        kernel: &Kernel<'_, 'f>,
        unit: QueryTile<'f>,
        statistics: &[Statistics<'f>],
        thread: Value<'f, u32>,
    ) {
        let f = self.f;
        let super::Parameters { queries, heads, log_sum_exp, to_ln, .. } = kernel.parameters;
        let sums = statistics.iter().map(|row| across(f, row.sum, |a, b| a + b));
        let sums: Vec<_> = sums.collect();
        let inverse = |&sum: &Value<'f, f32>| {
            let inverse = Fast::divide(f.constant(1.0), sum);
            f.constant(0.0).where_or(sum.equals(0.0), inverse)
        };
        self.rescale(&sums.iter().map(inverse).collect::<Vec<_>>());
        let first = unit.row + self.first[0];
        let rows = (unit.batch * heads + unit.head).mul_wide(queries);
        let speaks = (thread % 4).equals(0) & log_sum_exp.differs_from(0);
        f.if_(speaks, || {
            for ((row, &sum), statistics) in self.rows.iter().zip(&sums).zip(statistics) {
                let at = first + row.offset;
                f.if_(at.less_than(queries), || {
                    let value = Fast::ln(sum) + statistics.most * to_ln;
                    let value = f.constant(f32::NEG_INFINITY).where_or(sum.equals(0.0), value);
                    f.store_global(log_sum_exp + (rows + at.cast::<u64>()) * 4, 0, [value]);
                });
            }
        });
    }
}
