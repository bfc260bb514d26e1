//! The consumers of the main program: scores, their gradients, and the products with them.

use core::ops::Range;

use collective::pipeline::{Position, Stage};
use collective::skeleton;
use collective::{
    Consumer, CtaPlan, Format, Fragment, Fragments, OperandTile, Packed, RowVariables, StagedRows,
    WarpgroupMma, store_fours,
};
use ptx::{Builder, ProxySpace, Value, Var};

use super::blocks::Reader;
use super::parts::TileParts;
use super::{Kernel, QueryTile, Roles};
use crate::emit::{
    slab,
    softmax::{exp2, settle},
};
use crate::numbers;
use crate::scores::DeviceScope;

/// What a consumer computes with.
struct Consuming<'a, 'f> {
    kernel: &'a Kernel<'a, 'f>,
    consumer: Consumer<'f>,
    /// The position in the ring of Q and dO.
    q: Position<'f>,
    dq: TileParts<'f>,
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
    /// The scores and their gradients by row.
    rows: Rows<'f>,
    rows_of_gradients: Vec<RowVariables<'f, f32>>,
    /// The thread's places in a slab of dS.
    staged: StagedRows<'f>,
    /// Which buffer of dS is next: its offset.
    buffer: Var<'f, u32>,
}

/// What a thread has of a product with a row per key and a column per query.
pub(super) struct Rows<'f> {
    f: &'f Builder,
    pub(super) all: Vec<RowVariables<'f, f32>>,
    /// The thread's first key and query.
    start: [Value<'f, u32>; 2],
}

/// A gradient of the consumer's keys: the product that has it, the shared memory that it is stored through, and which one it is: dK
/// (0) or dV (1).
pub(super) type Gradient<'a, 'f> = (&'a WarpgroupMma<'f, f32>, Stage<'f>, usize);

/// Some columns of a gradient of keys in shared memory.
pub(super) struct Slab<'f> {
    /// dK (0) or dV (1).
    pub(super) gradient: usize,
    /// Its number among the slabs of the gradient.
    pub(super) slab: u32,
    /// Where it begins.
    pub(super) from: Value<'f, u32>,
}

/// A consumer warpgroup.
pub(super) fn consumer<'f>(
    f: &'f Builder,
    shared: Value<'f, u32>,
    warpgroup: Value<'f, u32>,
    consumers: u32,
) -> Consumer<'f> {
    let alone = Consumer::alone(f, shared, warpgroup);
    if consumers > 1 { Consumer { part: warpgroup, ..alone } } else { alone }
}

/// The product for dQ of a consumer.
pub(super) fn dq_product<'f>(
    f: &'f Builder,
    plan: &super::BackwardPlan,
    part: Value<'f, u32>,
) -> WarpgroupMma<'f, f32> {
    WarpgroupMma::new(f, plan.products.dq, part)
}

/// The fragment of a consumer's accumulators.
pub(super) fn fragment<'f>(
    f: &'f Builder,
    product: &WarpgroupMma<'f, f32>,
    consumer: Consumer<'f>,
) -> Fragment<'f, f32> {
    product.fragment(consumer, [f.constant(0); 2])
}

impl<'f> Roles<'_, 'f> {
    /// Emitted for a consumer warpgroup.
    pub(super) fn consume(&self, warpgroup: Value<'f, u32>) {
        let Self { f, plan, shared, .. } = *self;
        let consumer = consumer(f, shared, warpgroup, plan.cta.consumers);
        let (kv, q) = (self.kv_ring.consumer(), self.q_ring.consumer());
        let (dq, buffer) = (self.dq.first_tile(), f.variable(plan.rings.ds.start));
        let of_block = |kernel: &Kernel<'_, 'f>| {
            let keys = kv.acquire();
            let of = Consuming::of(kernel, consumer, keys, (q, dq, buffer));
            of.d_v.clear();
            of.d_k.clear();
            kernel.each_tile(|tile| of.tile(tile));
            if plan.walks() {
                kernel.warp_arrives(consumer, keys.empty);
                return kernel.hand_over_gradients(consumer, &dq, [&of.d_v, &of.d_k]);
            }
            if plan.exchange.is_some() {
                // All consumers have read K.
                kernel.meet();
            }
            kernel.store(consumer, &[(&of.d_v, of.v, 1), (&of.d_k, of.k, 0)]);
        };
        self.each_block_or(Reader::Warps, of_block, || self.meet_without_block());
    }

    /// Emitted for a consumer without a block: the others of its cluster meet, too.
    pub(super) fn meet_without_block(&self) {
        if self.plan.spec.split > 1 {
            skeleton::meet(self.f, false);
        }
    }
}

impl<'a, 'f> Consuming<'a, 'f> {
    fn of(
        kernel: &'a Kernel<'a, 'f>,
        consumer: Consumer<'f>,
        keys: Stage<'f>,
        (q, dq, buffer): (Position<'f>, TileParts<'f>, Var<'f, u32>),
    ) -> Self {
        let Kernel { f, plan, .. } = *kernel;
        let part = consumer.part;
        let weights = |i: usize| Fragments::new(f, plan.products.sums[i], consumer);
        let [scores, gradients] = plan.products.scores.map(|of| WarpgroupMma::<f32>::new(f, of, part));
        let [d_k, d_v] = plan.products.sums.map(|of| WarpgroupMma::<f32>::new(f, of, part));
        let (of_scores, of_gradients) = (fragment(f, &scores, consumer), fragment(f, &gradients, consumer));
        Self {
            kernel,
            consumer,
            q,
            dq,
            k: keys,
            v: Stage { address: keys.address + plan.rings.kv.offset(1), ..keys },
            scores,
            gradients,
            d_v,
            d_k,
            d_q: dq_product(f, plan, part),
            weights: weights(1),
            differences: weights(0),
            rows: Rows::new(f, &of_scores),
            rows_of_gradients: of_gradients.variables(0),
            staged: slab(&plan.tiles.differences, consumer.thread).0,
            buffer,
        }
    }
}

impl<'f> Kernel<'_, 'f> {
    /// The named barrier of all consumers, after those of each.
    pub(super) fn meet(&self) {
        skeleton::meet_consumers(self.f, self.plan.cta);
    }

    /// Writes dS to shared memory, where all consumers read it.
    pub(super) fn stage_differences(
        &self,
        consumer: Consumer<'f>,
        staged: &StagedRows<'f>,
        buffer: Value<'f, u32>,
        rows: &[RowVariables<'f, f32>],
    ) {
        let Self { f, plan, .. } = *self;
        let format = plan.spec.format;
        let packed = |row: &RowVariables<'f, f32>| -> Vec<Packed<'f>> {
            let pair = |pair: &[(u32, Var<'f, f32>)]| format.pack(f, [pair[0].1.get(), pair[1].1.get()]);
            row.elements.chunks_exact(2).map(pair).collect()
        };
        let rows: Vec<_> = rows.iter().map(packed).collect();
        self.fill(consumer, staged, &plan.tiles.differences, buffer, &rows);
    }

    /// Writes the consumer's 64 rows to a tile with a row per key of the block in shared memory, slab by slab.
    pub(super) fn fill(
        &self,
        consumer: Consumer<'f>,
        staged: &StagedRows<'f>,
        tile: &OperandTile,
        first: Value<'f, u32>,
        rows: &[Vec<Packed<'f>>],
    ) {
        let columns = tile.swizzle().elements(tile.bits());
        let row_bytes = columns * tile.bits() / 8;
        let first = first + consumer.part * (64 * row_bytes);
        let pairs = columns as usize / 8;
        if let [upper, lower] = rows {
            for (slab, (upper, lower)) in (0..).zip(upper.chunks(pairs).zip(lower.chunks(pairs))) {
                let slab = first + slab * (self.plan.spec.tile[1] * row_bytes);
                staged.fill(self.f, slab, [upper, lower]);
            }
        }
    }

    /// Hands sums of dQ, which begin at `own` in a stage, to the thread that adds them.
    pub(super) fn hand_over(
        &self,
        consumer: Consumer<'f>,
        stage: Stage<'f>,
        own: Value<'f, u32>,
        sums: &[Var<'f, f32>],
    ) {
        store_fours(self.f, own, sums);
        self.f.fence_proxy_async(ProxySpace::Shared);
        self.warp_arrives(consumer, stage.full);
    }

    /// An arrival of each warp, for what all of its lanes have done.
    pub(super) fn warp_arrives(&self, consumer: Consumer<'f>, barrier: Value<'f, u32>) {
        let f = self.f;
        f.warp_sync();
        f.if_((consumer.thread % 32).equals(0), || f.mbarrier_arrive(barrier));
    }

    /// Stores gradients through shared memory that no consumer reads any more.
    pub(super) fn store(&self, consumer: Consumer<'f>, gradients: &[Gradient<'_, 'f>]) {
        match (self.plan.exchange, self.keys.apart) {
            (None, _) => self.store_own(consumer, gradients),
            (Some(exchange), None) => self.store_sums(consumer, gradients, exchange),
            (Some(exchange), Some(of)) => {
                let f = self.f;
                let add = || self.add_apart(consumer, gradients, (of, exchange));
                let is_last = match of.is_whole {
                    None => add(),
                    Some(is_whole) => {
                        let stores = f.variable(1u32);
                        f.if_(!is_whole, || stores.set(f.constant(1u32).where_or(add(), 0)));
                        stores.get().differs_from(0)
                    }
                };
                f.if_(is_last, || self.store_own(consumer, gradients));
            }
        }
    }

    /// Stores what the consumer's registers have. Each consumer reads its rows of V alone, and has done so: while these are stored, the others
    /// read K, unless they have exchanged sums.
    fn store_own(&self, consumer: Consumer<'f>, gradients: &[Gradient<'_, 'f>]) {
        let Self { f, plan, .. } = *self;
        // All tiles have the same slabs.
        let (staged, _) = slab(&plan.tiles.outputs[0], consumer.thread);
        let [row_bytes, _] = plan.tiles.output_slab(&plan.spec);
        let scale = f.parameter("scale");
        for (place, &(product, to, i)) in gradients.iter().enumerate() {
            if place > 0 && plan.exchange.is_none() {
                self.meet();
            }
            let factor = (i == 0).then_some(scale);
            let of = (&fragment(f, product, consumer), 0..plan.multiplied[i]);
            let rows = packed_rows(f, plan.spec.format, of, factor);
            self.fill(consumer, &staged, &plan.tiles.outputs[i], to.address, &rows);
            let slabs = (0..plan.tiles.output_slabs(&plan.spec, i)).map(|slab| Slab {
                gradient: i,
                slab,
                from: to.address + slab * (plan.spec.tile[1] * row_bytes),
            });
            let slabs: Vec<_> = slabs.collect();
            f.fence_proxy_async(ProxySpace::Shared);
            f.barrier_sync(CtaPlan::consumer_barrier(consumer.warpgroup), 128);
            self.store_slabs(consumer, &slabs, place + 1 == gradients.len());
        }
    }

    /// Stores the consumer's rows of slabs, which its threads have written; after the last ones, it waits until these and those before were read.
    pub(super) fn store_slabs(&self, consumer: Consumer<'f>, slabs: &[Slab<'f>], are_last: bool) {
        let f = self.f;
        f.if_(consumer.thread.equals(0), || {
            self.store_part(consumer.part, slabs);
            if are_last {
                f.bulk_commit();
                // The grid's end makes them visible.
                f.bulk_wait(0, true);
            }
        });
    }

    /// Emitted for one thread: starts to store a consumer's rows of slabs.
    pub(super) fn store_part(&self, part: Value<'f, u32>, slabs: &[Slab<'f>]) {
        let Self { f, plan, .. } = *self;
        let [row_bytes, columns] = plan.tiles.output_slab(&plan.spec);
        let first = self.keys.first + part * 64;
        // Tensor stores skip rows after the last one; a part without any row stores nothing.
        f.if_(first.less_than(self.keys.lengths[1]), || {
            let [first, batch] = self.place(1, first);
            for &Slab { gradient, slab, from } in slabs {
                let own = from + part * (64 * row_bytes);
                let place = [f.constant(slab * columns), first, self.keys.head, batch];
                f.tensor_store(f.parameter(["dk_map", "dv_map"][gradient]), own, place.map(Value::cast));
            }
        });
    }
}

impl<'f> Rows<'f> {
    pub(super) fn new(f: &'f Builder, of: &Fragment<'f, f32>) -> Self {
        Self { f, all: of.variables(0), start: of.start() }
    }

    /// Scores that are not seen become minus infinity.
    pub(super) fn mask(&self, kernel: &Kernel<'_, 'f>, of: QueryTile<'f>) {
        self.f.if_(kernel.is_masked(of), || {
            let scope = kernel.scope(of.head);
            let first_key = (kernel.keys.first + self.start[0]).cast::<i32>();
            let first_query = (of.first + self.start[1]).cast::<i32>();
            for scores in &self.all {
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

    /// Products become P times the slopes of their scores, which gradients of P are multiplied by; P itself goes to `weights`.
    pub(super) fn weigh_changed(
        &self,
        kernel: &Kernel<'_, 'f>,
        of: QueryTile<'f>,
        exponents: Value<'f, u32>,
        weights: &Fragments<'f>,
    ) {
        let f = self.f;
        let [scale, to_log2] = ["scale", "to_log2"].map(|name| f.parameter::<f32>(name));
        let scope = kernel.scope(of.head);
        let mut reals =
            [scope.reals, &numbers::of_head(kernel.scores, [kernel.keys.batch, of.head])].concat();
        reals.append(&mut kernel.scores.per_head(&DeviceScope { reals: &reals, ..scope }));
        let with_reals = DeviceScope { reals: &reals, ..scope };
        let first_key = (kernel.keys.first + self.start[0]).cast::<i32>();
        let first_query = (of.first + self.start[1]).cast::<i32>();
        let weight = |key: Value<'f, i32>, (column, score): (u32, Var<'f, f32>), exponent: Value<'f, f32>| {
            let query = first_query + column.cast_signed();
            let [changed, slope] = kernel.scores.slope(&with_reals, [query, key], score.get() * scale);
            let inside = key.less_than(scope.keys);
            let seen = match kernel.scores.masks() {
                true => inside & kernel.scores.sees(&scope, query, key),
                false => inside,
            };
            let (weight, zero) = (exp2(changed.mul_add(to_log2, -exponent)), f.constant(0.0));
            score.set((weight * slope).where_or(seen, zero));
            weight.where_or(seen, zero)
        };
        // By the accumulators: pairs of two rows take turns.
        weights.pack_pairs(|_, first| {
            let row = &self.all[first / 2 % 2];
            let (key, at) = (first_key + row.row.cast_signed(), first / 4 * 2);
            let pair = [row.elements[at], row.elements[at + 1]];
            // They are loaded where they are needed: there are few registers.
            let [a, b] = self.of_pair(exponents, pair[0].0);
            [weight(key, pair[0], a), weight(key, pair[1], b)]
        });
    }

    /// Numbers of two neighbours among the thread's queries, from a line in shared memory.
    fn of_pair(&self, line: Value<'f, u32>, column: u32) -> [Value<'f, f32>; 2] {
        self.f.load_shared_vector::<f32, 2>(line + self.start[1] * 4, (column * 4).cast_signed())
    }

    /// Numbers of the thread's queries, two neighbours at a time, from a line in shared memory.
    pub(super) fn of_queries(&self, line: Value<'f, u32>) -> Vec<Value<'f, f32>> {
        let first = line + self.start[1] * 4;
        let Some(row) = self.all.first() else { return Vec::new() };
        let pair = |pair: &[(u32, Var<'f, f32>)]| {
            self.f.load_shared_vector::<f32, 2>(first, (pair[0].0 * 4).cast_signed())
        };
        row.elements.chunks_exact(2).flat_map(pair).collect()
    }
}

/// Scores become P, by the exponents of their queries.
pub(super) fn weigh<'f>(
    rows: &[RowVariables<'f, f32>],
    to_log2: Value<'f, f32>,
    exponents: &[Value<'f, f32>],
) {
    for scores in rows {
        for (&(_, score), &exponent) in scores.elements.iter().zip(exponents) {
            score.set(exp2(score.get().mul_add(to_log2, -exponent)));
        }
    }
}

impl<'f> Consuming<'_, 'f> {
    /// The next stage of Q, and dO in it.
    fn acquire(&self) -> [Stage<'f>; 2] {
        let q = self.q.acquire();
        [q, Stage { address: q.address + self.kernel.plan.rings.q.offset(1), ..q }]
    }

    /// A tile of queries. No register of a product is used between a fence and the products that follow
    /// it.
    fn tile(&self, of: QueryTile<'f>) {
        let (f, plan) = (self.kernel.f, self.kernel.plan);
        let ring = plan.rings.q;
        let [q, d_o] = self.acquire();
        let (scores, gradients) = (self.scores.find_in([self.k, q]), self.gradients.find_in([self.v, d_o]));
        f.wgmma_fence();
        for product in [scores, gradients] {
            product.issue(false);
            f.wgmma_commit();
        }
        let [exponents, row_sums] = [2, 3].map(|slot| q.address + ring.offset(slot));
        let loaded = if self.kernel.scores.changes() {
            f.wgmma_wait(1);
            self.rows.weigh_changed(self.kernel, of, exponents, &self.weights);
            f.wgmma_wait(0);
            None
        } else {
            self.weigh(of, [exponents, row_sums])
        };
        // Its group is that of dQ's product: nobody waits for one of them alone.
        let multiply_values = || {
            let operands = self.d_v.find(d_o);
            f.wgmma_fence();
            operands.issue_registers(&self.weights, true);
        };
        if plan.ahead {
            multiply_values();
        }
        self.differ(&loaded.unwrap_or_else(|| self.rows.of_queries(row_sums)));
        self.differences.pack(self.gradients.accumulators());

        let ds = plan.rings.ds;
        let buffer = self.kernel.shared + self.buffer.get();
        self.kernel.stage_differences(self.consumer, &self.staged, buffer, &self.rows_of_gradients);
        if !plan.ahead {
            // While what was written becomes visible to products.
            multiply_values();
        }
        f.fence_proxy_async(ProxySpace::Shared);
        let differences = Stage { address: buffer, ..q };
        let of_dq = if plan.dq_transposed { [self.k, differences] } else { [differences, self.k] };
        let (of_dq, of_dk) = (self.d_q.find_in(of_dq), self.d_k.find(q));
        self.kernel.meet();
        f.wgmma_fence();
        of_dq.issue(false);
        f.wgmma_commit();
        of_dk.issue_registers(&self.differences, true);
        f.wgmma_commit();
        f.wgmma_wait(1);
        let stage = self.dq.claim(0);
        let own = stage.address + own_sums(&self.d_q, self.consumer);
        let sums: Vec<_> = self.d_q.accumulators().iter().flatten().copied().collect();
        self.kernel.hand_over(self.consumer, stage, own, &sums);
        self.dq.next_tile();
        f.wgmma_wait(0);
        self.consumer.release.arrive(q.empty);
        self.buffer.set(f.constant(2 * ds.start + ds.stage_bytes) - self.buffer.get());
    }

    /// Scores become P, while the gradients of P are computed. Returns the row sums, if they are loaded ahead.
    fn weigh(
        &self,
        of: QueryTile<'f>,
        [exponents, row_sums]: [Value<'f, u32>; 2],
    ) -> Option<Vec<Value<'f, f32>>> {
        let (f, to_log2) = (self.kernel.f, self.kernel.f.parameter("to_log2"));
        let exponents = self.rows.of_queries(exponents);
        f.wgmma_wait(1);
        self.rows.mask(self.kernel, of);
        let loaded = self.kernel.plan.ahead.then(|| self.rows.of_queries(row_sums));
        // The gradients of P are there when a thread's first row has its exponentials.
        let (first, second) = self.rows.all.split_at(1);
        weigh(first, to_log2, &exponents);
        settle(first.iter().flat_map(|scores| &scores.elements).map(|(_, weight)| weight.get()));
        f.wgmma_wait(0);
        weigh(second, to_log2, &exponents);
        self.weights.pack(self.scores.accumulators());
        loaded
    }

    /// Gradients of P become those of the scores, by P and the row sums of their queries.
    fn differ(&self, row_sums: &[Value<'f, f32>]) {
        for (scores, gradients) in self.rows.all.iter().zip(&self.rows_of_gradients) {
            let both = scores.elements.iter().zip(&gradients.elements);
            for ((&(_, weight), &(_, gradient)), &row_sum) in both.zip(row_sums) {
                gradient.set(weight.get() * (gradient.get() - row_sum));
            }
        }
    }
}

/// Bytes from the sums of a tile to the first four of a thread. A consumer's sums follow each other by fours: those of
/// all its threads, then their next four.
pub(super) fn own_sums<'f>(product: &WarpgroupMma<'f, f32>, consumer: Consumer<'f>) -> Value<'f, u32> {
    let bytes = product.spec().accumulators() * 4;
    consumer.part * (128 * bytes) + consumer.thread * 16
}

/// Some columns of the two rows of a thread in 16 bits, times a factor.
pub(super) fn packed_rows<'f>(
    f: &'f Builder,
    format: Format,
    (of, columns): (&Fragment<'f, f32>, Range<u32>),
    factor: Option<Value<'f, f32>>,
) -> Vec<Vec<Packed<'f>>> {
    let scaled = |value: Value<'f, f32>| factor.map_or(value, |factor| value * factor);
    let rows = of.rows(of.start(), 0).into_iter();
    // Of each eight columns, a thread has two.
    let [begin, count] = [columns.start, columns.len() as u32].map(|of| of as usize / 8);
    rows.map(|row| {
        let pairs = row.pairs.iter().skip(begin).take(count);
        pairs.map(|pair| format.pack(f, pair.values.map(scaled))).collect()
    })
    .collect()
}
