//! Functions of an epilogue, applied element by element. Each is written once, for host and device.
//!
//! Implement [`Pointwise`] for a type to add a function of your own:
//!
//! ```
//! use collective::{Pointwise, Real, evaluate};
//!
//! /// `(x + sqrt(x^2 + b)) / 2`, with b a kernel parameter.
//! struct Squareplus;
//! impl Pointwise for Squareplus {
//!     type Arguments = f64;
//!     const ARGUMENTS: &'static [&'static str] = &["b"];
//!     fn name() -> String {
//!         "squareplus".into()
//!     }
//!     fn apply<R: Real>(b: R, [x]: [R; 1]) -> R {
//!         (x + x.mul_add(x, b).sqrt()).times(0.5)
//!     }
//! }
//! assert_eq!(evaluate::<Squareplus, 1>(5.0, [2.0]), 2.5);
//! ```
//!
//! All functions return NaN if an operand is NaN.

mod activation;
mod arithmetic;
mod gradient;

pub use activation::{
    Clamp, Gelu, GeluTanh, HardSwish, LeakyRelu, MultiplyAddGelu, Relu, Sigmoid, Silu, Snake, Tanh,
    ThresholdRelu,
};
pub use arithmetic::{
    Absolute, Add, Divide, Identity, Maximum, Minimum, Multiply, MultiplyAdd, Negate, Scale, Square, Subtract,
};
pub use gradient::Gradient;

use crate::real::{Bounded, Dual, Needs, Real};

/// The scalar arguments of a function: `()`, `f64`, or `[f64; N]`. Each scalar is a kernel parameter.
pub trait Scalars: Copy + Default + PartialEq + Send + Sync + 'static {
    /// The same arguments as numbers of another kind.
    type Of<R: Copy>: Copy;
    /// Number of scalars.
    const COUNT: usize;

    /// The scalars in order.
    fn values(self) -> Vec<f64>;

    /// The arguments from numbers of the host.
    fn of(values: Self::Of<f64>) -> Self;

    /// The arguments built from their scalars, in order.
    fn gather<R: Copy>(next: &mut dyn FnMut() -> R) -> Self::Of<R>;

    /// The arguments as constants in a derivative: they do not depend on its variable.
    fn fix<R: Real>(arguments: Self::Of<R>) -> Self::Of<Dual<R>>;
}

impl Scalars for () {
    type Of<R: Copy> = ();
    const COUNT: usize = 0;

    fn values(self) -> Vec<f64> {
        Vec::new()
    }

    fn of((): ()) {}

    fn gather<R: Copy>(_next: &mut dyn FnMut() -> R) {}

    fn fix<R: Real>((): ()) {}
}

impl Scalars for f64 {
    type Of<R: Copy> = R;
    const COUNT: usize = 1;

    fn values(self) -> Vec<f64> {
        vec![self]
    }

    fn of(value: f64) -> Self {
        value
    }

    fn gather<R: Copy>(next: &mut dyn FnMut() -> R) -> R {
        next()
    }

    fn fix<R: Real>(argument: R) -> Dual<R> {
        Dual::fixed(argument)
    }
}

impl<const N: usize> Scalars for [f64; N]
where
    Self: Default,
{
    type Of<R: Copy> = [R; N];
    const COUNT: usize = N;

    fn values(self) -> Vec<f64> {
        self.to_vec()
    }

    fn of(values: [f64; N]) -> Self {
        values
    }

    fn gather<R: Copy>(next: &mut dyn FnMut() -> R) -> [R; N] {
        core::array::from_fn(|_| next())
    }

    fn fix<R: Real>(arguments: [R; N]) -> [Dual<R>; N] {
        arguments.map(Dual::fixed)
    }
}

/// A function of `INPUTS` numbers, as a type.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a function of {INPUTS} numbers",
    note = "implement `Pointwise<{INPUTS}>` for it, or give the node as many children as the function has inputs"
)]
pub trait Pointwise<const INPUTS: usize = 1>: 'static {
    /// Its scalar arguments: `()`, `f64` or `[f64; N]`.
    type Arguments: Scalars;
    /// The names of the arguments, one per scalar. They name kernel parameters and appear in errors.
    const ARGUMENTS: &'static [&'static str] = &[];
    /// Registers per thread that it needs in addition to its inputs, for the plan. Default: 8.
    const REGISTERS: u32 = 8;

    /// An identifier for kernel names.
    fn name() -> String;

    /// The function's value.
    fn apply<R: Real>(arguments: <Self::Arguments as Scalars>::Of<R>, x: [R; INPUTS]) -> R;
}

/// The reference value of a function, in `f64`.
pub fn evaluate<F: Pointwise<N>, const N: usize>(arguments: F::Arguments, x: [f64; N]) -> f64 {
    evaluate_in::<F, f64, N>(arguments, x, |scalar| scalar)
}

/// The reference value of a function, with a bound on the device's error. The inputs may have errors of their
/// own.
pub fn evaluate_bounded<F: Pointwise<N>, const N: usize>(
    arguments: F::Arguments,
    x: [Bounded; N],
) -> Bounded {
    evaluate_in::<F, Bounded, N>(arguments, x, |scalar| Bounded::exact(f64::from(scalar as f32)))
}

/// A function evaluated on numbers of any kind. `lift` converts the scalar arguments to that kind.
pub fn evaluate_in<F: Pointwise<N>, R: Real, const N: usize>(
    arguments: F::Arguments,
    x: [R; N],
    lift: impl Fn(f64) -> R,
) -> R {
    // `gather` requests exactly `COUNT` scalars.
    let mut values = arguments.values().into_iter();
    let arguments = F::Arguments::gather(&mut || lift(values.next().unwrap_or(f64::NAN)));
    F::apply(arguments, x)
}

impl Needs {
    /// What `F` needs.
    pub fn of<F: Pointwise<N>, const N: usize>() -> Self {
        let arguments = F::Arguments::of(F::Arguments::gather(&mut || 0.0));
        evaluate_in::<F, Self, N>(arguments, [Self::default(); N], |_| Self::default())
    }
}
