//! The warp-specialised mainloop: tensor copies fill swizzled tiles, `wgmma` reads them through descriptors.

use core::marker::PhantomData;

use cute_rs::atom::descriptor::MatrixDescriptor;
use cute_rs::atom::tma::TmaTiles;
use cute_rs::atom::{Major, SwizzleMode, wgmma};
use ptx::abi::{Argument, TensorElement, TensorMap, TensorSwizzle};
use ptx::{Builder, TensorLoad, Value, Var, WgmmaOperands};

use super::{Consumer, Fragment, Mainloop, Piece};
use crate::element::Element;
use crate::operand::{Matrix, Operand, OperandPair};
use crate::pipeline::{Position, Stage};
use crate::plan::{MainloopSpec, Plan};
use crate::tile::{TileShape, WarpRoles};

/// Operand pair `O`, tile shape `T`, warp roles `R`.
///
/// One thread of the producer warpgroup copies an A tile `(M, K)` and a B tile `(N, K)` into each stage. Every
/// consumer warpgroup multiplies its rows of A with all of B, `M / consumers x N x K` a stage, keeps one stage's
/// instructions in flight while it waits for the next, and then gives the older stage back.
#[derive(Clone, Copy, Debug)]
pub struct TmaWgmma<O, T, R>(PhantomData<(O, T, R)>);

/// The tensor maps' addresses on the device.
#[derive(Clone, Copy, Debug)]
pub struct TensorMaps<'f> {
    a: Value<'f, u64>,
    b: Value<'f, u64>,
}

/// Everything the layouts say about one operand's tile.
struct OperandTile {
    major: Major,
    tiles: TmaTiles,
    descriptor: MatrixDescriptor,
    swizzle: SwizzleMode,
}

impl OperandTile {
    fn new(plan: &Plan, major: Major, swizzle: SwizzleMode, mn: u32) -> Self {
        let k = plan.mainloop.tile[2];
        let bits = plan.mainloop.types.element_bits();
        let planned = "the plan admits only tiles that have a canonical layout";
        let tiles = TmaTiles::new(major, swizzle, bits, mn, k).expect(planned);
        let descriptor = MatrixDescriptor::new(major, swizzle, bits, mn, k).expect(planned);
        Self { major, tiles, descriptor, swizzle }
    }

    fn a(plan: &Plan) -> Self {
        Self::new(plan, plan.mainloop.a_major, plan.stage.a_swizzle, plan.mainloop.tile[0])
    }

    fn b(plan: &Plan) -> Self {
        Self::new(plan, plan.mainloop.b_major, plan.stage.b_swizzle, plan.mainloop.tile[1])
    }

    /// The tensor map of a matrix: its contiguous direction is dimension 0.
    fn tensor_map(&self, element: TensorElement, matrix: Matrix) -> TensorMap {
        let (inner, outer) = match self.major {
            Major::K => (matrix.k, matrix.mn),
            Major::Mn => (matrix.mn, matrix.k),
        };
        TensorMap {
            element,
            address: matrix.address,
            dims: vec![u64::from(inner).max(1), u64::from(outer).max(1)],
            strides: vec![matrix.pitch * u64::from(element.bytes())],
            box_dims: self.tiles.box_dims.to_vec(),
            swizzle: match self.swizzle {
                SwizzleMode::None => TensorSwizzle::None,
                SwizzleMode::B32 => TensorSwizzle::B32,
                SwizzleMode::B64 => TensorSwizzle::B64,
                SwizzleMode::B128 => TensorSwizzle::B128,
            },
        }
    }

    /// Starts the copies of the tile whose first element is `(mn, k)`.
    fn load<'f>(
        &self,
        f: &'f Builder,
        map: Value<'f, u64>,
        dst: Value<'f, u32>,
        barrier: Value<'f, u32>,
        [mn, k]: [Value<'f, u32>; 2],
    ) {
        for tile in self.tiles.boxes() {
            let (mn, k) = ((mn + tile.mn).cast::<i32>(), (k + tile.k).cast::<i32>());
            let coords = match self.major {
                Major::K => [k, mn],
                Major::Mn => [mn, k],
            };
            let load = TensorLoad { map, dst: dst + tile.offset_bytes, barrier, multicast: None, hint: None };
            f.tensor_load(load, coords);
        }
    }
}

impl<O: OperandPair, T: TileShape, R: WarpRoles> Mainloop for TmaWgmma<O, T, R> {
    type Accumulator = f32;
    type A = <O::A as Operand>::Element;
    type B = <O::B as Operand>::Element;
    const SPEC: MainloopSpec = MainloopSpec {
        types: O::TYPES,
        a_major: O::A::MAJOR,
        b_major: O::B::MAJOR,
        tile: [T::M, T::N, T::K],
        consumers: R::CONSUMERS,
        stages: R::STAGES,
    };
    type Device<'f> = TensorMaps<'f>;

    fn name() -> String {
        let letter = |major| match major {
            Major::K => 'k',
            Major::Mn => 'm',
        };
        format!(
            "{}_{}{}_{}x{}x{}_coop{}",
            Self::A::NAME,
            letter(O::A::MAJOR),
            letter(O::B::MAJOR),
            T::M,
            T::N,
            T::K,
            R::CONSUMERS
        )
    }

    fn declare<'f>(f: &'f Builder, _plan: &Plan) -> Self::Device<'f> {
        TensorMaps { a: f.tensor_map("a_map"), b: f.tensor_map("b_map") }
    }

    fn arguments(plan: &Plan, a: Matrix, b: Matrix) -> Vec<Argument> {
        vec![
            OperandTile::a(plan).tensor_map(Self::A::TENSOR, a).into(),
            OperandTile::b(plan).tensor_map(Self::B::TENSOR, b).into(),
        ]
    }

    fn prefetch<'f>(f: &'f Builder, device: Self::Device<'f>) {
        f.prefetch_tensor_map(device.a);
        f.prefetch_tensor_map(device.b);
    }

    fn load<'f>(f: &'f Builder, plan: &Plan, device: Self::Device<'f>, ring: Position<'f>, piece: Piece<'f>) {
        let (a, b) = (OperandTile::a(plan), OperandTile::b(plan));
        f.repeat_from(piece.k_begin, piece.k_end, |k_tile| {
            let k = k_tile * plan.mainloop.tile[2];
            ring.produce(plan.transaction_bytes(), |stage| {
                a.load(f, device.a, stage.address, stage.full, [piece.m, k]);
                b.load(f, device.b, stage.address + plan.stage.b_offset, stage.full, [piece.n, k]);
            });
        });
    }

    fn multiply<'f>(
        f: &'f Builder,
        plan: &Plan,
        consumer: Consumer<'f>,
        ring: Position<'f>,
        piece: Piece<'f>,
    ) -> Fragment<'f, f32> {
        let multiplier = Multiplier::new(f, plan, consumer.warpgroup);
        let finish = || {
            // The first stage overwrites the accumulators, so nothing has to clear them.
            let first = ring.acquire();
            multiplier.stage(first, false);
            // The stage before the current one: its instructions may still be running.
            let older = f.variable(first.empty);
            f.repeat_from(piece.k_begin + 1, piece.k_end, |_| {
                let stage = ring.acquire();
                multiplier.stage(stage, true);
                f.wgmma_wait(1);
                f.if_(consumer.leader, || f.mbarrier_arrive(older.get()));
                older.set(stage.empty);
            });
            f.wgmma_wait(0);
            f.if_(consumer.leader, || f.mbarrier_arrive(older.get()));
        };
        f.if_else(piece.k_begin.less_than(piece.k_end), finish, || multiplier.clear());
        Fragment {
            blocks: multiplier.accumulators,
            layout: multiplier.layout,
            m: piece.m + consumer.warpgroup * (plan.blocks() * 64),
            n: piece.n,
            thread: consumer.thread,
        }
    }
}

/// Emits the matrix instructions of one consumer warpgroup.
struct Multiplier<'f, 'p> {
    f: &'f Builder,
    plan: &'p Plan,
    a: OperandTile,
    b: OperandTile,
    /// What the warpgroup's rows add to A's start address, in descriptor units of 16 B.
    rows: Value<'f, u64>,
    layout: cute_rs::ThreadValue,
    accumulators: Vec<Vec<Var<'f, f32>>>,
}

impl<'f, 'p> Multiplier<'f, 'p> {
    fn new(f: &'f Builder, plan: &'p Plan, warpgroup: Value<'f, u32>) -> Self {
        let n = plan.mainloop.tile[1];
        let a = OperandTile::a(plan);
        let b = OperandTile::b(plan);
        let rows = warpgroup * (a.descriptor.mn_offset_bytes(plan.blocks() * 64) / 16);
        let layout = wgmma::accumulator(n).expect("the plan admits only N that wgmma has");
        let accumulators = (0..plan.blocks())
            .map(|_| (0..plan.mainloop.types.accumulators(n)).map(|_| f.uninitialised()).collect())
            .collect();
        Self { f, plan, a, b, rows: rows.cast(), layout, accumulators }
    }

    fn clear(&self) {
        for accumulator in self.accumulators.iter().flatten() {
            accumulator.set(0.0);
        }
    }

    /// The descriptor of the operand tile at a shared address.
    fn descriptor(&self, operand: &OperandTile, address: Value<'f, u32>) -> Value<'f, u64> {
        let start = (address & 0x3_FFFF) >> 4;
        start.cast::<u64>() | operand.descriptor.bits(0)
    }

    /// Multiplies one stage into the accumulators; the old ones are added if `accumulate`.
    fn stage(&self, stage: Stage<'f>, accumulate: bool) {
        let a = self.descriptor(&self.a, stage.address) + self.rows;
        let b = self.descriptor(&self.b, stage.address + self.plan.stage.b_offset);
        let types = self.plan.mainloop.types;
        self.f.wgmma_fence();
        for step in 0..self.plan.mainloop.tile[2] / types.k() {
            let accumulate = self.f.constant(accumulate || step > 0);
            for (block, accumulators) in (0u32..).zip(&self.accumulators) {
                let block = self.a.descriptor.mn_offset_bytes(block * 64);
                let operands = WgmmaOperands {
                    types,
                    n: self.plan.mainloop.tile[1],
                    a: a + u64::from((block + self.a.descriptor.k_offset_bytes(step)) / 16),
                    b: b + u64::from(self.b.descriptor.k_offset_bytes(step) / 16),
                    accumulate,
                    transpose_a: self.a.major == Major::Mn,
                    transpose_b: self.b.major == Major::Mn,
                };
                self.f.wgmma(operands, accumulators);
            }
        }
        self.f.wgmma_commit();
    }
}
