//! Builder methods for barriers, fences, tensor copies and `wgmma`.

use crate::builder::Builder;
use crate::inst::{
    FenceSem, Inst, MbarrierOrder, Operand, ProxySpace, Reg, Scope, WgmmaA, WgmmaSparse, WgmmaTypes,
};
use crate::types::{Scalar, Space};
use crate::value::{Source, Value, Var};

/// The operands and options of one `wgmma.mma_async`, without the accumulators.
#[derive(Clone, Copy, Debug)]
pub struct WgmmaOperands<'f> {
    /// Element types.
    pub types: WgmmaTypes,
    /// N, the number of columns: 8 to 256 ([`WgmmaTypes::allows`]).
    pub n: u32,
    /// A: a matrix descriptor, or registers.
    pub a: WgmmaSource<'f>,
    /// The matrix descriptor of B.
    pub b: Value<'f, u64>,
    /// Whether to add to the old accumulators; otherwise they are overwritten.
    pub accumulate: Value<'f, bool>,
    /// Whether A is MN-major in shared memory (16-bit types only).
    pub transpose_a: bool,
    /// Whether B is MN-major in shared memory (16-bit types only).
    pub transpose_b: bool,
    /// Whether to use -A (floating-point types only).
    pub negate_a: bool,
    /// Whether to use -B (floating-point types only).
    pub negate_b: bool,
    /// The metadata of a sparse A, and the selector of the lanes that hold it. `None` for a dense A.
    pub sparse: Option<(Var<'f, u32>, u32)>,
}

/// The source of operand A of a `wgmma`.
#[derive(Clone, Copy, Debug)]
pub enum WgmmaSource<'f> {
    /// Shared memory, through a matrix descriptor.
    Shared(Value<'f, u64>),
    /// The thread's fragment of A in four registers.
    Registers([Var<'f, u32>; 4]),
}

impl<'f> From<Value<'f, u64>> for WgmmaSource<'f> {
    fn from(descriptor: Value<'f, u64>) -> Self {
        Self::Shared(descriptor)
    }
}

impl<'f> From<[Var<'f, u32>; 4]> for WgmmaSource<'f> {
    fn from(fragment: [Var<'f, u32>; 4]) -> Self {
        Self::Registers(fragment)
    }
}

impl<'f> WgmmaOperands<'f> {
    /// A dense multiply of K-major operands that adds to the old accumulators. Change its fields for other
    /// forms.
    pub fn new(types: WgmmaTypes, n: u32, a: impl Into<WgmmaSource<'f>>, b: Value<'f, u64>) -> Self {
        Self {
            types,
            n,
            a: a.into(),
            b,
            accumulate: b.builder().constant(true),
            transpose_a: false,
            transpose_b: false,
            negate_a: false,
            negate_b: false,
            sparse: None,
        }
    }
}

/// One tensor copy from global to shared memory.
#[derive(Clone, Copy, Debug)]
pub struct TensorLoad<'f> {
    /// Generic address of the tensor map.
    pub map: Value<'f, u64>,
    /// Shared address of the box.
    pub dst: Value<'f, u32>,
    /// Shared address of the mbarrier that counts the bytes (complete-tx).
    pub barrier: Value<'f, u32>,
    /// Mask of the CTA ranks that receive the box, one bit per rank. `None` for this CTA only.
    pub multicast: Option<Value<'f, u16>>,
    /// L2 cache policy, see [`inst::tma`](crate::inst::tma); `None` for the default.
    pub hint: Option<u64>,
}

impl Builder {
    // ---- barriers ----

    /// `bar.sync`: waits until `threads` threads have arrived at named barrier `id`.
    #[track_caller]
    pub fn barrier_sync<'f>(&'f self, id: impl Source<'f, u32>, threads: u32) {
        self.emit(Inst::BarrierSync { id: id.operand(), threads });
    }

    /// `bar.arrive`: arrives at named barrier `id` without waiting. `threads` is the number of threads that
    /// take part.
    #[track_caller]
    pub fn barrier_arrive<'f>(&'f self, id: impl Source<'f, u32>, threads: u32) {
        self.emit(Inst::BarrierArrive { id: id.operand(), threads });
    }

    /// `bar.warp.sync`: waits for all lanes of the warp.
    #[track_caller]
    pub fn warp_sync(&self) {
        self.emit(Inst::WarpSync);
    }

    /// `barrier.cluster.arrive`: arrives at the cluster's barrier; with `relaxed`, without release semantics.
    #[track_caller]
    pub fn cluster_arrive(&self, relaxed: bool) {
        self.emit(Inst::ClusterArrive { relaxed });
    }

    /// `barrier.cluster.wait`: waits until every thread of the cluster has arrived at the cluster's barrier.
    #[track_caller]
    pub fn cluster_wait(&self) {
        self.emit(Inst::ClusterWait);
    }

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
        let space = if cluster { Space::SharedCluster } else { Space::Shared };
        self.emit(Inst::MbarrierArrive { barrier: barrier.operand(), space, count: Operand::Imm(1), order });
    }

    /// Counts one arrival and announces `bytes` bytes of asynchronous copies for the current phase
    /// (expect-tx).
    #[track_caller]
    pub fn mbarrier_arrive_expect<'f>(&'f self, barrier: Value<'f, u32>, bytes: impl Source<'f, u32>) {
        self.mbarrier_arrive_expect_as(barrier, bytes, MbarrierOrder::CTA);
    }

    /// As [`mbarrier_arrive_expect`](Self::mbarrier_arrive_expect), with the given memory ordering.
    #[track_caller]
    pub fn mbarrier_arrive_expect_as<'f>(
        &'f self,
        barrier: Value<'f, u32>,
        bytes: impl Source<'f, u32>,
        order: MbarrierOrder,
    ) {
        let (barrier, bytes) = (barrier.operand(), bytes.operand());
        self.emit(Inst::MbarrierArriveExpectTx { barrier, bytes, order });
    }

    /// `mbarrier.try_wait.parity`, once: whether the phase of parity `parity` has completed.
    #[track_caller]
    pub fn mbarrier_try_wait<'f>(
        &'f self,
        barrier: Value<'f, u32>,
        parity: impl Source<'f, u32>,
    ) -> Value<'f, bool> {
        self.mbarrier_try_wait_as(barrier, parity, MbarrierOrder::CTA)
    }

    /// As [`mbarrier_try_wait`](Self::mbarrier_try_wait), with the given memory ordering.
    #[track_caller]
    pub fn mbarrier_try_wait_as<'f>(
        &'f self,
        barrier: Value<'f, u32>,
        parity: impl Source<'f, u32>,
        order: MbarrierOrder,
    ) -> Value<'f, bool> {
        let (barrier, parity) = (barrier.operand(), parity.operand());
        self.define(|dst| Inst::MbarrierTryWait { dst, barrier, parity, order })
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

    /// `fence.proxy.async`: orders this thread's accesses through the generic proxy before later accesses
    /// through the async proxy.
    #[track_caller]
    pub fn fence_proxy_async(&self, space: ProxySpace) {
        self.emit(Inst::FenceProxyAsync { space });
    }

    /// `fence.acq_rel` for a scope.
    #[track_caller]
    pub fn fence(&self, scope: Scope) {
        self.emit(Inst::Fence { sem: FenceSem::AcquireRelease, scope });
    }

    /// `fence.sc` for a scope.
    #[track_caller]
    pub fn fence_sc(&self, scope: Scope) {
        self.emit(Inst::Fence { sem: FenceSem::SequentiallyConsistent, scope });
    }

    /// `mapa`: the address of the same shared variable in the CTA of rank `rank` of the cluster.
    #[track_caller]
    pub fn map_shared<'f>(&'f self, address: Value<'f, u32>, rank: impl Source<'f, u32>) -> Value<'f, u32> {
        let (address, rank) = (address.operand(), rank.operand());
        self.define(|dst| Inst::MapShared { dst, address, rank })
    }

    /// `setmaxnreg`: requests registers (`grow`) or releases them, so that each thread of the warpgroup has
    /// `count`. `count` is a multiple of 8 in 24..=256.
    #[track_caller]
    pub fn set_max_registers(&self, grow: bool, count: u32) {
        self.emit(Inst::SetMaxRegisters { grow, count });
    }

    /// `griddepcontrol.wait`: waits until the grids that this grid depends on have completed and their writes
    /// are visible.
    #[track_caller]
    pub fn grid_wait(&self) {
        self.emit(Inst::GridDependency { wait: true });
    }

    /// `griddepcontrol.launch_dependents`: lets dependent grids be launched. It makes no writes visible to
    /// them.
    #[track_caller]
    pub fn grid_launch_dependents(&self) {
        self.emit(Inst::GridDependency { wait: false });
    }

    /// Aborts the grid.
    #[track_caller]
    pub fn trap(&self) {
        self.emit(Inst::Trap);
    }

    // ---- tensor copies ----

    /// Prefetches a tensor map before its first use.
    #[track_caller]
    pub fn prefetch_tensor_map<'f>(&'f self, map: Value<'f, u64>) {
        self.emit(Inst::PrefetchTensorMap { map: map.operand() });
    }

    /// Starts a copy of the box at `coords` (elements, innermost first) into shared memory. Coordinates may
    /// be negative. The first coordinate must be a multiple of 16 bytes, otherwise the hardware traps.
    #[track_caller]
    pub fn tensor_load<'f>(&'f self, load: TensorLoad<'f>, coords: impl IntoIterator<Item = Value<'f, i32>>) {
        self.emit(Inst::TensorLoad {
            map: load.map.operand(),
            coords: coords.into_iter().map(Value::operand).collect(),
            dst: load.dst.operand(),
            barrier: load.barrier.operand(),
            multicast: load.multicast.map(Value::operand),
            hint: load.hint,
        });
    }

    /// Starts a copy of a box from shared memory to `coords` (elements, innermost first). No coordinate may
    /// be negative, and the first must be a multiple of 16 bytes; otherwise the hardware traps.
    #[track_caller]
    pub fn tensor_store<'f>(
        &'f self,
        map: Value<'f, u64>,
        src: Value<'f, u32>,
        coords: impl IntoIterator<Item = Value<'f, i32>>,
    ) {
        let coords = coords.into_iter().map(Value::operand).collect();
        self.emit(Inst::TensorStore { map: map.operand(), coords, src: src.operand(), hint: None });
    }

    /// `cp.async.bulk.commit_group`: closes this thread's group of bulk copies.
    #[track_caller]
    pub fn bulk_commit(&self) {
        self.emit(Inst::BulkCommit);
    }

    /// `cp.async.bulk.wait_group`: waits until at most `pending` bulk groups of this thread are unfinished.
    /// With `read`, it waits only until their sources have been read.
    #[track_caller]
    pub fn bulk_wait(&self, pending: u32, read: bool) {
        self.emit(Inst::BulkWait { pending, read });
    }

    /// `stmatrix`: stores `N` (1, 2 or 4) 8x8 matrices of 16-bit elements. Each lane gives the address of a
    /// row.
    #[track_caller]
    pub fn store_matrix<'f, const N: usize>(
        &'f self,
        address: Value<'f, u32>,
        values: [Value<'f, u32>; N],
        transpose: bool,
    ) {
        let src = values.iter().map(|value| value.operand()).collect();
        self.emit(Inst::StoreMatrix { address: address.operand(), src, transpose });
    }

    // ---- matrix multiplies ----

    /// `wgmma.fence`: orders register accesses before the next `wgmma`.
    #[track_caller]
    pub fn wgmma_fence(&self) {
        self.emit(Inst::WgmmaFence);
    }

    /// `wgmma.commit_group`: closes this warp's group of `wgmma` operations.
    #[track_caller]
    pub fn wgmma_commit(&self) {
        self.emit(Inst::WgmmaCommit);
    }

    /// `wgmma.wait_group`: waits until at most `pending` (0..=7) `wgmma` groups of this warp are unfinished.
    #[track_caller]
    pub fn wgmma_wait(&self, pending: u32) {
        self.emit(Inst::WgmmaWait { pending });
    }

    /// `wgmma.mma_async`: starts `D = A * B (+ D)` on the warpgroup.
    ///
    /// # Shapes
    /// A is `(64, K)`, or `(64, K/2)` if sparse. B is `(N, K)`. D is `(64, N)`, distributed over the
    /// accumulators of 128 threads.
    #[track_caller]
    pub fn wgmma<'f, T: Scalar>(&'f self, operands: WgmmaOperands<'f>, accumulators: &[Var<'f, T>]) {
        let d: Vec<Reg> = accumulators.iter().map(|var| var.reg()).collect();
        self.emit(Inst::Wgmma {
            types: operands.types,
            n: operands.n,
            d,
            sparse: operands
                .sparse
                .map(|(metadata, selector)| WgmmaSparse { metadata: metadata.reg(), selector }),
            a: match operands.a {
                WgmmaSource::Shared(descriptor) => WgmmaA::Shared(descriptor.operand()),
                WgmmaSource::Registers(fragment) => WgmmaA::Registers(fragment.map(Var::reg)),
            },
            b: operands.b.operand(),
            accumulate: operands.accumulate.operand(),
            negate_a: operands.negate_a,
            negate_b: operands.negate_b,
            transpose_a: operands.transpose_a,
            transpose_b: operands.transpose_b,
        });
    }
}
