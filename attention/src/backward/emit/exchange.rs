//! How the CTAs of a cluster, which share the queries of a block of keys, add up their dK and dV.

use collective::skeleton;
use collective::{ClusterFours, Consumer, CtaPlan, store_fours};
use ptx::{ProxySpace, Special, Value};

use super::Kernel;
use super::consumer::{Gradient, Slab};
use crate::backward::plan::ExchangePlan;
use crate::emit::slab;

impl<'f> Kernel<'_, 'f> {
    /// Bytes of a consumer's sums of dK (0) or dV (1).
    pub(super) fn own_bytes(&self, i: usize) -> u32 {
        64 * self.plan.multiplied[i] * 4
    }

    /// Emitted for a consumer: passes its sums on, and stores those of the cluster. Each CTA adds up some slabs of columns, in the order of the
    /// CTAs. No consumer of the CTA reads operands any more.
    pub(super) fn store_sums(
        &self,
        consumer: Consumer<'f>,
        gradients: &[Gradient<'_, 'f>],
        exchange: ExchangePlan,
    ) {
        let Self { f, plan, shared, .. } = *self;
        let own =
            |i: usize| shared + exchange.sums[i] + consumer.thread * 16 + consumer.part * self.own_bytes(i);
        for &(product, _, i) in gradients {
            let all: Vec<_> = product.accumulators().iter().flatten().copied().collect();
            store_fours(f, own(i), &all);
        }
        skeleton::meet(f, false);
        let [row_bytes, columns] = plan.tiles.output_slab(&plan.spec);
        let slabs = gradients
            .iter()
            .flat_map(|&(_, _, i)| (0..plan.tiles.output_slabs(&plan.spec, i)).map(move |slab| (i, slab)));
        let slabs: Vec<_> = slabs.collect();
        let rank = f.special(Special::ClusterRank);
        for of_rank in 0..plan.spec.split {
            let mine: Vec<_> =
                slabs.iter().filter(|&&(i, slab)| exchange.owner(plan, i, slab)[0] == of_rank).collect();
            if mine.is_empty() {
                continue;
            }
            f.if_(rank.equals(of_rank), || {
                let place = |&&(gradient, slab): &&(usize, u32)| {
                    let [_, number] = exchange.owner(plan, gradient, slab);
                    let from = shared + (exchange.staged[gradient] + number * plan.spec.tile[1] * row_bytes);
                    Slab { gradient, slab, from }
                };
                let mine: Vec<_> = mine.iter().map(place).collect();
                for of in &mine {
                    let sums = ClusterFours::new(f, own(of.gradient), plan.spec.split);
                    let first = of.slab * columns;
                    let count = columns.min(plan.multiplied[of.gradient] - first);
                    self.stage_sums(consumer, of, &sums.sums(first / 8, count / 8));
                }
                f.fence_proxy_async(ProxySpace::Shared);
                f.barrier_sync(CtaPlan::consumer_barrier(consumer.warpgroup), 128);
                self.store_slabs(consumer, &mine, true);
            });
        }
    }

    /// Writes the consumer's rows of a slab to where it is stored from: of each eight columns, a thread has two of two rows.
    fn stage_sums(&self, consumer: Consumer<'f>, of: &Slab<'f>, sums: &[[Value<'f, f32>; 4]]) {
        let Self { f, plan, .. } = *self;
        let (staged, _) = slab(&plan.tiles.outputs[0], consumer.thread);
        let scale = (of.gradient == 0).then(|| f.parameter::<f32>("scale"));
        let scaled = |value: Value<'f, f32>| scale.map_or(value, |scale| value * scale);
        let row = |first: usize| {
            let pair = |four: &[Value<'f, f32>; 4]| [four[first], four[first + 1]].map(scaled);
            sums.iter().map(|four| plan.spec.format.pack(f, pair(four))).collect::<Vec<_>>()
        };
        self.fill(consumer, &staged, &plan.tiles.outputs[of.gradient], of.from, &[row(0), row(2)]);
    }
}
