//! Your own activation function, with an argument, in a kernel. The same Rust function on the host checks the
//! result.
//!
//! `cargo run --release --example own_activation`

use falchion::collective::tree::{Accumulator, Compute};
use falchion::collective::{Pointwise, Real};
use falchion::prelude::*;
use falchion::verify::Bench;

/// `x * tanh(b * ln(1 + e^x))`: mish, with a steepness b.
struct Mish;

impl Pointwise for Mish {
    type Arguments = f64;
    const ARGUMENTS: &'static [&'static str] = &["b"];

    fn name() -> String {
        "mish".into()
    }

    fn apply<R: Real>(b: R, [x]: [R; 1]) -> R {
        x * (b * x.exp().plus(1.0).ln()).tanh()
    }
}

type MyGemm = Composed<
    TmaWgmma<Operands<KMajor<bf16>, KMajor<bf16>>, Tile<U128, U128, U64>, Cooperative<U2>>,
    TreeEpilogue<bf16, TmaStore, Compute<Mish, (Accumulator,)>>,
    Persistent<Grouped<AlongM, U8>>,
>;

fn main() -> Result<(), Report> {
    let mut engine: Box<dyn Engine> = match Gpu::new(0) {
        Ok(gpu) => Box::new(gpu),
        Err(_) => Box::new(Emulator::new()),
    };
    let mut bench = Bench::new(engine.as_mut(), 1);
    // The function's argument, then the arguments of its operand. The accumulator has none.
    let checked = bench.check::<MyGemm>(GemmProblem { m: 300, n: 200, k: 96 }, &(1.5, ((),)))?;
    println!("{} elements of mish, error at most {:.2} of the bound", checked.compared, checked.ratio);
    Ok(())
}
