//! Memory: addresses, guarded stores, matrices of a warp in shared memory, barriers with phases.

use ptx::Value;

use super::program::{Inputs, Micro, Site, THREADS, WORDS, each};

pub(super) const MICROS: &[Micro] = &[
    Micro {
        name: "addresses",
        about: "loads at 64-bit addresses with negative indices and offsets",
        ours: true,
        emit: addresses,
        want: addressed,
    },
    Micro {
        name: "guarded-stores",
        about: "stores to shared memory in a loop, where bits of a word say so",
        ours: true,
        emit: guarded_stores,
        want: guarded,
    },
    Micro {
        name: "matrices",
        about: "stores and loads 8x8 matrices at shared addresses that are swizzled anew in each round (fla-org/flash-linear-attention#1262)",
        ours: true,
        emit: matrices,
        want: transposed,
    },
    Micro {
        name: "phases",
        about: "waits for the phases of an mbarrier by their parity, in a loop",
        ours: true,
        emit: phases,
        want: passed,
    },
];

fn addresses<'f>(site: &Site<'f>) -> [Value<'f, u32>; WORDS] {
    let Site { f, thread, input, .. } = site;
    let end = *input + u64::from(THREADS * 16);
    let back = (f.constant(-1) - thread.bits_as::<i32>()).cast::<i64>();
    let mirrored = end + (back * 16).bits_as::<u64>();
    let permuted = *input + ((*thread * 5) % THREADS).mul_wide(16);
    let before = *input + (thread.max(1) * 16).cast::<u64>();
    [
        f.load_global(mirrored, 0),
        f.load_global(mirrored + 4096u64, 12 - 4096),
        f.load_global(permuted, 8),
        f.load_global(before, -12),
    ]
}

fn addressed(inputs: &Inputs) -> Inputs {
    each(inputs, |thread, _| {
        let of = |thread: u32| inputs[thread as usize];
        let mirrored = of(THREADS - 1 - thread);
        [mirrored[0], mirrored[3], of(thread * 5 % THREADS)[2], of(thread.max(1) - 1)[1]]
    })
}

/// Words of a thread in shared memory.
const SLOTS: u32 = 8;

fn guarded_stores<'f>(site: &Site<'f>) -> [Value<'f, u32>; WORDS] {
    let Site { f, thread, words: [x, y, z, _], shared, .. } = site;
    let own = *shared + *thread * (SLOTS * 4);
    for slot in (0..SLOTS).step_by(4) {
        f.store_shared(own, 4 * slot as i32, [0u32; 4].map(|zero| f.constant(zero)));
    }
    let (value, bits) = (f.variable(*y), f.variable(*x));
    f.repeat(f.constant(SLOTS), |step| {
        let at = own + ((step ^ *thread) & (SLOTS - 1)) * 4;
        f.if_((bits.get() & 1).equals(1), || f.store_shared(at, 0, [value.get()]));
        value.set(value.get() + *z);
        bits.set(bits.get() >> 1);
    });
    let [low, high] = [0, 16].map(|offset| f.load_shared_vector::<u32, 4>(own, offset));
    core::array::from_fn(|at| low[at] ^ (high[at] << 1))
}

fn guarded(inputs: &Inputs) -> Inputs {
    each(inputs, |thread, [x, y, z, _]| {
        let mut slots = [0u32; SLOTS as usize];
        for step in (0..SLOTS).filter(|step| x >> step & 1 == 1) {
            slots[((step ^ thread) & (SLOTS - 1)) as usize] = y.wrapping_add(z.wrapping_mul(step));
        }
        core::array::from_fn(|at| slots[at] ^ slots[at + 4] << 1)
    })
}

/// Rounds: an odd number, since two transpositions are none.
const ROUNDS: u32 = 3;

fn matrices<'f>(site: &Site<'f>) -> [Value<'f, u32>; WORDS] {
    let Site { f, thread, words, shared, .. } = site;
    let (lane, warp) = (*thread % 32, *thread / 32);
    let values = words.map(|word| f.variable(word));
    f.repeat(f.constant(ROUNDS), |round| {
        let row = lane ^ (((lane >> 3) * 2 + round) & 7);
        let at = *shared + (warp * 512 + row * 16);
        f.store_matrix(at, values.map(|value| value.get()), false);
        f.warp_sync();
        let loaded: [_; 4] = f.load_matrix(at, true);
        f.warp_sync();
        (0..4).for_each(|matrix| values[matrix].set(loaded[matrix]));
    });
    values.map(|value| value.get())
}

fn transposed(inputs: &Inputs) -> Inputs {
    each(inputs, |thread, _| {
        let (warp, lane) = (thread / 32 * 32, thread % 32);
        core::array::from_fn(|matrix| {
            // Row r and column c are in lane 4 r + c / 2.
            let element = |row: u32, column: u32| {
                inputs[(warp + 4 * row + column / 2) as usize][matrix] >> (column % 2 * 16) & 0xFFFF
            };
            let (column, row) = (lane / 4, lane % 4 * 2);
            element(row, column) | element(row + 1, column) << 16
        })
    })
}

/// Phases, and the distance to the thread whose value is read.
const PHASES: u32 = 5;
const NEXT: u32 = 33;

fn phases<'f>(site: &Site<'f>) -> [Value<'f, u32>; WORDS] {
    let Site { f, thread, words: [x, y, z, w], shared, .. } = site;
    // After two buffers of a word per thread.
    let barrier = *shared + THREADS * 8;
    f.if_(thread.equals(0), || {
        f.mbarrier_init(barrier, THREADS);
        f.fence_mbarrier_init();
    });
    f.barrier_sync(0, THREADS);
    let (value, sum) = (f.variable(*x), f.variable(0u32));
    f.repeat(f.constant(PHASES), |phase| {
        let parity = phase & 1;
        let buffer = *shared + parity * (THREADS * 4);
        f.store_shared(buffer + *thread * 4, 0, [value.get()]);
        f.mbarrier_arrive(barrier);
        f.mbarrier_wait(barrier, parity);
        let [other] = f.load_shared_vector::<u32, 1>(buffer + ((*thread + NEXT) % THREADS) * 4, 0);
        sum.set(sum.get() ^ other);
        value.set(value.get() * 3 + other);
    });
    [value.get(), sum.get(), *y ^ sum.get(), *z + (*w ^ value.get())]
}

fn passed(inputs: &Inputs) -> Inputs {
    let mut values = each(inputs, |_, [x, ..]| [x, 0, 0, 0]);
    for _ in 0..PHASES {
        let before = values;
        values = each(&before, |thread, [value, sum, ..]| {
            let other = before[((thread + NEXT) % THREADS) as usize][0];
            [value.wrapping_mul(3).wrapping_add(other), sum ^ other, 0, 0]
        });
    }
    each(&values, |thread, [value, sum, ..]| {
        let [_, y, z, w] = inputs[thread as usize];
        [value, sum, y ^ sum, z.wrapping_add(w ^ value)]
    })
}
