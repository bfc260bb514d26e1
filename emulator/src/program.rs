//! A function lowered once for every launch: a linear list of operations, so a warp can stop and resume at
//! any of them.
//!
//! Structured control flow becomes operations on a stack of lane masks ([`crate::warp`] executes them). Every
//! block has an operation to jump to when no lane is left in it, so inactive lanes cost nothing.

use ptx::inst::{Inst, Operand};
use ptx::{Function, ParamKind, SourceSite, Statement, Type, Verified};

/// A function ready to be launched on the emulator.
#[derive(Clone, Debug)]
pub struct Program {
    pub(crate) function: Function,
    pub(crate) ops: Vec<Operation>,
    /// Scopes by index; 0 is the whole function.
    scopes: Vec<Scope>,
    /// Index of each register in the register file of its class.
    pub(crate) slots: Vec<u32>,
    /// Number of registers of each class: predicates, up to 32 bits, 64 bits.
    pub(crate) files: [usize; 3],
    /// Offset of each parameter, and the size of the parameter block in bytes.
    pub(crate) params: (Vec<usize>, usize),
}

#[derive(Clone, Debug)]
struct Scope {
    name: &'static str,
    parent: usize,
}

/// An operation and its place in the source.
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    pub(crate) action: Action,
    pub(crate) site: Option<SourceSite>,
    pub(crate) scope: usize,
}

/// What a warp does. Jump targets are indices of operations.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    /// An instruction.
    Inst(Inst),
    /// Opens an `if`. Jumps to `otherwise` if no lane takes the first branch.
    If { cond: Operand, otherwise: usize },
    /// Switches to the second branch. Jumps to `end` if no lane takes it.
    Else { end: usize },
    /// Closes an `if`. Jumps to `exit` if no lane is left.
    EndIf { exit: usize },
    /// Opens a loop.
    Loop,
    /// Lanes leave the innermost loop. Jumps to `exit` if none is left.
    Break { cond: Operand, exit: usize },
    /// Jumps back to `start`, or closes the loop if no lane is left.
    EndLoop { start: usize },
    /// Ends the warp.
    Exit,
}

struct Lowering {
    ops: Vec<Operation>,
    scopes: Vec<Scope>,
    scope: usize,
    /// For each open block, innermost last: the operations with an `exit` that is the end of the block.
    leaving: Vec<Vec<usize>>,
}

impl Lowering {
    fn push(&mut self, action: Action, site: Option<SourceSite>) -> usize {
        self.ops.push(Operation { action, site, scope: self.scope });
        self.ops.len() - 1
    }

    /// Pushes an operation that jumps to the end of its block if no lane is left.
    fn push_leaving(&mut self, action: Action, site: Option<SourceSite>) {
        let at = self.push(action, site);
        if let Some(block) = self.leaving.last_mut() {
            block.push(at);
        }
    }

    fn inner(&mut self, statements: &[Statement]) {
        self.leaving.push(Vec::new());
        self.block(statements);
        let end = self.ops.len();
        for at in self.leaving.pop().unwrap_or_default() {
            match &mut self.ops[at].action {
                Action::EndIf { exit } | Action::Break { exit, .. } => *exit = end,
                Action::Inst(_)
                | Action::If { .. }
                | Action::Else { .. }
                | Action::Loop
                | Action::EndLoop { .. }
                | Action::Exit => {}
            }
        }
    }

    fn block(&mut self, statements: &[Statement]) {
        for statement in statements {
            match statement {
                Statement::Inst { inst, site } => {
                    self.push(Action::Inst(inst.clone()), Some(*site));
                }
                Statement::If { cond, then, otherwise, site } => {
                    let open = self.push(Action::If { cond: *cond, otherwise: 0 }, Some(*site));
                    self.inner(then);
                    let turn = self.push(Action::Else { end: 0 }, Some(*site));
                    self.inner(otherwise);
                    let end = self.ops.len();
                    self.push_leaving(Action::EndIf { exit: 0 }, Some(*site));
                    self.ops[open].action = Action::If { cond: *cond, otherwise: turn };
                    self.ops[turn].action = Action::Else { end };
                }
                Statement::Loop { body, site } => {
                    let open = self.push(Action::Loop, Some(*site));
                    self.inner(body);
                    self.push(Action::EndLoop { start: open + 1 }, Some(*site));
                }
                Statement::Break { cond, site } => {
                    self.push_leaving(Action::Break { cond: *cond, exit: 0 }, Some(*site));
                }
                Statement::Scope { name, body } => {
                    let outer = self.scope;
                    self.scopes.push(Scope { name, parent: outer });
                    self.scope = self.scopes.len() - 1;
                    self.block(body);
                    self.scope = outer;
                }
            }
        }
    }
}

impl Program {
    /// Lowers a verified function for the emulator.
    pub fn new(function: &Verified) -> Self {
        let function: Function = (**function).clone();
        let root = Scope { name: "", parent: 0 };
        let mut lowering =
            Lowering { ops: Vec::new(), scopes: vec![root], scope: 0, leaving: vec![Vec::new()] };
        lowering.block(&function.body);
        lowering.push(Action::Exit, None);
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
        let params = function.param_offsets();
        Self { ops: lowering.ops, scopes: lowering.scopes, slots, files, params, function }
    }

    /// The function's name.
    pub fn name(&self) -> &str {
        &self.function.name
    }

    /// The names of the scopes around an operation, outermost first.
    pub(crate) fn scope_path(&self, operation: &Operation) -> Vec<&'static str> {
        let mut path = Vec::new();
        let mut at = operation.scope;
        while let Some(scope) = self.scopes.get(at).filter(|_| at != 0) {
            path.push(scope.name);
            at = scope.parent;
        }
        path.reverse();
        path
    }

    /// Offsets of the tensor maps in the parameter block.
    pub(crate) fn tensor_map_offsets(&self) -> impl Iterator<Item = usize> + '_ {
        let params = self.function.params.iter().zip(&self.params.0);
        params.filter(|(param, _)| param.kind == ParamKind::TensorMap).map(|(_, offset)| *offset)
    }
}

/// The index of a type's register file: 0 for predicates, 1 for up to 32 bits, 2 for 64 bits.
pub(crate) fn class(ty: Type) -> usize {
    match ty {
        Type::Pred => 0,
        Type::U8 | Type::U16 | Type::U32 | Type::S32 | Type::F16 | Type::Bf16 | Type::F32 => 1,
        Type::U64 | Type::S64 | Type::F64 => 2,
    }
}

impl Action {
    /// The name in reports.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Inst(inst) => inst.name(),
            Self::If { .. } | Self::Else { .. } | Self::EndIf { .. } => "if",
            Self::Loop | Self::EndLoop { .. } => "loop",
            Self::Break { .. } => "break",
            Self::Exit => "exit",
        }
    }
}
