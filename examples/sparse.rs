//! A 2:4 sparse weight matrix: pruned on the host, compressed on the device, multiplied with half the
//! instructions.
//!
//! On a Hopper GPU, `cargo run --release --example sparse` times sparse kernels at 8192 cubed, and the dense
//! kernel that the library chooses. On any other machine the emulator multiplies a small matrix of integers
//! both ways, and compares the bits of the results.

use std::error::Error;
use std::time::Duration;

use falchion::collective::{Format, MatrixRef, sparse};
use falchion::kernel::driver::{Enqueue, Prepared};
use falchion::kernel::{
    AnyGemm, Buffer, Compress, Compression, Kernel, KernelSpec, Machine, Request, fastest,
};
use falchion::prelude::*;

use cute_rs::atom::Major;

/// Formats, and the kernels to time for each.
const KERNELS: [(Format, &[&str]); 3] = [
    (
        Format::Bf16,
        &[
            "128x256x64",
            "128x256x64 cluster=2x1",
            "128x256x128",
            "128x192x128",
            "256x128x64 cluster=2x1",
            "256x192x64",
        ],
    ),
    (Format::E4m3, &["128x256x128", "128x256x128 cluster=2x1", "128x192x128", "256x128x128 cluster=2x1"]),
    (Format::S8, &["128x256x128", "128x256x128 cluster=2x1", "128x192x128", "256x128x128 cluster=2x1"]),
];

fn main() -> Result<(), Box<dyn Error>> {
    match Gpu::new(0) {
        Ok(gpu) => measure(gpu),
        Err(reason) => {
            println!("no GPU ({reason}): the emulator multiplies 192 x 264 x 320");
            emulate()
        }
    }
}

/// A 2:4 sparse matrix in device memory: dense with zeros, and compressed.
struct Pruned {
    dense: Buffer,
    values: Buffer,
    metadata: Buffer,
    /// Device time of the compressor.
    time: Duration,
}

impl Pruned {
    /// K must be a multiple of 32 here, so that rows of the kept elements begin at multiples of 16 B.
    fn of(
        engine: &mut dyn Engine,
        format: Format,
        [rows, k]: [u32; 2],
        mut elements: Vec<u32>,
    ) -> Result<Self, Box<dyn Error>> {
        sparse::prune(format, [rows, k], &mut elements)?;
        let dense = engine.upload(&bytes(format, &elements))?;
        let (kept, ld) = (sparse::kept(format, k), sparse::metadata_ld(format, k));
        let values = engine.allocate(rows as usize * kept as usize * format.bytes() as usize)?;
        let metadata = engine.allocate(rows.div_ceil(sparse::ROWS) as usize * ld as usize * 4)?;
        let found = engine.upload(&Compress::NOTHING)?;
        let what = Compression {
            rows,
            k,
            dense: MatrixRef::new(dense.address, k.into()),
            values: MatrixRef::new(values.address, kept.into()),
            metadata: MatrixRef::new(metadata.address, ld),
            found: found.address,
        };
        let compress = Compress::of(format)?;
        let time = compress.run(engine, &what)?.ok_or("an empty matrix")?;
        compress.check(k, &engine.read(found)?)?;
        engine.free(found)?;
        Ok(Self { dense, values, metadata, time })
    }
}

/// The low bytes of each element.
fn bytes(format: Format, elements: &[u32]) -> Vec<u8> {
    let size = format.bytes() as usize;
    elements.iter().flat_map(|element| element.to_le_bytes().into_iter().take(size)).collect()
}

/// A call of a dense kernel, or of a sparse kernel, which needs metadata.
fn call(problem: GemmProblem, format: Format, [a, b, d]: [Buffer; 3], metadata: Option<Buffer>) -> Call {
    let GemmProblem { n, k, .. } = problem;
    let dense = Call::of(problem).b(b.address, k.into()).d(d.address, n.into());
    match metadata {
        None => dense.a(a.address, k.into()),
        Some(metadata) => {
            let ld = sparse::metadata_ld(format, k);
            dense.a(a.address, sparse::kept(format, k).into()).sparse(MatrixRef {
                address: metadata.address,
                ld,
                stride: 0,
            })
        }
    }
}

fn kernel(spec: &str) -> Result<AnyGemm, Box<dyn Error>> {
    Ok(spec.parse::<KernelSpec>()?.kernel()?)
}

fn emulate() -> Result<(), Box<dyn Error>> {
    let problem = GemmProblem { m: 192, n: 264, k: 320 };
    let GemmProblem { m, n, k } = problem;
    let mut random = fastrand::Rng::with_seed(1);
    let mut numbers = |count: u32| -> Vec<u32> {
        let number = |_| u32::from(bf16::from_f32(random.i8(-4..=4).into()).to_bits());
        (0..count).map(number).collect()
    };
    let format = Format::Bf16;
    let mut engine = Emulator::new().with_multiprocessors(4);
    let a = Pruned::of(&mut engine, format, [m, k], numbers(m * k))?;
    let b = engine.upload(&bytes(format, &numbers(n * k)))?;
    let mut results = Vec::new();
    for (spec, values, metadata) in
        [("tile=128x64x64", a.dense, None), ("sparse=a tile=128x64x64", a.values, Some(a.metadata))]
    {
        let gemm = kernel(spec)?;
        let buffers = [values, b, engine.upload(&vec![0xff; (m * n * 2) as usize])?];
        let program = gemm.program()?;
        let resident = engine.resident_clusters(&program)?;
        let call = call(problem, format, buffers, metadata);
        let launch = gemm.launch(&call, resident)?.ok_or("an empty product")?;
        engine.launch(&program, launch.grid, &launch.arguments)?;
        results.push(engine.read(buffers[2])?);
    }
    if results[0] != results[1] {
        return Err("the sparse kernel computes another result than the dense one".into());
    }
    println!("the same bits, sparse and dense");
    Ok(())
}

fn measure(mut gpu: Gpu) -> Result<(), Box<dyn Error>> {
    const EXTENT: u32 = 8192;
    let problem = GemmProblem { m: EXTENT, n: EXTENT, k: EXTENT };
    println!("{}, 8192 cubed, burst; operations are those of the dense product", gpu.describe());
    for (format, tiles) in KERNELS {
        let mut random = fastrand::Rng::with_seed(1);
        let Pruned { dense, values: kept, metadata, time } =
            Pruned::of(&mut gpu, format, [EXTENT; 2], normal(format, &mut random))?;
        let moved = dense.bytes + kept.bytes + metadata.bytes;
        let seconds = time.as_secs_f64();
        println!(
            "{:6} compressed in {:.1} us, one cold run: {:.2} TB/s read and written",
            format.name(),
            seconds * 1e6,
            moved as f64 / seconds / 1e12
        );
        let b = gpu.upload(&bytes(format, &normal(format, &mut random)))?;
        let d = gpu.allocate((EXTENT as usize).pow(2) * format.output().bytes() as usize)?;

        let request = Request::packed(format, [Major::K; 2], problem);
        let chosen = fastest(&request, &Machine::h200()).map_err(|_| "no dense kernel")?.gemm;
        let mut kernels = vec![("dense".to_owned(), chosen, call(problem, format, [dense, b, d], None))];
        for tile in tiles {
            let spec = format!("dtype={} sparse=a tile={tile}", format.name());
            kernels.push((spec.clone(), kernel(&spec)?, call(problem, format, [kept, b, d], Some(metadata))));
        }
        let mut candidates = Vec::new();
        for (_, gemm, call) in &kernels {
            let program = gemm.program()?;
            let resident = gpu.resident_clusters(&program)?;
            let workspace = gpu.workspace(gemm.workspace(call, resident))?;
            let launch = gemm.launch(&Call { workspace, ..*call }, resident)?.ok_or("an empty product")?;
            candidates.push(gpu.prepare(&program, launch.grid, &launch.arguments)?);
        }
        let times = medians(&mut gpu, &candidates)?;
        for ((name, ..), seconds) in kernels.iter().zip(&times) {
            let rate = problem.operations() / seconds / 1e12;
            println!("{:6} {name:56} {rate:8.0} TFLOP/s  {:6.3} x dense", format.name(), times[0] / seconds);
        }
    }
    Ok(())
}

/// 8192 x 8192 normally distributed elements: 4 M are drawn and repeated.
fn normal(format: Format, random: &mut fastrand::Rng) -> Vec<u32> {
    let mut value = |_| {
        let (radius, angle) = (1.0 - random.f32(), random.f32() * core::f32::consts::TAU);
        let value = (-2.0 * radius.ln()).sqrt() * angle.cos();
        if format == Format::Bf16 {
            u32::from(bf16::from_f32(value).to_bits())
        } else if format == Format::E4m3 {
            u32::from(falchion::collective::F8E4M3::from_f32(value).to_bits())
        } else {
            u32::from((value * 40.0).clamp(-128.0, 127.0) as i8 as u8)
        }
    };
    // An odd number, so that rows differ.
    let drawn: Vec<u32> = (0..(4 << 20) + 1).map(&mut value).collect();
    drawn.into_iter().cycle().take(8192 * 8192).collect()
}

/// Times each candidate in seconds, alternating, in short bursts.
fn medians(gpu: &mut Gpu, candidates: &[Prepared]) -> Result<Vec<f64>, Box<dyn Error>> {
    const TURNS: usize = 5;
    let mut times = vec![Vec::new(); candidates.len()];
    for turn in 0..=TURNS {
        for (launch, times) in candidates.iter().zip(&mut times) {
            std::thread::sleep(Duration::from_millis(120));
            let seconds = gpu.time_many(&[launch as &dyn Enqueue], 6)?;
            // The first turn is a warm-up.
            if turn > 0 {
                times.push(seconds);
            }
        }
    }
    let median = |mut times: Vec<f64>| {
        times.sort_by(f64::total_cmp);
        times[TURNS / 2]
    };
    Ok(times.into_iter().map(median).collect())
}
