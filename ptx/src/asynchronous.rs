//! Building the asynchronous instructions: barriers, tensor copies and warpgroup matrix multiplies.

use crate::builder::Builder;
use crate::inst::{
    FenceSem, Inst, MbarrierOrder, Operand, ProxySpace, Reg, Scope, WgmmaA, WgmmaSparse, WgmmaTypes,
};
use crate::types::{Scalar, Space};
use crate::value::{Source, Value, Var};

/// Everything about one `wgmma.mma_async` but its accumulators.
#[derive(Clone, Copy, Debug)]
pub struct WgmmaOperands<'f> {
    /// Element types.
    pub types: WgmmaTypes,
    /// N.
    pub n: u32,
    /// A's matrix descriptor, or its fragments.
    pub a: WgmmaSource<'f>,
    /// B's matrix descriptor.
    pub b: Value<'f, u64>,
    /// Whether the old accumulators are added.
    pub accumulate: Value<'f, bool>,
    /// A is MN-major.
    pub transpose_a: bool,
    /// B is MN-major.
    pub transpose_b: bool,
    /// Use -A.
    pub negate_a: bool,
    /// Use -B.
    pub negate_b: bool,
    /// Metadata of a sparse A and its selector.
    pub sparse: Option<(Var<'f, u32>, u32)>,
}

/// Where a `wgmma` takes A from.
#[derive(Clone, Copy, Debug)]
pub enum WgmmaSource<'f> {
    /// Shared memory, through a matrix descriptor.
    Shared(Value<'f, u64>),
    /// This thread's fragment.
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
    /// A dense multiply of K-major operands that adds to the old accumulators: the fields to begin from.
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
    /// Shared address of the image.
    pub dst: Value<'f, u32>,
    /// Shared address of the mbarrier that receives the bytes.
    pub barrier: Value<'f, u32>,
    /// CTA ranks that receive the box, a bit each; `None` for the own CTA alone.
    pub multicast: Option<Value<'f, u16>>,
    /// L2 cache policy.
    pub hint: Option<u64>,
}

impl Builder {
    // ---- barriers ----

    /// `bar.sync`: waits until `threads` threads have come to barrier `id`.
    #[track_caller]
    pub fn barrier_sync<'f>(&'f self, id: impl Source<'f, u32>, threads: u32) {
        self.emit(Inst::BarrierSync { id: id.operand(), threads });
    }

    /// `bar.arrive`: counts these threads on barrier `id` without waiting.
    #[track_caller]
    pub fn barrier_arrive<'f>(&'f self, id: impl Source<'f, u32>, threads: u32) {
        self.emit(Inst::BarrierArrive { id: id.operand(), threads });
    }

    /// Waits for the lanes of the warp.
    #[track_caller]
    pub fn warp_sync(&self) {
        self.emit(Inst::WarpSync);
    }

    /// Arrives at the cluster's barrier.
    #[track_caller]
    pub fn cluster_arrive(&self, relaxed: bool) {
        self.emit(Inst::ClusterArrive { relaxed });
    }

    /// Waits until every thread of the cluster has arrived at its barrier.
    #[track_caller]
    pub fn cluster_wait(&self) {
        self.emit(Inst::ClusterWait);
    }

    /// Initialises an mbarrier to `count` arrivals a phase.
    #[track_caller]
    pub fn mbarrier_init<'f>(&'f self, barrier: Value<'f, u32>, count: impl Source<'f, u32>) {
        self.emit(Inst::MbarrierInit { barrier: barrier.operand(), count: count.operand() });
    }

    /// Makes initialised mbarriers visible to the cluster and to asynchronous copies.
    #[track_caller]
    pub fn fence_mbarrier_init(&self) {
        self.emit(Inst::FenceMbarrierInit);
    }

    /// Counts one arrival on an mbarrier of this CTA.
    #[track_caller]
    pub fn mbarrier_arrive<'f>(&'f self, barrier: Value<'f, u32>) {
        self.mbarrier_arrive_as(barrier, false, MbarrierOrder::CTA);
    }

    /// Counts one arrival on an mbarrier of any CTA of the cluster (an address from [`Builder::map_shared`]). It hands
    /// back what the thread has finished to use, and publishes nothing that it wrote: for that, see
    /// [`Builder::mbarrier_arrive_as`].
    #[track_caller]
    pub fn mbarrier_arrive_cluster<'f>(&'f self, barrier: Value<'f, u32>) {
        self.mbarrier_arrive_as(barrier, true, MbarrierOrder::CTA);
    }

    /// Counts one arrival in an order on an own mbarrier, or with `cluster` on any.
    #[track_caller]
    pub fn mbarrier_arrive_as<'f>(&'f self, barrier: Value<'f, u32>, cluster: bool, order: MbarrierOrder) {
        let space = if cluster { Space::SharedCluster } else { Space::Shared };
        self.emit(Inst::MbarrierArrive { barrier: barrier.operand(), space, count: Operand::Imm(1), order });
    }

    /// Counts one arrival and announces `bytes` bytes of asynchronous copies for the current phase.
    #[track_caller]
    pub fn mbarrier_arrive_expect<'f>(&'f self, barrier: Value<'f, u32>, bytes: impl Source<'f, u32>) {
        self.mbarrier_arrive_expect_as(barrier, bytes, MbarrierOrder::CTA);
    }

    /// The same in an order.
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

    /// Asks once whether the phase of parity `parity` has completed.
    #[track_caller]
    pub fn mbarrier_try_wait<'f>(
        &'f self,
        barrier: Value<'f, u32>,
        parity: impl Source<'f, u32>,
    ) -> Value<'f, bool> {
        self.mbarrier_try_wait_as(barrier, parity, MbarrierOrder::CTA)
    }

    /// The same in an order.
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

    /// The same in an order.
    #[track_caller]
    pub fn mbarrier_wait_as<'f>(
        &'f self,
        barrier: Value<'f, u32>,
        parity: impl Source<'f, u32>,
        order: MbarrierOrder,
    ) {
        self.emit(Inst::MbarrierWait { barrier: barrier.operand(), parity: parity.operand(), order });
    }

    /// Orders this thread's generic accesses before later asynchronous ones.
    #[track_caller]
    pub fn fence_proxy_async(&self, space: ProxySpace) {
        self.emit(Inst::FenceProxyAsync { space });
    }

    /// `fence.acq_rel`.
    #[track_caller]
    pub fn fence(&self, scope: Scope) {
        self.emit(Inst::Fence { sem: FenceSem::AcquireRelease, scope });
    }

    /// `fence.sc`.
    #[track_caller]
    pub fn fence_sc(&self, scope: Scope) {
        self.emit(Inst::Fence { sem: FenceSem::SequentiallyConsistent, scope });
    }

    /// The address of the same shared variable in the CTA of rank `rank` of the cluster.
    #[track_caller]
    pub fn map_shared<'f>(&'f self, address: Value<'f, u32>, rank: impl Source<'f, u32>) -> Value<'f, u32> {
        let (address, rank) = (address.operand(), rank.operand());
        self.define(|dst| Inst::MapShared { dst, address, rank })
    }

    /// Gives registers back (`grow` false) or asks for more: each thread of the warpgroup holds `count` then.
    #[track_caller]
    pub fn set_max_registers(&self, grow: bool, count: u32) {
        self.emit(Inst::SetMaxRegisters { grow, count });
    }

    /// `griddepcontrol.wait`: until the grids that this one depends on have completed.
    #[track_caller]
    pub fn grid_wait(&self) {
        self.emit(Inst::GridDependency { wait: true });
    }

    /// `griddepcontrol.launch_dependents`: dependent grids may be launched; nothing is published.
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

    /// Fetches a tensor map ahead of its first use.
    #[track_caller]
    pub fn prefetch_tensor_map<'f>(&'f self, map: Value<'f, u64>) {
        self.emit(Inst::PrefetchTensorMap { map: map.operand() });
    }

    /// Starts the copy of the box at `coords` (elements, innermost first) into shared memory. The first coordinate is a
    /// multiple of 16 bytes, or the hardware traps; any may be negative.
    #[track_caller]
    pub fn tensor_load<'f, const D: usize>(&'f self, load: TensorLoad<'f>, coords: [Value<'f, i32>; D]) {
        self.emit(Inst::TensorLoad {
            map: load.map.operand(),
            coords: coords.iter().map(|coord| coord.operand()).collect(),
            dst: load.dst.operand(),
            barrier: load.barrier.operand(),
            multicast: load.multicast.map(Value::operand),
            hint: load.hint,
        });
    }

    /// Starts the copy of a box from shared memory to `coords` (elements, innermost first). None may be negative, and the
    /// first is a multiple of 16 bytes, or the hardware traps.
    #[track_caller]
    pub fn tensor_store<'f, const D: usize>(
        &'f self,
        map: Value<'f, u64>,
        src: Value<'f, u32>,
        coords: [Value<'f, i32>; D],
    ) {
        let coords = coords.iter().map(|coord| coord.operand()).collect();
        self.emit(Inst::TensorStore { map: map.operand(), coords, src: src.operand(), hint: None });
    }

    /// Closes this thread's group of bulk copies.
    #[track_caller]
    pub fn bulk_commit(&self) {
        self.emit(Inst::BulkCommit);
    }

    /// Waits until at most `pending` groups of this thread are unfinished; with `read`, until their sources
    /// have been read.
    #[track_caller]
    pub fn bulk_wait(&self, pending: u32, read: bool) {
        self.emit(Inst::BulkWait { pending, read });
    }

    /// Stores 8x8 matrices of 16-bit elements, a row address from each lane.
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

    /// Orders accesses to accumulator registers before the next `wgmma`.
    #[track_caller]
    pub fn wgmma_fence(&self) {
        self.emit(Inst::WgmmaFence);
    }

    /// Closes this warp's group of matrix multiplies.
    #[track_caller]
    pub fn wgmma_commit(&self) {
        self.emit(Inst::WgmmaCommit);
    }

    /// Waits until at most `pending` (0..=7) groups of this warp are unfinished.
    #[track_caller]
    pub fn wgmma_wait(&self, pending: u32) {
        self.emit(Inst::WgmmaWait { pending });
    }

    /// Starts `D = A * B (+ D)` on the warpgroup.
    ///
    /// # Shapes
    /// A `(64, K)`, B `(N, K)`, D `(64, N)` spread over the accumulators of 128 threads; a sparse A `(64, K/2)`.
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
