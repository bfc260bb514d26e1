//! Hazards with tensor maps that other CTAs use, and with earlier grids.

use emulator::{Fault, TensorFault};
use ptx::{AtomicOp, AtomicType, BulkLoad, LoadOrder, MapChange, Scope};

use crate::tensor_maps::MAP;
use crate::tools::{ACQUIRE, RELAXED, RELEASE, grid, race};
use crate::{BOX_BYTES, Case, Kernel};

pub(crate) fn cases() -> Vec<Case> {
    [maps(), dependents(), early()].into_iter().flatten().collect()
}

fn maps() -> Vec<Case> {
    vec![
        grid(
            "a map rewritten by another CTA before the copies through it have ended",
            2,
            |f| race(f) || matches!(f, Fault::Tensor(TensorFault::MapInFlight { .. })),
            |k| {
                let f = k.f;
                let used = 2;
                k.in_cta(0, || {
                    k.init();
                    k.published(Scope::Gpu);
                    k.once(|| f.fence(Scope::Gpu));
                    k.once(|| k.set_flag(0, RELEASE));
                    k.once(|| k.poll(k.flag_at(used), ACQUIRE));
                    f.warp_sync();
                    k.changed(k.data);
                    f.publish_tensor_map(k.out, k.base + MAP, Scope::Gpu);
                });
                k.in_cta(1, || {
                    k.init();
                    k.once(|| k.poll(k.flag_at(0), ACQUIRE));
                    f.warp_sync();
                    k.acquired();
                    k.use_it();
                    k.in_twin(|| f.mbarrier_wait(k.barrier(), 0));
                    k.once(|| k.set_flag(used, RELEASE));
                    f.mbarrier_wait(k.barrier(), 0);
                });
            },
        )
        .isa("tensormap.replace: weak memory operation on the map"),
        Case::new("a map replaced in shared memory that other lanes still copy there", 32, race, |k| {
            k.init();
            k.f.copy_tensor_map(k.map, k.base + MAP);
            k.in_twin(|| k.f.warp_sync());
            k.once(|| k.f.replace_tensor_map(k.base + MAP, MapChange::Address(k.data)));
            k.f.warp_sync();
            k.f.publish_tensor_map(k.out, k.base + MAP, Scope::Gpu);
            k.acquired();
            k.used();
        })
        .isa("bar.warp.sync: memory ordering among participating threads"),
        grid(
            "a map acquired at another CTA's address",
            2,
            fault!(Fault::Tensor(TensorFault::MapUnfenced { .. }) | Fault::Tensor(TensorFault::Map { .. })),
            |k| {
                let f = k.f;
                k.in_cta(0, || {
                    k.published(Scope::Gpu);
                    k.once(|| k.set_flag(0, RELEASE));
                });
                k.in_cta(1, || {
                    k.init();
                    k.once(|| k.poll(k.flag_at(0), ACQUIRE));
                    f.warp_sync();
                    f.acquire_tensor_map(if k.broken { k.out + 128 } else { k.out }, Scope::Gpu);
                    k.used();
                });
            },
        )
        .isa("fence.proxy.tensormap::generic.acquire: address"),
    ]
}

fn dependents() -> Vec<Case> {
    let dependent = |why, program: fn(Kernel<'_>)| {
        let found = |fault: &Fault| matches!(fault, Fault::GridNotAwaited { .. });
        Case { dependent: true, ..Case::new(why, 64, found, program) }
    };
    vec![
        dependent("a tensor load before the grids before this one have ended", |k| {
            k.barriers([1], 64);
            k.in_twin(|| k.f.grid_wait());
            k.once(|| k.bring(k.base, k.bar(0)));
            k.f.mbarrier_wait(k.bar(0), 0);
            k.f.grid_wait();
        })
        .isa("griddepcontrol.wait"),
        dependent("a store before the grids before this one have ended", |k| {
            k.in_twin(|| k.f.grid_wait());
            k.f.store_global(k.out + k.thread.mul_wide(4), 0, [k.thread]);
            k.f.grid_wait();
        })
        .isa("griddepcontrol.wait"),
        dependent("dependents are launched, and nothing is waited for", |k| {
            if k.broken {
                k.f.grid_launch_dependents();
            } else {
                k.f.grid_wait();
            }
            k.f.store_global(k.out + k.thread.mul_wide(4), 0, [k.thread]);
        })
        .isa("griddepcontrol.launch_dependents"),
        dependent("one warp waits for the grids, another loads", |k| {
            k.f.if_((k.thread / 32).equals(0), || k.f.grid_wait());
            k.in_twin(|| k.f.barrier_sync(0, 64));
            k.in_thread(32, || k.touch(k.data));
        })
        .isa("griddepcontrol.wait: the executing thread"),
        dependent("an atomic before the grids before this one have ended", |k| {
            k.in_twin(|| k.f.grid_wait());
            k.once(|| k.f.reduce(AtomicOp::Add, k.flag_at(0), [k.f.constant(1u32)], RELAXED));
            k.f.grid_wait();
        })
        .isa("griddepcontrol.wait"),
    ]
}

/// An access to global memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    BulkLoad,
    TensorStore,
    TensorReduction,
    BulkReduction,
    ThreadCopy,
    Acquire,
    Volatile,
}

impl Kernel<'_> {
    fn accesses_early(self, access: Access) {
        let (f, origin) = (self.f, [self.f.constant(0); 2]);
        match access {
            Access::BulkLoad => {
                f.mbarrier_arrive_expect(self.bar(0), 64);
                let (src, dst, barrier) = (self.data, self.base, self.bar(0));
                f.bulk_load(BulkLoad { src, dst, barrier, multicast: None, hint: None }, 64);
            }
            Access::TensorStore => f.tensor_store(self.out_map, self.base, origin),
            Access::TensorReduction => f.tensor_reduce(AtomicOp::Add, self.map, self.base, origin),
            Access::BulkReduction => {
                f.bulk_reduce((AtomicOp::Add, AtomicType::U32), self.data, self.base, 64);
            }
            Access::ThreadCopy => f.copy_async(16, self.base, (self.data, 0), None),
            Access::Acquire => {
                let _value = f.load_ordered::<u32, 1>(ACQUIRE, self.flag_at(0));
            }
            Access::Volatile => {
                let _value = f.load_ordered::<u32, 1>(LoadOrder::Volatile, self.flag_at(0));
            }
        }
        f.bulk_commit();
        f.bulk_wait(0, false);
        f.copy_wait_all();
        if access != Access::BulkLoad {
            f.mbarrier_arrive(self.bar(0));
        }
    }
}

/// Accesses before the wait for the grids before this one, and accesses of lanes that have not waited.
fn early() -> Vec<Case> {
    let found = |fault: &Fault| matches!(fault, Fault::GridNotAwaited { .. });
    let case = |access: Access, alone: bool| {
        let what = match access {
            Access::BulkLoad => "a bulk load",
            Access::TensorStore => "a tensor store",
            Access::TensorReduction => "a tensor reduction",
            Access::BulkReduction => "a bulk reduction",
            Access::ThreadCopy => "a cp.async",
            Access::Acquire => "an acquire",
            Access::Volatile => "a volatile read",
        };
        let how = if alone { "that one lane waited for the end of" } else { "before the end of" };
        let why: &'static str = format!("{what} {how} the grids before this one").leak();
        let body = move |k: Kernel<'_>| {
            let f = k.f;
            k.zero(BOX_BYTES);
            k.barriers([1], 64);
            if alone && k.broken {
                k.in_thread(5, || f.grid_wait());
            } else if !k.broken {
                f.grid_wait();
            }
            k.once(|| k.accesses_early(access));
            f.mbarrier_wait(k.bar(0), 0);
            f.grid_wait();
        };
        Case { dependent: true, ..Case::new(why, 64, found, body) }
            .isa("griddepcontrol.wait: the executing thread")
    };
    use Access::{Acquire, BulkLoad, BulkReduction, TensorReduction, TensorStore, ThreadCopy, Volatile};
    let mut all: Vec<Case> =
        [BulkLoad, TensorStore, TensorReduction, BulkReduction, ThreadCopy, Acquire, Volatile]
            .map(|access| case(access, false))
            .into();
    all.extend([BulkLoad, Acquire].map(|access| case(access, true)));
    all
}
