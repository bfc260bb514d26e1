//! A prediction of the time of a backward pass.

use kernel::Machine;
use scheduler::Loads;

use super::kernel::AttentionBackward;
use super::spec::BackwardSpec;
use crate::problem::AttentionProblem;
use crate::request::AttentionRequest;
use crate::spec::{Lengths, Mask};

/// Operations of products, per SM and cycle of an H200.
const RATE: f64 = 3351.0;
/// Cycles of an SM for a score in addition to its products: what is not covered by those of the other consumer.
const SCORE: f64 = 0.0608;
/// Factors of both: of one consumer, of two with the same keys, and more for each 32 queries that are missing to 64.
const ONE: f64 = 1.57;
const PAIR: f64 = 1.378;
const NARROW: f64 = 0.134;
/// Factor of a tile of more than 64 queries, if heads have more than 64 elements: products read K and V less often for as many queries.
const TALL: f64 = 0.99;
/// Cycles of a tile of queries, and of a block of keys, in addition, of which two consumers with the same keys take longer to begin and end; of a
/// block whose two CTAs add up dK and dV in a cluster; and in memory, of each CTA that has a part of a head's tiles.
const TILE: f64 = 247.0;
const BLOCK: [f64; 2] = [10050.0, 17400.0];
/// By how much a block takes less if its CTA walks over blocks: 1500 to 4300 cycles on an H200, by its length.
const WALKED: f64 = 2000.0;
const EXCHANGE: [f64; 2] = [5500.0, 3500.0];
const ADDED: f64 = 3500.0;
/// Factor of a tile of a block whose queries CTAs of a cluster share, under a mask. This one, `EXCHANGE` and `ADDED` were set later, from the mean error of
/// kernels of each kind: those with `split=2` had been predicted to take 2.5 % longer, next to others, than they do.
const SHARED: f64 = 0.983;
/// More cycles of a tile that adds to dQ in its order, of 64 columns, of more, and of two consumers with the same keys. Of blocks of one head that
/// begin together each waits for the one before, so it is more if blocks of few heads run at the same time: this part of it does not depend on that,
/// and this one is divided by how often a section fills the card.
const ORDERED: [f64; 3] = [80.0, 155.0, 899.0];
const WAITED: [f64; 2] = [0.536, 1.115];
/// The part of it where blocks are as long as each other, so that turns come evenly: without a mask, of heads with keys of their own; more of it the more
/// blocks a head has, up to as many as SMs, and of two consumers with the same keys. An H200 took 0.91 to 1.05 times as long in order there, at 512 to
/// 16384 keys.
const EVEN: [f64; 2] = [0.2, 0.4];
const EVEN_PAIR: f64 = 0.6;
/// With more queries, blocks stay together for longer.
const SYNCHRONOUS: f64 = 6100.0;
/// More of a tile in order if a CTA has tiles of several heads of queries, for each further one and for its square, with so many queries; and for each time that the blocks of a section fill the card beyond the first, or as often as CTAs share them: with heads that share keys, and without.
const HEADS: [f64; 2] = [0.0102, 0.0026];
const MIXED: [f64; 2] = [0.0162, 0.006];
/// The part of L2 that holds what CTAs read again of queries and add to; the time of what it misses over that to copy as much; and the exponent with
/// which it adds up with computing: 1 for one after the other, more if they overlap.
const HELD: f64 = 0.8;
const MISSED: f64 = 0.9;
const BESIDE: f64 = 3.3;
/// Bytes per element of Q that the first and the last program move, with zeros for dQ and without; by how many they are fewer if the main program
/// stores these; and megabytes per microsecond at which they do.
const BYTES: [f64; 2] = [17.6, 12.6];
const AHEAD: f64 = 2.4;
const MEGABYTES: f64 = 4.0;
/// Microseconds of three launches.
const LAUNCHES: f64 = 9.9;
/// Rounds of blocks from which on it does not matter in which order they are taken.
const MANY: f64 = 64.0;
/// By how much a kernel that adds in a fixed order must be faster, by the model, where that is not asked.
pub(super) const ORDER: f64 = 1.02;

impl AttentionBackward {
    /// Predicted microseconds. The numbers of this model were fitted to 1400 kernels at 38 problems on two H200.
    pub(super) fn predict(&self, request: &AttentionRequest, machine: &Machine) -> f64 {
        let AttentionProblem { heads: [heads, _], .. } = request.problem;
        let ordered = usize::from(self.plan().spec.deterministic);
        let all: f64 =
            request.kinds().map(|([queries, _], count)| f64::from(count) * f64::from(queries)).sum();
        let elements = f64::from(heads) * all * f64::from(self.plan().wide[0]);
        let bytes = BYTES[ordered] - AHEAD * self.zeros_of_main(request);
        let passes = elements * bytes / 1e6 / MEGABYTES;
        LAUNCHES + passes + self.blocks_cycles(request, machine) / machine.cycles
    }

    /// The part of the zeros for dQ that the main program stores.
    fn zeros_of_main(&self, request: &AttentionRequest) -> f64 {
        let AttentionProblem { batch, heads: [heads, shared], queries, keys, .. } = request.problem;
        if !self.plan().zeros_ahead() || request.lengths == Lengths::Packed {
            return 0.0;
        }
        let [rows, block] = self.plan().spec.tile;
        let share = heads.checked_div(shared).unwrap_or(1);
        let extents = [queries.div_ceil(rows), keys.div_ceil(block)];
        self.ahead(batch.saturating_mul(shared), share, extents).part()
    }

    /// Cycles of a tile of queries of which nothing is read from memory, if the blocks of a section fill the card so many times.
    fn computed(&self, request: &AttentionRequest, machine: &Machine, together: f64) -> f64 {
        let BackwardSpec { tile: [rows, block], deterministic, .. } = self.plan().spec;
        let wide = f64::from(self.plan().wide[0]);
        let [of_k, of_v] = self.plan().multiplied.map(f64::from);
        let products = wide + 2.0 * (of_k + of_v);
        let scores = f64::from(rows) * f64::from(block);
        let [consumers, in_order] = match self.plan().pair {
            Some(_) => [PAIR, ORDERED[2]],
            None => [if block == 64 { ONE } else { 1.0 }, ORDERED[usize::from(wide > 64.0)]],
        };
        let narrow = 1.0 + NARROW * (2.0 - f64::from(rows) / 32.0).max(0.0);
        let even = self.evenness(request, machine);
        let tall = if rows > 64 && wide > 64.0 { TALL } else { 1.0 };
        consumers * narrow * tall * scores * (2.0 * products / (RATE * machine.tensor) + SCORE)
            + TILE
            + if deterministic { in_order * even * (WAITED[0] + WAITED[1] / together.max(1.0)) } else { 0.0 }
    }

    /// The part of waiting for turns that is left if they come evenly.
    fn evenness(&self, request: &AttentionRequest, machine: &Machine) -> f64 {
        let AttentionProblem { heads: [heads, shared], keys, .. } = request.problem;
        let BackwardSpec { mask, tile: [_, block], .. } = self.plan().spec;
        if mask != Mask::Full || shared < heads {
            return 1.0;
        }
        let blocks = f64::from(keys.div_ceil(block)) / f64::from(machine.multiprocessors);
        self.plan().pair.map_or(EVEN[0] + EVEN[1] * blocks.min(1.0), |_| EVEN_PAIR)
    }

    /// Cycles of a tile of queries of blocks that run at the same time. Those of one head read the same queries, and add to the same dQ, at about
    /// the same time if they are as long. Of heads that share keys, shorter blocks come to the next head earlier: then L2 has to hold more.
    fn tile_cycles(&self, request: &AttentionRequest, machine: &Machine, of: &Running) -> f64 {
        let BackwardSpec { tile: [rows, _], mask, deterministic, split, .. } = self.plan().spec;
        let AttentionProblem { heads: [heads, shared], queries, .. } = request.problem;
        let [wide, wide_v] = self.plan().wide.map(f64::from);
        let together = if split > 1 && mask != Mask::Full { SHARED } else { 1.0 };
        let (computed, further) =
            (together * self.computed(request, machine, of.together), of.group.share.saturating_sub(1));
        let queries = f64::from(queries.max(1));
        let drift = (SYNCHRONOUS / queries).min(1.0);
        if deterministic {
            let further = (f64::from(of.group.share) / f64::from(split) - 1.0).max(0.0);
            let apart = (HEADS[0] * further + HEADS[1] * further * further) * drift;
            let apart = if mask == Mask::Full { 0.0 } else { apart };
            let mixed = MIXED[usize::from(shared == heads)] * (of.together - f64::from(split)).max(0.0);
            return computed * (1.0 + apart + mixed);
        }
        // Q and dO are read, dQ is read and written.
        let (read, sums) = (2.0 * (wide + wide_v), 4.0 * wide);
        let apart = if mask == Mask::Full { 0.0 } else { of.blocks };
        let held = of.heads * (1.0 + f64::from(further) * apart) * queries * (read + sums);
        let missed = drift * (1.0 - HELD * f64::from(machine.card.l2_bytes) / held).max(0.0);
        let bytes = missed * f64::from(rows) * (read + 2.0 * sums) * f64::from(machine.multiprocessors);
        let loaded = MISSED * bytes / machine.dram * machine.cycles;
        (computed.powf(BESIDE) + loaded.powf(BESIDE)).powf(1.0 / BESIDE)
    }

    /// Blocks of keys of the same kind, in the order in which they are computed.
    fn groups(&self, problem: &AttentionProblem) -> Vec<Group> {
        let BackwardSpec { split, apart, .. } = self.plan().spec;
        let AttentionProblem { batch, heads: [heads, shared], .. } = *problem;
        let share = heads.checked_div(shared).unwrap_or(1);
        let [whole, heads_apart] = self.heads_of_keys(batch.saturating_mul(shared).max(1));
        let is_pair = usize::from(self.plan().pair.is_some());
        // Each of a larger cluster reads sums of more others.
        let exchanged = EXCHANGE[is_pair] * (0.75 + 0.25 * f64::from(split.max(1).ilog2()));
        let exchanged = if split > 1 { exchanged } else { 0.0 };
        let block = BLOCK[is_pair] - if self.plan().walks() { WALKED } else { 0.0 };
        let whole = Group { heads: whole, ctas: 1, share, sharing: split, more: block + exchanged };
        let heads = heads_apart.saturating_mul(share);
        let apart =
            Group { heads, ctas: apart, share: 1, sharing: apart, more: block + ADDED * f64::from(apart) };
        [whole, apart].into_iter().filter(|of| of.heads > 0).collect()
    }

    /// Cycles until the last block of keys is done.
    fn blocks_cycles(&self, request: &AttentionRequest, machine: &Machine) -> f64 {
        let BackwardSpec { tile: [rows, block], split, .. } = self.plan().spec;
        let AttentionProblem { queries, keys, .. } = request.problem;
        let clusters = machine.clusters[(split as usize).clamp(1, 8) - 1].max(1);
        // Blocks of the longest sequence, of which one head has so many.
        let of_head = keys.div_ceil(block).max(1);
        let (mut loads, mut all_cycles, mut rounds, mut longest) = (Loads::new(clusters), 0.0, 0.0, 0.0);
        for group in self.groups(&request.problem) {
            let Group { heads, ctas, .. } = group;
            let [section, last] = self.sections([heads, of_head]);
            let running = group.running(section.max(heads - last), of_head, clusters);
            let tile = self.tile_cycles(request, machine, &running);
            // All blocks of a head of a sequence: their work grows evenly.
            let of_sequence = |lengths: [u32; 2]| {
                let blocks = lengths[1].div_ceil(block).max(1);
                let [first, last] =
                    [0, blocks - 1].map(|number| group.cycles(self.tiles(request, lengths, number), tile));
                f64::from(blocks) * (first + last) / 2.0
            };
            let of_kind = |(lengths, count): ([u32; 2], u32)| f64::from(count) * of_sequence(lengths);
            let of_all = f64::from(heads) / f64::from(request.problem.batch.max(1));
            all_cycles += of_all * f64::from(ctas) * request.kinds().map(of_kind).sum::<f64>();
            rounds += f64::from(heads) * f64::from(of_head) * f64::from(ctas) / f64::from(clusters);
            longest = group.cycles(f64::from(queries.div_ceil(rows)), tile);
            if request.lengths == Lengths::Equal && rounds <= MANY {
                let blocks: Vec<f64> = (0..of_head)
                    .map(|number| group.cycles(self.tiles(request, [queries, keys], number), tile))
                    .collect();
                let mut first = 0;
                while first < heads {
                    let together = if first == last { heads - first } else { section };
                    blocks.iter().for_each(|&cycles| loads.add(together.saturating_mul(ctas), cycles));
                    first += together;
                }
            }
        }
        if request.lengths == Lengths::Packed || rounds > MANY {
            // Of lengths that differ, blocks do not begin in the order of their work; of many, it does not matter.
            return all_cycles / f64::from(clusters) + longest / 2.0;
        }
        loads.last()
    }

    /// Tiles of queries of a head that see some key of a block.
    fn tiles(&self, request: &AttentionRequest, [queries, keys]: [u32; 2], number: u32) -> f64 {
        let BackwardSpec { tile: [rows, block], mask, .. } = self.plan().spec;
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
    }
}

/// Blocks of keys that are computed in the same way.
#[derive(Clone, Copy, Debug)]
struct Group {
    /// Heads of all sequences, each with as many blocks; and CTAs, or clusters of them, of a block.
    heads: u32,
    ctas: u32,
    /// Heads of queries whose tiles a block has, and among how many CTAs these are divided.
    share: u32,
    sharing: u32,
    /// Cycles in addition to those of tiles.
    more: f64,
}

/// Blocks of a group that run at the same time.
struct Running {
    group: Group,
    /// How often the blocks of a section fill the card.
    together: f64,
    /// Heads, and the part of a head's blocks.
    heads: f64,
    blocks: f64,
}

impl Group {
    /// What runs at the same time if so many CTAs, or clusters of them, do: `section` heads with `of_head` blocks each are ordered together.
    fn running(self, section: u32, of_head: u32, clusters: u32) -> Running {
        let of_head = f64::from(of_head) * f64::from(self.ctas);
        let clusters = f64::from(clusters);
        let together = f64::from(section) * of_head / clusters;
        let heads = f64::from(section).max(clusters / of_head).min(f64::from(self.heads)).min(clusters);
        Running { group: self, together, heads, blocks: (clusters / heads / of_head).min(1.0) }
    }

    /// Cycles of a block, of which each head of queries has so many tiles.
    fn cycles(&self, tiles: f64, tile: f64) -> f64 {
        (tiles * f64::from(self.share) / f64::from(self.sharing)).ceil() * tile + self.more
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
