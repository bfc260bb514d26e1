//! Multiplying a stage by `fma`: each thread multiplies the rows and columns of its own elements.

use cute_rs::atom::Major;
use ptx::Value;

use super::Operands;
use crate::mainloop::places::Places;
use crate::mainloop::sums::PlainSum;

/// Columns per group; a thread holds two of them, and two rows per block.
const COLUMNS: u32 = 8;

impl<'f, T: PlainSum> Operands<'f, '_, T> {
    /// Multiplies the stage at a shared address. Per step of a few elements along K, computes the products of
    /// all rows and columns of the thread. The elements of a step are loaded at once if they are contiguous.
    pub(super) fn multiply_plainly(&self, stage: Value<'f, u32>) {
        let plan = self.plan;
        let ([_, n, k], at_once) = (plan.mainloop.tile, plan.mainloop.atom.k());
        for step in 0..k / at_once {
            let blocks = 0..plan.blocks();
            let rows: Vec<_> = blocks.map(|block| self.lines(0, stage, block, step)).collect();
            for group in 0..n / COLUMNS {
                let columns = self.lines(1, stage, group, step);
                let first = group as usize * 4;
                for k in 0..at_once as usize {
                    for (rows, sums) in rows.iter().zip(&self.accumulators) {
                        // Two neighbouring columns of one row, then of the other.
                        let places =
                            rows.iter().flat_map(|row| columns.iter().map(move |column| (row, column)));
                        for (sum, (row, column)) in sums[first..].iter().zip(places) {
                            sum.set(row[k].mul_add(column[k], sum.get()));
                        }
                    }
                }
            }
        }
    }

    /// A thread's two rows of a block of A, or its two columns of B: for each, the elements along K of one
    /// step.
    fn lines(&self, operand: usize, stage: Value<'f, u32>, place: u32, step: u32) -> [Vec<Value<'f, T>>; 2] {
        let (f, k) = (self.f, self.plan.mainloop.atom.k());
        let places: &Places<'f> = if operand == 0 { &self.a } else { &self.b };
        let at = |line: u32, k_inside: u32| places.at(stage, [line * k + k_inside, place, step]);
        match (self.plan.mainloop.operands[operand].major, operand) {
            (Major::K, _) => [0, 1].map(|line| f.load_shared_vector::<T, 4>(at(line, 0), 0).to_vec()),
            // A thread's rows are eight apart; its columns are neighbours.
            (Major::Mn, 0) => {
                [0, 1].map(|line| (0..k).map(|i| f.load_shared_vector::<T, 1>(at(line, i), 0)[0]).collect())
            }
            (Major::Mn, _) => {
                let pairs: Vec<[Value<'f, T>; 2]> =
                    (0..k).map(|i| f.load_shared_vector::<T, 2>(at(0, i), 0)).collect();
                [0, 1].map(|line: usize| pairs.iter().map(|pair| pair[line]).collect())
            }
        }
    }
}
