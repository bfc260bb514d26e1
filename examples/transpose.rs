//! Operands in directions that no instruction reads: `e4m3` with an M-major A and an N-major B. They are
//! transposed into a workspace, then multiplied K-major.
//!
//! On a Hopper GPU, `cargo run --release --example transpose` times both steps at 8192 cubed, and transposes
//! for every element width. On any other machine the emulator multiplies a small matrix.

use std::error::Error;
use std::time::Duration;

use cute_rs::atom::Major;
use falchion::collective::Format;
use falchion::kernel::driver::Enqueue;
use falchion::kernel::{KMajorRequest, Kernel, Machine, Request, Transpose, Transposition, fastest};
use falchion::prelude::*;

fn main() -> Result<(), Box<dyn Error>> {
    match Gpu::new(0) {
        Ok(gpu) => measure(gpu),
        Err(reason) => {
            println!("no GPU ({reason}): the emulator multiplies 192 x 256 x 320");
            emulate(GemmProblem { m: 192, n: 256, k: 320 })
        }
    }
}

/// Multiplies operands that the device transposed, and operands that the host transposed. Both must give the
/// same bits.
fn emulate(problem: GemmProblem) -> Result<(), Box<dyn Error>> {
    let GemmProblem { m, n, k } = problem;
    let mut engine = Emulator::new().with_multiprocessors(4);
    let [a, b] = operands(problem);
    let request = request(&mut engine, problem, [&a, &b])?;
    let first = transposed(&mut engine, request)?;
    let of_device = multiply(&mut engine, first.request)?;
    let turned = |matrix: &[u8], mn: u32| -> Vec<u8> {
        (0..mn).flat_map(|line| (0..k).map(move |i| matrix[(i * mn + line) as usize])).collect()
    };
    let (a, b) = (engine.upload(&turned(&a, m))?, engine.upload(&turned(&b, n))?);
    let call = first.request.call.a(a.address, k.into()).b(b.address, k.into());
    if multiply(&mut engine, Request { call, ..first.request })? != of_device {
        return Err("the device's transposes differ from the host's".into());
    }
    println!("the same bits, transposed on the device and on the host");
    Ok(())
}

/// Runs the fastest kernel for a K-major request, and returns D's bytes.
fn multiply(engine: &mut dyn Engine, request: Request<'_>) -> Result<Vec<u8>, Box<dyn Error>> {
    let GemmProblem { m, n, .. } = request.call.problem;
    let chosen = fastest(&request, &Machine::h200()).map_err(|_| "no kernel")?.gemm;
    let program = chosen.program()?;
    let resident = engine.resident_clusters(&program)?;
    let workspace = engine.workspace(chosen.workspace(&request.call, resident))?;
    let d = engine.allocate(m as usize * n as usize * 2)?;
    let call = Call { workspace, ..request.call }.d(d.address, n.into());
    let launch = chosen.launch(&call, resident)?.ok_or("an empty product")?;
    engine.launch(&program, launch.grid, &launch.arguments)?;
    Ok(engine.read(d)?)
}

/// Elements of A (K, M) and of B (K, N), row by row: magnitudes from 2^-6 to 1.9.
fn operands(GemmProblem { m, n, k }: GemmProblem) -> [Vec<u8>; 2] {
    let mut random = fastrand::Rng::with_seed(1);
    [m, n].map(|mn| (0..k * mn).map(|_| (random.u8(..) & 0x80) | random.u8(8..64)).collect())
}

/// A request with an M-major A and an N-major B in an engine's memory.
fn request(
    engine: &mut dyn Engine,
    problem: GemmProblem,
    [a, b]: [&[u8]; 2],
) -> Result<Request<'static>, Box<dyn Error>> {
    let GemmProblem { m, n, .. } = problem;
    let (a, b) = (engine.upload(a)?, engine.upload(b)?);
    let d = engine.allocate(m as usize * n as usize * 2)?;
    let request = Request::packed(Format::E4m3, [Major::Mn; 2], problem);
    let call = request.call.a(a.address, m.into()).b(b.address, n.into()).d(d.address, n.into());
    Ok(Request { call, ..request })
}

/// The same request with K-major operands, which the engine transposes into a workspace.
fn transposed(
    engine: &mut dyn Engine,
    request: Request<'static>,
) -> Result<KMajorRequest<'static>, Box<dyn Error>> {
    let workspace = engine.allocate(request.k_major(0).workspace as usize)?;
    let first = request.k_major(workspace.address);
    for (transpose, what) in first.operands.iter().flatten() {
        transpose.run(engine, what)?;
    }
    Ok(first)
}

fn measure(mut gpu: Gpu) -> Result<(), Box<dyn Error>> {
    let card = Machine::h200();
    println!("{}, burst", gpu.describe());
    for format in [Format::E4m3, Format::Bf16, Format::Tf32] {
        let transpose = Transpose::of(format).ok_or("at most 32 bits")?;
        // Aligned rows; unaligned rows; extents that are no multiples of a tile.
        for (rows, columns, beside) in [(8192, 8192, 0), (8192, 8192, 1), (8190, 8190, 2), (1024, 1024, 0)] {
            let bytes = (rows as usize + 16) * (columns as usize + 16) * transpose.bytes() as usize;
            let (a, d) = (gpu.upload(&vec![1; bytes])?, gpu.allocate(bytes)?);
            let a_ref = MatrixRef::new(a.address, u64::from(columns + beside));
            let d_ref = MatrixRef::new(d.address, u64::from(rows + beside));
            let what = Transposition { rows, columns, count: 1, a: a_ref, d: d_ref };
            let prepared = gpu.prepare_call(&transpose, &what)?.ok_or("an empty matrix")?;
            let seconds = median(&mut gpu, &prepared)?;
            println!(
                "{:2} bits, {rows} x {columns}, rows of {} elements: {:8.1} us, {:5.2} TB/s; predicted {:.1} us",
                transpose.bytes() * 8,
                columns + beside,
                seconds * 1e6,
                transpose.traffic(&what) as f64 / seconds / 1e12,
                transpose.microseconds(&what, &card)
            );
            gpu.free(a)?;
            gpu.free(d)?;
        }
    }
    let problem = GemmProblem { m: 8192, n: 8192, k: 8192 };
    let [a, b] = operands(problem);
    let request = request(&mut gpu, problem, [&a, &b])?;
    let first = transposed(&mut gpu, request)?;
    let chosen = fastest(&first.request, &card).map_err(|_| "no kernel")?.gemm;
    let program = chosen.program()?;
    let resident = gpu.resident_clusters(&program)?;
    let workspace = gpu.workspace(chosen.workspace(&first.request.call, resident))?;
    let launch =
        chosen.launch(&Call { workspace, ..first.request.call }, resident)?.ok_or("an empty product")?;
    let multiply = gpu.prepare(&program, launch.grid, &launch.arguments)?;
    let multiply = median(&mut gpu, &multiply)?;
    let mut before = 0.0;
    for (transpose, what) in first.operands.iter().flatten() {
        let prepared = gpu.prepare_call(transpose, what)?.ok_or("an empty matrix")?;
        before += median(&mut gpu, &prepared)?;
    }
    println!(
        "e4m3, 8192 cubed, mn: transposes {:.1} us (predicted {:.1}), then {} {:.1} us",
        before * 1e6,
        first.microseconds(&card),
        chosen.name(),
        multiply * 1e6
    );
    Ok(())
}

/// Time of a launch in seconds, in short bursts after a rest.
fn median(gpu: &mut Gpu, launch: &dyn Enqueue) -> Result<f64, Box<dyn Error>> {
    const TURNS: usize = 5;
    let mut times = Vec::new();
    for turn in 0..=TURNS {
        std::thread::sleep(Duration::from_millis(60));
        let seconds = gpu.time_many(&[launch], 10)?;
        // The first turn is a warm-up.
        if turn > 0 {
            times.push(seconds);
        }
    }
    times.sort_by(f64::total_cmp);
    Ok(times[TURNS / 2])
}
