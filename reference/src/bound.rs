//! How far a result may be from the exact one, from first principles.
//!
//! For one element, let `p_k = A(i,k) * B(k,j)`, `S = sum |p_k|`, and `u = 2^-24`, the roundoff of f32.
//!
//! *Accumulation.* Products of two 16-bit elements are exact in f32. Summed one by one, as the emulator does, K terms
//! err by at most `K u S / (1 - K u)`. A tensor core adds 16 products to the accumulator at a time: each of the 17 terms
//! is truncated at 2^-25 of the largest and the sum at 2^-23 of itself, at most `(17/4 + 1) * 2^-23 = 10.5 u` of S for
//! every 16 products, which is less than `16 u S`. So `(K + 16) u S` covers both, with the second-order term in the 16.
//!
//! A tensor core adds 8 products of `tf32` in the same way: 6.5 u of S for every 8 products, which is less than `8 u S`.
//!
//! *8-bit floats.* Of 32 products and the accumulator each term is truncated at 2^-13 of the largest, and so is their sum. Let R be
//! the largest magnitude of a product, or of a sum of products that follow each other, as an accumulator has it whoever
//! multiplies which part of K. One instruction moves the accumulator by at most `34 * 2^-13` of R and the error so far, so
//! `K / 32` of them by `R ((1 + 34 * 2^-13)^(K / 32) - 1)`. What adds the parts of a sum is as above.
//!
//! *Sums in f16.* An instruction rounds the accumulator to nearest, by 2^-11 of itself or half a subnormal, 2^-25. With R as above, and
//! what an instruction cuts off, 21 u of R for 16 products of `f16` and `34 * 2^-13` of R for 32 of 8-bit floats, the `n` instructions
//! along K err by at most `R ((1 + 21 u + 2^-11)^n - 1) + n 2^-25`. An accumulator is infinite from 65520 on.
//!
//! *Blocks with scales.* The sums of 128 of K err as above. Each is multiplied by the product of two scales, which rounds once, and
//! added to the others by one rounding: `b` blocks err by `(b + 16) u` of the scaled magnitudes beside the scaled errors.
//!
//! *Integers* are summed exactly, modulo 2^32. The epilogue takes the nearest `f32` of a sum, or computes in integers, modulo 2^32
//! too, where D is `s32`: then there is one right result, and the bound is zero.
//!
//! *f64.* With `v = 2^-53`, K products that are added one by one by `fma`, in any order, err by at most `K v S / (1 - K v)`, less than
//! `(K + 2) v S`. The exact sum is that of products and their rounding errors, added in twice the precision of f64, and rounded once: `v`
//! of it. `alpha * acc`, the addition of `beta * c`, and the same in the oracle round four times: `4 v (|alpha acc| + |beta c|)`. What
//! overflows f64 on the way is not modelled.
//!
//! *Epilogue.* `alpha * acc` and the fused `+ beta * c` round once each: `2 u (|alpha| S + |beta c|)`.
//!
//! *Output.* Rounding to the element format errs by its unit roundoff of the value, and by half of its smallest value
//! near zero. Subnormal products of f32 are lost at most whole: `K * 2^-149`.
//!
//! *Overflow.* `acc` and `t = alpha * acc` are f32 on the way to `t + beta * c`, which rounds once: the exact `beta * c` can
//! be larger than f32. Whatever the order of the additions, each partial sum lies between the sum of all negative products,
//! `(sum - S) / 2`, and that of all positive ones, `(sum + S) / 2`, up to the error above. Where that reaches the overflow of
//! f32, `acc` may be that infinity; where both do, infinities may meet and give NaN. Where `alpha * sum` reaches the overflow
//! with its error, so may `t`; where it or `sum` reaches it in spite of its error, `t` cannot be a number. An infinite `t` stays what
//! it is unless `beta * c` is NaN or the other infinity. So some elements have several right outcomes, and they are known.
//!
//! ```
//! use reference::{Expected, Format, Sum};
//!
//! let sum = Sum::single(2, 3.0, 3.0); // 1 * 1 + 1 * 2
//! let expected = Expected::new(Format::Bf16, 2, [1.0, 0.0], sum, None);
//! assert!(expected.admits(Format::Bf16, 3.0) && !expected.admits(Format::Bf16, 3.1));
//! ```

use crate::oracle::wrapped;
use crate::{Format, Sum, Wanted};

/// Roundoff of f32.
pub(crate) const U: f64 = 1.0 / 16_777_216.0;

/// Roundoff of f64.
pub(crate) const DOUBLE_U: f64 = f64::EPSILON / 2.0;

/// From here on values round to an infinite f32: half a unit beyond the largest.
pub(crate) const F32_OVERFLOW: f64 = f32::MAX as f64 * (1.0 + U / 2.0);

/// What may become of one element on the way, beside the numbers within the bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Overflow {
    /// It may be negative infinity.
    negative: bool,
    /// It may be positive infinity.
    positive: bool,
    /// It may be NaN.
    nan: bool,
    /// It may be as if nothing had overflowed.
    none: bool,
}

/// What the oracle knows of one element of D.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Expected {
    /// `alpha * sum + beta * c`.
    pub value: f64,
    /// The largest error a correct kernel can make.
    pub bound: f64,
    /// The same before the value is rounded to its format.
    before: f64,
    overflow: Overflow,
}

impl Expected {
    /// The value and bound of one element of `format`: `sum` is of `k` products, `c` is C's element, or `None` where C is not
    /// read.
    pub fn new(format: Format, k: u32, [alpha, beta]: [f32; 2], sum: Sum, c: Option<f64>) -> Self {
        // As in BLAS, a zero factor leaves its matrix out, NaN and all.
        let (alpha, beta) = (f64::from(alpha), f64::from(beta));
        let c = c.filter(|_| beta != 0.0);
        if format == Format::S32 {
            let of = |factor: f64, value: f64| factor as i128 * value as i128;
            let value = f64::from(wrapped(of(alpha, sum.value) + of(beta, c.unwrap_or(0.0))));
            return Self { value, before: 0.0, bound: 0.0, overflow: Overflow::NONE };
        }
        let source = c.map_or(0.0, |c| beta * c);
        if format == Format::F64 {
            return Self::double(k, [alpha, source], sum);
        }
        let overflow = Overflow::new(alpha, sum, source);
        let (product, magnitude, error) = if alpha == 0.0 {
            (0.0, 0.0, 0.0)
        } else {
            (alpha * sum.value, alpha.abs() * sum.magnitude, alpha.abs() * sum.error)
        };
        let value = product + source;
        let before = error
            + 2.0 * U * (magnitude + error + source.abs())
            + (f64::from(k) + 2.0) * f64::powi(2.0, -149) * alpha.abs().max(1.0);
        let bound = before + format.unit_roundoff() * (value.abs() + before) + format.tiniest() / 2.0;
        Self { value, before, bound, overflow }
    }

    /// The same of `k` products of `f64`, where everything is in `f64`, the oracle's own additions too.
    fn double(k: u32, [alpha, source]: [f64; 2], sum: Sum) -> Self {
        let product = if alpha == 0.0 { 0.0 } else { alpha * sum.value };
        let (value, error) = (product + source, if alpha == 0.0 { 0.0 } else { alpha.abs() * sum.error });
        let rounded = 4.0 * DOUBLE_U * (product.abs() + source.abs() + error);
        let bound = error + rounded + (f64::from(k) + 2.0) * Format::F64.tiniest() * alpha.abs().max(1.0);
        Self { value, before: bound, bound, overflow: Overflow::NONE }
    }

    /// Whether `got` is within the bound: NaN for NaN, infinity for the same infinity, infinity where the value with its
    /// error reaches the format's overflow, and what overflows on the way can lead to. A format that saturates has its largest
    /// value where others have infinity.
    pub fn admits(&self, format: Format, got: f64) -> bool {
        let Overflow { negative, positive, nan, none } = self.overflow;
        let end = if format.saturates() { format.largest() } else { f64::INFINITY };
        let overflowed = nan && got.is_nan() || positive && got == end || negative && got == -end;
        overflowed || none && self.admits_rounded(format, got)
    }

    /// Whether rounding alone can lead to `got`.
    fn admits_rounded(&self, format: Format, got: f64) -> bool {
        if format.saturates() && self.bound > 0.0 {
            let Self { value, before: error, .. } = *self;
            return Wanted { format, unrounded: false, value, error }.admits_value(got);
        }
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
        let ratio = if got == self.value { 0.0 } else { (got - self.value).abs() / self.bound };
        if ratio.is_finite() { ratio } else { 0.0 }
    }
}

impl Overflow {
    /// Nothing overflows.
    const NONE: Self = Self { negative: false, positive: false, nan: false, none: true };

    /// Of a sum of products, times a factor, plus `beta * c`.
    fn new(alpha: f64, Sum { value: sum, magnitude, error, overflow }: Sum, source: f64) -> Self {
        if alpha == 0.0 {
            return Self::NONE;
        }
        let [mut negative, mut positive] =
            [-1.0, 1.0].map(|sign| (magnitude + sign * sum) / 2.0 + error >= overflow);
        let meet = negative && positive;
        // Parts of a sum that accumulators hold may be added in `f32`.
        let sum_stays = sum.abs() - error < F32_OVERFLOW;
        if alpha < 0.0 {
            (negative, positive) = (positive, negative);
        }
        let (scaled, error) = (alpha * sum, alpha.abs() * (error + U * magnitude));
        positive |= scaled + error >= F32_OVERFLOW;
        negative |= -scaled + error >= F32_OVERFLOW;
        let none = !sum.is_finite() || sum_stays && scaled.abs() - error < F32_OVERFLOW;
        // What an infinite `t` gives with `beta * c`.
        let lost = source.is_nan();
        let opposite = |t: f64| source == -t;
        Self {
            negative: negative && !lost && !opposite(f64::NEG_INFINITY),
            positive: positive && !lost && !opposite(f64::INFINITY),
            nan: meet
                || (negative || positive) && lost
                || negative && opposite(f64::NEG_INFINITY)
                || positive && opposite(f64::INFINITY),
            none,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each case lists which of these a kernel may give: negative infinity, the value itself, positive infinity, NaN.
    #[test]
    fn what_overflows_on_the_way() {
        let large = f64::from(f32::MAX);
        for (why, factors, sum, c, want) in [
            ("nothing overflows", [1.0, 1.0], (1.0, 1.0), Some(1.0), [false, true, false, false]),
            (
                "the product, and C brings it back",
                [1e38, 1e38],
                (5.0, 5.0),
                Some(-4.0),
                [false, false, true, false],
            ),
            ("the same, negative", [1e38, 1e38], (-5.0, 5.0), Some(4.0), [true, false, false, false]),
            ("a negative factor", [-1e38, 1e38], (5.0, 5.0), Some(4.0), [true, false, false, false]),
            (
                "C alone overflows, and the product brings it back",
                [1e38, 1e38],
                (-3.0, 3.0),
                Some(4.0),
                [false, true, false, false],
            ),
            ("C alone overflows", [1.0, 1e38], (1.0, 1.0), Some(4.0), [false, false, true, false]),
            ("the product at the edge", [1.0, -1.0], (large, large), Some(1e38), [false, true, true, false]),
            ("the positive products alone", [1.0, 0.0], (1e38, 6e38), None, [false, true, true, false]),
            ("the negative products alone", [1.0, 0.0], (-1e38, 6e38), None, [true, true, false, false]),
            ("the same with a negative factor", [-1.0, 0.0], (-1e38, 6e38), None, [false, true, true, false]),
            ("the sum itself", [1.0, 0.0], (4e38, 4e38), None, [false, false, true, false]),
            (
                "the sum itself, and a small factor",
                [1e-30, 0.0],
                (4e38, 4e38),
                None,
                [false, false, true, false],
            ),
            ("infinities meet", [1.0, 0.0], (0.0, 8e38), None, [true, true, true, true]),
            ("no product counts", [0.0, 1.0], (4e38, 4e38), Some(1.0), [false, true, false, false]),
            ("an infinite C", [1.0, 1.0], (1.0, 1.0), Some(f64::INFINITY), [false, false, true, false]),
            (
                "an infinite C and the other overflow",
                [-1e38, 1.0],
                (5.0, 5.0),
                Some(f64::INFINITY),
                [false, false, false, true],
            ),
            ("a C that is NaN", [1e38, 1.0], (5.0, 5.0), Some(f64::NAN), [false, false, false, true]),
            (
                "infinite operands",
                [1.0, 1.0],
                (f64::INFINITY, f64::INFINITY),
                Some(1.0),
                [false, false, true, false],
            ),
            ("NaN among the operands", [1e38, 0.0], (f64::NAN, f64::NAN), None, [false, false, false, true]),
        ] {
            let expected = Expected::new(Format::Bf16, 64, factors, Sum::single(64, sum.0, sum.1), c);
            let number = Format::Bf16.decode(Format::Bf16.round(expected.value));
            let number = if number.is_finite() { number } else { 1.0 };
            let admitted = [f64::NEG_INFINITY, number, f64::INFINITY, f64::NAN]
                .map(|got| expected.admits(Format::Bf16, got));
            assert_eq!(admitted, want, "{why}: {expected:?}");
        }
    }

    #[test]
    fn what_is_admitted() {
        let one = Expected::new(Format::Bf16, 64, [1.0, 0.0], Sum::single(64, 1.0, 1.0), None);
        let nan = Expected::new(Format::Bf16, 64, [1.0, 0.0], Sum::single(64, f64::NAN, f64::NAN), None);
        let up =
            Expected::new(Format::F16, 8, [1.0, 0.0], Sum::single(8, f64::INFINITY, f64::INFINITY), None);
        let edge = Expected::new(Format::F16, 8, [1.0, 0.0], Sum::single(8, 65_519.0, 65_519.0), None);
        let large = Expected::new(Format::F16, 8, [1.0, 0.0], Sum::single(8, 60_000.0, 60_000.0), None);
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
        let nan = Sum::single(64, f64::NAN, f64::NAN);
        let no_product = Expected::new(Format::Bf16, 64, [0.0, 2.0], nan, Some(1.5));
        assert_eq!(no_product.value, 3.0);
        let no_source =
            Expected::new(Format::Bf16, 64, [1.0, 0.0], Sum::single(64, 2.0, 2.0), Some(f64::NAN));
        assert_eq!(no_source.value, 2.0);
    }

    #[test]
    fn integers_have_one_right_result() {
        let sum = Sum::of_integers(3e9);
        assert_eq!(sum.value, 3e9 - f64::powi(2.0, 32));
        let whole = Expected::new(Format::S32, 9, [2.0, -1.0], Sum::of_integers(1e9 + 1.0), Some(7.0));
        assert_eq!(whole.value, 2e9 + 2.0 - 7.0);
        for (got, want) in [(whole.value, true), (whole.value + 1.0, false)] {
            assert_eq!(whole.admits(Format::S32, got), want, "{got}");
        }
        // 2^24 + 1 becomes the nearest `f32` on the way, which is even.
        let single = Expected::new(Format::F32, 9, [1.0, 0.0], Sum::of_integers(16_777_217.0), None);
        for (got, want) in [(16_777_216.0, true), (16_777_300.0, false)] {
            assert_eq!(single.admits(Format::F32, got), want, "{got}");
        }
    }

    #[test]
    fn formats_that_saturate_end_at_their_largest() {
        let of =
            |value: f64| Expected::new(Format::E4m3, 8, [1.0, 0.0], Sum::single(8, value, value.abs()), None);
        for (why, value, got, want) in [
            ("beyond", 1e6, 448.0, true),
            ("beyond, negative", -1e6, -448.0, true),
            ("less than that", 1e6, 416.0, false),
            ("infinity", f64::INFINITY, 448.0, true),
            ("inside", 100.0, 104.0, true),
            ("another", 100.0, 112.0, false),
        ] {
            assert_eq!(of(value).admits(Format::E4m3, got), want, "{why}");
        }
    }
}
