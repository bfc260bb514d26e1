//! Parameters of a kernel's program, as its interface states them: the device declares them, and a launch fills them in.

use ptx::abi::{Argument, Im2colMap, TensorMap};
use ptx::{Builder, Param, ParamKind, Scalar, Type};

use super::{Contents, Extents, Memory, Visit};
use crate::element::Format;

/// A parameter of a kernel's program.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    /// Its name in the program.
    pub name: &'static str,
    /// What it is.
    pub kind: Kind,
    /// What it is in the launch of the visited call: a number, or a tensor map. `None` where no launch is made. An address
    /// needs none: it is that of its memory, or 0 where that is not accessed ([`unread`](Self::unread)).
    pub value: Option<Argument>,
}

/// What a parameter is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A number.
    Number(Type),
    /// Whether something holds. A launch has 1 or 0, in 32 bits.
    Flag,
    /// A whole number below or above 0. A launch has its bits.
    Signed,
    /// An address in the memory that was last visited with this name. It is 0 if that memory's address is 0.
    Address {
        /// The memory's name.
        within: &'static str,
        /// Bytes from where the memory begins.
        beyond: u64,
    },
    /// A tensor map of the memory that was visited with this name last, or of part of it.
    TensorMap {
        /// The memory's name.
        within: &'static str,
    },
}

impl Parameter {
    /// An address of memory that the launch does not access, wherever it is: 0.
    pub fn unread(name: &'static str, within: &'static str) -> Self {
        Self { name, kind: Kind::Address { within, beyond: 0 }, value: Some(0u64.into()) }
    }
}

/// The statements of parameters.
impl dyn Visit + '_ {
    /// A number.
    pub fn number<T: Scalar>(&mut self, name: &'static str, value: Option<T>) {
        let value = value.map(Argument::from);
        self.parameter(Parameter { name, kind: Kind::Number(T::TYPE), value });
    }

    /// A number that is an extent of the call, or a number of its GEMMs or rows.
    pub fn counted(&mut self, name: &'static str, count: &mut u32) {
        self.count(count);
        self.number(name, Some(*count));
    }

    /// A flag. The program reads it as a predicate.
    pub fn flag(&mut self, name: &'static str, value: Option<bool>) {
        let value = value.map(|holds| u32::from(holds).into());
        self.parameter(Parameter { name, kind: Kind::Flag, value });
    }

    /// A whole number that may be negative. The program reads it as an `s32`.
    pub fn signed(&mut self, name: &'static str, value: Option<i32>) {
        let value = value.map(|number| number.cast_unsigned().into());
        self.parameter(Parameter { name, kind: Kind::Signed, value });
    }

    /// Where memory begins: the piece that was visited last with the name `within`.
    pub fn address(&mut self, name: &'static str, within: &'static str) {
        self.address_in(name, within, 0);
    }

    /// A piece of memory that is read, with the parameter that has its address.
    pub fn input(
        &mut self,
        parameter: &'static str,
        memory: (&'static str, &mut u64),
        extents: Extents,
        contents: Contents,
    ) {
        let (name, address) = memory;
        self.memory(Memory { name, address, extents, contents, writes: false });
        self.address(parameter, name);
    }

    /// A piece of memory that is written, with the parameter that has its address.
    pub fn output(
        &mut self,
        parameter: &'static str,
        memory: (&'static str, &mut u64),
        extents: Extents,
        format: Format,
    ) {
        let (name, address) = memory;
        self.memory(Memory { name, address, extents, contents: Contents::Output(format), writes: true });
        self.address(parameter, name);
    }

    /// The address that is `beyond` bytes after the beginning of memory.
    pub fn address_in(&mut self, name: &'static str, within: &'static str, beyond: u64) {
        self.parameter(Parameter { name, kind: Kind::Address { within, beyond }, value: None });
    }

    /// An im2col tensor map of memory.
    pub fn im2col_map(&mut self, name: &'static str, within: &'static str, map: Option<Im2colMap>) {
        let value = map.map(Argument::from);
        self.parameter(Parameter { name, kind: Kind::TensorMap { within }, value });
    }

    /// A tensor map of memory.
    pub fn tensor_map(&mut self, name: &'static str, within: &'static str, map: Option<TensorMap>) {
        let value = map.map(Argument::from);
        self.parameter(Parameter { name, kind: Kind::TensorMap { within }, value });
    }
}

/// Declares a kernel's parameters, in the order of its interface. [`Builder::parameter`] then gives each by its name.
///
/// ```
/// use collective::operands::{Declares, Visit};
/// use ptx::{Builder, Entry, Function, Target};
///
/// fn interface(visit: &mut dyn Visit, rows: Option<u32>) {
///     visit.address("d", "D");
///     visit.number("rows", rows);
/// }
/// let entry = Entry { name: "rows".into(), target: Target::Sm90a, threads: 32, shared_bytes: 0, cluster: [1; 3] };
/// let function = Function::build(entry, |f: &Builder| {
///     interface(&mut Declares(f), None);
///     f.store_global(f.parameter::<u64>("d"), 0, [f.parameter::<u32>("rows")]);
/// });
/// assert_eq!(function.params.iter().map(|param| &*param.name).collect::<Vec<_>>(), ["d", "rows"]);
/// # function.verify().expect("a legal program");
/// ```
#[derive(Debug)]
pub struct Declares<'f>(pub &'f Builder);

impl Visit for Declares<'_> {
    fn memory(&mut self, _memory: Memory<'_>) {}

    fn sees_parameters(&self) -> bool {
        true
    }

    fn parameter(&mut self, Parameter { name, kind, .. }: Parameter) {
        let (kind, number, ty) = match kind {
            Kind::TensorMap { .. } => (ParamKind::TensorMap, false, Type::U64),
            Kind::Address { .. } => (ParamKind::Scalar(Type::U64), false, Type::U64),
            Kind::Flag => (ParamKind::Scalar(Type::U32), false, Type::Pred),
            Kind::Signed => (ParamKind::Scalar(Type::U32), false, Type::S32),
            Kind::Number(ty) => (ParamKind::Scalar(ty), ty == Type::U64, ty),
        };
        self.0.declare(Param { name: name.into(), kind, number }, ty);
    }
}
