//! The elementary functions in single precision, written once for `f32` and for device values.
//!
//! The exact variants use only additions, fused multiply-adds, correctly rounded quotients and roots,
//! selections and powers of two, so host, emulator and GPU compute the same bits. Arguments are reduced as by
//! Cody and Waite: a constant is split into parts whose products with a small integer are exact, or are
//! fused. The polynomials are minimax fits; the error of each is given next to it.

use core::f64::consts::{FRAC_1_PI, LN_2, LOG2_E};

use ptx::inst::ApproxOp;

use super::{Elementary, Level, Real};

/// What single precision provides in addition to [`Real`].
pub(super) trait Single: Real {
    /// The nearest integer, ties to even.
    fn round(self) -> Self;

    /// `self * 2^power` for an integer `power`, if both numbers are normal.
    fn scale(self, power: Self) -> Self;

    /// `(m, e)` with `self = m * 2^e` and m between sqrt(1/2) and sqrt(2), for a positive normal number.
    fn split(self) -> (Self, Self);

    /// The square root, correctly rounded.
    fn square_root(self) -> Self;

    /// `1 / self`, correctly rounded.
    fn reciprocal(self) -> Self;

    /// A hardware approximation; on the host, the exact value rounded.
    fn approximate(self, op: ApproxOp) -> Self;

    /// The same with subnormal numbers flushed to zero: one instruction instead of several.
    fn approximate_flushed(self, op: ApproxOp) -> Self;
}

/// The bits of sqrt(1/2).
pub(super) const ROOT_HALF: u32 = 0x3F35_04F3;

pub(super) fn elementary<R: Single>(x: R, function: Elementary, level: Level) -> R {
    if level != Level::Exact {
        return fast(x, function, level);
    }
    match function {
        Elementary::Sqrt => x.square_root(),
        Elementary::Recip => x.reciprocal(),
        Elementary::Rsqrt => x.square_root().reciprocal(),
        Elementary::Exp2 => exp2(x),
        Elementary::Exp => exp(x),
        Elementary::Log2 => log2(x),
        Elementary::Ln => ln(x),
        Elementary::Tanh => tanh(x),
        Elementary::Sigmoid => sigmoid(x),
        Elementary::Erf => erf(x),
        Elementary::Sin => sine(x, 0.0),
        Elementary::Cos => sine(x, 1.0),
    }
}

fn fast<R: Single>(x: R, function: Elementary, level: Level) -> R {
    let fastest = level == Level::Fastest;
    let e_to = |x: R| x.times(LOG2_E).approximate(ApproxOp::Exp2);
    // 1 / (1 + e^x): added to 1, a subnormal exponential makes no difference.
    let logistic = |x: R| {
        let e = x.times(LOG2_E).approximate_flushed(ApproxOp::Exp2);
        e.plus(1.0).approximate_flushed(ApproxOp::Reciprocal)
    };
    match function {
        Elementary::Sqrt => x.approximate(ApproxOp::Root),
        Elementary::Recip => x.approximate(ApproxOp::Reciprocal),
        Elementary::Rsqrt => x.approximate(ApproxOp::ReciprocalRoot),
        Elementary::Exp2 => x.approximate(ApproxOp::Exp2),
        Elementary::Exp => e_to(x),
        Elementary::Log2 => x.approximate(ApproxOp::Log2),
        Elementary::Ln => x.approximate(ApproxOp::Log2).times(LN_2),
        Elementary::Tanh if fastest => x.approximate(ApproxOp::Tanh),
        Elementary::Tanh => {
            // 1 - 2 / (1 + e^2x): an infinite exponential gives 1.
            logistic(x + x).mul_add(x.constant(-2.0), x.constant(1.0))
        }
        Elementary::Sigmoid if fastest => {
            let half = x.constant(0.5);
            (x * half).approximate(ApproxOp::Tanh).mul_add(half, half)
        }
        Elementary::Sigmoid => logistic(-x),
        // Fit of the inverse hyperbolic tangent of erf: error 2^-11.8 in erf.
        Elementary::Erf if fastest => {
            let inner = polynomial(x * x, &[1.129_691, 0.099_765_9]);
            (x * inner).approximate(ApproxOp::Tanh)
        }
        Elementary::Erf => fast_erf(x),
        Elementary::Sin => x.approximate(ApproxOp::Sin),
        Elementary::Cos => x.approximate(ApproxOp::Cos),
    }
}

/// `c[0] + x * (c[1] + x * ...)`.
fn polynomial<R: Real>(x: R, coefficients: &[f64]) -> R {
    let mut rest = coefficients.iter().rev().map(|&c| x.constant(c));
    let Some(highest) = rest.next() else { return x.constant(0.0) };
    rest.fold(highest, |sum, c| sum.mul_add(x, c))
}

/// `p * 2^n` for an integer n in -300..=300, rounded once if the result is subnormal.
fn scaled<R: Single>(p: R, n: R) -> R {
    let half = n.times(0.5).round();
    (p.scale(half)) * p.constant(1.0).scale(n - half)
}

fn exp2<R: Single>(x: R) -> R {
    let x = x.clamp(x.constant(-152.0), x.constant(129.0));
    let n = x.round();
    scaled(exp2_reduced(x - n), n)
}

/// `2^f` for |f| <= 1/2: relative error 2^-29.
fn exp2_reduced<R: Single>(f: R) -> R {
    let q =
        polynomial(f, &[LN_2, 0.240_226_507, 0.055_503_279, 0.009_618_004, 0.001_340_027, 0.000_154_762_99]);
    f.mul_add(q, f.constant(1.0))
}

/// ln 2 in two parts. The first has 15 bits, so that its products with integers up to 2^9 are exact.
const LN_2_PARTS: [f64; 2] = [0.693_145_751_953_125, 1.428_606_820_309_417_3e-6];

/// `(e^r, n)` with `x = n ln 2 + r`: relative error 2^-28.
fn exp_parts<R: Single>(x: R) -> (R, R) {
    let n = x.times(LOG2_E).round();
    let r = n.mul_add(x.constant(-LN_2_PARTS[0]), x);
    let r = n.mul_add(x.constant(-LN_2_PARTS[1]), r);
    let q = polynomial(r, &[0.5, 0.166_665_18, 0.041_666_206, 0.008_368_953, 0.001_395_06]);
    let p = (r * r).mul_add(q, r).plus(1.0);
    (p, n)
}

fn exp<R: Single>(x: R) -> R {
    let x = x.clamp(x.constant(-105.0), x.constant(89.0));
    let (p, n) = exp_parts(x);
    scaled(p, n)
}

/// `(ln m, e)` of a positive number, including subnormal ones.
fn ln_parts<R: Single>(x: R) -> (R, R) {
    let (smallest, zero) = (x.constant(f32::MIN_POSITIVE.into()), x.constant(0.0));
    let (m, e) = x.less(smallest, x.times(8_388_608.0), x).split();
    let e = e - x.less(smallest, x.constant(23.0), zero);
    let f = m.plus(-1.0);
    // ln(1 + f) = f - f^2 / 2 + f^3 p, relative error 2^-27.
    let p = polynomial(
        f,
        &[
            0.333_333_164,
            -0.250_008_106,
            0.200_022_861,
            -0.166_245_535,
            0.141_811_922,
            -0.131_287_56,
            0.128_816_47,
            -0.078_596_093,
        ],
    );
    let square = f * f;
    let tail = (square * f).mul_add(p, square.times(-0.5));
    (f + tail, e)
}

/// `of_positive`, or the logarithm of zero, of a negative number, of infinity or of NaN.
fn logarithm<R: Single>(x: R, of_positive: R) -> R {
    let (zero, infinity) = (x.constant(0.0), x.constant(f64::INFINITY));
    let finite = x.less(infinity, of_positive, x + infinity);
    let not_zero = zero.less(x, finite, x.constant(f64::NEG_INFINITY));
    let negative = x.less(zero, x.constant(f64::NAN), not_zero);
    // NaN is neither less than infinity nor greater than zero; it is only unequal to itself.
    x.less(infinity, negative, finite)
}

fn ln<R: Single>(x: R) -> R {
    let (m, e) = ln_parts(x);
    let low = e.mul_add(x.constant(LN_2_PARTS[1]), m);
    logarithm(x, e.mul_add(x.constant(LN_2_PARTS[0]), low))
}

/// log2 e in two parts, the first of 12 bits.
const LOG2_E_PARTS: [f64; 2] = [1.442_382_812_5, 3.122_283_889_634e-4];

fn log2<R: Single>(x: R) -> R {
    let (m, e) = ln_parts(x);
    let low = m.times(LOG2_E_PARTS[1]);
    logarithm(x, m.mul_add(x.constant(LOG2_E_PARTS[0]), low) + e)
}

fn tanh<R: Single>(x: R) -> R {
    let magnitude = x.abs();
    // |x| <= 0.625: x + x^3 p(x^2), relative error 2^-28.
    let square = x * x;
    let p =
        polynomial(square, &[-0.333_332_837, 0.133_314_908, -0.053_743_497, 0.020_650_586, -0.005_717_043_3]);
    let small = (square * p).mul_add(x, x);
    // Otherwise: 1 - 2 / (e^2x + 1), which is 1 from 9.02 on.
    let (p, n) = exp_parts(magnitude.min_nan(x.constant(10.0)).times(2.0));
    let inverse = p.scale(n).plus(1.0).reciprocal();
    let large = inverse.mul_add(x.constant(-2.0), x.constant(1.0)).copysign(x);
    magnitude.less(x.constant(0.625), small, large)
}

fn sigmoid<R: Single>(x: R) -> R {
    // With e = e^-|x|: 1 / (1 + e), or e / (1 + e) below zero.
    let e = exp(-x.abs());
    let one = x.constant(1.0);
    x.less(x.constant(0.0), e, one) / (e + one)
}

fn erf<R: Single>(x: R) -> R {
    let magnitude = x.abs();
    // |x| <= 1: x + x p(x^2), relative error 2^-29.
    let p = polynomial(
        x * x,
        &[
            0.128_379_166,
            -0.376_126_26,
            0.112_836_003,
            -0.026_854_444,
            0.005_189_535_7,
            -0.000_802_084_22,
            0.000_078_891_23,
        ],
    );
    let small = x.mul_add(p, x);
    // Up to 4, where erf is 1: 1 - 2^q(x), absolute error 2^-35.
    let q = polynomial(
        magnitude.min_nan(x.constant(4.0)),
        &[
            0.000_271_278_75,
            -1.629_637_12,
            -0.913_543_224,
            -0.156_414_896,
            0.036_367_796_4,
            -0.006_065_890_2,
            0.000_636_711_76,
            -0.000_031_287_349,
        ],
    );
    let n = q.round();
    let complement = exp2_reduced(q - n).scale(n);
    let large = (x.constant(1.0) - complement).copysign(x);
    magnitude.less(x.constant(1.0), small, large)
}

/// `1 - 2^(x p(x))`, absolute error 2^-22.
fn fast_erf<R: Single>(x: R) -> R {
    let magnitude = x.abs().min_nan(x.constant(4.0));
    let p = polynomial(
        magnitude,
        &[-1.627_925, -0.918_165_505, -0.149_699_36, 0.030_896_105, -0.003_664_234, 0.000_142_034_27],
    );
    let complement = (magnitude * p).approximate_flushed(ApproxOp::Exp2);
    (x.constant(1.0) - complement).copysign(x)
}

/// pi / 2 in three parts, the first two of at most 12 bits.
const HALF_PI: [f64; 3] = [1.570_312_5, 4.837_512_969_970_703e-4, 7.549_789_948_768_648e-8];

/// The sine of `x + quarter * pi / 2`.
fn sine<R: Single>(x: R, quarter: f64) -> R {
    let k = x.times(2.0 * FRAC_1_PI).round();
    let r = HALF_PI.iter().fold(x, |r, &part| k.mul_add(x.constant(-part), r));
    // For arguments so large that k is wrong, only the range -1..=1 is guaranteed.
    let r = r.clamp(x.constant(-1.0), x.constant(1.0));
    let square = r * r;
    // Relative error 2^-37, absolute error 2^-33.
    let p = polynomial(square, &[-0.166_666_672, 0.008_333_329_1, -0.000_198_392_953, 0.000_002_717_879_9]);
    let sin = (square * p).mul_add(r, r);
    let p = polynomial(square, &[0.041_666_645_6, -0.001_388_733_74, 0.000_024_434_847]);
    let cos = (square * p).plus(-0.5).mul_add(square, x.constant(1.0));
    // The quadrant, -2..=2: sin, cos, -sin, -cos.
    let k = k.plus(quarter);
    let quadrant = k - k.times(0.25).round().times(4.0);
    let size = quadrant.abs();
    let even = size.less(x.constant(1.5), sin, -sin);
    let odd = quadrant.less(x.constant(0.0), -cos, cos);
    size.less(x.constant(0.5), sin, size.less(x.constant(1.5), odd, even))
}
