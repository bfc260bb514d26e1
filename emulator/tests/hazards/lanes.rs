//! Hazards inside one warp: lanes that rely on lockstep, and collectives that not all lanes execute.

use emulator::Fault;
use ptx::inst::ReduceOp;
use ptx::{AtomicOp, AtomicSem, LoadOrder, Location, ProxySpace, Scope, StoreOrder};

use crate::tools::{hang, race, unfenced, unready};
use crate::{BOX_BYTES, Case, Kernel};

const SYNC: &str = "bar.warp.sync: memory ordering among participating threads";

fn lanes(why: &'static str, program: fn(Kernel<'_>)) -> Case {
    Case::new(why, 32, race, program).isa(SYNC)
}

pub(crate) fn cases() -> Vec<Case> {
    [exchanges(), collectives()].into_iter().flatten().collect()
}

impl Kernel<'_> {
    /// `__syncwarp`, only in the twin.
    fn sync_in_twin(self) {
        if !self.broken {
            self.f.warp_sync();
        }
    }

    /// Reads the word of the neighbouring lane.
    fn read_neighbour(self) {
        let _value = self.read(self.base + (self.thread ^ 1) * 4);
    }
}

fn exchanges() -> Vec<Case> {
    vec![
        lanes("lanes that read their neighbour's word at once", |k| {
            k.zeroed(128, 32);
            k.write(k.own(k.base), 0u32);
            k.sync_in_twin();
            k.read_neighbour();
        }),
        lanes("lanes that overwrite what their neighbour still reads", |k| {
            k.zeroed(128, 32);
            k.read_neighbour();
            k.sync_in_twin();
            k.write(k.own(k.base), 0u32);
        }),
        lanes("a tree of sums in one warp", |k| {
            k.zeroed(256, 32);
            for step in [16u32, 8, 4, 2, 1] {
                let (mine, other) = (k.read(k.own(k.base)), k.read(k.own(k.base) + step * 4));
                k.sync_in_twin();
                k.write(k.own(k.base), mine + other);
                k.sync_in_twin();
            }
        }),
        lanes("one half of the warp reads what the other branch wrote", |k| {
            k.zeroed(128, 32);
            let low = k.lane().less_than(16);
            k.f.if_(low, || k.write(k.own(k.base), 0u32));
            k.sync_in_twin();
            k.f.if_(!low, || {
                let _value = k.read(k.base + (k.thread ^ 16) * 4);
            });
        }),
        lanes("two branches of a warp at one word", |k| {
            k.zeroed(128, 32);
            k.f.if_else(
                k.lane().less_than(16),
                || k.in_thread(0, || k.write(k.base, 0u32)),
                || k.in_thread(16, || k.write(k.base + if k.broken { 0 } else { 4 }, 0u32)),
            );
        }),
        lanes("a shuffle taken for a barrier", |k| {
            k.zeroed(128, 32);
            k.write(k.own(k.base), 0u32);
            let _value = k.f.shuffle_xor(k.thread, 1);
            k.sync_in_twin();
            k.read_neighbour();
        })
        .isa("shfl.sync: no memory ordering"),
        lanes("a word in global memory that a neighbour lane reads", |k| {
            k.f.store_global(k.data + k.thread.mul_wide(4), 0, [k.thread]);
            k.sync_in_twin();
            k.touch(k.data + (k.thread ^ 1).mul_wide(4));
        }),
        lanes("one lane stores to global memory for all", |k| {
            k.once(|| k.f.store_global(k.data, 0, [k.thread]));
            k.sync_in_twin();
            k.touch(k.data);
        }),
        Case::new("32 lanes write, one arrives", 64, race, |k| {
            k.zero(1024);
            k.barriers([1], 64);
            k.f.if_else(
                (k.thread / 32).equals(0),
                || {
                    k.write(k.own(k.base), 0u32);
                    k.sync_in_twin();
                    k.leader(|| k.f.mbarrier_arrive(k.bar(0)));
                },
                || {
                    k.f.mbarrier_wait(k.bar(0), 0);
                    let _value = k.read(k.other(k.base));
                },
            );
        })
        .isa(SYNC),
        Case::new("32 lanes write to global memory, one raises the flag", 32, race, |k| {
            k.in_cta(0, || {
                k.f.store_global(k.data + k.thread.mul_wide(4), 0, [k.thread]);
                k.sync_in_twin();
                k.once(|| k.set_flag(0, StoreOrder::Release(Scope::Gpu)));
            });
            k.in_cta(1, || {
                k.once(|| k.poll(k.flag_at(0), LoadOrder::Acquire(Scope::Gpu)));
                k.f.warp_sync();
                k.touch(k.data + k.thread.mul_wide(4));
            });
        })
        .isa(SYNC)
        .ctas(2),
        Case::new("one lane sees the flag, all read", 32, race, |k| {
            k.in_cta(0, || {
                k.f.store_global(k.data + k.thread.mul_wide(4), 0, [k.thread]);
                k.f.warp_sync();
                k.once(|| k.set_flag(0, StoreOrder::Release(Scope::Gpu)));
            });
            k.in_cta(1, || {
                k.once(|| k.poll(k.flag_at(0), LoadOrder::Acquire(Scope::Gpu)));
                k.sync_in_twin();
                k.touch(k.data + k.thread.mul_wide(4));
            });
        })
        .isa(SYNC)
        .ctas(2),
        Case::new(
            "one lane waits for a load, all read",
            32,
            |f| race(f) || unready(f),
            |k| {
                k.barriers([1], 32);
                k.once(|| k.bring(k.base, k.bar(0)));
                k.once(|| k.f.mbarrier_wait(k.bar(0), 0));
                k.sync_in_twin();
                let _value = k.read(k.own(k.base));
            },
        )
        .isa("mbarrier.try_wait: visibility to the executing thread"),
        Case::new(
            "one lane fences for all and stores",
            32,
            |f| race(f) || unfenced(f),
            |k| {
                k.zeroed(BOX_BYTES, 32);
                k.write(k.own(k.base), k.thread);
                if !k.broken {
                    k.f.fence_proxy_async(ProxySpace::Shared);
                    k.f.warp_sync();
                }
                k.once(|| k.f.fence_proxy_async(ProxySpace::Shared));
                k.store(k.base);
                k.f.bulk_wait(0, true);
            },
        )
        .isa(SYNC),
        Case::new(
            "each lane's own cp.async, waited for, read by a neighbour",
            32,
            |f| race(f) || unready(f),
            |k| {
                k.zeroed(512, 32);
                k.f.copy_async(16, k.base + k.thread * 16, (k.data + k.thread.mul_wide(16), 0), None);
                k.f.copy_wait_all();
                k.sync_in_twin();
                let _value = k.read(k.base + (k.thread ^ 1) * 16);
            },
        )
        .isa("cp.async.wait_all: visible to the executing thread"),
    ]
}

fn collectives() -> Vec<Case> {
    vec![
        Case::new(
            "thread 0 waits for the group that the elected lane committed",
            32,
            |f| race(f) || matches!(f, Fault::ExitInFlight { .. }),
            |k| {
                k.zeroed(BOX_BYTES, 32);
                let leader = k.f.elect();
                k.f.if_(leader, || {
                    k.f.tensor_store(k.out_map, k.base, [k.f.constant(0); 2]);
                    k.f.bulk_commit();
                });
                let waits = if k.broken { k.lane().equals(0) } else { leader };
                k.f.if_(waits, || k.f.bulk_wait(0, true));
                k.f.warp_sync();
                k.write(k.own(k.base), k.thread);
                k.f.bulk_wait(0, false);
            },
        )
        .isa("elect.sync: which lane is elected is not said"),
        Case::new("the elected lane's value taken from lane 0", 32, fault!(Fault::Trapped), |k| {
            k.zeroed(128, 32);
            let leader = k.f.elect();
            let word = k.f.variable(0u32);
            k.f.if_(leader, || word.set(k.add(k.flag_at(0), AtomicSem::Relaxed) + 1));
            k.in_twin(|| word.set(k.f.reduce_lanes(ReduceOp::Max, word.get())));
            let told = k.f.shuffle(word.get(), 0);
            k.f.if_(told.equals(0), || k.f.trap());
        })
        .isa("elect.sync: which lane is elected is not said"),
        Case::new(
            "setmaxnreg in one warp of a warpgroup",
            128,
            |f| hang(f) || matches!(f, Fault::WarpgroupIncomplete { .. }),
            |k| {
                let warps = if k.broken { 1 } else { 4 };
                k.f.if_(k.f.warp_index().less_than(warps), || k.f.set_max_registers(false, 40));
            },
        )
        .isa("setmaxnreg.sync.aligned: all threads of the warpgroup"),
        Case::new(
            "setmaxnreg with another count in one warp",
            128,
            |f| {
                matches!(f, Fault::WarpgroupDisagrees { .. })
                    || hang(f)
                    || f.to_string().contains("setmaxnreg")
            },
            |k| {
                let last = k.f.warp_index().equals(if k.broken { 3 } else { 4 });
                k.f.if_else(last, || k.f.set_max_registers(false, 48), || k.f.set_max_registers(false, 40));
            },
        )
        .isa("setmaxnreg.sync.aligned: all threads of the warpgroup"),
        Case::new(
            "a wgmma.fence in one warp of a warpgroup alone",
            128,
            |f| {
                hang(f)
                    || matches!(f, Fault::WarpgroupDisagrees { .. } | Fault::ExitInFlight { .. })
                    || f.to_string().contains("warpgroup")
            },
            |k| {
                let d = k.accumulators();
                k.ready_to_multiply();
                k.wgmma(&d, false, None);
                k.finish();
                let warps = if k.broken { 1 } else { 4 };
                k.f.if_(k.f.warp_index().less_than(warps), || k.f.wgmma_fence());
            },
        )
        .isa("wgmma.fence.sync.aligned: all threads of the warp; every warp of the warpgroup"),
        Case::new("a count of lanes by atomics read back by lane 0 at once", 32, race, |k| {
            k.zeroed(128, 32);
            let at = Location::shared(k.base, 0);
            k.f.reduce(AtomicOp::Add, at, [k.f.constant(1u32)], (AtomicSem::Relaxed, Scope::Cta));
            k.sync_in_twin();
            k.once(|| {
                let _count = k.read(k.base);
            });
        })
        .isa(SYNC),
        Case::new("a count of lanes by atomics read back by all lanes at once", 32, race, |k| {
            k.zeroed(128, 32);
            let at = Location::shared(k.base, 0);
            k.f.reduce(AtomicOp::Add, at, [k.f.constant(1u32)], (AtomicSem::Relaxed, Scope::Cta));
            k.sync_in_twin();
            k.peek(k.base);
        })
        .isa(SYNC),
        Case::new(
            "a word that two lanes store to in one instruction, and read back at once",
            32,
            race,
            |k| {
                let word = k.base + k.thread / 2 * 4;
                // The twin's lanes agree, so it does not matter which of the two stores wins.
                k.write(word, if k.broken { k.thread } else { k.thread / 2 });
                k.peek(word);
            },
        )
        .isa(SYNC),
        Case::new(
            "a word that all lanes overwrite, and one of them has waited for its reader",
            64,
            race,
            |k| {
                k.barriers([1], 64);
                k.zeroed(16, 64);
                k.in_thread(32, || {
                    k.peek(k.base);
                    k.f.mbarrier_arrive(k.bar(0));
                });
                k.f.if_(k.thread.less_than(32), || {
                    k.once(|| k.f.mbarrier_wait(k.bar(0), 0));
                    k.sync_in_twin();
                    k.write(k.base, 1u32);
                });
            },
        )
        .isa(SYNC),
        Case::new(
            "a named barrier by half of a warp",
            32,
            |f| hang(f) || matches!(f, Fault::Divergence { .. }),
            |k| {
                let lanes = if k.broken { 16 } else { 32 };
                k.f.if_(k.lane().less_than(lanes), || k.f.barrier_sync(1, 32));
            },
        )
        .isa("bar.sync: .aligned"),
    ]
}
