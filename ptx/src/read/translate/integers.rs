//! Arithmetic of integers, logic, shifts, comparisons and selections.

use super::super::error::Read;
use super::super::lex::Number;
use super::super::syntax::OperandKind;
use super::Translator;
use super::form::Form;
use super::operands::unsigned;
use crate::inst::{
    Alu, AluOp, BinaryOp, BitOp, CompareOp, FloatRelation, Inst, Operand, PairOp, Reg, UnaryOp,
};
use crate::types::Type;

impl<'t> Translator<'_, 't> {
    /// `add sub mul mad fma div rem min max neg abs` of any type.
    pub(super) fn arithmetic(&mut self, name: &str, form: &mut Form<'_, 't>) -> Read<()> {
        if form.left().contains(&"cc") {
            return self.with_carry(name, form);
        }
        match form.peek_last() {
            "f16" | "bf16" | "f16x2" | "bf16x2" => return self.halves(name, form),
            "f32" | "f64" => return self.floats(name, form),
            "s16x2" | "u16x2" => return self.pair_of_integers(name, form),
            _ => {}
        }
        let ty = form.last_type()?;
        if !ty.is_integer() {
            return form.wrong(format!("`{name}` of .{ty} is not read"));
        }
        let op = match name {
            "add" => BinaryOp::Add,
            "sub" => BinaryOp::Sub,
            "div" => BinaryOp::Div,
            "rem" => BinaryOp::Rem,
            "min" => BinaryOp::Min,
            "max" => BinaryOp::Max,
            "neg" | "abs" => {
                let op = if name == "neg" { UnaryOp::Neg } else { UnaryOp::Abs };
                let (dst, a) = (self.dst(form, ty)?, self.src(form, ty)?);
                self.emit(Inst::Unary { op, ty, dst, a });
                return Ok(());
            }
            "mul" => return self.product(ty, form),
            "mad" => return self.product_and_sum(ty, form),
            _ => return form.wrong("this instruction is not read"),
        };
        if op == BinaryOp::Add && form.takes("sat") {
            return self.saturated(ty, form);
        }
        let relu = matches!(op, BinaryOp::Min | BinaryOp::Max) && form.takes("relu");
        let dst = self.dst(form, ty)?;
        let [a, b] = self.srcs(form, ty)?;
        self.emit(Inst::Binary { op, ty, dst, a, b });
        if relu {
            let (a, b) = (Operand::Reg(dst), Operand::Imm(0));
            self.emit(Inst::Binary { op: BinaryOp::Max, ty, dst, a, b });
        }
        Ok(())
    }

    /// Arithmetic of pairs of 16-bit integers.
    fn pair_of_integers(&mut self, name: &str, form: &mut Form<'_, 't>) -> Read<()> {
        let signed = form.last_word()? == "s16x2";
        let op = match name {
            "add" => PairOp::Add,
            "min" => PairOp::Min,
            "max" => PairOp::Max,
            _ => return form.wrong("this instruction is not read for pairs of 16-bit integers"),
        };
        self.alu(AluOp::Pair { op, signed }, form)
    }

    /// `add.sat.s32`: in 64 bits, and cut.
    fn saturated(&mut self, ty: Type, form: &mut Form<'_, 't>) -> Read<()> {
        if ty != Type::S32 {
            return form.wrong("`.sat` exists for .s32");
        }
        let dst = self.dst(form, ty)?;
        let [a, b] = self.srcs(form, ty)?;
        let wide = Type::S64;
        let a = self.converted(ty, wide, a)?;
        let b = self.converted(ty, wide, b)?;
        let sum = self.names.fresh(Type::B64)?;
        self.emit(Inst::Binary { op: BinaryOp::Add, ty: wide, dst: sum, a, b });
        for (op, limit) in [(BinaryOp::Min, i32::MAX), (BinaryOp::Max, i32::MIN)] {
            let b = Operand::Imm(i64::from(limit).cast_unsigned());
            self.emit(Inst::Binary { op, ty: wide, dst: sum, a: Operand::Reg(sum), b });
        }
        self.emit(Inst::Convert { from: wide, to: ty, dst, src: Operand::Reg(sum) });
        Ok(())
    }

    /// A value of another integer type.
    pub(super) fn converted(&mut self, from: Type, to: Type, src: Operand) -> Read<Operand> {
        if let Operand::Imm(bits) = src {
            let bits = if from.is_signed() { from.extend(bits).cast_unsigned() } else { bits };
            return Ok(Operand::Imm(to.wrap(bits)));
        }
        let dst = self.names.fresh(to.untyped())?;
        self.emit(Inst::Convert { from, to, dst, src });
        Ok(Operand::Reg(dst))
    }

    /// `mul.{lo|hi|wide}`.
    fn product(&mut self, ty: Type, form: &mut Form<'_, 't>) -> Read<()> {
        if form.takes("wide") {
            let dst = self.dst(form, wide(ty))?;
            let [a, b] = self.srcs(form, ty)?;
            match ty {
                Type::U32 => self.emit(Inst::MulWide { dst, a, b }),
                Type::S32 => self.emit(Inst::Alu(Alu { op: AluOp::MulWide(ty), dst, src: vec![a, b] })),
                Type::U16 | Type::S16 => {
                    let a = self.converted(ty, wide(ty), a)?;
                    let b = self.converted(ty, wide(ty), b)?;
                    self.emit(Inst::Binary { op: BinaryOp::Mul, ty: wide(ty), dst, a, b });
                }
                _ => return form.wrong("`.wide` exists for 16 and 32 bits"),
            }
            return Ok(());
        }
        let op = form.need("a half of the product", &[("lo", BinaryOp::Mul), ("hi", BinaryOp::MulHigh)])?;
        let dst = self.dst(form, ty)?;
        let [a, b] = self.srcs(form, ty)?;
        self.emit(Inst::Binary { op, ty, dst, a, b });
        Ok(())
    }

    /// `mad.{lo|hi|wide}`.
    fn product_and_sum(&mut self, ty: Type, form: &mut Form<'_, 't>) -> Read<()> {
        if form.takes("wide") {
            let dst = self.dst(form, wide(ty))?;
            let [a, b] = self.srcs(form, ty)?;
            let c = self.src(form, wide(ty))?;
            match ty {
                Type::U32 | Type::S32 => {
                    self.emit(Inst::Alu(Alu { op: AluOp::MadWide(ty), dst, src: vec![a, b, c] }));
                }
                Type::U16 | Type::S16 => {
                    let a = self.converted(ty, wide(ty), a)?;
                    let b = self.converted(ty, wide(ty), b)?;
                    self.emit(Inst::MulAdd { ty: wide(ty), dst, a, b, c });
                }
                _ => return form.wrong("`.wide` exists for 16 and 32 bits"),
            }
            return Ok(());
        }
        let high = form.need("a half of the product", &[("lo", false), ("hi", true)])?;
        let dst = self.dst(form, ty)?;
        let [a, b, c] = self.srcs(form, ty)?;
        if high {
            self.emit(Inst::Alu(Alu { op: AluOp::MadHigh(ty), dst, src: vec![a, b, c] }));
        } else {
            self.emit(Inst::MulAdd { ty, dst, a, b, c });
        }
        Ok(())
    }

    /// Logic, shifts and bit fields.
    pub(super) fn bits(&mut self, name: &str, form: &mut Form<'_, 't>) -> Read<()> {
        match name {
            "and" | "or" | "xor" | "not" => self.logic(name, form),
            "shl" | "shr" => {
                let ty = form.last_type()?;
                let op = if name == "shl" { BinaryOp::Shl } else { BinaryOp::Shr };
                let (dst, a) = (self.dst(form, ty)?, self.src(form, ty)?);
                let b = self.src(form, Type::U32)?;
                self.emit(Inst::Binary { op, ty, dst, a, b });
                Ok(())
            }
            "cnot" => {
                let ty = unsigned(form.last_type()?);
                let (dst, a) = (self.dst(form, ty)?, self.src(form, ty)?);
                let cond = self.names.fresh(Type::Pred)?;
                self.emit(Inst::Compare { op: CompareOp::Eq, ty, dst: cond, a, b: Operand::Imm(0) });
                let (a, b, cond) = (Operand::Imm(1), Operand::Imm(0), Operand::Reg(cond));
                self.emit(Inst::Select { ty, dst, a, b, cond });
                Ok(())
            }
            "bfind" => self.find_bit(form),
            "addc" | "subc" | "madc" => self.with_carry(name, form),
            "sad" => self.distance(form),
            "dp4a" => self.product_of_bytes(form),
            _ => self.field(name, form),
        }
    }

    fn logic(&mut self, name: &str, form: &mut Form<'_, 't>) -> Read<()> {
        let ty = form.last_type()?;
        let (dst, a) = (self.dst(form, ty)?, self.src(form, ty)?);
        let op = match name {
            "and" => BinaryOp::And,
            "or" => BinaryOp::Or,
            "xor" => BinaryOp::Xor,
            _ => {
                self.emit(Inst::Unary { op: UnaryOp::Not, ty, dst, a });
                return Ok(());
            }
        };
        let b = self.src(form, ty)?;
        self.emit(Inst::Binary { op, ty, dst, a, b });
        Ok(())
    }

    /// `bfind{.shiftamt}`: the position of the highest bit that differs from the sign, or how far it is from the top.
    fn find_bit(&mut self, form: &mut Form<'_, 't>) -> Read<()> {
        let ty = form.last_type()?;
        let (amount, of, width) = (form.takes("shiftamt"), unsigned(ty), u64::from(ty.bits()));
        let dst = self.dst(form, Type::U32)?;
        let mut a = self.src(form, ty)?;
        if ty.is_signed() {
            let sign = self.names.fresh(ty.untyped())?;
            let count = Operand::Imm(width - 1);
            self.emit(Inst::Binary { op: BinaryOp::Shr, ty, dst: sign, a, b: count });
            let magnitude = self.names.fresh(ty.untyped())?;
            let b = Operand::Reg(sign);
            self.emit(Inst::Binary { op: BinaryOp::Xor, ty: of, dst: magnitude, a, b });
            a = Operand::Reg(magnitude);
        }
        let zeros = self.names.fresh(Type::B32)?;
        let src = vec![a];
        self.emit(Inst::Alu(Alu { op: AluOp::Bits(BitOp::LeadingZeros, of), dst: zeros, src }));
        if amount {
            let none = self.names.fresh(Type::Pred)?;
            let (a, b) = (Operand::Reg(zeros), Operand::Imm(width));
            self.emit(Inst::Compare { op: CompareOp::Eq, ty: Type::U32, dst: none, a, b });
            let (a, b, cond) = (Operand::Imm(u32::MAX.into()), Operand::Reg(zeros), Operand::Reg(none));
            self.emit(Inst::Select { ty: Type::U32, dst, a, b, cond });
        } else {
            let (a, b) = (Operand::Imm(width - 1), Operand::Reg(zeros));
            self.emit(Inst::Binary { op: BinaryOp::Sub, ty: Type::U32, dst, a, b });
        }
        Ok(())
    }

    /// Operations on bits that the program has as they are.
    fn field(&mut self, name: &str, form: &mut Form<'_, 't>) -> Read<()> {
        let ty = form.last_type()?;
        let op = match name {
            "popc" => AluOp::Bits(BitOp::Population, unsigned(ty)),
            "clz" => AluOp::Bits(BitOp::LeadingZeros, unsigned(ty)),
            "brev" => AluOp::Bits(BitOp::Reverse, unsigned(ty)),
            "bfe" => AluOp::Extract(ty),
            "bfi" => AluOp::Insert(unsigned(ty)),
            "prmt" if ty.bits() == 32 => AluOp::Permute,
            "fns" if ty.bits() == 32 => AluOp::FindNth,
            "shf" if ty.bits() == 32 => {
                let left = form.need("a direction", &[("l", true), ("r", false)])?;
                AluOp::Funnel { left, wrap: form.need("a mode", &[("wrap", true), ("clamp", false)])? }
            }
            "lop3" if ty.bits() == 32 => return self.logic_of_three(form),
            _ => return form.wrong("this instruction is not read"),
        };
        self.alu(op, form)
    }

    fn logic_of_three(&mut self, form: &mut Form<'_, 't>) -> Read<()> {
        let dst = self.dst(form, Type::U32)?;
        let src = self.srcs::<3>(form, Type::U32)?.to_vec();
        let table = form.number("a table of 8 bits")?;
        let Ok(table) = u8::try_from(table) else {
            return form.wrong(format!("the table {table} has more than 8 bits"));
        };
        self.emit(Inst::Alu(Alu { op: AluOp::Logic3(table), dst, src }));
        Ok(())
    }

    /// An operation that takes its operands in PTX's order.
    pub(super) fn alu(&mut self, op: AluOp, form: &mut Form<'_, 't>) -> Read<()> {
        let Some((sources, result)) = op.types() else { return form.wrong("there is no such form") };
        let dst = self.dst(form, result)?;
        let mut src = Vec::new();
        for ty in sources {
            let operand = self.src(form, ty)?;
            src.push(self.in_register(op, operand, ty)?);
        }
        self.emit(Inst::Alu(Alu { op, dst, src }));
        Ok(())
    }

    /// Puts a number into a register, for operations on 16-bit floats and on pairs, which take registers only.
    fn in_register(&mut self, op: AluOp, operand: Operand, ty: Type) -> Read<Operand> {
        let halves = matches!(op, AluOp::Half { .. } | AluOp::HalfSign { .. } | AluOp::Pair { .. });
        if !halves || matches!(operand, Operand::Reg(_)) {
            return Ok(operand);
        }
        let dst = self.names.fresh(ty.untyped())?;
        self.emit(Inst::Move { ty: ty.untyped(), dst, src: operand });
        Ok(Operand::Reg(dst))
    }

    // ---- comparisons ----

    /// `setp`, with a second result and a second condition if they are there.
    pub(super) fn setp(&mut self, form: &mut Form<'_, 't>) -> Read<()> {
        let of_pairs = matches!(form.peek_last(), "f16x2" | "bf16x2");
        let (first, second) = self.dst_pair(form, Type::Pred)?;
        let plain = second.is_none() && !of_pairs;
        let combined = form.choose(&[("and", BinaryOp::And), ("or", BinaryOp::Or), ("xor", BinaryOp::Xor)]);
        if plain && combined.is_none() {
            return self.compared(form, first);
        }
        if of_pairs {
            let Some(second) = second else { return form.wrong("two results were needed: `p|q`") };
            return self.compared_pairs(form, combined, [first, second]);
        }
        let yes = self.names.fresh(Type::Pred)?;
        self.compared(form, yes)?;
        let yes = Operand::Reg(yes);
        let Some(op) = combined else {
            self.emit(Inst::Move { ty: Type::Pred, dst: first, src: yes });
            if let Some(dst) = second {
                self.emit(Inst::Unary { op: UnaryOp::Not, ty: Type::Pred, dst, a: yes });
            }
            return Ok(());
        };
        let b = self.src(form, Type::Pred)?;
        // The second result first: the first may be one of its operands.
        if let Some(second) = second {
            let a = self.not(yes)?;
            let dst = self.names.fresh(Type::Pred)?;
            self.emit(Inst::Binary { op, ty: Type::Pred, dst, a, b });
            self.emit(Inst::Binary { op, ty: Type::Pred, dst: first, a: yes, b });
            self.emit(Inst::Move { ty: Type::Pred, dst: second, src: Operand::Reg(dst) });
        } else {
            self.emit(Inst::Binary { op, ty: Type::Pred, dst: first, a: yes, b });
        }
        Ok(())
    }

    /// Compares the two next operands.
    fn compared(&mut self, form: &mut Form<'_, 't>, dst: Reg) -> Read<()> {
        let ty = form.last_type()?;
        let flush = form.takes("ftz");
        if ty.is_float() {
            let relation = form.need("a relation", &RELATIONS)?;
            let [a, b] = self.srcs(form, ty)?;
            self.float_compared(relation, (ty, flush), dst, [a, b]);
            return Ok(());
        }
        let (op, ty) = match form.choose(&UNSIGNED) {
            Some(op) => (op, unsigned(ty)),
            None => (form.need("a relation", &INTEGERS)?, ty),
        };
        let [a, b] = self.srcs(form, ty)?;
        self.emit(Inst::Compare { op, ty, dst, a, b });
        Ok(())
    }

    pub(super) fn float_compared(
        &mut self,
        relation: FloatRelation,
        (ty, flush): (Type, bool),
        dst: Reg,
        [a, b]: [Operand; 2],
    ) {
        let plain = match relation {
            FloatRelation::Ordered(op) if op != CompareOp::Ne => Some(op),
            FloatRelation::Unordered(CompareOp::Ne) => Some(CompareOp::Ne),
            FloatRelation::Ordered(_)
            | FloatRelation::Unordered(_)
            | FloatRelation::Numbers
            | FloatRelation::Nan => None,
        };
        match plain {
            Some(op) if !flush && ty.bits() >= 32 => self.emit(Inst::Compare { op, ty, dst, a, b }),
            _ => {
                let op = AluOp::FloatCompare { relation, ty, flush };
                self.emit(Inst::Alu(Alu { op, dst, src: vec![a, b] }));
            }
        }
    }

    /// `set`: all bits or 1.0 where the relation holds, otherwise 0.
    pub(super) fn set(&mut self, form: &mut Form<'_, 't>) -> Read<()> {
        if matches!(form.peek_last(), "f16x2" | "bf16x2") {
            return self.set_pairs(form);
        }
        let of = form.last_type()?;
        let to = form.last_type()?;
        let flush = form.takes("ftz");
        let combined = form.choose(&[("and", BinaryOp::And), ("or", BinaryOp::Or), ("xor", BinaryOp::Xor)]);
        let yes = match to {
            Type::F32 => u64::from(1f32.to_bits()),
            Type::F16 => 0x3C00,
            Type::Bf16 => 0x3F80,
            Type::U16 | Type::S16 | Type::U32 | Type::S32 => to.wrap(u64::MAX),
            _ => return form.wrong(format!("`set` does not give .{to}")),
        };
        let dst = self.dst(form, to)?;
        let mut cond = self.names.fresh(Type::Pred)?;
        if of.is_float() {
            let relation = form.need("a relation", &RELATIONS)?;
            let operands = self.srcs(form, of)?;
            self.float_compared(relation, (of, flush), cond, operands);
        } else {
            let (op, of) = match form.choose(&UNSIGNED) {
                Some(op) => (op, unsigned(of)),
                None => (form.need("a relation", &INTEGERS)?, of),
            };
            let [a, b] = self.srcs(form, of)?;
            self.emit(Inst::Compare { op, ty: of, dst: cond, a, b });
        }
        if let Some(op) = combined {
            let (a, b) = (Operand::Reg(cond), self.src(form, Type::Pred)?);
            cond = self.names.fresh(Type::Pred)?;
            self.emit(Inst::Binary { op, ty: Type::Pred, dst: cond, a, b });
        }
        let ty = unsigned(to);
        self.emit(Inst::Select {
            ty,
            dst,
            a: Operand::Imm(yes),
            b: Operand::Imm(0),
            cond: Operand::Reg(cond),
        });
        Ok(())
    }

    pub(super) fn selp(&mut self, form: &mut Form<'_, 't>) -> Read<()> {
        let ty = form.last_type()?;
        let dst = self.dst(form, ty)?;
        let [a, b] = self.srcs(form, ty)?;
        let cond = self.src(form, Type::Pred)?;
        self.emit(Inst::Select { ty, dst, a, b, cond });
        Ok(())
    }

    /// `slct`: the first operand if the third is not negative, otherwise the second, also for NaN.
    pub(super) fn slct(&mut self, form: &mut Form<'_, 't>) -> Read<()> {
        let of = form.last_type()?;
        let ty = form.last_type()?;
        let flush = form.takes("ftz");
        let dst = self.dst(form, ty)?;
        let [a, b] = self.srcs(form, ty)?;
        let c = self.src(form, of)?;
        let cond = self.names.fresh(Type::Pred)?;
        if of == Type::F32 {
            let relation = FloatRelation::Ordered(CompareOp::Ge);
            self.float_compared(relation, (of, flush), cond, [c, Operand::Imm(0)]);
        } else {
            self.emit(Inst::Compare { op: CompareOp::Ge, ty: of, dst: cond, a: c, b: Operand::Imm(0) });
        }
        self.emit(Inst::Select { ty, dst, a, b, cond: Operand::Reg(cond) });
        Ok(())
    }
}

/// The type of twice the width.
const fn wide(ty: Type) -> Type {
    match ty {
        Type::U16 => Type::U32,
        Type::S16 => Type::S32,
        Type::S32 => Type::S64,
        _ => Type::U64,
    }
}

const INTEGERS: [(&str, CompareOp); 6] = [
    ("eq", CompareOp::Eq),
    ("ne", CompareOp::Ne),
    ("lt", CompareOp::Lt),
    ("le", CompareOp::Le),
    ("gt", CompareOp::Gt),
    ("ge", CompareOp::Ge),
];

/// Relations of unsigned integers.
const UNSIGNED: [(&str, CompareOp); 4] =
    [("lo", CompareOp::Lt), ("ls", CompareOp::Le), ("hi", CompareOp::Gt), ("hs", CompareOp::Ge)];

pub(super) const RELATIONS: [(&str, FloatRelation); 14] = [
    ("eq", FloatRelation::Ordered(CompareOp::Eq)),
    ("ne", FloatRelation::Ordered(CompareOp::Ne)),
    ("lt", FloatRelation::Ordered(CompareOp::Lt)),
    ("le", FloatRelation::Ordered(CompareOp::Le)),
    ("gt", FloatRelation::Ordered(CompareOp::Gt)),
    ("ge", FloatRelation::Ordered(CompareOp::Ge)),
    ("equ", FloatRelation::Unordered(CompareOp::Eq)),
    ("neu", FloatRelation::Unordered(CompareOp::Ne)),
    ("ltu", FloatRelation::Unordered(CompareOp::Lt)),
    ("leu", FloatRelation::Unordered(CompareOp::Le)),
    ("gtu", FloatRelation::Unordered(CompareOp::Gt)),
    ("geu", FloatRelation::Unordered(CompareOp::Ge)),
    ("num", FloatRelation::Numbers),
    ("nan", FloatRelation::Nan),
];

/// Whether an operand is the number -1, which names all lanes of a warp.
pub(super) fn is_all(operand: Option<&super::super::syntax::Operand<'_>>) -> bool {
    operand.is_some_and(|word| matches!(word.kind, OperandKind::Number(Number::Integer(1, true))))
}
