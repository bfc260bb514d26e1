//! The arguments of operations by name. A table has a row for each argument: its names at the doors, what it is, when it is used, and where it
//! goes: into the request, or to memory that the kernel's interface names. Doors walk the rows, so that none lists the arguments again.

pub(crate) mod array;
pub(crate) mod attention;
pub(crate) mod gemm;
pub(crate) mod gemms;
pub(crate) mod input;
pub(crate) mod rows;

use core::fmt;

use falchion::kernel::Kernel;
use falchion::kernel::operands::Memory;

use crate::refusal::Refusal;
use crate::unused::refuse_unused;

/// The arguments of an operation: those that describe it, and those of a run.
#[derive(Debug)]
pub struct Operation<D: 'static, G: 'static> {
    /// The name of Python's function.
    pub name: &'static str,
    /// What describes it.
    pub described: &'static Structure<D>,
    /// What a run is given.
    pub given: &'static Structure<G>,
    /// Fields of the description that this operation does not have: C's name, Python's, and the reason.
    pub without: &'static [(&'static str, &'static str, &'static str)],
}

impl<D, G> Operation<D, G> {
    /// The arguments of Python's function: those by position first, in their order.
    pub fn python(&self) -> impl Iterator<Item = Python> {
        let known = |python: &Python| {
            let name = python.name();
            name.is_some() && !self.without.iter().any(|(_, without, _)| name == Some(*without))
        };
        self.given.python().chain(self.described.python()).filter(known)
    }
}

/// A structure of the interface for C, in the order of its fields.
#[derive(Debug)]
pub struct Structure<T: 'static> {
    /// Its name in C.
    pub name: &'static str,
    /// Its fields.
    pub fields: &'static [Argument<T>],
    /// The first field that its first version did not have; empty if that is the only one.
    pub later: &'static str,
}

/// An argument.
#[derive(Debug)]
pub struct Argument<T: 'static> {
    /// Its field in C.
    pub c: &'static str,
    /// What it is in C.
    pub kind: Kind,
    /// Its name in Python.
    pub python: Python,
    /// Why what the rest says does not use it; `None` if it does.
    pub unused: fn(&T) -> Option<&'static str>,
    /// What is needed, if it must be given.
    pub needed: Option<&'static str>,
    /// Where it goes.
    pub goes: Goes<T>,
}

/// What a field of a structure is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A whole number of 32 bits.
    Whole,
    /// One of 64 bits, or a size.
    Long,
    /// A whole number of 32 bits with a sign.
    Signed,
    /// A number in `f32`.
    Single,
    /// A number in `f64`.
    Double,
    /// A text, or nothing.
    Text,
    /// An address.
    Address,
}

impl Kind {
    /// Its bytes, of which its address is a multiple.
    pub const fn bytes(self) -> usize {
        match self {
            Self::Whole | Self::Signed | Self::Single => 4,
            Self::Long | Self::Double | Self::Text | Self::Address => 8,
        }
    }
}

/// The name of an argument in Python, and how it is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Python {
    /// Python has none.
    No,
    /// By position or by name, and needed.
    Needed(&'static str),
    /// By position or by name.
    Positional(&'static str),
    /// By name.
    Keyword(&'static str),
}

impl Python {
    /// The name.
    pub const fn name(self) -> Option<&'static str> {
        match self {
            Self::No => None,
            Self::Needed(name) | Self::Positional(name) | Self::Keyword(name) => Some(name),
        }
    }
}

/// Where an argument goes.
#[derive(Debug)]
pub enum Goes<T: 'static> {
    /// A value that the operation is told.
    Said(fn(&mut T, Value<'_>) -> Result<(), Refusal>),
    /// Switches, each a bit of a number.
    Switches(&'static [Switch<T>]),
    /// The address of memory that the kernel's interface has by one of these names.
    Memory(&'static [&'static str]),
    /// The doors' own: what they do with it.
    Own(&'static str),
    /// Zero: room for later versions.
    Zero,
}

/// A switch of an operation.
#[derive(Debug)]
pub struct Switch<T: 'static> {
    /// The constant in C.
    pub c: &'static str,
    /// Its bit.
    pub bit: u32,
    /// Its name in Python.
    pub python: Python,
    /// Turns it on.
    pub set: fn(&mut T),
}

/// The value of an argument.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    /// A whole number.
    Whole(u64),
    /// A whole number that may be below zero.
    Signed(i32),
    /// A number.
    Real(f64),
    /// A text.
    Text(&'a str),
    /// An address.
    Address(u64),
    /// Nothing where a text may be.
    Nothing,
}

impl fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole(number) => number.fmt(f),
            Self::Signed(number) => number.fmt(f),
            Self::Real(number) => number.fmt(f),
            Self::Text(text) => write!(f, "\"{text}\""),
            Self::Address(address) => write!(f, "{address:#x}"),
            Self::Nothing => f.write_str("NULL"),
        }
    }
}

impl<'a> Value<'a> {
    /// Whether it says anything: in C, what is not given is zero.
    pub fn is_given(self) -> bool {
        match self {
            Self::Whole(number) | Self::Address(number) => number != 0,
            Self::Signed(number) => number != 0,
            Self::Real(number) => number != 0.0,
            Self::Text(_) => true,
            Self::Nothing => false,
        }
    }

    /// The whole number; the largest if it has more bits.
    pub(crate) fn whole(self) -> u32 {
        u32::try_from(self.long()).unwrap_or(u32::MAX)
    }

    pub(crate) fn long(self) -> u64 {
        if let Self::Whole(number) = self { number } else { 0 }
    }

    pub(crate) fn signed(self) -> i32 {
        if let Self::Signed(number) = self { number } else { 0 }
    }

    pub(crate) fn address(self) -> u64 {
        if let Self::Address(address) = self { address } else { 0 }
    }

    pub(crate) fn real(self) -> f64 {
        if let Self::Real(number) = self { number } else { 0.0 }
    }

    pub(crate) fn text(self) -> &'a str {
        if let Self::Text(text) = self { text } else { "" }
    }

    /// What is needed where an argument is not used.
    const fn nothing(self) -> &'static str {
        match self {
            Self::Text(_) | Self::Address(_) | Self::Nothing => "NULL",
            Self::Whole(_) | Self::Signed(_) | Self::Real(_) => "0",
        }
    }
}

/// Shorthands for rows.
impl<T> Argument<T> {
    /// A field that goes somewhere, and is always used.
    pub(crate) const fn new(c: &'static str, kind: Kind, goes: Goes<T>) -> Self {
        Self { c, kind, python: Python::No, unused: always, needed: None, goes }
    }

    /// A value that the operation is told.
    pub(crate) const fn said(
        c: &'static str,
        kind: Kind,
        set: fn(&mut T, Value<'_>) -> Result<(), Refusal>,
    ) -> Self {
        Self::new(c, kind, Goes::Said(set))
    }

    /// The address of memory of the kernel's interface.
    pub(crate) const fn memory(c: &'static str, names: &'static [&'static str]) -> Self {
        Self::new(c, Kind::Address, Goes::Memory(names))
    }

    /// The doors' own.
    pub(crate) const fn own(c: &'static str, kind: Kind, what: &'static str) -> Self {
        Self::new(c, kind, Goes::Own(what))
    }

    /// Room for later versions.
    pub(crate) const fn zero(c: &'static str) -> Self {
        Self::new(c, Kind::Whole, Goes::Zero)
    }

    /// With a name in Python.
    pub(crate) const fn python(self, python: Python) -> Self {
        Self { python, ..self }
    }

    /// That must be given.
    pub(crate) const fn needed(self, words: &'static str) -> Self {
        Self { needed: Some(words), ..self }
    }

    /// Not used where there is a reason.
    pub(crate) const fn unless(self, unused: fn(&T) -> Option<&'static str>) -> Self {
        Self { unused, ..self }
    }
}

fn always<T>(_: &T) -> Option<&'static str> {
    None
}

impl<T> Structure<T> {
    /// The fields with their offsets, and the size of the structure, as C lays it out.
    pub fn laid_out(&self) -> (impl Iterator<Item = (usize, &'static Argument<T>)> + use<T>, usize) {
        let place = |end: &mut usize, field: &'static Argument<T>| {
            let bytes = field.kind.bytes();
            let offset = end.next_multiple_of(bytes);
            *end = offset + bytes;
            Some((offset, field))
        };
        let all = self.fields.iter().scan(0, place);
        let size = all.clone().last().map_or(0, |(offset, field)| offset + field.kind.bytes());
        (all, size.next_multiple_of(8))
    }

    /// The names of its fields and switches in Python. One of several elements stands for each of them.
    fn python(&self) -> impl Iterator<Item = Python> {
        self.fields.iter().flat_map(|field| {
            let switches = if let Goes::Switches(all) = field.goes { all } else { &[] };
            core::iter::once(field.python).chain(switches.iter().map(|switch| switch.python))
        })
    }

    /// The name in Python of the argument that is memory of the kernel's interface.
    pub fn argument(&self, memory: &str) -> Option<&'static str> {
        let is = |goes: &Goes<T>| matches!(goes, Goes::Memory(names) if names.contains(&memory));
        self.fields.iter().find(|field| is(&field.goes)).and_then(|field| field.python.name())
    }

    /// Where a field is; the size of the structure for a name of none.
    pub fn offset(&self, name: &str) -> usize {
        let (mut all, size) = self.laid_out();
        all.find(|(_, field)| field.c == name).map_or(size, |(offset, _)| offset)
    }

    /// Says the given values, one per field: sets what the operation is told, and returns the addresses with the field and the memory of
    /// each. What is given and not used is refused, and so is what this operation is without.
    ///
    /// # Errors
    /// The first argument that is wrong, by its field, with its value and what was needed.
    pub fn say<'a>(
        &self,
        of: &mut T,
        values: &[Value<'a>],
        without: &[(&str, &str, &str)],
    ) -> Result<Vec<Placed>, Refusal> {
        let mut memory = Vec::new();
        for (field, value) in self.fields.iter().zip(values) {
            if let Some(needed) = field.needed.filter(|_| !value.is_given()) {
                let words = format!("{} is {}, {needed} was needed", field.c, value.nothing());
                return Err(Refusal::Invalid(words));
            }
        }
        let given = || self.fields.iter().zip(values).filter(|(_, value)| value.is_given());
        for (field, &value) in given() {
            let why = without.iter().find(|(name, ..)| *name == field.c).map(|(.., why)| *why);
            refuse_unused(field.c, value, true, why, value.nothing())?;
            match field.goes {
                Goes::Said(set) => set(of, value)?,
                Goes::Switches(all) => switched(all, of, (field.c, value.whole()), without)?,
                Goes::Memory(names) => {
                    memory.push(Placed { field: field.c, names, address: value.address() })
                }
                Goes::Own(_) => {}
                Goes::Zero => {
                    let why = Some("no version has a meaning for it");
                    refuse_unused(field.c, value, true, why, value.nothing())?;
                }
            }
        }
        for (field, &value) in given() {
            refuse_unused(field.c, value, true, (field.unused)(of), value.nothing())?;
        }
        Ok(memory)
    }
}

/// Turns switches on.
fn switched<T>(
    all: &[Switch<T>],
    of: &mut T,
    (field, bits): (&str, u32),
    without: &[(&str, &str, &str)],
) -> Result<(), Refusal> {
    let known = || all.iter().filter(|switch| !without.iter().any(|(name, ..)| *name == switch.c));
    let mut rest = bits;
    for switch in known().filter(|switch| bits & switch.bit != 0) {
        rest &= !switch.bit;
        (switch.set)(of);
    }
    if rest == 0 {
        return Ok(());
    }
    let names: Vec<_> = known().map(|switch| switch.c).collect();
    Err(Refusal::Invalid(format!("{field} is {bits:#x}, 0 or a sum of {} was needed", names.join(", "))))
}

/// An address that was given for memory of the kernel's interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// The argument's name at the door.
    pub field: &'static str,
    /// The names of the memory.
    pub names: &'static [&'static str],
    /// The address.
    pub address: u64,
}

/// Gives the memory of a call the addresses that were given for it, by the names of the kernel's interface. All other memory is nowhere.
///
/// # Errors
/// An address for memory that the kernel does not have.
pub fn bind<C>(kernel: &impl Kernel<C>, call: &mut C, given: &[Placed]) -> Result<(), Refusal> {
    let mut there = vec![false; given.len()];
    kernel.visit(call, &mut |memory: Memory<'_>| {
        let found = given.iter().position(|of| of.names.contains(&memory.name));
        *memory.address = found.map_or(0, |i| given[i].address);
        if let Some(i) = found {
            there[i] = true;
        }
    });
    match given.iter().zip(there).find(|(_, there)| !there) {
        None => Ok(()),
        Some((Placed { field, names, address }, _)) => Err(Refusal::Invalid(format!(
            "{field} is {address:#x}, no {} was needed: the kernel has none",
            names.join(" or ")
        ))),
    }
}
