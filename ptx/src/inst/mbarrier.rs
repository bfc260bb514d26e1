//! mbarrier operations with state tokens, `arrive_drop`, and transaction counts in any CTA of the cluster;
//! `bar.red`.
//!
//! Source: PTX ISA "mbarrier.arrive" (also for `.noComplete`), "mbarrier.arrive_drop", "mbarrier.expect_tx",
//! "mbarrier.complete_tx", "mbarrier.test_wait", "mbarrier.pending_count", "bar.red".
//!
//! ```
//! # let entry = ptx::Entry { name: "example".into(), target: ptx::Target::Sm90a, threads: 128, shared_bytes: 4096, cluster: [1, 1, 1] };
//! let function = ptx::Function::build(entry, |f| {
//!     let barrier = f.shared_base();
//!     f.if_(f.special(ptx::Special::ThreadX).equals(0), || f.mbarrier_init(barrier, 128));
//!     f.barrier_sync(0, 128);
//!     // Arrive, do something else, and ask whether that phase is over.
//!     let state = f.mbarrier_arrive_state(barrier, 1);
//!     f.loop_(|| f.break_if(f.mbarrier_test(barrier, state, false)));
//! });
//! let text = ptx::module_text(&function.verify()?);
//! assert!(text.contains("mbarrier.test_wait"));
//! # Ok::<(), ptx::VerifyError>(())
//! ```

use super::operands::Operands;
use super::{Inst, Operand, Reg, Scope};
use crate::types::{Space, Type};

/// The memory ordering and the scope of an operation on an mbarrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MbarrierOrder {
    /// `.release` for an arrival, `.acquire` for a wait. What a thread of the scope wrote before its arrival
    /// is visible to a thread of the scope whose wait for the phase has succeeded.
    Sync(Scope),
    /// `.relaxed.<scope>`: the arrival only counts and the wait only tests; other accesses are not ordered.
    Relaxed(Scope),
}

impl MbarrierOrder {
    /// `.release.cta` or `.acquire.cta`: PTX's default. Such an arrival at a barrier of another CTA does not
    /// make the thread's writes visible to that CTA.
    pub const CTA: Self = Self::Sync(Scope::Cta);
    /// `.release.cluster` or `.acquire.cluster`.
    pub const CLUSTER: Self = Self::Sync(Scope::Cluster);

    /// The scope.
    pub const fn scope(self) -> Scope {
        match self {
            Self::Sync(scope) | Self::Relaxed(scope) => scope,
        }
    }

    /// Whether the operation orders other accesses: it is not `.relaxed`.
    pub const fn synchronises(self) -> bool {
        matches!(self, Self::Sync(_))
    }

    /// Checks that the scope is the CTA or the cluster.
    ///
    /// # Errors
    /// The rule that is broken, as a sentence.
    pub fn check(self) -> Result<(), String> {
        check_scope(self.scope())
    }
}

/// Checks that the scope of an mbarrier operation is the CTA or the cluster.
pub(crate) fn check_scope(scope: Scope) -> Result<(), String> {
    match scope {
        Scope::Cta | Scope::Cluster => Ok(()),
        Scope::Gpu | Scope::System => {
            Err(format!("an mbarrier's scope is .cta or .cluster, not .{}", scope.suffix()))
        }
    }
}

/// mbarrier operations other than arrivals without a state and waits by parity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MbarrierInst {
    /// `mbarrier.arrive.shared::cta.b64 state`: an arrival that returns the state of the phase before the
    /// arrival.
    Arrive {
        /// A `.u64` register that receives the state.
        dst: Reg,
        /// Shared address.
        barrier: Operand,
        /// Number of arrivals to count.
        count: Operand,
        /// Memory ordering.
        order: MbarrierOrder,
    },
    /// `mbarrier.arrive.expect_tx.shared::cta.b64 state`: announces bytes, and an arrival that returns the
    /// state.
    ArriveExpect {
        /// A `.u64` register that receives the state.
        dst: Reg,
        /// Shared address.
        barrier: Operand,
        /// Number of bytes that asynchronous copies complete in this phase.
        bytes: Operand,
        /// Memory ordering.
        order: MbarrierOrder,
    },
    /// `mbarrier.{arrive|arrive_drop}.noComplete.shared::cta.b64 state`: arrivals that must not complete the
    /// phase.
    ArriveNoComplete {
        /// A `.u64` register that receives the state.
        dst: Reg,
        /// Shared address.
        barrier: Operand,
        /// Number of arrivals to count.
        count: Operand,
        /// Whether it is `arrive_drop`: later phases expect `count` fewer arrivals.
        drop: bool,
    },
    /// `mbarrier.arrive_drop.shared::cta.b64 state`: arrivals; later phases expect as many fewer.
    DropState {
        /// A `.u64` register that receives the state.
        dst: Reg,
        /// Shared address.
        barrier: Operand,
        /// Number of arrivals to count and to drop.
        count: Operand,
        /// Memory ordering.
        order: MbarrierOrder,
    },
    /// `mbarrier.arrive_drop.expect_tx.shared::cta.b64 state`: announces bytes, and one arrival that later
    /// phases no longer expect.
    DropExpect {
        /// A `.u64` register that receives the state.
        dst: Reg,
        /// Shared address.
        barrier: Operand,
        /// Number of bytes that asynchronous copies complete in this phase.
        bytes: Operand,
        /// Memory ordering.
        order: MbarrierOrder,
    },
    /// `mbarrier.arrive_drop.expect_tx.shared::cluster.b64 _`: as [`DropExpect`](Self::DropExpect), on a
    /// barrier of any CTA of the cluster and without a state.
    DropExpectCluster {
        /// Address in the cluster.
        barrier: Operand,
        /// Number of bytes.
        bytes: Operand,
        /// Memory ordering.
        order: MbarrierOrder,
    },
    /// `mbarrier.arrive_drop.{shared::cta|shared::cluster}.b64 _`: arrivals; later phases expect as many
    /// fewer.
    Drop {
        /// Address in `space`.
        barrier: Operand,
        /// [`Space::Shared`] or [`Space::SharedCluster`].
        space: Space,
        /// Number of arrivals to count and to drop.
        count: Operand,
        /// Memory ordering.
        order: MbarrierOrder,
    },
    /// `mbarrier{.arrive}.expect_tx.…shared::cluster.b64`: announces bytes on a barrier of any CTA of the
    /// cluster.
    ExpectCluster {
        /// Whether it also counts one arrival.
        arrive: bool,
        /// Address in the cluster.
        barrier: Operand,
        /// Number of bytes.
        bytes: Operand,
        /// Memory ordering; `.relaxed` without an arrival.
        order: MbarrierOrder,
    },
    /// `mbarrier.complete_tx.relaxed.….b64`: counts bytes as arrived.
    Complete {
        /// Address in `space`.
        barrier: Operand,
        /// [`Space::Shared`] or [`Space::SharedCluster`].
        space: Space,
        /// Number of bytes.
        bytes: Operand,
        /// Scope. The operation orders no other accesses.
        scope: Scope,
    },
    /// `mbarrier.{try_wait|test_wait}.shared::cta.b64`, once: whether the phase of a state has completed.
    Test {
        /// A predicate.
        dst: Reg,
        /// Shared address.
        barrier: Operand,
        /// The state from an arrival on this barrier, in the current or the preceding phase.
        state: Operand,
        /// Whether it is `try_wait`, which may suspend the thread for some time; otherwise `test_wait`.
        patient: bool,
        /// Memory ordering.
        order: MbarrierOrder,
    },
    /// `mbarrier.test_wait.parity.shared::cta.b64`: whether the phase of a parity has completed.
    TestParity {
        /// A predicate.
        dst: Reg,
        /// Shared address.
        barrier: Operand,
        /// Phase parity, 0 or 1.
        parity: Operand,
        /// Memory ordering.
        order: MbarrierOrder,
    },
    /// `mbarrier.pending_count.b64`: the number of pending arrivals in a state.
    PendingCount {
        /// A `.u32` register.
        dst: Reg,
        /// The state from an arrival.
        state: Operand,
    },
}

impl MbarrierInst {
    pub(super) fn operands(&self) -> Operands {
        let none = Operands::default();
        match self {
            Self::Arrive { dst, barrier, count: number, .. }
            | Self::ArriveNoComplete { dst, barrier, count: number, .. }
            | Self::DropState { dst, barrier, count: number, .. }
            | Self::DropExpect { dst, barrier, bytes: number, .. }
            | Self::ArriveExpect { dst, barrier, bytes: number, .. } => {
                none.read_all(&[*barrier, *number], Type::U32).write(*dst, Type::U64)
            }
            Self::Drop { barrier, count: number, .. }
            | Self::ExpectCluster { barrier, bytes: number, .. }
            | Self::DropExpectCluster { barrier, bytes: number, .. }
            | Self::Complete { barrier, bytes: number, .. } => none.read_all(&[*barrier, *number], Type::U32),
            Self::Test { dst, barrier, state, .. } => {
                none.read(*barrier, Type::U32).read(*state, Type::U64).write(*dst, Type::Pred)
            }
            Self::TestParity { dst, barrier, parity, .. } => {
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

    /// Checks the space, the ordering and the scope.
    ///
    /// # Errors
    /// The rule that is broken, as a sentence.
    pub fn check(&self) -> Result<(), String> {
        if let Self::Drop { space: Space::Global, .. } | Self::Complete { space: Space::Global, .. } = self {
            return Err("an mbarrier in global memory".to_owned());
        }
        if let Self::ExpectCluster { arrive: false, order: MbarrierOrder::Sync(_), .. } = self {
            return Err("mbarrier.expect_tx is .relaxed: it is no arrival".to_owned());
        }
        match self {
            Self::Complete { scope, .. } => check_scope(*scope),
            Self::ArriveNoComplete { .. } | Self::PendingCount { .. } => Ok(()),
            Self::Arrive { order, .. }
            | Self::ArriveExpect { order, .. }
            | Self::DropState { order, .. }
            | Self::DropExpect { order, .. }
            | Self::DropExpectCluster { order, .. }
            | Self::Drop { order, .. }
            | Self::ExpectCluster { order, .. }
            | Self::Test { order, .. }
            | Self::TestParity { order, .. } => order.check(),
        }
    }

    /// The memory ordering of an arrival or a wait. `None` for other operations.
    pub const fn order(&self) -> Option<MbarrierOrder> {
        match self {
            Self::ArriveNoComplete { .. } => Some(MbarrierOrder::CTA),
            Self::Complete { .. } | Self::PendingCount { .. } | Self::ExpectCluster { arrive: false, .. } => {
                None
            }
            Self::Arrive { order, .. }
            | Self::ArriveExpect { order, .. }
            | Self::DropState { order, .. }
            | Self::DropExpect { order, .. }
            | Self::DropExpectCluster { order, .. }
            | Self::Drop { order, .. }
            | Self::ExpectCluster { order, .. }
            | Self::Test { order, .. }
            | Self::TestParity { order, .. } => Some(*order),
        }
    }
}

impl Inst {
    /// The memory ordering of an arrival at an mbarrier or a wait for one. `None` for other instructions.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "every other instruction has nothing to do with mbarriers"
    )]
    pub const fn mbarrier_order(&self) -> Option<MbarrierOrder> {
        match self {
            Self::MbarrierArrive { order, .. }
            | Self::MbarrierArriveExpectTx { order, .. }
            | Self::MbarrierTryWait { order, .. }
            | Self::MbarrierWait { order, .. } => Some(*order),
            Self::MbarrierMore(inst) => inst.order(),
            _ => None,
        }
    }
}

/// The reduction of a `bar.red`; each thread gets its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BarrierOp {
    /// `.popc`: the number of threads whose predicate is true, a `.u32`.
    Population,
    /// `.and`: whether all predicates are true.
    And,
    /// `.or`: whether any predicate is true.
    Or,
}

/// `bar.red`: a barrier that reduces a predicate over the threads that take part. ISA "bar.red".
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BarrierReduce {
    /// The reduction.
    pub op: BarrierOp,
    /// Named barrier, 0..16.
    pub id: Operand,
    /// Number of threads that take part, a multiple of 32.
    pub threads: u32,
    /// A `.u32` register for the population count, otherwise a predicate register.
    pub dst: Reg,
    /// Each thread's predicate.
    pub src: Operand,
}

impl BarrierReduce {
    pub(super) fn operands(&self) -> Operands {
        let result = if self.op == BarrierOp::Population { Type::U32 } else { Type::Pred };
        Operands::default().read(self.id, Type::U32).read(self.src, Type::Pred).write(self.dst, result)
    }
}
