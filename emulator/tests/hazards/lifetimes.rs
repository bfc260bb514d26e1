//! Hazards of lifetimes: of an mbarrier, and of the shared memory of another CTA.

use emulator::Fault;
use ptx::{AtomicOp, AtomicSem, Location, MbarrierOrder, Scope, StoreOrder};

use crate::tools::{hang, race, unready};
use crate::{BOX_BYTES, Case};

/// An mbarrier or a CTA that does not exist yet, or no longer exists.
fn early(fault: &Fault) -> bool {
    race(fault)
        || hang(fault)
        || matches!(fault, Fault::MbarrierUninitialised { .. } | Fault::PeerNotStarted { .. })
}

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::new("a barrier that a warp waits at, which nobody told that it is there", 64, early, |k| {
            k.once(|| k.f.mbarrier_init(k.bar(0), 1));
            k.in_twin(|| k.f.barrier_sync(0, 64));
            k.split(|| k.once(|| k.f.mbarrier_arrive(k.bar(0))), || k.f.mbarrier_wait(k.bar(0), 0));
        })
        .isa("mbarrier.init"),
        Case::new("a barrier invalidated while another warp may still look at it", 64, early, |k| {
            k.barriers([2], 64);
            k.leader(|| k.f.mbarrier_arrive(k.bar(0)));
            k.f.mbarrier_wait(k.bar(0), 0);
            k.in_twin(|| k.f.barrier_sync(0, 64));
            k.once(|| k.invalidate(0));
        })
        .isa("mbarrier.inval"),
        Case::new("a barrier that the next lane uses at once", 32, early, |k| {
            k.once(|| k.f.mbarrier_init(k.barrier(), 1));
            k.in_twin(|| k.f.warp_sync());
            k.in_thread(1, || k.f.mbarrier_arrive(k.barrier()));
            k.f.warp_sync();
            k.f.mbarrier_wait(k.barrier(), 0);
        })
        .isa("mbarrier.init; bar.warp.sync"),
        Case::new("a barrier that a lane invalidates after another lane's arrival", 32, early, |k| {
            k.barriers([1], 32);
            k.in_thread(1, || k.f.mbarrier_arrive(k.bar(0)));
            k.in_twin(|| k.f.warp_sync());
            k.once(|| k.invalidate(0));
        })
        .isa("mbarrier.inval; bar.warp.sync"),
        Case::new(
            "a barrier made where another warp still reads data",
            64,
            |f| race(f) || matches!(f, Fault::SharedBarrier { .. }),
            |k| {
                k.once(|| k.f.store_shared(k.bar(0), 0, [k.thread; 2]));
                k.f.barrier_sync(0, 64);
                k.in_thread(32, || {
                    let _value = k.read(k.bar(0));
                });
                k.in_twin(|| k.f.barrier_sync(0, 64));
                k.once(|| k.f.mbarrier_init(k.bar(0), 1));
            },
        )
        .isa("mbarrier.init: the object's memory"),
        Case::new("a barrier made anew with the old one's phase still due", 64, early, |k| {
            k.barriers([1], 64);
            k.split(
                || {
                    k.once(|| {
                        k.in_twin(|| k.f.mbarrier_wait(k.bar(0), 0));
                        k.invalidate(0);
                        k.f.mbarrier_init(k.bar(0), 1);
                    });
                },
                || k.in_thread(32, || k.f.mbarrier_arrive(k.bar(0))),
            );
        })
        .isa("mbarrier.inval"),
        Case::new("a load to a barrier that another warp has made, and nobody has said so", 64, early, |k| {
            k.once(|| {
                k.f.mbarrier_init(k.bar(0), 1);
                k.f.fence_mbarrier_init();
            });
            k.in_twin(|| k.f.barrier_sync(0, 64));
            k.in_thread(32, || {
                k.bring(k.base, k.bar(0));
                k.f.mbarrier_wait(k.bar(0), 0);
            });
        })
        .isa("mbarrier.init"),
        Case::in_cluster(
            "a peer's atomic before the peer has started",
            |f| early(f) || unready(f),
            |k| {
                k.once(|| k.write(k.base, 0u32));
                k.in_twin(|| k.meet());
                k.in_rank(0, || {
                    let at = Location::cluster(k.f.map_shared(k.base, 1), 0);
                    let one = [k.f.constant(1u32)];
                    k.once(|| k.f.reduce(AtomicOp::Add, at, one, (AtomicSem::Relaxed, Scope::Cluster)));
                });
                k.meet();
            },
        )
        .isa("barrier.cluster: a CTA's shared memory is there once the CTA has started"),
        Case::in_cluster("a box sent to a peer that a barrier of the CTA stands for", early, |k| {
            k.init();
            k.once(|| k.f.mbarrier_arrive_expect(k.barrier(), BOX_BYTES));
            if k.broken {
                k.f.barrier_sync(0, 32);
            } else {
                k.meet();
            }
            k.once_in_rank(0, || k.copy_box(k.base, k.barrier(), Some(k.f.constant(3u16))));
            k.f.mbarrier_wait(k.barrier(), 0);
            k.meet();
        })
        .isa("barrier.cluster: a CTA's shared memory is there once the CTA has started"),
        Case::in_cluster(
            "a peer's barrier made and fenced, and the cluster's barrier before it",
            |f| early(f) || matches!(f, Fault::MbarrierNotFenced { .. }),
            |k| {
                k.in_broken(|| k.meet());
                k.init();
                if !k.broken {
                    k.f.cluster_arrive(true);
                    k.f.cluster_wait();
                }
                k.once_in_rank(0, || {
                    let at = k.f.map_shared(k.barrier(), 1);
                    k.f.mbarrier_arrive_as(at, true, MbarrierOrder::CLUSTER);
                });
                k.in_rank(1, || k.f.mbarrier_wait_as(k.barrier(), 0, MbarrierOrder::CLUSTER));
                k.meet();
            },
        )
        .isa("fence.mbarrier_init: followed by barrier.cluster"),
        Case::in_cluster("a word of the own CTA through the cluster's window, and no barrier", race, |k| {
            k.ready();
            let at = Location::cluster(k.f.map_shared(k.base, k.rank()), 0);
            k.once(|| k.f.store_ordered(StoreOrder::Relaxed(Scope::Cluster), at, [k.thread]));
            k.in_twin(|| k.f.warp_sync());
            let _value = k.read(k.base);
            k.meet();
        })
        .isa("Memory Consistency Model, Conflict and data-races"),
    ]
}
