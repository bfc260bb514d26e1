//! The accesses to global memory, line by line.

use core::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::chunk::{CHUNK, Chunk, Claim, Place, Record, UNTOUCHED};
use super::history::{Histories, NONE, Step};
use super::observed::{Link, Words};
use super::{By, Conflict, Kind, Who};
use crate::hash::Numbered;
use crate::word::{Releases, Word};

/// Number of bytes of a line.
const LINE: u64 = 128;
const CHUNKS: usize = (LINE / CHUNK) as usize;
/// Number of lines of a page.
const PAGE: u64 = 256;
/// Number of locks.
const SHARDS: u64 = 64;
/// The accesses to a line.
#[derive(Clone, Debug, Default)]
struct Line {
    /// Reads of whole chunks by copies, with one mask bit per chunk. Used while the line has no other
    /// accesses, as for the operands of a kernel, which are most of its accesses.
    history: u32,
    /// After the first other access: what each chunk has, while all have the same.
    alike: Option<Box<Chunk>>,
    /// After the first access that they do not have in common: the accesses of each chunk.
    chunks: Option<Box<[Chunk; CHUNKS]>>,
}

impl Line {
    fn access(
        &mut self,
        range: Range<u64>,
        kind: Kind,
        who: Who<'_>,
        (races, last): (&Races, &mut Step),
    ) -> Result<(), Conflict> {
        let histories = &races.histories;
        if self.alike.is_none()
            && self.chunks.is_none()
            && kind.asynchronous
            && !kind.write
            && let Some(read) = whole(&range, kind, who)
        {
            self.history = match *last {
                Some((known, before, after)) if (known, before) == (read, self.history) => after,
                _ => {
                    let after = locked(histories).after(read, self.history);
                    *last = Some((read, self.history, after));
                    after
                }
            };
            return Ok(());
        }
        let history = core::mem::replace(&mut self.history, NONE);
        // What asynchronous work makes of a whole line is the same in each chunk.
        let alike =
            kind.asynchronous && range.end - range.start == LINE && !matches!(who.by, By::Each { .. });
        let place = |address: u64| Place { address, words: races };
        if history == NONE && alike && self.chunks.is_none() {
            let chunk = self.alike.get_or_insert_with(|| Box::new(UNTOUCHED));
            return chunk
                .enter(u16::MAX, kind, who, (&who.view.fenced, place(range.start)))
                .map_err(|conflict| Conflict { address: range.start, ..conflict });
        }
        let alike = self.alike.take();
        let chunks = self.chunks.get_or_insert_with(|| {
            if let Some(one) = alike {
                return Box::new(core::array::from_fn(|_| Chunk::clone(&one)));
            }
            let reads: Vec<Record> = locked(histories).reads(history).collect();
            Box::new(core::array::from_fn(|at| {
                let here = reads.iter().filter(|read| read.mask >> at & 1 == 1);
                Chunk::of(here.map(|read| Record { mask: u16::MAX, ..*read }))
            }))
        });
        let mut at = range.start;
        while at < range.end {
            let first = at % CHUNK;
            let last = (range.end - at + first).min(CHUNK);
            let mask = ((1u32 << last) - (1u32 << first)) as u16;
            let chunk = &mut chunks[(at % LINE / CHUNK) as usize];
            let who = Who { by: who.by.from(at - range.start).back(first), ..who };
            chunk
                .enter(mask, kind, who, (&who.view.fenced, place(at - first)))
                .map_err(|conflict| Conflict { address: at, ..conflict })?;
            at += last - first;
        }
        Ok(())
    }

    fn settle(&mut self, pc: u32, (from, to): (Claim, Claim), histories: &Mutex<Histories>) {
        if self.history != NONE {
            self.history = locked(histories).settled(self.history, pc, (from, to));
        }
        let each = self.chunks.iter_mut().flat_map(|chunks| chunks.iter_mut());
        let records = self.alike.as_deref_mut().into_iter().chain(each).flat_map(Chunk::records);
        for record in records.filter(|record| (record.pc, record.claim()) == (pc, from)) {
            (record.warp, record.by, record.count) = to;
        }
    }
}

/// The read of whole chunks of a line, with one mask bit per chunk. `None` if it reads a part of a chunk.
fn whole(range: &Range<u64>, kind: Kind, who: Who<'_>) -> Option<Record> {
    if !range.start.is_multiple_of(CHUNK) || !range.end.is_multiple_of(CHUNK) {
        return None;
    }
    let first = range.start % LINE;
    let (first, last) = (first / CHUNK, (first + range.end - range.start) / CHUNK);
    Some(who.record(((1u32 << last) - (1u32 << first)) as u16, kind))
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Consecutive lines.
type Page = Arc<Mutex<Box<[Line]>>>;

/// Calls `body` per line of a range in a page, with the part of the range in that line.
#[inline]
fn each_line(
    (mut at, end): (u64, u64),
    lines: &mut [Line],
    mut body: impl FnMut(&mut Line, u64, u64) -> Result<(), Conflict>,
) -> Result<(), Conflict> {
    while at < end {
        let next = end.min((at / LINE + 1).saturating_mul(LINE));
        body(&mut lines[(at / LINE % PAGE) as usize], at, next)?;
        at = next;
    }
    Ok(())
}

/// Accesses and releases of a launch.
pub(crate) struct Races {
    pages: Vec<Mutex<Numbered<Page>>>,
    histories: Mutex<Histories>,
    words: Vec<Mutex<Numbered<Word>>>,
    /// What the threads knew that have executed `fence.sc` so far.
    fences: Mutex<Releases>,
}

impl core::fmt::Debug for Races {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Races").finish_non_exhaustive()
    }
}

impl Words for Races {
    fn key(&self, address: u64) -> u64 {
        address
    }

    fn made(&self, address: u64, by: (u32, u32, u32)) -> Option<Link> {
        locked(&self.words[(address / 4 % SHARDS) as usize]).get(&address)?.made(by)
    }
}

impl Races {
    pub(crate) fn new() -> Self {
        let pages = (0..SHARDS).map(|_| Mutex::default()).collect();
        let words = (0..SHARDS).map(|_| Mutex::default()).collect();
        Self { pages, histories: Mutex::default(), words, fences: Mutex::default() }
    }

    /// Remembers an access, unless it races with an earlier one.
    pub(crate) fn access(&self, address: u64, bytes: u64, kind: Kind, who: Who<'_>) -> Result<(), Conflict> {
        self.access_all([(address, bytes)].into_iter(), kind, who)
    }

    /// The same for several ranges, each an address and a number of bytes.
    pub(crate) fn access_all(
        &self,
        ranges: impl Iterator<Item = (u64, u64)>,
        kind: Kind,
        who: Who<'_>,
    ) -> Result<(), Conflict> {
        let (mut last, mut ranges) = (None, ranges.peekable());
        while let Some((address, bytes)) = ranges.next() {
            let mut line = |line: &mut Line, at: u64, end: u64, address: u64| {
                let who = Who { by: who.by.from(at - address), ..who };
                line.access(at..end, kind, who, (self, &mut last))
            };
            let number = address / (LINE * PAGE);
            let within = |&(address, bytes): &(u64, u64)| {
                bytes > 0
                    && address / (LINE * PAGE) == number
                    && (address + (bytes - 1)) / (LINE * PAGE) == number
            };
            if address.checked_add(bytes).is_none() || !within(&(address, bytes)) {
                self.lines((address, bytes), true, |one, at, end| line(one, at, end, address))?;
                continue;
            }
            // The ranges of a copy are near each other.
            let Some(page) = self.page(number, true) else { continue };
            let mut lines = locked(&page);
            let mut next = Some((address, bytes));
            while let Some((address, bytes)) = next {
                each_line((address, address + bytes), &mut lines, |one, at, end| {
                    line(one, at, end, address)
                })?;
                next = ranges.next_if(|(address, bytes)| {
                    address.checked_add(*bytes).is_some() && within(&(*address, *bytes))
                });
            }
        }
        Ok(())
    }

    /// Replaces the claim of an operation's accesses: the asynchronous work has been waited for, so now it
    /// has a count.
    pub(crate) fn settle(&self, (address, bytes): (u64, u64), pc: u32, from: Claim, to: Claim) {
        let _nothing_is_refused = self.lines((address, bytes), false, |line, _, _| {
            line.settle(pc, (from, to), &self.histories);
            Ok(())
        });
    }

    /// Calls `body` per line of a range, with the part of the range in that line. `create`: also for lines
    /// without accesses so far.
    fn lines(
        &self,
        (address, bytes): (u64, u64),
        create: bool,
        mut body: impl FnMut(&mut Line, u64, u64) -> Result<(), Conflict>,
    ) -> Result<(), Conflict> {
        let end = address.saturating_add(bytes);
        let mut at = address;
        while at < end {
            let number = at / (LINE * PAGE);
            let until = end.min((number + 1).saturating_mul(LINE * PAGE));
            if let Some(page) = self.page(number, create) {
                each_line((at, until), &mut locked(&page), &mut body)?;
            }
            at = until;
        }
        Ok(())
    }

    /// The page with a number; `None` if it has no accesses and is not to be created.
    fn page(&self, number: u64, create: bool) -> Option<Page> {
        let mut pages = locked(&self.pages[(number % SHARDS) as usize]);
        if create {
            let fresh = || Arc::new(Mutex::new(vec![Line::default(); PAGE as usize].into()));
            return Some(Arc::clone(pages.entry(number).or_insert_with(fresh)));
        }
        pages.get(&number).map(Arc::clone)
    }

    /// Calls `body` with the word at `address`, under the lock of that word.
    pub(crate) fn word<T>(&self, address: u64, body: impl FnOnce(&mut Word) -> T) -> T {
        let shard = &self.words[(address / 4 % SHARDS) as usize];
        let mut words = locked(shard);
        body(words.entry(address).or_default())
    }

    /// Calls `body` with what earlier `fence.sc` instructions published, under a lock.
    pub(crate) fn in_fence_order<T>(&self, body: impl FnOnce(&mut Releases) -> T) -> T {
        body(&mut locked(&self.fences))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{Team, View};
    use crate::schedule::Random;

    /// Random accesses to a line at once, and to its chunks one after the other: the verdicts are the same.
    #[test]
    fn a_line_is_judged_as_its_chunks_are() {
        const TEAM: Team = Team { first: 0, warps: 3, per_cta: 1, gpus: None };
        let mut random = Random::new(7, 0);
        let mut refused = 0;
        for _ in 0..4000 {
            let (lines, chunks) = (Races::new(), Races::new());
            for count in 1..8 {
                let whole = random.below(4) > 0;
                let (first, last) =
                    if whole { (0, 8) } else { (random.below(4) as u64, 5 + random.below(4) as u64) };
                let (warp, mut view) = (random.below(3) as u32, View::default());
                for other in 0..3 {
                    let known =
                        if random.below(40) > 0 { count } else { random.below(count as usize) as u32 };
                    view.known.raise(other, if other == warp as usize { count } else { known });
                }
                if random.below(4) > 0 {
                    view.fence_proxy();
                }
                let kind = if random.below(2) == 0 { Kind::READ } else { Kind::WRITE };
                let kind = if random.below(3) > 0 { kind.asynchronous() } else { kind };
                let by = By::lane(random.below(2));
                let who = Who {
                    warp,
                    by,
                    pc: random.below(3) as u32,
                    count,
                    view: &view,
                    team: TEAM,
                    until: None,
                    repeats: false,
                };
                let at_once = lines.access(LINE + first * CHUNK, (last - first) * CHUNK, kind, who);
                let mut parts = first..last;
                let apart = parts.try_for_each(|at| chunks.access(LINE + at * CHUNK, CHUNK, kind, who));
                assert_eq!(at_once, apart);
                if at_once.is_err() {
                    refused += 1;
                    break;
                }
                if random.below(4) == 0 {
                    let (from, to) = ((warp, by, count), (warp, by, count + 9));
                    lines.settle((LINE, LINE), who.pc, from, to);
                    chunks.settle((LINE, LINE), who.pc, from, to);
                }
            }
        }
        assert!((1000..3900).contains(&refused), "{refused}");
    }
}
