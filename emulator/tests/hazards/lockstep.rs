//! Hazards of lanes and warps that are taken for one: stores of all lanes and then of one, fields of a map
//! that lanes replace in turn, and registers that prove nothing.

use emulator::Fault;
use ptx::inst::ReduceOp;
use ptx::{MapChange, Scope, Special, Value};

use crate::tensor_maps::MAP;
use crate::tools::{hang, out_of_step, race, trapped};
use crate::{Case, Kernel};

const SYNC: &str = "bar.warp.sync: memory ordering among participating threads";

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::new("all lanes store 7 to a word of global memory, then one lane stores 9", 32, race, |k| {
            k.f.store_global(k.flag, 0, [k.f.constant(7u32)]);
            k.in_twin(|| k.f.warp_sync());
            k.once(|| k.f.store_global(k.flag, 0, [k.f.constant(9u32)]));
        })
        .isa(SYNC),
        Case::new("all lanes store 7 to a word of shared memory, then one lane stores 9", 32, race, |k| {
            k.write(k.base, 7u32);
            k.in_twin(|| k.f.warp_sync());
            k.in_thread(5, || k.write(k.base, 9u32));
        })
        .isa(SYNC),
        Case::new("a mark that all lanes set, and one lane clears in the same round", 32, race, |k| {
            k.f.repeat(k.f.constant(3u32), |_| {
                k.write(k.base, 1u32);
                k.in_twin(|| k.f.warp_sync());
                k.in_thread(31, || k.write(k.base, 0u32));
                k.f.warp_sync();
            });
        })
        .isa(SYNC),
        Case::new("lanes that replace extents of a map in shared memory in turn", 32, race, |k| {
            k.init();
            k.f.copy_tensor_map(k.map, k.base + MAP);
            k.f.warp_sync();
            k.in_turn(|extent| k.f.replace_tensor_map(k.base + MAP, MapChange::Extent(1, extent)));
            k.f.warp_sync();
            k.f.publish_tensor_map(k.out, k.base + MAP, Scope::Gpu);
            k.acquired();
            k.used();
        })
        .isa("tensormap.replace: weak memory operation on the map"),
        Case::new("lanes that replace extents of a map in global memory in turn", 32, race, |k| {
            k.init();
            k.published(Scope::Gpu);
            k.f.warp_sync();
            k.in_turn(|extent| k.f.replace_tensor_map(k.out, MapChange::Extent(1, extent)));
            k.f.warp_sync();
            k.f.release_tensor_maps(Scope::Gpu);
            k.f.warp_sync();
            k.acquired();
            k.used();
        })
        .isa("tensormap.replace: weak memory operation on the map"),
        Case::new("lanes that replace one field of a map together, each with its own value", 32, race, |k| {
            k.f.copy_tensor_map(k.map, k.base + MAP);
            k.f.warp_sync();
            let lanes = if k.broken { 2 } else { 1 };
            k.f.if_(k.lane().less_than(lanes), || {
                k.f.replace_tensor_map(k.base + MAP, MapChange::Extent(1, k.lane() + 4));
            });
            k.f.warp_sync();
            k.f.publish_tensor_map(k.out, k.base + MAP, Scope::Gpu);
        })
        .isa("tensormap.replace: weak memory operation on the map"),
    ]
}

impl<'f> Kernel<'f> {
    /// Each of three lanes runs `body` with its own number, round by round.
    fn in_turn(self, body: impl FnOnce(Value<'f, u32>)) {
        self.f.repeat(self.f.constant(3u32), |round| {
            self.f.if_(self.lane().equals(round), || body(round + 4));
            self.in_twin(|| self.f.warp_sync());
        });
    }

    /// Whether the lane is the first one that a mask names.
    fn is_first(self, mask: Value<'f, u32>) -> Value<'f, bool> {
        (mask & self.f.special(Special::LaneMaskLt)).equals(0)
    }

    /// Halves of the warp go different ways.
    fn diverges(self) {
        let f = self.f;
        f.if_else(
            self.lane().less_than(16),
            || self.write(self.own(self.base), 1u32),
            || self.write(self.own(self.base), 2u32),
        );
    }
}

/// Registers that prove nothing.
pub(crate) fn registers() -> Vec<Case> {
    const WARP: &str = "%warpid: volatile, use %tid to compute the warp's index";
    const ACTIVE: &str = "activemask: the lanes that are active now, which proves no convergence";
    let anything = |f: &Fault| out_of_step(f) || trapped(f);
    vec![
        Case::new("roles told apart by %warpid", 64, anything, |k| {
            let warp = if k.broken { k.f.special(Special::WarpSlot) } else { k.thread / 32 };
            k.barriers([1, 1], 64);
            k.f.if_else(
                warp.equals(0),
                || k.leader(|| k.bring(k.base, k.bar(0))),
                || {
                    k.f.mbarrier_wait(k.bar(0), 0);
                    k.peek(k.base + k.lane() * 4);
                },
            );
        })
        .isa(WARP),
        Case::new("partial sums of warps in slots numbered by %warpid", 128, anything, |k| {
            let warp = if k.broken { k.f.special(Special::WarpSlot) } else { k.thread / 32 };
            let sum = k.f.reduce_lanes(ReduceOp::Add, k.f.constant(1u32));
            k.leader(|| k.write(k.base + warp * 4, sum));
            k.f.barrier_sync(0, 128);
            let sums = k.f.load_shared_vector::<u32, 4>(k.base, 0);
            let all = sums[0] + sums[1] + sums[2] + sums[3];
            k.f.if_(all.differs_from(128), || k.f.trap());
        })
        .isa(WARP),
        Case::new("%warpid read again after a wait", 64, anything, |k| {
            let warp = || if k.broken { k.f.special(Special::WarpSlot) } else { k.thread / 32 };
            k.barriers([2], 64);
            k.write(k.base + warp() * 128 + k.lane() * 4, k.thread);
            k.f.warp_sync();
            k.leader(|| k.f.mbarrier_arrive(k.bar(0)));
            k.f.mbarrier_wait(k.bar(0), 0);
            let back = k.read(k.base + warp() * 128 + k.lane() * 4);
            k.f.if_(back.differs_from(k.thread), || k.f.trap());
        })
        .isa(WARP),
        Case::new("a full activemask in place of bar.warp.sync", 32, race, |k| {
            let f = k.f;
            k.zeroed(128, 32);
            k.write(k.own(k.base), k.thread);
            let together = f.active_mask().equals(u32::MAX);
            f.if_else(together, || k.in_twin(|| f.warp_sync()), || f.warp_sync());
            k.peek(k.base + (k.thread ^ 1) * 4);
        })
        .isa(ACTIVE),
        Case::new("the first lane of activemask arrives for its warp after a branch", 64, out_of_step, |k| {
            k.barriers([1], 64);
            k.in_warp(0, || {
                k.diverges();
                k.in_twin(|| k.f.warp_sync());
                let first = if k.broken { k.is_first(k.f.active_mask()) } else { k.f.elect() };
                k.f.if_(first, || k.f.mbarrier_arrive(k.bar(0)));
            });
            k.in_warp(1, || k.f.mbarrier_wait(k.bar(0), 0));
        })
        .isa(ACTIVE),
        Case::new(
            "votes of the lanes in activemask counted as those of the whole warp",
            32,
            |f| trapped(f) || hang(f) || matches!(f, Fault::Members { .. }),
            |k| {
                k.diverges();
                let members = if k.broken { k.f.active_mask() } else { k.f.constant(u32::MAX) };
                let votes = k.f.ballot(k.lane().less_than(32), members);
                k.f.if_(votes.differs_from(u32::MAX), || k.f.trap());
            },
        )
        .isa(ACTIVE),
    ]
}
