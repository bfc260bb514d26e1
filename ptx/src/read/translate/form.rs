//! The modifiers and operands of an instruction that have not been understood yet.
//!
//! What is left at the end is a mistake: nothing of an instruction is passed over in silence.

use super::super::error::{At, Read};
use super::super::lex::Number;
use super::super::syntax::{Instruction, Operand, OperandKind};
use crate::types::Type;

/// What is left of an instruction.
pub(super) struct Form<'i, 't> {
    pub(super) at: At,
    inst: &'i Instruction<'t>,
    modifiers: Vec<&'t str>,
    /// Number of operands that have been taken.
    taken: usize,
}

impl<'i, 't> Form<'i, 't> {
    pub(super) fn new(inst: &'i Instruction<'t>) -> Self {
        Self { at: inst.at, inst, modifiers: inst.modifiers.clone(), taken: 0 }
    }

    /// The instruction as it stands in the text, without operands.
    pub(super) fn spelled(&self) -> String {
        core::iter::once(self.inst.name)
            .chain(self.inst.modifiers.iter().copied())
            .collect::<Vec<_>>()
            .join(".")
    }

    pub(super) fn wrong<T>(&self, message: impl core::fmt::Display) -> Read<T> {
        self.at.wrong(format!("`{}`: {message}", self.spelled()))
    }

    // ---- modifiers ----

    /// Takes a modifier, wherever it stands.
    pub(super) fn takes(&mut self, modifier: &str) -> bool {
        let found = self.modifiers.iter().position(|&other| other == modifier);
        if let Some(index) = found {
            self.modifiers.remove(index);
        }
        found.is_some()
    }

    /// Takes modifiers that change nothing here: hints, and what states the default.
    pub(super) fn ignore(&mut self, modifiers: &[&str]) {
        self.modifiers.retain(|modifier| !modifiers.contains(modifier));
    }

    /// Takes modifiers that begin so.
    pub(super) fn ignore_prefix(&mut self, prefix: &str) -> bool {
        let before = self.modifiers.len();
        self.modifiers.retain(|modifier| !modifier.starts_with(prefix));
        self.modifiers.len() < before
    }

    /// Takes the first modifier if it is this one.
    pub(super) fn first(&mut self, modifier: &str) -> bool {
        let is = self.modifiers.first() == Some(&modifier);
        if is {
            self.modifiers.remove(0);
        }
        is
    }

    /// Takes the first modifiers if they are these.
    pub(super) fn first_ones(&mut self, modifiers: &[&str]) -> bool {
        let are = self.modifiers.starts_with(modifiers);
        if are {
            self.modifiers.drain(..modifiers.len());
        }
        are
    }

    /// Takes the first modifier that is in a table.
    pub(super) fn choose<T: Copy>(&mut self, table: &[(&str, T)]) -> Option<T> {
        let row = |modifier: &&str| table.iter().find(|row| row.0 == *modifier);
        let index = self.modifiers.iter().position(|modifier| row(modifier).is_some())?;
        let chosen = row(&self.modifiers[index]).map(|row| row.1);
        self.modifiers.remove(index);
        chosen
    }

    /// The same, where one of them is needed.
    pub(super) fn need<T: Copy>(&mut self, what: &str, table: &[(&str, T)]) -> Read<T> {
        match self.choose(table) {
            Some(chosen) => Ok(chosen),
            None => {
                let all: Vec<_> = table.iter().map(|row| format!(".{}", row.0)).collect();
                self.wrong(format!("{what} was needed: {}", all.join(", ")))
            }
        }
    }

    /// Takes the last modifier, which is a type.
    pub(super) fn last_type(&mut self) -> Read<Type> {
        let word = self.last_word()?;
        match scalar(word) {
            Some(ty) => Ok(ty),
            None => self.wrong(format!("`.{word}` is not a type that is known here")),
        }
    }

    /// Takes the last modifier.
    pub(super) fn last_word(&mut self) -> Read<&'t str> {
        match self.modifiers.pop() {
            Some(word) => Ok(word),
            None => self.wrong("a type was needed"),
        }
    }

    /// The last modifier.
    pub(super) fn peek_last(&self) -> &'t str {
        self.modifiers.last().copied().unwrap_or("")
    }

    /// Takes all modifiers that are left.
    pub(super) fn rest(&mut self) -> String {
        core::mem::take(&mut self.modifiers).join(".")
    }

    /// The modifiers that are left.
    pub(super) fn left(&self) -> &[&'t str] {
        &self.modifiers
    }

    // ---- operands ----

    /// Takes the next operand.
    pub(super) fn operand(&mut self) -> Read<&'i Operand<'t>> {
        let operand = self.inst.operands.get(self.taken);
        self.taken += 1;
        match operand {
            Some(operand) => Ok(operand),
            None => self.wrong(format!("{} operands, one more was needed", self.inst.operands.len())),
        }
    }

    /// Whether operands are left.
    pub(super) fn more(&self) -> bool {
        self.taken < self.inst.operands.len()
    }

    /// The next operand.
    pub(super) fn peek(&self) -> Option<&'i Operand<'t>> {
        self.inst.operands.get(self.taken)
    }

    /// The number of operands that are left.
    pub(super) fn count(&self) -> usize {
        self.inst.operands.len().saturating_sub(self.taken)
    }

    /// Takes the next operand, a number.
    pub(super) fn number(&mut self, what: &str) -> Read<i64> {
        let operand = self.operand()?;
        match operand.kind {
            OperandKind::Number(Number::Integer(value, negative)) => {
                let value = value.cast_signed();
                Ok(if negative { value.wrapping_neg() } else { value })
            }
            _ => operand.at.wrong(format!("`{}` needs {what} as a number here", self.spelled())),
        }
    }

    /// Takes the next operand, a number that is not negative.
    pub(super) fn count_of(&mut self, what: &str) -> Read<u32> {
        let at = self.peek().map_or(self.at, |operand| operand.at);
        let value = self.number(what)?;
        u32::try_from(value).or_else(|_| at.wrong(format!("{what} is {value}, not a number of 32 bits")))
    }

    /// Checks that nothing is left.
    pub(super) fn done(&self) -> Read<()> {
        if let Some(modifier) = self.modifiers.first() {
            return self.wrong(format!("`.{modifier}` is not known here"));
        }
        match self.peek() {
            Some(operand) => operand.at.wrong(format!("`{}` has an operand too many", self.spelled())),
            None => Ok(()),
        }
    }
}

/// The type with this suffix.
pub(super) fn scalar(word: &str) -> Option<Type> {
    Some(match word {
        "pred" => Type::Pred,
        "u8" => Type::U8,
        "s8" => Type::S8,
        "b8" => Type::B8,
        "u16" => Type::U16,
        "s16" => Type::S16,
        "b16" => Type::B16,
        "u32" => Type::U32,
        "s32" => Type::S32,
        "b32" => Type::B32,
        "u64" => Type::U64,
        "s64" => Type::S64,
        "b64" => Type::B64,
        "f16" => Type::F16,
        "bf16" => Type::Bf16,
        "f32" => Type::F32,
        "f64" => Type::F64,
        _ => return None,
    })
}
