//! Lanes: packed 16-bit floats, divergent loops, shuffles and votes of some lanes.

use half::bf16;
use ptx::inst::{AluOp, FloatOp, HalfType, Shuffle, WarpInst};
use ptx::{Inst, Source, Value};

use super::program::{Inputs, Micro, Site, WORDS, each};

pub(super) const MICROS: &[Micro] = &[
    Micro {
        name: "packed-fma",
        about: "multiplies and adds pairs of bf16 with constants, and uses both halves or one",
        ours: true,
        emit: packed_fma,
        want: packed_products,
    },
    Micro {
        name: "divergence",
        about: "nests loops and branches in which lanes go other ways, and then shuffles (CUDA 13.3 mends 12.8 to 13.2)",
        ours: true,
        emit: divergence,
        want: diverged,
    },
    Micro {
        name: "some-lanes",
        about: "votes and shuffles among some lanes of a warp, in branches that only these take",
        ours: true,
        emit: some_lanes,
        want: among_some,
    },
    Micro {
        name: "largest-lane",
        about: "finds the 16-bit value of a warp that is farthest from zero, and the first lane that has it (NVIDIA/cccl#10958)",
        ours: false,
        emit: largest_lane,
        want: largest,
    },
];

/// 2 and 0.5; 1 and -4.
const FACTORS: u32 = 0x3F00_4000;
const ADDENDS: u32 = 0xC080_3F80;

fn packed_fma<'f>(site: &Site<'f>) -> [Value<'f, u32>; WORDS] {
    let f = site.f;
    let [factors, addends] = [FACTORS, ADDENDS].map(|bits| f.variable(bits).get());
    let fma = |relu, value: Value<'f, u32>| {
        let op = AluOp::Half { op: FloatOp::Fma, ty: HalfType::Bf16x2, nan: false, relu };
        f.alu::<u32>(op, &[value.operand(), factors.operand(), addends.operand()])
    };
    let pairs = site.words.map(|word| {
        let small = |shift: u32| ((word >> shift) & 31).cast::<f32>();
        f.pack::<bf16>(small(0), small(8))
    });
    let [low, _] = f.unpack::<bf16>(fma(false, pairs[2]));
    let [_, high] = f.unpack::<bf16>(fma(true, pairs[3]));
    [fma(false, pairs[0]), fma(true, pairs[1]), low.cast::<f32>().bits_as(), high.cast::<f32>().bits_as()]
}

fn packed_products(inputs: &Inputs) -> Inputs {
    each(inputs, |_, words| {
        let results = words.map(|word| {
            let small = |shift: u32| (word >> shift & 31) as f32;
            [small(0) * 2.0 + 1.0, small(8) * 0.5 - 4.0]
        });
        let pack = |[low, high]: [f32; 2]| {
            u32::from(bf16::from_f32(high).to_bits()) << 16 | u32::from(bf16::from_f32(low).to_bits())
        };
        let positive = |pair: [f32; 2]| pair.map(|value| value.max(0.0));
        [
            pack(results[0]),
            pack(positive(results[1])),
            results[2][0].to_bits(),
            positive(results[3])[1].to_bits(),
        ]
    })
}

fn divergence<'f>(site: &Site<'f>) -> [Value<'f, u32>; WORDS] {
    let f = site.f;
    let [x, y, z, w] = site.words;
    let (value, count, turns) = (f.variable(x), f.variable(0u32), f.variable(y));
    f.repeat((y & 3) + 1, |outer| {
        turns.set(turns.get() >> 2);
        f.repeat(turns.get() & 3, |inner| {
            let now = value.get();
            f.if_else(
                (now & 1).equals(1),
                || {
                    value.set(now * 5 + inner);
                    f.if_((now & 8).equals(0), || {
                        value.set(value.get() ^ z);
                        f.if_((now & 64).equals(0), || count.set(count.get() + now % 7));
                    });
                },
                || value.set((now >> 1) + w),
            );
        });
        f.if_(((value.get() >> 4) & 3).equals(outer), || count.set(count.get() * 3 + 1));
    });
    let (value, count) = (value.get(), count.get());
    [value, count, value + f.shuffle_xor(value, 1), count ^ f.shuffle_xor(value, 16)]
}

fn diverged(inputs: &Inputs) -> Inputs {
    let alone = each(inputs, |_, [x, y, z, w]| {
        let (mut value, mut count) = (x, 0u32);
        for outer in 0..(y & 3) + 1 {
            for inner in 0..(y >> (outer * 2 + 2)) & 3 {
                let now = value;
                if now & 1 == 1 {
                    value = now.wrapping_mul(5).wrapping_add(inner);
                    if now & 8 == 0 {
                        value ^= z;
                        if now & 64 == 0 {
                            count = count.wrapping_add(now % 7);
                        }
                    }
                } else {
                    value = (now >> 1).wrapping_add(w);
                }
            }
            if value >> 4 & 3 == outer {
                count = count.wrapping_mul(3).wrapping_add(1);
            }
        }
        [value, count, 0, 0]
    });
    each(&alone, |thread, [value, count, ..]| {
        let other = |mask: u32| alone[(thread ^ mask) as usize][0];
        [value, count, value.wrapping_add(other(1)), count ^ other(16)]
    })
}

/// The lanes of the branches: the lower half of a warp, and the quarters of the upper one.
const GROUPS: [(u32, u32); 3] = [(0x0000_FFFF, 16), (0x00FF_0000, 8), (0xFF00_0000, 8)];

fn some_lanes<'f>(site: &Site<'f>) -> [Value<'f, u32>; WORDS] {
    let f = site.f;
    let [x, y, ..] = site.words;
    let lane = site.thread % 32;
    let results: [_; 2] = core::array::from_fn(|_| f.variable(0u32));
    let own = |group: usize| {
        let (members, width) = GROUPS[group];
        let taken = f.uninitialised::<u32>();
        let (mode, lane) = (Shuffle::Butterfly, (width / 2 + 1).operand());
        let (dst, src, members) = (taken.reg(), x.operand(), members.operand());
        f.emit(Inst::Warp(WarpInst::Shuffle { mode, dst, found: None, src, lane, width, members }));
        results[0].set(taken.get() + group as u32);
        results[1].set(f.ballot((y & (1 << group)).equals(0), GROUPS[group].0));
    };
    f.if_else(lane.less_than(16), || own(0), || f.if_else(lane.less_than(24), || own(1), || own(2)));
    let [taken, votes] = results.map(|result| result.get());
    [taken, votes, f.shuffle_xor(taken, 16), f.shuffle_xor(votes, 5)]
}

fn among_some(inputs: &Inputs) -> Inputs {
    let group = |thread: u32| if thread % 32 < 16 { 0 } else { (thread % 32) as usize / 8 - 1 };
    let first = each(inputs, |thread, _| {
        let group = group(thread);
        let (members, width) = GROUPS[group];
        let other = inputs[(thread ^ (width / 2 + 1)) as usize][0];
        let warp = &inputs[thread as usize / 32 * 32..][..32];
        let votes =
            (0..32).filter(|&lane| members >> lane & 1 == 1 && warp[lane as usize][1] & (1 << group) == 0);
        [other.wrapping_add(group as u32), votes.map(|lane| 1 << lane).sum(), 0, 0]
    });
    each(&first, |thread, [taken, votes, ..]| {
        [taken, votes, first[(thread ^ 16) as usize][0], first[(thread ^ 5) as usize][1]]
    })
}

/// The value of a thread: the least one in some lanes, whose size has no 16 signed bits.
fn value_of(thread: u32, word: u32) -> u32 {
    if thread % 5 == 3 || word & 3 == 0 { word & 0xFFFF_0000 | 0x8000 } else { word }
}

fn largest_lane<'f>(site: &Site<'f>) -> [Value<'f, u32>; WORDS] {
    let f = site.f;
    let word = site.words[0];
    let least = (site.thread % 5).equals(3) | (word & 3).equals(0);
    let mut value = ((word & 0xFFFF_0000) | 0x8000).where_or(least, word);
    let mut lane = site.thread % 32;
    let size = |word: Value<'f, u32>| ((word << 16).bits_as::<i32>() >> 16).abs().bits_as::<u32>();
    for distance in [16, 8, 4, 2, 1] {
        let (other, found) = f.shuffle_segment(Shuffle::Down, value, distance, 32);
        let (other_lane, _) = f.shuffle_segment(Shuffle::Down, lane, distance, 32);
        let ties = size(other).equals(size(value)) & other_lane.less_than(lane);
        let better = found & (size(other).more_than(size(value)) | ties);
        (value, lane) = (other.where_or(better, value), other_lane.where_or(better, lane));
    }
    [value, lane, size(value), f.shuffle(lane, 0)]
}

fn largest(inputs: &Inputs) -> Inputs {
    let size = |word: u32| u32::from((word as u16).cast_signed().unsigned_abs());
    let mut all = each(inputs, |thread, words| [value_of(thread, words[0]), thread % 32, 0, 0]);
    for distance in [16, 8, 4, 2, 1] {
        let before = all;
        all = each(&before, |thread, [value, lane, ..]| {
            if thread % 32 + distance > 31 {
                return [value, lane, 0, 0];
            }
            let [other, other_lane, ..] = before[(thread + distance) as usize];
            let better = size(other) > size(value) || size(other) == size(value) && other_lane < lane;
            if better { [other, other_lane, 0, 0] } else { [value, lane, 0, 0] }
        });
    }
    each(&all, |thread, [value, lane, ..]| [value, lane, size(value), all[thread as usize / 32 * 32][1]])
}
