//! Building bulk copies, asynchronous stores, and the rarer operations on barriers.

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
    /// Global address, a multiple of 16.
    pub src: Value<'f, u64>,
    /// Shared address, a multiple of 16.
    pub dst: Value<'f, u32>,
    /// Shared address of the mbarrier that receives the bytes.
    pub barrier: Value<'f, u32>,
    /// CTA ranks that receive the bytes, a bit each; `None` for the own CTA alone.
    pub multicast: Option<Value<'f, u16>>,
    /// L2 cache policy.
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

    /// Starts a copy of `bytes` bytes, a multiple of 16, from shared to global memory, part of this thread's open group.
    #[track_caller]
    pub fn bulk_store<'f>(&'f self, dst: Value<'f, u64>, src: Value<'f, u32>, bytes: impl Source<'f, u32>) {
        let (dst, src, bytes) = (dst.operand(), src.operand(), bytes.operand());
        self.emit(Inst::Bulk(Bulk::Store { dst, src, bytes, reduce: None, hint: None }));
    }

    /// As [`Builder::bulk_store`], but combines each element with what is in global memory.
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

    /// Starts a copy from own shared memory to that of a CTA of the cluster, whose mbarrier receives the bytes; `reduce`
    /// says how elements are combined with what is there.
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

    /// Fetches `bytes` bytes, a multiple of 16, to L2.
    #[track_caller]
    pub fn bulk_prefetch<'f>(&'f self, src: Value<'f, u64>, bytes: impl Source<'f, u32>) {
        self.emit(Inst::Bulk(Bulk::Prefetch { src: src.operand(), bytes: bytes.operand() }));
    }

    /// Starts the combination of a box in shared memory with the tensor's at `coords` (elements, innermost first), under the
    /// rules of [`tensor_store`](Self::tensor_store).
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

    /// Fetches the box at `coords` (elements, innermost first) to L2.
    #[track_caller]
    pub fn tensor_prefetch<'f, const D: usize>(&'f self, map: Value<'f, u64>, coords: [Value<'f, i32>; D]) {
        let coords = coords.iter().map(|coord| coord.operand()).collect();
        self.emit(Inst::Bulk(Bulk::TensorPrefetch { map: map.operand(), coords }));
    }

    /// Stores `N` (1, 2 or 4) elements to a CTA of the cluster, whose mbarrier receives their bytes.
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

    /// Combines a value with one in shared memory of a CTA of the cluster, whose mbarrier receives its bytes.
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

    /// Counts arrivals on an own mbarrier; gives the state of the phase they belong to.
    #[track_caller]
    pub fn mbarrier_arrive_state<'f>(
        &'f self,
        barrier: Value<'f, u32>,
        count: impl Source<'f, u32>,
    ) -> Value<'f, u64> {
        self.mbarrier_arrive_state_as(barrier, count, MbarrierOrder::CTA)
    }

    /// The same in an order.
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

    /// Counts one arrival on an own mbarrier and announces `bytes` bytes; gives the state of the phase.
    #[track_caller]
    pub fn mbarrier_arrive_expect_state<'f>(
        &'f self,
        barrier: Value<'f, u32>,
        bytes: impl Source<'f, u32>,
    ) -> Value<'f, u64> {
        self.mbarrier_arrive_expect_state_as(barrier, bytes, MbarrierOrder::CTA)
    }

    /// The same in an order.
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

    /// Whether the phase of a state has completed: `mbarrier.try_wait`, or `test_wait` where `patient` is false.
    #[track_caller]
    pub fn mbarrier_test<'f>(
        &'f self,
        barrier: Value<'f, u32>,
        state: Value<'f, u64>,
        patient: bool,
    ) -> Value<'f, bool> {
        self.mbarrier_test_as(barrier, state, patient, MbarrierOrder::CTA)
    }

    /// The same in an order.
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

    /// Asks once, without waiting, whether the phase of a parity has completed.
    #[track_caller]
    pub fn mbarrier_test_parity<'f>(
        &'f self,
        barrier: Value<'f, u32>,
        parity: impl Source<'f, u32>,
    ) -> Value<'f, bool> {
        self.mbarrier_test_parity_as(barrier, parity, MbarrierOrder::CTA)
    }

    /// The same in an order.
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

    /// The arrivals that were missing according to a state.
    #[track_caller]
    pub fn mbarrier_pending<'f>(&'f self, state: Value<'f, u64>) -> Value<'f, u32> {
        let state = state.operand();
        self.define(|dst| Inst::MbarrierMore(MbarrierInst::PendingCount { dst, state }))
    }

    /// Counts arrivals on an own mbarrier that must not complete its phase, with `drop` such that later phases do not wait
    /// for; gives the state of the phase.
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

    /// Counts arrivals on an own mbarrier which later phases do not wait for; gives the state of the phase.
    #[track_caller]
    pub fn mbarrier_drop_state<'f>(
        &'f self,
        barrier: Value<'f, u32>,
        count: impl Source<'f, u32>,
    ) -> Value<'f, u64> {
        self.mbarrier_drop_state_as(barrier, count, MbarrierOrder::CTA)
    }

    /// The same in an order.
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

    /// Announces `bytes` bytes on an own mbarrier and arrives at it for the last time; gives the state of the phase.
    #[track_caller]
    pub fn mbarrier_drop_expect<'f>(
        &'f self,
        barrier: Value<'f, u32>,
        bytes: impl Source<'f, u32>,
    ) -> Value<'f, u64> {
        self.mbarrier_drop_expect_as(barrier, bytes, MbarrierOrder::CTA)
    }

    /// The same in an order.
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

    /// Counts arrivals, on an own mbarrier or with `cluster` on any, which later phases do not wait for.
    #[track_caller]
    pub fn mbarrier_drop<'f>(&'f self, barrier: Value<'f, u32>, count: impl Source<'f, u32>, cluster: bool) {
        self.mbarrier_drop_as(barrier, count, cluster, MbarrierOrder::CTA);
    }

    /// The same in an order.
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

    /// Announces `bytes` bytes on an mbarrier of any CTA of the cluster, as an arrival or not.
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

    /// Counts `bytes` bytes as arrived on an own mbarrier, or with `cluster` on any.
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

    /// `bar.red.popc`: waits for `threads` threads at barrier `id`, and says in how many `cond` holds.
    #[track_caller]
    pub fn barrier_count<'f>(
        &'f self,
        id: impl Source<'f, u32>,
        threads: u32,
        cond: Value<'f, bool>,
    ) -> Value<'f, u32> {
        self.barrier_reduce(BarrierOp::Population, id.operand(), threads, cond)
    }

    /// `bar.red.and`: waits for `threads` threads at barrier `id`, and says whether `cond` holds in all.
    #[track_caller]
    pub fn barrier_all<'f>(
        &'f self,
        id: impl Source<'f, u32>,
        threads: u32,
        cond: Value<'f, bool>,
    ) -> Value<'f, bool> {
        self.barrier_reduce(BarrierOp::And, id.operand(), threads, cond)
    }

    /// `bar.red.or`: waits for `threads` threads at barrier `id`, and says whether `cond` holds in any.
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

    /// `fns`: the position of the `n`th set bit of `mask` from bit `base` on, counting from 1; upwards for `n > 0`,
    /// downwards for `n < 0`, at `base` itself for 0. All ones where there is none.
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
