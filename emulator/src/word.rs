//! A word with atomic or ordered accesses, and the older values that a read may still return.
//!
//! The *coherence order* of the writes of a word is not the order in which they are executed. A write takes
//! its place after every write that its thread knows, has made or has read, and before none that an atomic
//! operation has already read ([`Word::places`]). A read may return any write that is not hidden from the
//! reader: a later write hides it if the reader knows the later write, or knows a read that returned it. An
//! atomic operation takes a place as a write does, and reads the write before that place; so one whose result
//! nobody has used may be made again on another value. Sources: PTX ISA 8.9 "Axioms" (coherence, causality,
//! atomicity); Kang et al., "A promising semantics for relaxed-memory concurrency", POPL 2017, without
//! promises: a read never returns a write of which the execution is still to come (load buffering).

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use ptx::Scope;
use ptx::inst::{AtomicOp, AtomicType};

use crate::clock::{Letter, Team, View};
use crate::numerics::changed;
use crate::race::Link;
use crate::trie::{Combined, Trie};

/// A release: its scope, the releasing warp, and what the releasing thread knew.
pub(crate) type Release = (Scope, u32, Arc<Letter>);

/// The value of a word with these bytes in memory.
pub(crate) fn from_bytes(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |all, &byte| all << 8 | u64::from(byte))
}

/// Number of values that are kept, including the last one.
const KEPT: usize = 8;
/// Number of writes of one thread that can be told apart, when another thread has seen one of them.
const MADE: usize = 4;
/// Number of consecutive accesses of a thread that may miss the last write. The next one sees it.
const PATIENCE: u32 = 4;

/// Which of the allowed writes a read returns, and which of the allowed places a write takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// The last one.
    Newest,
    /// The first one, until the thread has missed the last write often enough.
    Oldest,
    /// The last one, or the one that this number selects.
    Any(u64),
}

/// The releases that a read of a write may acquire: its own, and through atomic operations those of the writes
/// before it (PTX ISA 8.9 "Observation order").
#[derive(Clone, Debug, Default)]
pub(crate) struct Releases {
    /// The number of the write with which the chain of atomic operations began.
    chain: u64,
    /// All those with the scope of the device or wider.
    wide: Option<Arc<Letter>>,
    /// Each of them, by scope and warp ([`Releases::key`]).
    each: Trie<Arc<Letter>>,
}

/// The content of two letters.
fn both(mine: &Arc<Letter>, theirs: &Arc<Letter>) -> Combined<Arc<Letter>> {
    if Arc::ptr_eq(mine, theirs) {
        return Combined::First;
    }
    let mut all = Arc::clone(mine);
    Arc::make_mut(&mut all).append(theirs);
    Combined::New(all)
}

impl Releases {
    fn key(scope: Scope, warp: u32) -> u128 {
        (scope as u128) << 32 | u128::from(warp)
    }

    fn of_key(key: u128) -> (Scope, u32) {
        (Scope::ALL[(key >> 32) as usize], key as u32)
    }

    pub(crate) fn add(&mut self, (scope, warp, letter): &Release) {
        if *scope >= Scope::Gpu {
            match &mut self.wide {
                Some(wide) => Arc::make_mut(wide).append(letter),
                None => self.wide = Some(Arc::clone(letter)),
            }
        }
        self.each.add(Self::key(*scope, *warp), Arc::clone(letter), &both);
    }

    /// Adds the releases of other writes.
    pub(crate) fn extend(&mut self, other: &Self) {
        match (&mut self.wide, &other.wide) {
            (Some(mine), Some(theirs)) if !Arc::ptr_eq(mine, theirs) => Arc::make_mut(mine).append(theirs),
            (Some(_), _) => {}
            (mine, theirs) => mine.clone_from(theirs),
        }
        self.each.join(&other.each, &both);
    }

    /// What an acquire in a scope by a warp gets to know.
    pub(crate) fn visible(&self, scope: Scope, warp: u32, team: Team) -> impl Iterator<Item = &Arc<Letter>> {
        // With several GPUs, no scope below the system's includes all.
        let all = scope >= Scope::Gpu && team.gpus.is_none();
        let wide = self.wide.iter().filter(move |_| all);
        let each = self.each.below(if all { Self::key(Scope::Gpu, 0) } else { u128::MAX });
        let each = each.filter(move |(key, _)| {
            let (by_scope, by) = Self::of_key(*key);
            team.together(by_scope, scope, (by, warp))
        });
        wide.chain(each.map(|(_, letter)| letter))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.each.is_empty()
    }

    /// Whether these are all releases of other ones of the same word, and perhaps more.
    pub(crate) fn follows(&self, other: &Self) -> bool {
        self.chain == other.chain && self.each.len() >= other.each.len()
    }
}

/// What a thread publishes with a write: the scope of the write, what it releases if it is a release, and what
/// the last fences of the thread have published, with the scope of each fence.
#[derive(Clone, Debug)]
pub(crate) struct Publishes {
    pub(crate) scope: Scope,
    /// Whether the access also acquires.
    pub(crate) acquires: bool,
    pub(crate) release: Option<Arc<Letter>>,
    pub(crate) fences: Vec<(Scope, Arc<Letter>)>,
}

/// How a write got its value.
#[derive(Clone, Copy)]
pub(crate) enum Made<'c> {
    /// By a store.
    Stored(u64),
    /// By an atomic operation with a result. The function maps the old value to the new one, if there is one.
    Changed(&'c dyn Fn(u64) -> Option<u64>),
    /// By a reduction, which has no result. It may be made on any old value.
    Reduced(Reduce),
}

/// The operation of a reduction on one element: operation, type, whether subnormals are flushed, and operand.
pub(crate) type Reduce = (AtomicOp, AtomicType, bool, u64);

/// The result of a write.
#[derive(Clone, Debug, Default)]
pub(crate) struct Done {
    /// The number of the write before it, and the value of that.
    pub(crate) before: u64,
    pub(crate) old: u64,
    /// What an atomic operation with a result may acquire. A reduction acquires nothing (PTX ISA "red").
    pub(crate) releases: Releases,
    /// The write that it has seen.
    pub(crate) observed: Option<Link>,
    /// The value that the word has now; `None` if there was no write.
    pub(crate) new: Option<u64>,
}

/// A write, and what it releases.
#[derive(Clone, Debug)]
struct Write {
    /// Its number. Numbers do not follow the coherence order.
    id: u64,
    value: u64,
    /// The writing warp's number in the grid, the lane and the warp's count. The count is 0 if every thread
    /// knows the write.
    warp: u32,
    lane: u32,
    count: u32,
    scope: Scope,
    /// What its own thread releases with it.
    own: Vec<Release>,
    releases: Releases,
    /// Whether it is part of an atomic operation.
    atomic: bool,
    /// Whether it and all writes of its chain before it are releases: who acquires it knows them all.
    released: bool,
    /// The reduction that made it, while no read has returned it.
    reduce: Option<Reduce>,
    /// The threads whose last access returned it, by warp and lanes, with the warp's count at that time.
    seen: BTreeMap<(u32, u32), u32>,
}

/// The last access of a thread, or of lanes that read in one step.
#[derive(Clone, Copy, Debug)]
struct Reader {
    /// The number of the write that it returned, and the number of consecutive accesses that missed the last
    /// write.
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
    /// The kept writes in coherence order, oldest first.
    writes: VecDeque<Write>,
    /// The number of the next write.
    next: u64,
    /// By warp and lanes.
    readers: BTreeMap<(u32, u32), Reader>,
    /// The last release of each thread by an access to this word, by warp, lane and scope. Later strong writes
    /// of the thread to the word release it too (PTX ISA 8.8 "Release and acquire patterns").
    released: BTreeMap<(u32, u32, Scope), Arc<Letter>>,
    /// The last writes of each thread, by warp and lane: the warp's count, and the write.
    made: HashMap<(u32, u32), VecDeque<(u32, Link)>>,
}

impl Word {
    /// Tells the word its current value in memory, which plain stores and copies may have changed.
    pub(crate) fn holds(&mut self, value: u64, bytes: u32) {
        let last = self.writes.back().map(|write| write.value);
        if last != Some(value) || self.bytes != bytes {
            self.bytes = bytes;
            self.writes.clear();
            self.readers.clear();
            self.next += 1;
            let releases = Releases { chain: self.next, ..Releases::default() };
            let (own, scope) = (Vec::new(), Scope::System);
            let (atomic, released, reduce) = (false, false, None);
            let id = self.next;
            let write = Write {
                id,
                value,
                warp: 0,
                lane: 0,
                count: 0,
                scope,
                own,
                releases,
                atomic,
                released,
                reduce,
                seen: BTreeMap::new(),
            };
            self.writes.push_back(write);
        }
    }

    /// The number of the warp that wrote the word last, if known.
    pub(crate) fn writer(&self) -> Option<u32> {
        self.writes.back().filter(|write| write.count > 0).map(|write| write.warp)
    }

    fn last(&self) -> usize {
        self.writes.len().saturating_sub(1)
    }

    /// The position of the first write that is not hidden from a thread.
    fn oldest(&self, who: Visitor<'_>) -> usize {
        let known = |write: &Write| who.knows(write.warp, 1 << write.lane, write.count);
        let written = self.writes.iter().rposition(known).unwrap_or(0);
        let later = |at: usize| {
            self.writes[at].seen.iter().any(|(&(warp, lanes), &count)| who.knows(warp, lanes, count))
        };
        (written + 1..self.writes.len()).rev().find(|&at| later(at)).unwrap_or(written)
    }

    /// Which of some positions a thread gets. The last one of them does not miss the last write.
    fn chosen(&self, who: Visitor<'_>, choice: Choice, allowed: &[usize]) -> usize {
        let (first, last) = (allowed.first().copied().unwrap_or(0), allowed.last().copied().unwrap_or(0));
        let stale = self.readers.get(&(who.warp, who.lanes)).map_or(0, |reader| reader.stale);
        match choice {
            Choice::Newest => last,
            _ if stale >= PATIENCE => last,
            Choice::Oldest => first,
            Choice::Any(number) if number % 2 == 0 => last,
            Choice::Any(number) => {
                let at = (number >> 1) as usize % allowed.len().max(1);
                allowed.get(at).copied().unwrap_or(last)
            }
        }
    }

    /// Remembers that lanes have seen the write at a position.
    fn sees(&mut self, who: Visitor<'_>, at: usize) {
        let (last, key) = (self.last(), (who.warp, who.lanes));
        let before = self.readers.get(&key).copied();
        let before_at =
            before.and_then(|reader| self.writes.iter().position(|write| write.id == reader.write));
        if let Some(write) = before_at.and_then(|at| self.writes.get_mut(at)) {
            write.seen.remove(&key);
        }
        let Some(write) = self.writes.get_mut(at) else { return };
        write.reduce = None;
        write.seen.insert(key, who.count);
        let stale = if at < last { before.map_or(0, |reader| reader.stale) + 1 } else { 0 };
        self.readers.insert(key, Reader { write: write.id, stale });
    }

    /// The strong write that a lane of a warp made at this count of the warp.
    pub(crate) fn made(&self, (warp, lane, count): (u32, u32, u32)) -> Option<Link> {
        let made = self.made.get(&(warp, lane))?;
        made.iter().rev().find(|(at, _)| *at == count).map(|(_, link)| *link)
    }

    /// What a thread that reads in a scope has seen, if it returns the write at a position: nothing, if the two
    /// are not atomic with respect to each other.
    /// With an acquire, nothing is left to see of a chain of releases.
    fn observed(&self, who: Visitor<'_>, (scope, acquires): (Scope, bool), at: usize) -> Option<Link> {
        let write = self.writes.get(at).filter(|write| !(acquires && write.released))?;
        let strong = write.count > 0 && who.team.together(scope, write.scope, (who.warp, write.warp));
        let chain = write.releases.chain;
        let of_chain = |write: &&Write| write.releases.chain == chain;
        let last = self.writes.range(..=at).filter(of_chain).map(|write| write.id).max()?;
        strong.then_some((chain, last))
    }

    /// A read. Returns the number of the write that it sees, its value and its releases, and what it has seen.
    pub(crate) fn read(
        &mut self,
        who: Visitor<'_>,
        (scope, acquires): (Scope, bool),
        choice: Choice,
    ) -> (u64, u64, &Releases, Option<Link>) {
        let mut at = self.last();
        if self.writes.len() > 1 {
            if choice != Choice::Newest {
                let allowed: Vec<usize> = (self.oldest(who)..=at).collect();
                at = self.chosen(who, choice, &allowed);
            }
            self.sees(who, at);
        }
        let observed = self.observed(who, (scope, acquires), at);
        let write = &self.writes[at];
        (write.id, write.value, &write.releases, observed)
    }

    /// The positions that a new write of a thread may take.
    fn places(&self, who: Visitor<'_>) -> Vec<usize> {
        // No write may come between an atomic operation with a result and the write that it has read.
        let fixed = |write: &Write| write.atomic && write.reduce.is_none();
        let open =
            |at: usize| self.writes.range(at..).take_while(|write| write.atomic).all(|write| !fixed(write));
        let end = self.writes.len();
        (self.oldest(who) + 1..end).filter(|&at| open(at)).chain([end]).collect()
    }

    /// A write, with what its thread publishes with it. `history`: older values may be read later.
    pub(crate) fn write(
        &mut self,
        made: Made<'_>,
        who: Visitor<'_>,
        publishes: Publishes,
        (choice, history): (Choice, bool),
    ) -> Done {
        let end = self.writes.len();
        let newest = !history || end < 2 || choice == Choice::Newest;
        let at = if newest { end } else { self.chosen(who, choice, &self.places(who)) };
        let before = &self.writes[at - 1];
        let (id, old) = (before.id, before.value);
        let mut done = Done { before: id, old, ..Done::default() };
        let value = match made {
            Made::Stored(value) => value,
            Made::Changed(change) => {
                done.releases = before.releases.clone();
                done.observed = self.observed(who, (publishes.scope, publishes.acquires), at - 1);
                if history {
                    self.sees(who, at - 1);
                }
                match change(old) {
                    Some(value) => value,
                    None => return done,
                }
            }
            Made::Reduced((op, ty, flush, b)) => changed(op, ty, flush, old, b),
        };
        let reduce = if let Made::Reduced(reduce) = made { Some(reduce) } else { None };
        let (scope, is_release) = (publishes.scope, publishes.release.is_some());
        let own = self.published(who, publishes);
        self.next += 1;
        let write = Write {
            id: self.next,
            value,
            warp: who.warp,
            lane: who.lanes.trailing_zeros(),
            count: who.count,
            scope,
            own,
            releases: Releases::default(),
            atomic: !matches!(made, Made::Stored(_)),
            released: is_release,
            reduce,
            seen: BTreeMap::new(),
        };
        self.writes.insert(at, write);
        self.carry_on(at, history);
        let link =
            self.writes.get(at).map_or((self.next, self.next), |write| (write.releases.chain, write.id));
        let made = self.made.entry((who.warp, who.lanes.trailing_zeros())).or_default();
        made.push_back((who.count, link));
        if made.len() > MADE {
            made.pop_front();
        }
        while self.writes.len() > if history { KEPT } else { 1 } {
            self.writes.pop_front();
        }
        Done { new: self.writes.back().map(|write| write.value), ..done }
    }

    /// The releases of a write. With a write that is no release itself, its thread releases again what it has
    /// released by earlier accesses to this word.
    fn published(&mut self, who: Visitor<'_>, publishes: Publishes) -> Vec<Release> {
        let Publishes { scope, acquires: _, release, fences } = publishes;
        let (warp, lane) = (who.warp, who.lanes.trailing_zeros());
        if let Some(letter) = release {
            self.released.insert((warp, lane, scope), Arc::clone(&letter));
            return vec![(scope, warp, letter)];
        }
        let earlier = self.released.range((warp, lane, Scope::Cta)..=(warp, lane, Scope::System));
        let earlier = earlier.map(|(&(.., by), letter)| (scope.min(by), warp, Arc::clone(letter)));
        earlier.chain(fences.into_iter().map(|(by, letter)| (scope.min(by), warp, letter))).collect()
    }

    /// Computes the releases of the write at a position, and the values and releases of the atomic operations
    /// after it.
    fn carry_on(&mut self, first: usize, history: bool) {
        for at in first..self.writes.len() {
            let (before, rest) = self.writes.make_contiguous().split_at_mut(at);
            let (Some(before), Some(write)) = (before.last_mut(), rest.first_mut()) else { return };
            if at > first && !write.atomic {
                return;
            }
            if let (true, Some((op, ty, flush, b))) = (at > first, write.reduce) {
                write.value = changed(op, ty, flush, before.value, b);
            }
            write.released &= !write.atomic || before.released;
            write.releases = match (write.atomic, history) {
                (false, _) => Releases { chain: write.id, ..Releases::default() },
                (true, true) => before.releases.clone(),
                (true, false) => core::mem::take(&mut before.releases),
            };
            for release in &write.own {
                write.releases.add(release);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEAM: Team = Team { first: 0, warps: 2, per_cta: 1, gpus: None };
    const OTHER: Team = Team { first: 2, warps: 2, per_cta: 1, gpus: None };
    const SILENT: Publishes =
        Publishes { scope: Scope::Gpu, acquires: false, release: None, fences: Vec::new() };

    fn visitor(warp: u32, count: u32, view: &View) -> Visitor<'_> {
        let team = if warp < 2 { TEAM } else { OTHER };
        Visitor { warp, lanes: 1, count, view, team }
    }

    fn word(values: &[u64], view: &View) -> Word {
        let mut word = Word::default();
        word.holds(0, 4);
        for (&value, count) in values.iter().zip(1..) {
            word.write(Made::Stored(value), visitor(0, count, view), SILENT, (Choice::Newest, true));
        }
        word
    }

    fn add(word: &mut Word, warp: u32, (by, result): (u64, bool), choice: Choice) -> (u64, Option<u64>) {
        let (stranger, change) = (View::default(), move |old| Some(old + by));
        let reduce = (AtomicOp::Add, AtomicType::U32, false, by);
        let made = if result { Made::Changed(&change) } else { Made::Reduced(reduce) };
        let done = word.write(made, visitor(warp, 9, &stranger), SILENT, (choice, true));
        (done.old, done.new)
    }

    #[test]
    fn releases_reach_their_scope() {
        let mut view = View::default();
        view.known.raise(0, 9);
        let stranger = View::default();
        let acquired = |word: &mut Word, scope, warp, team| {
            let (_, _, releases, _) =
                word.read(visitor(warp, 1, &stranger), (Scope::Gpu, false), Choice::Newest);
            let mut mine = View::default();
            releases.visible(scope, warp, team).for_each(|letter| mine.read(letter, team));
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
                let last = (Choice::Newest, history);
                let letter = Some(Arc::new(view.write(TEAM)));
                let publishes =
                    Publishes { scope: release, acquires: false, release: letter, fences: Vec::new() };
                word.write(Made::Stored(1), visitor(0, 9, &view), publishes, last);
                assert_eq!(acquired(&mut word, acquire, warp, team), want, "{why}");
                word.write(Made::Changed(&|_| Some(2)), visitor(1, 1, &stranger), SILENT, last);
                assert_eq!(acquired(&mut word, acquire, warp, team), want, "{why}, behind an atomic");
                word.write(Made::Stored(3), visitor(1, 1, &stranger), SILENT, last);
                assert_eq!(acquired(&mut word, acquire, warp, team), 0, "{why}, behind a plain store");
                word.write(Made::Stored(4), visitor(0, 12, &view), SILENT, last);
                assert_eq!(acquired(&mut word, acquire, warp, team), want, "{why}, behind its own store");
            }
        }
    }

    #[test]
    fn old_values_are_seen_as_far_as_nothing_hides_them() {
        let stranger = View::default();
        let mut word = word(&[1, 2, 3], &stranger);
        let mut read =
            |warp, view: &View, choice| word.read(visitor(warp, 9, view), (Scope::Gpu, false), choice).1;
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
        let mut word = word(&[1], &stranger);
        let reads: Vec<u64> = (0..8)
            .map(|_| word.read(visitor(1, 1, &stranger), (Scope::Gpu, false), Choice::Oldest).1)
            .collect();
        assert_eq!(reads, [0, 0, 0, 0, 1, 1, 1, 1]);
        word.holds(7, 4);
        assert_eq!(
            word.read(visitor(1, 1, &stranger), (Scope::Gpu, false), Choice::Oldest).1,
            7,
            "a plain store hides all"
        );
    }

    #[test]
    fn an_atomic_misses_what_nothing_orders() {
        let stranger = View::default();
        let (reduced, given) = (false, true);
        let mut sums = word(&[], &stranger);
        assert_eq!(add(&mut sums, 1, (1, reduced), Choice::Oldest), (0, Some(1)));
        assert_eq!(add(&mut sums, 2, (2, given), Choice::Oldest), (0, Some(3)), "before the sum of warp 1");
        assert_eq!(add(&mut sums, 3, (4, given), Choice::Oldest), (2, Some(7)), "after what was returned");
        assert_eq!(add(&mut sums, 1, (8, given), Choice::Oldest), (7, Some(15)), "after its own");
        let mut stored = word(&[5], &stranger);
        assert_eq!(add(&mut stored, 1, (1, given), Choice::Oldest), (0, Some(5)), "the store comes last");
        let read = stored.read(visitor(2, 9, &stranger), (Scope::Gpu, false), Choice::Oldest).1;
        assert_eq!(read, 0);
        assert_eq!(add(&mut stored, 1, (1, given), Choice::Oldest), (1, Some(5)));
        // A lock: taken by warp 1, given back by a store, and taken by warp 2.
        let mut lock = word(&[], &stranger);
        let mut take = |warp, choice| {
            let free = |old| (old == 0).then_some(1);
            lock.write(Made::Changed(&free), visitor(warp, 9, &stranger), SILENT, (choice, true)).new
        };
        assert_eq!(take(1, Choice::Newest), Some(1));
        for number in 0..8 {
            assert_eq!(take(3 + number, Choice::Any(u64::from(number))), None, "never between");
        }
    }
}
