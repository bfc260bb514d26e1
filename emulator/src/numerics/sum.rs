//! The fused sum of one element of D.

use super::unpack::{Format, SPECIAL, Unpacked};
use crate::float::{NAN16, NAN32};

/// How the elements of one type of multiply are summed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rule {
    /// Number of fraction bits that a term keeps, relative to the largest exponent.
    pub(super) fraction: u32,
    /// Number of fraction bits in the significand of a product.
    pub(super) product_fraction: u32,
    /// The format of the old D.
    pub(super) addend: Format,
    pub(super) rounding: Rounding,
}

/// How a sum is rounded to an element of D.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rounding {
    /// To `.f32`, truncated to this many fraction bits.
    Single { fraction: u32 },
    /// To `.f16`, to nearest even.
    Half,
}

impl Default for Rounding {
    fn default() -> Self {
        Self::Single { fraction: 23 }
    }
}

/// The smallest exponent that terms are aligned to: that of the smallest subnormal `.bf16`. Zeros have no
/// exponent.
const FLOOR: i32 = -133;

/// A term in units of `2^(largest - kept)`, truncated toward zero.
#[inline]
fn align(significand: i64, fraction: u32, kept: u32, below: i32) -> i64 {
    // First shift up by `kept` bits, then down by the rest. The second shift is never negative, as `below` is
    // not.
    let wide = significand << kept;
    let down = (fraction + below.cast_unsigned()).min(63);
    let toward_zero = (wide >> 63) & ((1u64 << down) - 1).cast_signed();
    (wide + toward_zero) >> down
}

impl Rule {
    /// `a . b + old` as bits of D's format.
    pub(super) fn sum(&self, a: &[Unpacked], b: &[Unpacked], old: Option<Unpacked>) -> u32 {
        let mut largest = old.map_or(FLOOR, |old| old.exponent.max(FLOOR));
        for (a, b) in a.iter().zip(b) {
            largest = largest.max(a.exponent + b.exponent);
        }
        if largest > SPECIAL {
            let products = a.iter().zip(b).map(|(a, b)| a.special() * b.special());
            return self.rounding.special(products.sum::<f64>() + old.map_or(0.0, Unpacked::special));
        }
        let mut sum = 0;
        for (a, b) in a.iter().zip(b) {
            let product = i64::from(a.significand) * i64::from(b.significand);
            sum += align(product, self.product_fraction, self.fraction, largest - a.exponent - b.exponent);
        }
        if let Some(old) = old {
            let fraction = self.addend.fraction;
            sum += align(old.significand.into(), fraction, self.fraction, largest - old.exponent);
        }
        self.rounding.round(sum < 0, sum.unsigned_abs(), largest - self.fraction.cast_signed())
    }
}

/// `magnitude * 2^by`, truncated.
fn shifted(magnitude: u64, by: i32) -> u64 {
    if by >= 0 { magnitude << by } else { magnitude.checked_shr(by.unsigned_abs()).unwrap_or(0) }
}

impl Rounding {
    /// The bits of a sum that is infinite or NaN.
    fn special(self, sum: f64) -> u32 {
        match self {
            Self::Single { .. } if sum.is_nan() => NAN32,
            Self::Half if sum.is_nan() => NAN16.into(),
            Self::Single { .. } | Self::Half => self.infinity(sum < 0.0),
        }
    }

    fn infinity(self, negative: bool) -> u32 {
        match self {
            Self::Single { .. } => u32::from(negative) << 31 | 0x7F80_0000,
            Self::Half => u32::from(negative) << 15 | 0x7C00,
        }
    }

    /// `magnitude * 2^scale` as bits of D's format. A value that rounds to zero becomes +0.
    pub(super) fn round(self, negative: bool, magnitude: u64, scale: i32) -> u32 {
        if magnitude == 0 {
            return 0;
        }
        let exponent = magnitude.ilog2().cast_signed() + scale;
        match self {
            Self::Single { fraction } => {
                if exponent > 127 {
                    return self.infinity(negative);
                }
                let exponent = exponent.max(-126);
                let unit = exponent - fraction.cast_signed();
                let kept = shifted(magnitude, scale - unit) as u32;
                if kept == 0 {
                    return 0;
                }
                encode(negative, exponent + 127, kept << (23 - fraction), 23)
            }
            Self::Half => {
                let exponent = exponent.max(-14);
                let unit = exponent - 10;
                let kept = shifted(magnitude, scale - unit);
                let lost = u32::try_from(unit - scale).unwrap_or(0);
                let rest = magnitude & 1u64.checked_shl(lost).map_or(u64::MAX, |bit| bit - 1);
                let half = if lost == 0 { u64::MAX } else { 1u64.checked_shl(lost - 1).unwrap_or(u64::MAX) };
                let up = rest > half || (rest == half && kept & 1 == 1);
                let bits = encode(false, exponent + 15, kept as u32, 10) + u32::from(up);
                if bits == 0 {
                    return 0;
                }
                if bits >= 0x7C00 { self.infinity(negative) } else { u32::from(negative) << 15 | bits }
            }
        }
    }
}

/// The bits of a float. The significand includes the leading one; a subnormal has none.
fn encode(negative: bool, biased: i32, significand: u32, fraction: u32) -> u32 {
    let sign_at = if fraction == 23 { 31 } else { 15 };
    let one = 1 << fraction;
    let magnitude = if significand >= one {
        (biased.cast_unsigned() << fraction) + (significand - one)
    } else {
        significand
    };
    u32::from(negative) << sign_at | magnitude
}
