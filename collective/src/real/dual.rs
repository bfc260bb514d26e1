//! A number and its derivative, computed together.

use core::f64::consts::{FRAC_2_SQRT_PI, LN_2, LOG2_E};
use core::ops::{Add, Div, Mul, Neg, Sub};

use super::{Elementary, Level, Real};

/// The value of a formula and its derivative with respect to the variable.
///
/// At a corner (`max`, `abs`, a selection) the derivative is that of the selected operand. If both operands
/// of a `max` or `min` are equal, it is that of the second, so the derivative of `max(x, 0)` at zero is zero.
#[derive(Clone, Copy, Debug)]
pub struct Dual<R> {
    /// The value.
    pub value: R,
    /// The derivative. `None` if it is always zero, so that it costs nothing on the device.
    slope: Option<R>,
}

impl<R: Real> Dual<R> {
    /// The variable itself: its derivative is 1.
    pub fn variable(value: R) -> Self {
        Self { value, slope: Some(value.constant(1.0)) }
    }

    /// A number that does not depend on the variable.
    pub fn fixed(value: R) -> Self {
        Self { value, slope: None }
    }

    /// One of two numbers, which `choose` chooses, and its derivative.
    pub fn pick(yes: Self, no: Self, choose: impl Fn(R, R) -> R) -> Self {
        Self { value: choose(yes.value, no.value), slope: Self::select(yes, no, choose) }
    }

    /// The derivative.
    pub fn derivative(self) -> R {
        self.slope.unwrap_or_else(|| self.value.constant(0.0))
    }

    /// A result whose derivative with respect to this number is given (chain rule).
    fn chain(self, value: R, derivative: impl FnOnce() -> R) -> Self {
        Self { value, slope: self.slope.map(|slope| slope * derivative()) }
    }

    /// The slope of a selection, chosen in the same way as the value.
    fn select(yes: Self, no: Self, choose: impl FnOnce(R, R) -> R) -> Option<R> {
        match (yes.slope, no.slope) {
            (None, None) => None,
            _ => Some(choose(yes.derivative(), no.derivative())),
        }
    }
}

/// The sum of two slopes.
fn sum<R: Real>(a: Option<R>, b: Option<R>) -> Option<R> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a + b),
        (slope, None) | (None, slope) => slope,
    }
}

impl<R: Real> Add for Dual<R> {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self { value: self.value + other.value, slope: sum(self.slope, other.slope) }
    }
}

impl<R: Real> Sub for Dual<R> {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        let slope = match (self.slope, other.slope) {
            (Some(a), Some(b)) => Some(a - b),
            (a, None) => a,
            (None, Some(b)) => Some(-b),
        };
        Self { value: self.value - other.value, slope }
    }
}

impl<R: Real> Mul for Dual<R> {
    type Output = Self;
    fn mul(self, other: Self) -> Self {
        let slope = sum(self.slope.map(|a| a * other.value), other.slope.map(|b| b * self.value));
        Self { value: self.value * other.value, slope }
    }
}

impl<R: Real> Div for Dual<R> {
    type Output = Self;
    fn div(self, other: Self) -> Self {
        let value = self.value / other.value;
        // (a' - (a / b) b') / b.
        let above = sum(self.slope, (Self::fixed(-value) * other).slope);
        Self { value, slope: above.map(|above| above / other.value) }
    }
}

impl<R: Real> Neg for Dual<R> {
    type Output = Self;
    fn neg(self) -> Self {
        Self { value: -self.value, slope: self.slope.map(|slope| -slope) }
    }
}

impl<R: Real> Real for Dual<R> {
    fn constant(self, value: f64) -> Self {
        Self::fixed(self.value.constant(value))
    }

    fn mul_add(self, factor: Self, addend: Self) -> Self {
        let product = sum(self.slope.map(|a| a * factor.value), factor.slope.map(|b| b * self.value));
        Self { value: self.value.mul_add(factor.value, addend.value), slope: sum(product, addend.slope) }
    }

    fn abs(self) -> Self {
        let zero = self.value.constant(0.0);
        Self { value: self.value.abs(), slope: self.slope.map(|slope| self.value.less(zero, -slope, slope)) }
    }

    fn copysign(self, sign: Self) -> Self {
        // The derivative changes sign if the value does.
        let zero = self.value.constant(0.0);
        let flip = |slope: R| {
            let kept = self.value.less(zero, -slope, slope);
            sign.value.less(zero, -kept, kept)
        };
        Self { value: self.value.copysign(sign.value), slope: self.slope.map(flip) }
    }

    fn min(self, other: Self) -> Self {
        let slope = Self::select(self, other, |a, b| self.value.less(other.value, a, b));
        Self { value: self.value.min(other.value), slope }
    }

    fn max(self, other: Self) -> Self {
        let slope = Self::select(self, other, |a, b| other.value.less(self.value, a, b));
        Self { value: self.value.max(other.value), slope }
    }

    fn min_nan(self, other: Self) -> Self {
        Self { value: self.value.min_nan(other.value), slope: self.min(other).slope }
    }

    fn max_nan(self, other: Self) -> Self {
        Self { value: self.value.max_nan(other.value), slope: self.max(other).slope }
    }

    fn less(self, limit: Self, yes: Self, no: Self) -> Self {
        let choose = |yes: R, no: R| self.value.less(limit.value, yes, no);
        Self { value: choose(yes.value, no.value), slope: Self::select(yes, no, choose) }
    }

    fn elementary(self, function: Elementary, level: Level) -> Self {
        let x = self.value;
        let of = |function| x.elementary(function, level);
        let y = of(function);
        self.chain(y, || match function {
            Elementary::Sqrt => of(Elementary::Rsqrt).times(0.5),
            Elementary::Recip => -(y * y),
            Elementary::Rsqrt => (y * y * y).times(-0.5),
            Elementary::Exp2 => y.times(LN_2),
            Elementary::Exp => y,
            Elementary::Log2 => of(Elementary::Recip).times(LOG2_E),
            Elementary::Ln => of(Elementary::Recip),
            Elementary::Tanh => (-y).mul_add(y, y.constant(1.0)),
            Elementary::Sigmoid => (-y).mul_add(y, y),
            Elementary::Erf => (-(x * x)).elementary(Elementary::Exp, level).times(FRAC_2_SQRT_PI),
            Elementary::Sin => of(Elementary::Cos),
            Elementary::Cos => -of(Elementary::Sin),
        })
    }
}
