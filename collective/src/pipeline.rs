//! The pipeline: the ring of stages between the producer and the consumers.
//!
//! Each stage has two mbarriers. *Full* completes a phase when the producer has announced the stage's bytes
//! and the copies have delivered them. *Empty* completes a phase when every consumer warpgroup that reads
//! what this CTA loads has finished; in a cluster, these are the consumers of all CTAs of its row and its
//! column. Both sides walk the ring in the same order. Each has a stage index and a parity that flips at
//! every wrap. The producer's parity starts flipped, so that its first waits find fresh barriers "already
//! empty".
//!
//! ```
//! use collective::{RingPlan, StageSlot};
//!
//! // Four stages, each with room for 8 KB of A and 16 KB of B, and two mbarriers.
//! const PLAN: RingPlan = RingPlan::of(&[StageSlot::line(8 << 10), StageSlot::line(16 << 10)]).placed(4, 0, 96 << 10).arrivals(1, 2);
//! assert_eq!(PLAN.transaction_bytes(), 24 << 10);
//! assert_eq!(PLAN.barrier_bytes(), 4 * 2 * 8);
//! ```

mod cluster;
mod turns;

pub use cluster::{ClusterPosition, Release};
pub use turns::Turns;

use core::panic::Location;

use ptx::{Builder, ProxySpace, Region, Value, Var};

use crate::plan::{MBARRIER_BYTES, Plan, QueuePlan, RingPlan, WORD_BYTES};
use turns::turn_barrier;

/// Warps of a warpgroup.
const WARPS: u32 = 4;

/// Most stages whose copies by threads may be in flight while the next one is filled.
const AHEAD: u32 = 4;

/// A ring of stages in shared memory.
///
/// ```
/// use collective::pipeline::{ClusterPosition, Release, Ring, Stage};
/// use collective::{Arrivals, RingPlan, StageSlot};
/// use ptx::{BulkLoad, Entry, Function, Target};
///
/// // Two stages of 1 KB, which one thread fills and every thread of a warpgroup gives back.
/// const PLAN: RingPlan = RingPlan::of(&[StageSlot::line(1024)]).placed(2, 0, 2048).arrivals(1, 128);
/// let entry = Entry {
///     name: "ring".to_owned(),
///     target: Target::Sm90a,
///     threads: 256,
///     shared_bytes: PLAN.barriers + PLAN.barrier_bytes(),
///     cluster: [1, 1, 1],
/// };
/// let function = Function::build(entry, |f| {
///     let ring = Ring::new(f, PLAN, f.shared_base());
///     let (thread, src) = (f.special(ptx::Special::ThreadX), f.param::<u64>("source"));
///     f.if_(thread.equals(0), || {
///         ring.initialise();
///         f.fence_mbarrier_init();
///     });
///     f.barrier_sync(0, 256);
///     let (filler, reader) = (ring.producer(), ring.consumer());
///     f.if_(thread.equals(128), || {
///         f.repeat(f.constant(8), |_| {
///             let bytes = f.constant(PLAN.transaction_bytes());
///             filler.produce(bytes, |Stage { address: dst, full: barrier, .. }| {
///                 f.bulk_load(BulkLoad { src, dst, barrier, multicast: None, hint: None }, bytes);
///             });
///         });
///     });
///     f.if_(thread.less_than(128), || {
///         let alone = ClusterPosition::new(f, [1, 1]);
///         let release = Release::new(f, Arrivals::Thread, alone, f.shared_base(), thread);
///         f.repeat(f.constant(8), |_| release.arrive(reader.acquire().empty));
///     });
/// });
/// function.verify()?;
/// # Ok::<(), ptx::VerifyError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Ring<'f> {
    f: &'f Builder,
    base: Value<'f, u32>,
    plan: RingPlan,
}

/// One role's position in the ring: a stage index and a parity.
#[derive(Clone, Copy, Debug)]
pub struct Position<'f> {
    ring: Ring<'f>,
    stage: Var<'f, u32>,
    parity: Var<'f, u32>,
}

/// A consumer's position in the ring, with what it has learned about the current stage before it needs it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Early<'f> {
    position: Position<'f>,
    /// Addresses of the current stage and of its empty barrier.
    address: Var<'f, u32>,
    empty: Var<'f, u32>,
    /// 1 if the current stage was found full, else 0.
    full: Var<'f, u32>,
}

/// The oldest stage that threads have filled but not yet published. It is some stages before the one they are
/// filling.
#[derive(Clone, Copy, Debug)]
struct PendingStages<'f> {
    ring: Ring<'f>,
    stage: Var<'f, u32>,
}

/// A stage that its holder may use: the producer to fill it, a consumer to read it.
#[derive(Clone, Copy, Debug)]
pub struct Stage<'f> {
    /// Shared address of the stage.
    pub address: Value<'f, u32>,
    /// Shared address of its full barrier.
    pub full: Value<'f, u32>,
    /// Shared address of its empty barrier.
    pub empty: Value<'f, u32>,
}

/// Stages that follow each other in memory, and are in the same phase: [`Position::run`].
#[derive(Clone, Copy, Debug)]
pub struct StageRun<'f> {
    f: &'f Builder,
    first: Stage<'f>,
    /// Bytes of a stage.
    bytes: u32,
    parity: Value<'f, u32>,
}

/// Initialises all barriers of a GEMM except those of its queue. One thread calls it; `fence.mbarrier_init` and a
/// CTA-wide barrier must follow.
#[track_caller]
pub fn initialise<'f>(f: &'f Builder, plan: &Plan, ring: Ring<'f>) {
    let base = ring.base;
    for consumer in 0..plan.turns() {
        f.mbarrier_init(turn_barrier(plan, base, f.constant(consumer)), WARPS);
    }
    ring.initialise();
    Ring { plan: plan.own_ring, ..ring }.initialise();
    for source in 0..plan.source_barriers() {
        let offset = plan.source_barriers_offset() + source * MBARRIER_BYTES;
        f.mbarrier_init(base + offset, 1);
    }
}

impl<'f> Ring<'f> {
    /// A planned ring in the dynamic shared memory that begins at `base`. Reports name it after the line that
    /// calls this.
    #[track_caller]
    pub fn new(f: &'f Builder, plan: RingPlan, base: Value<'f, u32>) -> Self {
        let caller = Location::caller();
        Self::named(f, &format!("the ring of {}:{}", caller.file(), caller.line()), plan, base)
    }

    /// As [`new`](Self::new), under a name of its own in reports: `the ring of keys`.
    pub fn named(f: &'f Builder, name: &str, plan: RingPlan, base: Value<'f, u32>) -> Self {
        let RingPlan { stages, stage_bytes, start, barriers, .. } = plan;
        let region = |part: &str, offset, bytes| {
            let name = format!("{part}stage # of {name}");
            f.name_shared(base, Region { name, offset, bytes, stride: bytes, count: stages });
        };
        region("", start, stage_bytes);
        region("the full barrier of ", barriers, MBARRIER_BYTES);
        region("the empty barrier of ", barriers + stages * MBARRIER_BYTES, MBARRIER_BYTES);
        Self { f, base, plan }
    }

    /// The ring of a kernel with this plan, with names in reports for everything that the plan puts into
    /// shared memory.
    pub fn of(f: &'f Builder, plan: &Plan, base: Value<'f, u32>) -> Self {
        let ring = plan.ring;
        let region = |name: &str, offset, [bytes, stride, count]: [u32; 3]| {
            f.name_shared(base, Region { name: name.to_owned(), offset, bytes, stride, count });
        };
        for (i, tile) in plan.oriented(["A", "B"]).into_iter().enumerate() {
            let place = [ring.tile_bytes(i), ring.stage_bytes, ring.stages];
            region(&format!("{tile}'s tile in stage #"), ring.start + ring.offset(i), place);
        }
        let own = plan.mainloop.own_bytes;
        region("the mainloop's own memory", plan.own_offset, [own, own, 1]);
        let (buffer, buffers) = (plan.staging.buffer_bytes, plan.mainloop.consumers * plan.staging.buffers);
        region("staging buffer #", plan.epilogue_offset, [buffer, buffer, buffers]);
        let barriers =
            |name: &str, offset, count| region(name, offset, [MBARRIER_BYTES, MBARRIER_BYTES, count]);
        barriers("the barrier of consumer #'s turn", plan.turns_offset(), plan.turns());
        barriers("the barrier of staging buffer #", plan.source_barriers_offset(), plan.source_barriers());
        let entries = plan.queue.entries;
        barriers("the full barrier of entry # of the queue", plan.queue.barriers, entries);
        let empty = plan.queue.barriers + entries * MBARRIER_BYTES;
        barriers("the empty barrier of entry # of the queue", empty, entries);
        let chunk = QueuePlan::CHUNK_BYTES;
        region("entry # of the queue", plan.queue.words, [WORD_BYTES, chunk, entries]);
        region("consumer #'s word", plan.words_offset, [WORD_BYTES, WORD_BYTES, plan.mainloop.consumers]);
        let table = plan.table;
        region("the table of groups", table.offset, [table.bytes, table.bytes, 1]);
        Self::named(f, "the ring", ring, base)
    }

    /// Initialises the barriers. One thread calls it; `fence.mbarrier_init` and a CTA-wide barrier must
    /// follow.
    #[track_caller]
    pub fn initialise(&self) {
        for stage in 0..self.plan.stages {
            let stage = self.stage(self.f.constant(stage));
            if self.plan.filling > 0 {
                self.f.mbarrier_init(stage.full, self.plan.filling);
            }
            if self.plan.emptying > 0 {
                self.f.mbarrier_init(stage.empty, self.plan.emptying);
            }
        }
    }

    /// Stage number `index`.
    #[track_caller]
    pub fn stage(&self, index: Value<'f, u32>) -> Stage<'f> {
        let RingPlan { stages, stage_bytes, start, barriers, .. } = self.plan;
        let full = self.base + barriers + index * MBARRIER_BYTES;
        Stage {
            address: self.base + start + index * stage_bytes,
            full,
            empty: full + stages * MBARRIER_BYTES,
        }
    }

    /// The producer's start position.
    #[track_caller]
    pub fn producer(&self) -> Position<'f> {
        self.position(1)
    }

    /// A consumer's start position.
    #[track_caller]
    pub fn consumer(&self) -> Position<'f> {
        self.position(0)
    }

    #[track_caller]
    fn position(&self, parity: u32) -> Position<'f> {
        Position { ring: *self, stage: self.f.variable(0), parity: self.f.variable(parity) }
    }
}

impl<'f> Position<'f> {
    /// Waits until the current stage is empty, then fills it as [`fill`](Self::fill) does.
    #[track_caller]
    pub fn produce(&self, bytes: Value<'f, u32>, fill: impl FnOnce(Stage<'f>)) {
        let stage = self.ring.stage(self.stage.get());
        self.ring.f.mbarrier_wait(stage.empty, self.parity.get());
        self.fill(bytes, fill);
    }

    /// Announces `bytes` bytes for the current stage, which must be empty. Then `fill` starts the copies into
    /// it, and the position advances to the next stage.
    #[track_caller]
    pub fn fill(&self, bytes: Value<'f, u32>, fill: impl FnOnce(Stage<'f>)) {
        let stage = self.ring.stage(self.stage.get());
        self.ring.f.mbarrier_arrive_expect(stage.full, bytes);
        fill(stage);
        self.advance();
    }

    /// Waits until the current stage is empty, and advances. The caller owns the stage until it
    /// arrives on [`Stage::full`].
    #[track_caller]
    pub fn claim(&self) -> Stage<'f> {
        let stage = self.ring.stage(self.stage.get());
        self.ring.f.mbarrier_wait(stage.empty, self.parity.get());
        self.advance();
        stage
    }

    /// Fills the stages of k-tiles `begin..end` with all threads of a warpgroup. `fill` starts a thread's
    /// `cp.async` into a stage. The thread publishes the stage when its copies have landed, some stages after
    /// the newest one that it has claimed.
    #[track_caller]
    pub fn fill_by_threads(
        &self,
        [begin, end]: [Value<'f, u32>; 2],
        fill: impl FnOnce(Stage<'f>, Value<'f, u32>),
    ) {
        let (f, stages) = (self.ring.f, self.ring.plan.stages);
        // Number of stages whose copies may be in flight while the next one is claimed. Consumers hold one
        // stage until the next is full, so they occupy two stages of the ring.
        let ahead = (stages / 2).min(stages.saturating_sub(2)).min(AHEAD);
        let behind = self.behind();
        f.for_caller(|| {
            f.repeat_from(begin, end, |k_tile| {
                let stage = self.claim();
                f.of_caller(|| fill(stage, k_tile));
                f.copy_commit();
                f.if_((k_tile - begin).at_least(ahead), || {
                    f.copy_wait(ahead);
                    behind.publish();
                });
            });
            f.copy_wait(0);
            f.repeat((end - begin).min(ahead), |_| behind.publish());
        });
    }

    /// Waits until every stage is empty: emitted after the producer's last stage, if other CTAs give stages back. Their
    /// last arrivals have then taken place, so this CTA may exit.
    #[track_caller]
    pub fn drain(&self) {
        let f = self.ring.f;
        f.for_caller(|| {
            f.repeat(f.constant(self.ring.plan.stages), |_| {
                self.claim();
            });
        });
    }

    /// The current stage, as the first of those that will be published one after the other.
    #[track_caller]
    fn behind(&self) -> PendingStages<'f> {
        PendingStages { ring: self.ring, stage: self.ring.f.variable(self.stage.get()) }
    }

    /// The current stage, and advances. The caller does not wait: it has waited for threads that have.
    #[track_caller]
    pub fn take(&self) -> Stage<'f> {
        let stage = self.ring.stage(self.stage.get());
        self.advance();
        stage
    }

    /// Advances past `count` stages that belong to other consumers.
    #[track_caller]
    pub fn skip(&self, count: Value<'f, u32>) {
        let reached = self.stage.get() + count;
        let wraps = reached / self.ring.plan.stages;
        self.parity.set(self.parity.get() ^ (wraps & 1));
        self.stage.set(reached % self.ring.plan.stages);
    }

    /// Waits until the current stage is full, and advances. The caller owns the stage until it arrives on
    /// [`Stage::empty`].
    #[track_caller]
    pub fn acquire(&self) -> Stage<'f> {
        let stage = self.ring.stage(self.stage.get());
        self.ring.f.mbarrier_wait(stage.full, self.parity.get());
        self.advance();
        stage
    }

    /// Stages that follow each other, from stage `first` after the current one on: those of a tile that is loaded and given back in
    /// parts. Waits for none of them, and does not advance ([`skip`](Self::skip)). The ring must not end among them.
    #[track_caller]
    pub fn run(&self, first: u32) -> StageRun<'f> {
        let reached = self.stage.get() + first;
        let stages = self.ring.plan.stages;
        let parity = self.parity.get() ^ ((reached / stages) & 1);
        StageRun {
            f: self.ring.f,
            first: self.ring.stage(reached % stages),
            bytes: self.ring.plan.stage_bytes,
            parity,
        }
    }

    /// The stages of a tile that is loaded in parts, from the current one on, and advances past `count` stages, which divide the ring's. Waits for
    /// none of them. A thread that has some of the parts begins at its first one ([`skip`](Self::skip)).
    #[track_caller]
    pub fn next_run(&self, count: u32) -> StageRun<'f> {
        let Ring { f, plan, .. } = self.ring;
        let (stage, parity) = (self.stage.get(), self.parity.get());
        let run = StageRun { f, first: self.ring.stage(stage), bytes: plan.stage_bytes, parity };
        let next = stage + count;
        let wraps = next.at_least(plan.stages);
        self.parity.set((parity ^ 1).where_or(wraps, parity));
        self.stage.set((next - plan.stages).where_or(wraps, next));
        run
    }

    /// The same position for a consumer that asks for its next stage before it needs it, and the current stage,
    /// which may not be full yet.
    pub(crate) fn early(&self) -> (Early<'f>, Stage<'f>) {
        let (f, stage) = (self.ring.f, self.ring.stage(self.stage.get()));
        let (address, empty) = (f.variable(stage.address), f.variable(stage.empty));
        (Early { position: *self, address, empty, full: f.variable(0) }, stage)
    }

    #[track_caller]
    fn advance(&self) {
        let next = self.stage.get() + 1;
        let wraps = next.equals(self.ring.plan.stages);
        let flipped = self.parity.get() ^ 1;
        self.parity.set(flipped.where_or(wraps, self.parity.get()));
        let zero = self.ring.f.constant(0u32);
        self.stage.set(zero.where_or(wraps, next));
    }
}

impl<'f> StageRun<'f> {
    /// Stage `i` of them, which the caller has waited for, or other threads for it.
    #[track_caller]
    pub fn stage(&self, i: u32) -> Stage<'f> {
        let Stage { address, full, empty } = self.first;
        let barrier = i * MBARRIER_BYTES;
        Stage { address: address + i * self.bytes, full: full + barrier, empty: empty + barrier }
    }

    /// Waits until stage `i` of them is full. The caller owns it until it arrives on [`Stage::empty`].
    #[track_caller]
    pub fn acquire(&self, i: u32) -> Stage<'f> {
        let stage = self.stage(i);
        self.f.mbarrier_wait(stage.full, self.parity);
        stage
    }

    /// Asks once whether stage `i` of them is empty. What is emitted between this and [`claim`](Self::claim) takes place while the answer comes.
    #[track_caller]
    pub fn is_empty(&self, i: u32) -> Value<'f, bool> {
        self.f.mbarrier_test_parity(self.stage(i).empty, self.parity)
    }

    /// Waits until stage `i` of them is empty, unless it was found empty. The caller owns it until it arrives on [`Stage::full`].
    #[track_caller]
    pub fn claim(&self, i: u32, empty: Option<Value<'f, bool>>) -> Stage<'f> {
        let stage = self.stage(i);
        let wait = || self.f.mbarrier_wait(stage.empty, self.parity);
        match empty {
            Some(empty) => self.f.if_(!empty, wait),
            None => wait(),
        }
        stage
    }
}

impl<'f> Early<'f> {
    /// Waits until the current stage is full, unless [`advance`](Self::advance) has found it full. The caller owns the
    /// stage until it arrives on [`Stage::empty`].
    #[track_caller]
    pub(crate) fn acquire(&self) -> Stage<'f> {
        self.position.ring.f.if_(self.full.get().equals(0), || {
            self.wait();
        });
        self.current()
    }

    /// As [`acquire`](Self::acquire), after [`step`](Self::step).
    #[track_caller]
    pub(crate) fn wait(&self) -> Stage<'f> {
        let stage = self.current();
        self.position.ring.f.mbarrier_wait(stage.full, self.position.parity.get());
        stage
    }

    fn current(&self) -> Stage<'f> {
        let Position { ring, stage, .. } = self.position;
        Stage { address: self.address.get(), full: ring.stage(stage.get()).full, empty: self.empty.get() }
    }

    /// Advances to the next stage, which is returned, and asks once whether it is full. What is emitted between
    /// this and [`acquire`](Self::acquire) takes place while the answer comes.
    #[track_caller]
    pub(crate) fn advance(&self) -> Stage<'f> {
        let (f, next) = (self.position.ring.f, self.step());
        // `try_wait` could suspend the thread, at the end of a work unit until the next unit's first stage is full.
        let full = f.mbarrier_test_parity(next.full, self.position.parity.get());
        let (yes, no) = (f.constant(1u32), f.constant(0u32));
        self.full.set(yes.where_or(full, no));
        next
    }

    /// Advances to the next stage, which is returned. Only for a stage that will be filled for the same work unit.
    #[track_caller]
    pub(crate) fn step(&self) -> Stage<'f> {
        let Position { ring, stage, .. } = self.position;
        self.position.advance();
        let next = ring.stage(stage.get());
        self.address.set(next.address);
        self.empty.set(next.empty);
        next
    }
}

impl PendingStages<'_> {
    /// Signals that the executing thread has written its part of the current stage, and advances.
    #[track_caller]
    fn publish(&self) {
        // `wgmma` reads through the async proxy what these threads wrote.
        self.ring.f.fence_proxy_async(ProxySpace::Shared);
        self.ring.f.mbarrier_arrive(self.ring.stage(self.stage.get()).full);
        let (next, first) = (self.stage.get() + 1, self.ring.f.constant(0u32));
        self.stage.set(first.where_or(next.equals(self.ring.plan.stages), next));
    }
}
