//! A cast to fp8 of one tile per CTA. One thread makes an mbarrier and starts a tensor load; all threads wait
//! for it, and then the thread invalidates the mbarrier, whose memory is used again.

use emulator::Memory;
use ptx::abi::Argument;
use ptx::{Builder, Inst, Special};

use super::exhibit::{BOX_BYTES, Exhibit, box_map};
use super::parts::{load_box, set_up};

pub(crate) const EXHIBIT: Exhibit = Exhibit {
    name: "barrier-ends-early",
    shipped: &["TransformerEngine PR#3417"],
    bug: "A thread invalidates the mbarrier when it has waited itself. Other warps may still wait for it.",
    mended: "A barrier of all threads comes between their waits and the end of the mbarrier.",
    hidden: "The warps are released by the same event, and poll again within some cycles. A word that looks \
             like a later phase lets a late one pass, and one that does not hangs it.",
    threads: 128,
    cluster: 1,
    dependent: false,
    silent: None,
    arguments,
    program,
};

fn arguments(memory: &mut Memory) -> Vec<Argument> {
    vec![box_map(memory.upload(&[0x3F; BOX_BYTES as usize])).into()]
}

fn program(f: &Builder, mended: bool) {
    let map = f.tensor_map("map");
    let (tile, thread) = (f.shared_base(), f.special(Special::ThreadX));
    let loaded = tile + BOX_BYTES;

    set_up(f, &[(loaded, 1)]);
    f.barrier_sync(0, 128);
    f.if_(thread.equals(0), || load_box(f, map, tile, loaded));
    f.mbarrier_wait(loaded, 0);
    if mended {
        f.barrier_sync(0, 128);
    }
    f.scope("end of the mbarrier", || {
        f.if_(thread.equals(0), || f.emit(Inst::MbarrierInvalidate { barrier: loaded.operand() }));
    });
    f.barrier_sync(0, 128);
    let [word] = f.load_shared_vector::<u32, 1>(tile + thread * 8, 0);
    f.store_shared(loaded + thread * 4, 0, [word]);
}
