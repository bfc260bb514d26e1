//! Arithmetic functions.

use super::{Pointwise, Scalars};
use crate::real::Real;

macro_rules! functions {
    ($($(#[$doc:meta])* $name:ident, $text:literal, $inputs:literal, |$x:pat_param| $body:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub struct $name;
        impl Pointwise<$inputs> for $name {
            type Arguments = ();
            const REGISTERS: u32 = 2;
            fn name() -> String {
                $text.to_owned()
            }
            fn apply<R: Real>((): <() as Scalars>::Of<R>, $x: [R; $inputs]) -> R {
                $body
            }
        }
    )*};
}

functions! {
    /// `x`.
    Identity, "identity", 1, |[x]| x;
    /// `|x|`.
    Absolute, "abs", 1, |[x]| x.abs();
    /// `-x`.
    Negate, "neg", 1, |[x]| -x;
    /// `x * x`.
    Square, "square", 1, |[x]| x * x;
    /// `a + b`.
    Add, "add", 2, |[a, b]| a + b;
    /// `a - b`.
    Subtract, "sub", 2, |[a, b]| a - b;
    /// `a * b`.
    Multiply, "mul", 2, |[a, b]| a * b;
    /// `a / b`, correctly rounded.
    Divide, "div", 2, |[a, b]| a / b;
    /// The larger of the two.
    Maximum, "max", 2, |[a, b]| a.max_nan(b);
    /// The smaller of the two.
    Minimum, "min", 2, |[a, b]| a.min_nan(b);
    /// `a * b + c`, rounded once.
    MultiplyAdd, "mul_add", 3, |[a, b, c]| a.mul_add(b, c);
}

/// `factor * x`.
#[derive(Clone, Copy, Debug)]
pub struct Scale;

impl Pointwise for Scale {
    type Arguments = f64;
    const ARGUMENTS: &'static [&'static str] = &["factor"];
    const REGISTERS: u32 = 2;

    fn name() -> String {
        "scale".to_owned()
    }

    fn apply<R: Real>(factor: R, [x]: [R; 1]) -> R {
        x * factor
    }
}
