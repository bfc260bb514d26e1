//! `D = e4m3(scale * (alpha * A * B + bias))`, as in 8-bit training with delayed scaling. The kernel also
//! computes the largest magnitude before scaling, from which the caller derives the next step's scale.
//!
//! `cargo run --release --example quantise`

use falchion::collective::functions::{Multiply, MultiplyAdd};
use falchion::collective::tree::{
    Accumulator, Amax, Compute, ReduceScalar, RowArgument, RowVector, Scalar, ScalarPointer,
};
use falchion::prelude::*;
use falchion::verify::{Bench, Format};
use float8::F8E4M3;

/// `alpha * acc + bias`.
type Biased = Compute<MultiplyAdd, (Accumulator, Scalar, RowVector<bf16>)>;
/// The scale is in device memory, because an earlier step has computed it.
type Quantised = Compute<Multiply, (ReduceScalar<Amax, Biased>, ScalarPointer<f32>)>;

type MyGemm = Composed<
    TmaWgmma<Operands<KMajor<bf16>, KMajor<bf16>>, Tile<U128, U128, U64>, Cooperative<U2>>,
    TreeEpilogue<F8E4M3, TmaStore, Quantised>,
    Persistent<Grouped<AlongM, U8>>,
>;

fn main() -> Result<(), Report> {
    let mut engine: Box<dyn Engine> = match Gpu::new(0) {
        Ok(gpu) => Box::new(gpu),
        Err(_) => Box::new(Emulator::new()),
    };
    let problem = GemmProblem { m: 300, n: 208, k: 96 };
    let mut bench = Bench::new(engine.as_mut(), 1);
    let bias = RowArgument { address: bench.random(Format::Bf16, problem.n, 0)?, len: problem.n };
    let scale = bench.upload(&8f32.to_le_bytes())?;
    let amax = bench.upload(&0f32.to_le_bytes())?;
    let arguments = ((), ((amax, ((), ((), 1.0, bias))), scale));
    let checked = bench.check::<MyGemm>(problem, &arguments)?;
    println!(
        "{} elements and the maximum, error at most {:.2} of the bound",
        checked.compared, checked.ratio
    );
    let bytes = bench.read(amax)?;
    let amax = f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    println!("largest magnitude {amax}: the next scale is {}", 448.0 / amax);
    Ok(())
}
