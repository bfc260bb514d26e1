//! Hazards of phases: two buffers on one mbarrier, and rings that one side fills further than the other side
//! drains.

use emulator::Fault;
use ptx::{ProxySpace, Special};

use crate::tools::{absent, hang, out_of_step, unready};
use crate::{BOX_BYTES, Case};

/// Two buffers on one mbarrier.
pub(crate) fn shared() -> Vec<Case> {
    const PHASES: &str = "mbarrier: phase of the mbarrier object";
    vec![
        Case::new("one full barrier for both stages of a ring", 64, out_of_step, |k| {
            let full = |stage| k.bar(if k.broken { 0 } else { stage });
            k.barriers([1, 1, 1, 1], 64);
            k.roles(
                || {
                    for step in 0..6 {
                        let (stage, round) = (step % 2, step / 2);
                        k.f.mbarrier_wait(k.bar(2 + stage), round & 1 ^ 1);
                        k.bring(k.stage(stage), full(stage));
                    }
                },
                || {
                    for step in 0..6 {
                        let (stage, round) = (step % 2, step / 2);
                        k.f.mbarrier_wait(full(stage), round & 1);
                        k.peek(k.stage(stage) + k.lane() * 4);
                        k.f.warp_sync();
                        k.leader(|| k.f.mbarrier_arrive(k.bar(2 + stage)));
                    }
                },
            );
        })
        .isa(PHASES),
        Case::new("K and V on one barrier, told apart by the parity", 64, out_of_step, |k| {
            // Each block of an attention loop loads K to stage 0 and V to stage 1.
            k.barriers([1, 1, 1], 64);
            let (keys, values) = (k.bar(0), k.bar(u32::from(!k.broken)));
            k.roles(
                || {
                    for block in 0..3 {
                        k.f.mbarrier_wait(k.bar(2), block & 1 ^ 1);
                        k.bring(k.stage(0), keys);
                        k.bring(k.stage(1), values);
                    }
                },
                || {
                    for block in 0..3 {
                        k.f.mbarrier_wait(keys, if k.broken { 0 } else { block & 1 });
                        k.peek(k.stage(0) + k.lane() * 4);
                        k.f.mbarrier_wait(values, if k.broken { 1 } else { block & 1 });
                        k.peek(k.stage(1) + k.lane() * 4);
                        k.f.warp_sync();
                        k.leader(|| k.f.mbarrier_arrive(k.bar(2)));
                    }
                },
            );
        })
        .isa("mbarrier: pending arrival count of the current phase"),
        Case::new("one empty barrier for both stages, which two warps give back", 96, out_of_step, |k| {
            let empty = |stage| k.bar(2 + if k.broken { 0 } else { stage });
            k.barriers([1, 1, 2, 2], 96);
            k.roles(
                || {
                    for stage in 0..2 {
                        k.bring(k.stage(stage), k.bar(stage));
                    }
                    for stage in 0..2 {
                        // One warp may have given back both stages, and the other none.
                        k.f.mbarrier_wait(empty(stage), if k.broken { stage } else { 0 });
                        k.bring(k.stage(stage), k.bar(stage));
                    }
                },
                || {
                    for step in 0..4 {
                        let stage = step % 2;
                        k.f.mbarrier_wait(k.bar(stage), step / 2);
                        k.peek(k.stage(stage) + k.lane() * 4);
                        k.f.warp_sync();
                        k.leader(|| k.f.mbarrier_arrive(empty(stage)));
                    }
                },
            );
        })
        .isa("mbarrier: an arrival counts for the current phase, whoever it is from"),
        Case::new("two producers' boxes on a barrier that counts one of them", 96, out_of_step, |k| {
            k.barriers([if k.broken { 1 } else { 2 }], 96);
            for warp in 0..2 {
                k.in_thread(32 * warp, || k.bring(k.stage(warp), k.bar(0)));
            }
            k.in_warp(2, || {
                k.f.mbarrier_wait(k.bar(0), 0);
                k.peek(k.stage(0) + k.lane() * 4);
                k.peek(k.stage(1) + k.lane() * 4);
            });
        })
        .isa("mbarrier.init: count"),
        Case::in_cluster("one barrier for a peer's releases of two buffers", out_of_step, |k| {
            let empty = |buffer| k.bar(2 + if k.broken { 0 } else { buffer });
            let sends = |buffer| {
                let dst = k.f.map_shared(k.stage(2 + buffer), 1);
                k.f.bulk_share((dst, k.f.map_shared(k.bar(buffer), 1)), k.stage(buffer), 64, None);
            };
            k.barriers([1; 4], 32);
            k.zero(2 * BOX_BYTES);
            k.meet();
            k.once_in_rank(0, || {
                for buffer in 0..2 {
                    sends(buffer);
                }
                for buffer in 0..2 {
                    k.f.mbarrier_wait(empty(buffer), if k.broken { buffer } else { 0 });
                    sends(buffer);
                }
            });
            k.in_rank(1, || {
                for step in 0..4 {
                    let buffer = step % 2;
                    k.once(|| k.f.mbarrier_arrive_expect(k.bar(buffer), 64));
                    k.f.mbarrier_wait(k.bar(buffer), step / 2);
                    k.peek(k.stage(2 + buffer) + k.lane() % 16 * 4);
                    k.f.warp_sync();
                    k.once(|| k.f.mbarrier_arrive_cluster(k.f.map_shared(empty(buffer), 0)));
                }
            });
            k.meet();
        })
        .isa("mbarrier.try_wait: the current and the immediately preceding phase alone"),
    ]
}

/// Rings that one side fills further than the other side drains.
pub(crate) fn drains() -> Vec<Case> {
    let in_flight = |f: &Fault| matches!(f, Fault::ExitInFlight { .. });
    vec![
        Case::new("a consumer that takes one stage fewer than are filled", 64, in_flight, |k| {
            let taken = if k.broken { 4 } else { 5u32 };
            k.barriers([1; 4], 64);
            k.roles(
                || {
                    let at = k.cursor(2);
                    k.f.repeat(k.f.constant(5u32), |_| k.fills(at));
                },
                || {
                    let at = k.cursor(2);
                    k.f.repeat(k.f.constant(taken), |_| k.takes(at));
                },
            );
        })
        .isa("cp.async.bulk.tensor: completion mechanism"),
        Case::new("steps of K rounded down by the producer, up by the consumer", 64, hang, |k| {
            let extent = k.f.special(Special::ThreadsX) + 8;
            k.barriers([1; 6], 64);
            k.roles(
                || {
                    let at = k.cursor(3);
                    let steps = if k.broken { extent / 32 } else { extent.div_ceil(32) };
                    k.f.repeat(steps, |_| k.fills(at));
                },
                || {
                    let at = k.cursor(3);
                    k.f.repeat(extent.div_ceil(32), |_| k.takes(at));
                },
            );
        })
        .isa("mbarrier.try_wait"),
        Case::new("cp.async: no empty groups at the end, and the wait counts them", 64, unready, |k| {
            let copies = |step: u32| {
                let dst = k.stage(step % 3) + k.thread * 16;
                k.f.copy_async(16, dst, (k.data + k.thread.mul_wide(16), 0), None);
                k.f.copy_commit();
            };
            copies(0);
            copies(1);
            for step in 0..4 {
                k.f.copy_wait(1);
                k.f.barrier_sync(0, 64);
                k.peek(k.stage(step % 3) + (k.thread ^ 32) * 16);
                if step + 2 < 4 {
                    copies(step + 2);
                } else {
                    k.in_twin(|| k.f.copy_commit());
                }
            }
            k.f.copy_wait_all();
        })
        .isa("cp.async.wait_group: N most recent groups"),
        Case::new(
            "the last multiply of a loop read with one group still allowed",
            128,
            |f| matches!(f, Fault::RegisterInFlight { .. }),
            |k| {
                let d = k.accumulators();
                k.zero(6144);
                k.f.barrier_sync(0, 128);
                k.f.wgmma_fence();
                for step in 0..3 {
                    k.multiply_at(step % 2 + 1, &d);
                    k.f.wgmma_commit();
                    k.f.wgmma_wait(1);
                }
                k.in_twin(|| k.f.wgmma_wait(0));
                k.f.store_shared(k.own(k.stage(6)), 0, [d[0].get()]);
                k.f.wgmma_wait(0);
            },
        )
        .isa("wgmma.wait_group: N"),
        Case::new("an epilogue that ends with its last stores unread", 32, in_flight, |k| {
            k.zero(2 * BOX_BYTES);
            k.once(|| {
                for step in 0..3u32 {
                    let buffer = k.stage(step % 2);
                    k.f.bulk_wait(1, true);
                    k.write(buffer, step);
                    k.f.fence_proxy_async(ProxySpace::Shared);
                    k.f.bulk_store(k.out + u64::from(64 * step), buffer, 64);
                    k.f.bulk_commit();
                }
                k.in_twin(|| k.f.bulk_wait(0, true));
            });
        })
        .isa("cp.async.bulk.wait_group: .read"),
        Case::new("a producer that ends before its peers have given back the last stage", 64, absent, |k| {
            // Rank 0 sends the boxes of both CTAs, and both give each stage back to rank 0.
            let (f, last) = (k.f, 3);
            k.once(|| {
                for stage in 0..2 {
                    f.mbarrier_init(k.bar(stage), 1);
                    f.mbarrier_init(k.bar(2 + stage), 2);
                }
                f.fence_mbarrier_init();
            });
            k.meet();
            k.roles(
                || {
                    for step in 0..=last {
                        let stage = step % 2;
                        k.in_rank(0, || f.mbarrier_wait(k.bar(2 + stage), (step / 2) ^ 1));
                        f.mbarrier_arrive_expect(k.bar(stage), BOX_BYTES);
                        k.in_rank(0, || {
                            k.copy_box(k.stage(stage), k.bar(stage), Some(f.constant(3u16)));
                        });
                        k.in_rank(1, || f.mbarrier_wait(k.bar(stage), step / 2));
                    }
                    k.in_twin(|| {
                        k.in_rank(0, || {
                            f.mbarrier_wait(k.bar(2), 1);
                            f.mbarrier_wait(k.bar(3), 1);
                        });
                    });
                },
                || {
                    for step in 0..=last {
                        f.mbarrier_wait(k.bar(step % 2), step / 2);
                        k.peek(k.stage(step % 2) + k.lane() * 4);
                        f.warp_sync();
                        let empty = f.map_shared(k.bar(2 + step % 2), 0);
                        k.leader(|| f.mbarrier_arrive_cluster(empty));
                    }
                },
            );
        })
        .cluster(2)
        .isa("Cluster of Cooperative Thread Arrays: distributed shared memory"),
    ]
}
