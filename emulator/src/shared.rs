//! Shared memory of one CTA: its bytes, and for every 16 bytes which accesses are allowed.
//!
//! Addresses are as on hardware: the CTA's rank in bits 24 and up, then an offset. The program's memory
//! begins at offset [`BASE`], after a system area. Offsets here are the low 24 bits; reports subtract `BASE`.

mod granules;
mod multiplies;

use core::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use granules::{GRANULE, Granule, Granules};

pub(crate) use granules::PAGE_BYTES;

use crate::clock::{Clock, View};
use crate::mbarrier::{Landed, Mbarrier};
use crate::schedule::Random;
use crate::tensor_map::swizzled;
use crate::trap::{Fault, Owner};

/// Where dynamic shared memory begins in the shared window.
pub(crate) const BASE: u32 = 0x400;
/// Number of bits of a shared address below the CTA's rank.
pub(crate) const RANK_SHIFT: u32 = 24;

/// The CTA's rank and the offset of a shared address.
pub(crate) fn split(address: u32) -> (u32, u32) {
    (address >> RANK_SHIFT, address & ((1 << RANK_SHIFT) - 1))
}

/// An asynchronous write of some bytes of a granule, after the last one of all its bytes. Reductions of the same
/// bytes are kept for each mbarrier.
#[derive(Clone, Copy, Debug)]
struct Part {
    /// The bytes, one bit each.
    mask: u16,
    landed: (u32, u32),
    through: u32,
    adds: bool,
}

/// The mbarrier phase with which a chunk was written by asynchronous work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    place: u32,
    count: u32,
    chunk: u32,
    barrier: u32,
}

impl Mark {
    /// Refuses the chunk to a warp that does not know the mbarrier's phase to be complete.
    pub(crate) fn observed(&self, known: &Clock) -> Result<(), Fault> {
        if known.local(self.place as usize) >= self.count {
            return Ok(());
        }
        let (offset, barrier) = (reported(self.chunk), reported(self.barrier));
        Err(Fault::MbarrierNotObserved { offset, bytes: GRANULE, barrier })
    }
}

/// Shared memory of one CTA.
#[derive(Debug)]
pub(crate) struct Shared {
    /// Includes the system area.
    bytes: Vec<u8>,
    granules: Granules,
    /// Asynchronous writes of less than a granule, by granule.
    parts: BTreeMap<usize, Vec<Part>>,
    /// Asynchronous stores and reductions in flight: offset, number of bytes, and whether it is a reduction.
    /// Several reductions may write the same bytes.
    joint: Vec<(u32, u32, bool)>,
    /// Live mbarriers by offset.
    pub(crate) barriers: BTreeMap<u32, Mbarrier>,
    /// For every offset that ever held an mbarrier: the clock index of its phases, and the count when the
    /// last mbarrier there was invalidated.
    counted: BTreeMap<u32, (u32, u32)>,
    /// `None` outside a machine.
    places: Option<Places>,
    /// Whether bytes that nobody has written may be read, and those that were since somebody asked: offset and number of bytes.
    lenient: bool,
    noticed: Cell<Option<(u32, u32)>>,
}

/// The clock indices of one CTA.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Places {
    /// Index of the multiplies that the first warpgroup has waited for. The other warpgroups follow, then each warp of
    /// the CTA with those that it has waited for itself.
    pub(crate) multiplies: u32,
    /// Number of warpgroups.
    pub(crate) groups: u32,
    /// Index of the first mbarrier's phases, and the distance to the index of the next mbarrier.
    pub(crate) barriers: u32,
    pub(crate) step: u32,
}

/// An offset as reports show it: from the beginning of the dynamic shared memory.
pub(crate) fn reported(offset: u32) -> u32 {
    offset.saturating_sub(BASE)
}

impl Shared {
    pub(crate) fn new(bytes: u32) -> Self {
        let len = (BASE + bytes) as usize;
        Self {
            bytes: vec![0; len],
            granules: Granules::new(len.div_ceil(GRANULE as usize)),
            parts: BTreeMap::new(),
            joint: Vec::new(),
            barriers: BTreeMap::new(),
            counted: BTreeMap::new(),
            places: None,
            lenient: false,
            noticed: Cell::new(None),
        }
    }

    /// Bytes that nobody has written hold what `draw` gives, and a read of them is noticed, not refused.
    pub(crate) fn filled(mut self, mut draw: Random) -> Self {
        for word in self.bytes[BASE as usize..].chunks_mut(8) {
            word.copy_from_slice(&draw.next().to_le_bytes()[..word.len()]);
        }
        Self { lenient: true, ..self }
    }

    /// The fault of a read of unwritten bytes since this was last asked, if such reads are not refused.
    pub(crate) fn noticed(&self) -> Option<Fault> {
        let (offset, bytes) = self.noticed.take()?;
        Some(Fault::SharedUninitialised { offset: reported(offset), bytes })
    }

    /// Bytes are read that nobody has written.
    fn unwritten(&self, offset: u32, bytes: u32) -> Result<(), Fault> {
        if self.lenient {
            self.noticed.set(Some((offset, bytes)));
            return Ok(());
        }
        Err(Fault::SharedUninitialised { offset: reported(offset), bytes })
    }

    /// Sets the clock indices of multiplies and of the phases of mbarriers.
    pub(crate) fn counted(self, places: Places) -> Self {
        Self { places: Some(places), ..self }
    }

    /// The clock index of the multiplies that a warpgroup has waited for.
    pub(crate) fn multiplies(&self, group: usize) -> Option<usize> {
        Some(self.places?.multiplies as usize + group)
    }

    /// The clock index of the multiplies that a warp of the CTA has waited for.
    pub(crate) fn waited(&self, warp: usize) -> Option<usize> {
        let Places { multiplies, groups, .. } = self.places?;
        Some((multiplies + groups) as usize + warp)
    }

    /// Checks that a range is inside the memory and begins at a multiple of `alignment`.
    #[inline]
    pub(crate) fn bounds(&self, offset: u32, bytes: u32, alignment: u32) -> Result<(), Fault> {
        let end = u64::from(offset) + u64::from(bytes);
        if offset < BASE || end > self.bytes.len() as u64 {
            let size = u32::try_from(self.bytes.len()).unwrap_or(u32::MAX).saturating_sub(BASE);
            return Err(Fault::SharedOutOfBounds {
                offset: i64::from(offset) - i64::from(BASE),
                bytes,
                size,
            });
        }
        if !offset.is_multiple_of(alignment) {
            return Err(Fault::SharedMisaligned { offset: i64::from(offset) - i64::from(BASE), alignment });
        }
        Ok(())
    }

    /// The granule of an access, and the access's bits in it. The access must be inside one granule.
    fn place(offset: u32, bytes: u32) -> (usize, u16) {
        let mask = ((1u32 << bytes) - 1) << (offset % GRANULE);
        ((offset / GRANULE) as usize, mask as u16)
    }

    fn free_of_barriers(granule: &Granule, offset: u32, mask: u16) -> Result<(), Fault> {
        let halves = u8::from(mask & 0xFF != 0) | u8::from(mask >> 8 != 0) << 1;
        if granule.barriers & halves != 0 {
            return Err(Fault::SharedBarrier { offset: reported(offset) });
        }
        Ok(())
    }

    /// Refuses a write to bytes of a granule that asynchronous work owns.
    fn owned(
        &self,
        granule: &Granule,
        index: usize,
        mask: u16,
        (offset, bytes): (u32, u32),
    ) -> Result<(), Fault> {
        let owner = match writer(granule, mask) {
            Some(writer) => writer,
            None if granule.reads > 0 || self.granules.is_lent(index) => Owner::AsyncRead,
            None => return Ok(()),
        };
        Err(in_flight(offset, bytes, owner, true))
    }

    /// A generic load of 1 to 16 naturally aligned bytes.
    pub(crate) fn load(&self, offset: u32, bytes: u32) -> Result<&[u8], Fault> {
        self.bounds(offset, bytes, bytes)?;
        let (index, mask) = Self::place(offset, bytes);
        let granule = &self.granules[index];
        Self::free_of_barriers(granule, offset, mask)?;
        landed(granule, mask, (offset, bytes))?;
        if granule.written & mask != mask {
            self.unwritten(offset, bytes)?;
        }
        Ok(&self.bytes[offset as usize..(offset + bytes) as usize])
    }

    /// Whether a range holds these bytes, all of them written.
    pub(crate) fn holds(&self, offset: u32, data: &[u8]) -> bool {
        let bytes = u32::try_from(data.len()).unwrap_or(u32::MAX);
        let written = |(index, mask): (usize, u16)| self.granules[index].written & mask == mask;
        self.bounds(offset, bytes, 1).is_ok()
            && Self::masks(offset, bytes).all(written)
            && self.bytes[offset as usize..(offset + bytes) as usize] == *data
    }

    /// A generic store of 1 to 16 naturally aligned bytes by a thread.
    pub(crate) fn store(&mut self, offset: u32, data: &[u8]) -> Result<(), Fault> {
        self.write(offset, data, |granule, mask| granule.written |= mask)
    }

    fn write(&mut self, offset: u32, data: &[u8], mark: fn(&mut Granule, u16)) -> Result<(), Fault> {
        let bytes = u32::try_from(data.len()).unwrap_or(u32::MAX);
        self.bounds(offset, bytes, bytes)?;
        let (index, mask) = Self::place(offset, bytes);
        let granule = &self.granules[index];
        Self::free_of_barriers(granule, offset, mask)?;
        self.owned(granule, index, mask, (offset, bytes))?;
        mark(&mut self.granules[index], mask);
        self.bytes[offset as usize..offset as usize + data.len()].copy_from_slice(data);
        Ok(())
    }

    /// Takes ownership of a 16-byte chunk for an asynchronous read. `wanted` says whether its content is
    /// used. The caller has checked the bounds.
    #[inline]
    pub(crate) fn take_read(&mut self, offset: u32, wanted: bool) -> Result<(), Fault> {
        if !self.granules[(offset / GRANULE) as usize].is_readable() {
            self.readable(offset, wanted)?;
        }
        self.granules[(offset / GRANULE) as usize].reads += 1;
        Ok(())
    }

    /// Refuses an asynchronous read of a chunk that may not be read.
    fn readable(&self, offset: u32, wanted: bool) -> Result<(), Fault> {
        let granule = &self.granules[(offset / GRANULE) as usize];
        landed(granule, u16::MAX, (offset, GRANULE))?;
        if wanted && granule.written != u16::MAX {
            self.unwritten(offset, GRANULE)?;
        }
        Self::free_of_barriers(granule, offset, u16::MAX)
    }

    /// Ends the ownership of a chunk that was taken for reading.
    pub(crate) fn release_read(&mut self, offset: u32) {
        if let Some(granule) = self.granules.get_mut((offset / GRANULE) as usize) {
            granule.reads = granule.reads.saturating_sub(1);
        }
    }

    /// The granules of a range.
    fn range(offset: u32, bytes: u32) -> core::ops::Range<usize> {
        (offset / GRANULE) as usize..((offset + bytes).div_ceil(GRANULE)) as usize
    }

    /// Takes ownership of a range for an asynchronous write. The caller has checked the bounds.
    pub(crate) fn take_write(&mut self, offset: u32, bytes: u32) -> Result<(), Fault> {
        let range = Self::range(offset, bytes);
        for (page, part) in self.granules.pages(range.clone()) {
            if page.is_free() {
                continue;
            }
            for index in part {
                let (granule, at) = (&self.granules[index], offset + (index - range.start) as u32 * GRANULE);
                Self::free_of_barriers(granule, at, u16::MAX)?;
                self.owned(granule, index, u16::MAX, (at, GRANULE))?;
            }
        }
        self.granules.change(range, |granule| granule.writes += 1);
        Ok(())
    }

    /// Ends the ownership of a range that was taken for writing. Its bytes now count as written.
    pub(crate) fn release_write(&mut self, offset: u32, bytes: u32) {
        self.granules.change(Self::range(offset, bytes), |granule| {
            granule.writes = granule.writes.saturating_sub(1);
            granule.written = u16::MAX;
        });
    }

    /// Writes 4, 8 or 16 naturally aligned bytes of a `cp.async`, and takes ownership of them until
    /// [`Shared::release_copy`]. Several copies may share a chunk.
    pub(crate) fn take_copy(&mut self, offset: u32, data: &[u8]) -> Result<(), Fault> {
        self.write(offset, data, |granule, mask| granule.copies |= mask)
    }

    /// Ends the ownership of bytes that a `cp.async` wrote, as if the thread had stored them.
    pub(crate) fn release_copy(&mut self, offset: u32, bytes: u32) {
        let (index, mask) = Self::place(offset, bytes);
        if let Some(granule) = self.granules.get_mut(index) {
            granule.copies &= !mask;
            granule.written |= mask;
        }
    }

    /// Takes ownership of bytes for an asynchronous store or reduction. Other such operations may use the
    /// same chunk at the same time, and several reductions the same bytes. `adds`: the operation is a reduction.
    /// The caller has checked the bounds.
    pub(crate) fn take_joint(&mut self, offset: u32, bytes: u32, adds: bool) -> Result<(), Fault> {
        let meets = |other: u32, more: u32| offset < other + more && other < offset + bytes;
        if self.joint.iter().any(|&(other, more, also)| !(adds && also) && meets(other, more)) {
            return Err(in_flight(offset, bytes, Owner::Peer, true));
        }
        let mut at = offset;
        while at < offset + bytes {
            let part = (GRANULE - at % GRANULE).min(offset + bytes - at);
            let (index, mask) = Self::place(at, part);
            let granule = &self.granules[index];
            Self::free_of_barriers(granule, at, mask)?;
            self.owned(&Granule { joint: 0, ..*granule }, index, mask, (at, part))?;
            if adds && granule.written & mask != mask {
                return Err(Fault::SharedUninitialised { offset: reported(at), bytes: part });
            }
            at += part;
        }
        self.joint.push((offset, bytes, adds));
        for (index, mask) in Self::masks(offset, bytes) {
            self.granules[index].joint |= mask;
        }
        Ok(())
    }

    /// The granules of a range, each with the bits of the range's bytes in it.
    fn masks(offset: u32, bytes: u32) -> impl Iterator<Item = (usize, u16)> {
        let end = offset + bytes;
        Self::range(offset, bytes).map(move |index| {
            let start = index as u32 * GRANULE;
            let (first, last) = (offset.max(start) - start, end.min(start + GRANULE) - start);
            (index, ((1u32 << last) - (1u32 << first)) as u16)
        })
    }

    /// Ends the ownership of such bytes.
    fn release_joint(&mut self, offset: u32, bytes: u32) {
        if let Some(at) = self.joint.iter().position(|&(start, extent, _)| (start, extent) == (offset, bytes))
        {
            self.joint.swap_remove(at);
        }
        for (index, mask) in Self::masks(offset, bytes) {
            let granule = &mut self.granules[index];
            granule.joint &= !mask;
            granule.written |= mask;
        }
        for &(other, more, _) in &self.joint {
            for (index, mask) in Self::masks(other, more) {
                self.granules[index].joint |= mask;
            }
        }
    }

    /// Bytes without any check of ownership. Empty outside the memory, which callers have excluded.
    pub(crate) fn bytes(&self, offset: u32, bytes: u32) -> &[u8] {
        self.bytes.get(offset as usize..(offset + bytes) as usize).unwrap_or_default()
    }

    /// The bytes of a chunk without any check of ownership. Zeros outside the memory, which callers have
    /// excluded.
    pub(crate) fn chunk(&self, offset: u32) -> [u8; 16] {
        let at = offset as usize;
        self.bytes.get(at..at + 16).and_then(|bytes| bytes.try_into().ok()).unwrap_or_default()
    }

    /// Writes bytes of an asynchronous copy.
    #[inline]
    pub(crate) fn put(&mut self, offset: u32, bytes: &[u8]) {
        let at = offset as usize;
        if let Some(place) = self.bytes.get_mut(at..at + bytes.len()) {
            place.copy_from_slice(bytes);
        }
    }

    /// Writes a row of a box, in words: an asynchronous copy.
    #[inline]
    pub(crate) fn put_row(&mut self, offset: u32, swizzle: u32, words: &[AtomicU64]) {
        for (chunk, words) in (offset..).step_by(GRANULE as usize).zip(words.as_chunks::<2>().0) {
            let at = swizzled(chunk, swizzle) as usize;
            if let Some(place) = self.bytes.get_mut(at..at + GRANULE as usize) {
                for (place, word) in place.as_chunks_mut::<8>().0.iter_mut().zip(words) {
                    *place = word.load(Relaxed).to_le_bytes();
                }
            }
        }
    }

    /// Writes zeros: an asynchronous copy of what is outside a tensor.
    pub(crate) fn clear(&mut self, offset: u32, bytes: u32) {
        if let Some(place) = self.bytes.get_mut(offset as usize..(offset + bytes) as usize) {
            place.fill(0);
        }
    }

    // ---- mbarriers ----

    fn half(offset: u32) -> (usize, u8) {
        ((offset / GRANULE) as usize, if offset.is_multiple_of(GRANULE) { 1 } else { 2 })
    }

    pub(crate) fn initialise_barrier(&mut self, offset: u32, count: u32, thread: u16) -> Result<(), Fault> {
        self.bounds(offset, 8, 8)?;
        let at = reported(offset);
        if self.barriers.contains_key(&offset) {
            return Err(Fault::MbarrierLive { offset: at });
        }
        let (index, half) = Self::half(offset);
        self.owned(&self.granules[index], index, if half == 1 { 0x00FF } else { 0xFF00 }, (offset, 8))?;
        let mut barrier = Mbarrier::new(at, count, thread)?;
        if let Some(Places { barriers, step, .. }) = self.places {
            let next = barriers + step * self.counted.len() as u32;
            let (index, base) = *self.counted.entry(offset).or_insert((next, 0));
            barrier.counted(index as usize, base);
        }
        self.granules[index].barriers |= half;
        self.barriers.insert(offset, barrier);
        Ok(())
    }

    pub(crate) fn invalidate_barrier(&mut self, offset: u32) -> Result<(), Fault> {
        let (_, completed) = self.barrier(offset)?.count();
        self.barriers.remove(&offset);
        if let Some((_, base)) = self.counted.get_mut(&offset) {
            *base = completed;
        }
        let (index, half) = Self::half(offset);
        let granule = &mut self.granules[index];
        granule.barriers &= !half;
        granule.written &= if half == 1 { 0xFF00 } else { 0x00FF };
        Ok(())
    }

    pub(crate) fn barrier(&mut self, offset: u32) -> Result<&mut Mbarrier, Fault> {
        self.bounds(offset, 8, 8)?;
        self.barriers.get_mut(&offset).ok_or(Fault::MbarrierUninitialised { offset: reported(offset) })
    }

    /// Marks bytes as written by asynchronous work that a phase of the mbarrier at `through` completed. `adds`: by
    /// reductions, which leave what was there before them part of the value.
    fn mark_landed(&mut self, (offset, bytes): (u32, u32), landed: (u32, u32), through: u32, adds: bool) {
        if self.parts.is_empty() && !adds && offset.is_multiple_of(GRANULE) && bytes.is_multiple_of(GRANULE) {
            self.granules.equalise(Self::range(offset, bytes), |granule| {
                (granule.landed, granule.through) = (landed, through);
            });
            return;
        }
        for (index, mask) in Self::masks(offset, bytes) {
            let granule = &mut self.granules[index];
            if mask == u16::MAX && !adds {
                (granule.landed, granule.through) = (landed, through);
                self.parts.remove(&index);
                continue;
            }
            let parts = self.parts.entry(index).or_default();
            if adds && granule.landed.1 > 0 {
                let mask = mask & !parts.iter().fold(0, |all, part| all | part.mask);
                parts.push(Part { mask, landed: granule.landed, through: granule.through, adds: false });
            }
            parts.retain_mut(|part| {
                if !adds || part.landed.0 == landed.0 {
                    part.mask &= !mask;
                }
                part.mask != 0
            });
            parts.push(Part { mask, landed, through, adds });
        }
    }

    /// Refuses an access to bytes that asynchronous work wrote, if the thread does not know the mbarrier's
    /// phase to be complete.
    pub(crate) fn observed(&self, offset: u32, bytes: u32, known: &Clock) -> Result<(), Fault> {
        self.observed_by(false, (offset, bytes), known)
    }

    /// The same check for an access that adds, or not. Reductions need no order among themselves.
    fn observed_by(&self, adds: bool, (offset, bytes): (u32, u32), known: &Clock) -> Result<(), Fault> {
        let check = |(index, count): (u32, u32), through: u32| {
            if count > 0 && known.local(index as usize) < count {
                let (offset, barrier) = (reported(offset), reported(through));
                return Err(Fault::MbarrierNotObserved { offset, bytes, barrier });
            }
            Ok(())
        };
        if self.parts.is_empty() {
            return self.granules.pages(Self::range(offset, bytes)).try_for_each(|(page, mut part)| {
                if let Some(granule) = page.common() {
                    return check(granule.landed, granule.through);
                }
                part.try_for_each(|index| check(self.granules[index].landed, self.granules[index].through))
            });
        }
        for (index, mut mask) in Self::masks(offset, bytes) {
            for part in self.parts.get(&index).into_iter().flatten().filter(|part| part.mask & mask != 0) {
                if !(adds && part.adds) {
                    check(part.landed, part.through)?;
                }
            }
            for part in self.parts.get(&index).into_iter().flatten() {
                mask &= !part.mask;
            }
            if mask != 0
                && let Some(granule) = self.granules.get(index)
            {
                check(granule.landed, granule.through)?;
            }
        }
        Ok(())
    }

    /// The same check for asynchronous work that overwrites the bytes. It is enough to know that the phase is
    /// over, even if its writes are not visible.
    pub(crate) fn reused(&self, (offset, bytes): (u32, u32), view: &View, adds: bool) -> Result<(), Fault> {
        let observed = |by: &Clock| self.observed_by(adds, (offset, bytes), by);
        observed(&view.known).or_else(|_| observed(&view.done))?;
        self.multiplied(offset, bytes, view)
    }

    /// Ends the ownership of everything that arrived in a phase that has completed.
    pub(crate) fn phase_completed(&mut self, offset: u32) {
        let Some(barrier) = self.barriers.get_mut(&offset) else { return };
        let (landed, copied) = (core::mem::take(&mut barrier.landed), core::mem::take(&mut barrier.copied));
        let (index, count) = barrier.count();
        let mark = u32::try_from(index).map_or((0, 0), |index| (index, count));
        for Landed { offset: start, bytes, joint, adds } in landed {
            if joint {
                self.release_joint(start, bytes);
            } else {
                self.release_write(start, bytes);
            }
            self.mark_landed((start, bytes), mark, offset, adds);
        }
        for (start, bytes) in copied {
            self.release_copy(start, bytes);
            self.mark_landed((start, bytes), mark, offset, false);
        }
    }
}

fn in_flight(offset: u32, bytes: u32, owner: Owner, write: bool) -> Fault {
    Fault::SharedInFlight { offset: reported(offset), bytes, owner, write }
}

/// The asynchronous work that writes bytes of a granule.
fn writer(granule: &Granule, mask: u16) -> Option<Owner> {
    match granule {
        Granule { copies, .. } if copies & mask != 0 => Some(Owner::ThreadCopy),
        Granule { joint, .. } if joint & mask != 0 => Some(Owner::Peer),
        Granule { writes: 1.., .. } => Some(Owner::TensorLoad),
        Granule { .. } => None,
    }
}

/// Refuses a read of bytes that asynchronous work writes.
fn landed(granule: &Granule, mask: u16, (offset, bytes): (u32, u32)) -> Result<(), Fault> {
    writer(granule, mask).map_or(Ok(()), |owner| Err(in_flight(offset, bytes, owner, false)))
}

#[cfg(test)]
mod tests;
