//! A cast to fp8. All threads convert a tile that a tensor load has brought and write the result to one of
//! two buffers, which one thread copies to global memory. All threads wait for its copies before they write
//! again.

use emulator::Memory;
use ptx::abi::Argument;
use ptx::{Builder, ProxySpace, Special};

use super::exhibit::{BOX_BYTES, Exhibit, box_map};
use super::parts::{copy_box, set_up};

pub(crate) const EXHIBIT: Exhibit = Exhibit {
    name: "wait-of-another-thread",
    shipped: &["TransformerEngine PR#3417"],
    bug: "All threads execute cp.async.bulk.wait_group, which waits for the copies of the executing thread. \
          Those of the threads that issued none do not wait at all.",
    mended: "A barrier follows the wait of the thread that issued the copies.",
    hidden: "A buffer is written again two tiles later, and the load of the next tile is waited for in \
             between. The copy only has to read shared memory, which takes far less time.",
    threads: 128,
    cluster: 1,
    dependent: false,
    silent: None,
    arguments,
    program,
};

/// Number of tiles.
const TILES: u32 = 5;

fn arguments(memory: &mut Memory) -> Vec<Argument> {
    let input = memory.upload(&[0x3F; BOX_BYTES as usize]);
    let outputs: Vec<_> = (0..TILES).map(|_| memory.allocate(BOX_BYTES as usize)).collect();
    core::iter::once(input).chain(outputs).map(|address| box_map(address).into()).collect()
}

fn program(f: &Builder, mended: bool) {
    let input = f.tensor_map("input");
    let outputs = ["o0", "o1", "o2", "o3", "o4"].map(|name| f.tensor_map(name));
    let (base, thread) = (f.shared_base(), f.special(Special::ThreadX));
    let (source, result) =
        (|tile: u32| base + tile % 2 * BOX_BYTES, |tile: u32| base + (2 + tile % 2) * BOX_BYTES);
    let loaded = |tile: u32| base + (4096 + 8 * tile);

    let barriers: Vec<_> = (0..TILES).map(|tile| (loaded(tile), 128)).collect();
    set_up(f, &barriers);
    f.barrier_sync(0, 128);

    let load = |tile: u32| {
        f.if_else(
            thread.equals(0),
            || {
                copy_box(f, input, source(tile), loaded(tile));
                f.mbarrier_arrive_expect(loaded(tile), BOX_BYTES);
            },
            || f.mbarrier_arrive(loaded(tile)),
        );
    };
    load(0);
    for (tile, output) in (0..).zip(outputs) {
        f.scope("wait for the copies", || f.bulk_wait(1, true));
        if mended {
            f.barrier_sync(0, 128);
        }
        if tile + 1 < TILES {
            load(tile + 1);
        }
        f.mbarrier_wait(loaded(tile), 0);
        let words = f.load_shared_vector::<u32, 2>(source(tile) + thread * 8, 0);
        f.scope("result", || f.store_shared(result(tile) + thread * 8, 0, words));
        f.fence_proxy_async(ProxySpace::Shared);
        f.barrier_sync(0, 128);
        f.scope("copy to global memory", || {
            f.if_(thread.equals(0), || {
                f.tensor_store(output, result(tile), [f.constant(0); 2]);
                f.bulk_commit();
            });
        });
    }
    f.bulk_wait(0, true);
}
