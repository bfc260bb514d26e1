//! The staging buffer of a persistent kernel's epilogue. One thread waits until the tensor store has read the
//! buffer. The other threads do not wait for that thread, and refill the buffer for the next tile.

use emulator::Memory;
use ptx::abi::Argument;
use ptx::{Builder, ProxySpace, Special};

use super::exhibit::{BOX_BYTES, Exhibit, box_map};

pub(crate) const EXHIBIT: Exhibit = Exhibit {
    name: "staging-refilled",
    shipped: &["TileOPs PR#1550"],
    bug: "Only the thread that issued the tensor store waits for it. The other threads refill its source \
          for the next tile.",
    mended: "A named barrier after the wait holds back all threads that refill.",
    hidden: "The mainloop of a tile runs between two fills, and it takes much longer than the store. Many \
             small or empty tiles bring the fills close together; the kernel's own tests had few of them.",
    threads: 64,
    cluster: 1,
    dependent: false,
    silent: None,
    arguments,
    program,
};

fn arguments(memory: &mut Memory) -> Vec<Argument> {
    (0..2).map(|_| box_map(memory.allocate(BOX_BYTES as usize)).into()).collect()
}

fn program(f: &Builder, mended: bool) {
    let tiles = [f.tensor_map("first"), f.tensor_map("second")];
    let (staging, thread) = (f.shared_base(), f.special(Special::ThreadX));

    for map in tiles {
        f.scope("fill", || {
            f.store_shared(staging + thread * 16, 0, [thread; 4]);
            f.fence_proxy_async(ProxySpace::Shared);
        });
        f.barrier_sync(1, 64);
        f.scope("store", || {
            f.if_(thread.equals(0), || {
                f.tensor_store(map, staging, [f.constant(0); 2]);
                f.bulk_commit();
                f.bulk_wait(0, true);
            });
        });
        if mended {
            f.barrier_sync(1, 64);
        }
    }
}
