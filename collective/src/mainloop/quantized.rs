//! Weights in few bits: codes are loaded with the tiles, and consumers convert them to fragments of A in
//! registers.

use cute_rs::atom::unit;
use ptx::abi::{Promotion, TensorElement, TensorMap};
use ptx::inst::FloatOp;
use ptx::{Builder, TensorLoad, Value, Var, WgmmaSource};

use super::convert::{Converter, both};
use super::stages::Older;
use super::{Consumer, Finish, MainloopSite, Pass, WarpgroupMma};
use crate::form::Batch;
use crate::operand::Matrix;
use crate::operands::Visit;
use crate::pipeline::Stage;
use crate::plan::{Plan, WeightsSpec};
use crate::stage::{AnyTile, LoadTile, Loading, OperandMap, StageTile};
use crate::tensor_map::{self, Dimension};

/// 4-byte words per line of a box. A box has at most 256 elements along each dimension.
const LINE: u32 = 256;

/// Lines per unit.
const LINES: u32 = unit::BYTES / (4 * LINE);

/// States the codes' parameters.
pub(super) fn state(of: &MainloopSite<'_>, weights: WeightsSpec, visit: &mut dyn Visit) {
    let [batched, _] = of.plan.operand_batches();
    let value = of.matrix(0).map(|a| {
        // A batch of words.
        let stride = a.batch.stride * u64::from(weights.code.bits()) / 32;
        let batch = batched.then_some(Batch { stride, ..a.batch });
        (units_map(of.plan, weights, a, batch), batch)
    });
    tensor_map::state(OperandMap::NAMES[0], of.name(0), (batched, value), visit);
}

/// The tensor map of a matrix in units. Dimensions: words of a line, lines along K, blocks of 64 rows, and
/// matrices if there are several.
fn units_map(
    plan: &Plan,
    WeightsSpec { code, .. }: WeightsSpec,
    a: Matrix,
    batch: Option<Batch>,
) -> TensorMap {
    let [m, _, k] = plan.mainloop.tile;
    let (unit_k, slices) = (unit::k(code.bits()), plan.mainloop.cluster[1]);
    let dimensions = [
        Dimension::contiguous(LINE, LINE),
        Dimension { extent: a.k.div_ceil(unit_k) * LINES, stride: LINE.into(), copied: k / unit_k * LINES },
        Dimension {
            extent: a.mn.div_ceil(unit::ROWS),
            stride: u64::from(unit::ROWS * code.bits() / 32) * a.ld,
            copied: m / unit::ROWS / slices,
        },
    ];
    let map = tensor_map::tensor_map(TensorElement::U32, a.address, &dimensions, batch);
    TensorMap { promotion: Promotion::B256, ..map }
}

/// A's tile in units, on the device. Each CTA of a row of the cluster loads some blocks of 64 rows for all of
/// them.
struct Codes<'f>(Plan, WeightsSpec, OperandMap<'f>);

pub(super) fn codes<'f>(f: &'f Builder, plan: &Plan, weights: WeightsSpec) -> AnyTile<'f> {
    Box::new(Codes(*plan, weights, OperandMap::of(f, OperandMap::NAMES[0], plan.operand_batches()[0])))
}

impl<'f> StageTile<'f> for Codes<'f> {
    fn prefetch(&self, f: &'f Builder) {
        f.prefetch_tensor_map(self.2.address);
    }

    fn load<'a>(
        &'a self,
        Loading { f, cluster, unit, .. }: Loading<'f>,
    ) -> (Value<'f, u32>, LoadTile<'a, 'f>) {
        let Self(plan, weights, map) = self;
        let [m, _, k] = plan.mainloop.tile;
        let (block_bytes, lines) = (weights.bytes(unit::ROWS, k), k / unit::k(weights.code.bits()) * LINES);
        let slice = cluster.n * (m / unit::ROWS / plan.mainloop.cluster[1]);
        let load = move |stage: Stage<'f>, k_tile: Value<'f, u32>| {
            let load = TensorLoad {
                map: map.address,
                dst: stage.address + plan.ring.offset(0) + slice * block_bytes,
                barrier: stage.full,
                multicast: cluster.row_mask(),
                hint: plan.mainloop.operands[0].cache.bits(),
            };
            map.copy(f, load, vec![f.constant(0), k_tile * lines, unit.m / unit::ROWS + slice], unit);
        };
        (f.constant(plan.ring.tile_bytes(0)), Box::new(load))
    }
}

/// The consumer side: see [`DeviceMainloop::with_multiply`](super::DeviceMainloop::with_multiply).
pub(super) fn multiply<'f>(
    weights: WeightsSpec,
    pass: Pass<'_, 'f>,
    consumer: Consumer<'f>,
    finish: Finish<'_, 'f>,
) {
    let Pass { f, plan, unit, .. } = pass;
    let product = WarpgroupMma::<f32>::new(f, plan.product(), consumer.part);
    let registers = Registers::new(f, plan, weights, consumer);
    let multiply = |stage: Stage<'f>, older: Older<'_>| registers.multiply(&product, stage, older);
    consumer.each_stage_in_sets(pass, &multiply, &|| product.clear());
    finish(plan, product.sums(consumer, unit.first()));
}

/// Registers of a consumer for everything except accumulators, fragments, and the codes and factors they are
/// made from.
const OTHERS: u32 = 64;

/// A thread's fragments of A, and the places of the codes they are made from.
struct Registers<'f, 'p> {
    f: &'f Builder,
    plan: &'p Plan,
    weights: WeightsSpec,
    converter: Converter<'f>,
    /// Offset of the thread's first code in a stage, in bytes.
    codes: Value<'f, u32>,
    /// The thread's first row in the tile.
    row: Value<'f, u32>,
    /// By block and register set.
    fragments: Vec<Vec<[Var<'f, u32>; 4]>>,
}

/// The factors of a block's weights: of the thread's row and of the row 8 below, each twice in a word.
#[derive(Clone, Copy)]
struct Factors<'f> {
    scales: Option<[Value<'f, u32>; 2]>,
    zeros: Option<[Value<'f, u32>; 2]>,
}

impl<'f, 'p> Registers<'f, 'p> {
    fn new(f: &'f Builder, plan: &'p Plan, weights: WeightsSpec, consumer: Consumer<'f>) -> Self {
        let spec = &plan.mainloop;
        let four = || core::array::from_fn(|_| f.uninitialised());
        let fragments =
            (0..spec.product().blocks()).map(|_| (0..spec.depth()).map(|_| four()).collect()).collect();
        let block_bytes = weights.bytes(unit::ROWS, spec.tile[2]);
        let codes = consumer.part * (spec.product().blocks() * block_bytes) + consumer.thread * 16;
        let row = consumer.part * (spec.product().blocks() * unit::ROWS) + consumer.thread / 32 * 16;
        Self {
            f,
            plan,
            weights,
            converter: Converter::new(f, weights.code, spec.operands[0].format),
            codes: codes + plan.ring.offset(0),
            row: row + consumer.thread % 32 / 4,
            fragments,
        }
    }

    /// Multiplies a stage, in commit groups of one or two instructions along K. Before registers are
    /// overwritten, waits until the instructions that read them are complete. `older` is emitted as soon as
    /// the whole stage before has been multiplied. Without `older` there is no stage before, and the
    /// accumulators are overwritten.
    fn multiply(&self, product: &WarpgroupMma<'f, f32>, stage: Stage<'f>, older: Older<'_>) {
        let Self { f, plan, weights, .. } = *self;
        let (spec, depth) = (&plan.mainloop, plan.mainloop.depth());
        let (step_k, unit_k) = (spec.atom.k(), unit::k(weights.code.bits()));
        let found = product.find(stage);
        let blocks = 0..spec.product().blocks();
        let unit = |index| -> Vec<_> { blocks.clone().map(|block| self.unit(stage, block, index)).collect() };
        let scale =
            |group| -> Vec<_> { blocks.clone().map(|block| self.factors(stage, block, group)).collect() };
        // If there are enough registers, everything is loaded for the whole stage before anything waits for
        // it.
        let [all_units, all_groups] = if self.loads_ahead() { self.of_a_stage() } else { [0; 2] };
        let early_units: Vec<_> = (0..all_units).map(unit).collect();
        let early_factors: Vec<_> = (0..all_groups).map(scale).collect();
        let (mut units, mut factors) = (Vec::new(), Vec::new());
        for step in 0..spec.tile[2] / step_k {
            let k = step * step_k;
            if k.is_multiple_of(unit_k) {
                let index = k / unit_k;
                units = early_units.get(index as usize).cloned().unwrap_or_else(|| unit(index));
            }
            if k == 0 || weights.group > 0 && k.is_multiple_of(weights.group) {
                let group = k.checked_div(weights.group).unwrap_or(0);
                factors = early_factors.get(group as usize).cloned().unwrap_or_else(|| scale(group));
            }
            let batch = spec.batch();
            if step.is_multiple_of(batch) && (older.is_some() || step >= depth) {
                f.wgmma_wait(depth / batch - 1);
            }
            if let Some(older) = older.filter(|_| step + batch == depth) {
                older();
            }
            let words = Converter::words(weights.code);
            let first = (k % unit_k / step_k) as usize * words;
            for (block, (unit, factors)) in units.iter().zip(&factors).enumerate() {
                let pairs = self.converter.convert(&unit[first..first + words]);
                for (i, (register, pair)) in
                    self.fragments[block][(step % depth) as usize].iter().zip(pairs).enumerate()
                {
                    register.set(self.scaled(pair, *factors, i % 2));
                }
            }
            if !(step + 1).is_multiple_of(batch) {
                continue;
            }
            f.wgmma_fence();
            for step in step + 1 - batch..=step {
                found.clone().part(step..step + 1).each(older.is_some() || step > 0, |block, _| {
                    (WgmmaSource::Registers(self.fragments[block as usize][(step % depth) as usize]), None)
                });
            }
            f.wgmma_commit();
        }
    }

    /// Number of units and of groups of a stage along K.
    fn of_a_stage(&self) -> [u32; 2] {
        let k = self.plan.mainloop.tile[2];
        [k / unit::k(self.weights.code.bits()), self.weights.groups(k)]
    }

    /// Whether the registers hold the codes and factors of a whole stage in addition to accumulators,
    /// fragments and addresses.
    fn loads_ahead(&self) -> bool {
        let (spec, [units, groups]) = (&self.plan.mainloop, self.of_a_stage());
        let rows = if self.weights.zeros { 4 } else { 2 };
        let held = spec.product().blocks() * (4 * (units + spec.depth()) + rows * groups);
        self.plan.registers.accumulators + held + OTHERS <= self.plan.registers.consumer
    }

    /// The thread's codes of one unit.
    fn unit(&self, stage: Stage<'f>, block: u32, index: u32) -> [Value<'f, u32>; 4] {
        let block_bytes = self.weights.bytes(unit::ROWS, self.plan.mainloop.tile[2]);
        let offset = block * block_bytes + index * unit::BYTES;
        self.f.load_shared_vector(stage.address + self.codes, offset.cast_signed())
    }

    /// The factors of the thread's rows of a block, in one group of the stage.
    fn factors(&self, stage: Stage<'f>, block: u32, group: u32) -> Factors<'f> {
        let Self { f, plan, weights, .. } = *self;
        let first = group * plan.mainloop.tile[0] + block * unit::ROWS;
        let load = |tile: usize, bytes: u32| {
            [0, 8].map(|below| {
                let address = stage.address + plan.ring.offset(tile) + self.row * bytes;
                let offset = ((first + below) * bytes).cast_signed();
                if bytes == 1 {
                    let [exponent] = f.load_shared_vector::<u8, 1>(address, offset);
                    powered(self.converter, exponent.cast())
                } else {
                    let [half] = f.load_shared_vector::<u16, 1>(address, offset);
                    half.cast::<u32>() * both(1)
                }
            })
        };
        Factors {
            scales: (weights.group > 0).then(|| load(2, weights.scale_bytes())),
            zeros: weights.zeros.then(|| load(3, 2)),
        }
    }

    /// A pair of the thread's row, or of the row 8 below, minus its zero point and times its scale.
    fn scaled(
        &self,
        pair: Value<'f, u32>,
        Factors { scales, zeros }: Factors<'f>,
        row: usize,
    ) -> Value<'f, u32> {
        let pair = zeros.map_or(pair, |zeros| self.converter.half(FloatOp::Sub, pair, zeros[row]));
        scales.map_or(pair, |scales| self.converter.half(FloatOp::Mul, pair, scales[row]))
    }
}

/// `2^(e - 127)` in `bf16`, twice in a word. The exponent bias is the same. 0 gives a subnormal number, 255
/// gives NaN.
fn powered<'f>(converter: Converter<'f>, exponent: Value<'f, u32>) -> Value<'f, u32> {
    let power = (exponent * both(1 << 7)).max(both(1 << 6));
    // 255 gives infinity: times 0 it is NaN. All other numbers stay unchanged.
    let zero = exponent.builder().variable(0).get();
    converter.fma(power, zero, power)
}
