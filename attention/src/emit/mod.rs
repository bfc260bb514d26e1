//! The emitter: it writes the program of a kernel.

mod cluster;
mod consumer;
mod convert;
mod halves;
mod loaders;
mod merge;
mod producer;
pub(crate) mod softmax;
mod store;
mod walk;

use collective::Consumer;
use collective::heads::{DeviceLengths, DevicePages, DeviceTensor};
use collective::pipeline::{Position, Ring, Turns};
use collective::queue;
use collective::skeleton::Cta;
use ptx::{Builder, Special, Value, Var};

#[cfg(feature = "records")]
pub(crate) use self::merge::Pieces;
pub(crate) use self::store::slab;
use self::walk::Walk;
use crate::factors::DeviceFactors;
use crate::parts::{Part, Parts};
use crate::plan::{AttentionPlan, CONVERTERS, HalvesPlan, NarrowPlan};
use crate::scores::{AnyScores, DeviceScope, Scope};
use crate::spec;

/// The parameters of O where the program reaches it by its strides.
pub(crate) const O: [&str; 4] = ["o", "o_row", "o_head", "o_batch"];

/// Where O is.
#[derive(Clone, Copy)]
enum Output<'f> {
    /// Its tensor map.
    Tma(Value<'f, u64>),
    /// Its rows, and whether two neighbours can be stored together.
    Direct(DeviceTensor<'f>, Value<'f, bool>),
}

/// A tile of queries of a head, and the blocks of keys that it needs.
#[derive(Clone, Copy)]
struct QueryTile<'f> {
    /// First query.
    row: Value<'f, u32>,
    head: Value<'f, u32>,
    batch: Value<'f, u32>,
    /// Queries and keys of its sequence, and the rows before these in packed tensors.
    lengths: [Value<'f, u32>; 2],
    before: [Value<'f, u32>; 2],
    /// The part of its keys, if these are divided.
    part: Option<Part<'f>>,
    /// The factors of products of queries and keys, and of values, for its head, as bits.
    factors: Option<[Value<'f, u32>; 2]>,
    /// Whether there is such a tile; `None` if there always is.
    exists: Option<Value<'f, bool>>,
    /// Whether sequences have lengths of their own.
    differs: bool,
    /// Blocks of keys, from the first to one past the last; at least one. If no query sees a key, it is the one after
    /// the last key.
    blocks: [Value<'f, u32>; 2],
    /// Among these, the blocks that every query sees whole.
    whole: [Value<'f, u32>; 2],
    /// Whether no block before `whole` is needed, for any tile.
    from_first: bool,
}

/// A tile of queries in variables.
struct CurrentTile<'f> {
    /// Its numbers, and those of its sequence if lengths differ.
    numbers: Vec<Var<'f, u32>>,
    of: QueryTile<'f>,
}

impl<'f> CurrentTile<'f> {
    fn new(f: &'f Builder, tile: QueryTile<'f>) -> Self {
        Self { numbers: tile.numbers().map(|number| f.variable(number)).collect(), of: tile }
    }

    fn set(&self, tile: QueryTile<'f>) {
        self.numbers.iter().zip(tile.numbers()).for_each(|(variable, number)| variable.set(number));
    }

    fn get(&self) -> QueryTile<'f> {
        let mut numbers = self.numbers.iter().map(|number| number.get());
        let mut next = |of: Value<'f, u32>| numbers.next().unwrap_or(of);
        let QueryTile { row, head, batch, blocks, whole, lengths, before, .. } = self.of;
        let ([row, head, batch], blocks, whole) =
            ([row, head, batch].map(&mut next), blocks.map(&mut next), whole.map(&mut next));
        let factors = self.of.factors.map(|factors| factors.map(&mut next));
        let part = self.of.part.map(|part| Part::of(part.numbers().map(&mut next)));
        let (lengths, before) = (lengths.map(&mut next), before.map(&mut next));
        QueryTile { part, row, head, batch, blocks, whole, factors, lengths, before, ..self.of }
    }
}

impl<'f> QueryTile<'f> {
    /// What differs from tile to tile.
    fn numbers(&self) -> impl Iterator<Item = Value<'f, u32>> {
        let Self { row, head, batch, blocks, whole, part, lengths, before, differs, .. } = *self;
        let of_sequence = differs.then_some([lengths, before]).into_iter().flatten().flatten();
        let part = part.map(|part| part.numbers()).into_iter().flatten();
        let factors = self.factors.into_iter().flatten();
        [row, head, batch]
            .into_iter()
            .chain(blocks)
            .chain(whole)
            .chain(factors)
            .chain(part)
            .chain(of_sequence)
    }
}

/// What every role knows.
struct Kernel<'a, 'f> {
    f: &'f Builder,
    plan: &'a AttentionPlan,
    scores: &'a dyn AnyScores,
    counts: Vec<Value<'f, i32>>,
    reals: Vec<Value<'f, f32>>,
    shared: Value<'f, u32>,
    rings: [Ring<'f>; 3],
    /// The rings of K and V as they are in memory, if they are converted.
    narrow: [Option<Ring<'f>>; 2],
}

/// Emits a kernel from beginning to end.
pub(crate) fn emit(f: &Builder, plan: &AttentionPlan, scores: &dyn AnyScores) {
    f.load_parameters();
    let shared = f.shared_base();
    // (QUERIES, D, PIPE_Q), (KEYS, D, PIPE_K), (DV, KEYS, PIPE_V)
    let [q, k, v] = plan.rings;
    let rings = [("the ring of Q", q), ("the ring of K", k), ("the ring of V", v)];
    let rings = rings.map(|(name, ring)| Ring::named(f, name, ring, shared));
    let narrow = [("the ring of K as it is in memory", 0), ("the ring of V as it is in memory", 1)].map(
        |(name, i)| {
            let NarrowPlan { tiles, rings } = plan.narrow?;
            tiles[i].map(|_| Ring::named(f, name, rings[i], shared))
        },
    );
    let counts = scores.counts().into_iter().map(|name| f.parameter(name)).collect();
    let reals = scores.reals().into_iter().map(|name| f.parameter(name)).collect();
    let kernel = Kernel { f, plan, scores, counts, reals, shared, rings, narrow };
    let cta = Cta::begin(f, plan.cta, || {
        let read = &["q_map", "k_map", "v_map"][..plan.operands()];
        read.iter().for_each(|map| f.prefetch_tensor_map(f.parameter(map)));
        // The warps of consumers, those that convert, and several that load.
        let converters = if plan.narrow.is_some() { CONVERTERS } else { 0 };
        let readers = plan.cta.consumers * 4 + converters + plan.loaders().unwrap_or(0);
        queue::initialise_of(f, &plan.queue, shared, readers);
        for ring in rings.into_iter().chain(narrow.into_iter().flatten()) {
            ring.initialise();
        }
    });
    let produce = || match (plan.narrow, plan.loaders()) {
        (Some(plan), _) => f.if_else(
            f.warp_index().equals(0),
            || f.if_(f.elect(), || kernel.produce()),
            || f.scope("converters", || kernel.convert(plan.tiles)),
        ),
        (None, Some(loaders)) => {
            let number = f.warp_index();
            let load = || f.if_(f.elect(), || kernel.load_slabs(number));
            match loaders {
                HalvesPlan::MOST_LOADERS => load(),
                _ => f.if_(number.less_than(loaders), load),
            }
        }
        (None, None) => kernel.produce(),
    };
    cta.roles(produce, |warpgroup| match plan.halves {
        Some(halves) => kernel.consume_halves(halves, kernel.consumer(warpgroup)),
        None => kernel.consume(kernel.consumer(warpgroup)),
    });
}

/// The parameters.
impl<'f> Kernel<'_, 'f> {
    fn number(&self, name: &str) -> Value<'f, u32> {
        self.f.parameter(name)
    }

    /// Queries and keys of a sequence; the most, if lengths differ.
    fn most(&self) -> [Value<'f, u32>; 2] {
        ["queries", "keys"].map(|name| self.number(name))
    }

    fn lengths(&self) -> Option<DeviceLengths<'f>> {
        let keys = self.plan.spec.pages.is_none();
        (self.plan.spec.lengths == spec::Lengths::Packed).then(|| DeviceLengths::of(self.f, keys))
    }

    fn pages(&self) -> Option<DevicePages<'f>> {
        self.plan.spec.pages.map(|page| {
            let together = if self.plan.cta.consumers == 1 { 16 } else { 4 };
            DevicePages::of(self.f, [page, self.plan.spec.tile[1]], together)
        })
    }

    /// The parameters of parts in memory.
    fn parts(&self) -> Option<Parts<'f>> {
        self.plan.spec.parts.are_in_memory().then(|| Parts::of(self.f))
    }

    /// Most parts of a tile, if there are parts.
    fn most_parts(&self) -> Option<Value<'f, u32>> {
        match self.plan.spec.parts {
            spec::Parts::One => None,
            spec::Parts::Cluster(count) => Some(self.f.constant(count)),
            spec::Parts::Count(_) | spec::Parts::Keys(_) => Some(Parts::of(self.f).most),
        }
    }

    /// The factors of Q, K and V, if these have 8 bits.
    fn factors(&self) -> Option<DeviceFactors<'f>> {
        self.plan.spec.is_scaled().then(|| DeviceFactors::of(self.f))
    }

    fn output(&self) -> Output<'f> {
        match self.plan.output {
            Some(_) => Output::Tma(self.f.parameter("o_map")),
            None => Output::Direct(DeviceTensor::of(self.f, O), self.f.parameter("o_pairs")),
        }
    }

    /// The tensor map of K (1) or V (2), for a box that has keys or not. If lengths differ, tensor maps of boxes with keys begin
    /// before their tensors, and those without have one of their own.
    fn map_of(&self, i: usize, has_keys: Value<'f, bool>) -> Value<'f, u64> {
        let map = self.f.parameter::<u64>(["q_map", "k_map", "v_map"][i]);
        if self.plan.spec.pages.is_none() && self.lengths().is_none() {
            return map;
        }
        map.where_or(has_keys, self.f.parameter(["k_outside", "v_outside"][i - 1]))
    }
}

impl<'f> Kernel<'_, 'f> {
    /// The tile at which a walk is. If there is none with this number, the walk goes on to the next one; it may end.
    fn tile_at(&self, walk: &Walk<'f>) -> QueryTile<'f> {
        let f = self.f;
        let tile = self.query_tile(walk.index());
        let Some(exists) = tile.exists else { return tile };
        if walk.is_alone() {
            f.if_(!exists, || walk.leave());
            return tile;
        }
        let (found, exists) = (CurrentTile::new(f, tile), f.variable(f.constant(1u32).where_or(exists, 0)));
        f.while_(
            || walk.is_at_tile() & exists.get().equals(0),
            || {
                walk.ask();
                walk.advance();
                let tile = self.query_tile(walk.index());
                found.set(tile);
                exists
                    .set(tile.exists.map_or(f.constant(1u32), |exists| f.constant(1u32).where_or(exists, 0)));
            },
        );
        found.get()
    }

    /// The tile with this number. Of each section of heads, the last queries come first if these see the most keys.
    fn query_tile(&self, index: Value<'f, u32>) -> QueryTile<'f> {
        let [tiles, across, section] = ["tiles", "across", "section"].map(|name| self.number(name));
        let parts = self.parts();
        // After the last tile there is no sequence, no number of keys, and no head with factors.
        let reads = self.pages().is_some() || self.factors().is_some();
        let index = if reads { index.min(tiles - 1) } else { index };
        let of_section = section * across;
        let before = index / of_section;
        let (within, first) = (index - before * of_section, before * section);
        let together = (tiles / across - first).min(section);
        let (tile, head) = (within / together, first + within % together);
        let of_cluster = self.plan.cluster.map(|_| self.f.special(Special::ClusterRank));
        let number = parts.map(|parts| head % parts.most).or(of_cluster);
        let head = parts.map_or(head, |parts| head / parts.most);
        let part = number.map(|number| Part { number, count: number, counter: head * across + tile });
        self.tile_of([tile, head], part)
    }

    /// A tile of a head of all sequences, or a part of it.
    fn tile_of(&self, [tile, head]: [Value<'f, u32>; 2], part: Option<Part<'f>>) -> QueryTile<'f> {
        let (f, grows) = (self.f, self.scores.grows());
        let [heads, across] = ["heads", "across"].map(|name| self.number(name));
        let (most, pages, queries) = (self.most(), self.pages(), self.queries_per_tile());
        let Some(lengths) = self.lengths() else {
            let tile = if grows { across - 1 - tile } else { tile };
            let zero = f.constant(0);
            let tile = QueryTile {
                row: tile * queries,
                head: head % heads,
                batch: head / heads,
                lengths: most,
                before: [zero; 2],
                part,
                factors: None,
                exists: None,
                differs: pages.is_some(),
                blocks: [zero; 2],
                whole: [zero; 2],
                from_first: false,
            };
            let keys = pages.map_or(most[1], |pages| pages.keys(tile.batch, most[1]));
            return self.blocks(QueryTile { lengths: [most[0], keys], ..tile });
        };
        let (batch, tile) = lengths.find(lengths.queries, queries, tile);
        let (before_q, count_q) = lengths.queries.sequence(batch);
        let (before_k, count_k) = match lengths.keys {
            Some(keys) => keys.sequence(batch),
            None => (f.constant(0), pages.map_or(most[1], |pages| pages.keys(batch, most[1]))),
        };
        let count = count_q.div_ceil(queries);
        let exists = tile.less_than(count);
        let tile = if grows { (count - 1).where_or(exists, 0) - tile.where_or(exists, 0) } else { tile };
        let zero = f.constant(0);
        self.blocks(QueryTile {
            row: tile * queries,
            head,
            batch,
            lengths: [count_q, count_k],
            before: [before_q, before_k],
            part,
            factors: None,
            exists: Some(exists),
            differs: true,
            blocks: [zero; 2],
            whole: [zero; 2],
            from_first: false,
        })
    }

    /// Queries of a tile. Each has as many rows as heads are packed.
    fn queries_per_tile(&self) -> u32 {
        self.plan.spec.tile[0] / self.plan.spec.pack
    }

    /// The blocks of keys of a tile.
    fn blocks(&self, tile: QueryTile<'f>) -> QueryTile<'f> {
        let ([queries, keys], block) = (tile.lengths, self.plan.spec.tile[1]);
        let factors = self.factors().map(|of| of.of_head(self.head_of_keys(&tile)));
        let tile = QueryTile { factors, ..tile };
        // Masks do not depend on the head of packed ones.
        let scope = self.scope(&tile, tile.head * self.packed());
        let last = (tile.row + (self.queries_per_tile() - 1)).min(queries.max(1) - 1);
        let ends = [tile.row, last].map(Value::cast);
        let inside = |[begin, end]: [Value<'f, i32>; 2]| {
            let [zero, all] = [self.f.constant(0), keys.cast()];
            [begin.max(zero).min(all), end.max(zero).min(all)].map(Value::cast::<u32>)
        };
        let [begin, end] = inside(self.scores.seen(&scope, ends));
        let blocks = [begin / block, end.div_ceil(block)];
        // Without keys, a block that tensor copies fill with zeros, of which nothing is seen.
        let (some, beyond) = (begin.less_than(end), keys.max(1).div_ceil(block));
        let blocks = [blocks[0].where_or(some, beyond), blocks[1].where_or(some, beyond + 1)];
        let (blocks, tile) = match (tile.part, self.most_parts()) {
            (Some(part), Some(most)) => {
                let (blocks, part) = part.of_tile(blocks, most, &self.plan.spec);
                let exists = part.number.less_than(part.count);
                let exists = tile.exists.map_or(exists, |there| there & exists);
                (blocks, QueryTile { part: Some(part), exists: Some(exists), ..tile })
            }
            _ => (blocks, tile),
        };
        let all = self.scores.seen_by_all(&scope, ends);
        let from_first = all[0].known_bits() == Some(0);
        let [begin, end] = inside(all);
        let clip = |at: Value<'f, u32>| at.max(blocks[0]).min(blocks[1]);
        let [begin, end] = [clip(begin.div_ceil(block)), clip(end / block)];
        QueryTile { blocks, whole: [begin, end.max(begin)], from_first, ..tile }
    }

    /// What products of a tile's queries and keys are multiplied by.
    fn scale(&self, tile: &QueryTile<'f>) -> Value<'f, f32> {
        let scale = self.f.parameter::<f32>("scale");
        tile.factors.map_or(scale, |[factor, _]| scale * factor.bits_as::<f32>())
    }

    /// What its scores are multiplied by to be exponents of 2, and natural ones. Scores that are not changed are products.
    fn to_exponents(&self, tile: &QueryTile<'f>) -> [Value<'f, f32>; 2] {
        let factor = tile.factors.filter(|_| !self.scores.changes()).map(|[of, _]| of.bits_as::<f32>());
        ["to_log2", "to_ln"].map(|name| {
            let to = self.f.parameter::<f32>(name);
            factor.map_or(to, |factor| to * factor)
        })
    }

    /// What masks and scores of a tile's rows may depend on. `head` is one of Q's.
    fn scope(&self, tile: &QueryTile<'f>, head: Value<'f, u32>) -> DeviceScope<'_, 'f> {
        let Self { counts, reals, .. } = self;
        let [queries, keys] = tile.lengths;
        let [queries, keys, head, batch] = [queries, keys, head, tile.batch].map(Value::cast);
        Scope { queries, keys, head, batch, counts, reals }
    }

    /// Heads of Q that are rows of one tile.
    fn packed(&self) -> Value<'f, u32> {
        if self.plan.spec.pack > 1 { self.number("share") } else { self.f.constant(1) }
    }

    /// The head of K and V of a tile.
    fn head_of_keys(&self, tile: &QueryTile<'f>) -> Value<'f, u32> {
        match (self.plan.spec.pack, self.plan.spec.is_latent()) {
            (1, _) => tile.head / self.number("share"),
            (_, false) => tile.head,
            // Heads of tiles per head of K and V.
            (_, true) => tile.head / self.number("groups"),
        }
    }

    /// The query and the head of Q of a row of a tile.
    fn query(&self, tile: &QueryTile<'f>, row: Value<'f, u32>) -> [Value<'f, u32>; 2] {
        match self.plan.spec.pack {
            1 => [tile.row + row, tile.head],
            pack => {
                // There may be more rows than heads: those after the last head are no query.
                let (head, none) = (row % pack, self.f.constant(u32::MAX));
                let at = (tile.row + row / pack).where_or(head.less_than(self.packed()), none);
                [at, tile.head * self.packed() + head.min(self.packed() - 1)]
            }
        }
    }

    /// The address of a row of O, which is stored directly: of a query and a head.
    fn row_of_o(
        &self,
        DeviceTensor { address, strides: [stride, of_head, of_sequence] }: DeviceTensor<'f>,
        tile: &QueryTile<'f>,
        [at, head]: [Value<'f, u32>; 2],
    ) -> Value<'f, u64> {
        let before = match self.lengths() {
            None => tile.batch.cast::<u64>() * of_sequence,
            Some(_) => tile.before[0].cast::<u64>() * stride,
        };
        address + before + head.cast::<u64>() * of_head + at.cast::<u64>() * stride
    }

    /// The coordinates of a tile in the tensor maps of Q and O (0), or of K and V (1): the row of query or key 0, and
    /// the sequence.
    ///
    /// A tensor map of packed sequences has a dimension of `most` rows and, after it, one of beginnings, both with the
    /// distance of rows, and begins `most` rows before the tensor. So row `most - length` of beginning `before +
    /// length` is the sequence's first row, and its last one is the last of the dimension: what follows is outside.
    fn place(&self, tile: &QueryTile<'f>, i: usize) -> [Value<'f, u32>; 2] {
        match self.lengths() {
            None => [self.f.constant(0), tile.batch],
            Some(_) => [self.most()[i] - tile.lengths[i], tile.before[i] + tile.lengths[i]],
        }
    }

    fn consumer(&self, warpgroup: Value<'f, u32>) -> Consumer<'f> {
        let Self { f, shared, .. } = *self;
        let alone = Consumer::alone(f, shared, warpgroup);
        let part = if self.plan.rows_are_divided() { warpgroup } else { alone.part };
        Consumer { part, turns: Turns::in_loop(f, &self.plan.cta, warpgroup), ..alone }
    }
}

/// The positions of a consumer in the rings of Q, K and V.
type Positions<'f> = [Position<'f>; 3];
