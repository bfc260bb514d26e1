//! The list of everything that a program can do wrong.

use ptx::Site;
use ptx::abi::TensorElement;

use super::{Place, Waiting};

/// The kind of asynchronous work that owns bytes of shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Owner {
    /// A tensor load or bulk copy that writes them. It owns them until the phase of its mbarrier completes.
    TensorLoad,
    /// A `cp.async` that writes them. It owns them until its thread has waited for it, or until the phase of
    /// its mbarrier completes.
    ThreadCopy,
    /// A `st.async`, `red.async` or bulk reduction that writes them. It owns them until the phase of its
    /// mbarrier completes.
    Peer,
    /// A bulk copy, tensor store or `wgmma` that reads them. It owns them until a thread has waited for it;
    /// for every other thread, until that thread has synchronised with the one that waited.
    AsyncRead,
}

/// What a program did wrong. Offsets are bytes from the beginning of the CTA's dynamic shared memory.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Fault {
    /// Global memory outside every allocation.
    GlobalOutOfBounds {
        /// Address of the first byte.
        address: u64,
        /// Number of bytes.
        bytes: u32,
        /// The nearest allocation that begins at or below the address: its address and its size in bytes.
        near: Option<(u64, u64)>,
    },
    /// A global address that is not a multiple of the alignment that the access needs.
    GlobalMisaligned {
        /// The address.
        address: u64,
        /// The required alignment in bytes.
        alignment: u32,
    },
    /// A read of global bytes that were never written.
    GlobalUninitialised {
        /// Address of the first byte read.
        address: u64,
        /// Number of bytes read.
        bytes: u32,
    },
    /// Two accesses to global memory that nothing orders, at least one of which writes.
    GlobalRace {
        /// Address of a byte that both access.
        address: u64,
        /// Whether this access writes.
        write: bool,
        /// Whether the earlier access writes.
        other_write: bool,
        /// The earlier access.
        other: Box<Place>,
    },
    /// A dependent grid ([`Options::dependent`](crate::Options::dependent)) accesses global memory before
    /// `griddepcontrol.wait`, while earlier grids may still run.
    GridNotAwaited {
        /// Address of the first byte.
        address: u64,
    },
    /// Asynchronous work reads or writes global memory that a generic access wrote, without a proxy fence
    /// between them.
    GlobalUnfenced {
        /// Address of a byte that both access.
        address: u64,
        /// The generic write.
        other: Box<Place>,
    },
    /// Two accesses to shared memory that nothing orders, at least one of which writes.
    SharedRace {
        /// Rank of the CTA that owns the memory.
        rank: u32,
        /// Offset of a byte that both access.
        offset: u32,
        /// Whether this access writes.
        write: bool,
        /// Whether the earlier access writes.
        other_write: bool,
        /// The earlier access.
        other: Box<Place>,
    },
    /// An access outside the CTA's shared memory.
    SharedOutOfBounds {
        /// Offset of the first byte; negative if it is before the beginning.
        offset: i64,
        /// Number of bytes.
        bytes: u32,
        /// Size of the CTA's dynamic shared memory in bytes.
        size: u32,
    },
    /// A shared address that is not a multiple of the alignment that the instruction needs.
    SharedMisaligned {
        /// The offset.
        offset: i64,
        /// The required alignment in bytes.
        alignment: u32,
    },
    /// A read of shared bytes that were never written.
    SharedUninitialised {
        /// Offset of the first byte read.
        offset: u32,
        /// Number of bytes read.
        bytes: u32,
    },
    /// A shared address of a CTA that the instruction cannot use, or of a CTA that does not exist.
    SharedOtherCta {
        /// The address.
        address: u32,
        /// Rank of the CTA that the address names.
        rank: u32,
        /// Rank of the executing CTA. For an mbarrier that is not in the CTA which receives the bytes: rank
        /// of the receiving CTA.
        own: u32,
    },
    /// An access to shared bytes that asynchronous work still owns.
    SharedInFlight {
        /// Offset of the first byte.
        offset: u32,
        /// Number of bytes.
        bytes: u32,
        /// The work that owns the bytes.
        owner: Owner,
        /// Whether the access writes.
        write: bool,
    },
    /// An access to shared bytes that are a live mbarrier.
    SharedBarrier {
        /// Offset of the first byte.
        offset: u32,
    },
    /// Asynchronous work reads shared bytes that a thread stored, and the thread has executed no proxy fence
    /// since.
    MissingProxyFence {
        /// Offset of the first byte.
        offset: u32,
        /// Index in its CTA of the thread that stored the bytes.
        writer: u32,
        /// The store.
        other: Box<Place>,
    },
    /// An access to the shared memory of a CTA that has exited.
    PeerExited {
        /// Rank of that CTA.
        rank: u32,
    },
    /// An access to the shared memory of another CTA that is not ordered after the start of that CTA.
    PeerNotStarted {
        /// Rank of that CTA.
        rank: u32,
    },
    /// An access to the shared memory of another CTA that is not ordered before the exit of that CTA.
    PeerUnordered {
        /// Rank of that CTA.
        rank: u32,
    },
    /// A read of a register that was never written.
    RegisterUninitialised {
        /// Number of the register.
        register: u32,
    },
    /// An access to a register that a `wgmma` in flight uses.
    RegisterInFlight {
        /// Number of the register.
        register: u32,
        /// Whether the access writes.
        write: bool,
    },
    /// A `wgmma` uses a register after another instruction did, without a `wgmma.fence` between them.
    MissingWgmmaFence {
        /// Number of the register.
        register: u32,
    },
    /// Only some lanes execute an instruction that needs the whole warp.
    Divergence {
        /// Mask of the lanes that execute it.
        active: u32,
    },
    /// The lanes that execute an instruction are not the lanes that its member mask names.
    Members {
        /// The member mask.
        members: u32,
        /// Mask of the lanes that execute it.
        active: u32,
    },
    /// A shuffle reads the value of a lane that is not in its member mask.
    ShuffleSource {
        /// The lane.
        from: u32,
        /// The member mask.
        members: u32,
    },
    /// A `cp.async` that reads more bytes than it writes.
    CopySize {
        /// Number of bytes read.
        read: u32,
        /// Number of bytes written.
        bytes: u32,
    },
    /// Lanes pass different values for an operand that must be the same in the whole warp.
    NotUniform {
        /// Name of the operand.
        operand: &'static str,
    },
    /// Warps of a warpgroup execute different collective instructions, or the same one with different
    /// operands.
    WarpgroupDisagrees {
        /// Number of the instruction, counted from 0. `wgmma` and the other collectives are counted
        /// separately.
        sequence: u64,
        /// Source line that another warp executed first.
        other: Option<Site>,
        /// What differs.
        operand: &'static str,
    },
    /// A CTA ends before every warp of a warpgroup has executed a collective instruction.
    WarpgroupIncomplete {
        /// Warps of the CTA that have not executed it.
        missing: Vec<u32>,
    },
    /// A CTA ends before every thread that a named barrier waits for has arrived.
    BarrierIncomplete {
        /// Number of the barrier.
        id: u32,
        /// Number of threads that have arrived.
        arrived: u32,
        /// Number of threads that the barrier waits for.
        threads: u32,
    },
    /// The warp is not in a complete warpgroup of four warps.
    NoWarpgroup {
        /// Number of warps in the CTA.
        warps: u32,
    },
    /// A barrier number outside 0..16.
    BarrierId {
        /// The number.
        id: u32,
    },
    /// Two warps pass different thread counts to the same barrier.
    BarrierThreads {
        /// Number of the barrier.
        id: u32,
        /// Thread count of the warp that arrived first.
        first: u32,
        /// Thread count of this warp.
        this: u32,
    },
    /// A warp arrives at a barrier twice in one round.
    BarrierTwice {
        /// Number of the barrier.
        id: u32,
    },
    /// Arrive and wait of the cluster barrier do not alternate.
    ClusterBarrier {
        /// Whether this instruction is an arrive.
        arrive: bool,
    },
    /// A use of an mbarrier where none is initialised.
    MbarrierUninitialised {
        /// Offset of the address used.
        offset: u32,
    },
    /// An initialisation of an mbarrier where one is live.
    MbarrierLive {
        /// Offset of the mbarrier.
        offset: u32,
    },
    /// An mbarrier count outside 1..2^20.
    MbarrierCount {
        /// Offset of the mbarrier.
        offset: u32,
        /// The count.
        count: u32,
    },
    /// An arrival marked `.noComplete` that would complete the phase.
    MbarrierNoComplete {
        /// Offset of the mbarrier.
        offset: u32,
        /// Number of arrivals of this instruction.
        count: u32,
        /// Number of the phase.
        phase: u64,
    },
    /// More arrivals than the phase still needs, or a count of zero.
    MbarrierOverArrival {
        /// Offset of the mbarrier.
        offset: u32,
        /// Number of arrivals of this instruction.
        count: u32,
        /// Number of arrivals that the phase still needs.
        pending: u32,
        /// Number of the phase.
        phase: u64,
    },
    /// More outstanding bytes than an mbarrier can count: at most 2^20 - 1.
    MbarrierBytes {
        /// Offset of the mbarrier.
        offset: u32,
        /// Bytes announced but not yet arrived.
        outstanding: i64,
    },
    /// An asynchronous copy or another CTA uses an mbarrier whose initialisation was not fenced.
    MbarrierNotFenced {
        /// Offset of the mbarrier.
        offset: u32,
        /// Index in its CTA of the thread that initialised it.
        by: u32,
    },
    /// A value that is not a state of the mbarrier's current phase or of the phase before.
    MbarrierState {
        /// Offset of the mbarrier.
        offset: u32,
        /// The value.
        state: u64,
        /// Number of phases completed.
        phase: u64,
    },
    /// A wait that comes too late: a further phase has completed, so the parity gives the wrong answer.
    MbarrierMissed {
        /// Offset of the mbarrier.
        offset: u32,
        /// The parity that the wait names.
        parity: u32,
        /// Number of phases completed.
        phase: u64,
        /// Number of completed phases that the warp has observed.
        known: u64,
    },
    /// An access to shared bytes that asynchronous work wrote, by a warp that has neither waited for the
    /// mbarrier nor synchronised with a warp that has.
    MbarrierNotObserved {
        /// Offset of the first byte.
        offset: u32,
        /// Number of bytes.
        bytes: u32,
        /// Offset of the mbarrier.
        barrier: u32,
    },
    /// No tensor map at the address.
    TensorMap {
        /// The generic address.
        address: u64,
    },
    /// A tensor map with fields that are not valid, after `tensormap.replace`.
    TensorMapFields {
        /// The generic address.
        address: u64,
        /// What is wrong.
        reason: &'static str,
    },
    /// A copy uses a tensor map that was written in global memory, without both fences of the tensormap
    /// proxy.
    TensorMapUnfenced {
        /// Address of the map.
        address: u64,
        /// Whether the write was released. If so, the acquire is missing.
        released: bool,
        /// The write.
        other: Box<Place>,
    },
    /// A tensor map is changed while a copy that has not been waited for uses it.
    TensorMapInFlight {
        /// Address of the map.
        address: u64,
    },
    /// A bulk copy with a size that is not a multiple of 16 bytes.
    BulkSize {
        /// The size in bytes.
        bytes: u32,
    },
    /// A reduction that does not exist for the element type of its tensor map.
    TensorReduction {
        /// The operation.
        op: &'static str,
        /// The map's element type.
        element: TensorElement,
    },
    /// The number of coordinates is not the number of dimensions of the map.
    TensorRank {
        /// Number of dimensions of the map.
        map: u32,
        /// Number of coordinates given.
        coordinates: u32,
    },
    /// A copy in tile mode through an im2col tensor map, or a copy in im2col mode through a tiled one.
    TensorMode {
        /// Whether the map is an im2col map.
        im2col: bool,
    },
    /// A tensor copy that begins at an innermost coordinate which is not a multiple of 16 bytes.
    TensorAlignment {
        /// The coordinate in elements.
        at: i64,
        /// Size of an element in bytes.
        bytes: u32,
    },
    /// A tensor store or reduction that begins before the tensor.
    TensorBefore {
        /// The dimension; 0 is the innermost.
        dim: u32,
        /// The coordinate.
        at: i64,
    },
    /// An im2col store through a map with a bounding box that is not inside the tensor.
    Im2colBounds {
        /// The dimension of pixels; 0 is the width.
        dim: u32,
        /// First coordinate of the bounding box.
        low: i64,
        /// Last coordinate of the bounding box.
        high: i64,
        /// Extent of the tensor.
        extent: u64,
    },
    /// A copy in im2col mode with a base outside the bounding box of its map.
    Im2colBase {
        /// The dimension of pixels; 0 is the width.
        dim: u32,
        /// Coordinate of the base.
        base: i64,
        /// First coordinate of the bounding box.
        low: i64,
        /// Last coordinate of the bounding box.
        high: i64,
    },
    /// A filter offset with more bits than the rank of the map allows.
    Im2colOffset {
        /// The dimension of pixels; 0 is the width.
        dim: u32,
        /// The offset.
        offset: u32,
        /// Number of bits that the rank allows.
        bits: u32,
    },
    /// A multicast mask that is empty or names CTAs outside the cluster.
    Multicast {
        /// The mask.
        mask: u32,
        /// Number of CTAs in the cluster.
        ctas: u32,
    },
    /// A matrix descriptor that is not valid.
    Descriptor {
        /// Its bits.
        descriptor: u64,
        /// What is wrong.
        reason: &'static str,
    },
    /// Metadata of a sparse `wgmma` that does not name two positions of four in increasing order, or for
    /// `.tf32` one position of two.
    SparseMetadata {
        /// Row of A.
        row: u32,
        /// Index of the chunk in the slice of K.
        chunk: u32,
        /// The four metadata bits of the chunk.
        bits: u32,
    },
    /// `setmaxnreg` in the wrong direction.
    Registers {
        /// Whether the instruction is `setmaxnreg.inc`.
        grow: bool,
        /// Registers that each thread holds.
        held: u32,
        /// Registers requested per thread.
        asked: u32,
    },
    /// A warpgroup executes `setmaxnreg` again, and its warps have not synchronised since the last one.
    RegistersTwice {
        /// The warp of the CTA that is not known to have executed the last one.
        warp: u32,
    },
    /// A thread or a CTA ends while its asynchronous work is in flight.
    ExitInFlight {
        /// The work.
        what: &'static str,
    },
    /// The program executed `trap`.
    Trapped,
    /// The cluster has used up its fuel ([`Options::fuel`](crate::Options::fuel)).
    Fuel {
        /// Number of warp instructions allowed.
        limit: u64,
        /// Where each warp is.
        warps: Vec<Waiting>,
    },
    /// No warp can run and nothing asynchronous is pending.
    Hang {
        /// Each waiting warp, with what it waits for.
        waiting: Vec<Waiting>,
        /// Number of warps of the cluster that have exited.
        exited: u32,
    },
}
