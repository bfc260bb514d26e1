//! Builder methods for barriers, fences, tensor copies and `wgmma`.

use crate::builder::Builder;
use crate::inst::{FenceSem, Inst, ProxySpace, Reg, Scope, WgmmaA, WgmmaSparse, WgmmaTypes};
use crate::types::Scalar;
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
