//! Arrivals at mbarriers and tests of their phases; `bar.red`.
//!
//! Source: PTX ISA "mbarrier.arrive" (also for `.noComplete`), "mbarrier.arrive_drop", "mbarrier.expect_tx",
//! "mbarrier.complete_tx", "mbarrier.test_wait", "mbarrier.pending_count", "bar.red".
//!
//! ```
//! # let entry = ptx::Entry { name: "example".into(), target: ptx::Target::Sm90a, threads: 128, shared_bytes: 4096, cluster: [1, 1, 1] };
//! use ptx::inst::{Arrival, MbarrierOrder, MbarrierPhase};
//!
//! let function = ptx::Function::build(entry, |f| {
//!     let barrier = f.shared_base();
//!     f.if_(f.special(ptx::Special::ThreadX).equals(0), || f.mbarrier_init(barrier, 128));
//!     f.barrier_sync(0, 128);
//!     // Arrive, do something else, and ask whether that phase is over.
//!     let state = f.mbarrier_arrive_state(barrier, Arrival::count(1), false, MbarrierOrder::CTA);
//!     f.loop_(|| f.break_if(f.mbarrier_test(barrier, MbarrierPhase::state(state), false, MbarrierOrder::CTA)));
//! });
//! let text = ptx::module_text(&function.verify()?);
//! assert!(text.contains("mbarrier.test_wait"));
//! # Ok::<(), ptx::VerifyError>(())
//! ```

use super::spell::Line;
use super::{Inst, Operand, Reg, Scope};
use crate::types::{Space, Type};
use crate::value::Source;

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
pub(super) fn check_scope(scope: Scope) -> Result<(), String> {
    match scope {
        Scope::Cta | Scope::Cluster => Ok(()),
        Scope::Gpu | Scope::System => {
            Err(format!("an mbarrier's scope is .cta or .cluster, not .{}", scope.suffix()))
        }
    }
}

/// `mbarrier.{arrive|arrive_drop}{.expect_tx|.noComplete}.{shared::cta|shared::cluster}.b64`: arrivals at an
/// mbarrier. ISA "mbarrier.arrive", "mbarrier.arrive_drop".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MbarrierArrive {
    /// Address in `space`.
    pub barrier: Operand,
    /// [`Space::Shared`], or [`Space::SharedCluster`] for a barrier of any CTA of the cluster.
    pub space: Space,
    /// What is counted.
    pub arrival: Arrival,
    /// Whether it is `arrive_drop`: later phases expect as many fewer arrivals.
    pub drop: bool,
    /// A `.u64` register that receives the state of the phase before the arrival; only for `Shared`.
    pub state: Option<Reg>,
    /// Memory ordering.
    pub order: MbarrierOrder,
}

/// What an arrival counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// This number of arrivals.
    Count(Operand),
    /// This number of arrivals, which must not complete the phase (`.noComplete`). It has a state and
    /// [`MbarrierOrder::CTA`].
    NoComplete(Operand),
    /// One arrival, which announces this number of bytes that asynchronous copies complete in the phase
    /// (`.expect_tx`).
    Expect(Operand),
}

/// `mbarrier.{try_wait|test_wait}{.parity}.shared::cta.b64`, once: whether a phase has completed. ISA
/// "mbarrier.test_wait", "mbarrier.try_wait".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MbarrierTest {
    /// A predicate.
    pub dst: Reg,
    /// Shared address.
    pub barrier: Operand,
    /// The phase.
    pub phase: MbarrierPhase,
    /// Whether it is `try_wait`, which may suspend the thread for some time; otherwise `test_wait`.
    pub patient: bool,
    /// Memory ordering.
    pub order: MbarrierOrder,
}

/// How a phase is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MbarrierPhase {
    /// The state from an arrival on this barrier, in the current or the preceding phase.
    State(Operand),
    /// The parity of the phase, 0 or 1.
    Parity(Operand),
}

impl Arrival {
    /// This number of arrivals.
    pub fn count<'f>(count: impl Source<'f, u32>) -> Self {
        Self::Count(count.operand())
    }

    /// This number of arrivals, which must not complete the phase.
    pub fn no_complete<'f>(count: impl Source<'f, u32>) -> Self {
        Self::NoComplete(count.operand())
    }

    /// One arrival, which announces this number of bytes.
    pub fn expect<'f>(bytes: impl Source<'f, u32>) -> Self {
        Self::Expect(bytes.operand())
    }
}

impl MbarrierPhase {
    /// The phase of a state.
    pub fn state<'f>(state: impl Source<'f, u64>) -> Self {
        Self::State(state.operand())
    }

    /// The phase of a parity.
    pub fn parity<'f>(parity: impl Source<'f, u32>) -> Self {
        Self::Parity(parity.operand())
    }
}

impl MbarrierArrive {
    pub(super) fn spell(self, line: Line<'_>) -> Line<'_> {
        let (name, number) = match (self.drop, self.arrival) {
            (false, Arrival::Count(count)) => ("mbarrier.arrive", count),
            (false, Arrival::NoComplete(count)) => ("mbarrier.arrive.noComplete", count),
            (false, Arrival::Expect(bytes)) => ("mbarrier.arrive.expect_tx", bytes),
            (true, Arrival::Count(count)) => ("mbarrier.arrive_drop", count),
            (true, Arrival::NoComplete(count)) => ("mbarrier.arrive_drop.noComplete", count),
            (true, Arrival::Expect(bytes)) => ("mbarrier.arrive_drop.expect_tx", bytes),
        };
        let line = line.op(name, format_args!("{}.{}.b64", self.order.spelled("release"), self.space.name()));
        let line = match self.state {
            Some(state) => line.set(state, Type::U64),
            None => line.also("_"),
        };
        let line = line.at(self.barrier, Type::U32);
        // One arrival is PTX's default.
        let plain = !self.drop && self.state.is_none();
        if plain && self.arrival == Arrival::Count(Operand::Imm(1)) {
            return line;
        }
        line.read(number, Type::U32)
    }

    /// Checks that the form exists.
    ///
    /// # Errors
    /// The rule that is broken, as a sentence.
    pub fn check(self) -> Result<(), String> {
        match (self.space, self.arrival) {
            (space, _) if !space.is_shared() => Err("an mbarrier that is not in shared memory".to_owned()),
            (Space::SharedCluster, _) if self.state.is_some() => {
                Err("an arrival at an mbarrier of the cluster returns no state".to_owned())
            }
            (_, Arrival::NoComplete(_)) if self.state.is_none() || self.order != MbarrierOrder::CTA => {
                Err("mbarrier.arrive.noComplete returns a state, and is ordered in the CTA".to_owned())
            }
            _ => self.order.check(),
        }
    }
}

impl MbarrierTest {
    pub(super) fn spell(self, line: Line<'_>) -> Line<'_> {
        let name = if self.patient { "mbarrier.try_wait" } else { "mbarrier.test_wait" };
        let (parity, number, ty) = match self.phase {
            MbarrierPhase::State(state) => ("", state, Type::U64),
            MbarrierPhase::Parity(parity) => (".parity", parity, Type::U32),
        };
        let order = self.order.spelled("acquire");
        let line = line.op(name, format_args!("{parity}{order}.shared::cta.b64"));
        line.set(self.dst, Type::Pred).at(self.barrier, Type::U32).read(number, ty)
    }
}

impl Inst {
    /// The memory ordering of an arrival at an mbarrier or of a wait. `None` for other instructions.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "every other instruction has nothing to do with mbarriers"
    )]
    pub const fn mbarrier_order(&self) -> Option<MbarrierOrder> {
        match self {
            Self::MbarrierArrive(MbarrierArrive { order, .. })
            | Self::MbarrierTest(MbarrierTest { order, .. })
            | Self::MbarrierWait { order, .. } => Some(*order),
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
    /// Number of threads that take part, a multiple of 32, or [`EVERYONE`](super::barrier::EVERYONE).
    pub threads: u32,
    /// A `.u32` register for the population count, otherwise a predicate register.
    pub dst: Reg,
    /// Each thread's predicate.
    pub src: Operand,
}

impl BarrierReduce {
    /// The line, or `None` if it is complete.
    pub(super) fn spell<'l>(&self, line: Line<'l>) -> Option<Line<'l>> {
        let Self { op, id, threads, dst, src } = self;
        let (op, result) = match op {
            BarrierOp::Population => ("popc.u32", Type::U32),
            BarrierOp::And => ("and.pred", Type::Pred),
            BarrierOp::Or => ("or.pred", Type::Pred),
        };
        let line = match src {
            Operand::Reg(_) => line.op("bar.red", format_args!(".{op}")),
            Operand::Imm(value) => {
                let relation = if *value == 0 { "ne" } else { "eq" };
                let line = line.named("bar.red", "{\n\t.reg .pred %src;\n\t");
                line.raw(format_args!("setp.{relation}.u32 %src, 0, 0;\n\tbar.red.{op}"))
            }
        };
        let line = line.set(*dst, result).read(*id, Type::U32).threads(*threads);
        if let Operand::Reg(_) = src {
            return Some(line.read(*src, Type::Pred));
        }
        line.also("%src;\n\t}");
        None
    }
}
