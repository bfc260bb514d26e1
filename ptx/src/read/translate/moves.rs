//! Moves, also of the parts of registers and of addresses, and conversions of addresses.

use super::super::error::Read;
use super::super::syntax::{Operand as Word, OperandKind};
use super::Translator;
use super::form::Form;
use super::names::Meaning;
use crate::inst::{Inst, Operand, Reg, Special};
use crate::types::{Space, Type};

impl<'t> Translator<'_, 't> {
    pub(super) fn mov(&mut self, form: &mut Form<'_, 't>) -> Read<()> {
        let ty = form.last_type()?;
        let word = form.operand()?;
        if let OperandKind::Vector(parts) = &word.kind {
            return self.split(ty, parts, form);
        }
        let dst = self.result(word, ty)?;
        let Some(source) = form.peek() else { return form.operand().map(|_| ()) };
        match &source.kind {
            OperandKind::Vector(parts) => {
                form.operand()?;
                self.join(ty, dst, parts)
            }
            OperandKind::Name(name) => {
                form.operand()?;
                match self.names.find(name)? {
                    Some(Meaning::Register(reg)) => {
                        self.fits(reg, ty.untyped(), source.at)?;
                        self.emit(Inst::Move { ty, dst, src: Operand::Reg(reg) });
                        Ok(())
                    }
                    Some(_) => self.mov_address(name, 0, (ty, dst), source),
                    None => self.mov_special(name.to_string(), (ty, dst), source),
                }
            }
            OperandKind::Component(name, component) => {
                form.operand()?;
                if let Some(Meaning::Vector(_)) = self.names.find(name)? {
                    let src = self.source(source, ty.untyped())?;
                    self.emit(Inst::Move { ty, dst, src });
                    return Ok(());
                }
                self.mov_special(format!("{name}.{component}"), (ty, dst), source)
            }
            OperandKind::Offset(name, offset) => {
                form.operand()?;
                self.mov_address(name, *offset, (ty, dst), source)
            }
            OperandKind::Number(_)
            | OperandKind::Not(_)
            | OperandKind::Address { .. }
            | OperandKind::List(_)
            | OperandKind::Pair(..) => {
                let src = self.src(form, ty)?;
                self.emit(Inst::Move { ty, dst, src });
                Ok(())
            }
        }
    }

    /// A special register that is as wide as the result is read into it at once.
    fn mov_special(&mut self, name: String, (ty, dst): (Type, Reg), word: &Word<'t>) -> Read<()> {
        let special = Special::ALL.into_iter().find(|special| special.name() == name);
        match special {
            Some(special) if special.ty().bits() == ty.bits() => {
                self.emit(Inst::ReadSpecial { dst, special });
            }
            _ => {
                let src = self.source(word, ty)?;
                self.emit(Inst::Move { ty, dst, src });
            }
        }
        Ok(())
    }

    /// The address of a variable, which becomes that of the result at once where the program can state it.
    fn mov_address(
        &mut self,
        name: &'t str,
        offset: i64,
        (ty, dst): (Type, Reg),
        word: &Word<'t>,
    ) -> Read<()> {
        let meaning = self.names.find(name)?;
        let place = |start: u32| u32::try_from(i64::from(start).wrapping_add(offset)).ok();
        let (inst, width) = match meaning {
            Some(Meaning::Shared(start)) => (place(start).map(|offset| Inst::SharedBase { dst, offset }), 32),
            Some(Meaning::Local(start)) => (place(start).map(|offset| Inst::LocalBase { dst, offset }), 64),
            Some(Meaning::Param(param)) => {
                let inst = |offset| Inst::ParamAddress { generic: false, dst, param, offset };
                (place(0).map(inst), 64)
            }
            Some(Meaning::Global(param)) if offset == 0 => {
                (Some(Inst::LoadParam { ty: Type::U64, dst: vec![dst], param, offset: 0 }), 64)
            }
            _ => (None, 0),
        };
        match inst {
            Some(inst) if width == ty.bits() => self.emit(inst),
            _ => {
                let src = Operand::Reg(self.address_of(name, offset, ty, word.at)?);
                self.emit(Inst::Move { ty, dst, src });
            }
        }
        Ok(())
    }

    /// `mov {a, b}, c`: the parts of a register, the low one first.
    fn split(&mut self, ty: Type, parts: &[Word<'t>], form: &mut Form<'_, 't>) -> Read<()> {
        let part = Self::part(ty, parts.len(), form)?;
        let mut dst = Vec::new();
        for word in parts {
            dst.push(self.result(word, part)?);
        }
        let src = self.src(form, ty.untyped())?;
        match dst[..] {
            [low, high] if ty.bits() == 32 => self.emit(Inst::Unpack { low, high, src }),
            _ => self.emit(Inst::Split { ty: ty.untyped(), dst, src }),
        }
        Ok(())
    }

    /// `mov c, {a, b}`.
    fn join(&mut self, ty: Type, dst: Reg, parts: &[Word<'t>]) -> Read<()> {
        let bits = ty.bits() / u32::try_from(parts.len().max(1)).unwrap_or(u32::MAX);
        let part = match bits {
            8 => Type::B8,
            16 => Type::B16,
            32 => Type::B32,
            _ => return self.at.wrong(format!("{} parts of a register of {} bits", parts.len(), ty.bits())),
        };
        let src = parts.iter().map(|word| self.source(word, part)).collect::<Read<Vec<_>>>()?;
        if part.bits() as usize * src.len() != ty.bits() as usize {
            return self.at.wrong(format!("{} parts of a register of {} bits", parts.len(), ty.bits()));
        }
        self.emit(Inst::Join { ty: ty.untyped(), dst, src });
        Ok(())
    }

    fn part(ty: Type, count: usize, form: &Form<'_, '_>) -> Read<Type> {
        match (ty.bits(), count) {
            (64, 2) => Ok(Type::B32),
            (64, 4) | (32, 2) => Ok(Type::B16),
            (64, 8) | (32, 4) | (16, 2) => Ok(Type::B8),
            (bits, count) => form.wrong(format!("{count} parts of a register of {bits} bits")),
        }
    }

    // ---- addresses ----

    /// `cvta{.to}.<space>`.
    pub(super) fn cvta(&mut self, form: &mut Form<'_, 't>) -> Read<()> {
        let ty = form.last_type()?;
        let to = form.takes("to");
        let space = form.need("a state space", &SPACES)?;
        if ty.bits() != 64 {
            return form.wrong("generic addresses have 64 bits");
        }
        let dst = self.dst(form, Type::U64)?;
        let word = form.operand()?;
        let (name, offset) = match word.kind {
            OperandKind::Name(name) => (name, 0),
            OperandKind::Offset(name, offset) => (name, offset),
            _ => return self.cvta_of(word, (space, to), dst),
        };
        match self.names.find(name)? {
            // The program states the generic address of a parameter as it is.
            Some(Meaning::Param(param)) if space == Space::Param && !to => {
                let Ok(offset) = u32::try_from(offset) else {
                    return form.wrong("an offset before the parameter");
                };
                self.emit(Inst::ParamAddress { generic: true, dst, param, offset });
                Ok(())
            }
            _ => self.cvta_of(word, (space, to), dst),
        }
    }

    fn cvta_of(&mut self, word: &Word<'t>, (space, to): (Space, bool), dst: Reg) -> Read<()> {
        let src = self.source(word, Type::U64)?;
        self.emit(Inst::ConvertAddress { space, to, dst, src });
        Ok(())
    }

    /// `isspacep.<space>`.
    pub(super) fn isspacep(&mut self, form: &mut Form<'_, 't>) -> Read<()> {
        let space = form.need("a state space", &SPACES)?;
        let dst = self.dst(form, Type::Pred)?;
        let src = self.src(form, Type::U64)?;
        self.emit(Inst::IsSpace { space, dst, src });
        Ok(())
    }
}

/// The spaces of an address. Constants are in global memory here.
pub(super) const SPACES: [(&str, Space); 9] = [
    ("global", Space::Global),
    ("const", Space::Global),
    ("shared", Space::Shared),
    ("shared::cta", Space::Shared),
    ("shared::cluster", Space::SharedCluster),
    ("local", Space::Local),
    ("param", Space::Param),
    ("param::entry", Space::Param),
    ("param::func", Space::Param),
];
