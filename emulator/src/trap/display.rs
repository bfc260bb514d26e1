//! Faults as sentences.

use core::fmt;

use super::{Fault, Owner, Place, Trap, Wait, Waiting};

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mbarrier { offset, parity, phase, pending, expected, outstanding } => {
                write!(
                    f,
                    "the mbarrier at byte {offset} of shared memory, parity {parity}: phase {phase} is current, \
                     {pending} of {expected} arrivals pending, "
                )?;
                match outstanding {
                    ..0 => write!(f, "{} bytes arrived that were never expected", -outstanding),
                    0.. => write!(f, "{outstanding} bytes outstanding"),
                }
            }
            Self::Named { id, threads, arrived } => {
                write!(f, "barrier {id}: {arrived} of {threads} threads have arrived")
            }
            Self::Cluster { arrived, warps } => {
                write!(f, "the cluster barrier: {arrived} of {warps} warps have arrived")
            }
            Self::Warpgroup { multiply, missing } => {
                write!(f, "wgmma {multiply} of its warpgroup, which warps {missing:?} have not issued")
            }
            Self::Stores { pending } => write!(f, "its tensor stores but the newest {pending} groups"),
            Self::Registers { asked, held, free } => {
                write!(f, "{asked} registers a thread: it holds {held} and the CTA's pool has {free} free")
            }
            Self::Polling => f.write_str("nothing, it goes round a loop"),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [x, y, z] = self.cta;
        write!(f, "CTA ({x}, {y}, {z}) rank {}, warp {}", self.rank, self.warp)?;
        if let Some(lane) = self.lane {
            write!(f, ", lane {lane}")?;
        }
        self.statement(f)
    }
}

impl Place {
    /// ` [producer > load], st.shared at src/kernel.rs:12`.
    fn statement(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.scopes.is_empty() {
            write!(f, " [{}]", self.scopes.join(" > "))?;
        }
        write!(f, ", {}", self.instruction)?;
        match self.site {
            Some(site) => write!(f, " at {}:{}", site.file(), site.line()),
            None => Ok(()),
        }
    }
}

/// Writes one line for each group of warps of one CTA that stand at the same statement for the same reason.
fn list(f: &mut fmt::Formatter<'_>, waiting: &[Waiting]) -> fmt::Result {
    let mut rest: Vec<&Waiting> = waiting.iter().collect();
    while let Some(first) = rest.first().copied() {
        let alike = |other: &&Waiting| {
            let (a, b) = (&first.place, &other.place);
            first.on == other.on
                && (a.cta, a.site, a.instruction, &a.scopes) == (b.cta, b.site, b.instruction, &b.scopes)
        };
        let (group, others): (Vec<&Waiting>, Vec<&Waiting>) = rest.iter().copied().partition(alike);
        rest = others;
        let warps: Vec<String> = group.iter().map(|one| one.place.warp.to_string()).collect();
        let [x, y, z] = first.place.cta;
        let (plural, verb) = if warps.len() == 1 { ("", "waits") } else { ("s", "wait") };
        write!(f, "\n  CTA ({x}, {y}, {z}) rank {}, warp{plural} {}", first.place.rank, warps.join(" "))?;
        first.place.statement(f)?;
        write!(f, "\n    {verb} for {}", first.on)?;
    }
    Ok(())
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::GlobalOutOfBounds { address, bytes, near } => {
                write!(f, "{bytes} B of global memory at {address:#x} lie in no allocation")?;
                match near {
                    Some((base, size)) => {
                        write!(
                            f,
                            ": byte {} of the one of {size} B at {base:#x}",
                            address.wrapping_sub(*base)
                        )
                    }
                    None => Ok(()),
                }
            }
            Self::GlobalMisaligned { address, alignment } => {
                write!(f, "global address {address:#x} is not a multiple of {alignment} B")
            }
            Self::GlobalUninitialised { address, bytes } => {
                write!(f, "{bytes} B of global memory at {address:#x} are read and not all were ever written")
            }
            Self::SharedOutOfBounds { offset, bytes, size } => {
                write!(f, "{bytes} B at byte {offset} of shared memory, which has {size} B")
            }
            Self::GlobalRace { address, write, other_write, other } => {
                let verb = |write: &bool| if *write { "writes" } else { "reads" };
                write!(
                    f,
                    "a race at global address {address:#x}: this {} what another thread {} without an order between \
                     them\n  the other is {other}",
                    verb(write),
                    verb(other_write),
                )
            }
            Self::SharedRace { rank, offset, write, other_write, other } => {
                let verb = |write: &bool| if *write { "writes" } else { "reads" };
                write!(
                    f,
                    "a race at byte {offset} of shared memory of rank {rank}: this {} what another thread {} without an \
                     order between them\n  the other is {other}",
                    verb(write),
                    verb(other_write),
                )
            }
            Self::GridNotAwaited { address } => write!(
                f,
                "global address {address:#x} is touched while the grids before this one may still run: no \
                 griddepcontrol.wait comes before"
            ),
            Self::GlobalUnfenced { address, other } => write!(
                f,
                "global address {address:#x} is accessed by the async proxy, was written by generic stores, and no \
                 fence.proxy.async stands between\n  it was written by {other}"
            ),
            Self::SharedMisaligned { offset, alignment } => {
                write!(f, "byte {offset} of shared memory has no address that is a multiple of {alignment}")
            }
            Self::SharedUninitialised { offset, bytes } => {
                write!(
                    f,
                    "{bytes} B at byte {offset} of shared memory are read and not all were ever written"
                )
            }
            Self::SharedOtherCta { address, rank, own } => {
                write!(
                    f,
                    "shared address {address:#x} is of cluster rank {rank}, usable here is that of rank {own}"
                )
            }
            Self::SharedInFlight { offset, bytes, owner, write } => {
                let owner = match owner {
                    Owner::TensorLoad => "a tensor load whose barrier phase has not completed writes them",
                    Owner::ThreadCopy => "a cp.async that its thread has not waited for writes them",
                    Owner::Peer => {
                        "a st.async, red.async or bulk reduction whose barrier phase has not completed writes them"
                    }
                    Owner::AsyncRead => {
                        "a wgmma, tensor store or bulk copy reads them: nothing says here that it has been waited for"
                    }
                };
                let verb = if *write { "written" } else { "read" };
                write!(f, "{bytes} B at byte {offset} of shared memory are {verb} while {owner}")
            }
            Self::SharedBarrier { offset } => {
                write!(f, "byte {offset} of shared memory belongs to a live mbarrier")
            }
            Self::MissingProxyFence { offset, writer } => write!(
                f,
                "byte {offset} of shared memory is read by the async proxy, but thread {writer}, which stored it, \
                 has executed no fence.proxy.async since"
            ),
            Self::PeerExited { rank } => write!(f, "the shared memory of rank {rank}, which has exited"),
            Self::PeerNotStarted { rank } => write!(
                f,
                "shared memory of CTA {rank} of the cluster, of which nothing has told this thread that it has started"
            ),
            Self::PeerUnordered { rank } => write!(
                f,
                "the shared memory of rank {rank} is used here, and nothing orders that before the CTA's exit"
            ),
            Self::RegisterUninitialised { register } => {
                write!(f, "register {register} is read where nothing has written it")
            }
            Self::RegisterInFlight { register, write } => {
                let verb = if *write { "written" } else { "read" };
                write!(
                    f,
                    "register {register} is {verb} while a wgmma that this warp has not waited for owns it"
                )
            }
            Self::MissingWgmmaFence { register } => {
                write!(
                    f,
                    "register {register} was last used by another instruction and no wgmma.fence came between"
                )
            }
            Self::Divergence { active } => {
                write!(f, "the whole warp has to execute this together, but only lanes {active:#010x} do")
            }
            Self::Members { members, active } => {
                write!(f, "lanes {members:#010x} have to execute this together, but lanes {active:#010x} do")
            }
            Self::ShuffleSource { from, members } => {
                write!(f, "the value of lane {from} is taken, which is not among the lanes {members:#010x}")
            }
            Self::CopySize { read, bytes } => write!(f, "a copy of {bytes} B that reads {read} B"),
            Self::NotUniform { operand } => write!(f, "the lanes pass different values as {operand}"),
            Self::WarpgroupDisagrees { sequence, other, operand } => {
                write!(
                    f,
                    "the warps of the warpgroup disagree about the {operand} of collective {sequence}"
                )?;
                match other {
                    Some(site) => write!(f, ": another warp executed {}:{}", site.file(), site.line()),
                    None => Ok(()),
                }
            }
            Self::NoWarpgroup { warps } => {
                write!(f, "this warp is in no whole warpgroup: the CTA has {warps} warps")
            }
            Self::BarrierId { id } => write!(f, "barrier {id} is not below 16"),
            Self::BarrierThreads { id, first, this } => {
                write!(
                    f,
                    "barrier {id} is for {this} threads here and for {first} where another warp came to it"
                )
            }
            Self::BarrierTwice { id } => {
                write!(f, "the warp comes to barrier {id} again before the barrier has completed")
            }
            Self::ClusterBarrier { arrive: true } => {
                f.write_str("the warp arrives at the cluster barrier twice without a wait")
            }
            Self::ClusterBarrier { arrive: false } => {
                f.write_str("the warp waits at the cluster barrier without having arrived")
            }
            Self::MbarrierUninitialised { offset } => {
                write!(f, "no mbarrier was initialised at byte {offset} of shared memory")
            }
            Self::MbarrierLive { offset } => {
                write!(f, "the mbarrier at byte {offset} of shared memory was initialised before")
            }
            Self::MbarrierCount { offset, count } => {
                write!(
                    f,
                    "count {count} for the mbarrier at byte {offset} of shared memory is outside 1..2^20"
                )
            }
            Self::MbarrierNoComplete { offset, count, phase } => write!(
                f,
                "{count} arrivals marked noComplete would complete phase {phase} of the mbarrier at byte {offset} of shared \
                 memory"
            ),
            Self::MbarrierOverArrival { offset, count, pending, phase } => write!(
                f,
                "{count} arrivals on the mbarrier at byte {offset} of shared memory, whose phase {phase} needs \
                 {pending} more"
            ),
            Self::MbarrierBytes { offset, outstanding } => write!(
                f,
                "the mbarrier at byte {offset} of shared memory would have {outstanding} bytes outstanding, it \
                 counts to 2^20 - 1"
            ),
            Self::MbarrierNotFenced { offset, by } => write!(
                f,
                "the mbarrier at byte {offset} of shared memory was initialised by thread {by}, which has executed \
                 no fence.mbarrier_init since"
            ),
            Self::MbarrierState { offset, state, phase } => write!(
                f,
                "{state:#x} is no state of phase {phase} of the mbarrier at byte {offset} of shared memory, nor of the \
                 phase before: no arrival on it gave that, or two phases have completed since"
            ),
            Self::MbarrierMissed { offset, parity, phase, known } => write!(
                f,
                "a wait for parity {parity} of the mbarrier at byte {offset} of shared memory comes too late: {phase} \
                 phases have completed, the warp knows of {known}"
            ),
            Self::MbarrierNotObserved { offset, bytes, barrier } => write!(
                f,
                "{bytes} B at byte {offset} of shared memory were brought by asynchronous work, and this warp has \
                 neither waited for the mbarrier at byte {barrier} nor synchronised with one that has"
            ),
            Self::TensorMap { address } => {
                write!(f, "there is no tensor map at generic address {address:#x}")
            }
            Self::TensorMapFields { address, reason } => {
                write!(f, "the tensor map at {address:#x} is none that can be used: {reason}")
            }
            Self::TensorMapUnfenced { address, released: false, other } => write!(
                f,
                "the tensor map at {address:#x} was written and not released: a tensormap.cp_fenceproxy, or a \
                 fence.proxy.tensormap::generic.release behind the write, is missing\n  it was written by {other}"
            ),
            Self::TensorMapUnfenced { address, released: true, other } => write!(
                f,
                "the tensor map at {address:#x} was written and released, but not acquired by this CTA: a \
                 fence.proxy.tensormap::generic.acquire is missing before the copy\n  it was written by {other}"
            ),
            Self::TensorMapInFlight { address } => write!(
                f,
                "the tensor map at {address:#x} is changed while a copy that nobody has waited for uses it: wait for \
                 the copies, or with cp.async.bulk.wait_group.read, first"
            ),
            Self::BulkSize { bytes } => {
                write!(f, "a bulk copy of {bytes} B, which is not a multiple of 16")
            }
            Self::TensorReduction { op, element } => {
                write!(f, "a tensor reduction .{op} of {element:?} elements does not exist")
            }
            Self::TensorRank { map, coordinates } => {
                write!(f, "{coordinates} coordinates for a tensor map of {map} dimensions")
            }
            Self::TensorMode { im2col: true } => {
                write!(f, "a tensor copy in tile mode through an im2col tensor map")
            }
            Self::TensorMode { im2col: false } => {
                write!(f, "a tensor copy in im2col mode through a tiled tensor map")
            }
            Self::TensorAlignment { at, bytes } => write!(
                f,
                "a tensor copy that begins at element {at} of {bytes} B in the innermost dimension, which is no multiple of 16 B"
            ),
            Self::TensorBefore { dim, at } => {
                write!(f, "a tensor store that begins at {at} in dimension {dim}, before the tensor")
            }
            Self::Im2colBounds { dim, low, high, extent } => write!(
                f,
                "an im2col store through a map whose bounding box, {low} to {high} in pixel dimension {dim}, is not inside of the tensor's {extent}"
            ),
            Self::Im2colBase { dim, base, low, high } => write!(
                f,
                "the base {base} of an im2col copy lies outside of the bounding box, {low} to {high} in pixel dimension {dim}"
            ),
            Self::Im2colOffset { dim, offset, bits } => {
                write!(f, "the filter offset {offset} in pixel dimension {dim} has more than {bits} bits")
            }
            Self::Multicast { mask, ctas } => {
                write!(f, "multicast mask {mask:#x} in a cluster of {ctas} CTAs")
            }
            Self::Descriptor { descriptor, reason } => {
                write!(f, "matrix descriptor {descriptor:#018x}: {reason}")
            }
            Self::SparseMetadata { row, chunk, bits } => {
                write!(
                    f,
                    "metadata {bits:#06b} of chunk {chunk} of row {row}, which names no places in order"
                )
            }
            Self::Registers { grow, held, asked } => {
                let verb = if *grow { "inc" } else { "dec" };
                write!(f, "setmaxnreg.{verb} to {asked} registers where a thread holds {held}")
            }
            Self::WarpgroupIncomplete { missing } => write!(
                f,
                "the CTA ends, and warps {missing:?} have not executed this instruction of their whole warpgroup (ISA \
                 \".aligned\")"
            ),
            Self::BarrierIncomplete { id, arrived, threads } => write!(
                f,
                "the CTA ends, and {arrived} of {threads} threads have arrived at barrier {id} (ISA \"bar\")"
            ),
            Self::ExitInFlight { what } => write!(f, "the thread ends while {what}"),
            Self::Trapped => f.write_str("the program trapped"),
            Self::Fuel { limit, warps } => {
                write!(
                    f,
                    "livelock: the cluster has executed {limit} warp instructions, the most that Options::fuel allows"
                )?;
                list(f, warps)
            }
            Self::Hang { waiting, exited } => {
                write!(
                    f,
                    "hang: no warp can run and nothing asynchronous is pending ({exited} warps have exited)"
                )?;
                list(f, waiting)
            }
        }
    }
}

impl fmt::Display for Trap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "kernel `{}`: {}", self.kernel, self.fault)?;
        match &self.place {
            Some(place) => write!(f, "\n  {place}"),
            None => Ok(()),
        }
    }
}
