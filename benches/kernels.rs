//! Benchmarks of host work that a user waits for: a kernel from type to PTX text, a GEMM in the emulator, and
//! the selection.
//!
//! `cargo bench -p benchmarks --bench kernels`

use std::hint::black_box;

use collective::Format;
use criterion::{Criterion, criterion_group, criterion_main};
use cute_rs::atom::Major;
use kernel::{Call, Emulator, Engine, GemmProblem, Known, Machine, Request, Types};

/// Builds, verifies and prints each kind of kernel. Target: at most 5 ms.
fn emit(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("type to PTX");
    for name in
        ["64x64-direct-bf16-kk", "128x128-direct-bf16-kk", "128x256-direct-bf16-kk", "128x256-bf16-kk"]
    {
        let entry = kernel::find(name).expect("a catalogue name");
        group.bench_function(name, |bencher| {
            bencher.iter(|| black_box(entry.program().expect("a legal program")));
        });
    }
}

/// Runs a whole GEMM in the emulator. Target: at most 5 s at 512 cubed.
fn emulate(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("emulator");
    group.sample_size(10);
    let entry = kernel::find("128x256-direct-bf16-kk").expect("a catalogue name");
    let program = entry.program().expect("a legal program");
    for size in [512u32, 1024] {
        let mut engine = Emulator::new();
        let ones = half::bf16::ONE.to_le_bytes().repeat((size * size) as usize);
        let matrix = |engine: &mut Emulator| engine.upload(&ones).expect("memory").address;
        let (a, b, d) = (matrix(&mut engine), matrix(&mut engine), matrix(&mut engine));
        let problem = GemmProblem { m: size, n: size, k: size };
        let call = Call::of(problem).a(a, size.into()).b(b, size.into()).d(d, size.into());
        let launch = entry.launch(&call, engine.multiprocessors()).expect("legal").expect("something to do");
        group.bench_function(format!("{size} cubed"), |bencher| {
            bencher.iter(|| engine.launch(&program, launch.grid, &launch.arguments).expect("no fault"));
        });
    }
}

/// Finds the fastest kernel of the space, by the model alone and with the records of near shapes. Target: at
/// most 0.2 ms for one GEMM.
fn choose(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("choose");
    let machine = Machine::h200();
    let shapes =
        [[4096, 4096, 4096], [8192, 8192, 8192], [1000, 5000, 2056], [16, 8192, 8192], [512, 512, 16384]];
    for [m, n, k] in shapes {
        let problem = GemmProblem { m, n, k };
        for (name, known) in [("model", Known::Nothing), ("near", Known::Shipped)] {
            // A shape that was not measured: it has another K.
            let problem = GemmProblem { k: k + 8, ..problem };
            let request = Request::packed(Format::Bf16, [Major::K; 2], problem).known(known);
            group.bench_function(format!("{m}x{n}x{k} {name}"), |bencher| {
                bencher.iter(|| kernel::fastest(black_box(&request), &machine).expect("a kernel"));
            });
        }
    }
    let problem = GemmProblem { m: 4096, n: 4096, k: 7168 };
    let fused =
        Request::packed(Format::Bf16, [Major::K; 2], problem).fused("bias-gelu".parse().expect("a formula"));
    let scaled = Request::packed(Types::of(Format::E4m3).scaled([1, 128]), [Major::K; 2], problem);
    let groups: Vec<GemmProblem> = (0..64).map(|i| GemmProblem { m: i * 37 % 512, ..problem }).collect();
    let all = GemmProblem { m: groups.iter().map(|group| group.m).sum(), ..problem };
    let ragged = Request::packed(Format::Bf16, [Major::K; 2], all).ragged(&groups);
    // No tensor copy reads rows of an odd length.
    let odd = Request::packed(Format::Bf16, [Major::K; 2], GemmProblem { m: 512, n: 512, k: 1001 });
    for (name, request) in
        [("bias-gelu", fused), ("scaled", scaled), ("64 groups", ragged), ("K of 1001", odd)]
    {
        group.bench_function(name, |bencher| {
            bencher.iter(|| kernel::fastest(black_box(&request), &machine).expect("a kernel"));
        });
    }
}

criterion_group!(benches, emit, emulate, choose);
criterion_main!(benches);
