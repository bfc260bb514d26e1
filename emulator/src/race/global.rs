//! The accesses to global memory, line by line.

use core::ops::Range;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use super::chunk::{CHUNK, Chunk, Claim, Record, UNTOUCHED};
use super::{Conflict, Kind, Who};
use crate::word::{Seen, Word};

/// Number of bytes of a line.
const LINE: u64 = 128;
const CHUNKS: usize = (LINE / CHUNK) as usize;
/// Number of lines of a page.
const PAGE: u64 = 32;
/// Number of locks.
const SHARDS: u64 = 64;
/// Number of reads of copies that a line keeps while nothing else has accessed it.
const READS: usize = 2;

/// The accesses to a line.
#[derive(Clone, Debug, Default)]
struct Line {
    /// Reads of whole chunks by copies, with one mask bit per chunk. Used while the line has no other
    /// accesses, as for the operands of a kernel, which are most of its accesses.
    reads: [Record; READS],
    /// After the first other access: the accesses of each chunk.
    chunks: Option<Box<[Chunk; CHUNKS]>>,
}

impl Line {
    fn access(&mut self, range: Range<u64>, kind: Kind, who: Who<'_>) -> Result<(), Conflict> {
        if self.chunks.is_none() && kind.asynchronous && !kind.write && self.read(&range, kind, who) {
            return Ok(());
        }
        let reads = core::mem::take(&mut self.reads);
        let chunks =
            self.chunks.get_or_insert_with(|| Box::new(core::array::from_fn(|at| opened(&reads, at))));
        let mut at = range.start;
        while at < range.end {
            let first = at % CHUNK;
            let last = (range.end - at + first).min(CHUNK);
            let mask = ((1u32 << last) - (1u32 << first)) as u16;
            let chunk = &mut chunks[(at % LINE / CHUNK) as usize];
            let who = Who { by: who.by.from(at - range.start).back(first), ..who };
            chunk
                .enter(mask, kind, who, &who.view.fenced)
                .map_err(|conflict| Conflict { address: at, ..conflict })?;
            at += last - first;
        }
        Ok(())
    }

    /// Remembers that a copy reads whole chunks. Returns whether `reads` can hold it.
    fn read(&mut self, range: &Range<u64>, kind: Kind, who: Who<'_>) -> bool {
        if !range.start.is_multiple_of(CHUNK) || !range.end.is_multiple_of(CHUNK) {
            return false;
        }
        let first = range.start % LINE;
        let (first, last) = (first / CHUNK, (first + range.end - range.start) / CHUNK);
        let new = who.record(((1u32 << last) - (1u32 << first)) as u16, kind);
        let later = |old: &&mut Record| old.mask == 0 || old.is_before(&new);
        if let Some(place) = self.reads.iter_mut().find(later) {
            *place = new;
            return true;
        }
        // The last reads are enough if they cover the same chunks.
        let same = self.reads.iter().all(|old| old.mask & !new.mask == 0);
        if same {
            self.reads.rotate_right(1);
            self.reads[0] = new;
        }
        same
    }

    fn records(&mut self) -> impl Iterator<Item = &mut Record> {
        let chunks = self.chunks.iter_mut().flat_map(|chunks| chunks.iter_mut());
        self.reads.iter_mut().chain(chunks.flat_map(Chunk::records))
    }
}

/// The chunk at index `at` of a line that only copies have read so far.
fn opened(reads: &[Record; READS], at: usize) -> Chunk {
    let mut chunk = UNTOUCHED;
    for (place, read) in chunk.near.iter_mut().zip(reads.iter().filter(|read| read.mask >> at & 1 == 1)) {
        *place = Record { mask: u16::MAX, ..*read };
    }
    chunk
}

/// Accesses and releases of a launch.
pub(crate) struct Races {
    pages: Vec<Mutex<HashMap<u64, Box<[Line]>>>>,
    words: Vec<Mutex<HashMap<u64, Word>>>,
    /// What the threads knew that have executed `fence.sc` so far.
    fences: Mutex<Vec<Seen>>,
}

impl core::fmt::Debug for Races {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Races").finish_non_exhaustive()
    }
}

impl Races {
    pub(crate) fn new() -> Self {
        let pages = (0..SHARDS).map(|_| Mutex::default()).collect();
        let words = (0..SHARDS).map(|_| Mutex::default()).collect();
        Self { pages, words, fences: Mutex::default() }
    }

    /// Remembers an access, unless it races with an earlier one.
    pub(crate) fn access(&self, address: u64, bytes: u64, kind: Kind, who: Who<'_>) -> Result<(), Conflict> {
        self.lines(address, bytes, true, |line, at, end| {
            line.access(at..end, kind, Who { by: who.by.from(at - address), ..who })
        })
    }

    /// Replaces the claim of an operation's accesses: the asynchronous work has been waited for, so now it
    /// has a count.
    pub(crate) fn settle(&self, (address, bytes): (u64, u64), pc: u32, from: Claim, to: Claim) {
        let _nothing_is_refused = self.lines(address, bytes, false, |line, _, _| {
            let records = line.records();
            for record in records.filter(|record| (record.pc, record.claim()) == (pc, from)) {
                (record.warp, record.by, record.count) = to;
            }
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
            let mut pages = shard.lock().unwrap_or_else(PoisonError::into_inner);
            if create && !pages.contains_key(&number) {
                pages.insert(number, vec![Line::default(); PAGE as usize].into());
            }
            let Some(page) = pages.get_mut(&number) else {
                at = until;
                continue;
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
        let mut words = shard.lock().unwrap_or_else(PoisonError::into_inner);
        body(words.entry(address).or_default())
    }

    /// Calls `body` with what earlier `fence.sc` instructions published, under a lock.
    pub(crate) fn in_fence_order<T>(&self, body: impl FnOnce(&mut Vec<Seen>) -> T) -> T {
        body(&mut self.fences.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
