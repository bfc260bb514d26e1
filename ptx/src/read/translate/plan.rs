//! What is known about a program after it was translated once: its registers, and which of them are constants.

use std::collections::{HashMap, HashSet};

use super::super::syntax::{Function as Kernel, Item};
use super::names::Names;
use crate::function::Statement;
use crate::inst::{Inst, Operand, Reg};
use crate::name::Name;
use crate::types::Type;

/// What is known about a program.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// Whether the program was translated once.
    pub(super) known: bool,
    /// The registers that are used, by name.
    pub(super) numbers: HashMap<Name, Reg>,
    /// The type of each register.
    pub(super) types: Vec<Type>,
    /// The name of each register.
    pub(super) names: Vec<Name>,
    /// Whether the program needs its names: they are not those that the printer gives.
    pub(super) named: bool,
    /// The number that a register holds wherever it is read, if one instruction writes it, with a constant.
    pub(super) constants: HashMap<Name, u64>,
}

impl Plan {
    /// What is known about a program, given its registers and its statements.
    pub(super) fn new(kernel: &Kernel<'_>, names: &Names<'_>, body: &[Statement]) -> Self {
        let used = used(body);
        let used = || {
            (0u32..)
                .zip(names.names.iter().zip(&names.types))
                .filter(|(index, _)| used.contains(&Reg(*index)))
        };
        let constants = constants(names, body);
        let all: Vec<(&Name, Type)> = used().map(|(_, (name, ty))| (name, *ty)).collect();
        if let Some(types) = printed(kernel, &all) {
            let number = |name: &Name| name.get(2..)?.parse().ok().map(Reg);
            let numbers = all.iter().filter_map(|(name, _)| Some(((*name).clone(), number(name)?))).collect();
            let names =
                (0..types.len()).zip(&types).map(|(index, ty)| format!("%{}{index}", ty.class()).into());
            let names = names.collect();
            return Self { known: true, numbers, types, names, named: false, constants };
        }
        let numbers = (0u32..).zip(&all).map(|(index, (name, _))| ((*name).clone(), Reg(index))).collect();
        let (names, types) = all.into_iter().map(|(name, ty)| (name.clone(), ty)).unzip();
        Self { known: true, numbers, types, names, named: true, constants }
    }
}

/// The registers that statements read or write.
fn used(body: &[Statement]) -> HashSet<Reg> {
    let writes = |inst: &Inst| inst.operands().writes.into_iter().map(|(reg, _)| reg);
    let mut used: HashSet<Reg> = Statement::instructions(body).into_iter().flat_map(writes).collect();
    each_read(body, &mut |operand| {
        if let Operand::Reg(reg) = operand {
            used.insert(reg);
        }
    });
    used
}

/// Goes through the operands that statements read, those of guards among them.
pub(super) fn each_read(body: &[Statement], read: &mut dyn FnMut(Operand)) {
    for statement in Statement::all(body) {
        match statement {
            Statement::Inst { inst, .. } => {
                inst.operands().reads.iter().for_each(|&(operand, _)| read(operand));
            }
            Statement::If { cond, .. } | Statement::Break { cond, .. } => read(*cond),
            Statement::Branch { guard, .. } | Statement::Exit { guard, .. } => {
                guard.iter().for_each(|guard| read(guard.cond));
            }
            Statement::Label(_) | Statement::Loop { .. } | Statement::Scope { .. } => {}
        }
    }
}

/// The registers that one instruction of the whole program writes, and which it gives a number.
fn constants(names: &Names<'_>, body: &[Statement]) -> HashMap<Name, u64> {
    let mut values: HashMap<Reg, Option<u64>> = HashMap::new();
    for inst in Statement::instructions(body) {
        let number = match inst {
            Inst::Move { src: Operand::Imm(bits), .. } => Some(*bits),
            _ => None,
        };
        for (reg, _) in inst.operands().writes {
            values.entry(reg).and_modify(|value| *value = None).or_insert(number);
        }
    }
    let named = values.into_iter();
    named.filter_map(|(reg, value)| Some((names.names.get(reg.0 as usize)?.clone(), value?))).collect()
}

/// The types of all registers of a text that the printer wrote: each register is named by a letter of its type and a number of its own,
/// and a declaration ends with the last register of its letter. `None` for other texts.
fn printed(kernel: &Kernel<'_>, used: &[(&Name, Type)]) -> Option<Vec<Type>> {
    const DECLARED: [(&str, Type); 6] = [
        ("%p", Type::Pred),
        ("%h", Type::B16),
        ("%r", Type::B32),
        ("%f", Type::F32),
        ("%d", Type::B64),
        ("%e", Type::F64),
    ];
    let mut types: Vec<Option<Type>> = Vec::new();
    let mut put = |index: usize, ty: Type| {
        if index >= types.len() {
            types.resize(index + 1, None);
        }
        let before = types.get_mut(index)?.replace(ty);
        before.is_none_or(|before| before == ty).then_some(())
    };
    for item in kernel.body.as_deref()? {
        let Item::Registers(registers) = item else { continue };
        for (name, count) in &registers.names {
            let (_, ty) = DECLARED.iter().find(|(prefix, _)| *prefix == name.text)?;
            let last = usize::try_from((*count)?.checked_sub(1)?).ok().filter(|&last| last < 1 << 20)?;
            put(last, *ty)?;
        }
    }
    let mut seen = HashSet::new();
    for (name, ty) in used {
        let number = name.strip_prefix('%')?.strip_prefix(ty.class())?;
        let index = number.parse::<usize>().ok().filter(|index| index.to_string() == number)?;
        if !seen.insert(index) {
            return None;
        }
        put(index, *ty)?;
    }
    // The others are not used: they stand before the last register, whose letter says nothing about them.
    let last = types.last().copied().flatten();
    types.into_iter().map(|ty| ty.or(last)).collect()
}
