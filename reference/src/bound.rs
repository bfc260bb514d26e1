//! Error bounds of a GEMM's results, from first principles: how far a correct kernel may be from the exact
//! result.
//!
//! For one element of D, let `p_k = A(i,k) * B(k,j)`, `S = sum |p_k|`, and `u = 2^-24`, the unit roundoff of
//! f32.
//!
//! *Accumulation.* Products of two 16-bit elements are exact in f32. If K products are added one by one, the
//! error is at most `K u S / (1 - K u)`. A tensor core adds 16 products to the accumulator at a time. It
//! truncates each of the 17 terms at 2^-25 of the largest term, and the sum at 2^-23 of the sum. This is at
//! most `(17/4 + 1) * 2^-23 = 10.5 u` of S per 16 products, which is less than `16 u S`. So `(K + 16) u S`
//! covers both; the 16 covers the second-order term.
//!
//! A tensor core adds 8 products of `tf32` in the same way: 6.5 u of S per 8 products, which is less than `8
//! u S`.
//!
//! *8-bit floats.* An instruction adds 32 products to the accumulator. It truncates each of the 33 terms at
//! 2^-13 of the largest term, and also the sum. Let R be the largest magnitude of a product or of a sum of
//! consecutive products: no accumulator is larger, however K is split. One instruction errs by at most `34 *
//! 2^-13` of R plus the error so far. So `K / 32` instructions err by at most `R ((1 + 34 * 2^-13)^(K / 32) -
//! 1)`. Adding up the partial sums of a split tile errs as in *Accumulation*.
//!
//! *`f16` accumulators.* An instruction rounds the accumulator to nearest. That errs by 2^-11 of the
//! accumulator, or by half a subnormal, 2^-25. In addition the instruction truncates: by 21 u of R for 16
//! products of `f16`, and by `34 * 2^-13` of R for 32 products of 8-bit floats. With R as above, the `n`
//! instructions along K err by at most `R ((1 + 21 u + 2^-11)^n - 1) + n 2^-25` for `f16`; for 8-bit floats
//! `34 * 2^-13` replaces `21 u`. From 65520 on an accumulator is infinite.
//!
//! *Block scales.* The accumulators of a block of 128 along K err as above. They are multiplied by the
//! product of two scales, which rounds once, and added to those of the other blocks with one rounding. So `b`
//! blocks err by `(b + 16) u` of the scaled magnitudes, in addition to the scaled errors of the blocks.
//!
//! *Integers.* Sums are exact, modulo 2^32. If D is not `s32`, the epilogue first rounds the sum to the
//! nearest `f32`. If D is `s32`, the epilogue also computes modulo 2^32: there is one correct result, and the
//! bound is zero.
//!
//! *f64.* Let `v = 2^-53`. K products added one by one by `fma`, in any order, err by at most `K v S / (1 - K
//! v)`, which is less than `(K + 2) v S`. The oracle adds the products and their rounding errors in twice the
//! precision of f64, and rounds once: `v` of the sum. `alpha * acc` and the addition of `beta * c` round four
//! times, twice in the kernel and twice in the oracle: `4 v (|alpha acc| + |beta c|)`. Overflow of f64 in
//! between is not modelled.
//!
//! *Epilogue.* `alpha * acc` and the fused `+ beta * c` round once each: `2 u (|alpha| S + |beta c|)`.
//!
//! *Output.* Rounding to the element format errs by the format's unit roundoff times the value, and near zero
//! by half of the smallest value. Subnormal products of f32 may be flushed to zero: `K * 2^-149`.
//!
//! *Overflow.* `acc` and `t = alpha * acc` are f32. `t + beta * c` rounds once: the exact `beta * c` may
//! exceed the range of f32. Whatever the order of the additions, each partial sum is between the sum of all
//! negative products, `(sum - S) / 2`, and the sum of all positive products, `(sum + S) / 2`, up to the error
//! above.
//!
//! * If one of these limits reaches the overflow of f32, `acc` may be that infinity.
//! * If both do, infinities of both signs may be added, and `acc` may be NaN.
//! * If `alpha * sum` plus its error reaches the overflow, `t` may be infinite.
//! * If `alpha * sum` or `sum` reaches the overflow even minus its error, `t` cannot be finite.
//! * An infinite `t` stays infinite, unless `beta * c` is NaN or the infinity of the other sign: then D is
//!   NaN.
//!
//! So some elements have several correct results, and all of them are accepted.
//!
//! ```
//! use reference::{Expected, Format, DotProduct};
//!
//! let sum = DotProduct::single(2, 3.0, 3.0); // 1 * 1 + 1 * 2
//! let expected = Expected::new(Format::Bf16, 2, [1.0, 0.0], sum, None);
//! assert!(expected.admits(Format::Bf16, 3.0) && !expected.admits(Format::Bf16, 3.1));
//! ```

use crate::oracle::wrapped;
use crate::wanted::{distance, fraction};
use crate::{DotProduct, Format, Wanted};

/// Unit roundoff of f32.
pub(crate) const U: f64 = 1.0 / 16_777_216.0;

/// Unit roundoff of f64.
pub(crate) const DOUBLE_U: f64 = f64::EPSILON / 2.0;

/// The smallest magnitude that rounds to an infinite f32: half a unit above the largest finite value.
pub(crate) const F32_OVERFLOW: f64 = f32::MAX as f64 * (1.0 + U / 2.0);

/// The results that overflow of intermediate values may give for one element, in addition to numbers within
/// the bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Overflow {
    /// The element may be negative infinity.
    negative: bool,
    /// The element may be positive infinity.
    positive: bool,
    /// The element may be NaN.
    nan: bool,
    /// The element may have its value as without overflow.
    none: bool,
}

/// The expected value of one element of D, and its error bound.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Expected {
    /// `alpha * sum + beta * c`.
    pub value: f64,
    /// The largest error of a correct kernel.
    pub bound: f64,
    /// What it is without a limit, if it or its accumulator is an integer that 32 bits do not hold: it is computed modulo 2^32.
    pub wraps: Option<f64>,
    /// The largest error before the value is rounded to its format.
    before: f64,
    overflow: Overflow,
}

impl Expected {
    /// The value and the bound of an element of `format`. `factors` are alpha and beta, `sum` is a sum of `k` products. `c` is the element
    /// of C, or `None` if C is not read.
    pub fn new(format: Format, k: u32, factors: [f64; 2], sum: DotProduct, c: Option<f64>) -> Self {
        // What is computed in f32 takes factors in f32.
        let double = matches!(format, Format::S32 | Format::F64);
        let [alpha, beta] = factors.map(|factor| if double { factor } else { f64::from(factor as f32) });
        // As in BLAS, a matrix with a zero factor is not read, even if it has NaN.
        let c = c.filter(|_| beta != 0.0);
        let beyond = |exact: &f64| exact.is_finite() && f64::from(*exact as i32) != *exact;
        let accumulator = Some(sum.exact).filter(|exact| *exact != sum.value && beyond(exact));
        if format == Format::S32 {
            let of = |factor: f64, value: f64| factor as i128 * value as i128;
            let value = f64::from(wrapped(of(alpha, sum.value) + of(beta, c.unwrap_or(0.0))));
            let whole = alpha * sum.exact + c.map_or(0.0, |c| beta * c);
            let wraps = Some(whole).filter(beyond);
            return Self { value, before: 0.0, bound: 0.0, wraps, overflow: Overflow::NONE };
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
        Self { value, before, bound, wraps: accumulator, overflow }
    }

    /// The value and the bound for `k` products of `f64`. The oracle's own additions are in `f64`, too, and
    /// are part of the bound.
    fn double(k: u32, [alpha, source]: [f64; 2], sum: DotProduct) -> Self {
        let product = if alpha == 0.0 { 0.0 } else { alpha * sum.value };
        let (value, error) = (product + source, if alpha == 0.0 { 0.0 } else { alpha.abs() * sum.error });
        let rounded = 4.0 * DOUBLE_U * (product.abs() + source.abs() + error);
        let bound = error + rounded + (f64::from(k) + 2.0) * Format::F64.tiniest() * alpha.abs().max(1.0);
        Self { value, before: bound, bound, wraps: None, overflow: Overflow::NONE }
    }

    /// Whether `got` is a correct result.
    ///
    /// A number is correct within the bound. NaN is correct if the value is NaN. Infinity is correct if the
    /// value is that infinity, or if the value plus its error reaches the overflow of the format. Results of
    /// an overflow of intermediate values are correct, too. A format that saturates has its largest value in
    /// place of infinity.
    pub fn admits(&self, format: Format, got: f64) -> bool {
        let Overflow { negative, positive, nan, none } = self.overflow;
        let [least, end] = ends(format);
        let overflowed = nan && got.is_nan() || positive && got == end || negative && got == least;
        overflowed || none && self.admits_rounded(format, got)
    }

    /// Whether `got` is correct without overflow of intermediate values.
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

    /// The distance of a correct `got` from the value: 0 for an infinity, NaN, or the result of an overflow. A
    /// format that saturates has its largest value in place of any beyond.
    pub fn distance(&self, format: Format, got: f64) -> f64 {
        let [least, end] = ends(format);
        let Overflow { negative, positive, .. } = self.overflow;
        if positive && got == end || negative && got == least {
            return 0.0;
        }
        distance(format, self.value, got)
    }

    /// The error of a correct `got` as a fraction of the bound, 1 at most.
    pub fn ratio(&self, format: Format, got: f64) -> f64 {
        fraction(self.distance(format, got), self.bound)
    }
}

impl Overflow {
    /// No overflow.
    const NONE: Self = Self { negative: false, positive: false, nan: false, none: true };

    /// The results of `alpha * sum + source` under overflow, where `source` is `beta * c`.
    fn new(
        alpha: f64,
        DotProduct { value: sum, magnitude, error, overflow, .. }: DotProduct,
        source: f64,
    ) -> Self {
        if alpha == 0.0 {
            return Self::NONE;
        }
        let [mut negative, mut positive] =
            [-1.0, 1.0].map(|sign| (magnitude + sign * sum) / 2.0 + error >= overflow);
        let meet = negative && positive;
        // Partial sums may be added in `f32`, whatever the accumulators are.
        let sum_stays = sum.abs() - error < F32_OVERFLOW;
        if alpha < 0.0 {
            (negative, positive) = (positive, negative);
        }
        let (scaled, error) = (alpha * sum, alpha.abs() * (error + U * magnitude));
        positive |= scaled + error >= F32_OVERFLOW;
        negative |= -scaled + error >= F32_OVERFLOW;
        let none = !sum.is_finite() || sum_stays && scaled.abs() - error < F32_OVERFLOW;
        // The result of an infinite `t` plus `beta * c`.
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

/// What numbers beyond a format's range become.
fn ends(format: Format) -> [f64; 2] {
    if format.saturates() { format.range() } else { [f64::NEG_INFINITY, f64::INFINITY] }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each case lists which results are correct: negative infinity, the value itself, positive infinity,
    /// NaN.
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
            (
                "a factor and an error that reach the edge",
                [2.0, -1.0],
                (large / 2.0 * (1.0 - 1e-6), large / 2.0 * (1.0 - 1e-6)),
                Some(1e38),
                [false, true, true, false],
            ),
            ("far from the edge", [2.0, -1.0], (1e30, 1e30), Some(1e29), [false, true, false, false]),
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
            let expected = Expected::new(Format::Bf16, 64, factors, DotProduct::single(64, sum.0, sum.1), c);
            let number = Format::Bf16.decode(Format::Bf16.round(expected.value));
            let number = if number.is_finite() { number } else { 1.0 };
            let admitted = [f64::NEG_INFINITY, number, f64::INFINITY, f64::NAN]
                .map(|got| expected.admits(Format::Bf16, got));
            assert_eq!(admitted, want, "{why}: {expected:?}");
        }
    }

    /// What is rounded to infinity in f32, and what is not.
    #[test]
    fn the_overflow_of_f32_is_half_a_unit_above_the_largest() {
        assert_eq!((F32_OVERFLOW * (1.0 - U * U)) as f32, f32::MAX);
        assert_eq!((F32_OVERFLOW * (1.0 + U * U)) as f32, f32::INFINITY);
    }

    #[test]
    fn what_is_admitted() {
        let one = Expected::new(Format::Bf16, 64, [1.0, 0.0], DotProduct::single(64, 1.0, 1.0), None);
        let nan =
            Expected::new(Format::Bf16, 64, [1.0, 0.0], DotProduct::single(64, f64::NAN, f64::NAN), None);
        let up = Expected::new(
            Format::F16,
            8,
            [1.0, 0.0],
            DotProduct::single(8, f64::INFINITY, f64::INFINITY),
            None,
        );
        let edge = Expected::new(Format::F16, 8, [1.0, 0.0], DotProduct::single(8, 65_519.0, 65_519.0), None);
        let large =
            Expected::new(Format::F16, 8, [1.0, 0.0], DotProduct::single(8, 60_000.0, 60_000.0), None);
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

    /// Half of the smallest number of a format may become zero, and nothing more.
    #[test]
    fn what_is_near_zero_is_admitted_within_half_of_the_smallest() {
        for format in [Format::F16, Format::E4m3, Format::E5m2] {
            let tiniest = format.tiniest();
            for (value, got, want) in [
                (tiniest / 2.0, 0.0, true),
                (tiniest / 2.0, tiniest, true),
                (tiniest / 4.0, tiniest, false),
                (0.0, tiniest, false),
                (tiniest, 0.0, false),
            ] {
                let sum = DotProduct { error: 0.0, ..DotProduct::single(0, value, value) };
                let expected = Expected::new(format, 0, [1.0, 0.0], sum, None);
                assert_eq!(expected.admits(format, got), want, "{}: {got} for {value}", format.name());
            }
        }
    }

    #[test]
    fn zero_factors_leave_their_matrix_out() {
        let nan = DotProduct::single(64, f64::NAN, f64::NAN);
        let no_product = Expected::new(Format::Bf16, 64, [0.0, 2.0], nan, Some(1.5));
        assert_eq!(no_product.value, 3.0);
        let no_source =
            Expected::new(Format::Bf16, 64, [1.0, 0.0], DotProduct::single(64, 2.0, 2.0), Some(f64::NAN));
        assert_eq!(no_source.value, 2.0);
    }

    #[test]
    fn integers_have_one_right_result() {
        let sum = DotProduct::of_integers(3e9);
        assert_eq!(sum.value, 3e9 - f64::powi(2.0, 32));
        let whole = Expected::new(Format::S32, 9, [2.0, -1.0], DotProduct::of_integers(1e9 + 1.0), Some(7.0));
        assert_eq!(whole.value, 2e9 + 2.0 - 7.0);
        for (got, want) in [(whole.value, true), (whole.value + 1.0, false)] {
            assert_eq!(whole.admits(Format::S32, got), want, "{got}");
        }
        // 2^24 + 1 is first rounded to the nearest `f32`, which is 2^24: ties go to even.
        let single = Expected::new(Format::F32, 9, [1.0, 0.0], DotProduct::of_integers(16_777_217.0), None);
        for (got, want) in [(16_777_216.0, true), (16_777_300.0, false)] {
            assert_eq!(single.admits(Format::F32, got), want, "{got}");
        }
    }

    #[test]
    fn formats_that_saturate_end_at_their_largest() {
        let of = |value: f64| {
            Expected::new(Format::E4m3, 8, [1.0, 0.0], DotProduct::single(8, value, value.abs()), None)
        };
        for (why, value, got, want) in [
            ("beyond", 1e6, 448.0, true),
            ("beyond, negative", -1e6, -448.0, true),
            ("less than that", 1e6, 416.0, false),
            ("infinity", f64::INFINITY, 448.0, true),
            ("inside", 100.0, 104.0, true),
            ("another", 100.0, 112.0, false),
        ] {
            assert_eq!(of(value).admits(Format::E4m3, got), want, "{why}");
            let ratio = of(value).ratio(Format::E4m3, got);
            assert!(!want || (0.0..=1.0).contains(&ratio), "{why}: {ratio} of the bound");
        }
    }

    /// What is reported of a correct element is a number, and at most its bound.
    #[test]
    fn the_error_of_a_correct_element_is_within_its_bound() {
        let nan = f64::NAN;
        for (why, format, sum, got) in [
            ("infinity", Format::F16, (1e6, 1e6), f64::INFINITY),
            ("infinity for a finite value", Format::F16, (65_519.0, 65_519.0), f64::INFINITY),
            ("an accumulator that may overflow", Format::E4m3, (1.0, 1e39), 448.0),
            ("another that may", Format::F32, (1.0, 1e39), f64::NEG_INFINITY),
            ("NaN", Format::Bf16, (nan, nan), nan),
            ("beyond the largest", Format::E5m2, (1e9, 1e9), 57344.0),
        ] {
            let expected = Expected::new(format, 8, [1.0, 0.0], DotProduct::single(8, sum.0, sum.1), None);
            assert!(expected.admits(format, got), "{why}");
            assert_eq!((expected.ratio(format, got), expected.distance(format, got)), (0.0, 0.0), "{why}");
        }
    }
}
