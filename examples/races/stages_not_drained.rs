//! Attention with a sliding window. The tiles of K and V at the window's left edge need a mask, so a loop of
//! their own multiplies with them. The producer loads them; the consumer of the fp8 kernel lacks that loop.

use emulator::Memory;
use ptx::abi::Argument;
use ptx::{Builder, Special};

use super::exhibit::{BOX_BYTES, Exhibit, box_map};
use super::parts::{load_box, multiply, set_up};

pub(crate) const EXHIBIT: Exhibit = Exhibit {
    name: "stages-not-drained",
    shipped: &["flashinfer#3578"],
    bug: "The producer loads more tiles than the consumer takes: the loop over the tiles at the left edge \
          of the window is missing. At its end the producer waits until all stages are given back.",
    mended: "The consumer has that loop, and takes as many tiles as the producer loads.",
    hidden: "It is no matter of time: the kernel hangs as soon as there is such a tile. But the kernel for \
             16 bits has the loop, and up to 256 keys there is one tile, with its mask elsewhere.",
    threads: 160,
    cluster: 1,
    dependent: false,
    silent: None,
    arguments,
    program,
};

/// Stages of K, and as many of V.
const STAGES: u32 = 2;
/// Tiles that the producer loads, and how many of them are at the left edge of the window.
const TILES: u32 = 5;
const EDGE: u32 = 1;

fn arguments(memory: &mut Memory) -> Vec<Argument> {
    (0..2).map(|_| box_map(memory.upload(&[0x3F; BOX_BYTES as usize])).into()).collect()
}

fn program(f: &Builder, mended: bool) {
    let maps = [f.tensor_map("k"), f.tensor_map("v")];
    let (base, thread) = (f.shared_base(), f.special(Special::ThreadX));
    // The place of a tile of K (0) or V (1) in its ring: data, full barrier and empty barrier.
    let stage = |tile: u32, operand: u32| {
        let number = operand * STAGES + tile % STAGES;
        (base + number * BOX_BYTES, base + (4096 + 16 * number), base + (4104 + 16 * number))
    };
    let round = |tile: u32| tile / STAGES;

    let places = (0..STAGES).flat_map(|tile| [stage(tile, 0), stage(tile, 1)]);
    let barriers: Vec<_> = places.flat_map(|(_, full, empty)| [(full, 1), (empty, 128)]).collect();
    set_up(f, &barriers);
    f.barrier_sync(0, 160);

    let producer = || {
        for tile in 0..TILES {
            for (operand, map) in (0..).zip(maps) {
                let (at, full, empty) = stage(tile, operand);
                f.mbarrier_wait(empty, (round(tile) + 1) % 2);
                load_box(f, map, at, full);
            }
        }
        f.scope("wait for all stages", || {
            for tile in TILES..TILES + STAGES {
                for operand in 0..2 {
                    f.mbarrier_wait(stage(tile, operand).2, (round(tile) + 1) % 2);
                }
            }
        });
    };
    let take = |tile: u32| {
        for operand in 0..2 {
            let (at, full, empty) = stage(tile, operand);
            f.mbarrier_wait(full, round(tile) % 2);
            multiply(f, at, 8);
            f.mbarrier_arrive(empty);
        }
    };
    let consumer = || {
        f.scope("tiles inside of the window", || (0..TILES - EDGE).for_each(take));
        if mended {
            f.scope("tiles at its left edge", || (TILES - EDGE..TILES).for_each(take));
        }
    };
    f.if_else(
        thread.less_than(128),
        || f.scope("consumer", consumer),
        || f.scope("producer", || f.if_(thread.equals(128), producer)),
    );
}
