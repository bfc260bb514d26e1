//! Threads store a tile to shared memory, wait at a barrier, and then a tensor store copies the tile to
//! global memory. Without a proxy fence the copy may read old bytes.

use emulator::Memory;
use ptx::abi::Argument;
use ptx::{Builder, ProxySpace, Special};

use super::exhibit::{BOX_BYTES, Exhibit, box_map};

pub(crate) const EXHIBIT: Exhibit = Exhibit {
    name: "proxy-fence-missing",
    shipped: &["tilelang#2634", "FlashKDA#24"],
    bug: "A barrier orders the stores before the issue of the copy, but not before its reads: the reads go \
          through another proxy.",
    mended: "Every thread that stored executes fence.proxy.async before the barrier.",
    hidden: "Stores to shared memory arrive in order and within a few dozen cycles, and the copy engine \
             takes longer to begin. The guarantee is missing, but results are rarely wrong.",
    threads: 128,
    cluster: 1,
    dependent: false,
    silent: None,
    arguments,
    program,
};

fn arguments(memory: &mut Memory) -> Vec<Argument> {
    vec![box_map(memory.allocate(BOX_BYTES as usize)).into()]
}

fn program(f: &Builder, mended: bool) {
    let map = f.tensor_map("map");
    let (tile, thread) = (f.shared_base(), f.special(Special::ThreadX));

    f.scope("all threads store the tile", || {
        f.store_shared(tile + thread * 8, 0, [thread; 2]);
        if mended {
            f.fence_proxy_async(ProxySpace::Shared);
        }
    });
    f.barrier_sync(0, 128);
    f.scope("one thread stores it to global memory", || {
        f.if_(thread.equals(0), || {
            f.tensor_store(map, tile, [f.constant(0); 2]);
            f.bulk_commit();
            f.bulk_wait(0, true);
        });
    });
}
