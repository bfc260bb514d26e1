//! The warp-specialised mainloop: tensor copies fill swizzled tiles, `wgmma` reads them through descriptors.

use core::marker::PhantomData;

use cute_rs::atom::descriptor::MatrixDescriptor;
use cute_rs::atom::tma::{self, TmaTiles};
use cute_rs::atom::{Major, SwizzleMode};
use cute_rs::{CoordLayout, IntTuple, Layout, Partition, Tiler};
use ptx::abi::{Argument, TensorElement, TensorMap};
use ptx::{Builder, TensorLoad, Value, Var, WgmmaOperands};

use super::{Consumer, Fragment, Mainloop, Piece, begin, tensor_swizzle, tiled_mma, unbounded};
use crate::element::Element;
use crate::operand::{CachePolicy, Matrix, Operand, OperandPair};
use crate::pipeline::{ClusterPosition, Position, Stage};
use crate::plan::{Arrivals, MainloopSpec, Plan, Roles};
use crate::tile::{TileShape, WarpRoles};

/// Operand pair `O`, tile shape `T`, warp roles `R`.
///
/// One thread of the producer warpgroup copies an A tile `(M, K)` and a B tile `(N, K)` into each stage. Every
/// consumer warpgroup multiplies its rows of A with all of B, `M / consumers x N x K` a stage, keeps one stage's
/// instructions in flight while it waits for the next, and then gives the older stage back. In a cluster, each CTA
/// copies a slice of its tiles and multicasts it to the CTAs of its row (A) or its column (B).
#[derive(Clone, Copy, Debug)]
pub struct TmaWgmma<O, T, R>(PhantomData<(O, T, R)>);

/// The tensor maps' addresses on the device.
#[derive(Clone, Copy, Debug)]
pub struct TensorMaps<'f> {
    a: Value<'f, u64>,
    b: Value<'f, u64>,
}

/// What the plan says of one operand.
#[derive(Clone, Copy)]
struct Side {
    major: Major,
    swizzle: SwizzleMode,
    bits: u32,
    /// The tile's extent along M or N, and along K.
    mn: u32,
    k: u32,
    /// CTAs that bring a tile together.
    slices: u32,
}

impl Side {
    fn a(plan: &Plan) -> Self {
        let MainloopSpec { a_major: major, types, tile: [mn, _, k], cluster, .. } = plan.mainloop;
        Self { major, swizzle: plan.stage.a_swizzle, bits: types.element_bits(), mn, k, slices: cluster[1] }
    }

    fn b(plan: &Plan) -> Self {
        let MainloopSpec { b_major: major, types, tile: [_, mn, k], cluster, .. } = plan.mainloop;
        Self { major, swizzle: plan.stage.b_swizzle, bits: types.element_bits(), mn, k, slices: cluster[0] }
    }

    /// The tensor map of a matrix: its contiguous direction is dimension 0. Every launch makes one, so it asks for
    /// nothing that takes long.
    fn tensor_map(self, element: TensorElement, matrix: Matrix) -> TensorMap {
        let Self { major, swizzle, bits, mn, k, slices } = self;
        let [width, other] = tma::box_dims(major, swizzle, bits, mn, k);
        let (inner, outer) = match major {
            Major::K => (matrix.k, matrix.mn),
            Major::Mn => (matrix.mn, matrix.k),
        };
        TensorMap {
            element,
            address: matrix.address,
            dims: vec![u64::from(inner).max(1), u64::from(outer).max(1)],
            strides: vec![matrix.pitch * u64::from(element.bytes())],
            box_dims: vec![width, other / slices],
            swizzle: tensor_swizzle(swizzle),
        }
    }
}

/// Everything the layouts say about one operand's tile.
struct OperandTile {
    major: Major,
    tiles: TmaTiles,
    descriptor: MatrixDescriptor,
}

impl OperandTile {
    fn new(Side { major, swizzle, bits, mn, k, slices }: Side) -> Self {
        let planned = "the plan admits only tiles that have a canonical layout";
        let tiles = TmaTiles::new(major, swizzle, bits, mn, k);
        let tiles = tiles.and_then(|tiles| tiles.sliced(slices)).expect(planned);
        let descriptor = MatrixDescriptor::new(major, swizzle, bits, mn, k).expect(planned);
        Self { major, tiles, descriptor }
    }

    fn a(plan: &Plan) -> Self {
        Self::new(Side::a(plan))
    }

    fn b(plan: &Plan) -> Self {
        Self::new(Side::b(plan))
    }

    /// Starts the copies of this CTA's slice of the tile whose first element is `tile`, `(mn, k)`; `load` says where the
    /// tile goes.
    fn load<'f>(
        &self,
        f: &'f Builder,
        load: TensorLoad<'f>,
        slice: Value<'f, u32>,
        tile: [Value<'f, u32>; 2],
    ) {
        let planned = "a coordinate has two components, and so has a box";
        let boxes = self.tiles.plan();
        let tile = boxes.slice(tile, slice).expect(planned);
        let dst = load.dst + slice * self.tiles.slice_bytes();
        for (i, place) in (0..).zip(boxes.boxes()) {
            let coords: [_; 2] = boxes.copy(tile, i).expect(planned);
            f.tensor_load(TensorLoad { dst: dst + place.offset_bytes, ..load }, coords.map(Value::cast));
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
        cache: [O::A::CACHE, O::B::CACHE],
        tile: [T::M, T::N, T::K],
        roles: R::ROLES,
        consumers: R::CONSUMERS,
        arrivals: R::ARRIVALS,
        cluster: R::CLUSTER,
        stages: R::STAGES,
    };
    type Device<'f> = TensorMaps<'f>;

    fn name() -> String {
        let letter = |major| match major {
            Major::K => 'k',
            Major::Mn => 'm',
        };
        let [cluster_m, cluster_n] = R::CLUSTER;
        let cluster = if [cluster_m, cluster_n] == [1, 1] {
            String::new()
        } else {
            format!("_{cluster_m}x{cluster_n}")
        };
        let roles = match R::ROLES {
            Roles::Cooperative => "coop",
            Roles::Pingpong => "pingpong",
            Roles::Unspecialised => "plain",
        };
        let stages = R::STAGES.map_or_else(String::new, |stages| format!("_s{stages}"));
        let arrivals = match R::ARRIVALS {
            Arrivals::Warpgroup => "",
            Arrivals::Warp => "_by_warp",
            Arrivals::Thread => "_by_thread",
        };
        format!(
            "{}_{}{}{}{}_{}x{}x{}_{roles}{}{cluster}{stages}{arrivals}",
            Self::A::NAME,
            letter(O::A::MAJOR),
            O::A::CACHE.suffix(),
            letter(O::B::MAJOR),
            O::B::CACHE.suffix(),
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
            Side::a(plan).tensor_map(Self::A::TENSOR, a).into(),
            Side::b(plan).tensor_map(Self::B::TENSOR, b).into(),
        ]
    }

    fn prefetch<'f>(f: &'f Builder, device: Self::Device<'f>) {
        f.prefetch_tensor_map(device.a);
        f.prefetch_tensor_map(device.b);
    }

    fn load<'f>(
        f: &'f Builder,
        plan: &Plan,
        device: Self::Device<'f>,
        cluster: ClusterPosition<'f>,
        ring: Position<'f>,
        piece: Piece<'f>,
    ) {
        let loader = Loader::new(f, plan, device, cluster, piece);
        f.repeat_from(piece.k_begin, piece.k_end, |k_tile| {
            ring.produce(plan.transaction_bytes(), |stage| loader.load(stage, k_tile));
        });
    }

    fn multiply<'f>(
        f: &'f Builder,
        plan: &Plan,
        consumer: Consumer<'f>,
        ring: Position<'f>,
        piece: Piece<'f>,
    ) -> Fragment<'f, f32> {
        let multiplier = Multiplier::new(f, plan, consumer.part);
        let multiply = || {
            // The first stage overwrites the accumulators, so nothing has to clear them.
            let first = ring.acquire();
            multiplier.stage(first, false);
            // The stage before the current one: its instructions may still be running.
            let older = f.variable(first.empty);
            f.repeat_from(piece.k_begin + 1, piece.k_end, |_| {
                let stage = ring.acquire();
                multiplier.stage(stage, true);
                f.wgmma_wait(1);
                consumer.release.arrive(older.get());
                older.set(stage.empty);
            });
            consumer.turns.pass();
            f.wgmma_wait(0);
            consumer.release.arrive(older.get());
        };
        let nothing = || {
            multiplier.clear();
            consumer.turns.pass();
        };
        consumer.turns.begin();
        f.if_else(piece.k_begin.less_than(piece.k_end), multiply, nothing);
        multiplier.fragment(consumer, piece)
    }

    fn load_and_multiply<'f>(
        f: &'f Builder,
        plan: &Plan,
        device: Self::Device<'f>,
        consumer: Consumer<'f>,
        [ring, ahead]: [Position<'f>; 2],
        piece: Piece<'f>,
    ) -> Fragment<'f, f32> {
        let loader = Loader::new(f, plan, device, ClusterPosition::new(f, plan), piece);
        let multiplier = Multiplier::new(f, plan, consumer.part);
        let loads = consumer.warpgroup.equals(0) & consumer.thread.equals(0);
        let fill = |k_tile| ahead.fill(plan.transaction_bytes(), |stage| loader.load(stage, k_tile));
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
        multiplier.fragment(consumer, piece)
    }
}

/// Starts the copies of one piece's operands.
struct Loader<'f, 'p> {
    f: &'f Builder,
    plan: &'p Plan,
    device: TensorMaps<'f>,
    cluster: ClusterPosition<'f>,
    piece: Piece<'f>,
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
    ) -> Self {
        let tile = IntTuple::from(<(i64, i64, i64)>::from(plan.mainloop.tile.map(i64::from)));
        let tiles = unbounded(3).and_then(|problem| problem.inner_partition(&Tiler::Shape(&tile)));
        let tiles = tiles.expect("a tile has positive extents");
        Self { f, plan, device, cluster, piece, tiles, a: OperandTile::a(plan), b: OperandTile::b(plan) }
    }

    /// Starts this CTA's copies of one k-tile into a stage.
    fn load(&self, stage: Stage<'f>, k_tile: Value<'f, u32>) {
        let Self { f, plan, device, cluster, piece, tiles, .. } = *self;
        let (origin, coord) = ([piece.m, piece.n, f.constant(0)], [f.constant(0), f.constant(0), k_tile]);
        let tile = tiles.tensor(origin, &coord.map(Some)).expect("a tile has a number for M, N and K");
        let [m, n, k] = tile.start;
        let (row, column) = (cluster.row_mask(), cluster.column_mask());
        let [a_hint, b_hint] = plan.mainloop.cache.map(CachePolicy::bits);
        let (dst, barrier) = (stage.address, stage.full);
        let load = TensorLoad { map: device.a, dst, barrier, multicast: row, hint: a_hint };
        self.a.load(f, load, cluster.n, [m, k]);
        let dst = stage.address + plan.stage.b_offset;
        let load = TensorLoad { map: device.b, dst, barrier, multicast: column, hint: b_hint };
        self.b.load(f, load, cluster.m, [n, k]);
    }
}

/// Emits the matrix instructions of one consumer warpgroup.
struct Multiplier<'f, 'p> {
    f: &'f Builder,
    plan: &'p Plan,
    a: OperandTile,
    b: OperandTile,
    /// What the warpgroup's part of the rows adds to A's start address, in descriptor units of 16 B.
    rows: Value<'f, u64>,
    /// The instructions `(_, block, step)` of a part: where in A's and B's tiles their operands begin, in elements.
    operands: [Layout; 2],
    /// Which elements of the output's tile the threads hold.
    elements: Partition<CoordLayout>,
    accumulators: Vec<Vec<Var<'f, f32>>>,
}

impl<'f, 'p> Multiplier<'f, 'p> {
    fn new(f: &'f Builder, plan: &'p Plan, part: Value<'f, u32>) -> Self {
        let planned = "the plan admits only tiles that wgmma multiplies";
        let a = OperandTile::a(plan);
        let b = OperandTile::b(plan);
        let [m, n, _] = plan.mainloop.tile;
        let mma = tiled_mma(plan).expect(planned);
        let of_a = mma.partition(cute_rs::Operand::A, a.descriptor.layout()).expect(planned);
        let of_b = mma.partition(cute_rs::Operand::B, b.descriptor.layout()).expect(planned);
        // Descriptors count 16 bytes.
        let units = of_a.starts().upcast((128 / plan.mainloop.types.element_bits()).into()).expect(planned);
        let zero = f.constant(0);
        let rows = units.apply_modes(&[zero, part, zero, zero]).expect(planned);
        let output = CoordLayout::identity(IntTuple::from((i64::from(m), i64::from(n))));
        let elements = output.and_then(|output| mma.partition(cute_rs::Operand::C, &output)).expect(planned);
        let accumulators = (0..plan.blocks())
            .map(|_| (0..plan.mainloop.types.accumulators(n)).map(|_| f.uninitialised()).collect())
            .collect();
        let operands = [of_a.part(), of_b.part()];
        Self { f, plan, a, b, rows: rows.cast(), operands, elements, accumulators }
    }

    /// What the warpgroup has of the tile when everything has been multiplied.
    fn fragment(self, consumer: Consumer<'f>, piece: Piece<'f>) -> Fragment<'f, f32> {
        Fragment {
            first: begin(&self.elements, [piece.m, piece.n], [None, Some(consumer.part)]),
            blocks: self.accumulators,
            elements: self.elements,
            shared: consumer.shared,
            warpgroup: consumer.warpgroup,
            thread: consumer.thread,
        }
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
        // Descriptors count 16 bytes.
        let units = |operands: &Layout, [block, step]: [u32; 2]| {
            let elements = operands.at_modes(&[0, block.into(), step.into()]).unsigned_abs();
            elements * u64::from(types.element_bits()) / 128
        };
        self.f.wgmma_fence();
        for step in 0..self.plan.mainloop.tile[2] / types.k() {
            let accumulate = self.f.constant(accumulate || step > 0);
            for (block, accumulators) in (0u32..).zip(&self.accumulators) {
                let [of_a, of_b] = self.operands;
                let a = a + units(&of_a, [block, step]);
                let b = b + units(&of_b, [0, step]);
                let operands = WgmmaOperands {
                    accumulate,
                    transpose_a: self.a.major == Major::Mn,
                    transpose_b: self.b.major == Major::Mn,
                    ..WgmmaOperands::new(types, self.plan.mainloop.tile[1], a, b)
                };
                self.f.wgmma(operands, accumulators);
            }
        }
        self.f.wgmma_commit();
    }
}
