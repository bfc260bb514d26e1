//! 32 lanes store to shared memory, and one of them arrives at the mbarrier for all. Its arrival releases
//! only its own stores, not those of the other lanes.

use emulator::Memory;
use ptx::abi::Argument;
use ptx::{Builder, Special};

use super::exhibit::Exhibit;

pub(crate) const EXHIBIT: Exhibit = Exhibit {
    name: "one-arrives",
    shipped: &["cudnn-frontend PR#426"],
    bug: "Nothing orders the stores of the other 31 lanes before the arrival of the one lane.",
    mended: "__syncwarp comes between the stores and the arrival.",
    hidden: "The lanes of a warp that has not diverged issue a store together, so all stores are done when \
             the one lane arrives. Nothing guarantees that the lanes stay together.",
    threads: 64,
    cluster: 1,
    dependent: false,
    silent: None,
    arguments,
    program,
};

fn arguments(_: &mut Memory) -> Vec<Argument> {
    Vec::new()
}

fn program(f: &Builder, mended: bool) {
    let (words, thread) = (f.shared_base(), f.special(Special::ThreadX));
    let (loaded, lane) = (words + 4096, f.special(Special::Lane));

    f.if_(thread.equals(0), || {
        f.mbarrier_init(loaded, 1);
        f.fence_mbarrier_init();
    });
    f.store_shared(words + thread * 4, 0, [f.constant(0u32)]);
    f.barrier_sync(0, 64);

    f.if_else(
        f.warp_index().equals(0),
        || {
            f.scope("the loading warp", || {
                f.store_shared(words + lane * 4, 0, [lane]);
                if mended {
                    f.warp_sync();
                }
                f.if_(lane.equals(0), || f.mbarrier_arrive(loaded));
            });
        },
        || {
            f.scope("the computing warp", || {
                f.mbarrier_wait(loaded, 0);
                let _word = f.load_shared_vector::<u32, 1>(words + lane * 4, 0);
            });
        },
    );
}
