//! The warp-specialised mainloop: tensor copies fill swizzled tiles, `wgmma` reads them through descriptors.

use core::marker::PhantomData;
use std::sync::Arc;

use cute_rs::atom::Major;
use cute_rs::atom::tma::{self, TmaTiles};
use cute_rs::{CoordLayout, IntTuple, Partition, Tiler};
use ptx::abi::{Argument, TensorElement, TensorMap};
use ptx::{Builder, TensorLoad, Value};

use super::maps::OwnMaps;
use super::multiplier::{Multiplier, Side};
use super::{
    Consumer, DeviceMainloop, Fragment, Mainloop, MainloopEmitter, Piece, tensor_swizzle, unbounded,
};
use crate::element::Format;
use crate::form::Forms;
use crate::operand::{CachePolicy, Matrix, OperandPair};
use crate::pipeline::{ClusterPosition, Position, Stage};
use crate::plan::{MainloopSpec, Plan, Producer};
use crate::tile::{TileShape, WarpRoles};

/// Operand pair `O`, tile shape `T`, warp roles `R`.
///
/// One thread of the producer warpgroup copies an A tile `(M, K)` and a B tile `(N, K)` into each stage. Every
/// consumer warpgroup multiplies its rows of A with all of B, `M / consumers x N x K` a stage, keeps one stage's
/// instructions in flight while it waits for the next, and then gives the older stage back. In a cluster, each CTA
/// copies a slice of its tiles and multicasts it to the CTAs of its row (A) or its column (B).
#[derive(Clone, Copy, Debug)]
pub struct TmaWgmma<O, T, R>(PhantomData<(O, T, R)>);

/// The operands' tensor maps on the device.
#[derive(Clone, Copy, Debug)]
struct TensorMaps<'f> {
    a: OperandMap<'f>,
    b: OperandMap<'f>,
    /// Those that replace them, where device memory says where matrices lie.
    own: Option<OwnMaps<'f>>,
}

/// An operand's tensor map on the device.
#[derive(Clone, Copy, Debug)]
struct OperandMap<'f> {
    address: Value<'f, u64>,
    /// From a group's coordinate to the next one's, 1 or 0; `None` where there is but one matrix.
    step: Option<Value<'f, u32>>,
}

impl<'f> OperandMap<'f> {
    fn declare(f: &'f Builder, [map, step]: [&'static str; 2], batched: bool) -> Self {
        Self { address: f.tensor_map(map), step: batched.then(|| f.param(step)) }
    }

    fn arguments(side: Side, element: TensorElement, matrix: Matrix, batched: bool) -> Vec<Argument> {
        let mut arguments = vec![tensor_map(side, element, matrix, batched).into()];
        if batched {
            arguments.push(u32::from(matrix.batch.stride != 0).into());
        }
        arguments
    }

    /// The coordinate of the group's matrix, if there are several.
    fn coordinate(&self, group: Option<Value<'f, u32>>) -> Option<Value<'f, u32>> {
        self.step.zip(group).map(|(step, group)| group * step)
    }
}

/// The tensor map of a matrix: its contiguous direction is dimension 0. The half of a matrix that is split is dimension 2, and
/// where there are several, their number is the last dimension. Every launch makes one, so it asks for nothing that takes long.
fn tensor_map(side: Side, element: TensorElement, matrix: Matrix, batched: bool) -> TensorMap {
    let Side { major, swizzle, bits, mn, k, slices, split, promotion } = side;
    let extent = if split { matrix.mn / 2 } else { matrix.mn };
    let [width, other] = tma::box_dims(major, swizzle, bits, mn, k);
    let (inner, outer) = match major {
        Major::K => (matrix.k, extent),
        Major::Mn => (extent, matrix.k),
    };
    let bytes = u64::from(element.bytes());
    let mut map = TensorMap {
        element,
        address: matrix.address,
        dims: vec![u64::from(inner).max(1), u64::from(outer).max(1)],
        strides: vec![matrix.pitch * bytes],
        box_dims: vec![width, other / slices],
        swizzle: tensor_swizzle(swizzle),
        promotion,
    };
    if split {
        let (rows, distance) = match major {
            Major::K if slices == 1 => (2, u64::from(extent) * matrix.pitch),
            Major::K => (1, u64::from(extent) * matrix.pitch),
            Major::Mn => (1, u64::from(extent)),
        };
        map.dims.push(2);
        map.strides.push(distance * bytes);
        // One box has both halves where one CTA brings all of them.
        map.box_dims[1] /= rows;
        map.box_dims.push(rows);
    }
    if batched {
        let matrices = matrix.batch.distinct();
        map.dims.push(matrices.into());
        map.strides.push(if matrices == 1 { matrix.pitch * bytes } else { matrix.batch.stride * bytes });
        map.box_dims.push(1);
    }
    map
}

/// How one operand's tile is copied.
struct OperandTile {
    tiles: TmaTiles,
    side: Side,
}

impl OperandTile {
    fn new(side: Side) -> Self {
        let Side { major, swizzle, bits, mn, k, slices, .. } = side;
        let planned = "the plan admits only tiles that have a canonical layout";
        let tiles = TmaTiles::new(major, swizzle, bits, mn, k);
        let tiles = tiles.and_then(|tiles| tiles.sliced(slices)).expect(planned);
        Self { tiles, side }
    }

    /// The half of a split matrix that the `i`-th box of a slice begins in; `None` where the matrix is whole.
    fn half<'f>(&self, i: u32, slice: Value<'f, u32>) -> Option<Value<'f, u32>> {
        let Side { major, mn, slices, split, .. } = self.side;
        let half = match major {
            Major::K if slices == 1 => slice.builder().constant(0),
            Major::K if slices == 2 => slice,
            Major::K => slice / (slices / 2),
            Major::Mn => slice.builder().constant(self.tiles.get(i).mn / (mn / 2)),
        };
        split.then_some(half)
    }

    /// Starts the copies of this CTA's slice of the tile whose first element is `tile`, `(mn, k)`, in the left half of a split
    /// matrix; `load` says where the tile goes. Boxes
    /// behind the first `columns` of a tile whose columns are contiguous are left out.
    fn load<'f>(
        &self,
        f: &'f Builder,
        load: TensorLoad<'f>,
        slice: Value<'f, u32>,
        tile: [Value<'f, u32>; 2],
        matrix: Option<Value<'f, u32>>,
        columns: Option<Value<'f, u32>>,
    ) {
        let planned = "a coordinate has two components, and so has a box";
        let boxes = self.tiles.plan();
        let tile = boxes.slice(tile, slice).expect(planned);
        let dst = load.dst + slice * self.tiles.slice_bytes();
        for (i, place) in (0..).zip(boxes.boxes()) {
            let [mut inner, mut outer]: [_; 2] = boxes.copy(tile, i).expect(planned);
            let load = TensorLoad { dst: dst + place.offset_bytes, ..load };
            let half = self.half(i, slice);
            if let Some(half) = half {
                let along = if self.side.major == Major::K { &mut outer } else { &mut inner };
                *along = *along - half * (self.side.mn / 2);
            }
            let copy = || match (half, matrix) {
                (None, None) => f.tensor_load(load, [inner, outer].map(Value::cast)),
                (Some(third), None) | (None, Some(third)) => {
                    f.tensor_load(load, [inner, outer, third].map(Value::cast));
                }
                (Some(half), Some(matrix)) => {
                    f.tensor_load(load, [inner, outer, half, matrix].map(Value::cast));
                }
            };
            match columns {
                Some(columns) => f.if_(columns.more_than(self.tiles.get(i).mn), copy),
                None => copy(),
            }
        }
    }

    /// The same for the first `columns` of a tile that may be narrowed, of which this CTA is the `cta`-th of `ctas` that share
    /// it.
    fn load_columns<'f>(
        &self,
        f: &'f Builder,
        load: TensorLoad<'f>,
        [cta, columns]: [Value<'f, u32>; 2],
        ctas: u32,
        tile: [Value<'f, u32>; 2],
        matrix: Option<Value<'f, u32>>,
    ) {
        if self.side.major == Major::Mn {
            // Boxes lie side by side along the columns; the CTAs have slices of each along K.
            return self.load(f, load, cta, tile, matrix, Some(columns));
        }
        let (part, step) = (f.variable(cta), self.tiles.box_dims[1]);
        let parts = columns / step;
        f.while_(
            || part.get().less_than(parts),
            || {
                self.load(f, load, part.get(), tile, matrix, None);
                part.set(part.get() + ctas);
            },
        );
    }
}

impl<O: OperandPair, T: TileShape, R: WarpRoles> Mainloop for TmaWgmma<O, T, R> {
    type Accumulator = f32;
    const SPEC: MainloopSpec = MainloopSpec::of::<O, T, R>(Producer::Thread);
    const FORMS: Forms = Forms::ALL;
    type Arguments = ();

    fn emitter() -> Arc<dyn MainloopEmitter> {
        Arc::new(TensorCopies)
    }
}

/// [`TmaWgmma`] as a value: the plan says the rest.
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
        let [a, b] = plan.operand_batches();
        Box::new(TensorMaps {
            a: OperandMap::declare(f, ["a_map", "a_step"], a),
            b: OperandMap::declare(f, ["b_map", "b_step"], b),
            own: plan.form.described().then(|| OwnMaps::declare(f, plan)),
        })
    }

    fn arguments(&self, plan: &Plan, a: Matrix, b: Matrix) -> Vec<Argument> {
        let [a_batched, b_batched] = plan.operand_batches();
        let [a_element, b_element] = plan.mainloop.formats.map(Format::tensor);
        let described = plan.form.described();
        // Records say where matrices lie; nothing is read through the maps that the host encodes.
        let map = |matrix: Matrix| Matrix { address: if described { 0 } else { matrix.address }, ..matrix };
        let mut arguments = OperandMap::arguments(Side::a(plan), a_element, map(a), a_batched);
        arguments.extend(OperandMap::arguments(Side::b(plan), b_element, map(b), b_batched));
        if described {
            arguments.push(a.address.into());
        }
        arguments
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
    ) -> Fragment<'f, f32> {
        let loads = consumer.warpgroup.equals(0) & consumer.thread.equals(0);
        let loader = Loader::new(f, plan, *self, ClusterPosition::new(f, plan), piece, Some(loads));
        let multiplier = Multiplier::new(f, plan, consumer.part);
        let fill = |k_tile| ahead.fill(loader.bytes, |stage| loader.load(stage, k_tile));
        let first = (piece.k_end - piece.k_begin).min(plan.stages) + piece.k_begin;
        f.if_(loads, || f.repeat_from(piece.k_begin, first, fill));
        // The stage that has been multiplied is the one that is filled next.
        let step = |k_tile: Value<'f, u32>, accumulate: bool| {
            multiplier.stage(ring.acquire(), accumulate);
            f.wgmma_wait(0);
            f.barrier_sync(0, plan.threads);
            let next = k_tile + plan.stages;
            f.if_(loads & next.less_than(piece.k_end), || fill(next));
        };
        let multiply = || {
            step(piece.k_begin, false);
            f.repeat_from(piece.k_begin + 1, piece.k_end, |k_tile| step(k_tile, true));
        };
        f.if_else(piece.k_begin.less_than(piece.k_end), multiply, || multiplier.clear());
        multiplier.fragment(consumer, piece, plan.mainloop.tile[1])
    }
}

/// Starts the copies of one piece's operands.
struct Loader<'f, 'p> {
    f: &'f Builder,
    plan: &'p Plan,
    maps: [Value<'f, u64>; 2],
    cluster: ClusterPosition<'f>,
    piece: Piece<'f>,
    /// What comes into a stage, in bytes.
    bytes: Value<'f, u32>,
    /// Which of several matrices the piece is of: A's and B's coordinate.
    matrices: [Option<Value<'f, u32>>; 2],
    /// The coordinates `(m, n, k)` of the problem, cut into tiles.
    tiles: Partition<CoordLayout>,
    a: OperandTile,
    b: OperandTile,
}

impl<'f, 'p> Loader<'f, 'p> {
    fn new(
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
            None => f.constant(plan.transaction_bytes()),
            Some(columns) => columns.div_ceil(part) * (plan.stage.b_bytes / parts) + plan.stage.a_bytes,
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
            a: OperandTile::new(Side::a(plan)),
            b: OperandTile::new(Side::b(plan)),
        }
    }

    /// Starts this CTA's copies of one k-tile into a stage.
    fn load(&self, stage: Stage<'f>, k_tile: Value<'f, u32>) {
        let Self { f, plan, maps, cluster, piece, tiles, .. } = *self;
        let (origin, coord) = ([piece.m, piece.n, f.constant(0)], [f.constant(0), f.constant(0), k_tile]);
        let tile = tiles.tensor(origin, &coord.map(Some)).expect("a tile has a number for M, N and K");
        let [m, n, k] = tile.start;
        let n = if plan.epilogue.split { n >> 1 } else { n };
        let (row, column) = (cluster.row_mask(), cluster.column_mask());
        let [a_hint, b_hint] = plan.mainloop.cache.map(CachePolicy::bits);
        let (dst, barrier) = (stage.address, stage.full);
        let load = TensorLoad { map: maps[0], dst, barrier, multicast: row, hint: a_hint };
        self.a.load(f, load, cluster.n, [m, k], self.matrices[0], None);
        let dst = stage.address + plan.stage.b_offset;
        let load = TensorLoad { map: maps[1], dst, barrier, multicast: column, hint: b_hint };
        match piece.columns {
            None => self.b.load(f, load, cluster.m, [n, k], self.matrices[1], None),
            Some(columns) => {
                let ctas = plan.mainloop.cluster[0];
                self.b.load_columns(f, load, [cluster.m, columns], ctas, [n, k], self.matrices[1]);
            }
        }
    }
}
