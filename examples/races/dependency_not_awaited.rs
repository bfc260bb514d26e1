//! A programmatic dependent launch: the kernel may begin before the kernel that writes its operands has
//! ended. It loads the operands immediately.

use emulator::Memory;
use ptx::abi::Argument;
use ptx::{Builder, Special, TensorLoad};

use super::exhibit::{BOX_BYTES, Exhibit, box_map};

pub(crate) const EXHIBIT: Exhibit = Exhibit {
    name: "dependency-not-awaited",
    shipped: &["cutlass#2760", "flash-attention PR#2481"],
    bug: "The producer's first load comes before griddepcontrol.wait.",
    mended: "Barriers and prefetches come before the wait, and all accesses to global memory after it.",
    hidden: "The second kernel begins early only where the first leaves room on an SM, and its operands are \
             often older than the previous kernel. Without the launch attribute nothing overlaps.",
    threads: 32,
    cluster: 1,
    dependent: true,
    silent: None,
    arguments,
    program,
};

fn arguments(memory: &mut Memory) -> Vec<Argument> {
    vec![box_map(memory.upload(&[0x3F; BOX_BYTES as usize])).into()]
}

fn program(f: &Builder, mended: bool) {
    let map = f.tensor_map("map");
    let (stage, thread) = (f.shared_base(), f.special(Special::ThreadX));
    let full = stage + BOX_BYTES;

    f.scope("set-up that may overlap", || {
        f.if_(thread.equals(0), || {
            f.prefetch_tensor_map(map);
            f.mbarrier_init(full, 1);
            f.fence_mbarrier_init();
        });
        f.warp_sync();
    });
    if mended {
        f.grid_wait();
    }
    f.scope("producer", || {
        f.if_(thread.equals(0), || {
            f.mbarrier_arrive_expect(full, BOX_BYTES);
            let load = TensorLoad { map, dst: stage, barrier: full, multicast: None, hint: None };
            f.tensor_load(load, [f.constant(0); 2]);
        });
    });
    f.mbarrier_wait(full, 0);
    f.grid_wait();
}
