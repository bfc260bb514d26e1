//! An epilogue of somebody else's: a function with an argument of its own, in a kernel that the emulator runs.

use falchion::collective::tree::{Accumulator, Compute};
use falchion::collective::{Pointwise, Real};
use falchion::prelude::*;
use falchion::verify::Bench;

/// `x^2 / (x^2 + c)` with the sign of x.
struct Hill;
impl Pointwise for Hill {
    type Arguments = f32;
    const ARGUMENTS: &'static [&'static str] = &["c"];
    fn name() -> String {
        "hill".into()
    }
    fn apply<R: Real>(c: R, [x]: [R; 1]) -> R {
        (x * x / (x * x + c)).copysign(x)
    }
}

type MyGemm = Composed<
    TmaWgmma<Operands<KMajor<bf16>, KMajor<bf16>>, Tile<U64, U64, U64>, Cooperative<U1>>,
    TreeEpilogue<bf16, TmaStore, Compute<Hill, (Accumulator,)>>,
    OneTile<AlongM>,
>;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut engine = Emulator::new();
    let checked = Bench::new(&mut engine, 1)
        .check::<MyGemm>(GemmProblem { m: 70, n: 72, k: 64 }, &(4.0, ((),)))?;
    println!("{} elements, at most {:.2} of the bound off", checked.compared, checked.ratio);
    Ok(())
}
