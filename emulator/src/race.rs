//! Race detection: finds accesses to memory that nothing orders.
//!
//! Each chunk of 16 bytes remembers its accesses: which bytes, by which threads, at which count of the warp,
//! and how. Two accesses to one byte are a race if at least one writes, unless one comes after the other
//! ([`crate::clock`]) or both are atomic with respect to each other. An access replaces the records of
//! accesses that it comes after. So the last write of each byte remains, and the reads since then. This is
//! FastTrack (Flanagan, Freund, PLDI 2009), per byte, with one record for what the lanes of a warp do to a
//! chunk together.
//!
//! A copy reads from its issue until it has been waited for. If the wait is for a phase of an mbarrier, the
//! record of the read has the count of that phase: it comes before every access of a thread that knows the
//! phase to be complete. If a thread waits for its own copies, the record has the count
//! [`NEVER`](crate::clock::NEVER) until the thread has waited ([`Races::settle`]).
//!
//! Source: PTX ISA 8.7 "Morally strong operations": two accesses that overlap only partly are never atomic
//! with respect to each other.

mod chunk;
mod global;
mod history;
#[cfg(test)]
mod model;
mod observed;
mod runs;
mod shared;

use ptx::Scope;

use crate::clock::{Team, View};

pub(crate) use chunk::Claim;
pub(crate) use global::Races;
pub(crate) use observed::{Link, Observed};
pub(crate) use runs::{Run, runs};
pub(crate) use shared::{SharedRaces, is_global, key};

/// How memory is accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Kind {
    pub(crate) write: bool,
    /// The scope of an atomic or ordered access; `None` for a plain one.
    pub(crate) atomic: Option<Scope>,
    /// Number of bytes that an atomic or ordered access handles in one step.
    size: u8,
    /// Whether asynchronous work makes the access.
    pub(crate) asynchronous: bool,
    /// Whether lanes of the instruction write different values to the same address. Then no lane knows that
    /// its own value is the one that stays.
    disputed: bool,
    /// Whether it adds a floating-point number to a sum that has to be made in order.
    sums: bool,
    /// Whether it is a read of memory that nobody may write while the kernel runs (`ld.global.nc`).
    constant: bool,
}

impl Kind {
    pub(crate) const READ: Self = Self {
        write: false,
        atomic: None,
        size: 0,
        asynchronous: false,
        disputed: false,
        sums: false,
        constant: false,
    };
    pub(crate) const CONSTANT: Self = Self { constant: true, ..Self::READ };
    pub(crate) const WRITE: Self = Self { write: true, ..Self::READ };

    /// An access of elements of `size` bytes, each in one step.
    pub(crate) const fn atomic(self, scope: Scope, size: u32) -> Self {
        Self { atomic: Some(scope), size: size as u8, ..self }
    }

    pub(crate) const fn asynchronous(self) -> Self {
        Self { asynchronous: true, ..self }
    }

    pub(crate) const fn sums(self, sums: bool) -> Self {
        Self { sums, ..self }
    }

    pub(crate) const fn disputed(self, disputed: bool) -> Self {
        Self { disputed, ..self }
    }
}

/// Which lanes access which bytes of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum By {
    /// The lanes of a mask access all of it.
    All(u32),
    /// This lane accesses the first 2^`shift` bytes, the next lane the next, and so on.
    Each { first: u32, shift: u8 },
    /// A copy that this lane of this warp of the grid has issued.
    Copy { warp: u32, lane: u8 },
}

impl By {
    pub(crate) const fn lane(lane: usize) -> Self {
        Self::All(1 << lane)
    }

    /// The first lane that takes part.
    pub(crate) fn first(self) -> usize {
        match self {
            Self::All(mask) => mask.trailing_zeros().min(31) as usize,
            Self::Each { first, .. } => (first & 31) as usize,
            Self::Copy { lane, .. } => lane.into(),
        }
    }

    /// The same for the range without its first `by` bytes.
    const fn from(self, by: u64) -> Self {
        match self {
            Self::All(_) | Self::Copy { .. } => self,
            Self::Each { first, shift } => {
                Self::Each { first: first.wrapping_add((by >> shift) as u32), shift }
            }
        }
    }

    /// The same for a range that begins `by` bytes earlier.
    const fn back(self, by: u64) -> Self {
        match self {
            Self::All(_) | Self::Copy { .. } => self,
            Self::Each { first, shift } => {
                Self::Each { first: first.wrapping_sub((by >> shift) as u32), shift }
            }
        }
    }

    /// The lanes that access any of these bytes of a chunk.
    fn lanes(self, bytes: u16) -> u32 {
        match self {
            Self::All(mask) => mask,
            Self::Copy { lane, .. } => 1 << lane,
            Self::Each { first, shift } => {
                let bits = (0..16u32).filter(|bit| bytes >> bit & 1 == 1);
                bits.fold(0, |all, bit| all | 1u32.wrapping_shl(first.wrapping_add(bit >> shift)))
            }
        }
    }
}

/// The lanes that access memory, and what they know.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Who<'a> {
    /// The warp's number in the grid.
    pub(crate) warp: u32,
    pub(crate) by: By,
    pub(crate) pc: u32,
    /// The warp's count, or [`NEVER`](crate::clock::NEVER) for work in flight.
    pub(crate) count: u32,
    pub(crate) view: &'a View,
    pub(crate) team: Team,
    /// For the reads of a copy, the end of the read: a number in the grid, and the count at which the read is
    /// over.
    pub(crate) until: Option<(u32, u32)>,
    /// Whether it stores what other stores like it do, those of threads or those of copies, so that it need not be ordered with them.
    pub(crate) repeats: bool,
}

/// An earlier access that races with the current one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Conflict {
    pub(crate) address: u64,
    /// The other warp's number in the grid, one of its lanes, and its operation.
    pub(crate) warp: u32,
    pub(crate) lane: u32,
    pub(crate) pc: u32,
    pub(crate) wrote: bool,
    /// Whether the accesses are ordered, but no proxy fence separates the earlier store from the asynchronous
    /// access.
    pub(crate) unfenced: bool,
    /// Whether both add to a sum that has to be made in order.
    pub(crate) sums: bool,
    /// Whether one of them is a read of constant memory, which the other one writes, in whatever order.
    pub(crate) constant: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::NEVER;

    const TEAM: Team = Team { first: 0, warps: 2, per_cta: 1, gpus: None };
    const OTHER: Team = Team { first: 2, warps: 2, per_cta: 1, gpus: None };

    fn who(warp: u32, view: &View) -> Who<'_> {
        let team = if warp < 2 { TEAM } else { OTHER };
        Who { warp, by: By::All(1), pc: warp, count: 1, view, team, until: None, repeats: false }
    }

    #[test]
    fn pairs_of_accesses() {
        let stranger = View::default();
        let mut friend = View::default();
        friend.known.raise(0, 1);
        let mut fenced = friend.clone();
        fenced.fence_proxy();
        let (read, write) = (Kind::READ, Kind::WRITE);
        let atomic = |scope| Kind::WRITE.atomic(scope, 4);
        // Warp 0 accesses first, then warp 1 of another CTA of its cluster. The columns: bytes of the second
        // access, and whether the two race.
        for (why, first, second, view, bytes, races) in [
            ("two reads", read, read, &stranger, 0..4, false),
            ("write then read", write, read, &stranger, 0..4, true),
            ("read then write", read, write, &stranger, 0..4, true),
            ("neighbouring bytes", write, write, &stranger, 4..8, false),
            ("one byte in common", write, write, &stranger, 3..5, true),
            ("ordered", write, read, &friend, 0..4, false),
            ("both atomic", atomic(Scope::Gpu), atomic(Scope::Gpu), &stranger, 0..4, false),
            (
                "atomic for another CTA's threads only",
                atomic(Scope::Cta),
                atomic(Scope::Gpu),
                &stranger,
                0..4,
                true,
            ),
            ("atomic in the cluster", atomic(Scope::Cluster), atomic(Scope::Cluster), &stranger, 0..4, false),
            ("atomic then plain", atomic(Scope::Gpu), read, &stranger, 0..4, true),
            ("ordered, no proxy fence", write, read.asynchronous(), &friend, 0..4, true),
            ("ordered and fenced", write, read.asynchronous(), &fenced, 0..4, false),
        ] {
            let races_ = Races::new();
            races_.access(0x1000, 4, first, who(0, &View::default())).unwrap();
            let outcome = races_.access(0x1000 + bytes.start, bytes.end - bytes.start, second, who(1, view));
            assert_eq!(outcome.is_err(), races, "{why}: {outcome:?}");
        }
    }

    /// No reader of a word is forgotten, however many there are: a write to it, or to a part of it, must come after each read.
    #[test]
    fn many_readers_are_all_remembered() {
        const MANY: Team = Team { first: 0, warps: 64, per_cta: 1, gpus: None };
        let stranger = View::default();
        let of = |warp: u32| Who { team: MANY, pc: 1, ..who(warp, &stranger) };
        let knows = |all: core::ops::Range<usize>| {
            let mut view = View::default();
            all.for_each(|warp| view.known.raise(warp, 1));
            view
        };
        let [all, some] = [knows(0..60), knows(0..59)];
        for count in [3, 20, 60] {
            let [all_of, all_but_one] = [knows(0..count), knows(1..count)];
            let read = || {
                let races = Races::new();
                (0..count as u32).for_each(|warp| races.access(0x3000, 4, Kind::READ, of(warp)).unwrap());
                races
            };
            let write = |races: &Races, bytes: core::ops::Range<u64>, view: &View| {
                let who = Who { view, ..of(62) };
                races.access(0x3000 + bytes.start, bytes.end - bytes.start, Kind::WRITE, who)
            };
            assert!(write(&read(), 0..4, &all_of).is_ok(), "{count}");
            assert_eq!(write(&read(), 0..4, &all_but_one).unwrap_err().warp, 0, "{count}");
            assert!(write(&read(), 4..8, &stranger).is_ok(), "{count}: beside them");
            let races = read();
            assert!(races.access(0x3000, 4, Kind::READ, of(61)).is_ok(), "{count}: one more reads");
            assert!(write(&races, 0..4, &all_of).is_err(), "{count}: the last reader is unknown");
            // A part is overwritten by who comes after all. The rest is still read.
            let races = read();
            assert!(write(&races, 0..2, &all_of).is_ok(), "{count}");
            assert!(write(&races, 2..4, &stranger).is_err(), "{count}: the other part");
            assert!(write(&races, 2..4, &all_of).is_ok(), "{count}");
        }
        // Atomics of the whole device are as many, and do not race with each other.
        let races = Races::new();
        let add = Kind::WRITE.atomic(Scope::Gpu, 4);
        (0..60).for_each(|warp| races.access(0x3000, 4, add, of(warp)).unwrap());
        let other = |view: &View| races.access(0x3000, 4, Kind::READ, Who { view, ..of(62) });
        assert!(other(&some).is_err());
        assert!(other(&all).is_ok());
    }

    /// Lanes that do the same in one step are all remembered, and so is each of them until somebody comes after it.
    #[test]
    fn every_lane_of_a_step_is_remembered() {
        let (races, stranger) = (Races::new(), View::default());
        for lane in 0..3 {
            let lane = Who { by: By::All(1 << lane), ..who(0, &stranger) };
            races.access(0x4000, 4, Kind::READ, lane).unwrap();
        }
        let write = |view| races.access(0x4000, 4, Kind::WRITE, who(1, view));
        assert_eq!(write(&stranger).unwrap_err().lane, 0);
        // An atomic access stands for an earlier one of the same size that it comes after, in the same CTA.
        let knows = |warp: usize| {
            let mut view = View::default();
            view.known.raise(warp, 1);
            view
        };
        for (sizes, per_cta, orders) in [([4u32, 4], 4, true), ([8, 4], 4, false), ([4, 4], 1, false)] {
            let races = Races::new();
            let atomic = |size: u32| Kind::WRITE.atomic(Scope::Gpu, size);
            let team = Team { first: 0, warps: 4, per_cta, gpus: None };
            races
                .access(0x4000, sizes[0].into(), atomic(sizes[0]), Who { team, ..who(0, &stranger) })
                .unwrap();
            races
                .access(0x4000, sizes[1].into(), atomic(sizes[1]), Who { team, ..who(1, &knows(0)) })
                .unwrap();
            let read = races.access(0x4000, 4, Kind::READ, Who { team, ..who(2, &knows(1)) });
            assert_eq!(read.is_ok(), orders, "{sizes:?}");
        }
    }

    #[test]
    fn work_in_flight_is_ordered_once_it_is_waited_for() {
        let races = Races::new();
        let mut friend = View::default();
        friend.known.raise(0, 5);
        let going = Who { count: NEVER, ..who(0, &friend) };
        races.access(0x2000, 256, Kind::WRITE.asynchronous(), going).unwrap();
        assert!(races.access(0x2010, 4, Kind::READ, who(1, &friend)).is_err());
        let by = By::All(1);
        races.settle((0x2000, 256), 0, (0, by, NEVER), (0, by, 5));
        assert!(races.access(0x2010, 4, Kind::READ, who(1, &friend)).is_ok());
    }

    #[test]
    fn reads_of_copies_last_until_their_phase() {
        let barrier = TEAM.number(2).unwrap();
        let stranger = View::default();
        let mut friend = View::default();
        friend.known.raise(0, 9);
        let reads = |range: core::ops::Range<u64>| {
            let races = Races::new();
            for phase in [1, 2] {
                let copy = Who { until: Some((barrier, phase)), ..who(0, &stranger) };
                let read = Kind::READ.asynchronous();
                races.access(range.start, range.end - range.start, read, copy).unwrap();
            }
            races
        };
        for range in [0x1000..0x1080, 0x1010..0x1024] {
            let overwrite = |view: &View| reads(range.clone()).access(0x1010, 4, Kind::WRITE, who(1, view));
            let conflict = overwrite(&friend).unwrap_err();
            assert_eq!((conflict.warp, conflict.lane), (0, 0), "who knows of the issue alone");
            friend.known.raise(2, 1);
            assert!(overwrite(&friend).is_err(), "the phase before");
            let mut waited = View::default();
            waited.known.raise(2, 2);
            assert!(overwrite(&waited).is_ok());
            assert!(reads(range.clone()).access(0x1010, 4, Kind::READ, who(1, &stranger)).is_ok());
            assert!(
                reads(range.clone()).access(0x1080, 4, Kind::WRITE, who(1, &stranger)).is_ok(),
                "beside it"
            );
        }
    }
}
