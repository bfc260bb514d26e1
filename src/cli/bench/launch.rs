//! Measures the host's cost of a launch: one launch at a time, into a stream that is never full.

use std::io::Write;
use std::sync::Arc;
use std::time::Instant;

use collective::Format;
use kernel::driver::{DeviceSlice, Enqueue, Graph, Loaded, Prepared, Stream};
use kernel::operands::random;
use kernel::{AnyGemm, Buffer, Call, Engine, EngineError, GemmProblem, Gpu, Types};

use super::report::LaunchCost;
use crate::cli::output::out;
use crate::cli::{Failure, catalogue};

/// Number of timed launches.
const LAUNCHES: usize = 10_000;

/// Number of launches between two waits for the device: far fewer than a stream takes before it blocks the
/// host.
const IN_FLIGHT: usize = 100;

/// Number of launches in the longer graph.
const LONG_GRAPH: usize = 20;

/// A GEMM that the device finishes before the host enqueues the next one.
const SHAPE: GemmProblem = GemmProblem { m: 128, n: 128, k: 128 };

/// Number of calls with different addresses of A, B and D.
const ADDRESSES: u64 = 4096;

/// Number of calls that also differ in D's leading dimension, more than a [`Loaded`] keeps.
const PITCHES: u64 = 4096;

/// Times every way to launch, prints the times, and compares a graph's result with a launch's.
pub(super) fn measure(gpu: &mut Gpu, gemm: AnyGemm) -> Result<Vec<LaunchCost>, Failure> {
    let name = gemm.name().to_owned();
    let GemmProblem { m, n, k } = SHAPE;
    let [of_a, of_b, of_d] = gemm.formats();
    let bytes = |rows: u32, columns: u32, of: Format| (rows * columns * of.bytes()) as usize;
    let [a_bytes, b_bytes, d_bytes] = [bytes(m, k, of_a), bytes(n, k, of_b), bytes(m, n, of_d)];
    // Matrices move by as much as the most aligned ones, A and B no further than their copies reach.
    let step = |bytes: usize, i: u64| i % (bytes as u64 / 256) * 256;
    let mut operand = |of: Format, bytes: usize| gpu.upload(&random(of)[..bytes].repeat(2));
    let (a, b) = (operand(of_a, a_bytes)?, operand(of_b, b_bytes)?);
    // Block scales, the same for all calls, if the kernel has them.
    let factors = gpu.upload(&1f32.to_le_bytes().repeat(((m + n) * k) as usize))?;
    let rows = d_bytes + m as usize * 16 * PITCHES as usize;
    let d = gpu.allocate(rows + 256 * ADDRESSES as usize)?;
    let call = catalogue::legal(&gemm, SHAPE);
    let call = Call { workspace: None, ..call }.a(a.address, call.a.ld).b(b.address, call.b.ld);
    let mut call = call.d(d.address, call.d.ld);
    if let Some(scales) = &mut call.scales {
        (scales.a.address, scales.b.address) = (factors.address, factors.address);
    }
    let moved = |i: u64| {
        let mut call = call;
        call.a.address += step(a_bytes, i);
        call.b.address += step(b_bytes, i);
        call.d.address += i % ADDRESSES * 256;
        call
    };
    let reshaped = |i: u64| {
        let mut call = moved(i);
        call.d.ld += i % PITCHES * u64::from(16 / of_d.bytes());
        call
    };

    let program = gemm.program()?;
    let start = Instant::now();
    let loaded = Loaded::load_in(gpu.context(), gemm, program)?;
    writeln!(
        out(),
        "\n{name} at {m} x {n} x {k}: compiled and loaded in {:.1} ms",
        start.elapsed().as_secs_f64() * 1e3
    )?;
    let prepared = prepare(gpu, &name, &call)?;
    let (short, long) = graphs(gpu, &prepared)?;

    let stream = Arc::clone(gpu.stream());
    let lent = [gpu.memory(a)?, gpu.memory(b)?, gpu.memory(d)?, gpu.memory(factors)?];
    let lent = lent.each_ref().map(DeviceSlice::from);
    writeln!(out(), "{:48} {:>9} {:>9}", "host, microseconds a launch", "median", "99 %")?;
    let mut costs = Vec::new();
    let mut time = |path: &str, launch: &mut dyn FnMut(u64, &Stream) -> Result<(), EngineError>| {
        let cost = cost(gpu, &stream, path, launch)?;
        writeln!(
            out(),
            "{path:48} {:9.2} {:9.2}",
            cost.median_nanoseconds / 1e3,
            cost.p99_nanoseconds / 1e3
        )?;
        costs.push(cost);
        Ok::<(), Failure>(())
    };
    time("Loaded, a shape it has not seen", &mut |i, stream| loaded.launch(stream, &reshaped(i), &lent))?;
    time("Loaded, new addresses of a known shape", &mut |i, stream| loaded.launch(stream, &moved(i), &lent))?;
    time("Loaded, a call it has had before", &mut |_, stream| loaded.launch(stream, &call, &lent))?;
    time("Prepared", &mut |_, stream| prepared.enqueue(stream))?;
    time("a graph of 1 launch", &mut |_, stream| short.enqueue(stream))?;
    time(&format!("a graph of {LONG_GRAPH} launches"), &mut |_, stream| long.enqueue(stream))?;

    let direct = gpu.time_many(&[&prepared], LAUNCHES)? * 1e6;
    let replayed = gpu.time_many(&[&long], LAUNCHES / LONG_GRAPH)? * 1e6 / LONG_GRAPH as f64;
    writeln!(
        out(),
        "device, microseconds a launch back to back: {direct:.2} in a stream, {replayed:.2} in a graph"
    )?;
    let same = replays(gpu, &prepared, &short, d)?;
    writeln!(out(), "the graph's D is {} the launch's", if same { "bit for bit" } else { "NOT" })?;
    for buffer in [a, b, d, factors] {
        gpu.free(buffer)?;
    }
    if same { Ok(costs) } else { Err(Failure::Wrong) }
}

/// The kernel `64x64-direct` for these types and directions.
///
/// # Errors
/// The rule that the types or directions break.
pub(super) fn small(types: Types, layout: &str) -> Result<AnyGemm, Failure> {
    if [Format::Bf16, Format::F16].map(Types::of).contains(&types) {
        return catalogue::find(&format!("64x64-direct-{}-{layout}", types.a.name()));
    }
    let (k, words) = (128 / types.a.bytes(), catalogue::words(types));
    let rest = "store=direct scheduler=one-tile raster=m";
    catalogue::find(&format!("{words} layout={layout} tile=64x64x{k} {rest}"))
}

fn prepare(gpu: &mut Gpu, name: &str, call: &Call) -> Result<Prepared, Failure> {
    let gemm = kernel::find(name)?;
    let program = gemm.program()?;
    let resident = gpu.resident_clusters(&program)?;
    let launch = gemm.launch(call, resident)?.ok_or_else(|| usage!("an empty product takes no time"))?;
    Ok(gpu.prepare(&program, launch.grid, &launch.arguments)?)
}

fn graphs(gpu: &mut Gpu, prepared: &Prepared) -> Result<(Graph, Graph), Failure> {
    let short = gpu.capture(&[prepared])?;
    Ok((short, gpu.capture(&[prepared as &dyn Enqueue; LONG_GRAPH])?))
}

/// Times launches one by one. In between, it waits until the device has caught up.
fn cost(
    gpu: &mut Gpu,
    stream: &Stream,
    path: &str,
    launch: &mut dyn FnMut(u64, &Stream) -> Result<(), EngineError>,
) -> Result<LaunchCost, Failure> {
    let mut nanoseconds = Vec::with_capacity(LAUNCHES);
    for i in 0..LAUNCHES {
        if i % IN_FLIGHT == 0 {
            gpu.wait()?;
        }
        let start = Instant::now();
        launch(i as u64, stream)?;
        nanoseconds.push(start.elapsed().as_nanos() as f64);
    }
    gpu.wait()?;
    nanoseconds.sort_by(f64::total_cmp);
    Ok(LaunchCost {
        path: path.to_owned(),
        count: LAUNCHES,
        median_nanoseconds: nanoseconds[LAUNCHES / 2],
        p99_nanoseconds: nanoseconds[LAUNCHES * 99 / 100],
    })
}

/// Whether a graph and a launch compute the same D. Both overwrite different bytes.
fn replays(gpu: &mut Gpu, launch: &dyn Enqueue, graph: &dyn Enqueue, d: Buffer) -> Result<bool, Failure> {
    let mut after = |work: &dyn Enqueue| {
        gpu.write(d, &vec![0x5a; d.bytes])?;
        gpu.time_many(&[work], 1)?;
        gpu.read(d)
    };
    let (launched, replayed) = (after(launch)?, after(graph)?);
    Ok(launched == replayed && launched.iter().any(|&byte| byte != 0x5a))
}
