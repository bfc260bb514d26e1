//! The warp-specialised mainloop: tensor copies fill swizzled tiles, and `wgmma` reads them through
//! descriptors.

use core::marker::PhantomData;
use std::sync::Arc;

use cute_rs::{CoordLayout, IntTuple, Partition, Tiler};
use ptx::abi::Argument;
use ptx::{Builder, Value};

use super::maps::OwnMaps;
use super::multiplier;
use super::tensor_copy::{Origin, TensorCopy};
use super::{Consumer, DeviceMainloop, Mainloop, MainloopEmitter, Piece, Sums, both_staged, unbounded};
use crate::form::Forms;
use crate::operand::{Matrix, OperandPair};
use crate::pipeline::{ClusterPosition, Position, Stage};
use crate::plan::{MainloopNeeds, MainloopSpec, Plan, Producer};
use crate::tile::{TileShape, WarpRoles};

/// The warp-specialised mainloop with operand pair `O`, tile shape `T` and warp roles `R`. Addresses, leading
/// dimensions and strides of operands must be multiples of 16 B; for others use
/// [`CopyWgmma`](super::CopyWgmma).
///
/// One thread of the producer warpgroup copies an A tile `(M, K)` and a B tile `(N, K)` into each stage.
/// Every consumer warpgroup multiplies its rows of A by all of B: `M / consumers x N x K` per stage. It keeps
/// one stage's instructions in flight while it waits for the next, and then releases the older stage. In a
/// cluster, each CTA copies a slice of its tiles and multicasts it to the CTAs of its row (A) or its column
/// (B).
#[derive(Clone, Copy, Debug)]
pub struct TmaWgmma<O, T, R>(PhantomData<(O, T, R)>);

/// The operands' tensor maps on the device.
#[derive(Clone, Copy, Debug)]
pub(super) struct TensorMaps<'f> {
    a: OperandMap<'f>,
    b: OperandMap<'f>,
    /// The maps that replace them in a grouped launch, where device memory describes the matrices.
    own: Option<OwnMaps<'f>>,
}

impl<'f> TensorMaps<'f> {
    /// Declares the kernel parameters.
    pub(super) fn declare(f: &'f Builder, plan: &Plan) -> Self {
        both_staged(f, plan);
        let [a, b] = plan.operand_batches();
        Self {
            a: OperandMap::declare(f, ["a_map", "a_step"], a),
            b: OperandMap::declare(f, ["b_map", "b_step"], b),
            own: plan.form.described().then(|| OwnMaps::declare(f, plan)),
        }
    }
}

/// An operand's tensor map on the device.
#[derive(Clone, Copy, Debug)]
pub(super) struct OperandMap<'f> {
    /// Generic address of the map.
    pub(super) address: Value<'f, u64>,
    /// Distance between the matrix coordinates of consecutive GEMMs, 1 or 0; `None` if there is only one
    /// matrix.
    step: Option<Value<'f, u32>>,
}

impl<'f> OperandMap<'f> {
    pub(super) fn declare(f: &'f Builder, [map, step]: [&'static str; 2], batched: bool) -> Self {
        Self { address: f.tensor_map(map), step: batched.then(|| f.param(step)) }
    }

    /// The coordinate of the group's matrix; `None` if there is only one matrix.
    pub(super) fn coordinate(&self, group: Option<Value<'f, u32>>) -> Option<Value<'f, u32>> {
        self.step.zip(group).map(|(step, group)| group * step)
    }
}

impl<O: OperandPair, T: TileShape, R: WarpRoles> Mainloop for TmaWgmma<O, T, R> {
    const SPEC: MainloopSpec = MainloopSpec::of::<O, T, R>(Producer::Thread);
    const NEEDS: MainloopNeeds = MainloopNeeds::NONE;
    const FORMS: Forms = Forms::ALL;
    type Arguments = ();

    fn emitter() -> Arc<dyn MainloopEmitter> {
        Self::SPEC.emitter()
    }
}

/// The emitter of [`TmaWgmma`]. The plan holds all numbers.
#[derive(Clone, Copy, Debug)]
pub struct TensorCopies;

impl MainloopEmitter for TensorCopies {
    fn name(&self, spec: &MainloopSpec) -> String {
        spec.name()
    }

    fn is_built_in(&self) -> bool {
        true
    }

    fn declare<'f>(&self, f: &'f Builder, plan: &Plan) -> Box<dyn DeviceMainloop<'f> + 'f> {
        Box::new(TensorMaps::declare(f, plan))
    }

    fn arguments(&self, plan: &Plan, a: Matrix, b: Matrix) -> Vec<Argument> {
        let [a_batched, b_batched] = plan.operand_batches();
        let [a_tile, b_tile] = &plan.operands;
        let described = plan.form.described();
        // In a grouped launch, records describe the matrices; nothing is read through the maps that the host
        // encodes.
        let map = |matrix: Matrix| Matrix { address: if described { 0 } else { matrix.address }, ..matrix };
        let arguments = a_tile.arguments(map(a), a_batched).chain(b_tile.arguments(map(b), b_batched));
        arguments.chain(described.then(|| a.address.into())).collect()
    }
}

impl<'f> DeviceMainloop<'f> for TensorMaps<'f> {
    fn prefetch(&self, f: &'f Builder) {
        if self.own.is_none() {
            f.prefetch_tensor_map(self.a.address);
            f.prefetch_tensor_map(self.b.address);
        }
    }

    fn prepare(&self, f: &'f Builder, plan: &Plan) {
        if let Some(own) = self.own {
            own.prepare(f, plan, [self.a.address, self.b.address]);
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
        let loader = Loader::new(f, plan, *self, cluster, piece, None);
        f.repeat_from(piece.k_begin, piece.k_end, |k_tile| {
            ring.produce(loader.bytes, |stage| loader.load(stage, k_tile));
        });
    }

    fn load_and_multiply(
        &self,
        f: &'f Builder,
        plan: &Plan,
        consumer: Consumer<'f>,
        [ring, ahead]: [Position<'f>; 2],
        piece: Piece<'f>,
    ) -> Sums<'f> {
        let loads = consumer.warpgroup.equals(0) & consumer.thread.equals(0);
        let cluster = ClusterPosition::new(f, plan.mainloop.cluster);
        let loader = Loader::new(f, plan, *self, cluster, piece, Some(loads));
        let fill = |k_tile| ahead.fill(loader.bytes, |stage| loader.load(stage, k_tile));
        let first = || {
            let first = (piece.k_end - piece.k_begin).min(plan.ring.stages) + piece.k_begin;
            f.if_(loads, || f.repeat_from(piece.k_begin, first, fill));
        };
        // The stage that has just been multiplied is the next to be filled.
        let next = |k_tile: Value<'f, u32>| {
            let next = k_tile + plan.ring.stages;
            f.if_(loads & next.less_than(piece.k_end), || fill(next));
        };
        multiplier::in_turn(f, plan, consumer, ring, piece, (&first, &next))
    }
}

/// Starts the copies of one work unit's operands.
pub(super) struct Loader<'f, 'p> {
    f: &'f Builder,
    plan: &'p Plan,
    maps: [Value<'f, u64>; 2],
    cluster: ClusterPosition<'f>,
    piece: Piece<'f>,
    /// Bytes loaded per stage.
    bytes: Value<'f, u32>,
    /// Matrix coordinates of the work unit, for A and B, if there are several matrices.
    matrices: [Option<Value<'f, u32>>; 2],
    /// The coordinates `(m, n, k)` of the problem, divided into tiles.
    tiles: Partition<CoordLayout>,
    a: TensorCopy,
    b: TensorCopy,
}

impl<'f, 'p> Loader<'f, 'p> {
    pub(super) fn new(
        f: &'f Builder,
        plan: &'p Plan,
        device: TensorMaps<'f>,
        cluster: ClusterPosition<'f>,
        piece: Piece<'f>,
        loads: Option<Value<'f, bool>>,
    ) -> Self {
        let tile = IntTuple::from(<(i64, i64, i64)>::from(plan.mainloop.tile.map(i64::from)));
        let tiles = unbounded(3).and_then(|problem| problem.inner_partition(&Tiler::Shape(&tile)));
        let tiles = tiles.expect("a tile has positive extents");
        let [part, parts] = plan.mainloop.parts();
        let bytes = match piece.columns {
            None => f.constant(plan.ring.tile_bytes(0) + plan.ring.tile_bytes(1)),
            Some(columns) => {
                columns.div_ceil(part) * (plan.ring.tile_bytes(1) / parts) + plan.ring.tile_bytes(0)
            }
        };
        Self {
            f,
            plan,
            cluster,
            piece,
            bytes,
            maps: match device.own {
                Some(own) => own.of(f, plan, piece, loads),
                None => [device.a.address, device.b.address],
            },
            matrices: [device.a, device.b].map(|operand| operand.coordinate(piece.group)),
            tiles,
            a: TensorCopy::new(plan.operands[0]),
            b: TensorCopy::new(plan.operands[1]),
        }
    }

    /// Starts this CTA's copies of one k-tile into a stage.
    pub(super) fn load(&self, stage: Stage<'f>, k_tile: Value<'f, u32>) {
        let Self { f, plan, maps, cluster, piece, tiles, .. } = *self;
        let (origin, coord) = ([piece.m, piece.n, f.constant(0)], [f.constant(0), f.constant(0), k_tile]);
        let tile = tiles.tensor(origin, &coord.map(Some)).expect("a tile has a number for M, N and K");
        let [m, n, k] = tile.start;
        let n = if plan.epilogue.split { n >> 1 } else { n };
        let (row, column) = (cluster.row_mask(), cluster.column_mask());
        let [a, b] = self.matrices;
        let a = Origin { map: maps[0], matrix: a, slice: cluster.n, receivers: row };
        let b = Origin { map: maps[1], matrix: b, slice: cluster.m, receivers: column };
        self.a.load(f, stage, a, [m, k]);
        match piece.columns {
            None => self.b.load(f, stage, b, [n, k]),
            Some(columns) => self.b.load_columns(f, stage, b, [n, k], (columns, plan.mainloop.cluster[0])),
        }
    }
}
