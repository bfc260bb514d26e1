//! Hazards of warpgroup multiplies, and of matrices that warps load and store.

use emulator::Fault;
use ptx::{ProxySpace, Value, Var, WgmmaOperands};

use crate::tools::{race, unready};
use crate::{BOX_BYTES, Case, Kernel};

impl<'f> Kernel<'f> {
    /// The descriptor of an unswizzled operand in shared memory.
    fn operand_at(self, at: Value<'f, u32>) -> Value<'f, u64> {
        ((at & 0x3_FFFF) >> 4).cast::<u64>() | (64u64 << 16 | 8 << 32)
    }

    /// A multiply with A in a stage of 2 KiB, and B at the beginning of shared memory.
    pub(crate) fn multiply_at(self, stage: u32, d: &[Var<'f, f32>]) {
        let a = self.operand_at(self.base + 2048 * stage).into();
        self.f.wgmma(WgmmaOperands { a, ..self.operands() }, d);
    }
}

fn in_flight(fault: &Fault) -> bool {
    matches!(fault, Fault::RegisterInFlight { .. })
}

fn overwritten(fault: &Fault) -> bool {
    unready(fault) || race(fault)
}

fn no_fence(fault: &Fault) -> bool {
    matches!(fault, Fault::MissingWgmmaFence { .. })
}

pub(crate) fn cases() -> Vec<Case> {
    [multiplies(), fragments()].into_iter().flatten().collect()
}

fn multiplies() -> Vec<Case> {
    vec![
        Case::new("a wait for a multiply that is in no group", 128, in_flight, |k| {
            let d = k.accumulators();
            k.ready_to_multiply();
            k.wgmma(&d, false, None);
            k.in_twin(|| k.f.wgmma_commit());
            k.f.wgmma_wait(0);
            let _value = d[0].get();
            k.finish();
        })
        .isa("wgmma.commit_group"),
        Case::new("fragments of A written after the fence", 128, no_fence, |k| {
            let d = k.accumulators();
            let a = [0; 4].map(|zero| k.f.variable(zero));
            k.ready_to_multiply();
            a[0].set(k.thread);
            k.in_twin(|| k.f.wgmma_fence());
            k.f.wgmma(WgmmaOperands { a: a.into(), ..k.operands() }, &d);
            k.finish();
        })
        .isa("wgmma.fence: fragments of A"),
        Case::new("metadata of a sparse A written after the fence", 128, no_fence, |k| {
            let d = k.accumulators();
            let metadata = k.f.variable(0x4444_4444);
            k.ready_to_multiply();
            metadata.set(0xEEEE_EEEE);
            k.in_twin(|| k.f.wgmma_fence());
            k.f.wgmma(WgmmaOperands { sparse: Some((metadata, 0)), ..k.operands() }, &d);
            k.finish();
        })
        .isa("wgmma.fence: input registers"),
        Case::new("accumulators scaled between two multiplies, and no fence", 128, no_fence, |k| {
            let d = k.accumulators();
            k.ready_to_multiply();
            k.wgmma(&d, false, None);
            k.finish();
            d[0].set(d[0].get() * 0.5);
            k.in_twin(|| k.f.wgmma_fence());
            k.wgmma(&d, true, None);
            k.finish();
        })
        .isa("wgmma.fence: accumulator registers"),
        Case::new(
            "one warp without a fence",
            128,
            |f| no_fence(f) || matches!(f, Fault::WarpgroupDisagrees { .. }),
            |k| {
                let d = k.accumulators();
                k.ready_to_multiply();
                d.iter().for_each(|one| one.set(0.0f32));
                if k.broken {
                    k.f.if_((k.thread / 32).less_than(3), || k.f.wgmma_fence());
                } else {
                    k.f.wgmma_fence();
                }
                k.wgmma(&d, true, None);
                k.finish();
            },
        )
        .isa("wgmma.fence: all warps of the warpgroup"),
        Case::new("the older of two groups read while it is not waited for", 128, in_flight, |k| {
            let (c, d) = (k.accumulators(), k.accumulators());
            k.ready_to_multiply();
            k.wgmma(&c, false, None);
            k.f.wgmma_commit();
            k.wgmma(&d, false, None);
            k.f.wgmma_commit();
            k.f.wgmma_wait(if k.broken { 2 } else { 1 });
            let _value = c[0].get();
            k.f.wgmma_wait(0);
        })
        .isa("wgmma.wait_group: N"),
        Case::new("the multiply's stage loaded again before the wait", 128, overwritten, |k| {
            let d = k.accumulators();
            k.zero(6144);
            k.barriers([1], 128);
            k.f.wgmma_fence();
            k.multiply_at(1, &d);
            k.f.wgmma_commit();
            k.in_twin(|| k.f.wgmma_wait(0));
            k.f.barrier_sync(1, 128);
            k.once(|| k.bring(k.stage(2), k.bar(0)));
            k.f.wgmma_wait(0);
            k.f.mbarrier_wait(k.bar(0), 0);
        })
        .isa("wgmma.wait_group"),
        Case::new("a stage given back with the newest multiply pending", 160, overwritten, |k| {
            let (f, d) = (k.f, k.accumulators());
            k.zero(6144);
            k.barriers([1, 1], 160);
            let consumer = f.warp_index().less_than(4);
            f.if_else(
                consumer,
                || {
                    f.wgmma_fence();
                    k.multiply_at(1, &d);
                    f.wgmma_commit();
                    f.wgmma_wait(u32::from(k.broken));
                    f.barrier_sync(1, 128);
                    k.once(|| f.mbarrier_arrive(k.bar(1)));
                    f.wgmma_wait(0);
                },
                || {
                    k.in_thread(128, || {
                        f.mbarrier_wait(k.bar(1), 0);
                        k.bring(k.stage(2), k.bar(0));
                        f.mbarrier_wait(k.bar(0), 0);
                    });
                },
            );
        })
        .isa("wgmma.wait_group: N"),
        Case::new(
            "another warpgroup overwrites a multiply's operand",
            256,
            |f| overwritten(f) || crate::tools::unfenced(f),
            |k| {
                let (f, d) = (k.f, k.accumulators());
                k.zeroed(6144, 256);
                f.if_(f.warp_index().less_than(4), || {
                    f.wgmma_fence();
                    k.multiply_at(1, &d);
                    k.finish();
                });
                k.in_twin(|| f.barrier_sync(0, 256));
                k.in_thread(128, || k.write(k.stage(2), 7u32));
            },
        )
        .isa("wgmma.mma_async: weak accesses of the async proxy"),
        Case::new(
            "operands that another warp still writes",
            128,
            |f| overwritten(f) || crate::tools::unfenced(f),
            |k| {
                let d = k.accumulators();
                k.zeroed(4096, 128);
                k.write(k.own(k.base), 0u32);
                k.f.fence_proxy_async(ProxySpace::Shared);
                k.in_twin(|| k.f.barrier_sync(0, 128));
                k.f.wgmma_fence();
                k.wgmma(&d, false, None);
                k.finish();
            },
        )
        .isa("wgmma.mma_async: weak accesses of the async proxy"),
        Case::new("a wait_group inside of one warp's branch", 128, in_flight, |k| {
            let d = k.accumulators();
            k.ready_to_multiply();
            k.wgmma(&d, false, None);
            k.f.wgmma_commit();
            if k.broken {
                k.f.if_(k.f.warp_index().equals(0), || k.f.wgmma_wait(0));
            } else {
                k.f.wgmma_wait(0);
            }
            let _value = d[0].get();
            k.f.wgmma_wait(0);
        })
        .isa("wgmma.wait_group: groups of the executing threads"),
    ]
}

fn fragments() -> Vec<Case> {
    vec![
        Case::new("ldmatrix of a box not waited for", 32, unready, |k| {
            k.barriers([1], 32);
            k.once(|| k.bring(k.base, k.bar(0)));
            k.in_twin(|| k.f.mbarrier_wait(k.bar(0), 0));
            let _fragment = k.f.load_matrix::<4>(k.base + k.lane() * 16, false);
            k.f.mbarrier_wait(k.bar(0), 0);
        })
        .isa("ldmatrix: weak memory operation"),
        Case::new("ldmatrix of what another warp has not yet written", 64, race, |k| {
            k.zeroed(BOX_BYTES, 64);
            k.f.if_((k.thread / 32).equals(0), || {
                k.f.store_matrix(k.base + k.lane() * 16, [k.f.constant(0u32); 4], false);
            });
            k.in_twin(|| k.f.barrier_sync(0, 64));
            k.f.if_((k.thread / 32).equals(1), || {
                let _fragment = k.f.load_matrix::<4>(k.base + k.lane() * 16, false);
            });
        })
        .isa("ldmatrix: weak memory operation"),
        Case::new("stmatrix over a box that the warp has not waited for", 64, overwritten, |k| {
            k.barriers([1, 1], 64);
            k.once(|| k.bring(k.base, k.bar(0)));
            k.f.if_((k.thread / 32).equals(0), || k.f.mbarrier_wait(k.bar(0), 0));
            k.f.if_((k.thread / 32).equals(1), || {
                k.in_twin(|| k.f.mbarrier_wait(k.bar(0), 0));
                k.f.store_matrix(k.base + k.lane() * 16, [k.thread; 4], false);
            });
        })
        .isa("stmatrix: weak memory operation"),
        Case::new("stmatrix over what another warp still reads", 64, race, |k| {
            k.zeroed(BOX_BYTES, 64);
            k.f.if_((k.thread / 32).equals(0), || {
                let _fragment = k.f.load_matrix::<4>(k.base + k.lane() * 16, false);
            });
            k.in_twin(|| k.f.barrier_sync(0, 64));
            k.f.if_((k.thread / 32).equals(1), || {
                k.f.store_matrix(k.base + k.lane() * 16, [k.f.constant(0u32); 4], false);
            });
        })
        .isa("stmatrix: weak memory operation"),
        Case::new("stmatrix by a warp of diverged lanes", 32, fault!(Fault::Divergence { .. }), |k| {
            k.zero(BOX_BYTES);
            k.f.warp_sync();
            let lanes = if k.broken { 16 } else { 32 };
            k.f.if_(k.lane().less_than(lanes), || {
                k.f.store_matrix(k.base + k.lane() * 16, [k.thread; 4], false);
            });
        })
        .isa("stmatrix: .aligned"),
    ]
}
