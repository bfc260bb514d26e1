//! Mutants: copies of a program with one synchronising statement broken. Use them to test a tool that finds
//! hangs and races: it has to find the ones that are known.
//!
//! [`mutations`] lists the ways to break one synchronising statement of a function, structured or flat: delete it; change a
//! number, the barrier, the receivers, the memory ordering or the scope that it depends on; let one lane wait
//! for the whole warp; or swap it with the next such statement. [`Mutation::apply`] makes the broken function, which can be verified and run as
//! any other.
//!
//! Synchronising statements are:
//! * mbarrier operations: initialisation, arrivals, announced bytes, waits; with their barrier, CTA and
//!   memory ordering;
//! * named barriers, and the barriers of the cluster and of the warp;
//! * the receivers of a multicast copy, and the mbarrier that counts the bytes of a copy;
//! * fences of memory, of proxies, of barrier initialisation, and of `wgmma`;
//! * atomics, reductions, loads and stores with memory ordering: the ordering, the scope, and the integers
//!   that they write;
//! * changes of tensor maps in memory, and the fences between the changes and the copies;
//! * commits and waits of asynchronous groups;
//! * conditions on lane, thread or warp around a synchronising statement;
//! * updates of each variable from which an mbarrier's address or parity is computed: the position in a ring;
//! * register budgets (`setmaxnreg`), because one role waits for the registers of another.
//!
//! ```
//! # let entry = ptx::Entry { name: "example".into(), target: ptx::Target::Sm90a, threads: 128, shared_bytes: 512, cluster: [1, 1, 1] };
//! let function = ptx::Function::build(entry, |f| {
//!     let own = f.shared_base() + f.special(ptx::Special::ThreadX) * 4;
//!     f.store_shared(own, 0, [f.constant(1u32)]);
//!     f.barrier_sync(0, 128);
//! });
//! let mutants = ptx::mutate::mutations(&function);
//! assert!(mutants.iter().any(|mutant| mutant.to_string().contains("bar.sync deleted")));
//! // Each is a program of its own, which a test suite should notice.
//! let broken = mutants[0].apply(&function);
//! assert_ne!(format!("{:?}", broken.body), format!("{:?}", function.body));
//! ```

mod changes;
mod flow;
mod ways;

use core::fmt;

pub use changes::computes;

use crate::function::{Function, Statement};
use crate::inst::{BinaryOp, CompareOp, Inst, Operand, Special};
use crate::name::Name;
use crate::site::SourceSite;
use crate::types::Type;

use flow::Flow;

/// The change of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Change {
    /// The statement is deleted.
    Delete,
    /// The memory ordering becomes `.relaxed`.
    Relax,
    /// The scope becomes `.cta`.
    Narrow,
    /// The statement moves after the next synchronising statement of its block.
    Swap,
    /// The first lane of each warp waits, and the other lanes go on.
    OneLane,
    /// The condition of an `if` becomes true in all threads, or false in all threads.
    Force(bool),
    /// An operand `x` becomes `x op by`.
    Operand {
        /// The operand's name.
        name: &'static str,
        /// The operation.
        op: BinaryOp,
        /// The second operand.
        by: u32,
    },
    /// A constant field of the instruction is increased by `by`.
    Field {
        /// The field's name.
        name: &'static str,
        /// The number that is added.
        by: i32,
    },
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Delete => f.write_str("deleted"),
            Self::Relax => f.write_str("relaxed"),
            Self::Narrow => f.write_str("for the CTA alone"),
            Self::Swap => f.write_str("after the next step"),
            Self::OneLane => f.write_str("in one lane"),
            Self::Force(true) => f.write_str("in every thread"),
            Self::Force(false) => f.write_str("in no thread"),
            Self::Operand { name, op: BinaryOp::Xor, by } => write!(f, "{name} ^ {by}"),
            Self::Operand { name, op: BinaryOp::Sub, by } => write!(f, "{name} - {by}"),
            Self::Operand { name, op: BinaryOp::Mul, by } => write!(f, "{name} * {by}"),
            Self::Operand { name, op: BinaryOp::Add, by } => write!(f, "{name} + {by}"),
            Self::Operand { name, op, by } => write!(f, "{op:?} of {name} and {by}"),
            Self::Field { name, by } if *by < 0 => write!(f, "{name} - {}", by.unsigned_abs()),
            Self::Field { name, by } => write!(f, "{name} + {by}"),
        }
    }
}

/// One way to break a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mutation {
    /// The kind of the statement: the name of an instruction, `if`, or `position` for a variable from which
    /// an mbarrier's address or parity is computed.
    pub target: &'static str,
    /// The change.
    pub change: Change,
    /// The scopes around the statement, outermost first.
    pub scopes: Vec<Name>,
    /// Where the statement was built.
    pub site: SourceSite,
    /// The number of the statement in the function, in pre-order, as in [`numbered`].
    pub index: usize,
    /// The number of the innermost loop around the statement, if there is one.
    pub within: Option<usize>,
}

impl fmt::Display for Mutation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.target, self.change)?;
        if !self.scopes.is_empty() {
            write!(f, " in {}", self.scopes.join(" / "))?;
        }
        write!(f, " ({})", self.site)
    }
}

/// All ways to break one synchronising statement of a function.
pub fn mutations(function: &Function) -> Vec<Mutation> {
    let flow = Flow::new(function);
    let mut found = Vec::new();
    let around = ways::apart(&function.body, &flow);
    let mut walk = Walk {
        index: 0,
        within: None,
        apart: false,
        around: &around,
        scopes: Vec::new(),
        flow: &flow,
        found: &mut found,
    };
    walk.block(&function.body);
    found
}

/// Whether a condition may differ between the threads of a CTA: whether its value depends on thread, lane or
/// election by data flow.
pub fn chooses_threads(function: &Function, condition: Operand) -> bool {
    Flow::new(function).chooses_threads(condition)
}

struct Walk<'a> {
    index: usize,
    within: Option<usize>,
    /// Whether some lanes of a warp may be elsewhere.
    apart: bool,
    /// The same for each statement of a flat body.
    around: &'a [bool],
    scopes: Vec<Name>,
    flow: &'a Flow,
    found: &'a mut Vec<Mutation>,
}

impl Walk<'_> {
    fn add(&mut self, target: &'static str, site: &SourceSite, changes: &[Change]) {
        let (index, within) = (self.index, self.within);
        for &change in changes {
            let (scopes, site) = (self.scopes.clone(), site.clone());
            self.found.push(Mutation { target, change, scopes, site, index, within });
        }
    }

    fn block(&mut self, statements: &[Statement]) {
        for (at, statement) in statements.iter().enumerate() {
            match statement {
                Statement::Inst { inst, site } => {
                    self.add(inst.name(), site, &changes::of(inst));
                    let apart = self.apart || self.around.get(self.index).copied().unwrap_or(false);
                    if !apart && changes::waits(inst) && !meets_next(statements, at) {
                        self.add(inst.name(), site, &[Change::OneLane]);
                    }
                    if next_step(statements, at).is_some() {
                        self.add(inst.name(), site, &[Change::Swap]);
                    }
                    if self.flow.leads_to_barrier(inst) {
                        self.add("position", site, changes::of_position(inst));
                    }
                    self.index += 1;
                }
                Statement::If { cond, then, otherwise, site } => {
                    if self.flow.chooses_threads(*cond) && (synchronises(then) || synchronises(otherwise)) {
                        self.add("if", site, &[Change::Force(true), Change::Force(false)]);
                    }
                    self.index += 1;
                    let around = self.apart;
                    self.apart |= self.flow.chooses_lanes(*cond);
                    self.block(then);
                    self.block(otherwise);
                    self.apart = around;
                }
                Statement::Loop { body, .. } => {
                    let outer = self.within.replace(self.index);
                    self.index += 1;
                    self.block(body);
                    self.within = outer;
                }
                Statement::Break { .. }
                | Statement::Label(_)
                | Statement::Branch { .. }
                | Statement::Exit { .. } => self.index += 1,
                Statement::Scope { name, body } => {
                    self.index += 1;
                    self.scopes.push(name.clone());
                    self.block(body);
                    self.scopes.pop();
                }
            }
        }
    }
}

/// The synchronising statement that the one at `at` can be swapped with: the next of the block, if there are
/// only computations in registers between them. `None` if it is the same instruction, or if the one at `at`
/// defines a value.
fn next_step(statements: &[Statement], at: usize) -> Option<usize> {
    let Statement::Inst { inst, .. } = statements.get(at)? else { return None };
    if !changes::is_step(inst) {
        return None;
    }
    for (place, statement) in statements.iter().enumerate().skip(at + 1) {
        let next = statements.get(place + 1).and_then(Statement::inst);
        if let (Statement::Label(_), Some(Inst::MbarrierWait { .. })) = (statement, next) {
            // The label of the wait moves with it.
            continue;
        }
        let Statement::Inst { inst: other, .. } = statement else { return None };
        if changes::is_step(other) {
            return (inst.name() != other.name()).then_some(place);
        }
        if !computes(other) {
            return None;
        }
    }
    None
}

/// Whether the lanes of the warp meet after the statement at `at`, before any of them accesses memory.
fn meets_next(statements: &[Statement], at: usize) -> bool {
    let computes =
        |statement: &&Statement| matches!(statement, Statement::Inst { inst, .. } if computes(inst));
    let next = statements.iter().skip(at + 1).find(|statement| !computes(statement));
    let Some(Statement::Inst { inst, .. }) = next else { return false };
    matches!(inst, Inst::WarpSync | Inst::BarrierSync { .. } | Inst::BarrierReduce(_))
}

/// Whether a statement synchronises, or starts asynchronous work.
fn synchronises(statements: &[Statement]) -> bool {
    let works = |inst: &Inst| changes::starts_work(inst) || !changes::of(inst).is_empty();
    Statement::instructions(statements).into_iter().any(works)
}

/// The statements of a function in pre-order: the index in the list is the number of the statement.
pub fn numbered(function: &Function) -> Vec<&Statement> {
    Statement::all(&function.body)
}

impl Mutation {
    /// Makes the broken function. `function` must be the one that [`mutations`] was called with.
    #[must_use]
    pub fn apply(&self, function: &Function) -> Function {
        let mut mutant = function.clone();
        let mut left = self.index;
        replace(&mut mutant.body, &mut left, Edit::Change(self.change), &mut mutant.registers);
        mutant.name_added();
        mutant
    }

    /// Makes a copy of the unbroken function that traps before the statement: a run that ends well never reaches
    /// what the mutation changes. `function` must be the one that [`mutations`] was called with.
    #[must_use]
    pub fn trap(&self, function: &Function) -> Function {
        let mut trapping = function.clone();
        let mut left = self.index;
        replace(&mut trapping.body, &mut left, Edit::Trap(&self.site), &mut trapping.registers);
        trapping
    }
}

/// What becomes of a statement.
#[derive(Clone, Copy)]
enum Edit<'a> {
    /// It is changed.
    Change(Change),
    /// A trap stands before it.
    Trap(&'a SourceSite),
}

/// Edits statement number `left` of a block, counted in pre-order. Returns whether the block has that statement.
fn replace(block: &mut Vec<Statement>, left: &mut usize, edit: Edit<'_>, registers: &mut Vec<Type>) -> bool {
    for at in 0..block.len() {
        if *left == 0 {
            let change = match edit {
                Edit::Change(change) => change,
                Edit::Trap(site) => {
                    block.insert(at, Statement::Inst { inst: Inst::Trap, site: site.clone() });
                    return true;
                }
            };
            if change == Change::Swap {
                if let Some(next) = next_step(block, at) {
                    block[at..=next].rotate_left(1);
                }
                return true;
            }
            let statement = block.remove(at);
            block.splice(at..at, changed(statement, change, registers));
            return true;
        }
        *left -= 1;
        let found = match &mut block[at] {
            Statement::If { then, otherwise, .. } => {
                replace(then, left, edit, registers) || replace(otherwise, left, edit, registers)
            }
            Statement::Loop { body, .. } | Statement::Scope { body, .. } => {
                replace(body, left, edit, registers)
            }
            Statement::Inst { .. }
            | Statement::Break { .. }
            | Statement::Label(_)
            | Statement::Branch { .. }
            | Statement::Exit { .. } => false,
        };
        if found {
            return true;
        }
    }
    false
}

/// The statements that replace a statement.
fn changed(mut statement: Statement, change: Change, registers: &mut Vec<Type>) -> Vec<Statement> {
    match (&mut statement, change) {
        (_, Change::Delete) => return Vec::new(),
        (Statement::Inst { inst, site }, Change::OneLane) => return in_one_lane(inst, site, registers),
        (Statement::If { cond, .. }, Change::Force(holds)) => *cond = Operand::Imm(holds.into()),
        (Statement::Inst { inst, .. }, Change::Relax) => changes::relax(inst),
        (Statement::Inst { inst, .. }, Change::Narrow) => changes::narrow(inst),
        (Statement::Inst { inst, .. }, Change::Field { name, by }) => {
            if let Some(field) = changes::field(inst, name) {
                *field = field.saturating_add_signed(by);
            }
        }
        (Statement::Inst { inst, site }, Change::Operand { name, op, by }) => {
            let ty = changes::operand_type(inst, name);
            let site = site.clone();
            if let Some(operand) = changes::operand(inst, name) {
                match *operand {
                    Operand::Imm(bits) => *operand = Operand::Imm(fold(op, ty, bits, by.into())),
                    Operand::Reg(_) => {
                        let dst = crate::inst::Reg(u32::try_from(registers.len()).unwrap_or(u32::MAX));
                        registers.push(ty);
                        let old = core::mem::replace(operand, Operand::Reg(dst));
                        let inst = Inst::Binary { op, ty, dst, a: old, b: Operand::Imm(by.into()) };
                        return vec![Statement::Inst { inst, site }, statement];
                    }
                }
            }
        }
        (
            Statement::Inst { .. }
            | Statement::If { .. }
            | Statement::Loop { .. }
            | Statement::Break { .. }
            | Statement::Scope { .. }
            | Statement::Label(_)
            | Statement::Branch { .. }
            | Statement::Exit { .. },
            Change::Force(_)
            | Change::Relax
            | Change::Narrow
            | Change::Swap
            | Change::OneLane
            | Change::Field { .. }
            | Change::Operand { .. },
        ) => {}
    }
    vec![statement]
}

/// A wait that lane 0 executes alone. In the other lanes a wait that may fail counts as successful.
fn in_one_lane(inst: &Inst, site: &SourceSite, registers: &mut Vec<Type>) -> Vec<Statement> {
    let mut register = |ty| {
        registers.push(ty);
        crate::inst::Reg(u32::try_from(registers.len() - 1).unwrap_or(u32::MAX))
    };
    let (lane, first) = (register(Type::U32), register(Type::Pred));
    let (op, ty, a, b) = (CompareOp::Eq, Type::U32, Operand::Reg(lane), Operand::Imm(0));
    let mut all = vec![
        Inst::ReadSpecial { dst: lane, special: Special::Lane },
        Inst::Compare { op, ty, dst: first, a, b },
    ];
    all.extend(changes::success(inst).map(|dst| Inst::Move { ty: Type::Pred, dst, src: Operand::Imm(1) }));
    let here = |inst| Statement::Inst { inst, site: site.clone() };
    let mut all: Vec<Statement> = all.into_iter().map(here).collect();
    let then = vec![here(inst.clone())];
    all.push(Statement::If { cond: Operand::Reg(first), then, otherwise: Vec::new(), site: site.clone() });
    all
}

/// `a op b` on constants.
fn fold(op: BinaryOp, ty: Type, a: u64, b: u64) -> u64 {
    match crate::fold::binary(op, ty, Operand::Imm(a), Operand::Imm(b)) {
        crate::fold::Folded::Operand(Operand::Imm(value)) => value,
        crate::fold::Folded::Operand(Operand::Reg(_))
        | crate::fold::Folded::Cheaper(..)
        | crate::fold::Folded::No => a,
    }
}

#[cfg(test)]
mod tests;
