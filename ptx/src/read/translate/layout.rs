//! Where variables are: shared and local memory, global memory, the kernel's parameters.

use std::collections::{HashMap, HashSet};

use super::super::error::{At, Read};
use super::super::lex::Number;
use super::super::syntax::{
    Base, Function, Initial, Instruction, Item, Operand, OperandKind, Space, Text, Variable,
};
use crate::name::Name;
use crate::param;

/// Where the variables of a kernel are.
#[derive(Debug, Default)]
pub(super) struct Layout {
    /// Where each variable in shared or local memory begins, by the place of its declaration.
    offsets: HashMap<At, u32>,
    /// Bytes of shared memory before dynamic shared memory.
    pub(super) static_shared: u32,
    /// Bytes of local memory per thread.
    pub(super) local: u32,
    /// The variables in global and constant memory that are used, and the places of their declarations.
    pub(super) globals: Vec<(At, param::Variable)>,
}

/// Least alignment of dynamic shared memory after variables: where it begins is one place, here and in the printed text, whatever reaches
/// it from a variable before it.
const LEAST: u64 = 16;
/// More shared or local memory than there is, so that sums of sizes stay small.
const MOST: u64 = 1 << 30;

impl Layout {
    /// Lays out what a kernel uses: variables of the module that it or a function that it calls names, and those that they declare.
    pub(super) fn new<'t>(text: &Text<'t>, entry: &Function<'t>) -> Read<Self> {
        let used = used(text, entry);
        let mut layout = Self::default();
        let mut end = 0u64;
        let mut dynamic = LEAST;
        let functions = text.functions.iter().filter(|function| {
            core::ptr::eq(*function, entry) || !function.entry && used.contains(function.name.text)
        });
        let mut inner = Vec::new();
        functions.filter_map(|function| function.body.as_ref()).for_each(|body| declared(body, &mut inner));
        let outer = text.variables.iter().filter(|variable| used.contains(variable.name.text));
        for variable in outer.chain(inner) {
            let (alignment, bytes) = (alignment(variable)?, bytes(variable)?);
            match variable.space {
                Space::Shared if variable.external => dynamic = dynamic.max(alignment),
                Space::Shared => layout.place(variable, &mut end, alignment, bytes)?,
                Space::Local => {
                    let mut local = layout.local.into();
                    layout.place(variable, &mut local, alignment, bytes)?;
                    layout.local = u32::try_from(local).unwrap_or(u32::MAX);
                }
                Space::Global | Space::Constant => layout.global(variable, alignment, bytes)?,
                Space::Param | Space::Register => {}
            }
        }
        layout.static_shared = u32::try_from(end.next_multiple_of(dynamic)).unwrap_or(u32::MAX);
        Ok(layout)
    }

    /// Where a variable in shared or local memory begins.
    pub(super) fn offset(&self, variable: &Variable<'_>) -> u32 {
        let dynamic = variable.external && variable.space == Space::Shared;
        let placed = self.offsets.get(&variable.name.at).copied().unwrap_or(0);
        if dynamic { self.static_shared } else { placed }
    }

    fn place(&mut self, variable: &Variable<'_>, end: &mut u64, alignment: u64, bytes: u64) -> Read<()> {
        let start = end.next_multiple_of(alignment);
        *end = start + bytes;
        if *end > MOST {
            return variable.name.at.wrong(format!("`{}` needs {bytes} B of memory", variable.name.text));
        }
        self.offsets.insert(variable.name.at, u32::try_from(start).unwrap_or(u32::MAX));
        Ok(())
    }

    fn global(&mut self, variable: &Variable<'_>, alignment: u64, bytes: u64) -> Read<()> {
        let name = variable.name;
        if variable.external {
            return name.at.wrong(format!("`{}` is defined in another module", name.text));
        }
        if bytes > MOST {
            return name.at.wrong(format!("`{}` needs {bytes} B of memory", name.text));
        }
        let mut content = Vec::new();
        if let Some(initial) = &variable.initial {
            fill(initial, element(variable)?, &mut content)?;
        }
        content.resize(usize::try_from(bytes).unwrap_or(0), 0);
        self.globals.push((
            name.at,
            param::Variable {
                name: Name::from(name.text.to_owned()),
                content,
                alignment: u32::try_from(alignment).unwrap_or(1),
                constant: variable.space == Space::Constant,
            },
        ));
        Ok(())
    }
}

/// The names that a kernel uses, and those of the functions that it calls.
fn used<'t>(text: &Text<'t>, entry: &Function<'t>) -> HashSet<&'t str> {
    let mut used = HashSet::new();
    let mut open = vec![entry];
    let mut seen = HashSet::new();
    while let Some(function) = open.pop() {
        if let Some(body) = &function.body {
            body.iter().for_each(|item| item_names(item, &mut used));
        }
        let called = text.functions.iter().filter(|other| !other.entry && used.contains(other.name.text));
        open.extend(called.filter(|other| seen.insert(other.name.at)));
    }
    used
}

fn item_names<'t>(item: &Item<'t>, used: &mut HashSet<&'t str>) {
    match item {
        Item::Block(items) => items.iter().for_each(|item| item_names(item, used)),
        Item::Instruction(Instruction { operands, .. }) => {
            operands.iter().for_each(|operand| operand_names(operand, used));
        }
        Item::Registers(_)
        | Item::Variable(_)
        | Item::Label(_)
        | Item::Line(_)
        | Item::Targets { .. }
        | Item::Prototype => {}
    }
}

fn operand_names<'t>(operand: &Operand<'t>, used: &mut HashSet<&'t str>) {
    match &operand.kind {
        OperandKind::Name(name) | OperandKind::Offset(name, _) => _ = used.insert(name),
        OperandKind::Address { base: Base::Name(name), .. } => _ = used.insert(name),
        OperandKind::Vector(inner) | OperandKind::List(inner) => {
            inner.iter().for_each(|operand| operand_names(operand, used));
        }
        OperandKind::Address { base: Base::Number(_), .. }
        | OperandKind::Component(..)
        | OperandKind::Number(_)
        | OperandKind::Not(_)
        | OperandKind::Pair(..) => {}
    }
}

/// The variables that a body declares.
fn declared<'b, 't>(items: &'b [Item<'t>], variables: &mut Vec<&'b Variable<'t>>) {
    for item in items {
        match item {
            Item::Block(items) => declared(items, variables),
            Item::Variable(variable) => variables.push(variable),
            Item::Registers(_)
            | Item::Label(_)
            | Item::Line(_)
            | Item::Instruction(_)
            | Item::Targets { .. }
            | Item::Prototype => {}
        }
    }
}

/// Bytes of one element of a variable.
pub(super) fn element(variable: &Variable<'_>) -> Read<u64> {
    Ok(match variable.ty.text {
        "b8" | "u8" | "s8" => 1,
        "b16" | "u16" | "s16" | "f16" | "bf16" => 2,
        "b32" | "u32" | "s32" | "f32" | "f16x2" | "bf16x2" => 4,
        "b64" | "u64" | "s64" | "f64" => 8,
        "b128" => 16,
        other => return variable.ty.at.wrong(format!("variables of type `.{other}` are not read")),
    })
}

/// Bytes of a variable. One without an extent has none.
pub(super) fn bytes(variable: &Variable<'_>) -> Read<u64> {
    let count =
        variable.extents.iter().try_fold(1u64, |count, extent| count.checked_mul(extent.unwrap_or(0)));
    let bytes = element(variable)?.checked_mul(variable.vector).zip(count);
    match bytes.and_then(|(element, count)| element.checked_mul(count)) {
        Some(bytes) => Ok(bytes),
        None => variable.name.at.wrong(format!("the size of `{}` does not fit 64 bits", variable.name.text)),
    }
}

/// Alignment of a variable in bytes.
pub(super) fn alignment(variable: &Variable<'_>) -> Read<u64> {
    let alignment = match variable.align {
        Some(stated) => stated,
        None => element(variable)?.saturating_mul(variable.vector),
    };
    if alignment.is_power_of_two() && alignment <= 1 << 16 {
        Ok(alignment)
    } else {
        variable.name.at.wrong(format!("an alignment of {alignment} B, not a power of two up to 65536"))
    }
}

/// Appends a first value.
fn fill(initial: &Initial<'_>, element: u64, content: &mut Vec<u8>) -> Read<()> {
    let element = usize::try_from(element).unwrap_or(0);
    match initial {
        Initial::List(list) => list.iter().try_for_each(|inner| fill(inner, element as u64, content))?,
        Initial::Number(number, at) => {
            let bits = match (*number, element) {
                (Number::Integer(value, negative), _) => {
                    if negative {
                        value.wrapping_neg()
                    } else {
                        value
                    }
                }
                (Number::Single(bits), 4) => bits.into(),
                (Number::Single(bits), 8) => f64::from(f32::from_bits(bits)).to_bits(),
                (Number::Double(bits), 8) => bits,
                #[expect(clippy::cast_possible_truncation, reason = "the variable holds an f32")]
                (Number::Double(bits), 4) => (f64::from_bits(bits) as f32).to_bits().into(),
                (Number::Single(_) | Number::Double(_), _) => {
                    return at.wrong(format!("a floating-point number as the first value of {element} B"));
                }
            };
            let zeros = [0; 16];
            let bytes = bits.to_le_bytes().into_iter().chain(zeros).take(element);
            content.extend(bytes);
        }
        Initial::Address(name) => {
            return name.at.wrong(format!("`{}` as a first value: addresses are not read there", name.text));
        }
    }
    Ok(())
}
