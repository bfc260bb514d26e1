//! A buffer in shared memory is read, cleared, and added to. One thread clears all of it with an asynchronous
//! instruction, and the compiler that places the barriers does not know that the instruction writes.

use emulator::Memory;
use ptx::abi::Argument;
use ptx::{Builder, BulkLoad, ProxySpace, Special};

use super::exhibit::Exhibit;
use super::parts::set_up;

pub(crate) const EXHIBIT: Exhibit = Exhibit {
    name: "fill-not-seen",
    shipped: &["tilelang PR#2700"],
    bug: "One thread clears a buffer that all threads have read and will add to. No barrier comes before \
          the fill, and none after it.",
    mended: "A barrier comes before the fill, and one after it.",
    hidden: "The fill takes a few cycles, and the thread that issues it is in the first warp, which is \
             often the first to come and the last to go on.",
    threads: 128,
    cluster: 1,
    dependent: false,
    silent: None,
    arguments,
    program,
};

/// Bytes of the buffer.
const BUFFER: u32 = 2048;

fn arguments(memory: &mut Memory) -> Vec<Argument> {
    let [tile, zeros] = [0x3F, 0].map(|byte| memory.upload(&[byte; BUFFER as usize]));
    vec![tile.into(), zeros.into(), memory.allocate(BUFFER as usize).into()]
}

// The instruction was st.bulk, which Hopper does not have. The fill is a bulk load of zeros here, which its
// thread waits for: the same bytes, by one thread, for all.
fn program(f: &Builder, mended: bool) {
    let [tile, zeros, output] = ["tile", "zeros", "output"].map(|name| f.param::<u64>(name));
    let (buffer, thread) = (f.shared_base(), f.special(Special::ThreadX));
    let (filled, own, other) = (buffer + BUFFER, thread * 16, (thread ^ 32) * 16);

    set_up(f, &[(filled, 1)]);
    let loaded = f.load_global_vector::<u32, 4>(tile + own.mul_wide(1), 0);
    f.store_shared(buffer + own, 0, loaded);
    f.fence_proxy_async(ProxySpace::Shared);
    f.barrier_sync(0, 128);
    // The last read of the tile.
    let part = f.load_shared_vector::<u32, 4>(buffer + other, 0);
    if mended {
        f.barrier_sync(0, 128);
    }
    f.scope("one thread clears the buffer", || {
        f.if_(thread.equals(0), || {
            f.mbarrier_arrive_expect(filled, BUFFER);
            let fill = BulkLoad { src: zeros, dst: buffer, barrier: filled, multicast: None, hint: None };
            f.bulk_load(fill, BUFFER);
            f.mbarrier_wait(filled, 0);
        });
    });
    if mended {
        f.barrier_sync(0, 128);
    }
    f.scope("all threads add to it", || {
        let sums = f.load_shared_vector::<u32, 4>(buffer + own, 0);
        let sums = [0, 1, 2, 3].map(|at: usize| sums[at] + part[at]);
        f.store_shared(buffer + own, 0, sums);
        f.store_global(output + own.mul_wide(1), 0, sums);
    });
}
