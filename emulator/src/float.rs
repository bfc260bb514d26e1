//! Rounding and conversion as PTX defines them, where Rust's own operators differ.
//!
//! NaN results are canonical, as on the device: `0x7FFF_FFFF` for `.f32`, `0x7FFF` for `.f16` and `.bf16`.
//! `.f64` keeps the NaN that the host computes. Conversions from `.f64` to narrower floats, from `.bf16` to
//! `.f32` and from `.f32` to `.tf32` keep a NaN's sign and the part of its payload that fits. Subnormals are
//! kept everywhere (no `.ftz`).

use float8::{F8E4M3, F8E5M2};
use half::f16;
use ptx::Type;
use ptx::inst::{Fp8, Int8, WgmmaElement};

/// The pattern of the types that are not floats.
macro_rules! not_float {
    () => {
        Type::Pred
            | Type::U8
            | Type::S8
            | Type::U16
            | Type::S16
            | Type::U32
            | Type::S32
            | Type::U64
            | Type::S64
            | Type::B8
            | Type::B16
            | Type::B32
            | Type::B64
    };
}

/// The NaN that `.f32` instructions return.
pub(crate) const NAN32: u32 = 0x7FFF_FFFF;
/// The NaN that conversions to `.f16` and `.bf16` return.
pub(crate) const NAN16: u16 = 0x7FFF;

/// The bits of an `.f32` result, with the canonical NaN.
#[inline]
pub(crate) fn bits32(value: f32) -> u32 {
    if value.is_nan() { NAN32 } else { value.to_bits() }
}

/// `abs` and `neg` of the bits of a float. A NaN becomes the canonical one; a 64-bit NaN is kept.
pub(crate) fn signed_anew(ty: Type, bits: u64, negate: bool) -> u64 {
    let (sign, infinity, nan) = match ty {
        Type::F16 => (0x8000, 0x7C00, NAN16.into()),
        Type::Bf16 => (0x8000, 0x7F80, NAN16.into()),
        Type::F64 => (1 << 63, 0x7FF << 52, bits),
        Type::F32 | not_float!() => (1 << 31, 0x7F80_0000, NAN32.into()),
    };
    match (bits & !sign > infinity, negate) {
        (true, _) => nan,
        (false, true) => bits ^ sign,
        (false, false) => bits & !sign,
    }
}

/// `cvt.rna.tf32.f32`.
pub(crate) fn to_tf32(bits: u32) -> u32 {
    match f32::from_bits(bits) {
        nan if nan.is_nan() => (bits | 0x0040_0000) & 0xFFFF_E000,
        infinite if infinite.is_infinite() => bits,
        _ => (bits + 0x1000) & 0xFFFF_E000,
    }
}

/// `cvt.rn.f16.f32`.
#[inline]
pub(crate) fn to_f16(value: f32) -> u16 {
    if value.is_nan() { NAN16 } else { f16::from_f32(value).to_bits() }
}

/// `cvt.rn.bf16.f32`.
#[inline]
pub(crate) fn to_bf16(value: f32) -> u16 {
    let bits = value.to_bits();
    // To nearest, and to even between two.
    let rounded = bits.wrapping_add(0x7FFF + (bits >> 16 & 1)) >> 16;
    if value.is_nan() { NAN16 } else { rounded as u16 }
}

/// A result of arithmetic in a 16-bit type, rounded once to nearest even. Same as `cvt`, except for NaN.
pub(crate) fn round16(ty: Type, value: f64) -> u16 {
    if value.is_nan() { NAN16 } else { convert(Type::F64, ty, value.to_bits()) as u16 }
}

/// `cvt.f32.f16`, exact: scaling by 2^112 changes the exponent bias to that of `.f32`, also for subnormals.
#[inline]
pub(crate) fn from_f16(bits: u16) -> f32 {
    let magnitude = f32::from_bits(u32::from(bits & 0x7FFF) << 13) * f32::from_bits(0x7780_0000);
    let special = if bits & 0x7C00 == 0x7C00 { 0x7F80_0000 } else { 0 };
    f32::from_bits(magnitude.to_bits() | special | u32::from(bits & 0x8000) << 16)
}

#[inline]
pub(crate) fn from_bf16(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// `.tf32` is an `.f32`; the hardware does not read its low 13 bits.
#[inline]
pub(crate) fn from_tf32(bits: u32) -> f32 {
    f32::from_bits(bits & 0xFFFF_E000)
}

/// The function that converts an element of A or B to `f32`. The conversion is exact.
pub(crate) fn element(format: WgmmaElement) -> fn(u32) -> f32 {
    match format {
        WgmmaElement::F16 => |bits| from_f16(bits as u16),
        WgmmaElement::Bf16 => |bits| from_bf16(bits as u16),
        WgmmaElement::Tf32 => from_tf32,
        WgmmaElement::Fp8(Fp8::E4m3) => |bits| F8E4M3::from_bits(bits as u8).to_f32(),
        WgmmaElement::Fp8(Fp8::E5m2) => |bits| F8E5M2::from_bits(bits as u8).to_f32(),
        WgmmaElement::Int8(Int8::S8) => |bits| f32::from((bits as u8).cast_signed()),
        WgmmaElement::Int8(Int8::U8) => |bits| f32::from(bits as u8),
        WgmmaElement::B1 => |bits| f32::from(bits as u8 & 1),
    }
}

/// Rounds to `.f32` so that a second rounding to a format at least two bits narrower is correct: an inexact
/// result gets an odd last bit.
fn to_odd_f32(value: f64) -> f32 {
    let near = value as f32;
    if f64::from(near) == value || value.is_nan() {
        return near;
    }
    let toward_zero = if f64::from(near).abs() > value.abs() { near.to_bits() - 1 } else { near.to_bits() };
    f32::from_bits(toward_zero | 1)
}

/// The magnitude as `.f64`, with an odd last bit if it does not fit exactly.
fn to_odd_f64(magnitude: u64) -> f64 {
    let excess = 11u32.saturating_sub(magnitude.leading_zeros());
    let kept = magnitude >> excess;
    let lost = u64::from(kept << excess != magnitude);
    (kept | lost) as f64 * (1u64 << excess) as f64
}

/// `min` and `max` of PTX: if one operand is NaN, the result is the other one; -0 is less than +0.
macro_rules! extremes {
    ($min:ident, $max:ident, $float:ty) => {
        #[inline]
        pub(crate) fn $min(a: $float, b: $float) -> $float {
            match (a.is_nan(), b.is_nan()) {
                (true, _) => b,
                (_, true) => a,
                _ if a < b || (a == b && a.is_sign_negative()) => a,
                _ => b,
            }
        }
        #[inline]
        pub(crate) fn $max(a: $float, b: $float) -> $float {
            match (a.is_nan(), b.is_nan()) {
                (true, _) => b,
                (_, true) => a,
                _ if a > b || (a == b && a.is_sign_positive()) => a,
                _ => b,
            }
        }
    };
}
extremes!(min32, max32, f32);
extremes!(min64, max64, f64);

/// A scalar during a conversion, between its two types.
enum Number {
    Unsigned(u64),
    Signed(i64),
    Single(f32),
    Double(f64),
}

/// The result for a NaN, in conversions that keep the sign of a NaN; `None` in all other cases.
fn kept_nan(from: Type, to: Type, bits: u64) -> Option<u64> {
    let nan = match from {
        Type::F64 => f64::from_bits(bits).is_nan(),
        Type::Bf16 => bits & 0x7FFF > 0x7F80,
        Type::F16 | Type::F32 | not_float!() => false,
    };
    let (sign, payload) = (bits >> 63, bits & ((1 << 52) - 1));
    match (from, to) {
        _ if !nan => None,
        (Type::F64, Type::F32) => Some(sign << 31 | 0x7FC0_0000 | payload >> 29),
        (Type::F64, Type::F16) => Some(sign << 15 | 0x7E00 | payload >> 42),
        (Type::F64, Type::Bf16) => Some(sign << 15 | 0x7FC0 | payload >> 45),
        (Type::Bf16, Type::F32) => Some((bits & 0xFFFF) << 16),
        _ => None,
    }
}

/// `cvt` of one scalar, bits to bits.
pub(crate) fn convert(from: Type, to: Type, bits: u64) -> u64 {
    if let Some(nan) = kept_nan(from, to, bits) {
        return nan;
    }
    let low = bits as u32;
    let number = match from {
        Type::F16 => Number::Single(from_f16(low as u16)),
        Type::Bf16 => Number::Single(from_bf16(low as u16)),
        Type::F32 => Number::Single(f32::from_bits(low)),
        Type::F64 => Number::Double(f64::from_bits(bits)),
        not_float!() if from.is_signed() => Number::Signed(from.extend(bits)),
        not_float!() => Number::Unsigned(from.wrap(bits)),
    };
    match to {
        Type::F64 => match number {
            Number::Unsigned(n) => n as f64,
            Number::Signed(n) => n as f64,
            Number::Single(x) => f64::from(x),
            Number::Double(x) => x,
        }
        .to_bits(),
        Type::F32 => bits32(match number {
            Number::Unsigned(n) => n as f32,
            Number::Signed(n) => n as f32,
            Number::Single(x) => x,
            Number::Double(x) => x as f32,
        })
        .into(),
        Type::F16 => to_f16(odd_single(&number)).into(),
        Type::Bf16 => to_bf16(odd_single(&number)).into(),
        not_float!() => to_integer(&number, to),
    }
}

fn odd_single(number: &Number) -> f32 {
    match *number {
        Number::Unsigned(n) => to_odd_f32(to_odd_f64(n)),
        Number::Signed(n) => {
            let magnitude = to_odd_f32(to_odd_f64(n.unsigned_abs()));
            if n < 0 { -magnitude } else { magnitude }
        }
        Number::Single(x) => x,
        Number::Double(x) => to_odd_f32(x),
    }
}

/// Converts to an integer. Integers wrap to the width of `to`; floats truncate and saturate. NaN gives 0. If
/// a 64-bit type takes part in the conversion, NaN gives the number with only its top bit set.
fn to_integer(number: &Number, to: Type) -> u64 {
    let (real, wide) = match *number {
        Number::Unsigned(n) => return to.wrap(n),
        Number::Signed(n) => return to.wrap(n.cast_unsigned()),
        Number::Single(x) => (f64::from(x), to.bits() == 64),
        Number::Double(x) => (x, to != Type::Pred),
    };
    if real.is_nan() && wide {
        return 1 << (to.bits() - 1);
    }
    match to {
        Type::Pred => u64::from(real != 0.0),
        Type::U8 | Type::B8 => u64::from(real as u8),
        Type::S8 => u64::from((real as i8).cast_unsigned()),
        Type::U16 | Type::B16 => u64::from(real as u16),
        Type::S16 => u64::from((real as i16).cast_unsigned()),
        Type::U32 | Type::B32 => u64::from(real as u32),
        Type::S32 => u64::from((real as i32).cast_unsigned()),
        Type::U64 | Type::B64 => real as u64,
        Type::S64 | Type::F16 | Type::Bf16 | Type::F32 | Type::F64 => (real as i64).cast_unsigned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conversions_round_once() {
        let f = |x: f64| x.to_bits();
        for (why, from, bits, to, want) in [
            ("an exact value", Type::F32, u64::from(1.5f32.to_bits()), Type::Bf16, 0x3FC0),
            ("a tie goes to even", Type::F32, 0x3F80_8000, Type::Bf16, 0x3F80),
            ("above a tie goes up", Type::F32, 0x3F80_8001, Type::Bf16, 0x3F81),
            (
                "a sticky bit far below decides a tie",
                Type::F64,
                f(1.0 + 2f64.powi(-8) + 2f64.powi(-40)),
                Type::Bf16,
                0x3F81,
            ),
            ("the same for f16", Type::F64, f(1.0 + 2f64.powi(-11) + 2f64.powi(-50)), Type::F16, 0x3C01),
            ("a tie in f16", Type::F64, f(1.0 + 2f64.powi(-11)), Type::F16, 0x3C00),
            ("-NaN from f64 keeps its sign", Type::F64, 0xFFF8 << 48, Type::F32, 0xFFC0_0000),
            ("NaN from f64", Type::F64, 0x7FF8 << 48, Type::F32, 0x7FC0_0000),
            ("NaN from f64", Type::F64, 0x7FF8 << 48, Type::F16, 0x7E00),
            ("NaN from f64", Type::F64, 0x7FF8 << 48, Type::Bf16, 0x7FC0),
            ("-NaN from f64", Type::F64, 0xFFF8 << 48, Type::Bf16, 0xFFC0),
            ("-NaN from bf16", Type::Bf16, 0xFFC0, Type::F32, 0xFFC0_0000),
            ("NaN from bf16", Type::Bf16, 0x7FC0, Type::F32, 0x7FC0_0000),
            ("NaN from f16 is canonical", Type::F16, 0xFE00, Type::F32, 0x7FFF_FFFF),
            ("NaN from bf16 to f16 is canonical", Type::Bf16, 0xFFC0, Type::F16, 0x7FFF),
            ("-NaN to 64 bits", Type::F32, 0xFFC0_0000, Type::U64, 1 << 63),
            ("NaN to 64 bits", Type::F32, 0x7FC0_0000, Type::S64, 1 << 63),
            ("NaN to 64 bits", Type::F16, 0x7E00, Type::U64, 1 << 63),
            ("NaN to 64 bits", Type::F16, 0xFE00, Type::S64, 1 << 63),
            ("NaN to 64 bits", Type::Bf16, 0x7FC0, Type::U64, 1 << 63),
            ("NaN to 64 bits", Type::Bf16, 0xFFC0, Type::S64, 1 << 63),
            ("NaN to 64 bits", Type::F64, 0x7FF8 << 48, Type::U64, 1 << 63),
            ("NaN to 64 bits", Type::F64, 0xFFF8 << 48, Type::S64, 1 << 63),
            ("NaN from f64 to integer", Type::F64, 0x7FF8 << 48, Type::U16, 0x8000),
            ("NaN from f64 to integer", Type::F64, 0xFFF8 << 48, Type::U32, 1 << 31),
            ("NaN from f64 to integer", Type::F64, 0x7FF8 << 48, Type::S32, 1 << 31),
            ("NaN is canonical", Type::F32, 0xFFC0_1234, Type::F16, 0x7FFF),
            ("NaN is canonical", Type::F32, 0xFFC0_1234, Type::Bf16, 0x7FFF),
            ("overflow is infinite", Type::F32, u64::from(65520.0f32.to_bits()), Type::F16, 0x7C00),
            ("the largest f16", Type::F32, u64::from(65519.0f32.to_bits()), Type::F16, 0x7BFF),
            ("beyond f32 into bf16", Type::F64, f(1e300), Type::Bf16, 0x7F80),
            ("f16 subnormal", Type::F32, u64::from(2f32.powi(-24).to_bits()), Type::F16, 1),
            ("truncation", Type::F32, u64::from((-1.75f32).to_bits()), Type::S32, 0xFFFF_FFFF),
            ("saturation below", Type::F32, u64::from((-5.0f32).to_bits()), Type::U32, 0),
            ("saturation above", Type::F32, u64::from(1e20f32.to_bits()), Type::S32, 0x7FFF_FFFF),
            ("NaN to integer", Type::F32, u64::from(f32::NAN.to_bits()), Type::S32, 0),
            ("sign extension", Type::S32, 0xFFFF_FFFE, Type::S64, u64::MAX - 1),
            ("zero extension", Type::U32, 0xFFFF_FFFE, Type::U64, 0xFFFF_FFFE),
            ("narrowing wraps", Type::U32, 0x1_2345, Type::U16, 0x2345),
            ("a 64-bit integer rounds once", Type::U64, (1 << 63) + (1 << 55) + 1, Type::Bf16, 0x5F01),
            ("negative integer", Type::S32, 0xFFFF_FFFF, Type::F16, 0xBC00),
        ] {
            assert_eq!(convert(from, to, bits), want, "{why}: {from} {bits:#x} to {to}");
        }
    }

    /// Results of an H200.
    #[test]
    fn signs_of_nan() {
        for (ty, bits, magnitude, negated) in [
            (Type::F32, 0x7FC0_0000, 0x7FFF_FFFF, 0x7FFF_FFFF),
            (Type::F32, 0x7FDE_02DC, 0x7FFF_FFFF, 0x7FFF_FFFF),
            (Type::F16, 0xFE06, 0x7FFF, 0x7FFF),
            (Type::F16, 0x7DA5, 0x7FFF, 0x7FFF),
            (Type::Bf16, 0xFFC0, 0x7FFF, 0x7FFF),
            (Type::F64, 0xFFF8 << 48, 0xFFF8 << 48, 0xFFF8 << 48),
            (Type::F64, 0x7FF8 << 48, 0x7FF8 << 48, 0x7FF8 << 48),
            (Type::F32, 0xFF80_0000, 0x7F80_0000, 0x7F80_0000),
            (Type::F16, 0xFC00, 0x7C00, 0x7C00),
            (Type::Bf16, 0xFF80, 0x7F80, 0x7F80),
            (Type::F64, 0xBFF0 << 48, 0x3FF0 << 48, 0x3FF0 << 48),
        ] {
            assert_eq!(signed_anew(ty, bits, false), magnitude, "abs.{ty} {bits:#x}");
            assert_eq!(signed_anew(ty, bits, true), negated, "neg.{ty} {bits:#x}");
        }
        for (bits, want) in [(0xFFC0_0000, 0xFFC0_0000), (0x7FC0_0000, 0x7FC0_0000)] {
            assert_eq!(to_tf32(bits), want, "cvt.rna.tf32.f32 {bits:#x}");
        }
    }

    #[test]
    fn every_16_bit_float_survives_the_way_through_f32() {
        for bits in 0..=u16::MAX {
            let (half, brain) = (from_f16(bits), from_bf16(bits));
            assert_eq!(half.to_bits() & !0x0040_0000, f16::from_bits(bits).to_f32().to_bits() & !0x0040_0000);
            assert_eq!(to_f16(half), if half.is_nan() { NAN16 } else { bits });
            assert_eq!(to_bf16(brain), if brain.is_nan() { NAN16 } else { bits });
        }
    }

    #[test]
    fn extremes_follow_ptx() {
        assert_eq!(min32(f32::NAN, 1.0), 1.0);
        assert_eq!(max32(1.0, f32::NAN), 1.0);
        assert!(min32(f32::NAN, f32::NAN).is_nan());
        assert!(min32(0.0, -0.0).is_sign_negative() && min32(-0.0, 0.0).is_sign_negative());
        assert!(max32(0.0, -0.0).is_sign_positive() && max32(-0.0, 0.0).is_sign_positive());
        assert_eq!(min64(2.0, 1.0), 1.0);
        assert_eq!(max64(2.0, 1.0), 2.0);
    }
}
