//! Activations. Those that contain an elementary function have three variants: `F<Exact>` (the default),
//! `F<Fast>` and `F<Fastest>`.
//!
//! [`Bounded`](crate::Bounded) computes the error bound of each.
//! [`Elementary::error`](crate::Elementary::error) states the errors from which it is derived.

use core::marker::PhantomData;

use super::Pointwise;
use crate::real::{Accuracy, Exact, Level, Real};

macro_rules! activations {
    ($($(#[$doc:meta])* $name:ident, $text:literal, $arguments:ty, [$($argument:literal),*], |$pattern:pat_param, $x:ident| $body:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub struct $name;
        impl Pointwise for $name {
            type Arguments = $arguments;
            const ARGUMENTS: &'static [&'static str] = &[$($argument),*];
            fn name() -> String {
                $text.to_owned()
            }
            fn apply<R: Real>($pattern: <$arguments as super::Scalars>::Of<R>, [$x]: [R; 1]) -> R {
                $body
            }
        }
    )*};
}

activations! {
    /// `max(x, 0)`.
    Relu, "relu", (), [], |(), x| x.max_nan(x.constant(0.0));
    /// `x`, or `slope * x` below zero.
    LeakyRelu, "leaky_relu", f64, ["slope"], |slope, x| x.less(x.constant(0.0), x * slope, x);
    /// `x` above the threshold, otherwise zero.
    ThresholdRelu, "threshold_relu", f64, ["threshold"], |threshold, x| {
        // A NaN is neither below nor above the threshold: `x * zero` keeps it, and maps the threshold itself
        // to zero.
        let zero = x.constant(0.0);
        x.less(threshold, zero, threshold.less(x, x, x * zero))
    };
    /// `x` inside `[low, high]`.
    Clamp, "clamp", [f64; 2], ["low", "high"], |[low, high], x| x.clamp(low, high);
    /// `x * clamp(x + 3, 0, 6) / 6`.
    HardSwish, "hard_swish", (), [], |(), x| {
        x.plus(3.0).clamp(x.constant(0.0), x.constant(6.0)).times(1.0 / 6.0) * x
    };
}

/// `GeluTanh<A>` of `a * b + c`. It saves one operation per element if b and c are shared by many elements:
/// they are halved in advance, which is exact.
#[derive(Clone, Copy, Debug)]
pub struct MultiplyAddGelu<A = Exact>(PhantomData<A>);

impl<A: Accuracy> Pointwise<3> for MultiplyAddGelu<A> {
    type Arguments = ();
    const REGISTERS: u32 = GeluTanh::<A>::REGISTERS;

    fn name() -> String {
        format!("mul_add_{}", GeluTanh::<A>::name())
    }

    fn apply<R: Real>((): (), [a, b, c]: [R; 3]) -> R {
        gelu_of_half::<A, R>(a.mul_add(b.times(0.5), c.times(0.5)))
    }
}

/// [`GeluTanh`] of `2 * half`.
fn gelu_of_half<A: Accuracy, R: Real>(half: R) -> R {
    let linear = half.constant(2.0 * 0.797_884_560_802_865_4);
    let inner = (half * half).mul_add(half.constant(8.0 * 0.035_677_408_136_300_125), linear);
    half.mul_add(A::tanh(half * inner), half)
}

macro_rules! accurate {
    ($($(#[$doc:meta])* $name:ident, $text:literal, $arguments:ty, [$($argument:literal),*], |$pattern:pat_param, $x:ident| $body:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub struct $name<A = Exact>(PhantomData<A>);
        impl<A: Accuracy> Pointwise for $name<A> {
            type Arguments = $arguments;
            const ARGUMENTS: &'static [&'static str] = &[$($argument),*];
            const REGISTERS: u32 = match A::LEVEL {
                Level::Exact => 32,
                Level::Fast => 24,
                Level::Fastest => 16,
            };
            fn name() -> String {
                format!("{}{}", $text, A::SUFFIX)
            }
            fn apply<R: Real>($pattern: <$arguments as super::Scalars>::Of<R>, [$x]: [R; 1]) -> R {
                $body
            }
        }
    )*};
}

accurate! {
    /// `1 / (1 + e^-x)`.
    Sigmoid, "sigmoid", (), [], |(), x| A::sigmoid(x);
    /// The hyperbolic tangent.
    Tanh, "tanh", (), [], |(), x| A::tanh(x);
    /// `x / (1 + e^-x)`, also called swish.
    Silu, "silu", (), [], |(), x| x * A::sigmoid(x);
    /// `x / 2 * (1 + erf(x / sqrt 2))`.
    ///
    /// Far below zero the sum cancels, so the error is relative to `x`, not to the result.
    Gelu, "gelu", (), [], |(), x| {
        let half = x.times(0.5);
        half.mul_add(A::erf(x.times(core::f64::consts::FRAC_1_SQRT_2)), half)
    };
    /// `x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))`, the usual approximation of [`Gelu`].
    GeluTanh, "gelu_tanh", (), [], |(), x| gelu_of_half::<A, R>(x.times(0.5));
    /// `x + sin^2(frequency * x) / frequency`.
    Snake, "snake", f64, ["frequency"], |frequency, x| {
        let sin = A::sin(x * frequency);
        x + A::divide(sin * sin, frequency)
    };
}
