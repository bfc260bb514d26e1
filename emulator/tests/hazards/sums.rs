//! Sums that a program promises to make in a fixed order.

use emulator::Fault;
use ptx::{AtomicOp, AtomicSem, AtomicType, Location, Scope};

use crate::Case;
use crate::tools::{ACQUIRE, RELEASE, grid};

fn unordered(fault: &Fault) -> bool {
    matches!(fault, Fault::SumsUnordered { .. })
}

pub(crate) fn cases() -> Vec<Case> {
    let ordered = "a promise of the program: the order of floating-point additions";
    vec![
        grid("sums in order: two CTAs add, and the second does not wait for its turn", 2, unordered, |k| {
            let f = k.f;
            f.order_sums();
            let add = || {
                let one = f.constant(1.0f32);
                f.reduce(AtomicOp::Add, Location::global(k.data, 0), [one], (AtomicSem::Relaxed, Scope::Gpu));
            };
            k.once_in(0, || {
                add();
                k.set_flag(0, RELEASE);
            });
            k.once_in(1, || {
                k.in_twin(|| k.poll(k.flag_at(0), ACQUIRE));
                add();
            });
        })
        .isa(ordered),
        grid("sums in order: copies that add are counted before they have ended", 2, unordered, |k| {
            let f = k.f;
            f.order_sums();
            let add = || {
                k.f.bulk_reduce((AtomicOp::Add, AtomicType::F32), k.data, k.base, 16);
                k.f.bulk_commit();
            };
            k.zero(16);
            k.once_in(0, || {
                add();
                f.bulk_wait(0, k.broken);
                k.set_flag(0, RELEASE);
                f.bulk_wait(0, false);
            });
            k.once_in(1, || {
                k.poll(k.flag_at(0), ACQUIRE);
                f.fence_proxy_async(ptx::ProxySpace::Global);
                add();
                f.bulk_wait(0, false);
            });
        })
        .isa(ordered),
        grid("sums in order: additions by the lanes of one warp", 1, unordered, |k| {
            let f = k.f;
            f.order_sums();
            let one = f.constant(1.0f32);
            let at = k.data + f.special(ptx::Special::Lane).mul_wide(if k.broken { 0 } else { 4 });
            f.reduce(AtomicOp::Add, Location::global(at, 0), [one], (AtomicSem::Relaxed, Scope::Gpu));
        })
        .isa(ordered),
    ]
}
