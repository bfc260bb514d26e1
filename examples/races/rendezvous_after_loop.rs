//! The backward pass of a layer of experts. The producer warp finds out which rows its expert has, loads them
//! through a ring, and meets the consumers, who learn from it how many steps there are.

use emulator::Memory;
use ptx::abi::Argument;
use ptx::{Builder, Special};

use super::exhibit::{BOX_BYTES, Exhibit, box_map};
use super::parts::{load_box, multiply, set_up};

pub(crate) const EXHIBIT: Exhibit = Exhibit {
    name: "rendezvous-after-loop",
    shipped: &["Liger-Kernel PR#1463"],
    bug: "The producer meets the consumers after its loop. The loop waits for stages that the consumers \
          free, and they start when they have met the producer.",
    mended: "The producer publishes the bounds of its loop and meets the consumers before it.",
    hidden: "An expert with as few rows as the ring has stages never makes the producer wait.",
    threads: 160,
    cluster: 1,
    dependent: false,
    silent: None,
    arguments,
    program,
};

/// Stages of the ring, and steps of the expert.
const STAGES: u32 = 4;
const STEPS: u32 = 6;

fn arguments(memory: &mut Memory) -> Vec<Argument> {
    let rows = box_map(memory.upload(&[0x3F; BOX_BYTES as usize]));
    vec![rows.into(), memory.upload(&STEPS.to_le_bytes()).into()]
}

fn program(f: &Builder, mended: bool) {
    let (map, steps) = (f.tensor_map("rows"), f.param::<u64>("steps"));
    let (base, thread) = (f.shared_base(), f.special(Special::ThreadX));
    let (barriers, bounds) = (base + 4096, base + 4096 + 16 * STAGES);

    let stages: Vec<_> = (0..STAGES)
        .flat_map(|stage| [(barriers + 16 * stage, 1), (barriers + (16 * stage + 8), 128)])
        .collect();
    set_up(f, &stages);
    f.barrier_sync(0, 160);
    // The data, the barriers and the round of a step.
    let place = |step| {
        let stage = step % STAGES;
        let full = barriers + stage * 16;
        (base + stage * BOX_BYTES, full, full + 8, step / STAGES)
    };

    let producer = || {
        let count = f.load_global::<u32>(steps, 0);
        f.if_(thread.equals(128), || f.store_shared(bounds, 0, [count]));
        let meet = || f.scope("rendezvous", || f.barrier_sync(1, 160));
        if mended {
            meet();
        }
        f.if_(thread.equals(128), || {
            f.repeat(count, |step| {
                let (at, full, empty, round) = place(step);
                f.mbarrier_wait(empty, (round + 1) & 1);
                load_box(f, map, at, full);
            });
        });
        if !mended {
            meet();
        }
    };
    let consumers = || {
        f.scope("rendezvous", || f.barrier_sync(1, 160));
        let [count] = f.load_shared_vector::<u32, 1>(bounds, 0);
        f.repeat(count, |step| {
            let (at, full, empty, round) = place(step);
            f.mbarrier_wait(full, round & 1);
            multiply(f, at, 8);
            f.mbarrier_arrive(empty);
        });
    };
    f.if_else(thread.less_than(128), || f.scope("consumers", consumers), || f.scope("producer", producer));
}
