//! A kernel of your own: three roles in a type. Runs it on the GPU if there is one, else in the emulator, and
//! checks it.
//!
//! `cargo run --release --example gemm`

use falchion::prelude::*;
use falchion::verify::matrix::Distribution;
use falchion::verify::{Format, HostMatrix, Order, Sums};

struct MyGemm;

impl GemmConfig for MyGemm {
    /// A is row-major, B is column-major. A CTA computes tiles of 128 x 192, with K = 64 per stage.
    type Mainloop = TmaWgmma<Operands<KMajor<bf16>, KMajor<bf16>>, Tile<U128, U192, U64>, Cooperative<U2>>;
    /// D = alpha * A * B + beta * C, stored by tensor copies.
    type Epilogue = LinearCombination<bf16, TmaStore>;
    /// Persistent: launches the number of CTAs that the GPU runs at the same time. Tiles follow each other
    /// along N, in bands of 4.
    type Scheduler = Persistent<Grouped<AlongN, U4>>;
}

/// Illegal numbers stop the build here: try `Tile<U128, U192, U96>`, or a third consumer.
const PLAN: Plan = Gemm::<MyGemm>::PLAN;

fn main() -> Result<(), Report> {
    let problem = GemmProblem { m: 500, n: 400, k: 256 };
    let GemmProblem { m, n, k } = problem;
    println!(
        "{} with {} stages of {} bytes",
        Gemm::<MyGemm>::name(),
        PLAN.ring.stages,
        PLAN.ring.stage_bytes
    );

    let mut engine: Box<dyn Engine> = match Gpu::new(0) {
        Ok(gpu) => Box::new(gpu),
        Err(_) => Box::new(Emulator::new()),
    };
    println!("on {}", engine.describe());

    let mut random = fastrand::Rng::new();
    let mut matrix = |extents, order| {
        HostMatrix::random(Format::Bf16, extents, order, 1, Distribution::Normal, &mut random)
    };
    let (a, b) = (matrix([m, k], Order::RowMajor), matrix([k, n], Order::ColumnMajor));
    let d = engine.allocate(m as usize * n as usize * 2)?;
    let (a_at, b_at) = (engine.upload(&a.bytes())?.address, engine.upload(&b.bytes())?.address);
    // A persistent scheduler splits no tiles, so no workspace is needed.
    let call = Call::of(problem).a(a_at, k.into()).b(b_at, k.into()).d(d.address, n.into());

    let program = Gemm::<MyGemm>::program()?;
    let resident = engine.resident_clusters(&program)?;
    let Some(launch) = Gemm::<MyGemm>::launch(&call, resident)? else { return Ok(()) };
    let time = engine.launch(&program, launch.grid, &launch.arguments)?;
    println!("took {time:?}");

    let result = engine.read(d)?;
    let sums = Sums::of(&a, &b, &|_| ());
    let largest = result
        .chunks_exact(2)
        .zip(&sums.sums)
        .map(|(got, exact)| (bf16::from_le_bytes([got[0], got[1]]).to_f64() - exact.value).abs())
        .fold(0.0, f64::max);
    println!("largest error {largest:.3}, where half a unit in the last place of 64 is 0.25");
    if largest > 0.3 { Err("the result is wrong".into()) } else { Ok(()) }
}
