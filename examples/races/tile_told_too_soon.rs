//! Attention in fp8 over packed sequences. Thread 0 of the loading warpgroup draws the next tile and tells
//! its four warps through a word of shared memory. A tile beyond the end of its sequence is skipped.

use emulator::Memory;
use ptx::abi::Argument;
use ptx::{AtomicOp, AtomicSem, Builder, Location, ProxySpace, Scope, Special};

use super::exhibit::{BOX_BYTES, Exhibit, box_map};
use super::parts::{load_box, multiply, set_up};

pub(crate) const EXHIBIT: Exhibit = Exhibit {
    name: "tile-told-too-soon",
    shipped: &["flashinfer PR#3276"],
    bug: "A skipped tile leaves out the barriers of a load, and with them the only order between the warps' \
          reads of the word and the next draw. Warps with different tiles wait for each other for ever.",
    mended: "Only tiles that exist are drawn, so that a load comes between two draws.",
    hidden: "It takes two skipped tiles in a row, which only sequences of different lengths have, and a \
             warp that is slower than an atomic of global memory.",
    threads: 256,
    cluster: 1,
    dependent: false,
    silent: None,
    arguments,
    program,
};

/// Tiles of each sequence, and the tiles of the longest one, which all sequences were given.
const TILES: [u32; 4] = [2, 0, 1, 2];
const LONGEST: u32 = 2;
/// What ends the multiplying warpgroup.
const END: u32 = u32::MAX;

fn arguments(memory: &mut Memory) -> Vec<Argument> {
    let boxes = box_map(memory.upload(&[0x3F; BOX_BYTES as usize]));
    let tiles = memory.upload(&TILES.map(u32::to_le_bytes).concat());
    vec![boxes.into(), tiles.into(), memory.upload(&[0; 4]).into()]
}

fn program(f: &Builder, mended: bool) {
    let (map, tiles, counter) = (f.tensor_map("q"), f.param::<u64>("tiles"), f.param::<u64>("counter"));
    let (base, thread) = (f.shared_base(), f.special(Special::ThreadX));
    let (there, free) = (base + 2048, base + 2056);
    let (word, told) = (base + 2064, base + 2080);
    let first = thread.equals(0);

    set_up(f, &[(there, 1), (free, 128)]);
    f.barrier_sync(0, 256);

    let draw = || {
        f.if_(first, || {
            let relaxed = (AtomicSem::Relaxed, Scope::Gpu);
            let next = f.atomic(AtomicOp::Add, Location::global(counter, 0), f.constant(1u32), relaxed);
            f.scope("tells the tile", || f.store_shared(word, 0, [next]));
        });
        f.fence_proxy_async(ProxySpace::Shared);
        f.barrier_sync(1, 128);
        let tile = f.variable(0u32);
        f.if_(f.special(Special::Lane).equals(0), || tile.set(f.load_shared_vector::<u32, 1>(word, 0)[0]));
        f.shuffle(tile.get(), 0)
    };
    // Tells the other warpgroup what comes, once the memory is free.
    let rounds = f.variable(0u32);
    let tell = |what, load: bool| {
        let round = rounds.get();
        f.mbarrier_wait(free, (round & 1) ^ 1);
        f.barrier_sync(1, 128);
        f.if_(first, || {
            f.store_shared(told, 0, [what]);
            if load { load_box(f, map, base, there) } else { f.mbarrier_arrive(there) }
        });
        rounds.set(round + 1);
    };
    let loads = || {
        let counts = (0..4).map(|sequence| f.load_global::<u32>(tiles, 4 * sequence));
        let exist = counts.fold(f.constant(0), |all, count| all + count);
        let last = if mended { exist } else { f.constant(LONGEST * TILES.len() as u32) };
        let drawn = f.variable(draw());
        f.loop_(|| {
            let tile = drawn.get();
            f.break_if(!tile.less_than(last));
            if mended {
                tell(tile, true);
            } else {
                let rows = f.load_global::<u32>(tiles + (tile / LONGEST).mul_wide(4), 0);
                f.if_((tile % LONGEST).less_than(rows), || tell(tile, true));
            }
            drawn.set(draw());
        });
        tell(f.constant(END), false);
    };
    let multiplies = || {
        let taken = f.variable(0u32);
        f.loop_(|| {
            let round = taken.get();
            f.mbarrier_wait(there, round & 1);
            f.break_if(f.load_shared_vector::<u32, 1>(told, 0)[0].equals(END));
            multiply(f, base, 8);
            f.mbarrier_arrive(free);
            taken.set(round + 1);
        });
    };
    f.if_else(thread.less_than(128), || f.scope("loads", loads), || f.scope("multiplies", multiplies));
}
