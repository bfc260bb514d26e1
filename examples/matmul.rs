//! Multiplies cudarc's matrices in three ways: with your own kernel, with a kernel that the library chooses,
//! and at plain addresses.
//!
//! `cargo run --release --features cudarc --example matmul`
#![allow(unsafe_code, reason = "launches at plain addresses")]

use cudarc::driver::{CudaContext, DevicePtr, DevicePtrMut};
use falchion::kernel::EngineError;
use falchion::kernel::driver::Context;
use falchion::prelude::*;

type MyGemm = Composed<
    TmaWgmma<Operands<KMajor<bf16>, MnMajor<bf16>>, Tile<U128, U192, U64>, Cooperative<U2>>,
    LinearCombination<bf16, TmaStore>,
    Persistent<Grouped<AlongN, U4>>,
>;

fn main() -> Result<(), Report> {
    // cudarc panics without a driver, so check first.
    if let Err(error @ EngineError::NoDriver { .. }) = Context::primary(0) {
        println!("{error}");
        return Ok(());
    }
    let context = CudaContext::new(0)?;
    let stream = context.new_stream()?;
    let problem = GemmProblem { m: 500, n: 400, k: 256 };
    let GemmProblem { m, n, k } = problem;

    // Row-major A, B and D.
    let mut random = fastrand::Rng::new();
    let mut matrix =
        |count: u32| -> Vec<bf16> { (0..count).map(|_| bf16::from_f32(random.f32() * 2.0 - 1.0)).collect() };
    let (host_a, host_b) = (matrix(m * k), matrix(k * n));
    let (a, b) = (stream.clone_htod(&host_a)?, stream.clone_htod(&host_b)?);
    let poison = vec![bf16::NAN; m as usize * n as usize];
    let check = |name: &str, d: &[bf16]| {
        let mut largest = 0.0f64;
        for (i, row) in d.chunks_exact(n as usize).enumerate() {
            for (j, found) in row.iter().enumerate() {
                let products = (0..k as usize)
                    .map(|l| host_a[i * k as usize + l].to_f64() * host_b[l * n as usize + j].to_f64());
                let error = (found.to_f64() - products.sum::<f64>()).abs();
                largest = if error.is_nan() { f64::INFINITY } else { largest.max(error) };
            }
        }
        println!("{name}: largest error {largest:.3}");
        // Half a unit in the last place of 32 is 0.0625 * 2.
        if largest < 0.13 { Ok(()) } else { Err(format!("the result of {name} is wrong")) }
    };

    let gemm = Gemm::<MyGemm>::load(&stream)?;
    let mut d = stream.clone_htod(&poison)?;
    gemm.multiply(&stream, problem, &a, &b, &mut d)?;
    check("a kernel of your own", &stream.clone_dtoh(&d)?)?;

    let mut d = stream.clone_htod(&poison)?;
    falchion::matmul(&stream, problem, &a, &b, &mut d)?;
    check("a kernel that is chosen", &stream.clone_dtoh(&d)?)?;

    let mut d = stream.clone_htod(&poison)?;
    {
        let ((a, _a), (b, _b), (d, _d)) =
            (a.device_ptr(&stream), b.device_ptr(&stream), d.device_ptr_mut(&stream));
        // SAFETY: the three slices and the stream live until the block ends, and later work on the stream
        // waits for the launch.
        unsafe { gemm.launch_raw(stream.cu_stream().cast(), &Gemm::<MyGemm>::packed(problem, [a, b, d]))? };
    }
    check("plain addresses", &stream.clone_dtoh(&d)?)?;

    let short = gemm.multiply(&stream, GemmProblem { m: 600, ..problem }, &a, &b, &mut d);
    println!("refused: {}", short.err().ok_or("a short slice was taken")?);
    Ok(())
}
