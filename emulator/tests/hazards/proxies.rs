//! Hazards between proxies: generic stores that asynchronous work reads, and staging memory that is reused.

use emulator::Fault;
use ptx::{AtomicOp, AtomicSem, Location, ProxySpace, Scope};

use crate::tools::{race, unfenced};
use crate::{BOX_BYTES, Case, Kernel};

/// Two warps write a box, then thread 0 stores it by a tensor store. `between` is executed between the two.
fn staged(k: Kernel<'_>, between: impl FnOnce()) {
    k.zeroed(BOX_BYTES, 64);
    k.write(k.own(k.base), k.thread);
    between();
    k.store(k.base);
    k.f.bulk_wait(0, true);
}

pub(crate) fn fence(k: Kernel<'_>) {
    k.f.fence_proxy_async(ProxySpace::Shared);
}

fn unfenced_or_race(fault: &Fault) -> bool {
    unfenced(fault) || race(fault)
}

pub(crate) fn cases() -> Vec<Case> {
    shared()
}

fn shared() -> Vec<Case> {
    vec![
        Case::new("store, barrier, tensor store: no proxy fence anywhere", 64, unfenced, |k| {
            staged(k, || {
                k.in_twin(|| fence(k));
                k.f.barrier_sync(0, 64);
            });
        })
        .isa("fence.proxy.async"),
        Case::new("a proxy fence for global memory where shared memory was written", 64, unfenced, |k| {
            staged(k, || {
                k.f.fence_proxy_async(if k.broken { ProxySpace::Global } else { ProxySpace::Shared });
                k.f.barrier_sync(0, 64);
            });
        })
        .isa("fence.proxy.async: state space"),
        Case::new("a proxy fence in front of the store", 64, unfenced, |k| {
            k.in_broken(|| fence(k));
            staged(k, || {
                k.in_twin(|| fence(k));
                k.f.barrier_sync(0, 64);
            });
        })
        .isa("fence.proxy.async"),
        Case::new("the issuer's proxy fence in front of the barrier", 64, unfenced, |k| {
            staged(k, || {
                if k.broken {
                    k.once(|| fence(k));
                } else {
                    fence(k);
                }
                k.f.barrier_sync(0, 64);
            });
        })
        .isa("fence.proxy.async"),
        Case::new("a proxy fence and no barrier", 64, unfenced_or_race, |k| {
            staged(k, || {
                fence(k);
                k.in_twin(|| k.f.barrier_sync(0, 64));
            });
        })
        .isa("Memory Consistency Model, Causality order"),
        Case::new("stmatrix, then a tensor store without a proxy fence", 32, unfenced, |k| {
            k.zero(BOX_BYTES);
            k.f.warp_sync();
            k.f.store_matrix(k.base + k.lane() * 16, [k.thread; 4], false);
            k.in_twin(|| fence(k));
            k.f.warp_sync();
            k.store(k.base);
            k.f.bulk_wait(0, true);
        })
        .isa("fence.proxy.async"),
        Case::new("an atomic, then a tensor store without a proxy fence", 64, unfenced, |k| {
            k.zeroed(BOX_BYTES, 64);
            let at = Location::shared(k.base + k.lane() * 4, 0);
            k.f.reduce(AtomicOp::Add, at, [k.thread], (AtomicSem::Relaxed, Scope::Cta));
            k.in_twin(|| fence(k));
            k.f.barrier_sync(0, 64);
            k.store(k.base);
            k.f.bulk_wait(0, true);
        })
        .isa("fence.proxy.async"),
        Case::new("cp.async, then a wgmma without a proxy fence", 128, unfenced, |k| {
            k.zeroed(4096, 128);
            k.f.copy_async(8, k.base + k.thread * 8, (k.data + k.thread.mul_wide(8), 0), None);
            k.f.copy_wait_all();
            k.in_twin(|| fence(k));
            k.f.barrier_sync(0, 128);
            let d = k.accumulators();
            k.f.wgmma_fence();
            k.wgmma(&d, false, None);
            k.finish();
        })
        .isa("wgmma.mma_async: async proxy"),
        Case::in_cluster(
            "a peer's store, then the owner's tensor store without a proxy fence",
            unfenced,
            |k| {
                k.ready();
                k.in_rank(0, || {
                    let at = k.f.map_shared(k.own(k.base), 1);
                    k.f.store_ordered(
                        ptx::StoreOrder::Relaxed(Scope::Cluster),
                        Location::cluster(at, 0),
                        [k.thread],
                    );
                    k.in_twin(|| k.f.fence_proxy_async(ProxySpace::All));
                });
                k.meet();
                k.in_rank(1, || {
                    k.store(k.base);
                    k.f.bulk_wait(0, true);
                });
            },
        )
        .isa("fence.proxy.async: .shared::cluster"),
        Case::in_cluster("a store, then a copy to a peer without a proxy fence", unfenced, |k| {
            k.ready();
            k.awaits(64, false);
            k.once_in_rank(0, || {
                k.f.store_shared(k.base, 0, [k.thread; 4]);
                k.in_twin(|| k.f.fence_proxy_async(ProxySpace::Shared));
                k.f.bulk_share(k.peer(), k.base, 64, None);
            });
            k.in_rank(1, || k.f.mbarrier_wait(k.barrier(), 0));
            k.meet();
        })
        .isa("cp.async.bulk: async proxy"),
        Case::new(
            "a store, then a tensor load into the same bytes without a proxy fence",
            64,
            unfenced_or_race,
            |k| {
                k.barriers([1], 64);
                k.write(k.own(k.base), k.thread);
                k.in_twin(|| fence(k));
                k.f.barrier_sync(0, 64);
                k.once(|| k.bring(k.base, k.bar(0)));
                k.f.mbarrier_wait(k.bar(0), 0);
            },
        )
        .isa("Memory Consistency Model, Proxies"),
        Case::new(
            "a store, then a bulk load into the same bytes without a proxy fence",
            32,
            unfenced_or_race,
            |k| {
                k.init();
                k.once(|| {
                    k.write(k.base, 7u32);
                    k.in_twin(|| fence(k));
                });
                k.bulk_load(64);
                k.f.mbarrier_wait(k.barrier(), 0);
            },
        )
        .isa("cp.async.bulk: async proxy"),
    ]
}
