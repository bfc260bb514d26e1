//! Merging the parts of keys: with `s_p` the log-sum-exp of part `p`, and `s` that of all, `O = sum exp(s_p - s) * O_p`.

use collective::{Accuracy, Consumer, Fast, Real};
use ptx::{AtomicOp, AtomicSem, Builder, Location, Scope, Value, Var};

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

/// Elements of a lane, of parts that are loaded at the same time.
const TOGETHER: u32 = 64;
/// Most parts that are.
const MOST_TOGETHER: u32 = 8;

impl<'f> Parts<'f> {
    pub(super) fn declare(f: &'f Builder) -> Self {
        let (most, rows) = (f.param("parts"), f.number("part_rows"));
        let [counters, sums, outputs] =
            ["part_counters", "part_sums", "part_outputs"].map(|name| f.param(name));
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

    /// The log-sum-exp of a row of a part.
    fn sum(&self, part: Value<'f, u32>, row: Value<'f, u64>) -> Value<'f, f32> {
        part.builder().load_global(self.sums + (part.cast::<u64>() * self.rows + row) * 4, 0)
    }
}

impl<'f> Kernel<'_, 'f> {
    /// Rows of O, in the order of the log-sum-exp, before the first query of a head of a tile's sequence.
    pub(super) fn rows_before(&self, unit: &QueryTile<'f>, head: Value<'f, u32>) -> Value<'f, u64> {
        let super::Parameters { most, packed, heads, .. } = self.parameters;
        match packed {
            None => (unit.batch * (heads * self.packed()) + head).mul_wide(most[0]),
            Some(lengths) => head.mul_wide(lengths.queries.rows) + unit.before[0].cast::<u64>(),
        }
    }

    /// Emitted for a consumer warpgroup that has stored a part of a tile. If all others of the tile are there, it merges
    /// them: each warp merges some of its rows.
    pub(super) fn merge(&self, unit: QueryTile<'f>, consumer: Consumer<'f>) {
        let (Some(part), Some(parts)) = (unit.part, self.parameters.parts) else { return };
        let (f, plan) = (self.f, self.plan);
        let Consumer { warpgroup, thread, .. } = consumer;
        let (warp, lane) = (thread / 32, thread % 32);
        let counter = (part.counter * plan.cta.consumers + warpgroup) * 4 + warp;
        let counter = Location::global(parts.counters + counter.mul_wide(4u32), 0);
        self.meet(consumer);
        let ready = f.variable(0u32);
        f.if_(lane.equals(0), || {
            let order = (AtomicSem::AcquireRelease, Scope::Gpu);
            ready.set(f.atomic(AtomicOp::Add, counter, f.constant(1u32), order));
        });
        f.warp_sync();
        let ready = f.shuffle(ready.get(), 0);
        f.if_(ready.equals(part.count - 1), || {
            f.if_(lane.equals(0), || {
                // Zero for the next launch.
                f.store_ordered(ptx::StoreOrder::Relaxed(Scope::Gpu), counter, [f.constant(0u32)]);
            });
            let left = (unit.lengths[0] - unit.row) * plan.spec.pack;
            // All warps of the consumers that have the same rows merge some of these.
            let (first, own, warps) = match plan.latent {
                Some(_) => (f.constant(0), warpgroup * 4 + warp, plan.cta.consumers * 4),
                None => (warpgroup * 64, warp, 4),
            };
            let end = left.max(first).min(first + 64);
            let row = f.variable(first + own);
            f.while_(
                || row.get().less_than(end),
                || {
                    let [at, head] = self.query(&unit, row.get());
                    f.if_(at.less_than(unit.lengths[0]), || {
                        self.merge_row(&unit, (part, parts), lane, [at, head]);
                    });
                    row.set(row.get() + warps);
                },
            );
        });
    }

    /// Emitted for a warp: merges the parts of a row.
    fn merge_row(
        &self,
        unit: &QueryTile<'f>,
        (part, parts): (Part<'f>, Parts<'f>),
        lane: Value<'f, u32>,
        [at, head]: [Value<'f, u32>; 2],
    ) {
        let (f, AttentionSpec { output, head: [_, dv], .. }) = (self.f, self.plan.spec);
        let line = self.rows_before(unit, head) + at.cast::<u64>();
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
        let values: Vec<Var<'f, f32>> = (0..dv / 32).map(|_| f.variable(0.0f32)).collect();
        let (first, together) = (f.variable(0u32), (TOGETHER / (dv / 32)).min(MOST_TOGETHER));
        f.while_(
            || first.get().less_than(part.count),
            || {
                let load = |i: u32| {
                    let number = first.get() + i;
                    // After the last part it is loaded again, and has no weight.
                    let (there, number) = (number.less_than(part.count), number.min(part.count - 1));
                    let weight = exp2((parts.sum(number, line) - base) * core::f32::consts::LOG2_E);
                    let from = parts.output(number, line, self.plan) + lane.mul_wide(4u32);
                    let elements: Vec<Value<'f, f32>> =
                        (0..dv.cast_signed() / 32).map(|column| f.load_global(from, column * 128)).collect();
                    (weight.where_or(there, f.constant(0.0)), elements)
                };
                let loaded: Vec<_> = (0..together).map(load).collect();
                for (weight, elements) in loaded {
                    total.set(total.get() + weight);
                    for (value, element) in values.iter().zip(elements) {
                        value.set(element.mul_add(weight, value.get()));
                    }
                }
                first.set(first.get() + together);
            },
        );
        let (none, total) = (total.get().equals(0.0), total.get());
        let factor = f.constant(0.0).where_or(none, Fast::divide(f.constant(1.0), total));
        let Output::Direct { address, strides: [stride, of_head, of_sequence], .. } = self.parameters.output
        else {
            return f.refuse("parts are merged into an O that is stored directly");
        };
        let before = match self.parameters.packed {
            None => unit.batch.cast::<u64>() * of_sequence,
            Some(_) => unit.before[0].cast::<u64>() * stride,
        };
        let row = address + before + head.cast::<u64>() * of_head + at.cast::<u64>() * stride;
        let bytes = output.bytes();
        let target = row + lane.mul_wide(bytes);
        for (value, column) in values.iter().zip((0..).step_by(32 * bytes as usize)) {
            let value = value.get() * factor;
            let [element, _] = output.unpack(f, output.pack(f, [value, value]));
            element.store_global(target, column);
        }
        let log_sum_exp = self.parameters.log_sum_exp;
        f.if_(lane.equals(0) & log_sum_exp.differs_from(0), || {
            let value = Fast::ln(total) + base;
            let value = f.constant(f32::NEG_INFINITY).where_or(none, value);
            f.store_global(log_sum_exp + line * 4, 0, [value]);
        });
    }
}
