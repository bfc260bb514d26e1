//! mbarriers with state tokens, dropped arrivals and byte counts of any CTA; named barriers that reduce.
//!
//! Source: PTX ISA "mbarrier.arrive" (also of the state of an arrival that may not complete the phase), "mbarrier.arrive_drop", "mbarrier.expect_tx", "mbarrier.complete_tx",
//! "mbarrier.test_wait", "mbarrier.pending_count", "bar.red".

use super::operands::Operands;
use super::{Operand, Reg};
use crate::types::{Space, Type};

/// Operations on mbarriers beyond arrivals that nobody asks about and waits by parity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MbarrierInst {
    /// `mbarrier.arrive.shared::cta.b64 state`: an arrival that gives the state of the phase before it.
    Arrive {
        /// A `.u64` register.
        dst: Reg,
        /// Shared address.
        barrier: Operand,
        /// How many arrivals to count.
        count: Operand,
    },
    /// `mbarrier.arrive.expect_tx.shared::cta.b64 state`.
    ArriveExpect {
        /// A `.u64` register.
        dst: Reg,
        /// Shared address.
        barrier: Operand,
        /// Bytes that asynchronous copies will bring in this phase.
        bytes: Operand,
    },
    /// `mbarrier.{arrive|arrive_drop}.noComplete.shared::cta.b64 state`: arrivals that must not complete the phase.
    ArriveNoComplete {
        /// A `.u64` register.
        dst: Reg,
        /// Shared address.
        barrier: Operand,
        /// How many arrivals to count.
        count: Operand,
        /// Whether later phases do not wait for them.
        drop: bool,
    },
    /// `mbarrier.arrive_drop.shared::cta.b64 state`: arrivals, which later phases do not wait for.
    DropState {
        /// A `.u64` register.
        dst: Reg,
        /// Shared address.
        barrier: Operand,
        /// How many.
        count: Operand,
    },
    /// `mbarrier.arrive_drop.expect_tx.shared::cta.b64 state`: announces bytes and arrives for the last time.
    DropExpect {
        /// A `.u64` register.
        dst: Reg,
        /// Shared address.
        barrier: Operand,
        /// Bytes that asynchronous copies will bring in this phase.
        bytes: Operand,
    },
    /// `mbarrier.arrive_drop.expect_tx.release.cluster.shared::cluster.b64 _`: the same on a barrier of any CTA of the
    /// cluster.
    DropExpectCluster {
        /// Address in the cluster.
        barrier: Operand,
        /// Bytes.
        bytes: Operand,
    },
    /// `mbarrier.arrive_drop.{shared::cta|shared::cluster}.b64 _`: arrivals, which later phases do not wait for.
    Drop {
        /// Address in `space`.
        barrier: Operand,
        /// [`Space::Shared`] or [`Space::SharedCluster`].
        space: Space,
        /// How many.
        count: Operand,
    },
    /// `mbarrier{.arrive}.expect_tx.…shared::cluster.b64`: announces bytes on a barrier of any CTA of the cluster.
    ExpectCluster {
        /// Whether it is an arrival too.
        arrive: bool,
        /// Address in the cluster.
        barrier: Operand,
        /// Bytes.
        bytes: Operand,
    },
    /// `mbarrier.complete_tx.relaxed.….b64`: counts bytes as arrived.
    Complete {
        /// Address in `space`.
        barrier: Operand,
        /// [`Space::Shared`] or [`Space::SharedCluster`].
        space: Space,
        /// Bytes.
        bytes: Operand,
    },
    /// `mbarrier.{try_wait|test_wait}.shared::cta.b64`, once: whether the phase of a state has completed.
    Test {
        /// A predicate.
        dst: Reg,
        /// Shared address.
        barrier: Operand,
        /// What an arrival on the barrier gave, in this phase or the one before.
        state: Operand,
        /// `try_wait`, which may wait for some time.
        patient: bool,
    },
    /// `mbarrier.test_wait.parity.shared::cta.b64`.
    TestParity {
        /// A predicate.
        dst: Reg,
        /// Shared address.
        barrier: Operand,
        /// 0 or 1.
        parity: Operand,
    },
    /// `mbarrier.pending_count.b64`: the arrivals that a state says were missing.
    PendingCount {
        /// A `.u32` register.
        dst: Reg,
        /// What an arrival gave.
        state: Operand,
    },
}

impl MbarrierInst {
    pub(super) fn operands(&self) -> Operands {
        let none = Operands::default();
        match self {
            Self::Arrive { dst, barrier, count: number }
            | Self::ArriveNoComplete { dst, barrier, count: number, .. }
            | Self::DropState { dst, barrier, count: number }
            | Self::DropExpect { dst, barrier, bytes: number }
            | Self::ArriveExpect { dst, barrier, bytes: number } => {
                none.read_all(&[*barrier, *number], Type::U32).write(*dst, Type::U64)
            }
            Self::Drop { barrier, count: number, .. }
            | Self::ExpectCluster { barrier, bytes: number, .. }
            | Self::DropExpectCluster { barrier, bytes: number }
            | Self::Complete { barrier, bytes: number, .. } => none.read_all(&[*barrier, *number], Type::U32),
            Self::Test { dst, barrier, state, .. } => {
                none.read(*barrier, Type::U32).read(*state, Type::U64).write(*dst, Type::Pred)
            }
            Self::TestParity { dst, barrier, parity } => {
                none.read_all(&[*barrier, *parity], Type::U32).write(*dst, Type::Pred)
            }
            Self::PendingCount { dst, state } => none.read(*state, Type::U64).write(*dst, Type::U32),
        }
    }

    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::Arrive { .. } => "mbarrier.arrive",
            Self::ArriveExpect { .. } | Self::ExpectCluster { arrive: true, .. } => {
                "mbarrier.arrive.expect_tx"
            }
            Self::ArriveNoComplete { drop: false, .. } => "mbarrier.arrive.noComplete",
            Self::ArriveNoComplete { drop: true, .. } => "mbarrier.arrive_drop.noComplete",
            Self::Drop { .. } | Self::DropState { .. } => "mbarrier.arrive_drop",
            Self::DropExpect { .. } | Self::DropExpectCluster { .. } => "mbarrier.arrive_drop.expect_tx",
            Self::ExpectCluster { .. } => "mbarrier.expect_tx",
            Self::Complete { .. } => "mbarrier.complete_tx",
            Self::Test { patient: true, .. } => "mbarrier.try_wait",
            Self::Test { .. } | Self::TestParity { .. } => "mbarrier.test_wait",
            Self::PendingCount { .. } => "mbarrier.pending_count",
        }
    }

    /// The rules of the form.
    ///
    /// # Errors
    /// The rule broken, as a sentence.
    pub fn check(&self) -> Result<(), String> {
        if let Self::Drop { space: Space::Global, .. } | Self::Complete { space: Space::Global, .. } = self {
            return Err("an mbarrier in global memory".to_owned());
        }
        Ok(())
    }
}

/// What `bar.red` gives to each thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BarrierOp {
    /// How many threads' predicates are true, a `.u32`.
    Population,
    /// Whether all are.
    And,
    /// Whether any is.
    Or,
}

/// `bar.red`: a barrier that reduces a predicate over the threads that take part. ISA "bar.red".
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BarrierReduce {
    /// What is reduced to.
    pub op: BarrierOp,
    /// 0..16.
    pub id: Operand,
    /// A multiple of 32: how many threads take part.
    pub threads: u32,
    /// A `.u32` register for the population, else a predicate.
    pub dst: Reg,
    /// A predicate.
    pub src: Operand,
}

impl BarrierReduce {
    pub(super) fn operands(&self) -> Operands {
        let result = if self.op == BarrierOp::Population { Type::U32 } else { Type::Pred };
        Operands::default().read(self.id, Type::U32).read(self.src, Type::Pred).write(self.dst, result)
    }
}
