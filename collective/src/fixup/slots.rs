//! The workspace of a fix-up: a slot per unit of work, and flags that say which slots are filled.

use ptx::{Builder, LoadOrder, Location, Scalar, Scope, Special, StoreOrder, Value};

use super::{FixUp, Share};
use crate::plan::{CtaPlan, Plan};

/// The sizes of a workspace's slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotPlan {
    /// CTAs per cluster. Each has a part of every slot.
    pub cluster: u32,
    /// Warpgroups of a CTA that share a tile. Each has a part of its own, so they never wait for each other.
    pub sharing: u32,
    /// Bytes of one warpgroup's part: a multiple of 2048, 16 per thread.
    pub bytes: u32,
}

/// The slots of a launch, as a consumer thread sees them.
///
/// The workspace begins with *flags*, one word per part. They are zero before and after every launch.
#[derive(Clone, Copy, Debug)]
pub struct Slots<'f> {
    /// The builder.
    pub f: &'f Builder,
    /// The sizes.
    pub plan: SlotPlan,
    /// Address of the workspace.
    pub workspace: Value<'f, u64>,
    /// Index of the warpgroup among the consumers.
    pub warpgroup: Value<'f, u32>,
    /// Index of the thread in its warpgroup.
    pub thread: Value<'f, u32>,
}

/// A warpgroup's part of a slot.
#[derive(Clone, Copy, Debug)]
pub struct Slot<'f> {
    pub(super) f: &'f Builder,
    flag: Value<'f, u64>,
    /// Address of the thread's first 16 bytes.
    pub(super) address: Value<'f, u64>,
}

/// What a unit of work has computed of a tile that several units share, each with a range of K: how it is stored,
/// and how those of other units are merged into it. The library's own partial results are sums.
///
/// A unit's result must not depend on its range alone: units store what is *merged*, for example the largest score of
/// a row, the sum of weights relative to it, and weighted sums. The last unit merges the others in a fixed order, so
/// results are the same in every launch:
///
/// ```
/// use collective::{Partial, Real, Slot};
/// use ptx::{Value, Var};
///
/// /// The largest of the numbers of a thread's row, and the sum of their exponentials relative to it.
/// struct LogSum<'f> {
///     most: Var<'f, f32>,
///     sum: Var<'f, f32>,
/// }
///
/// impl<'f> Partial<'f> for LogSum<'f> {
///     fn store(&self, slot: Slot<'f>) {
///         slot.store(0, [self.most.get(), self.sum.get(), self.sum.get(), self.sum.get()]);
///     }
///
///     fn merge(&self, count: Value<'f, u32>, slot: &dyn Fn(Value<'f, u32>) -> Slot<'f>) {
///         count.builder().repeat(count, |i| {
///             let [other_most, other_sum, ..] = slot(i).load::<f32>(0);
///             let (before, most) = (self.most.get(), self.most.get().max(other_most));
///             let [kept, added] = [before - most, other_most - most].map(|x| (x * core::f32::consts::LOG2_E).exp2());
///             self.most.set(most);
///             self.sum.set(self.sum.get() * kept + other_sum * added);
///         });
///     }
/// }
/// ```
pub trait Partial<'f> {
    /// Emitted for the warpgroup's threads: stores the result to a slot, 16 bytes per thread at a time.
    fn store(&self, slot: Slot<'f>);

    /// Merges the results of `count` other units: `slot(0)` has that of the unit with the k-tiles before this one's,
    /// `slot(1)` that of the unit before it, and so on.
    fn merge(&self, count: Value<'f, u32>, slot: &dyn Fn(Value<'f, u32>) -> Slot<'f>);
}

/// Bytes from the flags of one unit to those of the next: one flag per consumer warpgroup of the largest
/// cluster.
const UNIT_FLAGS_BYTES: u32 = 256;

/// Bytes of all flags, at the start of the workspace, for every problem size. So slots never overlap flags.
const FLAGS_BYTES: u64 = (FixUp::MOST_UNITS * UNIT_FLAGS_BYTES) as u64;

/// Bytes from one 16-byte vector of a thread to its next.
pub(super) const VECTOR_BYTES: i32 = 128 * 16;

impl SlotPlan {
    /// The slots of a GEMM's partial sums.
    pub(super) const fn of(plan: &Plan) -> Self {
        let bytes = plan.registers.accumulators * 128 * 4;
        Self { cluster: plan.cluster_size(), sharing: plan.mainloop.sharing(), bytes }
    }

    /// Bytes from one slot to the next.
    pub(super) const fn slot_bytes(&self) -> u32 {
        self.bytes * self.cluster * self.sharing
    }

    /// Bytes of a workspace with this number of slots; 0 without any.
    pub const fn workspace_bytes(&self, slots: u32) -> u64 {
        if slots == 0 { 0 } else { FLAGS_BYTES + slots as u64 * self.slot_bytes() as u64 }
    }
}

impl<'f> Slots<'f> {
    /// The warpgroup's part of a slot.
    #[track_caller]
    pub fn slot(&self, slot: Value<'f, u32>) -> Slot<'f> {
        let Self { f, plan: SlotPlan { cluster, sharing, bytes }, workspace, warpgroup, thread } = *self;
        let rank = if cluster > 1 { f.special(Special::ClusterRank) } else { f.constant(0) };
        let own = if sharing > 1 { rank * sharing + warpgroup } else { rank };
        let flag = workspace + slot.mul_wide(UNIT_FLAGS_BYTES) + own.mul_wide(4);
        let part = slot * (cluster * sharing) + own;
        let address = workspace + FLAGS_BYTES + part.mul_wide(bytes) + thread.mul_wide(16);
        Slot { f, flag, address }
    }

    /// Emitted for a consumer warpgroup that has computed a unit of work: exchanges results with the other units of the
    /// tile. The unit with the tile's last k-tile waits for the others and merges theirs, from the last to the first.
    /// Returns whether this is the one.
    #[track_caller]
    pub fn merge_in_order(&self, share: Share<'f>, partial: &dyn Partial<'f>) -> Value<'f, bool> {
        self.f.for_caller(|| self.merged(share, partial))
    }

    fn merged(&self, share: Share<'f>, partial: &dyn Partial<'f>) -> Value<'f, bool> {
        let (f, thread, barrier) = (self.f, self.thread, CtaPlan::consumer_barrier(self.warpgroup));
        let last = share.k_end.equals(share.k);
        f.if_(!last, || {
            let own = self.slot(share.unit);
            f.of_caller(|| partial.store(own));
            f.barrier_sync(barrier, 128);
            f.if_(thread.equals(0), || own.publish());
        });
        f.if_(last & share.k_begin.differs_from(0), || {
            let others = share.unit - share.first;
            let slot = |i: Value<'f, u32>| self.slot(share.unit - 1 - i);
            // Each thread waits for a different unit, so that the waits overlap.
            let mine = f.variable(thread);
            f.while_(
                || mine.get().less_than(others),
                || {
                    slot(mine.get()).await_filled();
                    mine.set(mine.get() + 128);
                },
            );
            f.barrier_sync(barrier, 128);
            f.of_caller(|| partial.merge(others, &slot));
        });
        last
    }
}

impl<'f> Slot<'f> {
    /// Stores four numbers of 32 bits as the thread's vector `i`.
    #[track_caller]
    pub fn store<T: Scalar>(&self, i: u32, numbers: [Value<'f, T>; 4]) {
        self.f.store_global(self.address, i.cast_signed() * VECTOR_BYTES, numbers);
    }

    /// Loads four numbers of 32 bits, the thread's vector `i`.
    #[track_caller]
    pub fn load<T: Scalar>(&self, i: u32) -> [Value<'f, T>; 4] {
        self.f.load_global_vector(self.address, i.cast_signed() * VECTOR_BYTES)
    }

    pub(super) fn flag(&self) -> Location {
        Location::global(self.flag, 0)
    }

    pub(super) fn clear_flag(&self) {
        self.f.store_ordered(StoreOrder::Relaxed(Scope::Gpu), self.flag(), [self.f.constant(0u32)]);
    }

    /// Signals that the slot is filled. All stores of the warpgroup must come before.
    fn publish(&self) {
        self.f.store_ordered(StoreOrder::Release(Scope::Gpu), self.flag(), [self.f.constant(1u32)]);
    }

    /// Waits until the slot is filled, and clears its flag for the next launch.
    fn await_filled(&self) {
        self.f.loop_(|| {
            let [flag] = self.f.load_ordered::<u32, 1>(LoadOrder::Acquire(Scope::Gpu), self.flag());
            self.f.break_if(flag.equals(1));
        });
        self.clear_flag();
    }
}
