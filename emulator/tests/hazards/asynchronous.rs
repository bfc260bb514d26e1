//! Hazards of tensor copies and matrix multiplies.

use emulator::{Fault, Owner, TensorFault, Wait};
use ptx::inst::ProxySpace;
use ptx::{TensorLoad, WgmmaOperands, WgmmaTypes};

use crate::{BOX_BYTES, Case};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::new(
            "a tensor load not waited for is read",
            32,
            fault!(Fault::SharedInFlight { owner: Owner::TensorLoad, write: false, .. }),
            |k| {
                k.init();
                k.load(k.base);
                k.in_twin(|| k.f.mbarrier_wait(k.barrier(), 0));
                let _value = k.f.load_shared_vector::<u32, 1>(k.base, 0);
                k.f.mbarrier_wait(k.barrier(), 0);
            },
        ),
        Case::new(
            "a tensor load not waited for is overwritten",
            32,
            fault!(Fault::SharedInFlight { owner: Owner::TensorLoad, write: true, .. }),
            |k| {
                k.init();
                k.load(k.base);
                k.in_twin(|| k.f.mbarrier_wait(k.barrier(), 0));
                k.f.store_shared(k.base, 0, [k.thread]);
                k.f.mbarrier_wait(k.barrier(), 0);
            },
        ),
        Case::new(
            "a tensor store's source is overwritten",
            32,
            fault!(Fault::SharedInFlight { owner: Owner::AsyncRead, write: true, .. }),
            |k| {
                k.zero(BOX_BYTES);
                k.store(k.base);
                k.in_twin(|| k.f.bulk_wait(0, true));
                k.f.warp_sync();
                k.f.store_shared(k.base, 0, [k.thread]);
                k.f.bulk_wait(0, true);
            },
        ),
        Case::new(
            "a wait for a group that is not committed covers nothing",
            32,
            fault!(Fault::ExitInFlight { .. }),
            |k| {
                k.zero(BOX_BYTES);
                k.once(|| {
                    k.f.tensor_store(k.out_map, k.base, [k.f.constant(0); 2]);
                    k.in_twin(|| k.f.bulk_commit());
                    k.f.bulk_wait(0, false);
                });
            },
        ),
        Case::new(
            "a thread's own copy not waited for is read",
            32,
            fault!(Fault::SharedInFlight { owner: Owner::ThreadCopy, write: false, .. }),
            |k| {
                k.f.copy_async(16, k.base + k.thread * 16, (k.data + k.thread.mul_wide(16), 0), None);
                k.f.copy_commit();
                k.f.copy_wait(u32::from(k.broken));
                let _value = k.f.load_shared_vector::<u32, 1>(k.base + k.thread * 16, 0);
                k.f.copy_wait_all();
            },
        ),
        Case::new(
            "a thread's own copy, and no proxy fence before a tensor store",
            64,
            fault!(Fault::MissingProxyFence { .. }),
            |k| {
                k.f.copy_async(16, k.base + k.thread * 16, (k.data + k.thread.mul_wide(16), 0), None);
                k.f.copy_wait_all();
                k.in_twin(|| k.f.fence_proxy_async(ProxySpace::Shared));
                k.f.barrier_sync(0, 64);
                k.store(k.base);
                k.f.bulk_wait(0, true);
            },
        ),
        Case::new("a thread that ends before its own copy", 32, fault!(Fault::ExitInFlight { .. }), |k| {
            k.f.copy_async(16, k.base + k.thread * 16, (k.data + k.thread.mul_wide(16), 0), None);
            k.in_twin(|| k.f.copy_wait_all());
        }),
        Case::new(
            "a vote of lanes that are not there",
            32,
            fault!(Fault::Members { members: 0xFF, active: 0x7F }),
            |k| {
                k.f.if_(k.thread.less_than(7), || {
                    let _votes = k.f.ballot(k.thread.equals(0), if k.broken { 0xFF } else { 0x7F });
                });
            },
        ),
        Case::new(
            "a multiply's operand is overwritten",
            128,
            fault!(Fault::SharedInFlight { owner: Owner::AsyncRead, write: true, .. }),
            |k| {
                let d = k.accumulators();
                k.ready_to_multiply();
                k.wgmma(&d, false, None);
                k.in_broken(|| k.once(|| k.f.store_shared(k.base, 0, [k.thread])));
                k.finish();
            },
        ),
        Case::new("no proxy fence before a tensor store", 32, fault!(Fault::MissingProxyFence { .. }), |k| {
            k.zero(BOX_BYTES);
            k.f.warp_sync();
            k.f.store_shared(k.base + k.thread * 4, 0, [k.thread]);
            k.in_twin(|| k.f.fence_proxy_async(ProxySpace::Shared));
            k.f.warp_sync();
            k.store(k.base);
            k.f.bulk_wait(0, true);
        }),
        Case::new("a proxy fence of the issuer alone", 128, fault!(Fault::MissingProxyFence { .. }), |k| {
            k.zero(4096);
            k.f.barrier_sync(0, 128);
            k.f.store_shared(k.base + k.thread * 4, 0, [k.thread]);
            k.in_twin(|| k.f.fence_proxy_async(ProxySpace::Shared));
            k.f.barrier_sync(0, 128);
            k.once(|| k.f.fence_proxy_async(ProxySpace::Shared));
            let d = k.accumulators();
            k.f.wgmma_fence();
            k.wgmma(&d, false, None);
            k.finish();
        }),
        Case::new("an accumulator nobody wrote", 128, fault!(Fault::RegisterUninitialised { .. }), |k| {
            let d = k.accumulators();
            k.ready_to_multiply();
            k.wgmma(&d, k.broken, None);
            k.finish();
        }),
        Case::new(
            "an accumulator read in flight",
            128,
            fault!(Fault::RegisterInFlight { write: false, .. }),
            |k| {
                let d = k.accumulators();
                k.ready_to_multiply();
                k.wgmma(&d, false, None);
                k.in_twin(|| k.finish());
                let _value = d[0].get();
                k.finish();
            },
        ),
        Case::new(
            "an accumulator written in flight",
            128,
            fault!(Fault::RegisterInFlight { write: true, .. }),
            |k| {
                let d = k.accumulators();
                k.ready_to_multiply();
                k.wgmma(&d, false, None);
                k.in_twin(|| k.finish());
                d[3].set(1.0f32);
                k.finish();
            },
        ),
        Case::new("a wait that leaves the newest group", 128, fault!(Fault::RegisterInFlight { .. }), |k| {
            let d = k.accumulators();
            k.ready_to_multiply();
            k.wgmma(&d, false, None);
            k.f.wgmma_commit();
            k.f.wgmma_wait(u32::from(k.broken));
            let _value = d[0].get();
            k.f.wgmma_wait(0);
        }),
        Case::new("accumulators set after the fence", 128, fault!(Fault::MissingWgmmaFence { .. }), |k| {
            let d = k.accumulators();
            k.ready_to_multiply();
            d.iter().for_each(|one| one.set(0.0f32));
            k.in_twin(|| k.f.wgmma_fence());
            k.wgmma(&d, true, None);
            k.finish();
        }),
        Case::new(
            "divergence in an aligned instruction",
            32,
            fault!(Fault::Divergence { active: 0x1F }),
            |k| {
                let lanes = if k.broken { 5 } else { 32 };
                k.f.if_(k.thread.less_than(lanes), || {
                    let _leader = k.f.elect();
                });
            },
        ),
        Case::new(
            "warps of a warpgroup with different descriptors",
            128,
            fault!(Fault::WarpgroupDisagrees { operand: "descriptor of A", .. }),
            |k| {
                let d = k.accumulators();
                k.ready_to_multiply();
                let warp = (k.thread / 32).cast::<u64>();
                k.wgmma(&d, false, k.broken.then(|| warp / 3));
                k.finish();
            },
        ),
        Case::new("a multiply in half a warpgroup", 192, fault!(Fault::NoWarpgroup { warps: 6 }), |k| {
            let d = k.accumulators();
            k.zero(4096);
            k.f.barrier_sync(0, 192);
            let warp = k.f.warp_index();
            k.f.if_(if k.broken { warp.at_least(4) } else { warp.less_than(4) }, || {
                k.f.wgmma_fence();
                k.wgmma(&d, false, None);
                k.finish();
            });
        }),
        Case::new("no tensor map at the address", 32, fault!(Fault::Tensor(TensorFault::Map { .. })), |k| {
            k.f.prefetch_tensor_map(if k.broken { k.data } else { k.map });
        }),
        Case::new(
            "coordinates that do not fit the map",
            32,
            fault!(Fault::Tensor(TensorFault::Rank { map: 2, coordinates: 3 })),
            |k| {
                k.zero(BOX_BYTES);
                let zero = k.f.constant(0);
                k.once(|| {
                    if k.broken {
                        k.f.tensor_store(k.out_map, k.base, [zero; 3]);
                    } else {
                        k.f.tensor_store(k.out_map, k.base, [zero; 2]);
                    }
                    k.f.bulk_commit();
                    k.f.bulk_wait(0, true);
                });
            },
        ),
        Case::new(
            "a tensor load that begins inside of 16 bytes",
            32,
            fault!(Fault::Tensor(TensorFault::Alignment { at: -4, bytes: 2 })),
            |k| {
                k.init();
                let load =
                    TensorLoad { map: k.map, dst: k.base, barrier: k.barrier(), multicast: None, hint: None };
                k.once(|| {
                    k.f.mbarrier_arrive_expect(k.barrier(), BOX_BYTES);
                    // Before the tensor: a load may begin there.
                    let inner = k.f.constant(if k.broken { -4 } else { -8 });
                    k.f.tensor_load(load, [inner, k.f.constant(-1)]);
                });
                k.f.mbarrier_wait(k.barrier(), 0);
            },
        ),
        Case::new(
            "a tensor load of nothing through a map that begins before the memory",
            32,
            fault!(Fault::Tensor(TensorFault::Base { .. })),
            |k| {
                k.init();
                let barrier = k.barrier();
                let load = TensorLoad { map: k.early_map, dst: k.base, barrier, multicast: None, hint: None };
                k.once(|| {
                    k.f.mbarrier_arrive_expect(barrier, BOX_BYTES);
                    // The second box, which is there; the third one is outside.
                    let row = k.f.constant(if k.broken { 16 } else { 8 });
                    k.f.tensor_load(load, [k.f.constant(0), row]);
                });
                k.f.mbarrier_wait(barrier, 0);
            },
        ),
        Case::new(
            "a tensor store that begins before the tensor",
            32,
            fault!(Fault::Tensor(TensorFault::Before { dim: 1, at: -1 })),
            |k| {
                k.zero(BOX_BYTES);
                k.once(|| {
                    let row = k.f.constant(if k.broken { -1 } else { 7 });
                    k.f.tensor_store(k.out_map, k.base, [k.f.constant(0), row]);
                    k.f.bulk_commit();
                    k.f.bulk_wait(0, true);
                });
            },
        ),
        Case::new(
            "a box that is not aligned",
            32,
            fault!(Fault::SharedMisaligned { offset: 64, alignment: 128 }),
            |k| {
                k.init();
                k.load(k.base + if k.broken { 64 } else { 128 });
                k.f.mbarrier_wait(k.barrier(), 0);
            },
        ),
        Case::new(
            "a multicast mask beyond the cluster",
            32,
            fault!(Fault::Multicast { mask: 3, ctas: 1 }),
            |k| {
                k.init();
                let multicast = Some(k.f.constant(if k.broken { 3u16 } else { 1 }));
                k.once(|| {
                    k.f.mbarrier_arrive_expect(k.barrier(), BOX_BYTES);
                    let load =
                        TensorLoad { map: k.map, dst: k.base, barrier: k.barrier(), multicast, hint: None };
                    k.f.tensor_load(load, [k.f.constant(0); 2]);
                });
                k.f.mbarrier_wait(k.barrier(), 0);
            },
        ),
        Case::new("a bit between a descriptor's fields", 128, fault!(Fault::Descriptor { .. }), |k| {
            let d = k.accumulators();
            k.ready_to_multiply();
            k.wgmma(&d, false, k.broken.then(|| k.f.constant(1u64 << 15)));
            k.finish();
        }),
        Case::new(
            "metadata that names a place twice",
            128,
            fault!(Fault::SparseMetadata { row: 0, chunk: 0, bits: 0b0101 }),
            |k| {
                let d = k.accumulators();
                let metadata = k.f.variable(if k.broken { 0x5555_5555 } else { 0x4444_4444 });
                k.ready_to_multiply();
                k.f.wgmma(WgmmaOperands { sparse: Some((metadata, 0)), ..k.operands() }, &d);
                k.finish();
            },
        ),
        Case::new(
            "metadata that names neither place of two",
            128,
            fault!(Fault::SparseMetadata { row: 0, chunk: 0, bits: 0 }),
            |k| {
                let d = k.accumulators();
                let metadata = k.f.variable(if k.broken { 0x4444_E4E0 } else { 0x4444_E4E4 });
                k.ready_to_multiply();
                let types = WgmmaTypes::Tf32F32;
                k.f.wgmma(WgmmaOperands { types, sparse: Some((metadata, 0)), ..k.operands() }, &d);
                k.finish();
            },
        ),
        Case::new(
            "a fragment of A written in flight",
            128,
            fault!(Fault::RegisterInFlight { write: true, .. }),
            |k| {
                let d = k.accumulators();
                let a = [0; 4].map(|zero| k.f.variable(zero));
                k.ready_to_multiply();
                k.f.wgmma(WgmmaOperands { a: a.into(), ..k.operands() }, &d);
                k.f.wgmma_commit();
                k.in_twin(|| k.f.wgmma_wait(0));
                a[3].set(k.thread);
                k.f.wgmma_wait(0);
            },
        ),
        Case::new(
            "metadata of a sparse A written in flight",
            128,
            fault!(Fault::RegisterInFlight { write: true, .. }),
            |k| {
                let d = k.accumulators();
                let metadata = k.f.variable(0x4444_4444);
                k.ready_to_multiply();
                k.f.wgmma(WgmmaOperands { sparse: Some((metadata, 0)), ..k.operands() }, &d);
                k.f.wgmma_commit();
                k.in_twin(|| k.f.wgmma_wait(0));
                metadata.set(0xEEEE_EEEE);
                k.f.wgmma_wait(0);
            },
        ),
        Case::new(
            "accumulators of a multiply with another K in flight",
            128,
            fault!(Fault::MissingWgmmaFence { .. }),
            |k| {
                let d = k.accumulators();
                k.ready_to_multiply();
                k.f.wgmma(k.operands(), &d);
                k.in_twin(|| k.f.wgmma_fence());
                k.f.wgmma(WgmmaOperands { types: WgmmaTypes::Tf32F32, ..k.operands() }, &d);
                k.finish();
            },
        ),
        Case::new(
            "a CTA that ends before its load has landed",
            32,
            fault!(Fault::ExitInFlight { .. }),
            |k| {
                k.init();
                k.load(k.base);
                k.in_twin(|| k.f.mbarrier_wait(k.barrier(), 0));
            },
        ),
        Case::new("a warp that ends before its multiply", 128, fault!(Fault::ExitInFlight { .. }), |k| {
            let d = k.accumulators();
            k.ready_to_multiply();
            k.wgmma(&d, false, None);
            k.in_twin(|| k.finish());
        }),
        Case::new(
            "a warp of the warpgroup that does not multiply",
            128,
            |f| {
                matches!(f, Fault::Hang { waiting, .. }
            if waiting[0].on == Wait::Warpgroup { multiply: 0, missing: vec![3] })
            },
            |k| {
                let d = k.accumulators();
                k.ready_to_multiply();
                let warp = k.f.warp_index();
                k.f.if_(warp.less_than(if k.broken { 3 } else { 4 }), || {
                    k.wgmma(&d, false, None);
                    k.finish();
                });
            },
        ),
    ]
}
