//! What a warp knows to have ended: accesses of warps, and asynchronous work.

use std::collections::BTreeMap;

/// Where threads meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Point {
    /// A generation of a barrier of a CTA.
    Named { cta: usize, id: usize, generation: u64 },
    /// A generation of the cluster's barrier.
    Cluster { generation: u64 },
}

/// Ended accesses and work.
#[derive(Clone, Debug, Default)]
pub(super) struct Knows {
    /// By warp: its accesses of earlier epochs have ended.
    epochs: Vec<u32>,
    /// The same by warp and lanes: the accesses that these have made alone.
    alone: BTreeMap<(usize, u32), u32>,
    /// A bit for each work.
    works: Vec<u64>,
}

impl Knows {
    pub(super) fn join(&mut self, other: &Self) {
        if self.epochs.len() < other.epochs.len() {
            self.epochs.resize(other.epochs.len(), 0);
        }
        if self.works.len() < other.works.len() {
            self.works.resize(other.works.len(), 0);
        }
        self.epochs.iter_mut().zip(&other.epochs).for_each(|(own, other)| *own = (*own).max(*other));
        self.works.iter_mut().zip(&other.works).for_each(|(own, other)| *own |= other);
        for (&who, &epoch) in &other.alone {
            let own = self.alone.entry(who).or_default();
            *own = (*own).max(epoch);
        }
    }

    pub(super) fn finish(&mut self, work: u32) {
        let (word, bit) = (work as usize / 64, work % 64);
        if self.works.len() <= word {
            self.works.resize(word + 1, 0);
        }
        self.works[word] |= 1 << bit;
    }

    fn follows(&self, (warp, lanes): (usize, u32), epoch: u32) -> bool {
        if self.epochs.get(warp).is_some_and(|&known| known > epoch) {
            return true;
        }
        let mut alone = self.alone.range((warp, 0)..=(warp, u32::MAX));
        alone.any(|((_, mask), &known)| lanes & !mask == 0 && known > epoch)
    }

    fn has(&self, work: u32) -> bool {
        self.works.get(work as usize / 64).is_some_and(|word| word >> (work % 64) & 1 == 1)
    }
}

/// What arrivals at an mbarrier have told.
#[derive(Clone, Debug, Default)]
pub(super) struct Told {
    phase: u64,
    /// In phases before that one.
    before: Knows,
    now: Knows,
}

impl Told {
    /// What was told in phases before this one.
    pub(super) fn before(&mut self, phase: u64) -> &Knows {
        let _now = self.in_phase(phase);
        &self.before
    }

    /// What is told in the current phase, which has this number.
    pub(super) fn in_phase(&mut self, phase: u64) -> &mut Knows {
        if phase > self.phase {
            self.phase = phase;
            self.before.join(&core::mem::take(&mut self.now));
        }
        &mut self.now
    }
}

/// What a warp knows: all its lanes, and some of them.
#[derive(Clone, Debug)]
pub(super) struct Member {
    warp: usize,
    /// The number of times that the warp's lanes have met, or told others what they did.
    epoch: u32,
    all: Knows,
    some: Vec<(u32, Knows)>,
}

impl Member {
    pub(super) fn new(warp: usize, warps: usize) -> Self {
        let all = Knows { epochs: vec![0; warps], ..Knows::default() };
        Self { warp, epoch: 0, all, some: Vec::new() }
    }

    pub(super) fn epoch(&self) -> u32 {
        self.epoch
    }

    fn any(&self, lanes: u32, knows: impl Fn(&Knows) -> bool) -> bool {
        knows(&self.all) || self.some.iter().any(|(mask, some)| lanes & !mask == 0 && knows(some))
    }

    pub(super) fn is_done(&self, lanes: u32, work: u32) -> bool {
        self.any(lanes, |knows| knows.has(work))
    }

    /// Whether lanes come after an access of others.
    pub(super) fn follows(&self, lanes: u32, others: (usize, u32), epoch: u32) -> bool {
        self.any(lanes, |knows| knows.follows(others, epoch))
    }

    fn place(&mut self, lanes: u32) -> &mut Knows {
        if lanes == u32::MAX {
            return &mut self.all;
        }
        let at = self.some.iter().position(|(mask, _)| *mask == lanes).unwrap_or_else(|| {
            self.some.push((lanes, Knows::default()));
            self.some.len() - 1
        });
        &mut self.some[at].1
    }

    /// Lanes have waited for work.
    pub(super) fn done(&mut self, lanes: u32, work: u32) {
        self.place(lanes).finish(work);
    }

    /// What lanes tell others. If they are not the whole warp, that is nothing of what the other lanes did since all have met.
    pub(super) fn tells(&mut self, lanes: u32, whole: bool) -> Knows {
        let mut told = self.all.clone();
        for (_, some) in self.some.iter().filter(|(mask, _)| lanes & !mask == 0 || whole) {
            told.join(some);
        }
        self.epoch += 1;
        if whole {
            self.all.epochs[self.warp] = self.epoch;
            told.epochs[self.warp] = self.epoch;
        } else {
            told.alone.insert((self.warp, lanes), self.epoch);
        }
        told
    }

    /// Lanes learn what others have told.
    pub(super) fn learns(&mut self, lanes: u32, whole: bool, told: &Knows) {
        let place = if whole { &mut self.all } else { self.place(lanes) };
        place.join(told);
    }

    /// The lanes meet: each knows what the others know and did.
    pub(super) fn meets(&mut self) {
        for (_, some) in core::mem::take(&mut self.some) {
            self.all.join(&some);
        }
        self.epoch += 1;
        self.all.epochs[self.warp] = self.epoch;
    }
}
