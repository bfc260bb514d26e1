//! Locks, queues and counters made of atomics.

use ptx::{AtomicOp, AtomicSem, Location, Scope, StoreOrder};

use crate::tools::{ACQUIRE, RELAXED, RELEASE, grid, race};
use crate::{Case, Kernel};

impl Kernel<'_> {
    /// Takes a lock, changes a word, releases the lock.
    fn locked(self, take: (AtomicSem, Scope), give: StoreOrder) {
        let f = self.f;
        self.once(|| {
            f.loop_(|| {
                let (free, held) = (f.constant(0u32), f.constant(1u32));
                f.break_if(f.compare_swap(self.flag_at(0), free, held, take).equals(0));
            });
            let old = f.load_global::<u32>(self.data, 0);
            f.store_global(self.data, 0, [old + 1]);
            f.store_ordered(give, self.flag_at(0), [f.constant(0u32)]);
        });
    }
}

pub(crate) fn cases() -> Vec<Case> {
    vec![
        grid("a lock taken without acquiring", 3, race, |k| {
            let sem = if k.broken { AtomicSem::Relaxed } else { AtomicSem::Acquire };
            k.locked((sem, Scope::Gpu), RELEASE);
        })
        .isa("atom: .acquire"),
        grid("a lock given back without releasing", 3, race, |k| {
            let order = if k.broken { StoreOrder::Relaxed(Scope::Gpu) } else { RELEASE };
            k.locked((AtomicSem::Acquire, Scope::Gpu), order);
        })
        .isa("st: .release"),
        grid("a lock given back by a volatile store", 3, race, |k| {
            let order = if k.broken { StoreOrder::Volatile } else { RELEASE };
            k.locked((AtomicSem::Acquire, Scope::Gpu), order);
        })
        .isa("st.volatile: relaxed with system scope"),
        grid("a lock for the own CTA alone", 3, race, |k| {
            let scope = if k.broken { Scope::Cta } else { Scope::Gpu };
            k.locked((AtomicSem::Acquire, scope), StoreOrder::Release(scope));
        })
        .isa("Memory Consistency Model, Scope"),
        Case::new("a lock in shared memory given back without releasing", 96, race, |k| {
            let f = k.f;
            k.zeroed(1024, 96);
            k.leader(|| {
                let lock = Location::shared(k.base, 0);
                f.loop_(|| {
                    let (free, held) = (f.constant(0u32), f.constant(1u32));
                    let taken = f.compare_swap(lock, free, held, (AtomicSem::Acquire, Scope::Cta));
                    f.break_if(taken.equals(0));
                });
                k.write(k.base + 16, k.read(k.base + 16) + 1);
                let order =
                    if k.broken { StoreOrder::Relaxed(Scope::Cta) } else { StoreOrder::Release(Scope::Cta) };
                f.store_ordered(order, lock, [f.constant(0u32)]);
            });
        })
        .isa("st: .release"),
        grid("once-only initialisation checked by a plain load", 2, race, |k| {
            let f = k.f;
            k.once_in(0, || {
                f.store_global(k.data, 0, [k.thread]);
                k.set_flag(0, RELEASE);
            });
            k.once_in(1, || {
                let [seen] = if k.broken {
                    f.load_global_vector::<u32, 1>(k.flag, 0)
                } else {
                    f.load_ordered::<u32, 1>(ACQUIRE, k.flag_at(0))
                };
                f.if_(seen.differs_from(0), || k.touch(k.data));
            });
        })
        .isa("Memory Consistency Model, Conflict and data-races"),
        grid("a queue slot read before its producer has filled it", 2, race, |k| {
            // An atomic takes the ticket. The flag of the queue entry says that the entry is full.
            let f = k.f;
            k.once_in(0, || {
                let slot = k.add(k.flag_at(0), AtomicSem::Relaxed);
                f.store_global(k.data + slot.mul_wide(4), 0, [slot]);
                k.set_flag(1, RELEASE);
            });
            k.once_in(1, || {
                if k.broken {
                    k.poll(k.flag_at(0), ACQUIRE);
                } else {
                    k.poll(k.flag_at(1), ACQUIRE);
                }
                k.touch(k.data);
            });
        })
        .isa("Memory Consistency Model, Release and Acquire Patterns"),
        grid("a sum by atomics read plainly by the CTA that came last", 3, race, |k| {
            k.once(|| {
                let sum = Location::global(k.data, 0);
                k.f.reduce(AtomicOp::Add, sum, [k.thread], RELAXED);
                k.in_twin(|| k.f.fence(Scope::Gpu));
                let before = k.add(k.flag_at(0), AtomicSem::AcquireRelease);
                let before = if k.broken { k.add(k.flag_at(1), AtomicSem::Relaxed) } else { before };
                k.f.if_(before.equals(2), || k.touch(k.data));
            });
        })
        .isa("Memory Consistency Model, Release and Acquire Patterns"),
    ]
}
