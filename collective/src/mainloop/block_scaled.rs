//! Block-scaled operands: the products of every 128 of K are multiplied by their scales and added to sums in
//! single precision.

use core::ops::Range;
use std::collections::BTreeMap;

use ptx::{Builder, Value, Var};

use super::promotion::of_wave;
use super::{Accumulators, Consumer, Finish, Fragment, Pass, WarpgroupMma, WorkUnit};
use crate::pipeline::Stage;
use crate::plan::{FETCHED_SCALES, Plan, SCALED_ROWS, element_offset, granule, scaled_blocks};

/// The place of an operand's scales in a stage, for one thread.
#[derive(Clone, Copy)]
struct Place<'f> {
    /// Number of rows that share a scale: 1 or 128.
    rows: u32,
    /// Address of the scale of the tile's first row, for this k-tile.
    address: Value<'f, u32>,
    /// The thread's first row, relative to the first row whose scale is in the stage.
    first: Value<'f, u32>,
    /// Length of the tile's runs of rows that share a scale.
    granule: u32,
    /// Whether the tile may begin at any row, so that two neighbouring scales may be unaligned as a vector.
    anywhere: bool,
}

impl<'f> Place<'f> {
    /// A key per scale for the thread's rows; `row` is relative to its first.
    fn key(&self, row: u32) -> u32 {
        // A block of accumulators has 64 rows, and a thread's first column is among the tile's first eight.
        if self.rows == 1 { row } else { row / self.granule }
    }

    /// The scale of a row.
    fn load(&self, f: &'f Builder, row: u32) -> Value<'f, f32> {
        let index = self.first + row;
        let index = if self.rows == 1 { index } else { index / SCALED_ROWS * FETCHED_SCALES };
        let [scale] = f.load_shared_vector(self.address + index * 4, 0);
        scale
    }

    /// The scales of two neighbouring rows, each with a scale of its own.
    fn load_pair(&self, f: &'f Builder, row: u32) -> [Value<'f, f32>; 2] {
        if self.anywhere {
            return [row, row + 1].map(|row| self.load(f, row));
        }
        f.load_shared_vector(self.address + (self.first + row) * 4, 0)
    }
}

/// The scales of a stage by which a thread multiplies its accumulators: those that were read so far.
struct Factors<'f> {
    /// A's, by block of accumulators and by row in the block.
    rows: Vec<BTreeMap<u32, Value<'f, f32>>>,
    /// B's, by column.
    columns: BTreeMap<u32, Value<'f, f32>>,
}

/// The consumer side: see [`DeviceMainloop::with_multiply`](super::DeviceMainloop::with_multiply).
pub(super) fn multiply<'f>(pass: Pass<'_, 'f>, consumer: Consumer<'f>, finish: Finish<'_, 'f>) {
    let Pass { f, plan, ring, unit } = pass;
    let product = WarpgroupMma::<f32>::new(f, plan.product(), consumer.part);
    let spec = &plan.mainloop;
    let zeros = |_| (0..product.spec().block_sums()).map(|_| f.variable(0.0f32)).collect();
    let sums: Vec<Vec<Var<'f, f32>>> = (0..product.spec().blocks()).map(zeros).collect();
    let fragment = product.fragment_of((consumer, unit.first()), spec.tile[1], sums);
    let firsts = firsts(plan, &fragment, unit);
    consumer.turns.begin();
    let (ring, first) = ring.early();
    let operands = product.locate(first);
    // In waves, a consumer adds while the other multiplies, and the addresses of its next scales are computed
    // meanwhile.
    let held =
        (spec.waves > 1).then(|| addresses(plan, (first, unit.k_begin)).map(|address| f.variable(address)));
    let multiply = |k_tile: Value<'f, u32>, [begins, ends]: [bool; 2]| {
        let stage = if begins { ring.acquire() } else { ring.wait() };
        let starts = match held {
            Some(held) => held.map(Var::get),
            None => addresses(plan, (stage, k_tile)),
        };
        let places = places(plan, firsts, starts);
        let mut factors = Factors::none(product.spec().blocks());
        let found = product.at(&operands);
        for wave in 0..spec.waves {
            let (blocks, value) = of_wave(product.spec(), wave);
            let count = product.accumulators()[0].len();
            let each = spec.scales_at_once(count as u32) as usize;
            let groups = count / each;
            if groups > 1 {
                factors.columns.clear();
            }
            let part = |group: usize| (blocks.clone(), value + group * each, each);
            // Loads between the instructions that multiply would delay those after them.
            factors.load(f, &fragment, part(0), places);
            f.wgmma_fence();
            found.clone().wave(wave).issue(false);
            f.wgmma_commit();
            f.wgmma_wait(0);
            for group in 0..groups {
                if group + 1 < groups {
                    factors.load(f, &fragment, part(group + 1), places);
                }
                let scales = factors.of_part(&fragment, part(group), places);
                // All scales of the stage are loaded before the last two groups are added.
                if wave + 1 == spec.waves && group == groups.saturating_sub(2) {
                    // Orders the other lanes' reads of the stage before the warp's arrival.
                    f.warp_sync();
                    consumer.release.arrive(stage.empty);
                    // The next stage is found during the additions, so that its first instruction does not wait.
                    let next = if ends { ring.advance() } else { ring.step() };
                    product.move_to(&operands, next);
                    if let Some(held) = held {
                        held.iter()
                            .zip(addresses(plan, (next, k_tile + 1)))
                            .for_each(|(var, next)| var.set(next));
                    }
                }
                let products = product.accumulators().iter().map(|products| &products[group * each..]);
                add(&fragment, part(group), products, &scales);
            }
        }
    };
    // Between two k-tiles of a turn nothing branches, so the assembler moves the question whether the next stage is
    // full, and what is known of that stage, among the additions.
    let unrolled = spec.unrolled();
    let turns = (unit.k_end - unit.k_begin) / unrolled;
    let rest = unit.k_begin + turns * unrolled;
    f.repeat(turns, |turn| {
        for i in 0..unrolled {
            multiply(unit.k_begin + turn * unrolled + i, [i == 0, i + 1 == unrolled]);
        }
    });
    f.repeat_from(rest, unit.k_end, |k_tile| multiply(k_tile, [true; 2]));
    consumer.turns.pass();
    finish(plan, Accumulators::F32(fragment));
}

/// The element `(row, column)` of a block's value, relative to the thread's first.
fn element(fragment: &Fragment<'_, f32>, block: usize, value: usize) -> [u32; 2] {
    let elements = fragment.elements.part();
    // The values of neighbouring instructions follow each other.
    let held = elements.mode(0).size();
    let (block, value) = (block as i64, value as i64);
    let element = elements.at_modes(&[value % held, block, value / held]);
    [0, 1].map(|mode| element_offset(element.leaf(mode)))
}

/// The thread's first row of A and of B, relative to the first row whose scale is in a stage.
fn firsts<'f>(plan: &Plan, fragment: &Fragment<'f, f32>, unit: WorkUnit<'f>) -> [Value<'f, u32>; 2] {
    let (starts, tile) = (fragment.start(), [unit.m, unit.n]);
    [0, 1].map(|operand| {
        let first = starts[operand] - tile[operand];
        let extent = plan.mainloop.tile[operand];
        match plan.mainloop.operands[operand].scaled {
            1 if plan.begins_anywhere()[operand] => first + tile[operand] % FETCHED_SCALES,
            1 => first,
            // The tile begins where a block does, or is inside one.
            rows if granule(extent) == rows || scaled_blocks(extent) == 1 => first,
            rows => first + tile[operand] % rows,
        }
    })
}

/// The addresses of the scales of the first rows of A's tile and of B's.
fn addresses<'f>(plan: &Plan, (stage, k_tile): (Stage<'f>, Value<'f, u32>)) -> [Value<'f, u32>; 2] {
    [0, 1].map(|operand| {
        let address = stage.address + plan.ring.offset(2 + operand);
        // A copy loads several scales along K, one of which is this block's.
        match plan.mainloop.operands[operand].scaled {
            1 => address,
            _ => address + k_tile % FETCHED_SCALES * 4,
        }
    })
}

/// The places of a thread's scales of A and of B, from the addresses of the tiles' first.
fn places<'f>(plan: &Plan, firsts: [Value<'f, u32>; 2], addresses: [Value<'f, u32>; 2]) -> [Place<'f>; 2] {
    [0, 1].map(|operand| {
        let (rows, address) = (plan.mainloop.operands[operand].scaled, addresses[operand]);
        let granule = granule(plan.mainloop.tile[operand]);
        Place { rows, address, first: firsts[operand], granule, anywhere: plan.begins_anywhere()[operand] }
    })
}

impl<'f> Factors<'f> {
    /// No scales yet, of a fragment with this many blocks.
    fn none(blocks: u32) -> Self {
        Self { rows: vec![BTreeMap::new(); blocks as usize], columns: BTreeMap::new() }
    }

    /// Reads each scale of a part of a wave that was not read before.
    fn load(
        &mut self,
        f: &'f Builder,
        fragment: &Fragment<'f, f32>,
        (blocks, first, count): (Range<usize>, usize, usize),
        [a, b]: [Place<'f>; 2],
    ) {
        for block in blocks {
            for value in (first..first + count).step_by(2) {
                let [row, column] = element(fragment, block, value);
                self.rows[block].entry(a.key(row)).or_insert_with(|| a.load(f, row));
                let key = b.key(column);
                if self.columns.contains_key(&key) {
                    continue;
                }
                match b.rows {
                    1 => self.columns.extend((key..).zip(b.load_pair(f, column))),
                    _ => self.columns.extend([(key, b.load(f, column))]),
                }
            }
        }
    }

    /// The scales of a part of a wave's products, by block. Each is multiplied once.
    fn of_part(
        &self,
        fragment: &Fragment<'f, f32>,
        (blocks, first, count): (Range<usize>, usize, usize),
        [a, b]: [Place<'f>; 2],
    ) -> Vec<Vec<Value<'f, f32>>> {
        let of_block = |block: usize| {
            let mut scales = BTreeMap::new();
            let values = first..first + count;
            let of_value = |value| {
                let [row, column] = element(fragment, block, value);
                let key = (a.key(row), b.key(column));
                *scales.entry(key).or_insert_with(|| self.rows[block][&key.0] * self.columns[&key.1])
            };
            values.map(of_value).collect()
        };
        blocks.map(of_block).collect()
    }
}

/// Adds the products of a part of a wave, scaled, to its sums: to `count` values of each of its blocks, from `first` on.
fn add<'a, 'f: 'a>(
    fragment: &Fragment<'f, f32>,
    (blocks, first, count): (Range<usize>, usize, usize),
    products: impl Iterator<Item = &'a [Var<'f, f32>]>,
    scales: &[Vec<Value<'f, f32>>],
) {
    for (block, (products, scales)) in blocks.zip(products.zip(scales)) {
        let sums = &fragment.blocks[block][first..first + count];
        for (sum, (product, scale)) in sums.iter().zip(products.iter().zip(scales)) {
            sum.set(product.get().mul_add(*scale, sum.get()));
        }
    }
}
