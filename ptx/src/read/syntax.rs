//! The syntax tree of a text: what stands there, before anything is known about instructions.
//!
//! Source: PTX ISA "Syntax", "State Spaces, Types, and Variables", "Instruction Operands", "Directives".

use super::error::At;
use super::lex::Number;

/// A name and where it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Name<'t> {
    pub(crate) text: &'t str,
    pub(crate) at: At,
}

/// A whole text.
#[derive(Clone, Debug)]
pub(crate) struct Text<'t> {
    /// The names of source files, by number (`.file`).
    pub(crate) files: Vec<(u64, &'t str)>,
    pub(crate) variables: Vec<Variable<'t>>,
    pub(crate) functions: Vec<Function<'t>>,
}

/// The space of a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Space {
    Global,
    Constant,
    Shared,
    Local,
    Param,
    /// That of a function's parameter in a register.
    Register,
}

/// A variable of a module, of a function or of a block, or a parameter.
#[derive(Clone, Debug)]
pub(crate) struct Variable<'t> {
    pub(crate) name: Name<'t>,
    pub(crate) space: Space,
    /// Whether it is `.extern`: declared here and defined elsewhere, or sized by the launch.
    pub(crate) external: bool,
    pub(crate) align: Option<u64>,
    /// Whether a parameter is stated to be an address.
    pub(crate) pointer: bool,
    /// The type's name without its dot.
    pub(crate) ty: Name<'t>,
    /// Elements of a vector type, otherwise 1.
    pub(crate) vector: u64,
    /// The extents of an array, outermost first; `None` for `[]`. Empty if it is no array.
    pub(crate) extents: Vec<Option<u64>>,
    pub(crate) initial: Option<Initial<'t>>,
}

/// The first value of a variable.
#[derive(Clone, Debug)]
pub(crate) enum Initial<'t> {
    Number(Number, At),
    /// The address of a name, or of a place after it.
    Address(Name<'t>),
    List(Vec<Initial<'t>>),
}

/// A kernel or a function.
#[derive(Clone, Debug)]
pub(crate) struct Function<'t> {
    pub(crate) name: Name<'t>,
    /// Whether it is an `.entry`; otherwise a `.func`.
    pub(crate) entry: bool,
    pub(crate) returns: Vec<Variable<'t>>,
    pub(crate) params: Vec<Variable<'t>>,
    pub(crate) directives: Vec<Directive<'t>>,
    /// `None` if it is only declared.
    pub(crate) body: Option<Vec<Item<'t>>>,
}

/// A directive with numbers: `.maxntid 128, 1, 1`.
#[derive(Clone, Debug)]
pub(crate) struct Directive<'t> {
    pub(crate) name: Name<'t>,
    pub(crate) values: Vec<u64>,
}

/// What a block consists of.
#[derive(Clone, Debug)]
pub(crate) enum Item<'t> {
    Block(Vec<Item<'t>>),
    Registers(Registers<'t>),
    Variable(Variable<'t>),
    Label(Name<'t>),
    Line(Line),
    Instruction(Instruction<'t>),
    /// `name: .branchtargets a, b;`
    Targets {
        name: Name<'t>,
        labels: Vec<Name<'t>>,
    },
    /// `name: .callprototype …;` or `.calltargets`, which say nothing that is needed here.
    Prototype,
}

/// `.reg .b32 %r<8>, %x;`
#[derive(Clone, Debug)]
pub(crate) struct Registers<'t> {
    pub(crate) ty: Name<'t>,
    /// Elements of each, if they are vectors; otherwise 1.
    pub(crate) vector: usize,
    /// Each name, and how many registers have it with a number after it.
    pub(crate) names: Vec<(Name<'t>, Option<u64>)>,
}

/// `.loc`: the place in the source of what follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) file: u64,
    pub(crate) line: u64,
    pub(crate) column: u64,
}

/// An instruction.
#[derive(Clone, Debug)]
pub(crate) struct Instruction<'t> {
    pub(crate) at: At,
    /// The predicate, and whether it is negated.
    pub(crate) guard: Option<(Name<'t>, bool)>,
    /// The first word.
    pub(crate) name: &'t str,
    /// What stands after it, each with a dot before it.
    pub(crate) modifiers: Vec<&'t str>,
    pub(crate) operands: Vec<Operand<'t>>,
}

/// An operand and where it stands.
#[derive(Clone, Debug)]
pub(crate) struct Operand<'t> {
    pub(crate) at: At,
    pub(crate) kind: OperandKind<'t>,
}

/// The kind of an operand.
#[derive(Clone, Debug)]
pub(crate) enum OperandKind<'t> {
    /// A register, a variable, a label or a function; `_` for what is thrown away.
    Name(&'t str),
    /// A component of a special register: `%tid.x`.
    Component(&'t str, &'t str),
    /// A variable's address and an offset in bytes.
    Offset(&'t str, i64),
    Number(Number),
    /// `!p`
    Not(&'t str),
    /// `[base+offset]`, or with coordinates `[base, {x, y}]`.
    Address {
        base: Base<'t>,
        offset: i64,
        coordinates: Option<Vec<Operand<'t>>>,
    },
    /// `{a, b}`
    Vector(Vec<Operand<'t>>),
    /// `(a, b)`, of a call.
    List(Vec<Operand<'t>>),
    /// `p|q`
    Pair(&'t str, &'t str),
}

/// What stands in an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Base<'t> {
    /// A register or a variable.
    Name(&'t str),
    Number(u64),
}
