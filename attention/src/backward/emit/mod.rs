//! The emitters of the three programs. This file has what the roles of the main program share, and its producer.

mod add;
mod apart;
mod consumer;
mod ends;
mod exchange;
mod pair;
mod parts;
mod zeros;

use collective::heads::DeviceLengths;
use collective::pipeline::{Position, Ring, Stage};
use collective::skeleton::{self, Cta};
use collective::{OperandTile, RingPlan, TensorCopy};
use ptx::{Builder, BulkLoad, Special, Value, Var};

use add::Order;
pub(super) use ends::{DO, DQ, PREPARE_THREADS, finish, finish_bytes, prepare};
use parts::Parts;
pub(super) use zeros::COUNT;

use super::plan::{BackwardPlan, LINE, PairPlan};
use super::spec::BackwardSpec;
use crate::scores::{AnyScores, DeviceScope, Scope};

/// The CTA's block of keys.
#[derive(Clone, Copy)]
struct KeyBlock<'f> {
    /// Its number in its sequence, and its first key.
    block: Value<'f, u32>,
    first: Value<'f, u32>,
    /// Head of keys, and sequence.
    head: Value<'f, u32>,
    batch: Value<'f, u32>,
    /// Queries and keys of its sequence.
    lengths: [Value<'f, u32>; 2],
    packed: Option<PackedBlock<'f>>,
    apart: Option<BlockApart<'f>>,
}

/// What belongs to a block of keys if heads of queries are computed apart.
#[derive(Clone, Copy)]
struct BlockApart<'f> {
    /// The first head of queries, and how many there are.
    heads: [Value<'f, u32>; 2],
    /// Which of the CTAs is this one that share the tiles of a head, and how many there are.
    part: [Value<'f, u32>; 2],
    /// The block's number among those of which heads of queries are apart.
    index: Value<'f, u32>,
    /// Whether the CTA is the first one of such a block.
    is_first: Value<'f, bool>,
    /// Whether it is not one of these, but has all heads of queries, if some have.
    is_whole: Option<Value<'f, bool>>,
}

/// What belongs to a block of keys if lengths differ.
#[derive(Clone, Copy)]
struct PackedBlock<'f> {
    /// Queries and keys of the sequences before.
    before: [Value<'f, u32>; 2],
    /// Number of the sequence's first tile of queries among those of a head.
    first_tile: Value<'f, u32>,
    /// Whether there is such a block.
    exists: Value<'f, bool>,
}

/// A tile of queries that sees some key of the CTA's block.
#[derive(Clone, Copy)]
struct QueryTile<'f> {
    /// Its number in its sequence, and its first query.
    tile: Value<'f, u32>,
    first: Value<'f, u32>,
    /// Head of queries.
    head: Value<'f, u32>,
    /// Its number among the tiles of all heads of all sequences.
    index: Value<'f, u32>,
}

/// What every role of the main program knows.
struct Kernel<'a, 'f> {
    f: &'f Builder,
    plan: &'a BackwardPlan,
    scores: &'a dyn AnyScores,
    counts: Vec<Value<'f, i32>>,
    reals: Vec<Value<'f, f32>>,
    shared: Value<'f, u32>,
    keys: KeyBlock<'f>,
    kv_ring: Ring<'f>,
    q_ring: Ring<'f>,
    dq: Parts<'f>,
    pair: Option<PairRings<'f>>,
    /// What orders the adds of blocks, if their order is fixed.
    order: Option<Order<'f>>,
}

/// The rings of two consumers with the same keys: those of dO, P and dS.
#[derive(Clone, Copy)]
struct PairRings<'f> {
    plan: PairPlan,
    d_o: Ring<'f>,
    p: Ring<'f>,
    ds: Ring<'f>,
}

/// Emits the main program.
pub(super) fn main(f: &Builder, plan: &BackwardPlan, scores: &dyn AnyScores) {
    f.load_parameters();
    let kernel = Kernel::of(f, plan, scores);
    let cta = Cta::begin(f, plan.cta, || kernel.initialise());
    let consume = |warpgroup| match kernel.pair {
        None => kernel.consume(warpgroup),
        Some(rings) => kernel.consume_pair(rings, warpgroup),
    };
    // Zeros of a block that does not exist are needed, too.
    let produce = || {
        match kernel.keys.packed {
            None => kernel.produce(),
            Some(PackedBlock { exists, .. }) => f.if_(exists, || kernel.produce()),
        }
        if plan.zeros_ahead() {
            f.if_(f.warp_index().equals(3), || kernel.store_zeros());
        }
    };
    match kernel.keys.packed {
        None => cta.roles(produce, consume),
        Some(PackedBlock { exists, .. }) => {
            let meet = || {
                if plan.spec.split > 1 {
                    skeleton::meet(f, false);
                }
            };
            cta.roles(produce, |warpgroup| f.if_else(exists, || consume(warpgroup), meet));
        }
    }
}

impl<'f> KeyBlock<'f> {
    /// The block of keys of the CTA's cluster: of each section of heads, first the first keys of all its heads, since these are seen by
    /// the most queries if a mask is causal. The last section has the heads that are left, too. If dQ is added in a fixed order, a block follows
    /// those that it waits for.
    fn of_cta(f: &'f Builder, plan: &BackwardPlan) -> Self {
        let [heads, all_heads, blocks] =
            ["heads", "all_heads", "blocks"].map(|name| f.parameter::<u32>(name));
        let order = ["section", "last"].map(|name| f.parameter::<u32>(name));
        let packed = plan.is_packed().then(|| DeviceLengths::of(f, true));
        let BackwardSpec { split, apart, whole, .. } = plan.spec;
        let cta = f.special(Special::CtaX);
        // Heads of keys of which all heads of queries have one CTA, and whether this one is of them.
        let whole = (whole > 0).then(|| {
            let whole = f.parameter::<u32>("whole");
            (whole, cta.less_than(whole * blocks))
        });
        let (index, all_heads, [section, last]) = match whole {
            None => (cta / split.max(apart), all_heads, order),
            Some((whole, is_whole)) => {
                let of_whole = ["section_of_whole", "last_of_whole"].map(|name| f.parameter::<u32>(name));
                let index = cta.where_or(is_whole, (cta - whole * blocks) / apart);
                let order = [0, 1].map(|i| of_whole[i].where_or(is_whole, order[i]));
                (index, whole.where_or(is_whole, all_heads), order)
            }
        };
        let first = (index / (section * blocks) * section).min(last);
        let together = (all_heads - first).where_or(first.equals(last), section);
        let within = index - first * blocks;
        let (block, head) = (within / together, first + within % together);
        let [rows, height] = plan.spec.tile;
        let apart = (apart > 0).then(|| BlockApart::of_cta(f, plan, [cta, head, block], whole));
        let (head, apart) = apart.map_or((head, None), |(head, of)| (head, Some(of)));
        let Some((lengths, of_keys)) = packed.and_then(|lengths| Some((lengths, lengths.keys?))) else {
            let (first, batch) = (block * height, head / heads);
            let lengths = ["queries", "keys"].map(|name| f.parameter(name));
            return Self { block, first, head: head % heads, batch, lengths, packed: None, apart };
        };
        let (batch, block) = lengths.find(of_keys, height, block);
        let [(before_q, queries), (before_k, keys)] = [lengths.queries, of_keys].map(|of| of.sequence(batch));
        let first = block * height;
        let packed = PackedBlock {
            before: [before_q, before_k],
            first_tile: lengths.queries.first_tile(rows, batch),
            exists: first.less_than(keys),
        };
        Self { block, first, head, batch, lengths: [queries, keys], packed: Some(packed), apart }
    }
}

impl<'f> BlockApart<'f> {
    /// The head of keys of all sequences, and what belongs to its block. `head` is that one if the CTA is `whole`; otherwise it counts those heads of
    /// queries that are apart.
    fn of_cta(
        f: &'f Builder,
        plan: &BackwardPlan,
        [cta, head, block]: [Value<'f, u32>; 3],
        whole: Option<(Value<'f, u32>, Value<'f, bool>)>,
    ) -> (Value<'f, u32>, Self) {
        let [share, heads, blocks] = ["share", "heads", "blocks"].map(|name| f.parameter::<u32>(name));
        let parts = f.constant(plan.spec.apart);
        let (of_queries, index) = (head, head / share * blocks + block);
        let Some((whole, is_whole)) = whole else {
            let (first, part) = (of_queries % (heads * share), cta % parts);
            let is_first = (first % share).equals(0) & part.equals(0);
            let of =
                Self { heads: [first, f.constant(1)], part: [part, parts], index, is_first, is_whole: None };
            return (head / share, of);
        };
        let head = head.where_or(is_whole, whole + head / share);
        let first = (head * share).where_or(is_whole, whole * share + of_queries) % (heads * share);
        let part = f.constant(0u32).where_or(is_whole, (cta - whole * blocks) % parts);
        let of = Self {
            heads: [first, share.where_or(is_whole, 1)],
            part: [part, f.constant(1u32).where_or(is_whole, parts)],
            index,
            is_first: !is_whole & (first % share).equals(0) & part.equals(0),
            is_whole: Some(is_whole),
        };
        (head, of)
    }
}

impl<'a, 'f> Kernel<'a, 'f> {
    fn of(f: &'f Builder, plan: &'a BackwardPlan, scores: &'a dyn AnyScores) -> Self {
        let shared = f.shared_base();
        let ring = |name, plan| Ring::named(f, name, plan, shared);
        Self {
            f,
            plan,
            scores,
            shared,
            keys: KeyBlock::of_cta(f, plan),
            kv_ring: ring("the ring of K and V", plan.rings.kv),
            q_ring: ring(
                if plan.pair.is_some() { "the ring of Q" } else { "the ring of Q and dO" },
                plan.rings.q,
            ),
            dq: Parts::new(f, &plan.rings, shared),
            order: plan.rings.order.map(|[turns, done]| Order {
                turns: ring("the ring of turns to add", turns),
                done: ring("the ring of tiles that were added to", done),
                added: f.parameter("added"),
            }),
            pair: plan.pair.map(|pair| PairRings {
                plan: pair,
                d_o: ring("the ring of dO", pair.do_ring),
                p: ring("the ring of P", pair.p_ring),
                ds: ring("the ring of dS", plan.rings.ds),
            }),
            counts: scores.counts().into_iter().map(|name| f.parameter(name)).collect(),
            reals: scores.reals().into_iter().map(|name| f.parameter(name)).collect(),
        }
    }

    /// Emitted for one thread at the beginning.
    fn initialise(&self) {
        let f = self.f;
        let read = ["q_map", "k_map", "v_map", "do_map"];
        read.into_iter().for_each(|map| f.prefetch_tensor_map(f.parameter(map)));
        [self.kv_ring, self.q_ring].iter().for_each(Ring::initialise);
        self.dq.initialise();
        if let Some(PairRings { d_o, p, ds, .. }) = self.pair {
            [d_o, p, ds].iter().for_each(Ring::initialise);
        }
        if let Some(Order { turns, done, .. }) = self.order {
            f.order_sums();
            [turns, done].iter().for_each(Ring::initialise);
        }
    }

    /// Emitted for the warps of the producer.
    fn produce(&self) {
        let f = self.f;
        let warp = f.warp_index();
        f.if_(warp.equals(0), || f.if_(f.elect(), || self.load()));
        f.if_(warp.equals(1), || f.if_(f.elect(), || self.add_dq()));
        if let Some(of) = self.keys.apart {
            f.if_(warp.equals(2) & of.is_first, || self.clear_apart(of));
        }
        if let Some(order) = self.order {
            f.if_(warp.equals(2), || f.if_(f.elect(), || self.await_turns(order)));
            f.if_(warp.equals(3), || f.if_(f.elect(), || self.announce(order)));
        }
    }

    fn scope(&self, head: Value<'f, u32>) -> DeviceScope<'_, 'f> {
        let Self { counts, reals, .. } = self;
        let [queries, keys] = self.keys.lengths;
        let [queries, keys, head, batch] = [queries, keys, head, self.keys.batch].map(Value::cast);
        Scope { queries, keys, head, batch, counts, reals }
    }

    /// The first and the last query of a tile.
    fn ends(&self, tile: Value<'f, u32>) -> [Value<'f, i32>; 2] {
        let rows = self.plan.spec.tile[0];
        let first = tile * rows;
        [first, (first + (rows - 1)).min(self.keys.lengths[0] - 1)].map(Value::cast)
    }

    /// The keys that some query of a tile sees, from the first to one past the last.
    fn seen(&self, head: Value<'f, u32>, tile: Value<'f, u32>) -> [Value<'f, i32>; 2] {
        let [begin, end] = self.scores.seen(&self.scope(head), self.ends(tile));
        [begin.max(0), end.min(self.keys.lengths[1].cast::<i32>())]
    }

    /// Whether some query of a tile sees some key of the block.
    fn is_needed(&self, head: Value<'f, u32>, tile: Value<'f, u32>) -> Value<'f, bool> {
        let [begin, end] = self.seen(head, tile);
        let first = self.keys.first.cast::<i32>();
        begin.less_than(end)
            & begin.less_than(first + self.plan.spec.tile[1].cast_signed())
            & first.less_than(end)
    }

    /// Whether a tile must be masked: some query does not see some key of the block, or the block has keys after the last.
    fn is_masked(&self, of: QueryTile<'f>) -> Value<'f, bool> {
        let first = self.keys.first.cast::<i32>();
        let end = first + self.plan.spec.tile[1].cast_signed();
        let beyond = end.more_than(self.keys.lengths[1].cast::<i32>());
        if !self.scores.masks() {
            return beyond;
        }
        let [begin_all, end_all] = self.scores.seen_by_all(&self.scope(of.head), self.ends(of.tile));
        beyond | begin_all.more_than(first) | end.more_than(end_all)
    }

    /// Emits a loop over the tiles of queries, of all heads that share the head of keys, which see some key of the block. Every role walks over the
    /// same tiles, from the last one on, and the CTAs of a cluster take them in turns.
    ///
    /// CTAs with blocks of the same keys begin at the same tile, so L2 has what they read and add to. If they add in a fixed order, they are to
    /// stay together when blocks end: each tile is that of all heads, one after the other. Otherwise one head follows the other, which is
    /// 1 to 5 % faster.
    fn each_tile(&self, body: impl FnOnce(QueryTile<'f>)) {
        self.each_tile_after(|_| {}, body);
    }

    /// As [`each_tile`](Self::each_tile), and something before the tiles of each head of queries, unless those of all heads alternate.
    fn each_tile_after(&self, first: impl FnOnce(Value<'f, u32>), body: impl FnOnce(QueryTile<'f>)) {
        let f = self.f;
        let (share, all) = (f.parameter::<u32>("share"), f.parameter::<u32>("across"));
        let across = self.keys.packed.map(|_| self.keys.lengths[0].div_ceil(self.plan.spec.tile[0]));
        let (across, split) = (across.unwrap_or(all), self.plan.spec.split);
        let rank = || if split > 1 { f.special(Special::ClusterRank) } else { f.constant(0) };
        if let Some(BlockApart { heads: [head, count], part: [part, parts], is_whole, .. }) = self.keys.apart
        {
            let left = across - across.min(part);
            let of_head = |head| {
                first(head);
                self.tiles_of_head(head, left, parts, body);
            };
            return match is_whole {
                None => of_head(head),
                Some(_) => f.repeat(count, |i| of_head(head + i)),
            };
        }
        if self.order.is_none() {
            return f.repeat(share, |i| {
                let turn = if split > 1 { (rank() + i) % split } else { rank() };
                let head = self.keys.head * share + i;
                first(head);
                self.tiles_of_head(head, across - across.min(turn), f.constant(split), body);
            });
        }
        let (left, of_head) = (f.variable(across), f.variable(0u32));
        let advance = |by: Value<'f, u32>| {
            let further = of_head.get() + by;
            let tiles =
                if split > 1 { further / share } else { f.constant(1u32).where_or(further.equals(share), 0) };
            of_head.set(further - tiles * share);
            left.set(left.get() - tiles.min(left.get()));
        };
        if split > 1 {
            advance(rank());
        }
        let head = || self.keys.head * share + of_head.get();
        let next = || advance(f.constant(split));
        f.loop_(|| {
            self.seek(left, &head, &next);
            body(self.query_tile(head(), left.get() - 1));
            next();
        });
    }

    /// Every `step`-th tile of a head, of which so many are `left`.
    fn tiles_of_head(
        &self,
        head: Value<'f, u32>,
        left: Value<'f, u32>,
        step: Value<'f, u32>,
        body: impl FnOnce(QueryTile<'f>),
    ) {
        let left = self.f.variable(left);
        let next = || left.set(left.get() - left.get().min(step));
        self.f.loop_(|| {
            self.seek(left, &|| head, &next);
            body(self.query_tile(head, left.get() - 1));
            next();
        });
    }

    /// Skips tiles that see no key of the block, `left` being how many tiles of a head are left. Leaves the loop if there are no others.
    fn seek(&self, left: Var<'f, u32>, head: &dyn Fn() -> Value<'f, u32>, next: &dyn Fn()) {
        let f = self.f;
        let (first, height) = (self.keys.first.cast::<i32>(), self.plan.spec.tile[1].cast_signed());
        let at = || (head(), left.get() - 1);
        let begin = || {
            let (head, tile) = at();
            self.seen(head, tile)[0]
        };
        let skips = || {
            let (head, tile) = at();
            !self.is_needed(head, tile)
        };
        let (masks, is_ranged) = (self.scores.masks(), self.scores.is_ranged());
        if masks && !is_ranged {
            f.while_(|| left.get().more_than(0) & skips(), next);
        } else if masks && begin().known_bits() != Some(0) {
            f.while_(|| left.get().more_than(0) & begin().at_least(first + height), next);
        }
        f.break_if(left.get().equals(0));
        if masks && is_ranged {
            // Earlier queries see no later keys.
            let (head, tile) = at();
            f.break_if(self.seen(head, tile)[1].at_most(first));
        }
    }

    /// A tile of queries of a head.
    fn query_tile(&self, head: Value<'f, u32>, tile: Value<'f, u32>) -> QueryTile<'f> {
        let [share, heads, all] = ["share", "heads", "across"].map(|name| self.f.parameter::<u32>(name));
        let first_index = match self.keys.packed {
            None => (self.keys.batch * heads * share + head) * all,
            Some(PackedBlock { first_tile, .. }) => head * all + first_tile,
        };
        QueryTile { tile, first: tile * self.plan.spec.tile[0], head, index: first_index + tile }
    }

    /// The coordinates of a row of the sequence in the tensor maps of queries (0) or of keys (1): the row, and the sequence.
    /// See the forward pass for those of packed sequences.
    fn place(&self, i: usize, row: Value<'f, u32>) -> [Value<'f, u32>; 2] {
        match self.keys.packed {
            None => [row, self.keys.batch],
            Some(PackedBlock { before, .. }) => {
                let length = self.keys.lengths[i];
                let most = self.f.parameter::<u32>(["queries", "keys"][i]);
                [most - length + row, before[i] + length]
            }
        }
    }

    /// Emitted for one thread: loads K and V once, and Q and dO of each tile with what belongs to its rows.
    fn load(&self) {
        let Self { f, plan, keys, .. } = self;
        let copy = |tile: OperandTile, stage: Stage<'f>, map, head, place| {
            TensorCopy::new(tile).load_head(f, stage, (map, head), place);
        };
        let first_key = self.place(1, keys.first);
        let kv = plan.rings.kv;
        self.kv_ring.producer().fill(f.constant(kv.transaction_bytes()), |stage| {
            copy(plan.tiles.keys[0], stage, f.parameter("k_map"), keys.head, first_key);
            copy(plan.tiles.keys[1].at(kv.offset(1)), stage, f.parameter("v_map"), keys.head, first_key);
        });
        // Each ring, and which of Q and dO are in it.
        let of_q = (self.q_ring.producer(), plan.rings.q);
        let rings: Vec<(Position<'f>, RingPlan, &[usize])> = match self.pair {
            None => vec![(of_q.0, of_q.1, &[0, 1])],
            Some(PairRings { plan, d_o, .. }) => {
                vec![(of_q.0, of_q.1, &[0]), (d_o.producer(), plan.do_ring, &[1])]
            }
        };
        let line = plan.spec.tile[0] * LINE;
        let maps = [["q_map", "exponents"], ["do_map", "row_sums"]];
        self.each_tile(|of| {
            for (ring, numbers, tensors) in rings {
                ring.produce(f.constant(numbers.transaction_bytes()), |stage| {
                    for (slot, &i) in (0..).step_by(2).zip(tensors) {
                        let [map, of_rows] = maps[i].map(|name| f.parameter::<u64>(name));
                        let tile = plan.tiles.queries[i].at(numbers.offset(slot));
                        copy(tile, stage, map, of.head, self.place(0, of.first));
                        let load = BulkLoad {
                            src: of_rows + of.index.mul_wide(line),
                            dst: stage.address + numbers.offset(slot + 1),
                            barrier: stage.full,
                            multicast: None,
                            hint: None,
                        };
                        f.bulk_load(load, line);
                    }
                });
            }
        });
    }
}
