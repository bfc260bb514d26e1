//! What two machines may make of an instruction: the same bits, or others, and why.

use ptx::inst::{Alu, AluOp, Division, Inst, MmaTypes, Operand, Reg, Special, WarpMatrix, WgmmaTypes};

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
    /// The address of what it writes, which is no result.
    Writes,
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

/// The register that an operand is.
pub(super) fn register(operand: Operand) -> Option<Reg> {
    if let Operand::Reg(reg) = operand { Some(reg) } else { None }
}
