//! The consumers: scores, weights, and their products with values.

use std::cell::OnceCell;

use collective::pipeline::Stage;
use collective::queue::QueueRole;
use collective::skeleton;
use collective::{Consumer, Fragments, WarpgroupMma};
use ptx::{Builder, Value, Var};

use super::softmax::{BOTH, FIRST, Relation, SECOND, Softmax, Statistics};
use super::store::Store;
use super::{CurrentTile, Kernel, Positions, QueryTile};

/// What a consumer multiplies with.
struct Consuming<'a, 'f> {
    kernel: &'a Kernel<'a, 'f>,
    consumer: Consumer<'f>,
    positions: Positions<'f>,
    scores: WarpgroupMma<'f, f32>,
    values: WarpgroupMma<'f, f32>,
    /// The weights, as operand A.
    weights: Fragments<'f>,
    softmax: Softmax<'f>,
    /// The stage of the tile's queries.
    q: Held<'f>,
    /// The block of keys whose weights were computed last.
    block: Var<'f, u32>,
}

impl<'f> Kernel<'_, 'f> {
    /// Emitted for a consumer warpgroup: computes each tile.
    pub(super) fn consume(&self, consumer: Consumer<'f>) {
        let Self { f, plan, .. } = *self;
        // (QUERIES, KEYS) = (QUERIES, D) * (KEYS, D), (QUERIES, DV) += (QUERIES, KEYS) * (DV, KEYS)
        let scores = WarpgroupMma::<f32>::new(f, plan.scores, consumer.part);
        let values = WarpgroupMma::<f32>::new(f, plan.values, consumer.part);
        let weights = Fragments::new(f, plan.values, consumer);
        let zero = f.constant(0);
        let fragments = [scores.fragment(consumer, [zero; 2]), values.fragment(consumer, [zero; 2])];
        let softmax = Softmax::new(f, (plan.spec.format, self.scores), fragments.each_ref(), None);
        let store = Store::new(self, consumer, values.fragment(consumer, [zero; 2]));
        let positions = self.rings.map(|ring| ring.consumer());
        let (q, block) = (Held::new(f), f.variable(0u32));
        let of = Consuming { kernel: self, consumer, positions, scores, values, weights, softmax, q, block };
        let (walk, share) = (self.walk(QueueRole::Reader), self.early_share(consumer));
        let of_cluster = plan.cluster.map(|of| (of, self.query_tile(walk.index())));
        consumer.turns.start();
        let tile = self.tile_at(&walk);
        f.if_(walk.is_at_tile(), || {
            let tile = CurrentTile::new(f, tile);
            let finish = |statistics: &[Statistics<'f>], v: Stage<'f>| {
                f.wgmma_wait(0);
                consumer.release.arrive(v.empty);
                if plan.cluster.is_some() {
                    // All have read the operands where the part is left.
                    skeleton::meet_consumers(f, plan.cta);
                }
                of.softmax.finish(self, tile.get(), statistics, consumer);
                store.store(tile.get(), of.q.stage());
                self.arrive(tile.get(), consumer);
            };
            of.first(tile.get());
            if walk.is_alone() {
                of.blocks(tile.get(), &store);
                let v = of.last();
                return finish(&of.softmax.statistics(), v);
            }
            f.loop_(|| {
                of.blocks(tile.get(), &store);
                walk.advance();
                if plan.overlaps {
                    let next = self.tile_at(&walk);
                    f.break_if(!walk.is_at_tile());
                    of.boundary(next, &tile, &finish);
                } else {
                    let v = of.last();
                    // Computed while the last product runs.
                    let next = self.tile_at(&walk);
                    finish(&of.softmax.statistics(), v);
                    f.break_if(!walk.is_at_tile());
                    tile.set(next);
                    of.first(next);
                }
            });
            if plan.overlaps {
                let v = of.last();
                finish(&of.softmax.statistics(), v);
            }
        });
        consumer.turns.finish();
        store.finish();
        match of_cluster {
            None => self.merge(consumer, share),
            Some((of, unit)) => self.merge_in_cluster(of, consumer, &unit),
        }
    }
}

/// A stage in variables, from one tile or step to the next.
pub(super) struct Held<'f> {
    f: &'f Builder,
    /// Address and empty barrier, from the first stage on.
    place: OnceCell<[Var<'f, u32>; 2]>,
}

impl<'f> Held<'f> {
    pub(super) fn new(f: &'f Builder) -> Self {
        Self { f, place: OnceCell::new() }
    }

    pub(super) fn set(&self, stage: Stage<'f>) {
        let place = [stage.address, stage.empty];
        match self.place.get() {
            Some(held) => held.iter().zip(place).for_each(|(held, value)| held.set(value)),
            None => drop(self.place.set(place.map(|value| self.f.variable(value)))),
        }
    }

    pub(super) fn stage(&self) -> Stage<'f> {
        let [address, empty] = match self.place.get() {
            Some(held) => held.each_ref().map(|held| held.get()),
            None => {
                self.f.refuse("a stage is acquired before it is used");
                [self.f.constant(0); 2]
            }
        };
        Stage { address, full: empty, empty }
    }
}

/// Ends a tile: called with the statistics of its rows and the stage of its last values.
type Finish<'a, 'f> = &'a dyn Fn(&[Statistics<'f>], Stage<'f>);

impl<'f> Consuming<'_, 'f> {
    /// Starts the scores of a block of keys.
    fn multiply_keys(&self, q: Stage<'f>, k: Stage<'f>) {
        let f = self.kernel.f;
        let operands = self.scores.find_in([q, k]);
        f.wgmma_fence();
        operands.issue(false);
        f.wgmma_commit();
    }

    /// The weights of a tile's last block, the first one that is multiplied.
    fn first(&self, unit: QueryTile<'f>) {
        let f = self.kernel.f;
        let (q, k) = (self.positions[0].acquire(), self.positions[1].acquire());
        self.q.set(q);
        self.consumer.turns.begin();
        self.multiply_keys(q, k);
        self.consumer.turns.pass();
        self.values.clear();
        f.wgmma_wait(0);
        self.consumer.release.arrive(k.empty);
        let relations = self.begin(unit);
        self.softmax.weigh(&relations, BOTH);
        self.weights.pack(self.scores.accumulators());
    }

    /// Begins a tile with the scores of its last block. Returns what its weights are relative to.
    fn begin(&self, unit: QueryTile<'f>) -> Vec<Relation<'f>> {
        let softmax = &self.softmax;
        let block = unit.blocks[1] - 1;
        self.block.set(block);
        softmax.begin(self.kernel, unit);
        softmax.score_any(self.kernel, unit, block);
        let [to_log2, _] = self.kernel.to_exponents(&unit);
        softmax.relate(to_log2, false)
    }

    /// Multiplies a tile's blocks, from the last to the first, except for the values of the first.
    fn blocks(&self, unit: QueryTile<'f>, store: &Store<'_, 'f>) {
        let f = self.kernel.f;
        let QueryTile { blocks: [begin, _], whole: [whole, whole_end], from_first, .. } = unit;
        let walk = |until: Value<'f, u32>, masked: bool| {
            f.while_(
                || self.block.get().more_than(until),
                || {
                    self.block.set(self.block.get() - 1);
                    self.next(unit, masked);
                    store.release(true);
                },
            );
        };
        // The last block is one of those after `whole`, if there are any.
        if self.kernel.scores.masks() {
            walk(whole_end, true);
        }
        walk(whole, false);
        if self.kernel.scores.masks() && !from_first {
            walk(begin, true);
        }
        store.release(false);
    }

    /// The weights of a block, while the values of the block after it are multiplied.
    fn next(&self, unit: QueryTile<'f>, masked: bool) {
        let (f, softmax, release) = (self.kernel.f, &self.softmax, &self.consumer.release);
        let k = self.positions[1].acquire();
        let v = self.multiply_both(self.q.stage(), k);
        f.wgmma_wait(1);
        release.arrive(k.empty);
        softmax.score(self.kernel, unit, self.block.get(), masked);
        let [to_log2, _] = self.kernel.to_exponents(&unit);
        let relations = softmax.relate(to_log2, self.kernel.plan.spec.lazy);
        // The product is there when a thread's first row has its weights. The weights of both are packed where it read the last ones.
        softmax.weigh(&relations, FIRST);
        softmax.settle();
        f.wgmma_wait(0);
        release.arrive(v.empty);
        if self.kernel.plan.rescales_last {
            softmax.weigh(&relations, SECOND);
            softmax.rescale_kept(&relations);
        } else {
            softmax.rescale_kept(&relations);
            softmax.weigh(&relations, SECOND);
        }
        self.weights.pack(self.scores.accumulators());
    }

    /// As `next`, from the first block of a tile to the last block of the next tile.
    fn boundary(&self, next: QueryTile<'f>, tile: &CurrentTile<'f>, finish: Finish<'_, 'f>) {
        let f = self.kernel.f;
        let (q, k) = (self.positions[0].acquire(), self.positions[1].acquire());
        let v = self.multiply_both(q, k);
        f.wgmma_wait(1);
        self.consumer.release.arrive(k.empty);
        let statistics = self.softmax.statistics();
        let relations = self.begin(next);
        self.softmax.weigh(&relations, FIRST);
        self.softmax.settle();
        finish(&statistics, v);
        self.softmax.weigh(&relations, SECOND);
        self.values.clear();
        self.weights.pack(self.scores.accumulators());
        self.q.set(q);
        tile.set(next);
    }

    /// In the consumer's turn, starts the scores of a block and the product of the last weights. Returns the stage
    /// of values.
    fn multiply_both(&self, q: Stage<'f>, k: Stage<'f>) -> Stage<'f> {
        self.consumer.turns.begin();
        self.multiply_keys(q, k);
        let v = self.positions[2].acquire();
        self.values.multiply_registers(&self.weights, v, true);
        self.consumer.turns.pass();
        v
    }

    /// Starts the product of the last weights of all. Returns the stage of values.
    fn last(&self) -> Stage<'f> {
        let v = self.positions[2].acquire();
        self.values.multiply_registers(&self.weights, v, true);
        v
    }
}
