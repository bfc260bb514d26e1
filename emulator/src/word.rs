//! A word with atomic or ordered accesses, and the older values that a relaxed read may still return.
//!
//! A relaxed read may return any write that is not hidden from the reader. A later write hides it if the
//! reader knows the later write, or knows a read that returned it. The order of the writes is the order in
//! which they are executed. An atomic operation reads the last write. Sources: PTX ISA 8.9 "Axioms"
//! (coherence, causality, atomicity); Kang et al., "A promising semantics for relaxed-memory concurrency",
//! POPL 2017, without promises.

use std::collections::VecDeque;

use ptx::Scope;

use crate::clock::{Letter, Team, View};
use crate::race::together;

/// A release that a read has seen: its scope, the releasing warp, and what that warp knew.
pub(crate) type Seen = (Scope, u32, Letter);

/// Number of values that are kept, including the last one.
const KEPT: usize = 8;
/// Maximum number of threads for which the last read is kept.
const READERS: usize = 256;
/// Number of consecutive reads of a thread that may return an old value. The next one returns the last write.
const PATIENCE: u32 = 4;

/// Which of the allowed writes a read returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// The last one.
    Newest,
    /// The first one, until the reader has read old values often enough.
    Oldest,
    /// The last one, or the one that this number selects.
    Any(u64),
}

/// A write, and what it releases.
#[derive(Clone, Debug, Default)]
struct Write {
    value: u64,
    /// The writing warp's number in the grid, the lane and the warp's count. The count is 0 if every thread
    /// knows the write.
    warp: u32,
    lane: u32,
    count: u32,
    releases: Vec<Seen>,
}

/// The last read of a thread, or of lanes that read in one step.
#[derive(Clone, Copy, Debug)]
struct Reader {
    warp: u32,
    lanes: u32,
    count: u32,
    /// The number of the write that it returned, and the number of consecutive reads that did not return the
    /// last write.
    write: u64,
    stale: u32,
}

/// The lanes that access a word, and what they know.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Visitor<'a> {
    /// The warp's number in the grid, and the lanes that access the word together.
    pub(crate) warp: u32,
    pub(crate) lanes: u32,
    pub(crate) count: u32,
    pub(crate) view: &'a View,
    pub(crate) team: Team,
}

impl Visitor<'_> {
    fn knows(&self, warp: u32, lanes: u32, count: u32) -> bool {
        let own = warp == self.warp && lanes & self.lanes != 0;
        own || self.view.known.covers(warp, lanes, count, self.team)
    }
}

/// A word in global or shared memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct Word {
    bytes: u32,
    /// The kept writes, oldest first.
    writes: VecDeque<Write>,
    /// The number of the oldest kept write.
    first: u64,
    readers: Vec<Reader>,
}

impl Word {
    /// Tells the word its current value in memory, which plain stores and copies may have changed.
    pub(crate) fn holds(&mut self, value: u64, bytes: u32) {
        let last = self.writes.back().map(|write| write.value);
        if last != Some(value) || self.bytes != bytes {
            self.first += self.writes.len() as u64;
            self.bytes = bytes;
            self.writes.clear();
            self.readers.clear();
            self.writes.push_back(Write { value, ..Write::default() });
        }
    }

    fn last(&self) -> u64 {
        (self.first + self.writes.len() as u64).saturating_sub(1)
    }

    /// The number of the warp that wrote the word last, if known.
    pub(crate) fn writer(&self) -> Option<u32> {
        self.writes.back().filter(|write| write.count > 0).map(|write| write.warp)
    }

    /// The read of an atomic operation: it returns the last write.
    pub(crate) fn newest(&self) -> u64 {
        self.writes.back().map_or(0, |write| write.value)
    }

    /// A read. Returns the number of the write that it sees, and its value.
    pub(crate) fn read(&mut self, who: Visitor<'_>, choice: Choice) -> (u64, u64) {
        let last = self.last();
        if self.writes.len() > 1 {
            let known = |write: &Write| who.knows(write.warp, 1 << write.lane, write.count);
            let written = self.writes.iter().rposition(known).unwrap_or(0) as u64 + self.first;
            let seen =
                self.readers.iter().filter(|reader| who.knows(reader.warp, reader.lanes, reader.count));
            let oldest = seen.map(|reader| reader.write).fold(written, u64::max).clamp(self.first, last);
            let own = self.readers.iter().position(|by| (by.warp, by.lanes) == (who.warp, who.lanes));
            let stale = own.map_or(0, |index| self.readers[index].stale);
            let write = match choice {
                Choice::Newest => last,
                _ if stale >= PATIENCE => last,
                Choice::Oldest => oldest,
                Choice::Any(number) if number % 2 == 0 => last,
                Choice::Any(number) => oldest + (number >> 1) % (last - oldest + 1),
            };
            let stale = if write < last { stale + 1 } else { 0 };
            let reader = Reader { warp: who.warp, lanes: who.lanes, count: who.count, write, stale };
            match own {
                Some(index) => self.readers[index] = reader,
                None if self.readers.len() < READERS => self.readers.push(reader),
                None => {}
            }
            return (write, self.at(write).value);
        }
        (last, self.newest())
    }

    fn at(&self, number: u64) -> &Write {
        let index = usize::try_from(number.saturating_sub(self.first)).unwrap_or(0);
        &self.writes[index.min(self.writes.len() - 1)]
    }

    /// The releases that a read of `write` in a scope may acquire.
    pub(crate) fn releases(
        &self,
        write: u64,
        scope: Scope,
        warp: u32,
        team: Team,
    ) -> impl Iterator<Item = &Seen> {
        let visible = move |(by_scope, by, _): &&Seen| together(*by_scope, scope, (*by, warp), team);
        self.at(write).releases.iter().filter(visible)
    }

    /// A write, with what it releases. `keeps`: it is part of an atomic operation, so the releases of the
    /// write that it replaces stay visible. `history`: older values may be read later.
    pub(crate) fn write(
        &mut self,
        value: u64,
        who: Visitor<'_>,
        release: Option<Seen>,
        (keeps, history): (bool, bool),
    ) {
        let mut releases = match self.writes.back_mut() {
            Some(last) if keeps && history => last.releases.clone(),
            Some(last) if keeps => core::mem::take(&mut last.releases),
            Some(_) | None => Vec::new(),
        };
        if let Some(release) = release {
            add_release(&mut releases, release);
        }
        let lane = who.lanes.trailing_zeros();
        self.writes.push_back(Write { value, warp: who.warp, lane, count: who.count, releases });
        while self.writes.len() > if history { KEPT } else { 1 } {
            self.writes.pop_front();
            self.first += 1;
        }
    }
}

/// Adds a release to a list.
pub(crate) fn add_release(releases: &mut Vec<Seen>, (scope, warp, letter): Seen) {
    match releases.iter_mut().find(|(known, by, _)| (*known, *by) == (scope, warp)) {
        Some((_, _, known)) => known.append(&letter),
        None => releases.push((scope, warp, letter)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEAM: Team = Team { first: 0, warps: 2, per_cta: 1 };
    const OTHER: Team = Team { first: 2, warps: 2, per_cta: 1 };

    fn visitor(warp: u32, count: u32, view: &View) -> Visitor<'_> {
        let team = if warp < 2 { TEAM } else { OTHER };
        Visitor { warp, lanes: 1, count, view, team }
    }

    #[test]
    fn releases_reach_their_scope() {
        let mut view = View::default();
        view.known.raise(0, 9);
        let stranger = View::default();
        let acquired = |word: &mut Word, scope, warp, team| {
            let (write, _) = word.read(visitor(warp, 1, &stranger), Choice::Newest);
            let mut mine = View::default();
            word.releases(write, scope, warp, team).for_each(|(_, _, letter)| mine.read(letter, team));
            mine.known.of(0, team)
        };
        for (why, release, acquire, warp, team, want) in [
            ("the gpu's", Scope::Gpu, Scope::Gpu, 3, OTHER, 9),
            ("the cluster's, from another", Scope::Cluster, Scope::Gpu, 3, OTHER, 0),
            ("the cluster's, from it", Scope::Cluster, Scope::Gpu, 1, TEAM, 9),
            ("the CTA's, from another", Scope::Cta, Scope::Gpu, 1, TEAM, 0),
            ("acquired too narrowly", Scope::Gpu, Scope::Cta, 3, OTHER, 0),
        ] {
            for history in [false, true] {
                let mut word = Word::default();
                word.holds(0, 4);
                let release = Some((release, 0, view.write(TEAM)));
                word.write(1, visitor(0, 9, &view), release, (false, history));
                assert_eq!(acquired(&mut word, acquire, warp, team), want, "{why}");
                word.write(2, visitor(1, 1, &stranger), None, (true, history));
                assert_eq!(acquired(&mut word, acquire, warp, team), want, "{why}, behind an atomic");
                word.write(3, visitor(1, 1, &stranger), None, (false, history));
                assert_eq!(acquired(&mut word, acquire, warp, team), 0, "{why}, behind a plain store");
            }
        }
    }

    #[test]
    fn old_values_are_seen_as_far_as_nothing_hides_them() {
        let stranger = View::default();
        let mut word = Word::default();
        word.holds(0, 4);
        for value in 1..=3 {
            word.write(value, visitor(0, value as u32, &stranger), None, (false, true));
        }
        let mut read = |warp, view: &View, choice| word.read(visitor(warp, 9, view), choice).1;
        assert_eq!(read(0, &stranger, Choice::Oldest), 3, "its own writes");
        assert_eq!(read(1, &stranger, Choice::Oldest), 0);
        assert_eq!(read(1, &stranger, Choice::Newest), 3);
        assert_eq!(read(1, &stranger, Choice::Oldest), 3, "never back behind what it has read");
        let mut told = View::default();
        told.known.raise(0, 2);
        assert_eq!(read(3, &stranger, Choice::Oldest), 0);
        assert_eq!(read(2, &View::default(), Choice::Oldest), 0);
        let mut told_far = View::default();
        told_far.read(&told.write(TEAM), OTHER);
        assert_eq!(read(2, &told_far, Choice::Oldest), 2, "what it was told hides what came before");
    }

    #[test]
    fn who_looks_again_and_again_sees_the_last_write() {
        let stranger = View::default();
        let mut word = Word::default();
        word.holds(0, 4);
        word.write(1, visitor(0, 1, &stranger), None, (false, true));
        let reads: Vec<u64> = (0..8).map(|_| word.read(visitor(1, 1, &stranger), Choice::Oldest).1).collect();
        assert_eq!(reads, [0, 0, 0, 0, 1, 1, 1, 1]);
        word.holds(7, 4);
        assert_eq!(word.read(visitor(1, 1, &stranger), Choice::Oldest).1, 7, "a plain store hides all");
    }
}
