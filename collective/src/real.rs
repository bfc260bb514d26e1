//! Real numbers for formulas: `f64` and `f32` on the host, device values in a kernel.
//!
//! A formula is written once, generic over [`Real`]. The type it runs with decides what it computes:
//!
//! * `f64`: the reference,
//! * `f32`: the device's arithmetic, on the host,
//! * [`Value<f32>`](ptx::Value): the program that computes it on the device,
//! * [`Bounded`]: the reference, with a bound on the error of an `f32` evaluation,
//! * [`Dual`]: the formula and its derivative,
//! * [`Number`]: the program, in what the kernel computes: `f32`, integers or `f64`,
//! * `Wrapping<i32>`: integers modulo 2^32, on the host,
//! * [`Needs`]: what the formula needs of its numbers.
//!
//! ```
//! use collective::{Bounded, Real};
//!
//! fn softsign<R: Real>(x: R) -> R {
//!     x / x.abs().plus(1.0)
//! }
//! assert_eq!(softsign(3.0f64), 0.75);
//! assert!((softsign(Bounded::exact(0.1)).error) < 1e-7);
//! ```
//!
//! # NaN
//!
//! Arithmetic and elementary functions propagate NaN. [`min`](Real::min) and [`max`](Real::max) return the
//! number if one operand is NaN, as PTX and Rust do. [`min_nan`](Real::min_nan) and
//! [`max_nan`](Real::max_nan) return NaN. A comparison with NaN is false.

/// Methods of [`Real`] that combine two numbers by one rule.
macro_rules! pairs {
    ($($name:ident),+: |$a:ident, $b:ident| $body:expr) => {$(
        fn $name(self, other: Self) -> Self {
            let ($a, $b) = (self, other);
            $body
        }
    )+};
}

mod bounded;
mod device;
mod dual;
mod elementary;
mod host;
mod needs;
mod number;
mod single;

pub use bounded::Bounded;
pub use dual::Dual;
pub use elementary::{Accuracy, Elementary, Exact, Fast, Fastest, Level};
pub use needs::Needs;
pub(crate) use number::NumberVar;
pub use number::{Arithmetic, Number};

use core::fmt::Debug;
use core::ops::{Add, Div, Mul, Neg, Sub};

/// Elementary functions by name, at the level [`Exact`](Level::Exact).
macro_rules! exact {
    ($($(#[$doc:meta])* $name:ident: $function:ident;)*) => {$(
        $(#[$doc])*
        #[track_caller]
        fn $name(self) -> Self {
            self.elementary(Elementary::$function, Level::Exact)
        }
    )*};
}

/// A real number on the host or on the device. Operators round to nearest even and keep subnormals.
pub trait Real:
    Copy
    + Debug
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
{
    /// A constant of the same kind as `self`: on the host, or in the program under construction.
    fn constant(self, value: f64) -> Self;

    /// `self * factor + addend`, rounded once.
    fn mul_add(self, factor: Self, addend: Self) -> Self;

    /// `|self|`.
    fn abs(self) -> Self;

    /// The magnitude of `self` with the sign of `sign`.
    fn copysign(self, sign: Self) -> Self;

    /// The smaller; if one is NaN, the other.
    fn min(self, other: Self) -> Self;

    /// The larger; if one is NaN, the other.
    fn max(self, other: Self) -> Self;

    /// The smaller; NaN if either is NaN.
    fn min_nan(self, other: Self) -> Self;

    /// The larger; NaN if either is NaN.
    fn max_nan(self, other: Self) -> Self;

    /// `yes` if `self < limit`, otherwise `no`.
    fn less(self, limit: Self, yes: Self, no: Self) -> Self;

    /// An elementary function with the accuracy of `level`: see [`Elementary::error`].
    fn elementary(self, function: Elementary, level: Level) -> Self;

    /// `self * factor`.
    #[track_caller]
    fn times(self, factor: f64) -> Self {
        self * self.constant(factor)
    }

    /// `self + addend`.
    #[track_caller]
    fn plus(self, addend: f64) -> Self {
        self + self.constant(addend)
    }

    /// `self` clamped to `low..=high`; NaN stays NaN.
    #[track_caller]
    fn clamp(self, low: Self, high: Self) -> Self {
        self.max_nan(low).min_nan(high)
    }

    exact! {
        /// The square root, correctly rounded.
        sqrt: Sqrt;
        /// `1 / self`, correctly rounded.
        recip: Recip;
        /// `1 / sqrt(self)`.
        rsqrt: Rsqrt;
        /// `2^self`.
        exp2: Exp2;
        /// `e^self`.
        exp: Exp;
        /// The logarithm to base 2.
        log2: Log2;
        /// The natural logarithm.
        ln: Ln;
        /// The hyperbolic tangent.
        tanh: Tanh;
        /// `1 / (1 + e^-self)`.
        sigmoid: Sigmoid;
        /// The error function.
        erf: Erf;
        /// The sine; `self` in radians.
        sin: Sin;
        /// The cosine; `self` in radians.
        cos: Cos;
    }
}
