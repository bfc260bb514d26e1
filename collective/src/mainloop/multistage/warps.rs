//! Multiplying a stage by `ldmatrix` and `mma.sync`.

use cute_rs::atom::Major;
use ptx::Value;
use ptx::inst::MmaTypes;

use super::Operands;
use crate::mainloop::sums::PlainSum;

/// Columns that one `ldmatrix` of B supplies: two instructions.
const COLUMNS: u32 = 16;

/// Accumulators per thread and instruction.
const SUMS: usize = 4;

impl<'f, T: PlainSum> Operands<'f, '_, T> {
    /// Multiplies the stage at a shared address: per K of an instruction, all rows of the warp, with the
    /// columns two instructions at a time.
    pub(super) fn multiply_by_warps(&self, types: MmaTypes, stage: Value<'f, u32>) {
        let Self { f, plan, .. } = *self;
        let [_, n, k] = plan.mainloop.tile;
        let [a_across, b_across] = plan.mainloop.operands.map(|operand| operand.major == Major::Mn);
        for step in 0..k / types.k() {
            let of_block = |block| f.load_matrix::<4>(self.a.at(stage, [0, block, step]), a_across);
            let rows: Vec<_> = (0..plan.blocks()).map(of_block).collect();
            for pair in 0..n / COLUMNS {
                let [low, next_low, high, next_high] =
                    f.load_matrix::<4>(self.b.at(stage, [0, pair, step]), b_across);
                for (side, b) in [[low, high], [next_low, next_high]].into_iter().enumerate() {
                    let first = (2 * pair as usize + side) * SUMS;
                    for (&a, sums) in rows.iter().zip(&self.accumulators) {
                        let sums = &sums[first..first + SUMS];
                        let old: [Value<'f, T>; SUMS] = core::array::from_fn(|i| sums[i].get());
                        for (sum, new) in sums.iter().zip(f.multiply(types, a, b, old)) {
                            sum.set(new);
                        }
                    }
                }
            }
        }
    }
}
