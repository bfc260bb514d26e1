//! A strong read that has observed a write comes after it in causality order, and so does what the reading
//! thread then does to the same word, also plainly. Each program accesses such a word; the broken one does so
//! without having observed the write, or while others still access the word.

use emulator::Fault;
use ptx::{AtomicOp, AtomicSem, LoadOrder, Location, Scope, Special, StoreOrder, Value};

use crate::tools::{ACQUIRE, RELEASE, grid, hang, race};
use crate::{Case, Kernel};

const OBSERVED: &str = "Memory Consistency Model, Causality order: observation order";
const POLLED: LoadOrder = LoadOrder::Relaxed(Scope::Gpu);
const SET: StoreOrder = StoreOrder::Relaxed(Scope::Gpu);

impl<'f> Kernel<'f> {
    /// Thread 0 of the first CTA writes a word and sets the flag.
    fn writes_and_sets(self) {
        self.once_in(0, || {
            self.f.store_global(self.data, 0, [self.thread]);
            self.set_flag(0, RELEASE);
        });
    }

    /// Draws a ticket, and runs `last` if it is the last one of three; in the broken program, if it is the
    /// first one.
    fn draws(self, sem: AtomicSem, last: impl FnOnce()) {
        let ticket = self.add(self.flag_at(0), sem);
        self.f.if_(ticket.equals(if self.broken { 0 } else { 2 }), last);
    }

    fn swap_flag(self, new: u32) -> Value<'f, u32> {
        let new = self.f.constant(new);
        self.f.atomic(AtomicOp::Exchange, self.flag_at(0), new, (AtomicSem::Relaxed, Scope::Gpu))
    }
}

fn race_or_hang(fault: &Fault) -> bool {
    race(fault) || hang(fault)
}

pub(crate) fn cases() -> Vec<Case> {
    [flags(), counters(), exchanges()].into_iter().flatten().collect()
}

fn flags() -> Vec<Case> {
    vec![
        grid("a flag put back plainly by another lane than the one that saw it", 2, race, |k| {
            k.writes_and_sets();
            k.in_cta(1, || {
                k.once(|| {
                    k.poll(k.flag_at(0), ACQUIRE);
                    k.touch(k.data);
                });
                k.in_thread(u32::from(k.broken), || k.lower(0));
            });
        })
        .isa(OBSERVED),
        Case::new(
            "a flag in shared memory put back plainly by another lane than the one that saw it",
            64,
            race,
            |k| {
                let flag = Location::shared(k.base, 512);
                k.zeroed(1024, 64);
                k.once(|| {
                    k.write(k.base, 1u32);
                    k.f.store_ordered(StoreOrder::Release(Scope::Cta), flag, [k.f.constant(1u32)]);
                });
                k.in_thread(32, || {
                    k.poll(flag, LoadOrder::Acquire(Scope::Cta));
                    k.peek(k.base);
                });
                k.in_thread(if k.broken { 33 } else { 32 }, || k.write(k.base + 512, 0u32));
            },
        )
        .isa(OBSERVED),
        grid(
            "a flag put back plainly after a relaxed poll and a fence, and another CTA still polls",
            3,
            race_or_hang,
            |k| {
                k.writes_and_sets();
                k.once_in(1, || {
                    k.poll(k.flag_at(0), POLLED);
                    k.f.fence(Scope::Gpu);
                    k.touch(k.data);
                    k.lower(0);
                });
                k.in_broken(|| k.once_in(2, || k.poll(k.flag_at(0), POLLED)));
            },
        )
        .isa(OBSERVED),
        grid("a flag put back plainly after one relaxed read, whatever it has seen", 2, race, |k| {
            k.once_in(0, || k.set_flag(0, SET));
            k.once_in(1, || {
                let [seen] = k.f.load_ordered::<u32, 1>(POLLED, k.flag_at(0));
                if k.broken {
                    k.lower(0);
                } else {
                    k.f.if_(seen.equals(1), || k.lower(0));
                }
            });
        })
        .isa(OBSERVED),
        grid(
            "a flag of volatile accesses put back plainly, and a relaxed poll of the own CTA's scope",
            2,
            race,
            |k| {
                k.once_in(0, || k.f.store_ordered(StoreOrder::Volatile, k.flag_at(0), [k.f.constant(1u32)]));
                k.once_in(1, || {
                    let order = if k.broken { LoadOrder::Relaxed(Scope::Cta) } else { LoadOrder::Volatile };
                    k.poll(k.flag_at(0), order);
                    k.lower(0);
                });
            },
        )
        .isa("Memory Consistency Model, Morally strong operations"),
        grid("a number in a flag read plainly before the acquire", 2, race, |k| {
            k.once_in(0, || k.f.store_ordered(RELEASE, k.flag_at(0), [k.f.constant(7u32)]));
            k.once_in(1, || {
                k.in_broken(|| k.touch(k.flag));
                k.poll(k.flag_at(0), ACQUIRE);
                k.touch(k.flag);
            });
        })
        .isa(OBSERVED),
        Case::in_cluster(
            "a flag of a peer put back plainly by another lane than the one that saw it",
            race,
            |k| {
                k.ready();
                k.once_in_rank(0, || {
                    let flag = Location::cluster(k.f.map_shared(k.base, 1), 512);
                    k.f.store_ordered(StoreOrder::Release(Scope::Cluster), flag, [k.f.constant(1u32)]);
                });
                k.in_rank(1, || {
                    k.once(|| k.poll(Location::shared(k.base, 512), LoadOrder::Acquire(Scope::Cluster)));
                    k.in_thread(u32::from(k.broken), || k.write(k.base + 512, 0u32));
                });
                k.meet();
            },
        )
        .isa(OBSERVED),
        grid("a flag set on by a relaxed store, and put back plainly by the third CTA", 3, race, |k| {
            // 1 by the first CTA, then 2 by the second one, which has seen the 1.
            let two = [k.f.constant(2u32)];
            k.once_in(0, || k.set_flag(0, RELEASE));
            k.once_in(1, || {
                k.poll_for(k.flag_at(0), ACQUIRE, 1);
                k.f.store_ordered(if k.broken { SET } else { RELEASE }, k.flag_at(0), two);
            });
            k.once_in(2, || {
                k.poll_for(k.flag_at(0), ACQUIRE, 2);
                k.lower(0);
            });
        })
        .isa("Memory Consistency Model, Causality order: base causality order"),
    ]
}

fn counters() -> Vec<Case> {
    vec![
        grid("a retirement count put back to zero plainly by the first block", 3, race, |k| {
            // As the CUDA sample threadFenceReduction; there, the last block puts it back.
            let cta = k.f.special(Special::CtaX);
            k.once(|| {
                k.f.store_global(k.out + cta.mul_wide(4), 0, [k.thread]);
                k.f.fence(Scope::Gpu);
                k.draws(AtomicSem::Relaxed, || {
                    k.f.fence(Scope::Gpu);
                    k.touch(k.out + cta.mul_wide(4));
                    k.lower(0);
                });
            });
        })
        .isa(OBSERVED),
        grid("a count read plainly after a ticket that is not the last one", 3, race, |k| {
            k.once(|| k.draws(AtomicSem::AcquireRelease, || k.touch(k.flag)));
        })
        .isa(OBSERVED),
        grid("a count read plainly after a relaxed ticket that is not the last one", 3, race, |k| {
            k.once(|| k.draws(AtomicSem::Relaxed, || k.touch(k.flag)));
        })
        .isa(OBSERVED),
        Case::new("a count in shared memory put back plainly by the first of three warps", 96, race, |k| {
            let at = Location::shared(k.base, 0);
            k.zeroed(128, 96);
            k.leader(|| {
                let order = (AtomicSem::Relaxed, Scope::Cta);
                let ticket = k.f.atomic(AtomicOp::Add, at, k.f.constant(1u32), order);
                k.f.if_(ticket.equals(if k.broken { 0 } else { 2 }), || k.write(k.base, 0u32));
            });
        })
        .isa(OBSERVED),
        grid("a barrier of the grid that lets others go before it puts its count back", 3, race, |k| {
            let (f, order) = (k.f, (AtomicSem::AcquireRelease, Scope::Gpu));
            k.once(|| {
                for round in 1..3u32 {
                    let ticket = f.atomic(AtomicOp::Add, k.flag_at(0), f.constant(1u32), order);
                    let opens = || f.store_ordered(RELEASE, k.flag_at(1), [f.constant(round)]);
                    f.if_else(
                        ticket.equals(2),
                        || {
                            k.in_broken(opens);
                            k.lower(0);
                            k.in_twin(opens);
                        },
                        || k.poll_for(k.flag_at(1), ACQUIRE, round),
                    );
                }
            });
        })
        .isa(OBSERVED),
    ]
}

fn exchanges() -> Vec<Case> {
    vec![
        grid("a slot taken by atom.cas and put back plainly, whether or not it was full", 2, race, |k| {
            k.once_in(0, || k.set_flag(0, SET));
            k.once_in(1, || {
                let (full, taken) = (k.f.constant(1u32), k.f.constant(2u32));
                let order = (AtomicSem::Relaxed, Scope::Gpu);
                let old = k.f.compare_swap(k.flag_at(0), full, taken, order);
                if k.broken {
                    k.lower(0);
                } else {
                    k.f.if_(old.equals(1), || k.lower(0));
                }
            });
        })
        .isa(OBSERVED),
        grid(
            "a letter taken by atom.exch and the box filled plainly, whether or not it came",
            2,
            race,
            |k| {
                k.once_in(0, || k.set_flag(0, RELEASE));
                k.once_in(1, || {
                    if k.broken {
                        let _letter = k.swap_flag(0);
                    } else {
                        k.f.loop_(|| k.f.break_if(k.swap_flag(0).equals(1)));
                    }
                    k.f.store_global(k.flag, 0, [k.f.constant(5u32)]);
                });
            },
        )
        .isa(OBSERVED),
    ]
}
