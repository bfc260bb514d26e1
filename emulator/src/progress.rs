//! Whether the clusters of a launch make progress.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// Number of turns after which a waiting cluster counts as hung, while no other cluster makes progress.
const IDLE_TURNS: u32 = 1 << 10;

/// Progress of the clusters of a launch, shared between host threads.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Number of clusters that have begun and do not wait.
    active: AtomicUsize,
    /// How often a cluster has begun, or has continued after waiting.
    events: AtomicU64,
}

/// One cluster's part of [`Progress`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Standing {
    active: bool,
    /// The number of events at the end of its last turn, and the number of turns since it changed.
    events: u64,
    idle: u32,
}

impl Progress {
    /// Called when a cluster does something other than waiting.
    pub(crate) fn goes_on(&self, standing: &mut Standing) {
        if !standing.active {
            standing.active = true;
            self.active.fetch_add(1, Relaxed);
            self.events.fetch_add(1, Relaxed);
        }
    }

    /// Called when a cluster waits or has ended.
    pub(crate) fn pauses(&self, standing: &mut Standing) {
        if standing.active {
            standing.active = false;
            self.active.fetch_sub(1, Relaxed);
        }
    }

    /// Counts a turn in which a cluster only waited. Returns whether the cluster seems to be hung.
    pub(crate) fn idles(&self, standing: &mut Standing) -> bool {
        self.pauses(standing);
        let events = self.events.load(Relaxed);
        standing.idle = if events == standing.events { standing.idle + 1 } else { 0 };
        standing.events = events;
        standing.idle > IDLE_TURNS
    }

    /// Whether no cluster has made progress since the last turn of this cluster.
    pub(crate) fn stands(&self, standing: &Standing) -> bool {
        self.events.load(Relaxed) == standing.events && self.active.load(Relaxed) == 0
    }
}
