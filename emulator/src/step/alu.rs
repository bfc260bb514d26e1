//! Arithmetic instructions beyond the plain operators.
//!
//! All results except approximations have the bits that the PTX ISA defines. An approximation is the exact
//! value rounded to nearest. Its error is within the bound that [`ptx::inst::ApproxOp`] states.

use float8::{F8E4M3, F8E5M2};
use ptx::Type;
use ptx::inst::{
    Alu, AluOp, ApproxOp, BinaryOp, BitOp, Cvt, Division, FloatOp, FloatRelation, HalfType, PairOp, Rounding,
};

use crate::float::{self, bits32, from_bf16, from_f16, max32, min32};
use crate::lanes::Lanes;
use crate::numerics::flushed;
use crate::trap::Fault;
use crate::warp::Registers;

mod scalar;

pub(super) fn alu(registers: &mut Registers<'_>, alu: &Alu) -> Result<(), Fault> {
    let Some((types, result)) = alu.op.types() else { return Ok(()) };
    if let (AluOp::Cvt(cvt @ Cvt::Scalar { from, to, .. }), &[src]) = (alu.op, &alu.src[..]) {
        let values = registers.read_low(from, src)?;
        return registers.write_extended(to, alu.dst, &values.map(|bits| scalar::convert(cvt, bits)));
    }
    let mut sources: [Lanes<u64>; 4] = [[0; 32]; 4];
    for ((values, &src), &ty) in sources.iter_mut().zip(&alu.src).zip(&types) {
        *values = registers.read_as(ty, src)?;
    }
    let values: Lanes<u64> =
        core::array::from_fn(|lane| compute(alu.op, [0, 1, 2, 3].map(|source: usize| sources[source][lane])));
    registers.write_as(result, alu.dst, &values)
}

/// Executes the instruction on the operands of one lane.
fn compute(op: AluOp, [a, b, c, d]: [u64; 4]) -> u64 {
    let (a32, b32, c32) = (a as u32, b as u32, c as u32);
    let f = |bits: u64| f32::from_bits(bits as u32);
    match op {
        AluOp::Bits(op, ty) => bits(op, ty, a),
        AluOp::Permute => permute(a32, b32, c32).into(),
        AluOp::FindNth => find_nth(a32, b32, c32.cast_signed()).into(),
        AluOp::Logic3(table) => logic(table, [a32, b32, c32]).into(),
        AluOp::Funnel { left, wrap } => {
            let both = u64::from(b32) << 32 | u64::from(a32);
            let count = if wrap { c32 & 31 } else { c32.min(32) };
            let word = if left { both.checked_shl(count).unwrap_or(0) >> 32 } else { both >> count };
            word & 0xFFFF_FFFF
        }
        AluOp::Extract(ty) => extract(ty, a, b32, c32),
        AluOp::Insert(ty) => insert(ty, a, b, c32, d as u32),
        AluOp::MulWide(ty) => wide(ty, a32, b32),
        AluOp::MadWide(ty) => wide(ty, a32, b32).wrapping_add(c),
        AluOp::MadHigh(ty) => {
            let high = BinaryOp::MulHigh.of_integers(ty, a, b);
            ty.wrap(high.wrapping_add(c))
        }
        AluOp::Approx(op) => bits32(approximate(op, f(a).into()) as f32).into(),
        AluOp::ApproxFlush(op) => bits32(flushed(approximate(op, flushed(f(a)).into()) as f32)).into(),
        AluOp::ApproxHalf(op, ty) => halves(ty, a, 0, 0, &|x, _, _| approximate(op, x)),
        AluOp::Exact { reciprocal, ty: Type::F64, .. } => {
            let x = f64::from_bits(a);
            if reciprocal { x.recip() } else { x.sqrt() }.to_bits()
        }
        AluOp::Exact { reciprocal, rounding, .. } => bits32(exact(reciprocal, f(a), rounding)).into(),
        AluOp::ExactFlush { reciprocal, rounding } => {
            bits32(flushed(exact(reciprocal, flushed(f(a)), rounding))).into()
        }
        AluOp::FlushExtreme { max, nan } => {
            let (x, y) = (flushed(f(a)), flushed(f(b)));
            let value = if max { max32(x, y) } else { min32(x, y) };
            bits32(if nan && (x.is_nan() || y.is_nan()) { f32::NAN } else { value }).into()
        }
        AluOp::Divide { division, ty: Type::F64, .. } => {
            quotient(division, [a, b].map(f64::from_bits)).to_bits()
        }
        AluOp::Divide { division, flush, .. } => {
            let keep = |x: f32| if flush { flushed(x) } else { x };
            bits32(keep(single_quotient(division, [keep(f(a)), keep(f(b))]))).into()
        }
        AluOp::FloatCompare { relation, ty, flush } => compare(relation, ty, flush, [a, b]).into(),
        AluOp::Float { op, ty: Type::F64, .. } => double(op, [a, b, c].map(f64::from_bits)).to_bits(),
        AluOp::Float { op, rounding, flush, saturate, .. } => {
            let keep = |x: f32| if flush { flushed(x) } else { x };
            let [x, y, z] = [a, b, c].map(|bits| keep(f(bits)));
            let value = keep(single(op, rounding, [x, y, z]));
            let cut = if value.is_nan() { 0.0 } else { value.clamp(0.0, 1.0) + 0.0 };
            bits32(if saturate { cut } else { value }).into()
        }
        AluOp::NanExtreme { max } => {
            let (x, y) = (f(a), f(b));
            let value = if max { max32(x, y) } else { min32(x, y) };
            bits32(if x.is_nan() || y.is_nan() { f32::NAN } else { value }).into()
        }
        AluOp::CopySign(ty) => {
            let sign = 1u64 << (ty.bits() - 1);
            (b & !sign) | (a & sign)
        }
        AluOp::Half { op, ty, nan, relu } => halves(ty, a, b, c, &|x, y, z| {
            let value = of_half(op, nan, [x, y, z]);
            if relu { positive(value) } else { value }
        }),
        AluOp::HalfSign { ty, negate } => half_sign(ty, a, negate),
        AluOp::Pair { op, signed } => pair(op, signed, [a32, b32]).into(),
        AluOp::Cvt(cvt) => convert(cvt, [a, b, c]),
    }
}

/// Whether a relation of floats holds.
fn compare(relation: FloatRelation, ty: Type, flush: bool, operands: [u64; 2]) -> bool {
    #[expect(clippy::wildcard_enum_match_arm, reason = "of the others, only f32 is compared")]
    let number = |bits: u64| match ty {
        Type::F16 => from_f16(bits as u16).into(),
        Type::Bf16 => from_bf16(bits as u16).into(),
        Type::F64 => f64::from_bits(bits),
        _ => f32::from_bits(bits as u32).into(),
    };
    // The least number that is not subnormal.
    let least = if ty == Type::F16 { 2f64.powi(-14) } else { f64::from(f32::MIN_POSITIVE) };
    let [x, y] = operands.map(number).map(|x| if flush && x.abs() < least { 0.0 } else { x });
    relation.holds(x, y)
}

/// Counts the bits of a word, or reverses them.
fn bits(op: BitOp, ty: Type, a: u64) -> u64 {
    let unused = 64 - ty.bits();
    match op {
        BitOp::Population => a.count_ones().into(),
        BitOp::LeadingZeros => (a.leading_zeros() - unused).into(),
        BitOp::Reverse => a.reverse_bits() >> unused,
    }
}

/// Each bit of the result is the table's bit whose number is made of the three operands' bits.
fn logic(table: u8, [a, b, c]: [u32; 3]) -> u32 {
    let minterm = |index: u32| {
        let pick = |value: u32, bit: u32| if index >> bit & 1 == 1 { value } else { !value };
        if table >> index & 1 == 1 { pick(a, 2) & pick(b, 1) & pick(c, 0) } else { 0 }
    };
    (0..8).fold(0, |all, index| all | minterm(index))
}

/// The position of the `|n|`-th set bit, counted from `base` (included): upward for positive `n`, downward
/// for negative `n`. For `n` = 0, `base` itself if its bit is set. All ones if there is no such bit. The
/// smallest `n` has no magnitude; for it an H200 returns 0.
fn find_nth(mask: u32, base: u32, n: i32) -> u32 {
    if n == i32::MIN {
        return 0;
    }
    let set = |position: &u32| mask >> position & 1 == 1;
    let skipped = n.unsigned_abs().saturating_sub(1) as usize;
    let found = match n {
        _ if base > 31 => None,
        0 => Some(base).filter(set),
        1.. => (base..32).filter(set).nth(skipped),
        ..0 => (0..=base).rev().filter(set).nth(skipped),
    };
    found.unwrap_or(u32::MAX)
}

/// Each nibble of the selector selects one of the eight bytes of `b:a`, or replicates the sign of that byte.
fn permute(a: u32, b: u32, selector: u32) -> u32 {
    let bytes = (u64::from(b) << 32 | u64::from(a)).to_le_bytes();
    u32::from_le_bytes(core::array::from_fn(|i| {
        let nibble = selector >> (4 * i) & 0xF;
        let byte = bytes[(nibble & 7) as usize];
        match nibble >> 3 {
            0 => byte,
            _ if byte >> 7 == 1 => 0xFF,
            _ => 0,
        }
    }))
}

/// The first bit and the length of a bit field. 32-bit instructions use the low 8 bits of both. For 64-bit
/// instructions an H200 uses all bits, and a field ends with the word.
fn field(ty: Type, position: u32, length: u32) -> (u32, u32) {
    if ty.bits() == 64 { (position.min(64), length.min(64)) } else { (position & 0xFF, length & 0xFF) }
}

fn extract(ty: Type, a: u64, position: u32, length: u32) -> u64 {
    let ((position, length), width) = (field(ty, position, length), ty.bits());
    let bit = |at: u32| a.checked_shr(at).unwrap_or(0) & 1;
    let fill = if !ty.is_signed() || length == 0 { 0 } else { bit((position + length - 1).min(width - 1)) };
    (0..width).fold(0, |all, i| {
        let inside = i < length && position + i < width;
        all | (if inside { bit(position + i) } else { fill }) << i
    })
}

fn insert(ty: Type, value: u64, into: u64, position: u32, length: u32) -> u64 {
    let ((position, length), width) = (field(ty, position, length), ty.bits());
    let end = width.saturating_sub(position).min(length);
    (0..end).fold(into, |all, i| (all & !(1 << (position + i))) | (value >> i & 1) << (position + i))
}

fn wide(ty: Type, a: u32, b: u32) -> u64 {
    if ty.is_signed() {
        (i64::from(a.cast_signed()) * i64::from(b.cast_signed())).cast_unsigned()
    } else {
        u64::from(a) * u64::from(b)
    }
}

fn approximate(op: ApproxOp, x: f64) -> f64 {
    match op {
        ApproxOp::Exp2 => x.exp2(),
        ApproxOp::Log2 => x.log2(),
        ApproxOp::Reciprocal => x.recip(),
        ApproxOp::ReciprocalRoot => x.sqrt().recip(),
        ApproxOp::Root => x.sqrt(),
        ApproxOp::Sin => x.sin(),
        ApproxOp::Cos => x.cos(),
        ApproxOp::Tanh => x.tanh(),
    }
}

/// Replaces negative values by zero. NaN stays.
fn positive(value: f64) -> f64 {
    if value > 0.0 || value.is_nan() { value } else { 0.0 }
}

/// `near`, with an odd last bit if it is not the exact value. `rest` has the sign of the difference. A second
/// rounding to a format at least two bits narrower is then correct.
fn odd(near: f64, rest: f64) -> f64 {
    if rest == 0.0 || !rest.is_finite() || !near.is_finite() || near.to_bits() & 1 == 1 {
        return near;
    }
    if (rest > 0.0) == (near.is_sign_positive()) {
        f64::from_bits(near.to_bits() + 1)
    } else if near == 0.0 {
        near
    } else {
        f64::from_bits(near.to_bits() - 1)
    }
}

/// `x + y`, with an odd last bit if the sum is not exact.
fn sum(x: f64, y: f64) -> f64 {
    let near = x + y;
    let of_y = near - x;
    odd(near, (x - (near - of_y)) + (y - of_y))
}

/// Rounds a value that [`odd`] returned to `.f32`.
fn rounded(value: f64, rounding: Rounding) -> f32 {
    let near = value as f32;
    let (low, high) = match f64::from(near).partial_cmp(&value) {
        Some(core::cmp::Ordering::Less) => (near, near.next_up()),
        Some(core::cmp::Ordering::Greater) => (near.next_down(), near),
        Some(core::cmp::Ordering::Equal) | None => return near,
    };
    match rounding {
        Rounding::Nearest => near,
        Rounding::Down => low,
        Rounding::Up => high,
        Rounding::Zero if value > 0.0 => low,
        Rounding::Zero => high,
    }
}

/// The reciprocal or the square root, rounded once.
fn exact(reciprocal: bool, x: f32, rounding: Rounding) -> f32 {
    let x = f64::from(x);
    let (near, rest) = if reciprocal {
        let near = x.recip();
        (near, (-near).mul_add(x, 1.0) * x.signum())
    } else {
        let near = x.sqrt();
        (near, (-near).mul_add(near, x))
    };
    rounded(odd(near, rest), rounding)
}

/// The quotient, rounded once.
fn quotient(division: Division, [x, y]: [f64; 2]) -> f64 {
    let near = x / y;
    let rest = (-near).mul_add(y, x) * y.signum();
    let Division::Exact(rounding) = division else { return near };
    if rest == 0.0 || !rest.is_finite() || !near.is_finite() {
        return near;
    }
    match (rounding, rest > 0.0) {
        (Rounding::Down, false) => near.next_down(),
        (Rounding::Up, true) => near.next_up(),
        (Rounding::Zero, false) if near > 0.0 => near.next_down(),
        (Rounding::Zero, true) if near < 0.0 => near.next_up(),
        _ => near,
    }
}

/// The quotient of `.f32`. An approximate one is 0 for large divisors.
fn single_quotient(division: Division, [x, y]: [f32; 2]) -> f32 {
    let large = y.is_finite() && y.abs() > 2f32.powi(126);
    let rounding = match division {
        Division::Approximate if large && x.is_infinite() => return f32::NAN,
        Division::Approximate if large && !x.is_nan() => {
            return if x.is_sign_negative() == y.is_sign_negative() { 0.0 } else { -0.0 };
        }
        Division::Approximate | Division::Full => Rounding::Nearest,
        Division::Exact(rounding) => rounding,
    };
    let [x, y] = [x, y].map(f64::from);
    let near = x / y;
    rounded(odd(near, (-near).mul_add(y, x) * y.signum()), rounding)
}

fn double(op: FloatOp, [x, y, z]: [f64; 3]) -> f64 {
    match op {
        FloatOp::Add => x + y,
        FloatOp::Sub => x - y,
        FloatOp::Mul => x * y,
        FloatOp::Fma | FloatOp::Min | FloatOp::Max => x.mul_add(y, z),
    }
}

fn single(op: FloatOp, rounding: Rounding, [x, y, z]: [f32; 3]) -> f32 {
    let [x, y, z] = [x, y, z].map(f64::from);
    let (first, second) = match op {
        FloatOp::Add => (x, y),
        FloatOp::Sub => (x, -y),
        FloatOp::Mul => return rounded(x * y, rounding),
        FloatOp::Fma | FloatOp::Min | FloatOp::Max => (x * y, z),
    };
    let exact = sum(first, second);
    // A sum that cancels is +0, or -0 when it is rounded down.
    if exact == 0.0
        && rounding == Rounding::Down
        && (first != 0.0 || first.is_sign_negative() || second.is_sign_negative())
    {
        return -0.0;
    }
    rounded(exact, rounding)
}

/// An operation on 16-bit floats, not yet rounded.
fn of_half(op: FloatOp, nan: bool, [x, y, z]: [f64; 3]) -> f64 {
    match op {
        FloatOp::Add => sum(x, y),
        FloatOp::Sub => sum(x, -y),
        FloatOp::Mul => x * y,
        FloatOp::Fma => sum(x * y, z),
        FloatOp::Min | FloatOp::Max if nan && (x.is_nan() || y.is_nan()) => f64::NAN,
        FloatOp::Min => float::min64(x, y),
        FloatOp::Max => float::max64(x, y),
    }
}

/// An operation on pairs of integers.
fn pair(op: PairOp, signed: bool, [a, b]: [u32; 2]) -> u32 {
    let half = |shift: u32| {
        let [a, b] = [a, b].map(|word| (word >> shift) as u16);
        let is_less = if signed { a.cast_signed() < b.cast_signed() } else { a < b };
        let one = match op {
            PairOp::Add => a.wrapping_add(b),
            PairOp::Min if is_less => a,
            PairOp::Max if !is_less => a,
            PairOp::Min | PairOp::Max => b,
        };
        u32::from(one) << shift
    };
    half(0) | half(16)
}

/// Gives each half another sign.
fn half_sign(ty: HalfType, a: u64, negate: bool) -> u64 {
    let one = |half: u64, ty| float::signed_anew(ty, half & 0xFFFF, negate);
    match ty {
        HalfType::F16 => one(a, Type::F16),
        HalfType::Bf16 => one(a, Type::Bf16),
        HalfType::F16x2 => one(a >> 16, Type::F16) << 16 | one(a, Type::F16),
        HalfType::Bf16x2 => one(a >> 16, Type::Bf16) << 16 | one(a, Type::Bf16),
    }
}

/// Applies an operation to each half. The results are rounded to nearest even, with canonical NaNs.
fn halves(ty: HalfType, a: u64, b: u64, c: u64, f: &dyn Fn(f64, f64, f64) -> f64) -> u64 {
    let brain = matches!(ty, HalfType::Bf16 | HalfType::Bf16x2);
    let to = if brain { Type::Bf16 } else { Type::F16 };
    let one = |shift: u32| {
        let [x, y, z] = [a, b, c].map(|bits| {
            let half = (bits >> shift) as u16;
            f64::from(if brain { from_bf16(half) } else { from_f16(half) })
        });
        u64::from(float::round16(to, f(x, y, z))) << shift
    };
    match ty {
        HalfType::F16 | HalfType::Bf16 => one(0),
        HalfType::F16x2 | HalfType::Bf16x2 => one(0) | one(16),
    }
}

/// The 8-bit float nearest to a value, at most the largest; NaN stays NaN.
fn to_fp8(value: f64, e5m2: bool) -> u8 {
    let (mantissa, smallest, largest) = if e5m2 { (2, -14, 57_344.0) } else { (3, -6, 448.0) };
    if value.is_nan() {
        return 0x7F;
    }
    let sign = if value.is_sign_negative() { 0x80 } else { 0 };
    let magnitude = value.abs().min(largest);
    // The exponent of the last place, at least that of the subnormals.
    let exponent = ((magnitude.to_bits() >> 52) as i32 - 1023).max(smallest);
    let places = (magnitude * 2f64.powi(mantissa - exponent)).round_ties_even();
    // An integer number of units in the last place: below 2^mantissa it is a subnormal, and a carry goes into
    // the exponent.
    let biased = (exponent - smallest) << mantissa;
    sign | (biased + places as i32) as u8
}

fn from_fp8(bits: u8, e5m2: bool) -> f32 {
    if e5m2 { F8E5M2::from_bits(bits).to_f32() } else { F8E4M3::from_bits(bits).to_f32() }
}

fn convert(cvt: Cvt, [a, b, c]: [u64; 3]) -> u64 {
    let f = |bits: u64| f32::from_bits(bits as u32);
    let rectified = |value: f64, relu: bool| if relu { positive(value) } else { value };
    let pack8 = |high: f64, low: f64, e5m2: bool, relu: bool| {
        let [high, low] = [high, low].map(|value| u64::from(to_fp8(rectified(value, relu), e5m2)));
        high << 8 | low
    };
    let whole = |rounding: Rounding| match rounding {
        Rounding::Nearest => f(a).round_ties_even(),
        Rounding::Zero => f(a).trunc(),
        Rounding::Down => f(a).floor(),
        Rounding::Up => f(a).ceil(),
    };
    match cvt {
        Cvt::PackFp8 { e5m2, relu } => pack8(f(a).into(), f(b).into(), e5m2, relu),
        Cvt::NarrowFp8 { e5m2, relu } => {
            let [low, high] = [a as u16, (a >> 16) as u16].map(|half| f64::from(from_f16(half)));
            pack8(high, low, e5m2, relu)
        }
        Cvt::WidenFp8 { e5m2, relu } => {
            let one = |bits: u64| {
                let value = from_fp8(bits as u8, e5m2);
                u64::from(float::to_f16(rectified(value.into(), relu) as f32))
            };
            one(a >> 8) << 16 | one(a)
        }
        Cvt::PackHalf { bf16, toward_zero, relu } => {
            let one = |bits: u64| {
                let value = rectified(f(bits).into(), relu) as f32;
                u64::from(half(value, bf16, toward_zero))
            };
            one(a) << 16 | one(b)
        }
        Cvt::Tf32 => float::to_tf32(a as u32).into(),
        Cvt::Integral(rounding) => bits32(whole(rounding)).into(),
        Cvt::ToSigned(rounding) => u64::from((whole(rounding) as i32).cast_unsigned()),
        Cvt::ToUnsigned(rounding) => u64::from(whole(rounding) as u32),
        Cvt::Scalar { .. } => scalar::convert(cvt, a),
        Cvt::PackInt8 { signed } => {
            let one = |bits: u64| {
                let value = (bits as u32).cast_signed();
                let byte = if signed { value.clamp(-128, 127) } else { value.clamp(0, 255) };
                u64::from(byte.cast_unsigned() & 0xFF)
            };
            (c & 0xFFFF) << 16 | one(a) << 8 | one(b)
        }
    }
}

/// Converts to a 16-bit float, rounded to nearest even or toward zero.
fn half(value: f32, bf16: bool, toward_zero: bool) -> u16 {
    let (near, read): (u16, fn(u16) -> f32) =
        if bf16 { (float::to_bf16(value), from_bf16) } else { (float::to_f16(value), from_f16) };
    // Rounded away from zero: the next smaller magnitude is the result. This also holds when `near` is
    // infinite, unless the value itself is infinite.
    let beyond = read(near).abs() > value.abs();
    if toward_zero && beyond { near - 1 } else { near }
}

#[cfg(test)]
mod tests;
