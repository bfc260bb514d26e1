//! Attention in fp8. A warpgroup loads V into scratch memory, transposes it into the V that is multiplied,
//! and reports it. The scratch has one slot; thread 0 alone loads and reports, and 128 threads wait and
//! transpose.

use emulator::Memory;
use ptx::abi::Argument;
use ptx::{Builder, ProxySpace, Special};

use super::exhibit::{BOX_BYTES, Exhibit, box_map};
use super::parts::{copy_box, multiply, set_up};

pub(crate) const EXHIBIT: Exhibit = Exhibit {
    name: "scratch-of-one-slot",
    shipped: &["flashinfer PR#3276"],
    bug: "As reported: the scratch of V has one slot, whose phase changes with each tile, and nothing holds \
          the threads of the warpgroup together between the wait for a free V and the transposition.",
    mended: "The scratch has two slots, at their distance, and a barrier follows the wait for a free V.",
    hidden: "It hung with heads of 256 and fp8 results, on H100.",
    threads: 256,
    cluster: 1,
    dependent: false,
    silent: Some(
        "By the rules of the ISA the program is right. All 128 threads meet at a named barrier after their \
         waits for K and the scratch, and again before V is reported, so no thread can be a phase behind. \
         What that kernel had is `tile-told-too-soon`, which can stop it at the same barrier.",
    ),
    arguments,
    program,
};

/// Number of tiles of K and V.
const TILES: u32 = 5;

fn arguments(memory: &mut Memory) -> Vec<Argument> {
    (0..2).map(|_| box_map(memory.upload(&[0x3F; BOX_BYTES as usize])).into()).collect()
}

fn program(f: &Builder, mended: bool) {
    let (keys, values) = (f.tensor_map("k"), f.tensor_map("v"));
    let (base, thread) = (f.shared_base(), f.special(Special::ThreadX));
    let slots = if mended { 2 } else { 1 };
    // Rings of K (0), V (1) and the scratch of V (2): data, produced and consumed barriers of a tile, and the
    // parity of its round.
    let ring = |ring: u32, tile: u32| {
        let depth = if ring == 2 { slots } else { 2 };
        let number = 2 * ring + tile % depth;
        let barrier = base + (6144 + 16 * number);
        (base + number * BOX_BYTES, barrier, barrier + 8, tile / depth % 2)
    };

    let rings = [(0, 1, 128), (1, 1, 128), (2, 1, 1)];
    let barriers: Vec<_> = rings
        .into_iter()
        .flat_map(|(number, producers, consumers)| {
            (0..2).flat_map(move |slot| {
                let barrier = base + (6144 + 16 * (2 * number + slot));
                [(barrier, producers), (barrier + 8, consumers)]
            })
        })
        .collect();
    set_up(f, &barriers);
    f.barrier_sync(0, 256);

    let transpose = |tile: u32| {
        let ((k, k_there, k_free, k_round), (v, v_there, v_free, v_round)) = (ring(0, tile), ring(1, tile));
        let (scratch, scratch_there, scratch_free, round) = ring(2, tile);
        let first = thread.equals(0);
        f.mbarrier_wait(k_free, k_round ^ 1);
        f.if_(first, || f.mbarrier_arrive_expect(k_there, BOX_BYTES));
        f.mbarrier_wait(scratch_free, round ^ 1);
        f.if_(first, || f.mbarrier_arrive_expect(scratch_there, BOX_BYTES));
        f.barrier_sync(1, 128);
        f.if_(first, || {
            copy_box(f, keys, k, k_there);
            copy_box(f, values, scratch, scratch_there);
        });
        f.mbarrier_wait(scratch_there, round);
        f.mbarrier_wait(v_free, v_round ^ 1);
        if mended {
            f.barrier_sync(1, 128);
        }
        let words = f.load_shared_vector::<u32, 2>(scratch + thread * 8, 0);
        f.store_shared(v + (thread ^ 1) * 8, 0, words);
        f.fence_proxy_async(ProxySpace::Shared);
        f.barrier_sync(1, 128);
        f.if_(first, || {
            f.mbarrier_arrive(v_there);
            f.mbarrier_arrive(scratch_free);
        });
    };
    let compute = |tile: u32| {
        for number in 0..2 {
            let (at, there, free, round) = ring(number, tile);
            f.mbarrier_wait(there, round);
            multiply(f, at, 8);
            f.mbarrier_arrive(free);
        }
    };
    f.if_else(
        thread.less_than(128),
        || f.scope("loads and transposes", || (0..TILES).for_each(transpose)),
        || f.scope("multiplies", || (0..TILES).for_each(compute)),
    );
}
