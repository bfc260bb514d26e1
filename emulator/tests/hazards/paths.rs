//! Hazards of fences and waits on the wrong path: of another thread than the one on the way from the access to
//! the next one. And tensor maps that a kernel makes from zeros.

use emulator::{Fault, TensorFault};
use ptx::abi::{TensorElement, TensorSwizzle};
use ptx::{MapChange, ProxySpace, Scope};

use crate::proxies::fence;
use crate::tensor_maps::MAP;
use crate::tools::{race, unfenced, unready};
use crate::{BOX_BYTES, Case, Kernel};

/// Fences and waits of another thread.
pub(crate) fn cases() -> Vec<Case> {
    [inits(), proxies(), multiplies()].into_iter().flatten().collect()
}

impl Kernel<'_> {
    /// Thread 0 makes an mbarrier, and thread 32 loads with it. `made` is executed by the maker, `used` by the
    /// user after a barrier.
    fn made_and_used(self, made: impl FnOnce(), used: impl FnOnce()) {
        self.once(|| {
            self.f.mbarrier_init(self.bar(0), 1);
            made();
        });
        self.f.barrier_sync(0, 64);
        self.in_thread(32, || {
            used();
            self.bring(self.base, self.bar(0));
        });
        self.f.mbarrier_wait(self.bar(0), 0);
        self.peek(self.own(self.base));
    }

    /// The first warpgroup fills a box, and a thread of the second one stores it.
    fn handed_over(self, before: impl FnOnce(), after: impl FnOnce()) {
        let f = self.f;
        self.zeroed(BOX_BYTES, 256);
        f.if_(self.thread.less_than(128), || self.write(self.own(self.base), self.thread));
        before();
        f.barrier_sync(0, 256);
        after();
        self.in_thread(128, || {
            f.tensor_store(self.out_map, self.base, [f.constant(0); 2]);
            f.bulk_commit();
            f.bulk_wait(0, true);
        });
    }
}

fn inits() -> Vec<Case> {
    let unseen = |f: &Fault| unfenced(f) || race(f) || matches!(f, Fault::MbarrierNotFenced { .. });
    vec![
        Case::new(
            "fence.mbarrier_init by the thread that uses the barrier, not by its maker",
            64,
            unseen,
            |k| {
                let fences = || k.f.fence_mbarrier_init();
                k.made_and_used(
                    || {
                        k.in_twin(fences);
                    },
                    || {
                        k.in_broken(fences);
                    },
                );
            },
        )
        .isa("fence.mbarrier_init: prior mbarrier.init of the same thread"),
        Case::new(
            "a new barrier and a proxy fence that its user executes before it knows of it",
            64,
            unseen,
            |k| {
                k.in_broken(|| k.in_thread(32, || fence(k)));
                k.made_and_used(
                    || (),
                    || {
                        k.in_twin(|| fence(k));
                    },
                );
            },
        )
        .isa("Memory Consistency Model, Proxies: fence.proxy.async"),
        Case::in_cluster(
            "a barrier without a fence that a relaxed barrier of the cluster tells a peer",
            unseen,
            |k| {
                // The twin's barrier of the cluster releases, so it needs no fence for a generic access.
                k.once(|| k.f.mbarrier_init(k.barrier(), 1));
                k.f.cluster_arrive(k.broken);
                k.f.cluster_wait();
                k.once(|| k.f.mbarrier_arrive_cluster(k.f.map_shared(k.barrier(), k.rank() ^ 1)));
                k.f.mbarrier_wait(k.barrier(), 0);
                k.meet();
            },
        )
        .isa("barrier.cluster.arrive: .release; fence.mbarrier_init"),
    ]
}

fn proxies() -> Vec<Case> {
    const PATH: &str = "Memory Consistency Model, Proxies: a proxy fence along the causality path";
    let found = |f: &Fault| unfenced(f) || race(f);
    vec![
        Case::new("a proxy fence by another reader than the one that stores the box", 256, found, |k| {
            let fences = if k.broken { 129 } else { 128 };
            k.handed_over(|| (), || k.in_thread(fences, || fence(k)));
        })
        .isa(PATH),
        Case::new("a proxy fence by a third warp before the barrier, not after it", 256, found, |k| {
            k.handed_over(
                || {
                    k.in_broken(|| k.in_warp(5, || fence(k)));
                },
                || {
                    k.in_twin(|| k.in_warp(5, || fence(k)));
                    k.f.barrier_sync(1, 256);
                },
            );
        })
        .isa(PATH),
        Case::new("a proxy fence by a reader before the barrier, not after it", 256, found, |k| {
            k.handed_over(
                || {
                    k.in_broken(|| k.f.if_(k.thread.at_least(128), || fence(k)));
                },
                || {
                    k.in_twin(|| k.f.if_(k.thread.at_least(128), || fence(k)));
                },
            );
        })
        .isa(PATH),
        Case::new(
            "cp.async of one warpgroup, fenced by it alone before the copies have come",
            256,
            found,
            |k| {
                // In the twin the readers fence after the barrier.
                let (f, d) = (k.f, k.accumulators());
                k.zeroed(4096, 256);
                let first = k.thread.less_than(128);
                f.if_(first, || {
                    f.copy_async(8, k.base + k.thread * 8, (k.data + k.thread.mul_wide(8), 0), None);
                    k.in_broken(|| fence(k));
                    f.copy_wait_all();
                });
                f.barrier_sync(0, 256);
                f.if_(f.warp_index().at_least(4), || {
                    k.in_twin(|| fence(k));
                    f.wgmma_fence();
                    k.wgmma(&d, false, None);
                    k.finish();
                });
            },
        )
        .isa(PATH),
        Case::new("a wgmma of a warpgroup of which three warps fence after the barrier", 256, found, |k| {
            let (f, d) = (k.f, k.accumulators());
            k.zeroed(4096, 256);
            f.if_(k.thread.less_than(128), || k.write(k.own(k.base), 0u32));
            f.barrier_sync(0, 256);
            f.if_(f.warp_index().at_least(4), || {
                let fencing = if k.broken { 7 } else { 8 };
                f.if_(f.warp_index().less_than(fencing), || fence(k));
                f.wgmma_fence();
                k.wgmma(&d, false, None);
                k.finish();
            });
        })
        .isa(PATH),
    ]
}

fn multiplies() -> Vec<Case> {
    const WAITS: &str = "wgmma.wait_group: groups of the executing threads";
    let found = |f: &Fault| unready(f) || race(f);
    vec![
        Case::new("operands overwritten by a warp that has not waited as the others have", 128, found, |k| {
            let (f, d) = (k.f, k.accumulators());
            k.ready_to_multiply();
            k.wgmma(&d, false, None);
            f.wgmma_commit();
            let last = f.warp_index().equals(3);
            k.in_broken(|| f.if_(last, || k.write(k.base + k.lane() * 4, 7u32)));
            f.wgmma_wait(0);
            f.barrier_sync(0, 128);
            k.in_twin(|| f.if_(last, || k.write(k.base + k.lane() * 4, 7u32)));
        })
        .isa(WAITS),
        Case::new("operands of the second group overwritten after a wait for the first", 128, found, |k| {
            let (f, d) = (k.f, k.accumulators());
            k.zeroed(6144, 128);
            f.wgmma_fence();
            for stage in 1..3 {
                k.multiply_at(stage, &d);
                f.wgmma_commit();
            }
            f.wgmma_wait(1);
            f.barrier_sync(0, 128);
            let stage = k.stage(if k.broken { 4 } else { 2 });
            k.in_warp(2, || k.write(stage + k.lane() * 4, 7u32));
            f.wgmma_wait(0);
        })
        .isa(WAITS),
        Case::new(
            "operands overwritten by a warp after its own wait, and no barrier of the warpgroup",
            128,
            found,
            |k| {
                // A wait is one of the executing threads: the other warps' quarters of the multiply may still read.
                let d = k.accumulators();
                k.ready_to_multiply();
                k.wgmma(&d, false, None);
                k.finish();
                k.in_twin(|| k.f.barrier_sync(0, 128));
                k.write(k.own(k.base), k.thread);
            },
        )
        .isa(WAITS),
    ]
}

/// Tensor maps that a kernel makes from zeros.
pub(crate) fn maps() -> Vec<Case> {
    let fields = |f: &Fault| matches!(f, Fault::Tensor(TensorFault::MapFields { .. }));
    let unacquired = |f: &Fault| matches!(f, Fault::Tensor(TensorFault::MapUnfenced { .. }));
    vec![
        Case::new("a map made from zeros without the extent of its box", 32, fields, |k| {
            k.init();
            k.made(!k.broken);
            k.acquired();
            k.used();
        })
        .isa("tensormap.replace"),
        Case::new("a map made from zeros and not acquired", 32, unacquired, |k| {
            k.init();
            k.made(true);
            k.in_twin(|| k.acquired());
            k.used();
        })
        .isa("fence.proxy.tensormap::generic.acquire"),
    ]
}

impl Kernel<'_> {
    /// The warp clears 128 bytes of shared memory, lane 0 replaces every field, and the warp writes the map to
    /// `out`.
    fn made(self, boxed: bool) {
        let (f, map) = (self.f, self.base + MAP);
        self.write(map + self.lane() * 4, 0u32);
        f.warp_sync();
        self.once(|| {
            let replace = |change| f.replace_tensor_map(map, change);
            replace(MapChange::Address(self.data));
            replace(MapChange::Rank(2));
            for (dim, extent) in [(0, 64), (1, 8)] {
                if boxed || dim == 0 {
                    replace(MapChange::Box(dim, f.constant(extent)));
                }
                replace(MapChange::Extent(dim, f.constant(extent)));
                replace(MapChange::ElementStride(dim, f.constant(1)));
            }
            replace(MapChange::Stride(1, f.constant(128u64)));
            replace(MapChange::Element(TensorElement::Bf16));
            replace(MapChange::Swizzle(TensorSwizzle::B128));
        });
        f.warp_sync();
        f.publish_tensor_map(self.out, map, Scope::Gpu);
    }
}

/// What the ISA allows, of the same kind.
pub(crate) fn legal() -> Vec<Case> {
    let legal = |why, threads, program: fn(Kernel<'_>)| Case::new(why, threads, |_: &Fault| false, program);
    vec![
        legal("a box of one warpgroup fenced by its reader through another space's name", 256, |k| {
            k.handed_over(|| (), || k.in_thread(128, || k.f.fence_proxy_async(ProxySpace::All)));
        })
        .isa("Memory Consistency Model, Proxies: a proxy fence along the causality path"),
    ]
}
