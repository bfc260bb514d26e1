//! The instruction set: a closed enum with one variant per PTX instruction that a Hopper matrix kernel needs.
//!
//! Use it to inspect or change a program; to write one, use [`Builder`](crate::Builder). The fields of larger
//! families are in submodules. The matches over [`Inst`] are exhaustive, so after a new variant the compiler
//! names the places to extend in the verifier, the printer and the emulator.
//!
//! ```
//! use ptx::inst::{BinaryOp, Inst, Operand, Reg};
//! use ptx::{Scalar, Type};
//!
//! // What a builder appends; programs are searched and changed as such values.
//! let add = Inst::Binary { op: BinaryOp::Add, ty: u32::TYPE, dst: Reg(2), a: Operand::Reg(Reg(0)), b: Operand::Imm(1) };
//! assert_eq!(add.name(), "arithmetic");
//! let operands = add.operands();
//! assert_eq!((operands.reads.len(), operands.writes.len()), (2, 1));
//! ```

pub mod alu;
pub mod ampere;
pub mod arith;
pub mod atomic;
pub mod barrier;
pub mod bulk;
pub mod control;
pub mod convert;
pub mod float;
mod legal;
pub mod mbarrier;
pub mod memory;
pub mod operands;
mod since;
pub(crate) mod spell;
pub mod tensor_map;
pub mod tma;
pub mod warp;
pub mod wgmma;

pub use alu::{Alu, AluOp, ApproxOp, BitOp, FloatOp, HalfType, PairOp, Rounding};
pub use ampere::{CopyAsync, MmaTypes, WarpMatrix};
pub use arith::{BinaryOp, CompareOp, UnaryOp};
pub use atomic::{AtomicInst, AtomicOp, AtomicSem, AtomicType, LoadOrder, OrderedInst, StoreOrder};
pub use barrier::{FenceSem, LooseBarrier, ProxySpace, Scope};
pub use bulk::{Bulk, Reduction};
pub use control::Special;
pub use convert::Cvt;
pub use float::{Division, FloatRelation};
pub use mbarrier::{
    Arrival, BarrierOp, BarrierReduce, MbarrierArrive, MbarrierOrder, MbarrierPhase, MbarrierTest,
};
pub use memory::Address;
pub use operands::{Expect, Operand, OperandList, Reg};
pub use tensor_map::{MapField, MapInst};
pub use warp::{ReduceOp, Shuffle, Vote, WarpInst};
pub use wgmma::{Fp8, Int8, WgmmaA, WgmmaElement, WgmmaSparse, WgmmaSum, WgmmaTypes};

use crate::types::{Space, Type};

/// One instruction. The documentation of each variant names its section of the PTX ISA manual.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Inst {
    /// `mov` between registers of the same width; the types may differ (a bit cast). ISA "mov".
    Move {
        /// The type of an immediate, or any type of the width.
        ty: Type,
        /// Receives the bits.
        dst: Reg,
        /// The bits.
        src: Operand,
    },
    /// `add sub mul.lo mul.hi div rem min max and or xor shl shr`. ISA "Integer/Floating Point/Logic and
    /// Shift".
    Binary {
        /// The operation.
        op: BinaryOp,
        /// Type of `dst`, `a` and `b` (the shift count `b` is `.u32`).
        ty: Type,
        /// Receives the result.
        dst: Reg,
        /// First operand.
        a: Operand,
        /// Second operand.
        b: Operand,
    },
    /// `mad.lo` for integers, `fma.rn` for floats: `dst = a * b + c`. ISA "mad", "fma".
    MulAdd {
        /// Type of all operands.
        ty: Type,
        /// Receives the result.
        dst: Reg,
        /// Factor.
        a: Operand,
        /// Factor.
        b: Operand,
        /// Addend.
        c: Operand,
    },
    /// `mul.wide.u32`: the full 64-bit product. ISA "mul".
    MulWide {
        /// A `.u64` register.
        dst: Reg,
        /// `.u32` factor.
        a: Operand,
        /// `.u32` factor.
        b: Operand,
    },
    /// `neg abs not`. ISA "neg", "abs", "not".
    Unary {
        /// The operation.
        op: UnaryOp,
        /// Type of `dst` and `a`.
        ty: Type,
        /// Receives the result.
        dst: Reg,
        /// The operand.
        a: Operand,
    },
    /// `setp.<op>`. Float comparisons are ordered (false on NaN), except `Ne`, which is unordered (true on
    /// NaN). ISA "setp".
    Compare {
        /// The relation.
        op: CompareOp,
        /// Type of `a` and `b`.
        ty: Type,
        /// A predicate register.
        dst: Reg,
        /// Left side.
        a: Operand,
        /// Right side.
        b: Operand,
    },
    /// `selp`: `dst = if cond { a } else { b }`. ISA "selp".
    Select {
        /// Type of `dst`, `a` and `b`.
        ty: Type,
        /// Receives the selected value.
        dst: Reg,
        /// The value if `cond` is true.
        a: Operand,
        /// The value if `cond` is false.
        b: Operand,
        /// A predicate.
        cond: Operand,
    },
    /// `cvt`: between scalar types. Float to float and int to float round to nearest
    /// even, float to int truncates and saturates. ISA "cvt".
    Convert {
        /// Type of `src`.
        from: Type,
        /// Type of the result.
        to: Type,
        /// Receives the value.
        dst: Reg,
        /// The value.
        src: Operand,
    },
    /// `cvt.rn.{bf16x2|f16x2}.f32 dst, high, low`: two floats rounded into one 32-bit register. ISA "cvt".
    Pack {
        /// [`Type::F16`] or [`Type::Bf16`].
        ty: Type,
        /// A `.u32` register.
        dst: Reg,
        /// Goes to bits 0..16.
        low: Operand,
        /// Goes to bits 16..32.
        high: Operand,
    },
    /// `mov.b32 {low, high}, src`: the two 16-bit halves of a 32-bit register. ISA "mov".
    Unpack {
        /// 16-bit register for bits 0..16.
        low: Reg,
        /// 16-bit register for bits 16..32.
        high: Reg,
        /// A 32-bit operand.
        src: Operand,
    },
    /// `mov {a, b, ..}, src`: the parts of a register, the lowest first. ISA "mov".
    Split {
        /// Type of `src`: [`Type::B16`], [`Type::B32`] or [`Type::B64`].
        ty: Type,
        /// 2, 4 or 8 registers of 8, 16 or 32 bits, which are together as wide as `src`.
        dst: Vec<Reg>,
        /// The operand.
        src: Operand,
    },
    /// `mov dst, {a, b, ..}`: a register of parts, the lowest first. ISA "mov".
    Join {
        /// Type of `dst`: [`Type::B16`], [`Type::B32`] or [`Type::B64`].
        ty: Type,
        /// The register.
        dst: Reg,
        /// 2, 4 or 8 operands of 8, 16 or 32 bits, which are together as wide as `dst`.
        src: Vec<Operand>,
    },
    /// `mov dst, %special`. ISA "Special Registers".
    ReadSpecial {
        /// A `.u32` register, or `.u64` for a 64-bit special register.
        dst: Reg,
        /// The special register.
        special: Special,
    },
    /// `shfl.sync.idx.b32 dst, src, lane, 31, -1` over the whole warp. ISA "shfl.sync".
    ShuffleIndex {
        /// A 32-bit register.
        dst: Reg,
        /// The value that each lane provides.
        src: Operand,
        /// The source lane, 0..32.
        lane: Operand,
    },
    /// `shfl.sync.bfly.b32 dst, src, mask, 31, -1` over the whole warp: the value of lane `lane ^ mask`.
    /// ISA "shfl.sync".
    ShuffleXor {
        /// A 32-bit register.
        dst: Reg,
        /// The value that each lane provides.
        src: Operand,
        /// The mask of the source lane, 0..32.
        mask: u32,
    },
    /// `elect.sync`: true in one lane of the warp. ISA "elect.sync".
    Elect {
        /// A predicate register.
        dst: Reg,
    },
    /// `setmaxnreg.{inc|dec}.sync.aligned.u32`. ISA "setmaxnreg".
    SetMaxRegisters {
        /// Whether registers are requested (`inc`) or released (`dec`).
        grow: bool,
        /// Registers per thread afterwards: a multiple of 8 in 24..=256.
        count: u32,
    },
    /// `trap`: aborts the grid. ISA "trap".
    Trap,

    /// `ld.param`, of 1, 2 or 4 elements. ISA "ld".
    LoadParam {
        /// Element type.
        ty: Type,
        /// 1, 2 or 4 registers.
        dst: Vec<Reg>,
        /// Index into [`Function::params`](crate::Function::params).
        param: u32,
        /// Bytes from the beginning of the parameter to the first element.
        offset: u32,
    },
    /// `cvta.param.u64` or `mov.u64`: the address of a parameter, generic or in [`Space::Param`]. ISA "cvta", "mov".
    ParamAddress {
        /// Whether the address is generic.
        generic: bool,
        /// A `.u64` register.
        dst: Reg,
        /// Index into [`Function::params`](crate::Function::params).
        param: u32,
        /// Bytes that are added to the address.
        offset: u32,
    },
    /// `mov.u32 dst, smem`: the shared address of a byte of the function's shared memory. ISA "mov".
    SharedBase {
        /// A `.u32` register.
        dst: Reg,
        /// Bytes from the beginning of shared memory. Dynamic shared memory begins after
        /// [`Function::static_shared`](crate::Function::static_shared) bytes.
        offset: u32,
    },
    /// `mov.u64 dst, stack`: the address in [`Space::Local`] of a byte of the thread's local memory. ISA "mov".
    LocalBase {
        /// A `.u64` register.
        dst: Reg,
        /// Bytes from the beginning of local memory.
        offset: u32,
    },
    /// `cvta{.to}.<space>.u64`: the generic address of an address of a state space, or back. ISA "cvta".
    ConvertAddress {
        /// The state space: not [`Space::Generic`].
        space: Space,
        /// Whether a generic address becomes one of the space (`.to`); otherwise the other way.
        to: bool,
        /// A `.u64` register. An address in shared memory is zero-extended.
        dst: Reg,
        /// The address, a `.u64`.
        src: Operand,
    },
    /// `isspacep.<space>`: whether a generic address is one of a state space. ISA "isspacep".
    IsSpace {
        /// The state space: not [`Space::Generic`].
        space: Space,
        /// A predicate register.
        dst: Reg,
        /// A generic address, a `.u64`.
        src: Operand,
    },
    /// `ld.global.nc`, of 1, 2 or 4 elements: a load of memory that nobody writes while the kernel runs. ISA "ld.global.nc".
    LoadConstant {
        /// Element type.
        ty: Type,
        /// 1, 2 or 4 registers.
        dst: Vec<Reg>,
        /// Global address, aligned to the total number of bytes loaded.
        address: Address,
    },
    /// `ld`, of 1, 2 or 4 elements. ISA "ld".
    Load {
        /// State space of the address.
        space: Space,
        /// Element type.
        ty: Type,
        /// 1, 2 or 4 registers.
        dst: Vec<Reg>,
        /// Source address, aligned to the total number of bytes loaded.
        address: Address,
    },
    /// `st`, of 1, 2 or 4 elements. ISA "st".
    Store {
        /// State space of the address.
        space: Space,
        /// Element type.
        ty: Type,
        /// 1, 2 or 4 operands.
        src: Vec<Operand>,
        /// Destination address, aligned to the total number of bytes stored.
        address: Address,
    },
    /// `mapa.shared::cluster.u32`: the address of the same variable in another CTA of the cluster. ISA
    /// "mapa".
    MapShared {
        /// A `.u32` register.
        dst: Reg,
        /// A shared address in this CTA.
        address: Operand,
        /// The CTA's rank in the cluster.
        rank: Operand,
    },

    /// `getctarank.shared::cluster.u32`: the rank of the CTA of the cluster whose shared memory an address names. ISA "getctarank".
    CtaRank {
        /// A `.u32` register.
        dst: Reg,
        /// A shared address in any CTA of the cluster.
        address: Operand,
    },

    /// Barriers to which the lanes of a warp may come one after the other. ISA "bar", "barrier.cluster".
    Loose(LooseBarrier),
    /// `bar.sync id{, threads}`. ISA "bar".
    BarrierSync {
        /// Named barrier, 0..16.
        id: Operand,
        /// Number of threads that take part, those of `bar.sync` and of `bar.arrive`: a multiple of 32. [`EVERYONE`](barrier::EVERYONE)
        /// for all threads of the CTA that have not exited.
        threads: u32,
    },
    /// `bar.arrive id, threads`. ISA "bar".
    BarrierArrive {
        /// Named barrier, 0..16.
        id: Operand,
        /// Number of threads that take part, those of `bar.sync` and of `bar.arrive`: a multiple of 32.
        threads: u32,
    },
    /// `bar.warp.sync -1`. ISA "bar.warp.sync".
    WarpSync,
    /// `barrier.cluster.arrive{.relaxed}.aligned`. ISA "barrier.cluster".
    ClusterArrive {
        /// Whether it is `.relaxed`, without release semantics.
        relaxed: bool,
    },
    /// `barrier.cluster.wait.acquire.aligned`. ISA "barrier.cluster".
    ClusterWait,
    /// `mbarrier.init.shared::cta.b64`. ISA "mbarrier.init".
    MbarrierInit {
        /// Shared address, 8-byte aligned.
        barrier: Operand,
        /// Expected arrivals per phase, 1..2^20.
        count: Operand,
    },
    /// `mbarrier.inval.shared::cta.b64`. ISA "mbarrier.inval".
    MbarrierInvalidate {
        /// Shared address.
        barrier: Operand,
    },
    /// Arrivals at an mbarrier. ISA "mbarrier.arrive", "mbarrier.arrive_drop".
    MbarrierArrive(MbarrierArrive),
    /// `mbarrier.{expect_tx|complete_tx}.relaxed.<scope>.{shared::cta|shared::cluster}.b64`. ISA
    /// "mbarrier.expect_tx", "mbarrier.complete_tx".
    MbarrierTransact {
        /// Whether the bytes are counted as arrived; otherwise they are announced.
        complete: bool,
        /// Address in `space`.
        barrier: Operand,
        /// [`Space::Shared`] or [`Space::SharedCluster`].
        space: Space,
        /// Number of bytes.
        bytes: Operand,
        /// Scope. The operation orders no other accesses.
        scope: Scope,
    },
    /// Asks once whether a phase of an mbarrier has completed. ISA "mbarrier.test_wait", "mbarrier.try_wait".
    MbarrierTest(MbarrierTest),
    /// `mbarrier.pending_count.b64`: the number of pending arrivals in a state. ISA "mbarrier.pending_count".
    MbarrierPending {
        /// A `.u32` register.
        dst: Reg,
        /// The state from an arrival.
        state: Operand,
    },
    /// `mbarrier.try_wait.parity` in a loop until it succeeds. ISA "mbarrier.try_wait".
    MbarrierWait {
        /// Shared address.
        barrier: Operand,
        /// Phase parity, 0 or 1.
        parity: Operand,
        /// Memory ordering.
        order: MbarrierOrder,
    },
    /// `fence.mbarrier_init.release.cluster`. ISA "membar/fence".
    FenceMbarrierInit,
    /// `fence.proxy.async{.space}`: orders accesses through the generic proxy before those through the async
    /// proxy. ISA "membar/fence".
    FenceProxyAsync {
        /// The state space whose accesses are ordered.
        space: ProxySpace,
    },
    /// `fence.{acq_rel|sc}.<scope>`. ISA "membar/fence".
    Fence {
        /// Memory ordering.
        sem: FenceSem,
        /// The threads that the fence synchronises with.
        scope: Scope,
    },
    /// `atom` and `red`. ISA "atom", "red".
    Atomic(AtomicInst),
    /// Loads and stores with memory ordering: `ld.{volatile|relaxed|acquire}`,
    /// `st.{volatile|relaxed|release}`. ISA "ld", "st".
    Ordered(OrderedInst),
    /// `griddepcontrol.{wait|launch_dependents}`. ISA "griddepcontrol".
    GridDependency {
        /// `wait`: waits until the grids that this grid depends on have completed and their writes are
        /// visible. Otherwise `launch_dependents`: dependent grids may be launched; no writes become visible
        /// by it.
        wait: bool,
    },
    /// `cp.async` and the waits for it. ISA "cp.async".
    CopyAsync(CopyAsync),
    /// `ldmatrix` and `mma.sync`. ISA "ldmatrix", "mma".
    WarpMatrix(WarpMatrix),
    /// Warp-level votes, matches, reductions and shuffles. ISA "vote.sync", "match.sync", "redux.sync",
    /// "shfl.sync".
    Warp(WarpInst),
    /// Arithmetic beyond the plain operators. ISA "Integer Arithmetic", "Logic and Shift", "Floating Point",
    /// "cvt".
    Alu(Alu),

    /// `cp.async.bulk.tensor.<d>d.shared::cluster.global.{tile|im2col}.mbarrier::complete_tx::bytes`. ISA
    /// "cp.async.bulk.tensor".
    TensorLoad {
        /// Generic address of the tensor map.
        map: Operand,
        /// `.s32` start coordinates in elements, innermost first; their number is the map's rank. In im2col
        /// mode the base (channel; width, height, depth; image), for ranks of 3 to 5.
        coords: Vec<Operand>,
        /// `None` for a tile. In im2col mode the `.u16` filter offsets (width, height, depth), two fewer than
        /// coordinates.
        im2col: Option<Vec<Operand>>,
        /// Shared address of the box.
        dst: Operand,
        /// Shared address of the mbarrier that counts the bytes of the box (complete-tx).
        barrier: Operand,
        /// Mask of the CTA ranks that receive the box, one bit per rank; a `.u16`. `None` for this CTA only.
        multicast: Option<Operand>,
        /// L2 cache policy, a `.u64`; `None` for the default.
        hint: Option<Operand>,
    },
    /// `cp{.reduce}.async.bulk.tensor.<d>d.global.shared::cta{.<op>}.{tile|im2col_no_offs}.bulk_group`. ISA
    /// "cp.async.bulk.tensor", "cp.reduce.async.bulk.tensor".
    TensorStore {
        /// The reduction, in the element type of the map; `None` to store the elements.
        reduce: Option<AtomicOp>,
        /// Generic address of the tensor map.
        map: Operand,
        /// As those of a load.
        coords: Vec<Operand>,
        /// Whether the coordinates are the base in im2col mode.
        im2col: bool,
        /// Shared address of the box.
        src: Operand,
        /// L2 cache policy, a `.u64`; `None` for the default.
        hint: Option<Operand>,
    },
    /// `cp.async.bulk.prefetch.tensor.<d>d.L2.global.{tile|im2col}`. ISA "cp.async.bulk.prefetch.tensor".
    TensorPrefetch {
        /// Generic address of the tensor map.
        map: Operand,
        /// As those of a load.
        coords: Vec<Operand>,
        /// As those of a load.
        im2col: Option<Vec<Operand>>,
    },
    /// `cp.async.bulk.commit_group`. ISA "cp.async.bulk.commit_group".
    BulkCommit,
    /// `cp.async.bulk.wait_group{.read}`. ISA "cp.async.bulk.wait_group".
    BulkWait {
        /// The number of the most recent groups that may stay pending.
        pending: u32,
        /// Whether to wait only until the sources have been read.
        read: bool,
    },
    /// `prefetch.tensormap`. ISA "prefetch".
    PrefetchTensorMap {
        /// Generic address of the tensor map.
        map: Operand,
    },

    /// Bulk copies without a tensor map, bulk reductions, prefetches, asynchronous stores. ISA
    /// "cp.async.bulk", "cp.reduce.async.bulk", "st.async", "red.async".
    Bulk(Bulk),
    /// `bar.red`. ISA "bar".
    BarrierReduce(BarrierReduce),
    /// Changes of tensor maps and their fences. ISA "tensormap.replace", "tensormap.cp_fenceproxy",
    /// "membar/fence".
    TensorMap(MapInst),

    /// `wgmma.fence.sync.aligned`. ISA "wgmma.fence".
    WgmmaFence,
    /// `wgmma.commit_group.sync.aligned`. ISA "wgmma.commit_group".
    WgmmaCommit,
    /// `wgmma.wait_group.sync.aligned`. ISA "wgmma.wait_group".
    WgmmaWait {
        /// The number of the most recent groups that may stay pending, 0..=7.
        pending: u32,
    },
    /// `wgmma.mma_async{.sp}.sync.aligned.m64nNkK`. ISA "wgmma.mma_async", "wgmma.mma_async.sp".
    Wgmma {
        /// Element types; they determine K.
        types: WgmmaTypes,
        /// N, 8..=256.
        n: u32,
        /// The metadata of a compressed A; K is then twice as long. `None` for a dense A.
        sparse: Option<WgmmaSparse>,
        /// Accumulators of this thread: N/2 registers for 32-bit types, N/4 registers of packed pairs for
        /// `.f16`.
        d: Vec<Reg>,
        /// A, in shared memory or in registers.
        a: WgmmaA,
        /// The matrix descriptor of B.
        b: Operand,
        /// A predicate: whether to add to the old D.
        accumulate: Operand,
        /// Whether to use -A (floating-point types only).
        negate_a: bool,
        /// Whether to use -B (floating-point types only).
        negate_b: bool,
        /// Whether A is MN-major in shared memory (16-bit types only).
        transpose_a: bool,
        /// Whether B is MN-major in shared memory (16-bit types only).
        transpose_b: bool,
    },
    /// `stmatrix.sync.aligned.m8n8.x{1,2,4}{.trans}.shared::cta.b16`. ISA "stmatrix".
    StoreMatrix {
        /// Shared address of this lane's 16-byte row.
        address: Operand,
        /// 1, 2 or 4 registers of two 16-bit elements.
        src: Vec<Operand>,
        /// Whether to store each matrix transposed.
        transpose: bool,
    },
}
