//! The list of everything that a program can do wrong.

use ptx::SourceSite;

use super::display::{List, does, done, executed, nearest};
use super::{OwnFault, Place, TensorFault, Waiting};

/// The kind of asynchronous work that owns bytes of shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Owner {
    /// A tensor load or bulk copy that writes them. It owns them until the phase of its mbarrier completes.
    #[error("a tensor load or bulk copy writes them: the phase of its mbarrier has not completed")]
    TensorLoad,
    /// A `cp.async` that writes them. It owns them until its thread has waited for it, or until the phase of
    /// its mbarrier completes.
    #[error("a cp.async writes them: its thread has not waited for it")]
    ThreadCopy,
    /// A `st.async`, `red.async` or bulk reduction that writes them. It owns them until the phase of its
    /// mbarrier completes.
    #[error(
        "a st.async, red.async or bulk reduction writes them: the phase of its mbarrier has not completed"
    )]
    Peer,
    /// A bulk copy, tensor store or `wgmma` that reads them. It owns them until a thread has waited for it;
    /// for every other thread, until that thread has synchronised with the one that waited.
    #[error(
        "a wgmma, tensor store or bulk copy may still read them: this thread has neither waited for it nor \
         synchronised with a thread that has"
    )]
    AsyncRead,
}

/// What a program did wrong. Offsets are bytes from the beginning of the CTA's shared memory.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// Global memory outside every allocation.
    #[error(
        "{bytes} B of global memory at {address:#x} are outside every allocation{}",
        nearest(*.address, .near)
    )]
    GlobalOutOfBounds {
        /// Address of the first byte.
        address: u64,
        /// Number of bytes.
        bytes: u32,
        /// The nearest allocation that begins at or below the address: its address and its size in bytes.
        near: Option<(u64, u64)>,
    },
    /// A global address that is not a multiple of the alignment that the access needs.
    #[error("global address {address:#x} is not a multiple of {alignment} B")]
    GlobalMisaligned {
        /// The address.
        address: u64,
        /// The required alignment in bytes.
        alignment: u32,
    },
    /// A read of global bytes that were never written.
    #[error("{bytes} B of global memory at {address:#x} are read, but not all were written before")]
    GlobalUninitialised {
        /// Address of the first byte read.
        address: u64,
        /// Number of bytes read.
        bytes: u32,
    },
    /// Two accesses to global memory that nothing orders, at least one of which writes.
    #[error(
        "a race at global address {address:#x}: this access {} what another thread {}, and nothing orders \
         the two\n  the other access: {other}",
        does(*.write), does(*.other_write)
    )]
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
    /// A load of constant memory (`ld.global.nc`), which the same kernel writes, in whatever order.
    #[error(
        "global address {address:#x} is read by ld.global.nc, and the same kernel writes it: this access {} it\n  the other \
         access: {other}",
        does(*.write)
    )]
    ConstantWritten {
        /// Address of a byte that both access.
        address: u64,
        /// Whether this access writes.
        write: bool,
        /// The earlier access.
        other: Box<Place>,
    },
    /// A dependent grid ([`Options::dependent`](crate::Options::dependent)) accesses global memory before
    /// `griddepcontrol.wait`, while earlier grids may still run.
    #[error(
        "global address {address:#x} is accessed while earlier grids may still run: griddepcontrol.wait \
         must come before the access"
    )]
    GridNotAwaited {
        /// Address of the first byte.
        address: u64,
    },
    /// Asynchronous work reads or writes global memory that a generic access wrote, without a proxy fence
    /// between them.
    #[error(
        "the async proxy accesses global address {address:#x}, and no fence.proxy.async separates this \
         from a generic store, or another CTA's asynchronous write\n  it was written by {other}"
    )]
    GlobalUnfenced {
        /// Address of a byte that both access.
        address: u64,
        /// The generic write.
        other: Box<Place>,
    },
    /// An access to memory of another GPU that it does not share.
    #[error("global address {address:#x} is memory of GPU {gpu}, which does not share it with other GPUs")]
    NotShared {
        /// Address of the first byte.
        address: u64,
        /// The GPU whose memory it is.
        gpu: u32,
    },
    /// An access to memory of another GPU whose process has ended.
    #[error(
        "global address {address:#x} is memory of GPU {gpu}, which has left: it has to wait until the others no longer access it"
    )]
    PeerLeft {
        /// Address of the first byte.
        address: u64,
        /// The GPU whose memory it was.
        gpu: u32,
    },
    /// Two additions of floating-point numbers to the same word, which nothing orders, in a program that promises to make
    /// sums in order.
    #[error(
        "the program promises that sums are made in order, but nothing orders two additions at global address {address:#x}\n  \
         the other addition: {other}"
    )]
    SumsUnordered {
        /// Address of the word.
        address: u64,
        /// The earlier addition.
        other: Box<Place>,
    },
    /// Two accesses to shared memory that nothing orders, at least one of which writes.
    #[error(
        "a race at byte {offset} of shared memory of CTA rank {rank}: this access {} what another thread \
         {}, and nothing orders the two\n  the other access: {other}",
        does(*.write), does(*.other_write)
    )]
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
    #[error("{bytes} B at byte {offset} are outside the shared memory, which has {size} B")]
    SharedOutOfBounds {
        /// Offset of the first byte; negative if it is before the beginning.
        offset: i64,
        /// Number of bytes.
        bytes: u32,
        /// Size of the CTA's shared memory in bytes.
        size: u32,
    },
    /// A shared address that is not a multiple of the alignment that the instruction needs.
    #[error("the address of byte {offset} of shared memory is not a multiple of {alignment} B")]
    SharedMisaligned {
        /// The offset.
        offset: i64,
        /// The required alignment in bytes.
        alignment: u32,
    },
    /// A read of shared bytes that were never written.
    #[error("{bytes} B at byte {offset} of shared memory are read, but not all were written before")]
    SharedUninitialised {
        /// Offset of the first byte read.
        offset: u32,
        /// Number of bytes read.
        bytes: u32,
    },
    /// A shared address of a CTA that the instruction cannot use, or of a CTA that does not exist.
    #[error(
        "shared address {address:#x} names CTA rank {rank}: the cluster has no such CTA, or this \
         instruction can use only the shared memory of rank {own}"
    )]
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
    #[error("{bytes} B at byte {offset} of shared memory are {} while {owner}", done(*.write))]
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
    #[error("byte {offset} of shared memory belongs to a live mbarrier")]
    SharedBarrier {
        /// Offset of the first byte.
        offset: u32,
    },
    /// Asynchronous work reads shared bytes that a thread stored, and the thread has executed no proxy fence
    /// since.
    #[error(
        "the async proxy reads byte {offset} of shared memory, but thread {writer}, which stored it, has \
         executed no fence.proxy.async since\n  it was stored by {other}"
    )]
    MissingProxyFence {
        /// Offset of the first byte.
        offset: u32,
        /// Index in its CTA of the thread that stored the bytes.
        writer: u32,
        /// The store.
        other: Box<Place>,
    },
    /// An access to the shared memory of a CTA that has exited.
    #[error("this accesses the shared memory of CTA rank {rank}, which has exited")]
    PeerExited {
        /// Rank of that CTA.
        rank: u32,
    },
    /// An access to the shared memory of another CTA that is not ordered after the start of that CTA.
    #[error(
        "this accesses the shared memory of CTA rank {rank}, and nothing orders the access after that CTA \
         has started"
    )]
    PeerNotStarted {
        /// Rank of that CTA.
        rank: u32,
    },
    /// An access to the shared memory of another CTA that is not ordered before the exit of that CTA.
    #[error(
        "this accesses the shared memory of CTA rank {rank}, and nothing orders the access before that CTA \
         exits"
    )]
    PeerUnordered {
        /// Rank of that CTA.
        rank: u32,
    },
    /// A read of a register that was never written.
    #[error("register {register} is read before anything has written it")]
    RegisterUninitialised {
        /// Number of the register.
        register: u32,
    },
    /// An access to a register that a `wgmma` in flight uses.
    #[error(
        "register {register} is {} while a wgmma uses it: this warp has not waited for the wgmma",
        done(*.write)
    )]
    RegisterInFlight {
        /// Number of the register.
        register: u32,
        /// Whether the access writes.
        write: bool,
    },
    /// A `wgmma` uses a register after another instruction did, without a `wgmma.fence` between them.
    #[error("another instruction used register {register}, and no wgmma.fence has been executed since")]
    MissingWgmmaFence {
        /// Number of the register.
        register: u32,
    },
    /// Only some lanes execute an instruction that needs the whole warp.
    #[error("the whole warp must execute this together, but only lanes {active:#010x} do")]
    Divergence {
        /// Mask of the lanes that execute it.
        active: u32,
    },
    /// The lanes that execute an instruction are not the lanes that its member mask names.
    #[error("lanes {members:#010x} must execute this together, but lanes {active:#010x} do")]
    Members {
        /// The member mask.
        members: u32,
        /// Mask of the lanes that execute it.
        active: u32,
    },
    /// A shuffle reads the value of a lane that is not in its member mask.
    #[error("the shuffle reads lane {from}, which is not among its lanes {members:#010x}")]
    ShuffleSource {
        /// The lane.
        from: u32,
        /// The member mask.
        members: u32,
    },
    /// A `cp.async` that reads more bytes than it writes.
    #[error("the copy reads {read} B, but may read at most the {bytes} B that it writes")]
    CopySize {
        /// Number of bytes read.
        read: u32,
        /// Number of bytes written.
        bytes: u32,
    },
    /// Lanes pass different values for an operand that must be the same in the whole warp.
    #[error("the lanes pass different values as {operand}")]
    NotUniform {
        /// Name of the operand.
        operand: &'static str,
    },
    /// Warps of a warpgroup execute different collective instructions, or the same one with different
    /// operands.
    #[error(
        "the warps of the warpgroup disagree about collective instruction {sequence}: different {operand}{}",
        executed(.other)
    )]
    WarpgroupDisagrees {
        /// Number of the instruction, counted from 0. `wgmma` and the other collectives are counted
        /// separately.
        sequence: u64,
        /// Source line that another warp executed first.
        other: Option<SourceSite>,
        /// What differs.
        operand: &'static str,
    },
    /// A CTA ends before every warp of a warpgroup has executed a collective instruction.
    #[error(
        "the CTA ends, but warps {missing:?} have not executed this instruction, which the whole warpgroup \
         must execute (ISA \".aligned\")"
    )]
    WarpgroupIncomplete {
        /// Warps of the CTA that have not executed it.
        missing: Vec<u32>,
    },
    /// A CTA ends before every thread that a named barrier waits for has arrived.
    #[error(
        "the CTA ends, but only {arrived} of {threads} threads have arrived at barrier {id} (ISA \"bar\")"
    )]
    BarrierIncomplete {
        /// Number of the barrier.
        id: u32,
        /// Number of threads that have arrived.
        arrived: u32,
        /// Number of threads that the barrier waits for.
        threads: u32,
    },
    /// The warp is not in a complete warpgroup of four warps.
    #[error("this warp is not in a complete warpgroup of 4 warps: the CTA has {warps} warps")]
    NoWarpgroup {
        /// Number of warps in the CTA.
        warps: u32,
    },
    /// A barrier number outside 0..16.
    #[error("barrier {id} does not exist: the numbers are 0 to 15")]
    BarrierId {
        /// The number.
        id: u32,
    },
    /// Two warps pass different thread counts to the same barrier.
    #[error("barrier {id} counts {this} threads here, but {first} where another warp arrived at it")]
    BarrierThreads {
        /// Number of the barrier.
        id: u32,
        /// Thread count of the warp that arrived first.
        first: u32,
        /// Thread count of this warp.
        this: u32,
    },
    /// A warp arrives at a barrier twice in one round.
    #[error("the warp arrives at barrier {id} again before the barrier has completed")]
    BarrierTwice {
        /// Number of the barrier.
        id: u32,
    },
    /// Arrive and wait of the cluster barrier do not alternate.
    #[error(
        "the warp {}",
        if *.arrive { "arrives at the cluster barrier twice without a wait" } else { "waits at the cluster barrier without having arrived" }
    )]
    ClusterBarrier {
        /// Whether this instruction is an arrive.
        arrive: bool,
    },
    /// A use of an mbarrier where none is initialised.
    #[error("there is no initialised mbarrier at byte {offset} of shared memory")]
    MbarrierUninitialised {
        /// Offset of the address used.
        offset: u32,
    },
    /// An initialisation of an mbarrier where one is live.
    #[error("byte {offset} of shared memory already has an initialised mbarrier: invalidate it first")]
    MbarrierLive {
        /// Offset of the mbarrier.
        offset: u32,
    },
    /// An mbarrier count outside 1..2^20.
    #[error("count {count} of the mbarrier at byte {offset} of shared memory is not 1 to 2^20 - 1")]
    MbarrierCount {
        /// Offset of the mbarrier.
        offset: u32,
        /// The count.
        count: u32,
    },
    /// An arrival marked `.noComplete` that would complete the phase.
    #[error(
        "{count} arrivals marked noComplete would complete phase {phase} of the mbarrier at byte {offset} \
         of shared memory"
    )]
    MbarrierNoComplete {
        /// Offset of the mbarrier.
        offset: u32,
        /// Number of arrivals of this instruction.
        count: u32,
        /// Number of the phase.
        phase: u64,
    },
    /// More arrivals than the phase still needs, or a count of zero.
    #[error(
        "{count} arrivals on the mbarrier at byte {offset} of shared memory, but its phase {phase} still \
         needs {pending}"
    )]
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
    #[error(
        "the mbarrier at byte {offset} of shared memory would have {outstanding} bytes outstanding: the \
         limit is 2^20 - 1"
    )]
    MbarrierBytes {
        /// Offset of the mbarrier.
        offset: u32,
        /// Bytes announced but not yet arrived.
        outstanding: i64,
    },
    /// An asynchronous copy or another CTA uses an mbarrier whose initialisation was not fenced.
    #[error(
        "the mbarrier at byte {offset} of shared memory was initialised by thread {by}, which has executed \
         no fence.mbarrier_init since"
    )]
    MbarrierNotFenced {
        /// Offset of the mbarrier.
        offset: u32,
        /// Index in its CTA of the thread that initialised it.
        by: u32,
    },
    /// A value that is not a state of the mbarrier's current phase or of the phase before.
    #[error(
        "{state:#x} is not a state of the mbarrier at byte {offset} of shared memory in phase {phase} or \
         the phase before: no arrival on it returned that value, or two phases have completed since"
    )]
    MbarrierState {
        /// Offset of the mbarrier.
        offset: u32,
        /// The value.
        state: u64,
        /// Number of phases completed.
        phase: u64,
    },
    /// A wait that comes too late: a further phase has completed, so the parity gives the wrong answer.
    #[error(
        "a wait for parity {parity} of the mbarrier at byte {offset} of shared memory comes too late: \
         {phase} phases have completed, but the warp has observed only {known}"
    )]
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
    #[error(
        "asynchronous work wrote {bytes} B at byte {offset} of shared memory, but this warp has neither \
         waited for the mbarrier at byte {barrier} nor synchronised with a warp that has"
    )]
    MbarrierNotObserved {
        /// Offset of the first byte.
        offset: u32,
        /// Number of bytes.
        bytes: u32,
        /// Offset of the mbarrier.
        barrier: u32,
    },
    /// What is wrong with a tensor copy or its map.
    #[error(transparent)]
    Tensor(#[from] TensorFault),
    /// What is wrong with an access to a thread's local memory or to parameters.
    #[error(transparent)]
    Own(#[from] OwnFault),
    /// A bulk copy with a size that is not a multiple of 16 bytes.
    #[error("a bulk copy of {bytes} B, which is not a multiple of 16")]
    BulkSize {
        /// The size in bytes.
        bytes: u32,
    },
    /// A multicast mask that is empty or names CTAs outside the cluster.
    #[error("multicast mask {mask:#x} is empty or names CTAs outside the cluster, which has {ctas}")]
    Multicast {
        /// The mask.
        mask: u32,
        /// Number of CTAs in the cluster.
        ctas: u32,
    },
    /// A matrix descriptor that is not valid.
    #[error("matrix descriptor {descriptor:#018x}: {reason}")]
    Descriptor {
        /// Its bits.
        descriptor: u64,
        /// What is wrong.
        reason: &'static str,
    },
    /// Metadata of a sparse `wgmma` that does not name two positions of four in increasing order, or for
    /// `.tf32` one position of two.
    #[error("metadata {bits:#06b} of chunk {chunk} of row {row} does not encode valid positions")]
    SparseMetadata {
        /// Row of A.
        row: u32,
        /// Index of the chunk in the slice of K.
        chunk: u32,
        /// The four metadata bits of the chunk.
        bits: u32,
    },
    /// `setmaxnreg` in the wrong direction.
    #[error(
        "setmaxnreg.{} to {asked} registers, but each thread holds {held}",
        if *.grow { "inc" } else { "dec" }
    )]
    Registers {
        /// Whether the instruction is `setmaxnreg.inc`.
        grow: bool,
        /// Registers that each thread holds.
        held: u32,
        /// Registers requested per thread.
        asked: u32,
    },
    /// A warpgroup executes `setmaxnreg` again, and its warps have not synchronised since the last one.
    #[error(
        "a second setmaxnreg, but nothing synchronises this warp with warp {warp} of its warpgroup after \
         the first (ISA \"setmaxnreg\")"
    )]
    RegistersTwice {
        /// The warp of the CTA that is not known to have executed the last one.
        warp: u32,
    },
    /// A thread or a CTA ends while its asynchronous work is in flight.
    #[error("the thread ends while {what}")]
    ExitInFlight {
        /// The work.
        what: &'static str,
    },
    /// The program executed `trap`.
    #[error("the program trapped")]
    Trapped,
    /// The cluster has used up its fuel ([`Options::fuel`](crate::Options::fuel)).
    #[error(
        "livelock: the cluster has executed {limit} warp instructions, the limit in Options::fuel{}",
        List(.warps)
    )]
    Fuel {
        /// Number of warp instructions allowed.
        limit: u64,
        /// Where each warp is.
        warps: Vec<Waiting>,
    },
    /// No warp can run and nothing asynchronous is pending.
    #[error(
        "hang: no warp can run and nothing asynchronous is pending ({exited} warps have exited){}",
        List(.waiting)
    )]
    Hang {
        /// Each waiting warp, with what it waits for.
        waiting: Vec<Waiting>,
        /// Number of warps of the cluster that have exited.
        exited: u32,
    },
}
