//! Which accesses every 16 bytes of shared memory allow.
//!
//! The granules of a page have one state as long as they are alike, as whole tiles are, and a state each after that. What
//! multiplies read is kept by page, as masks of granules.

use core::ops::{Index, IndexMut, Range};

/// Number of bytes of one [`Granule`].
pub(super) const GRANULE: u32 = 16;
/// Number of granules of a page: as many as a mask has bits.
const PAGE: usize = u64::BITS as usize;
/// Number of bytes of a page.
pub(crate) const PAGE_BYTES: u32 = PAGE as u32 * GRANULE;

/// The state of 16 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Granule {
    /// The bytes that have been written, one bit each.
    pub(super) written: u16,
    /// Number of asynchronous reads in flight, without those of multiplies.
    pub(super) reads: u16,
    /// Number of asynchronous writes in flight.
    pub(super) writes: u16,
    /// The bytes that `cp.async` copies in flight write, one bit each.
    pub(super) copies: u16,
    /// The bytes that asynchronous stores and reductions in flight write, one bit each.
    pub(super) joint: u16,
    /// The halves of 8 bytes that are live mbarriers, one bit each.
    pub(super) barriers: u8,
    /// The last asynchronous write of all 16 bytes: the clock index of its mbarrier's phases, and the count of
    /// its phase.
    pub(super) landed: (u32, u32),
    /// Offset of that mbarrier.
    pub(super) through: u32,
}

const FRESH: Granule =
    Granule { written: 0, reads: 0, writes: 0, copies: 0, joint: 0, barriers: 0, landed: (0, 0), through: 0 };

impl Granule {
    /// Whether no asynchronous work but multiplies owns it, and no mbarrier is in it.
    #[inline]
    pub(super) fn is_free(&self) -> bool {
        let Self { reads, writes, copies, joint, barriers, .. } = *self;
        reads | writes | copies | joint == 0 && barriers == 0
    }

    /// Whether an asynchronous read of all its bytes is allowed.
    #[inline]
    pub(super) fn is_readable(&self) -> bool {
        let Self { written, writes, copies, joint, barriers, .. } = *self;
        written == u16::MAX && writes | copies | joint == 0 && barriers == 0
    }
}

/// The granules of a page that the last multiply to read them has read: its warpgroup, its number plus one, and the warps of
/// the warpgroup that read them, one bit each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Multiplied {
    pub(super) mask: u64,
    pub(super) group: usize,
    pub(super) last: u32,
    pub(super) readers: u8,
}

/// Consecutive granules.
#[derive(Clone, Debug)]
pub(super) struct Page {
    /// The state of each granule, as long as `each` has none.
    all: Granule,
    each: Option<Box<[Granule; PAGE]>>,
    /// What multiplies in flight read: masks of granules, and how many multiplies read each.
    lent: Vec<(u64, u32)>,
    /// What multiplies have read. The masks of a warpgroup have no bits in common.
    pub(super) multiplied: Vec<Multiplied>,
}

impl Page {
    /// The state of the granules, if they are alike.
    #[inline]
    pub(super) fn common(&self) -> Option<&Granule> {
        if self.each.is_none() { Some(&self.all) } else { None }
    }

    /// Whether all granules are alike and free.
    pub(super) fn is_free(&self) -> bool {
        self.lent.is_empty() && self.common().is_some_and(Granule::is_free)
    }

    /// Changes a part of the granules in the same way.
    fn change(&mut self, part: Range<usize>, change: impl Fn(&mut Granule)) {
        match &mut self.each {
            None if part.len() == PAGE => change(&mut self.all),
            _ => self.each()[part].iter_mut().for_each(change),
        }
    }

    fn each(&mut self) -> &mut [Granule; PAGE] {
        self.each.get_or_insert_with(|| Box::new([self.all; PAGE]))
    }

    /// Gives the granules one state, if they have become alike.
    fn unite(&mut self) {
        if let Some(each) = &self.each
            && each.iter().all(|one| *one == each[0])
        {
            (self.all, self.each) = (each[0], None);
        }
    }

    /// A multiply in flight reads some granules.
    pub(super) fn lend(&mut self, mask: u64) {
        match self.lent.iter_mut().find(|(lent, _)| *lent == mask) {
            Some((_, count)) => *count += 1,
            None => self.lent.push((mask, 1)),
        }
    }

    /// A multiply that reads some granules has been waited for.
    pub(super) fn give_back(&mut self, mask: u64) {
        if let Some(at) = self.lent.iter().position(|(lent, _)| *lent == mask) {
            self.lent[at].1 -= 1;
            if self.lent[at].1 == 0 {
                self.lent.swap_remove(at);
            }
        }
    }

    /// Remembers that a multiply reads some granules. A and B of one multiply may be the same bytes.
    pub(super) fn read(&mut self, new: Multiplied) {
        let own = |old: &Multiplied| old.group == new.group;
        let with =
            |old: &Multiplied| if old.last == new.last { old.readers | new.readers } else { new.readers };
        if let Some(old) = self.multiplied.iter_mut().find(|old| own(old) && old.mask == new.mask) {
            *old = Multiplied { readers: with(old), ..new };
            return;
        }
        let mut rest = new.mask;
        for at in 0..self.multiplied.len() {
            let old = self.multiplied[at];
            let both = old.mask & new.mask;
            if own(&old) && both != 0 {
                self.multiplied[at].mask &= !both;
                self.multiplied.push(Multiplied { mask: both, readers: with(&old), ..new });
                rest &= !both;
            }
        }
        self.multiplied.retain(|old| old.mask != 0);
        if rest != 0 {
            self.multiplied.push(Multiplied { mask: rest, ..new });
        }
    }
}

/// All granules of a CTA, by index.
#[derive(Debug)]
pub(super) struct Granules(Vec<Page>);

/// The mask of a part of a page.
fn mask(part: &Range<usize>) -> u64 {
    u64::MAX.checked_shr((PAGE - part.len()) as u32).unwrap_or(0) << (part.start % PAGE)
}

impl Granules {
    pub(super) fn new(count: usize) -> Self {
        let page = Page { all: FRESH, each: None, lent: Vec::new(), multiplied: Vec::new() };
        Self(vec![page; count.div_ceil(PAGE)])
    }

    pub(super) fn get(&self, index: usize) -> Option<&Granule> {
        self.0.get(index / PAGE).map(|page| page.each.as_ref().map_or(&page.all, |each| &each[index % PAGE]))
    }

    pub(super) fn get_mut(&mut self, index: usize) -> Option<&mut Granule> {
        self.0.get_mut(index / PAGE).map(|page| &mut page.each()[index % PAGE])
    }

    /// The state of the granules of the page at an offset, if they are alike.
    pub(super) fn common(&self, offset: u32) -> Option<&Granule> {
        self.0[(offset / PAGE_BYTES) as usize].common()
    }

    /// The page at an offset.
    pub(super) fn page(&mut self, offset: u32) -> &mut Page {
        &mut self.0[(offset / PAGE_BYTES) as usize]
    }

    /// Whether a multiply in flight reads a granule.
    pub(super) fn is_lent(&self, index: usize) -> bool {
        self.0[index / PAGE].lent.iter().any(|(lent, _)| lent >> (index % PAGE) & 1 == 1)
    }

    /// The pages of a range that exist, each with the indices of the granules of the range in it.
    pub(super) fn pages(&self, range: Range<usize>) -> impl Iterator<Item = (&Page, Range<usize>)> {
        parts(range).map_while(|part| Some((self.0.get(part.start / PAGE)?, part)))
    }

    /// What multiplies have read of a range.
    pub(super) fn multiplied(&self, range: Range<usize>) -> impl Iterator<Item = &Multiplied> {
        self.pages(range).flat_map(|(page, part)| {
            let inside = mask(&part);
            page.multiplied.iter().filter(move |one| one.mask & inside != 0)
        })
    }

    /// Changes the granules of a range in the same way.
    pub(super) fn change(&mut self, range: Range<usize>, change: impl Fn(&mut Granule)) {
        for part in parts(range) {
            let from = part.start % PAGE;
            self.0[part.start / PAGE].change(from..from + part.len(), &change);
        }
    }

    /// The same for granules that may be alike afterwards.
    pub(super) fn equalise(&mut self, range: Range<usize>, change: impl Fn(&mut Granule)) {
        self.change(range.clone(), change);
        for part in parts(range).filter(|part| part.len() == PAGE) {
            self.0[part.start / PAGE].unite();
        }
    }
}

/// A range, page by page.
fn parts(range: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    (range.start / PAGE..range.end.div_ceil(PAGE))
        .map(move |page| range.start.max(page * PAGE)..range.end.min((page + 1) * PAGE))
}

impl Index<usize> for Granules {
    type Output = Granule;

    #[inline]
    fn index(&self, index: usize) -> &Granule {
        let page = &self.0[index / PAGE];
        page.each.as_ref().map_or(&page.all, |each| &each[index % PAGE])
    }
}

impl IndexMut<usize> for Granules {
    #[inline]
    fn index_mut(&mut self, index: usize) -> &mut Granule {
        &mut self.0[index / PAGE].each()[index % PAGE]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::Random;

    /// Random changes of ranges: the state of each granule is what a list of all of them has.
    #[test]
    fn a_page_is_what_its_granules_are() {
        let mut random = Random::new(3, 0);
        let (mut pages, mut each) = (Granules::new(4 * PAGE), vec![FRESH; 4 * PAGE]);
        let mut alike = 0;
        for step in 0..4000 {
            let (from, to) = (random.below(4), random.below(4));
            let whole = random.below(2) == 0;
            let range = match whole {
                true => from.min(to) * PAGE..(from.max(to) + 1) * PAGE,
                false => from * PAGE + 3..to.max(from) * PAGE + 3 + random.below(PAGE - 3),
            };
            let change = |granule: &mut Granule| granule.landed = (step, granule.landed.1 + step % 2);
            pages.equalise(range.clone(), change);
            each[range].iter_mut().for_each(change);
            if step % 3 == 0 {
                let index = random.below(4 * PAGE);
                pages[index].through = 0;
                let page = index / PAGE * PAGE;
                pages.equalise(page..page + PAGE, |granule| *granule = FRESH);
                each[page..page + PAGE].fill(FRESH);
            }
            alike += (0..4).filter(|page| pages.common(page * PAGE_BYTES).is_some()).count();
            assert!((0..4 * PAGE).all(|index| pages[index] == each[index]), "step {step}");
        }
        assert!((4000..15000).contains(&alike), "{alike}");
    }

    /// Random multiplies: of each granule and warpgroup the last one is known, with all of its readers.
    #[test]
    fn the_last_multiply_of_each_granule_is_known() {
        let mut random = Random::new(5, 0);
        let mut page = Granules::new(PAGE).0.remove(0);
        let mut known = [[(0, 0); PAGE]; 2];
        for step in 1..2000 {
            let mask = random.next() & random.next() | 1 << random.below(PAGE);
            let (group, last, readers) = (random.below(2), step / 3, 1 << random.below(4));
            page.read(Multiplied { mask, group, last, readers });
            page.lend(mask);
            for (at, known) in known[group].iter_mut().enumerate().filter(|(at, _)| mask >> at & 1 == 1) {
                *known = (last, if known.0 == last { known.1 | readers } else { readers });
                assert!(page.lent.iter().any(|(lent, _)| lent >> at & 1 == 1));
            }
            page.give_back(mask);
            for (group, known) in known.iter().enumerate() {
                for (at, known) in known.iter().enumerate() {
                    let mut own =
                        page.multiplied.iter().filter(|one| one.group == group && one.mask >> at & 1 == 1);
                    assert_eq!(own.next().map_or((0, 0), |one| (one.last, one.readers)), *known);
                    assert!(own.next().is_none());
                }
            }
        }
        assert!(page.lent.is_empty());
    }
}
