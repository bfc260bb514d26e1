//! Scopes, memory orderings and proxies of fences; the number of threads at a barrier.
//!
//! ```
//! # let entry = ptx::Entry { name: "example".into(), target: ptx::Target::Sm90a, threads: 128, shared_bytes: 4096, cluster: [1, 1, 1] };
//! use ptx::{ProxySpace, Scope};
//!
//! let function = ptx::Function::build(entry, |f| {
//!     let shared = f.shared_base() + f.special(ptx::Special::ThreadX) * 4;
//!     f.store_shared(shared, 0, [f.constant(1u32)]);
//!     // Makes the threads' writes visible to a copy that one thread starts after the barrier.
//!     f.fence_proxy_async(ProxySpace::Shared);
//!     f.barrier_sync(0, 128);
//!     f.fence(Scope::Gpu);
//! });
//! let text = ptx::module_text(&function.verify()?);
//! assert!(text.contains("fence.proxy.async.shared::cta"));
//! assert!(text.contains("fence.acq_rel.gpu"));
//! # Ok::<(), ptx::VerifyError>(())
//! ```

use super::Operand;
use super::spell::Line;

/// A barrier without `.aligned`, to which the lanes of a warp may come one after the other, from different places of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LooseBarrier {
    /// `barrier.sync id, threads`.
    Sync {
        /// Named barrier, 0..16.
        id: Operand,
        /// Number of threads that take part, a multiple of 32.
        threads: u32,
    },
    /// `barrier.arrive id, threads`.
    Arrive {
        /// Named barrier, 0..16.
        id: Operand,
        /// Number of threads that take part, a multiple of 32.
        threads: u32,
    },
    /// `barrier.cluster.arrive{.relaxed}`.
    ClusterArrive {
        /// Whether it is `.relaxed`, without release semantics.
        relaxed: bool,
    },
    /// `barrier.cluster.wait`.
    ClusterWait,
}

impl LooseBarrier {
    pub(super) fn spell(self, line: Line<'_>) -> Line<'_> {
        match self {
            Self::Sync { id, threads } => line.named_barrier("barrier.sync", id, threads),
            Self::Arrive { id, threads } => line.named_barrier("barrier.arrive", id, threads),
            Self::ClusterArrive { relaxed } => {
                line.op("barrier.cluster.arrive", if relaxed { ".relaxed" } else { "" })
            }
            Self::ClusterWait => line.op("barrier.cluster.wait", ".acquire"),
        }
    }
}

/// The number of threads of a named barrier for all threads of the CTA that have not exited: the number that is not stated. ISA "bar",
/// "exit".
pub const EVERYONE: u32 = 0;

/// The state space of a `fence.proxy.async`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProxySpace {
    /// `.shared::cta`.
    Shared,
    /// `.shared::cluster`.
    SharedCluster,
    /// `.global`.
    Global,
    /// All spaces (no qualifier).
    All,
}

/// The threads that an access or a fence synchronises with. ISA 8.5 "Scope".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scope {
    /// `.cta`.
    Cta,
    /// `.cluster`.
    Cluster,
    /// `.gpu`.
    Gpu,
    /// `.sys`: the whole system, host and other devices included.
    System,
}

impl Scope {
    /// All scopes, the narrowest first.
    pub const ALL: [Self; 4] = [Self::Cta, Self::Cluster, Self::Gpu, Self::System];

    /// PTX's suffix.
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::Cta => "cta",
            Self::Cluster => "cluster",
            Self::Gpu => "gpu",
            Self::System => "sys",
        }
    }
}

/// The memory ordering of a fence. ISA "membar/fence".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FenceSem {
    /// `.acq_rel`.
    AcquireRelease,
    /// `.sc`: as `.acq_rel`, and all `.sc` fences have a single order.
    SequentiallyConsistent,
}

impl FenceSem {
    /// PTX's suffix.
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::AcquireRelease => "acq_rel",
            Self::SequentiallyConsistent => "sc",
        }
    }
}
