//! mbarriers with state tokens, dropped arrivals and byte counts of any CTA; named barriers that reduce.
//!
//! Source: PTX ISA "mbarrier.arrive" (also of the state of an arrival that may not complete the phase), "mbarrier.arrive_drop", "mbarrier.expect_tx", "mbarrier.complete_tx",
//! "mbarrier.test_wait", "mbarrier.pending_count", "bar.red".
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

/// How an operation on an mbarrier orders other accesses, and for whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MbarrierOrder {
    /// `.release` of an arrival, `.acquire` of a wait: what threads of the scope did before their arrivals is visible to
    /// those whose wait for the phase has succeeded.
    Sync(Scope),
    /// `.relaxed.<scope>`: it only counts, or only asks.
    Relaxed(Scope),
}

impl MbarrierOrder {
    /// What PTX means where nothing is written: `.release.cta` or `.acquire.cta`. Such an arrival at a barrier of another
    /// CTA publishes nothing that its thread wrote.
    pub const CTA: Self = Self::Sync(Scope::Cta);
    /// `.release.cluster` or `.acquire.cluster`.
    pub const CLUSTER: Self = Self::Sync(Scope::Cluster);

    /// For whom.
    pub const fn scope(self) -> Scope {
        match self {
            Self::Sync(scope) | Self::Relaxed(scope) => scope,
        }
    }

    /// Whether it orders anything.
    pub const fn synchronises(self) -> bool {
        matches!(self, Self::Sync(_))
    }

    /// The rule of scopes.
    ///
    /// # Errors
    /// The rule broken, as a sentence.
    pub fn check(self) -> Result<(), String> {
        check_scope(self.scope())
    }
}

/// An mbarrier's scope is the CTA or the cluster.
pub(crate) fn check_scope(scope: Scope) -> Result<(), String> {
    match scope {
        Scope::Cta | Scope::Cluster => Ok(()),
        Scope::Gpu | Scope::System => {
            Err(format!("an mbarrier's scope is .cta or .cluster, not .{}", scope.suffix()))
        }
    }
}

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
        /// How it is ordered.
        order: MbarrierOrder,
    },
    /// `mbarrier.arrive.expect_tx.shared::cta.b64 state`.
    ArriveExpect {
        /// A `.u64` register.
        dst: Reg,
        /// Shared address.
        barrier: Operand,
        /// Bytes that asynchronous copies will bring in this phase.
        bytes: Operand,
        /// How it is ordered.
        order: MbarrierOrder,
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
        /// How it is ordered.
        order: MbarrierOrder,
    },
    /// `mbarrier.arrive_drop.expect_tx.shared::cta.b64 state`: announces bytes and arrives for the last time.
    DropExpect {
        /// A `.u64` register.
        dst: Reg,
        /// Shared address.
        barrier: Operand,
        /// Bytes that asynchronous copies will bring in this phase.
        bytes: Operand,
        /// How it is ordered.
        order: MbarrierOrder,
    },
    /// `mbarrier.arrive_drop.expect_tx.shared::cluster.b64 _`: the same on a barrier of any CTA of the
    /// cluster.
    DropExpectCluster {
        /// Address in the cluster.
        barrier: Operand,
        /// Bytes.
        bytes: Operand,
        /// How it is ordered.
        order: MbarrierOrder,
    },
    /// `mbarrier.arrive_drop.{shared::cta|shared::cluster}.b64 _`: arrivals, which later phases do not wait for.
    Drop {
        /// Address in `space`.
        barrier: Operand,
        /// [`Space::Shared`] or [`Space::SharedCluster`].
        space: Space,
        /// How many.
        count: Operand,
        /// How it is ordered.
        order: MbarrierOrder,
    },
    /// `mbarrier{.arrive}.expect_tx.…shared::cluster.b64`: announces bytes on a barrier of any CTA of the cluster.
    ExpectCluster {
        /// Whether it is an arrival too.
        arrive: bool,
        /// Address in the cluster.
        barrier: Operand,
        /// Bytes.
        bytes: Operand,
        /// How it is ordered.
        order: MbarrierOrder,
    },
    /// `mbarrier.complete_tx.relaxed.….b64`: counts bytes as arrived.
    Complete {
        /// Address in `space`.
        barrier: Operand,
        /// [`Space::Shared`] or [`Space::SharedCluster`].
        space: Space,
        /// Bytes.
        bytes: Operand,
        /// For whom; it orders nothing.
        scope: Scope,
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
        /// How it is ordered.
        order: MbarrierOrder,
    },
    /// `mbarrier.test_wait.parity.shared::cta.b64`.
    TestParity {
        /// A predicate.
        dst: Reg,
        /// Shared address.
        barrier: Operand,
        /// 0 or 1.
        parity: Operand,
        /// How it is ordered.
        order: MbarrierOrder,
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

    /// The rules of the form.
    ///
    /// # Errors
    /// The rule broken, as a sentence.
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

    /// How an arrival or a wait is ordered; `None` for what is neither.
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
    /// How an arrival at an mbarrier or a wait for one is ordered; `None` for what is neither.
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

    /// Whether it is an arrival or a wait with `.relaxed`, which came later than the rest.
    pub(crate) fn is_relaxed_mbarrier(&self) -> bool {
        self.mbarrier_order().is_some_and(|order| !order.synchronises())
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
