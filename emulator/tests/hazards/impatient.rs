//! Hazards of waiting too little: polls that give up, counts that cover nothing, and counters that only a
//! second launch finds dirty.

use emulator::Fault;
use ptx::inst::MbarrierPhase;
use ptx::{AtomicOp, AtomicSem, LoadOrder, Location, MbarrierOrder, Scope, StoreOrder, Value};

use crate::tools::{ACQUIRE, RELEASE, grid, hang, out_of_step, race, trapped};
use crate::{Case, Kernel};

/// The number of rounds of a poll that gives up.
const ROUNDS: u32 = 100;

impl<'f> Kernel<'f> {
    /// Asks until the answer is yes; in the broken program, a limited number of times.
    fn asks(self, answer: impl FnOnce() -> Value<'f, bool>) {
        let (f, round) = (self.f, self.f.variable(0u32));
        f.loop_(|| {
            f.break_if(answer());
            round.set(round.get() + 1);
            self.in_broken(|| f.break_if(round.get().at_least(ROUNDS)));
        });
    }

    fn is_set(self, at: Location, order: LoadOrder) -> Value<'f, bool> {
        self.f.load_ordered::<u32, 1>(order, at)[0].differs_from(0)
    }

    /// One CTA writes a word and raises a flag, another one asks for the flag and reads the word.
    fn polls_a_flag(self, writer: u32, reader: u32) {
        self.once_in(writer, || {
            self.f.store_global(self.data, 0, [self.thread]);
            self.set_flag(0, RELEASE);
        });
        self.once_in(reader, || {
            self.asks(|| self.is_set(self.flag_at(0), ACQUIRE));
            self.touch(self.data);
        });
    }

    fn adds(self, at: Location, order: (AtomicSem, Scope)) {
        self.f.reduce(AtomicOp::Add, at, [self.f.constant(1u32)], order);
    }
}

/// Polls that give up.
pub(crate) fn polls() -> Vec<Case> {
    const NONE: &str = "Memory Consistency Model, Observation: no bound on the time of a write";
    vec![
        grid("100 polls of another CTA's flag, and then on without it", 2, race, |k| k.polls_a_flag(0, 1))
            .isa(NONE),
        grid("100 polls of the flag of a CTA that starts later", 2, race, |k| k.polls_a_flag(1, 0)).isa(NONE),
        Case::new("100 polls of another warp's flag, and then on without it", 64, race, |k| {
            let flag = Location::shared(k.base, 512);
            k.zeroed(1024, 64);
            k.once(|| {
                k.write(k.base, 1u32);
                k.f.store_ordered(StoreOrder::Release(Scope::Cta), flag, [k.f.constant(1u32)]);
            });
            k.in_thread(32, || {
                k.asks(|| k.is_set(flag, LoadOrder::Acquire(Scope::Cta)));
                k.peek(k.base);
            });
        })
        .isa(NONE),
        Case::new("100 times test_wait for a load, and then on without it", 64, out_of_step, |k| {
            k.barriers([1], 64);
            k.once(|| k.bring(k.base, k.bar(0)));
            k.in_warp(1, || {
                k.asks(|| k.f.mbarrier_test_parity(k.bar(0), 0));
                k.peek(k.base + k.lane() * 4);
            });
            k.f.mbarrier_wait(k.bar(0), 0);
        })
        .isa("mbarrier.test_wait: returns false while the phase is incomplete"),
        Case::new("one try_wait for a load, and no loop around it", 64, out_of_step, |k| {
            let tries = || k.f.mbarrier_test(k.bar(0), MbarrierPhase::parity(0), true, MbarrierOrder::CTA);
            k.barriers([1], 64);
            k.once(|| k.bring(k.base, k.bar(0)));
            k.in_warp(1, || {
                if k.broken {
                    let _done = tries();
                } else {
                    k.f.loop_(|| k.f.break_if(tries()));
                }
                k.peek(k.base + k.lane() * 4);
            });
            k.f.mbarrier_wait(k.bar(0), 0);
        })
        .isa("mbarrier.try_wait: a time limit of the system"),
        grid("100 tries to take a lock, and then in without it", 3, race, |k| {
            let f = k.f;
            k.once(|| {
                let (free, held) = (f.constant(0u32), f.constant(1u32));
                let order = (AtomicSem::Acquire, Scope::Gpu);
                k.asks(|| f.compare_swap(k.flag_at(0), free, held, order).equals(0));
                let old = f.load_global::<u32>(k.data, 0);
                f.store_global(k.data, 0, [old + 1]);
                f.store_ordered(RELEASE, k.flag_at(0), [free]);
            });
        })
        .isa(NONE),
    ]
}

/// Counts that cover nothing.
pub(crate) fn counts() -> Vec<Case> {
    const COVERS: &str = "Memory Consistency Model, Release and Acquire Patterns";
    let relaxed = (AtomicSem::Relaxed, Scope::Cta);
    vec![
        Case::new("sums by atomics that relaxed arrivals stand for", 64, race, move |k| {
            let order = if k.broken { MbarrierOrder::Relaxed(Scope::Cta) } else { MbarrierOrder::CTA };
            k.zero(128);
            k.barriers([32], 64);
            k.in_warp(0, || {
                k.adds(Location::shared(k.base + k.lane() % 4 * 4, 0), relaxed);
                k.f.mbarrier_arrive_as(k.bar(0), false, order);
            });
            k.in_warp(1, || {
                k.f.mbarrier_wait(k.bar(0), 0);
                k.peek(k.base + k.lane() % 4 * 4);
            });
        })
        .isa("mbarrier.arrive: .relaxed"),
        grid("sums by atomics that a relaxed count stands for", 3, race, |k| {
            let sem = if k.broken { AtomicSem::Relaxed } else { AtomicSem::Release };
            k.once(|| {
                k.adds(Location::global(k.data, 0), (AtomicSem::Relaxed, Scope::Gpu));
                k.adds(k.flag_at(0), (sem, Scope::Gpu));
            });
            k.once_in(2, || {
                k.poll_for(k.flag_at(0), ACQUIRE, 3);
                k.touch(k.data);
            });
        })
        .isa(COVERS),
        Case::new("parts of warps that a relaxed count in shared memory stands for", 96, race, move |k| {
            let count = Location::shared(k.base, 512);
            let sem = if k.broken { AtomicSem::Relaxed } else { AtomicSem::AcquireRelease };
            k.zeroed(1024, 96);
            k.leader(|| {
                k.write(k.own(k.base), 1u32);
                let ticket = k.f.atomic(AtomicOp::Add, count, k.f.constant(1u32), (sem, Scope::Cta));
                k.f.if_(ticket.equals(2), || (0..3).for_each(|warp| k.peek(k.base + 128 * warp)));
            });
        })
        .isa(COVERS),
        Case::in_cluster("a peer's plain stores that its relaxed arrival stands for", race, |k| {
            let relaxed = MbarrierOrder::Relaxed(Scope::Cluster);
            let order = if k.broken { relaxed } else { MbarrierOrder::CLUSTER };
            k.ready();
            k.in_rank(0, || {
                k.write_peer(k.f.map_shared(k.own(k.base), 1), k.thread);
                k.f.warp_sync();
                let barrier = k.f.map_shared(k.barrier(), 1);
                k.once(|| k.f.mbarrier_arrive_as(barrier, true, order));
            });
            k.in_rank(1, || {
                k.f.mbarrier_wait_as(k.barrier(), 0, MbarrierOrder::CLUSTER);
                k.peek(k.own(k.base));
            });
            k.meet();
        })
        .isa("mbarrier.arrive: .relaxed"),
    ]
}

/// Counters and flags that only a second launch finds dirty.
pub(crate) fn launches() -> Vec<Case> {
    const DIRTY: &str = "Memory Consistency Model, Conflict and data-races";
    let found = |f: &Fault| race(f) || hang(f) || trapped(f);
    let twice = |why, ctas, program: fn(Kernel<'_>)| grid(why, ctas, found, program).launches(2);
    vec![
        twice("a second launch: the count of a barrier of the grid is still there", 2, |k| {
            // The twin waits for the next multiple of the number of CTAs.
            let f = k.f;
            k.once(|| {
                let cta = f.special(ptx::Special::CtaX);
                f.store_global(k.data + cta.mul_wide(4), 0, [cta]);
                let ticket = k.add(k.flag_at(0), AtomicSem::Release);
                let goal = if k.broken { f.constant(2) } else { (ticket / 2 + 1) * 2 };
                f.loop_(|| f.break_if(f.load_ordered::<u32, 1>(ACQUIRE, k.flag_at(0))[0].at_least(goal)));
                k.touch(k.data + (cta ^ 1).mul_wide(4));
            });
        })
        .isa(DIRTY),
        twice("a second launch: no ticket is the last one", 2, |k| {
            // atom.inc begins again after the last ticket, atom.add does not.
            let f = k.f;
            k.once(|| {
                let (op, by) = if k.broken { (AtomicOp::Add, 1u32) } else { (AtomicOp::Inc, 1) };
                let order = (AtomicSem::AcquireRelease, Scope::Gpu);
                let ticket = f.atomic(op, k.flag_at(0), f.constant(by), order);
                f.if_(ticket.equals(1), || k.set_flag(1, RELEASE));
            });
            k.once_in(0, || {
                k.poll(k.flag_at(1), ACQUIRE);
                f.store_ordered(StoreOrder::Relaxed(Scope::Gpu), k.flag_at(1), [f.constant(0u32)]);
            });
        })
        .isa("atom: .inc"),
        twice("a second launch: the semaphore of split-K is not at the first CTA's turn", 2, |k| {
            let f = k.f;
            k.once(|| {
                let cta = f.special(ptx::Special::CtaX);
                k.poll_for(k.flag_at(0), ACQUIRE, cta);
                let old = f.load_global::<u32>(k.data, 0);
                f.store_global(k.data, 0, [old + 1]);
                let next = cta + 1;
                let next = if k.broken { next } else { next % 2 };
                f.store_ordered(RELEASE, k.flag_at(0), [next]);
            });
        })
        .isa("Memory Consistency Model, Release and Acquire Patterns"),
        twice("a second launch: the flag of the first one is still up", 2, |k| {
            let f = k.f;
            k.once_in(0, || {
                f.store_global(k.data, 0, [k.thread]);
                k.set_flag(0, RELEASE);
            });
            k.once_in(1, || {
                k.poll(k.flag_at(0), ACQUIRE);
                k.touch(k.data);
                k.in_twin(|| {
                    let down = [f.constant(0u32)];
                    f.store_ordered(StoreOrder::Relaxed(Scope::Gpu), k.flag_at(0), down);
                });
            });
        })
        .isa(DIRTY),
        twice("a second launch: the sum begins with that of the first one", 3, |k| {
            let (f, order) = (k.f, (AtomicSem::AcquireRelease, Scope::Gpu));
            k.once(|| {
                k.adds(k.flag_at(1), (AtomicSem::Relaxed, Scope::Gpu));
                let ticket = f.atomic(AtomicOp::Inc, k.flag_at(0), f.constant(2u32), order);
                f.if_(ticket.equals(2), || {
                    let (op, with) = if k.broken { (AtomicOp::Or, 0u32) } else { (AtomicOp::Exchange, 0) };
                    let sum = f.atomic(op, k.flag_at(1), f.constant(with), order);
                    f.if_(sum.differs_from(3), || f.trap());
                });
            });
        })
        .isa("atom: the value that memory holds"),
    ]
}
