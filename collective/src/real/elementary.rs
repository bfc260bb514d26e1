//! The elementary functions, and the errors of their three variants.

use super::Real;

/// An elementary function of one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Elementary {
    /// The square root.
    Sqrt,
    /// `1 / x`.
    Recip,
    /// `1 / sqrt(x)`.
    Rsqrt,
    /// `2^x`.
    Exp2,
    /// `e^x`.
    Exp,
    /// The logarithm to base 2.
    Log2,
    /// The natural logarithm.
    Ln,
    /// The hyperbolic tangent.
    Tanh,
    /// `1 / (1 + e^-x)`.
    Sigmoid,
    /// The error function.
    Erf,
    /// The sine, of radians.
    Sin,
    /// The cosine, of radians.
    Cos,
}

/// The accuracy level of a function, from the most accurate to the fastest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Level {
    /// Only additions, multiplications and correctly rounded quotients: a few ulp, and the same bits on host,
    /// emulator and GPU.
    Exact,
    /// The hardware's approximations of 2^x, log2, 1/x and roots: a few ulp, plus a relative error that grows
    /// with the exponent.
    Fast,
    /// One hardware approximation, if there is one: 11 bits for tanh and the functions based on it.
    Fastest,
}

impl Level {
    /// Every level.
    pub const ALL: [Self; 3] = [Self::Exact, Self::Fast, Self::Fastest];
}

/// The unit roundoff of `f32`.
pub(super) const U: f64 = 1.0 / 16_777_216.0;

/// Half of the smallest positive `f32`.
pub(super) const TINY: f64 = 1.0 / (1u128 << 75) as f64 / (1u128 << 75) as f64;

impl Elementary {
    /// Every function.
    pub const ALL: [Self; 12] = [
        Self::Sqrt,
        Self::Recip,
        Self::Rsqrt,
        Self::Exp2,
        Self::Exp,
        Self::Log2,
        Self::Ln,
        Self::Tanh,
        Self::Sigmoid,
        Self::Erf,
        Self::Sin,
        Self::Cos,
    ];

    /// The largest absolute error of an `f32` evaluation at `x`.
    ///
    /// An ulp is at most `2^-23` of the value. The bounds of sine and cosine hold for |x| <= 32768 (exact)
    /// and |x| <= pi (fast); beyond, only -1..=1 is guaranteed. A fast result below `2^-126` may be zero.
    pub fn error(self, level: Level, x: f64) -> f64 {
        let truth = x.elementary(self, Level::Exact).abs();
        let ulp = 2.0 * U;
        // Relative error in ulp, absolute error.
        let (relative, absolute) = match (level, self) {
            (Level::Exact, Self::Sqrt | Self::Recip) => (0.5, 0.0),
            (Level::Exact, Self::Sin | Self::Cos) if x.abs() > 32768.0 => (0.0, 2.0),
            (Level::Exact, Self::Sin | Self::Cos) => (1.25, x.abs() * U * U),
            (Level::Exact, Self::Sigmoid) => (1.75, 0.0),
            (Level::Exact, _) => (1.25, 0.0),
            (_, Self::Sqrt | Self::Recip | Self::Rsqrt) => (1.25, FLUSHED),
            (_, Self::Exp2) => (2.5, FLUSHED),
            (_, Self::Exp) => (3.0 + x.abs(), FLUSHED),
            (_, Self::Log2 | Self::Ln) => (4.0, 2.0 * ulp),
            (Level::Fast, Self::Tanh) => (1.0, 4.0 * ulp),
            // Below -87 the exponential overflows and the result is zero.
            (Level::Fast, Self::Sigmoid) => (6.0 + x.abs(), 2.0 * FLUSHED),
            (Level::Fast, Self::Erf) => (1.0, 8.0 * ulp),
            (Level::Fastest, Self::Tanh) => (4096.0, 0.0),
            (Level::Fastest, Self::Sigmoid) => (1.0, 2048.0 * ulp),
            (Level::Fastest, Self::Erf) => (4096.0, 4096.0 * ulp),
            (_, Self::Sin | Self::Cos) if x.abs() > core::f64::consts::PI => (0.0, 2.0),
            // 2^-20.5, and a little for the last bit.
            (_, Self::Sin | Self::Cos) => (0.5, 6.0 * ulp),
        };
        relative * ulp * truth + absolute + TINY
    }
}

/// The smallest normal `f32`.
const FLUSHED: f64 = f32::MIN_POSITIVE as f64;

/// A level as a type, so that a function can be generic over it: [`Exact`], [`Fast`] or [`Fastest`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no accuracy",
    note = "write `Exact` (same bits everywhere), `Fast` (a few ulp) or `Fastest` (11 bits)"
)]
pub trait Accuracy: 'static {
    /// The level.
    const LEVEL: Level;
    /// Suffix of a function's name.
    const SUFFIX: &'static str;

    /// A function of a number at this level.
    fn of<R: Real>(function: Elementary, x: R) -> R {
        x.elementary(function, Self::LEVEL)
    }

    /// `a / b`: correctly rounded at level `Exact`, else by the reciprocal.
    fn divide<R: Real>(a: R, b: R) -> R {
        match Self::LEVEL {
            Level::Exact => a / b,
            Level::Fast | Level::Fastest => a * Self::of(Elementary::Recip, b),
        }
    }

    /// `e^x`.
    fn exp<R: Real>(x: R) -> R {
        Self::of(Elementary::Exp, x)
    }

    /// The natural logarithm.
    fn ln<R: Real>(x: R) -> R {
        Self::of(Elementary::Ln, x)
    }

    /// The hyperbolic tangent.
    fn tanh<R: Real>(x: R) -> R {
        Self::of(Elementary::Tanh, x)
    }

    /// `1 / (1 + e^-x)`.
    fn sigmoid<R: Real>(x: R) -> R {
        Self::of(Elementary::Sigmoid, x)
    }

    /// The error function.
    fn erf<R: Real>(x: R) -> R {
        Self::of(Elementary::Erf, x)
    }

    /// The sine.
    fn sin<R: Real>(x: R) -> R {
        Self::of(Elementary::Sin, x)
    }
}

macro_rules! accuracies {
    ($($(#[$doc:meta])* $name:ident => $suffix:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub struct $name;
        impl Accuracy for $name {
            const LEVEL: Level = Level::$name;
            const SUFFIX: &'static str = $suffix;
        }
    )*};
}

accuracies! {
    /// [`Level::Exact`].
    Exact => "";
    /// [`Level::Fast`].
    Fast => "_fast";
    /// [`Level::Fastest`].
    Fastest => "_fastest";
}
