//! Checks of the program for reasons about the order of two statements, and about signals between CTAs.

use std::collections::BTreeMap;

use ptx::inst::{BinaryOp, CompareOp, Inst, MapInst, Operand, Reg};
use ptx::mutate::{self, Mutation, numbered};
use ptx::{Function, Space, Special, Statement, Type};

use super::checks::{instructions, next_step};

/// Whether a proxy fence is swapped with a barrier whose threads all execute the fence: no statement arrives
/// at that barrier without waiting.
pub(super) fn fences_behind(function: &Function, mutation: &Mutation) -> bool {
    let Some(Inst::BarrierSync { id: own, threads: all }) = next_step(function, mutation) else {
        return false;
    };
    instructions(function).into_iter().all(|inst| {
        let arrives = matches!(inst, Inst::BarrierArrive { .. } | Inst::BarrierReduce(_));
        let of_others = matches!(inst, Inst::BarrierSync { id, threads } if id == own && threads != all);
        !arrives && !of_others
    })
}

/// Whether a wait is swapped with the announcement of bytes (expect-tx) of copies that start later.
pub(super) fn announces_first(function: &Function, mutation: &Mutation) -> bool {
    matches!(
        next_step(function, mutation),
        Some(Inst::MbarrierArriveExpectTx { bytes: Operand::Imm(1..), .. })
    )
}

/// Whether the arrival is the only statement of a few threads, and somewhere in the program a second wait
/// follows a wait if there is something to multiply, without memory accesses between the two.
pub(super) fn passes_a_turn(function: &Function, mutation: &Mutation) -> bool {
    let all = numbered(function);
    let arrives = matches!(
        all.get(mutation.index),
        Some(Statement::Inst { inst: Inst::MbarrierArrive { space: Space::Shared, .. }, .. })
    );
    let around = mutation.index.checked_sub(1).and_then(|at| all.get(at));
    let alone = matches!(around, Some(Statement::If { then, otherwise, .. }) if then.len() == 1 && otherwise.is_empty());
    arrives && alone && waits_twice(&function.body, None)
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
        let begins_with_a_wait = |next: &Statement| match next {
            Statement::If { then: body, .. } | Statement::Loop { body, .. } => {
                body.iter().find(|inner| !computes(inner)).is_some_and(is_wait)
            }
            Statement::Inst { .. } | Statement::Scope { .. } | Statement::Break { .. } => false,
        };
        let asked = only.is_none_or(|only| core::ptr::eq(only, statement));
        asked && is_wait(statement) && next().is_some_and(begins_with_a_wait)
    });
    here || block.iter().any(|statement| match statement {
        Statement::Loop { body, .. } | Statement::Scope { body, .. } => waits_twice(body, only),
        Statement::If { then, otherwise, .. } => waits_twice(then, only) || waits_twice(otherwise, only),
        Statement::Inst { .. } | Statement::Break { .. } => false,
    })
}

fn is_wait(statement: &Statement) -> bool {
    matches!(statement, Statement::Inst { inst: Inst::MbarrierWait { .. }, .. })
}

fn computes(statement: &Statement) -> bool {
    matches!(statement, Statement::Inst { inst, .. } if mutate::computes(inst))
}

/// Whether the threads of a warpgroup that signal other CTAs together signal the same CTAs equally often
/// after the rank of each has been changed.
pub(super) fn tells_the_same(function: &Function, mutation: &Mutation) -> bool {
    let all = numbered(function);
    let Some(Statement::Inst { inst: Inst::MapShared { rank, dst, .. }, .. }) = all.get(mutation.index)
    else {
        return false;
    };
    let size: u32 = function.cluster.iter().product();
    let writes = writes(function);
    // The branches with an arrival at the mapped address.
    let arrives = |statement: &Statement| {
        let Statement::Inst {
            inst: Inst::MbarrierArrive { space: Space::SharedCluster, barrier, .. }, ..
        } = statement
        else {
            return false;
        };
        comes_from(&writes, *barrier, *dst)
    };
    let speaks = all.iter().filter_map(|statement| {
        let Statement::If { cond, then, .. } = statement else { return None };
        then.iter().any(arrives).then_some(*cond)
    });
    let speaks: Vec<Operand> = speaks.collect();
    let Some(cond) = speaks.first().filter(|first| speaks.iter().all(|cond| cond == *first)) else {
        return false;
    };
    // Warpgroup by warpgroup, in every CTA.
    (0..size).all(|cta| {
        (0..function.threads).step_by(128).all(|first| {
            let told = |changed: u64| {
                let threads = first..first + 128;
                let ranks = threads.map(|thread| {
                    let of_thread = Registers { writes: &writes, thread, cta };
                    Some((of_thread.value(*cond)? != 0).then_some(of_thread.value(*rank)? ^ changed))
                });
                let mut ranks: Vec<u64> = ranks.collect::<Option<Vec<_>>>()?.into_iter().flatten().collect();
                ranks.sort_unstable();
                Some(ranks)
            };
            told(0).is_some_and(|ranks| Some(ranks) == told(1))
        })
    })
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

/// The instruction that writes each register, if there is only one.
type Writes<'a> = BTreeMap<Reg, Option<&'a Inst>>;

fn writes(function: &Function) -> Writes<'_> {
    let mut writes = Writes::new();
    for inst in instructions(function) {
        let written = inst.operands(|reg| function.registers.get(reg.0 as usize).copied()).writes;
        for (reg, _) in written {
            writes.entry(reg).and_modify(|only| *only = None).or_insert(Some(inst));
        }
    }
    writes
}

/// Whether an address is computed from a register by additions and subtractions of registers that are written
/// once.
fn comes_from(writes: &Writes<'_>, address: Operand, from: Reg) -> bool {
    let Operand::Reg(reg) = address else { return false };
    let summed = || {
        let Some(Some(Inst::Binary { op: BinaryOp::Add | BinaryOp::Sub, a, b, .. })) = writes.get(&reg)
        else {
            return false;
        };
        comes_from(writes, *a, from) || comes_from(writes, *b, from)
    };
    reg == from || summed()
}

/// The register values of a thread that follow from its position in the CTA and the cluster.
#[derive(Clone, Copy)]
struct Registers<'a> {
    writes: &'a Writes<'a>,
    thread: u32,
    /// The CTA's rank in the cluster.
    cta: u32,
}

impl Registers<'_> {
    #[allow(clippy::wildcard_enum_match_arm, reason = "what else there is has no value here")]
    fn value(self, operand: Operand) -> Option<u64> {
        let reg = match operand {
            Operand::Imm(bits) => return Some(bits),
            Operand::Reg(reg) => reg,
        };
        let value = |operand: &Operand| self.value(*operand);
        let narrow = |value: u64| Some(value & u64::from(u32::MAX));
        match (*self.writes.get(&reg)?)? {
            Inst::Move { src, .. } => value(src),
            Inst::ReadSpecial { special, .. } => Some(match special {
                Special::ThreadX => self.thread.into(),
                Special::Lane => (self.thread % 32).into(),
                Special::WarpSlot => (self.thread / 32).into(),
                Special::ClusterRank | Special::ClusterCtaX => self.cta.into(),
                _ => return None,
            }),
            // The warp's number is the same in all lanes.
            Inst::ShuffleIndex { src, .. } => Registers { thread: self.thread / 32 * 32, ..self }.value(*src),
            Inst::Binary { op, ty: Type::U32, a, b, .. } => {
                let (a, b) = (value(a)?, value(b)?);
                narrow(match op {
                    BinaryOp::Add => a.wrapping_add(b),
                    BinaryOp::Sub => a.wrapping_sub(b),
                    BinaryOp::Mul => a.wrapping_mul(b),
                    BinaryOp::Div => a.checked_div(b)?,
                    BinaryOp::Rem => a.checked_rem(b)?,
                    BinaryOp::And => a & b,
                    BinaryOp::Xor => a ^ b,
                    BinaryOp::Or => a | b,
                    BinaryOp::Shl => a << b.min(63),
                    BinaryOp::Shr => a >> b.min(63),
                    BinaryOp::MulHigh | BinaryOp::Min | BinaryOp::Max => return None,
                })
            }
            Inst::Compare { op, ty: Type::U32, a, b, .. } => {
                let (a, b) = (value(a)?, value(b)?);
                Some(u64::from(match op {
                    CompareOp::Eq => a == b,
                    CompareOp::Ne => a != b,
                    CompareOp::Lt => a < b,
                    CompareOp::Ge => a >= b,
                    CompareOp::Gt => a > b,
                    CompareOp::Le => a <= b,
                }))
            }
            Inst::Select { a, b, cond, .. } => value(if value(cond)? != 0 { a } else { b }),
            _ => None,
        }
    }
}
