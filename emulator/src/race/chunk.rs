//! The accesses that are remembered for 16 bytes.
//!
//! Every access is kept that no kept one implies: nothing is dropped. Accesses that can not race with each
//! other (reads, and atomics of one size for the whole device) may be as many as the grid has warps; they are
//! kept by warp, so that one more of them looks only at those of its own warp.

use std::collections::HashMap;

use ptx::Scope;

use super::observed::Words;
use super::{By, Conflict, Kind, Who};
use crate::clock::{Clock, NEVER};
use crate::lanes::lanes;

/// Number of bytes of a chunk. Masks have one bit per byte.
pub(super) const CHUNK: u64 = 16;
/// Number of accesses that are kept in the chunk itself.
const NEAR: usize = 4;
/// Number of further accesses after which those that may be many are kept by warp.
const FEW: usize = 12;

/// The number in the grid that counts an access, the lanes that made it, and the count.
pub(crate) type Claim = (u32, By, u32);

/// Where a chunk is: its address, and the words there.
#[derive(Clone, Copy)]
pub(super) struct Place<'w> {
    pub(super) address: u64,
    pub(super) words: &'w dyn Words,
}

/// An access to up to 16 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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
    near: [Record; NEAR],
    more: Vec<Record>,
    crowd: Option<Box<Crowd>>,
}

pub(super) const UNTOUCHED: Chunk = Chunk { near: [EMPTY; NEAR], more: Vec::new(), crowd: None };

/// Accesses of many warps that do not race with each other, by warp.
#[derive(Clone, Debug, Default)]
struct Crowd {
    kinds: Vec<Kind>,
    members: HashMap<u32, Vec<Record>>,
}

impl Crowd {
    /// Whether an access of this kind races with none of them, whoever makes it.
    fn bears(&self, kind: Kind, widest: Scope) -> bool {
        self.kinds.iter().all(|other| harmless(*other, kind, widest))
    }

    fn push(&mut self, record: Record) {
        if !self.kinds.contains(&record.kind) {
            self.kinds.push(record.kind);
        }
        self.members.entry(record.warp).or_default().push(record);
    }

    /// Removes empty records.
    fn prune(&mut self) {
        self.members.retain(|_, records| {
            records.retain(|record| record.mask != 0);
            !records.is_empty()
        });
        let kinds = &mut self.kinds;
        kinds.retain(|kind| self.members.values().flatten().any(|record| record.kind == *kind));
    }
}

/// Whether accesses of these kinds never race, whoever makes them. `widest`: the scope that includes everybody.
fn harmless(a: Kind, b: Kind, widest: Scope) -> bool {
    let strong = |kind: Kind| kind.atomic.is_some_and(|scope| scope >= widest);
    let alike = a.size == b.size && a.asynchronous == b.asynchronous;
    (!a.write && !b.write) || (strong(a) && strong(b) && alike && !(a.sums && b.sums))
}

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
    /// A chunk with these accesses.
    pub(super) fn of(records: impl Iterator<Item = Record>) -> Self {
        let mut chunk = UNTOUCHED;
        for record in records {
            match chunk.near.iter_mut().find(|place| place.mask == 0) {
                Some(place) => *place = record,
                None => chunk.more.push(record),
            }
        }
        chunk
    }

    /// The accesses of copies and those that have not been waited for, and some of the others.
    pub(super) fn records(&mut self) -> impl Iterator<Item = &mut Record> {
        self.near.iter_mut().chain(&mut self.more)
    }

    /// Refuses an access that races with an earlier one. Removes the records of accesses that it comes after.
    pub(super) fn order(
        &mut self,
        mask: u16,
        kind: Kind,
        who: Who<'_>,
        (fenced, place): (&Clock, Place<'_>),
    ) -> Result<(), Conflict> {
        for record in self.records() {
            record.order(mask, kind, who, (fenced, place))?;
        }
        let Some(crowd) = &mut self.crowd else { return Ok(()) };
        if crowd.bears(kind, who.team.widest()) {
            let mut own = crowd.members.get_mut(&who.warp).into_iter().flatten();
            return own.try_for_each(|record| record.order(mask, kind, who, (fenced, place)));
        }
        for record in crowd.members.values_mut().flatten() {
            record.order(mask, kind, who, (fenced, place))?;
        }
        crowd.prune();
        if crowd.members.is_empty() {
            self.crowd = None;
        }
        Ok(())
    }

    /// Remembers an access, unless it is refused.
    pub(super) fn enter(
        &mut self,
        mask: u16,
        kind: Kind,
        who: Who<'_>,
        at: (&Clock, Place<'_>),
    ) -> Result<(), Conflict> {
        self.order(mask, kind, who, at)?;
        let new = who.record(mask, kind);
        let members = self.crowd.as_mut().and_then(|crowd| crowd.members.get_mut(&new.warp));
        let mut own = self.near.iter_mut().chain(&mut self.more).chain(members.into_iter().flatten());
        if own.any(|record| record.takes_in(&new)) {
            return Ok(());
        }
        let widest = who.team.widest();
        if new.may_be_many(widest)
            && let Some(crowd) = &mut self.crowd
        {
            if let Some(own) = crowd.members.get_mut(&new.warp) {
                own.retain(|record| record.mask != 0 && !record.is_before(&new));
            }
            crowd.push(new);
            return Ok(());
        }
        if let Some(place) = self.records().find(|record| record.mask == 0 || record.is_before(&new)) {
            *place = new;
            return Ok(());
        }
        if self.more.len() >= FEW && self.records().any(|record| record.may_be_many(widest)) {
            let crowd = self.crowd.get_or_insert_default();
            for record in
                self.near.iter_mut().chain(&mut self.more).filter(|record| record.may_be_many(widest))
            {
                crowd.push(core::mem::take(record));
            }
            self.more.retain(|record| record.mask != 0);
            if new.may_be_many(widest) {
                crowd.push(new);
                return Ok(());
            }
        }
        match self.near.iter_mut().find(|place| place.mask == 0) {
            Some(place) => *place = new,
            None => self.more.push(new),
        }
        Ok(())
    }
}

impl Record {
    pub(super) fn claim(&self) -> Claim {
        (self.warp, self.by, self.count)
    }

    /// Whether there may be as many such accesses as the grid has warps, none of which races with another.
    fn may_be_many(&self, widest: Scope) -> bool {
        self.mask != 0
            && self.count != NEVER
            && !self.kind.asynchronous
            && harmless(self.kind, self.kind, widest)
    }

    /// Refuses an access that races with this one. Removes this record if the access comes after it.
    fn order(
        &mut self,
        mask: u16,
        kind: Kind,
        who: Who<'_>,
        (fenced, place): (&Clock, Place<'_>),
    ) -> Result<(), Conflict> {
        let Who { warp, team, .. } = who;
        if self.mask & mask == 0 {
            return Ok(());
        }
        if (self.warp, self.pc, self.count, self.kind) == (warp, who.pc, who.count, kind)
            && who.count != NEVER
        {
            // The same instruction: one of several stores to the same bytes wins.
            return Ok(());
        }
        if self.warp == warp && self.is_done_again(mask, kind, who.by) {
            return Ok(());
        }
        if !kind.write && !self.kind.write && kind.asynchronous {
            // Two reads never race, and a copy's read stands for no other ([`Record::is_before`]).
            return Ok(());
        }
        if who.repeats && self.is_store(kind.asynchronous) {
            return Ok(());
        }
        let both = self.mask & mask;
        // ISA "ld.global.nc": what the kernel writes is not read so, however the accesses are ordered.
        if self.kind.constant && kind.write || kind.constant && self.kind.write {
            let lanes = self.by.lanes(both);
            return Err(Conflict { constant: true, ..self.conflict(lanes, false) });
        }
        let mut unknown = self.unknown(both, kind, who);
        let conflicts = self.kind.write || kind.write;
        let atomic = match (self.kind.atomic, kind.atomic) {
            // ISA 8.7: morally strong operations are performed through the same proxy.
            (Some(a), Some(b)) => {
                self.kind.size == kind.size
                    && self.kind.asynchronous == kind.asynchronous
                    && !(self.kind.sums && kind.sums)
                    && team.together(a, b, (self.warp, warp))
            }
            _ => false,
        };
        if conflicts && unknown != 0 && !atomic && self.kind.atomic.is_some() && !kind.asynchronous {
            unknown = self.unseen(unknown, both, who, place);
        }
        if conflicts && unknown != 0 && !atomic {
            return Err(Conflict { sums: self.kind.sums && kind.sums, ..self.conflict(unknown, false) });
        }
        // ISA 8.9 "Proxy-preserved base causality order": without a proxy fence, a write comes before an
        // access of another proxy, or of the same proxy in another CTA, for the generic proxy alone.
        let cta = |number: u32| team.cta(number);
        let crosses = kind.asynchronous
            && self.kind.write
            && !atomic
            && (!self.kind.asynchronous || cta(self.issuer()) != cta(warp));
        let lanes = self.by.lanes(both);
        if crosses && unknown == 0 && !fenced.covers(self.warp, lanes, self.count, team) {
            return Err(self.conflict(lanes, true));
        }
        // A later access that comes after this one also comes after the access that this one replaces.
        // The exception: a later atomic access does not race with this atomic one, so it need not be
        // ordered after this one, nor after the replaced one.
        // Unless whoever is atomic with respect to this one is so to the replaced one, too: so of the same CTA,
        // of no wider scope, of the same size and proxy.
        let stands = match (kind.atomic, self.kind.atomic) {
            (None, _) => true,
            (Some(new), Some(old)) => {
                old >= new
                    && self.kind.size == kind.size
                    && self.kind.asynchronous == kind.asynchronous
                    && cta(self.issuer()) == cta(warp)
            }
            (Some(_), None) => false,
        };
        let stands = stands && (kind.constant || !self.kind.constant);
        if unknown == 0 && stands && (kind.write || !self.kind.write) {
            self.mask &= !mask;
        }
        Ok(())
    }

    /// Whether it is a store, by a copy or by a thread.
    fn is_store(&self, copy: bool) -> bool {
        self.kind.write && self.kind.atomic.is_none() && self.kind.asynchronous == copy
    }

    /// Those of some lanes of which the current thread has not seen every write to some bytes.
    fn unseen(&self, unknown: u32, both: u16, who: Who<'_>, place: Place<'_>) -> u32 {
        if !self.kind.write || self.kind.asynchronous {
            return unknown;
        }
        let size = usize::from(self.kind.size.max(1));
        let words = (0..16u64).step_by(size).filter(|at| both >> at & ((1u32 << size) - 1) as u16 != 0);
        words.fold(0, |all, at| {
            let address = place.address + at;
            let missed =
                lanes(unknown & self.by.lanes(both & (((1u32 << size) - 1) << at) as u16)).filter(|&lane| {
                    let made = place.words.made(address, (self.warp, lane as u32, self.count));
                    !made.is_some_and(|link| who.view.observed.has(place.words.key(address), link))
                });
            missed.fold(all, |all, lane| all | 1 << lane)
        })
    }

    /// Accesses of other lanes in the same step share one record, except for work that each lane waits for
    /// itself. Returns whether this is the record of the step.
    fn takes_in(&mut self, new: &Self) -> bool {
        let step = |one: &Self| (one.mask, one.kind, one.warp, one.pc, one.count);
        if new.count == NEVER || step(self) != step(new) {
            return false;
        }
        let (By::All(known), By::All(lanes)) = (&mut self.by, new.by) else { return false };
        *known |= lanes;
        true
    }

    fn conflict(&self, lanes: u32, unfenced: bool) -> Conflict {
        let (warp, lane) = (self.issuer(), lanes.trailing_zeros());
        Conflict {
            address: 0,
            warp,
            lane,
            pc: self.pc,
            wrote: self.kind.write,
            unfenced,
            sums: false,
            constant: false,
        }
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
    /// if this is an earlier read of the same bytes, counted by the same mbarrier or thread.
    pub(super) fn is_before(&self, new: &Self) -> bool {
        let counted = match (self.by, new.by) {
            (By::Copy { .. }, By::Copy { .. }) => true,
            (By::All(theirs), By::All(mine)) => theirs & !mine == 0,
            _ => false,
        };
        counted
            && new.kind.asynchronous
            && !new.kind.write
            && self.warp == new.warp
            && self.mask & !new.mask == 0
            && self.kind == new.kind
            && self.count <= new.count
    }

    /// The lanes of this record that may conflict with the lanes of the same warp that access the byte now.
    fn others(&self, kind: Kind, theirs: u32, mine: u32) -> u32 {
        let plain = !kind.write && self.kind.write && self.kind.atomic.is_none() && !self.kind.disputed;
        if mine.is_power_of_two() && !plain {
            theirs & !mine
        } else if mine & !theirs == 0 && plain {
            // The lane reads what it wrote itself; the others wrote the same value in the same step.
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
            (By::All(theirs), By::All(mine)) => unknown(self.others(kind, theirs, mine)),
            _ => (0..16u32).filter(|bit| bytes >> bit & 1 == 1).fold(0, |all, bit| {
                all | unknown(self.others(kind, self.by.lanes(1 << bit), by.lanes(1 << bit)))
            }),
        }
    }
}
