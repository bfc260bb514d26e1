//! The programs before and after the main one. A CTA has a tile of queries of a head.

use collective::heads::{DeviceLengths, DeviceTensor};
use collective::{CtaPlan, Packed, load_fours};
use ptx::{Builder, Special, Value};

use super::consumer::{consumer, dq_product, fragment, own_sums};
use super::zeros::COUNT;
use crate::backward::ahead::Ahead;
use crate::backward::plan::{BackwardPlan, LINE};
use crate::emit::O;

/// Threads of a CTA that prepares.
pub(in crate::backward) const PREPARE_THREADS: u32 = 128;

/// Elements that a thread loads or stores at once: 16 bytes.
const AT_ONCE: u32 = 8;

/// Floats from a row to the next one in the shared memory of the last program: no two rows begin in the same bank.
const fn pitch(plan: &BackwardPlan) -> u32 {
    plan.wide[0] + 4
}

/// Bytes of shared memory of the last program.
pub(in crate::backward) const fn finish_bytes(plan: &BackwardPlan) -> u32 {
    plan.spec.tile[0] * pitch(plan) * 4
}

/// The parameters of the gradients of O and of Q where a program reaches them by their strides.
pub(in crate::backward) const DO: [&str; 4] = ["do", "do_row", "do_head", "do_batch"];
pub(in crate::backward) const DQ: [&str; 4] = ["dq", "dq_row", "dq_head", "dq_batch"];

/// The CTA's tile of queries.
struct Tile<'f> {
    /// Number of queries of a sequence.
    queries: Value<'f, u32>,
    /// The tile's number among the tiles of all heads, and its first query.
    index: Value<'f, u32>,
    first: Value<'f, u32>,
    /// Its head among the heads of all sequences, its head, and its sequence.
    line: Value<'f, u32>,
    head: Value<'f, u32>,
    batch: Value<'f, u32>,
    packed: Option<PackedTile<'f>>,
}

/// The queries of the sequences before, and of all, if lengths differ.
#[derive(Clone, Copy)]
struct PackedTile<'f> {
    before: Value<'f, u32>,
    all: Value<'f, u32>,
}

impl<'f> Tile<'f> {
    fn of_cta(f: &'f Builder, plan: &BackwardPlan) -> Self {
        let [queries, heads, across] = ["queries", "heads", "across"].map(|name| f.parameter(name));
        let index = f.special(Special::CtaX);
        let line = index / across;
        let rows = plan.spec.tile[0];
        let number = index - line * across;
        let [head, batch] = [line % heads, line / heads];
        if !plan.is_packed() {
            return Self { queries, index, first: number * rows, line, head, batch, packed: None };
        }
        // All sequences are one. A tile that does not exist has no row.
        let lengths = DeviceLengths::of(f, false);
        let (sequence, number) = lengths.find(lengths.queries, rows, number);
        let (before, queries) = lengths.queries.sequence(sequence);
        let packed = Some(PackedTile { before, all: lengths.queries.rows });
        Self { queries, index, first: number * rows, line, head, batch, packed }
    }

    /// The address of a row of the tile's sequence in a tensor.
    fn row(&self, of: &DeviceTensor<'f>, row: Value<'f, u32>) -> Value<'f, u64> {
        let [to_row, to_head, to_batch] = of.strides;
        let row = self.packed.map_or(row, |packed| packed.before + row);
        let [row, head, batch] = [row, self.head, self.batch].map(Value::cast::<u64>);
        of.address + batch * to_batch + head * to_head + row * to_row
    }

    /// The number of a row among those of all heads.
    fn number(&self, row: Value<'f, u32>) -> Value<'f, u64> {
        match self.packed {
            None => self.line.mul_wide(self.queries) + row.cast::<u64>(),
            Some(PackedTile { before, all }) => self.line.mul_wide(all) + (before + row).cast::<u64>(),
        }
    }
}

/// Emits the first program: row sums and exponents; zeros for the first sums, and for the counts of adds, of CTAs and of tiles.
pub(in crate::backward) fn prepare(f: &Builder, plan: &BackwardPlan) {
    f.grid_launch_dependents();
    if !plan.counts() {
        return prepare_tile(f, plan);
    }
    let at = f.variable(f.special(Special::CtaX) * PREPARE_THREADS + f.special(Special::ThreadX));
    let (counts, words) = (f.parameter::<u64>("counters"), f.parameter::<u32>("words_of_counters"));
    f.while_(
        || at.get().less_than(words),
        || {
            f.store_global(counts + at.get().mul_wide(COUNT), 0, [f.constant(0u32)]);
            at.set(at.get() + f.special(Special::GridX) * PREPARE_THREADS);
        },
    );
    // Without any queries there is no tile, but blocks are counted.
    f.if_(f.parameter::<u32>("queries").more_than(0), || prepare_tile(f, plan));
}

/// What is prepared of the CTA's tile of queries.
fn prepare_tile(f: &Builder, plan: &BackwardPlan) {
    let (format, rows) = (plan.spec.format, plan.spec.tile[0]);
    let o = DeviceTensor::of(f, O);
    let d_o = DeviceTensor::of(f, DO);
    let [log_sum_exp, exponents, row_sums, dq_sums] =
        ["log_sum_exp", "exponents", "row_sums", "dq_sums"].map(|name| f.parameter::<u64>(name));
    let added = plan.spec.deterministic.then(|| f.parameter::<u64>("added"));
    let tile = Tile::of_cta(f, plan);
    let thread = f.special(Special::ThreadX);

    if let Some(added) = added {
        // The first block is stored, and not added.
        f.if_(thread.equals(0), || f.store_global(added + tile.index.mul_wide(4u32), 0, [f.constant(0u32)]));
    } else {
        let zeros = || {
            let sums = dq_sums + tile.index.mul_wide(plan.sum_bytes()) + thread.mul_wide(16u32);
            let step = PREPARE_THREADS * 16;
            for i in 0..plan.sum_bytes() / step {
                f.store_global(sums, (i * step).cast_signed(), [f.constant(0f32); 4]);
            }
        };
        if plan.zeros_ahead() {
            f.if_(tile.index.less_than(f.parameter::<u32>(Ahead::NAMES[1])), zeros);
        } else {
            zeros();
        }
    }

    // So many neighbouring lanes have a row.
    let lanes = (plan.spec.head[1] / AT_ONCE).next_power_of_two();
    let (lane, at_once) = (thread % lanes, PREPARE_THREADS / lanes);
    let has_elements = lane.less_than(plan.spec.head[1] / AT_ONCE);
    let offset = lane.mul_wide(AT_ONCE * format.bytes());
    for before in (0..rows).step_by(at_once as usize) {
        let own = thread / lanes + before;
        let row = tile.first + own;
        let (exists, sum) = (row.less_than(tile.queries), f.variable(0f32));
        f.if_(exists & has_elements, || {
            let [o, d_o] = [&o, &d_o].map(|of| {
                let at = tile.row(of, row) + offset;
                f.load_global_vector::<u32, 4>(at, 0)
            });
            for (a, b) in o.into_iter().zip(d_o) {
                let wide =
                    |word| format.of_word(f, word).map(|pair| pair.map(|element| format.widen(element)));
                for (a, b) in wide(a).into_iter().flatten().zip(wide(b).into_iter().flatten()) {
                    sum.set(a.mul_add(b, sum.get()));
                }
            }
        });
        let mut distance = 1;
        while distance < lanes {
            sum.set(sum.get() + f.shuffle_xor(sum.get(), distance));
            distance *= 2;
        }
        let is_of_tile = own.less_than(rows);
        f.if_(lane.equals(0) & is_of_tile, || {
            // A query that does not exist, or sees no key, has weights of zero.
            let exponent = f.variable(f32::INFINITY);
            f.if_(exists, || {
                let at = tile.number(row) * 4;
                let value = f.load_global::<f32>(log_sum_exp + at, 0);
                let none = value.equals(f32::NEG_INFINITY);
                exponent.set(exponent.get().where_or(none, value * core::f32::consts::LOG2_E));
            });
            let at = tile.index.mul_wide(rows * LINE) + own.mul_wide(LINE);
            f.store_global(exponents + at, 0, [exponent.get()]);
            f.store_global(row_sums + at, 0, [sum.get()]);
        });
    }
}

/// Emits the last program: dQ from its sums.
pub(in crate::backward) fn finish(f: &Builder, plan: &BackwardPlan) {
    f.grid_wait();
    let (format, rows) = (plan.spec.format, plan.spec.tile[0]);
    let d_q = DeviceTensor::of(f, DQ);
    let dq_sums = f.parameter::<u64>("dq_sums");
    let scale = f.parameter::<f32>("scale");
    let added = plan.spec.deterministic.then(|| f.parameter::<u64>("added"));
    let tile = Tile::of_cta(f, plan);
    let (thread, shared) = (f.special(Special::ThreadX), f.shared_base());

    // The sums are in the order of the main program's accumulators.
    let consumer = consumer(f, shared, f.warp_index() / 4, plan.products.dq.spec().warpgroups);
    let product = dq_product(f, plan, consumer.part);
    let own = dq_sums + tile.index.mul_wide(plan.sum_bytes()) + own_sums(&product, consumer).cast::<u64>();
    let sums: Vec<_> = product.accumulators().iter().flatten().copied().collect();
    let load = || load_fours(f, own, &sums, |sum, value| sum.set(value));
    match added {
        None => load(),
        Some(added) => {
            // If no block was added, there are no sums.
            sums.iter().for_each(|sum| sum.set(0.0));
            let blocks = f.load_global::<u32>(added + tile.index.mul_wide(4u32), 0);
            f.if_(blocks.differs_from(0), load);
        }
    }
    let fragment = fragment(f, &product, consumer);
    let [row, column] = fragment.start();
    let pitch = pitch(plan) * 4;
    let steps = if plan.dq_transposed { [4, pitch] } else { [pitch, 4] };
    let first = shared + row * steps[0] + column * steps[1];
    for of in (0..).zip(&fragment.blocks).flat_map(|(block, _)| fragment.variables(block)) {
        for (column, element) in of.elements {
            let offset = of.row * steps[0] + column * steps[1];
            f.store_shared(first, offset.cast_signed(), [element.get()]);
        }
    }
    let threads = plan.products.dq.spec().warpgroups * 128;
    f.barrier_sync(CtaPlan::CTA_BARRIER, threads);

    let across = plan.spec.head[0] / AT_ONCE;
    for before in (0..rows * across).step_by(threads as usize) {
        let index = thread + before;
        let (own, place) = (index / across, index % across);
        let row = tile.first + own;
        f.if_(own.less_than(rows) & row.less_than(tile.queries), || {
            let at = shared + own * pitch + place * (AT_ONCE * 4);
            let values: Vec<_> =
                [0, 16].into_iter().flat_map(|offset| f.load_shared_vector::<f32, 4>(at, offset)).collect();
            let pack = |i: usize| match format.pack(f, [values[i] * scale, values[i + 1] * scale]) {
                Packed::Word(word) => word,
                Packed::Pair(_) | Packed::Half(_) | Packed::Doubles(_) => f.constant(0),
            };
            let to = tile.row(&d_q, row) + place.mul_wide(AT_ONCE * format.bytes());
            f.store_global(to, 0, [0, 2, 4, 6].map(pack));
        });
    }
}
