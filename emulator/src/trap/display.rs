//! The text of faults, for reports.

use core::fmt;

use ptx::SourceSite;

use super::{Place, Trap, Wait, Waiting};

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
        self.gpu.map_or(Ok(()), |gpu| write!(f, "GPU {gpu}, "))?;
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
        match &self.site {
            Some(site) => write!(f, " at {site}"),
            None => Ok(()),
        }
    }
}

/// Writes one entry per group of warps of one CTA that wait at the same statement for the same reason.
pub(super) struct List<'a>(pub(super) &'a [Waiting]);

impl fmt::Display for List<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest: Vec<&Waiting> = self.0.iter().collect();
        while let Some(first) = rest.first().copied() {
            let alike = |other: &&Waiting| {
                let (a, b) = (&first.place, &other.place);
                first.on == other.on
                    && (a.gpu, a.cta, &a.site, a.instruction, &a.scopes)
                        == (b.gpu, b.cta, &b.site, b.instruction, &b.scopes)
            };
            let (group, others): (Vec<&Waiting>, Vec<&Waiting>) = rest.iter().copied().partition(alike);
            rest = others;
            let warps: Vec<String> = group.iter().map(|one| one.place.warp.to_string()).collect();
            let [x, y, z] = first.place.cta;
            let (plural, verb) = if warps.len() == 1 { ("", "waits") } else { ("s", "wait") };
            let gpu = first.place.gpu.map_or_else(String::new, |gpu| format!("GPU {gpu}, "));
            let (rank, warps) = (first.place.rank, warps.join(" "));
            write!(f, "\n  {gpu}CTA ({x}, {y}, {z}) rank {rank}, warp{plural} {warps}")?;
            first.place.statement(f)?;
            write!(f, "\n    {verb} for {}", first.on)?;
        }
        Ok(())
    }
}

pub(super) fn does(write: bool) -> &'static str {
    if write { "writes" } else { "reads" }
}

pub(super) fn done(write: bool) -> &'static str {
    if write { "written" } else { "read" }
}

/// Where an address is from the nearest allocation.
pub(super) fn nearest(address: u64, near: &Option<(u64, u64)>) -> String {
    near.map_or_else(String::new, |(base, size)| {
        let offset = address.wrapping_sub(base);
        format!(": offset {offset} from the allocation of {size} B at {base:#x}")
    })
}

/// What another warp executed.
pub(super) fn executed(other: &Option<SourceSite>) -> String {
    other.as_ref().map_or_else(String::new, |site| format!(": another warp executed {site}"))
}

/// What is missing between the change of a tensor map and the copy.
pub(super) fn unfenced(released: bool) -> &'static str {
    if released {
        "released, but not acquired by this CTA: a fence.proxy.tensormap::generic.acquire is missing before the copy"
    } else {
        "not released: a tensormap.cp_fenceproxy, or a fence.proxy.tensormap::generic.release after the write, is \
         missing"
    }
}

impl fmt::Display for Trap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "kernel `{}`: {}", self.kernel, self.fault)?;
        if let (Some(region), Some(offset)) = (&self.region, self.fault.offset()) {
            write!(f, "\n  byte {offset} belongs to: {region}")?;
        }
        if let (Some(name), Some(register)) = (&self.register, self.fault.register()) {
            write!(f, "\n  register {register} is {name}")?;
        }
        match &self.place {
            Some(place) => write!(f, "\n  {place}"),
            None => Ok(()),
        }
    }
}
