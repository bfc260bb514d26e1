//! What only a GPU with NVIDIA's libraries can run: their products, and readings of clock and power.

#[path = "../../kernel/tests/support/skipped.rs"]
mod skipped;

use collective::{F8E4M3, Format};
use half::bf16;
use kernel::{Engine, EngineError, GemmProblem, Gpu, Types};
use peers::cublaslt::{CublasLt, Fused, FusedActivation};
use peers::cusparselt::{Choice, CusparseLt};
use peers::{Matmul, Monitor};

const SIZE: GemmProblem = GemmProblem { m: 64, n: 32, k: 48 };

/// A small integer per element, so that products and sums are exact.
fn value(row: u32, column: u32, step: u32) -> f32 {
    (row * step + column * 3) as f32 % 5.0 - 2.0
}

/// K is the contiguous direction.
fn matrix(format: Format, lines: u32, step: u32) -> Vec<u8> {
    let all = (0..lines).flat_map(|line| (0..SIZE.k).map(move |k| value(line, k, step)));
    if format == Format::E4m3 {
        return all.map(|value| F8E4M3::from_f32(value).to_bits()).collect();
    }
    all.flat_map(|value| bf16::from_f32(value).to_le_bytes()).collect()
}

fn bias(column: u32) -> f32 {
    column as f32 % 7.0 - 3.0
}

/// Powers of two.
fn scale(line: u32) -> f32 {
    (line as f32 % 5.0 - 2.0).exp2()
}

/// Row-major D, from the definition.
fn product(finish: impl Fn(f32, u32, u32) -> f32) -> Vec<f32> {
    let element = |row, column| (0..SIZE.k).map(|k| value(row, k, 1) * value(column, k, 2)).sum::<f32>();
    (0..SIZE.m)
        .flat_map(|row| (0..SIZE.n).map(move |column| (row, column)))
        .map(|(row, column)| finish(element(row, column), row, column))
        .map(|value| bf16::from_f32(value).to_f32())
        .collect()
}

/// Every algorithm of the heuristic that runs gives the right result, plain and with a fused epilogue.
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
    let row: Vec<u8> = (0..SIZE.n).flat_map(|column| bf16::from_f32(bias(column)).to_le_bytes()).collect();
    let row = gpu.upload(&row)?;
    let d = gpu.allocate((SIZE.m * SIZE.n * 2) as usize)?;
    let mut scales =
        |lines: u32| gpu.upload(&(0..lines).flat_map(|i| scale(i).to_le_bytes()).collect::<Vec<_>>());
    let (rows, columns) = (scales(SIZE.m)?.address, scales(SIZE.n)?.address);
    let relu = Fused::Bias { activation: FusedActivation::Relu, bias: row.address, beta: 0.0 };
    let of_both = Fused::Scaled { rows, columns };
    for (what, format, fused, want) in [
        ("plain", Format::Bf16, None, product(|sum, _, _| sum)),
        ("bias and ReLU", Format::Bf16, Some(relu), product(|sum, _, column| (sum + bias(column)).max(0.0))),
        ("plain e4m3", Format::E4m3, None, product(|sum, _, _| sum)),
        (
            "scales of rows and columns",
            Format::E4m3,
            Some(of_both),
            product(|sum, row, column| sum * scale(row) * scale(column)),
        ),
    ] {
        let (a, b) = (gpu.upload(&matrix(format, SIZE.m, 1))?, gpu.upload(&matrix(format, SIZE.n, 2))?);
        let asked = Matmul::new(format, SIZE);
        let plan = match fused {
            None => library.plan(&asked)?,
            Some(fused) => library.plan_fused(&asked, fused)?,
        };
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

/// The first algorithm and the fastest give the product with an operand of which the last two of four neighbours are zero.
#[test]
fn cusparselt_multiplies() -> Result<(), EngineError> {
    let Ok(mut gpu) = Gpu::new(0) else {
        skipped::skipped("GPU");
        return Ok(());
    };
    let library = match CusparseLt::new(&gpu) {
        Err(EngineError::NoLibrary { library, .. }) => {
            skipped::skipped(library);
            return Ok(());
        }
        library => library?,
    };
    assert!(library.version().split('.').count() == 3, "{}", library.version());
    let size = GemmProblem { m: 128, n: 64, k: 256 };
    let element = |line: u32, k: u32, step: u32, sparse: bool| {
        if sparse && k % 4 > 1 { 0.0 } else { value(line, k, step) }
    };
    let matrix = |format: Format, lines: u32, step: u32, sparse: bool| -> Vec<u8> {
        let places = (0..lines).flat_map(|line| (0..size.k).map(move |k| (line, k)));
        let all = places.map(|(line, k)| element(line, k, step, sparse));
        let bytes = format.bytes() as usize;
        all.flat_map(|value| format.encode(f64::from(value)).to_le_bytes().into_iter().take(bytes)).collect()
    };
    let d = gpu.allocate((size.m * size.n * 2) as usize)?;
    for format in [Format::Bf16, Format::E4m3] {
        for sparse in [[true, false], [false, true]] {
            let what = format!("{format} {sparse:?}");
            let (a, b) = (matrix(format, size.m, 1, sparse[0]), matrix(format, size.n, 2, sparse[1]));
            let (a, b) = (gpu.upload(&a)?.address, gpu.upload(&b)?.address);
            let product = Matmul::new(Types::of(format).sparse(sparse), size);
            let plan = library.plan(&product)?;
            assert!(plan.algorithms()? > 0, "{what}");
            let [half, dense] = if sparse[0] { [a, b] } else { [b, a] };
            let compressed = plan.compress(&mut gpu, half)?;
            let best = plan.fastest(&mut gpu, &compressed, dense, d.address)?;
            let sum = |row, column| -> f32 {
                let of = |k| element(row, k, 1, sparse[0]) * element(column, k, 2, sparse[1]);
                (0..size.k).map(of).sum()
            };
            let want: Vec<f32> = (0..size.m)
                .flat_map(|row| (0..size.n).map(move |column| (row, column)))
                .map(|(row, column)| bf16::from_f32(sum(row, column)).to_f32())
                .collect();
            for choice in [Choice::FIRST, best] {
                gpu.write(d, &vec![0xff; d.bytes])?;
                let run = plan.algorithm(choice)?.with(&compressed, dense, d.address)?;
                assert!(gpu.time_many(&[&run], 2)? > 0.0, "{what}");
                let bytes = gpu.read(d)?;
                let got: Vec<f32> = bytes
                    .chunks_exact(2)
                    .map(|bytes| bf16::from_le_bytes([bytes[0], bytes[1]]).to_f32())
                    .collect();
                assert_eq!(got, want, "{what}, {choice:?}");
            }
            let other = library.plan(&product)?;
            let foreign = other.algorithm(Choice::FIRST)?.with(&compressed, dense, d.address);
            assert!(foreign.is_err(), "{what}: compressed for another plan");
        }
    }
    let dense = library.plan(&Matmul::new(Types::of(Format::Bf16), size));
    assert!(dense.is_err_and(|error| error.to_string().contains("one sparse operand")));
    Ok(())
}

/// A card has a clock and draws power. The work runs once, however long it is watched.
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

/// The numbers that the first test compares with need no rounding.
#[test]
fn numbers_of_the_definition_are_exact() {
    assert_eq!(product(|sum, _, _| sum).len(), (SIZE.m * SIZE.n) as usize);
    assert!(product(|sum, _, _| sum).iter().all(|sum| sum.abs() <= 256.0), "bf16 has them all");
}

const fn shares<T: Send + Sync>() {}

const _: () = {
    shares::<CublasLt>();
    shares::<peers::cublaslt::Plan>();
    shares::<peers::cublaslt::Run<'_>>();
    shares::<Monitor>();
    shares::<CusparseLt>();
    shares::<peers::cusparselt::Plan>();
    shares::<peers::cusparselt::Algorithm>();
    shares::<peers::cusparselt::Run>();
};
