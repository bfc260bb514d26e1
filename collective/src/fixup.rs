//! Fix-up: adds up the partial sums of a tile whose k-tiles several CTAs have multiplied.
//!
//! The caller owns a workspace with one entry per *unit* of work, or one per split tile with
//! [`FixUp::Atomic`]. An entry holds the partial sums of one tile. Each consumer warpgroup uses its own part
//! of an entry, so warpgroups never wait for others of their own CTA. Partial sums are stored in fragment
//! order, 16 bytes per thread, so that a warp reads and writes 512 bytes at a time. 16 bytes are four
//! numbers, or two of `f64`.
//!
//! The workspace begins with *flags*, one word per part. Flags, and partial sums that are added to in place,
//! are zero before and after every launch.

mod cluster;

pub use cluster::{exchange_in_cluster, sums_bytes};

use ptx::{
    AtomicOp, AtomicSem, Builder, LoadOrder, Location, Number, Scalar, Scope, StoreOrder, Type, Value,
};

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
        if slots == 0 {
            return 0;
        }
        let parts = slots as u64 * (plan.cluster_size() * plan.mainloop.sharing()) as u64;
        FLAGS_BYTES + parts * part_bytes(plan) as u64
    }

    /// Emitted for a consumer warpgroup that has multiplied a work unit: exchanges partial sums with the
    /// other units of the tile, and calls `finish` with complete accumulators. With
    /// [`Ordered`](Self::Ordered) and [`Atomic`](Self::Atomic), one unit finishes the warpgroup's whole part
    /// of the tile. With [`Separate`](Self::Separate), each unit finishes some of the columns, as narrower
    /// tiles with a plan of their own.
    ///
    /// If the tile is narrowed, `fragment` belongs to the plan `narrowed`. `plan` gives the places of the
    /// workspace entries.
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
        let complete = match self {
            Self::Ordered => ordered(f, plan, workspace, share, &fragment),
            Self::Atomic => atomic(f, plan, workspace, share, &fragment),
            Self::Separate => return separate(f, plan, workspace, share, fragment, finish),
        };
        f.if_(complete, || finish(narrowed, fragment));
    }
}

/// Bytes from the flags of one unit to those of the next: one flag per consumer warpgroup of the largest
/// cluster.
const UNIT_FLAGS_BYTES: u32 = 256;

/// Bytes of all flags, at the start of the workspace, for every problem size. So partial sums never overlap
/// flags.
const FLAGS_BYTES: u64 = (FixUp::MOST_UNITS * UNIT_FLAGS_BYTES) as u64;

/// Bytes of one warpgroup's accumulators of a tile.
const fn part_bytes(plan: &Plan) -> u32 {
    plan.registers.accumulators * 128 * 4
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

/// A warpgroup's part of a workspace entry.
struct Part<'f> {
    f: &'f Builder,
    flag: Value<'f, u64>,
    /// Address of the thread's first number.
    sums: Value<'f, u64>,
    /// Bytes from the numbers of one entry to those of the next.
    slot_bytes: u32,
}

/// Bytes from one 16-byte vector of a thread to its next.
const VECTOR_BYTES: i32 = 128 * 16;

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

impl<'f> Part<'f> {
    fn new<T: Scalar>(
        f: &'f Builder,
        plan: &Plan,
        workspace: Value<'f, u64>,
        slot: Value<'f, u32>,
        fragment: &Fragment<'f, T>,
    ) -> Self {
        let (cluster, sharing) = (plan.cluster_size(), plan.mainloop.sharing());
        let rank = if cluster > 1 { f.special(ptx::Special::ClusterRank) } else { f.constant(0) };
        let own = if sharing > 1 { rank * sharing + fragment.warpgroup } else { rank };
        let flag = workspace + slot.mul_wide(UNIT_FLAGS_BYTES) + own.mul_wide(4);
        let part = slot * (cluster * sharing) + own;
        let sums = workspace + FLAGS_BYTES + part.mul_wide(part_bytes(plan)) + fragment.thread.mul_wide(16);
        Self { f, flag, sums, slot_bytes: part_bytes(plan) * cluster * sharing }
    }

    /// The groups of four accumulators, each with its byte offset.
    fn groups<T: Scalar>(fragment: &Fragment<'f, T>) -> Vec<([ptx::Var<'f, T>; 4], i32)> {
        let all: Vec<_> = fragment.blocks.iter().flatten().copied().collect();
        let groups = all.chunks_exact(4).map(|group| [group[0], group[1], group[2], group[3]]);
        groups.zip((0..).step_by(group_bytes::<T>() as usize)).collect()
    }

    fn store<T: Scalar>(&self, fragment: &Fragment<'f, T>) {
        for (group, offset) in Self::groups(fragment) {
            store_group(self.f, self.sums, offset, group.map(|value| value.get()));
        }
    }

    fn load<T: Scalar>(&self, offset: i32) -> [Value<'f, T>; 4] {
        load_group(self.f, self.sums, offset)
    }

    /// Adds the entry's numbers to those of `groups`.
    fn add<T: Number>(&self, groups: &[([ptx::Var<'f, T>; 4], i32)]) {
        for &(group, offset) in groups {
            for (value, other) in group.into_iter().zip(self.load(offset)) {
                value.set(value.get() + other);
            }
        }
    }

    /// Adds the fragment to the sum in memory: four numbers at a time for `f32`, else one at a time.
    fn add_to_memory<T: Number>(&self, fragment: &Fragment<'f, T>) {
        let order = (AtomicSem::Relaxed, Scope::Gpu);
        let at = |offset| Location::global(self.sums, offset);
        for (group, offset) in Self::groups(fragment) {
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
    fn take<T: Number + Default>(&self, fragment: &Fragment<'f, T>) {
        let zero = self.f.constant(T::default());
        for (group, offset) in Self::groups(fragment) {
            for (value, other) in group.into_iter().zip(self.load(offset)) {
                value.set(other);
            }
            store_group(self.f, self.sums, offset, [zero; 4]);
        }
    }

    fn flag(&self) -> Location {
        Location::global(self.flag, 0)
    }

    fn clear_flag(&self) {
        self.f.store_ordered(StoreOrder::Relaxed(Scope::Gpu), self.flag(), [self.f.constant(0u32)]);
    }

    /// Signals that the partial sums are stored. All stores of the warpgroup must come before.
    fn publish(&self) {
        self.f.store_ordered(StoreOrder::Release(Scope::Gpu), self.flag(), [self.f.constant(1u32)]);
    }

    /// Waits until the partial sums are stored, and clears their flag for the next launch.
    fn await_sum(&self) {
        self.f.loop_(|| {
            let [flag] = self.f.load_ordered::<u32, 1>(LoadOrder::Acquire(Scope::Gpu), self.flag());
            self.f.break_if(flag.equals(1));
        });
        self.clear_flag();
    }
}

/// The groups in parts whose loads fit in the registers that the accumulators leave. ptxas issues the loads of
/// one loop's body early, even if it has to spill for them.
fn loadable<'g, G>(plan: &Plan, groups: &'g [G]) -> impl Iterator<Item = &'g [G]> {
    let RegisterPlan { consumer, accumulators, .. } = plan.registers;
    let fit = (consumer.saturating_sub(accumulators) as usize / 4).max(1);
    let parts = groups.len().div_ceil(fit).max(1);
    groups.chunks(groups.len().div_ceil(parts).max(1))
}

fn ordered<'f, T: Number + Default>(
    f: &'f Builder,
    plan: &Plan,
    workspace: Value<'f, u64>,
    share: Share<'f>,
    fragment: &Fragment<'f, T>,
) -> Value<'f, bool> {
    let (barrier, thread) = (fragment.barrier(), fragment.thread);
    let last = share.k_end.equals(share.k);
    f.if_(!last, || {
        let own = Part::new(f, plan, workspace, share.unit, fragment);
        own.store(fragment);
        f.barrier_sync(barrier, 128);
        f.if_(thread.equals(0), || own.publish());
    });
    f.if_(last & share.k_begin.differs_from(0), || {
        let others = share.unit - share.first;
        let part = |i: Value<'f, u32>| Part::new(f, plan, workspace, share.unit - 1 - i, fragment);
        // Each thread waits for a different unit, so that the waits overlap.
        let mine = f.variable(thread);
        f.while_(
            || mine.get().less_than(others),
            || {
                part(mine.get()).await_sum();
                mine.set(mine.get() + 128);
            },
        );
        f.barrier_sync(barrier, 128);
        for groups in loadable(plan, &Part::groups(fragment)) {
            f.repeat(others, |i| part(i).add(groups));
        }
    });
    last
}

fn atomic<'f, T: Number + Default>(
    f: &'f Builder,
    plan: &Plan,
    workspace: Value<'f, u64>,
    share: Share<'f>,
    fragment: &Fragment<'f, T>,
) -> Value<'f, bool> {
    let (barrier, speaks) = (fragment.barrier(), fragment.thread.equals(0));
    let complete = f.variable(1u32);
    f.if_(share.k_begin.differs_from(0) | share.k_end.differs_from(share.k), || {
        let sum = Part::new(f, plan, workspace, share.tile, fragment);
        sum.add_to_memory(fragment);
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
            sum.take(fragment);
            f.if_(speaks, || sum.clear_flag());
        });
    });
    complete.get().differs_from(0)
}

/// Groups of four accumulators, 8 columns each, that are added up at a time unless the epilogue needs another
/// number.
const GROUPS: u32 = 2;

/// Number of units whose partial sums are in flight at a time.
const AT_ONCE: u32 = 8;

fn separate<'f, T: Number + Default>(
    f: &'f Builder,
    plan: &Plan,
    workspace: Value<'f, u64>,
    share: Share<'f>,
    fragment: Fragment<'f, T>,
    finish: &dyn Fn(&Plan, Fragment<'f, T>),
) {
    let divided = share.k_begin.differs_from(0) | share.k_end.differs_from(share.k);
    let add_up = || {
        let (barrier, speaks) = (fragment.barrier(), fragment.thread.equals(0));
        let own = Part::new(f, plan, workspace, share.unit, &fragment);
        own.store(&fragment);
        f.barrier_sync(barrier, 128);
        let others = share.last - share.first;
        f.if_(speaks, || {
            // The flag counts the units that have arrived; the last one wraps it to zero.
            let flag = Part::new(f, plan, workspace, share.tile, &fragment).flag();
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
        let first = Part::new(f, plan, workspace, share.first, &fragment);
        let index = f.variable(share.unit - share.first);
        f.while_(
            || index.get().less_than(plan.blocks() * columns),
            || {
                let sums = first.total(index.get() * groups, groups, others + 1);
                let (block, column) = (index.get() / columns, index.get() % columns);
                finish(&narrow, fragment.narrowed(&narrow, sums, [block * plan.block_rows(), column * n]));
                index.set(index.get() + others + 1);
            },
        );
    };
    let whole = fragment.copied();
    f.if_else(divided, add_up, || finish(plan, whole));
}

impl<'f> Part<'f> {
    /// The sums of `groups` groups from `group` on, over `pieces` workspace entries from this one on.
    fn total<T: Number + Default>(
        &self,
        group: Value<'f, u32>,
        groups: u32,
        pieces: Value<'f, u32>,
    ) -> Vec<ptx::Var<'f, T>> {
        let f = self.f;
        let totals: Vec<_> = (0..groups * 4).map(|_| f.variable(T::default())).collect();
        let base = self.sums + group.mul_wide(group_bytes::<T>().unsigned_abs());
        let piece = f.variable(0u32);
        f.while_(
            || piece.get().less_than(pieces),
            || {
                // Loads past the last entry are clamped to it, and the values are not added.
                let loaded: Vec<_> = (0..AT_ONCE)
                    .map(|i| {
                        let slot = (piece.get() + i).min(pieces - 1);
                        let at = base + slot.mul_wide(self.slot_bytes);
                        let each = (0..groups)
                            .map(|group| load_group::<T>(f, at, group.cast_signed() * group_bytes::<T>()));
                        (piece.get() + i, each.collect::<Vec<_>>().concat())
                    })
                    .collect();
                for (number, values) in loaded {
                    let exists = number.less_than(pieces);
                    for (total, value) in totals.iter().zip(values) {
                        total.set((total.get() + value).where_or(exists, total.get()));
                    }
                }
                piece.set(piece.get() + AT_ONCE);
            },
        );
        totals
    }
}
