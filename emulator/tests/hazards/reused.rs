//! Hazards of the memory of an mbarrier that is used again.

use emulator::Fault;
use ptx::BulkLoad;

use crate::tools::{hang, race};
use crate::{BARRIER, Case};

fn no_barrier(fault: &Fault) -> bool {
    race(fault)
        || hang(fault)
        || matches!(
            fault,
            Fault::SharedBarrier { .. } | Fault::MbarrierUninitialised { .. } | Fault::MbarrierLive { .. }
        )
}

pub(crate) fn cases() -> Vec<Case> {
    const OBJECT: &str = "mbarrier.inval: before the memory is used again";
    vec![
        Case::new("staging memory over the barriers of the main loop", 64, no_barrier, |k| {
            k.barriers([1, 2], 64);
            k.once(|| k.bring(k.base, k.bar(0)));
            k.f.mbarrier_wait(k.bar(0), 0);
            k.peek(k.own(k.base));
            k.f.barrier_sync(0, 64);
            k.in_twin(|| {
                k.once(|| (0..2).for_each(|number| k.invalidate(number)));
                k.f.barrier_sync(0, 64);
            });
            k.write(k.own(k.bar(0)), k.thread);
        })
        .isa(OBJECT),
        Case::new("barriers made anew for each tile and never invalidated", 64, no_barrier, |k| {
            k.f.repeat(k.f.constant(3u32), |_| {
                k.barriers([1], 64);
                k.once(|| k.bring(k.base, k.bar(0)));
                k.f.mbarrier_wait(k.bar(0), 0);
                k.peek(k.own(k.base));
                k.f.barrier_sync(0, 64);
                k.in_twin(|| k.once(|| k.invalidate(0)));
            });
        })
        .isa("mbarrier.init: on a valid mbarrier object"),
        Case::new("a bulk load whose last bytes reach into the barriers", 32, no_barrier, |k| {
            k.init();
            k.once(|| {
                k.f.mbarrier_arrive_expect(k.barrier(), 64);
                let dst = k.base + (BARRIER - if k.broken { 48 } else { 64 });
                let (src, barrier) = (k.data, k.barrier());
                k.f.bulk_load(BulkLoad { src, dst, barrier, multicast: None, hint: None }, 64);
            });
            k.f.mbarrier_wait(k.barrier(), 0);
        })
        .isa("mbarrier: other operations on the object's memory"),
        Case::in_cluster("a barrier invalidated before a peer has arrived", no_barrier, |k| {
            k.init();
            k.meet();
            k.once_in_rank(1, || k.f.mbarrier_arrive_cluster(k.f.map_shared(k.barrier(), 0)));
            k.in_twin(|| k.meet());
            k.once_in_rank(0, || {
                k.invalidate(0);
                k.write(k.barrier(), 0u32);
            });
            k.meet();
        })
        .isa("mbarrier.inval"),
        Case::new("a barrier's memory used by another warp at once after its end", 64, no_barrier, |k| {
            k.barriers([2], 64);
            k.leader(|| k.f.mbarrier_arrive(k.bar(0)));
            k.f.mbarrier_wait(k.bar(0), 0);
            k.f.barrier_sync(0, 64);
            k.once(|| k.invalidate(0));
            k.in_twin(|| k.f.barrier_sync(1, 64));
            k.in_thread(32, || k.write(k.bar(0), 7u32));
        })
        .isa(OBJECT),
        Case::new("a barrier invalidated with a load in flight", 32, no_barrier, |k| {
            // The stage was filled ahead, and the loop ends early.
            k.barriers([1, 1], 32);
            k.once(|| (0..2).for_each(|stage| k.bring(k.stage(stage), k.bar(stage))));
            k.f.mbarrier_wait(k.bar(0), 0);
            k.in_twin(|| k.f.mbarrier_wait(k.bar(1), 0));
            k.f.warp_sync();
            k.once(|| (0..2).for_each(|stage| k.invalidate(stage)));
        })
        .isa("mbarrier.inval"),
    ]
}
