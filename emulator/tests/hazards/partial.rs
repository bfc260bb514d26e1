//! Hazards of how many threads take part: barriers that only some of them reach, and copies that every lane
//! issues where one is meant.

use emulator::Fault;
use ptx::{AtomicOp, AtomicType, ProxySpace};

use crate::tools::{absent, hang, out_of_step, race, trapped};
use crate::{BOX_BYTES, Case};

/// Barriers that only some of the threads reach.
pub(crate) fn barriers() -> Vec<Case> {
    let diverged = |f: &Fault| hang(f) || matches!(f, Fault::Divergence { .. });
    vec![
        Case::new("threads without a row leave out a barrier of the CTA", 64, diverged, |k| {
            let rows = 48;
            k.zeroed(256, 64);
            k.f.if_(k.thread.less_than(rows), || {
                k.write(k.own(k.base), k.thread);
                k.in_broken(|| k.f.barrier_sync(0, 64));
            });
            k.in_twin(|| k.f.barrier_sync(0, 64));
            k.f.if_(k.thread.less_than(rows), || k.peek(k.base + (k.thread ^ 32) % rows * 4));
        })
        .isa("bar.sync: .aligned, all threads in the warp"),
        Case::new("a barrier of the cluster in the branch of one warp", 64, hang, |k| {
            k.in_warp(0, || {
                k.init();
                k.in_broken(|| k.meet());
            });
            k.in_twin(|| k.meet());
            k.f.barrier_sync(0, 64);
            k.in_thread(32, || {
                let peer = k.f.map_shared(k.barrier(), k.rank() ^ 1);
                k.f.mbarrier_arrive_cluster(peer);
            });
            k.f.mbarrier_wait(k.barrier(), 0);
            k.meet();
        })
        .cluster(2)
        .isa("barrier.cluster: all the threads of the cluster"),
        Case::new("a barrier that counts threads, at which a lane of each warp arrives", 96, hang, |k| {
            k.barriers([1, if k.broken { 64 } else { 2 }], 96);
            k.roles(
                || {
                    for round in 0..2 {
                        k.f.mbarrier_wait(k.bar(1), round ^ 1);
                        k.bring(k.base, k.bar(0));
                    }
                },
                || {
                    for round in 0..2 {
                        k.f.mbarrier_wait(k.bar(0), round);
                        k.peek(k.base + k.lane() * 4);
                        k.f.warp_sync();
                        k.leader(|| k.f.mbarrier_arrive(k.bar(1)));
                    }
                },
            );
        })
        .isa("mbarrier.init: count"),
        Case::new("a warp without rows that does not give its stage back", 96, hang, |k| {
            let rows = 32;
            let gives_back = || {
                k.f.warp_sync();
                k.leader(|| k.f.mbarrier_arrive(k.bar(1)));
            };
            k.barriers([1, 2], 96);
            k.roles(
                || {
                    for round in 0..3 {
                        k.f.mbarrier_wait(k.bar(1), round & 1 ^ 1);
                        k.bring(k.base, k.bar(0));
                    }
                },
                || {
                    for round in 0..3 {
                        k.f.mbarrier_wait(k.bar(0), round & 1);
                        k.f.if_((k.thread - 32).less_than(rows), || {
                            k.peek(k.base + k.lane() * 4);
                            k.in_broken(gives_back);
                        });
                        k.in_twin(gives_back);
                    }
                },
            );
        })
        .isa("mbarrier.arrive: pending count"),
        Case::new("a warp that fills no part of the staging memory and does not say so", 96, hang, |k| {
            // The warps after the first one fill, and the first one stores.
            k.zeroed(BOX_BYTES, 96);
            k.split(
                || {
                    k.f.barrier_sync(1, 96);
                    k.store(k.base);
                    k.once(|| k.f.bulk_wait(0, true));
                },
                || {
                    k.f.if_(k.thread.less_than(64), || {
                        k.write(k.own(k.base), k.thread);
                        k.f.fence_proxy_async(ProxySpace::Shared);
                        k.in_broken(|| k.f.barrier_arrive(1, 96));
                    });
                    k.in_twin(|| k.f.barrier_arrive(1, 96));
                },
            );
        })
        .isa("bar.arrive: thread count"),
        Case::in_cluster("a CTA without work leaves out the first of two cluster barriers", absent, |k| {
            k.in_rank(0, || {
                k.meet();
                k.store_to(1);
            });
            k.in_rank(1, || {
                k.in_twin(|| k.meet());
            });
            k.meet();
        })
        .isa("barrier.cluster.arrive: of all the threads, or their exit"),
    ]
}

/// Copies that every lane issues where one is meant.
pub(crate) fn lanes() -> Vec<Case> {
    vec![
        Case::new("a tensor load that every lane issues", 32, out_of_step, |k| {
            k.init();
            k.once(|| k.f.mbarrier_arrive_expect(k.barrier(), BOX_BYTES));
            if k.broken {
                k.copy_box(k.base, k.barrier(), None);
            } else {
                k.once(|| k.copy_box(k.base, k.barrier(), None));
            }
            k.f.mbarrier_wait(k.barrier(), 0);
            k.peek(k.own(k.base));
        })
        .isa("cp.async.bulk.tensor: issued by each executing thread"),
        Case::new("every lane announces the bytes of one load", 32, hang, |k| {
            let announces = || k.f.mbarrier_transact(false, k.barrier(), BOX_BYTES, false);
            k.init();
            if k.broken {
                announces();
            } else {
                k.once(announces);
            }
            k.f.warp_sync();
            k.once(|| {
                k.copy_box(k.base, k.barrier(), None);
                k.f.mbarrier_arrive(k.barrier());
            });
            k.f.mbarrier_wait(k.barrier(), 0);
            k.peek(k.own(k.base));
        })
        .isa("mbarrier.expect_tx"),
        Case::new("a tensor store that every lane issues", 64, race, |k| {
            let stores = || {
                k.f.tensor_store(k.out_map, k.base, [k.f.constant(0); 2]);
                k.f.bulk_commit();
                k.f.bulk_wait(0, true);
            };
            k.zeroed(BOX_BYTES, 64);
            k.in_warp(1, || {
                if k.broken {
                    stores();
                } else {
                    k.f.if_(k.f.elect(), stores);
                }
            });
        })
        .isa("Memory Consistency Model, Conflict and data-races"),
        Case::new("a bulk reduction that every lane issues, 32 times the sum", 32, trapped, |k| {
            let adds = || {
                k.f.bulk_reduce((AtomicOp::Add, AtomicType::U32), k.flag, k.base, 64);
                k.f.bulk_commit();
                k.f.bulk_wait(0, false);
            };
            k.f.if_(k.lane().less_than(16), || k.write(k.own(k.base), 1u32));
            k.f.fence_proxy_async(ProxySpace::Shared);
            k.f.warp_sync();
            if k.broken {
                adds();
            } else {
                k.once(adds);
            }
            k.f.warp_sync();
            k.f.if_(k.lane().less_than(16), || {
                let sum = k.f.load_global::<u32>(k.flag + k.lane().mul_wide(4), 0);
                k.f.if_(sum.differs_from(1), || k.f.trap());
            });
        })
        .isa("cp.reduce.async.bulk: issued by each executing thread"),
        Case::new("every lane gives back a stage that counts warps", 96, out_of_step, |k| {
            k.barriers([1, 1, 2, 2], 96);
            k.roles(
                || {
                    let at = k.cursor(2);
                    k.f.repeat(k.f.constant(5u32), |_| k.fills(at));
                },
                || {
                    let at = k.cursor(2);
                    k.f.repeat(k.f.constant(5u32), |_| {
                        if k.broken {
                            k.f.mbarrier_wait(k.full(at), at.parity.get());
                            k.peek(k.base + at.stage.get() * 1024 + k.lane() * 4);
                            k.f.mbarrier_arrive(k.empty(at));
                            at.advance();
                        } else {
                            k.takes(at);
                        }
                    });
                },
            );
        })
        .isa("mbarrier.arrive: each executing thread"),
        Case::in_cluster("an asynchronous store of one word that every lane issues", out_of_step, |k| {
            k.ready();
            k.in_rank(0, || {
                if k.broken {
                    k.f.store_async(k.peer(), [k.thread]);
                } else {
                    k.once(|| k.f.store_async(k.peer(), [k.thread]));
                }
            });
            k.awaits(4, true);
            k.in_rank(1, || k.peek(k.base));
            k.meet();
        })
        .isa("st.async: each executing thread"),
    ]
}
