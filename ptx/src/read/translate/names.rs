//! Names of a function: registers, labels and variables, in blocks inside of each other.

use std::collections::{HashMap, HashSet};

use super::super::error::{At, Read};
use super::super::syntax::{Name as Word, Registers};
use super::form::scalar;
use super::plan::Plan;
use crate::inst::Reg;
use crate::name::Name;
use crate::types::Type;

/// What a name stands for.
#[derive(Clone, Debug)]
pub(super) enum Meaning<'t> {
    Register(Reg),
    /// A vector of registers: `.x`, `.y` and so on.
    Vector(Vec<Reg>),
    Label(Name),
    /// A list of labels, for `brx.idx`.
    Targets(Vec<Word<'t>>),
    /// Shared memory, so many bytes after its beginning.
    Shared(u32),
    /// Local memory, so many bytes after its beginning.
    Local(u32),
    /// A parameter of the kernel.
    Param(u32),
    /// A variable in global or constant memory: the parameter that is its address.
    Global(u32),
    /// A parameter of a call, in registers: the number of its cells.
    Cells(usize),
}

/// The names of one block.
#[derive(Debug, Default)]
struct Scope<'t> {
    known: HashMap<&'t str, Meaning<'t>>,
    /// Names with numbers: the number of registers, their type.
    ranges: HashMap<&'t str, (u64, Type)>,
    /// Registers that have not been used yet.
    declared: HashMap<&'t str, Type>,
    /// Whether names of outer blocks are hidden, except those of the module: the body of a called function.
    closed: bool,
}

/// All names, and the registers that they stand for.
#[derive(Debug, Default)]
pub(super) struct Names<'t> {
    /// The module's, then those of the open blocks, innermost last.
    scopes: Vec<Scope<'t>>,
    /// The type of each register.
    pub(super) types: Vec<Type>,
    /// The name of each register.
    pub(super) names: Vec<Name>,
    /// The numbers that registers have, by name.
    numbers: HashMap<Name, Reg>,
    /// Names that are used in the program that is made.
    used: HashSet<String>,
    /// Number of registers that the text does not have.
    extra: u32,
}

/// The names of the elements of a vector.
pub(super) const COMPONENTS: [&str; 4] = ["x", "y", "z", "w"];

/// More registers than a function can use in practice, so that a wrong number is no use of memory.
const MOST: usize = 1 << 20;

impl<'t> Names<'t> {
    /// No names, and the registers that the program is known to have.
    pub(super) fn new(plan: &Plan) -> Self {
        let Plan { types, names, numbers, .. } = plan;
        Self { types: types.clone(), names: names.clone(), numbers: numbers.clone(), ..Self::default() }
    }

    pub(super) fn open(&mut self) {
        self.scopes.push(Scope::default());
    }

    /// Opens the body of a called function.
    pub(super) fn open_closed(&mut self) {
        self.scopes.push(Scope { closed: true, ..Scope::default() });
    }

    pub(super) fn close(&mut self) {
        self.scopes.pop();
    }

    /// Gives a name of the innermost block its meaning.
    pub(super) fn define(&mut self, name: Word<'t>, meaning: Meaning<'t>) -> Read<()> {
        let Some(scope) = self.scopes.last_mut() else { return Ok(()) };
        if scope.declared.contains_key(name.text) || scope.known.insert(name.text, meaning).is_some() {
            return name.at.wrong(format!("`{}` is declared twice in this block", name.text));
        }
        Ok(())
    }

    /// Declares registers in the innermost block.
    pub(super) fn declare(&mut self, registers: &Registers<'t>) -> Read<()> {
        let ty = register_type(registers.ty)?;
        if registers.vector > 1 {
            return self.declare_vectors(registers, ty);
        }
        for &(name, count) in &registers.names {
            let Some(scope) = self.scopes.last_mut() else { return Ok(()) };
            let again = match count {
                Some(count) => scope.ranges.insert(name.text, (count, ty)).is_some(),
                None => scope.known.contains_key(name.text) || scope.declared.insert(name.text, ty).is_some(),
            };
            if again {
                return name.at.wrong(format!("`{}` is declared twice in this block", name.text));
            }
        }
        Ok(())
    }

    fn declare_vectors(&mut self, registers: &Registers<'t>, ty: Type) -> Read<()> {
        for &(name, count) in &registers.names {
            if count.is_some() {
                return name.at.wrong("vectors of registers with numbers are not read");
            }
            let elements = COMPONENTS.iter().take(registers.vector);
            let elements = elements.map(|component| self.named(&format!("{}_{component}", name.text), ty));
            let elements = elements.collect::<Read<Vec<_>>>()?;
            self.define(name, Meaning::Vector(elements))?;
        }
        Ok(())
    }

    /// The meaning of a name, if there is one.
    pub(super) fn find(&mut self, name: &'t str) -> Read<Option<Meaning<'t>>> {
        let mut index = self.scopes.len();
        while let Some(scope) = self.scopes.get(index.wrapping_sub(1)) {
            index -= 1;
            if let Some(meaning) = scope.known.get(name) {
                return Ok(Some(meaning.clone()));
            }
            let ty = scope.declared.get(name).copied().or_else(|| in_range(scope, name));
            if let Some(ty) = ty {
                let reg = self.named(name, ty)?;
                if let Some(scope) = self.scopes.get_mut(index) {
                    scope.declared.remove(name);
                    scope.known.insert(name, Meaning::Register(reg));
                }
                return Ok(Some(Meaning::Register(reg)));
            }
            if scope.closed {
                index = index.min(1);
            }
        }
        Ok(None)
    }

    /// A name that is not used yet and begins so.
    pub(super) fn unique(&mut self, name: &str) -> Name {
        let mut unique = name.to_owned();
        let mut number = 0u32;
        while !self.used.insert(unique.clone()) {
            number += 1;
            unique = format!("{name}_{number}");
        }
        unique.into()
    }

    fn named(&mut self, name: &str, ty: Type) -> Read<Reg> {
        if self.types.len() >= MOST {
            return At::default().wrong(format!("more than {MOST} registers"));
        }
        let name = self.unique(name);
        if let Some(&reg) = self.numbers.get(&name) {
            return Ok(reg);
        }
        let reg = Reg(u32::try_from(self.types.len()).unwrap_or(u32::MAX));
        self.types.push(ty);
        self.names.push(name);
        Ok(reg)
    }

    /// A register that the text does not have.
    pub(super) fn fresh(&mut self, ty: Type) -> Read<Reg> {
        self.extra += 1;
        self.named(&format!("%t{}", self.extra), ty)
    }

    /// The type of a register.
    pub(super) fn ty(&self, reg: Reg) -> Type {
        self.types.get(reg.0 as usize).copied().unwrap_or(Type::Pred)
    }

    /// The name of a register in the program that is made.
    pub(super) fn name(&self, reg: Reg) -> &str {
        self.names.get(reg.0 as usize).map_or("", |name| name)
    }
}

/// The type of a register of a range: `%r7` of `%r<8>`.
fn in_range(scope: &Scope<'_>, name: &str) -> Option<Type> {
    let prefix = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let number = name.get(prefix.len()..)?;
    // The prefix of a range may itself end with digits.
    (prefix.len()..name.len()).find_map(|end| {
        let (count, ty) = scope.ranges.get(name.get(..end)?)?;
        let number = number.get(end - prefix.len()..)?;
        let plain = number == "0" || !number.starts_with('0');
        (plain && number.parse::<u64>().ok()? < *count).then_some(*ty)
    })
}

/// The type of a declared register. Integers hold any type of their width.
fn register_type(ty: Word<'_>) -> Read<Type> {
    Ok(match ty.text {
        "b8" | "u8" | "s8" => Type::B8,
        "f16x2" | "bf16x2" | "tf32" | "u16x2" | "s16x2" => Type::B32,
        "e4m3x2" | "e5m2x2" => Type::B16,
        word => match scalar(word) {
            Some(ty @ (Type::Pred | Type::F32 | Type::F64)) => ty,
            Some(ty) => ty.untyped(),
            None => return ty.at.wrong(format!("registers of type `.{word}` are not read")),
        },
    })
}
