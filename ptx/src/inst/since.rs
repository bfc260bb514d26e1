//! The PTX version in which each instruction appeared.

use super::{Bulk, Inst, WgmmaTypes};

impl Inst {
    /// The oldest PTX version, as (major, minor), in which `sm_90a` has the instruction.
    ///
    /// NVIDIA's assembler confirms it for every form (`tests/ptxas/instructions.rs`): it accepts this version and
    /// refuses the one before.
    #[expect(clippy::wildcard_enum_match_arm, reason = "every other instruction came with the target")]
    pub(crate) fn since(&self) -> (u32, u32) {
        match self {
            Self::Wgmma { types: WgmmaTypes::Int8 { a, b, .. }, .. } if a != b => (8, 4),
            Self::Wgmma { sparse: Some(_), .. } => (8, 2),
            Self::Atomic(atomic) if atomic.src.len() > 1 => (8, 1),
            Self::Bulk(Bulk::AsyncStore { .. } | Bulk::AsyncReduce { .. }) => (8, 1),
            Self::TensorMap(_) => (8, 3),
            _ if self.mbarrier_order().is_some_and(|order| !order.synchronises()) => (8, 6),
            _ => (8, 0),
        }
    }
}
