//! What a thread knows: clocks of what is visible, executed, fenced and released, and their form for other
//! clusters.

use std::collections::BTreeMap;

use ptx::Scope;

use super::foreign::Foreign;
use super::{Clock, Counts, Team};
use crate::lanes::lanes;
use crate::race::{Observed, is_global};
use crate::trie::{Combined, Trie};

/// What a thread knows, and which part of it asynchronous work may rely on: everything before a proxy fence.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct View {
    pub(crate) known: Clock,
    /// What is known to have been executed, though its writes need not be visible. An arrival of `.cta` scope
    /// at the mbarrier of another CTA gives only this. It is enough to reuse memory, as the reads are over.
    pub(crate) done: Clock,
    /// What a proxy fence of global memory has followed.
    pub(crate) fenced: Clock,
    /// What a proxy fence of shared memory has followed, by the rank of the CTA whose memory it is.
    pub(crate) staged: Vec<Clock>,
    pub(crate) maps: Maps,
    /// CTAs of the cluster that are known to have started, one bit per rank.
    pub(crate) started: u32,
    /// The strong writes that it has seen, though it does not know what their threads did before.
    pub(crate) observed: Observed,
}

/// The clock that knows nothing.
static NOTHING: Clock = Clock { local: Vec::new(), foreign: Foreign(None), local_lanes: Vec::new() };

/// The part of a thread's knowledge that a copy may rely on when it reads a tensor map from global memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Maps {
    /// What has been released through the tensormap proxy, by scope.
    pub(crate) released: BTreeMap<Scope, Clock>,
    /// Which part of that has been acquired, by CTA and map ([`Maps::key`]). It is not sent to other clusters, as each
    /// cluster acquires for itself.
    acquired: Trie<Clock>,
}

/// The larger counts of two clocks.
fn larger(mine: &Clock, theirs: &Clock) -> Combined<Clock> {
    let mut all = mine.clone();
    all.join(theirs);
    which(all, mine, theirs)
}

/// The smaller counts of two clocks.
fn smaller(mine: &Clock, theirs: &Clock) -> Combined<Clock> {
    let mut both = mine.clone();
    both.meet(theirs);
    which(both, mine, theirs)
}

fn which(new: Clock, mine: &Clock, theirs: &Clock) -> Combined<Clock> {
    if new == *mine {
        Combined::First
    } else if new == *theirs {
        Combined::Second
    } else {
        Combined::New(new)
    }
}

impl Maps {
    /// The key of a map for a CTA: the CTA's number in the grid, and the map's address.
    fn key(cta: u32, address: u64) -> u128 {
        u128::from(cta) << 64 | u128::from(address)
    }

    /// A CTA acquires what has been released, for the map at an address.
    pub(crate) fn acquire(&mut self, (cta, address): (u32, u64), released: Clock) {
        self.acquired.add(Self::key(cta, address), released, &larger);
    }

    /// What a CTA has acquired for the map at an address.
    pub(crate) fn acquired(&self, (cta, address): (u32, u64)) -> Option<&Clock> {
        self.acquired.get(Self::key(cta, address))
    }

    fn join(&mut self, other: &Self) {
        for (&scope, clock) in &other.released {
            self.released.entry(scope).or_default().join(clock);
        }
        self.acquired.join(&other.acquired, &larger);
    }

    fn meet(&mut self, other: &Self) {
        self.released
            .retain(|scope, clock| other.released.get(scope).map(|theirs| clock.meet(theirs)).is_some());
        self.acquired.meet(&other.acquired, &smaller);
    }
}

/// A view in the form in which it is sent to other clusters.
#[derive(Clone, Debug, Default)]
pub(crate) struct Letter {
    known: Counts,
    done: Counts,
    fenced: Counts,
    /// What concerns the shared memory of a cluster, by the first warp of the cluster.
    clusters: Trie<Inside>,
    /// What has been released through the tensormap proxy, by scope.
    maps: Vec<(Scope, Counts)>,
    /// Words of global memory only.
    observed: Observed,
}

/// What is known of the CTAs of one cluster.
#[derive(Clone, Debug, Default)]
struct Inside {
    /// The CTAs that have started, one bit per rank.
    started: u32,
    /// What a proxy fence has followed, by the rank of the CTA whose memory it is.
    staged: Vec<Counts>,
}

impl View {
    /// Learns that everything another view knows has been executed, but not that its writes are visible.
    pub(crate) fn follow(&mut self, other: &Self) {
        self.done.join(&other.known);
        self.done.join(&other.done);
        self.join_staged(other);
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
        self.join_staged(other);
        self.done.join(&other.done);
        if other.fenced != Clock::default() {
            self.fenced.join(&other.fenced);
        }
        self.maps.join(&other.maps);
        self.observed.join(&other.observed);
    }

    /// Forgets what another view does not know.
    pub(crate) fn meet(&mut self, other: &Self) {
        self.started &= other.started;
        self.known.meet(&other.known);
        self.done.meet(&other.done);
        self.fenced.meet(&other.fenced);
        self.staged.truncate(other.staged.len());
        self.staged.iter_mut().zip(&other.staged).for_each(|(mine, theirs)| mine.meet(theirs));
        self.maps.meet(&other.maps);
        self.observed.meet(&other.observed);
    }

    fn join_staged(&mut self, other: &Self) {
        if self.staged.len() < other.staged.len() {
            self.staged.resize(other.staged.len(), Clock::default());
        }
        self.staged.iter_mut().zip(&other.staged).for_each(|(mine, theirs)| mine.join(theirs));
    }

    /// What a proxy fence of the shared memory of the CTA with this rank has followed.
    pub(crate) fn staged(&self, rank: usize) -> &Clock {
        self.staged.get(rank).unwrap_or(&NOTHING)
    }

    /// Executes a proxy fence of global memory.
    pub(crate) fn fence_proxy(&mut self) {
        self.fenced.join(&self.known);
    }

    /// Executes a proxy fence of the shared memory of the CTA with this rank. Returns the clock of what such
    /// fences have followed.
    pub(crate) fn stage(&mut self, rank: usize) -> &mut Clock {
        if self.staged.len() <= rank {
            self.staged.resize(rank + 1, Clock::default());
        }
        let staged = &mut self.staged[rank];
        staged.join(&self.known);
        staged
    }

    pub(crate) fn write(&self, team: Team) -> Letter {
        let maps = self.maps.released.iter().map(|(&scope, clock)| (scope, clock.export(team))).collect();
        let staged = self.staged.iter().map(|clock| clock.export(team)).collect();
        Letter {
            known: self.known.export(team),
            done: self.done.export(team),
            fenced: self.fenced.export(team),
            clusters: Trie::of(team.first.into(), Inside { started: self.started, staged }),
            maps,
            observed: self.observed.filtered(is_global),
        }
    }

    pub(crate) fn read(&mut self, letter: &Letter, team: Team) {
        self.known.import(&letter.known, team);
        self.done.import(&letter.done, team);
        self.fenced.import(&letter.fenced, team);
        self.observed.join(&letter.observed);
        for (scope, counts) in &letter.maps {
            self.maps.released.entry(*scope).or_default().import(counts, team);
        }
        if let Some(inside) = letter.clusters.get(team.first.into()) {
            self.started |= inside.started;
            if self.staged.len() < inside.staged.len() {
                self.staged.resize(inside.staged.len(), Clock::default());
            }
            for (mine, counts) in self.staged.iter_mut().zip(&inside.staged) {
                mine.import(counts, team);
            }
        }
    }
}

impl Inside {
    /// The content of both.
    fn with(&self, other: &Self) -> Self {
        let mut all = self.clone();
        all.started |= other.started;
        if all.staged.len() < other.staged.len() {
            all.staged.resize(other.staged.len(), Counts::default());
        }
        all.staged.iter_mut().zip(&other.staged).for_each(|(mine, theirs)| mine.merge(theirs));
        all
    }
}

impl Letter {
    /// Adds the content of another letter.
    pub(crate) fn append(&mut self, other: &Self) {
        self.known.merge(&other.known);
        self.done.merge(&other.done);
        self.fenced.merge(&other.fenced);
        self.observed.join(&other.observed);
        for (scope, theirs) in &other.maps {
            match self.maps.iter_mut().find(|(mine, _)| mine == scope) {
                Some((_, mine)) => mine.merge(theirs),
                None => self.maps.push((*scope, theirs.clone())),
            }
        }
        self.clusters.join(&other.clusters, &|mine, theirs| Combined::New(mine.with(theirs)));
    }
}
