//! Two consumers with the same 64 keys: heads of more than 128 elements, of which the registers of a consumer hold dV or dK.
//!
//! The first consumer computes the scores and P, which it passes on, and keeps dV. The second one computes the gradients of P and dS,
//! and keeps dK. Each multiplies dS, which is in shared memory, by its columns of K.

use collective::pipeline::{Position, Stage};
use collective::{Consumer, CtaPlan, Fragments, ProductSpec, WarpgroupMma, store_fours};
use ptx::{ProxySpace, Value, Var};

use super::blocks::Reader;
use super::consumer::{Rows, consumer, fragment, weigh};
use super::parts::{Parts, TileParts};
use super::{Kernel, PairRings, Roles};
use crate::backward::plan::PairPlan;
use crate::emit::slab;

/// What both consumers have.
struct Consuming<'a, 'f> {
    kernel: &'a Kernel<'a, 'f>,
    plan: PairPlan,
    consumer: Consumer<'f>,
    /// K and V.
    k: Stage<'f>,
    v: Stage<'f>,
    q: Position<'f>,
    d_o: Position<'f>,
    /// dS, as it is read.
    ds: Position<'f>,
    dq: Parts<'f>,
}

/// A consumer's columns of dQ.
struct Columns<'f> {
    product: WarpgroupMma<'f, f32>,
    /// Whether the last part of a tile was not handed over yet.
    held: Var<'f, u32>,
    /// The tile's parts of dQ, and the first of them that is the consumer's.
    of_tile: TileParts<'f>,
    first: u32,
}

impl<'f> Columns<'f> {
    /// What is added at once.
    fn parts(&self) -> Vec<Vec<Var<'f, f32>>> {
        let sums: Vec<_> = self.product.accumulators().iter().flatten().copied().collect();
        sums.chunks((PairPlan::COLUMNS / 2) as usize).map(<[_]>::to_vec).collect()
    }
}

impl<'f> Roles<'_, 'f> {
    /// Emitted for a consumer warpgroup of a pair.
    pub(super) fn consume_pair(&self, rings: PairRings<'f>, warpgroup: Value<'f, u32>) {
        let of_block = |kernel: &Kernel<'_, 'f>| self.multiply_pair(kernel, rings, warpgroup);
        self.each_block_or(Reader::Warps, of_block, || self.meet_without_block());
    }

    fn multiply_pair(&self, kernel: &Kernel<'_, 'f>, rings: PairRings<'f>, warpgroup: Value<'f, u32>) {
        let Self { f, plan, shared, .. } = *self;
        let k = self.kv_ring.consumer().acquire();
        let of = Consuming {
            kernel,
            plan: rings.plan,
            consumer: consumer(f, shared, warpgroup, 1),
            k,
            v: Stage { address: k.address + plan.rings.kv.offset(1), ..k },
            q: self.q_ring.consumer(),
            d_o: rings.d_o.consumer(),
            ds: rings.ds.consumer(),
            dq: self.dq,
        };
        let (values, keys) = (
            || of.values(rings.p.stage(f.constant(0))),
            || of.keys(rings.p.consumer(), rings.ds.stage(f.constant(0))),
        );
        f.if_else(warpgroup.equals(0), values, keys);
    }
}

impl<'f> Consuming<'_, 'f> {
    fn product(&self, product: ProductSpec) -> WarpgroupMma<'f, f32> {
        WarpgroupMma::new(self.kernel.f, product, self.consumer.part)
    }

    /// P or dS of a tile as operand A of the product for dK (0) or dV (1), and that product.
    fn sums(&self, i: usize) -> (Fragments<'f>, WarpgroupMma<'f, f32>) {
        let product = self.kernel.plan.products.sums[i];
        (Fragments::new(self.kernel.f, product, self.consumer), self.product(product))
    }

    /// The scores (0) or the gradients of P (1).
    fn scores(&self, i: usize) -> WarpgroupMma<'f, f32> {
        self.product(self.kernel.plan.products.scores[i])
    }

    /// The columns of dQ of the first (0) or the second (1) consumer.
    fn columns(&self, i: usize) -> Columns<'f> {
        Columns {
            product: self.product(self.plan.dq[i]),
            held: self.kernel.f.variable(0u32),
            of_tile: self.dq.first_tile(),
            first: self.plan.first_part(i),
        }
    }

    /// Starts a product whose operands are in these stages.
    fn start(&self, product: &WarpgroupMma<'f, f32>, stages: [Stage<'f>; 2]) {
        let (f, operands) = (self.kernel.f, product.find_in(stages));
        f.wgmma_fence();
        operands.issue(false);
        f.wgmma_commit();
    }

    /// Starts a product beside which columns of dQ are handed over.
    fn start_beside(&self, product: &WarpgroupMma<'f, f32>, stages: [Stage<'f>; 2]) {
        self.start(product, stages);
        // Nothing is in flight before it. Without this, the assembler waits for it before it stores the columns.
        self.kernel.f.wgmma_wait(1);
    }

    /// Multiplies dS by the consumer's columns of K, and hands the columns to the thread that adds them, apart from the last part.
    /// `before` is the empty barrier of what the product before has read.
    fn multiply_dq(&self, columns: &Columns<'f>, before: Value<'f, u32>) {
        let (f, release) = (self.kernel.f, self.consumer.release);
        let ds = self.ds.acquire();
        self.start(&columns.product, [ds, self.k]);
        f.wgmma_wait(1);
        release.arrive(before);
        f.wgmma_wait(0);
        if let Some((_, parts)) = columns.parts().split_last() {
            (columns.first..).zip(parts).for_each(|(i, part)| self.hand_over(columns, i, part));
        }
        columns.held.set(1);
    }

    /// Hands over the last part of a tile before, if there was one.
    fn hand_over_last(&self, columns: &Columns<'f>) {
        self.kernel.f.if_(columns.held.get().differs_from(0), || {
            (columns.first..)
                .zip(columns.parts())
                .last()
                .into_iter()
                .for_each(|(i, part)| self.hand_over(columns, i, &part));
            columns.of_tile.next_tile();
        });
    }

    fn hand_over(&self, columns: &Columns<'f>, i: u32, part: &[Var<'f, f32>]) {
        let stage = columns.of_tile.claim(i);
        self.kernel.hand_over(self.consumer, stage, stage.address + self.consumer.thread * 16, part);
    }

    /// Stores a gradient through the shared memory of K or V, which both consumers have read.
    fn store(&self, product: &WarpgroupMma<'f, f32>, through: Stage<'f>, i: usize) {
        self.kernel.meet();
        self.kernel.store(self.consumer, &[(product, through, i)]);
    }

    /// The first consumer: P, dV, and the first columns of dQ. Those of the tile before are handed over while the scores are computed.
    fn values(&self, p: Stage<'f>) {
        let (f, kernel, consumer) = (self.kernel.f, self.kernel, self.consumer);
        let (scores, (weights, d_v), columns) = (self.scores(0), self.sums(1), self.columns(0));
        let rows = Rows::new(f, &fragment(f, &scores, consumer));
        d_v.clear();
        kernel.each_tile(|of| {
            let q = self.q.acquire();
            self.start_beside(&scores, [self.k, q]);
            self.hand_over_last(&columns);
            let (exponents, changes) = (q.address + kernel.plan.rings.q.offset(1), kernel.scores.changes());
            if changes {
                f.wgmma_wait(0);
                rows.weigh_changed(kernel, of, exponents, &weights);
            } else {
                let exponents = rows.of_queries(exponents);
                f.wgmma_wait(0);
                rows.mask(kernel, of);
                weigh(&rows.all, f.parameter("to_log2"), &exponents);
            }
            let all: Vec<_> = scores.accumulators().iter().flatten().copied().collect();
            store_fours(f, p.address + consumer.thread * 16, &all);
            kernel.warp_arrives(consumer, p.full);
            if !changes {
                weights.pack(scores.accumulators());
            }
            let d_o = self.d_o.acquire();
            d_v.multiply_registers(&weights, d_o, true);
            self.multiply_dq(&columns, d_o.empty);
        });
        self.hand_over_last(&columns);
        self.store(&d_v, self.v, 1);
    }

    /// The second consumer: dS, dK, and the last columns of dQ. Those of the tile before are handed over while the gradients of P are
    /// computed.
    fn keys(&self, passed: Position<'f>, ds: Stage<'f>) {
        let (f, kernel, consumer) = (self.kernel.f, self.kernel, self.consumer);
        let (gradients, (operand, d_k), columns) = (self.scores(1), self.sums(0), self.columns(1));
        let rows = Rows::new(f, &fragment(f, &gradients, consumer));
        let (staged, _) = slab(&kernel.plan.tiles.differences, consumer.thread);
        d_k.clear();
        kernel.each_tile(|_| {
            let d_o = self.d_o.acquire();
            self.start_beside(&gradients, [self.v, d_o]);
            self.hand_over_last(&columns);
            let row_sums = rows.of_queries(d_o.address + self.plan.do_ring.offset(1));
            f.wgmma_wait(0);
            for row in &rows.all {
                for (&(_, gradient), &row_sum) in row.elements.iter().zip(&row_sums) {
                    gradient.set(gradient.get() - row_sum);
                }
            }
            let p = passed.acquire();
            let own = p.address + consumer.thread * 16;
            let all: Vec<_> = gradients.accumulators().iter().flatten().collect();
            for (i, four) in (0..).zip(all.chunks_exact(4)) {
                let weights = f.load_shared_vector::<f32, 4>(own, i * 128 * 16);
                four.iter().zip(weights).for_each(|(gradient, weight)| gradient.set(weight * gradient.get()));
            }
            operand.pack(gradients.accumulators());
            if !self.dq.shows_that_all_handed_over(self.plan.first_part(1)) {
                // All warps of the consumer have read the dS before. The first consumer has, since it has passed on P.
                f.barrier_sync(CtaPlan::consumer_barrier(consumer.warpgroup), 128);
            }
            kernel.stage_differences(consumer, &staged, ds.address, &rows.all);
            f.fence_proxy_async(ProxySpace::Shared);
            kernel.warp_arrives(consumer, ds.full);
            // It is there: the first consumer has computed P with it.
            let q = self.q.take();
            d_k.multiply_registers(&operand, q, true);
            self.multiply_dq(&columns, q.empty);
        });
        self.hand_over_last(&columns);
        self.store(&d_k, self.k, 0);
    }
}
