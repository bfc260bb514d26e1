//! How CTAs that share a block of keys, with heads of queries of their own, add up their dK and dV in device memory.
//!
//! The first one of a block has zeros stored there while it computes. Each adds its sums, and the last one to do so stores those of all.
//!
//! No CTA waits for one that has not begun, as long as CTAs begin in their order: the first one of a block is before the others.

use collective::{Consumer, CtaPlan, load_fours, store_fours};
use ptx::inst::{AtomicOp, AtomicSem, AtomicType, LoadOrder, Scope as Reach};
use ptx::{Location, ProxySpace, Special, StoreOrder, Value, Var};

use super::Kernel;
use super::blocks::BlockApart;
use super::consumer::Gradient;
use crate::backward::plan::{ARRIVED, ExchangePlan};

/// Bytes from the count of CTAs that have added to whether there are zeros.
const READY: u32 = 4;

/// What a consumer adds to.
struct Adding<'a, 'f> {
    kernel: &'a Kernel<'a, 'f>,
    consumer: Consumer<'f>,
    of: BlockApart<'f>,
    exchange: ExchangePlan,
}

impl<'f> Kernel<'_, 'f> {
    /// Emitted for a consumer: adds its sums to those of its block, and returns whether its CTA was the last one to be done. Then its registers
    /// have the sums of all. No consumer of the CTA reads operands any more.
    pub(super) fn add_apart(
        &self,
        consumer: Consumer<'f>,
        gradients: &[Gradient<'_, 'f>],
        (of, exchange): (BlockApart<'f>, ExchangePlan),
    ) -> Value<'f, bool> {
        let Self { f, plan, .. } = *self;
        let adding = Adding { kernel: self, consumer, of, exchange };
        let (barrier, threads) = (plan.cta.own_barriers().start, plan.cta.consumers * 128);
        let speaks = consumer.thread.equals(0) & consumer.warpgroup.equals(0);
        adding.give(gradients);
        self.meet();
        let last = f.parameter::<u32>("share") * plan.spec.apart - 1;
        let number = f.variable(0u32);
        f.if_(speaks, || {
            let order = (AtomicSem::AcquireRelease, Reach::Gpu);
            let before = f.atomic(AtomicOp::Add, self.count(of, 0), f.constant(1u32), order);
            number.set(f.constant(1u32).where_or(before.equals(last), 0));
        });
        let is_last = f.barrier_any(barrier, threads, number.get().differs_from(0));
        f.if_(is_last, || adding.take(gradients));
        is_last
    }

    /// Emitted for a warp: that of the first CTA of a block stores zeros for the sums.
    pub(super) fn clear_apart(&self) {
        if let Some(of) = self.keys.apart {
            self.f.if_(of.is_first, || self.clear(of));
        }
    }

    fn clear(&self, of: BlockApart<'f>) {
        let Self { f, plan, .. } = *self;
        let bytes = plan.block_sum_bytes();
        let lane = f.special(Special::Lane);
        let at = f.variable(lane * 16);
        let sums = f.parameter::<u64>("key_sums") + of.index.mul_wide(bytes);
        f.while_(
            || at.get().less_than(bytes),
            || {
                f.store_global(sums + at.get().cast::<u64>(), 0, [f.constant(0f32); 4]);
                at.set(at.get() + 32 * 16);
            },
        );
        f.warp_sync();
        f.if_(lane.equals(0), || {
            f.store_ordered(StoreOrder::Release(Reach::Gpu), self.count(of, READY), [f.constant(1u32)]);
        });
    }

    /// One of the counts of a block.
    fn count(&self, of: BlockApart<'f>, offset: u32) -> Location {
        let counts = self.f.parameter::<u64>("arrived") + of.index.mul_wide(ARRIVED);
        Location::global(counts, offset.cast_signed())
    }
}

impl<'f> Adding<'_, 'f> {
    /// The consumer's sums of dK (0) or dV (1) in device memory, where those of dV follow those of dK.
    fn sums(&self, i: usize) -> Value<'f, u64> {
        let Kernel { f, plan, .. } = *self.kernel;
        let first = u64::from(self.exchange.sums[i] - self.exchange.sums[0]);
        let block = f.parameter::<u64>("key_sums") + self.of.index.mul_wide(plan.block_sum_bytes());
        block + first + self.before(i).cast::<u64>()
    }

    /// Bytes of the sums of the consumers before.
    fn before(&self, i: usize) -> Value<'f, u32> {
        self.consumer.part * self.kernel.own_bytes(i)
    }

    /// The registers become the sums of all.
    fn take(&self, gradients: &[Gradient<'_, 'f>]) {
        for gradient in gradients {
            let own = self.sums(gradient.2) + self.consumer.thread.mul_wide(16u32);
            load_fours(self.kernel.f, own, &registers(gradient), |sum, all| sum.set(all));
        }
    }

    /// Adds the sums of the registers to those that are there.
    fn give(&self, gradients: &[Gradient<'_, 'f>]) {
        let (f, Consumer { thread, warpgroup, .. }) = (self.kernel.f, self.consumer);
        let staged = |i: usize| self.kernel.shared + self.exchange.sums[i] + self.before(i);
        for gradient in gradients {
            store_fours(f, staged(gradient.2) + thread * 16, &registers(gradient));
        }
        f.fence_proxy_async(ProxySpace::Shared);
        f.barrier_sync(CtaPlan::consumer_barrier(warpgroup), 128);
        f.if_(thread.equals(0), || {
            let waits = || {
                let order = LoadOrder::Acquire(Reach::Gpu);
                let [ready] = f.load_ordered::<u32, 1>(order, self.kernel.count(self.of, READY));
                ready.equals(0)
            };
            f.while_(waits, || {});
            // Bulk copies are made by the async proxy.
            f.fence_proxy_async(ProxySpace::Global);
            for &(_, _, i) in gradients {
                let add = (AtomicOp::Add, AtomicType::F32);
                f.bulk_reduce(add, self.sums(i), staged(i), self.kernel.own_bytes(i));
            }
            f.bulk_commit();
            f.bulk_wait(0, false);
        });
    }
}

/// The registers with a gradient.
fn registers<'f>(of: &Gradient<'_, 'f>) -> Vec<Var<'f, f32>> {
    of.0.accumulators().iter().flatten().copied().collect()
}
