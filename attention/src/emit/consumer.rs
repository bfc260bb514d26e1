//! The consumers: scores, weights, and their products with values.

use collective::pipeline::Stage;
use collective::{Consumer, Fragments, Plan, WarpgroupMma, WorkUnit};
use ptx::Value;

use super::softmax::Softmax;
use super::store::Store;
use super::{Kernel, Positions, QueryTile};

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
}

/// The turns of the consumers: named barriers after those of the consumers themselves. A consumer takes one turn
/// per block of keys, and passes the turn on when it has started its instructions.
#[derive(Clone, Copy)]
struct Turns<'a, 'f> {
    kernel: &'a Kernel<'a, 'f>,
    warpgroup: Value<'f, u32>,
}

/// Threads that meet at the barrier of a turn: those that wait for it, and those that pass it.
const OF_TURN: u32 = 2 * 128;

impl<'f> Turns<'_, 'f> {
    fn taken(&self) -> bool {
        self.kernel.plan.spec.turns && self.kernel.plan.consumers > 1
    }

    fn barrier(&self, warpgroup: Value<'f, u32>) -> Value<'f, u32> {
        warpgroup + (Plan::CONSUMER_BARRIER + self.kernel.plan.consumers)
    }

    /// Before the first tile: consumer 0 has the first turn.
    fn begin(&self) {
        if self.taken() {
            let last = self.warpgroup.equals(self.kernel.plan.consumers - 1);
            self.kernel.f.if_(last, || self.pass());
        }
    }

    fn wait(&self) {
        if self.taken() {
            self.kernel.f.barrier_sync(self.barrier(self.warpgroup), OF_TURN);
        }
    }

    fn pass(&self) {
        if self.taken() {
            let (f, next) = (self.kernel.f, self.warpgroup + 1);
            let next = f.constant(0).where_or(next.equals(self.kernel.plan.consumers), next);
            f.barrier_arrive(self.barrier(next), OF_TURN);
        }
    }

    /// After the last tile: nobody waits for the turn that was passed last.
    fn finish(&self) {
        if self.taken() {
            self.kernel.f.if_(self.warpgroup.equals(0), || self.wait());
        }
    }
}

impl<'f> Kernel<'_, 'f> {
    /// Emitted for a consumer warpgroup: computes each tile.
    pub(super) fn consume(&self, consumer: Consumer<'f>) {
        let Self { f, plan, .. } = *self;
        let planned = "the plan has checked the tiles";
        let [q, k, v] = plan.tiles;
        let scores = WarpgroupMma::<f32>::new(f, &plan.scores, [q, k], consumer.part).expect(planned);
        let values =
            WarpgroupMma::<f32>::new(f, &plan.values, [plan.weights, v], consumer.part).expect(planned);
        let weights = Fragments::new(f, &plan.values, plan.weights, consumer).expect(planned);
        let zero = f.constant(0);
        let tile = WorkUnit {
            m: zero,
            n: zero,
            k_begin: zero,
            k_end: zero,
            columns: None,
            group: None,
            record: None,
        };
        let softmax = Softmax::new(f, &scores.fragment(consumer, tile), &values.fragment(consumer, tile));
        let store = Store::new(self, consumer, values.fragment(consumer, tile));
        let positions = self.rings.map(|ring| ring.consumer());
        let turns = Turns { kernel: self, warpgroup: consumer.warpgroup };
        let of = Consuming { kernel: self, consumer, positions, scores, values, weights, softmax };
        turns.begin();
        self.each_tile(|unit| {
            of.softmax.begin();
            of.values.clear();
            let [begin, end] = unit.blocks;
            let q = of.positions[0].acquire();
            f.if_else(begin.less_than(end), || of.blocks(turns, unit, q, &store), || store.release());
            of.softmax.finish(self, unit, consumer.thread);
            store.store(unit, q);
        });
        turns.finish();
        store.finish();
    }
}

impl<'f> Consuming<'_, 'f> {
    /// Multiplies all blocks of a tile, from the last to the first.
    fn blocks(&self, turns: Turns<'_, 'f>, unit: QueryTile<'f>, q: Stage<'f>, store: &Store<'_, 'f>) {
        let f = self.kernel.f;
        let QueryTile { blocks: [begin, end], whole: [whole, whole_end], from_first, .. } = unit;
        let block = f.variable(end - 1);
        self.first(turns, unit, q, block.get());
        store.release();
        let walk = |until: Value<'f, u32>, masked: bool| {
            f.while_(
                || block.get().more_than(until),
                || {
                    block.set(block.get() - 1);
                    self.next(turns, unit, q, block.get(), masked);
                },
            );
        };
        // The first block is one of those after `whole`, if there are any.
        if self.kernel.scores.masks() {
            walk(whole_end, true);
        }
        walk(whole, false);
        if self.kernel.scores.masks() && !from_first {
            walk(begin, true);
        }
        // Only weights are left.
        let v = self.positions[2].acquire();
        self.values.multiply_registers(&self.weights, v, true);
        f.wgmma_wait(0);
        self.consumer.release.arrive(v.empty);
    }

    /// The weights of the first block of a tile.
    fn first(&self, turns: Turns<'_, 'f>, unit: QueryTile<'f>, q: Stage<'f>, block: Value<'f, u32>) {
        let (f, softmax) = (self.kernel.f, &self.softmax);
        let k = self.positions[1].acquire();
        turns.wait();
        let operands = self.scores.find_in([q, k]);
        f.wgmma_fence();
        operands.issue(false);
        f.wgmma_commit();
        turns.pass();
        f.wgmma_wait(0);
        self.consumer.release.arrive(k.empty);
        let [begin, end] = unit.whole;
        let whole = block.at_least(begin) & block.less_than(end);
        if self.kernel.scores.changes() {
            softmax.score(self.kernel, unit, block, true);
        } else {
            f.if_(!whole, || softmax.score(self.kernel, unit, block, true));
        }
        softmax.weigh(self.kernel.parameters.to_log2);
        self.weights.pack(self.scores.accumulators());
    }

    /// The weights of a block, while the values of the block before are multiplied.
    fn next(
        &self,
        turns: Turns<'_, 'f>,
        unit: QueryTile<'f>,
        q: Stage<'f>,
        block: Value<'f, u32>,
        masked: bool,
    ) {
        let (f, softmax, release) = (self.kernel.f, &self.softmax, &self.consumer.release);
        let k = self.positions[1].acquire();
        turns.wait();
        let scores = self.scores.find_in([q, k]);
        f.wgmma_fence();
        scores.issue(false);
        f.wgmma_commit();
        let v = self.positions[2].acquire();
        self.values.multiply_registers(&self.weights, v, true);
        turns.pass();
        f.wgmma_wait(1);
        release.arrive(k.empty);
        softmax.score(self.kernel, unit, block, masked);
        let factors = softmax.weigh(self.kernel.parameters.to_log2);
        f.wgmma_wait(0);
        release.arrive(v.empty);
        softmax.rescale(&factors);
        self.weights.pack(self.scores.accumulators());
    }
}
