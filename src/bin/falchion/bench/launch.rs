//! What a launch costs the host: one by one, into a stream that is never full.

use std::io::Write;
use std::sync::Arc;
use std::time::Instant;

use kernel::driver::{DeviceSlice, Enqueue, Graph, Loaded, Prepared, Stream};
use kernel::{Buffer, Call, Engine, EngineError, GemmProblem, Gpu};

use super::report::LaunchCost;
use crate::output::out;
use crate::{Failure, catalogue};

/// Launches that are timed.
const LAUNCHES: usize = 10_000;

/// Launches between two waits for the device, far fewer than a stream takes before it makes the host wait.
const IN_FLIGHT: usize = 100;

/// Launches of a longer graph.
const LONG_GRAPH: usize = 20;

/// A product that the device does faster than the host enqueues the next.
const SHAPE: GemmProblem = GemmProblem { m: 128, n: 128, k: 128 };

/// Calls that differ in where A, B and D begin.
const ADDRESSES: u64 = 4096;

/// Calls that differ in how far apart D's rows begin as well, more than a [`Loaded`] keeps.
const PITCHES: u64 = 4096;

/// Times every way to launch, prints it, and compares what a graph computes with what a launch computes.
pub(super) fn measure(
    gpu: &mut Gpu,
    data: &[u8],
    dtype: &str,
    layout: &str,
) -> Result<Vec<LaunchCost>, Failure> {
    let gemm = kernel::find(&format!("small-{dtype}-{layout}"))?;
    let name = gemm.name().to_owned();
    let GemmProblem { m, n, k } = SHAPE;
    let bytes = |rows: u32, columns: u32| rows as usize * columns as usize * 2;
    // Matrices move by as much as the most aligned ones, A and B no further than their copies reach.
    let step = |bytes: usize, i: u64| i % (bytes as u64 / 256) * 256;
    let mut operand = |bytes: &[u8]| gpu.upload(&bytes.repeat(2));
    let (a, b) = (operand(&data[..bytes(m, k)])?, operand(&data[bytes(m, k)..][..bytes(n, k)])?);
    let rows = bytes(m, n) + m as usize * 16 * PITCHES as usize;
    let d = gpu.allocate(rows + 256 * ADDRESSES as usize)?;
    let call = catalogue::legal(&gemm, SHAPE);
    let call = Call { workspace: None, ..call }.a(a.address, call.a.pitch).b(b.address, call.b.pitch);
    let call = call.d(d.address, call.d.pitch);
    let moved = |i: u64| {
        let mut call = call;
        call.a.address += step(bytes(m, k), i);
        call.b.address += step(bytes(n, k), i);
        call.d.address += i % ADDRESSES * 256;
        call
    };
    let reshaped = |i: u64| {
        let mut call = moved(i);
        call.d.pitch += i % PITCHES * 8;
        call
    };

    let program = gemm.program()?;
    let start = Instant::now();
    let mut loaded = Loaded::load_in(gpu.context(), gemm, program)?;
    writeln!(
        out(),
        "\n{name} at {m} x {n} x {k}: compiled and loaded in {:.1} ms",
        start.elapsed().as_secs_f64() * 1e3
    )?;
    let prepared = prepare(gpu, &name, &call)?;
    let (short, long) = graphs(gpu, &prepared)?;

    let stream = Arc::clone(gpu.stream());
    let lent = [gpu.memory(a)?, gpu.memory(b)?, gpu.memory(d)?];
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
    for buffer in [a, b, d] {
        gpu.free(buffer)?;
    }
    if same { Ok(costs) } else { Err(Failure::Wrong) }
}

fn prepare(gpu: &mut Gpu, name: &str, call: &Call) -> Result<Prepared, Failure> {
    let gemm = kernel::find(name)?;
    let program = gemm.program()?;
    let slots = gpu.slots(&program)?;
    let launch = gemm.launch(call, slots)?.ok_or_else(|| Failure::usage("an empty product takes no time"))?;
    Ok(gpu.prepare(&program, launch.grid, &launch.arguments)?)
}

fn graphs(gpu: &mut Gpu, prepared: &Prepared) -> Result<(Graph, Graph), Failure> {
    let short = gpu.capture(&[prepared])?;
    Ok((short, gpu.capture(&[prepared as &dyn Enqueue; LONG_GRAPH])?))
}

/// Times launches one by one, and lets the device catch up in between.
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

/// Whether a graph leaves the same D as a launch, each over a D of other bytes.
fn replays(gpu: &mut Gpu, launch: &dyn Enqueue, graph: &dyn Enqueue, d: Buffer) -> Result<bool, Failure> {
    let mut after = |work: &dyn Enqueue| {
        gpu.write(d, &vec![0x5a; d.bytes])?;
        gpu.time_many(&[work], 1)?;
        gpu.read(d)
    };
    let (launched, replayed) = (after(launch)?, after(graph)?);
    Ok(launched == replayed && launched.iter().any(|&byte| byte != 0x5a))
}
