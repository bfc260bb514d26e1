//! What each warp knows to have happened: vector clocks.
//!
//! A warp counts the steps in which it publishes what it did. An access is known by its warp and that warp's count;
//! another warp's access comes after it where its own clock has reached the count, which barriers, mbarriers and
//! release-acquire pairs bring about. Source: PTX ISA 8.8 "Axioms", causality order.
//!
//! Lanes of a warp share one clock: what they do to each other is not told apart.

use std::collections::BTreeMap;

use ptx::Scope;

/// The number of the grids before this one among its warps; their count is 1 once they have ended.
pub(crate) const EARLIER: u32 = u32::MAX;

/// The count of work that nobody has waited for: no clock reaches it.
pub(crate) const NEVER: u32 = u32::MAX;

/// Counts of the cluster's warps, then of its mbarriers; and of the warps of other clusters by their number in the
/// grid. What is missing is zero.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Clock {
    local: Vec<u32>,
    foreign: BTreeMap<u32, u32>,
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
    }

    /// The count of a warp of the grid.
    pub(crate) fn of(&self, warp: u32, team: Team) -> u32 {
        match team.local(warp) {
            Some(index) => self.local(index),
            None => self.foreign.get(&warp).copied().unwrap_or(0),
        }
    }

    /// The counts of warps, for other clusters.
    pub(crate) fn export(&self, team: Team) -> Vec<(u32, u32)> {
        let own = (team.first..).zip(self.local.iter().copied().take(team.warps as usize));
        own.filter(|(_, count)| *count > 0)
            .chain(self.foreign.iter().map(|(&warp, &count)| (warp, count)))
            .collect()
    }

    pub(crate) fn import(&mut self, counts: &[(u32, u32)], team: Team) {
        for &(warp, count) in counts {
            match team.local(warp) {
                Some(index) => self.raise(index, count),
                None => {
                    let mine = self.foreign.entry(warp).or_default();
                    *mine = (*mine).max(count);
                }
            }
        }
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

/// What a warp knows, and what of it asynchronous work may rely on: that which a proxy fence stands behind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct View {
    pub(crate) known: Clock,
    /// What has been executed besides, though what it wrote need not be visible: an arrival of `.cta` scope at another
    /// CTA's mbarrier says no more. Reads are over then, and memory may be reused.
    pub(crate) done: Clock,
    pub(crate) fenced: Clock,
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
    known: Vec<(u32, u32)>,
    done: Vec<(u32, u32)>,
    fenced: Vec<(u32, u32)>,
    /// Counts of mbarriers, by their cluster's first warp and their place: only that cluster reads them.
    barriers: BTreeMap<(u32, usize), u32>,
    /// What has been released of tensor maps.
    maps: Vec<(Scope, Vec<(u32, u32)>)>,
}

impl View {
    /// Learns that another has executed what it knows, and does not see what was written.
    pub(crate) fn follow(&mut self, other: &Self) {
        self.done.join(&other.known);
        self.done.join(&other.done);
    }

    /// How far a place of the clocks has come, its writes visible or not.
    pub(crate) fn executed(&self, index: usize) -> u32 {
        self.known.local(index).max(self.done.local(index))
    }

    /// The same of a warp of the grid.
    pub(crate) fn executed_by(&self, warp: u32, team: Team) -> u32 {
        self.known.of(warp, team).max(self.done.of(warp, team))
    }

    pub(crate) fn join(&mut self, other: &Self) {
        self.known.join(&other.known);
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
        merge(&mut self.known, &other.known);
        merge(&mut self.done, &other.done);
        merge(&mut self.fenced, &other.fenced);
        for (scope, theirs) in &other.maps {
            match self.maps.iter_mut().find(|(mine, _)| mine == scope) {
                Some((_, mine)) => merge(mine, theirs),
                None => self.maps.push((*scope, theirs.clone())),
            }
        }
        for (&place, &count) in &other.barriers {
            let known = self.barriers.entry(place).or_default();
            *known = (*known).max(count);
        }
    }
}

/// Raises counts of warps to another list's.
fn merge(mine: &mut Vec<(u32, u32)>, theirs: &[(u32, u32)]) {
    let mut all: BTreeMap<u32, u32> = mine.iter().copied().collect();
    for &(warp, count) in theirs {
        let known = all.entry(warp).or_default();
        *known = (*known).max(count);
    }
    *mine = all.into_iter().collect();
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
