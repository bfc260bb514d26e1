//! A 2:4 sparse operand A: half of its tile in a stage, and metadata that threads pass to the instructions.

use ptx::abi::Argument;
use ptx::{Builder, TensorLoad, Value, Var};

use super::quantized::copy;
use super::stages::Older;
use super::sums::{Accumulator, Sums};
use super::tensor_copy::{Origin, TensorCopy};
use super::tma_wgmma::{OperandMap, TensorMaps};
use super::{Consumer, DeviceMainloop, Finish, MainloopEmitter, Piece, Product};
use crate::operand::Matrix;
use crate::pipeline::{ClusterPosition, Position, Stage};
use crate::plan::{MainloopSpec, Plan, SumType};
use crate::sparse;

/// The emitter of [`TmaWgmma`](super::TmaWgmma) for a [`Sparse`](crate::Sparse) operand. The plan holds all
/// numbers. After the parameters of the operands follow those of the metadata:
/// [`sparse::arguments`](crate::sparse::arguments).
#[derive(Clone, Copy, Debug)]
pub struct SparseCopies;

impl MainloopEmitter for SparseCopies {
    fn name(&self, spec: &MainloopSpec) -> String {
        spec.name()
    }

    fn is_built_in(&self) -> bool {
        true
    }

    fn declare<'f>(&self, f: &'f Builder, plan: &Plan) -> Box<dyn DeviceMainloop<'f> + 'f> {
        if !plan.mainloop.is_sparse() {
            f.refuse("SparseCopies multiplies a sparse operand A: say so in `OperandSpec::sparse`");
            return Box::new(TensorMaps::declare(f, plan));
        }
        let [a, b] = plan.operand_batches();
        Box::new(Device {
            a: OperandMap::declare(f, ["a_map", "a_step"], a),
            b: OperandMap::declare(f, ["b_map", "b_step"], b),
            metadata: OperandMap::declare(f, ["metadata_map", "metadata_step"], a),
        })
    }

    fn arguments(&self, plan: &Plan, a: Matrix, b: Matrix) -> Vec<Argument> {
        let [a_batched, b_batched] = plan.operand_batches();
        let kept = Matrix { k: sparse::kept(plan.mainloop.operands[0].format, a.k), ..a };
        let [a_tile, b_tile] = &plan.operands;
        a_tile.arguments(kept, a_batched).chain(b_tile.arguments(b, b_batched)).collect()
    }
}

/// Metadata that selects the first elements of every chunk. Outside the matrix, copies fill metadata with
/// zeros, which select no elements.
const FIRST: u32 = 0x4444_4444;

/// The parameters on the device.
#[derive(Clone, Copy, Debug)]
struct Device<'f> {
    a: OperandMap<'f>,
    b: OperandMap<'f>,
    metadata: OperandMap<'f>,
}

impl<'f> DeviceMainloop<'f> for Device<'f> {
    fn prefetch(&self, f: &'f Builder) {
        for map in [self.a, self.b, self.metadata] {
            f.prefetch_tensor_map(map.address);
        }
    }

    fn load(
        &self,
        f: &'f Builder,
        plan: &Plan,
        cluster: ClusterPosition<'f>,
        ring: Position<'f>,
        piece: Piece<'f>,
    ) {
        let k = plan.mainloop.tile[2];
        let [a_copy, b_copy] = plan.operands.map(TensorCopy::new);
        let bytes = f.constant(plan.ring.transaction_bytes());
        let origin = |of: OperandMap<'f>, slice, receivers| Origin {
            map: of.address,
            matrix: of.coordinate(piece.group),
            slice,
            receivers,
        };
        f.repeat_from(piece.k_begin, piece.k_end, |k_tile| {
            ring.produce(bytes, |stage| {
                let a = origin(self.a, cluster.n, cluster.row_mask());
                a_copy.load(f, stage, a, [piece.m, k_tile * (k / 2)]);
                let b = origin(self.b, cluster.m, cluster.column_mask());
                b_copy.load(f, stage, b, [piece.n, k_tile * k]);
                let dst = stage.address + plan.ring.offset(2);
                let (map, barrier) = (self.metadata.address, stage.full);
                let load = TensorLoad { map, dst, barrier, multicast: None, hint: None };
                let place = [f.constant(0), k_tile * plan.mainloop.metadata_words(), piece.m / sparse::ROWS];
                copy(f, load, place, self.metadata.coordinate(piece.group));
            });
        });
    }

    fn multiply(
        &self,
        f: &'f Builder,
        plan: &Plan,
        consumer: Consumer<'f>,
        ring: Position<'f>,
        piece: Piece<'f>,
        finish: Finish<'_, 'f>,
    ) {
        let sums = match plan.mainloop.atom.sums() {
            SumType::S32 => multiply::<i32>(f, plan, consumer, ring, piece),
            SumType::F16 => multiply::<u32>(f, plan, consumer, ring, piece),
            // No `wgmma` accumulates in f64.
            SumType::F32 | SumType::F64 => multiply::<f32>(f, plan, consumer, ring, piece),
        };
        finish(plan, sums);
    }
}

fn multiply<'f, T: Accumulator>(
    f: &'f Builder,
    plan: &Plan,
    consumer: Consumer<'f>,
    ring: Position<'f>,
    piece: Piece<'f>,
) -> Sums<'f> {
    let product = Product::<T>::new(f, &plan.mainloop, plan.operands, consumer.part)
        .expect("the plan admits only tiles that wgmma multiplies");
    let metadata = Metadata::new(f, plan, consumer);
    consumer.turns.begin();
    let multiply = |stage: Stage<'f>, older: Older<'_>| metadata.multiply(&product, stage, older);
    consumer.in_sets(f, (ring, piece), &multiply, &|| product.clear());
    product.sums(consumer, piece)
}

/// A thread's metadata, and its place in a stage.
struct Metadata<'f, 'p> {
    f: &'f Builder,
    plan: &'p Plan,
    /// Offset of the thread's first word in a stage, in bytes.
    first: Value<'f, u32>,
    /// By unit along K and block.
    words: Vec<Vec<Var<'f, u32>>>,
}

impl<'f, 'p> Metadata<'f, 'p> {
    fn new(f: &'f Builder, plan: &'p Plan, consumer: Consumer<'f>) -> Self {
        let spec = &plan.mainloop;
        let block_bytes = spec.metadata_words() * sparse::WORDS * 4;
        let first = consumer.part * (spec.blocks() * block_bytes) + consumer.thread * 4;
        let unit = |_| (0..spec.blocks()).map(|_| f.uninitialised()).collect();
        let words = (0..spec.metadata_words()).map(unit).collect();
        Self { f, plan, first: first + plan.ring.offset(2), words }
    }

    /// Multiplies a stage, one commit group per unit of metadata along K. Before registers are overwritten,
    /// waits until the instructions that read them are complete. `older` is emitted as soon as the whole
    /// stage before has been multiplied. Without `older` there is no stage before, and the accumulators are
    /// overwritten.
    fn multiply<T: Accumulator>(&self, product: &Product<'f, T>, stage: Stage<'f>, older: Older<'_>) {
        let Self { f, plan, .. } = *self;
        let spec = &plan.mainloop;
        let (units, unit_k) = (spec.metadata_words(), sparse::unit_k(spec.operands[0].format));
        let steps = unit_k / spec.atom.k();
        let found = product.find(stage);
        for (unit, words) in (0..).zip(&self.words) {
            if let Some(older) = older {
                f.wgmma_wait(units - 1);
                if unit + 1 == units {
                    older();
                }
            }
            for (block, word) in (0..).zip(words) {
                let offset = (block * units + unit) * sparse::WORDS * 4;
                let [loaded] = f.load_shared_vector(stage.address + self.first, offset.cast_signed());
                word.set(loaded.where_or(loaded.more_than(0), FIRST));
            }
            f.wgmma_fence();
            let part = found.clone().part(unit * steps..(unit + 1) * steps);
            part.issue_sparse(older.is_some() || unit > 0, |block, step| {
                (words[block as usize], step % steps)
            });
            f.wgmma_commit();
        }
    }
}
