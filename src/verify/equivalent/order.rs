//! Checks of the program for reasons about the order of two statements.

use ptx::inst::{Arrival, BarrierReduce, BinaryOp, Inst, MapInst, MbarrierArrive, Operand};
use ptx::mutate::{self, Mutation, numbered};
use ptx::{Function, Space, Special, Statement};

use super::barriers::{by_consumers_alone, of_consumers};
use super::checks::{Place, around, arrives, instructions, next_step};
use super::threads::{Writes, number, writes};

/// Whether a proxy fence is swapped with a barrier whose threads all execute the fence: that of a warp, or one at which
/// no statement arrives without waiting, and all meet.
pub(super) fn fences_behind(function: &Function, mutation: &Mutation) -> bool {
    let (own, all) = match next_step(function, mutation) {
        Some(Inst::BarrierSync { id, threads }) => (id, threads),
        Some(Inst::WarpSync) => return true,
        _ => return false,
    };
    let writes = writes(function);
    // Every number that some thread of the CTA would use; none if it is not known.
    let numbers = |id: Operand| -> Option<Vec<u64>> {
        (0..function.threads()).map(|thread| number(&writes, thread, id)).collect()
    };
    let apart = |other: Operand| match (numbers(*own), numbers(other)) {
        (Some(own), Some(other)) => !own.iter().any(|number| other.contains(number)),
        _ => false,
    };
    instructions(function).into_iter().all(|inst| {
        let arrives = matches!(inst, Inst::BarrierArrive { id, .. } if !apart(*id));
        let of_others = matches!(
            inst,
            Inst::BarrierSync { id, threads } | Inst::BarrierReduce(BarrierReduce { id, threads, .. })
                if id == own && threads != all
        );
        !arrives && !of_others
    })
}

/// Whether a wait is swapped with the announcement of bytes (expect-tx) of copies that start later.
pub(super) fn announces_first(function: &Function, mutation: &Mutation) -> bool {
    matches!(
        next_step(function, mutation),
        Some(Inst::MbarrierArrive(MbarrierArrive { arrival: Arrival::Expect(Operand::Imm(1..)), .. }))
    )
}

/// Whether a wait is swapped with the named barrier at which a turn begins, and a multiply follows both: at the barrier, the threads
/// of one consumer warpgroup wait, and others only arrive.
pub(super) fn turn_or_stage(function: &Function, mutation: &Mutation) -> bool {
    let all = numbered(function);
    let Some(Inst::BarrierSync { id: own, threads }) = next_step(function, mutation) else { return false };
    let Some(&statement) = all.get(mutation.index) else { return false };
    let places = around(&function.body, statement);
    let Some(Place { block, at, .. }) = places.and_then(|places| places.last().copied()) else {
        return false;
    };
    let mut steps = block[at + 1..].iter().filter(|step| !computes(step)).filter_map(Statement::inst);
    let multiplies =
        matches!((steps.next(), steps.next()), (Some(Inst::BarrierSync { .. }), Some(Inst::WgmmaFence)));
    let writes = writes(function);
    // The numbers of the consumers' threads, each with the thread's warpgroup.
    let numbers = |id: Operand| -> Option<Vec<(u64, u32)>> {
        let of = |thread| Some((number(&writes, thread, id)?, thread / 128));
        (128..function.threads()).map(of).collect()
    };
    let Some(own) = numbers(*own) else { return false };
    let waits = of_consumers(function).into_iter().flatten().filter_map(|inst| {
        let (Inst::BarrierSync { id, .. } | Inst::BarrierReduce(BarrierReduce { id, .. })) = inst else {
            return None;
        };
        Some(*id)
    });
    let mut waits = waits.map(numbers);
    let alone = waits.all(|other| {
        let meets =
            |(number, warpgroup): &(u64, u32)| own.iter().any(|(own, of)| own == number && of != warpgroup);
        other.is_some_and(|other| !other.iter().any(meets))
    });
    multiplies && *threads > 128 && by_consumers_alone(function) && alone
}

/// Whether the lanes of the warp only compute and wait for mbarriers between the statement and a barrier of all of them.
pub(super) fn meets_later(function: &Function, mutation: &Mutation) -> bool {
    let all = numbered(function);
    let places = all.get(mutation.index).and_then(|statement| around(&function.body, statement));
    let Some(Place { block, at, .. }) = places.and_then(|places| places.last().copied()) else {
        return false;
    };
    let next = block[at + 1..].iter().find(|step| !computes(step) && !is_wait(step));
    matches!(next.and_then(Statement::inst), Some(Inst::WarpSync | Inst::BarrierSync { .. }))
}

/// Whether the arrival is the only statement of a few threads, and somewhere in the program a second wait
/// follows a wait if there is something to multiply, without memory accesses between the two.
pub(super) fn passes_a_turn(function: &Function, mutation: &Mutation) -> bool {
    let all = numbered(function);
    let arrival = matches!(
        all.get(mutation.index),
        Some(Statement::Inst { inst: inst @ Inst::MbarrierArrive(MbarrierArrive { space: Space::Shared, .. }), .. })
            if arrives(inst)
    );
    let around = mutation.index.checked_sub(1).and_then(|at| all.get(at));
    let alone = matches!(around, Some(Statement::If { then, otherwise, .. }) if then.len() == 1 && otherwise.is_empty());
    arrival && alone && waits_twice(&function.body, None)
}

/// Whether the statement waits for the turn of a consumer in order: the next step is a wait for the ring.
pub(super) fn waits_for_a_turn(function: &Function, mutation: &Mutation) -> bool {
    let all = numbered(function);
    all.get(mutation.index).is_some_and(|wait| waits_twice(&function.body, Some(wait)))
}

/// Whether a block has a wait that is followed, after computations in registers, by a branch or loop that
/// begins with a wait. With `only`, whether this statement is such a wait.
fn waits_twice(block: &[Statement], only: Option<&Statement>) -> bool {
    let here = block.iter().enumerate().any(|(at, statement)| {
        let next = || block[at + 1..].iter().find(|next| !computes(next));
        let begins_with_a_wait = |next: &Statement| {
            let first = next.blocks()[0].iter().find(|inner| !computes(inner));
            !matches!(next, Statement::Scope { .. }) && first.is_some_and(is_wait)
        };
        let asked = only.is_none_or(|only| core::ptr::eq(only, statement));
        asked && is_wait(statement) && next().is_some_and(begins_with_a_wait)
    });
    here || block.iter().flat_map(Statement::blocks).any(|inner| waits_twice(inner, only))
}

fn is_wait(statement: &Statement) -> bool {
    matches!(statement, Statement::Inst { inst: Inst::MbarrierWait { .. }, .. })
}

fn computes(statement: &Statement) -> bool {
    matches!(statement, Statement::Inst { inst, .. } if mutate::computes(inst))
}

/// Whether the address of each tensor map that is changed or acquired is computed from the number of the CTA
/// in the grid, times a factor.
pub(super) fn maps_are_own(function: &Function) -> bool {
    fn of_cta(writes: &Writes<'_>, address: Operand) -> bool {
        let Operand::Reg(reg) = address else { return false };
        let Some(Some(write)) = writes.get(&reg) else { return false };
        if let Inst::Binary { op: BinaryOp::Add, a, b, .. } = write {
            return of_cta(writes, *a) || of_cta(writes, *b);
        }
        let Inst::MulWide { a: Operand::Reg(number), b: Operand::Imm(1..), .. } = write else { return false };
        matches!(writes.get(number), Some(Some(Inst::ReadSpecial { special: Special::CtaX, .. })))
    }
    let writes = writes(function);
    instructions(function).into_iter().all(|inst| {
        let Inst::TensorMap(MapInst::Replace { map, .. } | MapInst::Acquire { map, .. }) = inst else {
            return true;
        };
        of_cta(&writes, *map)
    })
}
