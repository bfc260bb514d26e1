//! Builder methods for bulk copies, asynchronous stores, and the less common operations on barriers.

use super::Builder;
use crate::inst::{
    AtomicOp, AtomicType, BarrierOp, BarrierReduce, Bulk, Inst, MbarrierInst, MbarrierOrder, Operand,
    Reduction, Scope,
};
use crate::types::{Scalar, Space};
use crate::value::{Source, Value};

/// A bulk copy from global to shared memory.
#[derive(Clone, Copy, Debug)]
pub struct BulkLoad<'f> {
    /// Global address, a multiple of 16 bytes.
    pub src: Value<'f, u64>,
    /// Shared address, a multiple of 16 bytes.
    pub dst: Value<'f, u32>,
    /// Shared address of the mbarrier that counts the bytes (complete-tx).
    pub barrier: Value<'f, u32>,
    /// Mask of the CTA ranks that receive the bytes, one bit per rank. `None` for this CTA only.
    pub multicast: Option<Value<'f, u16>>,
    /// L2 cache policy; `None` for the default.
    pub hint: Option<u64>,
}

impl Builder {
    /// Starts a copy of `bytes` bytes, a multiple of 16, from global to shared memory.
    #[track_caller]
    pub fn bulk_load<'f>(&'f self, load: BulkLoad<'f>, bytes: impl Source<'f, u32>) {
        self.emit(Inst::Bulk(Bulk::Load {
            dst: load.dst.operand(),
            src: load.src.operand(),
            bytes: bytes.operand(),
            barrier: load.barrier.operand(),
            multicast: load.multicast.map(Value::operand),
            hint: load.hint,
        }));
    }

    /// Starts a copy of `bytes` bytes, a multiple of 16, from shared to global memory. It belongs to this
    /// thread's open bulk group.
    #[track_caller]
    pub fn bulk_store<'f>(&'f self, dst: Value<'f, u64>, src: Value<'f, u32>, bytes: impl Source<'f, u32>) {
        let (dst, src, bytes) = (dst.operand(), src.operand(), bytes.operand());
        self.emit(Inst::Bulk(Bulk::Store { dst, src, bytes, reduce: None, hint: None }));
    }

    /// As [`Builder::bulk_store`], but reduces each element into global memory with `op`.
    #[track_caller]
    pub fn bulk_reduce<'f>(
        &'f self,
        (op, ty): (AtomicOp, AtomicType),
        dst: Value<'f, u64>,
        src: Value<'f, u32>,
        bytes: impl Source<'f, u32>,
    ) {
        let (dst, src, bytes) = (dst.operand(), src.operand(), bytes.operand());
        let reduce = Some(Reduction { op, ty });
        self.emit(Inst::Bulk(Bulk::Store { dst, src, bytes, reduce, hint: None }));
    }

    /// Starts a copy from this CTA's shared memory to that of any CTA of the cluster. The mbarrier, in the
    /// destination CTA, counts the bytes. With `reduce`, elements are reduced into the destination.
    #[track_caller]
    pub fn bulk_share<'f>(
        &'f self,
        (dst, barrier): (Value<'f, u32>, Value<'f, u32>),
        src: Value<'f, u32>,
        bytes: impl Source<'f, u32>,
        reduce: Option<(AtomicOp, AtomicType)>,
    ) {
        let (dst, src, bytes, barrier) = (dst.operand(), src.operand(), bytes.operand(), barrier.operand());
        let reduce = reduce.map(|(op, ty)| Reduction { op, ty });
        self.emit(Inst::Bulk(Bulk::Share { dst, src, bytes, barrier, reduce }));
    }

    /// Prefetches `bytes` bytes, a multiple of 16, to L2.
    #[track_caller]
    pub fn bulk_prefetch<'f>(&'f self, src: Value<'f, u64>, bytes: impl Source<'f, u32>) {
        self.emit(Inst::Bulk(Bulk::Prefetch { src: src.operand(), bytes: bytes.operand() }));
    }

    /// Starts the reduction of a box in shared memory into the tensor at `coords` (elements, innermost
    /// first). The rules of [`tensor_store`](Self::tensor_store) apply.
    #[track_caller]
    pub fn tensor_reduce<'f, const D: usize>(
        &'f self,
        op: AtomicOp,
        map: Value<'f, u64>,
        src: Value<'f, u32>,
        coords: [Value<'f, i32>; D],
    ) {
        let coords = coords.iter().map(|coord| coord.operand()).collect();
        let (map, src) = (map.operand(), src.operand());
        self.emit(Inst::Bulk(Bulk::TensorReduce { op, map, coords, src, hint: None }));
    }

    /// Prefetches the box at `coords` (elements, innermost first) to L2.
    #[track_caller]
    pub fn tensor_prefetch<'f, const D: usize>(&'f self, map: Value<'f, u64>, coords: [Value<'f, i32>; D]) {
        let coords = coords.iter().map(|coord| coord.operand()).collect();
        self.emit(Inst::Bulk(Bulk::TensorPrefetch { map: map.operand(), coords }));
    }

    /// `st.async`: stores `N` (1, 2 or 4) elements to the shared memory of any CTA of the cluster. The
    /// mbarrier, in that CTA, counts the bytes.
    #[track_caller]
    pub fn store_async<'f, T: Scalar, const N: usize>(
        &'f self,
        (dst, barrier): (Value<'f, u32>, Value<'f, u32>),
        values: [Value<'f, T>; N],
    ) {
        let src = values.iter().map(|value| value.operand()).collect();
        let (dst, barrier) = (dst.operand(), barrier.operand());
        self.emit(Inst::Bulk(Bulk::AsyncStore { ty: T::TYPE, src, dst, barrier }));
    }

    /// `red.async`: reduces a value into the shared memory of any CTA of the cluster. The mbarrier, in that
    /// CTA, counts the bytes.
    #[track_caller]
    pub fn reduce_async<'f, T: Scalar>(
        &'f self,
        (op, ty): (AtomicOp, AtomicType),
        (dst, barrier): (Value<'f, u32>, Value<'f, u32>),
        value: Value<'f, T>,
    ) {
        let (dst, barrier, src) = (dst.operand(), barrier.operand(), value.operand());
        self.emit(Inst::Bulk(Bulk::AsyncReduce { reduce: Reduction { op, ty }, src, dst, barrier }));
    }

    // ---- barriers ----

    /// Counts `count` arrivals on an mbarrier of this CTA; returns the state of their phase.
    #[track_caller]
    pub fn mbarrier_arrive_state<'f>(
        &'f self,
        barrier: Value<'f, u32>,
        count: impl Source<'f, u32>,
    ) -> Value<'f, u64> {
        self.mbarrier_arrive_state_as(barrier, count, MbarrierOrder::CTA)
    }

    /// As [`mbarrier_arrive_state`](Self::mbarrier_arrive_state), with the given memory ordering.
    #[track_caller]
    pub fn mbarrier_arrive_state_as<'f>(
        &'f self,
        barrier: Value<'f, u32>,
        count: impl Source<'f, u32>,
        order: MbarrierOrder,
    ) -> Value<'f, u64> {
        let (barrier, count) = (barrier.operand(), count.operand());
        self.define(|dst| Inst::MbarrierMore(MbarrierInst::Arrive { dst, barrier, count, order }))
    }

    /// Counts one arrival on an mbarrier of this CTA and announces `bytes` bytes (expect-tx); returns the
    /// state of the phase.
    #[track_caller]
    pub fn mbarrier_arrive_expect_state<'f>(
        &'f self,
        barrier: Value<'f, u32>,
        bytes: impl Source<'f, u32>,
    ) -> Value<'f, u64> {
        self.mbarrier_arrive_expect_state_as(barrier, bytes, MbarrierOrder::CTA)
    }

    /// As [`mbarrier_arrive_expect_state`](Self::mbarrier_arrive_expect_state), with the given memory
    /// ordering.
    #[track_caller]
    pub fn mbarrier_arrive_expect_state_as<'f>(
        &'f self,
        barrier: Value<'f, u32>,
        bytes: impl Source<'f, u32>,
        order: MbarrierOrder,
    ) -> Value<'f, u64> {
        let (barrier, bytes) = (barrier.operand(), bytes.operand());
        self.define(|dst| Inst::MbarrierMore(MbarrierInst::ArriveExpect { dst, barrier, bytes, order }))
    }

    /// Whether the phase of a state has completed. With `patient` an `mbarrier.try_wait`, which may suspend
    /// the thread for some time, otherwise a `test_wait`.
    #[track_caller]
    pub fn mbarrier_test<'f>(
        &'f self,
        barrier: Value<'f, u32>,
        state: Value<'f, u64>,
        patient: bool,
    ) -> Value<'f, bool> {
        self.mbarrier_test_as(barrier, state, patient, MbarrierOrder::CTA)
    }

    /// As [`mbarrier_test`](Self::mbarrier_test), with the given memory ordering.
    #[track_caller]
    pub fn mbarrier_test_as<'f>(
        &'f self,
        barrier: Value<'f, u32>,
        state: Value<'f, u64>,
        patient: bool,
        order: MbarrierOrder,
    ) -> Value<'f, bool> {
        let (barrier, state) = (barrier.operand(), state.operand());
        self.define(|dst| Inst::MbarrierMore(MbarrierInst::Test { dst, barrier, state, patient, order }))
    }

    /// `mbarrier.test_wait.parity`: tests once, without waiting, whether the phase of a parity has completed.
    #[track_caller]
    pub fn mbarrier_test_parity<'f>(
        &'f self,
        barrier: Value<'f, u32>,
        parity: impl Source<'f, u32>,
    ) -> Value<'f, bool> {
        self.mbarrier_test_parity_as(barrier, parity, MbarrierOrder::CTA)
    }

    /// As [`mbarrier_test_parity`](Self::mbarrier_test_parity), with the given memory ordering.
    #[track_caller]
    pub fn mbarrier_test_parity_as<'f>(
        &'f self,
        barrier: Value<'f, u32>,
        parity: impl Source<'f, u32>,
        order: MbarrierOrder,
    ) -> Value<'f, bool> {
        let (barrier, parity) = (barrier.operand(), parity.operand());
        self.define(|dst| Inst::MbarrierMore(MbarrierInst::TestParity { dst, barrier, parity, order }))
    }

    /// `mbarrier.pending_count`: the number of arrivals that were still pending according to a state.
    #[track_caller]
    pub fn mbarrier_pending<'f>(&'f self, state: Value<'f, u64>) -> Value<'f, u32> {
        let state = state.operand();
        self.define(|dst| Inst::MbarrierMore(MbarrierInst::PendingCount { dst, state }))
    }

    /// `.noComplete`: counts arrivals on an mbarrier of this CTA that must not complete its phase; returns
    /// the state of the phase. With `drop`, later phases expect fewer arrivals (`arrive_drop`).
    #[track_caller]
    pub fn mbarrier_arrive_no_complete<'f>(
        &'f self,
        barrier: Value<'f, u32>,
        count: impl Source<'f, u32>,
        drop: bool,
    ) -> Value<'f, u64> {
        let (barrier, count) = (barrier.operand(), count.operand());
        self.define(|dst| Inst::MbarrierMore(MbarrierInst::ArriveNoComplete { dst, barrier, count, drop }))
    }

    /// `mbarrier.arrive_drop`: counts arrivals on an mbarrier of this CTA, and later phases expect as many
    /// fewer; returns the state of the phase.
    #[track_caller]
    pub fn mbarrier_drop_state<'f>(
        &'f self,
        barrier: Value<'f, u32>,
        count: impl Source<'f, u32>,
    ) -> Value<'f, u64> {
        self.mbarrier_drop_state_as(barrier, count, MbarrierOrder::CTA)
    }

    /// As [`mbarrier_drop_state`](Self::mbarrier_drop_state), with the given memory ordering.
    #[track_caller]
    pub fn mbarrier_drop_state_as<'f>(
        &'f self,
        barrier: Value<'f, u32>,
        count: impl Source<'f, u32>,
        order: MbarrierOrder,
    ) -> Value<'f, u64> {
        let (barrier, count) = (barrier.operand(), count.operand());
        self.define(|dst| Inst::MbarrierMore(MbarrierInst::DropState { dst, barrier, count, order }))
    }

    /// `mbarrier.arrive_drop.expect_tx`: announces `bytes` bytes on an mbarrier of this CTA and arrives for
    /// the last time; returns the state of the phase.
    #[track_caller]
    pub fn mbarrier_drop_expect<'f>(
        &'f self,
        barrier: Value<'f, u32>,
        bytes: impl Source<'f, u32>,
    ) -> Value<'f, u64> {
        self.mbarrier_drop_expect_as(barrier, bytes, MbarrierOrder::CTA)
    }

    /// As [`mbarrier_drop_expect`](Self::mbarrier_drop_expect), with the given memory ordering.
    #[track_caller]
    pub fn mbarrier_drop_expect_as<'f>(
        &'f self,
        barrier: Value<'f, u32>,
        bytes: impl Source<'f, u32>,
        order: MbarrierOrder,
    ) -> Value<'f, u64> {
        let (barrier, bytes) = (barrier.operand(), bytes.operand());
        self.define(|dst| Inst::MbarrierMore(MbarrierInst::DropExpect { dst, barrier, bytes, order }))
    }

    /// Announces `bytes` bytes on an mbarrier of any CTA of the cluster and arrives at it for the last time.
    #[track_caller]
    pub fn mbarrier_drop_expect_cluster<'f>(&'f self, barrier: Value<'f, u32>, bytes: impl Source<'f, u32>) {
        let (barrier, bytes, order) = (barrier.operand(), bytes.operand(), MbarrierOrder::CLUSTER);
        self.emit(Inst::MbarrierMore(MbarrierInst::DropExpectCluster { barrier, bytes, order }));
    }

    /// Counts arrivals that later phases no longer expect (`arrive_drop`), on an mbarrier of this CTA, or
    /// with `cluster` of any CTA of the cluster.
    #[track_caller]
    pub fn mbarrier_drop<'f>(&'f self, barrier: Value<'f, u32>, count: impl Source<'f, u32>, cluster: bool) {
        self.mbarrier_drop_as(barrier, count, cluster, MbarrierOrder::CTA);
    }

    /// As [`mbarrier_drop`](Self::mbarrier_drop), with the given memory ordering.
    #[track_caller]
    pub fn mbarrier_drop_as<'f>(
        &'f self,
        barrier: Value<'f, u32>,
        count: impl Source<'f, u32>,
        cluster: bool,
        order: MbarrierOrder,
    ) {
        let space = if cluster { Space::SharedCluster } else { Space::Shared };
        let (barrier, count) = (barrier.operand(), count.operand());
        self.emit(Inst::MbarrierMore(MbarrierInst::Drop { barrier, space, count, order }));
    }

    /// Announces `bytes` bytes (expect-tx) on an mbarrier of any CTA of the cluster. With `arrive`, also
    /// counts one arrival.
    #[track_caller]
    pub fn mbarrier_expect_cluster<'f>(
        &'f self,
        barrier: Value<'f, u32>,
        bytes: impl Source<'f, u32>,
        arrive: bool,
    ) {
        let (barrier, bytes) = (barrier.operand(), bytes.operand());
        let order = if arrive { MbarrierOrder::CLUSTER } else { MbarrierOrder::Relaxed(Scope::Cluster) };
        self.emit(Inst::MbarrierMore(MbarrierInst::ExpectCluster { arrive, barrier, bytes, order }));
    }

    /// `mbarrier.complete_tx`: counts `bytes` bytes as arrived on an mbarrier of this CTA, or with `cluster`
    /// of any CTA of the cluster.
    #[track_caller]
    pub fn mbarrier_complete<'f>(
        &'f self,
        barrier: Value<'f, u32>,
        bytes: impl Source<'f, u32>,
        cluster: bool,
    ) {
        let (space, scope) =
            if cluster { (Space::SharedCluster, Scope::Cluster) } else { (Space::Shared, Scope::Cta) };
        let (barrier, bytes) = (barrier.operand(), bytes.operand());
        self.emit(Inst::MbarrierMore(MbarrierInst::Complete { barrier, space, bytes, scope }));
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

    /// `fns`: the position of the `n`-th set bit of `mask`, counted from 1 and from bit `base` on. Upwards
    /// for `n > 0`, downwards for `n < 0`, bit `base` itself for `n == 0`. All ones if there is no such bit.
    #[track_caller]
    pub fn find_nth_set<'f>(
        &'f self,
        mask: Value<'f, u32>,
        base: impl Source<'f, u32>,
        n: impl Source<'f, i32>,
    ) -> Value<'f, u32> {
        let src = vec![mask.operand(), base.operand(), n.operand()];
        let op = crate::inst::AluOp::FindNth;
        self.define(|dst| Inst::Alu(crate::inst::Alu { op, dst, src }))
    }
}
