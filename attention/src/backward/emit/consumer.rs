//! The consumers of the main program: scores, their gradients, and the products with them.

use collective::pipeline::{ClusterPosition, Position, Release, Stage, Turns};
use collective::{
    Arrivals, Consumer, CtaPlan, Format, Fragment, Fragments, OperandTile, Packed, RowVariables, StagedRows,
    WarpgroupMma, WorkUnit,
};
use cute_rs::atom::smem;
use ptx::{Builder, ProxySpace, Special, Value, Var};

use super::{Kernel, QueryTile};
use crate::emit::softmax::exp2;

/// What a consumer computes with.
struct Consuming<'a, 'f> {
    kernel: &'a Kernel<'a, 'f>,
    consumer: Consumer<'f>,
    /// Positions in the rings of Q and dO, and in that of dQ.
    q: Position<'f>,
    d_o: Position<'f>,
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

/// All of a tile, from its first element.
fn whole<'f>(f: &'f Builder) -> WorkUnit<'f> {
    let zero = f.constant(0);
    WorkUnit { m: zero, n: zero, k_begin: zero, k_end: zero, columns: None, group: None, record: None }
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
    product.fragment(consumer, whole(f))
}

const PLANNED: &str = "the plan has checked the tiles";

/// The places of a thread in a slab of a tile with 64 rows, and the slab's columns.
fn slab<'f>(tile: &OperandTile, thread: Value<'f, u32>) -> (StagedRows<'f>, u32) {
    let columns = tile.swizzle().elements(tile.bits());
    let layout = smem::tile(cute_rs::atom::Major::K, tile.swizzle(), tile.bits(), 64, columns);
    (StagedRows::new(tile.format(), layout.expect(PLANNED), [64, columns], thread), columns)
}

impl<'f> Kernel<'_, 'f> {
    /// Emitted for a consumer warpgroup.
    pub(super) fn consume(&self, warpgroup: Value<'f, u32>) {
        let Self { f, plan, shared, .. } = *self;
        let consumer = consumer(f, shared, warpgroup, plan.cta.consumers);
        let part = consumer.part;
        let product = |spec, tiles| WarpgroupMma::<f32>::new(f, spec, tiles, part).expect(PLANNED);
        let weights = || Fragments::new(f, &plan.sums, plan.weights, consumer).expect(PLANNED);
        let scores = product(&plan.scores, [plan.keys, plan.queries]);
        let gradients = product(&plan.scores, [plan.keys, plan.queries]);
        let (of_scores, of_gradients) = (fragment(f, &scores, consumer), fragment(f, &gradients, consumer));
        let rows = of_scores.variables(0).into_iter().zip(of_gradients.variables(0));
        let ds = plan.ds_ring;
        let keys = self.kv_ring.consumer().acquire();
        let of = Consuming {
            kernel: self,
            consumer,
            q: self.q_ring.consumer(),
            d_o: self.o_ring.consumer(),
            dq_ring: self.dq_ring.producer(),
            k: keys,
            v: Stage { address: keys.address + plan.kv_ring.offset(1), ..keys },
            scores,
            gradients,
            d_v: product(&plan.sums, [plan.weights, plan.queries_across]),
            d_k: product(&plan.sums, [plan.weights, plan.queries_across]),
            d_q: dq_product(f, plan, part),
            weights: weights(),
            differences: weights(),
            rows: rows.map(|(scores, gradients)| [scores, gradients]).collect(),
            start: of_scores.start(),
            staged: slab(&plan.differences, consumer.thread).0,
            buffer: (ds.stages > 1).then(|| f.variable(ds.start)),
        };
        of.d_v.clear();
        of.d_k.clear();
        self.each_tile(|tile| of.tile(tile));
        of.store();
    }
}

impl<'f> Consuming<'_, 'f> {
    /// The named barrier of all consumers, after those of each.
    fn meet(&self) {
        let cta = self.kernel.plan.cta;
        self.kernel.f.barrier_sync(cta.own_barriers().start, cta.consumers * 128);
    }

    fn tile(&self, of: QueryTile<'f>) {
        let (f, plan) = (self.kernel.f, self.kernel.plan);
        let release = &self.consumer.release;
        let q = self.q.acquire();
        multiply(f, &self.scores, [self.k, q]);
        let d_o = self.d_o.acquire();
        multiply(f, &self.gradients, [self.v, d_o]);
        f.wgmma_wait(1);
        let line = plan.q_ring.offset(1);
        self.mask(of);
        self.weigh(q.address + line);
        self.weights.pack(self.scores.accumulators());
        f.wgmma_wait(0);
        self.differ(d_o.address + line);
        self.differences.pack(self.gradients.accumulators());

        let ds = plan.ds_ring;
        let buffer = self.kernel.shared + self.buffer.map_or(f.constant(ds.start), Var::get);
        if self.buffer.is_none() {
            // The products with dS of the tile before have read it.
            self.meet();
        }
        self.stage_differences(buffer);
        f.fence_proxy_async(ProxySpace::Shared);
        self.d_v.multiply_registers(&self.weights, d_o, true);
        self.meet();
        let differences = Stage { address: buffer, ..q };
        let operands = if plan.dq_transposed { [self.k, differences] } else { [differences, self.k] };
        multiply(f, &self.d_q, operands);
        f.wgmma_wait(1);
        release.arrive(d_o.empty);
        self.d_k.multiply_registers(&self.differences, q, true);
        f.wgmma_wait(1);
        self.hand_over_dq();
        f.wgmma_wait(0);
        release.arrive(q.empty);
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
    fn weigh(&self, exponents: Value<'f, u32>) {
        let to_log2 = self.kernel.parameters.to_log2;
        let exponents = self.of_queries(exponents);
        for [scores, _] in &self.rows {
            for (&(_, score), &exponent) in scores.elements.iter().zip(&exponents) {
                score.set(exp2(score.get().mul_add(to_log2, -exponent)));
            }
        }
    }

    /// Gradients of P become those of the scores, by P and the row sums of their queries.
    fn differ(&self, row_sums: Value<'f, u32>) {
        let row_sums = self.of_queries(row_sums);
        for [scores, gradients] in &self.rows {
            let both = scores.elements.iter().zip(&gradients.elements);
            for ((&(_, weight), &(_, gradient)), &row_sum) in both.zip(&row_sums) {
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
        let Consumer { thread, part, warpgroup, .. } = self.consumer;
        let format = plan.spec.format;
        // All consumers have read K.
        self.meet();
        let (staged, columns) = slab(&plan.output, thread);
        for (product, to, factor) in
            [(&self.d_v, self.v, None), (&self.d_k, self.k, Some(kernel.parameters.scale))]
        {
            let rows = packed_rows(f, format, &fragment(f, product, self.consumer), factor);
            self.fill(&staged, &plan.output, plan.spec.tile[1], to.address, &rows);
        }
        f.fence_proxy_async(ProxySpace::Shared);
        f.barrier_sync(CtaPlan::consumer_barrier(warpgroup), 128);
        let first = kernel.keys.first + part * 64;
        // Tensor stores skip rows after the last one; a part without any row stores nothing.
        f.if_(thread.equals(0) & first.less_than(kernel.parameters.keys), || {
            let row_bytes = columns * plan.output.bits() / 8;
            for (map, from) in [(kernel.parameters.d_v, self.v), (kernel.parameters.d_k, self.k)] {
                let own = from.address + part * (64 * row_bytes);
                for slab in 0..plan.spec.head.div_ceil(columns) {
                    let place = [f.constant(slab * columns), first, kernel.keys.head, kernel.keys.batch];
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

/// Multiplies tiles in two stages into accumulators, which are overwritten.
fn multiply<'f>(f: &'f Builder, product: &WarpgroupMma<'f, f32>, stages: [Stage<'f>; 2]) {
    let operands = product.find_in(stages);
    f.wgmma_fence();
    operands.issue(false);
    f.wgmma_commit();
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
