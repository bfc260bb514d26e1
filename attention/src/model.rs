//! A prediction of a kernel's time. Its numbers were fitted to 1071 kernels at 59 problems on an H200, few of whose lengths are multiples of
//! anything: what the first choice takes over the best of them counted first, then the differences among kernels of a problem, then the time
//! of problems of over 100 and of less than 10 us. The first choice is within 3 % of the best at 93 of 100 of those problems; between 13 and
//! 60 us, where short tiles make two or three rounds, predictions are up to a quarter too low. Numbers of caches and of 8 bits are from 200
//! kernels on an H100, those of latent attention from five problems on an H200. Heads of 64, 96, 128, 192 and 256 elements were measured; what
//! depends on a head's elements is proportional to these, so others between them are predicted by the same numbers.

use collective::Format;
use kernel::Machine;

use crate::emit::Pieces;
use crate::kernel::Attention;
use crate::plan::SMALL;
use crate::problem::AttentionProblem;
use crate::request::AttentionRequest;
use crate::spec::{AttentionSpec, Lengths, Mask, Order, Parts};

/// Operations of a `wgmma` of 16-bit formats, per SM and cycle of an H200.
const RATE: f64 = 4096.0;
/// Cycles of an SM for a score: its mask, its exponential, its sum, and its conversion to 16 bits, or to 8.
const WEIGHT: [f64; 2] = [0.0716, 0.09];
/// Cycles of a block to rescale O, which not every block does, per element; and, per row, to find out that it needs not.
const RESCALED: f64 = 0.0286;
const LAZY: f64 = 1.82;
/// The part of the shorter of products and weights that the longer one does not cover, while consumers take turns.
const UNCOVERED: f64 = 0.257;
/// The same of two consumers of 16 bits whose weights take longer: with 64 elements per head they are 15 % slower than three.
const WEIGHED: f64 = 0.557;
/// Cycles of a block of latent attention over those of its products' arithmetic, and more of them if O is rescaled whenever a score is larger than
/// all before: an H200 takes 233.1 us with `lazy=on` at `128x128/1x1x4096`, and 244.1 without.
const HALVES: f64 = 1.49;
const HALVES_EAGER: f64 = 155.0;
/// Heads of 512 elements, which no card has timed: products of 32 keys take half again as long as their arithmetic, since each reads as much of Q
/// as one of more keys; and bytes per cycle that all SMs load at the same time, about as much as latent attention does.
const NARROW: f64 = 1.5;
const FROM_L2: f64 = 24.0;
/// Factor of both, if there are three consumers; and if there are two without registers to rescale O last.
const THREE: f64 = 0.974;
const RESCALED_FIRST: f64 = 1.031;
/// Cycles of a block of keys in addition: of several consumers; of them if there is no third stage of K, so that one that is late is waited for;
/// and of one consumer.
const BLOCK: f64 = 293.0;
const TIGHT: f64 = 59.5;
const ALONE_BLOCK: f64 = 270.0;
/// Cycles of a tile in addition.
const TILE: f64 = 1370.0;
/// More cycles of a tile if there is one stage of Q, so that queries are loaded after the last tile was stored; and if a
/// mask grows, for two consumers and for each further one.
const ALONE: f64 = 3870.0;
const MASKED: [f64; 2] = [2400.0, 980.0];
/// More cycles of a tile if tiles of 16 bits overlap without such a mask: of at most two blocks of keys, of three, and of more. Others gain nothing.
/// An H200 takes 980 to 1340 more for two blocks (`tile=128x112` at `64x24x207`: 117.9 and 104.5 us), 80 to 440 for three, and up to 570 less for more.
const OVERLAPPED: [f64; 3] = [1100.0, 230.0, -286.0];
/// The time of the CTA that is done last over the mean if tiles are drawn, without what it costs to draw them: less than by what is dealt out
/// evenly, since a CTA whose tiles take less time draws more.
const DRAWN: f64 = 0.963;
/// The part of the shorter one of the longest tile and of a CTA's share of all tiles that the other does not cover.
const BESIDE: f64 = 0.05;
/// Rounds of tiles from which on it does not matter how they are dealt out.
const MANY: u32 = 64;
/// Microseconds of a launch; and its cycles per key of a block, since instructions for more keys are more, and each SM fetches them anew.
const LAUNCH: f64 = 1.67;
const CODE: f64 = 11.45;

/// Cycles of a part in addition: its results go to memory, and a counter says that they are there.
const PART: f64 = 2600.0;
/// Cycles of a warp for eight of the parts of pieces of rows that it loads together; and bytes per cycle that an SM stores and loads of O, of some
/// parts and of more. At `8x64/8x8x5100` an H200 takes 49.7 us with two parts, and in another run 44.5 without.
const MERGED: f64 = 491.0;
const MOVED: [f64; 2] = [6.0, 20.0];
/// Bytes per cycle that an SM stores of O of over sixteen parts, and loads: `2x16/2x8x16384 d=256` takes 25.4 us with 16 parts, and 29.2 with 33.
const MANY_MOVED: [f64; 2] = [20.0, 13.0];
/// Bytes per cycle of O that a CTA of a cluster leaves for the others, and cycles of a warp to merge a piece of a row. Few rows cost little: at `1x8x300`
/// an H200 takes 7.0 us with `tile=64x80 cluster=2`, 7.5 with 128 rows in clusters of 4, and 6.1 without parts.
const LEFT: f64 = 25.0;
const CLUSTER: f64 = 500.0;

/// Measured over computed cycles, and over the time to copy as many bytes.
const MEASURED: f64 = 1.06;
const ONLY_READ: f64 = 0.92;
/// The latter of latent attention, which loads two blocks ahead: 93.6 us for 302 MB at `32x64/1x1x8192 pages=64` on an H200.
const LATENT_READ: f64 = 0.92;
/// How much later all is read if a part has more keys than the mean, per excess: memory serves the others faster meanwhile.
const LONGEST: f64 = 0.185;
/// How much later all is read if clusters do not fill the card, per SM without a CTA over all: `4x64/8x1x8192` in clusters of 3 takes 36.8 us on an
/// H200, 2.5 more than predicted without.
const IDLE: f64 = 0.2;
/// How much longer all takes in clusters with large blocks and 64 queries: 39.2 us with blocks of 112 keys there, where parts in memory take 36.8 and 36.2.
const LARGE: f64 = 1.05;
/// The part of computing and loading that the longer of both does not cover; and that of the first block, if the shorter one is divided evenly
/// among blocks.
const SHORTER: f64 = 0.05;
const FIRST_BLOCK: f64 = 0.573;
/// Most bytes per cycle that one SM loads.
const LOADED: f64 = 50.0;
/// Cycles of a block whose values are transposed, or that is converted from a cache; and bytes per cycle.
const TRANSPOSED: [f64; 2] = [1230.0, 39.0];
const CONVERTED: [f64; 2] = [490.0, 12.9];

/// Blocks of keys that tiles of `rows` queries see in the mean under a causal mask.
fn causal_blocks([queries, keys]: [u32; 2], rows: u32, block: u32) -> f64 {
    let common = (1..=rows.min(block)).rev().find(|by| rows.is_multiple_of(*by) && block.is_multiple_of(*by));
    let [queries, keys, rows, block] = [queries, keys, rows, block].map(f64::from);
    let whole = (keys - queries + (queries + rows) / 2.0) / block;
    (whole + 0.5 * (1.0 - f64::from(common.unwrap_or(1)) / block)).min((keys / block).ceil())
}

impl Attention {
    /// The work of the CTA that has the most over the mean, if the tiles of `heads` heads, `across` of each, are dealt out. `work` is that of a
    /// head's tiles, in the order in which they are dealt.
    fn dealt(&self, [across, heads]: [u32; 2], ctas: u32, work: impl Fn(u32) -> f64) -> f64 {
        let tiles = across.saturating_mul(heads);
        if tiles <= ctas || tiles > MANY.saturating_mul(ctas) {
            return 1.0;
        }
        let works: Vec<f64> = (0..across).map(work).collect();
        let section = self.rounds(heads, [across, ctas]);
        let (mut loads, mut reverse) = (vec![0.0; ctas as usize], false);
        for first in (0..heads).step_by(section as usize) {
            let together = section.min(heads - first) as usize;
            let tiles: Vec<f64> =
                works.iter().flat_map(|&work| core::iter::repeat_n(work, together)).collect();
            for round in tiles.chunks(ctas as usize) {
                let add = |(load, work): (&mut f64, &f64)| *load += work;
                if reverse {
                    loads.iter_mut().rev().zip(round).for_each(add);
                } else {
                    loads.iter_mut().zip(round).for_each(add);
                }
                reverse = !reverse;
            }
        }
        let most = loads.iter().copied().fold(0.0, f64::max);
        most * f64::from(ctas) / loads.iter().sum::<f64>().max(1.0)
    }

    /// Predicted microseconds.
    pub(crate) fn predict(&self, request: &AttentionRequest, machine: &Machine) -> f64 {
        let AttentionProblem { batch, heads: [heads, shared], queries, keys, .. } = request.problem;
        let plan = self.plan();
        let AttentionSpec { head: [d, dv], parts, ctas, .. } = plan.spec;
        let latent = plan.spec.is_latent();
        let Seen { tiles, blocks: seen, read } = self.seen(request);
        let divided = match parts {
            Parts::One => 1.0,
            Parts::Count(count) | Parts::Cluster(count) => f64::from(count),
            Parts::Keys(part) => f64::from(keys.div_ceil(part).max(1)),
        };
        let of_query = plan.spec.rows_of_query(heads.checked_div(shared).unwrap_or(1)).max(1);
        let all = f64::from(heads / of_query) * tiles * divided;
        // SMs whose CTAs are resident: not all are in a cluster.
        let cluster = parts.of_cluster();
        let sms = match cluster {
            1 => f64::from(machine.multiprocessors * ctas),
            count => f64::from(machine.clusters[count as usize - 1] * count),
        };
        let waves = all / sms;
        let tile = self.tile_cycles(waves, seen);
        let rows_of_o = f64::from(heads) * f64::from(queries) * f64::from(batch);
        let (part, merged) = self.merging(rows_of_o, (all, divided), sms);
        let rounds = waves.max(1.0);
        let after = MEASURED * (rounds * part + merged) / machine.cycles;
        // Tiles that differ are dealt out, or drawn, so that CTAs end about together. Tiles of all queries of a sequence do not.
        let grows = plan.spec.mask == Mask::Causal && queries > plan.spec.tile[0] / plan.spec.pack;
        let differ = grows || plan.spec.lengths == Lengths::Packed;
        let waves = if differ && cluster == 1 { waves.max(1.0) } else { waves.ceil() };
        let blocks = if parts == Parts::One { seen } else { (seen / divided).ceil() };
        let block_cycles = self.block_cycles(machine);
        let uneven = self.uneven(request.problem, of_query, [block_cycles, tile], machine);
        let all_even = waves * (blocks * block_cycles + tile);
        // No CTA is done before the longest tile is.
        let longest_tile =
            if grows { (self.longest(request) / divided).ceil() * block_cycles + tile } else { 0.0 };
        let share = uneven * all_even;
        let cycles = share.max(longest_tile) + BESIDE * share.min(longest_tile);
        let computed = MEASURED * cycles / machine.cycles;
        // Everything comes from memory once.
        let (format, of_key) = (plan.spec.format, if latent { d } else { d + dv });
        let cache = plan.spec.cache.unwrap_or(format);
        let bytes = bytes_of(format, rows_of_o, d + dv) + bytes_of(cache, f64::from(shared) * read, of_key);
        // The longest part ends last. Until then others have left it the memory.
        let longest = if blocks > seen / divided { blocks * divided / seen } else { 1.0 };
        let only_read = if latent { LATENT_READ } else { ONLY_READ };
        let loaded = only_read * bytes * (1.0 + LONGEST * (longest - 1.0)) / machine.dram;
        // Clusters leave some SMs idle, and wait for large blocks.
        let large = cluster > 1
            && plan.spec.tile[0] == 64
            && plan.tiles[1].room().bytes + plan.tiles[2].room().bytes > SMALL;
        let idle = if cluster > 1 { (1.0 - all / f64::from(machine.multiprocessors)).max(0.0) } else { 0.0 };
        let waits = if large { LARGE } else { 1.0 };
        let (computed, loaded) = (computed * waits, loaded * waits * (1.0 + IDLE * idle));
        let apart = SHORTER + FIRST_BLOCK / (rounds * blocks.max(1.0));
        let fetched = CODE * f64::from(plan.spec.tile[1]) / machine.cycles;
        LAUNCH + fetched + computed.max(loaded) + apart * computed.min(loaded) + after
    }

    /// Most blocks of keys that a tile sees under a causal mask.
    fn longest(&self, request: &AttentionRequest) -> f64 {
        let longest = request.kinds().map(|([_, keys], _)| keys.div_ceil(self.plan().spec.tile[1]));
        longest.max().map_or(0.0, f64::from)
    }

    /// What the tiles of a head see of its keys.
    fn seen(&self, request: &AttentionRequest) -> Seen {
        let AttentionSpec { tile: [rows, block], mask, pack, .. } = self.plan().spec;
        let per_tile = rows / pack;
        let (mut tiles, mut seen, mut read) = (0.0, 0.0, 0.0);
        for ([queries, keys], count) in request.kinds() {
            let own = f64::from(queries.div_ceil(per_tile));
            let blocks = f64::from(keys.div_ceil(block));
            let [left, right] = request.numbers.map(f64::from);
            let around = |keys: f64| ((keys + f64::from(per_tile)) / f64::from(block) + 1.0).min(blocks);
            // Tiles of a causal mask are dealt out so that CTAs have about as many blocks.
            let of_tile = match mask {
                Mask::Causal if keys >= queries => causal_blocks([queries, keys], per_tile, block),
                Mask::Window => around(left + right),
                Mask::Chunked => around(left / 2.0),
                Mask::Full | Mask::Causal => blocks,
            };
            let count = f64::from(count);
            tiles += count * own;
            seen += count * own * of_tile;
            read += count * f64::from(keys).min(own * of_tile * f64::from(block));
        }
        Seen { tiles, blocks: if tiles > 0.0 { seen / tiles } else { 0.0 }, read }
    }

    /// Cycles of a tile beside its `blocks` blocks. An SM computes this number of tiles one after the other.
    fn tile_cycles(&self, waves: f64, blocks: f64) -> f64 {
        let plan = self.plan();
        let AttentionSpec { format, tile: [rows, _], mask, .. } = plan.spec;
        let grows = mask == Mask::Causal;
        let alone = if plan.rings[0].stages == 1 && plan.cluster.is_none() { ALONE } else { 0.0 };
        let masked =
            if grows { MASKED[0] + MASKED[1] * (f64::from(rows) / 64.0 - 2.0).max(0.0) } else { 0.0 };
        let overlaps = plan.overlaps && waves > 1.0 && !grows && format.bits() != 8;
        let overlapped = match blocks.ceil() {
            _ if !overlaps => 0.0,
            ..=2.0 => OVERLAPPED[0],
            ..=3.0 => OVERLAPPED[1],
            _ => OVERLAPPED[2],
        };
        TILE + alone + masked + overlapped
    }

    /// More cycles of each part, and cycles in which all are merged: `all` is the number of parts, `divided` that of one tile.
    fn merging(&self, rows_of_o: f64, (all, divided): (f64, f64), sms: f64) -> (f64, f64) {
        let plan = self.plan();
        let [_, dv] = plan.spec.head;
        // O of one part of all tiles, in f32; each SM loads its share of all parts.
        let of_o = rows_of_o * f64::from(dv) * 4.0;
        let warps = all.min(sms) * f64::from(plan.cta.consumers * 4);
        let of = Pieces::of(plan.spec.parts, dv);
        let pieces = rows_of_o * f64::from(of.of_row(dv));
        let steps = of.steps((pieces / warps.max(1.0)).ceil(), divided);
        match plan.spec.parts {
            Parts::One => (0.0, 0.0),
            Parts::Cluster(_) => (of_o * divided / all.max(1.0) / LEFT, CLUSTER * steps),
            Parts::Count(_) | Parts::Keys(_) => {
                let [stored, loaded] = match plan.spec.parts.are_many() {
                    true => MANY_MOVED,
                    false => [MOVED[usize::from(of.few_serve(divided).is_none())]; 2],
                };
                let stored = of_o * divided / all.max(1.0) / stored;
                let loaded = of_o * of.loaded(divided) / sms / loaded;
                (PART + stored, (MERGED * of.loads() * steps).max(loaded))
            }
        }
    }

    /// Cycles of a block of keys: of its products and weights, or to load it, if that takes longer.
    fn block_cycles(&self, machine: &Machine) -> f64 {
        let plan = self.plan();
        let AttentionSpec { format, cache, head: [d, dv], tile: [rows, block], turns, lazy, ctas, .. } =
            plan.spec;
        // Two CTAs of an SM are like consumers of one.
        let rows = rows * ctas;
        let scores = f64::from(rows) * f64::from(block);
        let rate = RATE * machine.tensor * 16.0 / f64::from(format.bits());
        let products = 2.0 * scores * f64::from(d + dv) / rate;
        let latent = plan.spec.is_latent();
        let narrow = 2.0 * scores * (NARROW * f64::from(d) + f64::from(dv)) / rate;
        let halved = if latent { products } else { narrow };
        let halves = plan.halves.map(|_| HALVES * halved + if lazy { 0.0 } else { HALVES_EAGER });
        let bytes = format.bits() == 8;
        let tight = plan.narrow.is_none() && plan.rings[1].stages == 2;
        let of_block = match rows {
            ..=64 => ALONE_BLOCK,
            _ => BLOCK + if tight { TIGHT } else { 0.0 },
        };
        let rescaled = f64::from(rows) * if lazy { LAZY } else { RESCALED * f64::from(dv) };
        let weights = scores * WEIGHT[usize::from(bytes)] + rescaled;
        let uncovered = match rows {
            65..=128 if turns && weights > products && !bytes => WEIGHED,
            65.. if turns => UNCOVERED,
            _ => 1.0,
        };
        let of_consumers = match rows {
            ..=64 => 1.0,
            65..=128 if plan.rescales_last => 1.0,
            65..=128 => RESCALED_FIRST,
            _ => THREE,
        };
        let both = of_consumers * (products.max(weights) + uncovered * products.min(weights));
        let of_key = if latent { d } else { d + dv };
        let bytes_of_block = bytes_of(cache.unwrap_or(format), f64::from(block), of_key);
        let loading = if bytes {
            TRANSPOSED[0] + f64::from(block * dv) / TRANSPOSED[1]
        } else if plan.narrow.is_some() {
            CONVERTED[0] + bytes_of_block / CONVERTED[1]
        } else {
            let most = if halves.is_some() && !latent { FROM_L2 } else { LOADED };
            f64::from(ctas) * bytes_of_block / most
        };
        halves.unwrap_or(both + of_block).max(loading)
    }

    /// The time of the CTA that is done last over the mean. `of_query` heads are rows of one tile; `cycles` are those of a block and of a tile.
    fn uneven(
        &self,
        problem: AttentionProblem,
        of_query: u32,
        [block_cycles, tile_cycles]: [f64; 2],
        machine: &Machine,
    ) -> f64 {
        let AttentionProblem { batch, heads: [heads, _], queries, keys, .. } = problem;
        let AttentionSpec { order, tile: [rows, block], mask, lengths, pack, parts, .. } = self.plan().spec;
        let per_tile = rows / pack;
        let across = queries.div_ceil(per_tile);
        match order {
            Order::Drawn => DRAWN,
            Order::Dealt
                if mask == Mask::Causal && lengths == Lengths::Equal && parts == Parts::One && across > 1 =>
            {
                let work = |tile: u32| {
                    let end =
                        (across - tile).saturating_mul(per_tile).saturating_add(keys).saturating_sub(queries);
                    f64::from(end.min(keys).div_ceil(block).max(1)) * block_cycles + tile_cycles
                };
                self.dealt([across, batch.saturating_mul(heads / of_query)], machine.multiprocessors, work)
            }
            Order::Dealt => 1.0,
        }
    }
}

/// What the tiles of a head see of its keys.
struct Seen {
    /// Tiles of all sequences.
    tiles: f64,
    /// Blocks of one in the mean.
    blocks: f64,
    /// Keys that are read.
    read: f64,
}

/// Bytes of this number of rows of `d` elements.
fn bytes_of(format: Format, rows: f64, d: u32) -> f64 {
    rows * f64::from(d) * f64::from(format.bytes())
}

impl AttentionRequest {
    /// The part of products that a window or chunks leave, of those that are counted without a mask.
    pub(crate) fn seen(&self, [queries, keys]: [u32; 2]) -> f64 {
        let [left, right] = self.numbers.map(i128::from);
        let all = f64::from(queries) * f64::from(keys);
        let (first, keys) = (i128::from(keys) - i128::from(queries), i128::from(keys));
        let seen = match self.mask {
            Mask::Full | Mask::Causal => return 1.0,
            // Keys before the end of each query's window without those before its beginning.
            Mask::Window => {
                let before = |shift: i128| within(keys + shift, keys) - within(first + shift, keys);
                before(right + 1) - before(-left)
            }
            Mask::Chunked => of_chunks(keys, left.max(1)) - of_chunks(first.max(0), left.max(1)),
        };
        seen as f64 / all.max(1.0)
    }

    /// Operations of all sequences, of which one counts as `of` says without windows and chunks.
    pub(crate) fn operations(&self, of: impl Fn(&AttentionProblem) -> f64) -> f64 {
        let part = |([queries, keys], count): ([u32; 2], u32)| {
            let problem = AttentionProblem { batch: 1, queries, keys, ..self.problem };
            of(&problem) * self.seen([queries, keys]) * f64::from(count)
        };
        self.kinds().map(part).sum()
    }
}

/// The sum of the numbers below `end`, each of which counts as 0 at least and as `most` at most.
fn within(end: i128, most: i128) -> i128 {
    let inside = end.clamp(0, most + 1);
    inside * (inside - 1) / 2 + (end - inside).max(0) * most
}

/// Keys that the first `queries` queries see, of which each sees those of its own chunk up to its own.
fn of_chunks(queries: i128, chunk: i128) -> i128 {
    let (whole, rest) = (queries / chunk, queries % chunk);
    whole * (chunk * (chunk + 1) / 2) + rest * (rest + 1) / 2
}
