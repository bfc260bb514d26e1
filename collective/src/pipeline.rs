//! The ring of stages between the producer and the consumers.
//!
//! Each stage has two mbarriers. *Full* completes a phase when the producer has announced the stage's bytes and
//! the copies have brought them. *Empty* completes a phase when every consumer warp has finished reading. Both
//! sides walk the ring in the same order, each with a stage index and a parity that flips at every wrap; the
//! producer's parity starts flipped, so that its first waits find fresh barriers "already empty".

use ptx::{Builder, Value, Var};

use crate::plan::{MBARRIER_BYTES, Plan};

/// The ring's place in shared memory.
#[derive(Clone, Copy, Debug)]
pub struct Ring<'f> {
    f: &'f Builder,
    base: Value<'f, u32>,
    stages: u32,
    stage_bytes: u32,
    barriers: u32,
    arrivals: u32,
}

/// One role's position in the ring.
#[derive(Clone, Copy, Debug)]
pub struct Position<'f> {
    ring: Ring<'f>,
    stage: Var<'f, u32>,
    parity: Var<'f, u32>,
}

/// A stage that its holder may use: filled by the producer, or read by a consumer.
#[derive(Clone, Copy, Debug)]
pub struct Stage<'f> {
    /// Shared address of the stage.
    pub address: Value<'f, u32>,
    /// Shared address of its full barrier.
    pub full: Value<'f, u32>,
    /// Shared address of its empty barrier.
    pub empty: Value<'f, u32>,
}

impl<'f> Ring<'f> {
    /// The ring of a plan in the dynamic shared memory that begins at `base`.
    pub fn new(f: &'f Builder, plan: &Plan, base: Value<'f, u32>) -> Self {
        Self {
            f,
            base,
            stages: plan.stages,
            stage_bytes: plan.stage.bytes,
            barriers: plan.barrier_offset,
            arrivals: plan.mainloop.consumers * 4,
        }
    }

    /// Initialises all barriers; one thread does it, and a CTA-wide barrier must follow.
    pub fn initialise(&self) {
        for stage in 0..self.stages {
            let stage = self.stage(self.f.constant(stage));
            self.f.mbarrier_init(stage.full, 1);
            self.f.mbarrier_init(stage.empty, self.arrivals);
        }
        self.f.fence_mbarrier_init();
    }

    fn stage(&self, index: Value<'f, u32>) -> Stage<'f> {
        let full = self.base + self.barriers + index * MBARRIER_BYTES;
        Stage {
            address: self.base + index * self.stage_bytes,
            full,
            empty: full + self.stages * MBARRIER_BYTES,
        }
    }

    /// The producer's start.
    pub fn producer(&self) -> Position<'f> {
        self.position(1)
    }

    /// A consumer's start.
    pub fn consumer(&self) -> Position<'f> {
        self.position(0)
    }

    fn position(&self, parity: u32) -> Position<'f> {
        Position { ring: *self, stage: self.f.variable(0), parity: self.f.variable(parity) }
    }
}

impl<'f> Position<'f> {
    /// Waits until the current stage is empty, lets `fill` start the copies into it after announcing `bytes`
    /// bytes, and goes on to the next stage.
    pub fn produce(&self, bytes: u32, fill: impl FnOnce(Stage<'f>)) {
        let stage = self.ring.stage(self.stage.get());
        self.ring.f.mbarrier_wait(stage.empty, self.parity.get());
        self.ring.f.mbarrier_arrive_expect(stage.full, bytes);
        fill(stage);
        self.advance();
    }

    /// Waits until the current stage is full and goes on to the next one. The stage stays the caller's until it
    /// arrives on [`Stage::empty`].
    pub fn acquire(&self) -> Stage<'f> {
        let stage = self.ring.stage(self.stage.get());
        self.ring.f.mbarrier_wait(stage.full, self.parity.get());
        self.advance();
        stage
    }

    fn advance(&self) {
        let next = self.stage.get() + 1;
        let wraps = next.equals(self.ring.stages);
        let flipped = self.parity.get() ^ 1;
        self.parity.set(flipped.where_or(wraps, self.parity.get()));
        let zero = self.ring.f.constant(0u32);
        self.stage.set(zero.where_or(wraps, next));
    }
}
