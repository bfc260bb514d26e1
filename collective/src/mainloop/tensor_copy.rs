//! Loading by tensor copies: one operand's tile into a stage.

use cute_rs::atom::Major;
use cute_rs::atom::tma::{self, TmaTiles};
use ptx::abi::TensorMap;
use ptx::{Builder, TensorLoad, Value};

use super::tensor_swizzle;
use crate::form::Batch;
use crate::operand::Matrix;
use crate::operands::{Contents, Extents, Memory, Visit};
use crate::pipeline::Stage;
use crate::plan::OperandTile;
use crate::tensor_map::{self, Dimension, tensor_map};

impl OperandTile {
    /// The tensor map for copies of such tiles of a matrix.
    pub fn tensor_map(&self, matrix: Matrix) -> TensorMap {
        self.map_of(matrix, None)
    }

    /// The tensor map of a matrix, or of a batch. Dimension 0 is the contiguous direction. If the matrix is
    /// split, dimension 2 is the half.
    pub(super) fn map_of(&self, matrix: Matrix, batch: Option<Batch>) -> TensorMap {
        let Self { format, major, swizzle, mn, k, slices, split, promotion, .. } = *self;
        let extent = if split { matrix.mn / 2 } else { matrix.mn };
        let [width, other] = tma::box_dims(major, swizzle, format.bits(), mn, k);
        let ((inner, outer), to_half) = match major {
            Major::K => ((matrix.k, extent), u64::from(extent) * matrix.ld),
            Major::Mn => ((extent, matrix.k), u64::from(extent)),
        };
        // If one CTA loads both halves of rows, one box has both.
        let halves = if split && major == Major::K && slices == 1 { 2 } else { 1 };
        let dimensions = [
            Dimension::contiguous(inner, width),
            Dimension { extent: outer, stride: matrix.ld, copied: other / slices / halves },
            Dimension { extent: 2, stride: to_half, copied: halves },
        ];
        let used = if split { &dimensions } else { &dimensions[..2] };
        let map = tensor_map(format.tensor(), matrix.address, used, batch);
        TensorMap { swizzle: tensor_swizzle(swizzle), promotion, ..map }
    }

    /// States the parameters that [`OperandMap::of`](crate::stage::OperandMap::of) finds under these names: the tensor map of a matrix, or of
    /// its batch, in memory that was visited under the name `within`. The matrix is `None` where no launch is made.
    pub fn state(
        &self,
        names: [&'static str; 2],
        within: &'static str,
        (batched, matrix): (bool, Option<Matrix>),
        visit: &mut dyn Visit,
    ) {
        let value = matrix.map(|matrix| {
            let batch = batched.then_some(matrix.batch);
            (self.map_of(matrix, batch), batch)
        });
        tensor_map::state(names, within, (batched, value), visit);
    }
}

impl OperandTile {
    /// States a packed matrix `(mn, k)` that such tiles are copied from, operand A (0) or B (1): its memory, which is read, and the parameter
    /// with its tensor map.
    pub fn state_packed(
        &self,
        (name, map): (&'static str, &'static str),
        address: &mut u64,
        ([mn, k], operand): ([u32; 2], usize),
        visit: &mut dyn Visit,
    ) {
        let [lines, length] = match self.major {
            Major::K => [mn, k],
            Major::Mn => [k, mn],
        };
        // The tensor map of a matrix without elements must still be legal.
        let ld = u64::from(length.max(128 / self.bits()));
        let matrix = Matrix { address: *address, mn, k, ld, batch: Batch::ONE };
        let extents = Extents { lines, ..Extents::line(self.bits(), length.into()) };
        let contents = Contents::Multiplied(operand, self.format);
        visit.memory(Memory { name, address, extents, contents, writes: false });
        visit.tensor_map(map, name, Some(self.tensor_map(matrix)));
    }
}

/// The source of a tensor copy, and the CTAs that receive the tile.
#[derive(Clone, Copy, Debug)]
pub struct Origin<'f> {
    /// Generic address of the tensor map.
    pub map: Value<'f, u64>,
    /// The coordinate of a group of rows, if the rows of a tile are groups of rows that lie apart; `None` if they follow
    /// each other.
    pub rows: Option<Value<'f, u32>>,
    /// The coordinate of the matrix among several; `None` if the map has only one.
    pub matrix: Option<Value<'f, u32>>,
    /// The coordinate of the group of matrices among several: of a sequence among those of a batch, if `matrix` is a
    /// head. `None` if the map has only one.
    pub batch: Option<Value<'f, u32>>,
    /// Which slice of the tile this CTA loads, or whose turn it is to load the whole tile ([`OperandTile::in_turns`]); 0 if it loads the whole tile
    /// for itself.
    pub slice: Value<'f, u32>,
    /// Multicast mask, one bit per rank of the CTAs that receive the tile; `None` for this CTA only.
    pub receivers: Option<Value<'f, u16>>,
}

impl<'f> Origin<'f> {
    /// The only matrix of a map, for this CTA only.
    pub fn alone(map: Value<'f, u64>) -> Self {
        Self { map, rows: None, matrix: None, batch: None, slice: map.builder().constant(0), receivers: None }
    }
}

/// Starts the copy of a box at these coordinates, innermost first.
pub(crate) fn tensor_load<'f>(
    f: &'f Builder,
    load: TensorLoad<'f>,
    first: impl IntoIterator<Item = Value<'f, u32>>,
) {
    let place: Vec<Value<'f, i32>> = first.into_iter().map(Value::cast).collect();
    match place[..] {
        [x, y] => f.tensor_load(load, [x, y]),
        [x, y, z] => f.tensor_load(load, [x, y, z]),
        [x, y, z, w] => f.tensor_load(load, [x, y, z, w]),
        [x, y, z, w, v] => f.tensor_load(load, [x, y, z, w, v]),
        _ => f.refuse("a box has two to five coordinates"),
    }
}

/// Tensor copies of one operand's tile: one per slab, started by one thread.
///
/// The bytes arrive on the stage's full barrier, on which
/// [`Position::produce`](crate::pipeline::Position::produce) has announced them. Elements outside the matrix
/// become zero.
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
    /// The only slab that is copied, if it is not all.
    only: Option<u32>,
}

impl TensorCopy {
    /// The copies of a tile.
    pub fn new(tile: OperandTile) -> Self {
        let OperandTile { format, major, swizzle, mn, k, slices, .. } = tile;
        let tiles = TmaTiles::new(major, swizzle, format.bits(), mn, k);
        let tiles = tiles.and_then(|tiles| tiles.sliced(slices)).expect("a tile is checked when it is made");
        Self { tiles, tile, only: None }
    }

    /// The copy of slab `i` of its tile alone, to the beginning of a stage: the other slabs have stages of their own. Nothing is copied of a
    /// tile with fewer slabs.
    #[must_use]
    pub const fn slab(self, i: u32) -> Self {
        Self { only: Some(i), ..self }
    }

    /// The contiguous direction of its tile.
    pub(crate) const fn major(&self) -> Major {
        self.tile.major
    }

    /// The half of a split matrix in which box `i` of a slice begins; `None` if the matrix is not split.
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
    #[track_caller]
    pub fn load<'f>(&self, f: &'f Builder, stage: Stage<'f>, origin: Origin<'f>, first: [Value<'f, u32>; 2]) {
        f.for_caller(|| {
            self.in_turn(f, origin, first, |origin| {
                self.copy(f, Some(self.to(stage, origin)), origin, first, None);
            });
        });
    }

    /// Prefetches to L2 what [`load`](Self::load) copies.
    #[track_caller]
    pub fn prefetch<'f>(&self, f: &'f Builder, origin: Origin<'f>, first: [Value<'f, u32>; 2]) {
        f.for_caller(|| self.in_turn(f, origin, first, |origin| self.copy(f, None, origin, first, None)));
    }

    /// The copies of a tile, if it is this CTA's turn to load it.
    fn in_turn<'f>(
        &self,
        f: &'f Builder,
        origin: Origin<'f>,
        [_, k]: [Value<'f, u32>; 2],
        copy: impl FnOnce(Origin<'f>),
    ) {
        let OperandTile { k: of_tile, turns, .. } = self.tile;
        match turns {
            ..=1 => copy(origin),
            _ => f.if_((k / of_tile % turns).equals(origin.slice), || {
                copy(Origin { slice: f.constant(0), ..origin });
            }),
        }
    }

    /// The operands that the copies of all boxes share.
    fn to<'f>(&self, stage: Stage<'f>, Origin { map, receivers, .. }: Origin<'f>) -> TensorLoad<'f> {
        let dst = stage.address + self.tile.offset;
        TensorLoad { map, dst, barrier: stage.full, multicast: receivers, hint: self.tile.cache.bits() }
    }

    /// Starts the copies of this CTA's slice of the tile whose first element is `first`, `(mn, k)`. In a
    /// split matrix, `first` is in the left half. `load` gives the destination; without one, the boxes are prefetched. With `columns`, for
    /// tiles with contiguous columns, boxes after the first `columns` columns are skipped.
    fn copy<'f>(
        &self,
        f: &'f Builder,
        load: Option<TensorLoad<'f>>,
        Origin { map, rows, matrix, batch, slice, .. }: Origin<'f>,
        first: [Value<'f, u32>; 2],
        columns: Option<Value<'f, u32>>,
    ) {
        let boxes = self.tiles.plan();
        let tile = boxes.slice(first, slice);
        let load = load.map(|load| TensorLoad { dst: load.dst + slice * self.tiles.slice_bytes(), ..load });
        let of_box = |i| tile.as_ref().ok().and_then(|&tile| boxes.copy(tile, i).ok());
        let copied = |(i, _): &(u32, _)| self.only.is_none_or(|only| only == *i);
        for (i, place) in (0..).zip(boxes.boxes()).filter(copied) {
            let Some([mut inner, mut outer]): Option<[_; 2]> = of_box(i) else {
                return f.refuse("a coordinate has two components, and so has a box");
            };
            let offset = if self.only.is_some() { 0 } else { place.offset_bytes };
            let load = load.map(|load| TensorLoad { dst: load.dst + offset, ..load });
            let half = self.half(i, slice);
            if let Some(half) = half {
                let along = if self.tile.major == Major::K { &mut outer } else { &mut inner };
                *along = *along - half * (self.tile.mn / 2);
            }
            let copy = || {
                let further = [half, rows, matrix, batch].into_iter().flatten();
                let first = [inner, outer].into_iter().chain(further);
                match load {
                    Some(load) => tensor_load(f, load, first),
                    None => f.tensor_prefetch(map, first.map(Value::cast)),
                }
            };
            match columns {
                Some(columns) => f.if_(columns.more_than(self.tiles.get(i).mn), copy),
                None => copy(),
            }
        }
    }

    /// As [`load`](Self::load), for the first `columns` columns of a tile that may be narrowed. This CTA is
    /// number `origin.slice` of the `ctas` CTAs that share the tile.
    #[track_caller]
    pub(crate) fn load_columns<'f>(
        &self,
        f: &'f Builder,
        stage: Stage<'f>,
        origin: Origin<'f>,
        first: [Value<'f, u32>; 2],
        (columns, ctas): (Value<'f, u32>, u32),
    ) {
        f.for_caller(|| self.columns(f, stage, origin, first, (columns, ctas)));
    }

    fn columns<'f>(
        &self,
        f: &'f Builder,
        stage: Stage<'f>,
        origin: Origin<'f>,
        first: [Value<'f, u32>; 2],
        (columns, ctas): (Value<'f, u32>, u32),
    ) {
        let load = self.to(stage, origin);
        if self.tile.major == Major::Mn {
            // The boxes follow each other along the columns; each CTA has a slice of each along K.
            return self.copy(f, Some(load), origin, first, Some(columns));
        }
        let (part, step) = (f.variable(origin.slice), self.tiles.box_dims[1]);
        let parts = columns / step;
        f.while_(
            || part.get().less_than(parts),
            || {
                self.copy(f, Some(load), Origin { slice: part.get(), ..origin }, first, None);
                part.set(part.get() + ctas);
            },
        );
    }
}
