//! What only a card can run: the peer that kernels are measured against, and the readings of clock and power.

#[path = "support/skipped.rs"]
mod skipped;

use cute_rs::atom::Major;
use half::bf16;
use kernel::driver::Monitor;
use kernel::driver::cublaslt::{Activation, CublasLt, Fused, Precision, Product};
use kernel::{Engine, EngineError, GemmProblem, Gpu};

const SIZE: GemmProblem = GemmProblem { m: 64, n: 32, k: 48 };

/// A small integer for each element: products and sums are exact.
fn value(row: u32, column: u32, step: u32) -> f32 {
    (row * step + column * 3) as f32 % 5.0 - 2.0
}

/// K runs fastest.
fn matrix(lines: u32, step: u32) -> Vec<u8> {
    let all = (0..lines).flat_map(|line| (0..SIZE.k).map(move |k| value(line, k, step)));
    all.flat_map(|value| bf16::from_f32(value).to_le_bytes()).collect()
}

fn bias(column: u32) -> f32 {
    column as f32 % 7.0 - 3.0
}

/// Row-major D, from the definition.
fn product(finish: impl Fn(f32, u32) -> f32) -> Vec<f32> {
    let element = |row, column| (0..SIZE.k).map(|k| value(row, k, 1) * value(column, k, 2)).sum::<f32>();
    (0..SIZE.m)
        .flat_map(|row| (0..SIZE.n).map(move |column| (row, column)))
        .map(|(row, column)| finish(element(row, column), column))
        .map(|value| bf16::from_f32(value).to_f32())
        .collect()
}

/// Every algorithm of the heuristic that runs, plain and with a fused epilogue, gives the product.
#[test]
fn cublaslt_multiplies() -> Result<(), EngineError> {
    let Ok(mut gpu) = Gpu::new(0) else {
        skipped::skipped("GPU");
        return Ok(());
    };
    let library = match CublasLt::new(&gpu) {
        Err(EngineError::NoLibrary { library, .. }) => {
            skipped::skipped(library);
            return Ok(());
        }
        library => library?,
    };
    assert!(library.version().starts_with("1"), "{}", library.version());
    let (a, b) = (gpu.upload(&matrix(SIZE.m, 1))?, gpu.upload(&matrix(SIZE.n, 2))?);
    let row: Vec<u8> = (0..SIZE.n).flat_map(|column| bf16::from_f32(bias(column)).to_le_bytes()).collect();
    let row = gpu.upload(&row)?;
    let d = gpu.allocate((SIZE.m * SIZE.n * 2) as usize)?;
    let asked = Product { size: SIZE, precision: Precision::Bf16, a: Major::K, b: Major::K };
    let fused = Fused { activation: Activation::Relu, bias: row.address, beta: 0.0 };
    for (what, plan, want) in [
        ("plain", library.plan(&asked)?, product(|sum, _| sum)),
        (
            "bias and ReLU",
            library.plan_fused(&asked, fused)?,
            product(|sum, column| (sum + bias(column)).max(0.0)),
        ),
    ] {
        let best = plan.fastest(&mut gpu, a.address, b.address, d.address)?;
        assert!(best < plan.algorithms().len(), "{what}");
        for algorithm in [0, best] {
            gpu.write(d, &[0xff; (SIZE.m * SIZE.n * 2) as usize])?;
            let run = plan.with(algorithm, a.address, b.address, d.address)?;
            assert!(gpu.time_many(&[&run], 2)? > 0.0, "{what}");
            let got: Vec<f32> = gpu
                .read(d)?
                .chunks_exact(2)
                .map(|bytes| bf16::from_le_bytes([bytes[0], bytes[1]]).to_f32())
                .collect();
            assert_eq!(got, want, "{what}, algorithm {algorithm}");
        }
        assert!(
            plan.with(plan.algorithms().len(), a.address, b.address, d.address).is_err(),
            "{what}: one too many"
        );
    }
    Ok(())
}

/// A card has a clock and takes power, and work is done once however long it is watched.
#[test]
fn the_monitor_reads_the_card() -> Result<(), EngineError> {
    let Ok(gpu) = Gpu::new(0) else {
        skipped::skipped("GPU");
        return Ok(());
    };
    let monitor = match Monitor::new(&gpu) {
        Err(EngineError::NoLibrary { library, .. }) => {
            skipped::skipped(library);
            return Ok(());
        }
        monitor => monitor?,
    };
    let mut times = 0;
    let (done, readings) = monitor.watch(|| {
        times += 1;
        std::thread::sleep(std::time::Duration::from_millis(200));
        "done"
    });
    assert_eq!((done, times), ("done", 1));
    let Some(readings) = readings else { panic!("0.2 s without a reading") };
    assert!(readings.count > 1 && readings.megahertz > 100.0 && readings.watts > 10.0, "{readings:?}");
    Ok(())
}

/// What the first test compares with needs no rounding.
#[test]
fn numbers_of_the_definition_are_exact() {
    assert_eq!(product(|sum, _| sum).len(), (SIZE.m * SIZE.n) as usize);
    assert!(product(|sum, _| sum).iter().all(|sum| sum.abs() <= 256.0), "bf16 has them all");
}

/// A kernel that comes from disk is the one that was compiled, and gives the same product.
#[test]
#[allow(unsafe_code, reason = "launches with addresses of buffers that are alive")]
fn kernels_from_disk_are_those_that_were_compiled() -> Result<(), Box<dyn std::error::Error>> {
    use kernel::driver::{Kernel, Origin, parameter_block};
    let Ok(mut gpu) = Gpu::new(0) else {
        skipped::skipped("GPU");
        return Ok(());
    };
    let folder = tempfile::tempdir()?;
    let cache = kernel::disk::Cache::at(folder.path());
    for name in ["small-bf16-kk", "large-bf16-kk", "stream-bf16-kk"] {
        let gemm = kernel::find(name)?;
        let program = gemm.program()?;
        let ones = bf16::ONE.to_le_bytes().repeat(64 * 64);
        let (operand, d) = (gpu.upload(&ones)?, gpu.allocate(ones.len())?);
        let mut numbers = Vec::new();
        for origin in [Origin::Compiled, Origin::Disk] {
            let kernel = Kernel::load_from(gpu.context(), &program, Some(&cache))?;
            assert_eq!((kernel.origin(), kernel.warnings()), (origin, &[][..]), "{name}");
            assert_eq!(kernel.advisories(), Vec::<String>::new(), "{name}");
            let slots = kernel.max_active_clusters()?;
            numbers.push((kernel.registers(), kernel.local_bytes(), slots, kernel.compile_log().to_owned()));
            let call = kernel::Call::of(GemmProblem { m: 64, n: 64, k: 64 });
            let call = call.a(operand.address, 64).b(operand.address, 64).d(d.address, 64);
            let workspace = gpu.workspace(gemm.workspace(&call, slots))?;
            let call = kernel::Call { workspace, ..call };
            let launch = gemm.launch(&call, slots)?.ok_or("an empty product")?;
            let block = parameter_block(&program, &launch.arguments)?;
            gpu.write(d, &[0xff; 64 * 64 * 2])?;
            // SAFETY: the stream is the GPU's, and so are all buffers, which stay until it has been read.
            unsafe { kernel.launch_raw(gpu.stream().raw(), launch.grid, &block)? };
            assert_eq!(
                gpu.read(d)?,
                bf16::from_f32(64.0).to_le_bytes().repeat(64 * 64),
                "{name}, {origin:?}"
            );
        }
        assert_eq!(numbers[0], numbers[1], "{name}");
        assert!(numbers[0].3.contains("registers"), "the compiler has said something: {}", numbers[0].3);
    }
    Ok(())
}
