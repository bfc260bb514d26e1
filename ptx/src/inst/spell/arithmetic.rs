//! The lines of arithmetic, logic, conversions and shuffles.

use super::{Line, bits_spelling, memory_type, register_bits};
use crate::inst::{BinaryOp, CompareOp, Expect, Operand, Reg, Special, UnaryOp};
use crate::types::Type;

impl Line<'_> {
    pub(super) fn copy(self, ty: Type, dst: Reg, src: Operand) -> Self {
        let number = matches!(src, Operand::Imm(_)) && ty != Type::U8;
        let spelling = if number || ty == Type::Pred { memory_type(ty) } else { register_bits(ty) };
        self.op("mov", format_args!(".{spelling}")).set_bits(dst, ty).bits(src, ty)
    }

    pub(super) fn binary(self, (op, ty): (BinaryOp, Type), dst: Reg, [a, b]: [Operand; 2]) -> Self {
        let count = if matches!(op, BinaryOp::Shl | BinaryOp::Shr) { Type::U32 } else { ty };
        let (name, of) = binary_name(op, ty);
        let line = self.named("arithmetic", format_args!("{name}.{of}"));
        line.set(dst, ty).read(a, ty).read(b, count)
    }

    pub(super) fn mul_add(self, ty: Type, dst: Reg, operands: [Operand; 3]) -> Self {
        let name = if ty.is_float() { "fma.rn" } else { "mad.lo" };
        self.named("mad", format_args!("{name}.{ty}")).set(dst, ty).reads(&operands, ty)
    }

    pub(super) fn mul_wide(self, dst: Reg, factors: [Operand; 2]) -> Self {
        self.op("mul.wide", ".u32").set(dst, Type::U64).reads(&factors, Type::U32)
    }

    pub(super) fn unary(self, (op, ty): (UnaryOp, Type), dst: Reg, a: Operand) -> Self {
        let (name, of) = match op {
            UnaryOp::Neg => ("neg", signed_spelling(ty)),
            UnaryOp::Abs => ("abs", signed_spelling(ty)),
            UnaryOp::Not => ("not", bits_spelling(ty)),
        };
        self.named("arithmetic", format_args!("{name}.{of}")).set(dst, ty).read(a, ty)
    }

    pub(super) fn compare(self, (op, ty): (CompareOp, Type), dst: Reg, operands: [Operand; 2]) -> Self {
        let line = self.op("setp", format_args!(".{}.{ty}", compare_name(op, ty)));
        line.set(dst, Type::Pred).reads(&operands, ty)
    }

    pub(super) fn select(self, ty: Type, dst: Reg, operands: [Operand; 2], cond: Operand) -> Self {
        let of = if ty.is_float() && ty.bits() >= 32 { ty.suffix() } else { register_bits(ty) };
        let line = self.op("selp", format_args!(".{of}")).set(dst, ty);
        line.reads(&operands, ty).read(cond, Type::Pred)
    }

    pub(super) fn convert(self, (from, to): (Type, Type), dst: Reg, src: Operand) -> Self {
        let rounding = match (from.is_float(), to.is_float()) {
            (true, true) if to.bits() < from.bits() => ".rn",
            (false, true) => ".rn",
            (true, false) => ".rzi",
            _ => "",
        };
        let line = self.op("cvt", format_args!("{rounding}.{to}.{from}"));
        line.set_extended(dst, to).read_low(src, from)
    }

    pub(super) fn pack(self, ty: Type, dst: Reg, [low, high]: [Operand; 2]) -> Self {
        let line = self.op("cvt", format_args!(".rn.{ty}x2.f32"));
        line.set(dst, Type::U32).reads(&[high, low], Type::F32)
    }

    pub(super) fn unpack(self, halves: [Reg; 2], src: Operand) -> Self {
        self.op("mov", ".b32").set_group(&halves, Expect::Type(Type::B16)).bits(src, Type::U32)
    }

    pub(super) fn split(self, ty: Type, dst: &[Reg], src: Operand) -> Self {
        let part = part(ty, dst.len());
        self.op("mov", format_args!(".{ty}")).set_group(dst, Expect::Type(part)).read(src, ty)
    }

    pub(super) fn join(self, ty: Type, dst: Reg, src: &[Operand]) -> Self {
        self.op("mov", format_args!(".{ty}")).set(dst, ty).group(src, part(ty, src.len()))
    }

    pub(super) fn read_special(self, dst: Reg, special: Special) -> Self {
        let ty = special.ty();
        self.op("mov", format_args!(".{ty}")).set(dst, ty).also(special.name())
    }

    pub(super) fn shuffle_index(self, dst: Reg, src: Operand, lane: Operand) -> Self {
        let line = self.op("shfl.sync", ".idx.b32").set(dst, Type::B32);
        line.read(src, Type::B32).read(lane, Type::U32).also("31, -1")
    }

    pub(super) fn shuffle_xor(self, dst: Reg, src: Operand, mask: u32) -> Self {
        let line = self.op("shfl.sync", ".bfly.b32").set(dst, Type::B32);
        line.read(src, Type::B32).also(mask).also("31, -1")
    }
}

/// The type of one of so many parts.
const fn part(ty: Type, count: usize) -> Type {
    match ty.bits() as usize / if count == 0 { 1 } else { count } {
        32 => Type::B32,
        16 => Type::B16,
        _ => Type::B8,
    }
}

const fn signed_spelling(ty: Type) -> &'static str {
    match ty.bits() {
        16 if ty.is_integer() => "s16",
        32 if ty.is_integer() => "s32",
        64 if ty.is_integer() => "s64",
        _ => ty.suffix(),
    }
}

const fn binary_name(op: BinaryOp, ty: Type) -> (&'static str, &'static str) {
    let (float, own, bits) = (ty.is_float(), ty.suffix(), bits_spelling(ty));
    match op {
        BinaryOp::Add => (if float { "add.rn" } else { "add" }, own),
        BinaryOp::Sub => (if float { "sub.rn" } else { "sub" }, own),
        BinaryOp::Mul => (if float { "mul.rn" } else { "mul.lo" }, own),
        BinaryOp::MulHigh => ("mul.hi", own),
        BinaryOp::Div => (if float { "div.rn" } else { "div" }, own),
        BinaryOp::Rem => ("rem", own),
        BinaryOp::Min => ("min", own),
        BinaryOp::Max => ("max", own),
        BinaryOp::And => ("and", bits),
        BinaryOp::Or => ("or", bits),
        BinaryOp::Xor => ("xor", bits),
        BinaryOp::Shl => ("shl", bits),
        BinaryOp::Shr => ("shr", own),
    }
}

const fn compare_name(op: CompareOp, ty: Type) -> &'static str {
    match op {
        CompareOp::Eq => "eq",
        CompareOp::Ne if ty.is_float() => "neu",
        CompareOp::Ne => "ne",
        CompareOp::Lt => "lt",
        CompareOp::Le => "le",
        CompareOp::Gt => "gt",
        CompareOp::Ge => "ge",
    }
}
