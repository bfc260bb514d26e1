//! Hazards in the shared memory of other CTAs of the cluster: use before their start, after their exit, or
//! without order.

use emulator::Fault;
use ptx::{AtomicOp, AtomicSem, AtomicType, LoadOrder, Location, Scope, StoreOrder};

use crate::tools::{absent, hang, race, unready};
use crate::{BOX_BYTES, Case, Kernel};

impl Kernel<'_> {
    /// The first thread of rank `from` stores a word to rank `to`.
    pub(crate) fn store_to(self, to: u32) {
        let at = Location::cluster(self.f.map_shared(self.base, to), 0);
        self.once(|| {
            self.f.store_ordered(StoreOrder::Relaxed(Scope::Cluster), at, [self.thread]);
        });
    }

    fn load_from(self, rank: u32) {
        let at = Location::cluster(self.f.map_shared(self.base, rank), 0);
        self.once(|| {
            let _value = self.f.load_ordered::<u32, 1>(LoadOrder::Relaxed(Scope::Cluster), at);
        });
    }

    /// A stage in each of two CTAs. Rank 0 fills both stages. Rank 1 releases its stage at the second
    /// mbarrier of rank 0.
    fn multicast(self, both: u16) {
        let mask = self.f.constant(both);
        self.copy_box(self.base, self.bar(0), Some(mask));
    }
}

pub(crate) fn cases() -> Vec<Case> {
    [peers(), multicasts(), arrivals()].into_iter().flatten().collect()
}

fn peers() -> Vec<Case> {
    vec![
        Case::in_cluster("a peer's memory stored to before it has started", absent, |k| {
            k.in_twin(|| k.meet());
            k.in_rank(0, || k.store_to(1));
            k.meet();
        })
        .isa("barrier.cluster: a CTA's shared memory is there once the CTA has started"),
        Case::in_cluster("a peer that ends before its memory is read", absent, |k| {
            k.once(|| k.write(k.base, 0u32));
            k.meet();
            k.in_rank(0, || k.load_from(1));
            k.in_twin(|| k.meet());
        })
        .isa("Thread Block Clusters: distributed shared memory"),
        Case::in_cluster("a peer's store read without the cluster's barrier", race, |k| {
            k.ready();
            k.in_rank(0, || k.store_to(1));
            k.in_twin(|| k.meet());
            k.once_in_rank(1, || {
                let _value = k.read(k.base);
            });
            k.meet();
        })
        .isa("Memory Consistency Model, Conflict and data-races"),
        Case::in_cluster("a word overwritten that a peer still reads", race, |k| {
            k.ready();
            k.in_rank(0, || k.load_from(1));
            k.in_twin(|| k.meet());
            k.once_in_rank(1, || k.write(k.base, 0u32));
            k.meet();
        })
        .isa("Memory Consistency Model, Conflict and data-races"),
        Case::in_cluster("a relaxed arrival at the cluster's barrier publishes nothing", race, |k| {
            k.ready();
            k.in_rank(0, || k.store_to(1));
            k.f.cluster_arrive(k.broken);
            k.f.cluster_wait();
            k.once_in_rank(1, || {
                let _value = k.read(k.base);
            });
            k.meet();
        })
        .isa("barrier.cluster.arrive: .relaxed"),
        Case::in_cluster("two peers that store to one word", race, |k| {
            k.ready();
            let word = if k.broken { k.rank() / 2 } else { k.rank() } * 4;
            k.once(|| k.write_peer(k.f.map_shared(k.base + word, 1), k.thread));
            k.meet();
        })
        .isa("Memory Consistency Model, Conflict and data-races"),
        Case::in_cluster("a flag at a peer raised for its own CTA alone", race, |k| {
            let f = k.f;
            k.ready();
            let order = StoreOrder::Release(if k.broken { Scope::Cta } else { Scope::Cluster });
            k.in_rank(0, || {
                k.store_to(1);
                let flag = Location::cluster(f.map_shared(k.base, 1), 512);
                k.once(|| f.store_ordered(order, flag, [f.constant(1u32)]));
            });
            k.once_in_rank(1, || {
                k.poll(Location::shared(k.base, 512), LoadOrder::Acquire(Scope::Cluster));
                let _value = k.read(k.base);
            });
            k.meet();
        })
        .isa("Memory Consistency Model, Scope"),
        Case::in_cluster("the wrong peer's memory read", race, |k| {
            k.zero(1024);
            k.meet();
            k.once_in_rank(0, || k.write(k.base, 1u32));
            k.in_rank(1, || k.load_from(if k.broken { 0 } else { 1 }));
            k.meet();
        })
        .isa("mapa"),
        Case::in_cluster(
            "an asynchronous store and a plain one to the same word",
            |f| unready(f) || race(f),
            |k| {
                k.ready();
                k.awaits(4, false);
                k.once_in_rank(0, || k.f.store_async(k.peer(), [k.thread]));
                k.in_rank(1, || {
                    k.in_twin(|| k.f.mbarrier_wait(k.barrier(), 0));
                    k.once(|| k.write(k.base, 0u32));
                    k.f.mbarrier_wait(k.barrier(), 0);
                });
                k.meet();
            },
        )
        .isa("st.async: asynchronous operation"),
        Case::in_cluster(
            "an asynchronous reduction that others still read",
            |f| unready(f) || race(f),
            |k| {
                k.ready();
                k.awaits(4, false);
                if k.broken {
                    k.once_in_rank(1, || {
                        let _value = k.read(k.base);
                    });
                } else {
                    k.meet();
                }
                k.once_in_rank(0, || {
                    k.f.reduce_async((AtomicOp::Add, AtomicType::U32), k.peer(), k.thread);
                });
                k.in_rank(1, || k.f.mbarrier_wait(k.barrier(), 0));
                k.meet();
            },
        )
        .isa("red.async: asynchronous operation"),
    ]
}

fn multicasts() -> Vec<Case> {
    vec![
        Case::in_cluster(
            "multicast into a peer that still reads",
            |f| {
                race(f)
                    || hang(f)
                    || matches!(f, Fault::MbarrierMissed { .. } | Fault::MbarrierOverArrival { .. })
            },
            |k| {
                // Rank 0 fills both stages twice. The second time it needs the release of both.
                let f = k.f;
                k.once(|| {
                    f.mbarrier_init(k.bar(0), 1);
                    f.mbarrier_init(k.bar(1), 2);
                    f.fence_mbarrier_init();
                });
                k.meet();
                for round in 0..2 {
                    k.once(|| {
                        f.mbarrier_arrive_expect(k.bar(0), BOX_BYTES);
                    });
                    k.once_in_rank(0, || {
                        if round > 0 && !k.broken {
                            f.mbarrier_wait(k.bar(1), 0);
                        }
                        k.multicast(3);
                    });
                    f.mbarrier_wait(k.bar(0), round);
                    let _value = k.read(k.base + k.lane() * 4);
                    f.warp_sync();
                    k.once(|| f.mbarrier_arrive_cluster(f.map_shared(k.bar(1), 0)));
                }
                k.meet();
            },
        )
        .isa("cp.async.bulk.tensor: .multicast::cluster"),
        Case::in_cluster(
            "multicast to a peer that expects no bytes",
            |f| race(f) || hang(f) || matches!(f, Fault::ExitInFlight { .. }),
            |k| {
                k.init();
                k.meet();
                k.once(|| {
                    let expects = if k.broken { k.rank().equals(0) } else { k.rank().less_than(2) };
                    k.f.if_else(
                        expects,
                        || k.f.mbarrier_arrive_expect(k.bar(0), BOX_BYTES),
                        || k.f.mbarrier_arrive(k.bar(0)),
                    );
                });
                k.once_in_rank(0, || k.multicast(3));
                k.f.mbarrier_wait(k.bar(0), 0);
                let _value = k.read(k.base + k.lane() * 4);
                k.meet();
            },
        )
        .isa("cp.async.bulk.tensor: .multicast::cluster signals the mbarrier of each CTA"),
        Case::in_cluster("multicast to the own CTA where both wait", hang, |k| {
            k.init();
            k.meet();
            k.once(|| k.f.mbarrier_arrive_expect(k.bar(0), BOX_BYTES));
            k.once_in_rank(0, || k.multicast(if k.broken { 1 } else { 3 }));
            k.f.mbarrier_wait(k.bar(0), 0);
            k.meet();
        })
        .isa("cp.async.bulk.tensor: ctaMask"),
        Case::in_cluster(
            "multicast before the peer's barrier is ready",
            |f| absent(f) || matches!(f, Fault::MbarrierUninitialised { .. }),
            |k| {
                k.init();
                if k.broken {
                    k.f.warp_sync();
                } else {
                    k.meet();
                }
                k.once(|| k.f.mbarrier_arrive_expect(k.bar(0), BOX_BYTES));
                k.once_in_rank(0, || k.multicast(3));
                k.f.mbarrier_wait(k.bar(0), 0);
                k.meet();
            },
        )
        .isa("fence.mbarrier_init: followed by barrier.cluster"),
        Case::in_cluster(
            "a CTA that ends while a peer's multicast comes",
            |f| absent(f) || matches!(f, Fault::ExitInFlight { .. }),
            |k| {
                k.init();
                k.meet();
                k.once(|| k.f.mbarrier_arrive_expect(k.bar(0), BOX_BYTES));
                k.once_in_rank(0, || k.multicast(3));
                if k.broken {
                    k.in_rank(0, || k.f.mbarrier_wait(k.bar(0), 0));
                } else {
                    k.f.mbarrier_wait(k.bar(0), 0);
                }
            },
        )
        .isa("Thread Block Clusters: distributed shared memory"),
    ]
}

fn arrivals() -> Vec<Case> {
    vec![
        Case::in_cluster("an arrival at the wrong rank", hang, |k| {
            k.init();
            k.meet();
            k.once_in_rank(0, || k.f.mbarrier_arrive_cluster(k.f.map_shared(k.bar(0), u32::from(!k.broken))));
            k.in_rank(1, || k.f.mbarrier_wait(k.bar(0), 0));
            k.meet();
        })
        .isa("mapa"),
        Case::in_cluster(
            "an arrival at a barrier that the peer has not initialised",
            |f| {
                absent(f)
                    || matches!(f, Fault::MbarrierUninitialised { .. } | Fault::MbarrierNotFenced { .. })
            },
            |k| {
                k.init();
                if k.broken {
                    k.f.warp_sync();
                } else {
                    k.meet();
                }
                let remote = k.f.map_shared(k.bar(0), k.rank() ^ 1);
                k.once(|| k.f.mbarrier_arrive_cluster(remote));
                k.f.mbarrier_wait(k.bar(0), 0);
                k.meet();
            },
        )
        .isa("fence.mbarrier_init: followed by barrier.cluster"),
        Case::in_cluster(
            "a cluster barrier whose second half is left out at the start",
            |f| {
                absent(f)
                    || matches!(f, Fault::MbarrierUninitialised { .. } | Fault::MbarrierNotFenced { .. })
            },
            |k| {
                k.init();
                k.f.cluster_arrive(false);
                k.in_twin(|| k.f.cluster_wait());
                let remote = k.f.map_shared(k.bar(0), k.rank() ^ 1);
                k.once(|| k.f.mbarrier_arrive_cluster(remote));
                k.in_broken(|| k.f.cluster_wait());
                k.f.mbarrier_wait(k.bar(0), 0);
                k.meet();
            },
        )
        .isa("barrier.cluster.wait"),
        Case::in_cluster("a counter at a peer added to for the own CTA alone", race, |k| {
            k.ready();
            let at = Location::cluster(k.f.map_shared(k.base, 1), 0);
            let scope = if k.broken { Scope::Cta } else { Scope::Cluster };
            k.once(|| k.f.reduce(AtomicOp::Add, at, [k.thread], (AtomicSem::Relaxed, scope)));
            k.meet();
        })
        .isa("Memory Consistency Model, Morally strong operations"),
    ]
}
