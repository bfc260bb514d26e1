//! Attention with two buffers for V. The producer warpgroup may fill both before a consumer has waited for
//! the first one, and it reports both at one mbarrier, whose parity is then the same as before.

use emulator::Memory;
use ptx::abi::Argument;
use ptx::{Builder, ProxySpace, Special};

use super::exhibit::{BOX_BYTES, Exhibit, box_map};
use super::parts::{copy_box, multiply, set_up};

pub(crate) const EXHIBIT: Exhibit = Exhibit {
    name: "two-buffers-one-barrier",
    shipped: &["TileOPs#1900"],
    bug: "One full barrier serves two V buffers, and each buffer has an empty barrier of its own. The \
          producer can be two phases ahead of a consumer, which then waits for a phase that is gone.",
    mended: "Each V buffer has its own full barrier.",
    hidden: "The second V comes after the K of its step, which waits until both consumers have multiplied \
             with the K before. The softmax has to take longer than that load and the transposition of V: \
             it did with one version of the compiler, and not with the one before.",
    threads: 384,
    cluster: 1,
    dependent: false,
    silent: None,
    arguments,
    program,
};

/// Number of tiles of K and V.
const TILES: u32 = 4;

fn arguments(memory: &mut Memory) -> Vec<Argument> {
    (0..2).map(|_| box_map(memory.upload(&[0x3F; BOX_BYTES as usize])).into()).collect()
}

fn program(f: &Builder, mended: bool) {
    let (keys, values) = (f.tensor_map("k"), f.tensor_map("v"));
    let (base, thread) = (f.shared_base(), f.special(Special::ThreadX));
    let barrier = |number: u32| base + (4096 + 8 * number);
    let (k, v) = (|tile: u32| base + tile % 2 * BOX_BYTES, |tile: u32| base + (2 + tile % 2) * BOX_BYTES);
    let (k_full, k_empty, v_raw) = (barrier(0), barrier(1), barrier(2));
    let v_empty = |tile: u32| barrier(3 + tile % 2);
    // The barrier that says that V is there, and the parity of the tile.
    let v_full = |tile: u32| {
        if mended { (barrier(5 + tile % 2), tile / 2 % 2) } else { (barrier(5), tile % 2) }
    };

    let counts = [128, 256, 128, 256, 256, 128, 128];
    let barriers: Vec<_> = (0..).map(barrier).zip(counts).collect();
    set_up(f, &barriers);
    f.barrier_sync(0, 384);

    // All producer threads arrive at the barrier of a load, so that none of them can fall a phase behind.
    let bring = |map, dst, barrier| {
        f.mbarrier_transact(false, barrier, BOX_BYTES, false);
        copy_box(f, map, dst, barrier);
    };
    let load_k = |tile: u32| {
        f.mbarrier_wait(k_empty, (tile + 1) % 2);
        f.if_(thread.equals(0), || bring(keys, k(tile), k_full));
        f.mbarrier_arrive(k_full);
    };
    let load_v = |tile: u32| {
        if tile >= 2 {
            f.mbarrier_wait(v_empty(tile), (tile / 2 - 1) % 2);
        }
        f.if_(thread.equals(0), || bring(values, v(tile), v_raw));
        f.mbarrier_arrive(v_raw);
        f.mbarrier_wait(v_raw, tile % 2);
        // The fp8 multiply wants another order, which the threads make in place.
        let own = v(tile) + thread * 8;
        let [first, second] = f.load_shared_vector::<u32, 2>(own, 0);
        f.store_shared(own, 0, [second, first]);
        f.fence_proxy_async(ProxySpace::Shared);
        f.mbarrier_arrive(v_full(tile).0);
    };
    let producer = || {
        load_k(0);
        for tile in 1..TILES {
            load_v(tile - 1);
            load_k(tile);
        }
        load_v(TILES - 1);
    };
    let consumers = || {
        for tile in 0..TILES {
            f.mbarrier_wait(k_full, tile % 2);
            multiply(f, k(tile), 8);
            f.mbarrier_arrive(k_empty);
            let (full, parity) = v_full(tile);
            f.scope("wait for V", || f.mbarrier_wait(full, parity));
            multiply(f, v(tile), 8);
            f.mbarrier_arrive(v_empty(tile));
        }
    };
    f.if_else(
        thread.less_than(128),
        || f.scope("producer warpgroup", producer),
        || f.scope("consumers", consumers),
    );
}
