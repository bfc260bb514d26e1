//! A backward pass in one kernel: `dX = dY * W`, multiplied by the derivative of an activation. The kernel
//! also computes the sums of dX's columns, which are the gradient of the bias, and the largest magnitude, for
//! the next step's scale.
//!
//! `cargo run --release --example bias_gradient`

use falchion::collective::Fast;
use falchion::collective::functions::{GeluTanh, Gradient};
use falchion::collective::tree::{
    Accumulator, Amax, Compute, Load, ReduceRow, ReduceScalar, RowArgument, Sum,
};
use falchion::prelude::*;
use falchion::verify::{Bench, Format};

/// `acc * gelu'(x)`, where x is the activation's input in the forward pass.
type Backward = Compute<Gradient<GeluTanh<Fast>>, (Accumulator, Load<bf16>)>;

type MyGemm = Composed<
    TmaWgmma<Operands<KMajor<bf16>, MnMajor<bf16>>, Tile<U128, U128, U64>, Cooperative<U2>>,
    TreeEpilogue<bf16, TmaStore, ReduceScalar<Amax, ReduceRow<Sum, Backward>>>,
    Persistent<Grouped<AlongM, U8>>,
>;

fn main() -> Result<(), Report> {
    let mut engine: Box<dyn Engine> = match Gpu::new(0) {
        Ok(gpu) => Box::new(gpu),
        Err(_) => Box::new(Emulator::new()),
    };
    let problem = GemmProblem { m: 300, n: 200, k: 96 };
    let GemmProblem { m, n, .. } = problem;
    let mut bench = Bench::new(engine.as_mut(), 1);
    let before = MatrixRef::new(bench.random(Format::Bf16, m * n, 0)?, n.into());
    let zeros = |count: u32| vec![0; 4 * count as usize];
    let gradient = RowArgument { address: bench.upload(&zeros(n))?, len: n };
    let largest = bench.upload(&zeros(1))?;
    // Outermost first: the address of the maximum, the address of the sums, then the arguments of the
    // multiplication.
    let arguments = (largest, (gradient, ((), ((), before))));
    let checked = bench.check::<MyGemm>(problem, &arguments)?;
    let read = |bytes: Vec<u8>| f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    println!("{} elements and sums, error at most {:.2} of the bound", checked.compared, checked.ratio);
    println!("largest magnitude {}", read(bench.read(largest)?));
    Ok(())
}
