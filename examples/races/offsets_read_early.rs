//! Attention over packed sequences, launched as a programmatic dependent launch. The kernel reads the scales
//! and where its sequence begins while it sets itself up, before it waits for the kernel that may write them.

use emulator::Memory;
use ptx::abi::Argument;
use ptx::{Builder, Special};

use super::exhibit::Exhibit;
use super::parts::set_up;

pub(crate) const EXHIBIT: Exhibit = Exhibit {
    name: "offsets-read-early",
    shipped: &["flashinfer PR#4199"],
    bug: "The offsets of the sequences and the scales are read before griddepcontrol.wait; Q, K and V are \
          read after it.",
    mended: "Only barriers are set up before the wait. The offsets and scales are read after it.",
    hidden: "The offsets are often the same from step to step, and written by a kernel some launches \
             before. A stale one sends results to the rows of another request.",
    threads: 128,
    cluster: 1,
    dependent: true,
    silent: None,
    arguments,
    program,
};

fn arguments(memory: &mut Memory) -> Vec<Argument> {
    let offsets = [0u32, 1].map(u32::to_le_bytes).concat();
    let all = [memory.upload(&offsets), memory.upload(&1.0f32.to_le_bytes()), memory.upload(&[0x3F; 4096])];
    let output = memory.allocate(4096);
    all.into_iter().chain([output]).map(Argument::from).collect()
}

fn program(f: &Builder, mended: bool) {
    let [offsets, scale, q, output] = ["offsets", "scale", "q", "output"].map(|name| f.param::<u64>(name));
    let (base, thread) = (f.shared_base(), f.special(Special::ThreadX));
    let loaded = base + 4096;

    let of_the_request = || {
        let [begin, end] = f.load_global_vector::<u32, 2>(offsets, 0);
        (begin, end, f.load_global::<f32>(scale, 0))
    };
    let wait = || {
        set_up(f, &[(loaded, 128)]);
        f.barrier_sync(0, 128);
        f.grid_launch_dependents();
        f.grid_wait();
    };
    let (begin, end, scale) = if mended {
        wait();
        of_the_request()
    } else {
        let read = of_the_request();
        wait();
        read
    };

    // A request without rows has nothing to do.
    f.if_(begin.less_than(end), || {
        let row = (begin * 2048).mul_wide(1) + thread.mul_wide(16);
        f.copy_async(16, base + thread * 16, (q + row, 0), None);
        f.copy_arrive(loaded);
        f.mbarrier_wait(loaded, 0);
        let part = f.load_shared_vector::<f32, 4>(base + thread * 16, 0).map(|element| element * scale);
        f.store_global(output + row, 0, part);
    });
}
