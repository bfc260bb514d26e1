//! How the CTAs of a cluster, which share the queries of a block of keys, add up their dK and dV.

use collective::Consumer;
use ptx::{ProxySpace, Special, Value};

use super::Kernel;
use super::consumer::{Gradient, Slab, store_fours};
use crate::backward::plan::ExchangePlan;
use crate::emit::slab;

impl<'f> Kernel<'_, 'f> {
    /// All threads of the cluster meet. What they wrote to shared memory is there for each other.
    pub(super) fn meet_cluster(&self) {
        self.f.cluster_arrive(false);
        self.f.cluster_wait();
    }

    /// Emitted for a consumer: passes its sums on, and stores those of the cluster. Each CTA adds up some slabs of columns, in the order of the
    /// CTAs. No consumer of the CTA reads operands any more.
    pub(super) fn store_sums(&self, consumer: Consumer<'f>, gradients: &[Gradient<'_, 'f>], exchange: ExchangePlan) {
        let Self { f, plan, shared, .. } = *self;
        let split = plan.spec.split;
        let own = |i: usize| {
            let wide = plan.wide[i];
            shared + exchange.sums[i] + consumer.thread * 16 + consumer.part * (64 * wide * 4)
        };
        for &(product, _, i) in gradients {
            let all: Vec<_> = product.accumulators().iter().flatten().copied().collect();
            store_fours(f, own(i), &all);
        }
        self.meet_cluster();
        let [row_bytes, columns] = plan.tiles.output_slab(&plan.spec);
        let (staged, _) = slab(&plan.tiles.outputs[0], consumer.thread);
        let slabs = gradients.iter().flat_map(|&(_, _, i)| {
            (0..plan.tiles.output_slabs(&plan.spec, i)).map(move |slab| (i, slab))
        });
        let slabs: Vec<_> = slabs.collect();
        for rank in 0..split {
            let mine = slabs.iter().skip(rank as usize).step_by(split as usize);
            let mine: Vec<_> = (0..).zip(mine.copied()).collect();
            if mine.is_empty() {
                continue;
            }
            f.if_(f.special(Special::ClusterRank).equals(rank), || {
                let place = |at: u32| shared + (exchange.staged + at * plan.spec.tile[1] * row_bytes);
                for &(at, (i, slab)) in &mine {
                    let sums = self.sums_of_cluster(own(i), slab * columns / 8, columns / 8);
                    let scale = (i == 0).then(|| f.parameter::<f32>("scale"));
                    let scaled = |value: Value<'f, f32>| scale.map_or(value, |scale| value * scale);
                    let half = |first: usize| {
                        let pair = |four: &[Value<'f, f32>; 4]| [four[first], four[first + 1]].map(scaled);
                        sums.iter().map(|four| plan.spec.format.pack(f, pair(four))).collect::<Vec<_>>()
                    };
                    self.fill(consumer, &staged, &plan.tiles.outputs[i], place(at), &[half(0), half(2)]);
                }
                f.fence_proxy_async(ProxySpace::Shared);
                f.barrier_sync(collective::CtaPlan::consumer_barrier(consumer.warpgroup), 128);
                let stored = mine.iter().map(|&(at, (gradient, slab))| Slab { gradient, slab, from: place(at) });
                self.store_slabs(consumer, &stored.collect::<Vec<_>>());
            });
        }
    }

    /// The thread's sums of all CTAs, of this many columns of eight from one on: four of each.
    fn sums_of_cluster(&self, own: Value<'f, u32>, first: u32, count: u32) -> Vec<[Value<'f, f32>; 4]> {
        let f = self.f;
        let of_ranks: Vec<_> = (0..self.plan.spec.split).map(|rank| f.map_shared(own, rank)).collect();
        let four = |i: u32| {
            let at = |of: &Value<'f, u32>| f.load_cluster::<f32, 4>(*of, (i * 128 * 16).cast_signed());
            let mut sums = of_ranks.iter().map(at);
            let first = sums.next().unwrap_or([f.constant(0.0); 4]);
            sums.fold(first, |sums, more| core::array::from_fn(|i| sums[i] + more[i]))
        };
        (first..first + count).map(four).collect()
    }
}
