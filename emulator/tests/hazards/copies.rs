//! Hazards of `cp.async`, its groups and its arrivals.

use emulator::Fault;

use crate::tools::{hang, race, unready};
use crate::{Case, Kernel};

impl Kernel<'_> {
    /// Each thread copies 16 bytes of its own.
    fn copy(self, stage: u32) {
        let (dst, src) = (self.stage(stage) + self.thread * 16, self.data + (self.thread % 64).mul_wide(16));
        self.f.copy_async(16, dst, (src, 0), None);
    }

    /// Reads what a thread of the other warp copied.
    fn read_other(self, stage: u32) {
        let _value = self.read(self.stage(stage) + (self.thread ^ 32) * 16);
    }
}

fn early(fault: &Fault) -> bool {
    unready(fault) || race(fault)
}

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::new("cp.async: a wait for what was not committed", 32, unready, |k| {
            k.copy(0);
            k.in_twin(|| k.f.copy_commit());
            k.f.copy_wait(0);
            let _value = k.read(k.base + k.thread * 16);
            k.f.copy_wait_all();
        })
        .isa("cp.async.wait_group: committed groups alone"),
        Case::new("cp.async: waited for, and no barrier before others read", 64, early, |k| {
            k.zeroed(1024, 64);
            k.copy(0);
            k.f.copy_wait_all();
            k.in_twin(|| k.f.barrier_sync(0, 64));
            k.read_other(0);
        })
        .isa("cp.async.wait_all: visible to the executing thread"),
        Case::new("cp.async: waited for after the barrier", 64, early, |k| {
            k.zeroed(1024, 64);
            k.copy(0);
            if k.broken {
                k.f.barrier_sync(0, 64);
                k.f.copy_wait_all();
            } else {
                k.f.copy_wait_all();
                k.f.barrier_sync(0, 64);
            }
            k.read_other(0);
        })
        .isa("cp.async.wait_all: visible to the executing thread"),
        Case::new("cp.async: one group too many left pending", 64, early, |k| {
            k.zeroed(2048, 64);
            for stage in 0..2 {
                k.copy(stage);
                k.f.copy_commit();
            }
            k.f.copy_wait(if k.broken { 2 } else { 1 });
            k.f.barrier_sync(0, 64);
            k.read_other(0);
            k.f.copy_wait_all();
        })
        .isa("cp.async.wait_group: N"),
        Case::new("cp.async: the newer stage read with one group pending", 64, early, |k| {
            k.zeroed(2048, 64);
            for stage in 0..2 {
                k.copy(stage);
                k.f.copy_commit();
            }
            k.f.copy_wait(1);
            k.f.barrier_sync(0, 64);
            k.read_other(u32::from(k.broken));
            k.f.copy_wait_all();
        })
        .isa("cp.async.wait_group: N"),
        Case::new("cp.async: the arrival in front of the copy", 64, early, |k| {
            k.zero(1024);
            k.barriers([32], 64);
            k.f.if_((k.thread / 32).equals(0), || {
                k.in_broken(|| k.f.copy_arrive(k.bar(0)));
                k.copy(0);
                k.in_twin(|| k.f.copy_arrive(k.bar(0)));
            });
            k.f.if_((k.thread / 32).equals(1), || {
                k.f.mbarrier_wait(k.bar(0), 0);
                k.read_other(0);
            });
            k.f.copy_wait_all();
        })
        .isa("cp.async.mbarrier.arrive: prior cp.async operations"),
        Case::new("cp.async: an ordinary arrival in place of the copies' own", 64, early, |k| {
            k.zero(1024);
            k.barriers([32], 64);
            k.f.if_((k.thread / 32).equals(0), || {
                k.copy(0);
                if k.broken {
                    k.f.mbarrier_arrive(k.bar(0));
                } else {
                    k.f.copy_arrive(k.bar(0));
                }
            });
            k.f.if_((k.thread / 32).equals(1), || {
                k.f.mbarrier_wait(k.bar(0), 0);
                k.read_other(0);
            });
            k.f.copy_wait_all();
        })
        .isa("cp.async.mbarrier.arrive"),
        Case::new("cp.async: a barrier for more arrivals than threads", 64, hang, |k| {
            k.zero(1024);
            k.barriers([if k.broken { 33 } else { 32 }], 64);
            k.f.if_((k.thread / 32).equals(0), || {
                k.copy(0);
                k.f.copy_arrive(k.bar(0));
            });
            k.f.if_((k.thread / 32).equals(1), || {
                k.f.mbarrier_wait(k.bar(0), 0);
                k.read_other(0);
            });
            k.f.copy_wait_all();
        })
        .isa("cp.async.mbarrier.arrive: .noinc"),
        Case::new(
            "cp.async: a barrier for one lane's arrival",
            64,
            |f| {
                early(f)
                    || hang(f)
                    || matches!(f, Fault::MbarrierOverArrival { .. } | Fault::MbarrierMissed { .. })
            },
            |k| {
                k.zero(1024);
                k.barriers([if k.broken { 1 } else { 32 }], 64);
                k.f.if_((k.thread / 32).equals(0), || {
                    k.copy(0);
                    k.f.copy_arrive(k.bar(0));
                });
                k.f.if_((k.thread / 32).equals(1), || {
                    k.f.mbarrier_wait(k.bar(0), 0);
                    k.read_other(0);
                });
                k.f.copy_wait_all();
            },
        )
        .isa("cp.async.mbarrier.arrive: .noinc"),
        Case::new("cp.async: over what another warp still reads", 64, early, |k| {
            k.zeroed(1024, 64);
            k.f.if_((k.thread / 32).equals(1), || k.read_other(0));
            k.in_twin(|| k.f.barrier_sync(0, 64));
            k.f.if_((k.thread / 32).equals(0), || k.copy(0));
            k.f.copy_wait_all();
        })
        .isa("cp.async: weak memory operation"),
        Case::new("cp.async: over a box that the warp has not waited for", 64, early, |k| {
            k.barriers([1], 64);
            k.once(|| k.bring(k.base, k.bar(0)));
            k.f.if_((k.thread / 32).equals(0), || k.f.mbarrier_wait(k.bar(0), 0));
            k.f.if_((k.thread / 32).equals(1), || {
                k.in_twin(|| k.f.mbarrier_wait(k.bar(0), 0));
                k.copy(0);
            });
            k.f.copy_wait_all();
        })
        .isa("cp.async: weak memory operation"),
        Case::new("cp.async: a store to the same bytes before the wait", 32, early, |k| {
            k.copy(0);
            k.in_twin(|| k.f.copy_wait_all());
            k.write(k.base + k.thread * 16, k.thread);
            k.f.copy_wait_all();
        })
        .isa("cp.async: no ordering guarantee"),
        Case::new("cp.async: two copies to the same bytes", 32, early, |k| {
            k.copy(0);
            k.in_twin(|| k.f.copy_wait_all());
            k.copy(0);
            k.f.copy_wait_all();
        })
        .isa("cp.async: no ordering guarantee between cp.async operations"),
    ]
}
