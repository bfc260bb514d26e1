//! Operands of instructions: registers, numbers, special registers, addresses of variables.

use super::super::error::{At, Read};
use super::super::lex::Number;
use super::super::syntax::{Base, Operand as Word, OperandKind};
use super::Translator;
use super::form::Form;
use super::names::{COMPONENTS, Meaning};
use crate::inst::{Address, BinaryOp, Inst, Operand, Reg, Special, UnaryOp};
use crate::types::{Space, Type};

impl<'t> Translator<'_, 't> {
    // ---- registers ----

    /// The register of a name.
    pub(super) fn register(&mut self, name: &'t str, at: At) -> Read<Reg> {
        match self.names.find(name)? {
            Some(Meaning::Register(reg)) => Ok(reg),
            Some(_) => at.wrong(format!("`{name}` is not a register")),
            None => at.wrong(format!("`{name}` is not declared")),
        }
    }

    /// Checks that a register is one where `wanted` is needed.
    pub(super) fn fits(&self, reg: Reg, wanted: Type, at: At) -> Read<()> {
        let ty = self.names.ty(reg);
        if ty.fits(wanted) {
            return Ok(());
        }
        at.wrong(format!("`{}` is .{ty}, .{wanted} was needed", self.names.name(reg)))
    }

    fn holds(&self, reg: Reg, wanted: Type, at: At) -> Read<()> {
        let ty = self.names.ty(reg);
        if ty.holds(wanted) {
            return Ok(());
        }
        at.wrong(format!("`{}` is .{ty}, .{wanted} or a wider register was needed", self.names.name(reg)))
    }

    // ---- results ----

    /// The register that receives a result. What is thrown away (`_`) gets a register too.
    pub(super) fn dst(&mut self, form: &mut Form<'_, 't>, ty: Type) -> Read<Reg> {
        let word = form.operand()?;
        self.result(word, ty)
    }

    /// The same, where the register may be wider.
    pub(super) fn dst_extended(&mut self, form: &mut Form<'_, 't>, ty: Type) -> Read<Reg> {
        let word = form.operand()?;
        self.result_extended(word, ty)
    }

    pub(super) fn result(&mut self, word: &Word<'t>, ty: Type) -> Read<Reg> {
        match word.kind {
            OperandKind::Name("_") => self.names.fresh(ty.untyped()),
            OperandKind::Name(name) => {
                let reg = self.register(name, word.at)?;
                self.fits(reg, ty, word.at)?;
                Ok(reg)
            }
            OperandKind::Component(name, component) => {
                let Some(reg) = self.element(name, component)? else {
                    return word.at.wrong(format!("`{name}.{component}` is not an element of a vector"));
                };
                self.fits(reg, ty, word.at)?;
                Ok(reg)
            }
            _ => word.at.wrong("a register that receives a result was needed"),
        }
    }

    pub(super) fn result_extended(&mut self, word: &Word<'t>, ty: Type) -> Read<Reg> {
        match word.kind {
            OperandKind::Name(name) if name != "_" => {
                let reg = self.register(name, word.at)?;
                self.holds(reg, ty, word.at)?;
                Ok(reg)
            }
            _ => self.result(word, ty),
        }
    }

    /// An element of a vector of registers.
    fn element(&mut self, name: &'t str, component: &str) -> Read<Option<Reg>> {
        let index = COMPONENTS.iter().position(|known| *known == component);
        Ok(match (self.names.find(name)?, index) {
            (Some(Meaning::Vector(elements)), Some(index)) => elements.get(index).copied(),
            _ => None,
        })
    }

    /// Takes the next operand: several ones in braces, a vector of registers, or one without.
    pub(super) fn vector(&mut self, form: &mut Form<'_, 't>) -> Read<Vec<Word<'t>>> {
        let word = form.operand()?;
        if let OperandKind::Vector(elements) = &word.kind {
            return Ok(elements.clone());
        }
        if let OperandKind::Name(name) = word.kind
            && let Some(Meaning::Vector(elements)) = self.names.find(name)?
        {
            let components = COMPONENTS.iter().take(elements.len());
            let kinds = components.map(|component| OperandKind::Component(name, component));
            return Ok(kinds.map(|kind| Word { at: word.at, kind }).collect());
        }
        Ok(vec![word.clone()])
    }

    /// A result and a predicate: `d|p`, or `d` alone.
    pub(super) fn dst_pair(&mut self, form: &mut Form<'_, 't>, ty: Type) -> Read<(Reg, Option<Reg>)> {
        let word = form.operand()?;
        let OperandKind::Pair(first, second) = word.kind else { return Ok((self.result(word, ty)?, None)) };
        let [first, second] = [first, second].map(|name| Word { at: word.at, kind: OperandKind::Name(name) });
        Ok((self.result(&first, ty)?, Some(self.result(&second, Type::Pred)?)))
    }

    // ---- sources ----

    /// A source of this type.
    pub(super) fn src(&mut self, form: &mut Form<'_, 't>, ty: Type) -> Read<Operand> {
        let word = form.operand()?;
        self.source(word, ty)
    }

    /// Sources of one type.
    pub(super) fn srcs<const N: usize>(&mut self, form: &mut Form<'_, 't>, ty: Type) -> Read<[Operand; N]> {
        let mut all = [Operand::Imm(0); N];
        for one in &mut all {
            *one = self.src(form, ty)?;
        }
        Ok(all)
    }

    /// A source of this type, which may be the low bits of a register.
    pub(super) fn src_low(&mut self, form: &mut Form<'_, 't>, ty: Type) -> Read<Operand> {
        let word = form.operand()?;
        self.source_low(word, ty)
    }

    pub(super) fn source_low(&mut self, word: &Word<'t>, ty: Type) -> Read<Operand> {
        if let OperandKind::Name(name) = word.kind
            && let Some(Meaning::Register(reg)) = self.names.find(name)?
        {
            self.holds(reg, ty, word.at)?;
            return Ok(Operand::Reg(reg));
        }
        self.source(word, ty)
    }

    pub(super) fn source(&mut self, word: &Word<'t>, ty: Type) -> Read<Operand> {
        let at = word.at;
        match word.kind {
            OperandKind::Number(number) => Ok(Operand::Imm(immediate(number, ty, at)?)),
            OperandKind::Name("WARP_SZ") => Ok(Operand::Imm(32)),
            OperandKind::Name(name) => match self.names.find(name)? {
                Some(Meaning::Register(reg)) => {
                    self.fits(reg, ty, at)?;
                    Ok(Operand::Reg(reg))
                }
                Some(_) => self.address_of(name, 0, ty, at).map(Operand::Reg),
                None => self.special((name, None), ty, at),
            },
            OperandKind::Component(name, component) => match self.element(name, component)? {
                Some(reg) => {
                    self.fits(reg, ty, at)?;
                    Ok(Operand::Reg(reg))
                }
                None => self.special((name, Some(component)), ty, at),
            },
            OperandKind::Offset(name, offset) => self.address_of(name, offset, ty, at).map(Operand::Reg),
            OperandKind::Not(name) if ty == Type::Pred => {
                let a = Operand::Reg(self.register(name, at)?);
                let dst = self.names.fresh(Type::Pred)?;
                self.emit(Inst::Unary { op: UnaryOp::Not, ty, dst, a });
                Ok(Operand::Reg(dst))
            }
            OperandKind::Not(_)
            | OperandKind::Address { .. }
            | OperandKind::Vector(_)
            | OperandKind::List(_)
            | OperandKind::Pair(..) => at.wrong(format!("a .{ty} was needed: a register or a number")),
        }
    }

    /// The special register of a name.
    fn special(&mut self, (name, component): (&str, Option<&str>), ty: Type, at: At) -> Read<Operand> {
        let spelled = component.map_or(name.to_owned(), |component| format!("{name}.{component}"));
        if let Some(half) = self.half_of_special(&spelled, ty)? {
            return Ok(half);
        }
        let Some(special) = special(&spelled) else {
            return at.wrong(format!("`{spelled}` is not declared, nor a special register that is read"));
        };
        let of = special.ty();
        let wide = self.names.fresh(of.untyped())?;
        self.emit(Inst::ReadSpecial { dst: wide, special });
        if of.bits() == ty.bits() {
            return Ok(Operand::Reg(wide));
        }
        // Special registers were once half as wide; such reads get the low bits.
        let dst = self.names.fresh(ty.untyped())?;
        self.emit(Inst::Convert { from: of, to: unsigned(ty), dst, src: Operand::Reg(wide) });
        Ok(Operand::Reg(dst))
    }

    /// Special registers that are a half of another one, or known from the launch.
    fn half_of_special(&mut self, name: &str, ty: Type) -> Read<Option<Operand>> {
        let (special, high) = match name {
            "%clock_hi" => (Special::Clock64, true),
            "%globaltimer_lo" => (Special::GlobalTimer, false),
            "%globaltimer_hi" => (Special::GlobalTimer, true),
            "%is_explicit_cluster" if ty == Type::Pred => {
                return Ok(Some(Operand::Imm(self.in_clusters.into())));
            }
            _ => return Ok(None),
        };
        if ty.bits() != 32 {
            return Ok(None);
        }
        let wide = self.names.fresh(Type::B64)?;
        self.emit(Inst::ReadSpecial { dst: wide, special });
        let [low, top] = [self.names.fresh(Type::B32)?, self.names.fresh(Type::B32)?];
        self.emit(Inst::Split { ty: Type::B64, dst: vec![low, top], src: Operand::Reg(wide) });
        Ok(Some(Operand::Reg(if high { top } else { low })))
    }

    /// A number where PTX also takes a register that holds one. The first time that a program is translated, it is `guess`.
    pub(super) fn constant(&mut self, form: &mut Form<'_, 't>, what: &str, guess: u32) -> Read<u32> {
        let word = form.operand()?;
        let bits = match self.source(word, Type::U32)? {
            Operand::Imm(bits) => bits,
            Operand::Reg(reg) => {
                let known =
                    self.names.names.get(reg.0 as usize).and_then(|name| self.plan.constants.get(name));
                match known {
                    Some(&bits) => bits,
                    None if !self.plan.known => guess.into(),
                    None => {
                        return form.wrong(format!("{what} must be a number, or a register that holds one"));
                    }
                }
            }
        };
        Ok(u32::try_from(Type::U32.wrap(bits)).unwrap_or(u32::MAX))
    }

    // ---- addresses ----

    /// A register with the address of a variable, as one of its state space.
    pub(super) fn address_of(&mut self, name: &'t str, offset: i64, ty: Type, at: At) -> Read<Reg> {
        let meaning = self.names.find(name)?;
        let Some(meaning) = meaning else { return at.wrong(format!("`{name}` is not declared")) };
        let place = |start: u32| u32::try_from(i64::from(start).wrapping_add(offset)).ok();
        let outside = || at.wrong(format!("`{name}` {offset:+} is outside of its state space"));
        let (dst, width) = match meaning {
            Meaning::Shared(start) => {
                let Some(offset) = place(start) else { return outside() };
                let dst = self.names.fresh(Type::B32)?;
                self.emit(Inst::SharedBase { dst, offset });
                (dst, 32)
            }
            Meaning::Local(start) => {
                let Some(offset) = place(start) else { return outside() };
                let dst = self.names.fresh(Type::B64)?;
                self.emit(Inst::LocalBase { dst, offset });
                (dst, 64)
            }
            Meaning::Param(param) => {
                let Some(offset) = place(0) else { return outside() };
                let dst = self.names.fresh(Type::B64)?;
                self.emit(Inst::ParamAddress { generic: false, dst, param, offset });
                (dst, 64)
            }
            Meaning::Global(param) => {
                let base = self.names.fresh(Type::B64)?;
                self.emit(Inst::LoadParam { ty: Type::U64, dst: vec![base], param, offset: 0 });
                (self.plus(base, Type::U64, offset)?, 64)
            }
            Meaning::Register(reg) => {
                let width = self.names.ty(reg).bits();
                (self.plus(reg, if width == 64 { Type::U64 } else { Type::U32 }, offset)?, width)
            }
            Meaning::Vector(_) => return at.wrong(format!("`{name}` is a vector, one register was needed")),
            Meaning::Cells(_) => {
                return at.wrong(format!("the address of `{name}`, a parameter of a call, is not read"));
            }
            Meaning::Label(_) | Meaning::Targets(_) => {
                return at.wrong(format!("`{name}` is a label, not an operand"));
            }
        };
        self.as_wide(dst, width, ty, at)
    }

    /// The same address in a register as wide as a type.
    fn as_wide(&mut self, address: Reg, width: u32, ty: Type, at: At) -> Read<Reg> {
        let (from, to) = match (width, ty.bits()) {
            (from, to) if from == to => return Ok(address),
            (32, 64) => (Type::U32, Type::U64),
            (64, 32) => (Type::U64, Type::U32),
            (from, to) => return at.wrong(format!("an address of {from} bits where {to} are needed")),
        };
        let dst = self.names.fresh(to.untyped())?;
        self.emit(Inst::Convert { from, to, dst, src: Operand::Reg(address) });
        Ok(dst)
    }

    /// A register and a number.
    fn plus(&mut self, base: Reg, ty: Type, offset: i64) -> Read<Reg> {
        if offset == 0 {
            return Ok(base);
        }
        let dst = self.names.fresh(ty.untyped())?;
        let b = Operand::Imm(ty.wrap(offset.cast_unsigned()));
        self.emit(Inst::Binary { op: BinaryOp::Add, ty, dst, a: Operand::Reg(base), b });
        Ok(dst)
    }

    /// An address of a state space: `[base+offset]`.
    pub(super) fn address(&mut self, form: &mut Form<'_, 't>, space: Space) -> Read<Address> {
        let word = form.operand()?;
        self.address_in(word, space)
    }

    pub(super) fn address_in(&mut self, word: &Word<'t>, space: Space) -> Read<Address> {
        let OperandKind::Address { base, offset, coordinates: None } = &word.kind else {
            return word.at.wrong("an address in brackets was needed");
        };
        self.place(*base, *offset, space, word.at)
    }

    fn place(&mut self, base: Base<'t>, offset: i64, space: Space, at: At) -> Read<Address> {
        let ty = space.address_type();
        let name = match base {
            Base::Number(number) => {
                let far = i32::try_from(offset).is_err();
                let number = if far { number.wrapping_add_signed(offset) } else { number };
                let offset = i32::try_from(offset).unwrap_or(0);
                return Ok(Address { base: Operand::Imm(ty.wrap(number)), offset });
            }
            Base::Name(name) => name,
        };
        let Some(Meaning::Register(reg)) = self.names.find(name)? else {
            let base = Operand::Reg(self.variable_address(name, offset, space, at)?);
            return Ok(Address { base, offset: 0 });
        };
        let width = self.names.ty(reg).bits();
        match i32::try_from(offset) {
            // The sum of the wider base and the offset, not its low half, is the address.
            Ok(offset) if width == ty.bits() => Ok(Address { base: Operand::Reg(reg), offset }),
            _ => {
                let own = if width == 64 { Type::U64 } else { Type::U32 };
                let sum = self.plus(reg, own, offset)?;
                Ok(Address { base: Operand::Reg(self.as_wide(sum, width, ty, at)?), offset: 0 })
            }
        }
    }

    /// The address of a variable as one of `space`: of the variable's own, or a generic one.
    fn variable_address(&mut self, name: &'t str, offset: i64, space: Space, at: At) -> Read<Reg> {
        let own = match self.names.find(name)? {
            Some(Meaning::Shared(_)) => Space::Shared,
            Some(Meaning::Local(_)) => Space::Local,
            Some(Meaning::Param(_)) => Space::Param,
            Some(Meaning::Global(_)) => Space::Global,
            Some(_) => return at.wrong(format!("`{name}` is not a variable")),
            None => return at.wrong(format!("`{name}` is not declared")),
        };
        let address = self.address_of(name, offset, own.address_type(), at)?;
        let same = own == space || own == Space::Shared && space == Space::SharedCluster;
        if same {
            return Ok(address);
        }
        if space != Space::Generic {
            return at.wrong(format!("`{name}` is in .{}, not in .{}", own.name(), space.name()));
        }
        self.generic(address, own, at)
    }

    /// The generic address of an address of a state space.
    pub(super) fn generic(&mut self, address: Reg, space: Space, at: At) -> Read<Reg> {
        let wide = self.as_wide(address, self.names.ty(address).bits(), Type::U64, at)?;
        let dst = self.names.fresh(Type::B64)?;
        self.emit(Inst::ConvertAddress { space, to: false, dst, src: Operand::Reg(wide) });
        Ok(dst)
    }

    /// An address without an offset, for instructions that have none: what stands in brackets, or outside of them.
    pub(super) fn at(&mut self, form: &mut Form<'_, 't>, space: Space) -> Read<Operand> {
        let word = form.operand()?;
        self.at_of(word, space)
    }

    pub(super) fn at_of(&mut self, word: &Word<'t>, space: Space) -> Read<Operand> {
        let address = self.address_in(word, space)?;
        match (address.base, address.offset) {
            (base, 0) => Ok(base),
            (Operand::Reg(base), offset) => {
                self.plus(base, space.address_type(), offset.into()).map(Operand::Reg)
            }
            (Operand::Imm(base), offset) => {
                let ty = space.address_type();
                Ok(Operand::Imm(ty.wrap(base.wrapping_add_signed(offset.into()))))
            }
        }
    }

    /// The address in shared memory of a generic address.
    pub(super) fn shared_of_generic(&mut self, generic: Operand, at: At) -> Read<Operand> {
        let wide = self.names.fresh(Type::B64)?;
        self.emit(Inst::ConvertAddress { space: Space::Shared, to: true, dst: wide, src: generic });
        self.as_wide(wide, 64, Type::U32, at).map(Operand::Reg)
    }

    /// An address in shared memory, stated as one of a state space or generically (`None`).
    pub(super) fn at_shared(&mut self, form: &mut Form<'_, 't>, space: Option<Space>) -> Read<Operand> {
        let at = form.peek().map_or(form.at, |word| word.at);
        match space {
            Some(space) => self.at(form, space),
            None => {
                let generic = self.at(form, Space::Generic)?;
                self.shared_of_generic(generic, at)
            }
        }
    }
}

/// The special register with this name. `.x` to `.z` have their own.
fn special(name: &str) -> Option<Special> {
    Special::ALL.into_iter().find(|special| special.name() == name)
}

/// The unsigned integer of a width.
pub(super) fn unsigned(ty: Type) -> Type {
    match ty.bits() {
        1 => Type::Pred,
        8 => Type::U8,
        16 => Type::U16,
        32 => Type::U32,
        _ => Type::U64,
    }
}

/// The bits of a number of a type. Integers are cut to the width, as the assembler does.
fn immediate(number: Number, ty: Type, at: At) -> Read<u64> {
    match (number, ty) {
        (Number::Integer(value, _), Type::Pred) => Ok((value != 0).into()),
        (Number::Integer(..), Type::F32 | Type::F64) => {
            at.wrong(format!("an integer where a .{ty} is needed: `0f` or `0d` and its bits"))
        }
        (Number::Integer(value, negative), _) => {
            Ok(ty.wrap(if negative { value.wrapping_neg() } else { value }))
        }
        (Number::Single(bits), Type::F32 | Type::B32 | Type::U32 | Type::S32) => Ok(bits.into()),
        (Number::Single(bits), Type::F64 | Type::B64) => Ok(f64::from(f32::from_bits(bits)).to_bits()),
        (Number::Double(bits), Type::F64 | Type::B64 | Type::U64 | Type::S64) => Ok(bits),
        #[expect(clippy::cast_possible_truncation, reason = "a number of this type is rounded")]
        (Number::Double(bits), Type::F32 | Type::B32) => Ok((f64::from_bits(bits) as f32).to_bits().into()),
        (Number::Single(_) | Number::Double(_), _) => {
            at.wrong(format!("a floating-point number where a .{ty} is needed"))
        }
    }
}
