//! Generic accesses to shared memory that only barriers order. The values agree if nothing goes wrong.

use emulator::Fault;
use ptx::{AtomicOp, AtomicSem, LoadOrder, Location, Scope, StoreOrder};

use crate::tools::{hang, race};
use crate::{Case, Kernel};

/// Warp 0 writes, warp 1 reads. `meeting` is executed between the two.
fn exchange(k: Kernel<'_>, meeting: impl Fn(u32)) {
    k.zeroed(1024, 64);
    k.f.if_else(
        (k.thread / 32).equals(0),
        || {
            k.write(k.own(k.base), 0u32);
            meeting(0);
        },
        || {
            meeting(1);
            let _value = k.read(k.other(k.base));
        },
    );
}

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::new("a barrier left out where the old value is the same", 64, race, |k| {
            exchange(k, |_| {
                k.in_twin(|| k.f.barrier_sync(1, 64));
            });
        })
        .isa("bar.sync: memory ordering among participating threads"),
        Case::new("the reader arrives and does not wait", 64, race, |k| {
            exchange(k, |side| {
                if (side == 1) == k.broken {
                    k.f.barrier_arrive(1, 64);
                } else {
                    k.f.barrier_sync(1, 64);
                }
            });
        })
        .isa("bar.arrive"),
        Case::new("a barrier for 96 threads of which 64 come", 96, hang, |k| {
            k.f.if_(k.thread.less_than(64), || {
                k.f.barrier_sync(1, if k.broken { 96 } else { 64 });
            });
        })
        .isa("bar.sync: thread count"),
        Case::new("a barrier for 32 threads where 64 meet", 64, race, |k| {
            exchange(k, |_| k.f.barrier_sync(1, if k.broken { 32 } else { 64 }));
        })
        .isa("bar.sync: thread count"),
        Case::new("the two sides at different barriers", 64, hang, |k| {
            exchange(k, |side| k.f.barrier_sync(if k.broken { 1 + side } else { 1 }, 64));
        })
        .isa("bar.sync: barrier number"),
        Case::new("one barrier in a loop that needs two", 64, race, |k| {
            k.zeroed(1024, 64);
            for round in 0..3u32 {
                k.write(k.own(k.base), round / 3);
                k.f.barrier_sync(0, 64);
                let _value = k.read(k.other(k.base));
                k.in_twin(|| k.f.barrier_sync(0, 64));
            }
        })
        .isa("Memory Consistency Model, Conflict and data-races"),
        Case::new("two buffers, and the same one twice", 64, race, |k| {
            k.zeroed(2048, 64);
            for round in 0..4u32 {
                let buffer = k.stage(if k.broken { round / 2 % 2 } else { round % 2 });
                k.write(k.own(buffer), 0u32);
                k.f.barrier_sync(0, 64);
                let _value = k.read(k.other(buffer));
            }
        })
        .isa("Memory Consistency Model, Conflict and data-races"),
        Case::new("a vector read over words of two warps", 64, race, |k| {
            k.zeroed(1024, 64);
            let shared = (k.thread % 32) * 16 + (k.thread / 32) * 8;
            k.write(k.base + shared, 0u32);
            k.in_twin(|| k.f.barrier_sync(0, 64));
            let _all = k.f.load_shared_vector::<u32, 4>(k.base + k.thread % 32 * 16, 0);
        })
        .isa("Memory Consistency Model, Vector data-types"),
        Case::new("two warps that write one word with one value", 64, race, |k| {
            k.zeroed(1024, 64);
            let warp = if k.broken { k.thread / 64 } else { k.thread / 32 };
            k.leader(|| k.write(k.base + warp * 4, 0u32));
        })
        .isa("Memory Consistency Model, Conflict and data-races"),
        Case::new("a count in shared memory without an atomic", 64, race, |k| {
            k.zeroed(1024, 64);
            let at = Location::shared(k.base, 0);
            k.leader(|| {
                if k.broken {
                    k.write(k.base, k.read(k.base));
                } else {
                    k.f.reduce(AtomicOp::Add, at, [k.f.constant(1u32)], (AtomicSem::Relaxed, Scope::Cta));
                }
            });
        })
        .isa("Memory Consistency Model, Conflict and data-races"),
        Case::new("an atomic and a plain store to one word", 64, race, |k| {
            k.zeroed(1024, 64);
            k.once(|| {
                let at = Location::shared(k.base, 0);
                k.f.reduce(AtomicOp::Add, at, [k.f.constant(0u32)], (AtomicSem::Relaxed, Scope::Cta));
            });
            k.in_twin(|| k.f.barrier_sync(0, 64));
            k.in_thread(32, || k.write(k.base, 0u32));
        })
        .isa("Memory Consistency Model, Morally strong operations"),
        Case::new("a flag in shared memory that is not acquired", 64, race, |k| {
            flag(
                k,
                if k.broken { LoadOrder::Relaxed(Scope::Cta) } else { LoadOrder::Acquire(Scope::Cta) },
                None,
            );
        })
        .isa("Memory Consistency Model, Release and Acquire Patterns"),
        Case::new("a flag in shared memory that is not released", 64, race, |k| {
            flag(
                k,
                LoadOrder::Acquire(Scope::Cta),
                Some(if k.broken {
                    StoreOrder::Relaxed(Scope::Cta)
                } else {
                    StoreOrder::Release(Scope::Cta)
                }),
            );
        })
        .isa("Memory Consistency Model, Release and Acquire Patterns"),
        Case::new("the result of a reduction over warps read without the barrier", 128, race, |k| {
            k.zeroed(1024, 128);
            let sum = k.f.reduce_lanes(ptx::inst::ReduceOp::Add, k.thread / 256);
            k.leader(|| k.write(k.base + k.thread / 32 * 4, sum));
            k.in_twin(|| k.f.barrier_sync(0, 128));
            let _sums = k.f.load_shared_vector::<u32, 4>(k.base, 0);
        })
        .isa("bar.sync: memory ordering among participating threads"),
        Case::new("a ticket told through shared memory that is told again too soon", 64, race, |k| {
            k.zeroed(1024, 64);
            for _ in 0..2 {
                k.once(|| {
                    let ticket = k.add(k.flag_at(0), AtomicSem::Relaxed);
                    k.write(k.base, ticket & 0xFF00_0000);
                });
                k.f.barrier_sync(0, 64);
                let _mine = k.read(k.base);
                k.in_twin(|| k.f.barrier_sync(0, 64));
            }
        })
        .isa("Memory Consistency Model, Conflict and data-races"),
        Case::new(
            "consumers that free a buffer one warp too early",
            96,
            |f: &Fault| race(f),
            |k| {
                // Warps 1 and 2 read what warp 0 writes, twice. The barrier for "free" counts one reader too
                // few.
                let (f, free, full) = (k.f, 1u32, 2u32);
                k.zeroed(1024, 96);
                let readers = if k.broken { 64 } else { 96 };
                f.if_else(
                    (k.thread / 32).equals(0),
                    || {
                        k.write(k.own(k.base), 0u32);
                        f.barrier_arrive(full, 96);
                        f.barrier_sync(free, readers);
                        k.write(k.own(k.base), 0u32);
                    },
                    || {
                        f.barrier_sync(full, 96);
                        let _value = k.read(k.base + k.lane() * 4);
                        let counted = (k.thread / 32).less_than(if k.broken { 2 } else { 3 });
                        f.if_(counted, || f.barrier_arrive(free, readers));
                    },
                );
            },
        )
        .isa("bar.arrive: thread count"),
    ]
}

/// Warp 0 writes and sets a flag in shared memory. Warp 1 polls the flag and reads.
fn flag(k: Kernel<'_>, look: LoadOrder, raise: Option<StoreOrder>) {
    let f = k.f;
    k.zeroed(1024, 64);
    let at = Location::shared(k.base, 512);
    f.if_else(
        (k.thread / 32).equals(0),
        || {
            k.once(|| {
                k.write(k.base, 0u32);
                let order = raise.unwrap_or(StoreOrder::Release(Scope::Cta));
                f.store_ordered(order, at, [f.constant(1u32)]);
            });
        },
        || {
            k.leader(|| {
                k.poll(at, look);
                let _value = k.read(k.base);
            });
        },
    );
}
