//! Arithmetic of floats, approximated functions, conversions.

use super::super::error::Read;
use super::Translator;
use super::form::{Form, scalar};
use super::integers::RELATIONS;
use crate::inst::{
    Alu, AluOp, ApproxOp, BinaryOp, Cvt, Division, FloatOp, HalfType, Inst, Operand, Reg, Rounding, UnaryOp,
};
use crate::types::Type;

const ROUNDINGS: [(&str, Rounding); 4] =
    [("rn", Rounding::Nearest), ("rz", Rounding::Zero), ("rm", Rounding::Down), ("rp", Rounding::Up)];

/// Roundings to an integral value.
const INTEGRAL: [(&str, Rounding); 4] =
    [("rni", Rounding::Nearest), ("rzi", Rounding::Zero), ("rmi", Rounding::Down), ("rpi", Rounding::Up)];

const HALVES: [(&str, HalfType); 4] = [
    ("f16", HalfType::F16),
    ("bf16", HalfType::Bf16),
    ("f16x2", HalfType::F16x2),
    ("bf16x2", HalfType::Bf16x2),
];

impl<'t> Translator<'_, 't> {
    /// Arithmetic of `.f32` and `.f64`. Without a rounding it is to nearest: the assembler may then also contract a product and a sum.
    pub(super) fn floats(&mut self, name: &str, form: &mut Form<'_, 't>) -> Read<()> {
        let ty = form.last_type()?;
        let (flush, saturate) = (form.takes("ftz"), form.takes("sat"));
        let op = match name {
            "add" => FloatOp::Add,
            "sub" => FloatOp::Sub,
            "mul" => FloatOp::Mul,
            "fma" | "mad" => FloatOp::Fma,
            "min" | "max" => return self.extreme(name == "max", (ty, flush), form),
            "neg" | "abs" => return self.signed(name == "neg", (ty, flush), form),
            "div" => return self.quotient((ty, flush), form),
            _ => return form.wrong("this instruction is not read"),
        };
        let rounding = form.choose(&ROUNDINGS).unwrap_or(Rounding::Nearest);
        let plain = rounding == Rounding::Nearest && !flush && !saturate;
        if plain && op == FloatOp::Fma {
            let dst = self.dst(form, ty)?;
            let [a, b, c] = self.srcs(form, ty)?;
            self.emit(Inst::MulAdd { ty, dst, a, b, c });
        } else if plain {
            let op = match op {
                FloatOp::Add => BinaryOp::Add,
                FloatOp::Sub => BinaryOp::Sub,
                FloatOp::Mul | FloatOp::Fma | FloatOp::Min | FloatOp::Max => BinaryOp::Mul,
            };
            let dst = self.dst(form, ty)?;
            let [a, b] = self.srcs(form, ty)?;
            self.emit(Inst::Binary { op, ty, dst, a, b });
        } else {
            self.alu(AluOp::Float { op, ty, rounding, flush, saturate }, form)?;
        }
        Ok(())
    }

    fn extreme(&mut self, max: bool, (ty, flush): (Type, bool), form: &mut Form<'_, 't>) -> Read<()> {
        let nan = form.takes("NaN");
        if flush || nan {
            if ty != Type::F32 {
                return form.wrong("`.ftz` and `.NaN` exist for .f32");
            }
            let op = if flush { AluOp::FlushExtreme { max, nan } } else { AluOp::NanExtreme { max } };
            return self.alu(op, form);
        }
        let op = if max { BinaryOp::Max } else { BinaryOp::Min };
        let dst = self.dst(form, ty)?;
        let [a, b] = self.srcs(form, ty)?;
        self.emit(Inst::Binary { op, ty, dst, a, b });
        Ok(())
    }

    /// `neg` and `abs`. With `.ftz`, subnormals become zeros by a product with 1.
    fn signed(&mut self, negate: bool, (ty, flush): (Type, bool), form: &mut Form<'_, 't>) -> Read<()> {
        let op = if negate { UnaryOp::Neg } else { UnaryOp::Abs };
        let (dst, a) = (self.dst(form, ty)?, self.src(form, ty)?);
        self.emit(Inst::Unary { op, ty, dst, a });
        if flush {
            let one = Operand::Imm(1f32.to_bits().into());
            let (rounding, saturate) = (Rounding::Nearest, false);
            let op = AluOp::Float { op: FloatOp::Mul, ty, rounding, flush, saturate };
            self.emit(Inst::Alu(Alu { op, dst, src: vec![Operand::Reg(dst), one] }));
        }
        Ok(())
    }

    fn quotient(&mut self, (ty, flush): (Type, bool), form: &mut Form<'_, 't>) -> Read<()> {
        let division = match form.choose(&[("approx", Division::Approximate), ("full", Division::Full)]) {
            Some(division) => division,
            None => Division::Exact(form.need("a rounding", &ROUNDINGS)?),
        };
        if (division, flush) == (Division::Exact(Rounding::Nearest), false) {
            let dst = self.dst(form, ty)?;
            let [a, b] = self.srcs(form, ty)?;
            self.emit(Inst::Binary { op: BinaryOp::Div, ty, dst, a, b });
            return Ok(());
        }
        self.alu(AluOp::Divide { division, ty, flush }, form)
    }

    /// Arithmetic of 16-bit floats.
    pub(super) fn halves(&mut self, name: &str, form: &mut Form<'_, 't>) -> Read<()> {
        let ty = form.need("a type", &HALVES)?;
        let (relu, saturate) = (form.takes("relu"), form.takes("sat"));
        let nan = form.takes("NaN");
        // To nearest is the only rounding.
        form.ignore(&["rn"]);
        let op = match name {
            "add" => FloatOp::Add,
            "sub" => FloatOp::Sub,
            "mul" => FloatOp::Mul,
            "fma" => FloatOp::Fma,
            "min" => FloatOp::Min,
            "max" => FloatOp::Max,
            "neg" | "abs" => match ty {
                HalfType::F16 => return self.signed(name == "neg", (Type::F16, false), form),
                HalfType::Bf16 => return self.signed(name == "neg", (Type::Bf16, false), form),
                HalfType::F16x2 | HalfType::Bf16x2 => {
                    return self.alu(AluOp::HalfSign { ty, negate: name == "neg" }, form);
                }
            },
            _ => return form.wrong("this instruction is not read for 16-bit floats"),
        };
        let dst = form.peek();
        self.alu(AluOp::Half { op, ty, nan, relu }, form)?;
        match dst {
            Some(word) if saturate => {
                let dst = self.result(word, ty.register())?;
                self.limited(ty, dst, form)
            }
            _ => Ok(()),
        }
    }

    /// Functions of one float, most of them approximated.
    pub(super) fn function(&mut self, name: &str, form: &mut Form<'_, 't>) -> Read<()> {
        let op = match name {
            "ex2" => ApproxOp::Exp2,
            "lg2" => ApproxOp::Log2,
            "rcp" => ApproxOp::Reciprocal,
            "rsqrt" => ApproxOp::ReciprocalRoot,
            "sqrt" => ApproxOp::Root,
            "sin" => ApproxOp::Sin,
            "cos" => ApproxOp::Cos,
            "tanh" => ApproxOp::Tanh,
            "testp" => return self.class_of(form),
            "copysign" => {
                let ty = form.last_type()?;
                return self.alu(AluOp::CopySign(ty), form);
            }
            _ => return form.wrong("this instruction is not read"),
        };
        let flush = form.takes("ftz");
        if let Some(rounding) = form.choose(&ROUNDINGS) {
            let (reciprocal, ty) = (name == "rcp", form.last_type()?);
            if !matches!(name, "rcp" | "sqrt") {
                return form.wrong("only `rcp` and `sqrt` are rounded");
            }
            let op = match (flush, ty) {
                (true, Type::F32) => AluOp::ExactFlush { reciprocal, rounding },
                (true, _) => return form.wrong("`.ftz` exists for .f32"),
                (false, ty) => AluOp::Exact { reciprocal, ty, rounding },
            };
            return self.alu(op, form);
        }
        if !form.takes("approx") {
            return form.wrong("a rounding or `.approx` was needed");
        }
        let word = form.last_word()?;
        if let Some((_, ty)) = HALVES.iter().find(|(half, _)| *half == word) {
            if flush && !matches!(ty, HalfType::Bf16 | HalfType::Bf16x2) {
                return form.wrong("`.ftz` of .f16 is not read");
            }
            return self.alu(AluOp::ApproxHalf(op, *ty), form);
        }
        match scalar(word) {
            Some(Type::F32) if flush => self.alu(AluOp::ApproxFlush(op), form),
            Some(Type::F32) => self.alu(AluOp::Approx(op), form),
            _ => form.wrong(format!("`{name}.approx` of .{word} is not read")),
        }
    }

    // ---- pairs of 16-bit floats ----

    /// The halves of a pair, and their type.
    fn pair(&mut self, form: &mut Form<'_, 't>, ty: Type) -> Read<[Operand; 2]> {
        let src = self.src(form, Type::B32)?;
        let [low, high] = [self.names.fresh(ty.untyped())?, self.names.fresh(ty.untyped())?];
        self.emit(Inst::Unpack { low, high, src });
        Ok([low, high].map(Operand::Reg))
    }

    fn pair_type(form: &mut Form<'_, 't>) -> Read<Type> {
        Ok(if form.last_word()? == "bf16x2" { Type::Bf16 } else { Type::F16 })
    }

    /// `setp` of pairs: a result for each half.
    pub(super) fn compared_pairs(
        &mut self,
        form: &mut Form<'_, 't>,
        combined: Option<BinaryOp>,
        results: [Reg; 2],
    ) -> Read<()> {
        let ty = Self::pair_type(form)?;
        let flush = form.takes("ftz");
        let relation = form.need("a relation", &RELATIONS)?;
        let (a, b) = (self.pair(form, ty)?, self.pair(form, ty)?);
        let c = combined.map(|op| Ok((op, self.src(form, Type::Pred)?))).transpose()?;
        let mut yes = Vec::new();
        for (a, b) in a.into_iter().zip(b) {
            let dst = self.names.fresh(Type::Pred)?;
            self.float_compared(relation, (ty, flush), dst, [a, b]);
            if let Some((op, b)) = c {
                self.emit(Inst::Binary { op, ty: Type::Pred, dst, a: Operand::Reg(dst), b });
            }
            yes.push(dst);
        }
        for (dst, src) in results.into_iter().zip(yes) {
            self.emit(Inst::Move { ty: Type::Pred, dst, src: Operand::Reg(src) });
        }
        Ok(())
    }

    /// `set` of pairs: 1.0 or 0 in each half, or all its bits.
    pub(super) fn set_pairs(&mut self, form: &mut Form<'_, 't>) -> Read<()> {
        let ty = Self::pair_type(form)?;
        let yes = match form.last_word()? {
            "f16x2" => 0x3C00,
            "bf16x2" => 0x3F80,
            other => return form.wrong(format!("`set` of pairs does not give .{other} here")),
        };
        let flush = form.takes("ftz");
        let relation = form.need("a relation", &RELATIONS)?;
        let dst = self.dst(form, Type::B32)?;
        let (a, b) = (self.pair(form, ty)?, self.pair(form, ty)?);
        let mut halves = Vec::new();
        for (a, b) in a.into_iter().zip(b) {
            let cond = self.names.fresh(Type::Pred)?;
            self.float_compared(relation, (ty, flush), cond, [a, b]);
            let half = self.names.fresh(Type::B16)?;
            let (a, b, cond) = (Operand::Imm(yes), Operand::Imm(0), Operand::Reg(cond));
            self.emit(Inst::Select { ty: Type::B16, dst: half, a, b, cond });
            halves.push(Operand::Reg(half));
        }
        self.emit(Inst::Join { ty: Type::B32, dst, src: halves });
        Ok(())
    }

    // ---- conversions ----

    pub(super) fn cvt(&mut self, form: &mut Form<'_, 't>) -> Read<()> {
        if form.first("pack") {
            return self.packed_integers(form);
        }
        let (from, to) = (form.last_word()?, form.last_word()?);
        let relu = form.takes("relu");
        let satfinite = form.takes("satfinite");
        let nearest = |form: &mut Form<'_, 't>| form.choose(&ROUNDINGS).unwrap_or(Rounding::Nearest);
        let fp8 = |word: &str| match word {
            "e4m3x2" => Some(false),
            "e5m2x2" => Some(true),
            _ => None,
        };
        match (from, to) {
            ("f32", "f16x2" | "bf16x2") => {
                let rounding = nearest(form);
                if satfinite {
                    return form.wrong("`.satfinite` is not read here");
                }
                self.packed_halves(to == "bf16x2", rounding, relu, form)
            }
            ("f32", _) if fp8(to).is_some() => {
                let e5m2 = fp8(to) == Some(true);
                form.ignore(&["rn"]);
                self.alu(AluOp::Cvt(Cvt::PackFp8 { e5m2, relu }), form)
            }
            ("f16x2", _) if fp8(to).is_some() => {
                let e5m2 = fp8(to) == Some(true);
                form.ignore(&["rn"]);
                self.alu(AluOp::Cvt(Cvt::NarrowFp8 { e5m2, relu }), form)
            }
            (_, "f16x2") if fp8(from).is_some() => {
                let e5m2 = fp8(from) == Some(true);
                form.ignore(&["rn"]);
                self.alu(AluOp::Cvt(Cvt::WidenFp8 { e5m2, relu }), form)
            }
            ("f32", "tf32") if form.takes("rna") && !relu && !satfinite => {
                self.alu(AluOp::Cvt(Cvt::Tf32), form)
            }
            _ if satfinite => form.wrong("`.satfinite` is not read here"),
            _ => match (scalar(from), scalar(to)) {
                (Some(from), Some(to)) => self.converted_scalar((from, to), relu, form),
                _ => form.wrong(format!("a conversion from .{from} to .{to} is not read")),
            },
        }
    }

    fn packed_halves(
        &mut self,
        bf16: bool,
        rounding: Rounding,
        relu: bool,
        form: &mut Form<'_, 't>,
    ) -> Read<()> {
        let toward_zero = match rounding {
            Rounding::Nearest => false,
            Rounding::Zero => true,
            Rounding::Down | Rounding::Up => {
                return form.wrong("halves are rounded to nearest or toward zero");
            }
        };
        if toward_zero || relu {
            return self.alu(AluOp::Cvt(Cvt::PackHalf { bf16, toward_zero, relu }), form);
        }
        let dst = self.dst(form, Type::U32)?;
        let [high, low] = self.srcs(form, Type::F32)?;
        self.emit(Inst::Pack { ty: if bf16 { Type::Bf16 } else { Type::F16 }, dst, low, high });
        Ok(())
    }

    /// `cvt.pack.sat.{s8|u8}.s32.b32`.
    fn packed_integers(&mut self, form: &mut Form<'_, 't>) -> Read<()> {
        if !form.first("sat") {
            return form.wrong("`.sat` was needed");
        }
        let signed = match (form.last_word()?, form.last_word()?, form.last_word()?) {
            ("b32", "s32", "s8") => true,
            ("b32", "s32", "u8") => false,
            _ => return form.wrong("only .s8 and .u8 are packed, with a third operand of .b32"),
        };
        self.alu(AluOp::Cvt(Cvt::PackInt8 { signed }), form)
    }

    fn converted_scalar(
        &mut self,
        (from, to): (Type, Type),
        relu: bool,
        form: &mut Form<'_, 't>,
    ) -> Read<()> {
        let flush = form.takes("ftz");
        let saturate = form.takes("sat");
        let (rounding, integral) = match form.choose(&INTEGRAL) {
            Some(rounding) => (Some(rounding), true),
            None => (form.choose(&ROUNDINGS), false),
        };
        let to_integer = from.is_float() && !to.is_float();
        let narrows = to.is_float() && (!from.is_float() || to.bits() < from.bits());
        // What the program's plain conversion does.
        let usual = match rounding {
            None => true,
            Some(Rounding::Zero) => to_integer,
            Some(Rounding::Nearest) => narrows && !integral,
            Some(Rounding::Down | Rounding::Up) => false,
        };
        let exists =
            from != to && !(from.bits() == 16 && to.bits() == 16 && (from.is_float() || to.is_float()));
        let byte_and_brain = |a: Type, b: Type| a.bits() == 8 && b == Type::Bf16;
        let exists = exists && !byte_and_brain(from, to) && !byte_and_brain(to, from);
        // Conversions of floats to integers saturate in any case.
        let saturate = saturate && !to_integer;
        if usual && exists && !flush && !saturate && !relu {
            let dst = self.dst_extended(form, to)?;
            let src = self.src_low(form, from)?;
            self.emit(Inst::Convert { from, to, dst, src });
            return Ok(());
        }
        let cvt = match (from, to, rounding) {
            (Type::F32, Type::F32, Some(rounding)) if integral && !flush && !saturate => {
                Cvt::Integral(rounding)
            }
            (Type::F32, Type::S32, Some(rounding)) if !flush => Cvt::ToSigned(rounding),
            (Type::F32, Type::U32, Some(rounding)) if !flush => Cvt::ToUnsigned(rounding),
            _ if from == to && !from.is_float() && rounding.is_none() && !saturate => {
                let dst = self.dst_extended(form, to)?;
                let src = self.src_low(form, from)?;
                return self.extended(to, dst, src);
            }
            _ => Cvt::Scalar { from, to, rounding, integral, flush, saturate, relu },
        };
        let dst = self.dst_extended(form, to)?;
        let src = self.src_low(form, from)?;
        self.emit(Inst::Alu(Alu { op: AluOp::Cvt(cvt), dst, src: vec![src] }));
        Ok(())
    }

    /// The low bits of a register as a number of a type, in a register that may be wider.
    fn extended(&mut self, ty: Type, dst: Reg, src: Operand) -> Read<()> {
        let wide = match (self.names.ty(dst).bits(), ty.is_signed()) {
            (64, true) => Type::S64,
            (64, false) => Type::U64,
            (32, true) => Type::S32,
            (32, false) => Type::U32,
            (_, true) => Type::S16,
            (_, false) => Type::U16,
        };
        if wide.bits() == ty.bits()
            && matches!(src, Operand::Reg(reg) if self.names.ty(reg).bits() == ty.bits())
        {
            self.emit(Inst::Move { ty: ty.untyped(), dst, src });
        } else if wide.bits() == ty.bits() {
            // Only the low bits of a wider register are moved.
            let from = match src {
                Operand::Reg(reg) if self.names.ty(reg).bits() == 64 => Type::U64,
                _ => Type::U32,
            };
            self.emit(Inst::Convert { from, to: ty, dst, src });
        } else {
            self.emit(Inst::Convert { from: ty, to: wide, dst, src });
        }
        Ok(())
    }
}
