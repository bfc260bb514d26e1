//! Matrix multiplies: accumulators in branches, operands in registers, fewer registers.

use half::bf16;
use ptx::inst::MmaTypes;
use ptx::{Builder, ProxySpace, Value, Var, WgmmaOperands, WgmmaTypes};

use super::program::{Inputs, Micro, Site, THREADS, WORDS, each};

pub(super) const MICROS: &[Micro] = &[
    Micro {
        name: "wgmma-branches",
        about: "multiplies in either of two branches, and changes the accumulators between",
        ours: true,
        emit: in_branches,
        want: of_branches,
    },
    Micro {
        name: "wgmma-registers",
        about: "multiplies fragments in registers, and makes the next ones meanwhile (triton-lang/triton#9433)",
        ours: true,
        emit: in_registers,
        want: of_registers,
    },
    Micro {
        name: "mma-sync",
        about: "multiplies what it stores to swizzled shared addresses, in a loop (fla-org/flash-linear-attention#1262)",
        ours: true,
        emit: of_warps,
        want: warp_products,
    },
    Micro {
        name: "setmaxnreg",
        about: "gives registers back, computes, and takes some again",
        ours: true,
        emit: fewer_registers,
        want: computed,
    },
];

/// Extents of a tile along K.
const K: usize = 16;

/// An element: a nibble as a whole number from -7 to 8.
fn nibble(word: u32, number: usize) -> i32 {
    (word >> (4 * number) & 15) as i32 - 7
}

/// Two elements.
fn pair<'f>(f: &'f Builder, word: Value<'f, u32>, number: u32) -> Value<'f, u32> {
    let element = |number: u32| ((word >> (4 * number)) & 15).cast::<f32>() - 7.0;
    f.pack::<bf16>(element(number), element(number + 1))
}

/// Stores eight elements of a tile with rows of 32 B, whose 16-byte chunks are swizzled: row `chunk / 2`, half `chunk % 2`.
fn store_chunk<'f>(f: &'f Builder, tile: Value<'f, u32>, chunk: Value<'f, u32>, word: Value<'f, u32>) {
    let elements = [0, 2, 4, 6].map(|number| pair(f, word, number));
    f.store_shared(tile + swizzled(chunk), 0, elements);
}

/// The offset of a chunk in bytes.
fn swizzled(chunk: Value<'_, u32>) -> Value<'_, u32> {
    (chunk ^ ((chunk >> 3) & 1)) * 16
}

/// A matrix descriptor of such a tile: 32-byte swizzle, and 256 B from eight rows to the next.
fn descriptor<'f>(tile: Value<'f, u32>) -> Value<'f, u64> {
    ((tile & 0x3_FFFF) >> 4).cast::<u64>() | (3 << 62 | 256 >> 4 << 32 | 1 << 16)
}

/// Row and column of value `at` of a thread, of an accumulator.
fn place(thread: u32, at: usize) -> (usize, usize) {
    let (warp, row, column) = (thread as usize / 32, thread as usize % 32 / 4, thread as usize % 4);
    (16 * warp + row + 8 * (at / 2), 2 * column + at % 2)
}

/// The product of a row of a and a row of b.
fn product(a: impl Fn(usize) -> i32, b: impl Fn(usize) -> i32) -> i32 {
    (0..K).map(|k| a(k) * b(k)).sum()
}

/// The accumulators of a warpgroup, as zeros.
fn zeros<'f>(f: &'f Builder) -> [Var<'f, f32>; WORDS] {
    core::array::from_fn(|_| f.variable(0.0f32))
}

/// Their bits.
fn bits<'f>(sums: &[Var<'f, f32>; WORDS]) -> [Value<'f, u32>; WORDS] {
    sums.map(|sum| sum.get().bits_as())
}

fn in_branches<'f>(site: &Site<'f>) -> [Value<'f, u32>; WORDS] {
    let Site { f, thread, words: [x, y, ..], input, shared } = site;
    let [a, b] = [*shared, *shared + THREADS * 16];
    store_chunk(f, a, *thread, *x);
    f.if_(thread.less_than(16), || store_chunk(f, b, *thread, *y));
    f.fence_proxy_async(ProxySpace::Shared);
    f.barrier_sync(0, THREADS);
    // The same for all threads, which the compiler cannot know.
    let ways = f.variable(f.load_global::<u32>(*input, 0));
    let sums = zeros(f);
    let multiply = |negate_b| {
        f.wgmma_fence();
        let operands = WgmmaOperands::new(WgmmaTypes::Bf16F32, 8, descriptor(a), descriptor(b));
        f.wgmma(WgmmaOperands { negate_b, ..operands }, &sums);
        f.wgmma_commit();
    };
    f.repeat(f.constant(4u32), |step| {
        f.if_else((ways.get() & 1).equals(1), || multiply(false), || multiply(true));
        f.wgmma_wait(0);
        let added = step.cast::<f32>();
        sums.iter().for_each(|sum| sum.set(sum.get() + added));
        ways.set(ways.get() >> 1);
    });
    bits(&sums)
}

fn of_branches(inputs: &Inputs) -> Inputs {
    let element = |row: usize, k: usize, word: usize| nibble(inputs[2 * row + k / 8][word], k % 8);
    let positive = (inputs[0][0] & 15).count_ones() as i32;
    each(inputs, |thread, _| {
        core::array::from_fn(|at| {
            let (row, column) = place(thread, at);
            let sum = product(|k| element(row, k, 0), |k| element(column, k, 1));
            (((2 * positive - 4) * sum + 6) as f32).to_bits()
        })
    })
}

/// Times that all fragments of a thread are made.
const TURNS: u32 = 3;
/// What a word becomes after a turn.
fn turned(word: u32) -> u32 {
    word.wrapping_mul(5).wrapping_add(1)
}

fn in_registers<'f>(site: &Site<'f>) -> [Value<'f, u32>; WORDS] {
    let Site { f, thread, words, shared, .. } = site;
    f.if_(thread.less_than(16), || store_chunk(f, *shared, *thread, words[1]));
    f.fence_proxy_async(ProxySpace::Shared);
    f.barrier_sync(0, THREADS);
    let (sums, words) = (zeros(f), words.map(|word| f.variable(word)));
    f.repeat(f.constant(TURNS), |_| {
        for step in 0..4 {
            let fragment = words.map(|word| f.variable(pair(f, word.get(), 2 * step)));
            f.wgmma_fence();
            f.wgmma(WgmmaOperands::new(WgmmaTypes::Bf16F32, 8, fragment, descriptor(*shared)), &sums);
            f.wgmma_commit();
            f.wgmma_wait(1);
        }
        words.iter().for_each(|word| word.set(word.get() * 5 + 1));
    });
    f.wgmma_wait(0);
    bits(&sums)
}

fn of_registers(inputs: &Inputs) -> Inputs {
    let b = |column: usize, k: usize| nibble(inputs[2 * column + k / 8][1], k % 8);
    each(inputs, |thread, _| {
        core::array::from_fn(|at| {
            let (row, column) = place(thread, at);
            // Register and thread of an element of A.
            let register = |k: usize| row % 16 / 8 + k / 8 * 2;
            let owner = |k: usize| row / 16 * 32 + row % 8 * 4 + k % 8 / 2;
            let mut words = *inputs;
            let mut sum = 0;
            for _ in 0..TURNS {
                let a = |step: usize, k: usize| nibble(words[owner(k)][register(k)], 2 * step + k % 2);
                sum += (0..4).map(|step| product(|k| a(step, k), |k| b(column, k))).sum::<i32>();
                words = words.map(|words| words.map(turned));
            }
            (sum as f32).to_bits()
        })
    })
}

fn of_warps<'f>(site: &Site<'f>) -> [Value<'f, u32>; WORDS] {
    let Site { f, thread, words: [x, y, z, _], shared, .. } = site;
    let (lane, warp) = (*thread % 32, *thread / 32);
    let b = [pair(f, *y, 0), pair(f, *z, 0)];
    let (sums, word) = (zeros(f), f.variable(*x));
    f.repeat(f.constant(TURNS), |turn| {
        let tile = *shared + (warp * 1024 + (turn & 1) * 512);
        store_chunk(f, tile, lane, word.get());
        f.warp_sync();
        let chunk = (lane % 16) * 2 + lane / 16;
        let a: [_; 4] = f.load_matrix(tile + swizzled(chunk), false);
        let old = sums.map(|sum| sum.get());
        let new: [_; 4] = f.multiply(MmaTypes::Bf16F32, a, b, old);
        (0..WORDS).for_each(|at| sums[at].set(new[at]));
        word.set(word.get() * 5 + 1);
    });
    bits(&sums)
}

fn warp_products(inputs: &Inputs) -> Inputs {
    each(inputs, |thread, _| {
        let warp = &inputs[thread as usize / 32 * 32..][..32];
        core::array::from_fn(|at| {
            let (row, column) = place(thread % 32, at);
            let b = |k: usize| nibble(warp[4 * column + k % 8 / 2][1 + k / 8], k % 2);
            let mut words: [u32; 2] = [0, 1].map(|half| warp[2 * row + half][0]);
            let mut sum = 0;
            for _ in 0..TURNS {
                sum += product(|k| nibble(words[k / 8], k % 8), b);
                words = words.map(turned);
            }
            (sum as f32).to_bits()
        })
    })
}

/// Values that live at the same time.
const LIVE: usize = 24;

fn fewer_registers<'f>(site: &Site<'f>) -> [Value<'f, u32>; WORDS] {
    let Site { f, thread, words, .. } = site;
    f.set_max_registers(false, 56);
    let values: [Var<'f, u32>; LIVE] =
        core::array::from_fn(|at| f.variable((words[at % WORDS] ^ *thread) * (at as u32 + 3)));
    f.repeat(f.constant(TURNS), |_| mixed(&values));
    f.barrier_sync(0, THREADS);
    f.set_max_registers(true, 88);
    mixed(&values);
    core::array::from_fn(|at| {
        (at + WORDS..LIVE).step_by(WORDS).fold(values[at].get(), |sum, other| sum ^ values[other].get())
    })
}

/// Changes each value, in order.
fn mixed(values: &[Var<'_, u32>; LIVE]) {
    for at in 0..LIVE {
        values[at].set(values[at].get() * 5 + values[(at + 7) % LIVE].get());
    }
}

fn computed(inputs: &Inputs) -> Inputs {
    each(inputs, |thread, words| {
        let mut values: [u32; LIVE] =
            core::array::from_fn(|at| (words[at % WORDS] ^ thread).wrapping_mul(at as u32 + 3));
        for _ in 0..=TURNS {
            for at in 0..LIVE {
                values[at] = values[at].wrapping_mul(5).wrapping_add(values[(at + 7) % LIVE]);
            }
        }
        core::array::from_fn(|at| values[at..].iter().step_by(WORDS).fold(0, |sum, value| sum ^ value))
    })
}
