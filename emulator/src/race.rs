//! Accesses to memory that nothing orders.
//!
//! Each chunk of 16 bytes remembers which bytes of it were accessed, by which threads, in which of their warp's steps, and
//! how. Two accesses to one byte of which one writes are a race, unless one comes after the other ([`crate::clock`]) or both
//! are atomic for each other. An access that comes after another pushes it out, so that for each byte the last write and
//! the reads since remain: FastTrack (Flanagan, Freund, PLDI 2009), with bytes as the granule and one record for what the
//! lanes of a warp do to a chunk together.
//!
//! Source: PTX ISA 8.7 "Morally strong operations": two accesses that overlap partly are never atomic for each other.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use ptx::Scope;

use crate::clock::{Clock, NEVER, Team, View};
use crate::warp::{Lanes, lanes};
use crate::word::{Seen, Word};

/// Accesses that are kept in a chunk itself.
const NEAR: usize = 4;
/// Accesses that are remembered for each chunk. A race with one that as many others have pushed out goes unseen.
const REMEMBERED: usize = 64;
/// Bytes of a chunk, a bit each.
const CHUNK: u64 = 16;
/// Chunks of a page.
const PAGE: u64 = 256;
/// Locks.
const SHARDS: u64 = 64;
/// Chunks of a page of shared memory.
const SHARED_PAGE: u32 = 64;

/// How memory is accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    pub(crate) write: bool,
    /// For whom the access is one step; `None` where it is a plain one.
    pub(crate) atomic: Option<Scope>,
    /// Bytes that the step takes.
    size: u8,
    /// Whether asynchronous work does it.
    pub(crate) asynchronous: bool,
}

impl Kind {
    pub(crate) const READ: Self = Self { write: false, atomic: None, size: 0, asynchronous: false };
    pub(crate) const WRITE: Self = Self { write: true, ..Self::READ };

    /// An access of elements of `size` bytes, each in one step.
    pub(crate) const fn atomic(self, scope: Scope, size: u32) -> Self {
        Self { atomic: Some(scope), size: size as u8, ..self }
    }

    pub(crate) const fn asynchronous(self) -> Self {
        Self { asynchronous: true, ..self }
    }
}

/// Which lanes access which bytes of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    /// The lanes of a mask access all of it.
    All(u32),
    /// This lane accesses the first 2^`shift` bytes, the next lane the next, and so on.
    Each { first: u32, shift: u8 },
}

impl By {
    pub(crate) const fn lane(lane: usize) -> Self {
        Self::All(1 << lane)
    }

    /// The first lane.
    pub(crate) fn first(self) -> usize {
        match self {
            Self::All(mask) => mask.trailing_zeros().min(31) as usize,
            Self::Each { first, .. } => (first & 31) as usize,
        }
    }

    /// The same for the bytes from `by` on.
    const fn from(self, by: u64) -> Self {
        match self {
            Self::All(_) => self,
            Self::Each { first, shift } => {
                Self::Each { first: first.wrapping_add((by >> shift) as u32), shift }
            }
        }
    }

    /// The same for the bytes from `by` before the beginning.
    const fn back(self, by: u64) -> Self {
        match self {
            Self::All(_) => self,
            Self::Each { first, shift } => {
                Self::Each { first: first.wrapping_sub((by >> shift) as u32), shift }
            }
        }
    }

    /// The lanes that access some of the bytes of a chunk.
    fn lanes(self, bytes: u16) -> u32 {
        match self {
            Self::All(mask) => mask,
            Self::Each { first, shift } => {
                let bits = (0..16u32).filter(|bit| bytes >> bit & 1 == 1);
                bits.fold(0, |all, bit| all | 1u32.wrapping_shl(first.wrapping_add(bit >> shift)))
            }
        }
    }
}

/// An access to up to 16 bytes.
#[derive(Clone, Copy, Debug)]
struct Record {
    /// No byte: an empty place.
    mask: u16,
    kind: Kind,
    by: By,
    warp: u32,
    count: u32,
    pc: u32,
}

const EMPTY: Record = Record { mask: 0, kind: Kind::READ, by: By::All(0), warp: 0, count: 0, pc: 0 };

/// The accesses to 16 bytes.
#[derive(Clone, Debug)]
struct Chunk {
    near: [Record; NEAR],
    more: Vec<Record>,
}

const UNTOUCHED: Chunk = Chunk { near: [EMPTY; NEAR], more: Vec::new() };

/// Who accesses memory, and what it knows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Who<'a> {
    /// The warp's number in the grid.
    pub(crate) warp: u32,
    pub(crate) by: By,
    pub(crate) pc: u32,
    /// The warp's count, or [`NEVER`] for work that goes on.
    pub(crate) count: u32,
    pub(crate) view: &'a View,
    pub(crate) team: Team,
}

/// An earlier access that nothing orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Conflict {
    pub(crate) address: u64,
    /// The other warp's number in the grid, one of its lanes, and its operation.
    pub(crate) warp: u32,
    pub(crate) lane: u32,
    pub(crate) pc: u32,
    pub(crate) wrote: bool,
    /// Whether the accesses are ordered, but asynchronous work reads what no proxy fence stands behind.
    pub(crate) unfenced: bool,
}

/// Bytes that lanes of a warp access together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) start: u64,
    pub(crate) bytes: u64,
    pub(crate) by: By,
    /// The last lane of it.
    last: usize,
}

/// The bytes that some lanes of a warp access, `bytes` each, neighbours together.
pub(crate) fn runs(addresses: &Lanes<u64>, bytes: u32, active: u32) -> Vec<Run> {
    let mut order: Lanes<u8> = [0; 32];
    let mut count = 0;
    let (mut sorted, mut before) = (true, 0);
    for lane in lanes(active) {
        (order[count], count) = (lane as u8, count + 1);
        sorted &= before <= addresses[lane];
        before = addresses[lane];
    }
    let order = &mut order[..count];
    if !sorted {
        order.sort_by_key(|&lane| addresses[usize::from(lane)]);
    }
    let shift = bytes.max(1).ilog2() as u8;
    let all = u64::from(bytes);
    let mut runs: Vec<Run> = Vec::new();
    for lane in order.iter().map(|&lane| usize::from(lane)) {
        let start = addresses[lane];
        if let Some(run) = runs.last_mut() {
            if run.start == start && run.bytes == all {
                let known = match run.by {
                    By::All(mask) => mask,
                    By::Each { first, .. } => 1 << first,
                };
                run.by = By::All(known | 1 << lane);
                continue;
            }
            let follows = run.start.wrapping_add(run.bytes) == start && run.last + 1 == lane;
            if follows && matches!(run.by, By::Each { .. }) && bytes.is_power_of_two() {
                (run.bytes, run.last) = (run.bytes + all, lane);
                continue;
            }
        }
        // Lanes that share an address never lie next to each other here, but for the last of a run.
        let by =
            if bytes.is_power_of_two() { By::Each { first: lane as u32, shift } } else { By::lane(lane) };
        let shared =
            runs.last().is_some_and(|run| start < run.start.wrapping_add(run.bytes) && start > run.start);
        if shared && let Some(run) = runs.last_mut() {
            // The last lane of the run accesses the same bytes: cut it off.
            run.bytes -= all;
            let last = run.last;
            runs.push(Run { start, bytes: all, by: By::All(1 << last | 1 << lane), last });
            continue;
        }
        runs.push(Run { start, bytes: all, by, last: lane });
    }
    runs
}

/// Accesses and releases of a launch.
pub(crate) struct Races {
    pages: Vec<Mutex<HashMap<u64, Box<[Chunk]>>>>,
    words: Vec<Mutex<HashMap<u64, Word>>>,
    /// What the threads knew that executed `fence.sc` so far.
    fences: Mutex<Vec<Seen>>,
}

impl core::fmt::Debug for Races {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Races").finish_non_exhaustive()
    }
}

/// Whether each scope of two warps has the other in it.
pub(crate) fn together(a: Scope, b: Scope, (one, other): (u32, u32), team: Team) -> bool {
    let both = |scope: Scope| match scope {
        Scope::Cta => one / team.per_cta.max(1) == other / team.per_cta.max(1),
        Scope::Cluster => one / team.warps.max(1) == other / team.warps.max(1),
        Scope::Gpu | Scope::System => true,
    };
    both(a) && both(b)
}

impl Races {
    pub(crate) fn new() -> Self {
        let pages = (0..SHARDS).map(|_| Mutex::default()).collect();
        let words = (0..SHARDS).map(|_| Mutex::default()).collect();
        Self { pages, words, fences: Mutex::default() }
    }

    /// Remembers an access, unless it races with an earlier one.
    pub(crate) fn access(&self, address: u64, bytes: u64, kind: Kind, who: Who<'_>) -> Result<(), Conflict> {
        let end = address.saturating_add(bytes);
        let mut at = address;
        while at < end {
            let page = at / (CHUNK * PAGE);
            let until = end.min((page + 1).saturating_mul(CHUNK * PAGE));
            let shard = &self.pages[(page % SHARDS) as usize];
            let mut pages = shard.lock().unwrap_or_else(PoisonError::into_inner);
            let page = pages.entry(page).or_insert_with(|| vec![UNTOUCHED; PAGE as usize].into());
            while at < until {
                let first = at % CHUNK;
                let last = (until - at + first).min(CHUNK);
                let mask = ((1u32 << last) - (1u32 << first)) as u16;
                let chunk = &mut page[(at / CHUNK % PAGE) as usize];
                let who = Who { by: who.by.from(at - address).back(first), ..who };
                chunk.enter(mask, kind, who).map_err(|conflict| Conflict { address: at, ..conflict })?;
                at += last - first;
            }
        }
        Ok(())
    }

    /// Asynchronous writes of a lane's operation are done: they count as made in its warp's step `count`.
    pub(crate) fn settle(&self, address: u64, bytes: u64, (warp, lane, pc): (u32, usize, u32), count: u32) {
        let chunks = address / CHUNK..address.saturating_add(bytes).div_ceil(CHUNK);
        for chunk in chunks {
            let page = chunk / PAGE;
            let shard = &self.pages[(page % SHARDS) as usize];
            let mut pages = shard.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(page) = pages.get_mut(&page) else { continue };
            for record in page[(chunk % PAGE) as usize].records() {
                if (record.warp, record.pc, record.count, record.by) == (warp, pc, NEVER, By::lane(lane)) {
                    record.count = count;
                }
            }
        }
    }

    /// Executes `body` alone among all who access the word at `address` so.
    pub(crate) fn word<T>(&self, address: u64, body: impl FnOnce(&mut Word) -> T) -> T {
        let shard = &self.words[(address / 4 % SHARDS) as usize];
        let mut words = shard.lock().unwrap_or_else(PoisonError::into_inner);
        body(words.entry(address).or_default())
    }

    /// Executes `body` alone among all who execute `fence.sc`.
    pub(crate) fn in_fence_order<T>(&self, body: impl FnOnce(&mut Vec<Seen>) -> T) -> T {
        body(&mut self.fences.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Chunk {
    fn records(&mut self) -> impl Iterator<Item = &mut Record> {
        self.near.iter_mut().chain(&mut self.more)
    }

    /// Refuses an access that races with an earlier one, and forgets what it comes after.
    fn order(&mut self, mask: u16, kind: Kind, who: Who<'_>, fenced: &Clock) -> Result<(), Conflict> {
        let Who { warp, team, .. } = who;
        for record in self.near.iter_mut().chain(&mut self.more).filter(|record| record.mask & mask != 0) {
            if (record.warp, record.pc, record.count, record.kind) == (warp, who.pc, who.count, kind)
                && who.count != NEVER
            {
                // The same instruction: of several stores to one place one wins.
                continue;
            }
            if !kind.write && !record.kind.write && kind.asynchronous {
                // Two reads never race; of those of copies a few are kept ([`Chunk::enter`]).
                continue;
            }
            let both = record.mask & mask;
            let unknown = record.unknown(both, kind, who);
            let conflicts = record.kind.write || kind.write;
            let atomic = match (record.kind.atomic, kind.atomic) {
                (Some(a), Some(b)) => {
                    record.kind.size == kind.size && together(a, b, (record.warp, warp), team)
                }
                _ => false,
            };
            let lane = if unknown == 0 { record.by.lanes(both) } else { unknown };
            let conflict = Conflict {
                address: 0,
                warp: record.warp,
                lane: lane.trailing_zeros(),
                pc: record.pc,
                wrote: record.kind.write,
                unfenced: false,
            };
            if conflicts && unknown != 0 && !atomic {
                return Err(conflict);
            }
            let crosses = kind.asynchronous && record.kind.write && !record.kind.asynchronous;
            if crosses
                && unknown == 0
                && !fenced.covers(record.warp, record.by.lanes(both), record.count, team)
            {
                return Err(Conflict { unfenced: true, ..conflict });
            }
            // Who comes after this access comes after what it pushes out, unless it may come after this one for being
            // atomic and not after the other.
            let stands = match (kind.atomic, record.kind.atomic) {
                (None, _) => true,
                (Some(new), Some(old)) => old >= new && record.kind.size == kind.size,
                (Some(_), None) => false,
            };
            if unknown == 0 && stands && (kind.write || !record.kind.write) {
                record.mask &= !mask;
            }
        }
        Ok(())
    }

    fn enter(&mut self, mask: u16, kind: Kind, who: Who<'_>) -> Result<(), Conflict> {
        self.order(mask, kind, who, &who.view.fenced)?;
        let Who { warp, by, pc, count, .. } = who;
        let new = Record { mask, kind, by, warp, count, pc };
        // What other lanes did in the same step is one record with this.
        if let By::All(lanes) = by {
            for record in self.records() {
                if (record.mask, record.kind, record.warp, record.pc, record.count)
                    == (mask, kind, warp, pc, count)
                    && let By::All(known) = &mut record.by
                {
                    *known |= lanes;
                    return Ok(());
                }
            }
        }
        if let Some(place) = self.records().find(|record| record.mask == 0) {
            *place = new;
            return Ok(());
        }
        // Of operands that many copies read a few are enough: a write that comes too early races with each of them.
        let copied = |record: &&mut Record| !record.kind.write && record.kind.asynchronous;
        if kind.asynchronous
            && !kind.write
            && let Some(place) = self.records().find(copied)
        {
            *place = new;
        } else if NEAR + self.more.len() < REMEMBERED {
            self.more.push(new);
        } else {
            let place = self.more.iter().position(|record| !record.kind.write);
            let place = place.unwrap_or(count as usize % self.more.len().max(1));
            self.more[place] = new;
        }
        Ok(())
    }
}

impl Record {
    /// Lanes that did this to a byte and matter to those of the same warp that access it now.
    fn others(&self, theirs: u32, mine: u32) -> u32 {
        if mine.is_power_of_two() && !self.kind.write {
            theirs & !mine
        } else if mine & !theirs == 0 && (self.kind.write || mine == theirs && mine.is_power_of_two()) {
            // It wrote itself in the same step, and one of them has won.
            0
        } else {
            theirs
        }
    }

    /// Lanes that did this to some bytes, and of which those who access the bytes now do not know it.
    fn unknown(&self, bytes: u16, kind: Kind, who: Who<'_>) -> u32 {
        let Who { warp, by, view, team, .. } = who;
        let whole = view.known.of(self.warp, team) >= self.count;
        if whole {
            return 0;
        }
        // Who reuses what others have read need not see what they wrote.
        let reuses = kind.write && !self.kind.write;
        let known = |lane: usize| {
            let (warp, mask, count) = (self.warp, 1u32 << lane, self.count);
            let executed = reuses && view.executed_by(warp, mask, count, team);
            executed || view.known.covers(warp, mask, count, team)
        };
        let unknown =
            |mask: u32| lanes(mask).filter(|&lane| !known(lane)).fold(0, |all, lane| all | 1 << lane);
        if self.warp != warp || self.count == NEVER {
            return unknown(self.by.lanes(bytes));
        }
        // Each lane knows what it did itself.
        match (self.by, by) {
            (By::Each { .. }, By::Each { .. }) if self.by == by => 0,
            (By::All(theirs), By::All(mine)) => unknown(self.others(theirs, mine)),
            _ => (0..16u32)
                .filter(|bit| bytes >> bit & 1 == 1)
                .fold(0, |all, bit| all | unknown(self.others(self.by.lanes(1 << bit), by.lanes(1 << bit)))),
        }
    }
}

/// Accesses of threads to the shared memory of one CTA.
#[derive(Debug, Default)]
pub(crate) struct SharedRaces {
    pages: Vec<Option<Box<[Chunk]>>>,
}

impl SharedRaces {
    /// Remembers an access of threads, unless it races with an earlier one.
    pub(crate) fn access(
        &mut self,
        offset: u32,
        bytes: u32,
        kind: Kind,
        who: Who<'_>,
    ) -> Result<(), Conflict> {
        self.each(
            offset,
            bytes,
            true,
            |chunk, mask, by, at| {
                let entered = chunk.enter(mask, kind, Who { by, ..who });
                entered.map_err(|conflict| Conflict { address: at, ..conflict })
            },
            who.by,
        )
    }

    /// Refuses an access of asynchronous work that races with what threads did, or through the async `proxy` comes after a
    /// store with no proxy fence between, and forgets what it comes after. Who may
    /// touch the bytes afterwards is known by whom they belong to.
    pub(crate) fn order(
        &mut self,
        offset: u32,
        bytes: u32,
        (write, proxy): (bool, bool),
        who: Who<'_>,
    ) -> Result<(), Conflict> {
        let kind = if write { Kind::WRITE } else { Kind::READ };
        let kind = if proxy { kind.asynchronous() } else { kind };
        self.each(
            offset,
            bytes,
            false,
            |chunk, mask, by, at| {
                let ordered = chunk.order(mask, kind, Who { by, ..who }, &who.view.staged);
                ordered.map_err(|conflict| Conflict { address: at, ..conflict })
            },
            who.by,
        )
    }

    /// Whether no thread has accessed the neighbourhood of a range.
    pub(crate) fn untouched(&self, offset: u32, bytes: u32) -> bool {
        let pages =
            offset / (16 * SHARED_PAGE)..=offset.saturating_add(bytes.saturating_sub(1)) / (16 * SHARED_PAGE);
        pages.into_iter().all(|page| self.pages.get(page as usize).is_none_or(Option::is_none))
    }

    fn each(
        &mut self,
        offset: u32,
        bytes: u32,
        create: bool,
        mut body: impl FnMut(&mut Chunk, u16, By, u64) -> Result<(), Conflict>,
        by: By,
    ) -> Result<(), Conflict> {
        let (end, mut at) = (offset.saturating_add(bytes), offset);
        while at < end {
            let index = at / (16 * SHARED_PAGE);
            let until = end.min((index + 1) * 16 * SHARED_PAGE);
            let index = index as usize;
            if self.pages.len() <= index {
                if !create {
                    return Ok(());
                }
                self.pages.resize_with(index + 1, || None);
            }
            let page = match &mut self.pages[index] {
                Some(page) => page,
                None if !create => {
                    at = until;
                    continue;
                }
                place @ None => place.insert(vec![UNTOUCHED; SHARED_PAGE as usize].into()),
            };
            while at < until {
                let first = at % 16;
                let last = (until - at + first).min(16);
                let mask = ((1u32 << last) - (1u32 << first)) as u16;
                let chunk = &mut page[(at / 16 % SHARED_PAGE) as usize];
                body(chunk, mask, by.from((at - offset).into()).back(first.into()), at.into())?;
                at += last - first;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEAM: Team = Team { first: 0, warps: 2, per_cta: 1 };
    const OTHER: Team = Team { first: 2, warps: 2, per_cta: 1 };

    fn who(warp: u32, view: &View) -> Who<'_> {
        let team = if warp < 2 { TEAM } else { OTHER };
        Who { warp, by: By::All(1), pc: warp, count: 1, view, team }
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
        // Warp 0 comes first, warp 1 of another CTA of its cluster second; bytes of the second, and whether they race.
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

    #[test]
    fn work_in_flight_is_ordered_once_it_is_waited_for() {
        let races = Races::new();
        let mut friend = View::default();
        friend.known.raise(0, 5);
        let going = Who { count: NEVER, ..who(0, &friend) };
        races.access(0x2000, 256, Kind::WRITE.asynchronous(), going).unwrap();
        assert!(races.access(0x2010, 4, Kind::READ, who(1, &friend)).is_err());
        races.settle(0x2000, 256, (0, 0, 0), 5);
        assert!(races.access(0x2010, 4, Kind::READ, who(1, &friend)).is_ok());
    }
}
