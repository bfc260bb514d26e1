//! The bits of one element of D of a `wgmma`, computed from the definition in f64, where each step is exact.
//!
//! Use it to check the emulator and the hardware. No code is shared with the emulator: `half` and `float8`
//! decode the formats.
//!
//! ```
//! use ptx::inst::WgmmaTypes;
//! use reference::wgmma::sum;
//!
//! let (one, two) = (0x3f80, 0x4000); // bf16
//! assert_eq!(sum(WgmmaTypes::Bf16F32, &[(one, two); 16], false, None), 32f32.to_bits());
//! ```

use float8::{F8E4M3, F8E5M2};
use half::{bf16, f16};
use ptx::WgmmaTypes;
use ptx::inst::{Fp8, Int8, WgmmaElement, WgmmaSum};

/// The smallest exponent that terms are aligned to.
const FLOOR: i32 = -133;

/// The bits of the accumulator after one instruction: `old` plus the products of the pairs (bits of an
/// element of A and of B). With `negate` the products are negated. `old` is `None` if the instruction
/// overwrites the accumulator.
pub fn sum(types: WgmmaTypes, pairs: &[(u32, u32)], negate: bool, old: Option<u32>) -> u32 {
    match types {
        WgmmaTypes::Int8 { a, b, saturate } => {
            let products = pairs.iter().map(|&(x, y)| integer(a, x) * integer(b, y)).sum::<i64>();
            let sum = products + i64::from(old.unwrap_or(0).cast_signed());
            let clamped = sum.clamp(i32::MIN.into(), i32::MAX.into());
            (if saturate { clamped } else { sum } as i32).cast_unsigned()
        }
        WgmmaTypes::B1 => {
            let bits = pairs.iter().map(|&(x, y)| (x & y & 0xFF).count_ones()).sum();
            old.unwrap_or(0).wrapping_add(bits)
        }
        WgmmaTypes::Bf16F32
        | WgmmaTypes::F16F32
        | WgmmaTypes::F16F16
        | WgmmaTypes::Tf32F32
        | WgmmaTypes::Fp8F32(..)
        | WgmmaTypes::Fp8F16(..) => float_sum(types, pairs, negate, old),
    }
}

fn integer(format: Int8, bits: u32) -> i64 {
    match format {
        Int8::S8 => (bits as u8).cast_signed().into(),
        Int8::U8 => (bits as u8).into(),
    }
}

/// The value of an element and the exponent of its format's smallest normal number.
fn value(element: WgmmaElement, bits: u32) -> (f64, i32) {
    match element {
        WgmmaElement::F16 => (f16::from_bits(bits as u16).to_f64(), -14),
        WgmmaElement::Bf16 => (bf16::from_bits(bits as u16).to_f64(), -126),
        WgmmaElement::Tf32 => (f32::from_bits(bits & !0x1FFF).into(), -126),
        WgmmaElement::Fp8(Fp8::E4m3) => (F8E4M3::from_bits(bits as u8).to_f64(), -6),
        WgmmaElement::Fp8(Fp8::E5m2) => (F8E5M2::from_bits(bits as u8).to_f64(), -14),
        WgmmaElement::Int8(format) => (integer(format, bits) as f64, 0),
        WgmmaElement::B1 => (f64::from(bits & 1), 0),
    }
}

fn two(exponent: i32) -> f64 {
    2f64.powi(exponent)
}

/// The significand, in [1, 2) or below 1 for subnormals, and the exponent.
fn split((value, smallest): (f64, i32)) -> (f64, i32) {
    // The exponent field of an `.f64`; everything here is a normal `.f64` or zero.
    let exponent = ((value.to_bits() >> 52 & 0x7FF) as i32 - 1023).max(smallest);
    (value / two(exponent), exponent)
}

fn float_sum(types: WgmmaTypes, pairs: &[(u32, u32)], negate: bool, old: Option<u32>) -> u32 {
    let half = types.d() == WgmmaSum::F16;
    let old = old
        .map(|bits| if half { value(WgmmaElement::F16, bits) } else { (f32::from_bits(bits).into(), -126) });
    let sign = if negate { -1.0 } else { 1.0 };
    let factors: Vec<_> = pairs
        .iter()
        .map(|&(a, b)| (value(types.a(), a), value(types.b(), b)))
        .map(|((a, least), b)| ((sign * a, least), b))
        .collect();
    // Infinities and NaN follow from the plain sum.
    let plain = factors.iter().map(|&((a, _), (b, _))| a * b).sum::<f64>() + old.map_or(0.0, |old| old.0);
    if !plain.is_finite() {
        return special(plain, half);
    }
    let mut terms: Vec<(f64, i32)> = Vec::new();
    for (a, b) in factors {
        let ((sa, ea), (sb, eb)) = (split(a), split(b));
        terms.push((sa * sb, ea + eb));
    }
    terms.extend(old.map(split));
    let short = matches!(types.a(), WgmmaElement::Fp8(_));
    let kept = if short { 13 } else { 25 };
    let largest = terms.iter().filter(|(s, _)| *s != 0.0).map(|(_, e)| *e).fold(FLOOR, i32::max);
    let truncated = terms.iter().map(|&(s, e)| (s * two((e - largest).max(-200)) * two(kept)).trunc());
    let sum = truncated.sum::<f64>() * two(largest - kept);
    if half {
        // Rounds to nearest even here, because `f16::from_f64` may round twice. It converts the rounded value
        // exactly.
        let (s, e) = split((sum, -14));
        let rounded = (s * two(10)).round_ties_even() / two(10) * two(e);
        let bits = f16::from_f64(rounded).to_bits();
        return if bits == 0x8000 { 0 } else { bits.into() };
    }
    let bits = two(if short { 13 } else { 23 });
    let (s, e) = split((sum, -126));
    let sum = ((s * bits).trunc() / bits * two(e)) as f32;
    // A sum that is truncated to zero is positive zero.
    (sum + 0.0).to_bits()
}

fn special(plain: f64, half: bool) -> u32 {
    match (half, plain.is_nan()) {
        (false, true) => 0x7FFF_FFFF,
        (true, true) => 0x7FFF,
        (false, false) => (plain as f32).to_bits(),
        (true, false) => f16::from_f64(plain).to_bits().into(),
    }
}
