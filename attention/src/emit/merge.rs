//! Merging the parts of keys: with `s_p` the log-sum-exp of part `p`, and `s` that of all, `O = sum exp(s_p - s) * O_p`.
//!
//! A CTA that has finished its parts merges its share of all tiles: CTAs share a tile if there are fewer tiles than CTAs. It waits until
//! all parts of the tile are there.
//!
//! No CTA waits for ever: it waits after its last part only, so those for whose parts it waits never wait for it, and all run, since a
//! launch has at most as many CTAs as are resident at once ([`launch`](kernel::Kernel::launch)).

use collective::{Accuracy, Consumer, Fast, Real};
use ptx::{AtomicOp, AtomicSem, Builder, LoadOrder, Location, Scope, Special, Value, Var};

use super::softmax::exp2;
use super::{Kernel, Output, QueryTile};
use crate::plan::AttentionPlan;
use crate::spec::{self, AttentionSpec};

/// The parameters of parts.
#[derive(Clone, Copy)]
pub(super) struct Parts<'f> {
    /// Most parts of a tile.
    pub(super) most: Value<'f, u32>,
    /// Rows of O.
    pub(super) rows: Value<'f, u64>,
    /// Addresses of the counters, and, of all parts, of the log-sum-exps and of O.
    counters: Value<'f, u64>,
    pub(super) sums: Value<'f, u64>,
    outputs: Value<'f, u64>,
}

/// A part of a tile's keys.
#[derive(Clone, Copy)]
pub(super) struct Part<'f> {
    /// Its number.
    pub(super) number: Value<'f, u32>,
    /// Parts of the tile, at least one.
    pub(super) count: Value<'f, u32>,
    /// The number of the tile, apart from parts.
    pub(super) counter: Value<'f, u32>,
}

impl<'f> Part<'f> {
    pub(super) fn numbers(&self) -> [Value<'f, u32>; 3] {
        [self.number, self.count, self.counter]
    }

    pub(super) fn of([number, count, counter]: [Value<'f, u32>; 3]) -> Self {
        Self { number, count, counter }
    }
}

/// Parts that are loaded at the same time.
pub(crate) const TOGETHER: u32 = 16;

/// Neighbouring columns of O that a lane merges. The lanes of a warp have a piece of a row.
pub(crate) const fn columns_of_lane(dv: u32) -> u32 {
    let columns = dv / 32;
    let two = if columns.is_multiple_of(2) { 2 } else { 1 };
    if columns.is_multiple_of(4) { 4 } else { two }
}

impl<'f> Parts<'f> {
    pub(super) fn of(f: &'f Builder) -> Self {
        let (most, rows) = (f.parameter("parts"), f.parameter("part_rows"));
        let [counters, sums, outputs] =
            ["part_counters", "part_sums", "part_outputs"].map(|name| f.parameter(name));
        Self { most, rows, counters, sums, outputs }
    }

    /// The blocks of a part, of all blocks of a tile, and how many parts there are. The division depends on these blocks
    /// alone.
    pub(super) fn of_tile(
        &self,
        part: Part<'f>,
        [begin, end]: [Value<'f, u32>; 2],
        spec: &AttentionSpec,
    ) -> ([Value<'f, u32>; 2], Part<'f>) {
        // Parts of a fixed number of keys begin at multiples of it.
        let (first, each) = match spec.parts {
            spec::Parts::Keys(keys) => {
                let each = keys / spec.tile[1];
                (begin / each * each, begin.builder().constant(each))
            }
            spec::Parts::One | spec::Parts::Count(_) => (begin, (end - begin + self.most - 1) / self.most),
        };
        let count = (end - first + each - 1) / each;
        // A sequence may be longer than the launch says. Nobody computes, or waits for, more parts than there are.
        let count = if matches!(spec.parts, spec::Parts::Keys(_)) { count.min(self.most) } else { count };
        let own = (first + part.number * each).min(end);
        let blocks = [own.max(begin), (own + each).min(end)];
        (blocks, Part { count, ..part })
    }

    /// The address of a row of a part's O.
    pub(super) fn output(
        &self,
        part: Value<'f, u32>,
        row: Value<'f, u64>,
        plan: &AttentionPlan,
    ) -> Value<'f, u64> {
        self.outputs + (part.cast::<u64>() * self.rows + row) * (u64::from(plan.spec.head[1]) * 4)
    }

    /// The counter of a tile. It counts the parts that are there, for each of the consumers that divide rows, and after these the warps
    /// that merge them. It is zero before and after a launch.
    fn counter(&self, part: Part<'f>) -> Location {
        Location::global(self.counters + part.counter.mul_wide(4u32), 0)
    }

    /// The log-sum-exp of a row of a part.
    fn sum(&self, part: Value<'f, u32>, row: Value<'f, u64>) -> Value<'f, f32> {
        part.builder().load_global(self.sums + (part.cast::<u64>() * self.rows + row) * 4, 0)
    }
}

impl<'f> Kernel<'_, 'f> {
    /// Rows of O, in the order of the log-sum-exp, before the first query of a head of a tile's sequence.
    pub(super) fn rows_before(&self, unit: &QueryTile<'f>, head: Value<'f, u32>) -> Value<'f, u64> {
        match self.lengths() {
            None => (unit.batch * (self.number("heads") * self.packed()) + head).mul_wide(self.most()[0]),
            Some(lengths) => head.mul_wide(lengths.queries.rows) + unit.before[0].cast::<u64>(),
        }
    }

    /// Emitted for a consumer warpgroup that has stored a part of a tile: it says so, with all others that have the same rows.
    pub(super) fn arrive(&self, unit: QueryTile<'f>, consumer: Consumer<'f>) {
        let (Some(part), Some(parts)) = (unit.part, self.parts()) else { return };
        self.meet(consumer);
        let speaks = consumer.thread.equals(0);
        let speaks = if self.plan.latent.is_some() { speaks & consumer.warpgroup.equals(0) } else { speaks };
        self.f.if_(speaks, || {
            let order = (AtomicSem::Release, Scope::Gpu);
            self.f.reduce(AtomicOp::Add, parts.counter(part), [self.f.constant(1u32)], order);
        });
    }

    /// Emitted for a consumer warpgroup that has finished its tiles: merges the CTA's share of all tiles. Warps have pieces of rows.
    pub(super) fn merge(&self, consumer: Consumer<'f>) {
        let Some(parts) = self.parts() else { return };
        let (f, spec, consumers) = (self.f, self.plan.spec, self.plan.cta.consumers);
        let [tiles, across] = ["tiles", "across"].map(|name| self.number(name));
        let (cta, ctas) = (f.special(Special::CtaX), f.special(Special::GridX));
        let all = tiles / parts.most;
        // CTAs that share a tile. Each of their warps has every `step`-th piece, and so has each CTA about as many.
        let sharing = (ctas / all).max(1);
        let (warp, lane) = (consumer.warpgroup * 4 + consumer.thread / 32, consumer.thread % 32);
        let (first, step) = (warp * sharing + cta % sharing, sharing * (consumers * 4));
        let tile = f.variable(cta / sharing);
        let of_row = spec.head[1] / (32 * columns_of_lane(spec.head[1]));
        let arrivals = if self.plan.rows_are_divided() { consumers } else { 1 };
        f.while_(
            || tile.get().less_than(all),
            || {
                let part = Part { number: f.constant(0), count: f.constant(0), counter: tile.get() };
                let unit = self.tile_of([tile.get() % across, tile.get() / across], Some(part));
                let (part, exists) = (unit.part.unwrap_or(part), unit.exists.unwrap_or(f.constant(true)));
                let queries = (unit.lengths[0] - unit.row).min(self.queries_per_tile());
                let pieces = queries * (spec.pack * of_row);
                f.if_(exists & first.less_than(pieces), || {
                    f.if_(lane.equals(0), || {
                        let (counter, arrived) = (parts.counter(part), part.count * arrivals);
                        let waits = || {
                            let [count] = f.load_ordered::<u32, 1>(LoadOrder::Acquire(Scope::Gpu), counter);
                            count.less_than(arrived)
                        };
                        f.while_(waits, || {});
                        // The last warp that has waited wraps the counter to zero, for the next launch.
                        let last = arrived + pieces.min(step) - 1;
                        f.atomic(AtomicOp::Inc, counter, last, (AtomicSem::Relaxed, Scope::Gpu));
                    });
                    f.warp_sync();
                    let piece = f.variable(first);
                    f.while_(
                        || piece.get().less_than(pieces),
                        || {
                            let [at, head] = self.query(&unit, piece.get() / of_row);
                            f.if_(at.less_than(unit.lengths[0]), || {
                                let of = (lane, piece.get() % of_row);
                                self.merge_piece(&unit, (part, parts), of, [at, head]);
                            });
                            piece.set(piece.get() + step);
                        },
                    );
                });
                tile.set(tile.get() + ctas / sharing);
            },
        );
    }

    /// Emitted for a warp: merges the parts of a piece of a row.
    fn merge_piece(
        &self,
        unit: &QueryTile<'f>,
        (part, parts): (Part<'f>, Parts<'f>),
        (lane, piece): (Value<'f, u32>, Value<'f, u32>),
        [at, head]: [Value<'f, u32>; 2],
    ) {
        let (f, AttentionSpec { output, head: [_, dv], .. }) = (self.f, self.plan.spec);
        let line = self.rows_before(unit, head) + at.cast::<u64>();
        let own = columns_of_lane(dv);
        let column = (piece * 32 + lane) * own;
        // Each lane has the largest of some parts.
        let (most, next) = (f.variable(f32::NEG_INFINITY), f.variable(lane));
        f.while_(
            || next.get().less_than(part.count),
            || {
                most.set(Real::max(most.get(), parts.sum(next.get(), line)));
                next.set(next.get() + 32);
            },
        );
        let most = [1, 2, 4, 8, 16]
            .into_iter()
            .fold(most.get(), |most, mask| Real::max(most, f.shuffle_xor(most, mask)));
        let base = f.constant(0.0).where_or(most.equals(f32::NEG_INFINITY), most);
        let total = f.variable(0.0f32);
        let values: Vec<Var<'f, f32>> = (0..own).map(|_| f.variable(0.0f32)).collect();
        let first = f.variable(0u32);
        f.while_(
            || first.get().less_than(part.count),
            || {
                let load = |i: u32| {
                    let number = first.get() + i;
                    // After the last part it is loaded again, and has no weight.
                    let (there, number) = (number.less_than(part.count), number.min(part.count - 1));
                    let weight = exp2((parts.sum(number, line) - base) * core::f32::consts::LOG2_E);
                    let from = parts.output(number, line, self.plan) + column.mul_wide(4u32);
                    let elements: Vec<Value<'f, f32>> = match own {
                        4 => f.load_global_vector::<f32, 4>(from, 0).into(),
                        2 => f.load_global_vector::<f32, 2>(from, 0).into(),
                        _ => vec![f.load_global(from, 0)],
                    };
                    (weight.where_or(there, f.constant(0.0)), elements)
                };
                let loaded: Vec<_> = (0..TOGETHER).map(load).collect();
                for (weight, elements) in loaded {
                    total.set(total.get() + weight);
                    for (value, element) in values.iter().zip(elements) {
                        value.set(element.mul_add(weight, value.get()));
                    }
                }
                first.set(first.get() + TOGETHER);
            },
        );
        let (none, total) = (total.get().equals(0.0), total.get());
        let factor = f.constant(0.0).where_or(none, Fast::divide(f.constant(1.0), total));
        let Output::Direct { address, strides: [stride, of_head, of_sequence], .. } = self.output() else {
            return f.refuse("parts are merged into an O that is stored directly");
        };
        let before = match self.lengths() {
            None => unit.batch.cast::<u64>() * of_sequence,
            Some(_) => unit.before[0].cast::<u64>() * stride,
        };
        let row = address + before + head.cast::<u64>() * of_head + at.cast::<u64>() * stride;
        let bytes = output.bytes();
        let target = row + column.mul_wide(bytes);
        for (value, column) in values.iter().zip((0..).step_by(bytes as usize)) {
            let value = value.get() * factor;
            let [element, _] = output.unpack(f, output.pack(f, [value, value]));
            element.store_global(target, column);
        }
        let log_sum_exp = f.parameter::<u64>("log_sum_exp");
        f.if_((piece * 32 + lane).equals(0) & log_sum_exp.differs_from(0), || {
            let value = Fast::ln(total) + base;
            let value = f.constant(f32::NEG_INFINITY).where_or(none, value);
            f.store_global(log_sum_exp + line * 4, 0, [value]);
        });
    }
}
