//! Checks of the program for the reasons why mutants are equivalent.

use ptx::inst::{
    Arrival, AtomicInst, AtomicSem, BinaryOp, CompareOp, Inst, LoadOrder, MbarrierArrive, Operand,
    OrderedInst, Reg, WgmmaA,
};
use ptx::mutate::{Change, Mutation, computes, numbered};
use ptx::{Function, Space, Statement};

/// Whether no other CTA uses the mbarriers of a CTA.
pub(super) fn of_cta_alone(function: &Function) -> bool {
    let reaches = |inst: &Inst| {
        matches!(
            inst,
            Inst::MbarrierArrive(MbarrierArrive { space: Space::SharedCluster, .. })
                | Inst::TensorLoad { multicast: Some(_), .. }
                | Inst::MbarrierTest(_)
                | Inst::Bulk(_)
        )
    };
    function.cluster == [1, 1, 1] || !instructions(function).into_iter().any(reaches)
}

/// Whether the program uses mbarriers of its own CTA only, and only threads arrive at them.
pub(super) fn of_threads_alone(function: &Function) -> bool {
    let others = |inst: &Inst| matches!(inst, Inst::TensorLoad { .. } | Inst::MapShared { .. });
    !instructions(function).into_iter().any(others)
}

/// For a swap: the statement that comes first in the mutant. Between the two are only computations in
/// registers.
pub(super) fn next_step<'f>(function: &'f Function, mutation: &Mutation) -> Option<&'f Inst> {
    let all = numbered(function);
    let later = all.get(mutation.index + 1..).filter(|_| mutation.change == Change::Swap)?;
    later.iter().filter_map(|statement| statement.inst()).find(|inst| !computes(inst))
}

/// All instructions of a program, in its order.
pub(super) fn instructions(function: &Function) -> Vec<&Inst> {
    Statement::instructions(&function.body)
}

/// Whether, since another fence in the same block, no instruction but multiplies uses a register of the multiplies that follow.
pub(super) fn fenced_already(function: &Function, mutation: &Mutation) -> bool {
    let all = numbered(function);
    let Some(&statement) = all.get(mutation.index) else { return false };
    let blocks = around(&function.body, statement);
    let Some(&Place { block, at, .. }) = blocks.as_ref().and_then(|blocks| blocks.last()) else {
        return false;
    };
    let fence = |other: &Statement| matches!(other.inst(), Some(Inst::WgmmaFence));
    let Some(before) = block[..at].iter().rposition(fence) else { return false };
    let registers = |inst: &Inst| -> Vec<Operand> {
        let operands = inst.operands();
        let written = operands.writes.into_iter().map(|(reg, _)| Operand::Reg(reg));
        written.chain(operands.reads.into_iter().map(|(read, _)| read)).collect()
    };
    let multiplies = |inst: &&Inst| matches!(inst, Inst::Wgmma { .. });
    let next = Statement::instructions(&block[at + 1..]).into_iter();
    let next = next.take_while(|inst| !matches!(inst, Inst::WgmmaCommit)).filter(multiplies);
    let used: Vec<Operand> = next.flat_map(registers).filter(|of| matches!(of, Operand::Reg(_))).collect();
    // Descriptors are no registers of the products.
    let is_descriptor = |of: &Operand| match of {
        Operand::Reg(reg) => function.registers.get(reg.0 as usize) == Some(&ptx::Type::U64),
        Operand::Imm(_) => true,
    };
    let used: Vec<Operand> = used.into_iter().filter(|of| !is_descriptor(of)).collect();
    Statement::instructions(&block[before + 1..at])
        .into_iter()
        .filter(|inst| !multiplies(inst))
        .all(|inst| registers(inst).iter().all(|of| !used.contains(of)))
}

/// Whether the statement writes a register outside of loops, and no later one reads it.
pub(super) fn not_read_again(function: &Function, mutation: &Mutation) -> bool {
    let all = numbered(function);
    let operands = |inst: &Inst| inst.operands();
    let Some(own) = all.get(mutation.index).and_then(|statement| statement.inst()) else { return false };
    let written: Vec<Operand> = operands(own).writes.into_iter().map(|(reg, _)| Operand::Reg(reg)).collect();
    let reads = |statement: &&Statement| match statement {
        Statement::Inst { inst, .. } => operands(inst).reads.iter().any(|(read, _)| written.contains(read)),
        Statement::If { cond, .. } | Statement::Break { cond, .. } => written.contains(cond),
        Statement::Branch { guard, .. } | Statement::Exit { guard, .. } => {
            guard.is_some_and(|guard| written.contains(&guard.cond))
        }
        Statement::Loop { .. } | Statement::Scope { .. } | Statement::Label(_) => false,
    };
    mutation.within.is_none() && !all[mutation.index + 1..].iter().any(reads)
}

pub(super) fn waits_longer(mutation: &Mutation) -> bool {
    matches!(mutation.change, Change::Field { name: "pending", by: -1 })
}

/// Whether the mutant deletes an update or moves the end of the ring, and does not change an initial value.
pub(super) fn advances(mutation: &Mutation) -> bool {
    matches!(mutation.change, Change::Delete | Change::Operand { name: "end", .. })
}

/// Whether the accumulators in the loop around the statement are used only by multiplies of one shape.
pub(super) fn untouched(function: &Function, mutation: &Mutation) -> bool {
    let Some(Statement::Loop { body, .. }) =
        mutation.within.and_then(|at| numbered(function).get(at).copied())
    else {
        return false;
    };
    let instructions = Statement::instructions(body);
    let accumulators: Vec<(Reg, u32)> = instructions
        .iter()
        .flat_map(|inst| {
            let (accumulators, n) =
                if let Inst::Wgmma { d, n, .. } = inst { (&d[..], *n) } else { (&[][..], 0) };
            accumulators.iter().map(move |&reg| (reg, n))
        })
        .collect();
    let shape = |reg: Reg| accumulators.iter().find(|(known, _)| *known == reg).map(|(_, n)| *n);
    !accumulators.is_empty()
        && instructions.iter().all(|inst| {
            if let Inst::Wgmma { n, d, a, .. } = inst {
                // A must be in shared memory: fragments of A in registers are written by other instructions.
                matches!(a, WgmmaA::Shared(_)) && d.iter().all(|&reg| shape(reg) == Some(*n))
            } else {
                uses(inst).into_iter().all(|reg| shape(reg).is_none())
            }
        })
}

fn uses(inst: &Inst) -> Vec<Reg> {
    let operands = inst.operands();
    let reads = operands.reads.iter().filter_map(|(operand, _)| match operand {
        Operand::Reg(reg) => Some(*reg),
        Operand::Imm(_) => None,
    });
    reads.chain(operands.writes.iter().map(|(reg, _)| *reg)).collect()
}

/// A block around a statement.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) block: &'a [Statement],
    /// The index of the statement, or of the one that contains it.
    pub(super) at: usize,
    /// Whether the block is the body of a loop.
    pub(super) repeats: bool,
}

/// The blocks around a statement, outermost first.
pub(super) fn around<'a>(block: &'a [Statement], statement: &Statement) -> Option<Vec<Place<'a>>> {
    fn search<'a>(block: &'a [Statement], repeats: bool, statement: &Statement) -> Option<Vec<Place<'a>>> {
        block.iter().enumerate().find_map(|(at, other)| {
            let own = vec![Place { block, at, repeats }];
            if core::ptr::eq(other, statement) {
                return Some(own);
            }
            let repeats = matches!(other, Statement::Loop { .. });
            let inside = other.blocks().into_iter().find_map(|inner| search(inner, repeats, statement));
            inside.map(|inside| [own, inside].concat())
        })
    }
    search(block, false, statement)
}

/// Whether no copy from shared memory can have started before the statement is executed.
pub(super) fn copies_nothing_before(function: &Function, mutation: &Mutation) -> bool {
    let starts = |inst: &&Inst| matches!(inst, Inst::TensorStore { .. } | Inst::Bulk(_) | Inst::BulkCommit);
    earlier(function, mutation).is_some_and(|before| !before.iter().any(starts))
}

/// Whether the next operation on bulk groups by the same threads is a commit, and all waits of the block are
/// for all groups.
pub(super) fn joins_the_next(function: &Function, mutation: &Mutation) -> bool {
    let groups = |statements: &[Statement]| {
        let of_groups = |inst: &&Inst| matches!(inst, Inst::BulkCommit | Inst::BulkWait { .. });
        Statement::instructions(statements).into_iter().filter(of_groups).cloned().collect::<Vec<_>>()
    };
    let Some(statement) = numbered(function).get(mutation.index).copied() else { return false };
    let Some(places) = around(&function.body, statement) else { return false };
    let [.., Place { block, at, .. }, Place { block: inner, at: own, .. }] = places[..] else { return false };
    let Statement::If { cond, then, .. } = &block[at] else { return false };
    let nothing_behind = core::ptr::eq(inner, &then[..]) && groups(&then[own + 1..]).is_empty();
    let same = |next: &Statement| {
        let commits = groups(core::slice::from_ref(next)).first() == Some(&Inst::BulkCommit);
        commits && matches!(next, Statement::If { cond: other, .. } if other == cond)
    };
    let next = block[at + 1..].iter().find(|next| !groups(core::slice::from_ref(next)).is_empty());
    let for_all = |inst: &Inst| !matches!(inst, Inst::BulkWait { pending: 1.., .. });
    // If it is executed once, earlier waits do not matter.
    let waits_for_all = match mutation.within {
        Some(_) => groups(block).iter().all(for_all),
        None => later(function, mutation).is_some_and(|behind| behind.into_iter().all(for_all)),
    };
    nothing_behind && next.is_some_and(same) && waits_for_all
}

/// The instructions that may be executed after a statement: those behind it in its own branches, and all instructions of the
/// loops around it.
fn later<'a>(function: &'a Function, mutation: &Mutation) -> Option<Vec<&'a Inst>> {
    let places = around(&function.body, numbered(function).get(mutation.index)?)?;
    let behind = |place: &Place<'a>| {
        Statement::instructions(&place.block[if place.repeats { 0 } else { place.at + 1 }..])
    };
    Some(places.iter().flat_map(behind).collect())
}

/// Whether a thread only computes and waits for mbarriers after the statement.
pub(super) fn nothing_behind(function: &Function, mutation: &Mutation) -> bool {
    let quiet = |inst: &Inst| computes(inst) || matches!(inst, Inst::MbarrierWait { .. });
    later(function, mutation).is_some_and(|behind| behind.into_iter().all(quiet))
}

/// Whether an instruction publishes the initialisation of mbarriers in a program that has none.
pub(super) fn publishes_nothing(function: &Function, inst: &Inst) -> bool {
    let initialises = |inst: &&Inst| matches!(inst, Inst::MbarrierInit { .. });
    matches!(inst, Inst::FenceMbarrierInit) && !instructions(function).iter().any(initialises)
}

/// Whether there is nothing in an `if` but computations in registers, and a fence that orders nothing.
pub(super) fn does_nothing(function: &Function, mutation: &Mutation) -> bool {
    let all = numbered(function);
    let Some(Statement::If { then, otherwise, .. }) = all.get(mutation.index) else { return false };
    let leaves =
        |statement: &Statement| matches!(statement, Statement::Break { .. } | Statement::Loop { .. });
    let inside = [then, otherwise].map(|block| Statement::instructions(block)).concat();
    !then.iter().chain(otherwise).any(leaves)
        && inside.into_iter().all(|inst| {
            computes(inst) || matches!(inst, Inst::Elect { .. }) || publishes_nothing(function, inst)
        })
}

/// Whether the statement is executed only on the way to a trap, which ends a run of the original as a failure; or whether it decides
/// that nothing is executed, where the original would trap.
pub(super) fn ends_in_a_trap(function: &Function, mutation: &Mutation) -> bool {
    let traps = |block: &[Statement]| matches!(block.last().and_then(Statement::inst), Some(Inst::Trap));
    let all = numbered(function);
    let Some(&statement) = all.get(mutation.index) else { return false };
    if let Statement::If { then, otherwise, .. } = statement {
        return mutation.change == Change::Force(false) && traps(then) && otherwise.is_empty();
    }
    around(&function.body, statement)
        .is_some_and(|blocks| blocks.last().is_some_and(|place| traps(place.block)))
}

/// Whether an acquire load or atomic before the store has the same address, and no other ordered access or
/// atomic uses that address.
pub(super) fn follows_its_load(function: &Function, mutation: &Mutation) -> bool {
    let Some(before) = earlier(function, mutation) else { return false };
    let Some(Statement::Inst { inst: Inst::Ordered(OrderedInst::Store { address: own, .. }), .. }) =
        numbered(function).get(mutation.index).copied()
    else {
        return false;
    };
    let looks = |inst: &&Inst| {
        matches!(
            inst,
            Inst::Ordered(OrderedInst::Load { order: LoadOrder::Acquire(_), address, .. }) if address == own
        ) || matches!(
            inst,
            Inst::Atomic(AtomicInst { sem: AtomicSem::Acquire | AtomicSem::AcquireRelease, address, .. })
                if address == own
        )
    };
    let all = instructions(function);
    let touches = |inst: &&&Inst| {
        matches!(inst, Inst::Ordered(OrderedInst::Store { address, .. }) if address == own)
            || matches!(inst, Inst::Atomic(atomic) if atomic.address == *own)
            || looks(inst)
    };
    before.iter().any(looks) && all.iter().filter(touches).count() == 2
}

/// Whether the variable is always zero: it starts at zero, and its ring ends at one.
pub(super) fn always_zero(function: &Function, mutation: &Mutation) -> bool {
    let all = instructions(function);
    let of = |wanted: Reg| {
        let writes =
            all.iter().filter(move |inst| inst.operands().writes.iter().any(|(reg, _)| *reg == wanted));
        writes.copied().collect::<Vec<_>>()
    };
    let is = |operand: Operand, bits: u64| match operand {
        Operand::Imm(own) => own == bits,
        Operand::Reg(reg) => {
            matches!(of(reg)[..], [Inst::Move { src: Operand::Imm(own), .. }] if *own == bits)
        }
    };
    let Some(Statement::Inst { inst: Inst::Move { dst, .. }, .. }) =
        numbered(function).get(mutation.index).copied()
    else {
        return false;
    };
    // Each value that is written: zero, or a selection of zero because the next position, one, is the end.
    of(*dst).into_iter().all(|write| {
        let Inst::Move { src, .. } = write else { return false };
        let Operand::Reg(src) = *src else { return is(*src, 0) };
        let [Inst::Select { a, cond: Operand::Reg(cond), .. }] = of(src)[..] else { return false };
        let [Inst::Compare { op: CompareOp::Eq, a: Operand::Reg(next), b, .. }] = of(*cond)[..] else {
            return false;
        };
        let [Inst::Binary { op: BinaryOp::Add, a: Operand::Reg(own), b: one, .. }] = of(*next)[..] else {
            return false;
        };
        let reads = matches!(of(*own)[..], [Inst::Move { src: Operand::Reg(from), .. }] if from == dst);
        is(*a, 0) && is(*b, 1) && is(*one, 1) && (own == dst || reads)
    })
}

/// Whether it is an arrival at an mbarrier that announces no bytes.
pub(super) fn arrives(inst: &Inst) -> bool {
    matches!(inst, Inst::MbarrierArrive(MbarrierArrive { arrival: Arrival::Count(_), state: None, .. }))
}

/// Whether an instruction accesses no memory by ordinary loads and stores of threads.
pub(super) fn quiet(inst: &&Inst) -> bool {
    arrives(inst)
        || computes(inst)
        || matches!(
            inst,
            Inst::Pack { .. }
                | Inst::Unpack { .. }
                | Inst::ShuffleIndex { .. }
                | Inst::ShuffleXor { .. }
                | Inst::Elect { .. }
                | Inst::LoadParam { .. }
                | Inst::ParamAddress { .. }
                | Inst::SetMaxRegisters { .. }
                | Inst::GridDependency { .. }
                | Inst::MbarrierWait { .. }
                | Inst::Wgmma { .. }
                | Inst::WgmmaFence
                | Inst::WgmmaCommit
                | Inst::WgmmaWait { .. }
                | Inst::WarpSync
                | Inst::BulkWait { .. }
        )
}

/// The instructions that may have been executed before a statement, in order: those before it in its own
/// branches, and all instructions of the loops around it.
pub(super) fn earlier<'a>(function: &'a Function, mutation: &Mutation) -> Option<Vec<&'a Inst>> {
    let places = around(&function.body, numbered(function).get(mutation.index)?)?;
    let of_loop = places.iter().position(|place| place.repeats);
    let outside = &places[..of_loop.unwrap_or(places.len())];
    let before = outside.iter().flat_map(|place| Statement::instructions(&place.block[..place.at]));
    let around = of_loop.map_or(&[][..], |at| places[at].block);
    Some(before.chain(Statement::instructions(around)).collect())
}

/// Whether an `if` without `else` has only instructions for which `this` is true.
pub(super) fn only(function: &Function, mutation: &Mutation, this: fn(&Inst) -> bool) -> bool {
    let all = numbered(function);
    let Some(Statement::If { then, otherwise, .. }) = all.get(mutation.index) else { return false };
    let does = |statement: &Statement| matches!(statement, Statement::Inst { inst, .. } if this(inst));
    otherwise.is_empty() && then.iter().all(does)
}
