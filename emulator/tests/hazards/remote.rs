//! Hazards between the CTAs of a cluster: copies and stores into a peer that is not ready, and the own CTA's
//! barrier or memory in place of the peer's.

use emulator::Fault;
use ptx::inst::Arrival;
use ptx::{AtomicOp, AtomicType, BulkLoad, Location, MbarrierOrder, Scope, StoreOrder};

use crate::tools::{hang, out_of_step, race, trapped, unfenced};
use crate::{BOX_BYTES, Case, Kernel};

impl Kernel<'_> {
    /// Two CTAs load half of a stage each, and send it to both. `consumed` is executed by the leader of each
    /// consumer warp when it has read the stage.
    fn halves_sent(self, counted: u32, consumed: impl Fn()) {
        let f = self.f;
        self.once(|| {
            f.mbarrier_init(self.bar(0), 1);
            f.mbarrier_init(self.bar(1), counted);
            f.fence_mbarrier_init();
        });
        self.meet();
        self.roles(
            || {
                for round in 0..3 {
                    f.mbarrier_wait(self.bar(1), round & 1 ^ 1);
                    f.mbarrier_arrive_expect(self.bar(0), 1024);
                    let half = self.rank() * 512;
                    let (src, dst) = (self.data + half.mul_wide(1), self.base + half);
                    let (barrier, multicast) = (self.bar(0), Some(f.constant(3u16)));
                    f.bulk_load(BulkLoad { src, dst, barrier, multicast, hint: None }, 512);
                }
            },
            || {
                for round in 0..3 {
                    f.mbarrier_wait(self.bar(0), round & 1);
                    self.peek(self.base + self.lane() * 32);
                    f.warp_sync();
                    self.leader(&consumed);
                }
            },
        );
        self.meet();
    }
}

/// Copies and stores into a peer that is not ready.
pub(crate) fn early() -> Vec<Case> {
    const BUSY: &str = "cp.async.bulk: .multicast::cluster";
    vec![
        Case::in_cluster(
            "asynchronous stores of the next round before the peer has asked",
            out_of_step,
            |k| {
                let f = k.f;
                k.barriers([1, 1], 32);
                k.meet();
                k.in_rank(0, || {
                    for round in 0..2 {
                        let (words, barrier) = k.peer_words();
                        f.store_async((words + 128 * round, barrier), [k.thread]);
                        k.in_twin(|| f.mbarrier_wait(k.bar(1), round));
                    }
                });
                k.in_rank(1, || {
                    for round in 0..2 {
                        k.once(|| f.mbarrier_arrive_expect(k.bar(0), 128));
                        f.mbarrier_wait(k.bar(0), round);
                        k.peek(k.own(k.base) + 128 * round);
                        f.warp_sync();
                        k.once(|| f.mbarrier_arrive_cluster(f.map_shared(k.bar(1), 0)));
                    }
                });
                k.meet();
            },
        )
        .isa("mbarrier: tx-count of the current phase"),
        Case::new("halves of a stage sent to a peer whose consumer is not asked", 64, out_of_step, |k| {
            k.halves_sent(if k.broken { 1 } else { 2 }, || {
                if k.broken {
                    k.f.mbarrier_arrive(k.bar(1));
                } else {
                    for rank in 0..2 {
                        k.f.mbarrier_arrive_cluster(k.f.map_shared(k.bar(1), rank));
                    }
                }
            });
        })
        .cluster(2)
        .isa(BUSY),
        Case::new("a box for four CTAs when three of them have given the stage back", 64, out_of_step, |k| {
            let (f, asked) = (k.f, if k.broken { 3 } else { 4 });
            k.once(|| {
                f.mbarrier_init(k.bar(0), 1);
                f.mbarrier_init(k.bar(1), asked);
                f.fence_mbarrier_init();
            });
            k.meet();
            k.roles(
                || {
                    for round in 0..2 {
                        k.in_rank(0, || f.mbarrier_wait(k.bar(1), round ^ 1));
                        f.mbarrier_arrive_expect(k.bar(0), BOX_BYTES);
                        k.in_rank(0, || k.copy_box(k.base, k.bar(0), Some(f.constant(15u16))));
                        f.mbarrier_wait(k.bar(0), round);
                    }
                },
                || {
                    for round in 0..2 {
                        f.mbarrier_wait(k.bar(0), round);
                        k.peek(k.base + k.lane() * 4);
                        f.warp_sync();
                        f.if_(k.lane().equals(0) & k.rank().less_than(asked), || {
                            f.mbarrier_arrive_cluster(f.map_shared(k.bar(1), 0));
                        });
                    }
                },
            );
            k.meet();
        })
        .cluster(4)
        .isa(BUSY),
        Case::in_cluster("a partial sum stored to a peer that still reads the stage there", race, |k| {
            k.ready();
            k.in_rank(0, || k.peek(k.own(k.base)));
            k.in_twin(|| k.meet());
            k.in_rank(1, || k.write_peer(k.f.map_shared(k.own(k.base), 0), k.thread));
            k.meet();
            k.in_rank(0, || k.peek(k.own(k.base)));
        })
        .isa("Memory Consistency Model, Conflict and data-races"),
        Case::in_cluster(
            "sums sent to a peer that clears its accumulators after the cluster's barrier",
            |f| out_of_step(f) || unfenced(f),
            |k| {
                k.init();
                k.in_twin(|| k.zero(128));
                k.meet();
                k.in_broken(|| k.in_rank(1, || k.zero(128)));
                k.in_rank(0, || {
                    k.f.reduce_async((AtomicOp::Add, AtomicType::U32), k.peer_words(), k.thread);
                });
                k.awaits(128, true);
                k.in_rank(1, || k.peek(k.own(k.base)));
                k.meet();
            },
        )
        .isa("red.async: asynchronous operation"),
        Case::in_cluster(
            "a barrier made without its fence before a relaxed barrier of the cluster",
            |f| race(f) || matches!(f, Fault::MbarrierNotFenced { .. }),
            |k| {
                k.once(|| {
                    k.f.mbarrier_init(k.barrier(), 1);
                    k.in_twin(|| k.f.fence_mbarrier_init());
                });
                k.f.cluster_arrive(true);
                k.f.cluster_wait();
                k.once(|| k.f.mbarrier_arrive_cluster(k.f.map_shared(k.barrier(), k.rank() ^ 1)));
                k.f.mbarrier_wait(k.barrier(), 0);
                k.meet();
            },
        )
        .isa("fence.mbarrier_init.release.cluster; barrier.cluster.arrive.relaxed"),
    ]
}

/// The own CTA's barrier or memory in place of the peer's.
pub(crate) fn own() -> Vec<Case> {
    let wrong_cta = |f: &Fault| matches!(f, Fault::SharedOtherCta { .. });
    vec![
        Case::new("a stage that both CTAs fill given back to the own one alone", 64, out_of_step, |k| {
            k.halves_sent(2, || {
                for rank in 0..2 {
                    let barrier = if k.broken { k.bar(1) } else { k.f.map_shared(k.bar(1), rank) };
                    k.f.mbarrier_arrive_cluster(barrier);
                }
            });
        })
        .cluster(2)
        .isa("mbarrier.arrive: .shared::cluster; mapa"),
        Case::in_cluster("a reader in a peer that tells its own barrier that it is done", race, |k| {
            k.ready();
            let other = k.rank() ^ 1;
            let _value = k.f.load_cluster::<u32, 1>(k.f.map_shared(k.own(k.base), other), 0);
            k.f.warp_sync();
            let told = if k.broken { k.bar(0) } else { k.f.map_shared(k.bar(0), other) };
            k.once(|| k.f.mbarrier_arrive_cluster(told));
            k.f.mbarrier_wait(k.bar(0), 0);
            k.write(k.own(k.base), 1u32);
            k.meet();
        })
        .isa("mapa"),
        Case::in_cluster("the bytes for a peer announced on the own barrier", hang, |k| {
            let f = k.f;
            k.ready();
            k.once_in_rank(0, || {
                let (dst, barrier) = k.peer();
                let announced = if k.broken { f.map_shared(k.barrier(), 0) } else { barrier };
                let expected = Arrival::expect(64);
                f.mbarrier_arrival(announced, expected, false, true, MbarrierOrder::CLUSTER);
                f.bulk_share((dst, barrier), k.base, 64, None);
            });
            k.in_rank(1, || f.mbarrier_wait(k.barrier(), 0));
            k.meet();
        })
        .isa("mbarrier.arrive.expect_tx: .shared::cluster"),
        Case::in_cluster("a peer's sum read at the own address", trapped, |k| {
            // Each CTA writes one more than its rank.
            let (f, other) = (k.f, k.rank() ^ 1);
            k.once(|| k.write(k.base, k.rank() + 1));
            k.meet();
            let at = if k.broken { k.base } else { f.map_shared(k.base, other) };
            let [sum] = f.load_cluster::<u32, 1>(at, 0);
            f.if_(sum.differs_from(other + 1), || f.trap());
            k.meet();
        })
        .isa("mapa"),
        Case::in_cluster("a flag raised at the own address, for which a peer waits", hang, |k| {
            let f = k.f;
            k.ready();
            let flag = if k.broken { k.base } else { f.map_shared(k.base, k.rank() ^ 1) };
            k.once(|| {
                let order = StoreOrder::Release(Scope::Cluster);
                f.if_(k.rank().equals(0), || {
                    f.store_ordered(order, Location::cluster(flag, 0), [f.constant(1u32)]);
                });
            });
            k.once_in_rank(1, || {
                k.poll(Location::shared(k.base, 0), ptx::LoadOrder::Acquire(Scope::Cluster));
            });
            k.meet();
        })
        .isa("mapa"),
        Case::in_cluster("a wait at the barrier of a peer", wrong_cta, |k| {
            let f = k.f;
            k.init();
            k.meet();
            let remote = f.map_shared(k.barrier(), 1);
            k.once_in_rank(0, || f.mbarrier_arrive_cluster(remote));
            if k.broken {
                k.in_rank(0, || f.mbarrier_wait(remote, 0));
            }
            k.in_rank(1, || f.mbarrier_wait(k.barrier(), 0));
            k.meet();
        })
        .isa("mbarrier.try_wait: .shared::cta"),
    ]
}
