//! Waves: the parts of a consumer's tile that are multiplied one after the other, into one set of accumulators.

use core::ops::Range;

use super::{MainloopSpec, PlanError};

/// Most columns of one instruction.
pub(super) const MOST_COLUMNS: u32 = 256;

impl MainloopSpec {
    /// Number of blocks of rows of a wave.
    pub(crate) const fn wave_blocks(&self) -> u32 {
        let (blocks, waves) = (self.blocks(), self.waves);
        if waves == 0 || blocks <= waves { 1 } else { blocks / waves }
    }

    /// Number of ranges of columns into which waves divide a block; 1 if a wave has all columns.
    pub(super) const fn wave_ranges(&self) -> u32 {
        let (blocks, waves) = (self.blocks(), self.waves);
        if blocks == 0 || waves <= blocks { 1 } else { waves / blocks }
    }

    /// The blocks of a wave, and its instructions next to each other.
    pub(crate) const fn wave(&self, wave: u32) -> [Range<u32>; 2] {
        let (rows, ranges) = (self.wave_blocks(), self.wave_ranges());
        let (block, range) = (wave / ranges * rows, wave % ranges);
        let each = self.across() / ranges;
        [block..block + rows, range * each..(range + 1) * each]
    }

    /// Accumulator registers of a consumer thread, in 32-bit registers, for one product: those of a wave.
    pub const fn accumulators(&self) -> u32 {
        let columns = self.tile[1] / self.wave_ranges();
        let blocks = if self.waves == 1 { self.blocks() } else { self.wave_blocks() };
        blocks * self.atom.accumulators(columns)
    }

    /// Checks that the tile divides into its waves.
    pub(super) const fn waving(&self) -> Result<(), PlanError> {
        let (waves, blocks, n) = (self.waves, self.blocks(), self.tile[1]);
        if waves == 1 {
            return Ok(());
        }
        if self.atom.promote == 0 && !self.is_scaled() {
            return Err(PlanError::Rule {
                rule: "waves share accumulators that are added to sums: use Promoted or BlockScaled operands, or leave InWaves out",
            });
        }
        if self.atom.promote > self.tile[2] / self.atom.k() {
            return Err(PlanError::Rule {
                rule: "each wave is promoted within a k-tile: promote after at most the instructions of a tile's K, or leave InWaves out",
            });
        }
        let ranges = self.wave_ranges();
        let divides = if waves == 0 || blocks == 0 {
            false
        } else if waves <= blocks {
            blocks.is_multiple_of(waves)
        } else {
            waves.is_multiple_of(blocks)
                && n.is_multiple_of(ranges * self.column_step())
                && n / ranges <= MOST_COLUMNS
                && self.step == 0
        };
        if divides { Ok(()) } else { Err(PlanError::Waves { waves, blocks, n, step: self.column_step() }) }
    }
}
