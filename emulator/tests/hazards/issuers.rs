//! Hazards of who waits: bulk groups that another thread than their issuer waits for, and roles of a
//! dependent grid that do not wait for the grids before it.

use emulator::{Fault, TensorFault};
use ptx::{AtomicOp, AtomicSem, BulkLoad, MapChange, ProxySpace, Scope};

use crate::tools::{race, unready};
use crate::{BOX_BYTES, Case, Kernel};

/// Bulk groups that another thread than their issuer waits for.
pub(crate) fn groups() -> Vec<Case> {
    const GROUPS: &str = "cp.async.bulk.wait_group: groups of the executing thread";
    let early = |f: &Fault| unready(f) || race(f) || matches!(f, Fault::GlobalUninitialised { .. });
    vec![
        Case::new("two warps store in turn, and one of them waits for both", 64, early, |k| {
            k.zeroed(2 * BOX_BYTES, 64);
            for tile in 0..4u32 {
                let (buffer, issuer) = (k.stage(tile % 2), 32 * (tile % 2));
                if tile >= 2 {
                    k.in_thread(if k.broken { 32 } else { issuer }, || k.f.bulk_wait(0, true));
                }
                k.f.barrier_sync(0, 64);
                k.write(k.own(buffer), tile);
                k.f.fence_proxy_async(ProxySpace::Shared);
                k.f.barrier_sync(0, 64);
                k.in_thread(issuer, || {
                    k.f.bulk_store(k.out + u64::from(256 * tile), buffer, 256);
                    k.f.bulk_commit();
                });
            }
            k.f.bulk_wait(0, true);
        })
        .isa(GROUPS),
        Case::new("a sum added by one warp, and waited for by those that fill its source", 64, early, |k| {
            // As dQ of a backward pass: the second warp fills, the first one adds.
            let (f, filled, free) = (k.f, 1u32, 2u32);
            k.zeroed(BOX_BYTES, 64);
            k.split(
                || {
                    for _ in 0..2 {
                        f.barrier_sync(filled, 64);
                        k.once(|| {
                            f.tensor_reduce(AtomicOp::Add, k.map, k.base, [f.constant(0); 2]);
                            f.bulk_commit();
                            k.in_twin(|| f.bulk_wait(0, true));
                        });
                        f.warp_sync();
                        f.barrier_arrive(free, 64);
                    }
                    f.bulk_wait(0, true);
                },
                || {
                    for round in 0..2u32 {
                        k.write(k.own(k.base), round);
                        f.fence_proxy_async(ProxySpace::Shared);
                        f.barrier_arrive(filled, 64);
                        f.barrier_sync(free, 64);
                        k.in_broken(|| f.bulk_wait(0, true));
                    }
                },
            );
        })
        .isa(GROUPS),
        Case::in_cluster("a copy to a peer waited for as a group of its issuer", early, |k| {
            // Copies to shared memory complete on an mbarrier, and are in no group.
            k.ready();
            k.awaits(64, false);
            k.once_in_rank(0, || {
                k.f.bulk_share(k.peer(), k.base, 64, None);
                k.f.bulk_commit();
                k.f.bulk_wait(0, true);
            });
            k.in_rank(1, || k.f.mbarrier_wait(k.barrier(), 0));
            k.in_twin(|| k.meet());
            k.once_in_rank(0, || k.write(k.base, 7u32));
            k.meet();
        })
        .isa("cp.async.bulk: completion mechanism .mbarrier"),
        Case::new("a bulk store's result read after another warp's wait", 64, early, |k| {
            k.zeroed(256, 64);
            k.once(|| {
                k.f.bulk_store(k.out, k.base, 256);
                k.f.bulk_commit();
            });
            k.in_thread(if k.broken { 32 } else { 0 }, || k.f.bulk_wait(0, false));
            k.f.barrier_sync(0, 64);
            k.touch(k.out + k.thread.mul_wide(4));
            k.f.bulk_wait(0, false);
        })
        .isa(GROUPS),
        Case::new(
            "a map changed by a warp that waited, and another warp's store reads it",
            64,
            |f| race(f) || matches!(f, Fault::Tensor(TensorFault::MapInFlight { .. })),
            |k| {
                k.zeroed(BOX_BYTES, 64);
                k.in_warp(0, || {
                    k.published(Scope::Gpu);
                    k.acquired();
                    Kernel { out_map: k.out, ..k }.store(k.base);
                });
                k.in_warp(u32::from(k.broken), || k.f.bulk_wait(0, true));
                k.f.barrier_sync(0, 64);
                k.in_thread(32, || {
                    k.f.replace_tensor_map(k.out, MapChange::Extent(1, k.f.constant(4)));
                });
                k.f.bulk_wait(0, false);
            },
        )
        .isa(GROUPS),
    ]
}

/// Roles of a dependent grid, one of which does not wait for the grids before it.
pub(crate) fn roles() -> Vec<Case> {
    let case = |why, threads, program: fn(Kernel<'_>)| {
        let found = |fault: &Fault| matches!(fault, Fault::GridNotAwaited { .. });
        Case { dependent: true, ..Case::new(why, threads, found, program) }
            .isa("griddepcontrol.wait: the executing thread")
    };
    vec![
        case("the producer waits for the grids before this one, and the epilogue reads C early", 64, |k| {
            k.barriers([1], 64);
            k.roles(
                || {
                    k.f.grid_wait();
                    k.bring(k.base, k.bar(0));
                },
                || {
                    k.in_twin(|| k.f.grid_wait());
                    let c = k.f.load_global::<u32>(k.flag + k.lane().mul_wide(4) % 64, 0);
                    k.f.mbarrier_wait(k.bar(0), 0);
                    k.write(k.other(k.stage(1)), k.read(k.other(k.base)) + c);
                },
            );
        }),
        case("the producer waits for the grids before this one, and the bias is copied early", 96, |k| {
            k.barriers([1], 96);
            k.roles(
                || {
                    k.f.grid_wait();
                    k.bring(k.base, k.bar(0));
                },
                || {
                    k.in_warp(2, || {
                        k.in_twin(|| k.f.grid_wait());
                        let bias = k.flag + (k.lane() % 4).mul_wide(16);
                        k.f.copy_async(16, k.stage(1) + k.lane() * 16, (bias, 0), None);
                        k.f.copy_wait_all();
                    });
                    k.f.mbarrier_wait(k.bar(0), 0);
                    k.f.barrier_sync(1, 64);
                    k.peek(k.stage(1) + k.lane() * 16);
                },
            );
        }),
        case("the loads wait for the grids before this one, and the draw of a tile does not", 96, |k| {
            k.barriers([1, 1], 96);
            k.in_warp(0, || {
                k.once(|| {
                    k.f.grid_wait();
                    k.bring(k.base, k.bar(0));
                });
            });
            k.in_thread(32, || {
                k.in_twin(|| k.f.grid_wait());
                k.write(k.stage(1), k.add(k.flag_at(0), AtomicSem::Relaxed));
                k.f.mbarrier_arrive(k.bar(1));
            });
            k.in_warp(2, || {
                k.f.mbarrier_wait(k.bar(1), 0);
                k.f.mbarrier_wait(k.bar(0), 0);
                k.peek(k.base + k.read(k.stage(1)) * 4);
            });
        }),
        case("a workspace cleared before the grids before this one have ended", 64, |k| {
            k.barriers([1], 64);
            k.roles(
                || {
                    k.f.grid_wait();
                    k.bring(k.base, k.bar(0));
                },
                || {
                    k.in_twin(|| k.f.grid_wait());
                    let zero = k.f.constant(0u32);
                    k.f.store_global(k.out + k.lane().mul_wide(16), 0, [zero; 4]);
                    k.f.mbarrier_wait(k.bar(0), 0);
                },
            );
        }),
        case("one of two ranks waits for the grids before this one and loads its half", 32, |k| {
            k.init();
            k.meet();
            k.once(|| {
                k.f.mbarrier_arrive_expect(k.barrier(), 1024);
                if k.broken {
                    k.in_rank(0, || k.f.grid_wait());
                } else {
                    k.f.grid_wait();
                }
                let half = k.rank() * 512;
                let (src, dst, barrier) = (k.data + half.mul_wide(1), k.base + half, k.barrier());
                let multicast = Some(k.f.constant(3u16));
                k.f.bulk_load(BulkLoad { src, dst, barrier, multicast, hint: None }, 512);
            });
            k.f.mbarrier_wait(k.barrier(), 0);
            k.peek(k.own(k.base));
            k.meet();
        })
        .cluster(2),
    ]
}
