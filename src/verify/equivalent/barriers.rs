//! Checks of the program for reasons about barriers of a CTA's threads.

use ptx::inst::{Arrival, BarrierReduce, CompareOp, Inst, MbarrierArrive, Operand};
use ptx::mutate::{Mutation, chooses_threads, computes, numbered};
use ptx::{Function, Space, Statement};

use super::checks::{Place, around, arrives, earlier, instructions, publishes_nothing, quiet};
use super::threads::writes;

/// The number of the named barrier that a statement uses.
fn barrier(statement: &Statement) -> Option<Operand> {
    let (Statement::Inst { inst: Inst::BarrierSync { id, .. } | Inst::BarrierArrive { id, .. }, .. }
    | Statement::Inst { inst: Inst::BarrierReduce(BarrierReduce { id, .. }), .. }) = statement
    else {
        return None;
    };
    Some(*id)
}

/// Whether a statement uses the named barrier with this number, or one whose number is in a register.
fn takes(statement: &Statement, number: u64) -> bool {
    barrier(statement).is_some_and(|id| !matches!(id, Operand::Imm(id) if id != number))
}

/// Whether a statement is an unconditional barrier of the whole CTA.
fn meets_all(function: &Function, statement: &Statement) -> bool {
    let all = matches!(
        statement,
        Statement::Inst { inst: Inst::BarrierSync { id: Operand::Imm(_), threads }, .. } if *threads == function.threads()
    );
    all && function.body.iter().any(|other| core::ptr::eq(other, statement))
}

/// Whether no other statement uses the barrier of the statement, or the barrier with the next number.
/// Barriers of the whole CTA before the statement do not count: they are complete when a thread reaches the
/// statement.
pub(super) fn only_use(function: &Function, mutation: &Mutation) -> bool {
    let all = numbered(function);
    let own = all.get(mutation.index).and_then(|statement| barrier(statement));
    let Some(Operand::Imm(own)) = own else { return false };
    let counts = |(index, statement): &(usize, &&Statement)| {
        *index != mutation.index && !(*index < mutation.index && meets_all(function, statement))
    };
    let mut others = all.iter().enumerate().filter(counts);
    !others.any(|(_, statement)| takes(statement, own) || takes(statement, own + 1))
}

/// Whether all threads of the CTA reach the barrier if one does, and no statement uses the next number.
pub(super) fn of_all_alone(function: &Function, mutation: &Mutation) -> bool {
    let all = numbered(function);
    let Some(Statement::Inst { inst: Inst::BarrierSync { id: Operand::Imm(own), threads }, .. }) =
        all.get(mutation.index)
    else {
        return false;
    };
    *threads == function.threads()
        && of_all(function, &function.body, all[mutation.index])
        && !all.iter().any(|statement| takes(statement, own + 1))
}

/// Whether a statement is in a block, or inside it in loops, scopes and branches whose conditions are the
/// same in all threads.
fn of_all(function: &Function, block: &[Statement], statement: &Statement) -> bool {
    let chooses = |inner: &Statement| matches!(inner, Statement::Break { cond, .. } if chooses_threads(function, *cond));
    block.iter().any(|other| {
        let same = match other {
            Statement::Loop { body, .. } => !body.iter().any(chooses),
            Statement::If { cond, .. } => !chooses_threads(function, *cond),
            Statement::Scope { .. }
            | Statement::Inst { .. }
            | Statement::Break { .. }
            | Statement::Label(_)
            | Statement::Branch { .. }
            | Statement::Exit { .. } => true,
        };
        let inside = || other.blocks().into_iter().any(|inner| of_all(function, inner, statement));
        core::ptr::eq(other, statement) || same && inside()
    })
}

/// Whether all threads of the CTA reach the barrier before a thread uses its new number.
pub(super) fn first_of_all(function: &Function, mutation: &Mutation) -> bool {
    let all = numbered(function);
    let Some(statement) = all.get(mutation.index) else { return false };
    let Some(Operand::Imm(own)) = barrier(statement) else { return false };
    meets_all(function, statement) && !all[..mutation.index].iter().any(|statement| takes(statement, own + 1))
}

/// Whether another barrier of the whole CTA follows, and until then no thread accesses what was written
/// before this one: before this barrier only mbarriers are initialised, and until the next one they are not
/// used.
pub(super) fn next_does_as_well(function: &Function, mutation: &Mutation) -> bool {
    let all = numbered(function);
    let Some(statement) = all.get(mutation.index) else { return false };
    let whole = |statement: &Statement| meets_all(function, statement);
    let body = &function.body;
    let Some(at) = body.iter().position(|other| core::ptr::eq(other, *statement)) else { return false };
    let Some(next) = body[at + 1..].iter().position(whole) else { return false };
    let uses = |inst: &Inst| arrives(inst) || matches!(inst, Inst::MbarrierWait { .. } | Inst::Wgmma { .. });
    let initialises = |inst: &Inst| {
        matches!(inst, Inst::MbarrierInit { .. } | Inst::FenceMbarrierInit | Inst::PrefetchTensorMap { .. })
    };
    let apart = |inst: &Inst| matches!(inst, Inst::Load { .. } | Inst::Store { .. });
    let only = |block, this: fn(&Inst) -> bool| {
        Statement::instructions(block).into_iter().all(|inst| quiet(&inst) && !uses(inst) || this(inst))
    };
    whole(statement) && only(&body[..at], initialises) && only(&body[at + 1..at + 1 + next], apart)
}

/// Whether the barrier belongs to the only consumer warpgroup of the CTA: its warps reach all its barriers,
/// in one order, and all other barriers have the number zero.
pub(super) fn of_one_warpgroup(function: &Function, mutation: &Mutation) -> bool {
    let all = numbered(function);
    let of_cta = |statement: &Statement| {
        matches!(
            statement,
            Statement::Inst { inst: Inst::BarrierSync { id: Operand::Imm(0), threads }, .. }
                if *threads == function.threads()
        )
    };
    let consumers =
        |statement: &&&Statement| matches!(statement, Statement::Scope { name, .. } if name == "consumer");
    let Some([consumers, _]) = all.iter().find(consumers).map(|scope| scope.blocks()) else { return false };
    let theirs = |statement: &Statement| {
        matches!(
            statement,
            Statement::Inst { inst: Inst::BarrierSync { id: Operand::Reg(_), threads: 128 }, .. }
        ) && of_all(function, consumers, statement)
    };
    // One producer warpgroup and one consumer warpgroup.
    let two = function.threads() == 256 && chosen_by_halves(function, consumers);
    let itself = all.get(mutation.index).is_some_and(|statement| theirs(statement));
    two && itself
        && all
            .iter()
            .filter(|statement| barrier(statement).is_some())
            .all(|other| theirs(other) || of_cta(other))
}

/// Whether all consumer threads, those after the first warpgroup, execute all barriers but those of the whole CTA, in one order.
pub(super) fn in_order_of_consumers(function: &Function, mutation: &Mutation) -> bool {
    let all = numbered(function);
    let consumers =
        |statement: &&&Statement| matches!(statement, Statement::Scope { name, .. } if name == "consumer");
    let Some([consumers, _]) = all.iter().find(consumers).map(|scope| scope.blocks()) else { return false };
    let is_of = |statement: &Statement, of: u32| {
        matches!(statement, Statement::Inst { inst: Inst::BarrierSync { id: Operand::Imm(id), threads }, .. }
            if *threads == of && (*id == 0) == (of == function.threads()))
    };
    let theirs = |statement: &Statement| {
        is_of(statement, function.threads() - 128) && of_all(function, consumers, statement)
    };
    chosen_by_halves(function, consumers)
        && all.get(mutation.index).is_some_and(|statement| theirs(statement))
        && all
            .iter()
            .filter(|statement| barrier(statement).is_some())
            .all(|other| theirs(other) || is_of(other, function.threads()))
}

/// The instructions of the consumers, which are all threads after the first warpgroup. `None` if the program has no such role.
pub(super) fn of_consumers(function: &Function) -> Option<Vec<&Inst>> {
    let all = numbered(function);
    let named = all.iter().find_map(|statement| {
        let Statement::Scope { name, body } = statement else { return None };
        (name == "consumer").then_some(&body[..])
    })?;
    chosen_by_halves(function, named).then(|| Statement::instructions(named))
}

/// Whether all named barriers are the consumers', apart from number zero, at which the whole CTA meets.
pub(super) fn by_consumers_alone(function: &Function) -> bool {
    let all = numbered(function);
    let named = |inst: &&Inst| {
        matches!(inst, Inst::BarrierSync { .. } | Inst::BarrierArrive { .. } | Inst::BarrierReduce(_))
    };
    let zero = all.iter().filter(|statement| {
        matches!(barrier(statement), Some(Operand::Imm(0))) && meets_all(function, statement)
    });
    let theirs = of_consumers(function).map(|theirs| theirs.into_iter().filter(named).count());
    let every = all.iter().filter(|statement| barrier(statement).is_some()).count();
    theirs.is_some_and(|theirs| theirs + zero.count() == every)
}

/// Whether a block is the `otherwise` branch of a condition that is true for the first four warps (the
/// producer): it is executed by the other warps of the CTA.
fn chosen_by_halves(function: &Function, block: &[Statement]) -> bool {
    let all = instructions(function);
    let below_four = |cond: &Operand| {
        all.iter().any(|inst| {
            matches!(inst, Inst::Compare { op: CompareOp::Lt, dst, b: Operand::Imm(4), .. } if *cond == Operand::Reg(*dst))
        })
    };
    let inside =
        |other: &Statement| matches!(other, Statement::Scope { body, .. } if core::ptr::eq(&body[..], block));
    numbered(function).into_iter().any(|statement| {
        let Statement::If { cond, otherwise, .. } = statement else { return false };
        below_four(cond) && otherwise.iter().any(inside)
    })
}

/// Whether every thread of the CTA executes the barrier, and after each use of its new number all threads meet
/// at another barrier before one of them reaches this one.
pub(super) fn behind_another(function: &Function, mutation: &Mutation) -> bool {
    let all = numbered(function);
    let Some(&statement) = all.get(mutation.index) else { return false };
    let Some(Operand::Imm(own)) = barrier(statement) else { return false };
    let whole = |other: &Statement| matches!(other, Statement::Inst { inst: Inst::BarrierSync { threads, .. }, .. } if *threads == function.threads());
    let taken = |block: &[Statement]| Statement::all(block).into_iter().any(|other| takes(other, own + 1));
    let arrives = |inst: &Inst| matches!(inst, Inst::BarrierArrive { .. });
    let Some(blocks) = around(&function.body, statement) else { return false };
    let met = |&Place { block, at, .. }: &Place<'_>| {
        block[..at].iter().rposition(whole).is_some_and(|met| !taken(&block[met..at]))
    };
    whole(statement)
        && of_all(function, &function.body, statement)
        && !instructions(function).into_iter().any(arrives)
        && blocks.iter().rev().take_while(|place| !taken(&place.block[place.at..=place.at])).any(met)
}

/// Whether there are only computations in registers, and operations ordered by mbarriers or by their own
/// waits, between the previous barrier of the whole CTA, or of the same threads, or the kernel's begin, and this
/// barrier. Copies may start there if no thread waits for them there.
pub(super) fn orders_nothing(function: &Function, mutation: &Mutation) -> bool {
    let all = numbered(function);
    let Some(&statement) = all.get(mutation.index) else { return false };
    let Statement::Inst { inst: Inst::BarrierSync { id: own, threads: these }, .. } = statement else {
        return false;
    };
    let meets = |other: &Statement| {
        if let Some(Inst::BarrierSync { id, threads }) = other.inst() {
            return *threads == function.threads() || threads == these && same_number(function, *id, *own);
        }
        matches!(other.inst(), Some(Inst::ClusterWait))
    };
    let Some(since) = since(function, statement, &meets) else { return false };
    let waits = since.iter().any(|inst| matches!(inst, Inst::BulkWait { .. }));
    let copies = |inst: &Inst| !waits && matches!(inst, Inst::TensorStore { .. } | Inst::BulkCommit);
    since
        .iter()
        .all(|inst| quiet(inst) || computes(inst) || copies(inst) || publishes_nothing(function, inst))
}

/// Whether no thread has accessed shared memory before the barrier, apart from mbarriers and multiplies, and until
/// the next barrier of the same threads they only write shared memory.
pub(super) fn nothing_staged_yet(function: &Function, mutation: &Mutation) -> bool {
    let all = numbered(function);
    let Some(&statement) = all.get(mutation.index) else { return false };
    let Statement::Inst { inst: own, .. } = statement else { return false };
    let blocks = around(&function.body, statement);
    let Some(&Place { block, at, .. }) = blocks.as_ref().and_then(|blocks| blocks.last()) else {
        return false;
    };
    let again = |other: &Statement| matches!(other, Statement::Inst { inst, .. } if inst == own);
    let Some(next) = block[at + 1..].iter().position(again) else { return false };
    let between = Statement::instructions(&block[at + 1..at + 1 + next]);
    let writes = |inst: &&Inst| {
        matches!(
            inst,
            Inst::StoreMatrix { .. }
                | Inst::Store { space: Space::Shared, .. }
                | Inst::FenceProxyAsync { .. }
        )
    };
    let elsewhere = |inst: &&Inst| {
        matches!(
            inst,
            Inst::Load { space: Space::Global, .. }
                | Inst::Store { space: Space::Global, .. }
                | Inst::MbarrierInit { .. }
                | Inst::FenceMbarrierInit
                | Inst::PrefetchTensorMap { .. }
                | Inst::BarrierSync { .. }
                | Inst::Alu(_)
        )
    };
    let Some(before) = earlier(function, mutation) else { return false };
    matches!(own, Inst::BarrierSync { .. })
        && between.iter().all(|inst| quiet(inst) || computes(inst) || writes(inst))
        && before.iter().all(|inst| quiet(inst) || computes(inst) || elsewhere(inst))
}

/// Whether two operands are the same number: the same operand, or two results of the same computation.
fn same_number(function: &Function, a: Operand, b: Operand) -> bool {
    let (Operand::Reg(first), Operand::Reg(second)) = (a, b) else { return a == b };
    let writes = writes(function);
    let computed = |reg| match writes.get(&reg) {
        Some(Some(Inst::Binary { op, ty, a, b, .. })) => Some((*op, *ty, *a, *b)),
        Some(_) | None => None,
    };
    first == second || computed(first).is_some_and(|first| computed(second) == Some(first))
}

/// The instructions that may be executed between the last statement for which `meets` is true, or the kernel's
/// begin, and a statement.
fn since<'a>(
    function: &'a Function,
    statement: &Statement,
    meets: &dyn Fn(&Statement) -> bool,
) -> Option<Vec<&'a Inst>> {
    let mut found = Vec::new();
    for Place { block, at, repeats } in around(&function.body, statement)?.into_iter().rev() {
        if ends_with(&block[..at], meets, &mut found) {
            return Some(found);
        }
        // The iteration before.
        if repeats && !ends_with(&block[at + 1..], meets, &mut found) {
            found.extend(Statement::instructions(&block[at..=at]));
        }
    }
    Some(found)
}

/// Collects the instructions that may be executed in a block after the last statement for which `meets` is true.
/// Returns whether every path through the block has such a statement.
fn ends_with<'a>(
    block: &'a [Statement],
    meets: &dyn Fn(&Statement) -> bool,
    into: &mut Vec<&'a Inst>,
) -> bool {
    block.iter().rev().any(|statement| match statement {
        _ if meets(statement) => true,
        Statement::If { then, otherwise, .. } => {
            let first = ends_with(then, meets, into);
            ends_with(otherwise, meets, into) && first
        }
        Statement::Scope { body, .. } => ends_with(body, meets, into),
        // A loop may be left at once, and anywhere.
        Statement::Inst { .. }
        | Statement::Loop { .. }
        | Statement::Break { .. }
        | Statement::Label(_)
        | Statement::Branch { .. }
        | Statement::Exit { .. } => {
            into.extend(Statement::instructions(core::slice::from_ref(statement)));
            false
        }
    })
}

/// Whether all threads of the CTA execute all its barriers, in one order.
pub(super) fn in_one_order(function: &Function) -> bool {
    let all = numbered(function);
    let mut barriers = all.iter().filter(|statement| barrier(statement).is_some());
    barriers.all(|statement| {
        matches!(
            statement,
            Statement::Inst { inst: Inst::BarrierSync { threads, .. }, .. } if *threads == function.threads()
        ) && of_all(function, &function.body, statement)
    })
}

/// Whether, in a CTA of one warpgroup, the barrier directly follows the wait for all multiplies, and the
/// threads access memory only by multiplies and copies.
pub(super) fn behind_a_multiply(function: &Function, mutation: &Mutation) -> bool {
    let Some(before) = earlier(function, mutation) else { return false };
    let all = numbered(function);
    let waits = matches!(
        mutation.index.checked_sub(1).and_then(|at| all.get(at)),
        Some(Statement::Inst { inst: Inst::WgmmaWait { pending: 0 }, .. })
    );
    let Some(met) = before.iter().position(|inst| matches!(inst, Inst::BarrierSync { .. })) else {
        return false;
    };
    let copies = |inst: &&&Inst| {
        matches!(
            inst,
            Inst::TensorLoad { .. }
                | Inst::MbarrierArrive(MbarrierArrive { arrival: Arrival::Expect(_), .. })
                | Inst::BarrierSync { .. }
        )
    };
    function.threads() == 128 && waits && before[met..].iter().all(|inst| quiet(inst) || copies(&inst))
}

/// Whether, in a CTA without roles, all threads reach the barrier after a wait for copies, and only single
/// warpgroups use other barrier numbers.
pub(super) fn behind_own_copies(function: &Function, mutation: &Mutation) -> bool {
    let all = numbered(function);
    let Some(Statement::Inst { inst: Inst::BarrierSync { threads, .. }, .. }) = all.get(mutation.index)
    else {
        return false;
    };
    let Some(before) = earlier(function, mutation) else { return false };
    let has_roles =
        instructions(function).into_iter().any(|inst| matches!(inst, Inst::SetMaxRegisters { .. }));
    let waits = |inst: &&Inst| matches!(inst, Inst::MbarrierWait { .. });
    let own = |inst: &Inst| {
        if let Inst::BarrierSync { id, threads } = inst {
            return if let Operand::Imm(id) = id { *id == 0 } else { *threads == 128 };
        }
        !matches!(inst, Inst::BarrierArrive { .. } | Inst::BarrierReduce(_))
    };
    *threads == function.threads()
        && !has_roles
        && before.iter().any(waits)
        && of_all(function, &function.body, all[mutation.index])
        && instructions(function).into_iter().all(own)
}
