//! Unusual programs that the ISA allows: none of them may trap.

use emulator::Fault;
use ptx::{AtomicOp, AtomicSem, LoadOrder, Location, ProxySpace, Scope, StoreOrder, TensorLoad};

use crate::tools::{ACQUIRE, RELAXED, RELEASE};
use crate::{BOX_BYTES, Case, Kernel};

fn legal(why: &'static str, threads: u32, program: impl Fn(Kernel<'_>) + Send + Sync + 'static) -> Case {
    Case::new(why, threads, |_: &Fault| false, program)
}

fn grid(why: &'static str, ctas: u32, program: impl Fn(Kernel<'_>) + Send + Sync + 'static) -> Case {
    legal(why, 32, program).ctas(ctas)
}

fn pair(why: &'static str, program: fn(Kernel<'_>)) -> Case {
    Case::in_cluster(why, |_: &Fault| false, program)
}

pub(crate) fn cases() -> Vec<Case> {
    [copies(), barriers(), memory(), lanes()].into_iter().flatten().collect()
}

fn copies() -> Vec<Case> {
    vec![
        legal("a box outside of a tensor of four bytes", 32, |k| {
            k.barriers([1], 32);
            k.once(|| {
                k.f.mbarrier_arrive_expect(k.bar(0), BOX_BYTES);
                let (barrier, map) = (k.bar(0), k.short_map);
                let load = TensorLoad { map, dst: k.base, barrier, multicast: None, hint: None };
                k.f.tensor_load(load, [k.f.constant(32), k.f.constant(0)]);
            });
            k.f.mbarrier_wait(k.bar(0), 0);
        })
        .isa("cp.async.bulk.tensor: elements outside are zeros; the card reads whole pages"),
        legal("bytes announced after the copy has been issued", 32, |k| {
            k.barriers([1], 32);
            k.once(|| {
                k.copy_box(k.base, k.bar(0), None);
                k.f.mbarrier_arrive_expect(k.bar(0), BOX_BYTES);
            });
            k.f.mbarrier_wait(k.bar(0), 0);
            let _value = k.read(k.own(k.base));
        })
        .isa("mbarrier: expect-tx and complete-tx in any order within the phase"),
        legal("a proxy fence on the reader's side after the barrier", 64, |k| {
            k.zeroed(BOX_BYTES, 64);
            k.write(k.own(k.base), k.thread);
            k.f.barrier_sync(0, 64);
            k.once(|| k.f.fence_proxy_async(ProxySpace::Shared));
            k.store(k.base);
            k.f.bulk_wait(0, true);
        })
        .isa("Memory Consistency Model, Causality order: base causality with a proxy fence"),
        legal("a box changed in place and stored again", 64, |k| {
            k.barriers([1], 64);
            k.once(|| k.bring(k.base, k.bar(0)));
            k.f.mbarrier_wait(k.bar(0), 0);
            k.write(k.own(k.base), k.read(k.own(k.base)) + 1);
            k.f.fence_proxy_async(ProxySpace::Shared);
            k.f.barrier_sync(0, 64);
            k.store(k.base);
            k.f.bulk_wait(0, true);
        })
        .isa("fence.proxy.async"),
        legal("a producer that ends while its load is in flight", 64, |k| {
            k.barriers([1], 64);
            k.once(|| k.bring(k.base, k.bar(0)));
            k.f.if_((k.thread / 32).equals(1), || {
                k.f.mbarrier_wait(k.bar(0), 0);
                let _value = k.read(k.base + k.lane() * 4);
            });
        })
        .isa("cp.async.bulk.tensor: completion through the mbarrier"),
        legal("two loads of one barrier, two arrivals", 64, |k| {
            k.barriers([2], 64);
            k.leader(|| k.bring(k.base + k.thread / 32 * 1024, k.bar(0)));
            k.f.mbarrier_wait(k.bar(0), 0);
            let _value = k.read(k.own(k.stage(1)));
        })
        .isa("mbarrier.arrive.expect_tx"),
        legal("a store read back by the thread that waited for it", 32, |k| {
            k.zero(BOX_BYTES);
            k.store(k.base);
            k.once(|| {
                k.f.bulk_wait(0, false);
                k.touch(k.out);
            });
        })
        .isa("cp.async.bulk.wait_group: writes being made visible to the executing thread"),
        legal("global memory written, fenced and loaded by the same thread", 32, |k| {
            k.init();
            k.once(|| {
                k.f.store_global(k.data, 0, [k.thread; 4]);
                k.f.fence_proxy_async(ProxySpace::All);
            });
            k.bulk_load(64);
            k.f.mbarrier_wait(k.barrier(), 0);
        })
        .isa("fence.proxy.async: .global"),
        legal("a multiply's accumulators used by the next without a fence", 128, |k| {
            let d = k.accumulators();
            k.ready_to_multiply();
            k.wgmma(&d, false, None);
            k.wgmma(&d, true, None);
            k.f.wgmma_commit();
            k.wgmma(&d, true, None);
            k.finish();
            let _value = d[0].get();
        })
        .isa("wgmma.fence: same-shape accumulators are exempt"),
        legal("the older of two groups read", 128, |k| {
            let (c, d) = (k.accumulators(), k.accumulators());
            k.ready_to_multiply();
            for one in [&c, &d] {
                k.wgmma(one, false, None);
                k.f.wgmma_commit();
            }
            k.f.wgmma_wait(1);
            let _value = c[0].get();
            k.f.wgmma_wait(0);
        })
        .isa("wgmma.wait_group: N"),
        legal("one thread of a warpgroup gives a stage back after its own wait", 160, |k| {
            let (f, d) = (k.f, k.accumulators());
            k.zero(6144);
            k.barriers([1, 1], 160);
            f.if_else(
                f.warp_index().less_than(4),
                || {
                    f.wgmma_fence();
                    k.multiply_at(1, &d);
                    k.finish();
                    k.once(|| f.mbarrier_arrive(k.bar(1)));
                },
                || {
                    k.in_thread(128, || {
                        f.mbarrier_wait(k.bar(1), 0);
                        k.bring(k.stage(2), k.bar(0));
                        f.mbarrier_wait(k.bar(0), 0);
                    });
                },
            );
        })
        .isa("wgmma.wait_group: completion of the warpgroup's multiply"),
        legal("bytes that nobody wrote, loaded in a vector and dropped", 32, |k| {
            k.f.store_shared(k.base + k.thread * 16, 0, [k.thread; 2]);
            let [low, ..] = k.f.load_shared_vector::<u32, 4>(k.base + k.thread * 16, 0);
            k.f.store_global(k.out + k.thread.mul_wide(4), 0, [low]);
        })
        .isa("ld: the value of an uninitialised location is undefined, the load is not"),
    ]
}

fn barriers() -> Vec<Case> {
    vec![
        legal("a phase waited for twice", 32, |k| {
            k.barriers([1], 32);
            k.once(|| k.f.mbarrier_arrive(k.bar(0)));
            k.f.mbarrier_wait(k.bar(0), 0);
            k.f.mbarrier_wait(k.bar(0), 0);
        })
        .isa("mbarrier.test_wait: waiting twice for the immediately preceding phase"),
        legal("one thread polls a barrier, the others meet it", 64, |k| {
            k.barriers([1], 64);
            k.once(|| k.bring(k.base, k.bar(0)));
            k.in_thread(32, || k.f.loop_(|| k.f.break_if(k.f.mbarrier_test_parity(k.bar(0), 0))));
            k.f.barrier_sync(0, 64);
            let _value = k.read(k.own(k.base));
        })
        .isa("Memory Consistency Model, Causality order"),
        legal("a barrier invalidated, its place used for data", 64, |k| {
            k.barriers([1], 64);
            k.once(|| k.f.mbarrier_arrive(k.bar(0)));
            k.f.mbarrier_wait(k.bar(0), 0);
            k.f.barrier_sync(0, 64);
            k.once(|| {
                k.f.emit(ptx::Inst::MbarrierInvalidate { barrier: k.bar(0).operand() });
                k.write(k.bar(0), 1u32);
            });
        })
        .isa("mbarrier.inval"),
        legal("two pairs of warps at two barriers", 128, |k| {
            k.zeroed(1024, 128);
            for _ in 0..2 {
                k.write(k.own(k.base), 0u32);
                k.f.barrier_sync(k.thread / 64 + 1, 64);
                let _value = k.read(k.other(k.base));
                k.f.barrier_sync(k.thread / 64 + 1, 64);
            }
        })
        .isa("bar.sync: barrier in a register"),
        legal("a producer that arrives, a consumer that waits", 64, |k| {
            k.zeroed(1024, 64);
            k.f.if_else(
                (k.thread / 32).equals(0),
                || {
                    k.write(k.own(k.base), 0u32);
                    k.f.barrier_arrive(1, 64);
                },
                || {
                    k.f.barrier_sync(1, 64);
                    let _value = k.read(k.other(k.base));
                },
            );
        })
        .isa("bar.arrive: producer and consumer"),
        legal("a warp that has ended does not hold up the others' barrier", 64, |k| {
            k.f.if_((k.thread / 32).equals(0), || k.f.barrier_sync(1, 32));
        })
        .isa("bar.sync: thread count"),
        pair("a cluster barrier that a warp passes by ending", |k| {
            k.f.if_(k.rank().equals(0), || {
                k.f.cluster_arrive(true);
                k.f.cluster_wait();
            });
        })
        .isa("barrier.cluster: all non-exited threads of the cluster"),
        pair("a relaxed arrival after a fence", |k| {
            k.ready();
            k.in_rank(0, || {
                let at = Location::cluster(k.f.map_shared(k.base, 1), 0);
                k.once(|| {
                    k.f.store_ordered(StoreOrder::Relaxed(Scope::Cluster), at, [k.thread]);
                    k.f.fence(Scope::Cluster);
                });
            });
            k.f.cluster_arrive(true);
            k.f.cluster_wait();
            k.once_in_rank(1, || {
                let _value = k.read(k.base);
            });
            k.meet();
        })
        .isa("barrier.cluster.arrive: .relaxed with an explicit fence"),
    ]
}

fn memory() -> Vec<Case> {
    vec![
        legal("words of two warps in one granule", 64, |k| {
            k.zeroed(1024, 64);
            let at = k.base + (k.thread % 32) * 16 + (k.thread / 32) * 4;
            k.write(at, k.thread);
            let _own = k.read(at);
        })
        .isa("Memory Consistency Model, Overlap"),
        grid("words of two CTAs in one granule", 2, |k| {
            let cta = k.f.special(ptx::Special::CtaX);
            k.once(|| k.f.store_global(k.out + cta.mul_wide(4), 0, [cta]));
        })
        .isa("Memory Consistency Model, Overlap"),
        grid("a message passed on by a third CTA", 3, |k| {
            k.once_in(0, || {
                k.f.store_global(k.data, 0, [k.thread]);
                k.set_flag(0, RELEASE);
            });
            k.once_in(1, || {
                k.poll(k.flag_at(0), ACQUIRE);
                k.set_flag(4, RELEASE);
            });
            k.once_in(2, || {
                k.poll(k.flag_at(4), ACQUIRE);
                k.touch(k.data);
            });
        })
        .isa("Memory Consistency Model, Causality order: cumulativity"),
        grid("a release that others' atomics pass on", 3, |k| {
            // CTA 1 adds with a relaxed atomic. CTA 2 acquires the sum, and with it the release of CTA 0.
            k.once_in(0, || {
                k.f.store_global(k.data, 0, [k.thread]);
                let _old = k.add(k.flag_at(0), AtomicSem::Release);
            });
            k.once_in(1, || {
                k.poll(k.flag_at(0), LoadOrder::Relaxed(Scope::Gpu));
                let _old = k.add(k.flag_at(0), AtomicSem::Relaxed);
            });
            k.once_in(2, || {
                k.f.loop_(|| {
                    let [seen] = k.f.load_ordered::<u32, 1>(ACQUIRE, k.flag_at(0));
                    k.f.break_if(seen.equals(2));
                });
                k.touch(k.data);
            });
        })
        .isa("Memory Consistency Model, Observation: through atomic read-modify-writes"),
        grid("fences on both sides of relaxed accesses", 2, |k| {
            k.once_in(0, || {
                k.f.store_global(k.data, 0, [k.thread]);
                k.f.fence(Scope::Gpu);
                k.set_flag(0, StoreOrder::Relaxed(Scope::Gpu));
            });
            k.once_in(1, || {
                k.poll(k.flag_at(0), LoadOrder::Relaxed(Scope::Gpu));
                k.f.fence(Scope::Gpu);
                k.touch(k.data);
            });
        })
        .isa("Memory Consistency Model, Release and Acquire Patterns"),
        grid("sums by atomics of different scopes that hold each other", 2, |k| {
            let system = k.f.special(ptx::Special::CtaX).equals(0);
            let at = k.flag_at(0);
            let one = [k.f.constant(1u32)];
            k.f.if_else(
                system,
                || k.f.reduce(AtomicOp::Add, at, one, (AtomicSem::Relaxed, Scope::System)),
                || k.f.reduce(AtomicOp::Add, at, one, RELAXED),
            );
        })
        .isa("Memory Consistency Model, Morally strong operations"),
        grid("mutual exclusion by fence.sc", 2, |k| {
            let mine = k.f.special(ptx::Special::CtaX);
            k.once(|| {
                let at = |cta: ptx::Value<'_, u32>| Location::global(k.flag + cta.mul_wide(16), 0);
                k.f.store_ordered(StoreOrder::Relaxed(Scope::Gpu), at(mine), [k.f.constant(1u32)]);
                k.f.fence_sc(Scope::Gpu);
                let [other] = k.f.load_ordered::<u32, 1>(LoadOrder::Relaxed(Scope::Gpu), at(mine ^ 1));
                k.f.if_(other.equals(0), || k.f.store_global(k.data, 0, [k.thread]));
            });
        })
        .isa("Memory Consistency Model, Fence-SC"),
    ]
}

fn lanes() -> Vec<Case> {
    vec![
        legal("lanes of one warp, one of which waits for another in its branch", 32, |k| {
            let f = k.f;
            k.zeroed(128, 32);
            let flag = Location::shared(k.base, 0);
            f.if_else(
                k.lane().equals(0),
                || k.poll(flag, LoadOrder::Acquire(Scope::Cta)),
                || {
                    k.in_thread(1, || {
                        f.store_ordered(StoreOrder::Release(Scope::Cta), flag, [f.constant(1u32)]);
                    });
                },
            );
        })
        .isa("Independent thread scheduling: forward progress of each thread"),
        legal("lanes of one warp, each of which waits for another in the other branch", 32, |k| {
            let f = k.f;
            k.zeroed(128, 32);
            let at = |word: i32| Location::shared(k.base, 16 * word);
            let raise = |word| f.store_ordered(StoreOrder::Release(Scope::Cta), at(word), [f.constant(1u32)]);
            f.if_else(
                k.lane().equals(0),
                || {
                    k.poll(at(0), LoadOrder::Acquire(Scope::Cta));
                    raise(1);
                },
                || {
                    k.in_thread(1, || {
                        raise(0);
                        k.poll(at(1), LoadOrder::Acquire(Scope::Cta));
                    });
                },
            );
        })
        .isa("Independent thread scheduling: forward progress of each thread"),
        legal("a lock that each lane of a warp takes", 32, |k| {
            let f = k.f;
            f.if_(k.lane().less_than(3), || {
                f.loop_(|| {
                    let (free, held) = (f.constant(0u32), f.constant(1u32));
                    let order = (AtomicSem::Acquire, Scope::Gpu);
                    f.break_if(f.compare_swap(k.flag_at(0), free, held, order).equals(0));
                });
                let old = f.load_global::<u32>(k.data, 0);
                f.store_global(k.data, 0, [old + 1]);
                f.store_ordered(RELEASE, k.flag_at(0), [f.constant(0u32)]);
            });
        })
        .isa("Independent thread scheduling: forward progress of each thread"),
        legal("32 lanes write, meet, and one arrives", 64, |k| {
            k.zero(1024);
            k.barriers([1], 64);
            k.f.if_else(
                (k.thread / 32).equals(0),
                || {
                    k.write(k.own(k.base), 0u32);
                    k.f.warp_sync();
                    k.leader(|| k.f.mbarrier_arrive(k.bar(0)));
                },
                || {
                    k.f.mbarrier_wait(k.bar(0), 0);
                    let _value = k.read(k.other(k.base));
                },
            );
        })
        .isa("bar.warp.sync"),
        legal("the elected lane does all of a store", 32, |k| {
            k.zeroed(BOX_BYTES, 32);
            k.f.if_(k.f.elect(), || {
                k.f.tensor_store(k.out_map, k.base, [k.f.constant(0); 2]);
                k.f.bulk_commit();
                k.f.bulk_wait(0, false);
            });
        })
        .isa("elect.sync"),
        legal("32 lanes arrive for one warp", 64, |k| {
            k.zero(1024);
            k.barriers([32], 64);
            k.f.if_else(
                (k.thread / 32).equals(0),
                || {
                    k.write(k.own(k.base), 0u32);
                    k.f.mbarrier_arrive(k.bar(0));
                },
                || {
                    k.f.mbarrier_wait(k.bar(0), 0);
                    let _value = k.read(k.other(k.base));
                },
            );
        })
        .isa("mbarrier.arrive"),
    ]
}
