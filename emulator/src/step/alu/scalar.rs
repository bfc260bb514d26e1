//! Conversions between scalars with all roundings.

use ptx::Type;
use ptx::inst::{Cvt, Rounding};

use super::flushed;
use crate::float::{NAN16, NAN32, bits32, convert as plain, from_bf16, from_f16};

/// A number on its way between two types. Every operand has one of the two forms exactly.
#[derive(Clone, Copy)]
enum Exact {
    Integer(i128),
    Real(f64),
}

/// `cvt` with a rounding, `.ftz`, `.sat` and `.relu`; bits to bits.
#[expect(clippy::wildcard_enum_match_arm, reason = "the other types are treated alike")]
pub(super) fn convert(cvt: Cvt, bits: u64) -> u64 {
    let Cvt::Scalar { from, to, rounding, integral, flush, saturate, relu } = cvt else { return bits };
    let exact = match from {
        Type::F16 => Exact::Real(from_f16(bits as u16).into()),
        Type::Bf16 => Exact::Real(from_bf16(bits as u16).into()),
        Type::F32 => {
            let value = f32::from_bits(bits as u32);
            Exact::Real(if flush { flushed(value) } else { value }.into())
        }
        Type::F64 => Exact::Real(f64::from_bits(bits)),
        _ if from.is_signed() => Exact::Integer(from.extend(bits).into()),
        _ => Exact::Integer(from.wrap(bits).into()),
    };
    let exact = match exact {
        Exact::Real(value) if integral => Exact::Real(whole(value, rounding.unwrap_or(Rounding::Zero))),
        Exact::Real(_) | Exact::Integer(_) => exact,
    };
    if !to.is_float() {
        return integer(exact, (from, to), saturate, bits);
    }
    let rounding = rounding.unwrap_or(Rounding::Nearest);
    let exact = match exact {
        Exact::Real(value) if relu && value < 0.0 => Exact::Real(0.0),
        Exact::Real(value) if saturate => {
            Exact::Real(if value.is_nan() { 0.0 } else { value.clamp(0.0, 1.0) + 0.0 })
        }
        Exact::Integer(value) if saturate => Exact::Integer(value.clamp(0, 1)),
        Exact::Real(_) | Exact::Integer(_) => exact,
    };
    let result = match exact {
        // NaNs are those of the plain conversion.
        Exact::Real(value) if value.is_nan() => return nan(from, to, bits),
        Exact::Real(value) => real(value, to, rounding),
        Exact::Integer(value) => whole_number(value, to, rounding),
    };
    let keep = |value: f32| if flush { flushed(value) } else { value };
    if to == Type::F32 { bits32(keep(f32::from_bits(result as u32))).into() } else { result }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "the other types are treated alike")]
fn nan(from: Type, to: Type, bits: u64) -> u64 {
    match to {
        _ if from != to => plain(from, to, bits),
        Type::F32 => NAN32.into(),
        Type::F16 | Type::Bf16 => NAN16.into(),
        _ => bits,
    }
}

/// Rounds to an integral value.
fn whole(value: f64, rounding: Rounding) -> f64 {
    match rounding {
        Rounding::Nearest => value.round_ties_even(),
        Rounding::Zero => value.trunc(),
        Rounding::Down => value.floor(),
        Rounding::Up => value.ceil(),
    }
}

/// An integer of a type: of another one its low bits, or limited; of a float always limited.
fn integer(exact: Exact, (from, to): (Type, Type), saturate: bool, bits: u64) -> u64 {
    let limits = |value: i128| {
        let (low, high) = if to.is_signed() {
            (-(1i128 << (to.bits() - 1)), (1i128 << (to.bits() - 1)) - 1)
        } else {
            (0, (1i128 << to.bits()) - 1)
        };
        value.clamp(low, high)
    };
    let value = match exact {
        Exact::Integer(value) if saturate => limits(value),
        Exact::Integer(value) => value,
        Exact::Real(value) if value.is_nan() => return plain(from, to, bits),
        // Truncation changes nothing: the value is integral, or no rounding is stated.
        Exact::Real(value) => limits(value as i128),
    };
    to.wrap(value as u64)
}

/// The bits of significand of a float, with the hidden one, the least exponent of normal numbers, and the largest exponent.
#[expect(clippy::wildcard_enum_match_arm, reason = "the other types are treated alike")]
const fn format(ty: Type) -> (i32, i32, i32) {
    match ty {
        Type::F16 => (11, -14, 15),
        Type::Bf16 => (8, -126, 127),
        Type::F32 => (24, -126, 127),
        _ => (53, -1022, 1023),
    }
}

/// Rounds a number that is not NaN.
fn real(value: f64, to: Type, rounding: Rounding) -> u64 {
    if value == 0.0 || value.is_infinite() || to == Type::F64 {
        return plain(Type::F64, to, value.to_bits());
    }
    let (precision, least, _) = format(to);
    // A unit in the last place, and the value in such units: an integer and a fraction, both exact.
    let exponent = (((value.to_bits() >> 52) & 0x7FF) as i32 - 1023).max(least);
    let scaled = scale(value.abs(), precision - 1 - exponent);
    let (low, rest) = (scaled.floor(), scaled - scaled.floor());
    let units = rounded_up(low as u128, rest.partial_cmp(&0.5), rest != 0.0, value < 0.0, rounding);
    pack(units, exponent - (precision - 1), value < 0.0, to, rounding)
}

/// `value` times a power of two, which is exact here.
fn scale(value: f64, power: i32) -> f64 {
    let half = power / 2;
    value * 2f64.powi(half) * 2f64.powi(power - half)
}

/// Rounds an integer.
fn whole_number(value: i128, to: Type, rounding: Rounding) -> u64 {
    let (precision, ..) = format(to);
    let magnitude = value.unsigned_abs();
    let excess = (128 - magnitude.leading_zeros() as i32 - precision).max(0);
    let low = magnitude >> excess;
    let rest = magnitude - (low << excess);
    let half = if excess > 0 { rest.cmp(&(1u128 << (excess - 1))) } else { core::cmp::Ordering::Less };
    let units = rounded_up(low, Some(half), rest != 0, value < 0, rounding);
    pack(units, excess, value < 0, to, rounding)
}

/// A number of units, one more if the rest says so.
fn rounded_up(
    low: u128,
    half: Option<core::cmp::Ordering>,
    inexact: bool,
    negative: bool,
    rounding: Rounding,
) -> u128 {
    let up = match rounding {
        Rounding::Nearest => match half {
            Some(core::cmp::Ordering::Greater) => true,
            Some(core::cmp::Ordering::Equal) => low & 1 == 1,
            Some(core::cmp::Ordering::Less) | None => false,
        },
        Rounding::Zero => false,
        Rounding::Down => inexact && negative,
        Rounding::Up => inexact && !negative,
    };
    low + u128::from(up)
}

/// The bits of so many units of a power of two. What is too large becomes infinite, or the largest number if the rounding is toward it.
fn pack(units: u128, power: i32, negative: bool, to: Type, rounding: Rounding) -> u64 {
    let (_, _, largest) = format(to);
    let value = scale(units as f64, power);
    let value = if negative { -value } else { value };
    let top = 128 - units.leading_zeros() as i32 + power - 1;
    if units == 0 || top <= largest {
        return plain(Type::F64, to, value.to_bits());
    }
    let toward = match rounding {
        Rounding::Nearest => false,
        Rounding::Zero => true,
        Rounding::Down => !negative,
        Rounding::Up => negative,
    };
    let infinite = plain(Type::F64, to, if negative { f64::NEG_INFINITY } else { f64::INFINITY }.to_bits());
    if toward { infinite - 1 } else { infinite }
}
