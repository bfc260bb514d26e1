//! Hazards between CTAs that share global memory: a flag that one thread raises before its CTA has agreed, and
//! passes over the same memory without a barrier of the grid.

use emulator::Fault;
use ptx::{AtomicOp, AtomicSem, LoadOrder, Location, Scope, Special, StoreOrder, Value};

use crate::tools::{ACQUIRE, RELEASE, race};
use crate::{BOX_BYTES, Case, Kernel};

impl<'f> Kernel<'f> {
    fn cta(self) -> Value<'f, u32> {
        self.f.special(Special::CtaX)
    }

    /// The word of this thread in the part of a CTA of 64 threads.
    fn part(self, cta: Value<'f, u32>) -> Value<'f, u64> {
        self.data + (cta * 64 + self.thread % 64).mul_wide(4)
    }

    /// Counts this thread, and waits until a counter has reached `count`.
    fn counts(self, number: i32, count: u32, scope: Scope) {
        let (f, at) = (self.f, self.flag_at(number));
        f.reduce(AtomicOp::Add, at, [f.constant(1u32)], (AtomicSem::Release, scope));
        self.waits_for(at, count, LoadOrder::Acquire(scope));
    }

    fn waits_for(self, at: Location, count: u32, order: LoadOrder) {
        let f = self.f;
        f.loop_(|| f.break_if(f.load_ordered::<u32, 1>(order, at)[0].at_least(count)));
    }

    /// A barrier of the grid, for CTAs of 64 threads.
    fn grid_barrier(self, count: u32) {
        self.f.barrier_sync(0, 64);
        self.once(|| self.counts(0, count, Scope::Gpu));
        self.f.barrier_sync(0, 64);
    }
}

fn unready(fault: &Fault) -> bool {
    race(fault) || matches!(fault, Fault::GlobalUninitialised { .. })
}

/// A flag that one thread raises before its CTA has agreed.
pub(crate) fn flags() -> Vec<Case> {
    const SYNC: &str = "Memory Consistency Model, Causality order: bar.sync of the CTA, then the release";
    let system = StoreOrder::Release(Scope::System);
    vec![
        Case::new("a semaphore of split-K released before the CTA's barrier", 64, unready, |k| {
            k.in_cta(0, || {
                k.f.store_global(k.part(k.cta()), 0, [k.thread]);
                k.in_twin(|| k.f.barrier_sync(0, 64));
                k.once(|| {
                    let one = [k.f.constant(1u32)];
                    k.f.reduce(AtomicOp::Add, k.flag_at(0), one, (AtomicSem::Release, Scope::Gpu));
                });
            });
            k.in_cta(1, || {
                k.once(|| k.poll(k.flag_at(0), ACQUIRE));
                k.f.barrier_sync(0, 64);
                k.touch(k.part(k.cta() - 1));
            });
        })
        .ctas(2)
        .isa(SYNC),
        Case::new(
            "a flag for the system raised by another thread than the one that stored a box",
            64,
            unready,
            {
                move |k| {
                    k.in_cta(0, || {
                        k.zeroed(BOX_BYTES, 64);
                        k.store(k.base);
                        k.once(|| k.f.bulk_wait(0, false));
                        k.in_twin(|| k.f.barrier_sync(1, 64));
                        k.in_thread(32, || k.set_flag(0, system));
                    });
                    k.once_in(1, || {
                        k.poll(k.flag_at(0), LoadOrder::Acquire(Scope::System));
                        k.touch(k.out);
                    });
                }
            },
        )
        .ctas(2)
        .isa("cp.async.bulk.wait_group: visible to the executing thread"),
        Case::new("a flag for the system after a barrier of half of the writers", 128, unready, move |k| {
            let word = k.data + k.thread.mul_wide(4);
            k.in_cta(0, || {
                k.f.store_global(word, 0, [k.thread]);
                if k.broken {
                    k.f.if_(k.thread.less_than(64), || k.f.barrier_sync(1, 64));
                } else {
                    k.f.barrier_sync(0, 128);
                }
                k.once(|| k.set_flag(0, system));
            });
            k.in_cta(1, || {
                k.once(|| k.poll(k.flag_at(0), LoadOrder::Acquire(Scope::System)));
                k.f.barrier_sync(0, 128);
                k.touch(word);
            });
        })
        .ctas(2)
        .isa(SYNC),
        Case::new("a ticket drawn before the CTA has written its part", 64, unready, |k| {
            // As stream-K: the CTA that draws the last ticket adds up all parts.
            let draws = || {
                k.once(|| k.write(k.base, k.add(k.flag_at(0), AtomicSem::AcquireRelease)));
            };
            k.in_broken(draws);
            k.f.store_global(k.part(k.cta()), 0, [k.thread]);
            k.f.barrier_sync(0, 64);
            k.in_twin(draws);
            k.f.barrier_sync(1, 64);
            k.f.if_(k.read(k.base).equals(2), || {
                for other in 0..3 {
                    k.touch(k.part(k.f.constant(other)));
                }
            });
        })
        .ctas(3)
        .isa(SYNC),
        Case::new("a barrier of the grid without the CTA's barrier in front of it", 64, unready, |k| {
            k.f.store_global(k.part(k.cta()), 0, [k.thread]);
            k.in_twin(|| k.f.barrier_sync(0, 64));
            k.once(|| k.counts(0, 2, Scope::Gpu));
            k.f.barrier_sync(1, 64);
            k.touch(k.part(k.cta() ^ 1));
        })
        .ctas(2)
        .isa(SYNC),
    ]
}

/// Passes over the same global memory without a barrier of the grid.
pub(crate) fn passes() -> Vec<Case> {
    const RACES: &str = "Memory Consistency Model, Conflict and data-races";
    vec![
        Case::new("two passes over global memory without a barrier of the grid", 64, unready, |k| {
            k.f.store_global(k.part(k.cta()), 0, [k.thread]);
            if k.broken {
                k.f.barrier_sync(0, 64);
            } else {
                k.grid_barrier(3);
            }
            k.touch(k.part((k.cta() + 1) % 3));
        })
        .ctas(3)
        .isa(RACES),
        Case::new("a barrier of the grid for one CTA too few", 64, unready, |k| {
            k.f.store_global(k.part(k.cta()), 0, [k.thread]);
            k.grid_barrier(if k.broken { 2 } else { 3 });
            k.touch(k.part((k.cta() + 1) % 3));
        })
        .ctas(3)
        .isa(RACES),
        Case::new("the second barrier of the grid waits for the count of the first", 64, unready, |k| {
            // Each round reads the neighbour's part and writes the own one.
            k.f.store_global(k.part(k.cta()), 0, [k.thread]);
            for round in 0..2 {
                k.grid_barrier(2 * (2 * round + 1));
                let value = k.f.load_global::<u32>(k.part(k.cta() ^ 1), 0);
                k.grid_barrier(if k.broken { 2 } else { 2 * (2 * round + 2) });
                k.f.store_global(k.part(k.cta()), 0, [value + 1]);
            }
        })
        .ctas(2)
        .isa(RACES),
        Case {
            ctas: 4,
            ..Case::new("a barrier of the cluster where the grid has two clusters", 64, unready, |k| {
                k.f.store_global(k.part(k.cta()), 0, [k.thread]);
                k.meet();
                k.in_twin(|| k.grid_barrier(4));
                k.touch(k.part((k.cta() + 1) % 4));
            })
            .cluster(2)
        }
        .isa("barrier.cluster: the threads of the cluster"),
        Case::new("a count of CTAs to which each warp adds", 64, unready, |k| {
            // The leader of each warp adds one. The reader waits for as many as there are CTAs.
            let (f, all) = (k.f, if k.broken { 2 } else { 4 });
            f.if_else(
                k.cta().less_than(2),
                || {
                    f.store_global(k.part(k.cta()), 0, [k.thread]);
                    f.warp_sync();
                    let one = [f.constant(1u32)];
                    k.leader(|| {
                        f.reduce(AtomicOp::Add, k.flag_at(0), one, (AtomicSem::Release, Scope::Gpu));
                    });
                },
                || {
                    k.once(|| k.waits_for(k.flag_at(0), all, ACQUIRE));
                    f.barrier_sync(0, 64);
                    for other in 0..2 {
                        k.touch(k.part(f.constant(other)));
                    }
                },
            );
        })
        .ctas(3)
        .isa("Memory Consistency Model, Observation"),
        Case::new("flags of all CTAs but the last one waited for", 32, unready, |k| {
            let (f, waited) = (k.f, if k.broken { 2 } else { 3 });
            f.if_else(
                k.cta().less_than(3),
                || {
                    k.once(|| {
                        f.store_global(k.part(k.cta()), 0, [k.thread]);
                        let at = Location::global(k.flag + k.cta().mul_wide(4), 0);
                        f.store_ordered(RELEASE, at, [f.constant(1u32)]);
                    });
                },
                || {
                    // Each lane waits for one CTA.
                    let at = Location::global(k.flag + (k.lane() % waited).mul_wide(4), 0);
                    k.poll(at, ACQUIRE);
                    f.warp_sync();
                    f.if_(k.lane().less_than(3), || k.touch(k.data + k.lane().mul_wide(256)));
                },
            );
        })
        .ctas(4)
        .isa("Memory Consistency Model, Release and Acquire Patterns"),
    ]
}
