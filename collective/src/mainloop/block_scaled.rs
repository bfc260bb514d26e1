//! Operands in blocks that have scales: every 128 of K are multiplied alone, and added up with their scales in single precision.

use core::marker::PhantomData;
use std::collections::BTreeMap;
use std::sync::Arc;

use ptx::abi::{Argument, Promotion, TensorElement, TensorMap, TensorSwizzle};
use ptx::{Builder, TensorLoad, Value, Var};
use typenum::Unsigned;

use super::tma_wgmma::{Loader, TensorCopies, TensorMaps, TmaWgmma};
use super::{Consumer, DeviceMainloop, Finish, Fragment, Mainloop, MainloopEmitter, Piece, Product, Sums};
use crate::operand::{Matrix, MatrixRef, OperandPair};
use crate::pipeline::{ClusterPosition, Position, Stage};
use crate::plan::{Arrivals, MainloopSpec, Plan, Roles, Room};
use crate::tile::{TileShape, WarpRoles};

/// The mainloop `M`, a [`TmaWgmma`] of 8-bit floats, with scales of its operands' blocks along K.
///
/// Each row of A has a scale for every 128 of K, and so has each `N` columns of the product: `N` is 1 or 128 (DeepSeek's 1 x 128 by
/// 128 x 128). The sums are those of `scale(A) * scale(B) * A * B`. They are promoted after every 128 of K, into as many registers
/// again as the accumulators take, so that they lose no more than [`Promoted<U4>`](crate::Promoted) does.
///
/// The scales are an argument of the mainloop's own: [`BlockScales`]. Tensor copies bring them with the tiles, and threads read them
/// from the stage, so each warp gives a stage back by itself ([`EachWarp`](crate::EachWarp)).
///
/// ```
/// use collective::{AsManyAsFit, BlockScaled, Cluster, Cooperative, EachWarp, F8E4M3, KMajor, Mainloop, Operands, Tile, TmaWgmma};
/// use typenum::{U1, U2, U128};
///
/// type Tiles = Tile<U128, U128, U128>;
/// type Roles = Cooperative<U2, Cluster<U1, U1>, EachWarp<AsManyAsFit>>;
/// type M = BlockScaled<TmaWgmma<Operands<KMajor<F8E4M3>, KMajor<F8E4M3>>, Tiles, Roles>, U128>;
/// assert_eq!(M::SPEC.more[0].bytes, 128 * 4); // the scales of a tile's rows
/// ```
#[derive(Clone, Copy, Debug)]
pub struct BlockScaled<M, N>(PhantomData<(M, N)>);

/// Where the scales of a product lie, in `f32`. Addresses and leading dimensions are multiples of 16 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockScales {
    /// A's, `(M, ceil(K / 128))`: M is contiguous, and the leading dimension leads from one block of K to the next.
    pub a: MatrixRef,
    /// B's. One for each column, as A's: `(N, ceil(K / 128))` with N contiguous. One for 128 columns: `(ceil(N / 128), ceil(K / 128))`
    /// with K contiguous, and the leading dimension leads from 128 columns to the next.
    pub b: MatrixRef,
}

impl Default for BlockScales {
    fn default() -> Self {
        Self { a: MatrixRef::NONE, b: MatrixRef::NONE }
    }
}

/// K of a block.
const BLOCK: u32 = 128;
/// Scales that a copy of B's brings along K: 16 bytes, of which one is the block's.
const FETCHED: u32 = 4;

/// Tensor copies step by less than 2^40 bytes.
const MOST_PITCH: u64 = 1 << 38;

/// Bytes of the scales of B's tile in a stage.
const fn b_bytes(columns: u32, rows: u32) -> u32 {
    if rows == 1 { columns * 4 } else { columns.div_ceil(BLOCK) * FETCHED * 4 }
}

/// The spec with the scales as tiles of a stage.
const fn scaled(mut spec: MainloopSpec, rows: u32) -> MainloopSpec {
    let [_, n, k] = spec.tile;
    assert!(
        matches!(spec.operands[0].format.bits(), 8) && matches!(spec.atom.sums(), ptx::inst::WgmmaSum::F32),
        "blocks with scales are of 8-bit floats: use F8E4M3 or F8E5M2 operands"
    );
    assert!(spec.atom.promote == 0, "blocks with scales are promoted anyway: leave `Promoted` out");
    assert!(k == BLOCK, "a block has 128 of K, and a tile has one: make tile K 128");
    assert!(rows == 1 || rows == BLOCK, "a scale of B is that of 1 or of 128 columns: write U1 or U128");
    assert!(
        n <= 256 && (rows == 1 || BLOCK.is_multiple_of(n) || n.is_multiple_of(BLOCK)),
        "a tile has whole blocks of 128 columns, or a block has whole tiles: make tile N 8, 16, 32, 64, 128 or 256"
    );
    assert!(spec.step == 0, "blocks with scales are not narrowed: use Tile, not Fitted");
    assert!(
        !matches!(spec.roles, Roles::Unspecialised),
        "blocks with scales have a producer: use Cooperative or Pingpong"
    );
    assert!(
        !matches!(spec.arrivals, Arrivals::Warpgroup),
        "threads read the scales from the stage: write EachWarp<AsManyAsFit> as the roles' stages"
    );
    spec.more[0] = Room::line(spec.tile[0] * 4);
    spec.more[1] = Room::line(b_bytes(n, rows));
    spec.registers += spec.accumulators();
    spec
}

impl<O, T, R, N> Mainloop for BlockScaled<TmaWgmma<O, T, R>, N>
where
    O: OperandPair,
    T: TileShape,
    R: WarpRoles,
    N: Unsigned + 'static,
{
    const SPEC: MainloopSpec = scaled(<TmaWgmma<O, T, R> as Mainloop>::SPEC, N::U32);
    type Arguments = BlockScales;

    fn emitter() -> Arc<dyn MainloopEmitter> {
        Arc::new(Emitter { rows: N::U32 })
    }

    fn check(own: &BlockScales, a: Matrix, b: Matrix) -> Result<(), String> {
        let blocks = a.k.div_ceil(BLOCK);
        let of_b = if N::U32 == 1 { b.mn } else { blocks };
        for (name, scales, contiguous) in [("A", own.a, a.mn), ("B", own.b, of_b)] {
            let MatrixRef { address, pitch, .. } = scales;
            if blocks > 0 && (address == 0 || !address.is_multiple_of(16)) {
                return Err(format!(
                    "{name}'s scales are at {address:#x}, a multiple of 16 above 0 was needed"
                ));
            }
            let fits = pitch >= contiguous.into() && pitch < MOST_PITCH && pitch.is_multiple_of(4);
            if blocks > 0 && !fits {
                return Err(format!(
                    "the leading dimension of {name}'s scales is {pitch}, a multiple of 4 from {contiguous} on, below {MOST_PITCH}, was needed"
                ));
            }
        }
        Ok(())
    }

    fn arguments(plan: &Plan, a: Matrix, b: Matrix, own: &BlockScales) -> Vec<Argument> {
        arguments(plan, [a, b], own, N::U32)
    }
}

/// The tensor map of scales: `inner` contiguous ones, boxes of `bytes`.
fn map(scales: MatrixRef, [inner, outer]: [u32; 2], box_dims: [u32; 2]) -> Argument {
    // Where nothing is multiplied nobody has looked at the scales, and nothing is read.
    let there = scales.address != 0 && scales.pitch < MOST_PITCH;
    let pitch = if there { scales.pitch } else { FETCHED.into() };
    let map = TensorMap {
        element: TensorElement::F32,
        address: scales.address,
        dims: vec![u64::from(inner).max(1), u64::from(outer).max(1)],
        strides: vec![pitch * 4],
        box_dims: box_dims.to_vec(),
        swizzle: TensorSwizzle::None,
        promotion: Promotion::B128,
    };
    map.into()
}

fn arguments(plan: &Plan, [a, b]: [Matrix; 2], own: &BlockScales, rows: u32) -> Vec<Argument> {
    let ([m, n, _], blocks) = (plan.mainloop.tile, a.k.div_ceil(BLOCK));
    let mut arguments = TensorCopies.arguments(plan, a, b);
    arguments.push(map(own.a, [a.mn, blocks], [m, 1]));
    arguments.push(match rows {
        1 => map(own.b, [b.mn, blocks], [n, 1]),
        _ => map(own.b, [blocks, b.mn.div_ceil(BLOCK)], [FETCHED, n.div_ceil(BLOCK)]),
    });
    arguments
}

/// [`BlockScaled`] as a value.
#[derive(Clone, Copy, Debug)]
struct Emitter {
    /// Columns that have one scale of B.
    rows: u32,
}

impl MainloopEmitter for Emitter {
    fn name(&self, spec: &MainloopSpec) -> String {
        format!("{}_scaled_1x128_by_{}x128", spec.name(), self.rows)
    }

    fn declare<'f>(&self, f: &'f Builder, plan: &Plan) -> Box<dyn DeviceMainloop<'f> + 'f> {
        if plan.epilogue.split || plan.swapped() {
            f.refuse("blocks with scales are those of A's rows and B's columns as they lie: use no transposed store and no split halves");
        }
        let maps = TensorMaps::declare(f, plan);
        let [a, b] = ["a_scales_map", "b_scales_map"].map(|name| f.tensor_map(name));
        Box::new(Device { maps, a, b, rows: self.rows })
    }

    fn arguments(&self, plan: &Plan, a: Matrix, b: Matrix) -> Vec<Argument> {
        arguments(plan, [a, b], &BlockScales::default(), self.rows)
    }
}

/// Its parameters on the device.
#[derive(Clone, Copy, Debug)]
struct Device<'f> {
    maps: TensorMaps<'f>,
    a: Value<'f, u64>,
    b: Value<'f, u64>,
    rows: u32,
}

/// The scales of a stage that a thread multiplies its sums by.
struct Factors<'f> {
    /// A's, by block and by row of it.
    rows: Vec<BTreeMap<u32, Value<'f, f32>>>,
    /// B's, by what tells columns apart ([`Device::scale_of`]).
    columns: BTreeMap<u32, Value<'f, f32>>,
}

impl<'f> DeviceMainloop<'f> for Device<'f> {
    fn prefetch(&self, f: &'f Builder) {
        self.maps.prefetch(f);
        f.prefetch_tensor_map(self.a);
        f.prefetch_tensor_map(self.b);
    }

    fn load(
        &self,
        f: &'f Builder,
        plan: &Plan,
        cluster: ClusterPosition<'f>,
        ring: Position<'f>,
        piece: Piece<'f>,
    ) {
        let loader = Loader::new(f, plan, self.maps, cluster, piece, None);
        let bytes = f.constant(plan.ring.transaction_bytes());
        f.repeat_from(piece.k_begin, piece.k_end, |k_tile| {
            ring.produce(bytes, |stage| {
                loader.load(stage, k_tile);
                let copy = |map, room, coords: [Value<'f, u32>; 2]| {
                    let dst = stage.address + plan.ring.offset(room);
                    let load = TensorLoad { map, dst, barrier: stage.full, multicast: None, hint: None };
                    f.tensor_load(load, coords.map(Value::cast));
                };
                copy(self.a, 2, [piece.m, k_tile]);
                // A copy begins at a multiple of 16 bytes.
                let fetched = k_tile / FETCHED * FETCHED;
                copy(self.b, 3, if self.rows == 1 { [piece.n, k_tile] } else { [fetched, piece.n / BLOCK] });
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
        let product = Product::<f32>::new(f, &plan.mainloop, plan.operands, consumer.part)
            .expect("the plan admits only tiles that wgmma multiplies");
        let zeros = |block: &Vec<Var<'f, f32>>| block.iter().map(|_| f.variable(0.0f32)).collect();
        let sums: Vec<Vec<Var<'f, f32>>> = product.accumulators().iter().map(zeros).collect();
        let fragment = product.fragment(consumer, piece);
        consumer.turns.begin();
        f.repeat_from(piece.k_begin, piece.k_end, |k_tile| {
            let stage = ring.acquire();
            product.multiply(stage, false);
            let factors = self.factors(f, plan, &fragment, piece, (stage, k_tile));
            f.wgmma_wait(0);
            // What the other lanes have read of the stage comes before the warp's arrival.
            f.warp_sync();
            consumer.release.arrive(stage.empty);
            self.add(&fragment, &sums, product.accumulators(), &factors);
        });
        consumer.turns.pass();
        finish(plan, Sums::F32(Fragment { blocks: sums, ..fragment }));
    }
}

/// The element `(row, column)` of a block's value, counted from the thread's first.
fn place(fragment: &Fragment<'_, f32>, block: usize, value: usize) -> [u32; 2] {
    let elements = fragment.elements.part();
    // Values of instructions side by side follow each other.
    let held = elements.mode(0).size();
    let (block, value) = (block as i64, value as i64);
    let element = elements.at_modes(&[value % held, block, value / held]);
    [0, 1].map(|mode| u32::try_from(element.leaf(mode)).expect("a tile is small"))
}

impl<'f> Device<'f> {
    /// Which of a thread's scales of B is that of a column, counted from the thread's first, which is one of the first eight.
    fn scale_of(&self, column: u32) -> u32 {
        if self.rows == 1 { column } else { column / BLOCK }
    }

    /// Reads the scales of a stage, each once.
    fn factors(
        &self,
        f: &'f Builder,
        plan: &Plan,
        fragment: &Fragment<'f, f32>,
        piece: Piece<'f>,
        (stage, k_tile): (Stage<'f>, Value<'f, u32>),
    ) -> Factors<'f> {
        let [row, column] = fragment.start();
        let [a, b] = [2, 3].map(|room| stage.address + plan.ring.offset(room));
        let (own_row, own_column) = (a + (row - piece.m) * 4, b + (column - piece.n) * 4);
        let own_block = b + k_tile % FETCHED * 4;
        let mut rows = Vec::new();
        let mut columns = BTreeMap::new();
        for (block, values) in fragment.blocks.iter().enumerate() {
            let mut of_block = BTreeMap::new();
            for value in (0..values.len()).step_by(2) {
                let [row, column] = place(fragment, block, value);
                of_block
                    .entry(row)
                    .or_insert_with(|| f.load_shared_vector::<f32, 1>(own_row + row * 4, 0)[0]);
                let scale = self.scale_of(column);
                if columns.contains_key(&scale) {
                    continue;
                }
                if self.rows == 1 {
                    let pair = f.load_shared_vector::<f32, 2>(own_column + column * 4, 0);
                    columns.extend((scale..).zip(pair));
                } else {
                    columns
                        .insert(scale, f.load_shared_vector::<f32, 1>(own_block + scale * FETCHED * 4, 0)[0]);
                }
            }
            rows.push(of_block);
        }
        Factors { rows, columns }
    }

    /// Adds the products of a stage, scaled.
    fn add(
        &self,
        fragment: &Fragment<'f, f32>,
        sums: &[Vec<Var<'f, f32>>],
        products: &[Vec<Var<'f, f32>>],
        factors: &Factors<'f>,
    ) {
        for (block, (sums, products)) in sums.iter().zip(products).enumerate() {
            let mut scales = BTreeMap::new();
            for (value, (sum, product)) in sums.iter().zip(products).enumerate() {
                let [row, column] = place(fragment, block, value);
                let column = self.scale_of(column);
                let scale = scales.entry((row, column));
                let scale = *scale.or_insert_with(|| factors.rows[block][&row] * factors.columns[&column]);
                sum.set(product.get().mul_add(scale, sum.get()));
            }
        }
    }
}
