//! Follows the records of a device and of the emulator, statement by statement, to the first difference that nothing explains.

use std::collections::{BTreeMap, HashMap, HashSet};

use ptx::inst::Reg;

use super::instrument::{Point, Window};
use super::kinds::Kind;
use super::{ENTRY, Recorded, entry};

/// Why a register differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Cause {
    /// It is, or comes from, an address.
    Place,
    /// It comes from another value that differs.
    Value,
}

/// A difference.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) point: Point,
    pub(super) thread: u64,
    /// How many statements the thread had executed.
    step: usize,
    /// On the device, and in the emulator.
    pub(super) bits: [u64; 2],
    /// Whether the statement reads what is not recorded.
    pub(super) reads: bool,
    /// Whether the two go other ways after it.
    pub(super) ways: bool,
}

/// What was found in the records of all threads so far.
#[derive(Debug, Default)]
pub(super) struct Follower {
    /// Statements that compute something else from the same.
    computed: Option<Found>,
    /// Statements that read something else.
    read: Option<Found>,
    /// Places where the ways part.
    parted: Option<Found>,
    excused: BTreeMap<usize, (Point, &'static str, u64)>,
    /// Whether a thread has executed more than was recorded.
    pub(super) is_cut: bool,
    /// Whether the device has recorded nothing of a thread.
    pub(super) is_silent: bool,
}

impl Follower {
    /// Follows the records of a window.
    pub(super) fn follow(&mut self, points: &[Point], window: &Window, recorded: &Recorded) {
        for number in 0..window.count {
            let start = number as usize * window.stride();
            let part = start..start + window.stride();
            let parts = [&recorded.device[part.clone()], &recorded.emulated[part]];
            self.thread(points, window.first + number, parts, &*recorded.moved);
        }
    }

    fn thread(
        &mut self,
        points: &[Point],
        thread: u64,
        [device, emulated]: [&[u8]; 2],
        moved: &dyn Fn(u64) -> Option<u64>,
    ) {
        let mut causes: HashMap<Reg, Cause> = HashMap::new();
        self.is_silent |= entry(device, 0).0 == 0 && entry(emulated, 0).0 != 0;
        let (mut before, mut counted) = (None, HashSet::new());
        let known = |number: u32| points.get((number as usize).checked_sub(1)?);
        // The last entry is written again and again. How often what depends on time is executed is no difference.
        let [mut own, mut other] = [device, emulated].map(|part| {
            let entries = (0..part.len() / ENTRY - 1).map(|step| entry(part, step));
            let entries = entries.take_while(|(number, _)| *number != 0);
            entries.filter(|(number, _)| known(*number).is_none_or(|point| !point.timed))
        });
        let is_cut = [device, emulated].map(|part| entry(part, part.len() / ENTRY - 1).0 != 0);
        self.is_cut |= is_cut.contains(&true);
        for step in 0.. {
            let (next, expected) = (own.next(), other.next());
            if next.is_none() && (expected.is_none() || is_cut[0]) || expected.is_none() && is_cut[1] {
                return;
            }
            let [own, other] = [next, expected].map(Option::unwrap_or_default);
            let found = |point: &Point, ways| Found {
                point: point.clone(),
                thread,
                step,
                bits: [own.1, other.1],
                reads: point.kind == Kind::Reads,
                ways,
            };
            let (Some(point), true) = (known(other.0), own.0 == other.0) else {
                // Where something differs already, so may the ways.
                let is_explained = causes.values().any(|cause| *cause == Cause::Value);
                if let (Some(point), false) = (before, is_explained) {
                    first(&mut self.parted, found(point, true));
                }
                return;
            };
            before = Some(point);
            let Some(reg) = point.written() else { continue };
            let is_address = own.1 != other.1 && moved(other.1) == Some(own.1);
            let cause = point.reads.iter().filter_map(|reg| causes.get(reg)).max().copied();
            let now = match point.kind {
                _ if own.1 == other.1 => None,
                _ if is_address => Some(Cause::Place),
                Kind::Place => Some(Cause::Place),
                Kind::Free(why) => {
                    let excuse = self.excused.entry(other.0 as usize);
                    let (.., last) = excuse.or_insert((point.clone(), why, 0));
                    // Each thread counts once.
                    *last += u64::from(counted.insert(other.0));
                    Some(Cause::Value)
                }
                // What is read at another address is the same all the same.
                Kind::Reads if cause != Some(Cause::Value) => {
                    first(&mut self.read, found(point, false));
                    Some(Cause::Value)
                }
                Kind::Exact if cause.is_none() => {
                    first(&mut self.computed, found(point, false));
                    Some(Cause::Value)
                }
                Kind::Exact | Kind::Reads | Kind::Writes => cause,
            };
            match now {
                Some(cause) => causes.insert(reg, cause),
                None => causes.remove(&reg),
            };
        }
    }

    /// A statement that computes something else from the same.
    pub(super) fn computed(&self) -> Option<&Found> {
        self.computed.as_ref()
    }

    /// The first difference that nothing explains: a statement that computes something else, or else one that reads something else, which
    /// another thread has written.
    pub(super) fn found(&self) -> Option<Found> {
        let is_free = !self.excused.is_empty();
        let others = || self.read.clone().or_else(|| self.parted.clone()).filter(|_| !is_free);
        self.computed.clone().or_else(others)
    }

    /// The statements whose results may differ and do: why, and in how many threads, for the register that differs in most.
    pub(super) fn excused(&self) -> impl Iterator<Item = (&Point, &'static str, u64)> {
        let mut all: BTreeMap<usize, (&Point, &'static str, u64)> = BTreeMap::new();
        for (point, why, threads) in self.excused.values() {
            let (.., most) = all.entry(point.node).or_insert((point, why, 0));
            *most = (*most).max(*threads);
        }
        all.into_values()
    }
}

/// Keeps the earlier one.
fn first(kept: &mut Option<Found>, found: Found) {
    let is_earlier = |kept: &Found| (found.step, found.thread) < (kept.step, kept.thread);
    if kept.as_ref().is_none_or(is_earlier) {
        *kept = Some(found);
    }
}
