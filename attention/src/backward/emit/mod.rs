//! The emitters of the three programs. This file has what the roles of the main program share, and its producer.

mod add;
mod apart;
mod blocks;
mod consumer;
mod ends;
mod exchange;
mod gradients;
mod pair;
mod parts;
mod zeros;

use collective::pipeline::{Position, Ring, Stage};
use collective::skeleton::Cta;
use collective::{RingPlan, TensorCopy};
use ptx::{Builder, BulkLoad, Special, Value, Var};

use add::Order;
use blocks::{BlockApart, Blocks, KeyBlock, PackedBlock, Reader};
pub(super) use ends::{DO, DQ, PREPARE_THREADS, finish, finish_bytes, prepare};
use parts::Parts;
pub(super) use zeros::COUNT;

use super::plan::{BackwardPlan, LINE, PairPlan};
use crate::scores::{AnyScores, DeviceScope, Scope};

/// A tile of queries that sees some key of the block.
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

/// What the roles of the main program share.
struct Roles<'a, 'f> {
    f: &'f Builder,
    plan: &'a BackwardPlan,
    scores: &'a dyn AnyScores,
    shared: Value<'f, u32>,
    blocks: Blocks<'f>,
    kv_ring: Ring<'f>,
    q_ring: Ring<'f>,
    dq: Parts<'f>,
    pair: Option<PairRings<'f>>,
    /// What orders the adds of blocks, if their order is fixed.
    order: Option<Order<'f>>,
}

/// What a role knows at a block of keys.
struct Kernel<'a, 'f> {
    f: &'f Builder,
    plan: &'a BackwardPlan,
    scores: &'a dyn AnyScores,
    counts: Vec<Value<'f, i32>>,
    reals: Vec<Value<'f, f32>>,
    shared: Value<'f, u32>,
    keys: KeyBlock<'f>,
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
    let roles = Roles::of(f, plan, scores);
    let initialise = || roles.initialise();
    // Where blocks are drawn, the thread that draws does something before it waits for the programs before.
    let cta = match &roles.blocks {
        Blocks::Own(_) => Cta::begin(f, plan.cta, initialise),
        Blocks::Drawn(_) => Cta::begin_unawaited(f, plan.cta, initialise),
    };
    cta.roles(
        || roles.produce(),
        |warpgroup| match roles.pair {
            None => roles.consume(warpgroup),
            Some(rings) => roles.consume_pair(rings, warpgroup),
        },
    );
}

impl<'a, 'f> Roles<'a, 'f> {
    fn of(f: &'f Builder, plan: &'a BackwardPlan, scores: &'a dyn AnyScores) -> Self {
        let shared = f.shared_base();
        let ring = |name, plan| Ring::named(f, name, plan, shared);
        Self {
            f,
            plan,
            scores,
            shared,
            blocks: match plan.rings.blocks {
                None => Blocks::Own(Box::new(KeyBlock::of(f, plan, f.special(Special::CtaX)))),
                Some(blocks) => Blocks::Drawn(ring("the ring of blocks", blocks)),
            },
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
        if let Blocks::Drawn(ring) = &self.blocks {
            ring.initialise();
        }
    }

    /// Emitted for the warps of the producer.
    fn produce(&self) {
        let f = self.f;
        let warp = f.warp_index();
        f.if_(warp.equals(0), || f.if_(f.elect(), || self.load()));
        f.if_(warp.equals(1), || f.if_(f.elect(), || self.add_dq()));
        if self.plan.spec.apart > 0 {
            f.if_(warp.equals(2), || self.each_block(Reader::Warps, Kernel::clear_apart));
        }
        if let Some(order) = self.order {
            f.if_(warp.equals(2), || f.if_(f.elect(), || self.await_turns(order)));
            f.if_(warp.equals(3), || f.if_(f.elect(), || self.announce(order)));
        }
        if self.plan.zeros_ahead() {
            f.if_(warp.equals(3), || self.store_zeros());
        }
    }

    /// Emitted for one thread, which draws blocks for all: loads K and V of each, and Q and dO of each tile with what belongs to its rows.
    fn load(&self) {
        let (f, plan) = (self.f, self.plan);
        let kv = self.kv_ring.producer();
        // Each ring, and which of Q and dO are in it.
        let of_q = (self.q_ring.producer(), plan.rings.q);
        let rings: Vec<Loading<'f>> = match self.pair {
            None => vec![(of_q.0, of_q.1, &[0, 1])],
            Some(PairRings { plan, d_o, .. }) => {
                vec![(of_q.0, of_q.1, &[0]), (d_o.producer(), plan.do_ring, &[1])]
            }
        };
        self.each_block(Reader::Draws, |kernel| {
            let bytes = f.constant(plan.rings.kv.transaction_bytes());
            if plan.walks() {
                kv.produce(bytes, |stage| kernel.load_keys(stage));
            } else {
                kv.fill(bytes, |stage| kernel.load_keys(stage));
            }
            kernel.load_queries(&rings);
        });
    }
}

/// A ring, its plan, and which of Q and dO are in it.
type Loading<'f> = (Position<'f>, RingPlan, &'static [usize]);

impl<'f> Kernel<'_, 'f> {
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
        if !self.plan.spec.deterministic {
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

    /// Loads K and V of the block.
    fn load_keys(&self, stage: Stage<'f>) {
        let Self { f, plan, keys, .. } = self;
        let first = self.place(1, keys.first);
        let [k, v] = plan.tiles.keys;
        for (tile, map) in [(k, "k_map"), (v.at(plan.rings.kv.offset(1)), "v_map")] {
            TensorCopy::new(tile).load_head(f, stage, (f.parameter(map), keys.head), first);
        }
    }

    /// Loads Q and dO of each tile.
    fn load_queries(&self, rings: &[Loading<'f>]) {
        let Self { f, plan, .. } = self;
        let line = plan.spec.tile[0] * LINE;
        let maps = [["q_map", "exponents"], ["do_map", "row_sums"]];
        self.each_tile(|of| {
            for (ring, numbers, tensors) in rings {
                ring.produce(f.constant(numbers.transaction_bytes()), |stage| {
                    for (slot, &i) in (0..).zip(*tensors) {
                        let [map, of_rows] = maps[i].map(|name| f.parameter::<u64>(name));
                        let tile = plan.tiles.queries[i].at(numbers.offset(slot));
                        let place = self.place(0, of.first);
                        TensorCopy::new(tile).load_head(f, stage, (map, of.head), place);
                        let load = BulkLoad {
                            src: of_rows + of.index.mul_wide(line),
                            dst: stage.address + numbers.offset(tensors.len() + slot),
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
