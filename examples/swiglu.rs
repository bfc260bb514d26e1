//! A gated MLP in two kernels: `H = silu(X * G) * (X * U)` as one GEMM, then `Y = H * V`. The weights G and U
//! are consecutive in memory, as models store them: nothing is rearranged, and H never exists at twice its
//! width.
//!
//! `cargo run --release --example swiglu`

use falchion::collective::Fast;
use falchion::collective::functions::{Multiply, Silu};
use falchion::collective::tree::{Accumulator, Compute, Gated, Glu, Scalar, Split};
use falchion::prelude::*;
use falchion::verify::{Bench, Format};

type Kk = Operands<KMajor<bf16>, KMajor<bf16>>;
type Bands = Persistent<Grouped<AlongM, U8>>;
/// `alpha * acc`.
type Scaled = Compute<Multiply, (Accumulator, Scalar)>;
/// D has half of the columns of the GEMM: each tile reads gates from G and the matching ups from U.
type Gate = Composed<
    TmaWgmma<Kk, Tile<U128, U256, U64>, Cooperative<U2>>,
    TreeEpilogue<bf16, TmaStore, Gated<Glu<Silu<Fast>>, Scaled, Split>>,
    Bands,
>;
type Down = Composed<
    TmaWgmma<Kk, Tile<U128, U128, U64>, Cooperative<U2>>,
    TreeEpilogue<bf16, TmaStore, Scaled>,
    Bands,
>;

fn main() -> Result<(), Report> {
    let mut engine: Box<dyn Engine> = match Gpu::new(0) {
        Ok(gpu) => Box::new(gpu),
        Err(_) => Box::new(Emulator::new()),
    };
    let (tokens, model, hidden) = (200, 128, 192);
    let mut bench = Bench::new(engine.as_mut(), 1);
    let matrix = |address, ld: u32| MatrixRef::new(address, ld.into());
    let x = matrix(bench.random(Format::Bf16, tokens * model, 0)?, model);
    let gate_and_up = matrix(bench.random(Format::Bf16, 2 * hidden * model, 0)?, model);
    let down = matrix(bench.random(Format::Bf16, model * hidden, 0)?, hidden);
    let h = matrix(bench.output(tokens as usize * hidden as usize * 2)?, hidden);
    let y = matrix(bench.output(tokens as usize * model as usize * 2)?, model);

    let first = Call::of(GemmProblem { m: tokens, n: 2 * hidden, k: model });
    let first = Call { a: x, b: gate_and_up, d: h, ..first };
    let gated = bench.check_product::<Gate>(&first.with(&((), ((), ((), 0.1)))))?;
    println!("H: {} elements, error at most {:.2} of the bound", gated.compared, gated.ratio);
    let second = Call::of(GemmProblem { m: tokens, n: model, k: hidden });
    let second = Call { a: h, b: down, d: y, ..second };
    let result = bench.check_product::<Down>(&second.with(&((), ((), 1.0))))?;
    println!("Y: {} elements, error at most {:.2} of the bound", result.compared, result.ratio);
    Ok(())
}
