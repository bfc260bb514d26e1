//! What a user waits for on the host: a kernel from type to PTX text, and a GEMM in the emulator.
//!
//! `cargo bench --bench kernels`

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use kernel::{Call, Emulator, Engine, GemmProblem};

/// Build, verify and print each kind of kernel: at most 5 ms.
fn emit(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("type to PTX");
    for name in ["small-bf16-kk", "medium-bf16-kk", "large-bf16-kk", "staged-bf16-kk"] {
        let entry = kernel::find(name).expect("a catalogue name");
        group.bench_function(name, |bencher| {
            bencher.iter(|| black_box(entry.program().expect("a legal program")));
        });
    }
}

/// A whole product in the emulator: 512 cubed takes at most 5 s.
fn emulate(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("emulator");
    group.sample_size(10);
    let entry = kernel::find("large-bf16-kk").expect("a catalogue name");
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

criterion_group!(benches, emit, emulate);
criterion_main!(benches);
