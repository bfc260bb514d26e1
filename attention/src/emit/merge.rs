//! Merging the parts of keys: with `s_p` the log-sum-exp of part `p`, and `s` that of all, `O = sum exp(s_p - s) * O_p`.
//!
//! A CTA that has finished its parts merges its share of all tiles: CTAs share a tile if there are fewer tiles than CTAs. It waits until
//! all parts of the tile are there.
//!
//! No CTA waits for ever: it waits after its last part only, so those for whose parts it waits never wait for it, and all run, since a
//! launch has at most as many CTAs as are resident at once ([`launch`](kernel::Kernel::launch)).

use collective::{Accuracy, Consumer, Fast, Real};
use ptx::{AtomicOp, AtomicSem, LoadOrder, Scope, Special, Value, Var};

use super::softmax::exp2;
use super::{Kernel, Output, QueryTile};
use crate::parts::{Part, Parts};
use crate::spec::AttentionSpec;

/// Parts that are loaded at the same time.
pub(crate) const TOGETHER: u32 = 16;

/// Neighbouring columns of O that a lane merges. The lanes of a warp have a piece of a row.
pub(crate) const fn columns_of_lane(dv: u32) -> u32 {
    let columns = dv / 32;
    let two = if columns.is_multiple_of(2) { 2 } else { 1 };
    if columns.is_multiple_of(4) { 4 } else { two }
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
        let Output::Direct(o, _) = self.output() else {
            return f.refuse("parts are merged into an O that is stored directly");
        };
        let row = self.row_of_o(o, unit, [at, head]);
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
