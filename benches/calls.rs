//! What a call costs before its kernel runs: the choice, for lengths that were seen and for a cache that grows with each token; and, where there
//! is a card, the first call of a shape (choice, program, compilation and load, launch) beside cuBLASLt's.
//!
//! `cargo bench -p benchmarks --bench calls`
#![allow(unsafe_code, reason = "asks the system for the time of a thread")]

use std::cell::Cell;
use std::error::Error;
use std::hint::black_box;
use std::time::Instant;

use collective::Format;
use cute_rs::atom::Major;
use falchion::attention::backward::AttentionBackward;
use falchion::attention::{Attention, AttentionProblem, AttentionRequest, Mask};
use falchion_core::{Picks, choose, machine};
use kernel::driver::{DeviceSlice, Gpu, Loaded};
use kernel::operands::Memory;
use kernel::{AnyGemm, Engine, Family, GemmProblem, Machine, Request};
use peers::Matmul;
use peers::cublaslt::CublasLt;

/// Microseconds of the CPU that this thread has had.
fn cpu() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: one structure is written.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}

/// Microseconds of the CPU for each of `count` runs.
fn each<T>(count: u32, mut run: impl FnMut(u32) -> T) -> f64 {
    let begin = cpu();
    (0..count).for_each(|i| _ = black_box(run(i)));
    (cpu() - begin) / f64::from(count)
}

/// A token of `batch` sequences with that many keys, for 32 heads that share 8 of K and V.
fn token(batch: u32, keys: u32) -> AttentionRequest {
    let problem = AttentionProblem { heads: [32, 8], ..AttentionProblem::new(batch, 32, [1, keys], 128) };
    AttentionRequest { workspace: true, mask: Mask::Causal, ..AttentionRequest::new(problem, 128) }
}

fn gemm(k: u32) -> Request<'static> {
    Request::packed(Format::Bf16, [Major::K; 2], GemmProblem { m: 16, n: 4096, k })
}

/// Choices, on a card of this machine or for an H200.
fn choices(card: Option<usize>) -> Result<(), Box<dyn Error>> {
    let machine = machine(card)?;
    println!(
        "\nchoices {}, us of the CPU",
        card.map_or("for an H200".to_owned(), |card| format!("on card {card}"))
    );
    println!("{:>36} {:>8} {:>8}", "", "choice", "kernels");
    let row = |what: &str, time: f64, kernels: &dyn ToString| {
        println!("{what:>36} {time:8.2} {:>8}", kernels.to_string());
    };
    let (forward, backward) = (Picks::<Attention>::new(64), Picks::<AttentionBackward>::new(64));
    let seen = |i| forward.get(&token(4, 1000 + i % 4), None, card, |of| of).map(drop);
    (0..4).try_for_each(seen)?;
    row("attention, lengths that were seen", each(20_000, seen), &"");
    let seen = |i| backward.get(&token(4, 1000 + i % 4), None, card, |of| of).map(drop);
    (0..4).try_for_each(seen)?;
    row("its gradient, the same", each(20_000, seen), &"");
    for first in [1, 100, 1000, 4000, 30_000] {
        let chosen = |i| choose::<Attention>(&token(4, first + i), None, &machine, card).map(drop);
        let time = each(256, chosen);
        let (picks, made) = (Picks::<Attention, ()>::new(1024), Cell::new(0));
        let count = |_| made.set(made.get() + 1);
        (0..256).try_for_each(|i| picks.get(&token(4, first + i), None, card, count).map(drop))?;
        row(&format!("attention, 256 tokens from {first} keys"), time, &made.get());
    }
    let new = |i: u32| choose::<AttentionBackward>(&token(4, 1000 + 8 * i), None, &machine, card).map(drop);
    row("its gradient, new lengths", each(64, new), &"");
    let new = |i: u32| choose::<AnyGemm>(&gemm(4096 + 8 * i), None, &machine, card).map(drop);
    row("a GEMM, new extents", each(64, new), &"");
    Ok(())
}

/// The milliseconds of a step on the clock, and its result.
fn timed<T>(step: impl FnOnce() -> T) -> (f64, T) {
    let begin = Instant::now();
    let result = step();
    (begin.elapsed().as_secs_f64() * 1e3, result)
}

/// The first call of a problem, step by step, and a later one.
fn first_call<K: Family>(gpu: &mut Gpu, machine: &Machine, problem: &str) -> Result<(), Box<dyn Error>> {
    let request = K::request(problem)?;
    let (choice, chosen) = timed(|| choose::<K>(&request, None, machine, Some(0)));
    let kernel = chosen?.kernel;
    let (emission, programs) = timed(|| kernel.programs());
    let programs = programs?;
    let (load, loaded) = timed(|| Loaded::load_in(gpu.context(), kernel.clone(), programs));
    let loaded = loaded?;
    let mut call = K::call(&request);
    let room = gpu.allocate(1 << 30)?;
    let mut next = room.address;
    kernel.visit(&mut call, &mut |memory: Memory<'_>| {
        *memory.address = next;
        next += memory.extents.bytes().next_multiple_of(256);
    });
    let workspace = gpu.workspace(kernel.workspace(&call, loaded.resident_clusters()))?;
    kernel.lend_workspace(&mut call, workspace);
    let memory = [Some(room), workspace].into_iter().flatten().map(|buffer| gpu.memory(buffer));
    let memory = memory.collect::<Result<Vec<_>, _>>()?;
    let lent: Vec<DeviceSlice<'_>> = memory.iter().map(DeviceSlice::from).collect();
    let stream = gpu.stream().clone();
    let enqueue = || loaded.launch(&stream, &call, &lent);
    let (launch, ran) = timed(|| enqueue().map(|()| gpu.context().wait()));
    ran?;
    let later = timed(|| (0..100).try_for_each(|_| enqueue()));
    later.1?;
    gpu.context().wait();
    drop(lent);
    gpu.free(room)?;
    println!(
        "{problem:>44} {choice:8.2} {emission:8.2} {load:8.1} {launch:8.2} {:8.1} {:8.4}",
        choice + emission + load + launch,
        later.0 / 100.0
    );
    Ok(())
}

/// The first call of cuBLASLt for a GEMM, and a later one.
fn first_of_cublaslt(gpu: &mut Gpu, library: &CublasLt, size: GemmProblem) -> Result<(), Box<dyn Error>> {
    let bytes = [size.m * size.k, size.n * size.k, size.m * size.n].map(|elements| 2 * elements as usize);
    let buffers = [gpu.allocate(bytes[0])?, gpu.allocate(bytes[1])?, gpu.allocate(bytes[2])?];
    let [a, b, d] = buffers.map(|buffer| buffer.address);
    let (heuristic, plan) = timed(|| library.plan(&Matmul::new(Format::Bf16, size)));
    let (plan, stream) = (plan?, gpu.stream().clone());
    let (launch, ran) = timed(|| plan.run(0, [a, b, d], &stream).map(|()| gpu.context().wait()));
    ran?;
    let later = timed(|| (0..100).try_for_each(|_| plan.run(0, [a, b, d], &stream)));
    later.1?;
    gpu.context().wait();
    buffers.into_iter().try_for_each(|buffer| gpu.free(buffer))?;
    let GemmProblem { m, n, k } = size;
    println!(
        "{:>44} {heuristic:8.2} {:>8} {:>8} {launch:8.2} {:8.1} {:8.4}",
        format!("cuBLASLt, bf16 kk {m}x{n}x{k}"),
        "",
        "",
        heuristic + launch,
        later.0 / 100.0
    );
    Ok(())
}

fn first_calls(gpu: &mut Gpu) -> Result<(), Box<dyn Error>> {
    let machine = machine(Some(0))?;
    println!("\nfirst calls, ms on the clock");
    println!(
        "{:>44} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8}",
        "", "choice", "program", "load", "launch", "all", "later"
    );
    let sizes = [[300, 200, 136], [16, 4096, 4096], [4096, 4096, 4096], [4096, 14336, 4096]];
    let sizes = sizes.map(|[m, n, k]| GemmProblem { m, n, k });
    for size in sizes {
        let problem = AnyGemm::problem(&Request::packed(Format::Bf16, [Major::K; 2], size));
        first_call::<AnyGemm>(gpu, &machine, &problem.to_string())?;
    }
    let (open, library) = timed(|| CublasLt::new(gpu));
    match library {
        Ok(library) => {
            println!("{:>44} {open:8.2}", "cuBLASLt, its handle");
            sizes.into_iter().try_for_each(|size| first_of_cublaslt(gpu, &library, size))?;
        }
        Err(error) => println!("no cuBLASLt: {error}"),
    }
    for problem in ["4x32/8x1x4000 mask=causal", "4x16/16x4096x4096 mask=causal"] {
        first_call::<Attention>(gpu, &machine, problem)?;
    }
    first_call::<AttentionBackward>(gpu, &machine, "4x16/16x4096x4096 mask=causal")
}

fn main() -> Result<(), Box<dyn Error>> {
    choices(None)?;
    match Gpu::new(0) {
        Err(error) => println!("\nno first calls: {error}"),
        Ok(mut gpu) => {
            first_calls(&mut gpu)?;
            choices(Some(0))?;
        }
    }
    Ok(())
}
