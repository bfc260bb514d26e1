//! A reference value with a bound on the error of its single-precision evaluation.

use core::ops::{Add, Div, Mul, Neg, Sub};

use super::elementary::{TINY, U};
use super::{Elementary, Level, Real};

/// The true value of a formula, with the largest error of its evaluation in `f32` at the accuracy levels that
/// the formula names.
///
/// Each operation propagates the errors of its operands and adds its own rounding. A selection that the
/// errors leave undecided covers both outcomes. The bound is infinite if nothing can be said: for example,
/// for a quotient by a number that may be zero.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounded {
    /// The true value.
    pub value: f64,
    /// The largest error.
    pub error: f64,
}

impl Bounded {
    /// A number known exactly.
    pub fn exact(value: f64) -> Self {
        Self { value, error: 0.0 }
    }

    /// A number known up to an error.
    pub fn new(value: f64, error: f64) -> Self {
        Self { value, error: Real::abs(error) }
    }

    /// Whether a computed number is within the bound; if the value is NaN, it must be NaN. An infinite bound
    /// admits every number.
    pub fn admits(self, computed: f32) -> bool {
        if self.value.is_nan() {
            return computed.is_nan();
        }
        let computed = f64::from(computed);
        // The difference of two equal infinities is NaN.
        computed == self.value || !self.error.is_finite() || Real::abs(computed - self.value) <= self.error
    }

    /// The result of an operation in `f32` to which the errors of the operands contribute `error`. The bound
    /// is infinite if the result may overflow.
    fn rounded(value: f64, error: f64) -> Self {
        let largest = Real::abs(value) + error;
        let overflows = largest > f32::MAX.into();
        Self { value, error: if overflows { f64::INFINITY } else { error + U * largest + TINY } }
    }

    /// Covers both outcomes, when the errors leave the choice undecided.
    fn or(self, other: Self) -> Self {
        let apart = Real::abs(self.value - other.value);
        let same = self.value == other.value;
        Self { value: self.value, error: Real::max(self.error, other.error + if same { 0.0 } else { apart }) }
    }
}

impl Add for Bounded {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self::rounded(self.value + other.value, self.error + other.error)
    }
}

impl Sub for Bounded {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        self + -other
    }
}

/// The error of a product that comes from the errors of its factors.
fn of_product(a: Bounded, b: Bounded) -> f64 {
    let part = |error: f64, factor: f64| if error == 0.0 { 0.0 } else { error * Real::abs(factor) };
    part(a.error, b.value) + part(b.error, a.value) + part(a.error, b.error)
}

impl Mul for Bounded {
    type Output = Self;
    fn mul(self, other: Self) -> Self {
        Self::rounded(self.value * other.value, of_product(self, other))
    }
}

impl Div for Bounded {
    type Output = Self;
    fn div(self, other: Self) -> Self {
        let (value, least) = (self.value / other.value, Real::abs(other.value) - other.error);
        let error = match self.error + if other.error == 0.0 { 0.0 } else { Real::abs(value) * other.error } {
            0.0 => 0.0,
            spread if least > 0.0 => spread / least,
            _ => f64::INFINITY,
        };
        Self::rounded(value, error)
    }
}

impl Neg for Bounded {
    type Output = Self;
    fn neg(self) -> Self {
        Self { value: -self.value, ..self }
    }
}

impl Real for Bounded {
    fn constant(self, value: f64) -> Self {
        // The difference of infinities is NaN, and counts as no error.
        Self { value, error: Real::max(Real::abs(value - f64::from(value as f32)), 0.0) }
    }

    fn mul_add(self, factor: Self, addend: Self) -> Self {
        let value = Real::mul_add(self.value, factor.value, addend.value);
        Self::rounded(value, of_product(self, factor) + addend.error)
    }

    fn abs(self) -> Self {
        Self { value: Real::abs(self.value), ..self }
    }

    fn copysign(self, sign: Self) -> Self {
        let positive = self.abs();
        let negative = -positive;
        let (this, other) =
            if sign.value.is_sign_negative() { (negative, positive) } else { (positive, negative) };
        if sign.error == 0.0 || Real::abs(sign.value) > sign.error { this } else { this.or(other) }
    }

    fn min(self, other: Self) -> Self {
        Self { value: Real::min(self.value, other.value), error: Real::max(self.error, other.error) }
    }

    fn max(self, other: Self) -> Self {
        Self { value: Real::max(self.value, other.value), error: Real::max(self.error, other.error) }
    }

    fn min_nan(self, other: Self) -> Self {
        Self { value: Real::min_nan(self.value, other.value), ..Real::min(self, other) }
    }

    fn max_nan(self, other: Self) -> Self {
        Self { value: Real::max_nan(self.value, other.value), ..Real::max(self, other) }
    }

    fn less(self, limit: Self, yes: Self, no: Self) -> Self {
        let (this, other) = if self.value < limit.value { (yes, no) } else { (no, yes) };
        let error = self.error + limit.error;
        // A comparison with NaN is false, for any errors.
        let open = error > 0.0 && Real::abs(self.value - limit.value) <= error;
        if open { this.or(other) } else { this }
    }

    fn elementary(self, function: Elementary, level: Level) -> Self {
        let of = |x: f64| x.elementary(function, Level::Exact);
        let value = of(self.value);
        let (low, high) = (self.value - self.error, self.value + self.error);
        let spread = match function {
            _ if self.error == 0.0 => 0.0,
            // The operand may be NaN.
            _ if !self.error.is_finite() => f64::INFINITY,
            // The slope is at most 1.
            Elementary::Sin | Elementary::Cos => Real::min(self.error, 2.0),
            Elementary::Sqrt | Elementary::Rsqrt | Elementary::Log2 | Elementary::Ln | Elementary::Recip
                if low <= 0.0 && high >= 0.0 =>
            {
                f64::INFINITY
            }
            // Monotonic: the extremes are at the ends of the interval.
            Elementary::Sqrt
            | Elementary::Rsqrt
            | Elementary::Log2
            | Elementary::Ln
            | Elementary::Recip
            | Elementary::Exp2
            | Elementary::Exp
            | Elementary::Tanh
            | Elementary::Sigmoid
            | Elementary::Erf => {
                let distance = |x: f64| if of(x) == value { 0.0 } else { Real::abs(of(x) - value) };
                Real::max(distance(low), distance(high))
            }
        };
        // The function's own error, at the point where it is largest.
        let own = [low, self.value, high].map(|x| function.error(level, x)).into_iter().fold(0.0, Real::max);
        let error = spread + own;
        let overflows = Real::abs(value) + error > f32::MAX.into();
        Self { value, error: if overflows { f64::INFINITY } else { error } }
    }
}
