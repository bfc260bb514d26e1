//! Hazards of bulk copies, reductions by copies, asynchronous stores to another CTA, and rare operations on
//! mbarriers.

use emulator::{Fault, Owner, TensorFault};
use ptx::inst::{Arrival, MbarrierPhase, ProxySpace};
use ptx::{AtomicOp, AtomicType, BulkLoad, MbarrierOrder, Special, Value};

use crate::{BOX_BYTES, Case, Kernel};

impl<'f> Kernel<'f> {
    pub(crate) fn bulk_load(self, bytes: impl ptx::Source<'f, u32>) {
        let (src, dst, barrier) = (self.data, self.base, self.barrier());
        self.once(|| {
            self.f.mbarrier_arrive_expect(barrier, 64);
            self.f.bulk_load(BulkLoad { src, dst, barrier, multicast: None, hint: None }, bytes);
        });
    }

    /// Initialises the mbarriers of all CTAs and fills shared memory with zeros.
    pub(crate) fn ready(self) {
        self.init();
        self.zero(1024);
        self.f.cluster_arrive(false);
        self.f.cluster_wait();
    }

    pub(crate) fn rank(self) -> Value<'f, u32> {
        self.f.special(Special::ClusterRank)
    }

    pub(crate) fn in_rank(self, rank: u32, body: impl FnOnce()) {
        self.f.if_(self.rank().equals(rank), body);
    }

    /// Thread 0 of a CTA of the cluster.
    pub(crate) fn once_in_rank(self, rank: u32, body: impl FnOnce()) {
        self.in_rank(rank, || self.once(body));
    }

    /// The destination in rank 1: the address of the data, and the mbarrier.
    pub(crate) fn peer(self) -> (Value<'f, u32>, Value<'f, u32>) {
        (self.f.map_shared(self.base, 1), self.f.map_shared(self.barrier(), 1))
    }

    /// Rank 1 announces `bytes` bytes, and waits for them if `waits`.
    pub(crate) fn awaits(self, bytes: u32, waits: bool) {
        self.in_rank(1, || {
            self.once(|| self.f.mbarrier_arrive_expect(self.barrier(), bytes));
            if waits {
                self.f.mbarrier_wait(self.barrier(), 0);
            }
        });
    }

    pub(crate) fn meet(self) {
        self.f.cluster_arrive(false);
        self.f.cluster_wait();
    }
}

fn owned_by(fault: &Fault, by: Owner) -> bool {
    matches!(fault, Fault::SharedInFlight { owner, .. } if *owner == by)
}

pub(crate) fn cases() -> Vec<Case> {
    [copies(), peers(), barriers()].into_iter().flatten().collect()
}

fn copies() -> Vec<Case> {
    vec![
        Case::new(
            "a bulk load not waited for is read",
            32,
            |fault| owned_by(fault, Owner::TensorLoad),
            |k| {
                k.init();
                k.bulk_load(64);
                k.in_twin(|| k.f.mbarrier_wait(k.barrier(), 0));
                let _value = k.f.load_shared_vector::<u32, 1>(k.base, 0);
                k.f.mbarrier_wait(k.barrier(), 0);
            },
        ),
        Case::new(
            "a bulk load of half a chunk",
            32,
            |fault| matches!(fault, Fault::BulkSize { bytes: 56 }),
            |k| {
                k.init();
                k.bulk_load(k.f.special(Special::ThreadsX) * 2 - if k.broken { 8 } else { 0 });
                k.f.mbarrier_wait(k.barrier(), 0);
            },
        ),
        Case::new(
            "a bulk store's source is overwritten",
            32,
            |fault| owned_by(fault, Owner::AsyncRead),
            |k| {
                k.zero(64);
                k.once(|| {
                    k.f.bulk_store(k.out, k.base, 64);
                    k.f.bulk_commit();
                });
                k.in_twin(|| k.f.bulk_wait(0, true));
                k.once(|| k.f.store_shared(k.base, 0, [k.thread]));
                k.f.bulk_wait(0, false);
            },
        ),
        Case::new(
            "a bulk store of what no proxy fence stands behind",
            32,
            |fault| matches!(fault, Fault::MissingProxyFence { .. }),
            |k| {
                k.once(|| {
                    k.f.store_shared(k.base, 0, [k.thread; 4]);
                    k.in_twin(|| k.f.fence_proxy_async(ProxySpace::Shared));
                    k.f.bulk_store(k.out, k.base, 16);
                    k.f.bulk_commit();
                    k.f.bulk_wait(0, false);
                });
            },
        ),
        Case {
            ctas: 2,
            ..Case::new(
                "two CTAs that add to one line, one of them by a store",
                32,
                |fault| matches!(fault, Fault::GlobalRace { .. }),
                |k| {
                    k.zero(64);
                    k.once(|| {
                        let add = (AtomicOp::Add, AtomicType::F32);
                        if k.broken {
                            let first = k.f.special(Special::CtaX).equals(0);
                            k.f.if_else(
                                first,
                                || k.f.bulk_reduce(add, k.data, k.base, 64),
                                || k.f.bulk_store(k.data, k.base, 64),
                            );
                        } else {
                            k.f.bulk_reduce(add, k.data, k.base, 64);
                        }
                        k.f.bulk_commit();
                        k.f.bulk_wait(0, false);
                    });
                },
            )
        },
        Case::new(
            "a tensor reduction that its elements do not have",
            32,
            |fault| matches!(fault, Fault::Tensor(TensorFault::Reduction { op: "inc", .. })),
            |k| {
                k.zero(BOX_BYTES);
                let op = if k.broken { AtomicOp::Inc } else { AtomicOp::Add };
                k.once(|| {
                    k.f.tensor_reduce(op, k.map, k.base, [k.f.constant(0); 2]);
                    k.f.bulk_commit();
                    k.f.bulk_wait(0, true);
                });
            },
        ),
    ]
}

fn peers() -> Vec<Case> {
    vec![
        Case::in_cluster(
            "what a peer stores asynchronously is read before it has come",
            |fault| owned_by(fault, Owner::Peer),
            |k| {
                k.ready();
                k.in_rank(0, || k.f.store_async(k.peer_words(), [k.thread]));
                k.meet();
                k.awaits(128, !k.broken);
                k.in_rank(1, || {
                    let _value = k.f.load_shared_vector::<u32, 1>(k.base + k.thread * 4, 0);
                    k.f.mbarrier_wait(k.barrier(), 0);
                });
                k.meet();
            },
        ),
        Case::in_cluster(
            "a peer that has not been told how much will come",
            |fault| matches!(fault, Fault::Hang { .. }),
            |k| {
                k.ready();
                k.in_rank(0, || k.f.store_async(k.peer_words(), [k.thread]));
                k.awaits(if k.broken { 132 } else { 128 }, true);
                k.meet();
            },
        ),
        Case::in_cluster(
            "a peer that ends before an asynchronous store has come",
            |fault| matches!(fault, Fault::ExitInFlight { .. }),
            |k| {
                k.ready();
                k.in_rank(0, || k.f.store_async(k.peer_words(), [k.thread]));
                k.awaits(128, !k.broken);
                k.meet();
            },
        ),
        Case::in_cluster(
            "a reduction of what a peer has not written",
            |fault| matches!(fault, Fault::SharedUninitialised { .. }),
            |k| {
                k.ready();
                k.once_in_rank(0, || {
                    let (dst, barrier) = k.peer();
                    let dst = dst + if k.broken { 2048u32 } else { 0 };
                    k.f.reduce_async((AtomicOp::Add, AtomicType::U32), (dst, barrier), k.thread);
                });
                k.awaits(4, true);
                k.meet();
            },
        ),
        Case::in_cluster(
            "the source of a copy to a peer is overwritten",
            |fault| owned_by(fault, Owner::AsyncRead),
            |k| {
                k.ready();
                k.awaits(64, false);
                k.in_rank(0, || {
                    k.once(|| {
                        k.f.bulk_share(k.peer(), k.base, 64, None);
                    });
                    k.in_broken(|| k.once(|| k.f.store_shared(k.base, 0, [k.thread])));
                });
                k.in_rank(1, || k.f.mbarrier_wait(k.barrier(), 0));
                k.meet();
                k.once_in_rank(0, || k.f.store_shared(k.base, 0, [k.thread]));
            },
        ),
        Case::in_cluster(
            "a peer's barrier that is not the target's",
            |fault| matches!(fault, Fault::SharedOtherCta { .. }),
            |k| {
                k.ready();
                k.awaits(64, false);
                k.once_in_rank(0, || {
                    let (dst, barrier) = k.peer();
                    let barrier = if k.broken { k.barrier() } else { barrier };
                    k.f.bulk_share((dst, barrier), k.base, 64, Some((AtomicOp::Add, AtomicType::U32)));
                });
                k.in_rank(1, || k.f.mbarrier_wait(k.barrier(), 0));
                k.meet();
            },
        ),
    ]
}

impl<'f> Kernel<'f> {
    /// The destination in rank 1 per thread: the address of a word, and the mbarrier.
    pub(crate) fn peer_words(self) -> (Value<'f, u32>, Value<'f, u32>) {
        let (words, barrier) = self.peer();
        (words + self.thread * 4, barrier)
    }
}

fn barriers() -> Vec<Case> {
    vec![
        Case::new(
            "a state of two phases ago",
            32,
            |fault| matches!(fault, Fault::MbarrierState { .. }),
            |k| {
                k.init();
                k.once(|| {
                    let state =
                        k.f.mbarrier_arrive_state(k.barrier(), Arrival::count(1), false, MbarrierOrder::CTA);
                    let next =
                        k.f.mbarrier_arrive_state(k.barrier(), Arrival::count(1), false, MbarrierOrder::CTA);
                    let _done = {
                        let phase = MbarrierPhase::state(if k.broken { state } else { next });
                        k.f.mbarrier_test(k.barrier(), phase, true, MbarrierOrder::CTA)
                    };
                });
            },
        ),
        Case::new(
            "an arrival where the last one was dropped",
            32,
            |fault| matches!(fault, Fault::MbarrierOverArrival { .. }),
            |k| {
                k.once(|| {
                    k.f.mbarrier_init(k.barrier(), 2);
                    k.f.mbarrier_arrival(
                        k.barrier(),
                        Arrival::count(if k.broken { 2 } else { 1 }),
                        true,
                        false,
                        MbarrierOrder::CTA,
                    );
                    k.f.mbarrier_arrive(k.barrier());
                });
            },
        ),
        Case::new(
            "an arrival that may not complete the phase and does",
            32,
            |fault| matches!(fault, Fault::MbarrierNoComplete { count: 1, phase: 0, .. }),
            |k| {
                k.once(|| {
                    k.f.mbarrier_init(k.barrier(), if k.broken { 2 } else { 3 });
                    let _first = k.f.mbarrier_arrive_state(
                        k.barrier(),
                        Arrival::no_complete(1),
                        false,
                        MbarrierOrder::CTA,
                    );
                    let _second = k.f.mbarrier_arrive_state(
                        k.barrier(),
                        Arrival::no_complete(1),
                        true,
                        MbarrierOrder::CTA,
                    );
                });
            },
        ),
        Case::new(
            "two arrivals where one has been dropped for good",
            32,
            |fault| matches!(fault, Fault::MbarrierOverArrival { count: 2, pending: 1, phase: 1, .. }),
            |k| {
                k.once(|| {
                    k.f.mbarrier_init(k.barrier(), 2);
                    let _first =
                        k.f.mbarrier_arrive_state(k.barrier(), Arrival::expect(16), true, MbarrierOrder::CTA);
                    k.f.mbarrier_transact(true, k.barrier(), 16, false);
                    k.f.mbarrier_arrive(k.barrier());
                    let _second = k.f.mbarrier_arrive_state(
                        k.barrier(),
                        Arrival::count(if k.broken { 2 } else { 1 }),
                        true,
                        MbarrierOrder::CTA,
                    );
                });
            },
        ),
        Case::in_cluster(
            "bytes announced to a peer with a last arrival, and not all brought",
            |fault| matches!(fault, Fault::Hang { .. }),
            |k| {
                k.init();
                k.f.cluster_arrive(false);
                k.f.cluster_wait();
                let rank = k.f.special(ptx::Special::ClusterRank);
                k.f.if_(rank.equals(0), || {
                    k.once(|| {
                        let barrier = k.f.map_shared(k.barrier(), 1);
                        k.f.mbarrier_arrival(
                            barrier,
                            Arrival::expect(32),
                            true,
                            true,
                            MbarrierOrder::CLUSTER,
                        );
                        k.f.mbarrier_transact(true, barrier, if k.broken { 16 } else { 32 }, true);
                    });
                });
                k.f.if_(rank.equals(1), || k.f.mbarrier_wait(k.barrier(), 0));
                k.f.cluster_arrive(false);
                k.f.cluster_wait();
            },
        ),
        Case::new(
            "bytes that are counted as arrived without being announced",
            32,
            |fault| matches!(fault, Fault::Hang { .. }),
            |k| {
                k.init();
                k.once(|| {
                    k.f.mbarrier_arrive_expect(k.barrier(), 64);
                    k.f.mbarrier_transact(true, k.barrier(), if k.broken { 80 } else { 64 }, false);
                });
                k.f.mbarrier_wait(k.barrier(), 0);
            },
        ),
        Case::new(
            "a reducing barrier for more threads than come",
            64,
            |fault| matches!(fault, Fault::Hang { .. }),
            |k| {
                let some = k.thread.less_than(3);
                k.f.if_(k.thread.less_than(32), || {
                    let _count = k.f.barrier_count(1, if k.broken { 64 } else { 32 }, some);
                });
            },
        ),
    ]
}
