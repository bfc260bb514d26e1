//! Instructions that need a whole warp, warpgroup or CTA. Source: PTX ISA "setmaxnreg", "wgmma.fence", "bar",
//! "elect.sync", "cp.async.mbarrier.arrive".

use emulator::Fault;

use crate::{Case, Kernel};

impl Kernel<'_> {
    /// Runs in all warps, or only in the first one.
    fn all_or_one(self, body: impl FnOnce()) {
        let warps = if self.broken { 1 } else { 4 };
        self.f.if_(self.f.warp_index().less_than(warps), body);
    }
}

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::new(
            "setmaxnreg in one warp of a warpgroup (ISA setmaxnreg: all warps of the warpgroup)",
            128,
            fault!(Fault::WarpgroupIncomplete { missing } if *missing == [1, 2, 3]),
            |k| k.all_or_one(|| k.f.set_max_registers(false, 24)),
        ),
        Case::new(
            "setmaxnreg where there is no whole warpgroup (ISA setmaxnreg)",
            192,
            fault!(Fault::NoWarpgroup { warps: 6 }),
            |k| {
                let warp = k.f.warp_index();
                k.f.if_(if k.broken { warp.at_least(4) } else { warp.less_than(4) }, || {
                    k.f.set_max_registers(false, 24);
                });
            },
        ),
        Case::new(
            "setmaxnreg twice, and no barrier of the warpgroup between the two",
            128,
            fault!(Fault::RegistersTwice { .. }),
            |k| {
                k.f.set_max_registers(false, 64);
                k.in_twin(|| k.f.barrier_sync(1, 128));
                k.f.set_max_registers(false, 24);
            },
        ),
        Case::new(
            "wgmma.fence in one warp of a warpgroup (ISA wgmma.fence: .aligned)",
            128,
            fault!(Fault::WarpgroupIncomplete { .. }),
            |k| k.all_or_one(|| k.f.wgmma_fence()),
        ),
        Case::new(
            "wgmma.commit_group in one warp of a warpgroup (ISA wgmma.commit_group: .aligned)",
            128,
            fault!(Fault::WarpgroupIncomplete { .. }),
            |k| k.all_or_one(|| k.f.wgmma_commit()),
        ),
        Case::new(
            "a named barrier at which half the threads arrive, and nobody else comes (ISA bar)",
            128,
            fault!(Fault::BarrierIncomplete { id: 1, arrived: 64, threads: 128 }),
            |k| {
                let warp = k.f.warp_index();
                k.f.if_(warp.less_than(2), || k.f.barrier_arrive(1, 128));
                k.in_twin(|| k.f.if_(warp.at_least(2), || k.f.barrier_sync(1, 128)));
            },
        ),
        Case::new(
            "an end before the arrival for a cp.async has come (ISA cp.async.mbarrier.arrive)",
            32,
            fault!(Fault::ExitInFlight { .. }),
            |k| {
                k.once(|| k.f.mbarrier_init(k.barrier(), 32));
                k.f.warp_sync();
                k.f.copy_async(16, k.base + k.thread * 16, (k.data + k.thread.mul_wide(16), 0), None);
                k.f.copy_arrive(k.barrier());
                k.in_twin(|| k.f.mbarrier_wait(k.barrier(), 0));
            },
        ),
    ]
}

/// Programs that assume lane 0 to be the elected one.
pub(crate) fn elected() -> Vec<Case> {
    vec![Case::new(
        "the group of the elected lane waited for by lane 0 (ISA elect.sync, cp.async.bulk.commit_group)",
        32,
        fault!(Fault::ExitInFlight { .. }),
        |k| {
            k.zero(crate::BOX_BYTES);
            k.f.warp_sync();
            let elected = k.f.elect();
            k.f.if_(elected, || {
                k.f.tensor_store(k.out_map, k.base, [k.f.constant(0); 2]);
                k.f.bulk_commit();
            });
            let waits = if k.broken { k.thread.equals(0) } else { elected };
            k.f.if_(waits, || k.f.bulk_wait(0, true));
        },
    )]
}
