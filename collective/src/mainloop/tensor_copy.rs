//! Loading by tensor copies: one operand's tile into a stage.

use cute_rs::atom::Major;
use cute_rs::atom::tma::{self, TmaTiles};
use ptx::abi::TensorMap;
use ptx::{Builder, TensorLoad, Value};

use super::tensor_swizzle;
use crate::operand::Matrix;
use crate::pipeline::Stage;
use crate::plan::OperandTile;

impl OperandTile {
    /// The tensor map by which copies bring such tiles of a matrix: the value of a parameter that [`Builder::tensor_map`]
    /// declares.
    pub fn tensor_map(&self, matrix: Matrix) -> TensorMap {
        tensor_map(self, matrix, false)
    }
}

/// The tensor map of a matrix: its contiguous direction is dimension 0. The half of a matrix that is split is dimension 2, and
/// where there are several, their number is the last dimension. Every launch makes one, so it asks for nothing that takes long.
pub(super) fn tensor_map(tile: &OperandTile, matrix: Matrix, batched: bool) -> TensorMap {
    let OperandTile { format, major, swizzle, mn, k, slices, split, promotion, .. } = *tile;
    let element = format.tensor();
    let extent = if split { matrix.mn / 2 } else { matrix.mn };
    let [width, other] = tma::box_dims(major, swizzle, format.bits(), mn, k);
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

/// Where a tensor copy takes a tile from, and who receives it.
#[derive(Clone, Copy, Debug)]
pub struct Origin<'f> {
    /// Generic address of the tensor map.
    pub map: Value<'f, u64>,
    /// The coordinate of one of several matrices; `None` where the map has but one.
    pub matrix: Option<Value<'f, u32>>,
    /// Which slice of the tile this CTA brings; 0 where it brings all of it.
    pub slice: Value<'f, u32>,
    /// Ranks of the CTAs that receive it, a bit each; `None` for the own CTA alone.
    pub receivers: Option<Value<'f, u16>>,
}

impl<'f> Origin<'f> {
    /// The one matrix of a map, for the own CTA alone.
    pub fn alone(map: Value<'f, u64>) -> Self {
        Self { map, matrix: None, slice: map.builder().constant(0), receivers: None }
    }
}

/// Tensor copies of one operand's tile: one for each slab, started by one thread.
///
/// The bytes arrive on the stage's full barrier, to which [`Position::produce`](crate::pipeline::Position::produce) has announced them.
/// What lies outside of the matrix becomes zero.
///
/// ```
/// use collective::pipeline::{Position, Ring};
/// use collective::{Format, Origin, OperandTile, RingPlan, TensorCopy, TileLayout};
/// use cute_rs::atom::Major;
/// use ptx::{Builder, Value};
///
/// const TILE: OperandTile = OperandTile::checked(Format::Bf16, Major::K, [128, 64], TileLayout::Widest);
/// const RING: RingPlan = RingPlan::of(&[TILE.room()]).placed(4, 0, 4 * 16384).arrivals(1, 1);
///
/// /// Fills stages with the tiles of rows `row..row + 128`, `count` of them along K.
/// fn load<'f>(f: &'f Builder, map: Value<'f, u64>, ring: Position<'f>, row: Value<'f, u32>, count: Value<'f, u32>) {
///     let copy = TensorCopy::new(TILE);
///     f.repeat(count, |k_tile| {
///         ring.produce(f.constant(RING.transaction_bytes()), |stage| {
///             copy.load(f, stage, Origin::alone(map), [row, k_tile * 64]);
///         });
///     });
/// }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct TensorCopy {
    tiles: TmaTiles,
    tile: OperandTile,
}

impl TensorCopy {
    /// The copies of a tile.
    pub fn new(tile: OperandTile) -> Self {
        let OperandTile { format, major, swizzle, mn, k, slices, .. } = tile;
        let tiles = TmaTiles::new(major, swizzle, format.bits(), mn, k);
        let tiles = tiles.and_then(|tiles| tiles.sliced(slices)).expect("a tile is checked when it is made");
        Self { tiles, tile }
    }

    /// The half of a split matrix that the `i`-th box of a slice begins in; `None` where the matrix is whole.
    fn half<'f>(&self, i: u32, slice: Value<'f, u32>) -> Option<Value<'f, u32>> {
        let OperandTile { major, mn, slices, split, .. } = self.tile;
        let half = match major {
            Major::K if slices == 1 => slice.builder().constant(0),
            Major::K if slices == 2 => slice,
            Major::K => slice / (slices / 2),
            Major::Mn => slice.builder().constant(self.tiles.get(i).mn / (mn / 2)),
        };
        split.then_some(half)
    }

    /// Starts this CTA's copies of the tile whose first element is `(mn, k)`, into a stage.
    pub fn load<'f>(&self, f: &'f Builder, stage: Stage<'f>, origin: Origin<'f>, first: [Value<'f, u32>; 2]) {
        self.copy(f, self.to(stage, origin), origin, first, None);
    }

    /// What the copies of all boxes have in common.
    fn to<'f>(&self, stage: Stage<'f>, Origin { map, receivers, .. }: Origin<'f>) -> TensorLoad<'f> {
        let dst = stage.address + self.tile.offset;
        TensorLoad { map, dst, barrier: stage.full, multicast: receivers, hint: self.tile.cache.bits() }
    }

    /// Starts the copies of this CTA's slice of the tile whose first element is `first`, `(mn, k)`, in the left half of a split
    /// matrix; `load` says where the tile goes. Boxes
    /// behind the first `columns` of a tile whose columns are contiguous are left out.
    fn copy<'f>(
        &self,
        f: &'f Builder,
        load: TensorLoad<'f>,
        Origin { matrix, slice, .. }: Origin<'f>,
        first: [Value<'f, u32>; 2],
        columns: Option<Value<'f, u32>>,
    ) {
        let planned = "a coordinate has two components, and so has a box";
        let boxes = self.tiles.plan();
        let tile = boxes.slice(first, slice).expect(planned);
        let dst = load.dst + slice * self.tiles.slice_bytes();
        for (i, place) in (0..).zip(boxes.boxes()) {
            let [mut inner, mut outer]: [_; 2] = boxes.copy(tile, i).expect(planned);
            let load = TensorLoad { dst: dst + place.offset_bytes, ..load };
            let half = self.half(i, slice);
            if let Some(half) = half {
                let along = if self.tile.major == Major::K { &mut outer } else { &mut inner };
                *along = *along - half * (self.tile.mn / 2);
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

    /// The same for the first `columns` of a tile that may be narrowed, of which this CTA is the `origin.slice`-th of `ctas`
    /// that share it.
    pub(super) fn load_columns<'f>(
        &self,
        f: &'f Builder,
        stage: Stage<'f>,
        origin: Origin<'f>,
        first: [Value<'f, u32>; 2],
        (columns, ctas): (Value<'f, u32>, u32),
    ) {
        let load = self.to(stage, origin);
        if self.tile.major == Major::Mn {
            // Boxes lie side by side along the columns; the CTAs have slices of each along K.
            return self.copy(f, load, origin, first, Some(columns));
        }
        let (part, step) = (f.variable(origin.slice), self.tiles.box_dims[1]);
        let parts = columns / step;
        f.while_(
            || part.get().less_than(parts),
            || {
                self.copy(f, load, Origin { slice: part.get(), ..origin }, first, None);
                part.set(part.get() + ctas);
            },
        );
    }
}
