//! Tests: sums computed by hand, and random sums compared with the definition in `.f64`. Other crates decode
//! the values.

use float8::{F8E4M3, F8E5M2};
use half::{bf16, f16};
use ptx::inst::Fp8;

use super::*;

const E4M3: WgmmaTypes = WgmmaTypes::Fp8F32(Fp8::E4m3, Fp8::E4m3);
const MIXED: WgmmaTypes = WgmmaTypes::Fp8F32(Fp8::E5m2, Fp8::E4m3);
const HALF: WgmmaTypes = WgmmaTypes::Fp8F16(Fp8::E5m2, Fp8::E5m2);

/// Description, types, pairs of elements, old D, and new D.
type Case<'a> = (&'a str, WgmmaTypes, &'a [(u32, u32)], Option<u32>, u32);

fn sum(types: WgmmaTypes, pairs: &[(u32, u32)], old: Option<u32>) -> u32 {
    let (a, b): (Vec<_>, Vec<_>) = pairs.iter().copied().unzip();
    let mut exact = Exact::default();
    exact.begin(types, false, &a, &b);
    exact.sum(0, 0..b.len(), None, old)
}

/// The `.bf16` bits of a value that `.bf16` can represent.
fn b(value: f32) -> u32 {
    bf16::from_f32(value).to_bits().into()
}

/// The `.f16` bits of a value that `.f16` can represent.
fn h(value: f32) -> u32 {
    f16::from_f32(value).to_bits().into()
}

fn two(exponent: i32) -> f32 {
    2f32.powi(exponent)
}

#[test]
fn sums_worked_out_by_hand() {
    use WgmmaTypes::{Bf16F32, F16F16, F16F32, Tf32F32};
    let one = b(1.0);
    let f = f32::to_bits;
    let cases: &[Case<'_>] = &[
        ("one product", Bf16F32, &[(b(3.0), b(-0.5))], None, f(-1.5)),
        ("a product and the old D", Bf16F32, &[(b(3.0), b(2.0))], Some(f(0.25)), f(6.25)),
        ("nothing", Bf16F32, &[(b(0.0), b(-1.0))], None, 0),
        // 1 + 2^-25 + 2^-25: both small terms survive at F = 25 and make 2^-24, which truncation to .f32
        // drops.
        (
            "truncation, not rounding",
            Bf16F32,
            &[(b(two(-25)), one), (b(two(-25)), one)],
            Some(f(1.0)),
            f(1.0),
        ),
        // Four of them make one unit of 2^-23.
        (
            "terms add before they are dropped",
            Bf16F32,
            &[(b(two(-25)), one); 4],
            Some(f(1.0)),
            f(1.0 + two(-23)),
        ),
        // Each 2^-26 alone is below the last kept bit.
        ("terms below the kept bits vanish", Bf16F32, &[(b(two(-26)), one); 16], Some(f(1.0)), f(1.0)),
        ("and so with other signs", Bf16F32, &[(b(-two(-26)), one); 16], Some(f(1.0)), f(1.0)),
        (
            "a sum below one is not rounded up",
            Bf16F32,
            &[(b(-two(-25)), one)],
            Some(f(1.0)),
            f(1.0 - two(-24)),
        ),
        // 2^30 - 2^30 + 1: the 1 is 2^-30 of the largest term and is truncated to zero.
        (
            "cancellation keeps what alignment kept",
            Bf16F32,
            &[(b(two(15)), b(two(15))), (b(-two(15)), b(two(15))), (one, one)],
            None,
            0,
        ),
        // The significand 1.5 * 1.5 = 2.25 keeps the exponent of its factors, so one more bit is kept.
        (
            "significands of products are not normalised",
            F16F32,
            &[(h(1.5), h(1.5)), (h(two(-12)), h(two(-13)))],
            None,
            f(2.25),
        ),
        ("subnormal .f16 operands", F16F32, &[(1, h(two(10)))], None, f(two(-14))),
        ("subnormal .bf16 operands", Bf16F32, &[(1, b(two(100)))], None, f(two(-33))),
        ("a subnormal result", Bf16F32, &[(b(two(-70)), b(two(-70)))], None, 1 << 9),
        // Both products are 2^-140; aligned to 2^-133, a unit is 2^-158, and 2^-149 * 3 / 4 of each is kept.
        ("products below the smallest .f32 add up", Bf16F32, &[(b(two(-75)), b(1.5 * two(-75))); 2], None, 1),
        // 2^-157 twice is less than a unit of 2^-149, but 2^-158 times 2^8 + 2^8 is one; below 2^-158 nothing
        // is kept.
        ("down to 25 bits below 2^-133", Bf16F32, &[(b(two(-79)), b(two(-79))); 512], None, 1),
        ("and no further", Bf16F32, &[(b(two(-79)), b(two(-80))); 1024], None, 0),
        ("what is cut to zero is positive", Bf16F32, &[(b(-two(-75)), b(two(-75)))], None, 0),
        ("what rounds to zero is positive", F16F16, &[(h(-two(-13)), h(two(-13)))], None, 0),
        ("zeros have no exponent", Bf16F32, &[(b(two(100)), 0)], Some(1), 1),
        ("zeros of one sign", Bf16F32, &[(0x8000, b(1.0))], Some(0x8000_0000), 0),
        ("a product below everything", Bf16F32, &[(b(two(-100)), b(two(-100)))], None, 0),
        ("overflow", Bf16F32, &[(b(two(100)), b(-two(100)))], None, f(f32::NEG_INFINITY)),
        ("the largest .f32 is no overflow", Bf16F32, &[(one, b(0.0))], Some(0x7F7F_FFFF), 0x7F7F_FFFF),
        ("an infinity", Bf16F32, &[(b(f32::INFINITY), b(-2.0))], Some(f(1.0)), f(f32::NEG_INFINITY)),
        ("infinities of both signs", Bf16F32, &[(b(f32::INFINITY), one)], Some(f(f32::NEG_INFINITY)), NAN),
        ("an infinity times zero", Bf16F32, &[(b(f32::INFINITY), 0)], None, NAN),
        ("NaN", Bf16F32, &[(0xFFC1, one)], Some(f(f32::INFINITY)), NAN),
        ("NaN of the old D", Bf16F32, &[(one, one)], Some(0xFF80_0001), NAN),
        ("low bits of .tf32 are not read", Tf32F32, &[(0x3F80_1FFF, 0x4000_1FFF)], None, f(2.0)),
        ("a NaN of low bits alone is an infinity", Tf32F32, &[(0x7F80_0001, f(1.0))], None, f(f32::INFINITY)),
        ("a .f16 tie goes to even", F16F16, &[(h(1.0), h(two(-11)))], Some(h(1.0)), h(1.0)),
        ("the other tie", F16F16, &[(h(1.0), h(two(-11)))], Some(0x3C01), 0x3C02),
        ("above a tie", F16F16, &[(h(1.0), h(two(-11))), (h(two(-12)), h(two(-12)))], Some(0x3C00), 0x3C01),
        ("overflow of .f16", F16F16, &[(h(256.0), h(256.0))], None, 0x7C00),
        ("rounds to overflow", F16F16, &[(h(16.0), h(1.0))], Some(0x7BFF), 0x7C00),
        ("rounds to the largest", F16F16, &[(h(15.0), h(1.0))], Some(0x7BFF), 0x7BFF),
        ("subnormal .f16 result", F16F16, &[(h(two(-12)), h(-two(-12)))], None, 0x8001),
        ("half a subnormal", F16F16, &[(h(two(-12)), h(two(-13)))], None, 0),
        ("three halves of a subnormal", F16F16, &[(h(two(-12)), h(1.5 * two(-12)))], None, 2),
        ("NaN of .f16", F16F16, &[(0x7C01, 0)], None, 0x7FFF),
        // 0x38 is 1, 0x7E is 448, 0x01 is 2^-9.
        ("e4m3", E4M3, &[(0x38, 0x38)], None, f(1.0)),
        ("the largest e4m3", E4M3, &[(0x7E, 0xFE)], None, f(-448.0 * 448.0)),
        ("subnormal e4m3", E4M3, &[(0x01, 0x38)], None, f(two(-9))),
        ("NaN of e4m3", E4M3, &[(0xFF, 0x38)], None, NAN),
        ("13 fraction bits are kept", E4M3, &[(0x38, 0x38)], Some(f(two(-13))), f(1.0 + two(-13))),
        ("and no more", E4M3, &[(0x38, 0x38)], Some(f(two(-14))), f(1.0)),
        (
            "the old D alone is cut as well",
            E4M3,
            &[(0x00, 0x38)],
            Some(f(1.0 + two(-13) + two(-14))),
            f(1.0 + two(-13)),
        ),
        // A carry to 2 leaves 12 bits of 2^-13 units and one more: the last of 14 is dropped.
        ("a carry drops one bit", E4M3, &[(0x38, 0x38)], Some(f(1.0 + two(-13))), f(2.0)),
        // e5m2: 0x3C is 1, 0x7C infinity, 0x7D NaN, 0x01 2^-16.
        ("e5m2 and e4m3", MIXED, &[(0x3C, 0x40)], None, f(2.0)),
        ("subnormal e5m2", MIXED, &[(0x01, 0x38)], None, f(two(-16))),
        ("an infinity of e5m2", MIXED, &[(0xFC, 0x38)], None, f(f32::NEG_INFINITY)),
        ("NaN of e5m2", MIXED, &[(0x7D, 0x38)], None, NAN),
        ("e5m2 into .f16", HALF, &[(0x3C, 0x3C)], Some(h(two(-10))), h(1.0 + two(-10))),
        ("e5m2 overflows .f16", HALF, &[(0x7B, 0x7B)], None, 0x7C00),
    ];
    const NAN: u32 = 0x7FFF_FFFF;
    for (why, types, pairs, old, want) in cases {
        let got = sum(*types, pairs, *old);
        assert_eq!(got, *want, "{why}: {got:#010x} for {want:#010x}");
    }
}

#[test]
fn negation_and_sparse_places() {
    let mut exact = Exact::default();
    exact.begin(WgmmaTypes::Bf16F32, true, &[b(1.0), b(2.0)], &[b(3.0), b(5.0), b(7.0), b(11.0)]);
    let got = exact.sum(0, 0..4, Some(&[1, 3]), Some(1f32.to_bits()));
    assert_eq!(f32::from_bits(got), 1.0 - 5.0 - 22.0);
}

/// The value of an element, decoded by other crates.
fn value(element: WgmmaElement, bits: u32) -> f64 {
    match element {
        WgmmaElement::F16 => f16::from_bits(bits as u16).to_f64(),
        WgmmaElement::Bf16 => bf16::from_bits(bits as u16).to_f64(),
        WgmmaElement::Tf32 => f32::from_bits(bits & !0x1FFF).into(),
        WgmmaElement::Fp8(Fp8::E4m3) => F8E4M3::from_bits(bits as u8).to_f64(),
        WgmmaElement::Fp8(Fp8::E5m2) => F8E5M2::from_bits(bits as u8).to_f64(),
        WgmmaElement::Int8(_) | WgmmaElement::B1 => unreachable!("no float"),
    }
}

/// The significand in [1, 2) (less for subnormals) and the exponent of a value, computed by division only.
fn split(value: f64, smallest: i32) -> (f64, i32) {
    let mut exponent = smallest;
    while value.abs() >= 2f64.powi(exponent + 1) {
        exponent += 1;
    }
    (value / 2f64.powi(exponent), exponent)
}

fn smallest(element: WgmmaElement) -> i32 {
    match element {
        WgmmaElement::F16 | WgmmaElement::Fp8(Fp8::E5m2) => -14,
        WgmmaElement::Fp8(Fp8::E4m3) => -6,
        WgmmaElement::Bf16 | WgmmaElement::Tf32 | WgmmaElement::Int8(_) | WgmmaElement::B1 => -126,
    }
}

/// The definition, computed term by term in `.f64`. Every step is exact.
fn oracle(types: WgmmaTypes, pairs: &[(u32, u32)], old: u32) -> f64 {
    let mut terms: Vec<(f64, i32)> = pairs
        .iter()
        .map(|&(a, b)| {
            let (sa, ea) = split(value(types.a(), a), smallest(types.a()));
            let (sb, eb) = split(value(types.b(), b), smallest(types.b()));
            (sa * sb, ea + eb)
        })
        .collect();
    let half = types.d() == WgmmaSum::F16;
    let (old, least) =
        if half { (f16::from_bits(old as u16).to_f64(), -14) } else { (f32::from_bits(old).into(), -126) };
    terms.push(split(old, least));
    let short = matches!(types.a(), WgmmaElement::Fp8(_));
    let fraction = if short { 13 } else { 25 };
    let exponents = terms.iter().map(|&(s, e)| if s == 0.0 { -133 } else { e });
    let largest = exponents.fold(-133, i32::max);
    // In two steps, as a single power may be out of range.
    let kept =
        terms.iter().map(|&(s, e)| (s * 2f64.powi((e - largest).max(-500)) * 2f64.powi(fraction)).trunc());
    let sum: f64 = kept.sum::<f64>() * 2f64.powi(largest - fraction);
    if half {
        let (s, e) = split(sum, -14);
        // `f16::from_f64` may round twice, but it converts a value that is already rounded exactly.
        return f16::from_f64((s * 1024.0).round_ties_even() / 1024.0 * 2f64.powi(e)).to_f64();
    }
    let (s, e) = split(sum, -126);
    let bits = 2f64.powi(if short { 13 } else { 23 });
    (s * bits).trunc() / bits * 2f64.powi(e)
}

#[test]
fn random_sums_are_those_of_the_definition() {
    let mut random = crate::schedule::Random::new(7, 0);
    let types = WgmmaTypes::all().filter(|types| types.allows_negation());
    for types in types {
        for _ in 0..4000 {
            let k = 8 * (1 + random.below(4));
            let spread = random.below(20) as u64;
            let mut draw = |element: WgmmaElement| loop {
                // Exponents within a window, so that many terms are not truncated to zero.
                let bits = random.next() as u32;
                let bits = match element {
                    WgmmaElement::Tf32 | WgmmaElement::Bf16 => {
                        let exponent = 120 + (random.next() % (spread + 1)) as u32;
                        let word = bits & 0x807F_FFFF | exponent << 23;
                        if element == WgmmaElement::Bf16 { word >> 16 } else { word }
                    }
                    WgmmaElement::F16 => bits & 0xFFFF,
                    WgmmaElement::Fp8(_) | WgmmaElement::Int8(_) | WgmmaElement::B1 => bits & 0xFF,
                };
                if value(element, bits).is_finite() {
                    break bits;
                }
            };
            let pairs: Vec<_> = (0..k).map(|_| (draw(types.a()), draw(types.b()))).collect();
            let old =
                if types.d() == WgmmaSum::F16 { draw(WgmmaElement::F16) } else { draw(WgmmaElement::Tf32) };
            let got = sum(types, &pairs, Some(old));
            let got = if types.d() == WgmmaSum::F16 {
                f16::from_bits(got as u16).to_f64()
            } else {
                f32::from_bits(got).into()
            };
            let want = oracle(types, &pairs, old);
            assert_eq!(got, want, "{types:?}: {pairs:x?} + {old:#x}");
        }
    }
}
