//! The accesses that are remembered for 16 bytes.

use super::{By, Conflict, Kind, Who, together};
use crate::clock::{Clock, NEVER};
use crate::warp::lanes;

/// Number of bytes of a chunk. Masks have one bit per byte.
pub(super) const CHUNK: u64 = 16;
/// Number of accesses that are kept in the chunk itself.
const NEAR: usize = 4;
/// Maximum number of accesses that are remembered per chunk. A race with an access that was dropped is not
/// found.
const REMEMBERED: usize = 64;

/// The number in the grid that counts an access, the lanes that made it, and the count.
pub(crate) type Claim = (u32, By, u32);

/// An access to up to 16 bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    /// The bytes accessed; 0 for an empty record.
    pub(super) mask: u16,
    pub(super) kind: Kind,
    pub(super) by: By,
    /// The warp's number in the grid, or for a copy the number of the phases that it is waited for by; and
    /// the count.
    pub(super) warp: u32,
    pub(super) count: u32,
    pub(super) pc: u32,
}

const EMPTY: Record = Record { mask: 0, kind: Kind::READ, by: By::All(0), warp: 0, count: 0, pc: 0 };

/// The accesses to 16 bytes.
#[derive(Clone, Debug)]
pub(super) struct Chunk {
    pub(super) near: [Record; NEAR],
    more: Vec<Record>,
}

pub(super) const UNTOUCHED: Chunk = Chunk { near: [EMPTY; NEAR], more: Vec::new() };

impl Default for Record {
    fn default() -> Self {
        EMPTY
    }
}

impl Who<'_> {
    /// The record of an access.
    pub(super) fn record(&self, mask: u16, kind: Kind) -> Record {
        let Who { warp, by, pc, count, .. } = *self;
        match self.until {
            Some((number, count)) => {
                let by = By::Copy { warp, lane: by.first() as u8 };
                Record { mask, kind, by, warp: number, count, pc }
            }
            None => Record { mask, kind, by, warp, count, pc },
        }
    }
}

impl Chunk {
    pub(super) fn records(&mut self) -> impl Iterator<Item = &mut Record> {
        self.near.iter_mut().chain(&mut self.more)
    }

    /// Refuses an access that races with an earlier one. Removes the records of accesses that it comes after.
    pub(super) fn order(
        &mut self,
        mask: u16,
        kind: Kind,
        who: Who<'_>,
        fenced: &Clock,
    ) -> Result<(), Conflict> {
        let Who { warp, team, .. } = who;
        for record in self.near.iter_mut().chain(&mut self.more).filter(|record| record.mask & mask != 0) {
            if (record.warp, record.pc, record.count, record.kind) == (warp, who.pc, who.count, kind)
                && who.count != NEVER
            {
                // The same instruction: one of several stores to the same bytes wins.
                continue;
            }
            if record.warp == warp && record.is_done_again(mask, kind, who.by) {
                continue;
            }
            if !kind.write && !record.kind.write && kind.asynchronous {
                // Two reads never race. Only a few reads of copies are kept ([`Chunk::enter`]).
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
            if conflicts && unknown != 0 && !atomic {
                return Err(record.conflict(unknown, false));
            }
            let crosses = kind.asynchronous && record.kind.write && !record.kind.asynchronous;
            if crosses
                && unknown == 0
                && !fenced.covers(record.warp, record.by.lanes(both), record.count, team)
            {
                return Err(record.conflict(record.by.lanes(both), true));
            }
            // A later access that comes after this one also comes after the access that this one replaces.
            // The exception: a later atomic access does not race with this atomic one, so it need not be
            // ordered after this one, nor after the replaced one.
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

    /// Remembers an access, unless it is refused.
    pub(super) fn enter(
        &mut self,
        mask: u16,
        kind: Kind,
        who: Who<'_>,
        fenced: &Clock,
    ) -> Result<(), Conflict> {
        self.order(mask, kind, who, fenced)?;
        let new = who.record(mask, kind);
        let Record { by, warp, pc, count, .. } = new;
        // Accesses of other lanes in the same step share one record, except for work that each lane waits for
        // itself.
        if let By::All(lanes) = by
            && count != NEVER
        {
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
        if let Some(place) = self.records().find(|record| record.mask == 0 || record.is_before(&new)) {
            *place = new;
            return Ok(());
        }
        // A few reads of copies are enough: a write that comes too early races with each of them.
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
    pub(super) fn claim(&self) -> Claim {
        (self.warp, self.by, self.count)
    }

    fn conflict(&self, lanes: u32, unfenced: bool) -> Conflict {
        let (warp, lane) = (self.issuer(), lanes.trailing_zeros());
        Conflict { address: 0, warp, lane, pc: self.pc, wrote: self.kind.write, unfenced }
    }

    /// The number of the warp that made or issued the access.
    fn issuer(&self) -> u32 {
        match self.by {
            By::Copy { warp, .. } => warp,
            By::All(_) | By::Each { .. } => self.warp,
        }
    }

    /// If lanes repeat the same atomic access to a word, removes them from this record: an access that comes
    /// after the later one comes after this one too. Returns whether it was the same access.
    fn is_done_again(&mut self, mask: u16, kind: Kind, by: By) -> bool {
        let (By::All(theirs), By::All(mine)) = (self.by, by) else { return false };
        let same = self.mask == mask && self.kind == kind && kind.atomic.is_some() && self.count != NEVER;
        if same && !kind.asynchronous {
            self.by = By::All(theirs & !mine);
            self.mask = if theirs & !mine == 0 { 0 } else { mask };
        }
        same && !kind.asynchronous
    }

    /// Whether every access that comes after the read `new` of a copy also comes after this one. That holds
    /// if this is an earlier read of the same bytes through the same mbarrier.
    pub(super) fn is_before(&self, new: &Self) -> bool {
        let copies = matches!(self.by, By::Copy { .. }) && matches!(new.by, By::Copy { .. });
        copies
            && self.warp == new.warp
            && self.mask & !new.mask == 0
            && self.kind == new.kind
            && self.count <= new.count
    }

    /// The lanes of this record that may conflict with the lanes of the same warp that access the byte now.
    fn others(&self, theirs: u32, mine: u32) -> u32 {
        if mine.is_power_of_two() && (!self.kind.write || self.kind.atomic.is_some()) {
            theirs & !mine
        } else if mine & !theirs == 0 && (self.kind.write || mine == theirs && mine.is_power_of_two()) {
            // The lane itself wrote in the same step, and one of the stores has won.
            0
        } else {
            theirs
        }
    }

    /// The lanes of this record, for some bytes, whose access is not known to the lanes that access the bytes
    /// now.
    fn unknown(&self, bytes: u16, kind: Kind, who: Who<'_>) -> u32 {
        let Who { warp, by, view, team, .. } = who;
        let whole = view.known.of(self.warp, team) >= self.count;
        if whole {
            return 0;
        }
        // A thread that overwrites bytes that others have read need not see the writes of those others.
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
        // Each lane knows its own accesses.
        match (self.by, by) {
            (By::Each { .. }, By::Each { .. }) if self.by == by => 0,
            (By::All(theirs), By::All(mine)) => unknown(self.others(theirs, mine)),
            _ => (0..16u32)
                .filter(|bit| bytes >> bit & 1 == 1)
                .fold(0, |all, bit| all | unknown(self.others(self.by.lanes(1 << bit), by.lanes(1 << bit)))),
        }
    }
}
