//! Zeros for the sums of dQ of heads that later CTAs compute: a warp that has nothing else to do stores them while its CTA computes.
//!
//! The first program stores those of the first heads, which the first CTAs need. A CTA that adds to a head waits until all of its sums are zero.
//! It never waits for a CTA that has not begun, as long as CTAs begin in their order: [`Ahead`] says how far a CTA is ahead of those that
//! need what it stores.

use ptx::inst::{AtomicOp, AtomicSem, LoadOrder, Scope as Reach};
use ptx::{Location, ProxySpace, Special, Value};

use super::Kernel;
use crate::backward::kernel::Ahead;

/// Bytes of the count of a head's tiles whose sums are zero.
pub(in crate::backward) const COUNT: u32 = 4;

/// Bytes that a warp stores at once.
const AT_ONCE: u32 = 32 * 16;

/// What the device knows of an [`Ahead`].
#[derive(Clone, Copy)]
struct Zeros<'f> {
    /// Tiles that each CTA stores zeros for, and of those before, which the first program does.
    each: Value<'f, u32>,
    before: Value<'f, u32>,
    /// The CTA's number among those that store them.
    cta: Value<'f, u32>,
    /// The first of the tiles among all, and how many there are.
    first: Value<'f, u32>,
    count: Value<'f, u32>,
}

impl<'f> Kernel<'_, 'f> {
    /// The count of a head, one of those of all sequences.
    fn count_of(&self, line: Value<'f, u32>) -> Location {
        Location::global(self.f.parameter::<u64>("zeroed") + line.mul_wide(COUNT), 0)
    }

    /// The zeros of the heads of keys that are computed whole, or of the others, among which a head or a CTA is.
    fn zeros(&self, is_whole: Option<Value<'f, bool>>, cta: Value<'f, u32>) -> Zeros<'f> {
        let f = self.f;
        let [each, before, count] = Ahead::NAMES[0].map(|name| f.parameter::<u32>(name));
        let zero = f.constant(0);
        let Some(is_whole) = is_whole else { return Zeros { each, before, cta, first: zero, count } };
        let [of_whole, before_whole, first] = Ahead::NAMES[1].map(|name| f.parameter::<u32>(name));
        let ctas = f.parameter::<u32>("whole") * f.parameter::<u32>("blocks");
        Zeros {
            each: of_whole.where_or(is_whole, each),
            before: before_whole.where_or(is_whole, before),
            cta: cta.where_or(is_whole, cta - ctas),
            first: zero.where_or(is_whole, first),
            count: first.where_or(is_whole, count),
        }
    }

    /// Emitted for a warp: stores the zeros of some tiles, and counts them.
    pub(super) fn store_zeros(&self) {
        let Self { f, plan, .. } = *self;
        let cta = f.special(Special::CtaX);
        let of = self.zeros(self.keys.apart.and_then(|of| of.is_whole), cta);
        let [across, lane] = [f.parameter("across"), f.special(Special::Lane)];
        let begin = of.before + of.cta * of.each;
        let end = (begin + of.each).min(of.count);
        f.repeat_from(begin, end, |tile| {
            let tile = of.first + tile;
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
                f.reduce(AtomicOp::Add, self.count_of(tile / across), [f.constant(1u32)], order);
            });
        });
    }

    /// Emitted for the thread that adds to a head of queries: waits until its sums are zero.
    pub(super) fn await_zeros(&self, head: Value<'f, u32>) {
        let f = self.f;
        let [heads, share, across] = ["heads", "share", "across"].map(|name| f.parameter::<u32>(name));
        let line = match self.keys.packed {
            // Packed sequences are one.
            Some(_) => head,
            None => self.keys.batch * (heads * share) + head,
        };
        let of = self.zeros(self.keys.apart.and_then(|of| of.is_whole), f.constant(0));
        // Those of the first program are there.
        let own = line * across - of.first;
        let prepared = (of.before - of.before.min(own)).min(across);
        let waits = || {
            let [count] = f.load_ordered::<u32, 1>(LoadOrder::Acquire(Reach::Gpu), self.count_of(line));
            count.less_than(across - prepared)
        };
        f.while_(waits, || {});
        // Bulk copies are made by the async proxy.
        f.fence_proxy_async(ProxySpace::Global);
    }
}
