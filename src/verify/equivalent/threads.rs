//! Checks of the program for reasons about which threads do something, and about what a register holds in each
//! thread.

use std::collections::BTreeMap;

use ptx::inst::{Alu, AluOp, AtomicOp, BinaryOp, CompareOp, Inst, MbarrierArrive, Operand, OrderedInst, Reg};
use ptx::mutate::{Mutation, computes, numbered};
use ptx::{Function, Space, Special, Statement, Type};

use super::checks::{around, instructions, quiet};

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
            inst: Inst::MbarrierArrive(MbarrierArrive { space: Space::SharedCluster, barrier, .. }),
            ..
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
        (0..function.threads()).step_by(128).all(|first| {
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

/// Whether an `if` chooses lanes of every warp for reductions that may be repeated, of a value that is the same in
/// all lanes of the warp, or for stores of constants.
pub(super) fn may_repeat(function: &Function, mutation: &Mutation) -> bool {
    let all = numbered(function);
    let Some(Statement::If { cond, then, otherwise, .. }) = all.get(mutation.index) else { return false };
    let writes = writes(function);
    let inside = Statement::instructions(then);
    let repeats = |inst: &&Inst| {
        if let Inst::Ordered(OrderedInst::Store { src, .. }) = inst {
            return src.iter().all(|src| matches!(src, Operand::Imm(_)));
        }
        let Inst::Atomic(atomic) = inst else { return computes(inst) };
        matches!(atomic.op, AtomicOp::Max | AtomicOp::Min | AtomicOp::And | AtomicOp::Or)
            && atomic.dst.is_empty()
            && atomic.src.iter().all(|src| same_in_warp(&writes, *src, 0))
    };
    let chosen = |warp: u32| {
        let lane = |lane| Registers { writes: &writes, thread: warp * 32 + lane, cta: 0 }.value(*cond);
        (0..32).any(|number| lane(number) == Some(1))
    };
    otherwise.is_empty() && inside.iter().all(repeats) && (0..function.threads() / 32).all(chosen)
}

/// Whether a value is the extreme over all lanes of a warp: exchanged with the lane at each distance in `seen` or
/// found here.
fn same_in_warp(writes: &Writes<'_>, value: Operand, seen: u32) -> bool {
    let Operand::Reg(reg) = value else { return true };
    let written = |reg| writes.get(&reg).copied().flatten();
    if seen == 31 {
        return true;
    }
    let (a, b) = match written(reg) {
        Some(Inst::Move { src, .. }) => return same_in_warp(writes, *src, seen),
        Some(Inst::Alu(Alu { op: AluOp::NanExtreme { .. }, src, .. })) => match src[..] {
            [a, b] => (a, b),
            _ => return false,
        },
        Some(Inst::Binary { op: BinaryOp::Max | BinaryOp::Min, a, b, .. }) => (*a, *b),
        Some(_) | None => return false,
    };
    let Operand::Reg(other) = b else { return false };
    match written(other) {
        Some(Inst::ShuffleXor { src, mask, .. }) if *src == a => same_in_warp(writes, a, seen | mask),
        Some(_) | None => false,
    }
}

/// Whether every lane meets the first lane of its warp at a barrier before it accesses global memory. The first
/// lanes may access it before.
pub(super) fn meets_first(function: &Function, mutation: &Mutation) -> bool {
    let all = numbered(function);
    let Some(&statement) = all.get(mutation.index) else { return false };
    let Some(places) = around(&function.body, statement).filter(|all| !all.iter().any(|of| of.repeats))
    else {
        return false;
    };
    let writes = writes(function);
    // What follows in its own block, and after the blocks around it.
    let mut rest = places.iter().rev().map(|of| first_access(function, &writes, &of.block[of.at + 1..]));
    rest.find(|next| *next != Next::Continues) != Some(Next::Accesses)
}

/// What the lanes of a warp other than the first do next.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    Meets,
    Accesses,
    /// Neither, on some path.
    Continues,
}

/// Whether an instruction accesses no memory but shared memory, or fences that.
fn in_shared(inst: &Inst) -> bool {
    matches!(
        inst,
        Inst::WarpMatrix(_)
            | Inst::StoreMatrix { .. }
            | Inst::FenceProxyAsync { .. }
            | Inst::Load { space: Space::Shared, .. }
            | Inst::Store { space: Space::Shared, .. }
    )
}

fn first_access(function: &Function, writes: &Writes<'_>, block: &[Statement]) -> Next {
    let next = |block: &[Statement]| first_access(function, writes, block);
    for statement in block {
        let found = match statement {
            Statement::Inst { inst: Inst::BarrierSync { .. }, .. } => Next::Meets,
            Statement::Inst { inst, .. } if quiet(&inst) || computes(inst) || in_shared(inst) => {
                Next::Continues
            }
            Statement::Inst { .. } => Next::Accesses,
            Statement::Break { .. }
            | Statement::Label(_)
            | Statement::Branch { .. }
            | Statement::Exit { .. } => Next::Continues,
            Statement::Scope { body, .. } => next(body),
            // It may be left before the barrier.
            Statement::Loop { body, .. } => match next(body) {
                Next::Accesses => Next::Accesses,
                Next::Meets | Next::Continues => Next::Continues,
            },
            Statement::If { cond, then, otherwise, .. } => {
                let chosen = |thread| Registers { writes, thread, cta: 0 }.value(*cond) != Some(0);
                let of_first_lanes =
                    (0..function.threads()).all(|thread| thread % 32 == 0 || !chosen(thread));
                match (of_first_lanes, next(then), next(otherwise)) {
                    (true, _, otherwise) => otherwise,
                    (false, Next::Accesses, _) | (false, _, Next::Accesses) => Next::Accesses,
                    (false, Next::Meets, Next::Meets) => Next::Meets,
                    (false, _, _) => Next::Continues,
                }
            }
        };
        if found != Next::Continues {
            return found;
        }
    }
    Next::Continues
}

/// Whether an `if` chooses between two ways to store a tile: one only for tiles that end inside of D, the other
/// one with comparisons of its own with the same limit.
pub(super) fn either_way(function: &Function, mutation: &Mutation) -> bool {
    let all = numbered(function);
    let Some(Statement::If { cond, then, otherwise, .. }) = all.get(mutation.index) else { return false };
    let writes = writes(function);
    let ways = [then, otherwise].map(|way| Statement::instructions(way));
    let stores =
        |inst: &&Inst| matches!(inst, Inst::TensorStore { .. } | Inst::Store { space: Space::Global, .. });
    let limits = limits(&writes, *cond);
    let compares = |limit: &Operand| {
        ways[1].iter().any(|inst| matches!(inst, Inst::Compare { a, b, .. } if a == limit || b == limit))
    };
    ways.iter().all(|way| way.iter().any(stores)) && limits.iter().any(compares)
}

/// What the end of a tile is compared with in a condition.
fn limits(writes: &Writes<'_>, cond: Operand) -> Vec<Operand> {
    let Operand::Reg(reg) = cond else { return Vec::new() };
    let written = |reg| writes.get(&reg).copied().flatten();
    match written(reg) {
        Some(Inst::Binary { op: BinaryOp::And, a, b, .. }) => {
            [limits(writes, *a), limits(writes, *b)].concat()
        }
        Some(Inst::Compare { op: CompareOp::Le, a: Operand::Reg(end), b, .. })
            if matches!(
                written(*end),
                Some(Inst::Binary { op: BinaryOp::Add, b: Operand::Imm(1..), .. })
            ) =>
        {
            vec![*b]
        }
        Some(_) | None => Vec::new(),
    }
}

/// Whether the cluster is one CTA, and an `if` asks whether the first row or column of a tile is below a parameter.
pub(super) fn begins_inside(function: &Function, mutation: &Mutation) -> bool {
    let all = numbered(function);
    let Some(Statement::If { cond: Operand::Reg(cond), otherwise, .. }) = all.get(mutation.index) else {
        return false;
    };
    let writes = writes(function);
    let written = |reg| writes.get(&reg).copied().flatten();
    let Some(Inst::Compare { op: CompareOp::Lt, b: Operand::Reg(limit), .. }) = written(*cond) else {
        return false;
    };
    otherwise.is_empty()
        && function.cluster == [1, 1, 1]
        && matches!(written(*limit), Some(Inst::LoadParam { .. }))
}

/// The instruction that writes each register, if there is only one.
pub(super) type Writes<'a> = BTreeMap<Reg, Option<&'a Inst>>;

pub(super) fn writes(function: &Function) -> Writes<'_> {
    let mut writes = Writes::new();
    for inst in instructions(function) {
        let written = inst.operands().writes;
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

/// What an operand is in a thread of the first CTA of a cluster, if that follows from the thread's position.
pub(super) fn number(writes: &Writes<'_>, thread: u32, of: Operand) -> Option<u64> {
    Registers { writes, thread, cta: 0 }.value(of)
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
            // One operand decides, even if the other one is not known.
            Inst::Binary { op: BinaryOp::And, ty: Type::Pred, a, b, .. } => match (value(a), value(b)) {
                (Some(0), _) | (_, Some(0)) => Some(0),
                (a, b) => Some(a? & b?),
            },
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
