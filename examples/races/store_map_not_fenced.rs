//! A grouped GEMM whose output has a tensor map per group. One warp writes the map of the next group and
//! releases it. The warp that stores through the map never acquires it.

use emulator::Memory;
use ptx::abi::Argument;
use ptx::{Builder, MapChange, ProxySpace, Scope, Special};

use super::exhibit::{BOX_BYTES, Exhibit, box_map};

pub(crate) const EXHIBIT: Exhibit = Exhibit {
    name: "store-map-not-fenced",
    shipped: &["cutlass#2162"],
    bug: "The tensor map of the stores is used without fence.proxy.tensormap::generic.acquire; the tensor \
          maps of the loads have the fence.",
    mended: "The storing warp acquires the map at its address before it stores.",
    hidden: "A map that no copy has used yet is in no descriptor cache, so the first use reads the new map. \
             The bug shows when the memory of a map is reused for another group.",
    threads: 64,
    cluster: 1,
    dependent: false,
    silent: None,
    arguments,
    program,
};

fn arguments(memory: &mut Memory) -> Vec<Argument> {
    let output = memory.allocate(BOX_BYTES as usize);
    let slot = memory.allocate(128);
    vec![output.into(), slot.into(), box_map(output).into()]
}

fn program(f: &Builder, mended: bool) {
    let (output, slot) = (f.param::<u64>("output"), f.param::<u64>("slot"));
    let template = f.tensor_map("template");
    let (staging, thread) = (f.shared_base(), f.special(Special::ThreadX));
    let (map, warp) = (staging + 4096, f.warp_index());

    f.store_shared(staging + thread * 16, 0, [thread; 4]);
    f.fence_proxy_async(ProxySpace::Shared);
    f.scope("the map's warp", || {
        f.if_(warp.equals(0), || {
            f.copy_tensor_map(template, map);
            f.warp_sync();
            f.if_(thread.equals(0), || f.replace_tensor_map(map, MapChange::Address(output)));
            f.warp_sync();
            f.publish_tensor_map(slot, map, Scope::Gpu);
        });
    });
    f.barrier_sync(0, 64);
    f.scope("the storing warp", || {
        f.if_(warp.equals(1), || {
            if mended {
                f.acquire_tensor_map(slot, Scope::Gpu);
            }
            f.if_(thread.equals(32), || {
                f.tensor_store(slot, staging, [f.constant(0); 2]);
                f.bulk_commit();
                f.bulk_wait(0, false);
            });
        });
    });
}
