//! Control flow, exchanges between lanes, instructions of the epilogue, rings of stages, grids, and clipped
//! tensor copies.

#![allow(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use emulator::{EmulatorError, Failure, Memory, Options, Program, Report, Schedule};
use ptx::abi::{Argument, ArgumentError, Grid, Promotion, TensorElement, TensorMap, TensorSwizzle};
use ptx::inst::ProxySpace;
use ptx::{Builder, Entry, Function, LoadOrder, Location, Special, StoreOrder, Target, TensorLoad, Value};

/// A kernel with `shared` bytes of shared memory.
fn kernel(threads: u32, shared: u32, cluster: [u32; 3], body: impl FnOnce(&Builder)) -> Program {
    let entry = Entry { name: "test".into(), target: Target::Sm90a, threads, shared_bytes: shared, cluster };
    Program::new(&Function::build(entry, body).verify().unwrap())
}

fn run(program: &Program, ctas: [u32; 3], arguments: &[Argument], memory: &Memory) -> Report {
    let launched = program.launch(Grid { ctas }, arguments, memory, &Options::default());
    launched.unwrap_or_else(|failure| panic!("{failure}"))
}

fn words(memory: &Memory, address: u64, count: usize) -> Vec<u32> {
    let bytes = memory.read(address, count * 4).unwrap();
    bytes.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect()
}

/// Runs one warp in which each lane computes a word, and returns the words.
fn lanes(body: impl FnOnce(&Builder, Value<'_, u32>, &dyn Fn(Value<'_, u32>))) -> Vec<u32> {
    let program = kernel(32, 1024, [1, 1, 1], |f| {
        let out = f.param::<u64>("out");
        let lane = f.special(Special::Lane);
        let put = |value: Value<'_, u32>| {
            f.emit(ptx::Inst::Store {
                space: ptx::Space::Global,
                ty: ptx::Type::U32,
                src: vec![value.operand()],
                address: ptx::inst::Address { base: (out + lane.mul_wide(4)).operand(), offset: 0 },
            });
        };
        body(f, lane, &put);
    });
    let mut memory = Memory::new();
    let out = memory.allocate(128);
    run(&program, [1, 1, 1], &[out.into()], &memory);
    words(&memory, out, 32)
}

#[test]
fn lanes_part_and_meet() {
    // Steps of the Collatz sequence, with a second exit of the loop inside a branch.
    let got = lanes(|f, lane, put| {
        let (n, steps) = (f.variable(lane + 1), f.variable(0u32));
        f.loop_(|| {
            f.break_if(n.get().equals(1));
            f.if_else(
                (n.get() & 1).equals(1),
                || {
                    f.break_if(steps.get().at_least(20));
                    n.set(n.get() * 3 + 1);
                },
                || n.set(n.get() / 2),
            );
            steps.set(steps.get() + 1);
        });
        put(steps.get() * 1000 + f.shuffle(steps.get(), 2));
    });
    let steps = |mut n: u32| {
        let mut steps = 0;
        while n != 1 && !(n % 2 == 1 && steps >= 20) {
            n = if n % 2 == 1 { n * 3 + 1 } else { n / 2 };
            steps += 1;
        }
        steps
    };
    let want: Vec<u32> = (1..=32).map(|n| steps(n) * 1000 + steps(3)).collect();
    assert_eq!(got, want);
}

#[test]
fn nested_loops_with_different_trips() {
    let got = lanes(|f, lane, put| {
        let total = f.variable(0u32);
        f.repeat(lane % 5, |i| {
            f.repeat(i + lane % 3, |j| total.set(total.get() + i * 10 + j));
            f.if_(i.equals(2), || total.set(total.get() + 1000));
        });
        put(total.get());
    });
    for (lane, got) in (0u32..).zip(got) {
        let mut want = 0;
        for i in 0..lane % 5 {
            want += (0..i + lane % 3).map(|j| i * 10 + j).sum::<u32>() + if i == 2 { 1000 } else { 0 };
        }
        assert_eq!(got, want, "lane {lane}");
    }
}

#[test]
fn exchanges() {
    let exclusive = lanes(|f, lane, put| put(f.shuffle_xor(lane * lane, 5)));
    assert_eq!(exclusive, (0..32).map(|lane: u32| (lane ^ 5) * (lane ^ 5)).collect::<Vec<_>>());
    let elected = lanes(|f, lane, put| put((lane + 1).where_or(f.elect(), 0u32)));
    assert_eq!(elected.iter().filter(|&&lane| lane != 0).count(), 1, "exactly one");
}

#[test]
fn stored_matrices() {
    // Register j of lane l holds elements 2 l and 2 l + 1 of matrix j, counted row by row: 100 j + 2 l and
    // the next number.
    for (count, transpose) in [(1, false), (2, false), (4, false), (1, true), (4, true)] {
        let got = lanes(|f, lane, put| {
            let base = f.shared_base();
            let zero = f.constant(0u32);
            f.store_shared(base + lane * 16, 0, [zero; 4]);
            f.warp_sync();
            let register = |j: u32| (lane * 2 + 100 * j) | (lane * 2 + (100 * j + 1)) << 16;
            let address = base + lane * 16;
            match count {
                1 => f.store_matrix(address, [register(0)], transpose),
                2 => f.store_matrix(address, [register(0), register(1)], transpose),
                _ => f.store_matrix(
                    address,
                    core::array::from_fn::<_, 4, _>(|j| register(j as u32)),
                    transpose,
                ),
            }
            f.warp_sync();
            let pieces: [Value<'_, u32>; 4] = f.load_shared_vector(base + lane * 16, 0);
            // Lane 8 j + r has row r of matrix j in 16 bytes: combine its words into one checksum.
            put(pieces[0] ^ (pieces[1] * 3) ^ (pieces[2] * 5) ^ (pieces[3] * 7));
        });
        for (lane, got) in got.into_iter().enumerate() {
            let (matrix, row) = (lane / 8, lane % 8);
            let element = |column: usize| {
                let (r, c) = if transpose { (column, row) } else { (row, column) };
                if matrix < count { (100 * matrix + 8 * r + c) as u32 } else { 0 }
            };
            let word = |i: usize| element(2 * i) | element(2 * i + 1) << 16;
            let want = word(0) ^ word(1).wrapping_mul(3) ^ word(2).wrapping_mul(5) ^ word(3).wrapping_mul(7);
            assert_eq!(got, want, "{count} matrices, transposed {transpose}, lane {lane}");
        }
    }
}

#[test]
fn two_warps_and_a_ring() {
    // Warp 0 puts squares into a ring of 2 stages, and warp 1 sums them. The mbarriers are "full" and
    // "empty".
    let program = kernel(64, 1024, [1, 1, 1], |f| {
        let (out, count) = (f.param::<u64>("out"), f.param::<u32>("count"));
        let (base, thread) = (f.shared_base(), f.special(Special::ThreadX));
        let warp = f.warp_index();
        f.if_(thread.equals(0), || {
            for barrier in 0..4 {
                f.mbarrier_init(base + 512 + barrier * 8, 32);
            }
        });
        f.barrier_sync(0, 64);
        f.if_else(
            warp.equals(0),
            || {
                f.repeat(count, |i| {
                    let full = base + 512 + (i % 2) * 8;
                    f.mbarrier_wait(full + 16, (i / 2 + 1) & 1);
                    f.store_shared(base + (i % 2) * 128 + (thread % 32) * 4, 0, [i * i + thread]);
                    f.mbarrier_arrive(full);
                });
            },
            || {
                let sum = f.variable(0u32);
                f.repeat(count, |i| {
                    let full = base + 512 + (i % 2) * 8;
                    f.loop_(|| f.break_if(f.mbarrier_try_wait(full, (i / 2) & 1)));
                    let other = (thread % 32) ^ 7;
                    let [value] = f.load_shared_vector::<u32, 1>(base + (i % 2) * 128 + other * 4, 0);
                    sum.set(sum.get() + value);
                    f.mbarrier_arrive(full + 16);
                });
                f.store_global(out + (thread % 32).mul_wide(4), 0, [sum.get()]);
            },
        );
    });
    for seed in 0..20 {
        for schedule in [Schedule::Default, Schedule::Latest, Schedule::Random] {
            let mut memory = Memory::new();
            let out = memory.allocate(128);
            let options = Options { seed, schedule, ..Options::default() };
            let arguments = [out.into(), 25u32.into()];
            program.launch(Grid { ctas: [1, 1, 1] }, &arguments, &memory, &options).unwrap();
            let squares: u32 = (0..25).map(|i| i * i).sum();
            let want: Vec<u32> = (0..32).map(|lane| squares + 25 * (lane ^ 7)).collect();
            assert_eq!(words(&memory, out, 32), want, "{options:?}");
        }
    }
}

#[test]
fn images_of_tensor_loads() {
    // The value of each element is its coordinates. The image in shared memory is read back byte by byte.
    for (swizzle, bits) in
        [(TensorSwizzle::None, 0), (TensorSwizzle::B32, 1), (TensorSwizzle::B64, 2), (TensorSwizzle::B128, 3)]
    {
        let columns = swizzle.span().unwrap_or(48) / 2;
        let (rows, planes) = (12u32, 2u32);
        let bytes = columns * rows * planes * 2;
        let padded = bytes.next_multiple_of(128);
        let program = kernel(32, 512 + padded + 8, [1, 1, 1], |f| {
            let (map, out_map) = (f.tensor_map("map"), f.tensor_map("out_map"));
            let (out, lane) = (f.param::<u64>("out"), f.special(Special::Lane));
            let base = f.shared_base();
            // Not at the beginning of a swizzle pattern: the swizzle uses the absolute address.
            let (image, barrier) = (base + 128, base + (512 + padded));
            f.if_(lane.equals(0), || {
                f.mbarrier_init(barrier, 1);
                f.fence_mbarrier_init();
                let load = TensorLoad { map, dst: image, barrier, multicast: None, hint: None };
                f.tensor_load(load, [f.constant(-8), f.constant(-1), f.constant(1)]);
                f.mbarrier_arrive_expect(barrier, bytes);
            });
            f.warp_sync();
            f.mbarrier_wait(barrier, 0);
            f.repeat(f.constant((bytes / 4).div_ceil(32)), |turn| {
                // The lanes read the image together, 32 words at a time.
                let i = turn * 32 + lane;
                f.if_(i.less_than(bytes / 4), || {
                    let [word] = f.load_shared_vector::<u32, 1>(image + i * 4, 0);
                    f.store_global(out + i.mul_wide(4), 0, [word]);
                });
            });
            f.if_(lane.equals(0), || {
                f.tensor_store(out_map, image, [f.constant(0), f.constant(0), f.constant(1)]);
                f.bulk_commit();
                f.bulk_wait(0, false);
            });
        });
        let mut memory = Memory::new();
        // Outside the tensor are eight columns before and four after it, two rows and one plane of the loaded
        // box.
        let (width, height, depth) = (columns - 12, rows - 2, planes);
        let stride = (width * 2).next_multiple_of(16) + 16;
        let value = |x: u32, y: u32, z: u32| (1 + x + y * 100 + z * 5000) as u16;
        let mut tensor = vec![0xEE; (stride * height * depth) as usize];
        for (x, y, z) in
            (0..depth).flat_map(|z| (0..height).flat_map(move |y| (0..width).map(move |x| (x, y, z))))
        {
            let at = ((z * height + y) * stride + x * 2) as usize;
            tensor[at..at + 2].copy_from_slice(&value(x, y, z).to_le_bytes());
        }
        let address = memory.upload(&tensor);
        let copy = memory.upload(&vec![0xAA; tensor.len()]);
        let out = memory.allocate(bytes as usize);
        let map = |address| TensorMap {
            element: TensorElement::F16,
            address,
            dims: vec![width.into(), height.into(), depth.into()],
            strides: vec![stride.into(), (stride * height).into()],
            box_dims: vec![columns, rows, planes],
            swizzle,
            promotion: Promotion::default(),
            reach: None,
        };
        let arguments = [map(address).into(), map(copy).into(), out.into()];
        run(&program, [1, 1, 1], &arguments, &memory);
        let image = memory.read(out, bytes as usize).unwrap();
        let written = memory.read(copy, tensor.len()).unwrap();
        let loaded = |x: u32, y: u32, z: u32| {
            let inside = (8..columns - 4).contains(&x) && (1..rows - 1).contains(&y) && z == 0;
            if inside { value(x - 8, y - 1, 1) } else { 0 }
        };
        for index in 0..bytes / 2 {
            let (x, y, z) = (index % columns, index / columns % rows, index / columns / rows);
            let want = loaded(x, y, z);
            let linear = 0x400 + 128 + index * 2;
            let physical = linear ^ ((linear >> 7) & ((1 << bits) - 1)) << 4;
            let at = (physical - 0x400 - 128) as usize;
            assert_eq!(u16::from_le_bytes([image[at], image[at + 1]]), want, "{swizzle:?} ({x}, {y}, {z})");
        }
        for (z, y, x) in
            (0..depth).flat_map(|z| (0..height).flat_map(move |y| (0..stride / 2).map(move |x| (z, y, x))))
        {
            let at = ((z * height + y) * stride + x * 2) as usize;
            // The box extends past the tensor. A store writes up to the end of the 16-byte chunk in which the
            // tensor ends.
            let stored = z == 1 && x < width.next_multiple_of(8);
            let want = if stored { loaded(x, y, 0) } else { 0xAAAA };
            assert_eq!(
                u16::from_le_bytes([written[at], written[at + 1]]),
                want,
                "{swizzle:?} copy ({x}, {y}, {z})"
            );
        }
    }
}

#[test]
fn a_multicast_reaches_every_cta_of_the_mask() {
    let program = kernel(32, 2048, [4, 1, 1], |f| {
        let (map, out) = (f.tensor_map("map"), f.param::<u64>("out"));
        let (base, lane, rank) = (f.shared_base(), f.special(Special::Lane), f.special(Special::ClusterRank));
        let barrier = base + 1024;
        f.if_(lane.equals(0), || {
            f.mbarrier_init(barrier, 1);
            f.fence_mbarrier_init();
            f.if_((rank & 1).equals(1), || f.mbarrier_arrive_expect(barrier, 256u32));
        });
        f.cluster_arrive(true);
        f.cluster_wait();
        f.if_(rank.equals(0), || {
            f.if_(lane.equals(0), || {
                let multicast = Some(f.constant(0b1010u16));
                let load = TensorLoad { map, dst: base, barrier, multicast, hint: None };
                f.tensor_load(load, [f.constant(0), f.constant(0)]);
            });
        });
        f.if_((rank & 1).equals(1), || {
            f.mbarrier_wait(barrier, 0);
            let [word] = f.load_shared_vector::<u32, 1>(base + lane * 4, 0);
            f.store_global(out + (rank * 32 + lane).mul_wide(4), 0, [word + rank]);
        });
        f.cluster_arrive(false);
        f.cluster_wait();
    });
    let mut memory = Memory::new();
    let address = memory.upload(&(0u32..64).flat_map(u32::to_le_bytes).collect::<Vec<_>>());
    let out = memory.allocate(4 * 128);
    let map = TensorMap {
        element: TensorElement::F32,
        address,
        dims: vec![32, 2],
        strides: vec![128],
        box_dims: vec![32, 2],
        swizzle: TensorSwizzle::None,
        promotion: Promotion::default(),
        reach: None,
    };
    run(&program, [4, 1, 1], &[map.into(), out.into()], &memory);
    for rank in [1u32, 3] {
        let want: Vec<u32> = (0..32).map(|word| word + rank).collect();
        assert_eq!(words(&memory, out + u64::from(rank) * 128, 32), want);
    }
    assert!(!memory.written(out, 4), "rank 0 was not in the mask");
}

#[test]
fn every_cta_knows_its_place() {
    let program = kernel(32, 0, [2, 2, 1], |f| {
        let out = f.param::<u64>("out");
        let special = |one| f.special(one);
        let (x, y, z) = (special(Special::CtaX), special(Special::CtaY), special(Special::CtaZ));
        let (gx, gy) = (special(Special::GridX), special(Special::GridY));
        let index = x + gx * (y + gy * z);
        let place = special(Special::ClusterRank)
            + special(Special::ClusterX) * 16
            + special(Special::ClusterSize) * 256;
        f.store_global(out + index.mul_wide(4), 0, [place]);
    });
    for threads in [0, 1, 2] {
        let mut memory = Memory::new();
        let out = memory.allocate(4 * 6 * 4 * 2);
        let done = std::sync::Mutex::new(Vec::new());
        let progress = |ctas, total| done.lock().unwrap().push((ctas, total));
        let options = Options { threads, progress: Some(&progress), ..Options::default() };
        let report = program.launch(Grid { ctas: [6, 4, 2] }, &[out.into()], &memory, &options).unwrap();
        assert_eq!(report.ctas, 48);
        for (index, place) in (0u32..).zip(words(&memory, out, 48)) {
            let (x, y) = (index % 6, index / 6 % 4);
            assert_eq!(place, (x % 2 + y % 2 * 2) + x / 2 * 16 + 4 * 256, "({x}, {y})");
        }
        assert_eq!(done.lock().unwrap().last(), Some(&(48, 48)));
    }
}

#[test]
fn arguments_and_grids_are_checked() {
    let program = kernel(32, 0, [2, 1, 1], |f| {
        let _out = f.param::<u64>("out");
    });
    let memory = Memory::new();
    let launch = |ctas, arguments: &[Argument]| {
        program.launch(Grid { ctas }, arguments, &memory, &Options::default()).unwrap_err()
    };
    assert!(matches!(
        launch([2, 1, 1], &[]),
        Failure::Argument(ArgumentError::Count { needed: 1, given: 0 })
    ));
    assert!(matches!(launch([2, 1, 1], &[1u32.into()]), Failure::Argument(ArgumentError::Kind { .. })));
    for ctas in [[3, 1, 1], [0, 1, 1], [2, 0, 1]] {
        assert!(matches!(launch(ctas, &[0u64.into()]), Failure::Emulator(EmulatorError::Grid { .. })));
    }
}

#[test]
fn generic_stores_reach_a_tensor_store() {
    let program = kernel(32, 1024, [1, 1, 1], |f| {
        let (map, lane) = (f.tensor_map("map"), f.special(Special::Lane));
        let base = f.shared_base();
        // The box is wider than the rest of the tensor. The bytes outside need not be written.
        f.if_(lane.less_than(12), || f.store_shared(base + lane * 4, 0, [lane]));
        f.fence_proxy_async(ProxySpace::Shared);
        f.warp_sync();
        f.if_(f.elect(), || {
            f.tensor_store(map, base, [f.constant(28)]);
            f.bulk_commit();
            f.bulk_wait(0, true);
        });
    });
    for schedule in [Schedule::Default, Schedule::Earliest, Schedule::Latest, Schedule::Random] {
        let mut memory = Memory::new();
        let out = memory.allocate(40 * 4);
        let map = TensorMap {
            element: TensorElement::F32,
            address: out,
            dims: vec![40],
            strides: vec![],
            box_dims: vec![32],
            swizzle: TensorSwizzle::None,
            promotion: Promotion::default(),
            reach: None,
        };
        let options = Options { schedule, ..Options::default() };
        program.launch(Grid { ctas: [1, 1, 1] }, &[map.into()], &memory, &options).unwrap();
        assert_eq!(words(&memory, out + 112, 12), (0..12).collect::<Vec<_>>(), "{schedule:?}");
        assert!(!memory.written(out + 108, 4), "nothing before the box");
    }
}

#[test]
fn a_poll_of_global_memory_does_not_hold_copies_up() {
    // Warp 0 polls a word that warp 1 writes once its tensor load has completed.
    let program = kernel(64, 1024, [1, 1, 1], |f| {
        let (map, flag) = (f.tensor_map("map"), f.param::<u64>("flag"));
        let (base, thread) = (f.shared_base(), f.special(Special::ThreadX));
        let (warp, barrier) = (f.warp_index(), base + 512);
        f.if_else(
            warp.equals(0),
            || {
                f.loop_(|| {
                    let [seen] = f.load_ordered::<u32, 1>(LoadOrder::Volatile, Location::global(flag, 0));
                    f.break_if(seen.equals(1));
                });
            },
            || {
                f.if_(thread.equals(32), || {
                    f.mbarrier_init(barrier, 1);
                    f.fence_mbarrier_init();
                    f.mbarrier_arrive_expect(barrier, 128u32);
                    let load = TensorLoad { map, dst: base, barrier, multicast: None, hint: None };
                    f.tensor_load(load, [f.constant(0)]);
                    f.mbarrier_wait(barrier, 0);
                    f.store_ordered(StoreOrder::Volatile, Location::global(flag, 0), [f.constant(1u32)]);
                });
            },
        );
    });
    for schedule in [Schedule::Default, Schedule::Earliest, Schedule::Latest, Schedule::Random] {
        let mut memory = Memory::new();
        let (data, flag) = (memory.upload(&[0; 128]), memory.upload(&[0; 4]));
        let map = TensorMap {
            element: TensorElement::F32,
            address: data,
            dims: vec![32],
            strides: vec![],
            box_dims: vec![32],
            swizzle: TensorSwizzle::None,
            promotion: Promotion::default(),
            reach: None,
        };
        let options = Options { schedule, fuel: 1 << 20, ..Options::default() };
        program.launch(Grid { ctas: [1, 1, 1] }, &[map.into(), flag.into()], &memory, &options).unwrap();
    }
}

#[test]
fn a_long_loop_around_polls_lets_other_ctas_run() {
    // CTA 0 polls two words, and computes something between its looks. CTA 1 writes them.
    let program = kernel(32, 0, [1, 1, 1], |f| {
        let (flags, sum) = (f.param::<u64>("flags"), f.variable(0u32));
        let at = |i: i32| Location::global(flags, 4 * i);
        f.if_else(
            f.special(Special::CtaX).equals(0),
            || {
                f.loop_(|| {
                    let seen = [0, 1]
                        .map(|i| f.load_ordered::<u32, 1>(LoadOrder::Relaxed(ptx::Scope::Gpu), at(i))[0]);
                    (0..200).for_each(|i| sum.set(sum.get() * 3 + i));
                    f.break_if((seen[0] & seen[1]).equals(1));
                });
                f.store_global(flags, 8, [sum.get()]);
            },
            || {
                for i in [0, 1] {
                    f.store_ordered(StoreOrder::Relaxed(ptx::Scope::Gpu), at(i), [f.constant(1u32)]);
                }
            },
        );
    });
    for schedule in
        [Schedule::Default, Schedule::Earliest, Schedule::Latest, Schedule::Paced, Schedule::Random]
    {
        let mut memory = Memory::new();
        let flags = memory.upload(&[0; 12]);
        let options = Options { schedule, threads: 1, fuel: 1 << 20, ..Options::default() };
        program.launch(Grid { ctas: [2, 1, 1] }, &[flags.into()], &memory, &options).unwrap();
    }
}

#[test]
fn a_launch_ends_soon_after_it_is_stopped() {
    // Loops for hours, and CTAs that wait for others for ever.
    let endless = kernel(64, 0, [1, 1, 1], |f| {
        let (n, sum) = (f.variable(0u32), f.variable(0u32));
        f.loop_(|| {
            n.set(n.get() + 1);
            f.break_if(n.get().equals(u32::MAX));
            sum.set(sum.get() * 3 + n.get());
        });
    });
    let polls = kernel(32, 0, [1, 1, 1], |f| {
        let flag = f.param::<u64>("flag");
        f.loop_(|| {
            let order = LoadOrder::Acquire(ptx::Scope::Gpu);
            let [seen] = f.load_ordered::<u32, 1>(order, Location::global(flag, 4));
            f.break_if(seen.differs_from(0));
        });
    });
    let mut memory = Memory::new();
    let flag = memory.upload(&[0; 4]);
    let schedules = [Schedule::Default, Schedule::Latest, Schedule::Paced, Schedule::Random];
    for (schedule, threads) in schedules.into_iter().flat_map(|schedule| [1, 3].map(|of| (schedule, of))) {
        for (program, arguments) in [(&endless, &[][..]), (&polls, &[flag.into()])] {
            let stop = AtomicBool::new(false);
            let options =
                Options { schedule, threads, fuel: u64::MAX, stop: Some(&stop), ..Options::default() };
            let launched = std::thread::scope(|scope| {
                let run = || program.launch(Grid { ctas: [4, 1, 1] }, arguments, &memory, &options);
                let run = scope.spawn(run);
                std::thread::sleep(Duration::from_millis(5));
                stop.store(true, Ordering::Relaxed);
                let asked = Instant::now();
                let launched = run.join().unwrap();
                assert!(asked.elapsed() < Duration::from_millis(500), "{schedule:?}: {:?}", asked.elapsed());
                launched
            });
            // Who polls in vain may have been found before.
            let hangs = arguments.len() == 1 && matches!(launched, Err(Failure::Trap(_)));
            assert!(hangs || matches!(launched, Err(Failure::Stopped { ctas: 0, of: 4 })), "{launched:?}");
        }
    }
}
