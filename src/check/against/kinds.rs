//! What two machines may make of an instruction: the same bits, or others, and why.

use std::collections::HashSet;

use ptx::Statement;
use ptx::inst::{
    Alu, AluOp, Division, Inst, MmaTypes, Operand, OrderedInst, Reg, Special, WarpInst, WarpMatrix,
    WgmmaTypes,
};

/// What two machines may make of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The same bits of the same operands.
    Exact,
    /// What memory or other threads hold.
    Reads,
    /// An address, or a place: each machine has its own.
    Place,
    /// Other bits, for the reason.
    Free(&'static str),
}

/// What two machines may make of an instruction.
#[expect(clippy::wildcard_enum_match_arm, reason = "the others compute the same bits, or have no registers")]
pub(super) fn kind(inst: &Inst) -> Kind {
    match inst {
        Inst::SharedBase { .. }
        | Inst::LocalBase { .. }
        | Inst::ParamAddress { .. }
        | Inst::ConvertAddress { .. }
        | Inst::MapShared { .. } => Kind::Place,
        Inst::ReadSpecial { special: Special::SharedBytes | Special::DynamicSharedBytes, .. } => Kind::Place,
        Inst::Load { .. }
        | Inst::LoadConstant { .. }
        | Inst::LoadParam { .. }
        | Inst::ShuffleIndex { .. }
        | Inst::ShuffleXor { .. }
        | Inst::Warp(_)
        | Inst::BarrierReduce(_)
        | Inst::WarpMatrix(WarpMatrix::Load { .. }) => Kind::Reads,
        Inst::Elect { .. } => Kind::Free("any lane may be elected"),
        Inst::WarpMatrix(WarpMatrix::Multiply { types: MmaTypes::Int8 { .. }, .. }) => Kind::Reads,
        Inst::WarpMatrix(WarpMatrix::Multiply { .. }) => Kind::Free("the order of sums is the machine's"),
        Inst::Wgmma { types: WgmmaTypes::Int8 { .. }, .. } => Kind::Reads,
        Inst::Wgmma { .. } => Kind::Free("the order of sums is the machine's"),
        Inst::Alu(Alu { op: AluOp::Approx(_) | AluOp::ApproxFlush(_) | AluOp::ApproxHalf(..), .. }) => {
            Kind::Free("an approximation")
        }
        Inst::Alu(Alu { op: AluOp::Divide { division, .. }, .. })
            if !matches!(division, Division::Exact(_)) =>
        {
            Kind::Free("an approximation")
        }
        _ => Kind::Exact,
    }
}

/// Whether what an instruction writes depends on the order of threads, or on time.
#[expect(clippy::wildcard_enum_match_arm, reason = "the others do not")]
fn is_loose(inst: &Inst) -> bool {
    match inst {
        Inst::Atomic(_)
        | Inst::Ordered(OrderedInst::Load { .. })
        | Inst::MbarrierTest(_)
        | Inst::MbarrierArrive(_)
        | Inst::MbarrierPending { .. }
        | Inst::Warp(WarpInst::ActiveMask { .. }) => true,
        Inst::ReadSpecial { special, .. } => matches!(
            special,
            Special::WarpSlot
                | Special::Multiprocessor
                | Special::Multiprocessors
                | Special::Clock
                | Special::Clock64
                | Special::GlobalTimer
        ),
        _ => false,
    }
}

/// The registers that depend on the order of threads, or on time, directly or by others.
pub(super) fn loose(body: &[Statement]) -> HashSet<Reg> {
    let mut insts = Vec::new();
    collect(body, &[], &mut insts);
    let mut loose = HashSet::new();
    loop {
        let before = loose.len();
        for (inst, guards) in &insts {
            let operands = inst.operands();
            let mut reads = operands
                .reads
                .iter()
                .filter_map(|(operand, _)| register(*operand))
                .chain(guards.iter().copied());
            if is_loose(inst) || reads.any(|reg| loose.contains(&reg)) {
                loose.extend(operands.writes.iter().map(|(reg, _)| *reg));
            }
        }
        if loose.len() == before {
            return loose;
        }
    }
}

/// The instructions of a block, each with its guards.
fn collect<'a>(block: &'a [Statement], guards: &[Reg], insts: &mut Vec<(&'a Inst, Vec<Reg>)>) {
    for statement in block {
        if let Some(inst) = statement.inst() {
            insts.push((inst, guards.to_vec()));
        }
        let cond = if let Statement::If { cond, .. } = statement { register(*cond) } else { None };
        let inner: Vec<Reg> = guards.iter().copied().chain(cond).collect();
        statement.blocks().iter().for_each(|block| collect(block, &inner, insts));
    }
}

/// The register that an operand is.
pub(super) fn register(operand: Operand) -> Option<Reg> {
    if let Operand::Reg(reg) = operand { Some(reg) } else { None }
}
