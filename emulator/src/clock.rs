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

use std::collections::BTreeMap;

use ptx::Scope;

use crate::warp::{ALL, lanes};

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
    foreign: BTreeMap<u32, u32>,
    /// Counts per lane that exceed the count of the whole warp, by index in the cluster or by number in the
    /// grid.
    local_lanes: Split,
    foreign_lanes: Split,
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
        let base = self.local(index);
        let base = raise_lanes(&mut self.local_lanes, index as u32, base, &counts);
        self.raise(index, base);
    }

    /// Removes counts per lane that do not exceed the count of the whole warp.
    fn prune(&mut self) {
        let Self { local, foreign, local_lanes, foreign_lanes } = self;
        local_lanes.retain(|(warp, counts)| {
            let base = local.get(*warp as usize).copied().unwrap_or(0);
            counts.iter().any(|&count| count > base)
        });
        foreign_lanes.retain(|(warp, counts)| {
            let base = foreign.get(warp).copied().unwrap_or(0);
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
        for (&warp, &count) in &other.foreign {
            let mine = self.foreign.entry(warp).or_default();
            *mine = (*mine).max(count);
        }
        for (warp, counts) in &other.local_lanes {
            let base = self.local(*warp as usize);
            let base = raise_lanes(&mut self.local_lanes, *warp, base, counts);
            self.raise(*warp as usize, base);
        }
        for (warp, counts) in &other.foreign_lanes {
            self.import_lanes(*warp, counts);
        }
        if !self.local_lanes.is_empty() || !self.foreign_lanes.is_empty() {
            self.prune();
        }
    }

    fn import_lanes(&mut self, warp: u32, counts: &[u32; 32]) {
        let base = self.foreign.get(&warp).copied().unwrap_or(0);
        let base = raise_lanes(&mut self.foreign_lanes, warp, base, counts);
        if base > 0 {
            self.foreign.insert(warp, base);
        }
    }

    /// The count that is known for all lanes of a warp of the grid.
    pub(crate) fn of(&self, warp: u32, team: Team) -> u32 {
        match team.local(warp) {
            Some(index) => self.local(index),
            None => self.foreign.get(&warp).copied().unwrap_or(0),
        }
    }

    /// Whether every lane in `mask`, of a warp of the grid, is known to have reached a count.
    pub(crate) fn covers(&self, warp: u32, mask: u32, count: u32, team: Team) -> bool {
        if self.of(warp, team) >= count {
            return true;
        }
        let split = match team.local(warp) {
            Some(index) => lanes_of(&self.local_lanes, index as u32),
            None => lanes_of(&self.foreign_lanes, warp),
        };
        split.is_some_and(|counts| lanes(mask).all(|lane| counts[lane] >= count))
    }

    /// The counts in a form that other clusters can read.
    pub(crate) fn export(&self, team: Team) -> Counts {
        let own = self.local.iter().enumerate().filter(|(_, count)| **count > 0);
        let whole = own.filter_map(|(place, &count)| Some((team.number(place)?, count)));
        let whole = whole.chain(self.foreign.iter().map(|(&warp, &count)| (warp, count))).collect();
        let own = self.local_lanes.iter().map(|(index, counts)| (team.first + index, *counts));
        let lanes = own.chain(self.foreign_lanes.iter().copied()).collect();
        Counts { whole, lanes }
    }

    pub(crate) fn import(&mut self, counts: &Counts, team: Team) {
        for &(warp, count) in &counts.whole {
            match team.local(warp) {
                Some(index) => self.raise(index, count),
                None => {
                    let mine = self.foreign.entry(warp).or_default();
                    *mine = (*mine).max(count);
                }
            }
        }
        for (warp, counts) in &counts.lanes {
            match team.local(*warp) {
                Some(index) => {
                    let base = self.local(index);
                    let base = raise_lanes(&mut self.local_lanes, index as u32, base, counts);
                    self.raise(index, base);
                }
                None => self.import_lanes(*warp, counts),
            }
        }
    }
}

/// Counts of warps and of lanes, by the warp's number in the grid.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    whole: Vec<(u32, u32)>,
    lanes: Split,
}

impl Counts {
    /// The knowledge that all earlier grids have ended.
    pub(crate) fn earlier() -> Self {
        Self { whole: vec![(EARLIER, 1)], lanes: Vec::new() }
    }

    /// Keeps only the counts of the warps for which `keep` is true.
    pub(crate) fn filtered(mut self, keep: impl Fn(u32) -> bool) -> Self {
        self.whole.retain(|(warp, _)| keep(*warp));
        self.lanes.retain(|(warp, _)| keep(*warp));
        self
    }

    /// Raises every count to that of another list.
    fn merge(&mut self, other: &Self) {
        let mut whole: BTreeMap<u32, u32> = self.whole.iter().copied().collect();
        for &(warp, count) in &other.whole {
            let known = whole.entry(warp).or_default();
            *known = (*known).max(count);
        }
        for (warp, counts) in &other.lanes {
            let base = whole.get(warp).copied().unwrap_or(0);
            let base = raise_lanes(&mut self.lanes, *warp, base, counts);
            if base > 0 {
                whole.insert(*warp, base);
            }
        }
        self.whole = whole.into_iter().collect();
    }
}

/// The position of a cluster's warps among the warps of the grid.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Team {
    pub(crate) first: u32,
    pub(crate) warps: u32,
    /// Warps of one CTA.
    pub(crate) per_cta: u32,
}

/// Marks a number in the grid that is not a warp's: it counts multiplies or phases.
const COUNTER: u32 = 1 << 31;
/// Number of such numbers per cluster, and their number of bits.
const COUNTERS: u32 = 1 << COUNTER_BITS;
const COUNTER_BITS: u32 = 12;

impl Team {
    /// The cluster's index, modulo the number of clusters that such numbers can distinguish.
    fn cluster(self) -> u32 {
        (self.first / self.warps.max(1)) & ((COUNTER - 1) >> COUNTER_BITS)
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

/// What a thread knows, and which part of it asynchronous work may rely on: everything before a proxy fence.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct View {
    pub(crate) known: Clock,
    /// What is known to have been executed, though its writes need not be visible. An arrival of `.cta` scope
    /// at the mbarrier of another CTA gives only this. It is enough to reuse memory, as the reads are over.
    pub(crate) done: Clock,
    /// What a proxy fence of global memory has followed.
    pub(crate) fenced: Clock,
    /// What a proxy fence of shared memory has followed.
    pub(crate) staged: Clock,
    pub(crate) maps: Maps,
    /// CTAs of the cluster that are known to have started, one bit per rank.
    pub(crate) started: u32,
}

/// The part of a thread's knowledge that a copy may rely on when it reads a tensor map from global memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Maps {
    /// What has been released through the tensormap proxy, by scope.
    pub(crate) released: BTreeMap<Scope, Clock>,
    /// Which part of that has been acquired, by the CTA's number in the grid and the map's address. It is not
    /// sent to other clusters, as each cluster acquires for itself.
    pub(crate) acquired: BTreeMap<(u32, u64), Clock>,
}

impl Maps {
    fn join(&mut self, other: &Self) {
        for (&scope, clock) in &other.released {
            self.released.entry(scope).or_default().join(clock);
        }
        for (&map, clock) in &other.acquired {
            self.acquired.entry(map).or_default().join(clock);
        }
    }
}

/// A view in the form in which it is sent to other clusters.
#[derive(Clone, Debug, Default)]
pub(crate) struct Letter {
    known: Counts,
    done: Counts,
    fenced: Counts,
    /// CTAs that have started, by the first warp of their cluster.
    started: BTreeMap<u32, u32>,
    /// What has been released through the tensormap proxy, by scope.
    maps: Vec<(Scope, Counts)>,
}

impl View {
    /// Learns that everything another view knows has been executed, but not that its writes are visible.
    pub(crate) fn follow(&mut self, other: &Self) {
        self.done.join(&other.known);
        self.done.join(&other.done);
        self.staged.join(&other.staged);
        self.started |= other.started;
    }

    /// The count known for a clock index, whether its writes are visible or not.
    pub(crate) fn executed(&self, index: usize) -> u32 {
        self.known.local(index).max(self.done.local(index))
    }

    /// Whether every lane in `mask`, of a warp of the grid, is known to have reached a count, whether its
    /// writes are visible or not.
    pub(crate) fn executed_by(&self, warp: u32, mask: u32, count: u32, team: Team) -> bool {
        let one = |lane: usize| {
            let mask = 1u32 << lane;
            self.known.covers(warp, mask, count, team) || self.done.covers(warp, mask, count, team)
        };
        self.known.of(warp, team) >= count || lanes(mask).all(one)
    }

    pub(crate) fn join(&mut self, other: &Self) {
        self.started |= other.started;
        self.known.join(&other.known);
        self.staged.join(&other.staged);
        self.done.join(&other.done);
        if other.fenced != Clock::default() {
            self.fenced.join(&other.fenced);
        }
        self.maps.join(&other.maps);
    }

    /// Executes a proxy fence of global memory.
    pub(crate) fn fence_proxy(&mut self) {
        self.fenced.join(&self.known);
    }

    pub(crate) fn write(&self, team: Team) -> Letter {
        let maps = self.maps.released.iter().map(|(&scope, clock)| (scope, clock.export(team))).collect();
        Letter {
            known: self.known.export(team),
            done: self.done.export(team),
            fenced: self.fenced.export(team),
            started: [(team.first, self.started)].into(),
            maps,
        }
    }

    pub(crate) fn read(&mut self, letter: &Letter, team: Team) {
        self.known.import(&letter.known, team);
        self.done.import(&letter.done, team);
        self.fenced.import(&letter.fenced, team);
        for (scope, counts) in &letter.maps {
            self.maps.released.entry(*scope).or_default().import(counts, team);
        }
        self.started |= letter.started.get(&team.first).copied().unwrap_or(0);
    }
}

impl Letter {
    /// Adds the content of another letter.
    pub(crate) fn append(&mut self, other: &Self) {
        self.known.merge(&other.known);
        self.done.merge(&other.done);
        self.fenced.merge(&other.fenced);
        for (scope, theirs) in &other.maps {
            match self.maps.iter_mut().find(|(mine, _)| mine == scope) {
                Some((_, mine)) => mine.merge(theirs),
                None => self.maps.push((*scope, theirs.clone())),
            }
        }
        for (&first, &ranks) in &other.started {
            *self.started.entry(first).or_default() |= ranks;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_travels_and_nothing_else() {
        let near = Team { first: 4, warps: 4, per_cta: 4 };
        let far = Team { first: 8, warps: 4, per_cta: 4 };
        let mut writer = View::default();
        writer.known.raise(1, 7);
        writer.known.raise(5, 3);
        writer.started = 1;
        assert_eq!(
            (writer.known.of(5, near), writer.known.of(9, near)),
            (7, 0),
            "a barrier's count is no warp's"
        );
        let mut reader = View::default();
        reader.read(&writer.write(near), far);
        assert_eq!((reader.known.of(5, far), reader.known.of(6, far)), (7, 0));
        let phases = near.number(5).unwrap();
        assert_eq!(
            (reader.known.of(phases, far), reader.known.local(5)),
            (3, 0),
            "another cluster's barrier"
        );
        assert_eq!(reader.started, 0, "another cluster's CTAs");
        assert_eq!(reader.fenced.of(5, far), 0, "nobody has fenced");
        reader.fence_proxy();
        assert_eq!(reader.fenced.of(5, far), 7);
        let mut back = View::default();
        back.read(&reader.write(far), near);
        assert_eq!((back.known.local(1), back.fenced.local(1)), (7, 7), "the way home");
        assert_eq!((back.known.local(5), back.known.of(phases, near)), (3, 3));
        let mut letter = Letter::default();
        letter.append(&reader.write(far));
        letter.append(&writer.write(near));
        back = View::default();
        back.read(&letter, near);
        assert_eq!(back.known.local(1), 7);
    }
}
