//! The queue of tile numbers: drawn from a counter while the kernel runs, and passed to all roles of a CTA or
//! cluster.
//!
//! The thread that loads a tile requests the next number before the loads and passes the answer on after
//! them. The atomic on the counter takes long, but no thread waits for it: in ptxas 13.0's code, too, the
//! first instruction that waits for the `atom` comes after the last copy. In a cluster, the loading thread of
//! the first CTA draws for all.
//!
//! The queue is a ring of words in the shared memory of each CTA. A word has two mbarriers. *Full* completes
//! a phase when the number has arrived. *Empty* completes a phase when every warp that reads the word has
//! read it, in all CTAs of the cluster; only the empty barriers of the first CTA are used. Both are walked
//! like those of the ring of stages.
//!
//! The counter is the first word of the workspace. It wraps to zero with the last number of a launch. Numbers
//! carry no data, so each draw is relaxed. The end of the kernel orders the draws of one launch before those
//! of the next on the same workspace: a launch that [overlaps](Builder::grid_wait) the one before waits for
//! its end before it draws.
//!
//! ```
//! use collective::queue::{QueueRole, Queue, initialise};
//! use collective::{Cooperative, Form, KMajor, LinearCombination, Mainloop, Operands, Plan, QueuePlan, Tile, TmaWgmma};
//! use half::bf16;
//! use typenum::{U2, U64, U128};
//!
//! type Kk = Operands<KMajor<bf16>, KMajor<bf16>>;
//! type Loop = TmaWgmma<Kk, Tile<U128, U128, U64>, Cooperative<U2>>;
//! const PLAN: Plan = Plan::checked_of(
//!     Form::Single,
//!     <Loop as Mainloop>::SPEC,
//!     <LinearCombination<bf16> as collective::Epilogue>::SPEC,
//!     QueuePlan::ENTRIES,
//! );
//! let entry = ptx::Entry {
//!     name: "queue".into(),
//!     target: ptx::Target::Sm90a,
//!     threads: 384,
//!     shared_bytes: PLAN.shared_bytes,
//!     cluster: [1, 1, 1],
//! };
//! // One thread draws numbers below 100 until there are none; all warps that multiply read them.
//! let function = ptx::Function::build(entry, |f| {
//!     let (base, counter, thread) = (f.shared_base(), f.param::<u64>("counter"), f.special(ptx::Special::ThreadX));
//!     f.if_(thread.equals(0), || {
//!         initialise(f, &PLAN, base);
//!         f.fence_mbarrier_init();
//!     });
//!     f.barrier_sync(0, 384);
//!     let walk = |part| {
//!         let (queue, number) = (Queue::new(f, &PLAN, base, counter, part), f.variable(0u32));
//!         f.while_(|| number.get().less_than(99), || {
//!             queue.ask(f.constant(100));
//!             number.set(queue.answer());
//!         });
//!     };
//!     f.if_else(thread.less_than(128), || f.if_(thread.equals(0), || walk(QueueRole::Loader)), || walk(QueueRole::Reader));
//! });
//! function.verify()?;
//! # Ok::<(), ptx::VerifyError>(())
//! ```

use ptx::{AtomicOp, AtomicSem, Builder, Location, Scope, Special, Value, Var};

use crate::plan::{MBARRIER_BYTES, MainloopSpec, Plan, Producer, QueuePlan, Roles, WORD_BYTES};

/// The part that a thread takes in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueRole {
    /// The one thread of the CTA that starts the loads. It also draws for all.
    Loader,
    /// One of the threads that load: all threads of the CTA's first warpgroup, or all warpgroups, which load
    /// and multiply. The CTA's first thread draws.
    Loaders,
    /// The one thread of a warp that starts loads, next to those of others of the CTA's first warps. The one of the first warp draws.
    LoaderOfWarp,
    /// A thread of a whole warp that reads what other threads have drawn.
    Reader,
}

/// The queue from the side of one role.
#[derive(Clone, Copy, Debug)]
pub struct Queue<'f> {
    f: &'f Builder,
    part: QueueRole,
    plan: QueuePlan,
    cluster: u32,
    base: Value<'f, u32>,
    counter: Value<'f, u64>,
    /// The number that this thread has drawn.
    drawn: Var<'f, u32>,
    slot: Var<'f, u32>,
    parity: Var<'f, u32>,
}

/// Addresses of a word and its barriers.
#[derive(Clone, Copy, Debug)]
struct Slot<'f> {
    full: Value<'f, u32>,
    empty: Value<'f, u32>,
    word: Value<'f, u32>,
}

/// Initialises the queue's barriers. One thread calls it, before
/// [`Ring::initialise`](crate::pipeline::Ring::initialise).
pub fn initialise<'f>(f: &'f Builder, plan: &Plan, base: Value<'f, u32>) {
    initialise_of(f, &plan.queue, base, readers(&plan.mainloop) * plan.cluster_size());
}

/// The same for a kernel with roles of its own, in which this many warps read each number.
pub fn initialise_of<'f>(f: &'f Builder, plan: &QueuePlan, base: Value<'f, u32>, readers: u32) {
    for slot in 0..plan.entries {
        let Slot { full, empty, .. } = Slot::new(plan, base, f.constant(slot));
        f.mbarrier_init(full, 1);
        f.mbarrier_init(empty, readers);
    }
}

/// Arrivals per CTA that mark a number as read.
const fn readers(mainloop: &MainloopSpec) -> u32 {
    let loaders = match (mainloop.roles, mainloop.producer) {
        (Roles::Unspecialised, _) => 0,
        (_, Producer::Warpgroup) => WARPS,
        // Without a cluster, the loading thread knows what it has drawn and does not read it.
        (_, Producer::Thread) => (mainloop.cluster[0] * mainloop.cluster[1] > 1) as u32,
    };
    mainloop.consumers * WARPS + loaders
}

/// Warps of a warpgroup.
const WARPS: u32 = 4;

impl<'f> Slot<'f> {
    #[track_caller]
    fn new(plan: &QueuePlan, base: Value<'f, u32>, index: Value<'f, u32>) -> Self {
        let full = base + plan.barriers + index * MBARRIER_BYTES;
        let empty = full + plan.entries * MBARRIER_BYTES;
        Self { full, empty, word: base + plan.words + index * QueuePlan::CHUNK_BYTES }
    }
}

impl<'f> Queue<'f> {
    /// The queue before its first number, in the dynamic shared memory that begins at `base`. The counter is
    /// at `workspace`.
    pub fn new(
        f: &'f Builder,
        plan: &Plan,
        base: Value<'f, u32>,
        workspace: Value<'f, u64>,
        part: QueueRole,
    ) -> Self {
        Self { cluster: plan.cluster_size(), ..Self::of(f, plan.queue, base, workspace, part) }
    }

    /// The same for a kernel of CTAs without clusters and with roles of its own. The counter is at `counter`.
    pub fn of(
        f: &'f Builder,
        plan: QueuePlan,
        base: Value<'f, u32>,
        counter: Value<'f, u64>,
        part: QueueRole,
    ) -> Self {
        Self {
            f,
            part,
            plan,
            cluster: 1,
            base,
            counter,
            drawn: f.variable(0u32),
            slot: f.variable(0u32),
            parity: f.variable(0u32),
        }
    }

    /// Requests the next of `numbers` numbers, if the executing thread is the one that draws. Does not wait
    /// for the answer.
    #[track_caller]
    pub fn ask(&self, numbers: Value<'f, u32>) {
        self.f.for_caller(|| self.draw(numbers));
    }

    fn draw(&self, numbers: Value<'f, u32>) {
        self.if_drawing(|| {
            let (at, order) = (Location::global(self.counter, 0), (AtomicSem::Relaxed, Scope::Gpu));
            self.drawn.set(self.f.atomic(AtomicOp::Inc, at, numbers - 1, order));
        });
    }

    /// Passes on the number that was drawn, and returns it in every thread.
    #[track_caller]
    pub fn answer(&self) -> Value<'f, u32> {
        self.f.for_caller(|| self.next())
    }

    fn next(&self) -> Value<'f, u32> {
        let parity = self.parity.get();
        let slot = Slot::new(&self.plan, self.base, self.slot.get());
        self.pass_on(slot, parity);
        let number = if self.alone() { self.drawn.get() } else { self.read(slot, parity) };
        self.advance(parity);
        number
    }

    /// Waits until every number that was passed on has been read: emitted after the last one, if other CTAs read it.
    /// Their arrivals have then taken place, so this CTA may exit.
    #[track_caller]
    pub fn drain(&self) {
        let f = self.f;
        f.for_caller(|| {
            self.if_drawing(|| {
                f.repeat(f.constant(self.plan.entries), |_| {
                    let parity = self.parity.get();
                    let slot = Slot::new(&self.plan, self.base, self.slot.get());
                    f.mbarrier_wait(slot.empty, parity ^ 1);
                    self.advance(parity);
                });
            });
        });
    }

    fn advance(&self, parity: Value<'f, u32>) {
        let next = self.slot.get() + 1;
        let wraps = next.equals(self.plan.entries);
        self.parity.set((parity ^ 1).where_or(wraps, parity));
        self.slot.set(self.f.constant(0u32).where_or(wraps, next));
    }

    /// Whether the executing thread knows all numbers because it has drawn them itself.
    fn alone(&self) -> bool {
        self.part == QueueRole::Loader && self.cluster == 1
    }

    fn if_drawing(&self, body: impl FnOnce()) {
        let f = self.f;
        match self.part {
            QueueRole::Loader if self.cluster == 1 => body(),
            QueueRole::Loader => f.if_(f.special(Special::ClusterRank).equals(0), body),
            QueueRole::Loaders => f.if_(f.special(Special::ThreadX).equals(0), body),
            QueueRole::LoaderOfWarp => f.if_(f.special(Special::ThreadX).less_than(32), body),
            QueueRole::Reader => (),
        }
    }

    fn pass_on(&self, slot: Slot<'f>, parity: Value<'f, u32>) {
        let f = self.f;
        if self.part == QueueRole::Loader && self.cluster > 1 {
            f.mbarrier_arrive_expect(slot.full, WORD_BYTES);
        }
        self.if_drawing(|| {
            // Fresh barriers are "already empty" in the phase before their first.
            f.mbarrier_wait(slot.empty, parity ^ 1);
            if self.cluster == 1 {
                f.store_shared(slot.word, 0, [self.drawn.get()]);
                f.mbarrier_arrive(slot.full);
                return;
            }
            for rank in 0..self.cluster {
                let there = |address| f.map_shared(address, rank);
                f.store_async((there(slot.word), there(slot.full)), [self.drawn.get()]);
            }
        });
    }

    fn read(&self, slot: Slot<'f>, parity: Value<'f, u32>) -> Value<'f, u32> {
        let f = self.f;
        f.mbarrier_wait(slot.full, parity);
        let [word] = f.load_shared_vector(slot.word, 0);
        let (number, speaks) = match self.part {
            QueueRole::Loader | QueueRole::LoaderOfWarp => (word, f.constant(true)),
            QueueRole::Loaders | QueueRole::Reader => {
                // One lane arrives for all that have read the word.
                f.warp_sync();
                (f.shuffle(word, 0), f.special(Special::Lane).equals(0))
            }
        };
        f.if_(speaks, || match self.cluster {
            1 => f.mbarrier_arrive(slot.empty),
            _ => f.mbarrier_arrive_cluster(f.map_shared(slot.empty, 0u32)),
        });
        number
    }
}
