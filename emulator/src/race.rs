//! Accesses to global memory that nothing orders.
//!
//! For each 16 bytes the last four accesses are remembered: which bytes, whose, in which of that warp's steps, and how.
//! Two accesses to one byte of which one writes are a race, unless one comes after the other ([`crate::clock`]) or both
//! are atomic for each other. A race with an access that four others have pushed out goes unseen.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use ptx::Scope;

use crate::clock::{Letter, NEVER, Team, View};

/// Accesses that are remembered for each chunk.
const REMEMBERED: usize = 4;
/// Bytes of a chunk, a bit each.
const CHUNK: u64 = 16;
/// Chunks of a page.
const PAGE: u64 = 256;
/// Locks.
const SHARDS: u64 = 64;

/// How memory is accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    pub(crate) write: bool,
    /// For whom the access is one step; `None` where it is a plain one.
    pub(crate) atomic: Option<Scope>,
    /// Whether asynchronous work does it.
    pub(crate) asynchronous: bool,
}

impl Kind {
    pub(crate) const READ: Self = Self { write: false, atomic: None, asynchronous: false };
    pub(crate) const WRITE: Self = Self { write: true, ..Self::READ };

    pub(crate) const fn atomic(self, scope: Scope) -> Self {
        Self { atomic: Some(scope), ..self }
    }

    pub(crate) const fn asynchronous(self) -> Self {
        Self { asynchronous: true, ..self }
    }
}

/// An access to up to 16 bytes.
#[derive(Clone, Copy, Debug)]
struct Record {
    /// No byte: an empty place.
    mask: u16,
    kind: Kind,
    warp: u32,
    count: u32,
    pc: u32,
}

const EMPTY: Record = Record { mask: 0, kind: Kind::READ, warp: 0, count: 0, pc: 0 };

type Page = [[Record; REMEMBERED]; PAGE as usize];

/// Who accesses memory, and what it knows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Who<'a> {
    /// The warp's number in the grid.
    pub(crate) warp: u32,
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
    /// The other warp's number in the grid, and its operation.
    pub(crate) warp: u32,
    pub(crate) pc: u32,
    pub(crate) wrote: bool,
    /// Whether the accesses are ordered, but asynchronous work reads what no proxy fence stands behind.
    pub(crate) unfenced: bool,
}

/// What has been released at a word.
#[derive(Debug, Default)]
pub(crate) struct Released {
    letters: Vec<(Scope, u32, Letter)>,
}

/// Accesses and releases of a launch.
pub(crate) struct Races {
    pages: Vec<Mutex<HashMap<u64, Box<Page>>>>,
    words: Vec<Mutex<HashMap<u64, Released>>>,
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
        Self { pages, words }
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
            let page = pages.entry(page).or_insert_with(|| Box::new([[EMPTY; REMEMBERED]; PAGE as usize]));
            while at < until {
                let first = at % CHUNK;
                let last = (until - at + first).min(CHUNK);
                let mask = ((1u32 << last) - (1u32 << first)) as u16;
                let chunk = &mut page[(at / CHUNK % PAGE) as usize];
                enter(chunk, mask, kind, who).map_err(|conflict| Conflict { address: at, ..conflict })?;
                at += last - first;
            }
        }
        Ok(())
    }

    /// Asynchronous writes of a warp's operation are done: they count as made in its step `count`.
    pub(crate) fn settle(&self, address: u64, bytes: u64, (warp, pc): (u32, u32), count: u32) {
        let chunks = address / CHUNK..address.saturating_add(bytes).div_ceil(CHUNK);
        for chunk in chunks {
            let page = chunk / PAGE;
            let shard = &self.pages[(page % SHARDS) as usize];
            let mut pages = shard.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(page) = pages.get_mut(&page) else { continue };
            for record in &mut page[(chunk % PAGE) as usize] {
                if (record.warp, record.pc, record.count) == (warp, pc, NEVER) {
                    record.count = count;
                }
            }
        }
    }

    /// Executes `body` alone among all who access the word at `address` so.
    pub(crate) fn word<T>(&self, address: u64, body: impl FnOnce(&mut Released) -> T) -> T {
        let shard = &self.words[(address / 4 % SHARDS) as usize];
        let mut words = shard.lock().unwrap_or_else(PoisonError::into_inner);
        body(words.entry(address).or_default())
    }
}

fn enter(chunk: &mut [Record; REMEMBERED], mask: u16, kind: Kind, who: Who<'_>) -> Result<(), Conflict> {
    let Who { warp, pc, count, view, team } = who;
    for record in chunk.iter_mut().filter(|record| record.mask & mask != 0) {
        let conflict = Conflict {
            address: 0,
            warp: record.warp,
            pc: record.pc,
            wrote: record.kind.write,
            unfenced: false,
        };
        let conflicts = record.kind.write || kind.write;
        let own = record.warp == warp && record.count != NEVER;
        // Who reuses what others have read need not see what they wrote.
        let reuses = kind.write && !record.kind.write;
        let at = if reuses { view.executed_by(record.warp, team) } else { view.known.of(record.warp, team) };
        let known = own || at >= record.count;
        let atomic = match (record.kind.atomic, kind.atomic) {
            (Some(a), Some(b)) => together(a, b, (record.warp, warp), team),
            _ => false,
        };
        if conflicts && !known && !atomic {
            return Err(conflict);
        }
        let crosses = kind.asynchronous && record.kind.write && !record.kind.asynchronous;
        if crosses && known && view.fenced.of(record.warp, team) < record.count {
            return Err(Conflict { unfenced: true, ..conflict });
        }
        // Who comes after this access comes after what it has pushed out.
        if known && (kind.write || !record.kind.write) {
            record.mask &= !mask;
        }
    }
    let new = Record { mask, kind, warp, count, pc };
    let place = chunk.iter().position(|record| record.mask == 0);
    let place = place.or_else(|| chunk.iter().position(|record| !record.kind.write));
    chunk[place.unwrap_or(count as usize % REMEMBERED)] = new;
    Ok(())
}

impl Released {
    /// A write that releases in a scope, or that releases nothing; `keeps` where it reads what it replaces, as then
    /// the earlier releases stay visible.
    pub(crate) fn write(&mut self, letter: Option<(Scope, u32, Letter)>, keeps: bool) {
        if !keeps {
            self.letters.clear();
        }
        let Some((scope, warp, letter)) = letter else { return };
        match self.letters.iter_mut().find(|(known, by, _)| (*known, *by) == (scope, warp)) {
            Some((_, _, known)) => known.append(&letter),
            None => self.letters.push((scope, warp, letter)),
        }
    }

    /// What a warp's read in a scope acquires.
    pub(crate) fn read(
        &self,
        scope: Scope,
        warp: u32,
        team: Team,
    ) -> impl Iterator<Item = &(Scope, u32, Letter)> {
        let visible =
            move |(by_scope, by, _): &&(Scope, u32, Letter)| together(*by_scope, scope, (*by, warp), team);
        self.letters.iter().filter(visible)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEAM: Team = Team { first: 0, warps: 2, per_cta: 1 };
    const OTHER: Team = Team { first: 2, warps: 2, per_cta: 1 };

    fn who(warp: u32, view: &View) -> Who<'_> {
        let team = if warp < 2 { TEAM } else { OTHER };
        Who { warp, pc: warp, count: 1, view, team }
    }

    #[test]
    fn pairs_of_accesses() {
        let stranger = View::default();
        let mut friend = View::default();
        friend.known.raise(0, 1);
        let mut fenced = friend.clone();
        fenced.fence_proxy();
        let (read, write) = (Kind::READ, Kind::WRITE);
        let atomic = |scope| Kind::WRITE.atomic(scope);
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
        races.settle(0x2000, 256, (0, 0), 5);
        assert!(races.access(0x2010, 4, Kind::READ, who(1, &friend)).is_ok());
    }

    #[test]
    fn releases_reach_their_scope() {
        let mut view = View::default();
        view.known.raise(0, 9);
        let acquired = |released: &Released, scope, warp, team| {
            let mut mine = View::default();
            released.read(scope, warp, team).for_each(|(_, _, letter)| mine.read(letter, team));
            mine.known.of(0, team)
        };
        for (why, release, acquire, warp, team, want) in [
            ("the gpu's", Scope::Gpu, Scope::Gpu, 3, OTHER, 9),
            ("the cluster's, from another", Scope::Cluster, Scope::Gpu, 3, OTHER, 0),
            ("the cluster's, from it", Scope::Cluster, Scope::Gpu, 1, TEAM, 9),
            ("the CTA's, from another", Scope::Cta, Scope::Gpu, 1, TEAM, 0),
            ("acquired too narrowly", Scope::Gpu, Scope::Cta, 3, OTHER, 0),
        ] {
            let mut released = Released::default();
            released.write(Some((release, 0, view.write(TEAM))), false);
            assert_eq!(acquired(&released, acquire, warp, team), want, "{why}");
            released.write(None, true);
            assert_eq!(acquired(&released, acquire, warp, team), want, "{why}, behind an atomic");
            released.write(None, false);
            assert_eq!(acquired(&released, acquire, warp, team), 0, "{why}, behind a plain store");
        }
    }
}
