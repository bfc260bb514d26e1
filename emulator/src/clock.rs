//! Vector clocks: for each thread, what it knows to have happened. Race detection compares accesses with
//! them.
//!
//! Each warp has a count, which grows whenever one of its threads publishes what it did. An access is
//! identified by its thread and the warp's count at that time. An access of another thread comes after it if
//! the clock of that thread has reached the count: the thread *knows* the access. Barriers, mbarriers and
//! release-acquire pairs raise clocks. Source: PTX ISA 8.8 "Axioms", causality order.
//!
//! A clock has one count for all lanes of a warp. For the few warps with lanes that are known to different
//! extents it has 32 counts.
//!
//! Counts of other clusters are shared: clocks that have learnt the same refer to one tree, so what a grid
//! barrier tells every thread of a grid is kept once.

mod foreign;
mod view;

use ptx::inst::Scope;

use crate::lanes::{ALL, lanes};

use foreign::{Count, Foreign};

pub(crate) use view::{Letter, View};

/// The warp number that stands for all earlier grids. Its count is 1 once they have ended.
pub(crate) const EARLIER: u32 = u32::MAX;

/// The count of work that has not been waited for. No clock reaches it.
pub(crate) const NEVER: u32 = u32::MAX;

/// Counts per lane of some warps, sorted by warp.
type Split = Vec<(u32, [u32; 32])>;

/// A vector clock.
///
/// `local` has the counts of the cluster's warps, then of the multiplies of its warpgroups, then of the
/// phases of its mbarriers. `foreign` has the counts of other clusters, by number in the grid
/// ([`Team::number`]). Missing counts are zero.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Clock {
    local: Vec<u32>,
    foreign: Foreign,
    /// Counts per lane that exceed the count of the whole warp, by index in the cluster.
    local_lanes: Split,
}

/// Raises the counts of the lanes of one warp. Returns the count that all lanes have reached.
fn raise_lanes(split: &mut Split, warp: u32, base: u32, counts: &[u32; 32]) -> u32 {
    let at = match split.binary_search_by_key(&warp, |(warp, _)| *warp) {
        Ok(at) => at,
        Err(at) => {
            if counts.iter().all(|&count| count <= base) {
                return base;
            }
            split.insert(at, (warp, [base; 32]));
            at
        }
    };
    let (mut least, mut most) = (u32::MAX, 0);
    for (mine, theirs) in split[at].1.iter_mut().zip(counts) {
        *mine = (*mine).max(*theirs).max(base);
        least = least.min(*mine);
        most = most.max(*mine);
    }
    if least == most {
        split.remove(at);
    }
    least
}

fn lanes_of(split: &Split, warp: u32) -> Option<&[u32; 32]> {
    let at = split.binary_search_by_key(&warp, |(warp, _)| *warp).ok()?;
    Some(&split[at].1)
}

impl Clock {
    pub(crate) fn local(&self, index: usize) -> u32 {
        self.local.get(index).copied().unwrap_or(0)
    }

    /// Raises one count to `at_least`.
    pub(crate) fn raise(&mut self, index: usize, at_least: u32) {
        if self.local.len() <= index {
            self.local.resize(index + 1, 0);
        }
        self.local[index] = self.local[index].max(at_least);
    }

    /// Raises the counts of some lanes of a warp of the cluster.
    pub(crate) fn raise_lanes(&mut self, index: usize, mask: u32, at_least: u32) {
        if mask == ALL {
            self.raise(index, at_least);
            if !self.local_lanes.is_empty() {
                self.prune();
            }
            return;
        }
        let counts = core::array::from_fn(|lane| if mask >> lane & 1 == 1 { at_least } else { 0 });
        self.learn_lanes(index, &counts);
    }

    /// Removes counts per lane that do not exceed the count of the whole warp.
    fn prune(&mut self) {
        let Self { local, local_lanes, .. } = self;
        local_lanes.retain(|(warp, counts)| {
            let base = local.get(*warp as usize).copied().unwrap_or(0);
            counts.iter().any(|&count| count > base)
        });
    }

    /// Raises every count to that of another clock.
    pub(crate) fn join(&mut self, other: &Self) {
        if self.local.len() < other.local.len() {
            self.local.resize(other.local.len(), 0);
        }
        for (mine, theirs) in self.local.iter_mut().zip(&other.local) {
            *mine = (*mine).max(*theirs);
        }
        self.foreign.join(&other.foreign);
        for (warp, counts) in &other.local_lanes {
            self.learn_lanes(*warp as usize, counts);
        }
        if !self.local_lanes.is_empty() {
            self.prune();
        }
    }

    /// Lowers every count to that of another clock: what both know.
    pub(crate) fn meet(&mut self, other: &Self) {
        let local_lanes = common(
            (&self.local_lanes, &|warp| self.local(warp as usize)),
            (&other.local_lanes, &|warp| other.local(warp as usize)),
        );
        self.local.truncate(other.local.len());
        for (mine, theirs) in self.local.iter_mut().zip(&other.local) {
            *mine = (*mine).min(*theirs);
        }
        self.foreign.meet(&other.foreign);
        self.local_lanes = local_lanes;
        self.prune();
    }

    /// The count that is known for all lanes of a warp of the grid.
    pub(crate) fn of(&self, warp: u32, team: Team) -> u32 {
        match team.local(warp) {
            Some(index) => self.local(index),
            None => self.foreign.of(warp),
        }
    }

    /// Whether every lane in `mask`, of a warp of the grid, is known to have reached a count.
    pub(crate) fn covers(&self, warp: u32, mask: u32, count: u32, team: Team) -> bool {
        if self.of(warp, team) >= count {
            return true;
        }
        let split = match team.local(warp) {
            Some(index) => lanes_of(&self.local_lanes, index as u32),
            None => self.foreign.count(warp).and_then(Count::lanes),
        };
        split.is_some_and(|counts| lanes(mask).all(|lane| counts[lane] >= count))
    }

    /// The counts in a form that other clusters can read.
    pub(crate) fn export(&self, team: Team) -> Counts {
        let own = self.local.iter().enumerate().filter(|(_, count)| **count > 0);
        let near = own.filter_map(|(place, &count)| Some((team.number(place)?, count))).collect();
        let lanes = self.local_lanes.iter().map(|(index, counts)| (team.first + index, *counts)).collect();
        Counts { near, far: self.foreign.clone(), lanes }
    }

    pub(crate) fn import(&mut self, counts: &Counts, team: Team) {
        if let Some(&(first, _)) = counts.near.first() {
            if team.local(first).is_some() {
                for &(number, count) in &counts.near {
                    if let Some(place) = team.local(number) {
                        self.raise(place, count);
                    }
                }
            } else {
                self.foreign.raise(&counts.near);
            }
        }
        // Counts of the own cluster may stay in the shared tree: they are looked up in `local`.
        for range in team.numbers() {
            counts.far.each(range, &mut |number, count| {
                if let Some(place) = team.local(number) {
                    self.raise(place, count.least());
                    if let Some(lanes) = count.lanes() {
                        self.learn_lanes(place, lanes);
                    }
                }
            });
        }
        self.foreign.join(&counts.far);
        for (warp, lanes) in &counts.lanes {
            match team.local(*warp) {
                Some(place) => self.learn_lanes(place, lanes),
                None => self.foreign.raise_to(*warp, &Count::of_lanes(*lanes)),
            }
        }
    }

    /// Raises the counts of the lanes of a warp of the cluster.
    fn learn_lanes(&mut self, place: usize, lanes: &[u32; 32]) {
        let base = self.local(place);
        let base = raise_lanes(&mut self.local_lanes, place as u32, base, lanes);
        self.raise(place, base);
    }
}

/// For each warp with counts per lane in either of two clocks: the smaller counts.
fn common((a, of_a): (&Split, &dyn Fn(u32) -> u32), (b, of_b): (&Split, &dyn Fn(u32) -> u32)) -> Split {
    let mut warps: Vec<u32> = a.iter().chain(b).map(|(warp, _)| *warp).collect();
    warps.sort_unstable();
    warps.dedup();
    let each = |split: &Split, base: u32, warp: u32, lane: usize| {
        lanes_of(split, warp).map_or(base, |counts| counts[lane].max(base))
    };
    let smaller = |warp: u32| {
        let (mine, theirs) = (of_a(warp), of_b(warp));
        core::array::from_fn(|lane| each(a, mine, warp, lane).min(each(b, theirs, warp, lane)))
    };
    warps.into_iter().map(|warp| (warp, smaller(warp))).collect()
}

/// Counts of warps and of lanes, by the warp's number in the grid.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    /// Those of the cluster that has written them, sorted; of whole warps, and of lanes that exceed them.
    near: Vec<(u32, u32)>,
    lanes: Split,
    far: Foreign,
}

impl Counts {
    /// The knowledge that all earlier grids have ended.
    pub(crate) fn earlier() -> Self {
        Self { near: vec![(EARLIER, 1)], ..Self::default() }
    }

    /// Keeps only the counts of the warps for which `keep` is true.
    pub(crate) fn filtered(mut self, keep: impl Fn(u32) -> bool) -> Self {
        self.near.retain(|(warp, _)| keep(*warp));
        self.far.retain(&keep);
        self.lanes.retain(|(warp, _)| keep(*warp));
        self
    }

    /// Raises every count to that of another list.
    fn merge(&mut self, other: &Self) {
        self.far.raise(&core::mem::take(&mut self.near));
        self.far.join(&other.far);
        self.far.raise(&other.near);
        for (warp, lanes) in core::mem::take(&mut self.lanes).iter().chain(&other.lanes) {
            self.far.raise_to(*warp, &Count::of_lanes(*lanes));
        }
    }
}

/// The position of a cluster's warps among the warps of the grid.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Team {
    pub(crate) first: u32,
    pub(crate) warps: u32,
    /// Warps of one CTA.
    pub(crate) per_cta: u32,
    /// The GPU of each launch that runs at the same time, by slot; `None` if a launch runs alone.
    pub(crate) gpus: Option<Gpus>,
}

/// Number of bits of a warp's number within its launch, if several launches run at the same time.
pub(crate) const SLOT_SHIFT: u32 = 24;
/// Largest number of launches that run at the same time.
pub(crate) const SLOTS: usize = 16;

/// The GPU of each launch, by slot, with four bits each.
pub(crate) type Gpus = u64;

/// The number of the first warp of a launch.
pub(crate) const fn first_of(slot: u32) -> u32 {
    slot << SLOT_SHIFT
}

/// Marks a number in the grid that is not a warp's: it counts multiplies or phases.
const COUNTER: u32 = 1 << 31;
/// Number of such numbers per cluster, and their number of bits.
const COUNTERS: u32 = 1 << COUNTER_BITS;
const COUNTER_BITS: u32 = 12;

impl Team {
    /// Whether scope `a` of one warp includes the other warp, and scope `b` of the other warp includes the first. Warps are
    /// numbered in the grid.
    pub(crate) fn together(self, a: Scope, b: Scope, (one, other): (u32, u32)) -> bool {
        let Some(gpus) = self.gpus else {
            let both = |scope: Scope| match scope {
                Scope::Cta => one / self.per_cta.max(1) == other / self.per_cta.max(1),
                Scope::Cluster => one / self.warps.max(1) == other / self.warps.max(1),
                Scope::Gpu | Scope::System => true,
            };
            return both(a) && both(b);
        };
        let slots = [one, other].map(|number| number >> SLOT_SHIFT);
        let within = [one, other].map(|number| number & ((1 << SLOT_SHIFT) - 1));
        let same = |by: u32| slots[0] == slots[1] && within[0] / by.max(1) == within[1] / by.max(1);
        let gpu = |slot: u32| gpus >> (4 * slot) & 0xF;
        let both = |scope: Scope| match scope {
            Scope::Cta => same(self.per_cta),
            Scope::Cluster => same(self.warps),
            Scope::Gpu => gpu(slots[0]) == gpu(slots[1]),
            Scope::System => true,
        };
        both(a) && both(b)
    }

    /// The narrowest scope that includes all threads.
    pub(crate) fn widest(self) -> Scope {
        if self.gpus.is_some() { Scope::System } else { Scope::Gpu }
    }

    /// The number of a warp's CTA, which is another for each CTA of all launches.
    pub(crate) fn cta(self, number: u32) -> u32 {
        match self.gpus {
            None => number / self.per_cta.max(1),
            Some(_) => {
                let first = number >> SLOT_SHIFT << SLOT_SHIFT;
                first + (number - first) / self.per_cta.max(1)
            }
        }
    }

    /// The cluster's index, modulo the number of clusters that such numbers can distinguish.
    fn cluster(self) -> u32 {
        let all = (COUNTER - 1) >> COUNTER_BITS;
        match self.gpus {
            None => (self.first / self.warps.max(1)) & all,
            Some(_) => {
                let slot = self.first >> SLOT_SHIFT;
                let bits = all.count_ones() - SLOTS.ilog2();
                let index = (self.first - first_of(slot)) / self.warps.max(1);
                slot << bits | index & ((1 << bits) - 1)
            }
        }
    }

    /// The number in the grid of a clock index; `None` if the index is too large for one.
    pub(crate) fn number(self, place: usize) -> Option<u32> {
        let place = u32::try_from(place).ok()?;
        match place.checked_sub(self.warps) {
            None => Some(self.first.wrapping_add(place)),
            Some(counter) => {
                (counter < COUNTERS - 1).then(|| COUNTER | self.cluster() << COUNTER_BITS | counter)
            }
        }
    }

    /// The numbers in the grid of this cluster's clock indices: of its warps, and of what else it counts. Each
    /// range from the first to the last.
    fn numbers(self) -> [(u32, u32); 2] {
        let counters = COUNTER | self.cluster() << COUNTER_BITS;
        [(self.first, self.first + self.warps.saturating_sub(1)), (counters, counters + (COUNTERS - 2))]
    }

    /// The clock index of a number in the grid; `None` if it belongs to another cluster.
    fn local(self, number: u32) -> Option<usize> {
        let counter = number & (COUNTERS - 1);
        if number & COUNTER != 0 && counter < COUNTERS - 1 {
            let own = (number & !COUNTER) >> COUNTER_BITS == self.cluster();
            return own.then_some((self.warps + counter) as usize);
        }
        let index = number.checked_sub(self.first)?;
        (index < self.warps).then_some(index as usize)
    }
}

#[cfg(test)]
mod tests;
