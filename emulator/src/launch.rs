//! A launch: what its clusters share, and what they did.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use crate::clock::{Gpus, Letter};
use crate::multiply::Layouts;
use crate::program::Program;
use crate::progress::Progress;
use crate::race::Races;
use crate::tensor_map::Map;

/// Generic address of the parameter block. No allocation reaches this address and the following ones.
pub(crate) const PARAMETERS: u64 = 0xF000_0000_0000_0000;
/// Generic address of the shared window: the low 32 bits are a shared address.
pub(crate) const SHARED: u64 = 0xE000_0000_0000_0000;
/// Generic address of each thread's local memory.
pub(crate) const LOCAL: u64 = 0xD000_0000_0000_0000;

/// One of several launches, for reports of others.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) program: Program,
    pub(crate) grid: [u32; 3],
    pub(crate) gpu: u32,
}

/// What all launches share that run at the same time.
#[derive(Debug)]
pub(crate) struct Common {
    /// Accesses to global memory so far, for race detection.
    pub(crate) races: Races,
    pub(crate) progress: Progress,
    pub(crate) layouts: Layouts,
    /// The launches in the order of their slots, if there are several.
    pub(crate) launches: Vec<Slot>,
    /// What the launches of each GPU have done that have ended, for those after them.
    done: Vec<Mutex<Letter>>,
    /// The GPUs whose memory is gone, as their process has ended.
    left: Vec<AtomicBool>,
}

impl Common {
    pub(crate) fn new(launches: Vec<Slot>, gpus: u32) -> Self {
        let each = 0..gpus;
        Self {
            races: Races::new(),
            progress: Progress::default(),
            layouts: Layouts::default(),
            launches,
            done: each.clone().map(|_| Mutex::default()).collect(),
            left: each.map(|_| AtomicBool::default()).collect(),
        }
    }

    /// Whether several launches run at the same time.
    pub(crate) fn is_several(&self) -> bool {
        !self.launches.is_empty()
    }

    /// A warp of a launch on a GPU has ended, and knows this.
    pub(crate) fn has_done(&self, gpu: u32, letter: &Letter) {
        if let Some(done) = self.done.get(gpu as usize) {
            done.lock().unwrap_or_else(PoisonError::into_inner).append(letter);
        }
    }

    /// What the launches of a GPU have done that have ended.
    pub(crate) fn done(&self, gpu: u32) -> Option<Letter> {
        let done = self.done.get(gpu as usize)?;
        Some(done.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }

    /// The process of a GPU has ended.
    pub(crate) fn leaves(&self, gpu: u32) {
        if let Some(left) = self.left.get(gpu as usize) {
            left.store(true, Relaxed);
        }
    }

    pub(crate) fn has_left(&self, gpu: u32) -> bool {
        self.left.get(gpu as usize).is_some_and(|left| left.load(Relaxed))
    }
}

/// State that the clusters of a launch share.
#[derive(Debug)]
pub(crate) struct Launch<'p> {
    pub(crate) common: &'p Common,
    /// Its place among the launches that run at the same time, and its GPU.
    pub(crate) slot: u32,
    pub(crate) gpu: u32,
    /// Whether the memory of the GPU is gone after it.
    pub(crate) leaves: bool,
    /// CTAs of the grid.
    pub(crate) grid: [u32; 3],
    /// The parameter block.
    pub(crate) block: Vec<u8>,
    /// The tensor maps of the block, by generic address.
    pub(crate) maps: Vec<(u64, Map)>,
}

impl Launch<'_> {
    /// The GPU of each launch, as [`Team`](crate::clock::Team) has them.
    pub(crate) fn gpus(&self) -> Gpus {
        let each = self.common.launches.iter().zip(0u32..);
        each.fold(0, |all, (launch, slot)| all | u64::from(launch.gpu) << (4 * slot))
    }
}

/// Counts of what a launch did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Number of CTAs that ran.
    pub ctas: u64,
    /// Number of warp instructions executed.
    pub instructions: u64,
    /// Number of `wgmma` instructions executed, counted once per warpgroup.
    pub wgmmas: u64,
    /// Number of multiply-adds in these `wgmma` instructions.
    pub multiply_adds: u64,
    /// Number of tensor loads, counted once per CTA that receives the data.
    pub tensor_loads: u64,
    /// Number of tensor stores.
    pub tensor_stores: u64,
}

impl Report {
    pub(crate) fn with(self, counts: Self) -> Self {
        Self {
            ctas: self.ctas + counts.ctas,
            instructions: self.instructions + counts.instructions,
            wgmmas: self.wgmmas + counts.wgmmas,
            multiply_adds: self.multiply_adds + counts.multiply_adds,
            tensor_loads: self.tensor_loads + counts.tensor_loads,
            tensor_stores: self.tensor_stores + counts.tensor_stores,
        }
    }
}
