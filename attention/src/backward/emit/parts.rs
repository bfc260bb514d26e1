//! The parts of dQ in shared memory, between the consumers that compute them and the thread that adds them.

use collective::pipeline::{Ring, Stage};
use ptx::{Builder, Value, Var};

use crate::backward::plan::BackwardRings;

/// The stages and the barriers of the parts of a tile.
///
/// Each part has barriers of its own. Of each barrier, one thread or one consumer waits for all phases, tile by tile. The stage of a part is
/// empty when the part that was in it before was added.
#[derive(Clone, Copy)]
pub(super) struct Parts<'f> {
    f: &'f Builder,
    stages: Ring<'f>,
    barriers: Ring<'f>,
    /// Parts of a tile, and stages.
    counts: [u32; 2],
}

/// The parts of the tile at which a role is.
#[derive(Clone, Copy)]
pub(super) struct TileParts<'f> {
    of: Parts<'f>,
    parity: Var<'f, u32>,
}

impl<'f> Parts<'f> {
    pub(super) fn new(f: &'f Builder, rings: &BackwardRings, shared: Value<'f, u32>) -> Self {
        Self {
            f,
            stages: Ring::named(f, "the ring of dQ", rings.dq, shared),
            // One name for both: these barriers are of stages with bytes.
            barriers: Ring::named(f, "the ring of dQ", rings.parts, shared),
            counts: [rings.parts.stages, rings.dq.stages],
        }
    }

    pub(super) fn initialise(&self) {
        self.barriers.initialise();
    }

    /// At the first tile.
    pub(super) fn first_tile(&self) -> TileParts<'f> {
        TileParts { of: *self, parity: self.f.variable(0u32) }
    }

    /// Whether who claims the last part of a tile waits for the adding thread to have taken part `first` of that tile: it gives a stage back
    /// when it has taken the next part.
    pub(super) fn shows_that_all_handed_over(&self, first: u32) -> bool {
        let [parts, stages] = self.counts;
        parts > stages && parts - 1 - stages + u32::from(stages > 1) >= first
    }

    fn stage(&self, part: u32) -> Stage<'f> {
        let [_, stages] = self.counts;
        let [of_stage, of_part] = [part % stages, part].map(|index| self.f.constant(index));
        let barriers = self.barriers.stage(of_part);
        Stage { address: self.stages.stage(of_stage).address, ..barriers }
    }
}

impl<'f> TileParts<'f> {
    /// Waits until the stage of a part is empty.
    pub(super) fn claim(&self, part: u32) -> Stage<'f> {
        let [parts, stages] = self.of.counts;
        let (before, parity) = match part.checked_sub(stages) {
            Some(before) => (before, self.parity.get()),
            // A part of the tile before.
            None => (part + parts - stages, self.parity.get() ^ 1),
        };
        self.of.f.mbarrier_wait(self.of.stage(before).empty, parity);
        self.of.stage(part)
    }

    /// Waits until a part is there.
    pub(super) fn acquire(&self, part: u32) -> Stage<'f> {
        let stage = self.of.stage(part);
        self.of.f.mbarrier_wait(stage.full, self.parity.get());
        stage
    }

    /// Goes on to the next tile.
    pub(super) fn next_tile(&self) {
        self.parity.set(self.parity.get() ^ 1);
    }
}
