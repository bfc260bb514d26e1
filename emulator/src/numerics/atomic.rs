//! The arithmetic of atomic operations and reductions.

use ptx::Type;
use ptx::inst::{AtomicOp, AtomicType};

use crate::float::{self, bits32, from_bf16, from_f16, max32, max64, min32, min64};

/// Replaces a subnormal `.f32` by zero of the same sign.
pub(crate) fn flushed(value: f32) -> f32 {
    if value.is_subnormal() { 0.0f32.copysign(value) } else { value }
}

/// The sum of two 16-bit floats, rounded once.
fn add16(ty: AtomicType, a: u16, b: u16) -> u16 {
    let (read, to): (fn(u16) -> f32, Type) = if matches!(ty, AtomicType::F16 | AtomicType::F16x2) {
        (from_f16, Type::F16)
    } else {
        (from_bf16, Type::Bf16)
    };
    float::round16(to, f64::from(read(a)) + f64::from(read(b)))
}

/// The smaller or larger of two 16-bit floats.
fn extreme16(ty: AtomicType, max: bool, a: u16, b: u16) -> u16 {
    let half = matches!(ty, AtomicType::F16 | AtomicType::F16x2);
    let read = if half { from_f16 } else { from_bf16 };
    let write = if half { float::to_f16 } else { float::to_bf16 };
    write(if max { max32(read(a), read(b)) } else { min32(read(a), read(b)) })
}

/// The new value of one element. `flush`: `.f32` additions flush subnormals to zero.
pub(crate) fn changed(op: AtomicOp, ty: AtomicType, flush: bool, old: u64, b: u64) -> u64 {
    let (old32, b32) = (old as u32, b as u32);
    let halves = |f: &dyn Fn(u16, u16) -> u16| {
        let low = f(old32 as u16, b32 as u16);
        let high = f((old32 >> 16) as u16, (b32 >> 16) as u16);
        u64::from(u32::from(low) | u32::from(high) << 16)
    };
    match (op, ty) {
        (AtomicOp::Add, AtomicType::U64 | AtomicType::S64) => old.wrapping_add(b),
        (AtomicOp::Add, AtomicType::U32 | AtomicType::S32) => old32.wrapping_add(b32).into(),
        (AtomicOp::Add, AtomicType::F32) => {
            let keep = |value: f32| if flush { flushed(value) } else { value };
            bits32(keep(keep(f32::from_bits(old32)) + keep(f32::from_bits(b32)))).into()
        }
        (AtomicOp::Add, AtomicType::F64) => (f64::from_bits(old) + f64::from_bits(b)).to_bits(),
        (AtomicOp::Add, AtomicType::F16 | AtomicType::Bf16) => add16(ty, old as u16, b as u16).into(),
        (AtomicOp::Add, AtomicType::F16x2 | AtomicType::Bf16x2) => halves(&|a, b| add16(ty, a, b)),
        (AtomicOp::Min | AtomicOp::Max, _) => {
            let max = op == AtomicOp::Max;
            let pick = |first: bool| if first == max { b } else { old };
            match ty {
                AtomicType::U32 | AtomicType::U64 => pick(b > old),
                AtomicType::S32 => pick(b32.cast_signed() > old32.cast_signed()),
                AtomicType::S64 => pick(b.cast_signed() > old.cast_signed()),
                AtomicType::F32 => {
                    let (x, y) = (f32::from_bits(old32), f32::from_bits(b32));
                    bits32(if max { max32(x, y) } else { min32(x, y) }).into()
                }
                AtomicType::F64 => {
                    let (x, y) = (f64::from_bits(old), f64::from_bits(b));
                    if max { max64(x, y) } else { min64(x, y) }.to_bits()
                }
                AtomicType::F16 | AtomicType::Bf16 => extreme16(ty, max, old as u16, b as u16).into(),
                AtomicType::F16x2 | AtomicType::Bf16x2 => halves(&|a, b| extreme16(ty, max, a, b)),
            }
        }
        (AtomicOp::Inc, _) => {
            if old >= b {
                0
            } else {
                old + 1
            }
        }
        (AtomicOp::Dec, _) => {
            if old == 0 || old > b {
                b
            } else {
                old - 1
            }
        }
        (AtomicOp::And, _) => old & b,
        (AtomicOp::Or, _) => old | b,
        (AtomicOp::Xor, _) => old ^ b,
        (AtomicOp::Exchange | AtomicOp::CompareSwap, _) => b,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_change_as_the_manual_says() {
        use AtomicOp::{Add, And, Dec, Exchange, Inc, Max, Min, Or, Xor};
        use AtomicType::{Bf16, Bf16x2, F16, F16x2, F32, F64, S32, S64, U32, U64};
        let f = |x: f32| u64::from(x.to_bits());
        let minus = |n: u32| u64::from(n.wrapping_neg());
        for (why, op, ty, old, b, want) in [
            ("wraps at 32 bits", Add, U32, 0xFFFF_FFFF, 2, 1),
            ("signed", Add, S32, minus(5), 3, minus(2)),
            ("64 bits", Add, U64, u64::MAX, 2, 1),
            ("unsigned minimum", Min, U32, minus(1), 1, 1),
            ("signed minimum", Min, S32, minus(1), 1, minus(1)),
            ("unsigned maximum", Max, U64, u64::MAX, 1, u64::MAX),
            ("signed maximum", Max, S64, u64::MAX, 1, 1),
            ("the increment wraps behind the bound", Inc, U32, 7, 7, 0),
            ("the increment below the bound", Inc, U32, 6, 7, 7),
            ("the decrement at zero", Dec, U32, 0, 7, 7),
            ("the decrement above the bound", Dec, U32, 9, 7, 7),
            ("the decrement inside", Dec, U32, 3, 7, 2),
            ("and", And, U32, 0b1100, 0b1010, 0b1000),
            ("or", Or, U64, 0b1100, 0b1010, 0b1110),
            ("exclusive or", Xor, U32, 0b1100, 0b1010, 0b0110),
            ("exchange", Exchange, U64, 1, 2, 2),
            ("floats", Add, F32, f(1.5), f(2.25), f(3.75)),
            ("doubles", Add, F64, 1.5f64.to_bits(), 2.25f64.to_bits(), 3.75f64.to_bits()),
            ("a tie of halves goes to even", Add, F16, 0x6800, 0x3C00, 0x6800),
            ("three halves of an ulp go up", Add, F16, 0x6800, 0x4200, 0x6802),
            ("halves below normal are kept", Add, F16, 1, 2, 3),
            ("brain floats round once", Add, Bf16, 0x4380, 0x3F80, 0x4380),
            ("both halves of a pair", Add, F16x2, 0x3C00_4000, 0x4000_3C00, 0x4200_4200),
            ("both brain floats of a pair", Add, Bf16x2, 0x3F80_4000, 0x4000_3F80, 0x4040_4040),
            ("the larger half, NaN left out", Max, F16, 0x7E00, 0x3C00, 0x3C00),
            ("the smaller of each pair", Min, Bf16x2, 0x3F80_4000, 0x4000_3F80, 0x3F80_3F80),
        ] {
            assert_eq!(changed(op, ty, true, old, b), want, "{why}: {op:?} {ty:?}");
        }
    }

    #[test]
    fn subnormals_are_lost_in_global_memory_only() {
        let tiny = u64::from(f32::MIN_POSITIVE.to_bits() >> 1);
        let negative = tiny | 0x8000_0000;
        for (why, flush, old, b, want) in [
            ("operand", true, 0, tiny, 0),
            ("old value", true, tiny, 0x3F80_0000, 0x3F80_0000),
            ("result keeps its sign", true, 0x8080_0001, 0x0080_0000, 0x8000_0000),
            ("both negative", true, negative, negative, 0x8000_0000),
            ("kept elsewhere", false, tiny, tiny, tiny * 2),
        ] {
            assert_eq!(changed(AtomicOp::Add, AtomicType::F32, flush, old, b), want, "{why}");
        }
    }
}
