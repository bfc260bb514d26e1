//! Checks the waves of a mainloop: the parts of a consumer's tile that are multiplied one after the other, into one set of accumulators.

use super::product::MOST_COLUMNS;
use super::{MainloopSpec, PlanError};

impl MainloopSpec {
    /// Checks that the tile divides into its waves.
    pub(super) const fn waving(&self) -> Result<(), PlanError> {
        let product = self.product();
        let (waves, blocks, n) = (self.waves, product.blocks(), self.tile[1]);
        if waves == 1 {
            return Ok(());
        }
        if self.atom.promote == 0 && !self.is_scaled() {
            return Err(PlanError::Rule {
                rule: "waves share accumulators that are added to sums: use Promoted or BlockScaled operands, or leave InWaves out",
            });
        }
        if self.atom.promote > product.steps() {
            return Err(PlanError::Rule {
                rule: "each wave is promoted within a k-tile: promote after at most the instructions of a tile's K, or leave InWaves out",
            });
        }
        let ranges = product.wave_ranges();
        let divides = if waves == 0 || blocks == 0 {
            false
        } else if waves <= blocks {
            blocks.is_multiple_of(waves)
        } else {
            waves.is_multiple_of(blocks)
                && n.is_multiple_of(ranges.saturating_mul(product.column_step))
                && n / ranges <= MOST_COLUMNS
                && self.step == 0
        };
        if divides { Ok(()) } else { Err(PlanError::Waves { waves, blocks, n, step: product.column_step }) }
    }
}
