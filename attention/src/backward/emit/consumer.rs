//! The consumers of the main program: scores, their gradients, and the products with them.

use collective::pipeline::{ClusterPosition, Position, Release, Stage, Turns};
use collective::{
    Arrivals, Consumer, CtaPlan, Format, Fragment, Fragments, OperandTile, Packed, RowVariables, StagedRows,
    WarpgroupMma,
};
use ptx::{Builder, ProxySpace, Special, Value, Var};

use super::{Kernel, Parameters, QueryTile};
use crate::emit::{
    from, slab,
    softmax::{exp2, settle},
};

/// What a consumer computes with.
struct Consuming<'a, 'f> {
    kernel: &'a Kernel<'a, 'f>,
    consumer: Consumer<'f>,
    /// Positions in the ring of Q and dO, and in that of dQ.
    q: Position<'f>,
    dq_ring: Position<'f>,
    /// K and V.
    k: Stage<'f>,
    v: Stage<'f>,
    /// Scores, transposed: a row per key, a column per query. P replaces them.
    scores: WarpgroupMma<'f, f32>,
    /// The gradients of P; those of the scores replace them.
    gradients: WarpgroupMma<'f, f32>,
    d_v: WarpgroupMma<'f, f32>,
    d_k: WarpgroupMma<'f, f32>,
    d_q: WarpgroupMma<'f, f32>,
    /// P and dS in 16 bits, as operand A.
    weights: Fragments<'f>,
    differences: Fragments<'f>,
    /// The scores and their gradients by row, and the thread's first key and query.
    rows: Vec<[RowVariables<'f, f32>; 2]>,
    start: [Value<'f, u32>; 2],
    /// The thread's places in a slab of dS.
    staged: StagedRows<'f>,
    /// Which buffer of dS is next, if there are two: its offset.
    buffer: Option<Var<'f, u32>>,
}

/// A consumer warpgroup.
pub(super) fn consumer<'f>(
    f: &'f Builder,
    shared: Value<'f, u32>,
    warpgroup: Value<'f, u32>,
    consumers: u32,
) -> Consumer<'f> {
    let thread = f.special(Special::ThreadX) % 128;
    let alone = ClusterPosition::new(f, [1, 1]);
    Consumer {
        shared,
        warpgroup,
        part: if consumers > 1 { warpgroup } else { f.constant(0) },
        thread,
        release: Release::new(f, Arrivals::Warpgroup, alone, shared, thread),
        turns: Turns::none(f),
    }
}

/// The product for dQ of a consumer.
pub(super) fn dq_product<'f>(
    f: &'f Builder,
    plan: &super::BackwardPlan,
    part: Value<'f, u32>,
) -> WarpgroupMma<'f, f32> {
    let (keys, differences) = (plan.keys_across, plan.differences);
    let tiles = if plan.dq_transposed { [keys, differences] } else { [differences, keys] };
    WarpgroupMma::new(f, &plan.dq, tiles, part).expect(PLANNED)
}

/// The fragment of a consumer's accumulators.
pub(super) fn fragment<'f>(
    f: &'f Builder,
    product: &WarpgroupMma<'f, f32>,
    consumer: Consumer<'f>,
) -> Fragment<'f, f32> {
    product.fragment(consumer, from(f.constant(0)))
}

const PLANNED: &str = "the plan has checked the tiles";

impl<'f> Kernel<'_, 'f> {
    /// Emitted for a consumer warpgroup.
    pub(super) fn consume(&self, warpgroup: Value<'f, u32>) {
        let Self { f, plan, shared, .. } = *self;
        let consumer = consumer(f, shared, warpgroup, plan.cta.consumers);
        let part = consumer.part;
        let product = |spec, tiles| WarpgroupMma::<f32>::new(f, spec, tiles, part).expect(PLANNED);
        let weights = |i: usize| Fragments::new(f, &plan.sums[i], plan.weights, consumer).expect(PLANNED);
        let [scores, gradients] =
            [0, 1].map(|i: usize| product(&plan.scores[i], [plan.keys[i], plan.queries[i]]));
        let [d_k, d_v] =
            [0, 1].map(|i: usize| product(&plan.sums[i], [plan.weights, plan.queries_across[i]]));
        let (of_scores, of_gradients) = (fragment(f, &scores, consumer), fragment(f, &gradients, consumer));
        let rows = of_scores.variables(0).into_iter().zip(of_gradients.variables(0));
        let ds = plan.ds_ring;
        let keys = self.kv_ring.consumer().acquire();
        let of = Consuming {
            kernel: self,
            consumer,
            q: self.q_ring.consumer(),
            dq_ring: self.dq_ring.producer(),
            k: keys,
            v: Stage { address: keys.address + plan.kv_ring.offset(1), ..keys },
            scores,
            gradients,
            d_v,
            d_k,
            d_q: dq_product(f, plan, part),
            weights: weights(1),
            differences: weights(0),
            rows: rows.map(|(scores, gradients)| [scores, gradients]).collect(),
            start: of_scores.start(),
            staged: slab(&plan.differences, consumer.thread).0,
            buffer: (ds.stages > 1).then(|| f.variable(ds.start)),
        };
        let [with_keys, with_values] = self.computes;
        if with_values {
            of.d_v.clear();
        }
        if with_keys {
            of.d_k.clear();
            self.each_tile(|tile| of.tile(tile));
        } else {
            self.each_tile(|tile| of.values(tile));
        }
        of.store();
    }
}

impl<'f> Consuming<'_, 'f> {
    /// The named barrier of all consumers, after those of each.
    fn meet(&self) {
        let cta = self.kernel.plan.cta;
        self.kernel.f.barrier_sync(cta.own_barriers().start, cta.consumers * 128);
    }

    /// The next stage of Q, and dO in it.
    fn acquire(&self) -> [Stage<'f>; 2] {
        let q = self.q.acquire();
        [q, Stage { address: q.address + self.kernel.plan.q_ring.offset(2), ..q }]
    }

    /// A tile of queries for dV alone.
    fn values(&self, of: QueryTile<'f>) {
        let (f, ring) = (self.kernel.f, self.kernel.plan.q_ring);
        let [q, d_o] = self.acquire();
        let scores = self.scores.find_in([self.k, q]);
        f.wgmma_fence();
        scores.issue(false);
        f.wgmma_commit();
        f.wgmma_wait(0);
        self.mask(of);
        self.weigh(&self.rows, &self.of_queries(q.address + ring.offset(1)));
        self.weights.pack(self.scores.accumulators());
        // All threads of the warpgroup have read exponents.
        f.barrier_sync(CtaPlan::consumer_barrier(self.consumer.warpgroup), 128);
        self.d_v.multiply_registers(&self.weights, d_o, true);
        f.wgmma_wait(0);
        self.consumer.release.arrive(q.empty);
    }

    /// A tile of queries for dK and dQ, and for dV. No register of a product is used between a fence and the products that follow
    /// it.
    fn tile(&self, of: QueryTile<'f>) {
        let (f, plan) = (self.kernel.f, self.kernel.plan);
        let (with_values, ring) = (self.kernel.computes[1], plan.q_ring);
        let [q, d_o] = self.acquire();
        let (scores, gradients) = (self.scores.find_in([self.k, q]), self.gradients.find_in([self.v, d_o]));
        f.wgmma_fence();
        for product in [scores, gradients] {
            product.issue(false);
            f.wgmma_commit();
        }
        let [exponents, row_sums] = [1, 3].map(|slot| q.address + ring.offset(slot));
        let ahead = |line| plan.ahead.then(|| self.of_queries(line));
        let loaded = ahead(exponents);
        f.wgmma_wait(1);
        self.mask(of);
        let exponents = loaded.unwrap_or_else(|| self.of_queries(exponents));
        let loaded = ahead(row_sums);
        // The gradients of P are there when a thread's first row has its exponentials.
        let (first, second) = self.rows.split_at(1);
        self.weigh(first, &exponents);
        settle(first.iter().flat_map(|[scores, _]| &scores.elements).map(|(_, weight)| weight.get()));
        f.wgmma_wait(0);
        self.weigh(second, &exponents);
        if with_values {
            self.weights.pack(self.scores.accumulators());
        }
        let multiply_values = || self.d_v.multiply_registers(&self.weights, d_o, true);
        if plan.ahead {
            multiply_values();
        }
        self.differ(&loaded.unwrap_or_else(|| self.of_queries(row_sums)));
        self.differences.pack(self.gradients.accumulators());

        let ds = plan.ds_ring;
        let buffer = self.kernel.shared + self.buffer.map_or(f.constant(ds.start), Var::get);
        if self.buffer.is_none() {
            // The products with dS of the tile before have read it.
            self.meet();
        }
        self.stage_differences(buffer);
        f.fence_proxy_async(ProxySpace::Shared);
        let differences = Stage { address: buffer, ..q };
        let of_dq = if plan.dq_transposed { [self.k, differences] } else { [differences, self.k] };
        if with_values && !plan.ahead {
            multiply_values();
        }
        let (of_dq, of_dk) = (self.d_q.find_in(of_dq), self.d_k.find(q));
        self.meet();
        f.wgmma_fence();
        of_dq.issue(false);
        f.wgmma_commit();
        of_dk.issue_registers(&self.differences, true);
        f.wgmma_commit();
        f.wgmma_wait(1);
        self.hand_over_dq();
        f.wgmma_wait(0);
        self.consumer.release.arrive(q.empty);
        if let Some(buffer) = self.buffer {
            buffer.set(f.constant(2 * ds.start + ds.stage_bytes) - buffer.get());
        }
    }

    /// Scores that are not seen become minus infinity.
    fn mask(&self, of: QueryTile<'f>) {
        let (f, kernel) = (self.kernel.f, self.kernel);
        f.if_(kernel.is_masked(of), || {
            let scope = kernel.scope(of.head);
            let first_key = (kernel.keys.first + self.start[0]).cast::<i32>();
            let first_query = (of.first + self.start[1]).cast::<i32>();
            for [scores, _] in &self.rows {
                let key = first_key + scores.row.cast_signed();
                let inside = key.less_than(scope.keys);
                for &(column, score) in &scores.elements {
                    let query = first_query + column.cast_signed();
                    let seen = match kernel.scores.masks() {
                        true => inside & kernel.scores.sees(&scope, query, key),
                        false => inside,
                    };
                    score.set(score.get().where_or(seen, f32::NEG_INFINITY));
                }
            }
        });
    }

    /// Numbers of the thread's queries, two neighbours at a time, from a line in shared memory.
    fn of_queries(&self, line: Value<'f, u32>) -> Vec<Value<'f, f32>> {
        let f = self.kernel.f;
        let first = line + self.start[1] * 4;
        let Some([row, _]) = self.rows.first() else { return Vec::new() };
        let pair = |pair: &[(u32, Var<'f, f32>)]| {
            f.load_shared_vector::<f32, 2>(first, (pair[0].0 * 4).cast_signed())
        };
        row.elements.chunks_exact(2).flat_map(pair).collect()
    }

    /// Scores become P, by the exponents of their queries.
    fn weigh(&self, rows: &[[RowVariables<'f, f32>; 2]], exponents: &[Value<'f, f32>]) {
        let to_log2 = self.kernel.parameters.to_log2;
        for [scores, _] in rows {
            for (&(_, score), &exponent) in scores.elements.iter().zip(exponents) {
                score.set(exp2(score.get().mul_add(to_log2, -exponent)));
            }
        }
    }

    /// Gradients of P become those of the scores, by P and the row sums of their queries.
    fn differ(&self, row_sums: &[Value<'f, f32>]) {
        for [scores, gradients] in &self.rows {
            let both = scores.elements.iter().zip(&gradients.elements);
            for ((&(_, weight), &(_, gradient)), &row_sum) in both.zip(row_sums) {
                gradient.set(weight.get() * (gradient.get() - row_sum));
            }
        }
    }

    /// Writes dS to shared memory, where all consumers read it.
    fn stage_differences(&self, buffer: Value<'f, u32>) {
        let plan = self.kernel.plan;
        let format = plan.spec.format;
        let packed = |row: &RowVariables<'f, f32>| -> Vec<Packed<'f>> {
            let pair =
                |pair: &[(u32, Var<'f, f32>)]| format.pack(self.kernel.f, [pair[0].1.get(), pair[1].1.get()]);
            row.elements.chunks_exact(2).map(pair).collect()
        };
        let rows: Vec<_> = self.rows.iter().map(|[_, gradients]| packed(gradients)).collect();
        self.fill(&self.staged, &plan.differences, plan.spec.tile[1], buffer, &rows);
    }

    /// Writes the consumer's 64 rows to a tile of `height` rows in shared memory, slab by slab.
    fn fill(
        &self,
        staged: &StagedRows<'f>,
        tile: &OperandTile,
        height: u32,
        first: Value<'f, u32>,
        rows: &[Vec<Packed<'f>>],
    ) {
        let columns = tile.swizzle().elements(tile.bits());
        let row_bytes = columns * tile.bits() / 8;
        let first = first + self.consumer.part * (64 * row_bytes);
        let pairs = columns as usize / 8;
        if let [upper, lower] = rows {
            for (slab, (upper, lower)) in (0..).zip(upper.chunks(pairs).zip(lower.chunks(pairs))) {
                staged.fill(self.kernel.f, first + slab * (height * row_bytes), [upper, lower]);
            }
        }
    }

    /// Hands the tile's part of dQ to the thread that adds it.
    fn hand_over_dq(&self) {
        let f = self.kernel.f;
        let stage = self.dq_ring.claim();
        let own = stage.address + own_sums(&self.d_q, self.consumer);
        let sums: Vec<_> = self.d_q.accumulators().iter().flatten().collect();
        for (i, four) in (0..).zip(sums.chunks_exact(4)) {
            let values = [four[0], four[1], four[2], four[3]].map(|sum| sum.get());
            f.store_shared(own, i * 128 * 16, values);
        }
        f.fence_proxy_async(ProxySpace::Shared);
        f.warp_sync();
        f.if_((self.consumer.thread % 32).equals(0), || f.mbarrier_arrive(stage.full));
    }

    /// Stores dK and dV, through the shared memory of K and V.
    fn store(&self) {
        let (f, kernel, plan) = (self.kernel.f, self.kernel, self.kernel.plan);
        let Consumer { thread, part, .. } = self.consumer;
        let format = plan.spec.format;
        let [with_keys, with_values] = kernel.computes;
        // The threads of this warpgroup, which store its part of dV.
        let meet_own = || f.barrier_sync(CtaPlan::consumer_barrier(self.consumer.warpgroup), 128);
        if with_keys {
            // All consumers have read K.
            self.meet();
        }
        // All tiles have the same slabs.
        let (staged, columns) = slab(&plan.outputs[0], thread);
        let row_bytes = columns * format.bits() / 8;
        let Parameters { scale, d_k, d_v, .. } = kernel.parameters;
        let of_values = (&self.d_v, self.v, &plan.outputs[1], (d_v, plan.spec.head[1]), None);
        let of_keys = (&self.d_k, self.k, &plan.outputs[0], (d_k, plan.spec.head[0]), Some(scale));
        let all = [with_values.then_some(of_values), with_keys.then_some(of_keys)];
        let all = || all.iter().flatten();
        for &(product, to, tile, _, factor) in all() {
            let rows = packed_rows(f, format, &fragment(f, product, self.consumer), factor);
            self.fill(&staged, tile, plan.spec.tile[1], to.address, &rows);
        }
        f.fence_proxy_async(ProxySpace::Shared);
        if with_keys {
            self.meet();
        } else {
            meet_own();
        }
        let first = kernel.keys.first + part * 64;
        // Tensor stores skip rows after the last one; a part without any row stores nothing.
        f.if_(thread.equals(0) & first.less_than(kernel.keys.lengths[1]), || {
            let [first, batch] = kernel.place(1, first);
            for &(_, from, _, (map, d), _) in all() {
                let own = from.address + part * (64 * row_bytes);
                for slab in 0..d.div_ceil(columns) {
                    let place = [f.constant(slab * columns), first, kernel.keys.head, batch];
                    let src = own + slab * (plan.spec.tile[1] * row_bytes);
                    f.tensor_store(map, src, place.map(Value::cast));
                }
            }
            f.bulk_commit();
            f.bulk_wait(0, false);
        });
    }
}

/// Bytes from the sums of a tile to the first four of a thread. A consumer's sums follow each other by fours: those of
/// all its threads, then their next four.
pub(super) fn own_sums<'f>(product: &WarpgroupMma<'f, f32>, consumer: Consumer<'f>) -> Value<'f, u32> {
    let count: usize = product.accumulators().iter().map(Vec::len).sum();
    let bytes = u32::try_from(count * 4).expect("a thread has few accumulators");
    consumer.part * (128 * bytes) + consumer.thread * 16
}

/// The two rows of a thread in 16 bits, times a factor.
fn packed_rows<'f>(
    f: &'f Builder,
    format: Format,
    of: &Fragment<'f, f32>,
    factor: Option<Value<'f, f32>>,
) -> Vec<Vec<Packed<'f>>> {
    let scaled = |value: Value<'f, f32>| factor.map_or(value, |factor| value * factor);
    let rows = of.rows(of.start(), 0).into_iter();
    rows.map(|row| row.pairs.iter().map(|pair| format.pack(f, pair.values.map(scaled))).collect()).collect()
}
