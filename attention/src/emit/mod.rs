//! The emitter: it writes the program of a kernel.

mod consumer;
mod softmax;
mod store;

use collective::pipeline::{ClusterPosition, Position, Release, Ring, Turns};
use collective::skeleton::Cta;
use collective::{Arrivals, Consumer, Origin, TensorCopy};
use ptx::{Builder, Special, Value, Var};

use crate::plan::AttentionPlan;
use crate::scores::{AnyScores, DeviceScope, Scope};

/// The kernel's parameters, in the order of a launch's arguments.
struct Parameters<'f> {
    /// Tensor maps of Q, K and V.
    maps: [Value<'f, u64>; 3],
    output: Output<'f>,
    /// Address of the log-sum-exp; 0 if it is not needed.
    log_sum_exp: Value<'f, u64>,
    queries: Value<'f, u32>,
    keys: Value<'f, u32>,
    heads: Value<'f, u32>,
    /// Heads of Q per head of K and V.
    share: Value<'f, u32>,
    tiles: Value<'f, u32>,
    /// Tiles of queries per head.
    across: Value<'f, u32>,
    /// Heads whose tiles are mixed: those that share L2.
    section: Value<'f, u32>,
    scale: Value<'f, f32>,
    /// What a score is multiplied by to be an exponent of 2.
    to_log2: Value<'f, f32>,
    /// The same for a natural exponent.
    to_ln: Value<'f, f32>,
    counts: Vec<Value<'f, i32>>,
    reals: Vec<Value<'f, f32>>,
}

/// Where O is.
#[derive(Clone, Copy)]
enum Output<'f> {
    /// Its tensor map.
    Tma(Value<'f, u64>),
    Direct {
        address: Value<'f, u64>,
        /// Bytes from one row, head and sequence to the next.
        strides: [Value<'f, u64>; 3],
        /// Whether two neighbours can be stored together.
        pairs: Value<'f, bool>,
    },
}

/// A tile of queries of a head, and the blocks of keys that it needs.
#[derive(Clone, Copy)]
struct QueryTile<'f> {
    /// First query.
    row: Value<'f, u32>,
    head: Value<'f, u32>,
    batch: Value<'f, u32>,
    /// Blocks of keys, from the first to one past the last; at least one. If no query sees a key, it is the one after
    /// the last key.
    blocks: [Value<'f, u32>; 2],
    /// Among these, the blocks that every query sees whole.
    whole: [Value<'f, u32>; 2],
    /// Whether no block before `whole` is needed, for any tile.
    from_first: bool,
}

/// The tiles of a CTA, one after the other.
///
/// CTAs take tiles in rounds. If a mask makes tiles differ, a section of heads begins with a round, and every
/// second round is dealt out in the reverse order: tiles get shorter within a section, so every CTA gets about the
/// same work.
#[derive(Clone, Copy)]
struct Walk<'f> {
    tiles: Value<'f, u32>,
    of_section: Value<'f, u32>,
    /// First tile of the round.
    first: Var<'f, u32>,
    /// One past the last tile of the section.
    end: Var<'f, u32>,
    /// Whether the round is dealt out in the reverse order.
    odd: Option<Var<'f, u32>>,
}

impl<'f> Walk<'f> {
    /// Whether there is a tile.
    fn is_at_tile(&self) -> Value<'f, bool> {
        self.first.get().less_than(self.tiles)
    }

    /// The tile's number.
    fn index(&self) -> Value<'f, u32> {
        let f = self.tiles.builder();
        let (cta, ctas) = (f.special(Special::CtaX), f.special(Special::GridX));
        let reverse = self.odd.map(|odd| odd.get().differs_from(0));
        self.first.get() + reverse.map_or(cta, |reverse| (ctas - 1 - cta).where_or(reverse, cta))
    }

    /// Advances to the next tile.
    fn advance(&self) {
        self.next_round();
        self.seek();
    }

    fn next_round(&self) {
        let ctas = self.tiles.builder().special(Special::GridX);
        let next = (self.first.get() + ctas).min(self.end.get());
        self.first.set(next);
        let further = (next + self.of_section).min(self.tiles);
        self.end.set(further.where_or(next.equals(self.end.get()), self.end.get()));
        if let Some(odd) = self.odd {
            odd.set(odd.get() ^ 1);
        }
    }

    /// Skips rounds in which the CTA has no tile.
    fn seek(&self) {
        let misses = || self.is_at_tile() & self.index().at_least(self.end.get());
        self.tiles.builder().while_(misses, || self.next_round());
    }
}

/// A tile of queries in variables.
struct CurrentTile<'f> {
    numbers: [Var<'f, u32>; 7],
    from_first: bool,
}

impl<'f> CurrentTile<'f> {
    fn new(f: &'f Builder, tile: QueryTile<'f>) -> Self {
        Self { numbers: tile.numbers().map(|number| f.variable(number)), from_first: tile.from_first }
    }

    fn set(&self, tile: QueryTile<'f>) {
        self.numbers.iter().zip(tile.numbers()).for_each(|(variable, number)| variable.set(number));
    }

    fn get(&self) -> QueryTile<'f> {
        let [row, head, batch, begin, end, whole, whole_end] = self.numbers.map(Var::get);
        let (blocks, whole) = ([begin, end], [whole, whole_end]);
        QueryTile { row, head, batch, blocks, whole, from_first: self.from_first }
    }
}

impl<'f> QueryTile<'f> {
    fn numbers(&self) -> [Value<'f, u32>; 7] {
        let Self { row, head, batch, blocks: [begin, end], whole: [whole, whole_end], .. } = *self;
        [row, head, batch, begin, end, whole, whole_end]
    }
}

/// What every role knows.
struct Kernel<'a, 'f> {
    f: &'f Builder,
    plan: &'a AttentionPlan,
    scores: &'a dyn AnyScores,
    parameters: Parameters<'f>,
    shared: Value<'f, u32>,
    rings: [Ring<'f>; 3],
}

/// Emits a kernel from beginning to end.
pub(crate) fn emit(f: &Builder, plan: &AttentionPlan, scores: &dyn AnyScores) {
    let parameters = Parameters::declare(f, plan, scores);
    let shared = f.shared_base();
    let [q, k, v] = plan.rings;
    let rings = [("the ring of Q", q), ("the ring of K", k), ("the ring of V", v)];
    let rings = rings.map(|(name, ring)| Ring::named(f, name, ring, shared));
    let kernel = Kernel { f, plan, scores, parameters, shared, rings };
    let cta = Cta::begin(f, plan.cta, || {
        kernel.parameters.maps.iter().for_each(|&map| f.prefetch_tensor_map(map));
        rings.iter().for_each(Ring::initialise);
    });
    cta.roles(|| kernel.produce(), |warpgroup| kernel.consume(kernel.consumer(warpgroup)));
}

impl<'f> Parameters<'f> {
    fn declare(f: &'f Builder, plan: &AttentionPlan, scores: &dyn AnyScores) -> Self {
        let maps = ["q_map", "k_map", "v_map"].map(|name| f.tensor_map(name));
        let output = match plan.output {
            Some(_) => Output::Tma(f.tensor_map("o_map")),
            None => Output::Direct {
                address: f.param("o"),
                strides: ["o_row", "o_head", "o_batch"].map(|name| f.number(name)),
                pairs: f.param::<u32>("o_pairs").differs_from(0),
            },
        };
        let log_sum_exp = f.param("log_sum_exp");
        let [queries, keys, heads, share, tiles, across, section] =
            ["queries", "keys", "heads", "share", "tiles", "across", "section"].map(|name| f.param(name));
        let [scale, to_log2, to_ln] = ["scale", "to_log2", "to_ln"].map(|name| f.param(name));
        let counts = scores.counts().iter().map(|name| f.param::<u32>(name).bits_as()).collect();
        let reals = scores.reals().iter().map(|name| f.param(name)).collect();
        Self {
            maps,
            output,
            log_sum_exp,
            queries,
            keys,
            heads,
            share,
            tiles,
            across,
            section,
            scale,
            to_log2,
            to_ln,
            counts,
            reals,
        }
    }
}

impl<'f> Kernel<'_, 'f> {
    /// The CTA's place among the tiles, at its first one. Every role has its own, so all walk the same tiles.
    fn walk(&self) -> Walk<'f> {
        let (f, Parameters { tiles, across, section, .. }) = (self.f, &self.parameters);
        let masks = self.scores.masks();
        let of_section = if masks { *across * *section } else { *tiles };
        let walk = Walk {
            tiles: *tiles,
            of_section,
            first: f.variable(0u32),
            end: f.variable(of_section.min(*tiles)),
            odd: masks.then(|| f.variable(0u32)),
        };
        walk.seek();
        walk
    }

    /// The tile with this number: of each section of heads, first the last queries of all its heads, since these
    /// see the most keys if a mask is causal.
    fn query_tile(&self, index: Value<'f, u32>) -> QueryTile<'f> {
        let Parameters { queries, keys, heads, tiles, across, section, .. } = self.parameters;
        let [rows, block] = self.plan.spec.tile;
        let of_section = section * across;
        let before = index / of_section;
        let (within, first) = (index - before * of_section, before * section);
        let together = (tiles / across - first).min(section);
        let (tile, head) = (within / together, first + within % together);
        let tile = if self.scores.masks() { across - 1 - tile } else { tile };
        let (row, batch, head) = (tile * rows, head / heads, head % heads);

        let scope = self.scope(head, batch);
        let last = (row + (rows - 1)).min(queries - 1);
        let ends = [row, last].map(Value::cast);
        let inside = |[begin, end]: [Value<'f, i32>; 2]| {
            let [zero, all] = [self.f.constant(0), keys.cast()];
            [begin.max(zero).min(all), end.max(zero).min(all)].map(Value::cast::<u32>)
        };
        let [begin, end] = inside(self.scores.seen(&scope, ends));
        let blocks = [begin / block, end.div_ceil(block)];
        // Without keys, a block that tensor copies fill with zeros, of which nothing is seen.
        let (some, beyond) = (begin.less_than(end), keys.max(1).div_ceil(block));
        let blocks = [blocks[0].where_or(some, beyond), blocks[1].where_or(some, beyond + 1)];
        let all = self.scores.seen_by_all(&scope, ends);
        let from_first = all[0].known_bits() == Some(0);
        let [begin, end] = inside(all);
        let clip = |at: Value<'f, u32>| at.max(blocks[0]).min(blocks[1]);
        let [begin, end] = [clip(begin.div_ceil(block)), clip(end / block)];
        QueryTile { row, head, batch, blocks, whole: [begin, end.max(begin)], from_first }
    }

    fn scope(&self, head: Value<'f, u32>, batch: Value<'f, u32>) -> DeviceScope<'_, 'f> {
        let Parameters { queries, keys, counts, reals, .. } = &self.parameters;
        let [queries, keys, head, batch] = [*queries, *keys, head, batch].map(Value::cast);
        Scope { queries, keys, head, batch, counts, reals }
    }

    /// Emitted for one thread: loads Q, K and V of each tile.
    ///
    /// A block of keys is needed before the values of the block that was multiplied before it; if tiles overlap, also
    /// that of the next tile.
    fn produce(&self) {
        let Self { f, plan, parameters, .. } = self;
        let [q, k, v] = self.rings.map(|ring| ring.producer());
        let copies = plan.tiles.map(TensorCopy::new);
        let bytes = plan.rings.map(|ring| f.constant(ring.transaction_bytes()));
        let zero = f.constant(0);
        let keys = plan.spec.tile[1];
        let walk = self.walk();
        let from = |i: usize, tile: QueryTile<'f>| Origin {
            matrix: Some(if i == 0 { tile.head } else { tile.head / parameters.share }),
            batch: Some(tile.batch),
            ..Origin::alone(parameters.maps[i])
        };
        let load_k = |tile: QueryTile<'f>, block: Value<'f, u32>| {
            k.produce(bytes[1], |stage| copies[1].load(f, stage, from(1, tile), [block * keys, zero]));
        };
        let load_v = |tile: QueryTile<'f>, block: Value<'f, u32>| {
            v.produce(bytes[2], |stage| copies[2].load(f, stage, from(2, tile), [zero, block * keys]));
        };
        let first = |tile: QueryTile<'f>| {
            q.produce(bytes[0], |stage| copies[0].load(f, stage, from(0, tile), [tile.row, zero]));
            load_k(tile, tile.blocks[1] - 1);
        };
        f.if_(walk.is_at_tile(), || {
            let tile = CurrentTile::new(f, self.query_tile(walk.index()));
            first(tile.get());
            f.loop_(|| {
                let unit = tile.get();
                let [begin, end] = unit.blocks;
                let block = f.variable(end - 1);
                f.while_(
                    || block.get().more_than(begin),
                    || {
                        load_k(unit, block.get() - 1);
                        load_v(unit, block.get());
                        block.set(block.get() - 1);
                    },
                );
                walk.advance();
                if !plan.overlaps {
                    load_v(unit, begin);
                }
                f.if_(walk.is_at_tile(), || {
                    tile.set(self.query_tile(walk.index()));
                    first(tile.get());
                });
                if plan.overlaps {
                    load_v(unit, begin);
                }
                f.break_if(!walk.is_at_tile());
            });
        });
    }

    fn consumer(&self, warpgroup: Value<'f, u32>) -> Consumer<'f> {
        let Self { f, shared, .. } = *self;
        let thread = f.special(Special::ThreadX) % 128;
        let alone = ClusterPosition::new(f, [1, 1]);
        Consumer {
            shared,
            warpgroup,
            part: if self.plan.cta.consumers > 1 { warpgroup } else { f.constant(0) },
            thread,
            release: Release::new(f, Arrivals::Warpgroup, alone, shared, thread),
            turns: Turns::in_loop(f, &self.plan.cta, warpgroup),
        }
    }
}

/// The positions of a consumer in the rings of Q, K and V.
type Positions<'f> = [Position<'f>; 3];
