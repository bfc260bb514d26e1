//! What each thread knows to have happened: vector clocks.
//!
//! A warp counts the steps in which one of its threads publishes what it did. An access is known by its thread and the
//! warp's count at that time; another thread's access comes after it where its own clock has reached the count, which
//! barriers, mbarriers and release-acquire pairs bring about. Source: PTX ISA 8.8 "Axioms", causality order.
//!
//! A clock holds one count for all lanes of a warp, and 32 counts for the few warps of which it knows more about some
//! lanes than about others.

use std::collections::BTreeMap;

use ptx::Scope;

use crate::warp::{ALL, lanes};

/// The number of the grids before this one among its warps; their count is 1 once they have ended.
pub(crate) const EARLIER: u32 = u32::MAX;

/// The count of work that nobody has waited for: no clock reaches it.
pub(crate) const NEVER: u32 = u32::MAX;

/// Counts of the lanes of some warps, in order of the warps' numbers.
type Split = Vec<(u32, [u32; 32])>;

/// Counts of the cluster's warps, then of its mbarriers; and of the warps of other clusters by their number in the
/// grid. What is missing is zero.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Clock {
    local: Vec<u32>,
    foreign: BTreeMap<u32, u32>,
    /// Counts above those of the whole warps, by the warp's index in the cluster and by its number in the grid.
    local_lanes: Split,
    foreign_lanes: Split,
}

/// Raises the counts of one warp's lanes to others; says what all lanes have reached.
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

    /// Forgets what says no more of lanes than is known of the whole warp.
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

    /// Learns what another knows.
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

    /// The count that all lanes of a warp of the grid have reached.
    pub(crate) fn of(&self, warp: u32, team: Team) -> u32 {
        match team.local(warp) {
            Some(index) => self.local(index),
            None => self.foreign.get(&warp).copied().unwrap_or(0),
        }
    }

    /// Whether some lanes of a warp of the grid have all reached a count.
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

    /// The counts of warps, for other clusters.
    pub(crate) fn export(&self, team: Team) -> Counts {
        let own = (team.first..).zip(self.local.iter().copied().take(team.warps as usize));
        let whole = own.filter(|(_, count)| *count > 0);
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

/// Counts of warps and of lanes by the warp's number in the grid.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    whole: Vec<(u32, u32)>,
    lanes: Split,
}

impl Counts {
    /// That the grids before this one have ended.
    pub(crate) fn earlier() -> Self {
        Self { whole: vec![(EARLIER, 1)], lanes: Vec::new() }
    }

    /// Keeps the counts of some warps.
    pub(crate) fn filtered(mut self, keep: impl Fn(u32) -> bool) -> Self {
        self.whole.retain(|(warp, _)| keep(*warp));
        self.lanes.retain(|(warp, _)| keep(*warp));
        self
    }

    /// Raises the counts to another list's.
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

/// The warps of one cluster among those of the grid.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Team {
    pub(crate) first: u32,
    pub(crate) warps: u32,
    /// Warps of one CTA.
    pub(crate) per_cta: u32,
}

impl Team {
    fn local(self, warp: u32) -> Option<usize> {
        let index = warp.checked_sub(self.first)?;
        (index < self.warps).then_some(index as usize)
    }
}

/// What a thread knows, and what of it asynchronous work may rely on: that which a proxy fence stands behind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct View {
    pub(crate) known: Clock,
    /// What has been executed besides, though what it wrote need not be visible: an arrival of `.cta` scope at another
    /// CTA's mbarrier says no more. Reads are over then, and memory may be reused.
    pub(crate) done: Clock,
    pub(crate) fenced: Clock,
    /// The same of shared memory.
    pub(crate) staged: Clock,
    pub(crate) maps: Maps,
}

/// What of it copies may rely on that read a tensor map from global memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Maps {
    /// What has been released through the tensormap proxy, by scope.
    pub(crate) released: BTreeMap<Scope, Clock>,
    /// What of that has been acquired, by the CTA's number in the grid and the map's address. Does not travel between
    /// clusters, as each acquires for itself.
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

/// A view as it travels between clusters.
#[derive(Clone, Debug, Default)]
pub(crate) struct Letter {
    known: Counts,
    done: Counts,
    fenced: Counts,
    /// Counts of mbarriers, by their cluster's first warp and their place: only that cluster reads them.
    barriers: BTreeMap<(u32, usize), u32>,
    /// What has been released of tensor maps.
    maps: Vec<(Scope, Counts)>,
}

impl View {
    /// Learns that another has executed what it knows, and does not see what was written.
    pub(crate) fn follow(&mut self, other: &Self) {
        self.done.join(&other.known);
        self.done.join(&other.done);
        self.staged.join(&other.staged);
    }

    /// How far a place of the clocks has come, its writes visible or not.
    pub(crate) fn executed(&self, index: usize) -> u32 {
        self.known.local(index).max(self.done.local(index))
    }

    /// Whether some lanes of a warp of the grid have all come to a count, their writes visible or not.
    pub(crate) fn executed_by(&self, warp: u32, mask: u32, count: u32, team: Team) -> bool {
        let one = |lane: usize| {
            let mask = 1u32 << lane;
            self.known.covers(warp, mask, count, team) || self.done.covers(warp, mask, count, team)
        };
        self.known.of(warp, team) >= count || lanes(mask).all(one)
    }

    pub(crate) fn join(&mut self, other: &Self) {
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
        let places = self.known.local.iter().copied().enumerate().skip(team.warps as usize);
        let barriers =
            places.filter(|(_, count)| *count > 0).map(|(place, count)| ((team.first, place), count));
        let barriers = barriers.collect();
        let maps = self.maps.released.iter().map(|(&scope, clock)| (scope, clock.export(team))).collect();
        Letter {
            known: self.known.export(team),
            done: self.done.export(team),
            fenced: self.fenced.export(team),
            barriers,
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
        for (&(first, place), &count) in &letter.barriers {
            if first == team.first {
                self.known.raise(place, count);
            }
        }
    }
}

impl Letter {
    /// Adds what another letter says.
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
        for (&place, &count) in &other.barriers {
            let known = self.barriers.entry(place).or_default();
            *known = (*known).max(count);
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
        assert_eq!(
            (writer.known.of(5, near), writer.known.of(9, near)),
            (7, 0),
            "a barrier's count is no warp's"
        );
        let mut reader = View::default();
        reader.read(&writer.write(near), far);
        assert_eq!((reader.known.of(5, far), reader.known.of(6, far)), (7, 0));
        assert_eq!(reader.fenced.of(5, far), 0, "nobody has fenced");
        reader.fence_proxy();
        assert_eq!(reader.fenced.of(5, far), 7);
        let mut back = View::default();
        back.read(&reader.write(far), near);
        assert_eq!((back.known.local(1), back.fenced.local(1)), (7, 7), "the way home");
        let mut letter = Letter::default();
        letter.append(&reader.write(far));
        letter.append(&writer.write(near));
        back = View::default();
        back.read(&letter, near);
        assert_eq!(back.known.local(1), 7);
    }
}
