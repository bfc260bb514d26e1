//! A prediction of the time of a backward pass.

use kernel::Machine;

use super::kernel::AttentionBackward;
use super::spec::BackwardSpec;
use crate::problem::AttentionProblem;
use crate::request::AttentionRequest;
use crate::spec::Mask;

/// Operations of products, per SM and cycle of an H200.
const RATE: f64 = 3190.0;
/// Cycles of an SM for a score in addition to its products: what is not covered by those of the other consumer.
const SCORE: f64 = 0.06;
/// Factors of both: of one consumer, of two with the same keys (of three kernels on an H200), and more for each 32 queries that are missing to
/// 64.
const ONE: f64 = 1.4;
const PAIR: f64 = 1.27;
const NARROW: f64 = 0.3;
/// Cycles of a tile of queries, and of a block of keys, in addition.
const TILE: f64 = 250.0;
const BLOCK: f64 = 11500.0;
/// More cycles of a tile that adds to dQ in its order, of 64 columns, of more, and of two consumers with the same keys: of 14 problems on
/// an H200.
const ORDERED: [f64; 3] = [90.0, 200.0, 700.0];
/// Bytes per element of Q that the first and the last program move: with zeros for dQ, and without.
const BYTES: [f64; 2] = [14.0, 10.0];
/// Microseconds of three launches; and megabytes per microsecond of the first and the last program.
const LAUNCHES: f64 = 6.0;
/// By how much a kernel that adds in a fixed order must be faster, by the model, where that is not asked: at some sequences of some thousand
/// keys it takes it for faster, and it takes 1 to 4 % more on an H200.
pub(super) const ORDER: f64 = 1.05;
const MEGABYTES: f64 = 2.5;

impl AttentionBackward {
    /// Predicted microseconds. The numbers of this model are from some 30 kernels at 14 problems on an H100.
    pub(super) fn predict(&self, request: &AttentionRequest, machine: &Machine) -> f64 {
        let AttentionProblem { heads: [heads, shared], .. } = request.problem;
        let BackwardSpec { tile: [rows, block], mask, deterministic, .. } = self.plan().spec;
        let ordered = usize::from(deterministic);
        let [wide, wide_v] = self.plan().wide.map(f64::from);
        let products = 3.0 * wide + 2.0 * wide_v;
        let scores = f64::from(rows) * f64::from(block);
        let [consumers, in_order] = match self.plan().pair {
            Some(_) => [PAIR, ORDERED[2]],
            None => [if block == 64 { ONE } else { 1.0 }, ORDERED[usize::from(wide > 64.0)]],
        };
        let narrow = 1.0 + NARROW * (2.0 - f64::from(rows) / 32.0).max(0.0);
        let tile = consumers * narrow * scores * (2.0 * products / (RATE * machine.tensor) + SCORE)
            + TILE
            + if deterministic { in_order } else { 0.0 };
        let share = f64::from(heads) / f64::from(shared.max(1));
        // Blocks of keys of all sequences, their tiles of queries, and all queries.
        let (mut blocks, mut tiles, mut all) = (0.0, 0.0, 0.0);
        for ([queries, keys], count) in request.kinds() {
            let (own, across) = (f64::from(keys.div_ceil(block)), f64::from(queries.div_ceil(rows)));
            let shared = f64::from(count) * f64::from(shared);
            blocks += shared * own;
            tiles += shared
                * own
                * match mask {
                    Mask::Full => across,
                    Mask::Causal => across / 2.0 + 0.5,
                    Mask::Window | Mask::Chunked => {
                        (across * request.seen([queries, keys]) + 1.0).min(across)
                    }
                };
            all += f64::from(count) * f64::from(queries);
        }
        let tiles = tiles / blocks.max(1.0);
        // CTAs of a mask differ, so no wave ends at once.
        let waves = blocks / f64::from(machine.multiprocessors);
        let waves = if mask == Mask::Full { waves.ceil() } else { waves.max(1.0) + 0.5 };
        let elements = f64::from(heads) * all * wide;
        let passes = elements * BYTES[ordered] / 1e6 / MEGABYTES;
        LAUNCHES + passes + waves * (tiles * share * tile + BLOCK) / machine.cycles
    }
}
