//! Hazards of tensor maps that the kernel changes: use without the fences, and changes during a use.

use emulator::{Fault, TensorFault};
use ptx::{LoadOrder, MapChange, Scope, Special, Value};

use crate::{Case, Kernel};

/// Offset of the programs' map in shared memory.
pub(crate) const MAP: u32 = 4096;

impl<'f> Kernel<'f> {
    pub(crate) fn in_warp(self, number: u32, body: impl FnOnce()) {
        self.f.if_((self.thread / 32).equals(number), body);
    }

    /// The first warp copies the map of `data` to shared memory, and changes its address to `address`.
    pub(crate) fn changed(self, address: Value<'f, u64>) {
        self.f.copy_tensor_map(self.map, self.base + MAP);
        self.f.warp_sync();
        self.once(|| self.f.replace_tensor_map(self.base + MAP, MapChange::Address(address)));
        self.f.warp_sync();
    }

    /// The first warp writes the map to `out`.
    pub(crate) fn published(self, scope: Scope) {
        self.changed(self.data);
        self.f.publish_tensor_map(self.out, self.base + MAP, scope);
    }

    pub(crate) fn acquired(self) {
        self.f.acquire_tensor_map(self.out, Scope::Gpu);
    }

    /// Loads the box through the map in `out`.
    pub(crate) fn use_it(self) {
        Kernel { map: self.out, ..self }.load(self.base);
    }

    pub(crate) fn used(self) {
        self.use_it();
        self.f.mbarrier_wait(self.barrier(), 0);
    }
}

fn unfenced(fault: &Fault) -> bool {
    matches!(fault, Fault::Tensor(TensorFault::MapUnfenced { released: false, .. }))
}

fn not_acquired(fault: &Fault) -> bool {
    matches!(fault, Fault::Tensor(TensorFault::MapUnfenced { released: true, .. }))
}

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::new("a map written and not acquired", 32, not_acquired, |k| {
            k.init();
            k.published(Scope::Gpu);
            k.in_twin(|| k.acquired());
            k.used();
        }),
        Case::new("a map changed in place and not released", 32, unfenced, |k| {
            k.init();
            k.published(Scope::Gpu);
            k.acquired();
            k.once(|| {
                k.f.replace_tensor_map(k.out, MapChange::Extent(1, k.f.constant(4)));
                k.in_twin(|| k.f.release_tensor_maps(Scope::Gpu));
                k.acquired();
            });
            k.used();
        }),
        Case::new("a map acquired before it was released", 64, not_acquired, |k| {
            k.init();
            k.in_warp(1, || {
                k.in_broken(|| k.acquired());
            });
            k.in_warp(0, || k.published(Scope::Gpu));
            k.f.barrier_sync(0, 64);
            k.in_warp(1, || {
                k.in_twin(|| k.acquired());
                k.f.if_(k.thread.equals(32), || {
                    k.f.mbarrier_arrive_expect(k.barrier(), crate::BOX_BYTES);
                    let load = ptx::TensorLoad {
                        map: k.out,
                        dst: k.base,
                        barrier: k.barrier(),
                        multicast: None,
                        hint: None,
                    };
                    k.f.tensor_load(load, [k.f.constant(0); 2]);
                });
                k.f.mbarrier_wait(k.barrier(), 0);
            });
        }),
        Case {
            ctas: 2,
            ..Case::new("a map released for the own CTA alone", 32, unfenced, |k| {
                let f = k.f;
                let first = f.special(Special::CtaX).equals(0);
                f.if_(first, || {
                    k.published(if k.broken { Scope::Cta } else { Scope::Gpu });
                    k.once(|| f.fence(Scope::Gpu));
                    k.raise();
                });
                f.if_(!first, || {
                    k.init();
                    k.await_flag(Some(LoadOrder::Acquire(Scope::Gpu)));
                    k.acquired();
                    k.used();
                });
            })
        },
        Case {
            ctas: 2,
            ..Case::new(
                "a map that another CTA writes, nobody knows when",
                32,
                |fault| matches!(fault, Fault::GlobalRace { .. }),
                |k| {
                    let f = k.f;
                    let first = f.special(Special::CtaX).equals(0);
                    f.if_(first, || {
                        k.published(Scope::Gpu);
                        k.once(|| f.fence(Scope::Gpu));
                        k.raise();
                    });
                    f.if_(!first, || {
                        k.init();
                        k.await_flag(Some(if k.broken {
                            LoadOrder::Relaxed(Scope::Gpu)
                        } else {
                            LoadOrder::Acquire(Scope::Gpu)
                        }));
                        k.acquired();
                        k.used();
                    });
                },
            )
        },
        Case::new(
            "a map that changes while a load uses it",
            32,
            |fault| matches!(fault, Fault::Tensor(TensorFault::MapInFlight { .. })),
            |k| {
                k.init();
                k.published(Scope::Gpu);
                k.acquired();
                k.use_it();
                k.in_twin(|| k.f.mbarrier_wait(k.barrier(), 0));
                k.f.publish_tensor_map(k.out, k.base + MAP, Scope::Gpu);
                k.f.mbarrier_wait(k.barrier(), 0);
            },
        ),
        Case::new(
            "a map that changes before its group has been read",
            32,
            |fault| matches!(fault, Fault::Tensor(TensorFault::MapInFlight { .. })),
            |k| {
                k.init();
                k.published(Scope::Gpu);
                k.acquired();
                k.use_it();
                k.once(|| {
                    k.f.bulk_commit();
                    k.f.bulk_wait(u32::from(k.broken), true);
                });
                k.f.publish_tensor_map(k.out, k.base + MAP, Scope::Gpu);
                k.f.mbarrier_wait(k.barrier(), 0);
            },
        ),
        Case::new(
            "a map pointed to half a chunk",
            32,
            |fault| matches!(fault, Fault::Tensor(TensorFault::MapFields { .. })),
            |k| {
                k.init();
                k.changed(k.data + if k.broken { 8u64 } else { 0 });
                k.f.publish_tensor_map(k.out, k.base + MAP, Scope::Gpu);
                k.acquired();
                k.used();
            },
        ),
        Case::new(
            "a change of what is no map",
            32,
            |fault| matches!(fault, Fault::Tensor(TensorFault::Map { .. })),
            |k| {
                // Zeros would be a map whose fields are all to be replaced.
                k.zero(MAP);
                k.f.store_shared(k.base + k.thread * 4, MAP as i32, [k.f.constant(1u32)]);
                k.f.warp_sync();
                if !k.broken {
                    k.f.copy_tensor_map(k.map, k.base + MAP);
                    k.f.warp_sync();
                }
                k.once(|| k.f.replace_tensor_map(k.base + MAP, MapChange::Rank(1)));
            },
        ),
    ]
}
