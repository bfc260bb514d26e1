//! Moves, arithmetic, comparisons and conversions: pure functions of registers.

use ptx::Type;
use ptx::inst::{BinaryOp, CompareOp, Operand, Reg, UnaryOp};

use crate::float::{self, bits32, max32, max64, min32, min64};
use crate::lanes::{Lanes, choose, lanes, map, map2, map2_runs, mask2};
use crate::program::class;
use crate::trap::Fault;
use crate::warp::Registers;

pub(super) fn mul_wide(registers: &mut Registers<'_>, dst: Reg, a: Operand, b: Operand) -> Result<(), Fault> {
    let products =
        registers.with([a, b], |a, b| map2(a, b, |a, b| u64::from(a).wrapping_mul(u64::from(b))))?;
    registers.write_wide(dst, &products)
}

pub(super) fn pack(
    registers: &mut Registers<'_>,
    ty: Type,
    dst: Reg,
    low: Operand,
    high: Operand,
) -> Result<(), Fault> {
    let (low, high) = (registers.read(low)?, registers.read(high)?);
    let both = |low: u16, high: u16| u32::from(low) | u32::from(high) << 16;
    let packed = if ty == Type::F16 {
        let round = |bits| float::to_f16(f32::from_bits(bits));
        map2(&low, &high, |low, high| both(round(low), round(high)))
    } else {
        let round = |bits| float::to_bf16(f32::from_bits(bits));
        map2(&low, &high, |low, high| both(round(low), round(high)))
    };
    registers.write(dst, &packed)
}

pub(super) fn unpack(registers: &mut Registers<'_>, low: Reg, high: Reg, src: Operand) -> Result<(), Fault> {
    let src = registers.read(src)?;
    registers.write(low, &map(&src, |bits| bits & 0xFFFF))?;
    registers.write(high, &map(&src, |bits| bits >> 16))
}

/// `mov {a, b}, src`: the parts of a register, the low one first.
pub(super) fn split(registers: &mut Registers<'_>, ty: Type, dst: &[Reg], src: Operand) -> Result<(), Fault> {
    let values = registers.read_as(ty, src)?;
    let part = part(ty, dst.len());
    for (&reg, shift) in dst.iter().zip((0..).step_by(part.bits() as usize)) {
        registers.write_as(part, reg, &map(&values, |bits| part.wrap(bits >> shift)))?;
    }
    Ok(())
}

/// `mov dst, {a, b}`.
pub(super) fn join(registers: &mut Registers<'_>, ty: Type, dst: Reg, src: &[Operand]) -> Result<(), Fault> {
    let part = part(ty, src.len());
    let mut joined = [0; 32];
    for (&operand, shift) in src.iter().zip((0..).step_by(part.bits() as usize)) {
        let values = registers.read_as(part, operand)?;
        joined = map2(&joined, &values, |all, bits| all | part.wrap(bits) << shift);
    }
    registers.write_as(ty, dst, &joined)
}

/// The type of one of so many parts of a register.
fn part(ty: Type, count: usize) -> Type {
    match ty.bits() as usize / count.max(1) {
        32 => Type::B32,
        16 => Type::B16,
        _ => Type::B8,
    }
}

/// `mov`. It may copy what nothing has written, if a compiler may have left it so; a use of the copy is refused.
pub(super) fn copy(registers: &mut Registers<'_>, ty: Type, dst: Reg, src: Operand) -> Result<(), Fault> {
    let all = registers.active;
    let unwritten = registers.unwritten(src);
    registers.active = all & !unwritten.as_ref().map_or(0, |(lanes, _)| *lanes);
    let copied = copy_written(registers, ty, dst, src);
    registers.active = all;
    if let Some((missing, fault)) = unwritten {
        lanes(missing).for_each(|lane| registers.undefine(dst, lane, fault.clone()));
    }
    copied
}

fn copy_written(registers: &mut Registers<'_>, ty: Type, dst: Reg, src: Operand) -> Result<(), Fault> {
    match class(ty) {
        0 => {
            let values = registers.predicate(src)?;
            registers.write_predicate(dst, values)
        }
        1 => {
            let values = registers.read(src)?;
            registers.write(dst, &values)
        }
        _ => {
            let values = registers.read_wide(src)?;
            registers.write_wide(dst, &values)
        }
    }
}

pub(super) fn select(
    registers: &mut Registers<'_>,
    ty: Type,
    dst: Reg,
    [a, b, cond]: [Operand; 3],
) -> Result<(), Fault> {
    let cond = registers.predicate(cond)?;
    match class(ty) {
        0 => {
            let (a, b) = (registers.predicate(a)?, registers.predicate(b)?);
            registers.write_predicate(dst, (a & cond) | (b & !cond))
        }
        1 => {
            let values = registers.with([a, b], |a, b| choose(cond, a, b))?;
            registers.write(dst, &values)
        }
        _ => {
            let values = registers.with_wide([a, b], |a, b| choose(cond, a, b))?;
            registers.write_wide(dst, &values)
        }
    }
}

pub(super) fn convert(
    registers: &mut Registers<'_>,
    (from, to): (Type, Type),
    dst: Reg,
    src: Operand,
) -> Result<(), Fault> {
    let values = registers.read_low(from, src)?;
    registers.write_extended(to, dst, &map2_runs(&values, &values, |bits, _| float::convert(from, to, bits)))
}

pub(super) fn binary(
    registers: &mut Registers<'_>,
    (op, ty): (BinaryOp, Type),
    dst: Reg,
    a: Operand,
    b: Operand,
) -> Result<(), Fault> {
    let shift = matches!(op, BinaryOp::Shl | BinaryOp::Shr);
    match ty {
        Type::Pred => {
            let (a, b) = (registers.predicate(a)?, registers.predicate(b)?);
            registers.write_predicate(dst, predicates(op, a, b))
        }
        Type::F32 | Type::F16 | Type::Bf16 => {
            let values = registers.with([a, b], |a, b| single(op, a, b))?;
            registers.write(dst, &values)
        }
        Type::U64 | Type::S64 | Type::B64 => {
            let values = if shift {
                let (a, b) = (registers.read_wide(a)?, registers.read(b)?);
                wide(op, ty, &a, &map(&b, u64::from))
            } else {
                registers.with_wide([a, b], |a, b| wide(op, ty, a, b))?
            };
            registers.write_wide(dst, &values)
        }
        Type::F64 => {
            let values = registers.with_wide([a, b], |a, b| double(op, a, b))?;
            registers.write_wide(dst, &values)
        }
        Type::U8
        | Type::S8
        | Type::U16
        | Type::S16
        | Type::U32
        | Type::S32
        | Type::B8
        | Type::B16
        | Type::B32 => {
            let values = registers.with([a, b], |a, b| narrow(op, ty, a, b))?;
            registers.write(dst, &values)
        }
    }
}

fn predicates(op: BinaryOp, a: u32, b: u32) -> u32 {
    match op {
        BinaryOp::And | BinaryOp::Mul | BinaryOp::Min => a & b,
        BinaryOp::Or | BinaryOp::Max => a | b,
        BinaryOp::Xor | BinaryOp::Add | BinaryOp::Sub => a ^ b,
        BinaryOp::MulHigh | BinaryOp::Div | BinaryOp::Rem | BinaryOp::Shl | BinaryOp::Shr => 0,
    }
}

/// The number of bits by which all lanes shift, if it is the same: mostly it is.
fn shifted_by<T: Copy + PartialEq>(op: BinaryOp, b: &Lanes<T>) -> Option<T> {
    let shifts = matches!(op, BinaryOp::Shl | BinaryOp::Shr);
    (shifts && b.iter().fold(true, |same, one| same & (*one == b[0]))).then_some(b[0])
}

/// Executes a binary operation on all lanes: the common operations in a form that vectorises, others one lane
/// at a time.
fn narrow(op: BinaryOp, ty: Type, a: &Lanes<u32>, b: &Lanes<u32>) -> Lanes<u32> {
    let mask = if ty.bits() == 16 { 0xFFFF } else { u32::MAX };
    match (op, shifted_by(op, b)) {
        (BinaryOp::Shl, Some(by @ 0..32)) if ty.bits() == 32 => return map(a, |a| a << by),
        (BinaryOp::Shr, Some(by @ 0..32)) if matches!(ty, Type::U32 | Type::B32) => {
            return map(a, |a| a >> by);
        }
        _ => {}
    }
    match op {
        BinaryOp::Add => map2(a, b, |a, b| a.wrapping_add(b) & mask),
        BinaryOp::Sub => map2(a, b, |a, b| a.wrapping_sub(b) & mask),
        BinaryOp::Mul => map2(a, b, |a, b| a.wrapping_mul(b) & mask),
        BinaryOp::And => map2(a, b, |a, b| a & b),
        BinaryOp::Or => map2(a, b, |a, b| a | b),
        BinaryOp::Xor => map2(a, b, |a, b| a ^ b),
        BinaryOp::Shl if ty.bits() == 32 => map2(a, b, |a, b| a.checked_shl(b).unwrap_or(0)),
        BinaryOp::Shr if matches!(ty, Type::U32 | Type::B32) => {
            map2(a, b, |a, b| a.checked_shr(b).unwrap_or(0))
        }
        BinaryOp::Min if ty == Type::U32 => map2(a, b, |a, b| a.min(b)),
        BinaryOp::Max if ty == Type::U32 => map2(a, b, |a, b| a.max(b)),
        BinaryOp::Div if ty == Type::U32 => map2_runs(a, b, |a, b| a.checked_div(b).unwrap_or(u32::MAX)),
        BinaryOp::Rem if ty == Type::U32 => map2_runs(a, b, |a, b| a.checked_rem(b).unwrap_or(u32::MAX)),
        BinaryOp::MulHigh
        | BinaryOp::Div
        | BinaryOp::Rem
        | BinaryOp::Min
        | BinaryOp::Max
        | BinaryOp::Shl
        | BinaryOp::Shr => map2_runs(a, b, |a, b| op.of_integers(ty, a.into(), b.into()) as u32),
    }
}

/// The same on 64 bits. `b` of a shift is a `u32`.
fn wide(op: BinaryOp, ty: Type, a: &Lanes<u64>, b: &Lanes<u64>) -> Lanes<u64> {
    match (op, shifted_by(op, b)) {
        (BinaryOp::Shl, Some(by @ 0..64)) => return map(a, |a| a << by),
        (BinaryOp::Shr, Some(by @ 0..64)) if !ty.is_signed() => return map(a, |a| a >> by),
        _ => {}
    }
    match op {
        BinaryOp::Add => map2(a, b, u64::wrapping_add),
        BinaryOp::Sub => map2(a, b, u64::wrapping_sub),
        BinaryOp::Mul => map2(a, b, u64::wrapping_mul),
        BinaryOp::And => map2(a, b, |a, b| a & b),
        BinaryOp::Or => map2(a, b, |a, b| a | b),
        BinaryOp::Xor => map2(a, b, |a, b| a ^ b),
        BinaryOp::Shl => map2(a, b, |a, b| if b < 64 { a << b } else { 0 }),
        BinaryOp::Shr if matches!(ty, Type::U64 | Type::B64) => {
            map2(a, b, |a, b| if b < 64 { a >> b } else { 0 })
        }
        BinaryOp::MulHigh | BinaryOp::Div | BinaryOp::Rem | BinaryOp::Min | BinaryOp::Max | BinaryOp::Shr => {
            map2_runs(a, b, |a, b| op.of_integers(ty, a, b))
        }
    }
}

fn single(op: BinaryOp, a: &Lanes<u32>, b: &Lanes<u32>) -> Lanes<u32> {
    let with = |f: fn(f32, f32) -> f32| map2(a, b, |a, b| bits32(f(f32::from_bits(a), f32::from_bits(b))));
    match op {
        BinaryOp::Add => map2(a, b, |a, b| bits32(f32::from_bits(a) + f32::from_bits(b))),
        BinaryOp::Sub => map2(a, b, |a, b| bits32(f32::from_bits(a) - f32::from_bits(b))),
        BinaryOp::Mul => map2(a, b, |a, b| bits32(f32::from_bits(a) * f32::from_bits(b))),
        BinaryOp::Div => map2(a, b, |a, b| bits32(f32::from_bits(a) / f32::from_bits(b))),
        BinaryOp::Min => with(min32),
        BinaryOp::Max => with(max32),
        BinaryOp::MulHigh
        | BinaryOp::Rem
        | BinaryOp::And
        | BinaryOp::Or
        | BinaryOp::Xor
        | BinaryOp::Shl
        | BinaryOp::Shr => *a,
    }
}

fn double(op: BinaryOp, a: &Lanes<u64>, b: &Lanes<u64>) -> Lanes<u64> {
    let with = |f: fn(f64, f64) -> f64| map2(a, b, |a, b| f(f64::from_bits(a), f64::from_bits(b)).to_bits());
    match op {
        BinaryOp::Add => with(|a, b| a + b),
        BinaryOp::Sub => with(|a, b| a - b),
        BinaryOp::Mul => with(|a, b| a * b),
        BinaryOp::Div => with(|a, b| a / b),
        BinaryOp::Min => with(min64),
        BinaryOp::Max => with(max64),
        BinaryOp::MulHigh
        | BinaryOp::Rem
        | BinaryOp::And
        | BinaryOp::Or
        | BinaryOp::Xor
        | BinaryOp::Shl
        | BinaryOp::Shr => *a,
    }
}

pub(super) fn mul_add(
    registers: &mut Registers<'_>,
    ty: Type,
    dst: Reg,
    [a, b, c]: [Operand; 3],
) -> Result<(), Fault> {
    if class(ty) == 2 {
        let (a, b, c) = (registers.read_wide(a)?, registers.read_wide(b)?, registers.read_wide(c)?);
        if ty == Type::F64 {
            let products = |lane: usize| {
                f64::from_bits(a[lane]).mul_add(f64::from_bits(b[lane]), f64::from_bits(c[lane]))
            };
            return registers.write_wide(dst, &core::array::from_fn(|lane| products(lane).to_bits()));
        }
        let products = map2(&a, &b, u64::wrapping_mul);
        return registers.write_wide(dst, &map2(&products, &c, u64::wrapping_add));
    }
    let (a, b, c) = (registers.read(a)?, registers.read(b)?, registers.read(c)?);
    let values = if ty == Type::F32 {
        let fma =
            |lane: usize| f32::from_bits(a[lane]).mul_add(f32::from_bits(b[lane]), f32::from_bits(c[lane]));
        core::array::from_fn(|lane| bits32(fma(lane)))
    } else {
        let mask = if ty.bits() == 16 { 0xFFFF } else { u32::MAX };
        map2(&map2(&a, &b, u32::wrapping_mul), &c, |product, c| product.wrapping_add(c) & mask)
    };
    registers.write(dst, &values)
}

pub(super) fn unary(
    registers: &mut Registers<'_>,
    op: UnaryOp,
    ty: Type,
    dst: Reg,
    a: Operand,
) -> Result<(), Fault> {
    if ty == Type::Pred {
        let a = registers.predicate(a)?;
        return registers.write_predicate(dst, !a);
    }
    let a = registers.read_as(ty, a)?;
    registers.write_as(ty, dst, &map2_runs(&a, &a, |bits, _| unary_bits(op, ty, bits)))
}

fn unary_bits(op: UnaryOp, ty: Type, bits: u64) -> u64 {
    let sign = 1u64 << (ty.bits() - 1);
    let value = match (op, ty.is_integer()) {
        (UnaryOp::Not, _) => !bits,
        (UnaryOp::Neg, true) => bits.wrapping_neg(),
        // The instruction exists only for signed integers, so an unsigned type is treated as signed.
        (UnaryOp::Abs, true) if bits & sign != 0 => bits.wrapping_neg(),
        (UnaryOp::Abs, true) => bits,
        (UnaryOp::Neg, false) => float::signed_anew(ty, bits, true),
        (UnaryOp::Abs, false) => float::signed_anew(ty, bits, false),
    };
    ty.wrap(value)
}

pub(super) fn compare(
    registers: &mut Registers<'_>,
    (op, ty): (CompareOp, Type),
    dst: Reg,
    a: Operand,
    b: Operand,
) -> Result<(), Fault> {
    let flags = if class(ty) == 2 {
        registers.with_wide([a, b], |a, b| {
            if ty == Type::F64 {
                holds(op, &map(a, f64::from_bits), &map(b, f64::from_bits))
            } else if ty.is_signed() {
                holds(op, &map(a, u64::cast_signed), &map(b, u64::cast_signed))
            } else {
                holds(op, a, b)
            }
        })?
    } else {
        registers.with([a, b], |a, b| {
            if ty == Type::F32 {
                holds(op, &map(a, f32::from_bits), &map(b, f32::from_bits))
            } else if ty == Type::S32 {
                holds(op, &map(a, u32::cast_signed), &map(b, u32::cast_signed))
            } else if ty.is_signed() {
                holds(op, &map(a, |a| ty.extend(a.into())), &map(b, |b| ty.extend(b.into())))
            } else {
                holds(op, a, b)
            }
        })?
    };
    registers.write_predicate(dst, flags)
}

/// The lanes in which a relation holds.
fn holds<T: Copy + PartialOrd>(op: CompareOp, a: &Lanes<T>, b: &Lanes<T>) -> u32 {
    match op {
        CompareOp::Eq => mask2(a, b, |a, b| a == b),
        CompareOp::Ne => mask2(a, b, |a, b| a != b),
        CompareOp::Lt => mask2(a, b, |a, b| a < b),
        CompareOp::Le => mask2(a, b, |a, b| a <= b),
        CompareOp::Gt => mask2(a, b, |a, b| a > b),
        CompareOp::Ge => mask2(a, b, |a, b| a >= b),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers() {
        use BinaryOp::{Add, Div, Max, Min, MulHigh, Rem, Shl, Shr, Sub};
        let minus = |n: u32| u64::from(n.wrapping_neg());
        for (why, op, ty, a, b, want) in [
            ("wraps", Add, Type::U32, 0xFFFF_FFFF, 2, 1),
            ("wraps at 16 bits", Add, Type::U16, 0xFFFF, 2, 1),
            ("below zero", Sub, Type::U32, 0, 1, 0xFFFF_FFFF),
            ("unsigned high half", MulHigh, Type::U32, 1 << 31, 6, 3),
            ("signed high half", MulHigh, Type::S32, minus(1), 1, 0xFFFF_FFFF),
            ("64-bit high half", MulHigh, Type::U64, 1 << 63, 4, 2),
            ("truncates", Div, Type::S32, minus(7), 2, minus(3)),
            ("sign of the dividend", Rem, Type::S32, minus(7), 2, minus(1)),
            ("by zero", Div, Type::U32, 5, 0, 0xFFFF_FFFF),
            ("overflow", Div, Type::S32, 1 << 31, minus(1), 1 << 31),
            ("signed minimum", Min, Type::S32, minus(1), 1, minus(1)),
            ("unsigned maximum", Max, Type::U32, minus(1), 1, minus(1)),
            ("whole width", Shl, Type::U32, 1, 32, 0),
            ("sign fill", Shr, Type::S32, 1 << 31, 40, 0xFFFF_FFFF),
            ("zero fill", Shr, Type::U32, 1 << 31, 31, 1),
            ("64-bit shift", Shl, Type::U64, 1, 40, 1 << 40),
        ] {
            assert_eq!(op.of_integers(ty, a, b), want, "{why}");
        }
    }

    /// Whole warps compute what one lane does, for every operation and type.
    #[test]
    fn lanes_are_computed_like_one() {
        use BinaryOp::{Add, And, Div, Max, Min, Mul, MulHigh, Or, Rem, Shl, Shr, Sub, Xor};
        let numbers =
            [0, 1, 2, 7, 31, 32, 40, 63, 64, 0x8000, 0xFFFF, 1 << 31, 0xFFFF_FFF9, 1 << 63, u64::MAX];
        for op in [Add, Sub, Mul, MulHigh, Div, Rem, Min, Max, And, Or, Xor, Shl, Shr] {
            for ty in [Type::U16, Type::U32, Type::S32, Type::U64, Type::S64] {
                for (a, b) in numbers.iter().flat_map(|a| numbers.map(|b| (ty.wrap(*a), ty.wrap(b)))) {
                    let got = if ty.bits() == 64 {
                        wide(op, ty, &[a; 32], &[b; 32])[31]
                    } else {
                        narrow(op, ty, &[a as u32; 32], &[b as u32; 32])[31].into()
                    };
                    assert_eq!(got, op.of_integers(ty, a, b), "{op:?} {ty:?} {a:#x} {b:#x}");
                }
            }
        }
    }

    #[test]
    fn signs() {
        for (why, op, ty, a, want) in [
            ("integer", UnaryOp::Neg, Type::S32, 1, 0xFFFF_FFFF),
            ("float", UnaryOp::Neg, Type::F32, 0x3F80_0000, 0xBF80_0000),
            ("half", UnaryOp::Abs, Type::F16, 0xBC00, 0x3C00),
            ("negative", UnaryOp::Abs, Type::S32, 0xFFFF_FFFE, 2),
            ("complement", UnaryOp::Not, Type::U16, 0x0F0F, 0xF0F0),
            ("unsigned, as an H200 gave it", UnaryOp::Abs, Type::U16, 0x9B2A, 0x64D6),
            ("unsigned, as an H200 gave it", UnaryOp::Abs, Type::U32, 0xBE2A_399E, 0x41D5_C662),
            (
                "unsigned, as an H200 gave it",
                UnaryOp::Abs,
                Type::U64,
                0xDBFF_4E28_17BA_3BD8,
                0x2400_B1D7_E845_C428,
            ),
            ("NaN", UnaryOp::Neg, Type::F32, 0x7FC0_0000, 0x7FFF_FFFF),
        ] {
            assert_eq!(unary_bits(op, ty, a), want, "{why}");
        }
    }

    #[test]
    fn nan_compares_unequal_only() {
        for op in [CompareOp::Eq, CompareOp::Lt, CompareOp::Le, CompareOp::Gt, CompareOp::Ge] {
            assert!(!op.holds(f32::NAN, 1.0));
        }
        assert!(CompareOp::Ne.holds(f32::NAN, f32::NAN));
    }
}
