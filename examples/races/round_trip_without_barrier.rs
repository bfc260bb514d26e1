//! Two warpgroups bring their accumulators through swizzled shared memory, so that each thread can store 16
//! bytes of a row to global memory. A row of the output is read by another warp than the one that wrote it.

use emulator::Memory;
use ptx::abi::Argument;
use ptx::{Builder, Special};

use super::exhibit::{BOX_BYTES, Exhibit, box_map};
use super::parts::{copy_box, halves, multiply, set_up};

pub(crate) const EXHIBIT: Exhibit = Exhibit {
    name: "round-trip-without-barrier",
    shipped: &["TileOPs#1616"],
    bug: "No barrier comes between the stores of the accumulators to shared memory and the reads of whole \
          rows there.",
    mended: "A named barrier of both warpgroups comes before the stores, and one between stores and reads.",
    hidden: "The warps store at nearly the same time if all have had the same number of tiles. A last tile \
             that is masked for some rows alone moves them apart: up to 19 % of the results were wrong.",
    threads: 256,
    cluster: 1,
    dependent: false,
    silent: None,
    arguments,
    program,
};

/// Columns of the output, and bytes of a row.
const COLUMNS: u32 = 32;
const ROW: u32 = 2 * COLUMNS;

fn arguments(memory: &mut Memory) -> Vec<Argument> {
    let values = memory.upload(&[0x3F; BOX_BYTES as usize]);
    vec![box_map(values).into(), memory.allocate(128 * ROW as usize).into()]
}

fn program(f: &Builder, mended: bool) {
    let (map, output) = (f.tensor_map("v"), f.param::<u64>("output"));
    let (base, thread, lane) = (f.shared_base(), f.special(Special::ThreadX), f.special(Special::Lane));
    let (values, staging, full) = (base, base + 4096, base + 12288);

    set_up(f, &[(full, 1)]);
    f.barrier_sync(0, 256);
    f.if_(thread.equals(0), || {
        f.mbarrier_arrive_expect(full, 4 * BOX_BYTES);
        (0..4).for_each(|rows| copy_box(f, map, values + rows * BOX_BYTES, full));
    });
    f.mbarrier_wait(full, 0);
    let sums = multiply(f, values, COLUMNS);

    // 16 bytes of a row. The swizzle spreads a column over the banks.
    let place = |row, chunk| staging + row * ROW + ((chunk ^ ((row / 2) & 3)) * 16);
    if mended {
        f.barrier_sync(3, 256);
    }
    f.scope("accumulators to shared memory", || {
        for (index, pair) in (0..).zip(sums.chunks(2)) {
            let row = f.warp_index() * 16 + lane / 4 + index % 2 * 8;
            let word = place(row, f.constant(index / 2)) + lane % 4 * 4;
            f.store_shared(word, 0, [halves(pair[0].get(), pair[1].get())]);
        }
    });
    if mended {
        f.barrier_sync(3, 256);
    }
    f.scope("shared memory to the output", || {
        for half in 0..2 {
            let (row, chunk) = (thread / 4 + half * 64, thread % 4);
            let words = f.load_shared_vector::<u32, 4>(place(row, chunk), 0);
            f.store_global(output + (row * ROW + chunk * 16).mul_wide(1), 0, words);
        }
    });
}
