//! The accesses of threads, and of copies that they issue, to the shared memory of one CTA.

use super::chunk::{Chunk, UNTOUCHED};
use super::{By, Conflict, Kind, Who};

/// Number of chunks of a page of shared memory.
const SHARED_PAGE: u32 = 64;

/// Accesses of threads to the shared memory of one CTA.
#[derive(Debug)]
pub(crate) struct SharedRaces {
    /// The CTA's rank.
    rank: usize,
    pages: Vec<Option<Box<[Chunk]>>>,
}

impl SharedRaces {
    /// No accesses to the shared memory of the CTA with this rank.
    pub(crate) fn new(rank: u32) -> Self {
        Self { rank: rank as usize, pages: Vec::new() }
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
            |chunk, mask, by, at| {
                let entered = chunk.enter(mask, kind, Who { by, ..who }, staged);
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
            |chunk, mask, by, at| {
                let ordered = chunk.order(mask, kind, Who { by, ..who }, staged);
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
