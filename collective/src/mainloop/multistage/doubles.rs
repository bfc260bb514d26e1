//! Multiplying a stage of `f64`: loads of 16 bytes into registers, and `mma.sync`.

use ptx::Value;
use ptx::inst::MmaTypes;

use super::Operands;
use crate::mainloop::places::Places;

/// Columns per instruction.
const COLUMNS: u32 = 8;

/// Accumulators per thread and instruction.
const SUMS: usize = 4;

impl<'f> Operands<'f, '_, f64> {
    /// Multiplies the stage at a shared address: per K of an instruction, all rows of the warp, with the
    /// columns one instruction at a time.
    pub(super) fn multiply_doubles(&self, stage: Value<'f, u32>) {
        let Self { f, plan, .. } = *self;
        let ([_, n, k], types) = (plan.mainloop.tile, MmaTypes::F64);
        for step in 0..k / types.k() {
            let load = |places: &Places<'f>, line: u32, place: u32| {
                f.load_shared_vector::<f64, 2>(places.at(stage, [2 * line, place, step]), 0)
            };
            let of_block = |block| {
                let ([upper, next_upper], [lower, next_lower]) =
                    (load(&self.a, 0, block), load(&self.a, 1, block));
                [upper, lower, next_upper, next_lower]
            };
            let rows: Vec<_> = (0..plan.blocks()).map(of_block).collect();
            for group in 0..n / COLUMNS {
                let b = load(&self.b, 0, group);
                let first = group as usize * SUMS;
                for (&a, sums) in rows.iter().zip(&self.accumulators) {
                    let sums = &sums[first..first + SUMS];
                    let old: [Value<'f, f64>; SUMS] = core::array::from_fn(|i| sums[i].get());
                    for (sum, new) in sums.iter().zip(f.multiply(types, a, b, old)) {
                        sum.set(new);
                    }
                }
            }
        }
    }
}
