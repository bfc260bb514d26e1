//! Fix-up: adds up the partial sums of a tile whose k-tiles several CTAs have multiplied.
//!
//! The caller owns a workspace ([`Slots`]) with one slot per *unit* of work, or one per split tile with
//! [`FixUp::Atomic`]. A slot holds the partial sums of one tile, in fragment order, 16 bytes per thread, so that a
//! warp reads and writes 512 bytes at a time. 16 bytes are four numbers, or two of `f64`. Partial sums that are
//! added to in place are zero before and after every launch.
//!
//! Kernels whose partial results are no sums merge them as a [`Partial`] of their own, in order.

mod cluster;
mod fours;
mod slots;

pub use cluster::{exchange_in_cluster, sums_bytes};
pub use fours::{ClusterFours, load_fours, store_fours};
pub use slots::{Partial, Slot, SlotPlan, Slots};

use ptx::{AtomicOp, AtomicSem, Builder, LoadOrder, Location, Number, Scalar, Scope, Type, Value};

use self::slots::VECTOR_BYTES;

use crate::mainloop::Fragment;
use crate::plan::{Plan, RegisterPlan};

/// How partial sums are added up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FixUp {
    /// The CTA with the last k-tile waits for the others and adds their partial sums, from the last to the
    /// first.
    Ordered,
    /// Every CTA adds to one sum in the workspace, by atomics. The last to arrive takes the sum and finishes
    /// the tile.
    Atomic,
    /// Every CTA stores its partial sums and waits for the others. Then each CTA adds up and finishes some of
    /// the columns. Each unit must belong to only one tile.
    Separate,
}

/// A work unit's place among the units that share its tile.
#[derive(Clone, Copy, Debug)]
pub struct Share<'f> {
    /// Index of the unit.
    pub unit: Value<'f, u32>,
    /// Index of the unit with the tile's first k-tile.
    pub first: Value<'f, u32>,
    /// Index of the unit with the tile's last k-tile.
    pub last: Value<'f, u32>,
    /// Index of the tile among the tiles that are split.
    pub tile: Value<'f, u32>,
    /// First k-tile of the unit.
    pub k_begin: Value<'f, u32>,
    /// One past the last k-tile of the unit.
    pub k_end: Value<'f, u32>,
    /// Number of k-tiles of the whole tile.
    pub k: Value<'f, u32>,
}

impl FixUp {
    /// Most units of work that one workspace can serve.
    pub const MOST_UNITS: u32 = 1024;

    /// Bytes of the workspace for `units` units of work on `tiles` split tiles; 0 if there are none.
    pub const fn workspace_bytes(self, plan: &Plan, units: u32, tiles: u32) -> u64 {
        let slots = match self {
            Self::Ordered | Self::Separate => units,
            Self::Atomic => tiles,
        };
        SlotPlan::of(plan).workspace_bytes(slots)
    }

    /// Emitted for a consumer warpgroup that has multiplied a work unit: exchanges partial sums with the
    /// other units of the tile, and calls `finish` with complete accumulators. With
    /// [`Ordered`](Self::Ordered) and [`Atomic`](Self::Atomic), one unit finishes the warpgroup's whole part
    /// of the tile. With [`Separate`](Self::Separate), each unit finishes some of the columns, as narrower
    /// tiles with a plan of their own.
    ///
    /// If the tile is narrowed, `fragment` belongs to the plan `narrowed`. `plan` gives the places of the slots.
    pub fn exchange<'f, T: Number + Default>(
        self,
        f: &'f Builder,
        [plan, narrowed]: [&Plan; 2],
        workspace: Value<'f, u64>,
        share: Share<'f>,
        fragment: Fragment<'f, T>,
        finish: &dyn Fn(&Plan, Fragment<'f, T>),
    ) {
        let finish = &|narrowed: &Plan, sums| finish(narrowed, in_vectors(plan, sums));
        let fragment = in_vectors(plan, fragment);
        let sums = Sums::new(f, plan, workspace, &fragment);
        let complete = match self {
            Self::Ordered => sums.slots.merge_in_order(share, &sums),
            Self::Atomic => sums.atomic(share),
            Self::Separate => return sums.separate(share, finish),
        };
        f.if_(complete, || finish(narrowed, fragment));
    }
}

/// The fragment in the order of the vectors in which partial sums are stored; applied twice, in its own order
/// again.
///
/// A vector's numbers are in consecutive registers, and so are the accumulators of a `wgmma`. An instruction
/// that reads three even or three odd registers takes longer than others. If scales are shared by even and odd
/// accumulators, the sums of even ones must be in odd registers.
fn in_vectors<'f, T: Scalar>(plan: &Plan, fragment: Fragment<'f, T>) -> Fragment<'f, T> {
    let shared = plan.mainloop.is_scaled() && plan.mainloop.operands[1].scaled > 1;
    if shared { fragment.swapped() } else { fragment }
}

/// Bytes from one group of four numbers of a thread to the next: one vector, or two of `f64`.
fn group_bytes<T: Scalar>() -> i32 {
    VECTOR_BYTES * (T::TYPE.bytes() / 4).cast_signed()
}

/// Byte offsets of a group's numbers from its first.
fn places<T: Scalar>() -> [i32; 4] {
    if T::TYPE.bytes() == 8 { [0, 8, VECTOR_BYTES, VECTOR_BYTES + 8] } else { [0, 4, 8, 12] }
}

/// Loads a group of four numbers.
fn load_group<'f, T: Scalar>(f: &'f Builder, at: Value<'f, u64>, offset: i32) -> [Value<'f, T>; 4] {
    if T::TYPE.bytes() == 4 {
        return f.load_global_vector(at, offset);
    }
    let [a, b] = f.load_global_vector(at, offset);
    let [c, d] = f.load_global_vector(at, offset + VECTOR_BYTES);
    [a, b, c, d]
}

/// Stores a group of four numbers.
fn store_group<'f, T: Scalar>(f: &'f Builder, at: Value<'f, u64>, offset: i32, group: [Value<'f, T>; 4]) {
    let [a, b, c, d] = group;
    if T::TYPE.bytes() == 4 {
        return f.store_global(at, offset, group);
    }
    f.store_global(at, offset, [a, b]);
    f.store_global(at, offset + VECTOR_BYTES, [c, d]);
}

/// The groups of four accumulators, each with its byte offset.
fn groups<'f, T: Scalar>(fragment: &Fragment<'f, T>) -> Vec<([ptx::Var<'f, T>; 4], i32)> {
    let all: Vec<_> = fragment.blocks.iter().flatten().copied().collect();
    let groups = all.chunks_exact(4).map(|group| [group[0], group[1], group[2], group[3]]);
    groups.zip((0..).step_by(group_bytes::<T>() as usize)).collect()
}

/// The partial sums of a warpgroup's part of a tile.
struct Sums<'a, 'f, T> {
    f: &'f Builder,
    plan: &'a Plan,
    fragment: &'a Fragment<'f, T>,
    slots: Slots<'f>,
}

impl<'f, T: Number> Partial<'f> for Sums<'_, 'f, T> {
    fn store(&self, slot: Slot<'f>) {
        for (group, offset) in groups(self.fragment) {
            store_group(self.f, slot.address, offset, group.map(|value| value.get()));
        }
    }

    fn merge(&self, count: Value<'f, u32>, slot: &dyn Fn(Value<'f, u32>) -> Slot<'f>) {
        for groups in loadable(self.plan, &groups(self.fragment)) {
            self.f.repeat(count, |i| {
                let slot = slot(i);
                for &(group, offset) in groups {
                    for (value, other) in group.into_iter().zip(load_group(self.f, slot.address, offset)) {
                        value.set(value.get() + other);
                    }
                }
            });
        }
    }
}

impl<'a, 'f, T: Number + Default> Sums<'a, 'f, T> {
    fn new(f: &'f Builder, plan: &'a Plan, workspace: Value<'f, u64>, fragment: &'a Fragment<'f, T>) -> Self {
        let Fragment { warpgroup, thread, .. } = *fragment;
        Self { f, plan, fragment, slots: Slots { f, plan: SlotPlan::of(plan), workspace, warpgroup, thread } }
    }

    /// Adds the fragment to the sum in memory: four numbers at a time for `f32`, else one at a time.
    fn add_to_memory(&self, slot: Slot<'f>) {
        let order = (AtomicSem::Relaxed, Scope::Gpu);
        let at = |offset| Location::global(slot.address, offset);
        for (group, offset) in groups(self.fragment) {
            let group = group.map(|value| value.get());
            if T::TYPE == Type::F32 {
                self.f.reduce(AtomicOp::Add, at(offset), group, order);
                continue;
            }
            for (value, place) in group.into_iter().zip(places::<T>()) {
                self.f.reduce(AtomicOp::Add, at(offset + place), [value], order);
            }
        }
    }

    /// Moves the sum from memory to the fragment, and zeroes the memory for the next launch.
    fn take(&self, slot: Slot<'f>) {
        let zero = self.f.constant(T::default());
        for (group, offset) in groups(self.fragment) {
            for (value, other) in group.into_iter().zip(load_group(self.f, slot.address, offset)) {
                value.set(other);
            }
            store_group(self.f, slot.address, offset, [zero; 4]);
        }
    }

    fn atomic(&self, share: Share<'f>) -> Value<'f, bool> {
        let Self { f, plan, fragment, .. } = *self;
        let (barrier, speaks) = (fragment.barrier(), fragment.thread.equals(0));
        let complete = f.variable(1u32);
        f.if_(share.k_begin.differs_from(0) | share.k_end.differs_from(share.k), || {
            let sum = self.slots.slot(share.tile);
            self.add_to_memory(sum);
            f.barrier_sync(barrier, 128);
            let word = fragment.shared + plan.words_offset + fragment.warpgroup * 4;
            f.if_(speaks, || {
                // The flag counts the k-tiles that have been added.
                let own = share.k_end - share.k_begin;
                let order = (AtomicSem::AcquireRelease, Scope::Gpu);
                let before = f.atomic(AtomicOp::Add, sum.flag(), own, order);
                let one = f.constant(1u32);
                f.store_shared(word, 0, [one.where_or((before + own).equals(share.k), 0)]);
            });
            f.barrier_sync(barrier, 128);
            let [last] = f.load_shared_vector::<u32, 1>(word, 0);
            complete.set(last);
            f.if_(last.differs_from(0), || {
                self.take(sum);
                f.if_(speaks, || sum.clear_flag());
            });
        });
        complete.get().differs_from(0)
    }

    fn separate(&self, share: Share<'f>, finish: &dyn Fn(&Plan, Fragment<'f, T>)) {
        let Self { f, plan, fragment, slots } = *self;
        let divided = share.k_begin.differs_from(0) | share.k_end.differs_from(share.k);
        let add_up = || {
            let (barrier, speaks) = (fragment.barrier(), fragment.thread.equals(0));
            self.store(slots.slot(share.unit));
            f.barrier_sync(barrier, 128);
            let others = share.last - share.first;
            f.if_(speaks, || {
                // The flag counts the units that have arrived; the last one wraps it to zero.
                let flag = slots.slot(share.tile).flag();
                f.atomic(AtomicOp::Inc, flag, others, (AtomicSem::AcquireRelease, Scope::Gpu));
                f.loop_(|| {
                    let [count] = f.load_ordered::<u32, 1>(LoadOrder::Acquire(Scope::Gpu), flag);
                    f.break_if(count.equals(0));
                });
            });
            f.barrier_sync(barrier, 128);

            let narrow = plan.narrowed(GROUPS * 8);
            let [_, n, _] = narrow.mainloop.tile;
            let (groups, columns) = (n / 8, plan.mainloop.tile[1] / n);
            let first = slots.slot(share.first);
            let index = f.variable(share.unit - share.first);
            f.while_(
                || index.get().less_than(plan.blocks() * columns),
                || {
                    let sums = self.total(first, index.get() * groups, groups, others + 1);
                    let (block, column) = (index.get() / columns, index.get() % columns);
                    let place = [block * plan.block_rows(), column * n];
                    finish(&narrow, fragment.narrowed(&narrow, sums, place));
                    index.set(index.get() + others + 1);
                },
            );
        };
        let whole = fragment.copied();
        f.if_else(divided, add_up, || finish(plan, whole));
    }

    /// The sums of `groups` groups from `group` on, over `units` slots from this one on.
    fn total(
        &self,
        first: Slot<'f>,
        group: Value<'f, u32>,
        groups: u32,
        units: Value<'f, u32>,
    ) -> Vec<ptx::Var<'f, T>> {
        let (f, slot_bytes) = (self.f, self.slots.plan.slot_bytes());
        let totals: Vec<_> = (0..groups * 4).map(|_| f.variable(T::default())).collect();
        let base = first.address + group.mul_wide(group_bytes::<T>().unsigned_abs());
        let unit = f.variable(0u32);
        f.while_(
            || unit.get().less_than(units),
            || {
                // Loads past the last slot are clamped to it, and the values are not added.
                let loaded: Vec<_> = (0..AT_ONCE)
                    .map(|i| {
                        let slot = (unit.get() + i).min(units - 1);
                        let at = base + slot.mul_wide(slot_bytes);
                        let each = (0..groups)
                            .map(|group| load_group::<T>(f, at, group.cast_signed() * group_bytes::<T>()));
                        (unit.get() + i, each.collect::<Vec<_>>().concat())
                    })
                    .collect();
                for (number, values) in loaded {
                    let exists = number.less_than(units);
                    for (total, value) in totals.iter().zip(values) {
                        total.set((total.get() + value).where_or(exists, total.get()));
                    }
                }
                unit.set(unit.get() + AT_ONCE);
            },
        );
        totals
    }
}

/// Groups of four accumulators, 8 columns each, that are added up at a time unless the epilogue needs another
/// number.
const GROUPS: u32 = 2;

/// Number of units whose partial sums are in flight at a time.
const AT_ONCE: u32 = 8;

/// The groups in parts whose loads fit in the registers that the accumulators leave. ptxas issues the loads of
/// one loop's body early, even if it has to spill for them.
fn loadable<'g, G>(plan: &Plan, groups: &'g [G]) -> impl Iterator<Item = &'g [G]> {
    let RegisterPlan { consumer, accumulators, .. } = plan.registers;
    let fit = (consumer.saturating_sub(accumulators) as usize / 4).max(1);
    let parts = groups.len().div_ceil(fit).max(1);
    groups.chunks(groups.len().div_ceil(parts).max(1))
}
