//! Hazards: memory that is overwritten while copies and multiplies may still read it.

use emulator::{Fault, TensorFault};
use ptx::{MapChange, MbarrierOrder, Scope, TensorLoad};

use crate::tensor_maps::MAP;
use crate::tools::{ACQUIRE, RELEASE, grid, race};
use crate::{BOX_BYTES, Case, Kernel};

pub(crate) fn cases() -> Vec<Case> {
    [global(), operands()].into_iter().flatten().collect()
}

impl Kernel<'_> {
    /// Two warpgroups multiply the same operands. Thread 256 loads into the operands once they have been
    /// released.
    fn shared_operands(self, arrivals: u32, gives_back: impl Fn(Kernel<'_>)) {
        let (f, d) = (self.f, self.accumulators());
        self.zero(4096);
        self.barriers([1, arrivals], 288);
        f.if_else(
            f.warp_index().less_than(8),
            || {
                f.wgmma_fence();
                self.wgmma(&d, false, None);
                self.finish();
                gives_back(self);
            },
            || {
                self.in_thread(256, || {
                    f.mbarrier_wait(self.bar(1), 0);
                    self.bring(self.base, self.bar(0));
                    f.mbarrier_wait(self.bar(0), 0);
                });
            },
        );
    }
}

fn global() -> Vec<Case> {
    vec![
        Case::in_cluster(
            "the source of a multicast overwritten when the own CTA's copy has come",
            race,
            |k| {
                k.ready();
                k.once(|| k.f.mbarrier_arrive_expect(k.barrier(), BOX_BYTES));
                k.meet();
                k.once_in_rank(0, || k.copy_box(k.base, k.barrier(), Some(k.f.constant(3u16))));
                k.f.mbarrier_wait(k.barrier(), 0);
                k.in_twin(|| k.meet());
                k.once_in_rank(0, || k.f.store_global(k.data, 0, [k.thread]));
                k.meet();
            },
        )
        .isa("cp.async.bulk.tensor: .multicast::cluster, completion on each CTA's mbarrier"),
        Case::new("the source of cp.async overwritten before the phase of its arrival", 64, race, |k| {
            k.barriers([32], 64);
            let source = k.data + (k.thread % 32).mul_wide(16);
            k.f.if_((k.thread / 32).equals(0), || {
                k.f.copy_async(16, k.base + k.thread * 16, (source, 0), None);
                k.f.copy_arrive(k.bar(0));
            });
            k.f.barrier_sync(0, 64);
            k.f.if_((k.thread / 32).equals(1), || {
                k.in_twin(|| k.f.mbarrier_wait(k.bar(0), 0));
                k.f.store_global(source, 0, [k.thread]);
            });
            k.f.mbarrier_wait(k.bar(0), 0);
        })
        .isa("cp.async.mbarrier.arrive"),
        Case::new("the source of an older group of cp.async overwritten with two pending", 32, race, |k| {
            for stage in 0..2u64 {
                let source = (k.data + k.thread.mul_wide(16) + stage * 512, 0);
                k.f.copy_async(16, k.stage(stage as u32) + k.thread * 16, source, None);
                k.f.copy_commit();
            }
            k.f.copy_wait(if k.broken { 2 } else { 1 });
            k.f.store_global(k.data + k.thread.mul_wide(16), 0, [k.thread]);
            k.f.copy_wait(0);
        })
        .isa("cp.async.wait_group: N"),
        Case::new(
            "the pixels of an im2col load overwritten before its barrier is waited for",
            32,
            race,
            |k| {
                k.init();
                k.once(|| {
                    k.f.mbarrier_arrive_expect(k.barrier(), BOX_BYTES);
                    let (map, dst, barrier) = (k.pixels, k.base, k.barrier());
                    let load = TensorLoad { map, dst, barrier, multicast: None, hint: None };
                    let offsets = [1u16, 1].map(|offset| k.f.constant(offset));
                    k.f.im2col_load(load, [0, -1, -1, 0].map(|at| k.f.constant(at)), offsets);
                    k.in_twin(|| k.f.mbarrier_wait(k.barrier(), 0));
                    k.f.store_global(k.data, 0, [k.thread]);
                });
                k.f.mbarrier_wait(k.barrier(), 0);
            },
        )
        .isa("cp.async.bulk.tensor: completion mechanism"),
        grid("a load's source overwritten by the CTA that a flag told too early", 2, race, |k| {
            k.in_cta(0, || {
                k.init();
                k.load(k.base);
                k.once(|| {
                    k.in_twin(|| k.f.mbarrier_wait(k.barrier(), 0));
                    k.set_flag(0, RELEASE);
                });
                k.f.mbarrier_wait(k.barrier(), 0);
            });
            k.once_in(1, || {
                k.poll(k.flag_at(0), ACQUIRE);
                k.f.store_global(k.data, 0, [k.thread]);
            });
        })
        .isa("cp.async.bulk.tensor: completion mechanism"),
        grid(
            "a map rewritten by another CTA before the stores through it have ended",
            2,
            |f| race(f) || matches!(f, Fault::Tensor(TensorFault::MapInFlight { .. })),
            |k| {
                let f = k.f;
                k.in_cta(0, || {
                    k.published(Scope::Gpu);
                    k.once(|| {
                        f.fence(Scope::Gpu);
                        k.set_flag(0, RELEASE);
                        k.poll(k.flag_at(2), ACQUIRE);
                        f.replace_tensor_map(k.out, MapChange::Extent(1, f.constant(4)));
                    });
                });
                k.in_cta(1, || {
                    k.zero(BOX_BYTES);
                    k.once(|| k.poll(k.flag_at(0), ACQUIRE));
                    f.warp_sync();
                    k.acquired();
                    Kernel { out_map: k.out, ..k }.store(k.base);
                    k.once(|| {
                        k.in_twin(|| f.bulk_wait(0, true));
                        k.set_flag(2, RELEASE);
                        f.bulk_wait(0, false);
                    });
                });
            },
        )
        .isa("tensormap.replace: weak memory operation on the map"),
        Case::new(
            "a map in global memory changed in place while another warp's load uses it",
            64,
            |f| race(f) || matches!(f, Fault::Tensor(TensorFault::MapInFlight { .. })),
            |k| {
                k.barriers([1], 64);
                k.in_warp(0, || {
                    k.published(Scope::Gpu);
                    k.acquired();
                    k.once(|| {
                        k.f.mbarrier_arrive_expect(k.bar(0), BOX_BYTES);
                        Kernel { map: k.out, ..k }.copy_box(k.base + 2048, k.bar(0), None);
                    });
                    k.in_twin(|| k.f.mbarrier_wait(k.bar(0), 0));
                });
                k.f.barrier_sync(0, 64);
                k.in_thread(32, || {
                    k.f.replace_tensor_map(k.out, MapChange::Extent(1, k.f.constant(4)));
                });
                k.f.mbarrier_wait(k.bar(0), 0);
            },
        )
        .isa("tensormap.replace: weak memory operation on the map"),
    ]
}

fn operands() -> Vec<Case> {
    let overwritten = |fault: &Fault| matches!(fault, Fault::SharedInFlight { .. }) || race(fault);
    vec![
        Case::new("operands of two warpgroups given back by one of them", 288, overwritten, |k| {
            let alone = k.broken;
            k.shared_operands(if alone { 1 } else { 2 }, |k| {
                k.in_thread(0, || k.f.mbarrier_arrive(k.bar(1)));
                if !alone {
                    k.in_thread(128, || k.f.mbarrier_arrive(k.bar(1)));
                }
            });
        })
        .isa("wgmma.wait_group: completion of the executing threads' multiplies"),
        Case::new("operands given back by a relaxed arrival", 288, overwritten, |k| {
            let relaxed = k.broken;
            k.shared_operands(2, |k| {
                let order = if relaxed { MbarrierOrder::Relaxed(Scope::Cta) } else { MbarrierOrder::CTA };
                k.f.if_((k.thread % 128).equals(0), || k.f.mbarrier_arrive_as(k.bar(1), false, order));
            });
        })
        .isa("mbarrier.arrive: .relaxed"),
        Case::new("a producer that sees the operands given back by a relaxed wait", 160, overwritten, |k| {
            let (f, d) = (k.f, k.accumulators());
            k.zero(4096);
            k.barriers([1, 1], 160);
            f.if_else(
                f.warp_index().less_than(4),
                || {
                    f.wgmma_fence();
                    k.wgmma(&d, false, None);
                    k.finish();
                    k.once(|| f.mbarrier_arrive(k.bar(1)));
                },
                || {
                    k.in_thread(128, || {
                        let relaxed = MbarrierOrder::Relaxed(Scope::Cta);
                        let order = if k.broken { relaxed } else { MbarrierOrder::CTA };
                        f.mbarrier_wait_as(k.bar(1), 0, order);
                        k.bring(k.base, k.bar(0));
                        f.mbarrier_wait(k.bar(0), 0);
                    });
                },
            );
        })
        .isa("mbarrier.try_wait: .relaxed"),
        Case::new(
            "operands overwritten by the threads of the next round, and no barrier between",
            256,
            overwritten,
            |k| {
                let (f, d) = (k.f, k.accumulators());
                k.zero(4096);
                f.barrier_sync(0, 256);
                f.if_(f.warp_index().less_than(4), || {
                    f.wgmma_fence();
                    k.wgmma(&d, false, None);
                    k.finish();
                });
                k.in_twin(|| f.barrier_sync(0, 256));
                f.if_((k.thread / 128).equals(1), || k.write(k.base + (k.thread - 128) * 4, 0u32));
            },
        )
        .isa("wgmma.mma_async: accesses of the async proxy; bar.sync"),
        Case::new("staging filled again by threads that a relaxed arrival told", 64, overwritten, |k| {
            k.zero(BOX_BYTES);
            k.barriers([1], 64);
            k.store(k.base);
            k.once(|| {
                k.f.bulk_wait(0, true);
                let relaxed = MbarrierOrder::Relaxed(Scope::Cta);
                let order = if k.broken { relaxed } else { MbarrierOrder::CTA };
                k.f.mbarrier_arrive_as(k.bar(0), false, order);
            });
            k.in_warp(1, || {
                k.f.mbarrier_wait(k.bar(0), 0);
                k.write(k.own(k.base), 0u32);
            });
        })
        .isa("cp.async.bulk.wait_group: .read; mbarrier.arrive: .relaxed"),
        grid(
            "a map read by a store, rewritten in shared memory before it has been published",
            1,
            race,
            |k| {
                k.init();
                k.f.copy_tensor_map(k.map, k.base + MAP);
                k.f.warp_sync();
                k.once(|| k.f.replace_tensor_map(k.base + MAP, MapChange::Address(k.data)));
                k.in_twin(|| k.f.warp_sync());
                k.f.publish_tensor_map(k.out, k.base + MAP, Scope::Gpu);
                k.f.if_(k.lane().equals(7), || {
                    k.write(k.base + MAP, 0u32);
                });
                k.acquired();
                k.used();
            },
        )
        .isa("bar.warp.sync: memory ordering among participating threads"),
    ]
}
