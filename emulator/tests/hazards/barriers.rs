//! Hazards of barriers, clusters, `setmaxnreg` and the end of a program.

use emulator::{Fault, Wait};
use ptx::inst::Arrival;
use ptx::{Inst, LoadOrder, Location, MbarrierOrder, Scope, Special, StoreOrder, TensorLoad};

use crate::{BARRIER, BOX_BYTES, Case};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::new(
            "a live mbarrier is stored to",
            32,
            fault!(Fault::SharedBarrier { offset: BARRIER }),
            |k| {
                k.init();
                k.f.store_shared(k.barrier(), if k.broken { 0 } else { 8 }, [k.thread]);
            },
        ),
        Case::new("a barrier number that differs between lanes", 32, fault!(Fault::NotUniform { .. }), |k| {
            let id = if k.broken { k.thread & 1 } else { k.thread / 32 };
            k.f.barrier_sync(id, 32);
        }),
        Case::new("a barrier number that does not exist", 32, fault!(Fault::BarrierId { id: 16 }), |k| {
            k.f.barrier_sync(k.thread / 32 + if k.broken { 16 } else { 15 }, 32);
        }),
        Case::new(
            "thread counts that differ at a barrier",
            64,
            fault!(Fault::BarrierThreads { id: 1, first: 64, this: 32 }),
            |k| {
                let warp = k.f.warp_index();
                k.f.if_else(
                    warp.equals(0),
                    || k.f.barrier_sync(1, 64),
                    || {
                        k.f.barrier_sync(1, if k.broken { 32 } else { 64 });
                    },
                );
            },
        ),
        Case::new("a warp that arrives twice", 64, fault!(Fault::BarrierTwice { id: 1 }), |k| {
            let warp = k.f.warp_index();
            k.f.if_else(
                warp.equals(0),
                || {
                    k.f.barrier_arrive(1, 64);
                    k.in_broken(|| k.f.barrier_arrive(1, 64));
                },
                || k.f.barrier_sync(1, 64),
            );
        }),
        Case::new(
            "a cluster wait without an arrive",
            32,
            fault!(Fault::ClusterBarrier { arrive: false }),
            |k| {
                k.in_twin(|| k.f.cluster_arrive(true));
                k.f.cluster_wait();
            },
        ),
        Case::new("two cluster arrives", 32, fault!(Fault::ClusterBarrier { arrive: true }), |k| {
            k.f.cluster_arrive(true);
            k.in_broken(|| k.f.cluster_arrive(true));
            k.f.cluster_wait();
        }),
        Case::new(
            "an mbarrier that was not initialised",
            32,
            fault!(Fault::MbarrierUninitialised { offset: BARRIER }),
            |k| {
                k.in_twin(|| k.init());
                k.once(|| k.f.mbarrier_arrive(k.barrier()));
            },
        ),
        Case::new(
            "an mbarrier initialised twice",
            32,
            fault!(Fault::MbarrierLive { offset: BARRIER }),
            |k| {
                k.init();
                k.once(|| {
                    if !k.broken {
                        let barrier = k.barrier().operand();
                        k.f.emit(Inst::MbarrierInvalidate { barrier });
                    }
                    k.f.mbarrier_init(k.barrier(), 1);
                });
            },
        ),
        Case::new("an mbarrier of no arrivals", 32, fault!(Fault::MbarrierCount { count: 0, .. }), |k| {
            k.once(|| k.f.mbarrier_init(k.barrier(), u32::from(!k.broken)));
        }),
        Case::new(
            "an arrival of every lane where one was agreed",
            32,
            fault!(Fault::MbarrierOverArrival { count: 2, pending: 1, .. }),
            |k| {
                k.once(|| k.f.mbarrier_init(k.barrier(), 3));
                k.f.warp_sync();
                let arrival = Arrival::count(if k.broken { 2 } else { 1 });
                k.f.if_(k.thread.less_than(3), || {
                    k.f.mbarrier_arrival(k.barrier(), arrival, false, false, MbarrierOrder::CTA);
                });
            },
        ),
        Case::new(
            "more bytes than a barrier counts",
            32,
            fault!(Fault::MbarrierBytes { outstanding: 1_048_576, .. }),
            |k| {
                k.init();
                let bytes = if k.broken { 1 << 20 } else { (1 << 20) - 1 };
                k.once(|| k.f.mbarrier_arrive_expect(k.barrier(), bytes));
            },
        ),
        Case::new(
            "a barrier that a copy uses without a fence",
            32,
            fault!(Fault::MbarrierNotFenced { offset: BARRIER, by: 0 }),
            |k| {
                k.once(|| {
                    k.f.mbarrier_init(k.barrier(), 1);
                    k.in_twin(|| k.f.fence_mbarrier_init());
                });
                k.f.warp_sync();
                k.load(k.base);
                k.f.mbarrier_wait(k.barrier(), 0);
            },
        ),
        Case::new(
            "setmaxnreg in the wrong direction",
            128,
            fault!(Fault::Registers { grow: false, held: 40, asked: 48 }),
            |k| {
                k.f.set_max_registers(false, 40);
                k.f.barrier_sync(1, 128);
                k.f.set_max_registers(false, if k.broken { 48 } else { 32 });
            },
        ),
        Case::new("a trap", 32, fault!(Fault::Trapped), |k| {
            k.f.if_(k.thread.equals(if k.broken { 3 } else { 99 }), || k.f.trap());
        }),
        Case::new("a loop that never ends", 32, fault!(Fault::Fuel { limit: crate::FUEL, .. }), |k| {
            k.f.loop_(|| k.f.break_if(k.thread.at_least(u32::from(k.broken))));
        }),
        Case::new(
            "a poll that never succeeds",
            32,
            |f| {
                matches!(f, Fault::Hang { waiting, .. }
            if matches!(waiting[0].on, Wait::Mbarrier { offset: BARRIER, parity: 0, pending: 1, .. }))
                    || matches!(f, Fault::Fuel { .. })
            },
            |k| {
                k.init();
                k.f.warp_sync();
                k.f.loop_(|| k.f.break_if(k.f.mbarrier_try_wait(k.barrier(), u32::from(!k.broken))));
            },
        ),
        Case::new(
            "a barrier to which a warp does not come",
            64,
            |f| {
                matches!(f, Fault::Hang { waiting, exited: 1 }
            if waiting[0].on == Wait::Named { id: 2, threads: 64, arrived: 32 })
            },
            |k| {
                let warp = k.f.warp_index();
                k.f.if_(warp.less_than(if k.broken { 1 } else { 2 }), || k.f.barrier_sync(2, 64));
            },
        ),
        Case::new(
            "more registers than the pool has",
            384,
            |f| {
                matches!(f, Fault::Hang { waiting, .. }
            if waiting.iter().any(|one| matches!(one.on, Wait::Registers { asked: 240, held: 168, .. })))
            },
            |k| {
                // 3 x 168 registers: 40 + 232 + 232 fit, 40 + 240 + 232 do not.
                let warp = k.f.warp_index();
                k.f.if_(warp.less_than(4), || k.f.set_max_registers(false, 40));
                k.f.if_(warp.at_least(4) & warp.less_than(8), || k.f.set_max_registers(true, 232));
                k.f.if_(warp.at_least(8), || k.f.set_max_registers(true, if k.broken { 240 } else { 232 }));
                k.f.barrier_sync(0, 384);
            },
        ),
        Case::new(
            "more registers than the pool of one of two CTAs has",
            256,
            |f| {
                matches!(f, Fault::Hang { waiting, .. }
            if waiting.iter().any(|one| matches!(one.on, Wait::Registers { asked: 232, held: 128, .. })))
            },
            |k| {
                // 2 x 128 registers: 24 + 232 fit, 32 + 232 do not.
                k.f.share_registers(2);
                let warp = k.f.warp_index();
                k.f.if_(warp.less_than(4), || k.f.set_max_registers(false, if k.broken { 32 } else { 24 }));
                k.f.if_(warp.at_least(4), || k.f.set_max_registers(true, 232));
                k.f.barrier_sync(0, 256);
            },
        ),
        Case::in_cluster(
            "a peer's memory through an own address",
            fault!(Fault::SharedOtherCta { .. }),
            |k| {
                let rank = k.f.special(Special::ClusterRank);
                let address = if k.broken { k.f.map_shared(k.base, rank ^ 1) } else { k.base };
                k.f.store_shared(address, 0, [k.thread]);
                k.f.cluster_arrive(false);
                k.f.cluster_wait();
            },
        ),
        Case::new(
            "a wait for a phase two behind",
            32,
            fault!(Fault::MbarrierMissed { parity: 0, phase: 2, known: 0, .. }),
            |k| {
                k.init();
                k.once(|| {
                    k.f.mbarrier_arrive(k.barrier());
                    k.in_broken(|| k.f.mbarrier_arrive(k.barrier()));
                    k.f.mbarrier_wait(k.barrier(), 0);
                });
            },
        ),
        Case::new(
            "a wait that sleeps through two phases",
            64,
            fault!(Fault::MbarrierMissed { phase: 2, .. }),
            |k| {
                k.init();
                k.f.barrier_sync(0, 64);
                let warp = k.f.warp_index();
                k.f.if_(warp.equals(0), || k.f.mbarrier_wait(k.barrier(), 0));
                k.f.if_(k.thread.equals(32), || {
                    k.f.mbarrier_arrive(k.barrier());
                    k.in_broken(|| k.f.mbarrier_arrive(k.barrier()));
                });
            },
        ),
        Case::new(
            "a reader that has not observed the barrier",
            64,
            fault!(Fault::MbarrierNotObserved { offset: 0, bytes: 4, barrier: BARRIER }),
            |k| {
                let (f, flag) = (k.f, Location::global(k.flag, 0));
                k.init();
                k.load(k.base);
                k.once(|| {
                    f.mbarrier_wait(k.barrier(), 0);
                    let order = if k.broken {
                        StoreOrder::Relaxed(Scope::Gpu)
                    } else {
                        StoreOrder::Release(Scope::Gpu)
                    };
                    f.store_ordered(order, flag, [f.constant(1u32)]);
                });
                f.if_(k.thread.equals(32), || {
                    let order = if k.broken {
                        LoadOrder::Relaxed(Scope::Gpu)
                    } else {
                        LoadOrder::Acquire(Scope::Gpu)
                    };
                    f.loop_(|| f.break_if(f.load_ordered::<u32, 1>(order, flag)[0].equals(1)));
                    let _value = f.load_shared_vector::<u32, 1>(k.base, 0);
                });
            },
        ),
        Case::in_cluster(
            "an exit with a peer's arrival still due",
            fault!(Fault::PeerUnordered { rank: 1 } | Fault::PeerExited { rank: 1 }),
            |k| {
                let rank = k.f.special(Special::ClusterRank);
                k.init();
                k.f.cluster_arrive(false);
                k.f.cluster_wait();
                k.f.if_(rank.equals(0), || {
                    let remote = k.f.map_shared(k.barrier(), 1);
                    k.once(|| k.f.mbarrier_arrive_cluster(remote));
                });
                k.in_twin(|| k.f.if_(rank.equals(1), || k.f.mbarrier_wait(k.barrier(), 0)));
            },
        ),
        Case::in_cluster("a peer that has exited", fault!(Fault::PeerExited { rank: 1 }), |k| {
            let rank = k.f.special(Special::ClusterRank);
            k.once(|| {
                k.f.mbarrier_init(k.barrier(), 1);
                k.f.fence_mbarrier_init();
            });
            k.f.cluster_arrive(false);
            k.f.cluster_wait();
            k.f.if_(rank.equals(0), || {
                // A load of its own, which gives the peer time to end.
                k.once(|| {
                    k.f.mbarrier_arrive_expect(k.barrier(), BOX_BYTES);
                    let load = TensorLoad {
                        map: k.map,
                        dst: k.base,
                        barrier: k.barrier(),
                        multicast: None,
                        hint: None,
                    };
                    k.f.tensor_load(load, [k.f.constant(0); 2]);
                });
                k.f.mbarrier_wait(k.barrier(), 0);
                let remote = k.f.map_shared(k.barrier(), 1);
                k.once(|| k.f.mbarrier_arrive_cluster(remote));
            });
            if !k.broken {
                k.f.cluster_arrive(false);
                k.f.cluster_wait();
            }
        }),
    ]
}

/// Two pairs of warps, each with a barrier of its own. In the broken program the first barrier has the number
/// of the next pair. So a late warp of the first pair lets an early warp of the other pair pass.
pub(crate) fn numbers_mixed_up() -> Case {
    let program = |k: crate::Kernel<'_>| {
        let (f, pair) = (k.f, k.thread / 64);
        f.barrier_sync(pair + if k.broken { 2 } else { 1 }, 64);
        f.store_shared(k.base + k.thread * 4, 0, [k.thread]);
        f.barrier_sync(pair + 1, 64);
        let _value = f.load_shared_vector::<u32, 1>(k.base + (k.thread ^ 32) * 4, 0);
    };
    Case::new(
        "two pairs at one barrier",
        128,
        |fault| matches!(fault, Fault::SharedUninitialised { .. }),
        program,
    )
}
