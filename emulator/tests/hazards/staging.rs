//! Hazards: global memory that asynchronous copies still read or write, and staging memory that is reused.

use emulator::Fault;
use ptx::{AtomicOp, AtomicType, BulkLoad, ProxySpace};

use crate::proxies::fence;
use crate::tools::{race, unfenced, unready};
use crate::{BOX_BYTES, Case};

pub(crate) fn cases() -> Vec<Case> {
    [global(), staging()].into_iter().flatten().collect()
}

fn global() -> Vec<Case> {
    vec![
        Case::new("global memory stored, then loaded in bulk without a proxy fence", 32, unfenced, |k| {
            k.init();
            k.once(|| {
                k.f.store_global(k.data, 0, [k.thread; 4]);
                k.in_twin(|| k.f.fence_proxy_async(ProxySpace::Global));
            });
            k.bulk_load(64);
            k.f.mbarrier_wait(k.barrier(), 0);
        })
        .isa("cp.async.bulk: async proxy"),
        Case::new("a proxy fence for shared memory where global memory was written", 32, unfenced, |k| {
            k.init();
            k.once(|| {
                k.f.store_global(k.data, 0, [k.thread; 4]);
                k.f.fence_proxy_async(if k.broken { ProxySpace::Shared } else { ProxySpace::All });
            });
            k.bulk_load(64);
            k.f.mbarrier_wait(k.barrier(), 0);
        })
        .isa("fence.proxy.async: state space"),
        Case::new("the source of a bulk load overwritten before its barrier is waited for", 32, race, |k| {
            k.init();
            k.bulk_load(64);
            k.in_twin(|| k.f.mbarrier_wait(k.barrier(), 0));
            k.once(|| k.f.store_global(k.data, 0, [k.thread]));
            k.f.mbarrier_wait(k.barrier(), 0);
        })
        .isa("cp.async.bulk: completion mechanism"),
        Case::new("the source of a tensor load overwritten by another warp", 64, race, |k| {
            k.barriers([1], 64);
            k.once(|| k.bring(k.base, k.bar(0)));
            k.in_twin(|| k.f.mbarrier_wait(k.bar(0), 0));
            k.f.barrier_sync(0, 64);
            k.in_thread(32, || k.f.store_global(k.data, 0, [k.thread]));
            k.f.mbarrier_wait(k.bar(0), 0);
        })
        .isa("cp.async.bulk.tensor: completion mechanism"),
        Case::new("the source of a tensor load overwritten by a bulk store", 32, race, |k| {
            k.barriers([1], 32);
            k.zero(BOX_BYTES);
            k.once(|| {
                k.bring(k.stage(1), k.bar(0));
                k.in_twin(|| k.f.mbarrier_wait(k.bar(0), 0));
                k.f.bulk_store(k.data, k.base, 64);
                k.f.bulk_commit();
                k.f.bulk_wait(0, false);
            });
            k.f.mbarrier_wait(k.bar(0), 0);
        })
        .isa("cp.async.bulk: no ordering guarantee between copies"),
        Case::new("the source of cp.async overwritten before it is waited for", 32, race, |k| {
            k.f.copy_async(16, k.base + k.thread * 16, (k.data + k.thread.mul_wide(16), 0), None);
            k.in_twin(|| k.f.copy_wait_all());
            k.f.store_global(k.data + k.thread.mul_wide(16), 0, [k.thread]);
            k.f.copy_wait_all();
        })
        .isa("cp.async: no ordering guarantee"),
        Case::new("a bulk reduction read after its source alone has been waited for", 32, race, |k| {
            k.zero(64);
            k.once(|| {
                k.f.bulk_reduce((AtomicOp::Add, AtomicType::U32), k.data, k.base, 64);
                k.f.bulk_commit();
                k.f.bulk_wait(0, k.broken);
                k.touch(k.data);
                k.f.bulk_wait(0, false);
            });
        })
        .isa("cp.async.bulk.wait_group: .read"),
        Case::new("two tensor stores to one box", 32, race, |k| {
            k.zero(2 * BOX_BYTES);
            k.once(|| {
                for stage in 0..2 {
                    k.f.tensor_store(k.out_map, k.stage(stage), [k.f.constant(0); 2]);
                    k.f.bulk_commit();
                    k.f.bulk_wait(0, k.broken);
                }
                k.f.bulk_wait(0, false);
            });
        })
        .isa("cp.async.bulk.tensor: no ordering guarantee between copies"),
        Case::new(
            "a bulk load of what a tensor store has not finished writing",
            32,
            |f| race(f) || matches!(f, Fault::GlobalUninitialised { .. }),
            |k| {
                k.init();
                k.zero(BOX_BYTES);
                k.store(k.base);
                k.once(|| {
                    k.f.bulk_wait(0, k.broken);
                    k.f.mbarrier_arrive_expect(k.barrier(), 64);
                    let (src, dst, barrier) = (k.out, k.stage(1), k.barrier());
                    k.f.bulk_load(BulkLoad { src, dst, barrier, multicast: None, hint: None }, 64);
                });
                k.f.mbarrier_wait(k.barrier(), 0);
                k.f.bulk_wait(0, false);
            },
        )
        .isa("cp.async.bulk.wait_group"),
    ]
}

fn staging() -> Vec<Case> {
    let overwritten = |fault: &Fault| unready(fault) || race(fault);
    vec![
        Case::new("a thread that committed no group waits for it", 64, overwritten, |k| {
            k.zeroed(BOX_BYTES, 64);
            k.store(k.base);
            k.in_thread(if k.broken { 32 } else { 0 }, || k.f.bulk_wait(0, true));
            k.f.barrier_sync(0, 64);
            k.write(k.own(k.base), k.thread);
            k.f.bulk_wait(0, true);
        })
        .isa("cp.async.bulk.wait_group: groups of the executing thread"),
        Case::new("staging overwritten before the issuer has waited", 64, overwritten, |k| {
            k.zeroed(BOX_BYTES, 64);
            k.store(k.base);
            k.once(|| k.f.bulk_wait(0, true));
            k.in_twin(|| k.f.barrier_sync(0, 64));
            k.write(k.own(k.base), k.thread);
        })
        .isa("cp.async.bulk.wait_group: groups of the executing thread"),
        Case::new("one group too many left pending", 32, overwritten, |k| {
            k.zero(2 * BOX_BYTES);
            k.once(|| {
                for (stage, map) in (0..).zip([k.out_map, k.map]) {
                    k.f.tensor_store(map, k.stage(stage), [k.f.constant(0); 2]);
                    k.f.bulk_commit();
                }
                k.f.bulk_wait(if k.broken { 2 } else { 1 }, true);
                k.write(k.stage(0), 1u32);
                k.f.bulk_wait(0, true);
            });
        })
        .isa("cp.async.bulk.wait_group: N"),
        Case::new("the buffer still being stored is filled, the free one is not", 32, overwritten, |k| {
            k.zero(2 * BOX_BYTES);
            k.once(|| {
                for (stage, map) in (0..).zip([k.out_map, k.map]) {
                    k.f.tensor_store(map, k.stage(stage), [k.f.constant(0); 2]);
                    k.f.bulk_commit();
                }
                k.f.bulk_wait(1, true);
                k.write(k.stage(u32::from(k.broken)), 1u32);
                k.f.bulk_wait(0, true);
            });
        })
        .isa("cp.async.bulk.wait_group: N"),
        Case::new("a second fill of staging after the fence", 64, unfenced, |k| {
            k.zeroed(BOX_BYTES, 64);
            k.write(k.own(k.base), k.thread);
            fence(k);
            k.write(k.own(k.base), k.thread + 1);
            k.in_twin(|| fence(k));
            k.f.barrier_sync(0, 64);
            k.store(k.base);
            k.f.bulk_wait(0, true);
        })
        .isa("fence.proxy.async"),
    ]
}
