//! A launch: what its clusters share, and what they did.

use crate::progress::Progress;
use crate::race::Races;
use crate::tensor_map::Map;

/// Generic address of the parameter block. No allocation reaches this address and the following ones.
pub(crate) const PARAMETERS: u64 = 0xF000_0000_0000_0000;
/// Generic address of the shared window: the low 32 bits are a shared address.
pub(crate) const SHARED: u64 = 0xE000_0000_0000_0000;
/// Generic address of each thread's local memory.
pub(crate) const LOCAL: u64 = 0xD000_0000_0000_0000;

/// State that the clusters of a launch share.
#[derive(Debug)]
pub(crate) struct Launch {
    /// CTAs of the grid.
    pub(crate) grid: [u32; 3],
    /// The parameter block.
    pub(crate) block: Vec<u8>,
    /// The tensor maps of the block, by generic address.
    pub(crate) maps: Vec<(u64, Map)>,
    /// Accesses to global memory so far, for race detection.
    pub(crate) races: Races,
    pub(crate) progress: Progress,
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
