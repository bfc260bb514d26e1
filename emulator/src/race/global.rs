//! The accesses to global memory, line by line.

use core::ops::Range;
use std::collections::hash_map::Entry;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::chunk::{CHUNK, Chunk, Claim, Place, Record};
use super::history::{Histories, NONE, Step};
use super::observed::{Link, Words};
use super::{Conflict, Kind, Who};
use crate::hash::Numbered;
use crate::word::{Releases, Word};

/// Number of bytes of a line.
const LINE: u64 = 128;
const CHUNKS: usize = (LINE / CHUNK) as usize;
/// Number of lines of a page.
const PAGE: u64 = 32;
/// Number of locks.
const SHARDS: u64 = 64;
/// The accesses to a line.
#[derive(Clone, Debug, Default)]
struct Line {
    /// Reads of whole chunks by copies, with one mask bit per chunk. Used while the line has no other
    /// accesses, as for the operands of a kernel, which are most of its accesses.
    history: u32,
    /// After the first other access: the accesses of each chunk.
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
        if self.chunks.is_none()
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
        let chunks = self.chunks.get_or_insert_with(|| {
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
                .enter(mask, kind, who, (&who.view.fenced, Place { address: at - first, words: races }))
                .map_err(|conflict| Conflict { address: at, ..conflict })?;
            at += last - first;
        }
        Ok(())
    }

    fn settle(&mut self, pc: u32, (from, to): (Claim, Claim), histories: &Mutex<Histories>) {
        if self.history != NONE {
            self.history = locked(histories).settled(self.history, pc, (from, to));
        }
        let records = self.chunks.iter_mut().flat_map(|chunks| chunks.iter_mut()).flat_map(Chunk::records);
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

/// Accesses and releases of a launch.
pub(crate) struct Races {
    pages: Vec<Mutex<Numbered<Box<[Line]>>>>,
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
        let mut last = None;
        for (address, bytes) in ranges {
            self.lines(address, bytes, true, |line, at, end| {
                let who = Who { by: who.by.from(at - address), ..who };
                line.access(at..end, kind, who, (self, &mut last))
            })?;
        }
        Ok(())
    }

    /// Replaces the claim of an operation's accesses: the asynchronous work has been waited for, so now it
    /// has a count.
    pub(crate) fn settle(&self, (address, bytes): (u64, u64), pc: u32, from: Claim, to: Claim) {
        let _nothing_is_refused = self.lines(address, bytes, false, |line, _, _| {
            line.settle(pc, (from, to), &self.histories);
            Ok(())
        });
    }

    /// Calls `body` per line of a range, with the part of the range in that line. `create`: also for lines
    /// without accesses so far.
    fn lines(
        &self,
        address: u64,
        bytes: u64,
        create: bool,
        mut body: impl FnMut(&mut Line, u64, u64) -> Result<(), Conflict>,
    ) -> Result<(), Conflict> {
        let end = address.saturating_add(bytes);
        let mut at = address;
        while at < end {
            let number = at / (LINE * PAGE);
            let until = end.min((number + 1).saturating_mul(LINE * PAGE));
            let shard = &self.pages[(number % SHARDS) as usize];
            let mut pages = locked(shard);
            let page = match pages.entry(number) {
                Entry::Occupied(page) => page.into_mut(),
                Entry::Vacant(place) if create => place.insert(vec![Line::default(); PAGE as usize].into()),
                Entry::Vacant(_) => {
                    at = until;
                    continue;
                }
            };
            while at < until {
                let next = until.min((at / LINE + 1).saturating_mul(LINE));
                body(&mut page[(at / LINE % PAGE) as usize], at, next)?;
                at = next;
            }
        }
        Ok(())
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
