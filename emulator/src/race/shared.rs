//! The accesses of threads, and of copies that they issue, to the shared memory of one CTA.

use std::collections::BTreeMap;

use super::chunk::{Chunk, Place, UNTOUCHED};
use super::observed::{Link, Words};
use super::{By, Conflict, Kind, Who};
use crate::word::Word;

/// Number of chunks of a page of shared memory.
const SHARED_PAGE: u32 = 64;

/// Accesses of threads to the shared memory of one CTA.
#[derive(Debug)]
pub(crate) struct SharedRaces {
    /// The CTA's rank.
    rank: usize,
    pages: Vec<Option<Box<[Chunk]>>>,
    words: SharedWords,
}

/// The words that atomic or ordered accesses use, by offset.
#[derive(Debug)]
struct SharedWords {
    rank: usize,
    words: BTreeMap<u32, Word>,
}

impl Words for SharedWords {
    fn key(&self, address: u64) -> u64 {
        key(self.rank, address as u32)
    }

    fn made(&self, address: u64, by: (u32, u32, u32)) -> Option<Link> {
        self.words.get(&(address as u32))?.made(by)
    }
}

/// The number that identifies a word of the shared memory of the CTA with this rank. It is below all addresses of
/// global memory.
pub(crate) const fn key(rank: usize, offset: u32) -> u64 {
    (rank as u64) << 32 | offset as u64
}

/// Whether a word is in global memory.
pub(crate) const fn is_global(key: u64) -> bool {
    key >> 40 != 0
}

impl SharedRaces {
    /// No accesses to the shared memory of the CTA with this rank.
    pub(crate) fn new(rank: u32) -> Self {
        let words = SharedWords { rank: rank as usize, words: BTreeMap::new() };
        Self { rank: rank as usize, pages: Vec::new(), words }
    }

    /// The word at an offset.
    pub(crate) fn word(&mut self, offset: u32) -> &mut Word {
        self.words.words.entry(offset).or_default()
    }

    /// Remembers an access of threads, unless it races with an earlier one.
    pub(crate) fn access(
        &mut self,
        offset: u32,
        bytes: u32,
        kind: Kind,
        who: Who<'_>,
    ) -> Result<(), Conflict> {
        let staged = who.view.staged(self.rank);
        self.each(
            offset,
            bytes,
            true,
            |chunk, mask, by, (at, words)| {
                let place = Place { address: at & !15, words };
                let entered = chunk.enter(mask, kind, Who { by, ..who }, (staged, place));
                entered.map_err(|conflict| Conflict { address: at, ..conflict })
            },
            who.by,
        )
    }

    /// Refuses an access of asynchronous work that races with an access of a thread. With `proxy` (the async
    /// proxy), also refuses one that follows a store without a proxy fence between them. Removes the records
    /// of accesses that it comes after. Later accesses are checked by the ownership of the bytes
    /// ([`crate::shared`]).
    pub(crate) fn order(
        &mut self,
        offset: u32,
        bytes: u32,
        (write, proxy): (bool, bool),
        who: Who<'_>,
    ) -> Result<(), Conflict> {
        let kind = if write { Kind::WRITE } else { Kind::READ };
        let kind = if proxy { kind.asynchronous() } else { kind };
        let staged = who.view.staged(self.rank);
        self.each(
            offset,
            bytes,
            false,
            |chunk, mask, by, (at, words)| {
                let place = Place { address: at & !15, words };
                let ordered = chunk.order(mask, kind, Who { by, ..who }, (staged, place));
                ordered.map_err(|conflict| Conflict { address: at, ..conflict })
            },
            who.by,
        )
    }

    /// Whether no thread has accessed any page that the range touches.
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
        mut body: impl FnMut(&mut Chunk, u16, By, (u64, &dyn Words)) -> Result<(), Conflict>,
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
                let by = by.from((at - offset).into()).back(first.into());
                body(chunk, mask, by, (at.into(), &self.words))?;
                at += last - first;
            }
        }
        Ok(())
    }
}
