//! Linear attention. A warpgroup stores its chunks of the output to two stages of shared memory; a warp of
//! its own waits for a stage by an mbarrier, and copies it to global memory with a tensor store.

use emulator::Memory;
use ptx::abi::Argument;
use ptx::{Builder, ProxySpace, Special};

use super::exhibit::{BOX_BYTES, Exhibit, box_map};
use super::parts::set_up;

pub(crate) const EXHIBIT: Exhibit = Exhibit {
    name: "output-not-fenced",
    shipped: &["cuLA PR#114"],
    bug: "The threads store a chunk and arrive at the stage's barrier. The arrival does not order the \
          stores before the reads of the tensor store, which go through the async proxy.",
    mended: "Every thread executes fence.proxy.async between its stores and its arrival.",
    hidden: "The barrier and the issue of the copy take longer than a store to shared memory. A copy that \
             is faster reads what the stage held two chunks before.",
    threads: 160,
    cluster: 1,
    dependent: false,
    silent: None,
    arguments,
    program,
};

/// Number of chunks.
const CHUNKS: u32 = 4;

fn arguments(memory: &mut Memory) -> Vec<Argument> {
    (0..CHUNKS).map(|_| box_map(memory.allocate(BOX_BYTES as usize)).into()).collect()
}

fn program(f: &Builder, mended: bool) {
    let chunks = ["o0", "o1", "o2", "o3"].map(|name| f.tensor_map(name));
    let (base, thread) = (f.shared_base(), f.special(Special::ThreadX));
    let stage = |chunk: u32| base + chunk % 2 * BOX_BYTES;
    let (full, empty) =
        (|chunk: u32| base + (4096 + chunk % 2 * 16), |chunk: u32| base + (4104 + chunk % 2 * 16));

    set_up(f, &[(full(0), 128), (full(1), 128), (empty(0), 1), (empty(1), 1)]);
    f.barrier_sync(0, 160);

    let compute = || {
        for chunk in 0..CHUNKS {
            f.mbarrier_wait(empty(chunk), (chunk / 2 + 1) % 2);
            f.store_shared(stage(chunk) + thread * 8, 0, [thread; 2]);
            if mended {
                f.fence_proxy_async(ProxySpace::Shared);
            }
            f.mbarrier_arrive(full(chunk));
        }
    };
    let store = || {
        for (chunk, map) in (0..).zip(chunks) {
            f.mbarrier_wait(full(chunk), chunk / 2 % 2);
            f.tensor_store(map, stage(chunk), [f.constant(0); 2]);
            f.bulk_commit();
            f.bulk_wait(0, true);
            f.mbarrier_arrive(empty(chunk));
        }
    };
    f.if_else(
        thread.less_than(128),
        || f.scope("warpgroup that computes", compute),
        || f.scope("warp that stores", || f.if_(thread.equals(128), store)),
    );
}
