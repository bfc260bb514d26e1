//! Weak memory: results that the memory model allows but no interleaving gives. The programs check
//! themselves, or two threads enter the same place.

use ptx::{LoadOrder, Location, Scope, StoreOrder, Value};

use crate::tools::{ACQUIRE, RELEASE, grid, race, trapped};
use crate::{Case, Kernel};

const STORE: StoreOrder = StoreOrder::Relaxed(Scope::Gpu);
const LOAD: LoadOrder = LoadOrder::Relaxed(Scope::Gpu);

impl<'f> Kernel<'f> {
    fn look(self, number: i32, order: LoadOrder) -> Value<'f, u32> {
        let [value] = self.f.load_ordered::<u32, 1>(order, self.flag_at(number));
        value
    }

    /// `fence.sc`, or in the broken program a weaker fence.
    fn strong_fence(self) {
        if self.broken {
            self.f.fence(Scope::Gpu);
        } else {
            self.f.fence_sc(Scope::Gpu);
        }
    }

    fn enter(self) {
        self.f.store_global(self.data, 0, [self.thread]);
    }

    /// One CTA writes a datum, then a flag. The other CTA sees the flag and must see the datum. All words are
    /// flags.
    fn message(self, stores: [StoreOrder; 2], loads: [LoadOrder; 2]) {
        self.in_cta(0, || {
            self.once(|| {
                self.set_flag(8, stores[0]);
                self.set_flag(0, stores[1]);
            });
        });
        self.in_cta(1, || {
            self.once(|| {
                let seen = self.look(0, loads[0]);
                let datum = self.look(8, loads[1]);
                self.f.if_(seen.differs_from(0) & datum.equals(0), || self.f.trap());
            });
        });
    }
}

pub(crate) fn cases() -> Vec<Case> {
    [orders(), sizes()].into_iter().flatten().collect()
}

fn orders() -> Vec<Case> {
    vec![
        grid("relaxed stores seen in the other order", 2, trapped, |k| {
            k.message([STORE, if k.broken { STORE } else { RELEASE }], [ACQUIRE, LOAD]);
        })
        .isa("Memory Consistency Model, Causality order"),
        grid("relaxed loads done in the other order", 2, trapped, |k| {
            k.message([STORE, RELEASE], [if k.broken { LOAD } else { ACQUIRE }, LOAD]);
        })
        .isa("Memory Consistency Model, Causality order"),
        grid("volatile accesses taken for ordered ones", 2, trapped, |k| {
            if k.broken {
                k.message([StoreOrder::Volatile; 2], [LoadOrder::Volatile; 2]);
            } else {
                k.message([STORE, RELEASE], [ACQUIRE, LOAD]);
            }
        })
        .isa("ld.volatile: relaxed with system scope"),
        grid("store buffering with fence.acq_rel", 2, race, |k| {
            let mine = k.f.special(ptx::Special::CtaX);
            let at = |cta: Value<'_, u32>| Location::global(k.flag + cta.mul_wide(16), 0);
            k.once(|| {
                k.f.store_ordered(STORE, at(mine), [k.f.constant(1u32)]);
                k.strong_fence();
                let [other] = k.f.load_ordered::<u32, 1>(LOAD, at(mine ^ 1));
                k.f.if_(other.equals(0), || k.enter());
            });
        })
        .isa("Memory Consistency Model, Fence-SC"),
        grid("store buffering by release and acquire", 2, race, |k| {
            let mine = k.f.special(ptx::Special::CtaX);
            let at = |cta: Value<'_, u32>| Location::global(k.flag + cta.mul_wide(16), 0);
            k.once(|| {
                k.f.store_ordered(RELEASE, at(mine), [k.f.constant(1u32)]);
                k.in_twin(|| k.f.fence_sc(Scope::Gpu));
                let [other] = k.f.load_ordered::<u32, 1>(ACQUIRE, at(mine ^ 1));
                k.f.if_(other.equals(0), || k.enter());
            });
        })
        .isa("Memory Consistency Model, Fence-SC"),
        Case::new("store buffering in shared memory", 64, race, |k| {
            let f = k.f;
            k.zeroed(1024, 64);
            let mine = k.thread / 32;
            let at = |warp: Value<'_, u32>| Location::shared(k.base + warp * 16, 0);
            k.leader(|| {
                f.store_ordered(StoreOrder::Relaxed(Scope::Cta), at(mine), [f.constant(1u32)]);
                if k.broken {
                    f.fence(Scope::Cta);
                } else {
                    f.fence_sc(Scope::Cta);
                }
                let [other] = f.load_ordered::<u32, 1>(LoadOrder::Relaxed(Scope::Cta), at(mine ^ 1));
                f.if_(other.equals(0), || k.write(k.base + 64, 0u32));
            });
        })
        .isa("Memory Consistency Model, Fence-SC"),
        Case::new("relaxed stores to shared memory seen in the other order", 64, trapped, |k| {
            let f = k.f;
            k.zeroed(1024, 64);
            let (datum, flag) = (Location::shared(k.base, 0), Location::shared(k.base, 64));
            let relaxed = StoreOrder::Relaxed(Scope::Cta);
            k.in_thread(0, || {
                f.store_ordered(relaxed, datum, [f.constant(1u32)]);
                let order = if k.broken { relaxed } else { StoreOrder::Release(Scope::Cta) };
                f.store_ordered(order, flag, [f.constant(1u32)]);
            });
            k.in_thread(32, || {
                let [seen] = f.load_ordered::<u32, 1>(LoadOrder::Acquire(Scope::Cta), flag);
                let [value] = f.load_ordered::<u32, 1>(LoadOrder::Relaxed(Scope::Cta), datum);
                f.if_(seen.differs_from(0) & value.equals(0), || f.trap());
            });
        })
        .isa("Memory Consistency Model, Causality order"),
        grid("independent writes seen in two orders", 4, race, |k| {
            // Readers of both words that see different orders enter the same place.
            for writer in 0..2 {
                k.once_in(writer, || k.set_flag(4 * writer as i32, STORE));
            }
            for reader in 0..2 {
                k.once_in(2 + reader, || {
                    let first = k.look(4 * reader as i32, LOAD);
                    k.strong_fence();
                    let second = k.look(4 * (1 - reader as i32), LOAD);
                    k.f.if_(first.differs_from(0) & second.equals(0), || k.enter());
                });
            }
        })
        .isa("Memory Consistency Model, Fence-SC"),
        grid("a sequence lock read without the second fence", 2, trapped, |k| {
            let f = k.f;
            let put = |number, value: u32, order| {
                f.store_ordered(order, k.flag_at(number), [f.constant(value)]);
            };
            k.once_in(0, || {
                put(0, 1, STORE);
                f.fence(Scope::Gpu);
                put(4, 1, STORE);
                put(8, 1, STORE);
                put(0, 2, RELEASE);
            });
            k.once_in(1, || {
                let before = k.look(0, ACQUIRE);
                let (a, b) = (k.look(4, LOAD), k.look(8, LOAD));
                k.in_twin(|| f.fence(Scope::Gpu));
                let after = k.look(0, LOAD);
                f.if_(before.equals(after) & (before & 1).equals(0) & a.differs_from(b), || f.trap());
            });
        })
        .isa("Memory Consistency Model, Causality order"),
        grid("a message passed on by a third CTA that does not acquire", 3, race, |k| {
            k.once_in(0, || {
                k.enter();
                k.set_flag(0, RELEASE);
            });
            k.once_in(1, || {
                k.poll(k.flag_at(0), if k.broken { LOAD } else { ACQUIRE });
                k.set_flag(4, RELEASE);
            });
            k.once_in(2, || {
                k.poll(k.flag_at(4), ACQUIRE);
                k.touch(k.data);
            });
        })
        .isa("Memory Consistency Model, Causality order: cumulativity"),
    ]
}

fn sizes() -> Vec<Case> {
    vec![
        grid("a flag of 4 bytes polled as 8", 2, race, |k| {
            let f = k.f;
            k.once_in(0, || {
                k.enter();
                k.set_flag(0, RELEASE);
            });
            k.once_in(1, || {
                if k.broken {
                    f.loop_(|| {
                        let [both] = f.load_ordered::<u64, 1>(ACQUIRE, k.flag_at(0));
                        f.break_if(both.differs_from(0));
                    });
                } else {
                    k.poll(k.flag_at(0), ACQUIRE);
                }
                k.touch(k.data);
            });
        })
        .isa("Memory Consistency Model, Limitations on Mixed-size Data-races"),
        grid(
            "a word written in halves and read as one",
            2,
            |fault| trapped(fault) || race(fault),
            |k| {
                let f = k.f;
                k.once_in(0, || {
                    if k.broken {
                        for half in 0..2 {
                            f.store_ordered(STORE, Location::global(k.flag, 2 * half), [f.constant(1u16)]);
                        }
                    } else {
                        f.store_ordered(STORE, k.flag_at(0), [f.constant(0x1_0001u32)]);
                    }
                });
                k.once_in(1, || {
                    let seen = k.look(0, LOAD);
                    f.if_((seen & 0xFFFF).differs_from(seen >> 16), || f.trap());
                });
            },
        )
        .isa("Memory Consistency Model, Limitations on Mixed-size Data-races"),
        grid("16 bytes taken for atomic", 2, trapped, |k| {
            let (f, at) = (k.f, k.flag_at(0));
            k.once_in(0, || {
                let one = f.constant(1u32);
                if k.broken {
                    f.store_ordered(STORE, at, [one; 4]);
                } else {
                    f.store_ordered(STORE, k.flag_at(8), [one; 4]);
                    k.set_flag(0, RELEASE);
                }
            });
            k.once_in(1, || {
                if k.broken {
                    let all = f.load_ordered::<u32, 4>(LOAD, at);
                    f.if_(all[0].differs_from(all[3]), || f.trap());
                } else {
                    let seen = k.look(0, ACQUIRE);
                    let all = f.load_ordered::<u32, 4>(LOAD, k.flag_at(8));
                    f.if_(seen.differs_from(0) & all[3].equals(0), || f.trap());
                }
            });
        })
        .isa("Memory Consistency Model, Vector data-types"),
        grid("a pair of words taken for atomic", 2, trapped, |k| {
            let (f, at) = (k.f, k.flag_at(0));
            k.once_in(0, || {
                if k.broken {
                    let one = f.constant(1u32);
                    f.store_ordered(STORE, at, [one; 2]);
                } else {
                    f.store_ordered(STORE, at, [f.constant(0x1_0000_0001u64)]);
                }
            });
            k.once_in(1, || {
                let [low, high] = if k.broken {
                    f.load_ordered::<u32, 2>(LOAD, at)
                } else {
                    let [both] = f.load_ordered::<u64, 1>(LOAD, at);
                    [both.cast(), (both >> 32).cast()]
                };
                f.if_(low.differs_from(high), || f.trap());
            });
        })
        .isa("Memory Consistency Model, Vector data-types"),
    ]
}
