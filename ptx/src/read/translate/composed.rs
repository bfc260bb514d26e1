//! Instructions that become several: sums with carries, products of bytes, differences, classes of floats.

use super::super::error::Read;
use super::Translator;
use super::form::Form;
use super::operands::unsigned;
use crate::inst::{Alu, AluOp, BinaryOp, CompareOp, FloatOp, HalfType, Inst, Operand, Reg};
use crate::types::Type;

impl<'t> Translator<'_, 't> {
    // ---- carries ----

    /// The predicate that is the carry of PTX's condition code.
    fn carry(&mut self) -> Read<Reg> {
        match self.carry {
            Some(carry) => Ok(carry),
            None => {
                let carry = self.names.fresh(Type::Pred)?;
                self.carry = Some(carry);
                Ok(carry)
            }
        }
    }

    /// `{add|sub|mad}.cc`, `{addc|subc|madc}{.cc}`: sums that give a carry, or take the one of the sum before.
    pub(super) fn with_carry(&mut self, name: &str, form: &mut Form<'_, 't>) -> Read<()> {
        let ty = form.last_type()?;
        let (gives, takes) = (form.takes("cc"), name.ends_with('c'));
        let of = unsigned(ty);
        if !ty.is_integer() || ty.bits() < 32 {
            return form.wrong("carries exist for 32 and 64 bits");
        }
        let product = match name.starts_with("mad") {
            true => {
                Some(form.need("a half of the product", &[("lo", BinaryOp::Mul), ("hi", BinaryOp::MulHigh)])?)
            }
            false => None,
        };
        let dst = self.dst(form, ty)?;
        let mut a = self.src(form, ty)?;
        let mut b = self.src(form, ty)?;
        if let Some(op) = product {
            let dst = self.names.fresh(ty.untyped())?;
            self.emit(Inst::Binary { op, ty, dst, a, b });
            (a, b) = (Operand::Reg(dst), self.src(form, ty)?);
        }
        let op = if name.starts_with("sub") { BinaryOp::Sub } else { BinaryOp::Add };
        let (mut sum, mut over) = self.carried(op, of, [a, b])?;
        if takes {
            let one = self.names.fresh(ty.untyped())?;
            let cond = Operand::Reg(self.carry()?);
            self.emit(Inst::Select { ty: of, dst: one, a: Operand::Imm(1), b: Operand::Imm(0), cond });
            let (more, again) = self.carried(op, of, [Operand::Reg(sum), Operand::Reg(one)])?;
            let either = self.names.fresh(Type::Pred)?;
            let [a, b] = [over, again].map(Operand::Reg);
            self.emit(Inst::Binary { op: BinaryOp::Or, ty: Type::Pred, dst: either, a, b });
            (sum, over) = (more, either);
        }
        if gives {
            let dst = self.carry()?;
            self.emit(Inst::Move { ty: Type::Pred, dst, src: Operand::Reg(over) });
        }
        self.emit(Inst::Move { ty: ty.untyped(), dst, src: Operand::Reg(sum) });
        Ok(())
    }

    /// A sum or a difference, and whether it left the type.
    fn carried(&mut self, op: BinaryOp, ty: Type, [a, b]: [Operand; 2]) -> Read<(Reg, Reg)> {
        let [dst, over] = [self.names.fresh(ty.untyped())?, self.names.fresh(Type::Pred)?];
        self.emit(Inst::Binary { op, ty, dst, a, b });
        let (a, b) = if op == BinaryOp::Sub { (a, b) } else { (Operand::Reg(dst), a) };
        self.emit(Inst::Compare { op: CompareOp::Lt, ty, dst: over, a, b });
        Ok((dst, over))
    }

    // ---- integers ----

    /// `sad`: the sum of the third operand and the distance of the first two.
    pub(super) fn distance(&mut self, form: &mut Form<'_, 't>) -> Read<()> {
        let ty = form.last_type()?;
        let dst = self.dst(form, ty)?;
        let [a, b, c] = self.srcs(form, ty)?;
        let [high, low, far] = [
            self.names.fresh(ty.untyped())?,
            self.names.fresh(ty.untyped())?,
            self.names.fresh(ty.untyped())?,
        ];
        self.emit(Inst::Binary { op: BinaryOp::Max, ty, dst: high, a, b });
        self.emit(Inst::Binary { op: BinaryOp::Min, ty, dst: low, a, b });
        let (a, b) = (Operand::Reg(high), Operand::Reg(low));
        self.emit(Inst::Binary { op: BinaryOp::Sub, ty: unsigned(ty), dst: far, a, b });
        self.emit(Inst::Binary { op: BinaryOp::Add, ty: unsigned(ty), dst, a: Operand::Reg(far), b: c });
        Ok(())
    }

    /// `dp4a`: the sum of the products of four bytes, and of the third operand.
    pub(super) fn product_of_bytes(&mut self, form: &mut Form<'_, 't>) -> Read<()> {
        let (of_b, of_a) = (form.last_type()?, form.last_type()?);
        if [of_a, of_b].iter().any(|ty| !matches!(ty, Type::U32 | Type::S32)) {
            return form.wrong("bytes are those of .u32 or .s32");
        }
        let dst = self.dst(form, Type::B32)?;
        let (a, b) = (self.src(form, of_a)?, self.src(form, of_b)?);
        let mut sum = self.src(form, Type::B32)?;
        for byte in 0..4 {
            let mut bytes = [Operand::Imm(0); 2];
            for (part, (ty, word)) in bytes.iter_mut().zip([(of_a, a), (of_b, b)]) {
                let dst = self.names.fresh(Type::B32)?;
                let src = vec![word, Operand::Imm(8 * byte), Operand::Imm(8)];
                self.emit(Inst::Alu(Alu { op: AluOp::Extract(ty), dst, src }));
                *part = Operand::Reg(dst);
            }
            let [a, b] = bytes;
            let dst = self.names.fresh(Type::B32)?;
            self.emit(Inst::MulAdd { ty: Type::U32, dst, a, b, c: sum });
            sum = Operand::Reg(dst);
        }
        self.emit(Inst::Move { ty: Type::B32, dst, src: sum });
        Ok(())
    }

    // ---- floats ----

    /// `testp`: to which class a float belongs, by its bits.
    pub(super) fn class_of(&mut self, form: &mut Form<'_, 't>) -> Read<()> {
        let ty = form.last_type()?;
        let (bits, infinity, normal) = match ty {
            Type::F32 => (Type::U32, 0x7F80_0000, 0x0080_0000),
            Type::F64 => (Type::U64, 0x7FF0 << 48, 0x0010 << 48),
            _ => return form.wrong("classes are those of .f32 and .f64"),
        };
        // The magnitude is in a range of the bits: at least the first, less than the second.
        let range = form.need(
            "a class",
            &[
                ("finite", (0, infinity)),
                ("infinite", (infinity, infinity + 1)),
                ("number", (0, infinity + 1)),
                ("notanumber", (infinity + 1, u64::MAX)),
                ("normal", (normal, infinity)),
                ("subnormal", (1, normal)),
            ],
        )?;
        let dst = self.dst(form, Type::Pred)?;
        let src = self.src(form, ty)?;
        let plain = self.names.fresh(bits.untyped())?;
        self.emit(Inst::Move { ty: bits.untyped(), dst: plain, src });
        let magnitude = self.names.fresh(bits.untyped())?;
        let (a, b) = (Operand::Reg(plain), Operand::Imm(bits.wrap(u64::MAX) >> 1));
        self.emit(Inst::Binary { op: BinaryOp::And, ty: bits.untyped(), dst: magnitude, a, b });
        let a = Operand::Reg(magnitude);
        let above = self.names.fresh(Type::Pred)?;
        self.emit(Inst::Compare { op: CompareOp::Ge, ty: bits, dst: above, a, b: Operand::Imm(range.0) });
        let below = self.names.fresh(Type::Pred)?;
        let b = Operand::Imm(bits.wrap(range.1));
        self.emit(Inst::Compare { op: CompareOp::Lt, ty: bits, dst: below, a, b });
        let [a, b] = [above, below].map(Operand::Reg);
        self.emit(Inst::Binary { op: BinaryOp::And, ty: Type::Pred, dst, a, b });
        Ok(())
    }

    /// Limits 16-bit floats to 0..=1 (`.sat`); NaN becomes 0.
    pub(super) fn limited(&mut self, ty: HalfType, dst: Reg, form: &Form<'_, 't>) -> Read<()> {
        let one = match ty {
            HalfType::F16 => 0x3C00,
            HalfType::F16x2 => 0x3C00_3C00,
            HalfType::Bf16 | HalfType::Bf16x2 => return form.wrong("`.sat` exists for .f16"),
        };
        for (op, limit) in [(FloatOp::Max, 0), (FloatOp::Min, one)] {
            let limits = self.names.fresh(ty.register().untyped())?;
            self.emit(Inst::Move { ty: ty.register().untyped(), dst: limits, src: Operand::Imm(limit) });
            let (op, src) = (
                AluOp::Half { op, ty, nan: false, relu: false },
                vec![Operand::Reg(dst), Operand::Reg(limits)],
            );
            self.emit(Inst::Alu(Alu { op, dst, src }));
        }
        Ok(())
    }
}
