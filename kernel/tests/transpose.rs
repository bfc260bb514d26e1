//! Matrices of any extents, element sizes, leading dimensions and addresses are transposed. Memory around
//! them stays unchanged.

#[cfg(feature = "driver")]
#[path = "support/skipped.rs"]
mod skipped;

use collective::{Format, MatrixRef};
use cute_rs::atom::Major;
use emulator::{Memory, Options, Program, Recorder, Schedule};
use kernel::{
    Call, Emulator, Engine, GemmProblem, Kernel, LaunchError, Machine, Request, Transpose, Transposition,
    Types, fastest,
};

/// Elements between a multiple of 128 B and the matrix, and from the end of a row to the next.
struct Gaps {
    before: u64,
    beside: u64,
}

/// One or several matrices in memory.
struct Placed {
    bytes: usize,
    lines: usize,
    ld: usize,
    stride: usize,
    count: usize,
    before: usize,
}

impl Placed {
    fn new(bytes: u32, [lines, contiguous]: [u32; 2], count: u32, Gaps { before, beside }: &Gaps) -> Self {
        let ld = contiguous as usize + *beside as usize;
        // The matrices of a batch are separated by a row and a gap.
        let stride = (lines as usize + 1) * ld + *beside as usize;
        let [bytes, lines, count, before] =
            [bytes as usize, lines as usize, count as usize, *before as usize];
        Self { bytes, lines, ld, stride, count, before }
    }

    fn len(&self) -> usize {
        (self.before + self.count * self.stride + 16) * self.bytes
    }

    fn at(&self, z: usize, line: usize, place: usize) -> usize {
        assert!(line < self.lines && z < self.count);
        (self.before + z * self.stride + line * self.ld + place) * self.bytes
    }

    fn of(&self, address: u64) -> MatrixRef {
        let stride = if self.count > 1 { self.stride as u64 } else { 0 };
        MatrixRef::new(address + (self.before * self.bytes) as u64, self.ld as u64).every(stride)
    }
}

fn format(bytes: u32) -> Format {
    match bytes {
        1 => Format::E4m3,
        2 => Format::Bf16,
        4 => Format::Tf32,
        _ => Format::F64,
    }
}

/// Transposes random bytes and compares all of the target's memory.
fn check(engine: &mut dyn Engine, bytes: u32, [rows, columns]: [u32; 2], count: u32, gaps: &[Gaps; 2]) {
    let a = Placed::new(bytes, [rows, columns], count, &gaps[0]);
    let d = Placed::new(bytes, [columns, rows], count, &gaps[1]);
    let mut random = bytes_of(rows ^ columns << 8 ^ bytes << 24);
    let source: Vec<u8> = (0..a.len()).map(|_| random()).collect();
    let mut wanted: Vec<u8> = (0..d.len()).map(|_| random()).collect();
    let (from, to) = (engine.upload(&source).expect("memory"), engine.upload(&wanted).expect("memory"));
    let (a_ref, d_ref) = (a.of(from.address), d.of(to.address));
    let transpose = Transpose::of(format(bytes)).expect("a width that there is");
    let what = Transposition { rows, columns, count, a: a_ref, d: d_ref };
    transpose.run(engine, &what).unwrap_or_else(|error| panic!("{error}"));
    let width = bytes as usize;
    for z in 0..count as usize {
        for row in 0..rows as usize {
            for column in 0..columns as usize {
                let (at, place) = (a.at(z, row, column), d.at(z, column, row));
                wanted[place..place + width].copy_from_slice(&source[at..at + width]);
            }
        }
    }
    let got = engine.read(to).expect("read");
    assert!(got == wanted, "{rows} x {columns} x {count} of {bytes} B, {what:?}");
    engine.free(from).and(engine.free(to)).expect("the engine's");
}

/// Pseudo-random bytes.
fn bytes_of(seed: u32) -> impl FnMut() -> u8 {
    let mut state = seed | 1;
    move || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    }
}

/// Every element size at every kind of address.
fn everywhere(engine: &mut dyn Engine) {
    let none = || Gaps { before: 0, beside: 0 };
    for bytes in [1, 2, 4, 8] {
        let chunk = u64::from(16 / bytes);
        for extents in [
            [1, 1],
            [1, 200],
            [300, 1],
            [7, 5],
            [16, 16],
            [128, 128 / bytes],
            [256, 128],
            [129, 127],
            [131, 258],
            [40, 520],
            [0, 5],
            [5, 0],
        ] {
            for gaps in [
                [none(), none()],
                // Rows begin at whole chunks, whatever the extents.
                [
                    Gaps { before: 0, beside: chunk - u64::from(extents[1]) % chunk },
                    Gaps { before: 0, beside: chunk - u64::from(extents[0]) % chunk },
                ],
                [
                    Gaps { before: 1, beside: 3 },
                    Gaps { before: chunk, beside: chunk - u64::from(extents[0]) % chunk },
                ],
                [Gaps { before: chunk, beside: chunk }, Gaps { before: 3, beside: 1 }],
            ] {
                check(engine, bytes, extents, 1, &gaps);
            }
        }
        for gaps in
            [[none(), none()], [Gaps { before: chunk, beside: 2 * chunk }, Gaps { before: 1, beside: 5 }]]
        {
            check(engine, bytes, [130, 64], 3, &gaps);
        }
    }
}

#[test]
fn every_shape_in_every_place() {
    everywhere(&mut Emulator::new());
}

#[cfg(feature = "driver")]
#[test]
fn a_card_does_the_same() {
    match kernel::Gpu::new(0) {
        Ok(mut gpu) => everywhere(&mut gpu),
        Err(_) => skipped::skipped("GPU"),
    }
}

#[test]
fn no_schedule_finds_a_hazard() {
    let gaps = || [Gaps { before: 0, beside: 0 }, Gaps { before: 0, beside: 0 }];
    for (schedule, seed) in Schedule::sweep(6) {
        let mut engine = Emulator::new().with_schedule(schedule, seed);
        for bytes in [1, 2, 4, 8] {
            // Whole tiles, and partial tiles in both directions.
            check(&mut engine, bytes, [256, 256 / bytes], 2, &gaps());
            check(&mut engine, bytes, [150, 141], 1, &gaps());
        }
    }
}

/// More matrices than a grid has CTAs along z: each CTA's next tile uses the shared memory of the one before.
#[test]
fn more_matrices_than_a_grid_has() {
    let transpose = Transpose::of(Format::U8).expect("8 bits");
    let (a, d) = (MatrixRef::new(4096, 64), MatrixRef::new(1 << 30, 64));
    let what = Transposition { rows: 64, columns: 64, count: 100_000, a: a.every(4096), d: d.every(4096) };
    let launch = transpose.launch(&what, 1).expect("legal").expect("not empty");
    assert_eq!(launch.grid.ctas, [1, 1, 65535]);
    // The same with few CTAs.
    let (mut engine, count) = (Emulator::new(), 5);
    let source: Vec<u8> = (0..count * 4096).map(|i| (i * 7 / 3) as u8).collect();
    let from = engine.upload(&source).expect("memory");
    let to = engine.allocate(source.len()).expect("memory");
    let [a, d] = [from, to].map(|buffer| MatrixRef::new(buffer.address, 64).every(4096));
    let mut launch =
        transpose.launch(&Transposition { count, a, d, ..what }, 1).expect("legal").expect("not empty");
    launch.grid.ctas[2] = 2;
    engine.launch(&transpose.program().expect("legal"), launch.grid, &launch.arguments).expect("runs");
    let got = engine.read(to).expect("read");
    for (i, &byte) in got.iter().enumerate() {
        let (z, row, column) = (i / 4096, i / 64 % 64, i % 64);
        assert_eq!(byte, source[z * 4096 + column * 64 + row], "{i}");
    }
}

/// No access of a warp to shared memory takes more wavefronts than its bytes need.
#[test]
fn there_are_no_bank_conflicts() {
    for bytes in [1, 2, 4] {
        let (rows, columns) = (256, 384 / bytes);
        let transpose = Transpose::of(format(bytes)).expect("a width that there is");
        let mut memory = Memory::new();
        let from = memory.upload(&vec![1; (rows * columns * bytes) as usize]);
        let to = memory.allocate((rows * columns * bytes) as usize);
        let (a, d) = (MatrixRef::new(from, columns.into()), MatrixRef::new(to, rows.into()));
        let what = Transposition { rows, columns, count: 1, a, d };
        let launch = transpose.launch(&what, 1).expect("legal").expect("not empty");
        let program = transpose.program().expect("legal");
        let recorder = Recorder::default();
        let options = Options { trace: Some(&recorder), ..Options::default() };
        let program = Program::new(program.function());
        program.launch(launch.grid, &launch.arguments, &memory, &options).expect("runs");
        let shared = recorder.into_trace().shared;
        let names: Vec<&str> = shared.iter().map(|access| access.instruction).collect();
        assert!(names.iter().any(|name| name.contains("st")) && names.len() > 4, "{names:?}");
        for access in shared.iter().filter(|access| access.executed > 0) {
            assert_eq!(access.wavefronts, access.ideal, "{bytes} B: {access:?}");
        }
    }
}

#[test]
fn what_cannot_be_transposed_is_refused() {
    let transpose = Transpose::of(Format::Tf32).expect("32 bits");
    let legal = Transposition {
        rows: 30,
        columns: 20,
        count: 2,
        a: MatrixRef::new(4096, 20).every(600),
        d: MatrixRef::new(1 << 20, 30).every(600),
    };
    assert!(transpose.launch(&legal, 1).expect("legal").is_some());
    for (what, words) in [
        (Transposition { rows: 1 << 31, ..legal }, "M is 2147483648, it must be below 2147483648"),
        (Transposition { a: MatrixRef::NONE, ..legal }, "A is a null pointer"),
        (
            Transposition { d: MatrixRef::new(4098, 30).every(600), ..legal },
            "D begins at 0x1002, a multiple of 4 B",
        ),
        (
            Transposition { a: MatrixRef::new(4096, 19).every(600), ..legal },
            "A's leading dimension is 19 elements, at least 20",
        ),
        (
            Transposition { d: MatrixRef::new(1 << 40, 29).every(600), ..legal },
            "D's leading dimension is 29 elements, at least 30",
        ),
        (
            Transposition { a: MatrixRef::new(4096, 1 << 38).every(600), ..legal },
            "A's leading dimension is 1099511627776 B",
        ),
        (
            Transposition { a: MatrixRef::new(4096, 20).every(1 << 38), ..legal },
            "A's matrices lie 1099511627776 B from",
        ),
        (Transposition { d: MatrixRef::new(1 << 40, 30).every(599), ..legal }, "D's matrices of 20 x 30"),
        (Transposition { d: MatrixRef::new(1 << 40, 30), ..legal }, "overlap"),
        (Transposition { a: MatrixRef::new(u64::MAX - 3, 20), ..legal }, "ends beyond the last address"),
    ] {
        let error = transpose.launch(&what, 1).expect_err(words).to_string();
        assert!(error.contains(words), "`{words}`: {error}");
    }
    let huge = Transposition {
        rows: i32::MAX as u32,
        columns: i32::MAX as u32,
        count: 1,
        a: MatrixRef::new(4096, 1 << 31),
        d: MatrixRef::new(1 << 40, 1 << 31),
    };
    // There is no room for both in 64 bits.
    assert!(matches!(
        transpose.launch(&huge, 1),
        Err(LaunchError::TooManyTiles { .. } | LaunchError::Shared { .. } | LaunchError::End { .. })
    ));
}

/// What is transposed, where to, and at what cost; kernels multiply the result.
#[test]
fn requests_become_k_major() {
    let problem = GemmProblem { m: 1000, n: 520, k: 208 };
    let card = Machine::h200();
    for (types, bytes) in [
        (Types::of(Format::E4m3), 1),
        (Types::of(Format::E4m3).with_b(Format::E5m2).scaled([1, 128]), 1),
        (Types::of(Format::S8), 1),
        (Types::of(Format::Tf32), 4),
    ] {
        for majors in [[Major::Mn, Major::K], [Major::K, Major::Mn], [Major::Mn, Major::Mn]] {
            let request = Request::packed(types, majors, problem);
            assert!(fastest(&request, &card).is_err(), "{types} {majors:?}: no instruction does");
            let first = request.k_major(1 << 24);
            let elements = [1000, 520].into_iter().zip(majors).filter(|(_, major)| *major == Major::Mn);
            let elements: u64 = elements.map(|(mn, _)| mn * 208).sum();
            assert_eq!(first.traffic(), 2 * elements * bytes, "{types} {majors:?}");
            assert!(first.microseconds(&card) > first.traffic() as f64 / card.dram);
            let transposes = first.operands.iter().flatten().count();
            assert_eq!(transposes, majors.iter().filter(|&&major| major == Major::Mn).count());
            assert!(fastest(&first.request, &card).is_ok(), "{types} {majors:?}");
            assert_eq!(first.request.majors, [Major::K; 2]);
            let batch = request.batched(3).k_major(1 << 24);
            assert_eq!(batch.traffic(), 3 * first.traffic(), "{types} {majors:?}");
            assert!(batch.workspace >= 3 * elements * bytes);
            assert!(fastest(&batch.request, &card).is_ok(), "{types} {majors:?}");
        }
        assert!(Request::packed(types, [Major::K; 2], problem).k_major(1 << 24).is_empty());
    }
    // Operands that need no transpose, and operands that the host does not know.
    assert!(Request::packed(Format::Bf16, [Major::Mn; 2], problem).k_major(1 << 24).is_empty());
    let shapes = [problem];
    let grouped = Request::packed(Format::E4m3, [Major::Mn; 2], problem).grouped(&shapes);
    assert!(grouped.k_major(1 << 24).is_empty());
}

/// Three GEMMs with one B, on the emulator: each A is transposed, and B once.
#[test]
fn a_batch_is_multiplied_whatever_its_directions() {
    let problem = GemmProblem { m: 72, n: 40, k: 100 };
    let GemmProblem { m, n, k } = problem;
    let mut random = bytes_of(3);
    let mut small = |count: u32| -> Vec<u8> { (0..count).map(|_| random() % 5).collect() };
    // A (K, M) and B (K, N), row-major.
    let (a, b) = (small(3 * k * m), small(k * n));
    let mut engine = Emulator::new();
    let (a_at, b_at) = (engine.upload(&a).expect("memory"), engine.upload(&b).expect("memory"));
    let d_at = engine.allocate((3 * m * n * 4) as usize).expect("memory");
    let request = Request::packed(Format::S8, [Major::Mn; 2], problem).batched(3);
    let call = Call { d: MatrixRef::new(d_at.address, n.into()).every((m * n).into()), ..request.call };
    let call = Call { b: MatrixRef::new(b_at.address, n.into()), ..call };
    let call = Call { a: MatrixRef::new(a_at.address, m.into()).every((k * m).into()), ..call };
    let request = Request { call, ..request };
    let bytes = request.k_major(0).workspace;
    let workspace = engine.allocate(bytes as usize).expect("memory");
    let first = request.k_major(workspace.address);
    for (transpose, what) in first.operands.iter().flatten() {
        transpose.run(&mut engine, what).expect("runs");
    }
    let gemm = fastest(&first.request, &Machine::h200()).expect("K-major").gemm;
    let program = gemm.program().expect("legal");
    let resident = engine.resident_clusters(&program).expect("an emulator");
    let own = engine.workspace(gemm.workspace(&first.request.call, resident)).expect("memory");
    let call = Call { workspace: own, ..first.request.call };
    let launch = gemm.launch(&call, resident).expect("legal").expect("not empty");
    engine.launch(&program, launch.grid, &launch.arguments).expect("runs");
    let d = engine.read(d_at).expect("read");
    for z in 0..3 {
        for row in 0..m {
            for column in 0..n {
                let product = |i: u32| {
                    let a = a[(z * k * m + i * m + row) as usize];
                    u32::from(a) * u32::from(b[(i * n + column) as usize])
                };
                let at = ((z * m + row) * n + column) as usize * 4;
                let got = u32::from_le_bytes([d[at], d[at + 1], d[at + 2], d[at + 3]]);
                assert_eq!(got, (0..k).map(product).sum::<u32>(), "{z} {row} {column}");
            }
        }
    }
}
