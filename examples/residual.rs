//! `D = alpha * A * B + bias + beta * C`, in place: D overwrites C, as in the second half of a transformer
//! block.
//!
//! `cargo run --release --example residual`

use falchion::collective::functions::{Add, MultiplyAdd};
use falchion::collective::tree::{
    Accumulator, Compute, Residual, ResidualArgument, RowArgument, RowVector, Scalar,
};
use falchion::prelude::*;
use falchion::verify::{Bench, Format};

/// `alpha * acc + bias`.
type Biased = Compute<MultiplyAdd, (Accumulator, Scalar, RowVector<bf16>)>;

type MyGemm = Composed<
    TmaWgmma<Operands<KMajor<bf16>, KMajor<bf16>>, Tile<U128, U128, U64>, Cooperative<U2>>,
    TreeEpilogue<bf16, TmaStore, Compute<Add, (Biased, Residual<bf16>)>>,
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
    let c = MatrixRef::new(bench.random(Format::Bf16, m * n, 0)?, n.into());
    let bias = RowArgument { address: bench.random(Format::Bf16, n, 0)?, len: n };
    // As the tree: a function's arguments, here none, and those of what it is applied to.
    let biased = ((), ((), 0.5, bias));
    let arguments = ((), (biased, ResidualArgument { beta: 1.0, c: Some(c) }));
    let checked = bench.check_at::<MyGemm>(problem, &arguments, c)?;
    println!("{} elements, error at most {:.2} of the bound", checked.compared, checked.ratio);
    Ok(())
}
