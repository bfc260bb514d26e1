//! Builder methods for mbarriers and named barriers.

use super::Builder;
use crate::inst::{
    Arrival, BarrierOp, BarrierReduce, Inst, MbarrierArrive, MbarrierOrder, MbarrierPhase, MbarrierTest,
    Operand, Scope,
};
use crate::types::{Scalar, Space};
use crate::value::{Source, Value};

/// The space of an mbarrier's address, and the scope that reaches it.
const fn space(cluster: bool) -> (Space, Scope) {
    if cluster { (Space::SharedCluster, Scope::Cluster) } else { (Space::Shared, Scope::Cta) }
}

impl Builder {
    /// Initialises an mbarrier that expects `count` arrivals per phase.
    #[track_caller]
    pub fn mbarrier_init<'f>(&'f self, barrier: Value<'f, u32>, count: impl Source<'f, u32>) {
        self.emit(Inst::MbarrierInit { barrier: barrier.operand(), count: count.operand() });
    }

    /// `fence.mbarrier_init`: makes initialised mbarriers visible to the cluster and to asynchronous copies.
    #[track_caller]
    pub fn fence_mbarrier_init(&self) {
        self.emit(Inst::FenceMbarrierInit);
    }

    /// Counts one arrival on an mbarrier of this CTA.
    #[track_caller]
    pub fn mbarrier_arrive<'f>(&'f self, barrier: Value<'f, u32>) {
        self.mbarrier_arrive_as(barrier, false, MbarrierOrder::CTA);
    }

    /// Counts one arrival on an mbarrier of any CTA of the cluster (an address from [`Builder::map_shared`]).
    ///
    /// Use it to release a buffer that the thread no longer reads. It does not make the thread's writes
    /// visible to the other CTA: for that, use [`Builder::mbarrier_arrive_as`] with
    /// [`MbarrierOrder::CLUSTER`].
    #[track_caller]
    pub fn mbarrier_arrive_cluster<'f>(&'f self, barrier: Value<'f, u32>) {
        self.mbarrier_arrive_as(barrier, true, MbarrierOrder::CTA);
    }

    /// Counts one arrival with the given memory ordering, on an mbarrier of this CTA, or with `cluster` of
    /// any CTA of the cluster.
    #[track_caller]
    pub fn mbarrier_arrive_as<'f>(&'f self, barrier: Value<'f, u32>, cluster: bool, order: MbarrierOrder) {
        self.mbarrier_arrival(barrier, Arrival::count(1), false, cluster, order);
    }

    /// Counts one arrival and announces `bytes` bytes of asynchronous copies for the current phase
    /// (expect-tx).
    #[track_caller]
    pub fn mbarrier_arrive_expect<'f>(&'f self, barrier: Value<'f, u32>, bytes: impl Source<'f, u32>) {
        self.mbarrier_arrival(barrier, Arrival::expect(bytes), false, false, MbarrierOrder::CTA);
    }

    /// Arrives at an mbarrier of this CTA, or with `cluster` of any CTA of the cluster. With `drop`, later
    /// phases expect as many fewer arrivals (`arrive_drop`).
    #[track_caller]
    pub fn mbarrier_arrival<'f>(
        &'f self,
        barrier: Value<'f, u32>,
        arrival: Arrival,
        drop: bool,
        cluster: bool,
        order: MbarrierOrder,
    ) {
        let (barrier, (space, _)) = (barrier.operand(), space(cluster));
        self.emit(Inst::MbarrierArrive(MbarrierArrive { barrier, space, arrival, drop, state: None, order }));
    }

    /// As [`mbarrier_arrival`](Self::mbarrier_arrival), at an mbarrier of this CTA. Returns the state of the
    /// phase before the arrival.
    #[track_caller]
    pub fn mbarrier_arrive_state<'f>(
        &'f self,
        barrier: Value<'f, u32>,
        arrival: Arrival,
        drop: bool,
        order: MbarrierOrder,
    ) -> Value<'f, u64> {
        let (barrier, space) = (barrier.operand(), Space::Shared);
        self.define(|dst| {
            let state = Some(dst);
            Inst::MbarrierArrive(MbarrierArrive { barrier, space, arrival, drop, state, order })
        })
    }

    /// Announces `bytes` bytes on an mbarrier (expect-tx) without an arrival, or with `complete` counts them
    /// as arrived (complete-tx). The mbarrier is one of this CTA, or with `cluster` of any CTA of the cluster.
    #[track_caller]
    pub fn mbarrier_transact<'f>(
        &'f self,
        complete: bool,
        barrier: Value<'f, u32>,
        bytes: impl Source<'f, u32>,
        cluster: bool,
    ) {
        let ((space, scope), barrier, bytes) = (space(cluster), barrier.operand(), bytes.operand());
        self.emit(Inst::MbarrierTransact { complete, barrier, space, bytes, scope });
    }

    /// Whether a phase has completed, asked once. With `patient` an `mbarrier.try_wait`, which may suspend
    /// the thread for some time, otherwise a `test_wait`.
    #[track_caller]
    pub fn mbarrier_test<'f>(
        &'f self,
        barrier: Value<'f, u32>,
        phase: MbarrierPhase,
        patient: bool,
        order: MbarrierOrder,
    ) -> Value<'f, bool> {
        let barrier = barrier.operand();
        self.define(|dst| Inst::MbarrierTest(MbarrierTest { dst, barrier, phase, patient, order }))
    }

    /// `mbarrier.try_wait.parity`, once: whether the phase of parity `parity` has completed.
    #[track_caller]
    pub fn mbarrier_try_wait<'f>(
        &'f self,
        barrier: Value<'f, u32>,
        parity: impl Source<'f, u32>,
    ) -> Value<'f, bool> {
        self.mbarrier_test(barrier, MbarrierPhase::parity(parity), true, MbarrierOrder::CTA)
    }

    /// `mbarrier.test_wait.parity`: tests once, without waiting, whether the phase of a parity has completed.
    #[track_caller]
    pub fn mbarrier_test_parity<'f>(
        &'f self,
        barrier: Value<'f, u32>,
        parity: impl Source<'f, u32>,
    ) -> Value<'f, bool> {
        self.mbarrier_test(barrier, MbarrierPhase::parity(parity), false, MbarrierOrder::CTA)
    }

    /// Waits until the phase of parity `parity` has completed.
    #[track_caller]
    pub fn mbarrier_wait<'f>(&'f self, barrier: Value<'f, u32>, parity: impl Source<'f, u32>) {
        self.mbarrier_wait_as(barrier, parity, MbarrierOrder::CTA);
    }

    /// As [`mbarrier_wait`](Self::mbarrier_wait), with the given memory ordering.
    #[track_caller]
    pub fn mbarrier_wait_as<'f>(
        &'f self,
        barrier: Value<'f, u32>,
        parity: impl Source<'f, u32>,
        order: MbarrierOrder,
    ) {
        self.emit(Inst::MbarrierWait { barrier: barrier.operand(), parity: parity.operand(), order });
    }

    /// `mbarrier.pending_count`: the number of arrivals that were still pending according to a state.
    #[track_caller]
    pub fn mbarrier_pending<'f>(&'f self, state: Value<'f, u64>) -> Value<'f, u32> {
        let state = state.operand();
        self.define(|dst| Inst::MbarrierPending { dst, state })
    }

    /// `bar.red.popc`: waits for `threads` threads at barrier `id` and returns the number of threads where
    /// `cond` is true.
    #[track_caller]
    pub fn barrier_count<'f>(
        &'f self,
        id: impl Source<'f, u32>,
        threads: u32,
        cond: Value<'f, bool>,
    ) -> Value<'f, u32> {
        self.barrier_reduce(BarrierOp::Population, id.operand(), threads, cond)
    }

    /// `bar.red.and`: waits for `threads` threads at barrier `id` and returns whether `cond` is true in all
    /// of them.
    #[track_caller]
    pub fn barrier_all<'f>(
        &'f self,
        id: impl Source<'f, u32>,
        threads: u32,
        cond: Value<'f, bool>,
    ) -> Value<'f, bool> {
        self.barrier_reduce(BarrierOp::And, id.operand(), threads, cond)
    }

    /// `bar.red.or`: waits for `threads` threads at barrier `id` and returns whether `cond` is true in any of
    /// them.
    #[track_caller]
    pub fn barrier_any<'f>(
        &'f self,
        id: impl Source<'f, u32>,
        threads: u32,
        cond: Value<'f, bool>,
    ) -> Value<'f, bool> {
        self.barrier_reduce(BarrierOp::Or, id.operand(), threads, cond)
    }

    #[track_caller]
    fn barrier_reduce<'f, T: Scalar>(
        &'f self,
        op: BarrierOp,
        id: Operand,
        threads: u32,
        cond: Value<'f, bool>,
    ) -> Value<'f, T> {
        let src = cond.operand();
        self.define(|dst| Inst::BarrierReduce(BarrierReduce { op, id, threads, dst, src }))
    }
}
