//! Heads of V of 512 elements: two consumers with the same queries, each with half of O's columns.
//!
//! Blocks of keys come in pairs, of which each consumer has one. It multiplies all queries by its block, computes the weights, and hands them
//! to the other one in the stage of K's last columns, which the scores need no more: in latent attention, where V is a part of K, V does not have these. Both multiply the weights of both blocks, one after the other,
//! by their columns of V: their own weights from registers. The *first* consumer is half a pair ahead of the *second*:
//!
//! | the first one | the second one |
//! |---|---|
//! | weights of block 0 | scores of block 1 |
//! | O += weights of block 0 | O += weights of block 0 |
//! | | weights of block 1, meanwhile |
//! | O += weights of block 1 | O += weights of block 1 |
//! | scores of the next block 0 | |
//!
//! So one multiplies while the other computes weights, and slabs of block 0 are loaded anew while block 1 is multiplied. A consumer's weights
//! are relative to what the other one's were relative to before, or to a larger score, which it tells it; the other one then rescales what it has.
//! Where V is a tensor of its own, K's other slabs are given back when the scores are there. If the number of blocks is odd, the tile ends with a block of the first consumer alone.

use core::ops::Range;

use collective::pipeline::{Position, Stage, StageRun};
use collective::queue::QueueRole;
use collective::skeleton;
use collective::{Consumer, CtaPlan, Fragments, Packed, StagedRows, WarpgroupMma};
use ptx::{Builder, ProxySpace, Value, Var};

use super::softmax::{BOTH, Relation, Softmax};
use super::store::{Store, slab};
use super::{CurrentTile, Kernel, QueryTile};
use crate::plan::HalvesPlan;

/// Threads of both consumers.
const BOTH_CONSUMERS: u32 = 2 * 128;

/// What a thread of a consumer and the thread of the other one that has the same two rows tell each other.
#[derive(Clone, Copy)]
pub(super) struct Exchange<'f> {
    f: &'f Builder,
    cta: CtaPlan,
    /// Addresses of the own two numbers, and of the other thread's.
    own: Value<'f, u32>,
    other: Value<'f, u32>,
}

impl<'f> Exchange<'f> {
    /// Offset of the sums, which are told after the bases.
    fn sums(&self) -> i32 {
        (self.cta.consumers * HalvesPlan::NUMBERS).cast_signed()
    }

    /// Tells what weights are relative to.
    fn tell(&self, bases: &[Value<'f, f32>]) {
        self.store(0, bases);
    }

    /// What the weights of the other consumer are relative to, which it has told.
    fn told(&self) -> [Value<'f, f32>; 2] {
        self.f.load_shared_vector(self.other, 0)
    }

    /// The sums of both consumers. Between two of these, consumers meet once more.
    pub(super) fn added(&self, sums: &[Value<'f, f32>]) -> Vec<Value<'f, f32>> {
        self.store(self.sums(), sums);
        skeleton::meet_consumers(self.f, self.cta);
        let others = self.f.load_shared_vector::<f32, 2>(self.other, self.sums());
        sums.iter().zip(others).map(|(&own, other)| own + other).collect()
    }

    fn store(&self, offset: i32, numbers: &[Value<'f, f32>]) {
        match numbers {
            &[upper, lower] => self.f.store_shared(self.own, offset, [upper, lower]),
            _ => self.f.refuse("a thread has two rows of 64"),
        }
    }
}

/// What a consumer multiplies with.
struct Consuming<'a, 'f> {
    kernel: &'a Kernel<'a, 'f>,
    halves: HalvesPlan,
    consumer: Consumer<'f>,
    keys: Position<'f>,
    /// The position in the ring of V, unless V is a part of K.
    columns: Option<Position<'f>>,
    scores: WarpgroupMma<'f, f32>,
    /// The products of the own weights, and of the other consumer's.
    values: WarpgroupMma<'f, f32>,
    given: WarpgroupMma<'f, f32>,
    /// The own weights, as operand A.
    weights: Fragments<'f>,
    softmax: Softmax<'f>,
    exchange: Exchange<'f>,
    /// The thread's places in a tile of weights.
    places: StagedRows<'f>,
    /// Number of blocks whose weights are not multiplied yet.
    left: Var<'f, u32>,
}

impl<'f> Kernel<'_, 'f> {
    /// The consumer's first column of O.
    pub(super) fn first_column(&self, consumer: Consumer<'f>) -> Value<'f, u32> {
        match self.plan.halves {
            Some(_) => consumer.warpgroup * self.plan.values.spec().tile[1],
            None => self.f.constant(0),
        }
    }

    /// Waits for all consumers that have the same rows.
    pub(super) fn meet(&self, consumer: Consumer<'f>) {
        match self.plan.halves {
            Some(_) => skeleton::meet_consumers(self.f, self.plan.cta),
            None => self.f.barrier_sync(CtaPlan::consumer_barrier(consumer.warpgroup), 128),
        }
    }

    /// Emitted for a consumer warpgroup with half of O's columns: computes each tile.
    pub(super) fn consume_halves(&self, halves: HalvesPlan, consumer: Consumer<'f>) {
        let Self { f, plan, shared, .. } = *self;
        // (QUERIES, KEYS) = (QUERIES, D) * (KEYS, D), (QUERIES, DV / 2) += (QUERIES, KEYS) * (DV / 2, KEYS)
        let [scores, values] =
            [plan.scores, plan.values].map(|of| WarpgroupMma::<f32>::new(f, of, consumer.part));
        let given = values.joined(halves.given, consumer.part);
        let weights = Fragments::new(f, plan.values, consumer);
        let zero = f.constant(0);
        let out = || values.fragment(consumer, [zero, self.first_column(consumer)]);
        let of_scores = scores.fragment(consumer, [zero; 2]);
        let numbers = shared + halves.exchange + consumer.thread * 8;
        let place = |warpgroup: Value<'f, u32>| numbers + warpgroup * HalvesPlan::NUMBERS;
        let exchange = Exchange {
            f,
            cta: plan.cta,
            own: place(consumer.warpgroup),
            other: place(f.constant(1) - consumer.warpgroup),
        };
        let softmax = Softmax::new(f, (plan.spec.format, self.scores), [&of_scores, &out()], Some(exchange));
        let store = Store::new(self, consumer, out());
        let [queries, keys, columns] = self.rings.map(|ring| ring.consumer());
        let (places, _) = slab(&plan.weights, consumer.thread);
        let left = f.variable(0u32);
        let of = Consuming {
            kernel: self,
            halves,
            consumer,
            keys,
            columns: (!plan.spec.is_latent()).then_some(columns),
            scores,
            values,
            given,
            weights,
            softmax,
            exchange,
            places,
            left,
        };
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

/// The stages of a block of keys: those of K, and that of V, if V is no part of K.
#[derive(Clone, Copy)]
struct Block<'f> {
    keys: StageRun<'f>,
    values: Option<StageRun<'f>>,
}

/// Whose block of keys it is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Whose {
    Own,
    Other,
}

/// A consumer.
#[derive(Clone, Copy)]
enum Which {
    First,
    Second,
}

impl Which {
    /// The slabs of a block with its columns of V.
    const fn columns(self) -> Range<u32> {
        let first = HalvesPlan::OF_VALUES * self as u32;
        first..first + HalvesPlan::OF_VALUES
    }
}

impl<'f> Consuming<'_, 'f> {
    /// Multiplies a tile's blocks, from the last to the first.
    fn blocks(&self, unit: QueryTile<'f>, q: Stage<'f>) {
        let f = self.kernel.f;
        let [begin, end] = unit.blocks;
        self.softmax.begin(self.kernel, unit);
        self.values.clear();
        self.left.set(end - begin);
        let is_first = self.consumer.warpgroup.equals(0);
        f.if_else(is_first, || self.first(unit, q), || self.second(unit, q));
    }

    /// Emitted for the first consumer.
    fn first(&self, unit: QueryTile<'f>, q: Stage<'f>) {
        let (f, left) = (self.kernel.f, &self.left);
        let pair = || {
            let [own, other] = [0, 1].map(|i| self.block(i));
            f.wgmma_wait(0);
            let relations = self.weigh(Which::First, unit, own);
            self.hand_over(Which::Second);
            self.softmax.rescale_kept(&relations);
            self.multiply_own(Which::First, own);
            f.wgmma_wait(0);
            self.give_back(own, (Which::First, Whose::Own));
            let relations = self.take_over(Which::First, unit);
            self.softmax.rescale_kept(&relations);
            self.multiply_given(Which::First, other);
        };
        let next = || {
            self.give_back(self.block(1), (Which::First, Whose::Other));
            self.pass(2);
        };
        self.multiply_keys(q, self.block(0), || {});
        f.while_(
            || left.get().more_than(2),
            || {
                pair();
                // Their slabs are given back when the products before them end.
                self.multiply_keys(q, self.block(2), || {
                    f.wgmma_wait(1);
                    next();
                });
            },
        );
        let alone = || {
            let own = self.block(0);
            f.wgmma_wait(0);
            let relations = self.weigh(Which::First, unit, own);
            skeleton::meet_consumers(f, self.kernel.plan.cta);
            self.softmax.rescale_kept(&relations);
            self.multiply_own(Which::First, own);
            f.wgmma_wait(0);
            self.give_back(own, (Which::First, Whose::Own));
            self.pass(1);
        };
        let last = || {
            pair();
            f.wgmma_wait(0);
            next();
        };
        f.if_else(left.get().equals(2), last, alone);
    }

    /// Emitted for the second consumer.
    fn second(&self, unit: QueryTile<'f>, q: Stage<'f>) {
        let (f, left) = (self.kernel.f, &self.left);
        let of_other = (Which::Second, Whose::Other);
        let pair = || {
            let [other, own] = [0, 1].map(|i| self.block(i));
            let relations = self.take_over(Which::Second, unit);
            let given = || self.multiply_given(Which::Second, other);
            // The products queue behind the scores, unless O is to be rescaled.
            let rescales = || {
                f.wgmma_wait(0);
                self.softmax.rescale_by(&relations);
                given();
            };
            let goes_on = || {
                given();
                f.wgmma_wait(1);
            };
            // All warps go the same way.
            let differs = self.softmax.differ(&relations).unwrap_or(f.constant(true));
            f.if_else(f.barrier_any(self.own_barrier(Which::Second), 128, differs), rescales, goes_on);
            let relations = self.weigh(Which::Second, unit, own);
            self.hand_over(Which::First);
            f.wgmma_wait(0);
            self.give_back(other, of_other);
            self.softmax.rescale_kept(&relations);
            self.multiply_own(Which::Second, own);
            f.wgmma_wait(0);
            self.give_back(own, (Which::Second, Whose::Own));
            self.pass(2);
        };
        f.if_(left.get().more_than(1), || {
            self.multiply_keys(q, self.block(1), || {});
            f.while_(
                || left.get().more_than(3),
                || {
                    pair();
                    self.multiply_keys(q, self.block(1), || {});
                },
            );
            pair();
        });
        f.if_(left.get().equals(1), || {
            let other = self.block(0);
            skeleton::meet_consumers(f, self.kernel.plan.cta);
            let relations = self.follow(unit);
            self.softmax.rescale_kept(&relations);
            self.multiply_given(Which::Second, other);
            f.wgmma_wait(0);
            self.give_back(other, of_other);
            self.pass(1);
        });
    }

    /// Block `i` after those that are multiplied.
    fn block(&self, i: u32) -> Block<'f> {
        let keys = self.keys.run(i * self.halves.slabs);
        Block { keys, values: self.columns.map(|columns| columns.run(i)) }
    }

    /// The number of K's last slab of a block, which weights replace.
    fn last(&self) -> u32 {
        self.halves.slabs - 1
    }

    /// The consumer's columns of a block's values.
    fn columns_of(&self, which: Which, block: Block<'f>) -> Stage<'f> {
        let first = which.columns().start;
        match block.values {
            None => block.keys.stage(first),
            Some(values) => {
                let stage = values.acquire(0);
                let slab = self.kernel.plan.rings[2].stage_bytes / (2 * HalvesPlan::OF_VALUES);
                Stage { address: stage.address + first * slab, ..stage }
            }
        }
    }

    /// Goes on to the blocks after these, whose weights are multiplied.
    fn pass(&self, blocks: u32) {
        self.keys.skip(self.kernel.f.constant(blocks * self.halves.slabs));
        if let Some(columns) = self.columns {
            columns.skip(self.kernel.f.constant(blocks));
        }
        self.left.set(self.left.get() - blocks);
    }

    /// Starts the scores of a block, slab by slab. What is emitted `between` comes after the first one.
    fn multiply_keys(&self, q: Stage<'f>, Block { keys: k, .. }: Block<'f>, between: impl FnOnce()) {
        let f = self.kernel.f;
        let steps = self.scores.spec().steps() / self.halves.slabs;
        let operands = self.scores.find_in([q, k.stage(0)]);
        let multiply = |slab: u32| {
            k.acquire(slab);
            f.wgmma_fence();
            operands.clone().part(slab * steps..(slab + 1) * steps).issue(slab > 0);
        };
        multiply(0);
        f.wgmma_commit();
        between();
        (1..self.halves.slabs).for_each(multiply);
        f.wgmma_commit();
    }

    /// The scores of a consumer's block become weights, which are written to shared memory for the other one. Returns what they are relative to,
    /// to which O is to be rescaled.
    fn weigh(&self, which: Which, unit: QueryTile<'f>, own: Block<'f>) -> Vec<Relation<'f>> {
        let (f, kernel, softmax) = (self.kernel.f, self.kernel, &self.softmax);
        if own.values.is_some() {
            self.release((0..self.last()).map(|slab| own.keys.stage(slab)));
        }
        let block = unit.blocks[0] + self.left.get() - (1 + which as u32);
        softmax.score_any(kernel, unit, block);
        let [to_log2, _] = kernel.to_exponents(&unit);
        let relations = softmax.relate(to_log2, kernel.plan.spec.lazy);
        softmax.weigh(&relations, BOTH);
        self.weights.pack(self.scores.accumulators());
        let steps = self.weights.steps(0);
        let pairs = |row: usize| -> Vec<Packed<'f>> {
            steps.iter().flat_map(|of| [of[row], of[row + 2]]).map(|word| Packed::Word(word.get())).collect()
        };
        // All warps have read the columns that the weights replace.
        f.barrier_sync(self.own_barrier(which), 128);
        self.places.fill(f, own.keys.stage(self.last()).address, [&pairs(0), &pairs(1)]);
        self.exchange.tell(&softmax.bases());
        f.fence_proxy_async(ProxySpace::Shared);
        relations
    }

    /// Says to the other consumer that there are weights for it.
    fn hand_over(&self, to: Which) {
        self.kernel.f.barrier_arrive(self.barrier(to), BOTH_CONSUMERS);
    }

    /// Waits until the other consumer has weights for this one. Returns what they are relative to, to which O is to be rescaled.
    fn take_over(&self, as_which: Which, unit: QueryTile<'f>) -> Vec<Relation<'f>> {
        self.kernel.f.barrier_sync(self.barrier(as_which), BOTH_CONSUMERS);
        self.follow(unit)
    }

    /// The same when it has told.
    fn follow(&self, unit: QueryTile<'f>) -> Vec<Relation<'f>> {
        let [to_log2, _] = self.kernel.to_exponents(&unit);
        self.softmax.follow(to_log2, self.exchange.told())
    }

    /// The named barrier of a consumer's threads alone.
    fn own_barrier(&self, of: Which) -> Value<'f, u32> {
        CtaPlan::consumer_barrier(self.kernel.f.constant(of as u32))
    }

    /// The named barrier at which a consumer waits for weights.
    fn barrier(&self, of: Which) -> u32 {
        self.kernel.plan.cta.own_barriers().start + 1 + of as u32
    }

    /// Starts the product of the own weights with the consumer's columns of their values.
    fn multiply_own(&self, which: Which, own: Block<'f>) {
        self.values.multiply_registers(&self.weights, self.columns_of(which, own), true);
    }

    /// The same of the weights of the other consumer.
    fn multiply_given(&self, which: Which, other: Block<'f>) {
        let f = self.kernel.f;
        let weights = other.keys.stage(self.last());
        let operands = self.given.find_in([weights, self.columns_of(which, other)]);
        f.wgmma_fence();
        operands.issue(true);
        f.wgmma_commit();
    }

    /// Gives back what the consumer has read of a block's values, and with them the weights of the other consumer.
    fn give_back(&self, of: Block<'f>, (which, whose): (Which, Whose)) {
        match of.values {
            None => self.release(which.columns().map(|slab| of.keys.stage(slab))),
            Some(values) => self.release([values.stage(0)]),
        }
        if whose == Whose::Other {
            self.release([of.keys.stage(self.last())]);
        }
    }

    /// Gives stages back.
    fn release(&self, stages: impl IntoIterator<Item = Stage<'f>>) {
        stages.into_iter().for_each(|stage| self.consumer.release.arrive(stage.empty));
    }
}
