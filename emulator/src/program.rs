//! A function lowered once for every launch: a linear list of operations, so a warp can stop and resume at
//! any of them.
//!
//! The function is lowered in its flat form ([`Function::flattened`]), whatever form it has.

use ptx::abi::Argument;
use ptx::inst::Inst;
use ptx::{Function, Guard, Name, SourceSite, Type, Verified};

use crate::banks::Banks;
use crate::graph::Graph;
use crate::lower::{Lowered, lower};
use crate::memory::Memory;

/// A function ready to be launched on the emulator.
#[derive(Clone, Debug)]
pub struct Program {
    pub(crate) function: Function,
    pub(crate) ops: Vec<Operation>,
    /// The blocks of the operations.
    pub(crate) graph: Graph,
    /// Whether registers may be unwritten on some paths, as compilers leave them.
    pub(crate) leaves_unwritten: bool,
    /// Scopes by index; 0 is the whole function.
    scopes: Vec<Scope>,
    /// Index of each register in the register file of its class.
    pub(crate) slots: Vec<u32>,
    /// The registers that multiplies use together.
    pub(crate) banks: Banks,
    /// Number of registers of each class: predicates, up to 32 bits, 64 bits.
    pub(crate) files: [usize; 3],
    /// Offset of each parameter, and the size of the parameter block in bytes.
    pub(crate) params: (Vec<usize>, usize),
}

#[derive(Clone, Debug)]
pub(crate) struct Scope {
    pub(crate) name: Name,
    pub(crate) parent: usize,
}

/// An operation and its place in the source.
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    pub(crate) action: Action,
    pub(crate) site: Option<SourceSite>,
    pub(crate) scope: usize,
    pub(crate) block: usize,
}

/// What a warp does.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    /// An instruction.
    Inst(Inst),
    /// An instruction of the lanes for which a guard holds. The others go on with them.
    Guarded(Guard, Inst),
    /// The lanes for which the guard holds, or all without one, continue elsewhere.
    Branch { guard: Option<Guard>, edge: Edge },
    /// The beginning of a block to which several paths lead: lanes wait for others that may still come.
    Meet,
    /// Ends the lanes. The end of the program is not stated, a `ret` is.
    Exit { stated: bool },
}

/// Where a branch leads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Edge {
    /// The block of the branch.
    pub(crate) from: usize,
    /// The block that it leads to.
    pub(crate) to: usize,
    /// The first operation of that block.
    pub(crate) target: usize,
}

impl Program {
    /// Lowers a verified function for the emulator.
    pub fn new(function: &Verified) -> Self {
        let flat = function.flattened();
        let Lowered { ops, scopes, graph } = lower(&flat.body);
        let function: Function = (**function).clone();
        let mut files = [0; 3];
        let slots = function
            .registers
            .iter()
            .map(|ty| {
                let file = &mut files[class(*ty)];
                *file += 1;
                u32::try_from(*file - 1).unwrap_or(u32::MAX)
            })
            .collect();
        let (params, banks) = (function.param_offsets(), Banks::new(&ops, function.registers.len()));
        let leaves_unwritten = function.is_flat();
        Self { ops, graph, leaves_unwritten, scopes, slots, banks, files, params, function }
    }

    /// Writes the variables of the function into memory, and returns their addresses: the arguments after those that the program was
    /// written with.
    pub fn upload_variables(&self, memory: &mut Memory) -> Vec<Argument> {
        self.function.variables.iter().map(|variable| memory.upload(&variable.content).into()).collect()
    }

    /// The function's name.
    pub fn name(&self) -> &str {
        &self.function.name
    }

    /// The names of the scopes around an operation, outermost first.
    pub(crate) fn scope_path(&self, operation: &Operation) -> Vec<Name> {
        let mut path = Vec::new();
        let mut at = operation.scope;
        while let Some(scope) = self.scopes.get(at).filter(|_| at != 0) {
            path.push(scope.name.clone());
            at = scope.parent;
        }
        path.reverse();
        path
    }
}

/// The index of a type's register file: 0 for predicates, 1 for up to 32 bits, 2 for 64 bits.
pub(crate) const fn class(ty: Type) -> usize {
    match ty.bits() {
        1 => 0,
        64 => 2,
        _ => 1,
    }
}

impl Action {
    /// The instruction that it is.
    pub(crate) const fn inst(&self) -> Option<&Inst> {
        match self {
            Self::Inst(inst) | Self::Guarded(_, inst) => Some(inst),
            Self::Branch { .. } | Self::Meet | Self::Exit { .. } => None,
        }
    }

    /// The name in reports.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Inst(inst) | Self::Guarded(_, inst) => inst.name(),
            Self::Branch { .. } | Self::Meet => "bra",
            Self::Exit { .. } => "exit",
        }
    }
}
