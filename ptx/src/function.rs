//! Functions: parameters, registers and a body.
//!
//! A body has one of two forms. That of [`Function::build`] is *structured*: threads diverge at [`Statement::If`], and loops are
//! left by [`Statement::Break`]. The form that is printed, and that PTX has when it is read, is *flat*: labels, and branches to them.
//! [`Function::flattened`] makes the second of the first.

use crate::inst::{Inst, Operand, Reg};
use crate::name::Name;
use crate::param::{Param, Variable};
use crate::site::SourceSite;
use crate::target::Target;
use crate::types::Type;
use crate::verify::Violation;

/// Parts of shared memory with a name, for reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    /// The name; a `#` stands for a part's number.
    pub name: String,
    /// Where the first part begins, in bytes from the beginning of shared memory.
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

/// The condition of a branch: a predicate, or its opposite. `@p` and `@!p`, ISA "Predicated Execution".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Guard {
    /// A predicate.
    pub cond: Operand,
    /// Whether the threads branch where it is false.
    pub negated: bool,
}

impl Guard {
    /// Whether every thread branches; `None` if that depends on the threads.
    pub const fn always(self) -> Option<bool> {
        match self.cond {
            Operand::Imm(bits) => Some((bits != 0) != self.negated),
            Operand::Reg(_) => None,
        }
    }
}

/// A statement of a body.
///
/// A structured body has no [`Label`](Self::Label), [`Branch`](Self::Branch) and [`Exit`](Self::Exit). A flat body, which has one of them,
/// has no [`Loop`](Self::Loop) and [`Break`](Self::Break), and its [`If`](Self::If)s are guarded instructions.
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
    /// statement. In a flat body the blocks hold instructions only: `@cond inst`.
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
        name: Name,
        /// The statements.
        body: Vec<Statement>,
    },
    /// A place that branches name, in a flat body. ISA "Labels".
    Label(Name),
    /// Threads where the guard holds, or all without one, continue at a label, which may stand before or after the
    /// branch. Where they reconverge with the others is not stated. ISA "bra".
    Branch {
        /// Which threads branch.
        guard: Option<Guard>,
        /// The label.
        target: Name,
        /// Where it was written.
        site: SourceSite,
    },
    /// Threads where the guard holds, or all without one, end. ISA "exit", "ret" (of an entry).
    Exit {
        /// Which threads end.
        guard: Option<Guard>,
        /// Where it was written.
        site: SourceSite,
    },
}

impl Statement {
    /// The blocks in it: two branches, or a body and nothing.
    pub fn blocks(&self) -> [&[Statement]; 2] {
        match self {
            Self::If { then, otherwise, .. } => [then, otherwise],
            Self::Loop { body, .. } | Self::Scope { body, .. } => [body, &[]],
            Self::Inst { .. }
            | Self::Break { .. }
            | Self::Label(_)
            | Self::Branch { .. }
            | Self::Exit { .. } => [&[], &[]],
        }
    }

    /// The instruction that it is.
    pub fn inst(&self) -> Option<&Inst> {
        if let Self::Inst { inst, .. } = self { Some(inst) } else { None }
    }

    /// The label that it branches to.
    pub fn target(&self) -> Option<&Name> {
        if let Self::Branch { target, .. } = self { Some(target) } else { None }
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

/// One kernel: parameters, registers and a body. Build it with [`Function::build`].
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
    /// The registers' names, in the order of the registers, if the program has names of its own: `%r12`. A program that was built has
    /// none, and its registers are named by their types and numbers.
    pub names: Vec<Name>,
    /// The number of threads per CTA along x, y and z.
    pub block: [u32; 3],
    /// Bytes of shared memory per CTA before dynamic shared memory, those between them included: the variables of the program.
    pub static_shared: u32,
    /// Bytes of dynamic shared memory per CTA that a launch provides.
    pub shared_bytes: u32,
    /// Bytes of local memory per thread.
    pub local_bytes: u32,
    /// CTAs per cluster along x, y and z; all 1 without clusters.
    pub cluster: [u32; 3],
    /// CTAs whose registers an SM has at the same time, stated by
    /// [`Builder::share_registers`](crate::Builder::share_registers); 1 if nothing is stated.
    pub resident: u32,
    /// The statements.
    pub body: Vec<Statement>,
    /// Variables in global memory. The last parameters are their addresses, in this order.
    pub variables: Vec<Variable>,
    /// Names of parts of shared memory, stated by
    /// [`Builder::name_shared`](crate::Builder::name_shared).
    pub regions: Vec<Region>,
    /// Whether the program promises that each sum of floating-point numbers in global memory is made in a fixed order
    /// ([`Builder::order_sums`](crate::Builder::order_sums)). The emulator finds additions to a word that nothing orders.
    pub ordered_sums: bool,
    /// Violations stated by [`Builder::refuse`](crate::Builder::refuse). The verifier reports them.
    pub refusals: Vec<Violation>,
}

impl Function {
    /// The number of threads per CTA.
    pub const fn threads(&self) -> u32 {
        let [x, y, z] = self.block;
        x.saturating_mul(y).saturating_mul(z)
    }

    /// Bytes of shared memory per CTA: the program's variables, and dynamic shared memory after them.
    pub const fn all_shared(&self) -> u32 {
        self.static_shared.saturating_add(self.shared_bytes)
    }

    /// The name of a register. `None` if there is no such register.
    pub fn register_name(&self, reg: Reg) -> Option<String> {
        let (index, ty) = (reg.0 as usize, self.registers.get(reg.0 as usize)?);
        Some(match self.names.get(index) {
            Some(name) => name.to_string(),
            None => format!("%{}{index}", ty.class()),
        })
    }

    /// Names registers that were added to a program with names of its own.
    pub(crate) fn name_added(&mut self) {
        if !self.names.is_empty() {
            let added = self.names.len()..self.registers.len();
            self.names.extend(added.map(|index| Name::from(format!("%added_{index}"))));
        }
    }

    /// Whether the body is flat: it has labels, branches or ends of threads.
    pub fn is_flat(&self) -> bool {
        let flat = |statement: &&Statement| {
            matches!(statement, Statement::Label(_) | Statement::Branch { .. } | Statement::Exit { .. })
        };
        Statement::all(&self.body).iter().any(flat)
    }

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

    /// What the byte at `offset` of shared memory belongs to: the smallest region that holds it.
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
