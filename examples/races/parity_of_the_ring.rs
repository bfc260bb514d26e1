//! A pipelined loop in which each multiply reports its end at an mbarrier that the program has declared
//! itself. The compiler turns its stages into a ring, and takes the parity of the waits from the round of the
//! ring.

use emulator::Memory;
use ptx::abi::Argument;
use ptx::{Builder, Special};

use super::exhibit::{BOX_BYTES, Exhibit, box_map};
use super::parts::{load_box, multiply, set_up};

pub(crate) const EXHIBIT: Exhibit = Exhibit {
    name: "parity-of-the-ring",
    shipped: &["tilelang PR#3087"],
    bug: "The barrier is one for all steps and changes its phase with each, but the wait has the parity of \
          the ring's round. It asks for a phase that is over, and the next load overwrites a stage in use.",
    mended: "The parity of the wait is that of the step.",
    hidden: "A multiply takes less time than a load, so the stage is usually free when the bytes come. \
             Wrong results were seen from three stages on.",
    threads: 160,
    cluster: 1,
    dependent: false,
    silent: None,
    arguments,
    program,
};

const STAGES: u32 = 3;
const STEPS: u32 = 8;

fn arguments(memory: &mut Memory) -> Vec<Argument> {
    vec![box_map(memory.upload(&[0x3F; BOX_BYTES as usize])).into()]
}

// The compiler's target has a multiply that one thread issues and that arrives at the barrier itself. On Hopper
// a warpgroup multiplies when it is told to, waits, and arrives.
fn program(f: &Builder, mended: bool) {
    let map = f.tensor_map("map");
    let (base, thread) = (f.shared_base(), f.special(Special::ThreadX));
    let (stage, full) =
        (|step: u32| base + step % STAGES * BOX_BYTES, |step: u32| base + (4096 + step % STAGES * 8));
    let (issued, done) = (|step: u32| base + (4128 + step % STAGES * 8), base + 4160);

    let stages = (0..STAGES).flat_map(|step| [(full(step), 1), (issued(step), 1)]);
    set_up(f, &stages.chain([(done, 128)]).collect::<Vec<_>>());
    f.barrier_sync(0, 160);

    let issue = || {
        (0..STAGES).for_each(|step| load_box(f, map, stage(step), full(step)));
        for step in 0..STEPS {
            f.mbarrier_wait(full(step), step / STAGES % 2);
            f.mbarrier_arrive(issued(step));
            let parity = if mended { step % 2 } else { step / STAGES % 2 };
            f.scope("wait for the multiply", || f.mbarrier_wait(done, parity));
            if step + STAGES < STEPS {
                load_box(f, map, stage(step), full(step));
            }
        }
    };
    let compute = || {
        for step in 0..STEPS {
            f.mbarrier_wait(issued(step), step / STAGES % 2);
            multiply(f, stage(step), 8);
            f.mbarrier_arrive(done);
        }
    };
    f.if_else(
        thread.less_than(128),
        || f.scope("multiplies", compute),
        || f.scope("issues", || f.if_(thread.equals(128), issue)),
    );
}
