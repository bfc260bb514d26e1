//! Follows the records of a device and of the emulator, statement by statement, to the first difference that nothing explains.

use std::collections::{BTreeMap, HashMap, HashSet};

use ptx::inst::Reg;

use super::instrument::{Point, Window};
use super::kinds::Kind;
use super::{ENTRY, Recorded};

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

fn word(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |&word| u64::from_le_bytes(word))
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
        let entries = device.len() / ENTRY;
        self.is_silent |= word(device, 0) == 0 && word(emulated, 0) != 0;
        let (mut before, mut counted) = (None, HashSet::new());
        // The last entry is written again and again.
        for step in 0..entries - 1 {
            let [own, other] = [device, emulated]
                .map(|part| (word(part, step * ENTRY) as u32, word(part, step * ENTRY + 8)));
            if own.0 == 0 && other.0 == 0 {
                return;
            }
            let known = |number: u32| points.get((number as usize).checked_sub(1)?);
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
                Kind::Exact | Kind::Reads => cause,
            };
            match now {
                Some(cause) => causes.insert(point.reg, cause),
                None => causes.remove(&point.reg),
            };
        }
        self.is_cut |= word(device, (entries - 1) * ENTRY) != 0;
    }

    /// The first difference that nothing explains: a statement that computes something else, or else one that reads something else, which
    /// another thread has written.
    pub(super) fn found(&self) -> Option<Found> {
        let is_free = !self.excused.is_empty();
        let others = || self.read.clone().or_else(|| self.parted.clone()).filter(|_| !is_free);
        self.computed.clone().or_else(others)
    }

    /// The statements whose results may differ and do: why, and in how many threads.
    pub(super) fn excused(&self) -> impl Iterator<Item = (&Point, (&'static str, u64))> {
        self.excused.values().map(|(point, why, threads)| (point, (*why, *threads)))
    }
}

/// Keeps the earlier one.
fn first(kept: &mut Option<Found>, found: Found) {
    let is_earlier = |kept: &Found| (found.step, found.thread) < (kept.step, kept.thread);
    if kept.as_ref().is_none_or(is_earlier) {
        *kept = Some(found);
    }
}
