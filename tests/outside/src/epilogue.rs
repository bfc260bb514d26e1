//! An epilogue: a function with an argument of its own.

use falchion::collective::tree::{Accumulator, Compute};
use falchion::collective::{Pointwise, Real};
use falchion::prelude::*;

/// `x^2 / (x^2 + c)` with the sign of x.
pub struct Hill;
impl Pointwise for Hill {
    type Arguments = f64;
    const ARGUMENTS: &'static [&'static str] = &["c"];
    fn name() -> String {
        "hill".into()
    }
    fn apply<R: Real>(c: R, [x]: [R; 1]) -> R {
        (x * x / (x * x + c)).copysign(x)
    }
}

/// D is this function of each accumulator.
pub type HillOfSums<S> = TreeEpilogue<bf16, S, Compute<Hill, (Accumulator,)>>;
