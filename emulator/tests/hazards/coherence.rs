//! Hazards: writes of one word that take effect in another order than the program expects, and atomic
//! operations that miss a write.

use ptx::{AtomicOp, AtomicSem, LoadOrder, Location, Scope, StoreOrder, Value};

use crate::tools::{ACQUIRE, RELAXED, RELEASE, grid, trapped};
use crate::{Case, Kernel};

const TICKET: &str = "Memory Consistency Model, Release and Acquire Patterns";
const COHERENCE: &str = "Memory Consistency Model, Coherence";

/// How the CTA that comes last reads a sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Read {
    Exchange,
    AddZero,
    CompareSwap,
    Max,
    Relaxed,
    Volatile,
}

impl<'f> Kernel<'f> {
    fn reads_sum(self, read: Read) -> Value<'f, u32> {
        let (f, at) = (self.f, self.flag_at(8));
        let zero = f.constant(0u32);
        match read {
            Read::Exchange => f.atomic(AtomicOp::Exchange, at, zero, RELAXED),
            Read::AddZero => f.atomic(AtomicOp::Add, at, zero, RELAXED),
            Read::Max => f.atomic(AtomicOp::Max, at, zero, RELAXED),
            Read::CompareSwap => f.compare_swap(at, f.constant(99u32), zero, RELAXED),
            Read::Relaxed | Read::Volatile => {
                let relaxed = LoadOrder::Relaxed(Scope::Gpu);
                let order = if read == Read::Volatile { LoadOrder::Volatile } else { relaxed };
                let [sum] = f.load_ordered::<u32, 1>(order, at);
                sum
            }
        }
    }
}

/// Each of three CTAs adds its part to a sum and takes a ticket. The last one must see all parts.
fn ticket(read: Read) -> Case {
    let name = match read {
        Read::Exchange => "atom.exch",
        Read::AddZero => "atom.add",
        Read::CompareSwap => "atom.cas",
        Read::Max => "atom.max",
        Read::Relaxed => "ld.relaxed",
        Read::Volatile => "ld.volatile",
    };
    let why: &'static str =
        format!("split-K without fences around the ticket: the sum read by {name}").leak();
    let body = move |k: Kernel<'_>| {
        let f = k.f;
        k.once(|| {
            f.reduce(AtomicOp::Add, k.flag_at(8), [f.constant(1u32)], RELAXED);
            k.in_twin(|| f.fence(Scope::Gpu));
            let before = k.add(k.flag_at(0), AtomicSem::Relaxed);
            f.if_(before.equals(2), || {
                k.in_twin(|| f.fence(Scope::Gpu));
                f.if_(k.reads_sum(read).differs_from(3), || f.trap());
            });
        });
    };
    grid(why, 3, trapped, body).isa(TICKET)
}

/// The order of the stores of [`both_first`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stores {
    Relaxed,
    Volatile,
    Released,
    Fenced,
}

/// Two CTAs write two words in opposite orders (2+2W). Each of the first writes comes last.
fn both_first(stores: Stores) -> Case {
    let name = match stores {
        Stores::Relaxed => "relaxed",
        Stores::Volatile => "volatile",
        Stores::Released => "st.release",
        Stores::Fenced => "with fence.acq_rel",
    };
    let why: &'static str = format!("two words written in opposite orders: {name}").leak();
    let body = move |k: Kernel<'_>| {
        let (f, relaxed) = (k.f, StoreOrder::Relaxed(Scope::Gpu));
        for cta in 0..2u32 {
            k.once_in(cta, || {
                let order = match stores {
                    _ if !k.broken => relaxed,
                    Stores::Relaxed | Stores::Fenced => relaxed,
                    Stores::Volatile => StoreOrder::Volatile,
                    Stores::Released => RELEASE,
                };
                let (first, second) = if cta == 0 { (4, 8) } else { (8, 4) };
                f.store_ordered(order, k.flag_at(first), [f.constant(1u32)]);
                if !k.broken {
                    f.fence_sc(Scope::Gpu);
                } else if stores == Stores::Fenced {
                    f.fence(Scope::Gpu);
                }
                f.store_ordered(order, k.flag_at(second), [f.constant(2u32)]);
                let _old = k.add(k.flag_at(0), AtomicSem::Release);
            });
        }
        k.once_in(2, || {
            f.loop_(|| {
                let [seen] = f.load_ordered::<u32, 1>(ACQUIRE, k.flag_at(0));
                f.break_if(seen.equals(2));
            });
            let [[a], [b]] =
                [4, 8].map(|at| f.load_ordered::<u32, 1>(LoadOrder::Relaxed(Scope::Gpu), k.flag_at(at)));
            f.if_(a.equals(1) & b.equals(1), || f.trap());
        });
    };
    grid(why, 3, trapped, body).isa(COHERENCE)
}

/// The same between two warps, in shared memory.
fn both_first_shared() -> Case {
    let body = |k: Kernel<'_>| {
        let f = k.f;
        k.zeroed(1024, 64);
        let relaxed = StoreOrder::Relaxed(Scope::Cta);
        for warp in 0..2u32 {
            k.in_thread(32 * warp, || {
                let (first, second) = if warp == 0 { (0, 64) } else { (64, 0) };
                f.store_ordered(relaxed, Location::shared(k.base, first), [f.constant(1u32)]);
                k.in_twin(|| f.fence_sc(Scope::Cta));
                f.store_ordered(relaxed, Location::shared(k.base, second), [f.constant(2u32)]);
            });
        }
        f.barrier_sync(0, 64);
        k.once(|| {
            let [a, b] = [0, 64].map(|at| k.read(k.base + at));
            f.if_(a.equals(1) & b.equals(1), || f.trap());
        });
    };
    Case::new("two words of shared memory written in opposite orders", 64, trapped, body).isa(COHERENCE)
}

/// A CTA lowers a flag for the next round and raises it again; another one raises it once. An atomic
/// operation of the first misses the other's.
fn missed_store() -> Case {
    let body = |k: Kernel<'_>| {
        let f = k.f;
        k.once_in(0, || {
            k.set_flag(8, StoreOrder::Relaxed(Scope::Gpu));
            k.set_flag(0, if k.broken { StoreOrder::Relaxed(Scope::Gpu) } else { RELEASE });
        });
        k.once_in(1, || {
            let seen = f.load_ordered::<u32, 1>(ACQUIRE, k.flag_at(0));
            let old = f.atomic(AtomicOp::Exchange, k.flag_at(8), f.constant(7u32), RELAXED);
            f.if_(seen[0].differs_from(0) & old.equals(0), || f.trap());
        });
    };
    grid("a relaxed store missed by an atomic exchange after the flag", 2, trapped, body).isa(COHERENCE)
}

/// `red` is no acquire, even before a fence.
fn reduction_acquires_nothing() -> Case {
    let body = |k: Kernel<'_>| {
        let f = k.f;
        k.once(|| {
            k.in_cta(0, || {
                f.store_global(k.data, 0, [k.thread]);
                let _old = k.add(k.flag_at(0), AtomicSem::Release);
            });
            k.in_cta(1, || {
                if k.broken {
                    f.reduce(AtomicOp::Add, k.flag_at(0), [f.constant(1u32)], RELAXED);
                    f.fence(Scope::Gpu);
                    k.touch(k.data);
                } else {
                    let old = k.add(k.flag_at(0), AtomicSem::Relaxed);
                    f.fence(Scope::Gpu);
                    f.if_(old.equals(1), || k.touch(k.data));
                }
            });
        });
    };
    grid("a red and a fence taken for an acquire", 2, crate::tools::race, body).isa("red: no acquire pattern")
}

pub(crate) fn cases() -> Vec<Case> {
    let mut all = Vec::new();
    all.extend(
        [Read::Exchange, Read::AddZero, Read::CompareSwap, Read::Max, Read::Relaxed, Read::Volatile]
            .map(ticket),
    );
    all.extend([Stores::Relaxed, Stores::Volatile, Stores::Released, Stores::Fenced].map(both_first));
    all.extend([both_first_shared(), missed_store(), reduction_acquires_nothing()]);
    all
}
