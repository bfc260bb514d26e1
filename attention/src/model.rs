//! A prediction of a kernel's time. Its numbers are from some thirty kernels and shapes on an H100, and its factors from 348 more at 58
//! problems.

use collective::Format;
use kernel::Machine;

use crate::family::AttentionRequest;
use crate::kernel::Attention;
use crate::problem::AttentionProblem;
use crate::spec::{AttentionSpec, Mask, Parts};

/// Operations of a `wgmma` of 16-bit formats, per SM and cycle of an H200.
const RATE: f64 = 4096.0;
/// Cycles of an SM for a score: its mask, its exponential, its sum, and its conversion.
const WEIGHT: f64 = 0.07;
/// The part of the shorter of products and weights that the longer one does not cover, while consumers take turns.
const UNCOVERED: f64 = 0.25;
/// Cycles of a block of keys, and of a tile, in addition.
const BLOCK: f64 = 250.0;
const TILE: f64 = 3500.0;
/// More cycles of a tile if there is one stage of Q, so that queries are loaded after the last tile was stored; if a
/// mask grows; and, fewer, if tiles overlap.
const ALONE: f64 = 3500.0;
const MASKED: f64 = 2000.0;
const OVERLAPPED: f64 = 450.0;
/// Factor of a block if O is rescaled lazily: with as many elements of O as scores per thread, or with fewer.
const LAZY: [f64; 2] = [0.985, 1.02];
/// Microseconds of a launch.
const LAUNCH: f64 = 3.0;

/// Cycles of a part in addition: its results go to memory, and a counter says whether it is the last.
const PART: f64 = 2500.0;
/// Cycles to merge a part of some rows.
const MERGED: f64 = 60.0;
/// Measured over computed cycles, and over the time to copy as many bytes.
const MEASURED: f64 = 1.14;
const ONLY_READ: f64 = 0.92;
/// The part of computing and loading that the longer of both does not cover.
const SHORTER: f64 = 0.05;
/// Most bytes per cycle that one SM loads.
const LOADED: f64 = 48.0;
/// The same, if its warps convert them.
const CONVERTED: f64 = 20.0;

impl Attention {
    /// Predicted microseconds.
    pub(crate) fn predict(&self, request: &AttentionRequest, machine: &Machine) -> f64 {
        let AttentionProblem { batch, heads: [heads, shared], queries, keys, .. } = request.problem;
        let plan = self.plan();
        let AttentionSpec { head: [d, dv], tile: [rows, block], mask, turns, pack, lazy, parts, .. } =
            plan.spec;
        let scores = f64::from(rows) * f64::from(block);
        let rate = RATE * machine.tensor * 16.0 / f64::from(plan.spec.format.bits());
        let products = 2.0 * scores * f64::from(d + dv) / rate;
        let weights = scores * WEIGHT;
        let both = if turns && rows > 64 {
            products.max(weights) + UNCOVERED * products.min(weights)
        } else {
            products + weights
        };
        let factor = if lazy { LAZY[usize::from(block > dv)] } else { 1.0 };
        let grows = mask == Mask::Causal;
        let per_tile = rows / pack;
        // Tiles of all sequences, and the blocks of one in the mean.
        let (mut tiles, mut seen, mut read) = (0.0, 0.0, 0.0);
        for [queries, keys] in request.lengths() {
            let own = f64::from(queries.div_ceil(per_tile));
            let blocks = f64::from(keys.div_ceil(block));
            let [left, right] = request.numbers.map(f64::from);
            let around = |keys: f64| ((keys + f64::from(per_tile)) / f64::from(block) + 1.0).min(blocks);
            // Tiles of a causal mask are dealt out so that CTAs have about as many blocks.
            let of_tile = match mask {
                Mask::Causal if keys >= queries => {
                    let least = f64::from(keys - queries) / f64::from(block);
                    (least + blocks) / 2.0 + 0.5
                }
                Mask::Window => around(left + right),
                Mask::Chunked => around(left / 2.0),
                Mask::Full | Mask::Causal => blocks,
            };
            tiles += own;
            seen += own * of_tile;
            read += f64::from(keys).min(own * of_tile * f64::from(block));
        }
        let seen = if tiles > 0.0 { seen / tiles } else { 0.0 };
        let divided = match parts {
            Parts::One => 1.0,
            Parts::Count(count) => f64::from(count),
            Parts::Keys(part) => f64::from(keys.div_ceil(part).max(1)),
        };
        let tile =
            TILE + if plan.rings[0].stages == 1 { ALONE } else { 0.0 } + if grows { MASKED } else { 0.0 }
                - if plan.overlaps { OVERLAPPED } else { 0.0 };
        let merging = if parts == Parts::One { 0.0 } else { PART + MERGED * divided };
        let all = f64::from(if pack > 1 { shared } else { heads }) * tiles * divided;
        let waves = (all / f64::from(machine.multiprocessors)).ceil();
        let blocks = (seen / divided).ceil();
        let format = plan.spec.format;
        let cache = plan.spec.cache.unwrap_or(format);
        let bytes_of = |format: Format, rows: f64| rows * f64::from(d + dv) * f64::from(format.bytes());
        let loading =
            bytes_of(cache, f64::from(block)) / if plan.narrow.is_some() { CONVERTED } else { LOADED };
        let block_cycles = (factor * (both + BLOCK)).max(loading);
        let computed = MEASURED * waves * (blocks * block_cycles + tile + merging) / machine.cycles;
        // Everything comes from memory once.
        let rows = f64::from(heads) * f64::from(queries) * f64::from(batch);
        let bytes = bytes_of(format, rows) + bytes_of(cache, f64::from(shared) * read);
        let loaded = ONLY_READ * bytes / machine.dram;
        LAUNCH + computed.max(loaded) + SHORTER * computed.min(loaded)
    }
}
