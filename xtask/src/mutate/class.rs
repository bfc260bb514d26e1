//! Classes of kernels with the same synchronisation: kernels whose *skeletons* are the same text.
//!
//! A skeleton has, in the order of the program and in the same branches, loops and scopes:
//! * each statement that has a mutant, completely;
//! * each instruction, completely, from which the operands of such a statement, the mbarrier and the
//!   receivers of a copy, or the condition of a branch or loop around them are computed: these values decide
//!   which thread waits for what, and when;
//! * each copy, multiply and other access to memory, by its name, with the mbarrier of a copy. Repetitions
//!   between two of the statements above are left out: the number of boxes of an operand and of values that a
//!   thread stores depends on layouts only.
//!
//! Registers are numbered in the order of appearance. Addresses and values of data are left out: element
//! types, directions of operands, descriptors, coordinates, and the arithmetic of the epilogue.

use std::collections::HashMap;
use std::fmt::Write as _;

use ptx::inst::{Inst, Operand, Reg};
use ptx::mutate::{Mutation, mutations, numbered};
use ptx::{Function, Statement};

/// The number of a program's class: a hash of the skeleton and of the list of mutants.
pub(super) fn of(function: &Function) -> u64 {
    let mutations = mutations(function);
    let mut text = skeleton(function, &mutations);
    let all = numbered(function);
    for Mutation { target, change, .. } in mutations.iter().filter(|one| !of_copy(&all, one)) {
        // Writing to a string cannot fail.
        let _ = write!(text, "{target} {change};");
    }
    // FNV-1a.
    text.bytes().fold(0xCBF2_9CE4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3)
    })
}

/// A program's skeleton as text.
fn skeleton(function: &Function, mutations: &[Mutation]) -> String {
    let all = numbered(function);
    let mut mutated = vec![false; all.len()];
    for mutation in mutations.iter().filter(|one| !of_copy(&all, one)) {
        mutated[mutation.index] = true;
    }
    let mut decides = Decides { registers: vec![false; function.registers.len()] };
    decides.seed(&function.body, &mutated);
    while decides.grow(&function.body) {}
    let mut printer = Printer { decides: &decides, numbers: HashMap::new() };
    let lines = printer.block(&function.body, &mutated);
    format!("{} threads, clusters of {:?}\n{}\n", function.threads(), function.cluster, lines.join("\n"))
}

/// Whether it is a mutant of a copy. The skeleton has the mbarrier and the receivers of a copy once, however
/// many boxes the operand is copied in.
fn of_copy(all: &[&Statement], mutation: &Mutation) -> bool {
    let statement = all.get(mutation.index);
    matches!(statement, Some(Statement::Inst { inst: Inst::TensorLoad { .. } | Inst::Bulk(_), .. }))
}

/// A statement with the flags of itself and of those inside it: whether they have mutants.
type Flagged<'s, 'm> = (&'s Statement, &'m [bool]);

/// Each statement of a block with its flags.
fn with_mutated<'s, 'm>(
    block: &'s [Statement],
    mut mutated: &'m [bool],
) -> impl Iterator<Item = Flagged<'s, 'm>> {
    block.iter().map(move |statement| {
        let (own, rest) = mutated.split_at(Statement::all(core::slice::from_ref(statement)).len());
        mutated = rest;
        (statement, own)
    })
}

/// The blocks in a statement, with the flags of their statements.
fn inside<'s, 'm>((statement, mutated): Flagged<'s, 'm>) -> [(&'s [Statement], &'m [bool]); 2] {
    let blocks = statement.blocks();
    let (first, second) = mutated[1..].split_at(Statement::all(blocks[0]).len());
    [(blocks[0], first), (blocks[1], second)]
}

/// The registers from which the effect of synchronising statements is computed.
struct Decides {
    registers: Vec<bool>,
}

impl Decides {
    fn mark(&mut self, operands: impl IntoIterator<Item = Operand>) -> bool {
        let mut new = false;
        for operand in operands {
            let Operand::Reg(Reg(reg)) = operand else { continue };
            if let Some(known) = self.registers.get_mut(reg as usize) {
                new |= !core::mem::replace(known, true);
            }
        }
        new
    }

    fn reads(&self, inst: &Inst) -> Vec<Operand> {
        let operands = inst.operands();
        operands.reads.into_iter().map(|(operand, _)| operand).collect()
    }

    /// Whether an instruction writes one of the registers.
    fn hold(&self, inst: &Inst) -> bool {
        let operands = inst.operands();
        operands.writes.iter().any(|(reg, _)| self.registers.get(reg.0 as usize).copied().unwrap_or(false))
    }

    /// Marks the registers that are read by statements with mutants, and by the branches and loops around
    /// them.
    fn seed(&mut self, block: &[Statement], mutated: &[bool]) {
        for (statement, mutated) in with_mutated(block, mutated) {
            let reads = match statement {
                Statement::Inst { inst, .. } if !mutated[0] => credited(inst),
                Statement::Inst { inst, .. } => self.reads(inst),
                _ if !mutated.contains(&true) => Vec::new(),
                Statement::If { .. } | Statement::Loop { .. } => conditions(statement),
                // The kernels that are classed are structured.
                Statement::Scope { .. }
                | Statement::Break { .. }
                | Statement::Label(_)
                | Statement::Branch { .. }
                | Statement::Exit { .. } => Vec::new(),
            };
            self.mark(reads);
            inside((statement, mutated)).into_iter().for_each(|(block, mutated)| self.seed(block, mutated));
        }
    }

    /// Marks the registers that are read by instructions that write marked registers. Returns whether one was
    /// new.
    fn grow(&mut self, block: &[Statement]) -> bool {
        let mut new = false;
        for statement in block {
            let inside = statement.blocks().map(|block| self.grow(block)).contains(&true);
            new |= match statement {
                Statement::Inst { inst, .. } => self.hold(inst) && self.mark(self.reads(inst)),
                // A value also depends on the condition under which it is written.
                Statement::If { .. } | Statement::Loop { .. } => {
                    self.written_in(core::slice::from_ref(statement)) && self.mark(conditions(statement))
                }
                Statement::Scope { .. }
                | Statement::Break { .. }
                | Statement::Label(_)
                | Statement::Branch { .. }
                | Statement::Exit { .. } => inside,
            };
        }
        new
    }

    fn written_in(&self, block: &[Statement]) -> bool {
        Statement::instructions(block).into_iter().any(|inst| self.hold(inst))
    }
}

/// What decides whether the statements in a branch or a loop are executed.
fn conditions(statement: &Statement) -> Vec<Operand> {
    match statement {
        Statement::If { cond, .. } => vec![*cond],
        Statement::Loop { body, .. } => leaves(body),
        Statement::Scope { .. }
        | Statement::Inst { .. }
        | Statement::Break { .. }
        | Statement::Label(_)
        | Statement::Branch { .. }
        | Statement::Exit { .. } => Vec::new(),
    }
}

/// The conditions under which threads leave a loop.
fn leaves(body: &[Statement]) -> Vec<Operand> {
    let mut found = Vec::new();
    for statement in body {
        match statement {
            Statement::Break { cond, .. } => found.push(*cond),
            Statement::If { cond, then, otherwise, .. } => {
                let inside = [leaves(then), leaves(otherwise)].concat();
                found.extend((!inside.is_empty()).then_some(*cond));
                found.extend(inside);
            }
            Statement::Scope { body, .. } => found.extend(leaves(body)),
            Statement::Inst { .. }
            | Statement::Loop { .. }
            | Statement::Label(_)
            | Statement::Branch { .. }
            | Statement::Exit { .. } => {}
        }
    }
    found
}

/// The mbarrier and the receivers of a copy.
#[expect(clippy::wildcard_enum_match_arm, reason = "only tensor copies carry an mbarrier in today's kernels")]
fn credited(inst: &Inst) -> Vec<Operand> {
    match inst {
        Inst::TensorLoad { barrier, multicast, .. } => core::iter::once(*barrier).chain(*multicast).collect(),
        _ => Vec::new(),
    }
}

/// Prints the skeleton: one text per statement, of several lines if there are statements inside.
struct Printer<'a> {
    decides: &'a Decides,
    /// The number of each register that has appeared.
    numbers: HashMap<u32, usize>,
}

impl Printer<'_> {
    /// The part of a block that belongs to the skeleton.
    fn block(&mut self, block: &[Statement], mutated: &[bool]) -> Vec<String> {
        let mut lines: Vec<String> = Vec::new();
        // The index after the last synchronising statement.
        let mut since = 0;
        for (statement, mutated) in with_mutated(block, mutated) {
            let line = match statement {
                Statement::Inst { inst, .. } => self.instruction(inst, mutated[0]),
                Statement::If { cond, .. } => {
                    let head = format!("if {}", self.decided(*cond));
                    let branches = inside((statement, mutated));
                    let [then, otherwise] = branches.map(|(block, mutated)| self.block(block, mutated));
                    let seen = !then.is_empty() || !otherwise.is_empty();
                    seen.then(|| format!("{head}\n{}\nelse\n{}\nend", then.join("\n"), otherwise.join("\n")))
                }
                Statement::Loop { body, .. } => nested("loop", self.block(body, &mutated[1..])),
                Statement::Scope { name, body } => nested(name, self.block(body, &mutated[1..])),
                Statement::Break { cond, .. } => {
                    let cond = self.decided(*cond);
                    (!cond.is_empty()).then(|| format!("break if {cond}"))
                }
                // The kernels that are classed are structured.
                Statement::Label(_) | Statement::Branch { .. } | Statement::Exit { .. } => None,
            };
            let Some(line) = line else { continue };
            // Statements that synchronise or decide are kept, also if they are repeated.
            let counts = mutated.contains(&true) || self.decides.written_in(core::slice::from_ref(statement));
            if counts || !lines[since..].contains(&line) {
                lines.push(line);
            }
            if mutated.contains(&true) {
                since = lines.len();
            }
        }
        lines
    }

    fn instruction(&mut self, inst: &Inst, mutated: bool) -> Option<String> {
        if mutated || self.decides.hold(inst) {
            return Some(self.whole(inst));
        }
        let with: Vec<String> = credited(inst).into_iter().map(|operand| self.decided(operand)).collect();
        let shape = if let Inst::Wgmma { n, .. } = inst { format!("n{n}") } else { String::new() };
        accesses_memory(inst).then(|| format!("{} {shape}{}", inst.name(), with.join(" ")))
    }

    /// An operand, if it is an immediate or a marked register.
    fn decided(&mut self, operand: Operand) -> String {
        match operand {
            Operand::Imm(bits) => bits.to_string(),
            Operand::Reg(Reg(reg)) => {
                let decides = self.decides.registers.get(reg as usize).copied().unwrap_or(false);
                if decides { format!("r{}", self.number(reg)) } else { String::new() }
            }
        }
    }

    fn number(&mut self, reg: u32) -> usize {
        let next = self.numbers.len();
        *self.numbers.entry(reg).or_insert(next)
    }

    /// An instruction with renumbered registers.
    fn whole(&mut self, inst: &Inst) -> String {
        let text = format!("{inst:?}");
        let mut parts = text.split("Reg(");
        let mut line = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let digits = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
            line.push_str("Reg(");
            if let Ok(reg) = part[..digits].parse() {
                // Writing to a string cannot fail.
                let _ = write!(line, "{}", self.number(reg));
            }
            line.push_str(&part[digits..]);
        }
        line
    }
}

fn nested(head: &str, lines: Vec<String>) -> Option<String> {
    (!lines.is_empty()).then(|| format!("{head}\n{}\nend", lines.join("\n")))
}

/// Whether an instruction reads or writes memory, or starts an operation that does.
fn accesses_memory(inst: &Inst) -> bool {
    matches!(
        inst,
        Inst::Load { .. }
            | Inst::Store { .. }
            | Inst::StoreMatrix { .. }
            | Inst::TensorLoad { .. }
            | Inst::TensorStore { .. }
            | Inst::TensorMap(_)
            | Inst::Bulk(_)
            | Inst::CopyAsync(_)
            | Inst::MbarrierTest(_)
            | Inst::Wgmma { .. }
            | Inst::WarpMatrix(_)
            | Inst::Atomic(_)
            | Inst::Ordered(_)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use ptx::{Builder, Entry, Special, Target};

    /// A barrier after some stores. The tests vary the numbers.
    fn class(stores: u32, offset: i32, barrier: u32, lane: u32) -> u64 {
        let entry = Entry {
            name: "probe".into(),
            target: Target::Sm90a,
            threads: 128,
            shared_bytes: 1024,
            cluster: [1, 1, 1],
        };
        let function = Function::build(entry, |f: &Builder| {
            let base = f.shared_base();
            for _ in 0..stores {
                f.store_shared(base, offset, [f.constant(7u32)]);
            }
            f.if_(f.special(Special::Lane).equals(lane), || f.mbarrier_init(base + 8, 1));
            f.barrier_sync(barrier, 128);
        });
        of(&function)
    }

    #[test]
    fn a_class_knows_of_synchronisation_and_not_of_data() {
        let origin = class(1, 64, 0, 0);
        for (same, why, other) in [
            (true, "more stores", class(2, 64, 0, 0)),
            (true, "stores elsewhere", class(1, 128, 0, 0)),
            (false, "no stores", class(0, 64, 0, 0)),
            (false, "another barrier", class(1, 64, 1, 0)),
            (false, "another thread", class(1, 64, 0, 1)),
        ] {
            assert_eq!(origin == other, same, "{why}");
        }
    }

    #[test]
    fn layouts_of_a_kind_are_of_one_class_and_kinds_are_not() {
        let class = |name: &str| {
            let gemm = kernel::find(name).expect("a catalogue name");
            of(gemm.program().expect("a program").function())
        };
        let small = class("64x64-direct-bf16-kk");
        assert_eq!(small, class("64x64-direct-f16-mn"));
        assert_ne!(small, class("128x128-direct-bf16-kk"));
        assert_ne!(small, class("128x64-bf16-kk"));
    }
}
