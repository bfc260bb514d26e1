//! Asynchronous work in flight: issued by a lane, and not yet waited for.

use ptx::inst::Reduction;

use crate::mbarrier::Published;
use crate::tensor_map::Map;

/// A load in flight to one CTA.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    /// The CTA that receives the bytes.
    pub(crate) cta: usize,
    pub(crate) target: u32,
    pub(crate) barrier: u32,
    pub(crate) source: Source,
    /// How elements are combined with those in shared memory; `None` for a plain copy.
    pub(crate) reduce: Option<Reduction>,
    /// Number of groups that the issuing lane had committed before.
    pub(crate) group: u64,
    /// The warp that issued it, the operation, and the lane.
    pub(crate) by: (usize, usize, usize),
}

impl Load {
    /// Number of bytes that it writes.
    pub(crate) fn bytes(&self) -> u32 {
        match &self.source {
            Source::Global { map, .. } => map.box_bytes(),
            Source::Shared(_, _, bytes) => *bytes,
            Source::Registers(bytes) => bytes.len() as u32,
        }
    }

    /// Whether it may still read the tensor map at an address.
    pub(crate) fn uses_map(&self, address: u64) -> bool {
        matches!(&self.source, Source::Global { map_at, map_read: false, .. } if *map_at == Some(address))
    }

    /// Whether it reads or writes a CTA's shared memory.
    pub(crate) fn touches(&self, cta: usize) -> bool {
        self.cta == cta || matches!(self.source, Source::Shared(from, _, _) if from == cta)
    }
}

/// The source of a load.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    /// A box of a tensor in global memory, or contiguous bytes.
    Global {
        map: Map,
        start: [i64; 5],
        /// The map's generic address, if there is a map.
        map_at: Option<u64>,
        /// Whether the issuer has waited until the map was read.
        map_read: bool,
    },
    /// Shared memory of a CTA: index of the CTA, offset and number of bytes.
    Shared(usize, u32, u32),
    /// Registers.
    Registers(Vec<u8>),
}

/// The read of a tensor map in global memory by a load that its thread has not waited for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MapRead {
    pub(crate) at: u64,
    pub(crate) pc: usize,
    pub(crate) lane: usize,
    /// Number of groups that the lane had committed before.
    pub(crate) group: u64,
    /// The mbarrier phase at which the read is over at the latest.
    pub(crate) until: Option<(u32, u32)>,
}

impl MapRead {
    /// Whether every access that comes after the later read `other` also comes after this one.
    pub(crate) fn is_before(&self, other: &Self) -> bool {
        let same = (self.at, self.pc, self.lane) == (other.at, other.pc, other.lane);
        same && self.until.map(|(number, _)| number) == other.until.map(|(number, _)| number)
    }
}

/// A tensor store or bulk copy out of shared memory, in flight.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    /// The lane that issued it, and the operation.
    pub(crate) lane: usize,
    pub(crate) pc: usize,
    /// Number of groups that the lane had committed before.
    pub(crate) group: u64,
    pub(crate) source: u32,
    pub(crate) map: Map,
    /// The map's generic address, if there is a map.
    pub(crate) map_at: Option<u64>,
    pub(crate) start: [i64; 5],
    /// How elements are combined with those in global memory; `None` for a plain store.
    pub(crate) reduce: Option<Reduction>,
    /// Whether it has written global memory.
    pub(crate) done: bool,
}

impl Store {
    /// The address and the number of bytes of each row that it writes.
    pub(crate) fn rows(&self) -> Vec<(u64, u64)> {
        let rows = (0..self.map.rows()).filter_map(|index| self.map.stored_row(&self.start, index));
        rows.map(|row| (row.address, (row.end - row.start) as u64)).collect()
    }
}

/// A `cp.async` that its thread has not waited for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ThreadCopy {
    pub(crate) lane: usize,
    pub(crate) pc: usize,
    /// Number of groups that the lane had committed before.
    pub(crate) group: u64,
    pub(crate) offset: u32,
    pub(crate) bytes: u32,
    /// The source: address and number of bytes.
    pub(crate) source: (u64, u64),
}

/// An arrival at an mbarrier that takes effect when the copies of a thread are done.
#[derive(Clone, Debug)]
pub(crate) struct Arrival {
    pub(crate) by: (usize, usize, usize),
    pub(crate) cta: usize,
    pub(crate) barrier: u32,
    pub(crate) copies: Vec<ThreadCopy>,
    /// What the thread knew when it issued the arrival.
    pub(crate) published: Vec<Published>,
}
