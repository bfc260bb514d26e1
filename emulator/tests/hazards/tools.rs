//! Helpers that the programs of the larger tables share.

use emulator::Fault;
use ptx::{
    AtomicOp, AtomicSem, Inst, LoadOrder, Location, Scope, Source, Space, Special, StoreOrder, TensorLoad,
    Type, Value, Var,
};

use crate::{BARRIER, BOX_BYTES, Case, Kernel};

/// Acquire with scope `.gpu`.
pub(crate) const ACQUIRE: LoadOrder = LoadOrder::Acquire(Scope::Gpu);
/// Release with scope `.gpu`.
pub(crate) const RELEASE: StoreOrder = StoreOrder::Release(Scope::Gpu);
/// Relaxed with scope `.gpu`.
pub(crate) const RELAXED: (AtomicSem, Scope) = (AtomicSem::Relaxed, Scope::Gpu);

impl<'f> Kernel<'f> {
    /// The address of the mbarrier with this number.
    pub(crate) fn bar(self, number: u32) -> Value<'f, u32> {
        self.base + (BARRIER + 8 * number)
    }

    /// The address of a stage: a kilobyte of shared memory, which holds one box.
    pub(crate) fn stage(self, number: u32) -> Value<'f, u32> {
        self.base + 1024 * number
    }

    pub(crate) fn lane(self) -> Value<'f, u32> {
        self.f.special(Special::Lane)
    }

    /// Runs in the first lane of each warp.
    pub(crate) fn leader(self, body: impl FnOnce()) {
        self.f.if_(self.lane().equals(0), body);
    }

    /// Runs in one thread.
    pub(crate) fn in_thread(self, thread: u32, body: impl FnOnce()) {
        self.f.if_(self.thread.equals(thread), body);
    }

    /// Initialises mbarriers with these arrival counts, so that all threads of the CTA can use them.
    pub(crate) fn barriers<const N: usize>(self, counts: [u32; N], threads: u32) {
        self.once(|| {
            for (number, count) in (0..).zip(counts) {
                self.f.mbarrier_init(self.bar(number), count);
            }
            self.f.fence_mbarrier_init();
        });
        self.f.barrier_sync(0, threads);
    }

    /// Announces and loads the box. Called by one thread.
    pub(crate) fn bring(self, dst: Value<'f, u32>, barrier: Value<'f, u32>) {
        self.f.mbarrier_arrive_expect(barrier, BOX_BYTES);
        self.copy_box(dst, barrier, None);
    }

    /// Loads the box without announcing its bytes.
    pub(crate) fn copy_box(
        self,
        dst: Value<'f, u32>,
        barrier: Value<'f, u32>,
        multicast: Option<Value<'f, u16>>,
    ) {
        let load = TensorLoad { map: self.map, dst, barrier, multicast, hint: None };
        self.f.tensor_load(load, [self.f.constant(0); 2]);
    }

    pub(crate) fn read(self, at: Value<'f, u32>) -> Value<'f, u32> {
        let [value] = self.f.load_shared_vector::<u32, 1>(at, 0);
        value
    }

    /// Reads a word and does not use it.
    pub(crate) fn peek(self, at: Value<'f, u32>) {
        let _value = self.read(at);
    }

    pub(crate) fn write(self, at: Value<'f, u32>, value: impl Source<'f, u32>) {
        let value = self.f.variable(value).get();
        self.f.store_shared(at, 0, [value]);
    }

    /// The address of the thread's own word in an array at `at`.
    pub(crate) fn own(self, at: Value<'f, u32>) -> Value<'f, u32> {
        at + self.thread * 4
    }

    /// The address of the word of the same lane in the other warp (of two).
    pub(crate) fn other(self, at: Value<'f, u32>) -> Value<'f, u32> {
        at + (self.thread ^ 32) * 4
    }

    /// Fills shared memory with zeros and synchronises all threads.
    pub(crate) fn zeroed(self, bytes: u32, threads: u32) {
        self.zero(bytes);
        self.f.barrier_sync(0, threads);
    }

    /// A word in global memory, initially zero.
    pub(crate) fn flag_at(self, number: i32) -> Location {
        Location::global(self.flag, number * 4)
    }

    pub(crate) fn set_flag(self, number: i32, order: StoreOrder) {
        self.f.store_ordered(order, self.flag_at(number), [self.f.constant(1u32)]);
    }

    pub(crate) fn poll(self, at: Location, order: LoadOrder) {
        let f = self.f;
        f.loop_(|| f.break_if(f.load_ordered::<u32, 1>(order, at)[0].differs_from(0)));
    }

    /// Polls a word until it has this value.
    pub(crate) fn poll_for(self, at: Location, order: LoadOrder, value: impl Source<'f, u32>) {
        let (f, value) = (self.f, self.f.variable(value).get());
        f.loop_(|| f.break_if(f.load_ordered::<u32, 1>(order, at)[0].equals(value)));
    }

    /// Stores to a word of `flag` plainly.
    pub(crate) fn lower(self, number: i32) {
        self.f.store_global(self.flag, number * 4, [self.f.constant(0u32)]);
    }

    /// Adds one to a word, with scope `.gpu`.
    pub(crate) fn add(self, at: Location, sem: AtomicSem) -> Value<'f, u32> {
        self.f.atomic(AtomicOp::Add, at, self.f.constant(1u32), (sem, Scope::Gpu))
    }

    pub(crate) fn touch(self, at: Value<'f, u64>) {
        let _value = self.f.load_global::<u32>(at, 0);
    }
}

/// A place in a ring of stages. The full barriers of the ring have the numbers from 0, and the empty ones
/// follow.
#[derive(Clone, Copy)]
pub(crate) struct Cursor<'f> {
    pub(crate) stage: Var<'f, u32>,
    pub(crate) parity: Var<'f, u32>,
    pub(crate) stages: u32,
}

impl Cursor<'_> {
    pub(crate) fn advance(self) {
        let next = self.stage.get() + 1;
        let (f, wraps) = (next.builder(), next.equals(self.stages));
        self.stage.set(f.constant(0u32).where_or(wraps, next));
        self.parity.set(self.parity.get() ^ f.constant(1u32).where_or(wraps, 0));
    }
}

impl<'f> Kernel<'f> {
    /// The first stage of a ring.
    pub(crate) fn cursor(self, stages: u32) -> Cursor<'f> {
        Cursor { stage: self.f.variable(0u32), parity: self.f.variable(0u32), stages }
    }

    pub(crate) fn full(self, at: Cursor<'f>) -> Value<'f, u32> {
        self.bar(0) + at.stage.get() * 8
    }

    pub(crate) fn empty(self, at: Cursor<'f>) -> Value<'f, u32> {
        self.bar(at.stages) + at.stage.get() * 8
    }

    /// A step of a producer thread: it waits until the stage is empty, and loads the box into it.
    pub(crate) fn fills(self, at: Cursor<'f>) {
        self.f.mbarrier_wait(self.empty(at), at.parity.get() ^ 1);
        self.bring(self.base + at.stage.get() * 1024, self.full(at));
        at.advance();
    }

    /// A step of a consumer warp: it waits for the stage, reads it and gives it back.
    pub(crate) fn takes(self, at: Cursor<'f>) {
        self.f.mbarrier_wait(self.full(at), at.parity.get());
        self.peek(self.base + at.stage.get() * 1024 + self.lane() * 4);
        self.gives_back(at);
        at.advance();
    }

    pub(crate) fn gives_back(self, at: Cursor<'f>) {
        self.f.warp_sync();
        self.leader(|| self.f.mbarrier_arrive(self.empty(at)));
    }

    /// Warp 0 runs `first`, the other warps run `second`.
    pub(crate) fn split(self, first: impl FnOnce(), second: impl FnOnce()) {
        self.f.if_else((self.thread / 32).equals(0), first, second);
    }

    /// Thread 0 runs `producer`, the warps after the first one run `consumers`.
    pub(crate) fn roles(self, producer: impl FnOnce(), consumers: impl FnOnce()) {
        self.split(|| self.once(producer), consumers);
    }

    /// A plain store to the memory of a peer, whose address `mapa` has given.
    pub(crate) fn write_peer(self, at: Value<'f, u32>, value: Value<'f, u32>) {
        self.f.emit(Inst::Store {
            space: Space::SharedCluster,
            ty: Type::U32,
            src: vec![value.operand()],
            address: Location::cluster(at, 0).address(),
        });
    }

    pub(crate) fn invalidate(self, number: u32) {
        self.f.emit(Inst::MbarrierInvalidate { barrier: self.bar(number).operand() });
    }
}

/// A case with a grid of CTAs of one warp each.
pub(crate) fn grid(
    why: &'static str,
    ctas: u32,
    found: fn(&Fault) -> bool,
    program: impl Fn(Kernel<'_>) + Send + Sync + 'static,
) -> Case {
    Case::new(why, 32, found, program).ctas(ctas)
}

/// Two accesses that nothing orders, reported by any of the rules.
pub(crate) fn race(fault: &Fault) -> bool {
    unready(fault) || fault.to_string().contains("race")
}

/// Memory that another thread's copy or multiply still owns, or that was never written.
pub(crate) fn unready(fault: &Fault) -> bool {
    matches!(
        fault,
        Fault::SharedInFlight { .. } | Fault::MbarrierNotObserved { .. } | Fault::SharedUninitialised { .. }
    )
}

pub(crate) fn hang(fault: &Fault) -> bool {
    matches!(fault, Fault::Hang { .. } | Fault::Fuel { .. })
}

pub(crate) fn unfenced(fault: &Fault) -> bool {
    matches!(fault, Fault::MissingProxyFence { .. } | Fault::GlobalUnfenced { .. })
}

/// A ring or a phase that one side is ahead of: a stage that is not ready, a phase that is missed or arrived at
/// too often, or a wait that does not end.
pub(crate) fn out_of_step(fault: &Fault) -> bool {
    race(fault)
        || hang(fault)
        || matches!(
            fault,
            Fault::MbarrierOverArrival { .. } | Fault::MbarrierMissed { .. } | Fault::ExitInFlight { .. }
        )
}

/// A CTA of the cluster that has not started, or has ended.
pub(crate) fn absent(fault: &Fault) -> bool {
    matches!(fault, Fault::PeerExited { .. } | Fault::PeerUnordered { .. } | Fault::PeerNotStarted { .. })
}

/// A check inside the program has failed.
pub(crate) fn trapped(fault: &Fault) -> bool {
    matches!(fault, Fault::Trapped)
}
