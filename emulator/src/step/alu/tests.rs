//! Tests: the instructions on single operands, compared with the manual and with exact arithmetic.

use super::*;

fn f(value: f32) -> u64 {
    value.to_bits().into()
}

#[test]
fn bits_and_fields() {
    for (why, op, operands, want) in [
        ("population", AluOp::Bits(BitOp::Population, Type::U64), [u64::MAX, 0, 0, 0], 64),
        ("no bit set", AluOp::Bits(BitOp::LeadingZeros, Type::U32), [0, 0, 0, 0], 32),
        ("leading zeros", AluOp::Bits(BitOp::LeadingZeros, Type::U64), [1, 0, 0, 0], 63),
        ("reversed", AluOp::Bits(BitOp::Reverse, Type::U32), [1, 0, 0, 0], 1 << 31),
        ("the third set bit from bit 4 up", AluOp::FindNth, [0b1101_0110_0110, 4, 3, 0], 8),
        ("the second from bit 4 down", AluOp::FindNth, [0b1101_0110_0110, 4, 0xFFFF_FFFE, 0], 1),
        ("bit 5 itself", AluOp::FindNth, [0b1101_0110_0110, 5, 0, 0], 5),
        ("bit 4 itself, which is not set", AluOp::FindNth, [0b1101_0110_0110, 4, 0, 0], 0xFFFF_FFFF),
        ("fewer bits than asked for", AluOp::FindNth, [0b1101_0110_0110, 0, 8, 0], 0xFFFF_FFFF),
        ("bytes of both words", AluOp::Permute, [0x3322_1100, 0x7766_5544, 0x7410, 0], 0x7744_1100),
        ("a byte's sign", AluOp::Permute, [0x0000_80FF, 0x7F, 0x4C98, 0], 0x7F00_FFFF),
        ("majority", AluOp::Logic3(0xE8), [0b1100, 0b1010, 0b0110, 0], 0b1110),
        ("exclusive or of three", AluOp::Logic3(0x96), [0b1100, 0b1010, 0b0110, 0], 0),
        ("funnel left", AluOp::Funnel { left: true, wrap: false }, [0x8000_0000, 1, 1, 0], 3),
        ("funnel left by all", AluOp::Funnel { left: true, wrap: false }, [7, 1, 99, 0], 7),
        ("funnel left wraps", AluOp::Funnel { left: true, wrap: true }, [7, 1, 32, 0], 1),
        ("funnel right", AluOp::Funnel { left: false, wrap: false }, [2, 1, 1, 0], 0x8000_0001),
        ("funnel right by all", AluOp::Funnel { left: false, wrap: false }, [2, 5, 32, 0], 5),
        ("a field", AluOp::Extract(Type::U32), [0xABCD, 4, 8, 0], 0xBC),
        ("a signed field", AluOp::Extract(Type::S32), [0xABCD, 4, 8, 0], 0xFFFF_FFBC),
        ("a field beyond the end", AluOp::Extract(Type::S32), [0x8000_0000, 28, 8, 0], 0xFFFF_FFF8),
        ("a field of nothing", AluOp::Extract(Type::S64), [u64::MAX, 4, 0, 0], 0),
        (
            "a place beyond the word",
            AluOp::Extract(Type::U64),
            [0x73A_D8B4_F7FF_6F75, 0xDB4B_2937, 0x7B99_679D, 0],
            0,
        ),
        ("a length beyond the word", AluOp::Extract(Type::U64), [0x21, 2, 1 << 31, 0], 8),
        (
            "signs beyond the word",
            AluOp::Extract(Type::S64),
            [0xC00A_2F9E_2183_10A5, 0x3FB5_660D, 0xDD8_6238, 0],
            u64::MAX,
        ),
        ("the same, positive", AluOp::Extract(Type::S64), [0x20, 1 << 31, 0x21, 0], 0),
        ("put in beyond the word", AluOp::Insert(Type::U64), [0x1F, 0x40, 1 << 31, 7], 0x40),
        (
            "put in with a length beyond",
            AluOp::Insert(Type::U64),
            [u64::MAX - 1, 0, 33, 1 << 31],
            u64::MAX << 34,
        ),
        ("the same over what is there", AluOp::Insert(Type::U64), [0x40, 0x21, 31, 1 << 31], 0x20_0000_0021),
        ("the smallest offset", AluOp::FindNth, [0xFFFF_FFFF, 1, 1 << 31, 0], 0),
        ("the smallest offset, nothing set", AluOp::FindNth, [0x10, 0, 1 << 31, 0], 0),
        (
            "pairs carry nothing",
            AluOp::Pair { op: PairOp::Add, signed: true },
            [0x7FFF_FFFF, 0x1_0001, 0, 0],
            0x8000_0000,
        ),
        (
            "signed pairs",
            AluOp::Pair { op: PairOp::Min, signed: true },
            [0xFFFF_0001, 0x0001_FFFF, 0, 0],
            0xFFFF_FFFF,
        ),
        (
            "unsigned pairs",
            AluOp::Pair { op: PairOp::Max, signed: false },
            [0xFFFF_0001, 0x0001_FFFE, 0, 0],
            0xFFFF_FFFE,
        ),
        ("put in", AluOp::Insert(Type::U32), [0xF, 0x1111_1111, 8, 4], 0x1111_1F11),
        ("put in over the end", AluOp::Insert(Type::U32), [0xFF, 0, 28, 8], 0xF000_0000),
        ("wide unsigned", AluOp::MulWide(Type::U32), [0xFFFF_FFFF, 2, 0, 0], 0x1_FFFF_FFFE),
        ("wide signed", AluOp::MulWide(Type::S32), [0xFFFF_FFFF, 2, 0, 0], u64::MAX - 1),
        ("wide with an addend", AluOp::MadWide(Type::S32), [0xFFFF_FFFF, 2, 3, 0], 1),
        ("high with an addend", AluOp::MadHigh(Type::U32), [1 << 31, 6, 10, 0], 13),
        ("high signed", AluOp::MadHigh(Type::S32), [0xFFFF_FFFF, 1, 0, 0], 0xFFFF_FFFF),
        ("high 64", AluOp::MadHigh(Type::U64), [1 << 63, 4, 1, 0], 3),
        ("copied sign", AluOp::CopySign(Type::F32), [f(-1.0), f(3.0), 0, 0], f(-3.0)),
    ] {
        assert_eq!(compute(op, operands), want, "{why}: {:#x}", compute(op, operands));
    }
}

/// The `.f32` neighbours of an exact dyadic value, found by search: the largest not above it, and the
/// smallest not below.
fn around(exact: i128, scale: i32) -> (f32, f32) {
    let near = (exact as f64 * 2f64.powi(scale)) as f32;
    // value * 2^-scale as an integer; the cases are chosen so that this is exact.
    let scaled = |value: f32| (f64::from(value) * 2f64.powi(-scale)) as i128;
    let mut low = near;
    while scaled(low) > exact {
        low = low.next_down();
    }
    while scaled(low.next_up()) <= exact {
        low = low.next_up();
    }
    (low, if scaled(low) == exact { low } else { low.next_up() })
}

#[test]
fn every_rounding_is_that_of_the_exact_value() {
    let mut seed = 1u64;
    let mut draw = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 40) as i64 - (1 << 23)
    };
    for _ in 0..2000 {
        // Integers of 24 bits times powers of two: products and sums are exact in 128 bits at scale 2^-20.
        let [x, y, z] = [draw(), draw(), draw()];
        let (a, b, c) = (x as f32, y as f32 * 2f32.powi(-20), z as f32);
        let shift = |value: i64| i128::from(value) << 20;
        for (op, exact) in [
            (FloatOp::Add, shift(x) + i128::from(y)),
            (FloatOp::Sub, shift(x) - i128::from(y)),
            (FloatOp::Mul, i128::from(x) * i128::from(y)),
            (FloatOp::Fma, i128::from(x) * i128::from(y) + shift(z)),
        ] {
            let (low, high) = around(exact, -20);
            for rounding in Rounding::ALL {
                let got = single(op, rounding, [a, b, c]);
                let want = match rounding {
                    Rounding::Down => low,
                    Rounding::Up => high,
                    Rounding::Zero => {
                        if exact > 0 {
                            low
                        } else {
                            high
                        }
                    }
                    Rounding::Nearest => match op {
                        FloatOp::Add => a + b,
                        FloatOp::Sub => a - b,
                        FloatOp::Mul => a * b,
                        FloatOp::Fma | FloatOp::Min | FloatOp::Max => a.mul_add(b, c),
                    },
                };
                assert_eq!(got, want, "{op:?} {rounding:?} of {a} {b} {c}");
            }
        }
    }
}

#[test]
fn floats_at_their_edges() {
    let float = |op, rounding, flush, saturate| AluOp::Float { op, ty: Type::F32, rounding, flush, saturate };
    let tiny = f32::from_bits(1);
    for (why, op, operands, want) in [
        ("below zero is cut", float(FloatOp::Add, Rounding::Nearest, false, true), [f(-2.0), f(1.0)], f(0.0)),
        ("above one is cut", float(FloatOp::Mul, Rounding::Nearest, false, true), [f(2.0), f(3.0)], f(1.0)),
        ("NaN is cut to zero", float(FloatOp::Add, Rounding::Nearest, false, true), [f(f32::NAN), 0], 0),
        ("subnormals flushed", float(FloatOp::Add, Rounding::Nearest, true, false), [f(tiny), f(tiny)], 0),
        ("subnormals kept", float(FloatOp::Add, Rounding::Nearest, false, false), [f(tiny), f(tiny)], 2),
        (
            "cancels to -0 downward",
            float(FloatOp::Sub, Rounding::Down, false, false),
            [f(1.0), f(1.0)],
            1 << 31,
        ),
        ("cancels to +0", float(FloatOp::Sub, Rounding::Up, false, false), [f(1.0), f(1.0)], 0),
        ("zeros add to +0 downward", float(FloatOp::Add, Rounding::Down, false, false), [0, 0], 0),
        (
            "overflow toward zero",
            float(FloatOp::Add, Rounding::Zero, false, false),
            [f(f32::MAX), f(f32::MAX)],
            f(f32::MAX),
        ),
        ("NaN wins", AluOp::NanExtreme { max: true }, [f(f32::NAN), f(1.0)], 0x7FFF_FFFF),
        ("the larger", AluOp::NanExtreme { max: true }, [f(2.0), f(1.0)], f(2.0)),
        (
            "a third, down",
            AluOp::Exact { reciprocal: true, ty: Type::F32, rounding: Rounding::Down },
            [f(3.0), 0],
            0x3EAA_AAAA,
        ),
        (
            "a third, up",
            AluOp::Exact { reciprocal: true, ty: Type::F32, rounding: Rounding::Up },
            [f(3.0), 0],
            0x3EAA_AAAB,
        ),
        (
            "minus a third, up",
            AluOp::Exact { reciprocal: true, ty: Type::F32, rounding: Rounding::Up },
            [f(-3.0), 0],
            0xBEAA_AAAA,
        ),
        (
            "the root of two, down",
            AluOp::Exact { reciprocal: false, ty: Type::F32, rounding: Rounding::Down },
            [f(2.0), 0],
            0x3FB5_04F3,
        ),
        (
            "the root of two, up",
            AluOp::Exact { reciprocal: false, ty: Type::F32, rounding: Rounding::Up },
            [f(2.0), 0],
            0x3FB5_04F4,
        ),
        ("2^3", AluOp::Approx(ApproxOp::Exp2), [f(3.0), 0], f(8.0)),
        ("2^-127, subnormal", AluOp::Approx(ApproxOp::Exp2), [f(-127.0), 0], 0x0040_0000),
        ("2^-127, flushed", AluOp::ApproxFlush(ApproxOp::Exp2), [f(-127.0), 0], 0),
        (
            "of minus a subnormal number",
            AluOp::ApproxFlush(ApproxOp::Reciprocal),
            [0x8000_0001, 0],
            f(f32::NEG_INFINITY),
        ),
        ("log2 of zero", AluOp::Approx(ApproxOp::Log2), [0, 0], f(f32::NEG_INFINITY)),
        ("of a negative number", AluOp::Approx(ApproxOp::ReciprocalRoot), [f(-1.0), 0], 0x7FFF_FFFF),
        ("tanh far out", AluOp::Approx(ApproxOp::Tanh), [f(100.0), 0], f(1.0)),
    ] {
        let got = compute(op, [operands[0], operands[1], 0, 0]);
        assert_eq!(got, want, "{why}: {got:#x}");
    }
}

#[test]
fn halves_round_once() {
    let half = |op, ty, nan, relu| AluOp::Half { op, ty, nan, relu };
    let (f16, bf16, pairs) = (HalfType::F16, HalfType::Bf16, HalfType::F16x2);
    for (why, op, operands, want) in [
        ("1.5 + 2", half(FloatOp::Add, f16, false, false), [0x3E00, 0x4000, 0], 0x4300),
        (
            "both of a pair",
            half(FloatOp::Mul, pairs, false, false),
            [0x4000_4200, 0x4000_4000, 0],
            0x4400_4600,
        ),
        // 1 + 2^-11 * (1 + 2^-10) is just above the tie. With a rounded product it would be on the tie.
        (
            "fma has no inner rounding",
            half(FloatOp::Fma, f16, false, false),
            [0x1001, 0x3C00, 0x3C00],
            0x3C01,
        ),
        ("a tie goes to even", half(FloatOp::Fma, f16, false, false), [0x1000, 0x3C00, 0x3C00], 0x3C00),
        ("relu", half(FloatOp::Fma, bf16, false, true), [0xBF80, 0x3F80, 0], 0),
        ("brain floats", half(FloatOp::Sub, bf16, false, false), [0x4040, 0x3F80, 0], 0x4000),
        ("the number wins", half(FloatOp::Max, f16, false, false), [0x7E00, 0x3C00, 0], 0x3C00),
        ("NaN wins", half(FloatOp::Min, f16, true, false), [0x7E00, 0x3C00, 0], 0x7FFF),
        (
            "NaN in the upper half",
            half(FloatOp::Add, pairs, false, false),
            [0x7E00_3C00, 0x3C00_3C00, 0],
            0x7FFF_4000,
        ),
        ("negated", AluOp::HalfSign { ty: pairs, negate: true }, [0x3C00_BC00, 0, 0], 0xBC00_3C00),
        ("magnitude", AluOp::HalfSign { ty: bf16, negate: false }, [0xBF80, 0, 0], 0x3F80),
        // Results of an H200 for NaN.
        ("NaN", AluOp::HalfSign { ty: f16, negate: false }, [0x7DA5, 0, 0], 0x7FFF),
        ("-NaN", AluOp::HalfSign { ty: f16, negate: true }, [0xFF0D, 0, 0], 0x7FFF),
        ("-NaN", AluOp::HalfSign { ty: bf16, negate: false }, [0xFFC0, 0, 0], 0x7FFF),
        ("NaN", AluOp::HalfSign { ty: bf16, negate: true }, [0x7FC0, 0, 0], 0x7FFF),
        ("NaN above", AluOp::HalfSign { ty: pairs, negate: false }, [0xFC39_ECF5, 0, 0], 0x7FFF_6CF5),
        ("NaN below", AluOp::HalfSign { ty: pairs, negate: true }, [0x39DB_7F1A, 0, 0], 0xB9DB_7FFF),
        (
            "NaN below",
            AluOp::HalfSign { ty: HalfType::Bf16x2, negate: false },
            [0xDCF9_FFEE, 0, 0],
            0x5CF9_7FFF,
        ),
        (
            "two of them",
            AluOp::HalfSign { ty: HalfType::Bf16x2, negate: true },
            [0x7FFF_FFFF, 0, 0],
            0x7FFF_7FFF,
        ),
    ] {
        let got = compute(op, [operands[0], operands[1], operands[2], 0]);
        assert_eq!(got, want, "{why}: {got:#x}");
    }
}

#[test]
fn conversions() {
    let fp8 = |e5m2, relu| AluOp::Cvt(Cvt::PackFp8 { e5m2, relu });
    for (why, op, operands, want) in [
        ("the first goes above", fp8(false, false), [f(1.0), f(2.0), 0], 0x3840),
        ("saturated", fp8(false, false), [f(1e9), f(-f32::INFINITY), 0], 0x7EFE),
        ("saturated, wide", fp8(true, false), [f(1e9), f(-f32::INFINITY), 0], 0x7BFB),
        ("NaN", fp8(false, false), [f(f32::NAN), 0, 0], 0x7F00),
        ("rectified", fp8(false, true), [f(-1.0), f(1.0), 0], 0x0038),
        ("from a pair", AluOp::Cvt(Cvt::NarrowFp8 { e5m2: true, relu: false }), [0x4000_3C00, 0, 0], 0x403C),
        ("to a pair", AluOp::Cvt(Cvt::WidenFp8 { e5m2: false, relu: false }), [0x3840, 0, 0], 0x3C00_4000),
        (
            "NaN to a pair",
            AluOp::Cvt(Cvt::WidenFp8 { e5m2: false, relu: false }),
            [0x7F00, 0, 0],
            0x7FFF_0000,
        ),
        (
            "toward zero",
            AluOp::Cvt(Cvt::PackHalf { bf16: true, toward_zero: true, relu: false }),
            [0x3F80_FFFF, 0xBF80_FFFF, 0],
            0x3F80_BF80,
        ),
        (
            "to nearest",
            AluOp::Cvt(Cvt::PackHalf { bf16: true, toward_zero: false, relu: false }),
            [0x3F80_FFFF, 0xBF80_FFFF, 0],
            0x3F81_BF81,
        ),
        (
            "overflow toward zero",
            AluOp::Cvt(Cvt::PackHalf { bf16: false, toward_zero: true, relu: false }),
            [f(1e9), f(-1e9), 0],
            0x7BFF_FBFF,
        ),
        ("tf32, a tie away from zero", AluOp::Cvt(Cvt::Tf32), [0x3F80_1000, 0, 0], 0x3F80_2000),
        ("tf32 of NaN", AluOp::Cvt(Cvt::Tf32), [0x7FC0_0000, 0, 0], 0x7FC0_0000),
        ("tf32 of -NaN", AluOp::Cvt(Cvt::Tf32), [0xFFC0_0000, 0, 0], 0xFFC0_0000),
        ("tf32, below a tie", AluOp::Cvt(Cvt::Tf32), [0xBF80_0FFF, 0, 0], 0xBF80_0000),
        ("whole, ties to even", AluOp::Cvt(Cvt::Integral(Rounding::Nearest)), [f(2.5), 0, 0], f(2.0)),
        ("whole, up", AluOp::Cvt(Cvt::Integral(Rounding::Up)), [f(2.1), 0, 0], f(3.0)),
        ("floor", AluOp::Cvt(Cvt::ToSigned(Rounding::Down)), [f(-2.5), 0, 0], 0xFFFF_FFFD),
        ("saturates at zero", AluOp::Cvt(Cvt::ToUnsigned(Rounding::Nearest)), [f(-2.5), 0, 0], 0),
        (
            "packed integers",
            AluOp::Cvt(Cvt::PackInt8 { signed: true }),
            [300, 0xFFFF_FF00, 0x1234_5678],
            0x5678_7F80,
        ),
        ("packed unsigned", AluOp::Cvt(Cvt::PackInt8 { signed: false }), [300, 0xFFFF_FF00, 0], 0xFF00),
    ] {
        let got = compute(op, [operands[0], operands[1], operands[2], 0]);
        assert_eq!(got, want, "{why}: {got:#x}");
    }
}

#[test]
fn every_8_bit_float_is_its_own_nearest_and_ties_go_to_even() {
    for e5m2 in [false, true] {
        for bits in 0..=u8::MAX {
            let value = from_fp8(bits, e5m2);
            if !value.is_finite() {
                continue;
            }
            assert_eq!(to_fp8(value.into(), e5m2), bits, "{value}");
            let next = from_fp8(bits + 1, e5m2);
            if bits & 0x7F < 0x7B && next.is_finite() {
                let tie = (f64::from(value) + f64::from(next)) / 2.0;
                assert_eq!(to_fp8(tie, e5m2), bits + (bits & 1), "between {value} and {next}");
            }
        }
    }
}
