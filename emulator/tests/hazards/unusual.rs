//! More programs that the ISA allows. Their accesses are ordered in ways that few kernels use.

use emulator::Fault;
use ptx::{
    AtomicOp, AtomicSem, LoadOrder, Location, MapChange, MbarrierOrder, ProxySpace, Scope, StoreOrder,
};

use crate::tools::{ACQUIRE, RELEASE};
use crate::{BOX_BYTES, Case, Kernel};

fn legal(why: &'static str, threads: u32, program: impl Fn(Kernel<'_>) + Send + Sync + 'static) -> Case {
    Case::new(why, threads, |_: &Fault| false, program)
}

fn grid(why: &'static str, ctas: u32, program: impl Fn(Kernel<'_>) + Send + Sync + 'static) -> Case {
    legal(why, 32, program).ctas(ctas)
}

impl<'f> Kernel<'f> {
    /// Lanes below `count` take a lock one after the other and add to a word.
    fn adds_in_turn(self, count: u32, lock: Location, scope: Scope) {
        let f = self.f;
        f.if_(self.lane().less_than(count), || {
            f.loop_(|| {
                let (free, held) = (f.constant(0u32), f.constant(1u32));
                let order = (AtomicSem::Acquire, scope);
                f.break_if(f.compare_swap(lock, free, held, order).equals(0));
            });
            let old = f.load_global::<u32>(self.data, 0);
            f.store_global(self.data, 0, [old + 1]);
            f.store_ordered(StoreOrder::Release(scope), lock, [f.constant(0u32)]);
        });
    }
}

pub(crate) fn cases() -> Vec<Case> {
    [copies(), order(), patterns(), meetings(), neighbours()].into_iter().flatten().collect()
}

fn copies() -> Vec<Case> {
    vec![
        Case::in_cluster(
            "the source of a multicast overwritten after both CTAs have told",
            |_: &Fault| false,
            |k| {
                k.ready();
                k.once(|| k.f.mbarrier_arrive_expect(k.barrier(), BOX_BYTES));
                k.meet();
                k.once_in_rank(0, || k.copy_box(k.base, k.barrier(), Some(k.f.constant(3u16))));
                k.f.mbarrier_wait(k.barrier(), 0);
                k.meet();
                k.once_in_rank(1, || k.f.store_global(k.data, 0, [k.thread]));
                k.meet();
            },
        )
        .isa("cp.async.bulk.tensor: .multicast::cluster; barrier.cluster"),
        legal("a source loaded twice and overwritten after both phases", 64, |k| {
            k.barriers([1, 1], 64);
            k.once(|| {
                k.bring(k.stage(0), k.bar(0));
                k.bring(k.stage(1), k.bar(1));
            });
            k.f.mbarrier_wait(k.bar(1), 0);
            k.f.mbarrier_wait(k.bar(0), 0);
            k.in_thread(63, || k.f.store_global(k.data, 0, [k.thread]));
        })
        .isa("cp.async.bulk.tensor: completion mechanism"),
        grid("a source overwritten by a CTA that a third CTA told", 3, |k| {
            k.in_cta(0, || {
                k.init();
                k.load(k.base);
                k.once(|| {
                    k.f.mbarrier_wait(k.barrier(), 0);
                    k.set_flag(0, RELEASE);
                });
                k.f.mbarrier_wait(k.barrier(), 0);
            });
            k.once_in(1, || {
                k.poll(k.flag_at(0), ACQUIRE);
                k.set_flag(4, RELEASE);
            });
            k.once_in(2, || {
                k.poll(k.flag_at(4), ACQUIRE);
                k.f.store_global(k.data, 0, [k.thread]);
            });
        })
        .isa("Memory Consistency Model, Causality order: cumulativity"),
        legal("operands given back by a relaxed arrival after a fence", 160, |k| {
            let (f, d) = (k.f, k.accumulators());
            k.zero(4096);
            k.barriers([1, 1], 160);
            f.if_else(
                f.warp_index().less_than(4),
                || {
                    f.wgmma_fence();
                    k.wgmma(&d, false, None);
                    k.finish();
                    k.once(|| {
                        f.fence(Scope::Cta);
                        f.mbarrier_arrive_as(k.bar(1), false, MbarrierOrder::Relaxed(Scope::Cta));
                    });
                },
                || {
                    k.in_thread(128, || {
                        f.mbarrier_wait(k.bar(1), 0);
                        k.bring(k.base, k.bar(0));
                        f.mbarrier_wait(k.bar(0), 0);
                    });
                },
            );
        })
        .isa("mbarrier.arrive: .relaxed with an explicit fence"),
        legal("operands given back by the last warp's lane 31", 160, |k| {
            let (f, d) = (k.f, k.accumulators());
            k.zero(4096);
            k.barriers([1, 1], 160);
            f.if_else(
                f.warp_index().less_than(4),
                || {
                    f.wgmma_fence();
                    for round in 0..2 {
                        k.wgmma(&d, round > 0, None);
                        f.wgmma_commit();
                    }
                    f.wgmma_wait(0);
                    k.in_thread(127, || f.mbarrier_arrive(k.bar(1)));
                },
                || {
                    k.in_thread(128, || {
                        f.mbarrier_wait(k.bar(1), 0);
                        k.bring(k.base, k.bar(0));
                        f.mbarrier_wait(k.bar(0), 0);
                    });
                },
            );
        })
        .isa("wgmma.wait_group: completion of the executing threads' multiplies"),
        legal("a map used, waited for and rewritten, round after round", 32, |k| {
            k.init();
            for round in 0..3u32 {
                k.published(Scope::Gpu);
                k.acquired();
                k.use_it();
                k.f.mbarrier_wait(k.barrier(), round & 1);
            }
        })
        .isa("tensormap.replace; fence.proxy.tensormap"),
        legal("a map that a store has read changed by another warp", 64, |k| {
            k.zeroed(BOX_BYTES, 64);
            k.in_warp(0, || {
                k.published(Scope::Gpu);
                k.acquired();
                Kernel { out_map: k.out, ..k }.store(k.base);
                k.f.bulk_wait(0, true);
            });
            k.f.barrier_sync(0, 64);
            k.in_thread(32, || k.f.replace_tensor_map(k.out, MapChange::Extent(1, k.f.constant(4))));
            k.f.bulk_wait(0, false);
        })
        .isa("cp.async.bulk.wait_group: .read, of the tensormap too"),
        legal("cp.async waited for by each thread, its source overwritten by the neighbour", 64, |k| {
            let source = |thread| k.data + ptx::Value::mul_wide(thread, 16);
            k.f.copy_async(16, k.base + k.thread * 16, (source(k.thread), 0), None);
            k.f.copy_wait_all();
            k.f.barrier_sync(0, 64);
            k.f.store_global(source(k.thread ^ 1), 0, [k.thread]);
        })
        .isa("cp.async.wait_all; bar.sync"),
    ]
}

fn order() -> Vec<Case> {
    vec![
        legal("a lock in shared memory that all lanes of a warp take", 32, |k| {
            k.zeroed(128, 32);
            k.adds_in_turn(32, Location::shared(k.base, 0), Scope::Cta);
        })
        .isa("Independent thread scheduling: forward progress of each thread"),
        grid("a lock that lanes of two CTAs take", 2, |k| k.adds_in_turn(4, k.flag_at(0), Scope::Gpu))
            .isa("Independent thread scheduling: forward progress of each thread"),
        legal("a barrier in a block that the lane which polls enters behind the others", 32, |k| {
            k.in_thread(0, || k.poll(k.flag_at(0), ACQUIRE));
            k.f.if_(k.thread.less_than(32), || {
                k.in_thread(1, || k.set_flag(0, RELEASE));
                k.f.warp_sync();
            });
        })
        .isa("Independent thread scheduling: forward progress of each thread"),
        legal("the same block gone through in rounds, and left by all", 64, |k| {
            let (f, round) = (k.f, k.f.variable(0u32));
            f.while_(
                || round.get().less_than(3),
                || {
                    k.in_thread(0, || {
                        f.loop_(|| {
                            let [seen] = f.load_ordered::<u32, 1>(ACQUIRE, k.flag_at(0));
                            f.break_if(round.get().less_than(seen));
                        });
                    });
                    f.if_(round.get().less_than(2), || {
                        k.in_thread(1, || {
                            f.reduce(
                                AtomicOp::Add,
                                k.flag_at(0),
                                [f.constant(1u32)],
                                (AtomicSem::Release, Scope::Gpu),
                            );
                        });
                        f.barrier_sync(1, 64);
                    });
                    k.in_thread(2, || {
                        let more = f.constant(1u32).where_or(round.get().equals(2), 0);
                        f.reduce(AtomicOp::Add, k.flag_at(0), [more], (AtomicSem::Release, Scope::Gpu));
                    });
                    round.set(round.get() + 1);
                },
            );
            f.barrier_sync(1, 64);
        })
        .isa("Independent thread scheduling: forward progress of each thread"),
        legal("tickets that lanes of a warp are served by in turn", 32, |k| {
            let f = k.f;
            f.if_(k.lane().less_than(2), || {
                let ticket = k.add(k.flag_at(0), AtomicSem::Relaxed);
                f.loop_(|| {
                    let [serving] = f.load_ordered::<u32, 1>(ACQUIRE, k.flag_at(1));
                    f.break_if(serving.equals(ticket));
                });
                let old = f.load_global::<u32>(k.data, 0);
                f.store_global(k.data, 0, [old + 1]);
                f.reduce(AtomicOp::Add, k.flag_at(1), [f.constant(1u32)], (AtomicSem::Release, Scope::Gpu));
            });
        })
        .isa("Independent thread scheduling: forward progress of each thread"),
        Case::in_cluster(
            "a peer that says through global memory that it has started",
            |_: &Fault| false,
            |k| {
                k.once_in_rank(1, || {
                    k.write(k.base, 0u32);
                    k.set_flag(0, RELEASE);
                });
                k.once_in_rank(0, || {
                    k.poll(k.flag_at(0), ACQUIRE);
                    let at = Location::cluster(k.f.map_shared(k.base, 1), 0);
                    k.f.store_ordered(StoreOrder::Relaxed(Scope::Cluster), at, [k.thread]);
                });
                k.meet();
            },
        )
        .isa("Memory Consistency Model, Causality order"),
        Case::in_cluster(
            "a barrier made by another warp's elected lane, and a relaxed barrier of the cluster",
            |_: &Fault| false,
            |k| {
                k.f.if_(k.f.elect(), || {
                    k.f.mbarrier_init(k.barrier(), 1);
                    k.f.fence_mbarrier_init();
                });
                k.f.cluster_arrive(true);
                k.f.cluster_wait();
                k.once(|| {
                    let at = k.f.map_shared(k.barrier(), k.rank() ^ 1);
                    k.f.mbarrier_arrive_cluster(at);
                });
                k.f.mbarrier_wait(k.barrier(), 0);
                k.meet();
            },
        )
        .isa("fence.mbarrier_init.release.cluster; barrier.cluster.arrive.relaxed"),
        legal("a barrier invalidated after the users said so through another", 64, |k| {
            k.barriers([1, 1], 64);
            k.in_thread(32, || {
                k.f.mbarrier_arrive(k.bar(0));
                k.f.mbarrier_wait(k.bar(0), 0);
                k.f.mbarrier_arrive(k.bar(1));
            });
            k.once(|| {
                k.f.mbarrier_wait(k.bar(1), 0);
                k.f.emit(ptx::Inst::MbarrierInvalidate { barrier: k.bar(0).operand() });
                k.write(k.bar(0), 0u32);
            });
        })
        .isa("mbarrier.inval"),
        legal("lanes that count by atomics and read after they have met", 32, |k| {
            k.zeroed(128, 32);
            let at = Location::shared(k.base, 0);
            k.f.reduce(AtomicOp::Add, at, [k.f.constant(1u32)], (AtomicSem::Relaxed, Scope::Cta));
            k.f.warp_sync();
            let _count = k.read(k.base);
        })
        .isa("bar.warp.sync"),
        legal("lanes that poll a word by atomics until all have added", 32, |k| {
            let f = k.f;
            f.reduce(AtomicOp::Add, k.flag_at(0), [f.constant(1u32)], (AtomicSem::Release, Scope::Gpu));
            f.loop_(|| {
                let none = f.constant(0u32);
                let seen = f.atomic(AtomicOp::Or, k.flag_at(0), none, (AtomicSem::Acquire, Scope::Gpu));
                f.break_if(seen.equals(32));
            });
        })
        .isa("atom"),
        legal("one warp polls what all lanes of another have said", 64, |k| {
            let f = k.f;
            f.store_global(k.data + k.thread.mul_wide(4), 0, [k.thread]);
            f.if_else(
                (k.thread / 32).equals(0),
                || {
                    f.reduce(
                        AtomicOp::Add,
                        k.flag_at(0),
                        [f.constant(1u32)],
                        (AtomicSem::Release, Scope::Gpu),
                    );
                },
                || {
                    f.loop_(|| {
                        let order = LoadOrder::Acquire(Scope::Gpu);
                        f.break_if(f.load_ordered::<u32, 1>(order, k.flag_at(0))[0].equals(32));
                    });
                    k.touch(k.data + (k.thread ^ 32).mul_wide(4));
                },
            );
        })
        .isa("Memory Consistency Model, Observation: through atomic read-modify-writes"),
    ]
}

/// Patterns of releases and acquires on one word.
fn patterns() -> Vec<Case> {
    const PATTERNS: &str = "Memory Consistency Model, Release and Acquire Patterns";
    let relaxed = LoadOrder::Relaxed(Scope::Gpu);
    // CTA 0 releases 1, CTA 2 stores 3 when it has seen that, and CTA 1 reads twice.
    let twice = move |why, second: LoadOrder, fenced: bool| {
        grid(why, 3, move |k| {
            let f = k.f;
            k.once(|| {
                k.in_cta(0, || {
                    f.store_global(k.data, 0, [k.thread]);
                    k.set_flag(0, RELEASE);
                });
                k.in_cta(1, || {
                    let [first] = f.load_ordered::<u32, 1>(relaxed, k.flag_at(0));
                    let _again = f.load_ordered::<u32, 1>(second, k.flag_at(0));
                    if fenced {
                        f.fence(Scope::Gpu);
                    }
                    f.if_(first.equals(1), || k.touch(k.data));
                });
                k.in_cta(2, || {
                    k.poll(k.flag_at(0), relaxed);
                    f.store_ordered(StoreOrder::Relaxed(Scope::Gpu), k.flag_at(0), [f.constant(3u32)]);
                });
            });
        })
        .isa(PATTERNS)
    };
    vec![
        grid("a release, and then a relaxed store to the same word", 2, |k| {
            let f = k.f;
            k.once(|| {
                k.in_cta(0, || {
                    f.store_global(k.data, 0, [k.thread]);
                    k.set_flag(0, RELEASE);
                    f.store_ordered(StoreOrder::Relaxed(Scope::Gpu), k.flag_at(0), [f.constant(2u32)]);
                });
                k.in_cta(1, || {
                    f.loop_(|| {
                        let [seen] = f.load_ordered::<u32, 1>(ACQUIRE, k.flag_at(0));
                        f.break_if(seen.equals(2));
                    });
                    k.touch(k.data);
                });
            });
        })
        .isa(PATTERNS),
        twice("a relaxed read, and then an acquire of the same word", ACQUIRE, false),
        twice("two relaxed reads of a word, and then a fence", relaxed, true),
        grid("a counter that 300 CTAs read twice", 301, |k| {
            let f = k.f;
            k.once(|| {
                k.in_cta(0, || {
                    for _ in 0..4 {
                        let _old = k.add(k.flag_at(0), AtomicSem::Relaxed);
                    }
                });
                f.if_(f.special(ptx::Special::CtaX).differs_from(0), || {
                    let [first] = f.load_ordered::<u32, 1>(LoadOrder::Relaxed(Scope::Gpu), k.flag_at(0));
                    let [second] = f.load_ordered::<u32, 1>(LoadOrder::Relaxed(Scope::Gpu), k.flag_at(0));
                    f.if_(second.less_than(first), || f.trap());
                });
            });
        })
        .isa("Memory Consistency Model, Coherence"),
        legal("a fence for the device, and then one for the CTA", 64, |k| {
            let f = k.f;
            k.zeroed(2048, 64);
            let flag = Location::shared(k.base, 1536);
            k.once(|| {
                f.fence(Scope::Gpu);
                k.write(k.base, 1u32);
                f.fence(Scope::Cta);
                f.store_ordered(StoreOrder::Relaxed(Scope::Cta), flag, [f.constant(1u32)]);
            });
            k.in_thread(32, || {
                k.poll(flag, LoadOrder::Acquire(Scope::Cta));
                k.peek(k.base);
            });
        })
        .isa(PATTERNS),
        legal("a proxy fence passed on through a flag in shared memory", 64, |k| {
            let f = k.f;
            k.zeroed(2048, 64);
            let flag = Location::shared(k.base, 1536);
            k.in_warp(0, || {
                k.write(k.own(k.base), k.thread);
                f.fence_proxy_async(ProxySpace::Shared);
                f.warp_sync();
                k.once(|| f.store_ordered(StoreOrder::Release(Scope::Cta), flag, [f.constant(1u32)]));
            });
            k.in_thread(32, || {
                k.poll(flag, LoadOrder::Acquire(Scope::Cta));
                f.tensor_store(k.out_map, k.base, [f.constant(0); 2]);
                f.bulk_commit();
                f.bulk_wait(0, false);
            });
        })
        .isa("Memory Consistency Model, Causality order: base causality with a proxy fence"),
    ]
}

/// Lanes of a warp that meet at different places.
fn meetings() -> Vec<Case> {
    const MEETS: &str = "bar.warp.sync: membermask";
    vec![
        legal("halves of a warp meet in two branches", 32, |k| {
            let f = k.f;
            k.zeroed(256, 32);
            let exchange = || {
                k.write(k.own(k.base), k.thread);
                f.warp_sync();
                k.peek(k.base + (k.thread ^ 16) * 4);
            };
            f.if_else(k.lane().less_than(16), exchange, exchange);
        })
        .isa(MEETS),
        legal("one lane meets the others, and meets them again outside of its branch", 32, |k| {
            let f = k.f;
            k.zeroed(256, 32);
            k.write(k.own(k.base), k.thread);
            f.if_(k.lane().equals(5), || {
                f.warp_sync();
                k.peek(k.base);
                k.write(k.base + 128, 7u32);
                f.warp_sync();
            });
            f.if_(k.lane().differs_from(5), || {
                f.warp_sync();
                f.warp_sync();
                k.peek(k.base + 128);
            });
        })
        .isa(MEETS),
    ]
}

/// Bytes next to those of asynchronous stores and small copies.
fn neighbours() -> Vec<Case> {
    vec![
        Case::in_cluster(
            "words next to an asynchronous store in flight",
            |_: &Fault| false,
            |k| {
                let f = k.f;
                k.ready();
                k.awaits(4, false);
                k.once_in_rank(0, || f.store_async(k.peer(), [k.thread]));
                k.in_rank(1, || {
                    k.in_thread(1, || {
                        k.write(k.base + 4, 1u32);
                        k.peek(k.base + 8);
                    });
                    f.mbarrier_wait(k.barrier(), 0);
                });
                k.meet();
            },
        )
        .isa("st.async: the bytes that it writes"),
        Case::in_cluster(
            "words next to an asynchronous store that another warp has waited for",
            |_: &Fault| false,
            |k| {
                let f = k.f;
                k.ready();
                k.awaits(4, false);
                k.once_in_rank(0, || f.store_async(k.peer(), [k.thread]));
                k.in_rank(1, || {
                    k.in_thread(0, || f.mbarrier_wait(k.barrier(), 0));
                    k.in_thread(1, || k.peek(k.base + 8));
                });
                k.meet();
            },
        )
        .isa("st.async: the bytes that it writes"),
        legal("words next to a cp.async of 4 bytes in flight", 32, |k| {
            let f = k.f;
            k.zeroed(256, 32);
            k.once(|| f.copy_async(4, k.base, (k.data, 0), None));
            k.in_thread(1, || {
                k.peek(k.base + 4);
                k.write(k.base + 8, 1u32);
            });
            f.copy_wait_all();
        })
        .isa("cp.async: the bytes that it writes"),
    ]
}
