//! The backward pass of a layer of experts. The producer hands the consumers the number of steps of each
//! expert in two slots, in turn. A consumer that gets an expert without rows goes on to the next one at once.

use emulator::Memory;
use ptx::abi::Argument;
use ptx::{Builder, Special};

use super::exhibit::{BOX_BYTES, Exhibit, box_map};
use super::parts::{load_box, multiply, set_up};

pub(crate) const EXHIBIT: Exhibit = Exhibit {
    name: "cursor-skipped",
    shipped: &["Liger-Kernel PR#1463"],
    bug: "The loop over experts has a `continue` for experts without rows, which skips the step of the \
          cursor to the next slot. The consumer reads a slot again, and falls behind the producer.",
    mended: "The cursor moves for every expert.",
    hidden: "It takes an expert without rows that is not the last one.",
    threads: 160,
    cluster: 1,
    dependent: false,
    silent: None,
    arguments,
    program,
};

/// Steps of each expert, and stages of the ring.
const STEPS: [u32; 5] = [2, 0, 1, 2, 3];
const STAGES: u32 = 2;

fn arguments(memory: &mut Memory) -> Vec<Argument> {
    let rows = box_map(memory.upload(&[0x3F; BOX_BYTES as usize]));
    vec![rows.into(), memory.upload(&STEPS.map(u32::to_le_bytes).concat()).into()]
}

fn program(f: &Builder, mended: bool) {
    let (map, steps) = (f.tensor_map("rows"), f.param::<u64>("steps"));
    let (base, thread) = (f.shared_base(), f.special(Special::ThreadX));
    let (slots, barriers) = (base + 2048, base + 2064);
    let experts = f.constant(STEPS.len() as u32);
    // Of a number: its stage (kind 0) or slot (kind 1) as full and empty barrier, and the parity of its round.
    let place = |number, kind: u32| {
        let full = barriers + 32 * kind + (number % STAGES) * 16;
        (full, full + 8, (number / STAGES) & 1)
    };

    let counts = [(0, [1, 128]), (1, [1, 128])].into_iter();
    let all: Vec<_> = counts
        .flat_map(|(kind, [there, taken])| {
            (0..STAGES).flat_map(move |number| {
                let full = barriers + (32 * kind + 16 * number);
                [(full, there), (full + 8, taken)]
            })
        })
        .collect();
    set_up(f, &all);
    f.barrier_sync(0, 160);

    let producer = || {
        let next = f.variable(0u32);
        f.repeat(experts, |expert| {
            let count = f.load_global::<u32>(steps + expert.mul_wide(4), 0);
            let (full, empty, parity) = place(expert, 1);
            f.mbarrier_wait(empty, parity ^ 1);
            f.store_shared(slots + expert % 2 * 4, 0, [count]);
            f.mbarrier_arrive(full);
            f.repeat(count, |_| {
                let step = next.get();
                let (full, empty, parity) = place(step, 0);
                f.mbarrier_wait(empty, parity ^ 1);
                load_box(f, map, base + step % STAGES * BOX_BYTES, full);
                next.set(step + 1);
            });
        });
    };
    let consumers = || {
        let (cursor, next) = (f.variable(0u32), f.variable(0u32));
        f.repeat(experts, |_| {
            let slot = cursor.get();
            let (full, empty, parity) = place(slot, 1);
            f.mbarrier_wait(full, parity);
            let [count] = f.load_shared_vector::<u32, 1>(slots + slot % 2 * 4, 0);
            f.mbarrier_arrive(empty);
            f.repeat(count, |_| {
                let step = next.get();
                let (full, empty, parity) = place(step, 0);
                f.mbarrier_wait(full, parity);
                multiply(f, base + step % STAGES * BOX_BYTES, 8);
                f.mbarrier_arrive(empty);
                next.set(step + 1);
            });
            let advance = || cursor.set(slot + 1);
            if mended {
                advance();
            } else {
                // What a `continue` leaves out for experts without rows.
                f.if_(count.differs_from(0), advance);
            }
        });
    };
    f.if_else(
        thread.less_than(128),
        || f.scope("consumers", consumers),
        || f.scope("producer", || f.if_(thread.equals(128), producer)),
    );
}
