//! The fused sum of one element of D.

use super::unpack::{Class, Format, Unpacked};
use crate::float::{NAN16, NAN32};

/// How the elements of one type of multiply are summed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rule {
    /// Fraction bits that a term keeps relative to the largest exponent.
    pub(super) fraction: u32,
    /// Fraction bits of a product's significand.
    pub(super) product_fraction: u32,
    /// The format of the old D.
    pub(super) addend: Format,
    pub(super) rounding: Rounding,
}

/// How a sum becomes an element of D.
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

/// The least exponent that terms are aligned to, that of the smallest subnormal `.bf16`. Terms of zero have none.
const FLOOR: i32 = -133;

/// A significand in units of `2^(exponent - fraction)`, truncated to units of `2^(largest - kept)`.
fn align(significand: u64, exponent: i32, fraction: u32, largest: i32, kept: u32) -> i64 {
    if significand == 0 {
        return 0;
    }
    let shift = kept.cast_signed() - fraction.cast_signed() + exponent - largest;
    let magnitude = if shift >= 0 {
        significand << shift.unsigned_abs()
    } else {
        significand.checked_shr(shift.unsigned_abs()).unwrap_or(0)
    };
    magnitude.cast_signed()
}

impl Rule {
    /// `a . b + old` as bits of D's format.
    pub(super) fn sum(&self, a: &[Unpacked], b: &[Unpacked], old: Option<Unpacked>) -> u32 {
        let mut largest = FLOOR;
        let (mut nan, mut infinite) = (false, [false; 2]);
        let mut term = |class: Class, negative: bool, zero: bool, exponent: i32| match class {
            Class::Nan => nan = true,
            Class::Infinite => infinite[usize::from(negative)] = true,
            Class::Finite if zero => {}
            Class::Finite => largest = largest.max(exponent),
        };
        for (a, b) in a.iter().zip(b) {
            let zero = a.significand == 0 || b.significand == 0;
            let class = match (a.class, b.class) {
                (Class::Finite, Class::Finite) => Class::Finite,
                (Class::Nan, _) | (_, Class::Nan) => Class::Nan,
                (Class::Infinite, _) | (_, Class::Infinite) if zero => Class::Nan,
                (Class::Infinite, _) | (_, Class::Infinite) => Class::Infinite,
            };
            term(class, a.negative != b.negative, zero, a.exponent + b.exponent);
        }
        if let Some(old) = old {
            term(old.class, old.negative, old.significand == 0, old.exponent);
        }
        if nan || infinite == [true; 2] {
            return self.rounding.nan();
        }
        if let Some(negative) = infinite.iter().position(|&there| there) {
            return self.rounding.infinity(negative == 1);
        }
        let signed = |negative: bool, magnitude: i64| if negative { -magnitude } else { magnitude };
        let mut sum = 0;
        for (a, b) in a.iter().zip(b) {
            let product = u64::from(a.significand) * u64::from(b.significand);
            let exponent = a.exponent + b.exponent;
            let term = align(product, exponent, self.product_fraction, largest, self.fraction);
            sum += signed(a.negative != b.negative, term);
        }
        if let Some(old) = old {
            let fraction = self.addend.fraction;
            let term = align(old.significand.into(), old.exponent, fraction, largest, self.fraction);
            sum += signed(old.negative, term);
        }
        self.rounding.round(sum < 0, sum.unsigned_abs(), largest - self.fraction.cast_signed())
    }
}

impl Rounding {
    fn nan(self) -> u32 {
        match self {
            Self::Single { .. } => NAN32,
            Self::Half => NAN16.into(),
        }
    }

    fn infinity(self, negative: bool) -> u32 {
        match self {
            Self::Single { .. } => u32::from(negative) << 31 | 0x7F80_0000,
            Self::Half => u32::from(negative) << 15 | 0x7C00,
        }
    }

    /// `magnitude * 2^scale` as bits; what rounds to zero is positive.
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
                let kept = align(magnitude, scale, 0, unit, 0).cast_unsigned() as u32;
                if kept == 0 {
                    return 0;
                }
                encode(negative, exponent + 127, kept << (23 - fraction), 23)
            }
            Self::Half => {
                let exponent = exponent.max(-14);
                let unit = exponent - 10;
                let kept = align(magnitude, scale, 0, unit, 0).cast_unsigned();
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

/// The bits of a significand with its leading one, which a subnormal lacks.
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
