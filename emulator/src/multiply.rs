//! The multiplies of a warpgroup: those in flight, and the buffers and the arithmetic of one.

mod fast;
mod operands;
mod products;
mod spread;
mod vectors;

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use fast::Fast;
use operands::Matrices;
pub(crate) use spread::Halves;

use crate::descriptor::{Chunks, Tile};
use crate::hash::ByNumbers;
use crate::lanes::Lanes;
use crate::numerics::Exact;
use crate::shared::Mark;

/// Every warp of a warpgroup, one bit each.
pub(crate) const WHOLE: u8 = 0xF;

/// A multiply in flight: not every warp of the warpgroup has waited for it.
#[derive(Clone, Debug)]
pub(crate) struct Multiply {
    /// Its operation in the program.
    pub(crate) pc: usize,
    pub(crate) a: u64,
    pub(crate) b: u64,
    pub(crate) accumulate: bool,
    /// For a sparse multiply: the metadata register of each warp.
    pub(crate) metadata: Option<Box<[Lanes<u32>; 4]>>,
    /// Warps that have issued it, one bit each.
    pub(crate) issued: u8,
    /// Warps that have waited for it, one bit each.
    pub(crate) retired: u8,
    /// A and B, if they are in shared memory.
    pub(crate) operands: [Option<Arc<Chunks>>; 2],
    /// The mbarrier phases that each warp must have observed.
    pub(crate) landed: Vec<Mark>,
    /// The chunks that threads have accessed.
    pub(crate) touched: Vec<u32>,
}

/// The state of the collective instructions of a warpgroup.
#[derive(Clone, Debug, Default)]
pub(crate) struct Warpgroup {
    pub(crate) multiplies: VecDeque<Multiply>,
    /// Number of the first of `multiplies`, of the first that is not done, and of the first that owns its
    /// shared memory.
    pub(crate) first: u64,
    pub(crate) done: u64,
    pub(crate) owned: u64,
    /// Other collective instructions: the operation, and the warps that have executed it.
    pub(crate) collectives: VecDeque<(usize, u8)>,
    pub(crate) first_collective: u64,
}

impl Warpgroup {
    /// Number of multiplies that are done.
    pub(crate) fn done(&self) -> u64 {
        self.done
    }

    /// The first other collective instruction that not every warp has executed, and the warps that have, one
    /// bit each.
    pub(crate) fn incomplete(&self) -> Option<(usize, u8)> {
        self.collectives.front().copied()
    }

    /// The operation of the first multiply that is not done.
    pub(crate) fn next(&self) -> Option<usize> {
        self.multiplies.get((self.done - self.first) as usize).map(|multiply| multiply.pc)
    }
}

/// Buffers that multiplies reuse: the layout of operands, and the operands in the form that the arithmetic
/// uses.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    pub(crate) chunks: ByNumbers<Tile, Arc<Chunks>>,
    pub(crate) matrices: Matrices,
    pub(crate) fast: Fast,
    pub(crate) exact: Exact,
}

/// Maximum number of operands in the cache of layouts.
const KEPT: usize = 1 << 10;

impl Scratch {
    /// The offsets of the chunks of an operand.
    pub(crate) fn chunks(&mut self, tile: Tile, layouts: &Layouts) -> Arc<Chunks> {
        if self.chunks.len() >= KEPT {
            self.chunks.clear();
        }
        Arc::clone(self.chunks.entry(tile).or_insert_with(|| layouts.chunks(tile)))
    }
}

/// The layouts of the operands of a launch, which most of its clusters have in common.
#[derive(Debug, Default)]
pub(crate) struct Layouts(Mutex<HashMap<Tile, Arc<Chunks>>>);

impl Layouts {
    fn chunks(&self, tile: Tile) -> Arc<Chunks> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= KEPT {
            all.clear();
        }
        Arc::clone(all.entry(tile).or_insert_with(|| Arc::new(Chunks::new(tile))))
    }
}
