//! What has been recorded of one cluster.

use std::collections::{BTreeMap, HashMap, VecDeque};

use super::{Class, Event, Phase};
use crate::trap::Wait;

/// What one cluster has done so far.
#[derive(Debug, Default)]
pub(crate) struct Tracer {
    /// The current step.
    pub(crate) now: u64,
    /// Whether each operation is a step of its own, as under the schedules that run one warp at a time.
    pub(crate) serial: bool,
    pub(crate) events: Vec<Event>,
    pub(crate) warps: Vec<WarpState>,
    /// The steps in which the copies in flight were issued, by warp, operation, lane and receiving CTA.
    pub(crate) copies: HashMap<(usize, usize, usize, usize), VecDeque<u64>>,
    /// By CTA and warpgroup: the pending multiplies, and the step in which the last one completed.
    pub(crate) multiplies: HashMap<(usize, usize), (VecDeque<Issued>, u64)>,
    /// The ranges that loads have written, by CTA and offset: the number of bytes and the stage.
    pub(crate) landed: BTreeMap<(usize, u32), (u32, Option<u32>)>,
    /// By operation: executions, wavefronts, ideal wavefronts.
    pub(crate) shared: BTreeMap<usize, [u64; 3]>,
    /// Number of loads and of stores in flight before the current operation.
    pub(crate) before: [usize; 2],
    /// Number of phases that each mbarrier has completed so far, by CTA and offset.
    pub(crate) completed: BTreeMap<(usize, u32), u64>,
    pub(crate) phases: Vec<Phase>,
}

#[derive(Debug, Default)]
pub(crate) struct WarpState {
    pub(crate) run: Option<Run>,
    pub(crate) waiting: Option<(u64, usize, Wait, Option<u32>)>,
}

/// Consecutive instructions of a warp.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    pub(crate) class: Class,
    pub(crate) scope: usize,
    pub(crate) pc: usize,
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) instructions: u64,
}

/// A multiply that the first warp of a warpgroup has issued.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Issued {
    pub(crate) pc: usize,
    pub(crate) start: u64,
    pub(crate) stage: Option<u32>,
}

impl Tracer {
    pub(crate) fn new(warps: usize, serial: bool) -> Self {
        let warps = (0..warps).map(|_| WarpState::default()).collect();
        Self { serial, warps, ..Self::default() }
    }

    /// The step in which a copy that completes now was issued.
    pub(crate) fn issued(&mut self, key: (usize, usize, usize, usize)) -> u64 {
        let queue = self.copies.get_mut(&key);
        queue.and_then(VecDeque::pop_front).unwrap_or(self.now)
    }
}
