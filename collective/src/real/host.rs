//! `f64`, the reference; `f32` and integers modulo 2^32, the device's arithmetic on the host.

use core::num::Wrapping;

use ptx::inst::ApproxOp;

use super::single::{self, Single};
use super::{Elementary, Level, Real};

/// The minima and maxima of [`Real`]. Zeros are ordered by their sign.
macro_rules! extremes {
    () => {
        fn min(self, other: Self) -> Self {
            match (self.is_nan(), other.is_nan()) {
                (true, _) => other,
                (_, true) => self,
                _ => self.min_nan(other),
            }
        }

        fn max(self, other: Self) -> Self {
            match (self.is_nan(), other.is_nan()) {
                (true, _) => other,
                (_, true) => self,
                _ => self.max_nan(other),
            }
        }

        fn min_nan(self, other: Self) -> Self {
            if self.is_nan() || other.is_nan() {
                Self::NAN
            } else if self < other || (self == other && self.is_sign_negative()) {
                self
            } else {
                other
            }
        }

        fn max_nan(self, other: Self) -> Self {
            -(-self).min_nan(-other)
        }

        fn mul_add(self, factor: Self, addend: Self) -> Self {
            self.mul_add(factor, addend)
        }

        fn abs(self) -> Self {
            self.abs()
        }

        fn copysign(self, sign: Self) -> Self {
            self.copysign(sign)
        }

        fn less(self, limit: Self, yes: Self, no: Self) -> Self {
            if self < limit { yes } else { no }
        }
    };
}

impl Real for f64 {
    extremes!();

    fn constant(self, value: f64) -> Self {
        value
    }

    /// The true value; the level is ignored.
    fn elementary(self, function: Elementary, _level: Level) -> Self {
        match function {
            Elementary::Sqrt => f64::sqrt(self),
            Elementary::Recip => f64::recip(self),
            Elementary::Rsqrt => f64::sqrt(self).recip(),
            Elementary::Exp2 => f64::exp2(self),
            Elementary::Exp => f64::exp(self),
            Elementary::Log2 => f64::log2(self),
            Elementary::Ln => f64::ln(self),
            Elementary::Tanh => f64::tanh(self),
            Elementary::Sigmoid if self < 0.0 => f64::exp(self) / (1.0 + f64::exp(self)),
            Elementary::Sigmoid => 1.0 / (1.0 + f64::exp(-self)),
            Elementary::Erf => erf(self),
            Elementary::Sin => f64::sin(self),
            Elementary::Cos => f64::cos(self),
        }
    }
}

/// `2 / sqrt(pi) * e^(-x^2) * sum of 2^n x^(2n+1) / (1 * 3 * ... * (2n+1))`. All terms have the same sign, so
/// nothing cancels.
fn erf(x: f64) -> f64 {
    // 1 - erf(6) is 2e-17.
    if x.is_nan() || x.abs() > 6.0 {
        return if x.is_nan() { x } else { 1f64.copysign(x) };
    }
    let (mut sum, mut term) = (0.0, x);
    let mut odd = 1.0;
    while f64::abs(term) > f64::abs(sum) * 1e-18 {
        sum += term;
        odd += 2.0;
        term *= 2.0 * x * x / odd;
    }
    sum * f64::exp(-x * x) * core::f64::consts::FRAC_2_SQRT_PI
}

impl Real for f32 {
    extremes!();

    fn constant(self, value: f64) -> Self {
        value as f32
    }

    fn elementary(self, function: Elementary, level: Level) -> Self {
        single::elementary(self, function, level)
    }
}

impl Single for f32 {
    fn round(self) -> Self {
        self.round_ties_even()
    }

    fn scale(self, power: Self) -> Self {
        f32::from_bits(self.to_bits().wrapping_add((power as i32).cast_unsigned() << 23))
    }

    fn split(self) -> (Self, Self) {
        let power = self.to_bits().wrapping_sub(single::ROOT_HALF).cast_signed() >> 23;
        (f32::from_bits(self.to_bits().wrapping_sub((power << 23).cast_unsigned())), power as f32)
    }

    fn square_root(self) -> Self {
        f32::sqrt(self)
    }

    fn reciprocal(self) -> Self {
        f32::recip(self)
    }

    /// The exact value rounded to nearest, as in the emulator.
    fn approximate(self, op: ApproxOp) -> Self {
        let x = f64::from(self);
        let value = match op {
            ApproxOp::Exp2 => x.exp2(),
            ApproxOp::Log2 => x.log2(),
            ApproxOp::Reciprocal => x.recip(),
            ApproxOp::ReciprocalRoot => x.sqrt().recip(),
            ApproxOp::Root => x.sqrt(),
            ApproxOp::Sin => x.sin(),
            ApproxOp::Cos => x.cos(),
            ApproxOp::Tanh => x.tanh(),
        };
        value as f32
    }

    fn approximate_flushed(self, op: ApproxOp) -> Self {
        let keep = |x: f32| if x.is_subnormal() { 0f32.copysign(x) } else { x };
        keep(keep(self).approximate(op))
    }
}

/// Functions with quotients or elementary functions are refused before they are evaluated: see
/// [`Needs`](super::Needs).
impl Real for Wrapping<i32> {
    fn constant(self, value: f64) -> Self {
        Self(value as i32)
    }

    fn mul_add(self, factor: Self, addend: Self) -> Self {
        self * factor + addend
    }

    fn abs(self) -> Self {
        Self(self.0.wrapping_abs())
    }

    fn copysign(self, sign: Self) -> Self {
        let magnitude = Real::abs(self);
        if sign.0 < 0 { -magnitude } else { magnitude }
    }

    pairs!(min, min_nan: |a, b| Ord::min(a, b));
    pairs!(max, max_nan: |a, b| Ord::max(a, b));

    fn less(self, limit: Self, yes: Self, no: Self) -> Self {
        if self < limit { yes } else { no }
    }

    fn elementary(self, _function: Elementary, _level: Level) -> Self {
        Self(0)
    }
}

#[cfg(test)]
mod tests {
    use super::erf;

    #[test]
    fn erf_has_the_values_of_the_tables() {
        // Abramowitz and Stegun, table 7.1, and erf(-x) = -erf(x).
        for (x, want) in [
            (0.0, 0.0),
            (0.1, 0.112_462_916_0),
            (0.5, 0.520_499_877_8),
            (1.0, 0.842_700_792_9),
            (1.5, 0.966_105_146_5),
            (2.0, 0.995_322_265_0),
            (-1.0, -0.842_700_792_9),
            (7.0, 1.0),
        ] {
            assert!((erf(x) - want).abs() < 6e-11, "erf({x}) = {}", erf(x));
        }
        assert!(erf(f64::NAN).is_nan());
    }
}
