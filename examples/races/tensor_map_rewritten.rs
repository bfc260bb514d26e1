//! A grouped GEMM keeps one tensor map in global memory. It changes the map to the next group's operand while
//! the copies of the previous group still read through it.

use emulator::Memory;
use ptx::abi::Argument;
use ptx::{Builder, MapChange, Scope, Special, TensorLoad};

use super::exhibit::{BOX_BYTES, Exhibit, box_map};

pub(crate) const EXHIBIT: Exhibit = Exhibit {
    name: "tensor-map-rewritten",
    shipped: &["DeepGEMM PR#343", "flashinfer#5438"],
    bug: "The producer publishes the next group's tensor map at an address that copies in flight still read.",
    mended: "The producer waits for the previous group's copies before it changes the map.",
    hidden: "The copy engine usually has the map in its descriptor cache by then, and the loads of a large \
             group end long before the next group begins. With small or empty groups the two events are \
             close together.",
    threads: 32,
    cluster: 1,
    dependent: false,
    silent: None,
    arguments,
    program,
};

fn arguments(memory: &mut Memory) -> Vec<Argument> {
    let groups = memory.upload(&[0x3F; 2 * BOX_BYTES as usize]);
    // The kernel writes its map here.
    let slot = memory.allocate(128);
    vec![groups.into(), slot.into(), box_map(groups).into()]
}

fn program(f: &Builder, mended: bool) {
    let (groups, slot) = (f.param::<u64>("groups"), f.param::<u64>("slot"));
    let template = f.tensor_map("template");
    let (base, thread) = (f.shared_base(), f.special(Special::ThreadX));
    let (map, full) = (base + 4096, |group: u32| base + (6144 + 8 * group));

    f.if_(thread.equals(0), || {
        (0..2).for_each(|group| f.mbarrier_init(full(group), 1));
        f.fence_mbarrier_init();
    });
    f.warp_sync();

    for group in 0..2 {
        f.scope("map of the group", || {
            f.copy_tensor_map(template, map);
            f.warp_sync();
            let operand = groups + u64::from(group * BOX_BYTES);
            f.if_(thread.equals(0), || f.replace_tensor_map(map, MapChange::Address(operand)));
            f.warp_sync();
            f.publish_tensor_map(slot, map, Scope::Gpu);
            f.acquire_tensor_map(slot, Scope::Gpu);
        });
        f.scope("load of the group", || {
            f.if_(thread.equals(0), || {
                f.mbarrier_arrive_expect(full(group), BOX_BYTES);
                let load = TensorLoad {
                    map: slot,
                    dst: base + group * BOX_BYTES,
                    barrier: full(group),
                    multicast: None,
                    hint: None,
                };
                f.tensor_load(load, [f.constant(0); 2]);
            });
        });
        if mended {
            f.mbarrier_wait(full(group), 0);
        }
    }
    (0..2).for_each(|group| f.mbarrier_wait(full(group), 0));
}
