//! Functions: parameters, registers and a structured body.

use core::panic::Location;

use crate::inst::{Inst, Operand};
use crate::target::Target;
use crate::types::Type;
use crate::verify::Violation;

/// The source location where a statement was built.
pub type SourceSite = &'static Location<'static>;

/// A kernel parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Param {
    /// The parameter's name in PTX.
    pub name: &'static str,
    /// The kind of its value.
    pub kind: ParamKind,
    /// Whether a 64-bit scalar is a plain number. Otherwise it is an address in global memory, and an engine
    /// that shares its memory with other programs accepts only addresses of memory that it owns.
    pub number: bool,
}

/// The kind of a kernel parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ParamKind {
    /// A scalar.
    Scalar(Type),
    /// A `CUtensorMap`: 128 opaque bytes, aligned to 64 bytes.
    TensorMap,
}

impl ParamKind {
    /// Size in the parameter block, in bytes.
    pub const fn bytes(self) -> usize {
        match self {
            Self::Scalar(ty) => ty.bytes() as usize,
            Self::TensorMap => 128,
        }
    }

    /// Alignment in the parameter block, in bytes.
    pub const fn alignment(self) -> usize {
        match self {
            Self::Scalar(ty) => ty.bytes() as usize,
            Self::TensorMap => 64,
        }
    }
}

/// Parts of dynamic shared memory with a name, for reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    /// The name; a `#` stands for a part's number.
    pub name: String,
    /// Where the first part begins, in bytes of dynamic shared memory.
    pub offset: u32,
    /// Bytes of each part.
    pub bytes: u32,
    /// Bytes from the beginning of one part to that of the next.
    pub stride: u32,
    /// The number of parts.
    pub count: u32,
}

impl Region {
    /// The name of the part that holds the byte at `offset`; `None` if no part does.
    fn at(&self, offset: u32) -> Option<String> {
        let offset = offset.checked_sub(self.offset)?;
        let (index, inside) = (offset.checked_div(self.stride)?, offset.checked_rem(self.stride)?);
        let held = index < self.count && inside < self.bytes;
        held.then(|| self.name.replace('#', &index.to_string()))
    }
}

/// A statement of a structured body.
#[derive(Clone, Debug, PartialEq)]
pub enum Statement {
    /// An instruction executed by every active thread.
    Inst {
        /// The instruction.
        inst: Inst,
        /// Where it was built.
        site: SourceSite,
    },
    /// Threads where `cond` is true run `then`, the others run `otherwise`. They reconverge after the
    /// statement.
    If {
        /// A predicate.
        cond: Operand,
        /// Statements for the threads where `cond` is true.
        then: Vec<Statement>,
        /// Statements for the other threads.
        otherwise: Vec<Statement>,
        /// Where it was built.
        site: SourceSite,
    },
    /// Repeats `body` until every thread has left by a [`Statement::Break`].
    Loop {
        /// Statements of one iteration.
        body: Vec<Statement>,
        /// Where it was built.
        site: SourceSite,
    },
    /// Threads where `cond` is true leave the innermost loop.
    Break {
        /// A predicate.
        cond: Operand,
        /// Where it was built.
        site: SourceSite,
    },
    /// A named part of the body: a warp role or a phase. It affects only comments and reports.
    Scope {
        /// The name.
        name: &'static str,
        /// The statements.
        body: Vec<Statement>,
    },
}

impl Statement {
    /// The blocks in it: two branches, or a body and nothing.
    pub fn blocks(&self) -> [&[Statement]; 2] {
        match self {
            Self::If { then, otherwise, .. } => [then, otherwise],
            Self::Loop { body, .. } | Self::Scope { body, .. } => [body, &[]],
            Self::Inst { .. } | Self::Break { .. } => [&[], &[]],
        }
    }

    /// The instruction that it is.
    pub fn inst(&self) -> Option<&Inst> {
        if let Self::Inst { inst, .. } = self { Some(inst) } else { None }
    }

    /// The statements of a block and of the blocks in it, in pre-order.
    pub fn all(block: &[Self]) -> Vec<&Self> {
        fn push<'a>(block: &'a [Statement], all: &mut Vec<&'a Statement>) {
            for statement in block {
                all.push(statement);
                statement.blocks().into_iter().for_each(|inner| push(inner, all));
            }
        }
        let mut all = Vec::new();
        push(block, &mut all);
        all
    }

    /// The instructions among them.
    pub fn instructions(block: &[Self]) -> Vec<&Inst> {
        Self::all(block).into_iter().filter_map(Self::inst).collect()
    }
}

/// Whether `found` is true for an instruction of the statements.
fn any(statements: &[Statement], found: &dyn Fn(&Inst) -> bool) -> bool {
    statements.iter().any(|statement| {
        statement.inst().is_some_and(found) || statement.blocks().iter().any(|block| any(block, found))
    })
}

/// One kernel: parameters, registers and a structured body. Build it with [`Function::build`].
#[derive(Clone, Debug, PartialEq)]
pub struct Function {
    /// The entry's name: a C identifier.
    pub name: String,
    /// The target architecture.
    pub target: Target,
    /// The parameters, in order.
    pub params: Vec<Param>,
    /// The type of each register.
    pub registers: Vec<Type>,
    /// The number of threads per CTA (one-dimensional).
    pub threads: u32,
    /// Bytes of dynamic shared memory per CTA that a launch provides.
    pub shared_bytes: u32,
    /// CTAs per cluster along x, y and z; all 1 without clusters.
    pub cluster: [u32; 3],
    /// The statements.
    pub body: Vec<Statement>,
    /// Names of parts of dynamic shared memory, stated by
    /// [`Builder::name_shared`](crate::Builder::name_shared).
    pub regions: Vec<Region>,
    /// Whether the program promises that each sum of floating-point numbers in global memory is made in a fixed order
    /// ([`Builder::order_sums`](crate::Builder::order_sums)). The emulator finds additions to a word that nothing orders.
    pub ordered_sums: bool,
    /// Violations stated by [`Builder::refuse`](crate::Builder::refuse). The verifier reports them.
    pub refusals: Vec<Violation>,
}

impl Function {
    /// Whether the function has a `griddepcontrol.wait`. Such a kernel may be launched before the kernels
    /// that it depends on have ended (programmatic dependent launch).
    pub fn waits_for_grids(&self) -> bool {
        any(&self.body, &|inst| matches!(inst, Inst::GridDependency { wait: true }))
    }

    /// The PTX version of the printed module, as (major, minor): the oldest that has every instruction. PTX 8.0 came with
    /// CUDA 12.0, and 8.1 to 8.4 with 12.1 to 12.4; an older driver does not load the module.
    pub fn version(&self) -> (u32, u32) {
        let newest = core::cell::Cell::new(self.target.version());
        any(&self.body, &|inst| {
            newest.set(newest.get().max(inst.since()));
            false
        });
        newest.get()
    }

    /// What the byte at `offset` of dynamic shared memory belongs to: the smallest region that holds it.
    pub fn region(&self, offset: u32) -> Option<String> {
        let named = self.regions.iter().filter_map(|region| Some((region.bytes, region.at(offset)?)));
        named.min_by_key(|&(bytes, _)| bytes).map(|(_, name)| name)
    }

    /// The offset of each parameter in the parameter block, and the size of the block, in bytes.
    pub fn param_offsets(&self) -> (Vec<usize>, usize) {
        let mut end = 0usize;
        let mut offsets = Vec::with_capacity(self.params.len());
        for param in &self.params {
            let start = end.next_multiple_of(param.kind.alignment().max(1));
            offsets.push(start);
            end = start + param.kind.bytes();
        }
        (offsets, end)
    }
}
