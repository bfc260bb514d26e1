//! How far a result may be from the exact one, from first principles.
//!
//! For one element, let `p_k = A(i,k) * B(k,j)`, `S = sum |p_k|`, and `u = 2^-24`, the roundoff of f32.
//!
//! *Accumulation.* Products of two 16-bit elements are exact in f32. Summed one by one, as the emulator does, K terms
//! err by at most `K u S / (1 - K u)`. A tensor core adds 16 products to the accumulator at a time: each of the 17 terms
//! is truncated at 2^-25 of the largest and the sum at 2^-23 of itself, at most `(17/4 + 1) * 2^-23 = 10.5 u` of S for
//! every 16 products, which is less than `16 u S`. So `(K + 16) u S` covers both, with the second-order term in the 16.
//!
//! *Epilogue.* `alpha * acc` and the fused `+ beta * c` round once each: `2 u (|alpha| S + |beta c|)`.
//!
//! *Output.* Rounding to the element format errs by its unit roundoff of the value, and by half of its smallest value
//! near zero. Subnormal products of f32 are lost at most whole: `K * 2^-149`.

use crate::Format;

/// Roundoff of f32.
const U: f64 = 1.0 / 16_777_216.0;

/// What the oracle knows of one element of D.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Expected {
    /// `alpha * sum + beta * c`.
    pub value: f64,
    /// The largest error a correct kernel can make.
    pub bound: f64,
}

impl Expected {
    /// The value and bound of one element: `sums` are [`Sums`](crate::Sums)' pair, `c` is C's element, or `None` where
    /// C is not read.
    pub fn new(
        format: Format,
        k: u32,
        [alpha, beta]: [f32; 2],
        (sum, magnitude): (f64, f64),
        c: Option<f64>,
    ) -> Self {
        // As in BLAS, a zero factor leaves its matrix out, NaN and all.
        let (alpha, beta) = (f64::from(alpha), f64::from(beta));
        let (product, magnitude) =
            if alpha == 0.0 { (0.0, 0.0) } else { (alpha * sum, alpha.abs() * magnitude) };
        let source = c.filter(|_| beta != 0.0).map_or(0.0, |c| beta * c);
        let value = product + source;
        let single = (f64::from(k) + 16.0) * U * magnitude
            + 2.0 * U * (magnitude + source.abs())
            + (f64::from(k) + 2.0) * f64::powi(2.0, -149) * alpha.abs().max(1.0);
        let bound = single + format.unit_roundoff() * (value.abs() + single) + format.tiniest() / 2.0;
        Self { value, bound }
    }

    /// Whether `got` is within the bound: NaN for NaN, infinity for the same infinity, and infinity where the value
    /// with its error reaches the format's overflow.
    pub fn admits(&self, format: Format, got: f64) -> bool {
        if self.value.is_nan() {
            return got.is_nan();
        }
        if self.value.is_infinite() {
            return got == self.value;
        }
        if got.is_infinite() {
            return self.value.abs() + self.bound >= format.overflow() && got.signum() == self.value.signum();
        }
        (got - self.value).abs() <= self.bound
    }

    /// The error as a part of the bound, for elements that are numbers.
    pub fn ratio(&self, got: f64) -> f64 {
        let ratio = (got - self.value).abs() / self.bound;
        if ratio.is_finite() { ratio } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_admitted() {
        let one = Expected::new(Format::Bf16, 64, [1.0, 0.0], (1.0, 1.0), None);
        let nan = Expected::new(Format::Bf16, 64, [1.0, 0.0], (f64::NAN, f64::NAN), None);
        let up = Expected::new(Format::F16, 8, [1.0, 0.0], (f64::INFINITY, f64::INFINITY), None);
        let edge = Expected::new(Format::F16, 8, [1.0, 0.0], (65_519.0, 65_519.0), None);
        let large = Expected::new(Format::F16, 8, [1.0, 0.0], (60_000.0, 60_000.0), None);
        for (why, expected, format, got, want) in [
            ("the value itself", one, Format::Bf16, 1.0, true),
            ("one unit in the last place", one, Format::Bf16, 1.0 + 1.0 / 256.0, true),
            ("four units", one, Format::Bf16, 1.0 + 4.0 / 128.0, false),
            ("NaN for a number", one, Format::Bf16, f64::NAN, false),
            ("NaN for NaN", nan, Format::Bf16, f64::NAN, true),
            ("a number for NaN", nan, Format::Bf16, 0.0, false),
            ("infinity for infinity", up, Format::F16, f64::INFINITY, true),
            ("the other infinity", up, Format::F16, f64::NEG_INFINITY, false),
            ("overflow at the edge", edge, Format::F16, f64::INFINITY, true),
            ("overflow below it", large, Format::F16, f64::INFINITY, false),
        ] {
            assert_eq!(expected.admits(format, got), want, "{why}");
        }
    }

    #[test]
    fn zero_factors_leave_their_matrix_out() {
        let nan = (f64::NAN, f64::NAN);
        let no_product = Expected::new(Format::Bf16, 64, [0.0, 2.0], nan, Some(1.5));
        assert_eq!(no_product.value, 3.0);
        let no_source = Expected::new(Format::Bf16, 64, [1.0, 0.0], (2.0, 2.0), Some(f64::NAN));
        assert_eq!(no_source.value, 2.0);
    }
}
