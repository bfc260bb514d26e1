//! Everything that a program can do wrong.

use ptx::Site;
use ptx::abi::TensorElement;

use super::{Place, Waiting};

/// Which kind of asynchronous work owns bytes of shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Owner {
    /// A tensor load that writes them, until its barrier's phase completes.
    TensorLoad,
    /// A thread's own copy that writes them, until the thread has waited for it or its barrier's phase completes.
    ThreadCopy,
    /// A `st.async`, `red.async` or bulk reduction that writes them, until its barrier's phase completes.
    Peer,
    /// A bulk copy, tensor store or `wgmma` that reads them, until somebody has waited for it; for others until they have
    /// been told.
    AsyncRead,
}

/// What a program did wrong. Offsets are bytes from the beginning of the CTA's dynamic shared memory.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Fault {
    /// Global memory outside every allocation.
    GlobalOutOfBounds {
        /// First byte.
        address: u64,
        /// How many.
        bytes: u32,
        /// The allocation below: its address and size.
        near: Option<(u64, u64)>,
    },
    /// A global address that is not a multiple of the access.
    GlobalMisaligned {
        /// The address.
        address: u64,
        /// What it should be a multiple of.
        alignment: u32,
    },
    /// Global bytes that nobody has written.
    GlobalUninitialised {
        /// First byte.
        address: u64,
        /// How many.
        bytes: u32,
    },
    /// Two accesses to global memory that nothing orders, of which one writes.
    GlobalRace {
        /// A byte of both.
        address: u64,
        /// Whether this access writes.
        write: bool,
        /// Whether the earlier one does.
        other_write: bool,
        /// The earlier access.
        other: Box<Place>,
    },
    /// A grid that may begin before those before it have ended touches global memory, and no `griddepcontrol.wait` comes
    /// before.
    GridNotAwaited {
        /// First byte.
        address: u64,
    },
    /// Asynchronous work reads or writes global memory that a generic access wrote, and no proxy fence stands between.
    GlobalUnfenced {
        /// A byte of both.
        address: u64,
        /// The write.
        other: Box<Place>,
    },
    /// Two accesses to shared memory that nothing orders, of which one writes.
    SharedRace {
        /// The rank of the CTA whose memory it is.
        rank: u32,
        /// A byte of both.
        offset: u32,
        /// Whether this access writes.
        write: bool,
        /// Whether the earlier one does.
        other_write: bool,
        /// The earlier access.
        other: Box<Place>,
    },
    /// Shared memory outside the CTA's.
    SharedOutOfBounds {
        /// First byte; negative before the beginning.
        offset: i64,
        /// How many.
        bytes: u32,
        /// Bytes of the CTA's shared memory.
        size: u32,
    },
    /// A shared address that is not a multiple of what the instruction needs.
    SharedMisaligned {
        /// The offset.
        offset: i64,
        /// What the address should be a multiple of.
        alignment: u32,
    },
    /// Shared bytes that nobody has written.
    SharedUninitialised {
        /// First byte.
        offset: u32,
        /// How many.
        bytes: u32,
    },
    /// An address of another CTA where only the own shared memory can be used, or of a CTA that is not there.
    SharedOtherCta {
        /// The address.
        address: u32,
        /// The CTA it names.
        rank: u32,
        /// The own rank.
        own: u32,
    },
    /// Shared bytes that asynchronous work still owns.
    SharedInFlight {
        /// First byte.
        offset: u32,
        /// How many.
        bytes: u32,
        /// Who owns them.
        owner: Owner,
        /// Whether the access writes.
        write: bool,
    },
    /// Shared bytes that are a live mbarrier.
    SharedBarrier {
        /// First byte.
        offset: u32,
    },
    /// Asynchronous work reads shared bytes that a thread stored and did not fence afterwards.
    MissingProxyFence {
        /// First byte.
        offset: u32,
        /// The thread that stored them.
        writer: u32,
    },
    /// Shared memory of a CTA that has exited.
    PeerExited {
        /// Its rank.
        rank: u32,
    },
    /// Shared memory of another CTA, of which nothing has told the thread that it has started.
    PeerNotStarted {
        /// Its rank.
        rank: u32,
    },
    /// An access to shared memory of a CTA that exits without anything ordering the access before that.
    PeerUnordered {
        /// Its rank.
        rank: u32,
    },
    /// A register that nothing has written.
    RegisterUninitialised {
        /// The register.
        register: u32,
    },
    /// A register that a `wgmma` in flight owns.
    RegisterInFlight {
        /// The register.
        register: u32,
        /// Whether it was to be written.
        write: bool,
    },
    /// A register that a `wgmma` uses after other instructions did, with no `wgmma.fence` between.
    MissingWgmmaFence {
        /// The register.
        register: u32,
    },
    /// Only some lanes execute an instruction that needs the whole warp.
    Divergence {
        /// The lanes that do.
        active: u32,
    },
    /// Lanes that are to take part do not execute the instruction together, or others do.
    Members {
        /// The lanes that are to take part.
        members: u32,
        /// The lanes that execute it.
        active: u32,
    },
    /// A shuffle takes the value of a lane that takes no part.
    ShuffleSource {
        /// The lane.
        from: u32,
        /// The lanes that take part.
        members: u32,
    },
    /// A copy that reads more bytes than it writes.
    CopySize {
        /// Bytes read.
        read: u32,
        /// Bytes written.
        bytes: u32,
    },
    /// Lanes pass different values where the instruction takes one for the warp.
    NotUniform {
        /// Which operand.
        operand: &'static str,
    },
    /// Warps of a warpgroup execute different instructions, or one with different operands.
    WarpgroupDisagrees {
        /// How many such instructions came before.
        sequence: u64,
        /// The line of the warp that came first.
        other: Option<Site>,
        /// What differs.
        operand: &'static str,
    },
    /// A CTA ends with an instruction of a warpgroup that some of its warps have not executed.
    WarpgroupIncomplete {
        /// Warps of the CTA that have not.
        missing: Vec<u32>,
    },
    /// A CTA ends with a named barrier at which some have arrived and others have not.
    BarrierIncomplete {
        /// The barrier.
        id: u32,
        /// Threads that have arrived.
        arrived: u32,
        /// Threads that it is for.
        threads: u32,
    },
    /// The CTA's last warps are no whole warpgroup.
    NoWarpgroup {
        /// Warps of the CTA.
        warps: u32,
    },
    /// A barrier number outside 0..16.
    BarrierId {
        /// The number.
        id: u32,
    },
    /// Warps name different thread counts at one barrier.
    BarrierThreads {
        /// The barrier.
        id: u32,
        /// Threads according to the first.
        first: u32,
        /// Threads according to this one.
        this: u32,
    },
    /// A warp comes twice to one round of a barrier.
    BarrierTwice {
        /// The barrier.
        id: u32,
    },
    /// The cluster barrier's arrive and wait do not alternate.
    ClusterBarrier {
        /// Whether this is an arrive.
        arrive: bool,
    },
    /// No mbarrier lives there.
    MbarrierUninitialised {
        /// Where.
        offset: u32,
    },
    /// An mbarrier lives there already.
    MbarrierLive {
        /// Where.
        offset: u32,
    },
    /// An mbarrier's count outside 1..2^20.
    MbarrierCount {
        /// Where.
        offset: u32,
        /// The count.
        count: u32,
    },
    /// An arrival marked `.noComplete` that would complete the phase.
    MbarrierNoComplete {
        /// Where the mbarrier lies.
        offset: u32,
        /// Arrivals counted.
        count: u32,
        /// The phase.
        phase: u64,
    },
    /// More arrivals than the phase needs.
    MbarrierOverArrival {
        /// Where.
        offset: u32,
        /// Arrivals of this instruction.
        count: u32,
        /// Arrivals the phase still needed.
        pending: u32,
        /// The phase.
        phase: u64,
    },
    /// More outstanding bytes than a barrier can count.
    MbarrierBytes {
        /// Where.
        offset: u32,
        /// Bytes announced and not arrived.
        outstanding: i64,
    },
    /// An asynchronous copy or another CTA uses an mbarrier whose initialisation was not fenced.
    MbarrierNotFenced {
        /// Where.
        offset: u32,
        /// The thread that initialised it.
        by: u32,
    },
    /// What is no state of the mbarrier's current phase or of the one before.
    MbarrierState {
        /// Where.
        offset: u32,
        /// The state.
        state: u64,
        /// Phases completed.
        phase: u64,
    },
    /// A wait for a phase after which another has completed already, so that its parity says the opposite.
    MbarrierMissed {
        /// Where.
        offset: u32,
        /// The parity waited for.
        parity: u32,
        /// Phases completed.
        phase: u64,
        /// Phases of whose completion the warp knows.
        known: u64,
    },
    /// Shared bytes that asynchronous work brought, touched by a warp that has neither waited for the mbarrier nor
    /// synchronised with one that has.
    MbarrierNotObserved {
        /// First byte.
        offset: u32,
        /// How many.
        bytes: u32,
        /// Where the mbarrier lies.
        barrier: u32,
    },
    /// No tensor map at the address.
    TensorMap {
        /// The generic address.
        address: u64,
    },
    /// A tensor map that was changed into what no map can be.
    TensorMapFields {
        /// The generic address.
        address: u64,
        /// What is wrong.
        reason: &'static str,
    },
    /// A copy uses a tensor map that was written in global memory, without both fences of the tensormap proxy.
    TensorMapUnfenced {
        /// The map's address.
        address: u64,
        /// Whether the write was released, so that the acquire is what is missing.
        released: bool,
        /// The write.
        other: Box<Place>,
    },
    /// A tensor map is changed while a copy that nobody has waited for uses it.
    TensorMapInFlight {
        /// The map's address.
        address: u64,
    },
    /// A bulk copy whose size is not a multiple of 16 bytes.
    BulkSize {
        /// The size.
        bytes: u32,
    },
    /// A reduction that does not exist for the elements of its tensor map.
    TensorReduction {
        /// The operation.
        op: &'static str,
        /// The map's elements.
        element: TensorElement,
    },
    /// Another number of coordinates than the map has dimensions.
    TensorRank {
        /// Dimensions of the map.
        map: u32,
        /// Coordinates given.
        coordinates: u32,
    },
    /// A copy in tile mode through an im2col tensor map, or the other way round.
    TensorMode {
        /// Whether the map is an im2col map.
        im2col: bool,
    },
    /// A tensor copy whose first coordinate is no multiple of 16 bytes.
    TensorAlignment {
        /// The coordinate.
        at: i64,
        /// Bytes of an element.
        bytes: u32,
    },
    /// A tensor store or reduction that begins before the tensor.
    TensorBefore {
        /// Which dimension, 0 the innermost.
        dim: u32,
        /// The coordinate.
        at: i64,
    },
    /// An im2col store through a map whose bounding box is not inside of the tensor.
    Im2colBounds {
        /// Which dimension of pixels, 0 the width.
        dim: u32,
        /// The bounding box's first coordinate.
        low: i64,
        /// Its last.
        high: i64,
        /// The tensor's extent.
        extent: u64,
    },
    /// A copy in im2col mode whose base lies outside of its map's bounding box.
    Im2colBase {
        /// Which dimension of pixels, 0 the width.
        dim: u32,
        /// The base's coordinate.
        base: i64,
        /// The bounding box's first.
        low: i64,
        /// Its last.
        high: i64,
    },
    /// A filter offset of more bits than the map's rank leaves it.
    Im2colOffset {
        /// Which dimension of pixels, 0 the width.
        dim: u32,
        /// The offset.
        offset: u32,
        /// Its bits.
        bits: u32,
    },
    /// A multicast mask that is empty or names CTAs outside the cluster.
    Multicast {
        /// The mask.
        mask: u32,
        /// CTAs of the cluster.
        ctas: u32,
    },
    /// A matrix descriptor that no canonical layout has.
    Descriptor {
        /// Its bits.
        descriptor: u64,
        /// What is wrong.
        reason: &'static str,
    },
    /// Metadata of a sparse `wgmma` that names no two places in order, or for `.tf32` neither place.
    SparseMetadata {
        /// Row of A.
        row: u32,
        /// Chunk of the slice of K.
        chunk: u32,
        /// The chunk's four bits.
        bits: u32,
    },
    /// `setmaxnreg` in the wrong direction.
    Registers {
        /// Whether it was to grow.
        grow: bool,
        /// Registers a thread holds.
        held: u32,
        /// Registers asked for.
        asked: u32,
    },
    /// A thread or a CTA ends while its asynchronous work is in flight.
    ExitInFlight {
        /// Which work.
        what: &'static str,
    },
    /// The program executed `trap`.
    Trapped,
    /// The cluster's fuel is spent.
    Fuel {
        /// Warp instructions allowed.
        limit: u64,
        /// Where the warps are.
        warps: Vec<Waiting>,
    },
    /// No warp can run and nothing asynchronous is pending.
    Hang {
        /// Who waits for what.
        waiting: Vec<Waiting>,
        /// How many warps of the cluster have exited.
        exited: u32,
    },
}
