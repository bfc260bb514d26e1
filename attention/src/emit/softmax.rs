//! The online softmax: scores of a block become weights, relative to the largest score so far.

use core::f32::consts::{LN_2, LOG2_E};
use core::ops::Range;

use collective::{Accuracy, Consumer, Fast, Format, Fragment, Real};
use ptx::inst::{AluOp, ApproxOp, Vote};
use ptx::{Builder, Value, Var};

use super::halves::Exchange;
use super::{Kernel, QueryTile};
use crate::numbers;
use crate::scores::{AnyScores, DeviceScope};

/// A query as a thread holds it.
pub(super) struct Row<'f> {
    /// The query, relative to the thread's first.
    pub(super) offset: u32,
    /// Its scores in the present block, each with its key, relative to the thread's first.
    scores: Vec<(u32, Var<'f, f32>)>,
    /// Its elements of O.
    out: Vec<Var<'f, f32>>,
    /// The numbers of its head.
    numbers: Vec<Var<'f, f32>>,
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
    /// The exponent of 2 of the largest weight.
    shift: f32,
    /// Whether the largest score is subtracted from scores before they are multiplied: scores of a text may be as large as numbers are.
    subtracts: bool,
    /// With the other consumer that has scores of these queries, if there is one.
    exchange: Option<Exchange<'f>>,
}

/// The two rows of a thread.
pub(super) const BOTH: Range<usize> = 0..2;
pub(super) const FIRST: Range<usize> = 0..1;
pub(super) const SECOND: Range<usize> = 1..2;

/// What weights of a row are relative to.
#[derive(Clone, Copy)]
pub(super) struct Relation<'f> {
    /// What scores are multiplied by to be exponents of 2, and what is then subtracted.
    to_log2: Value<'f, f32>,
    less: Value<'f, f32>,
    /// The score that they are relative to, if it is subtracted first: products of large scores are rounded.
    base: Option<Value<'f, f32>>,
    /// The factor of what was summed before.
    kept: Value<'f, f32>,
}

/// Combines the four lanes that share a row.
fn across<'f>(
    f: &'f Builder,
    x: Value<'f, f32>,
    of: impl Fn(Value<'f, f32>, Value<'f, f32>) -> Value<'f, f32>,
) -> Value<'f, f32> {
    [1, 2].iter().fold(x, |x, &mask| of(x, f.shuffle_xor(x, mask)))
}

/// Results below 2^-126 are zero: no weight needs them, and the instructions that keep them would be a third of
/// the softmax.
pub(crate) fn exp2(x: Value<'_, f32>) -> Value<'_, f32> {
    x.builder().alu(AluOp::ApproxFlush(ApproxOp::Exp2), &[x.operand()])
}

/// Emits a branch that needs weights. The assembler orders a wait for products freely among arithmetic, up to a branch: without one it
/// waits first, and computes exponentials when nothing is multiplied. It does not know that no sum of weights is negative.
pub(crate) fn settle<'f>(weights: impl Iterator<Item = Value<'f, f32>>) {
    if let Some(sum) = weights.reduce(|a, b| a + b) {
        let f = sum.builder();
        f.if_(f.vote(Vote::Any, sum.less_than(0.0)), || {
            // The assembler adds this wait, and reports it, where a program ends before its products.
            f.wgmma_wait(0);
            f.trap();
        });
    }
}

/// The largest exponent of 2 of a weight, if sums are rescaled lazily, and of every 8-bit weight: 2^8 of a largest number of 448.
const LAZY: f32 = 8.0;

impl<'f> Softmax<'f> {
    /// The queries whose scores and elements of O are in these fragments, which begin at query 0 and key 0.
    pub(super) fn new(
        f: &'f Builder,
        (format, of): (Format, &dyn AnyScores),
        [scores, out]: [&Fragment<'f, f32>; 2],
        exchange: Option<Exchange<'f>>,
    ) -> Self {
        let pairs = scores.variables(0).into_iter().zip(out.variables(0));
        let row =
            |(scores, out): (collective::RowVariables<'f, f32>, collective::RowVariables<'f, f32>)| Row {
                offset: scores.row,
                scores: scores.elements,
                out: out.elements.into_iter().map(|(_, element)| element).collect(),
                numbers: of.heads().into_iter().map(|_| f.uninitialised()).collect(),
                most: f.uninitialised(),
                sum: f.uninitialised(),
            };
        let shift = if format.bits() == 8 { LAZY } else { 0.0 };
        let subtracts = of.are_large();
        Self { f, rows: pairs.map(row).collect(), first: scores.start(), shift, subtracts, exchange }
    }

    /// An exponent, less that of the largest weight.
    fn shifted(&self, exponent: Value<'f, f32>, unit: f32) -> Value<'f, f32> {
        if self.shift == 0.0 { exponent } else { exponent - self.shift * unit }
    }

    /// Begins a tile.
    pub(super) fn begin(&self, kernel: &Kernel<'_, 'f>, unit: QueryTile<'f>) {
        for row in &self.rows {
            if !row.numbers.is_empty() {
                let [_, head] = kernel.query(&unit, self.first[0] + row.offset);
                let numbers = numbers::of_head(kernel.scores, [unit.batch, head]);
                row.numbers.iter().zip(numbers).for_each(|(of, number)| of.set(number));
            }
            row.most.set(f32::NEG_INFINITY);
            row.sum.set(0.0);
        }
    }

    /// As `score`, for a block of which it is not known whether every query sees it whole.
    pub(super) fn score_any(&self, kernel: &Kernel<'_, 'f>, unit: QueryTile<'f>, block: Value<'f, u32>) {
        let [begin, end] = unit.whole;
        let whole = block.at_least(begin) & block.less_than(end);
        if kernel.scores.changes() {
            self.score(kernel, unit, block, true);
        } else {
            self.f.if_(!whole, || self.score(kernel, unit, block, true));
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
        let scale = kernel.scale(&unit);
        let first_key = (block * kernel.plan.spec.tile[1] + self.first[1]).cast::<i32>();
        for row in &self.rows {
            let [at, head] = kernel.query(&unit, self.first[0] + row.offset);
            let (scope, at) = (kernel.scope(&unit, head), at.cast::<i32>());
            let numbers = row.numbers.iter().map(|number| number.get());
            let mut reals: Vec<_> = scope.reals.iter().copied().chain(numbers).collect();
            if changes {
                reals.append(&mut kernel.scores.per_head(&DeviceScope { reals: &reals, ..scope }));
            }
            let with_reals = DeviceScope { reals: &reals, ..scope };
            // The keys that the query sees, relative to the thread's first, if they are a range.
            let range =
                if masks { kernel.scores.range(&scope, at) } else { Some([self.f.constant(0), scope.keys]) };
            let range = range.filter(|_| masked).map(|[begin, end]| {
                let begin = (begin.known_bits() != Some(0)).then(|| begin - first_key);
                (begin, end.min(scope.keys) - first_key)
            });
            for &(column, score) in &row.scores {
                let column = column.cast_signed();
                let key = first_key + column;
                if changes {
                    let x = score.get() * scale;
                    score.set(kernel.scores.score(&with_reals, [at, key], x));
                }
                if masked {
                    let seen = match range {
                        Some((begin, end)) => {
                            let before = end.more_than(column);
                            begin.map_or(before, |begin| before & begin.at_most(column))
                        }
                        None => key.less_than(scope.keys) & kernel.scores.sees(&scope, at, key),
                    };
                    score.set(score.get().where_or(seen, f32::NEG_INFINITY));
                }
            }
        }
    }

    /// What the weights of a block are relative to, by row: the largest score so far.
    ///
    /// If it is lazy, weights stay relative to an older largest score while they are at most 2^8.
    pub(super) fn relate(&self, to_log2: Value<'f, f32>, lazy: bool) -> Vec<Relation<'f>> {
        let f = self.f;
        let each = |row: &Row<'f>| {
            let largest = row.scores.iter().map(|(_, score)| score.get()).reduce(Real::max);
            let largest = largest.unwrap_or(f.constant(f32::NEG_INFINITY));
            let before = row.most.get();
            let most = Real::max(before, across(f, largest, Real::max));
            let most =
                if lazy { most.where_or(((most - before) * to_log2).more_than(LAZY), before) } else { most };
            self.related(row, [before, most], to_log2)
        };
        self.rows.iter().map(each).collect()
    }

    /// The weights of a row, which were relative to the first score, are relative to the second one from now on.
    fn related(
        &self,
        row: &Row<'f>,
        [before, most]: [Value<'f, f32>; 2],
        to_log2: Value<'f, f32>,
    ) -> Relation<'f> {
        row.most.set(most);
        // A row that has seen no key has weights of zero.
        let base = self.f.constant(0.0).where_or(most.equals(f32::NEG_INFINITY), most);
        // Exactly 1 if the largest score is the same.
        let kept = exp2((before - base) * to_log2);
        let first = self.subtracts.then_some(base);
        let less = if first.is_some() { self.f.constant(0.0) } else { base * to_log2 };
        Relation { to_log2, less: self.shifted(less, 1.0), base: first, kept }
    }

    /// What the weights of each row are relative to.
    pub(super) fn bases(&self) -> Vec<Value<'f, f32>> {
        self.rows.iter().map(|row| row.most.get()).collect()
    }

    /// What was summed becomes relative to these scores. O has still to be rescaled to the same ones.
    pub(super) fn follow(&self, to_log2: Value<'f, f32>, bases: [Value<'f, f32>; 2]) -> Vec<Relation<'f>> {
        let each = |(row, base): (&Row<'f>, Value<'f, f32>)| {
            let relation = self.related(row, [row.most.get(), base], to_log2);
            row.sum.set(row.sum.get() * relation.kept);
            relation
        };
        self.rows.iter().zip(bases).map(each).collect()
    }

    /// Replaces the scores of these rows by weights.
    pub(super) fn weigh(&self, relations: &[Relation<'f>], rows: Range<usize>) {
        for (row, &Relation { to_log2, less, base, kept }) in
            self.rows.iter().zip(relations).take(rows.end).skip(rows.start)
        {
            let weight = |(_, score): &(u32, Var<'f, f32>)| match base {
                Some(base) => exp2((score.get() - base).mul_add(to_log2, -less)),
                None => exp2(score.get().mul_add(to_log2, -less)),
            };
            let weights: Vec<_> = row.scores.iter().map(weight).collect();
            row.scores.iter().zip(&weights).for_each(|((_, score), &weight)| score.set(weight));
            let sum = weights.into_iter().reduce(|a, b| a + b).unwrap_or(self.f.constant(0.0));
            row.sum.set(row.sum.get().mul_add(kept, sum));
        }
    }

    /// The weights of the first row are computed before what follows.
    pub(super) fn settle(&self) {
        settle(self.rows.iter().take(1).map(|row| row.sum.get()));
    }

    /// Multiplies the elements of O by the factors of their rows.
    pub(super) fn rescale(&self, factors: &[Value<'f, f32>]) {
        for (row, &factor) in self.rows.iter().zip(factors) {
            row.out.iter().for_each(|out| out.set(out.get() * factor));
        }
    }

    /// The same by what is kept of older sums, if one of a warp's factors is not 1.
    pub(super) fn rescale_kept(&self, relations: &[Relation<'f>]) {
        if let Some(differs) = self.differ(relations) {
            self.f.if_(self.f.vote(Vote::Any, differs), || self.rescale_by(relations));
        }
    }

    /// Whether O of one of the thread's rows is to be rescaled.
    pub(super) fn differ(&self, relations: &[Relation<'f>]) -> Option<Value<'f, bool>> {
        relations.iter().map(|of| of.kept.differs_from(1.0)).reduce(|a, b| a | b)
    }

    /// Multiplies the elements of O by what is kept of older sums.
    pub(super) fn rescale_by(&self, relations: &[Relation<'f>]) {
        self.rescale(&relations.iter().map(|of| of.kept).collect::<Vec<_>>());
    }

    /// The statistics of all rows, before the next tile begins.
    pub(super) fn statistics(&self) -> Vec<Statistics<'f>> {
        let sums = || self.rows.iter().map(|row| row.sum.get()).collect::<Vec<_>>();
        let of_both = self.exchange.as_ref().map(|with| with.added(&sums()));
        let of_row = |(i, row): (usize, &Row<'f>)| {
            let most = row.most.get();
            Statistics { most, sum: of_both.as_ref().map_or_else(|| row.sum.get(), |of_both| of_both[i]) }
        };
        self.rows.iter().enumerate().map(of_row).collect()
    }

    /// Ends a tile: divides O by the sums of weights, and stores the log-sum-exp.
    pub(super) fn finish(
        &self,
        kernel: &Kernel<'_, 'f>,
        unit: QueryTile<'f>,
        statistics: &[Statistics<'f>],
        consumer: Consumer<'f>,
    ) {
        let f = self.f;
        let (parts, log_sum_exp) = (kernel.parts(), f.parameter::<u64>("log_sum_exp"));
        let sinks = kernel.plan.spec.sinks.then(|| f.parameter::<u64>("sinks"));
        let [to_log2, to_ln] = kernel.to_exponents(&unit);
        let places = self.rows.iter().map(|row| kernel.query(&unit, self.first[0] + row.offset));
        let places: Vec<_> = places.collect();
        let total = |(row, &[_, head]): (&Statistics<'f>, &[Value<'f, u32>; 2])| {
            let sum = across(f, row.sum, |a, b| a + b);
            let Some(sinks) = sinks else {
                return Total { sum, kept: f.constant(1.0), most: self.shifted(row.most * to_ln, LN_2) };
            };
            // In units of the exponent of 2, as the sink.
            let (sink, before) = (
                f.load_global::<f32>(sinks + head.mul_wide(4u32), 0) * LOG2_E,
                self.shifted(row.most * to_log2, 1.0),
            );
            // The sink is one of the first part's scores.
            let none = f.constant(f32::NEG_INFINITY);
            let sink = unit.part.map_or(sink, |part| sink.where_or(part.number.equals(0), none));
            let most = Real::max(before, sink);
            let base = f.constant(0.0).where_or(most.equals(f32::NEG_INFINITY), most);
            let kept = exp2(before - base);
            Total { sum: sum.mul_add(kept, exp2(sink - base)), kept, most: base * LN_2 }
        };
        let totals: Vec<_> = statistics.iter().zip(&places).map(total).collect();
        let factor = |total: &Total<'f>| {
            let inverse = Fast::divide(f.constant(1.0), total.sum);
            let inverse = f.constant(0.0).where_or(total.sum.equals(0.0), inverse);
            let factor = if sinks.is_some() { inverse * total.kept } else { inverse };
            unit.factors.map_or(factor, |[_, v]| factor * v.bits_as::<f32>())
        };
        self.rescale(&totals.iter().map(factor).collect::<Vec<_>>());
        let speaks = (consumer.thread % 4).equals(0);
        // One consumer speaks for both.
        let speaks = if self.exchange.is_some() { speaks & consumer.warpgroup.equals(0) } else { speaks };
        let speaks = if unit.part.is_some() { speaks } else { speaks & log_sum_exp.differs_from(0) };
        f.if_(speaks, || {
            for ((row, &[at, head]), &Total { sum, most: base, .. }) in
                self.rows.iter().zip(&places).zip(&totals)
            {
                f.if_(at.less_than(unit.lengths[0]), || {
                    let value = Fast::ln(sum) + base;
                    let value = f.constant(f32::NEG_INFINITY).where_or(sum.equals(0.0), value);
                    if let Some(of) = kernel.plan.cluster {
                        return kernel.leave_sum(of, self.first[0] + row.offset, value);
                    }
                    let before = kernel.rows_before(&unit, head);
                    let (sums, before) = match (unit.part, parts) {
                        (Some(part), Some(parts)) => {
                            (parts.sums, before + part.number.cast::<u64>() * parts.rows)
                        }
                        _ => (log_sum_exp, before),
                    };
                    f.store_global(sums + (before + at.cast::<u64>()) * 4, 0, [value]);
                });
            }
        });
    }
}

/// A row's sum of weights with its sink, what its sum without the sink was multiplied by, and the score that weights
/// are relative to, as a natural exponent.
struct Total<'f> {
    sum: Value<'f, f32>,
    kept: Value<'f, f32>,
    most: Value<'f, f32>,
}
