//! Functions: parameters, registers and a structured body.

use core::panic::Location;

use crate::inst::{Inst, Operand};
use crate::target::Target;
use crate::types::Type;
use crate::verify::Violation;

/// Where in the kernel author's source a statement was built.
pub type Site = &'static Location<'static>;

/// A kernel parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Param {
    /// Its name in PTX.
    pub name: &'static str,
    /// What it holds.
    pub kind: ParamKind,
    /// Whether a 64-bit scalar is a plain number. Otherwise it is an address, and an engine that shares its memory with other
    /// programs takes only addresses of memory that is its own.
    pub number: bool,
}

/// What a kernel parameter holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ParamKind {
    /// A scalar.
    Scalar(Type),
    /// A `CUtensorMap`: 128 opaque bytes, 64-byte aligned.
    TensorMap,
}

impl ParamKind {
    /// Bytes in the parameter block.
    pub const fn bytes(self) -> usize {
        match self {
            Self::Scalar(ty) => ty.bytes() as usize,
            Self::TensorMap => 128,
        }
    }

    /// Alignment in the parameter block.
    pub const fn alignment(self) -> usize {
        match self {
            Self::Scalar(ty) => ty.bytes() as usize,
            Self::TensorMap => 64,
        }
    }
}

/// A statement of a structured body.
#[derive(Clone, Debug, PartialEq)]
pub enum Statement {
    /// An instruction executed by every active thread.
    Inst {
        /// What to do.
        inst: Inst,
        /// Who asked for it.
        site: Site,
    },
    /// Threads where `cond` holds run `then`, the others `otherwise`; they meet behind it.
    If {
        /// A predicate.
        cond: Operand,
        /// Statements for the threads where it holds.
        then: Vec<Statement>,
        /// Statements for the others.
        otherwise: Vec<Statement>,
        /// Who asked for it.
        site: Site,
    },
    /// Runs `body` again and again until every thread has left by a [`Statement::Break`].
    Loop {
        /// Statements of one round.
        body: Vec<Statement>,
        /// Who asked for it.
        site: Site,
    },
    /// Threads where `cond` holds leave the innermost loop.
    Break {
        /// A predicate.
        cond: Operand,
        /// Who asked for it.
        site: Site,
    },
    /// A named part of the body: a warp role or a phase. It changes nothing but comments and reports.
    Scope {
        /// Its name.
        name: &'static str,
        /// Its statements.
        body: Vec<Statement>,
    },
}

/// Whether one of the statements is such an instruction.
fn any(statements: &[Statement], found: &dyn Fn(&Inst) -> bool) -> bool {
    statements.iter().any(|statement| match statement {
        Statement::Inst { inst, .. } => found(inst),
        Statement::If { then, otherwise, .. } => any(then, found) || any(otherwise, found),
        Statement::Loop { body, .. } | Statement::Scope { body, .. } => any(body, found),
        Statement::Break { .. } => false,
    })
}

/// One kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct Function {
    /// The entry's name: a C identifier.
    pub name: String,
    /// The instruction set it is written for.
    pub target: Target,
    /// Parameters in order.
    pub params: Vec<Param>,
    /// Type of each register.
    pub registers: Vec<Type>,
    /// Threads of a CTA (one-dimensional).
    pub threads: u32,
    /// Bytes of dynamic shared memory that a launch provides.
    pub shared_bytes: u32,
    /// CTAs of a cluster (x, y, z); all 1 without clusters.
    pub cluster: [u32; 3],
    /// What it does.
    pub body: Vec<Statement>,
    /// Why its author calls it illegal; the verifier repeats it.
    pub refusals: Vec<Violation>,
}

impl Function {
    /// Whether it has a `griddepcontrol.wait`: such a kernel may be launched before the ones that it depends on have ended.
    pub fn waits_for_grids(&self) -> bool {
        any(&self.body, &|inst| matches!(inst, Inst::GridDependency { wait: true }))
    }

    /// The PTX version that its newest instruction asks for, where the target's own does not have it.
    pub(crate) fn newest(&self) -> (u32, u32) {
        if any(&self.body, &Inst::is_relaxed_mbarrier) { (8, 6) } else { (0, 0) }
    }

    /// Offset of each parameter in the parameter block, and the block's size in bytes.
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
