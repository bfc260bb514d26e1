//! The views of a warp's lanes: what each lane knows to have happened.
//!
//! Lanes that know the same share one view. A lane that waits or acquires alone gets a view of its own, until
//! a barrier of the warp or of more threads makes all views equal again. `shfl.sync`, `vote.sync`,
//! `match.sync`, `redux.sync`, `elect.sync` and the `.aligned` collectives do not order memory. Among the
//! instructions of a warp only `bar.warp.sync` does (PTX ISA "bar.warp.sync").

use core::ops::Range;
use std::borrow::Cow;

use ptx::Scope;
use ptx::inst::MbarrierOrder;

use crate::clock::{Team, View};
use crate::lanes::{ALL, lanes};
use crate::mbarrier::{Mbarrier, Released};
use crate::trap::Fault;
use crate::word::Releases;

/// A memory fence: the lanes that executed it last, its scope, what the lanes knew, and the warp's count at
/// that time.
#[derive(Clone, Debug)]
struct Fence {
    lanes: u32,
    scope: Scope,
    view: View,
    count: u32,
}

/// What relaxed reads of a word have seen.
#[derive(Clone, Debug)]
struct Seen {
    lanes: u32,
    address: u64,
    /// The scope of the reads.
    scope: Scope,
    releases: Releases,
}

/// Number of releases that are kept apart per word and lanes.
const APART: usize = 4;

/// The views of a warp's lanes.
#[derive(Clone, Debug)]
pub(crate) struct Views {
    /// The warp's index in its cluster.
    index: usize,
    /// The warp's current count. Accesses of its lanes now get this count.
    pub(crate) count: u32,
    /// Masks of lanes with equal views. Each lane is in one group.
    groups: Vec<(u32, View)>,
    /// The lanes that have not ended.
    alive: u32,
    fences: Vec<Fence>,
    /// The releases that relaxed reads have seen, until a fence, or an acquire of the same word, acquires them.
    seen: Vec<Seen>,
    /// By lanes: what relaxed waits for mbarriers have seen, until a fence acquires it.
    waits: Vec<(u32, Scope, Released)>,
}

impl Views {
    /// The views of a warp with this index in its cluster, in a CTA of this rank.
    pub(crate) fn new(index: usize, rank: u32) -> Self {
        let groups = vec![(ALL, View { started: 1 << rank, ..View::default() })];
        Self { index, count: 1, groups, alive: ALL, fences: Vec::new(), seen: Vec::new(), waits: Vec::new() }
    }

    /// What a lane knows of other threads. Its own accesses are not included.
    pub(crate) fn of(&self, lane: usize) -> &View {
        let found = self.groups.iter().find(|(mask, _)| mask >> lane & 1 == 1);
        found.map_or(&self.groups[0].1, |(_, view)| view)
    }

    /// The groups of lanes with equal views, restricted to a mask.
    pub(crate) fn groups(&self, mask: u32) -> impl Iterator<Item = (u32, &View)> {
        let inside = self.groups.iter().map(move |(lanes, view)| (lanes & mask, view));
        inside.filter(|(lanes, _)| *lanes != 0)
    }

    /// What every lane knows of other threads. An access that the warp makes as a whole must come after what
    /// it conflicts with in each of its threads.
    pub(crate) fn common(&self) -> Cow<'_, View> {
        self.common_of(self.alive)
    }

    /// Lanes have ended: the warp's accesses are no longer theirs.
    pub(crate) fn end(&mut self, lanes: u32) {
        self.alive &= !lanes;
    }

    /// What every lane of a mask knows of other threads.
    pub(crate) fn common_of(&self, mask: u32) -> Cow<'_, View> {
        let mut views = self.groups(mask).map(|(_, view)| view);
        let mut common = views.next().map_or_else(Cow::default, Cow::Borrowed);
        views.for_each(|view| common.to_mut().meet(view));
        common
    }

    /// What any lane knows of other threads.
    pub(crate) fn together(&self) -> View {
        let mut all = View::default();
        self.groups.iter().for_each(|(_, view)| all.join(view));
        all
    }

    /// Refuses a wait for an mbarrier that comes too late for one of the lanes of a mask.
    pub(crate) fn in_time(&self, mask: u32, barrier: &Mbarrier, place: (u32, u32)) -> Result<(), Fault> {
        barrier.in_time(place, self.groups(mask).map(|(_, view)| view))
    }

    /// Called when a wait of the lanes of a mask for an mbarrier has succeeded.
    pub(crate) fn acquire(&mut self, mask: u32, barrier: &Mbarrier, order: MbarrierOrder) {
        let mut later = Vec::new();
        self.change(mask, |lanes, view| {
            later.extend(barrier.acquire(view, order).map(|(scope, released)| (lanes, scope, released)));
        });
        self.waits.extend(later);
    }

    /// The lanes of a mask acquire what their relaxed waits for mbarriers have seen.
    pub(crate) fn acquire_waits(&mut self, mask: u32, by: Scope) {
        for (lanes, scope, released) in core::mem::take(&mut self.waits) {
            self.change(lanes & mask, |_, view| released.acquire(view, scope.min(by)));
            if lanes & !mask != 0 {
                self.waits.push((lanes & !mask, scope, released));
            }
        }
    }

    /// Changes what the lanes of a mask know.
    pub(crate) fn change(&mut self, mask: u32, mut change: impl FnMut(u32, &mut View)) {
        let mut index = 0;
        while index < self.groups.len() {
            let (lanes, view) = &mut self.groups[index];
            let (inside, outside) = (*lanes & mask, *lanes & !mask);
            if inside != 0 {
                if outside != 0 {
                    let rest = (outside, view.clone());
                    *lanes = inside;
                    change(inside, view);
                    self.groups.push(rest);
                } else {
                    change(inside, view);
                }
            }
            index += 1;
        }
        if mask == ALL && self.groups.len() > 1 {
            self.unite();
        }
    }

    /// Merges groups with equal views.
    fn unite(&mut self) {
        let mut united: Vec<(u32, View)> = Vec::with_capacity(self.groups.len());
        for (lanes, view) in core::mem::take(&mut self.groups) {
            match united.iter_mut().find(|(_, known)| *known == view) {
                Some((mask, _)) => *mask |= lanes,
                None => united.push((lanes, view)),
            }
        }
        self.groups = united;
    }

    /// The lanes of a mask learn what another thread released.
    pub(crate) fn learn(&mut self, mask: u32, released: &View) {
        self.change(mask, |_, view| view.join(released));
    }

    /// Begins an instruction that accesses memory: it gets a count of its own.
    pub(crate) fn begin(&mut self) -> u32 {
        self.count += 1;
        self.count
    }

    /// The union of what the lanes of a mask know, including what they did so far. Starts a new count.
    pub(crate) fn publish(&mut self, mask: u32) -> View {
        let all = self.told(mask);
        self.count += 1;
        all
    }

    /// The same, in the same count: for the lanes of one instruction one after the other.
    pub(crate) fn told(&self, mask: u32) -> View {
        let mut inside = self.groups.iter().filter(|(lanes, _)| lanes & mask != 0);
        let mut all = inside.next().map_or_else(View::default, |(_, view)| view.clone());
        inside.for_each(|(_, view)| all.join(view));
        all.known.raise_lanes(self.index, mask, self.count);
        all
    }

    /// Synchronises the lanes of a mask: each learns what the others know and did.
    pub(crate) fn meet(&mut self, mask: u32) {
        let all = self.publish(mask);
        self.groups.iter_mut().for_each(|(lanes, _)| *lanes &= !mask);
        self.groups.retain(|(lanes, _)| *lanes != 0);
        self.groups.push((mask, all));
    }

    /// Executes a proxy fence in the lanes of a mask: of the shared memory of the CTAs with these ranks, and
    /// of global memory or not.
    pub(crate) fn fence_proxy(&mut self, mask: u32, (ranks, global): (Range<usize>, bool)) {
        let (index, count) = (self.index, self.count);
        self.count += 1;
        self.change(mask, |lanes, view| {
            if global {
                view.fence_proxy();
                view.fenced.raise_lanes(index, lanes, count);
            }
            for rank in ranks.clone() {
                view.stage(rank).raise_lanes(index, lanes, count);
            }
        });
    }

    /// Executes a memory fence in the lanes of a mask.
    pub(crate) fn fence(&mut self, mask: u32, scope: Scope) {
        // A fence of narrower scope does not replace an earlier one of wider scope, and knows more: both count.
        let replaced = self.fences.iter_mut().filter(|fence| fence.scope <= scope);
        replaced.for_each(|fence| fence.lanes &= !mask);
        self.fences.retain(|fence| fence.lanes != 0);
        for (lanes, view) in &self.groups {
            if lanes & mask != 0 {
                let (lanes, view, count) = (lanes & mask, view.clone(), self.count);
                self.fences.push(Fence { lanes, scope, view, count });
            }
        }
        self.count += 1;
    }

    /// The scopes of a lane's last fences, and what each of them published.
    pub(crate) fn fenced(&self, lane: usize) -> impl Iterator<Item = (Scope, View)> + '_ {
        self.fences.iter().filter(move |fence| fence.lanes >> lane & 1 == 1).map(move |fence| {
            let mut view = fence.view.clone();
            view.known.raise_lanes(self.index, 1 << lane, fence.count);
            (fence.scope, view)
        })
    }

    /// What all lanes together have published by fences of this scope or wider.
    pub(crate) fn fenced_all(&self, scope: Scope) -> View {
        let all = lanes(ALL).flat_map(|lane| self.fenced(lane)).filter(|(by, _)| *by >= scope);
        all.fold(View::default(), |mut all, (_, view)| {
            all.join(&view);
            all
        })
    }

    /// Remembers the releases that a relaxed read of a word has seen, for the lanes of a mask.
    pub(crate) fn see(&mut self, mask: u32, address: u64, (scope, releases): (Scope, Releases)) {
        if releases.is_empty() {
            return;
        }
        self.seen.retain_mut(|seen| {
            if seen.address == address && seen.scope <= scope && releases.follows(&seen.releases) {
                seen.lanes &= !mask;
            }
            seen.lanes != 0
        });
        let like = |seen: &&mut Seen| (seen.lanes, seen.address, seen.scope) == (mask, address, scope);
        let mut alike = self.seen.iter_mut().filter(like);
        match (alike.next(), alike.count()) {
            (Some(first), others) if others + 1 >= APART => first.releases.extend(&releases),
            _ => self.seen.push(Seen { lanes: mask, address, scope, releases }),
        }
    }

    /// The lanes of a mask, of the warp with this number, acquire in a scope what their relaxed reads have
    /// seen: of one word or of all.
    pub(crate) fn acquire_seen(
        &mut self,
        mask: u32,
        (number, team): (u32, Team),
        by: Scope,
        word: Option<u64>,
    ) {
        for mut seen in core::mem::take(&mut self.seen) {
            let inside = seen.lanes & mask;
            if word.is_none_or(|word| word == seen.address) && inside != 0 {
                self.change(inside, |_, view| {
                    let letters = seen.releases.visible(seen.scope.min(by), number, team);
                    letters.for_each(|letter| view.read(letter, team));
                });
                seen.lanes &= !mask;
            }
            if seen.lanes != 0 {
                self.seen.push(seen);
            }
        }
    }

    /// The first lane of a mask.
    pub(crate) fn first(mask: u32) -> usize {
        lanes(mask).next().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEAM: Team = Team { first: 0, warps: 4, per_cta: 2, gpus: None };

    #[test]
    fn lanes_know_of_each_other_after_they_met() {
        let mut views = Views::new(1, 0);
        let then = views.count;
        assert!(!views.of(3).known.covers(1, 1 << 7, then, TEAM), "nobody has said anything");
        views.meet(0xFF);
        assert!(views.of(3).known.covers(1, 1 << 7, then, TEAM));
        assert!(!views.of(9).known.covers(1, 1 << 7, then, TEAM), "lane 9 was not there");
        assert!(!views.of(3).known.covers(1, 1 << 9, then, TEAM));
        views.meet(ALL);
        assert!(views.of(9).known.covers(1, 1 << 7, then, TEAM));
        assert_eq!(views.groups.len(), 1);
    }

    #[test]
    fn one_lane_publishes_its_own_accesses_alone() {
        let mut views = Views::new(1, 0);
        let then = views.count;
        let alone = views.publish(1);
        assert!(alone.known.covers(1, 1, then, TEAM) && !alone.known.covers(1, 2, then, TEAM));
        let mut other = Views::new(0, 0);
        other.learn(1 << 5, &alone);
        assert!(other.of(5).known.covers(1, 1, then, TEAM) && !other.of(4).known.covers(1, 1, then, TEAM));
        assert_eq!(other.groups.len(), 2);
        other.learn(ALL, &alone);
        assert_eq!(other.groups.len(), 1, "all know the same");
    }

    #[test]
    fn a_fence_speaks_for_its_own_lane() {
        let mut views = Views::new(1, 0);
        let then = views.count;
        views.fence(ALL, Scope::Gpu);
        let (scope, view) = views.fenced(4).next().unwrap();
        assert_eq!(scope, Scope::Gpu);
        assert!(view.known.covers(1, 1 << 4, then, TEAM) && !view.known.covers(1, 1 << 5, then, TEAM));
        views.fence(1 << 4, Scope::Cta);
        let later = views.count;
        assert!(views.fenced(4).any(|(scope, _)| scope == Scope::Gpu), "the wider stands");
        let narrow = views.fenced(4).find(|(scope, _)| *scope == Scope::Cta).unwrap().1;
        assert!(narrow.known.covers(1, 1 << 4, later - 1, TEAM), "and the narrower one knows more");
    }
}
