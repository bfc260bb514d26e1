//! The text of faults, for reports.

use core::fmt;

use super::{Fault, Owner, Place, Trap, Wait, Waiting};

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mbarrier { offset, name, parity, phase, pending, expected, outstanding } => {
                let name = name.as_ref().map_or_else(String::new, |name| format!(" ({name})"));
                write!(
                    f,
                    "the mbarrier at byte {offset} of shared memory{name}, parity {parity}: phase {phase} is \
                     current, {pending} of {expected} arrivals pending, "
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
            Self::Stores { pending } => write!(f, "all its tensor stores except the newest {pending} groups"),
            Self::Registers { asked, held, free } => {
                write!(
                    f,
                    "{asked} registers per thread: each holds {held}, and the CTA's pool has {free} free"
                )
            }
            Self::Polling => f.write_str("nothing: it runs a loop"),
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

/// Writes one entry per group of warps of one CTA that wait at the same statement for the same reason.
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
                write!(f, "{bytes} B of global memory at {address:#x} are outside every allocation")?;
                match near {
                    Some((base, size)) => {
                        write!(
                            f,
                            ": offset {} from the allocation of {size} B at {base:#x}",
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
                write!(
                    f,
                    "{bytes} B of global memory at {address:#x} are read, but not all were written before"
                )
            }
            Self::SharedOutOfBounds { offset, bytes, size } => {
                write!(f, "{bytes} B at byte {offset} are outside the shared memory, which has {size} B")
            }
            Self::GlobalRace { address, write, other_write, other } => {
                let verb = |write: &bool| if *write { "writes" } else { "reads" };
                write!(
                    f,
                    "a race at global address {address:#x}: this access {} what another thread {}, and \
                     nothing orders the two\n  the other access: {other}",
                    verb(write),
                    verb(other_write),
                )
            }
            Self::SharedRace { rank, offset, write, other_write, other } => {
                let verb = |write: &bool| if *write { "writes" } else { "reads" };
                write!(
                    f,
                    "a race at byte {offset} of shared memory of CTA rank {rank}: this access {} what \
                     another thread {}, and nothing orders the two\n  the other access: {other}",
                    verb(write),
                    verb(other_write),
                )
            }
            Self::GridNotAwaited { address } => write!(
                f,
                "global address {address:#x} is accessed while earlier grids may still run: \
                 griddepcontrol.wait must come before the access"
            ),
            Self::GlobalUnfenced { address, other } => write!(
                f,
                "the async proxy accesses global address {address:#x}, and no fence.proxy.async separates \
                 this from a generic store, or another CTA's asynchronous write\n  it was written by {other}"
            ),
            Self::SharedMisaligned { offset, alignment } => {
                write!(f, "the address of byte {offset} of shared memory is not a multiple of {alignment} B")
            }
            Self::SharedUninitialised { offset, bytes } => {
                write!(
                    f,
                    "{bytes} B at byte {offset} of shared memory are read, but not all were written before"
                )
            }
            Self::SharedOtherCta { address, rank, own } => {
                write!(
                    f,
                    "shared address {address:#x} names CTA rank {rank}: the cluster has no such CTA, or this \
                     instruction can use only the shared memory of rank {own}"
                )
            }
            Self::SharedInFlight { offset, bytes, owner, write } => {
                let owner = match owner {
                    Owner::TensorLoad => {
                        "a tensor load or bulk copy writes them: the phase of its mbarrier has not completed"
                    }
                    Owner::ThreadCopy => "a cp.async writes them: its thread has not waited for it",
                    Owner::Peer => {
                        "a st.async, red.async or bulk reduction writes them: the phase of its mbarrier has \
                         not completed"
                    }
                    Owner::AsyncRead => {
                        "a wgmma, tensor store or bulk copy may still read them: this thread has neither \
                         waited for it nor synchronised with a thread that has"
                    }
                };
                let verb = if *write { "written" } else { "read" };
                write!(f, "{bytes} B at byte {offset} of shared memory are {verb} while {owner}")
            }
            Self::SharedBarrier { offset } => {
                write!(f, "byte {offset} of shared memory belongs to a live mbarrier")
            }
            Self::MissingProxyFence { offset, writer, other } => write!(
                f,
                "the async proxy reads byte {offset} of shared memory, but thread {writer}, which stored it, \
                 has executed no fence.proxy.async since\n  it was stored by {other}"
            ),
            Self::PeerExited { rank } => {
                write!(f, "this accesses the shared memory of CTA rank {rank}, which has exited")
            }
            Self::PeerNotStarted { rank } => write!(
                f,
                "this accesses the shared memory of CTA rank {rank}, and nothing orders the access after \
                 that CTA has started"
            ),
            Self::PeerUnordered { rank } => write!(
                f,
                "this accesses the shared memory of CTA rank {rank}, and nothing orders the access before \
                 that CTA exits"
            ),
            Self::RegisterUninitialised { register } => {
                write!(f, "register {register} is read before anything has written it")
            }
            Self::RegisterInFlight { register, write } => {
                let verb = if *write { "written" } else { "read" };
                write!(
                    f,
                    "register {register} is {verb} while a wgmma uses it: this warp has not waited for \
                     the wgmma"
                )
            }
            Self::MissingWgmmaFence { register } => {
                write!(
                    f,
                    "another instruction used register {register}, and no wgmma.fence has been executed since"
                )
            }
            Self::Divergence { active } => {
                write!(f, "the whole warp must execute this together, but only lanes {active:#010x} do")
            }
            Self::Members { members, active } => {
                write!(f, "lanes {members:#010x} must execute this together, but lanes {active:#010x} do")
            }
            Self::ShuffleSource { from, members } => {
                write!(f, "the shuffle reads lane {from}, which is not among its lanes {members:#010x}")
            }
            Self::CopySize { read, bytes } => {
                write!(f, "the copy reads {read} B, but may read at most the {bytes} B that it writes")
            }
            Self::NotUniform { operand } => write!(f, "the lanes pass different values as {operand}"),
            Self::WarpgroupDisagrees { sequence, other, operand } => {
                write!(
                    f,
                    "the warps of the warpgroup disagree about collective instruction {sequence}: \
                     different {operand}"
                )?;
                match other {
                    Some(site) => write!(f, ": another warp executed {}:{}", site.file(), site.line()),
                    None => Ok(()),
                }
            }
            Self::NoWarpgroup { warps } => {
                write!(f, "this warp is not in a complete warpgroup of 4 warps: the CTA has {warps} warps")
            }
            Self::BarrierId { id } => write!(f, "barrier {id} does not exist: the numbers are 0 to 15"),
            Self::BarrierThreads { id, first, this } => {
                write!(
                    f,
                    "barrier {id} counts {this} threads here, but {first} where another warp arrived at it"
                )
            }
            Self::BarrierTwice { id } => {
                write!(f, "the warp arrives at barrier {id} again before the barrier has completed")
            }
            Self::ClusterBarrier { arrive: true } => {
                f.write_str("the warp arrives at the cluster barrier twice without a wait")
            }
            Self::ClusterBarrier { arrive: false } => {
                f.write_str("the warp waits at the cluster barrier without having arrived")
            }
            Self::MbarrierUninitialised { offset } => {
                write!(f, "there is no initialised mbarrier at byte {offset} of shared memory")
            }
            Self::MbarrierLive { offset } => {
                write!(
                    f,
                    "byte {offset} of shared memory already has an initialised mbarrier: invalidate it first"
                )
            }
            Self::MbarrierCount { offset, count } => {
                write!(
                    f,
                    "count {count} of the mbarrier at byte {offset} of shared memory is not 1 to 2^20 - 1"
                )
            }
            Self::MbarrierNoComplete { offset, count, phase } => write!(
                f,
                "{count} arrivals marked noComplete would complete phase {phase} of the mbarrier at byte \
                 {offset} of shared memory"
            ),
            Self::MbarrierOverArrival { offset, count, pending, phase } => write!(
                f,
                "{count} arrivals on the mbarrier at byte {offset} of shared memory, but its phase {phase} \
                 still needs {pending}"
            ),
            Self::MbarrierBytes { offset, outstanding } => write!(
                f,
                "the mbarrier at byte {offset} of shared memory would have {outstanding} bytes outstanding: \
                 the limit is 2^20 - 1"
            ),
            Self::MbarrierNotFenced { offset, by } => write!(
                f,
                "the mbarrier at byte {offset} of shared memory was initialised by thread {by}, which has \
                 executed no fence.mbarrier_init since"
            ),
            Self::MbarrierState { offset, state, phase } => write!(
                f,
                "{state:#x} is not a state of the mbarrier at byte {offset} of shared memory in phase \
                 {phase} or the phase before: no arrival on it returned that value, or two phases have \
                 completed since"
            ),
            Self::MbarrierMissed { offset, parity, phase, known } => write!(
                f,
                "a wait for parity {parity} of the mbarrier at byte {offset} of shared memory comes too \
                 late: {phase} phases have completed, but the warp has observed only {known}"
            ),
            Self::MbarrierNotObserved { offset, bytes, barrier } => write!(
                f,
                "asynchronous work wrote {bytes} B at byte {offset} of shared memory, but this warp has \
                 neither waited for the mbarrier at byte {barrier} nor synchronised with a warp that has"
            ),
            Self::TensorMap { address } => {
                write!(f, "there is no tensor map at generic address {address:#x}")
            }
            Self::TensorMapFields { address, reason } => {
                write!(f, "the tensor map at {address:#x} is not valid: {reason}")
            }
            Self::TensorMapUnfenced { address, released: false, other } => write!(
                f,
                "the tensor map at {address:#x} was written and not released: a tensormap.cp_fenceproxy, or \
                 a fence.proxy.tensormap::generic.release after the write, is missing\n  it was written by \
                 {other}"
            ),
            Self::TensorMapUnfenced { address, released: true, other } => write!(
                f,
                "the tensor map at {address:#x} was written and released, but not acquired by this CTA: a \
                 fence.proxy.tensormap::generic.acquire is missing before the copy\n  it was written by \
                 {other}"
            ),
            Self::TensorMapInFlight { address } => write!(
                f,
                "the tensor map at {address:#x} is changed while a copy still uses it: wait for the copy \
                 first, by its mbarrier or with cp.async.bulk.wait_group.read"
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
                "a tensor copy begins at element {at} of {bytes} B in the innermost dimension, which is not \
                 a multiple of 16 B"
            ),
            Self::TensorBefore { dim, at } => {
                write!(f, "a tensor store begins at {at} in dimension {dim}, before the tensor")
            }
            Self::Im2colBounds { dim, low, high, extent } => write!(
                f,
                "an im2col store through a map with a bounding box that is not inside the tensor: {low} to \
                 {high} in pixel dimension {dim}, where the tensor has {extent}"
            ),
            Self::Im2colBase { dim, base, low, high } => write!(
                f,
                "the base {base} of an im2col copy is outside the bounding box, which is {low} to {high} in \
                 pixel dimension {dim}"
            ),
            Self::Im2colOffset { dim, offset, bits } => {
                write!(f, "the filter offset {offset} in pixel dimension {dim} has more than {bits} bits")
            }
            Self::Multicast { mask, ctas } => {
                write!(
                    f,
                    "multicast mask {mask:#x} is empty or names CTAs outside the cluster, which has {ctas}"
                )
            }
            Self::Descriptor { descriptor, reason } => {
                write!(f, "matrix descriptor {descriptor:#018x}: {reason}")
            }
            Self::SparseMetadata { row, chunk, bits } => {
                write!(
                    f,
                    "metadata {bits:#06b} of chunk {chunk} of row {row} does not encode valid positions"
                )
            }
            Self::Registers { grow, held, asked } => {
                let verb = if *grow { "inc" } else { "dec" };
                write!(f, "setmaxnreg.{verb} to {asked} registers, but each thread holds {held}")
            }
            Self::RegistersTwice { warp } => write!(
                f,
                "a second setmaxnreg, but nothing synchronises this warp with warp {warp} of its warpgroup \
                 after the first (ISA \"setmaxnreg\")"
            ),
            Self::WarpgroupIncomplete { missing } => write!(
                f,
                "the CTA ends, but warps {missing:?} have not executed this instruction, which the whole \
                 warpgroup must execute (ISA \".aligned\")"
            ),
            Self::BarrierIncomplete { id, arrived, threads } => write!(
                f,
                "the CTA ends, but only {arrived} of {threads} threads have arrived at barrier {id} (ISA \
                 \"bar\")"
            ),
            Self::ExitInFlight { what } => write!(f, "the thread ends while {what}"),
            Self::Trapped => f.write_str("the program trapped"),
            Self::Fuel { limit, warps } => {
                write!(
                    f,
                    "livelock: the cluster has executed {limit} warp instructions, the limit in Options::fuel"
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
        if let (Some(region), Some(offset)) = (&self.region, self.fault.offset()) {
            write!(f, "\n  byte {offset} belongs to: {region}")?;
        }
        match &self.place {
            Some(place) => write!(f, "\n  {place}"),
            None => Ok(()),
        }
    }
}
