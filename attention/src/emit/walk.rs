//! Which tiles a CTA computes, in which order.

use collective::queue::{self, Queue};
use ptx::{Special, Value, Var};

use super::Kernel;

/// The tiles of a CTA, one after the other.
///
/// CTAs draw tiles, or take them in rounds. If later queries see more keys, a section of heads begins with a round, and every
/// second round is dealt out in the reverse order: tiles get shorter within a section, so every CTA gets about the
/// same work.
#[derive(Clone, Copy)]
pub(super) struct Walk<'f> {
    tiles: Value<'f, u32>,
    /// CTAs that have the parts of a tile together.
    cluster: u32,
    of_section: Value<'f, u32>,
    /// First tile of the round.
    first: Var<'f, u32>,
    /// One past the last tile of the section.
    end: Var<'f, u32>,
    /// Whether the round is dealt out in the reverse order.
    odd: Option<Var<'f, u32>>,
    /// The queue of tiles, if they are drawn: then `first` is the CTA's tile.
    queue: Option<Queue<'f>>,
}

impl<'f> Walk<'f> {
    /// Whether there is a tile.
    pub(super) fn is_at_tile(&self) -> Value<'f, bool> {
        self.first.get().less_than(self.tiles)
    }

    /// The tile's number.
    pub(super) fn index(&self) -> Value<'f, u32> {
        if self.queue.is_some() {
            return self.first.get();
        }
        let f = self.tiles.builder();
        let (cta, ctas) = (f.special(Special::CtaX), f.special(Special::GridX));
        let reverse = self.odd.map(|odd| odd.get().differs_from(0));
        if self.is_alone() {
            return self.first.get() + cta / self.cluster;
        }
        self.first.get() + reverse.map_or(cta, |reverse| (ctas - 1 - cta).where_or(reverse, cta))
    }

    /// Whether the CTA has one tile alone: that of its cluster.
    pub(super) const fn is_alone(&self) -> bool {
        self.cluster > 1
    }

    /// Leaves the tiles.
    pub(super) fn leave(&self) {
        self.first.set(self.tiles);
    }

    /// Whether tiles are drawn.
    pub(super) const fn draws(&self) -> bool {
        self.queue.is_some()
    }

    /// Requests the next tile, if the executing thread draws. Does not wait for the answer.
    pub(super) fn ask(&self) {
        if let Some(queue) = &self.queue {
            queue.ask(self.tiles);
        }
    }

    /// Advances to the next tile, which was requested.
    pub(super) fn advance(&self) {
        if let Some(queue) = &self.queue {
            // Each CTA begins with the tile of its number. After each tile one is drawn, so the counter ends at zero.
            return self.first.set(queue.answer() + self.tiles.builder().special(Special::GridX));
        }
        self.next_round();
        self.seek();
    }

    fn next_round(&self) {
        let ctas = self.tiles.builder().special(Special::GridX);
        let next = (self.first.get() + ctas).min(self.end.get());
        self.first.set(next);
        let further = (next + self.of_section).min(self.tiles);
        self.end.set(further.where_or(next.equals(self.end.get()), self.end.get()));
        if let Some(odd) = self.odd {
            odd.set(odd.get() ^ 1);
        }
    }

    /// Skips rounds in which the CTA has no tile.
    fn seek(&self) {
        let misses = || self.is_at_tile() & self.index().at_least(self.end.get());
        self.tiles.builder().while_(misses, || self.next_round());
    }
}

impl<'f> Kernel<'_, 'f> {
    /// The CTA's place among the tiles, at its first one. Every role has its own, so all walk the same tiles.
    pub(super) fn walk(&self, part: queue::QueueRole) -> Walk<'f> {
        let f = self.f;
        let [tiles, across, section] = ["tiles", "across", "section"].map(|name| self.number(name));
        if self.plan.queue.entries > 0 {
            let counter = f.parameter("counter");
            let queue = Some(Queue::of(f, self.plan.queue, self.shared, counter, part));
            let first = f.variable(f.special(Special::CtaX));
            return Walk { tiles, cluster: 1, of_section: tiles, first, end: first, odd: None, queue };
        }
        // A cluster has one tile.
        let grows = self.scores.grows() && self.plan.cluster.is_none();
        let of_section = if grows { across * section } else { tiles };
        let walk = Walk {
            tiles,
            cluster: self.plan.spec.parts.of_cluster(),
            of_section,
            first: f.variable(0u32),
            end: f.variable(of_section.min(tiles)),
            odd: grows.then(|| f.variable(0u32)),
            queue: None,
        };
        walk.seek();
        walk
    }
}
