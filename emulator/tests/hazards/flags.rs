//! Hazards of data that is passed through flags: wrong thread, scope or order.

use ptx::{AtomicSem, LoadOrder, Location, Scope, StoreOrder};

use crate::Case;
use crate::tools::{ACQUIRE, RELEASE, grid, race};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        grid("the flag of another CTA's data", 3, race, |k| {
            // CTAs 0 and 1 each write a word and set a flag. CTA 2 reads the first word.
            for cta in 0..2u32 {
                k.once_in(cta, || {
                    k.f.store_global(k.data, 4 * cta as i32, [k.thread]);
                    k.set_flag(cta as i32, RELEASE);
                });
            }
            k.once_in(2, || {
                k.poll(k.flag_at(i32::from(k.broken)), ACQUIRE);
                k.touch(k.data);
            });
        })
        .isa("Memory Consistency Model, Release and Acquire Patterns"),
        Case::new("the flag of another warp's data, in shared memory", 96, race, |k| {
            let f = k.f;
            k.zeroed(1024, 96);
            for warp in 0..2u32 {
                k.in_thread(32 * warp, || {
                    f.store_global(k.data, 4 * warp as i32, [k.thread]);
                    let flag = Location::shared(k.base, 16 * warp as i32);
                    f.store_ordered(StoreOrder::Release(Scope::Cta), flag, [f.constant(1u32)]);
                });
            }
            k.in_thread(64, || {
                k.poll(Location::shared(k.base, 16 * i32::from(k.broken)), LoadOrder::Acquire(Scope::Cta));
                k.touch(k.data);
            });
        })
        .isa("Memory Consistency Model, Release and Acquire Patterns"),
        grid("data written after the flag", 2, race, |k| {
            k.once_in(0, || {
                k.in_twin(|| k.f.store_global(k.data, 0, [k.thread]));
                k.set_flag(0, RELEASE);
                k.in_broken(|| k.f.store_global(k.data, 0, [k.thread]));
            });
            k.once_in(1, || {
                k.poll(k.flag_at(0), ACQUIRE);
                k.touch(k.data);
            });
        })
        .isa("Memory Consistency Model, Release and Acquire Patterns"),
        grid("a fence on the writer's side after the flag", 2, race, |k| {
            k.once_in(0, || {
                k.f.store_global(k.data, 0, [k.thread]);
                k.in_twin(|| k.f.fence(Scope::Gpu));
                k.set_flag(0, StoreOrder::Relaxed(Scope::Gpu));
                k.in_broken(|| k.f.fence(Scope::Gpu));
            });
            k.once_in(1, || {
                k.poll(k.flag_at(0), ACQUIRE);
                k.touch(k.data);
            });
        })
        .isa("Memory Consistency Model, Release and Acquire Patterns"),
        grid("a fence on the reader's side in front of the flag", 2, race, |k| {
            k.once_in(0, || {
                k.f.store_global(k.data, 0, [k.thread]);
                k.set_flag(0, RELEASE);
            });
            k.once_in(1, || {
                k.in_broken(|| k.f.fence(Scope::Gpu));
                k.poll(k.flag_at(0), LoadOrder::Relaxed(Scope::Gpu));
                k.in_twin(|| k.f.fence(Scope::Gpu));
                k.touch(k.data);
            });
        })
        .isa("Memory Consistency Model, Release and Acquire Patterns"),
        grid("a release for the cluster, an acquire for the GPU", 2, race, |k| {
            k.once_in(0, || {
                k.f.store_global(k.data, 0, [k.thread]);
                k.set_flag(0, StoreOrder::Release(if k.broken { Scope::Cluster } else { Scope::Gpu }));
            });
            k.once_in(1, || {
                k.poll(k.flag_at(0), ACQUIRE);
                k.touch(k.data);
            });
        })
        .isa("Memory Consistency Model, Scope"),
        grid("a plain flag", 2, race, |k| {
            k.once_in(0, || {
                k.f.store_global(k.data, 0, [k.thread]);
                k.f.fence(Scope::Gpu);
                if k.broken {
                    k.f.store_global(k.flag, 0, [k.f.constant(1u32)]);
                } else {
                    k.set_flag(0, StoreOrder::Relaxed(Scope::Gpu));
                }
            });
            k.once_in(1, || {
                k.poll(k.flag_at(0), ACQUIRE);
                k.touch(k.data);
            });
        })
        .isa("Memory Consistency Model, Conflict and data-races"),
        grid("a flag lowered for the next round while the reader reads", 2, race, |k| {
            // The writer overwrites the data once more, without waiting for the reader's answer.
            k.once_in(0, || {
                k.f.store_global(k.data, 0, [k.thread]);
                k.set_flag(0, RELEASE);
                k.in_twin(|| k.poll(k.flag_at(1), ACQUIRE));
                k.f.store_global(k.data, 0, [k.thread]);
            });
            k.once_in(1, || {
                k.poll(k.flag_at(0), ACQUIRE);
                k.touch(k.data);
                k.set_flag(1, RELEASE);
            });
        })
        .isa("Memory Consistency Model, Conflict and data-races"),
        grid("partial sums that the last CTA adds up, and no fence", 3, race, |k| {
            // The pattern of the CUDA sample threadFenceReduction.
            let cta = k.f.special(ptx::Special::CtaX);
            k.once(|| {
                k.f.store_global(k.out + cta.mul_wide(4), 0, [k.thread]);
                k.in_twin(|| k.f.fence(Scope::Gpu));
                let before = k.add(k.flag_at(0), AtomicSem::Relaxed);
                k.in_twin(|| k.f.fence(Scope::Gpu));
                k.f.if_(before.equals(2), || {
                    for part in 0..3 {
                        let _part = k.f.load_global::<u32>(k.out, 4 * part);
                    }
                });
            });
        })
        .isa("membar / fence.acq_rel"),
        grid("a turnstile whose second fence is missing", 3, race, |k| {
            let cta = k.f.special(ptx::Special::CtaX);
            k.once(|| {
                k.f.store_global(k.out + cta.mul_wide(4), 0, [k.thread]);
                k.f.fence(Scope::Gpu);
                let before = k.add(k.flag_at(0), AtomicSem::Relaxed);
                k.in_twin(|| k.f.fence(Scope::Gpu));
                k.f.if_(before.equals(2), || k.touch(k.out));
            });
        })
        .isa("Memory Consistency Model, Release and Acquire Patterns"),
    ]
}
