//! Named barriers and the barrier of a cluster: who has arrived, and what they know.

use std::collections::BTreeMap;

use crate::clock::View;

/// Number of past rounds of a named barrier with results kept for warps that have not continued yet.
const RESULTS: usize = 64;

/// A named barrier of a CTA.
#[derive(Clone, Debug, Default)]
pub(crate) struct NamedBarrier {
    /// How often it has completed.
    pub(crate) generation: u64,
    /// Number of threads of the current round. Set by the first warp that arrives.
    pub(crate) threads: u32,
    /// Whether these are all threads of the CTA that have not exited.
    pub(crate) everyone: bool,
    /// Number of threads that have arrived.
    pub(crate) arrived: u32,
    /// Warps that have arrived, one bit each.
    pub(crate) warps: u32,
    /// Those of them that wait.
    pub(crate) waiting: u32,
    /// The warp that arrived last, and its operation.
    pub(crate) last: (usize, usize),
    /// Number of threads that arrived with a true predicate, and with any. Threads that have ended are counted with their warp, but
    /// have no predicate.
    pub(crate) votes: (u32, u32),
    /// For past rounds, by generation: the number of true predicates, and of all.
    pub(crate) results: BTreeMap<u64, (u32, u32)>,
    /// What the threads that have arrived know.
    pub(crate) gathered: View,
    /// What the threads of the last round knew.
    pub(crate) released: View,
}

impl NamedBarrier {
    /// Completes the round, if all its threads have arrived. Returns whether they have.
    pub(crate) fn complete(&mut self) -> bool {
        if self.arrived == 0 || self.arrived < self.threads {
            return false;
        }
        let released = core::mem::take(&mut self.gathered);
        let mut results = core::mem::take(&mut self.results);
        results.insert(self.generation, self.votes);
        if results.len() > RESULTS {
            results.pop_first();
        }
        *self = Self { generation: self.generation + 1, released, results, ..Self::default() };
        true
    }
}

/// The barrier of a cluster.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClusterBarrier {
    /// How often it has completed.
    pub(crate) generation: u64,
    /// Number of warps that have arrived. Warps that have exited are not counted.
    pub(crate) arrived: u32,
    /// What the warps that have arrived know.
    pub(crate) gathered: View,
    /// What the warps of the last round knew.
    pub(crate) released: View,
}
