//! A prediction of the time of a backward pass.

use kernel::Machine;
use scheduler::Loads;

use super::kernel::AttentionBackward;
use super::spec::BackwardSpec;
use crate::problem::AttentionProblem;
use crate::request::AttentionRequest;
use crate::spec::{Lengths, Mask};

/// Operations of products, per SM and cycle of an H200.
const RATE: f64 = 3320.0;
/// Cycles of an SM for a score in addition to its products: what is not covered by those of the other consumer.
const SCORE: f64 = 0.058;
/// Factors of both: of one consumer, of two with the same keys (of three kernels on an H200), and more for each 32 queries that are missing to
/// 64.
const ONE: f64 = 1.4;
const PAIR: f64 = 1.34;
const NARROW: f64 = 0.3;
/// Cycles of a tile of queries, and of a block of keys, in addition; and of one whose cluster adds up dK and dV.
const TILE: f64 = 240.0;
const BLOCK: f64 = 11000.0;
const EXCHANGE: f64 = 12000.0;
/// More cycles of a tile that adds to dQ in its order, of 64 columns, of more, and of two consumers with the same keys: of 14 problems on
/// an H200. Of blocks of one head that begin together each waits for the one before, so it is more if blocks of few heads run at the same time: this part
/// of it does not depend on that, and this one is divided by how often a section fills the card.
const ORDERED: [f64; 3] = [80.0, 170.0, 700.0];
const WAITED: [f64; 2] = [0.4, 1.2];
/// More of a tile if a CTA has tiles of several heads of queries, for each further one and for its square: blocks that do not run together read their
/// queries from memory again. Of 70 kernels at 12 problems on an H200, with up to `SYNCHRONOUS` queries; longer ones are together for longer.
const HEADS: [f64; 2] = [0.024, 0.003];
const SYNCHRONOUS: f64 = 6000.0;
/// And for each time that the blocks of a section fill the card beyond the first, or as often as CTAs share them: with heads that share keys, and
/// without.
const MIXED: [f64; 2] = [0.035, 0.006];
/// Bytes per element of Q that the first and the last program move: with zeros for dQ, and without.
const BYTES: [f64; 2] = [14.0, 10.0];
/// Microseconds of three launches; and megabytes per microsecond of the first and the last program.
const LAUNCHES: f64 = 6.0;
/// Rounds of blocks from which on it does not matter in which order they are taken.
const MANY: f64 = 64.0;
/// By how much a kernel that adds in a fixed order must be faster, by the model, where that is not asked: at some sequences of some thousand
/// keys it takes it for faster, and it takes 1 to 4 % more on an H200.
pub(super) const ORDER: f64 = 1.035;
const MEGABYTES: f64 = 4.0;

impl AttentionBackward {
    /// Predicted microseconds. The numbers of this model are from some 30 kernels at 14 problems on an H100, and the order of blocks from an H200.
    pub(super) fn predict(&self, request: &AttentionRequest, machine: &Machine) -> f64 {
        let AttentionProblem { heads: [heads, _], .. } = request.problem;
        let ordered = usize::from(self.plan().spec.deterministic);
        let all: f64 =
            request.kinds().map(|([queries, _], count)| f64::from(count) * f64::from(queries)).sum();
        let elements = f64::from(heads) * all * f64::from(self.plan().wide[0]);
        let passes = elements * BYTES[ordered] / 1e6 / MEGABYTES;
        LAUNCHES + passes + self.blocks_cycles(request, machine) / machine.cycles
    }

    /// Cycles of a tile of queries, without what is read from memory, if the blocks of a section fill the card so many times.
    fn tile_cycles(&self, machine: &Machine, together: f64) -> f64 {
        let BackwardSpec { tile: [rows, block], deterministic, .. } = self.plan().spec;
        let [wide, wide_v] = self.plan().wide.map(f64::from);
        let products = 3.0 * wide + 2.0 * wide_v;
        let scores = f64::from(rows) * f64::from(block);
        let [consumers, in_order] = match self.plan().pair {
            Some(_) => [PAIR, ORDERED[2]],
            None => [if block == 64 { ONE } else { 1.0 }, ORDERED[usize::from(wide > 64.0)]],
        };
        let narrow = 1.0 + NARROW * (2.0 - f64::from(rows) / 32.0).max(0.0);
        consumers * narrow * scores * (2.0 * products / (RATE * machine.tensor) + SCORE)
            + TILE
            + if deterministic { in_order * (WAITED[0] + WAITED[1] / together.max(1.0)) } else { 0.0 }
    }

    /// Cycles until the last block of keys is done.
    fn blocks_cycles(&self, request: &AttentionRequest, machine: &Machine) -> f64 {
        let BackwardSpec { tile: [rows, block], mask, split, .. } = self.plan().spec;
        let AttentionProblem { heads: [heads, shared], queries, keys, .. } = request.problem;
        let share = f64::from(heads) / f64::from(shared.max(1));
        let clusters = machine.clusters[(split as usize).clamp(1, 8) - 1].max(1);
        // Blocks of the longest sequence, of which one head has so many.
        let of_head = keys.div_ceil(block).max(1);
        let all = request.problem.batch.saturating_mul(shared).max(1);
        let [section, last] = self.sections([all, of_head]);
        let together = f64::from(section.max(all - last) * of_head) / f64::from(clusters);
        let further = (share / f64::from(split) - 1.0).max(0.0);
        let apart = (HEADS[0] * further + HEADS[1] * further * further)
            * (SYNCHRONOUS / f64::from(queries.max(1))).min(1.0);
        let mixed = MIXED[usize::from(shared == heads)] * (together - f64::from(split)).max(0.0);
        let tile = self.tile_cycles(machine, together) * (1.0 + apart + mixed);
        let more = BLOCK + if split > 1 { EXCHANGE } else { 0.0 };
        let cycles = |tiles: f64| (tiles * share / f64::from(split)).ceil() * tile + more;
        let tiles_of = |[queries, keys]: [u32; 2], number: u32| {
            let across = f64::from(queries.div_ceil(rows));
            match mask {
                Mask::Full => across,
                Mask::Causal => {
                    // The first query that sees the block's first key.
                    let first = i64::from(number) * i64::from(block) - (i64::from(keys) - i64::from(queries));
                    across - (first.max(0) as f64 / f64::from(rows)).floor().min(across)
                }
                Mask::Window | Mask::Chunked => (across * request.seen([queries, keys]) + 1.0).min(across),
            }
        };
        // All blocks of a head of a sequence: their work grows evenly.
        let of_sequence = |lengths: [u32; 2]| {
            let blocks = lengths[1].div_ceil(block).max(1);
            let [first, last] = [0, blocks - 1].map(|number| cycles(tiles_of(lengths, number)));
            f64::from(blocks) * (first + last) / 2.0
        };
        let rounds = f64::from(all) * f64::from(of_head) / f64::from(clusters);
        if request.lengths == Lengths::Packed || rounds > MANY {
            // Of lengths that differ, blocks do not begin in the order of their work; of many, it does not matter.
            let of_kind = |(lengths, count): ([u32; 2], u32)| f64::from(count) * of_sequence(lengths);
            let cycles_of_all = f64::from(shared) * request.kinds().map(of_kind).sum::<f64>();
            return cycles_of_all / f64::from(clusters) + cycles(f64::from(queries.div_ceil(rows))) / 2.0;
        }
        let blocks: Vec<f64> = (0..of_head).map(|number| cycles(tiles_of([queries, keys], number))).collect();
        let (mut loads, mut first) = (Loads::new(clusters), 0);
        while first < all {
            let heads = if first == last { all - first } else { section };
            blocks.iter().for_each(|&cycles| loads.add(heads, cycles));
            first += heads;
        }
        loads.last()
    }
}

impl AttentionRequest {
    /// Blocks of this many keys of all sequences and heads.
    pub(super) fn all_blocks(&self, block: u32) -> f64 {
        let of_heads =
            |([_, keys], count): ([u32; 2], u32)| f64::from(count) * f64::from(keys.div_ceil(block));
        f64::from(self.problem.heads[1]) * self.kinds().map(of_heads).sum::<f64>()
    }
}
