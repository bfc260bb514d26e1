//! Latent attention: two consumers with the same queries, each with half of O's columns.
//!
//! Blocks of keys come in pairs, of which each consumer has one. It multiplies all queries by its block, both exchange the largest
//! scores, and each writes its weights over those columns of its block that V does not have. Then both multiply the weights of both
//! blocks by their columns of V. If the number of blocks is odd, the first one is alone: the second consumer sees none of its keys.

use collective::pipeline::{Position, Stage};
use collective::queue::QueueRole;
use collective::skeleton;
use collective::{Consumer, CtaPlan, StagedRows, WarpgroupMma};
use ptx::{Builder, ProxySpace, Value, Var};

use super::consumer::Held;
use super::softmax::{BOTH, Softmax};
use super::store::{Store, slab};
use super::{CurrentTile, Kernel, QueryTile};
use crate::plan::LatentPlan;

/// What a thread of a consumer and the thread of the other one that has the same two rows tell each other.
pub(super) struct Exchange<'f> {
    f: &'f Builder,
    cta: CtaPlan,
    /// Addresses of the own two numbers, and of the other thread's.
    own: Value<'f, u32>,
    other: Value<'f, u32>,
}

impl<'f> Exchange<'f> {
    /// A number of each row, of both consumers together. Between two exchanges of the same kind, `0` or `1`, consumers meet once more.
    pub(super) fn joined(
        &self,
        kind: u32,
        numbers: &[Value<'f, f32>],
        of: impl Fn(Value<'f, f32>, Value<'f, f32>) -> Value<'f, f32>,
    ) -> Vec<Value<'f, f32>> {
        let (f, offset) = (self.f, (kind * self.cta.consumers * LatentPlan::NUMBERS).cast_signed());
        let &[upper, lower] = numbers else {
            f.refuse("a thread has two rows of 64");
            return numbers.to_vec();
        };
        f.store_shared(self.own, offset, [upper, lower]);
        skeleton::meet_consumers(f, self.cta);
        let others = f.load_shared_vector::<f32, 2>(self.other, offset);
        numbers.iter().zip(others).map(|(&own, other)| of(own, other)).collect()
    }
}
/// What a consumer multiplies with.
struct Consuming<'a, 'f> {
    kernel: &'a Kernel<'a, 'f>,
    plan: LatentPlan,
    consumer: Consumer<'f>,
    keys: Position<'f>,
    scores: WarpgroupMma<'f, f32>,
    values: WarpgroupMma<'f, f32>,
    softmax: Softmax<'f>,
    /// The thread's places in a tile of weights.
    weights: StagedRows<'f>,
    /// Number of blocks that are not multiplied yet, with those before the tile's first one.
    left: Var<'f, u32>,
}

impl<'f> Kernel<'_, 'f> {
    /// The consumer's first column of O.
    pub(super) fn first_column(&self, consumer: Consumer<'f>) -> Value<'f, u32> {
        match self.plan.latent {
            Some(_) => consumer.warpgroup * self.plan.values.spec().tile[1],
            None => self.f.constant(0),
        }
    }

    /// Waits for all consumers that have the same rows.
    pub(super) fn meet(&self, consumer: Consumer<'f>) {
        match self.plan.latent {
            Some(_) => skeleton::meet_consumers(self.f, self.plan.cta),
            None => self.f.barrier_sync(CtaPlan::consumer_barrier(consumer.warpgroup), 128),
        }
    }

    /// Emitted for a consumer warpgroup of latent attention: computes each tile.
    pub(super) fn consume_latent(&self, latent: LatentPlan, consumer: Consumer<'f>) {
        let Self { f, plan, shared, .. } = *self;
        // (QUERIES, KEYS) = (QUERIES, D) * (KEYS, D), (QUERIES, DV / 2) += (QUERIES, KEYS) * (DV / 2, KEYS)
        let [scores, values] =
            [plan.scores, plan.values].map(|of| WarpgroupMma::<f32>::new(f, of, consumer.part));
        let zero = f.constant(0);
        let out = || values.fragment(consumer, [zero, self.first_column(consumer)]);
        let of_scores = scores.fragment(consumer, [zero; 2]);
        let numbers = shared + latent.exchange + consumer.thread * 8;
        let place = |warpgroup: Value<'f, u32>| numbers + warpgroup * LatentPlan::NUMBERS;
        let exchange = Exchange {
            f,
            cta: plan.cta,
            own: place(consumer.warpgroup),
            other: place(f.constant(1) - consumer.warpgroup),
        };
        let softmax = Softmax::new(f, plan.spec.format, [&of_scores, &out()], Some(exchange));
        let store = Store::new(self, consumer, out());
        let [queries, keys, _] = self.rings.map(|ring| ring.consumer());
        let (weights, _) = slab(&plan.weights, consumer.thread);
        let left = f.variable(0u32);
        let of =
            Consuming { kernel: self, plan: latent, consumer, keys, scores, values, softmax, weights, left };
        let (walk, share) = (self.walk(QueueRole::Reader), self.early_share(consumer));
        let tile = self.tile_at(&walk);
        f.if_(walk.is_at_tile(), || {
            let tile = CurrentTile::new(f, tile);
            f.loop_(|| {
                let (unit, q) = (tile.get(), queries.acquire());
                of.blocks(unit, q);
                of.softmax.finish(self, unit, &of.softmax.statistics(), consumer);
                store.store(unit, q);
                self.arrive(unit, consumer);
                walk.advance();
                let next = self.tile_at(&walk);
                f.break_if(!walk.is_at_tile());
                tile.set(next);
            });
        });
        store.finish();
        self.merge(consumer, share);
    }
}

impl<'f> Consuming<'_, 'f> {
    /// Multiplies a tile's blocks, from the last to the first.
    fn blocks(&self, unit: QueryTile<'f>, q: Stage<'f>) {
        let (f, left) = (self.kernel.f, &self.left);
        let QueryTile { blocks: [begin, end], lengths: [_, keys], .. } = unit;
        let second = self.consumer.warpgroup;
        self.softmax.begin();
        self.values.clear();
        left.set(end);
        f.if_(((end - begin) & 1).equals(1), || {
            let k = self.keys.acquire();
            self.multiply_keys([q, k]);
            f.wgmma_wait(0);
            // The block after the last key has none that is seen.
            let beyond = keys.div_ceil(self.kernel.plan.spec.tile[1]);
            let is_first = second.equals(0);
            self.weigh(unit, (end - 1).where_or(is_first, beyond), |rows| {
                f.if_(is_first, || self.write(k, rows));
            });
            self.multiply_values(&[k]);
            f.wgmma_wait(0);
            self.consumer.release.arrive(k.empty);
            left.set(end - 1);
        });
        f.if_(left.get().more_than(begin), || {
            let held = [Held::new(f), Held::new(f)];
            let release = || held.iter().for_each(|k| self.consumer.release.arrive(k.stage().empty));
            let own = |[a, b]: [Stage<'f>; 2]| {
                let address = a.address.where_or(second.equals(0), b.address);
                Stage { address, ..a }
            };
            let next = || {
                let pair = [self.keys.acquire(), self.keys.acquire()];
                self.multiply_keys([q, own(pair)]);
                pair
            };
            held.iter().zip(next()).for_each(|(held, k)| held.set(k));
            f.wgmma_wait(0);
            let step = || {
                let pair = held.each_ref().map(Held::stage);
                left.set(left.get() - 2);
                self.weigh(unit, left.get() + 1 - second, |rows| self.write(own(pair), rows));
                self.multiply_values(&pair);
            };
            f.while_(
                || left.get().more_than(begin + 2),
                || {
                    step();
                    // The scores of the next pair begin when these products end, whose stages are released in time for the pair after it.
                    let pair = next();
                    f.wgmma_wait(1);
                    release();
                    held.iter().zip(pair).for_each(|(held, k)| held.set(k));
                    f.wgmma_wait(0);
                },
            );
            step();
            f.wgmma_wait(0);
            release();
        });
    }

    /// Starts the scores of a block.
    fn multiply_keys(&self, stages: [Stage<'f>; 2]) {
        let f = self.kernel.f;
        let operands = self.scores.find_in(stages);
        f.wgmma_fence();
        operands.issue(false);
        f.wgmma_commit();
    }

    /// The scores of a block become weights, which `write` writes to shared memory, and O is rescaled. Products with the weights of
    /// both consumers may begin.
    fn weigh(
        &self,
        unit: QueryTile<'f>,
        block: Value<'f, u32>,
        write: impl FnOnce([&[collective::Packed<'f>]; 2]),
    ) {
        let (f, kernel, softmax) = (self.kernel.f, self.kernel, &self.softmax);
        softmax.score_any(kernel, unit, block);
        let [to_log2, _] = kernel.to_exponents(&unit);
        let relations = softmax.relate(to_log2, kernel.plan.spec.lazy);
        softmax.weigh(&relations, BOTH);
        if let [upper, lower] = &softmax.packed(kernel.plan.spec.format)[..] {
            write([upper, lower]);
        }
        f.fence_proxy_async(ProxySpace::Shared);
        softmax.rescale_kept(&relations);
        skeleton::meet_consumers(f, kernel.plan.cta);
    }

    /// Writes weights into the stage of their block.
    fn write(&self, k: Stage<'f>, rows: [&[collective::Packed<'f>]; 2]) {
        self.weights.fill(self.kernel.f, k.address + self.plan.weights, rows);
    }

    /// Starts the products of the weights of blocks with the consumer's columns of their values, which are in the same stages.
    fn multiply_values(&self, blocks: &[Stage<'f>]) {
        let f = self.kernel.f;
        let [_, _, v] = self.kernel.plan.tiles;
        let columns = self.consumer.warpgroup * v.room().bytes;
        let operands: Vec<_> = blocks
            .iter()
            .map(|&k| self.values.find_in([k, Stage { address: k.address + columns, ..k }]))
            .collect();
        f.wgmma_fence();
        operands.iter().for_each(|operands| operands.issue(true));
        f.wgmma_commit();
    }
}
