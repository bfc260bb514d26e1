//! Exchanges between lanes, special registers, and matrix instructions and copies of one warp.

use emulator::{Memory, Options, Schedule};
use ptx::abi::Grid;
use ptx::inst::{AluOp, ApproxOp, MmaTypes, ReduceOp, Shuffle, Vote};
use ptx::{Builder, Special, Value};

use crate::{kernel, run, words};

/// Runs one warp in which each lane computes some words.
fn lanes<const N: usize>(
    body: impl for<'f> FnOnce(&'f Builder, Value<'f, u32>) -> [Value<'f, u32>; N],
) -> Vec<[u32; N]> {
    let program = kernel(32, 1, |f| {
        let out = f.param::<u64>("out");
        let lane = f.special(Special::Lane);
        for (i, value) in (0i32..).zip(body(f, lane)) {
            f.store_global(out + lane.mul_wide(N as u32 * 4), i * 4, [value]);
        }
    });
    let mut memory = Memory::new();
    let out = memory.allocate(128 * N);
    run(&program, 1, &[out.into()], &memory);
    let all = words(&memory, out, 32 * N);
    all.chunks_exact(N).map(|lane| core::array::from_fn(|i| lane[i])).collect()
}

#[test]
fn votes_and_matches() {
    let got = lanes(|f, lane| {
        let flag = |vote, value| f.constant(1u32).where_or(f.vote(vote, value), 0u32);
        [
            flag(Vote::All, lane.less_than(32)),
            flag(Vote::All, lane.less_than(31)),
            flag(Vote::Any, lane.equals(7)),
            flag(Vote::Uniform, lane.at_least(32)),
            f.ballot((lane % 3).equals(0), u32::MAX),
            f.match_any(lane / 5),
            f.constant(1u32).where_or(f.match_all((lane / 32).cast::<u64>()), 0u32),
            f.reduce_lanes(ReduceOp::Add, lane * lane),
            f.reduce_lanes(ReduceOp::Min, lane.bits_as::<i32>() - 16).bits_as(),
            f.reduce_lanes(ReduceOp::Xor, f.constant(1u32) << lane),
        ]
    });
    let thirds = (0..32).filter(|lane| lane % 3 == 0).fold(0u32, |all, lane| all | 1 << lane);
    for (lane, got) in (0u32..).zip(got) {
        let alike = (0..32).filter(|other| other / 5 == lane / 5).fold(0u32, |all, other| all | 1 << other);
        let squares = (0..32).map(|lane| lane * lane).sum();
        let want = [1, 0, 1, 1, thirds, alike, 1, squares, (-16i32).cast_unsigned(), u32::MAX];
        assert_eq!(got, want, "lane {lane}");
    }
}

#[test]
fn a_vote_of_the_lanes_of_a_branch() {
    let got = lanes(|f, lane| {
        let result = f.variable(0u32);
        f.if_(lane.less_than(5), || {
            let mask = f.active_mask();
            result.set(f.ballot((lane & 1).equals(0), mask) | mask << 8);
        });
        [result.get()]
    });
    for (lane, got) in got.into_iter().enumerate() {
        assert_eq!(got, [if lane < 5 { 0b10101 | 0b11111 << 8 } else { 0 }], "lane {lane}");
    }
}

#[test]
fn shuffles_in_segments() {
    for width in [1u32, 2, 4, 8, 16, 32] {
        for j in [0u32, 1, 3, 7, 31] {
            let got = lanes(|f, lane| {
                let code = |mode| {
                    let (value, found) = f.shuffle_segment(mode, lane * 2, j, width);
                    value + f.constant(1u32).where_or(found, 0u32)
                };
                [code(Shuffle::Up), code(Shuffle::Down), code(Shuffle::Butterfly), code(Shuffle::Index)]
            });
            for (lane, got) in (0u32..).zip(got) {
                let segment = lane / width;
                // The source lane, and whether it is in range.
                let code = |from: i64, counts: bool| if counts { from as u32 * 2 + 1 } else { lane * 2 };
                let (at, by) = (i64::from(lane), i64::from(j));
                let first = i64::from(segment * width);
                let last = first + i64::from(width) - 1;
                let want = [
                    code(at - by, at - by >= first),
                    code(at + by, at + by <= last),
                    code(at ^ by, at ^ by <= last),
                    code(first + by % i64::from(width), true),
                ];
                assert_eq!(got, want, "lane {lane}, width {width}, by {j}");
            }
        }
    }
}

#[test]
fn special_registers_agree_with_the_launch() {
    let got = lanes(|f, lane| {
        [
            f.special(Special::LaneMaskEq),
            f.special(Special::LaneMaskLt) ^ f.special(Special::LaneMaskGe),
            f.special(Special::LaneMaskLe) & f.special(Special::LaneMaskGt),
            f.special(Special::LaneMaskLt),
            f.special(Special::ThreadsX),
            f.special(Special::DynamicSharedBytes),
            lane.where_or(f.special_wide(Special::Clock64).less_than(f.special_wide(Special::Clock64)), 0),
        ]
    });
    for (lane, got) in (0u32..).zip(got) {
        assert_eq!(got, [1 << lane, u32::MAX, 0, (1 << lane) - 1, 32, 4096, lane]);
    }
}

#[test]
fn an_approximated_exponential_is_within_its_error() {
    let got = lanes(|f, lane| {
        let x = lane.cast::<f32>() * 0.37 - 5.0;
        [f.alu::<f32>(AluOp::Approx(ApproxOp::Exp2), &[x.operand()]).bits_as()]
    });
    for (lane, [bits]) in got.into_iter().enumerate() {
        let (value, exact) = (f32::from_bits(bits), f64::from(lane as f32 * 0.37 - 5.0).exp2());
        assert!((f64::from(value) - exact).abs() <= exact * 2f64.powi(-22), "{value} {exact}");
    }
}

#[test]
fn matrices_come_back_as_they_were_stored() {
    for transpose in [false, true] {
        let got = lanes(|f, lane| {
            let base = f.shared_base();
            // Lane 8 j + r has row r of matrix j. The value of an element is its index in the four matrices.
            for column in 0..4 {
                let first = lane * 8 + 2 * column;
                f.store_shared(base + lane * 16, column as i32 * 4, [first | (first + 1) << 16]);
            }
            f.warp_sync();
            f.load_matrix::<4>(base + lane * 16, transpose)
        });
        for (lane, got) in (0u32..).zip(got) {
            for (matrix, got) in (0u32..).zip(got) {
                let (row, column) = (lane / 4, lane % 4 * 2);
                let element = |r: u32, c: u32| matrix * 64 + if transpose { c * 8 + r } else { r * 8 + c };
                assert_eq!(got, element(row, column) | element(row, column + 1) << 16, "lane {lane}");
            }
        }
    }
}

/// Each element is a small number computed from its row, column or k, so the product has a closed form.
#[test]
fn products_of_a_warp() {
    // A(m, k) = m - k, B(k, n) = k + 2n - 3, C(m, n) = m + 10n: all small integers, exact in every format.
    let want =
        |m: i32, n: i32, depth: i32| (0..depth).map(|k| (m - k) * (k + 2 * n - 3)).sum::<i32>() + m + 10 * n;
    let bf16 = |value: i32| u32::from(half::bf16::from_f32(value as f32).to_bits());
    let f16 = |value: i32| u32::from(half::f16::from_f32(value as f32).to_bits());
    let tf32 = |value: i32| (value as f32).to_bits() | 0x1FFF;
    let byte = |value: i32| value.cast_unsigned() & 0xFF;
    type Encode = fn(i32) -> u32;
    let int8 = MmaTypes::Int8 { signed_a: true, signed_b: true, saturate: false };
    let cases: [(MmaTypes, u32, i32, Encode); 4] = [
        (MmaTypes::Bf16F32, 16, 16, bf16),
        (MmaTypes::F16F32, 16, 16, f16),
        (MmaTypes::Tf32F32, 32, 8, tf32),
        (int8, 8, 32, byte),
    ];
    for (types, width, depth, encode) in cases {
        // Fragments as in the manual's figures. The host writes them per lane, and the kernel loads them from
        // memory.
        let fragment = |lane: i32, registers: i32, element: &dyn Fn(i32, i32, i32) -> i32| -> Vec<u32> {
            let each = 32 / width as i32;
            let one = |v: i32| encode(element(lane / 4, lane % 4, v)) << ((v % each) as u32 * width % 32);
            (0..registers)
                .map(|r| (0..each).map(|i| one(r * each + i)).fold(0, |all, bits| all | bits))
                .collect()
        };
        let a = |g: i32, c: i32, v: i32| match width {
            16 => (g + 8 * (v / 2 % 2)) - (2 * c + v % 2 + 8 * (v / 4)),
            32 => (g + 8 * (v % 2)) - (c + 4 * (v / 2)),
            _ => (g + 8 * (v / 4 % 2)) - (4 * c + v % 4 + 16 * (v / 8)),
        };
        let b = |g: i32, c: i32, v: i32| {
            2 * g - 3
                + match width {
                    16 => 2 * c + v % 2 + 8 * (v / 2),
                    32 => c + 4 * v,
                    _ => 4 * c + v % 4 + 16 * (v / 4),
                }
        };
        let program = kernel(32, 1, |f| {
            let (input, out) = (f.param::<u64>("input"), f.param::<u64>("out"));
            let lane = f.special(Special::Lane);
            let a = f.load_global_vector::<u32, 4>(input + lane.mul_wide(32), 0);
            let b = f.load_global_vector::<u32, 2>(input + lane.mul_wide(32), 16);
            let number = |v: u32| lane / 4 + 8 * (v / 2) + (lane % 4 * 2 + v % 2) * 10;
            let place = out + lane.mul_wide(16);
            if matches!(types, MmaTypes::Int8 { .. }) {
                let c = [0, 1, 2, 3].map(|v| number(v).bits_as::<i32>());
                f.store_global(place, 0, f.multiply(types, a, b, c));
            } else {
                let c = [0, 1, 2, 3].map(|v| number(v).cast::<f32>());
                f.store_global(place, 0, f.multiply(types, a, b, c));
            }
        });
        let input: Vec<u8> = (0..32)
            .flat_map(|lane| [fragment(lane, 4, &a), fragment(lane, 2, &b), vec![0; 2]].concat())
            .flat_map(u32::to_le_bytes)
            .collect();
        let mut memory = Memory::new();
        let (input, out) = (memory.upload(&input), memory.allocate(512));
        run(&program, 1, &[input.into(), out.into()], &memory);
        for (index, bits) in (0i32..).zip(words(&memory, out, 128)) {
            let (lane, v) = (index / 4, index % 4);
            let want = want(lane / 4 + 8 * (v / 2), lane % 4 * 2 + v % 2, depth);
            let got = if width == 8 { bits.cast_signed() } else { f32::from_bits(bits) as i32 };
            assert_eq!(got, want, "{types:?}, lane {lane}, element {v}");
        }
    }
}

/// The same in f64: A(m, k) = m - k, B(k, n) = k + 2n - 3, C(m, n) = m + 10n.
#[test]
fn products_of_a_warp_in_f64() {
    let program = kernel(32, 1, |f| {
        let (out, lane) = (f.param::<u64>("out"), f.special(Special::Lane));
        let (g, c) = ((lane / 4).cast::<f64>(), (lane % 4).cast::<f64>());
        let a = [0u8, 1, 2, 3].map(|v| g + f64::from(8 * (v % 2)) - c - f64::from(4 * (v / 2)));
        let b = [0u8, 1].map(|v| c + f64::from(4 * v) + g * 2.0 - 3.0);
        let row = |v: u8| g + f64::from(8 * (v / 2));
        let addend = [0u8, 1, 2, 3].map(|v| row(v) + (c * 2.0 + f64::from(v % 2)) * 10.0);
        let [d0, d1, d2, d3] = f.multiply(MmaTypes::F64, a, b, addend);
        f.store_global(out + lane.mul_wide(32), 0, [d0, d1]);
        f.store_global(out + lane.mul_wide(32), 16, [d2, d3]);
    });
    let mut memory = Memory::new();
    let out = memory.allocate(1024);
    run(&program, 1, &[out.into()], &memory);
    let bytes = memory.read(out, 1024).unwrap();
    for (index, bytes) in (0i32..).zip(bytes.chunks_exact(8)) {
        let (lane, v) = (index / 4, index % 4);
        let (m, n) = (lane / 4 + 8 * (v / 2), lane % 4 * 2 + v % 2);
        let want = (0..8).map(|k| (m - k) * (k + 2 * n - 3)).sum::<i32>() + m + 10 * n;
        assert_eq!(
            f64::from_le_bytes(bytes.try_into().unwrap()),
            f64::from(want),
            "lane {lane}, element {v}"
        );
    }
}

#[test]
fn copies_by_threads_through_groups_and_barriers() {
    // Copies of 16, 8 and 4 bytes in two groups. The last copy reads 3 of its 4 bytes. Then the same through
    // an mbarrier.
    for through_barrier in [false, true] {
        let program = kernel(32, 1, |f| {
            let (input, out) = (f.param::<u64>("input"), f.param::<u64>("out"));
            let (base, lane) = (f.shared_base(), f.special(Special::Lane));
            let barrier = base + 2048;
            f.if_(lane.equals(0), || f.mbarrier_init(barrier, 32));
            f.warp_sync();
            let source = input + lane.mul_wide(32);
            f.copy_async(16, base + lane * 32, (source, 0), None);
            f.copy_commit();
            f.copy_async(8, base + lane * 32 + 16, (source, 16), None);
            f.copy_async(4, base + lane * 32 + 24, (source, 24), None);
            f.copy_async(4, base + lane * 32 + 28, (source, 28), Some(f.constant(3u32)));
            f.copy_commit();
            if through_barrier {
                f.copy_arrive(barrier);
                f.mbarrier_wait(barrier, 0);
            } else {
                f.copy_wait(1);
                let first: [_; 4] = f.load_shared_vector::<u32, 4>(base + lane * 32, 0);
                f.store_global(out + lane.mul_wide(32), 0, first);
                f.copy_wait(0);
            }
            for half in [0, 16] {
                let words: [_; 4] = f.load_shared_vector::<u32, 4>(base + lane * 32, half);
                f.store_global(out + lane.mul_wide(32), half, words);
            }
        });
        for (schedule, seed) in Schedule::sweep(3) {
            let mut memory = Memory::new();
            let bytes: Vec<u8> = (0..1024u32).map(|i| (i * 7 + 1) as u8).collect();
            let (input, out) = (memory.upload(&bytes), memory.allocate(1024));
            let options = Options { schedule, seed, ..Options::default() };
            program.launch(Grid { ctas: [1; 3] }, &[input.into(), out.into()], &memory, &options).unwrap();
            let want: Vec<u8> =
                bytes.iter().enumerate().map(|(i, &byte)| if i % 32 == 31 { 0 } else { byte }).collect();
            assert_eq!(memory.read(out, 1024).unwrap(), want, "{schedule:?}");
        }
    }
}
