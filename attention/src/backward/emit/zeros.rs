//! Zeros for the sums of dQ of heads that later CTAs compute: a warp that has nothing else to do stores them while its CTA computes.
//!
//! The first program stores those of the first heads, which the first CTAs need. A CTA that adds to a head waits until all of its sums are zero.
//! It never waits for a CTA that has not begun, as long as CTAs begin in their order: [`Ahead`] says how far a CTA is ahead of those that
//! need what it stores. Where CTAs walk over blocks, that is so of blocks, which are drawn in their order.

use ptx::inst::{AtomicOp, AtomicSem, LoadOrder, Scope as Reach};
use ptx::{Builder, Location, ProxySpace, Special, Value};

use super::blocks::Reader;
use super::{Kernel, Roles};
use crate::backward::ahead::Ahead;

/// Bytes of the count of a head's tiles whose sums are zero.
pub(in crate::backward) const COUNT: u32 = 4;

/// Bytes that a warp stores at once.
const AT_ONCE: u32 = 32 * 16;

/// The count of a head, one of those of all sequences.
fn count_of<'f>(f: &'f Builder, line: Value<'f, u32>) -> Location {
    Location::global(f.parameter::<u64>("zeroed") + line.mul_wide(COUNT), 0)
}

impl<'f> Roles<'_, 'f> {
    /// Emitted for a warp: stores the zeros of some tiles for each block, also for one that does not exist, and counts them.
    pub(super) fn store_zeros(&self) {
        self.walk(Reader::Warps, |keys| self.store_zeros_of(keys.number));
    }

    fn store_zeros_of(&self, number: Value<'f, u32>) {
        let Self { f, plan, .. } = *self;
        let [each, before, count] = Ahead::NAMES.map(|name| f.parameter::<u32>(name));
        let [across, lane] = [f.parameter("across"), f.special(Special::Lane)];
        let begin = before + number * each;
        f.repeat_from(begin, (begin + each).min(count), |tile| {
            let sums = f.parameter::<u64>("dq_sums") + tile.mul_wide(plan.sum_bytes());
            let at = f.variable(sums + lane.mul_wide(16u32));
            f.repeat(f.constant(plan.sum_bytes() / (4 * AT_ONCE)), |_| {
                for i in 0..4 {
                    f.store_global(at.get(), (i * AT_ONCE).cast_signed(), [f.constant(0f32); 4]);
                }
                at.set(at.get() + u64::from(4 * AT_ONCE));
            });
            f.warp_sync();
            f.if_(lane.equals(0), || {
                let order = (AtomicSem::Release, Reach::Gpu);
                f.reduce(AtomicOp::Add, count_of(f, tile / across), [f.constant(1u32)], order);
            });
        });
    }
}

impl<'f> Kernel<'_, 'f> {
    /// Emitted for the thread that adds to a head of queries: waits until its sums are zero.
    pub(super) fn await_zeros(&self, head: Value<'f, u32>) {
        let f = self.f;
        let [heads, share, across] = ["heads", "share", "across"].map(|name| f.parameter::<u32>(name));
        let line = match self.keys.packed {
            // Packed sequences are one.
            Some(_) => head,
            None => self.keys.batch * (heads * share) + head,
        };
        // Those of the first program are there.
        let before = f.parameter::<u32>(Ahead::NAMES[1]);
        let prepared = (before - before.min(line * across)).min(across);
        let waits = || {
            let [count] = f.load_ordered::<u32, 1>(LoadOrder::Acquire(Reach::Gpu), count_of(f, line));
            count.less_than(across - prepared)
        };
        f.while_(waits, || {});
        // Bulk copies are made by the async proxy.
        f.fence_proxy_async(ProxySpace::Global);
    }
}
