//! Gets the kernel for a shape by one call: it is measured at the first use, and found on disk after that.
//!
//! Run `cargo run --release --features tune --example tuned` twice.

use std::time::Instant;

use falchion::kernel::driver::{Context, DeviceSlice, Loaded, Tuning};
use falchion::kernel::{EngineError, Request};
use falchion::prelude::*;

use collective::Format;
use cute_rs::atom::Major;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let problem = GemmProblem { m: 1000, n: 5000, k: 2056 };
    let context = match Context::primary(0) {
        Ok(context) => context, // cudarc and candle use the same context
        Err(error @ EngineError::NoDriver { .. }) => {
            println!("{error}");
            return Ok(());
        }
        Err(other) => return Err(other.into()),
    };
    let begun = Instant::now();
    let request = Request::packed(Format::Bf16, [Major::K; 2], problem);
    let tuned = Loaded::tuned(&context, &request, Tuning::Measured { budget: 8 })?;
    println!("{}\n{:?}, after {:.1?}", tuned.loaded.kernel().name(), tuned.chosen, begun.elapsed());
    tuned.warnings.iter().for_each(|warning| println!("{warning}"));

    // The product of two matrices of ones is K everywhere.
    let mut gpu = Gpu::from_context(context)?;
    let GemmProblem { m, n, k } = problem;
    let ones = |count: u32| bf16::ONE.to_le_bytes().repeat(count as usize);
    let (a, b) = (gpu.upload(&ones(m * k))?, gpu.upload(&ones(n * k))?);
    let d = gpu.allocate(m as usize * n as usize * 2)?;
    let call = Call::of(problem).a(a.address, k.into()).b(b.address, k.into()).d(d.address, n.into());
    let memory = [gpu.memory(a)?, gpu.memory(b)?, gpu.memory(d)?];
    tuned.loaded.launch(gpu.stream(), &call, &memory.each_ref().map(DeviceSlice::from))?;
    let want = bf16::from_f32(k as f32).to_le_bytes();
    let right = gpu.read(d)?.chunks_exact(2).all(|element| element == want);
    if right { Ok(()) } else { Err("the result is wrong".into()) }
}
