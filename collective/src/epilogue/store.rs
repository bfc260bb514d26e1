//! Ways of storing a fragment, and what they share: the output, what becomes of accumulators, how memory may be accessed.

use cute_rs::atom::SwizzleMode;
use ptx::abi::{Argument, Promotion, TensorMap};
use ptx::{Builder, Value};

use super::Extent;
use crate::element::Element;
use crate::form::Batch;
use crate::mainloop::{Fragment, FragmentRow, tensor_swizzle};
use crate::plan::Plan;

/// A row-major output matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Output {
    /// Device address.
    pub address: u64,
    /// Rows.
    pub m: u32,
    /// Columns.
    pub n: u32,
    /// Elements from one row to the next.
    pub pitch: u64,
    /// The outputs of its kind, of which it is the first.
    pub batch: Batch,
}

impl Output {
    /// Its tensor map, for boxes of a buffer: its rows are dimension 1, and where there are several, their number is
    /// dimension 2.
    pub(super) fn tensor_map<T: Element>(
        self,
        plan: &Plan,
        box_dims: [u32; 2],
        swizzle: SwizzleMode,
    ) -> TensorMap {
        let bytes = u64::from(T::BITS / 8);
        let mut map = TensorMap {
            element: T::TENSOR,
            address: self.address,
            dims: vec![self.n.into(), self.m.into()],
            strides: vec![self.pitch * bytes],
            box_dims: box_dims.to_vec(),
            swizzle: tensor_swizzle(swizzle),
            promotion: Promotion::default(),
        };
        if plan.form.outputs() {
            let several = self.batch.distinct() > 1;
            map.dims.push(self.batch.distinct().into());
            map.strides.push(if several { self.batch.stride } else { self.pitch } * bytes);
            map.box_dims.push(1);
        }
        map
    }
}

impl<'f> Extent<'f> {
    /// Starts the copy of a buffer to the box of an output that begins at `coords`, innermost first.
    pub(super) fn tensor_store(
        self,
        f: &'f Builder,
        plan: &Plan,
        map: Value<'f, u64>,
        buffer: Value<'f, u32>,
        coords: [Value<'f, u32>; 2],
    ) {
        let [inner, outer] = coords.map(Value::cast);
        match self.group.filter(|_| plan.form.outputs()) {
            Some(group) => f.tensor_store(map, buffer, [inner, outer, group.cast()]),
            None => f.tensor_store(map, buffer, [inner, outer]),
        }
    }
}

/// What replaces the accumulators of some rows of a block: by row, pairs of columns.
pub type Values<'a, 'f> = &'a dyn Fn(u32, &[FragmentRow<'f, f32>]) -> Vec<Vec<[Value<'f, f32>; 2]>>;

/// Finishes accumulators.
#[derive(Clone, Copy)]
pub struct Combine<'a, 'f> {
    /// All rows of a block at once, so many pairs of the output at a time; `None`: row by row, as many pairs as may be.
    pub pairs_at_once: Option<usize>,
    /// The values for rows of a block, which is its first argument.
    pub values: Values<'a, 'f>,
}

impl core::fmt::Debug for Combine<'_, '_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Combine").field("pairs_at_once", &self.pairs_at_once).finish_non_exhaustive()
    }
}

impl<'f> Combine<'_, 'f> {
    /// The values for rows of a block, packed as elements `T`.
    pub(super) fn packed<T: Element>(
        self,
        f: &'f Builder,
        block: u32,
        rows: &[FragmentRow<'f, f32>],
    ) -> Vec<Vec<T::Packed<'f>>> {
        let pack = |pairs: Vec<[Value<'f, f32>; 2]>| pairs.into_iter().map(|pair| T::pack(f, pair)).collect();
        match self.pairs_at_once {
            Some(_) => (self.values)(block, rows).into_iter().map(pack).collect(),
            None => rows
                .iter()
                .flat_map(|row| (self.values)(block, core::slice::from_ref(row)))
                .map(pack)
                .collect(),
        }
    }
}

/// How a tile's memory may be accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// D's rows consist of aligned pairs.
    pub pairs: bool,
    /// All of the tile is inside of D.
    pub whole: bool,
    /// Tensor copies may store the tile: none of its rows behind D's last is one of another group's.
    pub copies: bool,
}

/// A way of storing results as elements `T`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no way of storing `{T}`",
    note = "write `DirectStore` (any address) or `TmaStore` (16-byte aligned rows)"
)]
pub trait Store<T>: 'static {
    /// Its kernel parameters on the device.
    type Device<'f>: Copy;
    /// Bits of an element that goes through shared memory; 0 where none does.
    const STAGED_BITS: u32;
    /// Most buffers of a consumer warpgroup, each of 64 rows of one swizzle width.
    const BUFFERS: u32;
    /// What D's address, row length and row pitch must be a multiple of, in bytes.
    const ALIGNMENT: u64;
    /// Whether it is emitted differently where rows consist of aligned pairs.
    const USES_PAIRS: bool;
    /// Whether what it stores is the transpose of D: its rows are D's columns.
    const TRANSPOSED: bool = false;
    /// Whether it stores tiles with rows of another group behind their own as it does others: what copies may not store, it
    /// stores otherwise.
    const KEEPS_INSIDE: bool = false;

    /// What it adds to a kernel's name.
    fn suffix() -> String;

    /// Declares its kernel parameters.
    fn declare<'f>(f: &'f Builder, plan: &Plan) -> Self::Device<'f>;

    /// The values of its parameters.
    fn parameters(plan: &Plan, output: Output) -> Vec<Argument>;

    /// Emitted for a consumer warpgroup: stores its part of a tile.
    fn store<'f>(
        f: &'f Builder,
        plan: &Plan,
        device: Self::Device<'f>,
        extent: Extent<'f>,
        fragment: &Fragment<'f, f32>,
        access: Access,
        combine: Combine<'_, 'f>,
    );

    /// Emitted behind a consumer warpgroup's last tile.
    fn finish(f: &Builder, plan: &Plan, thread: Value<'_, u32>);
}

/// Where a row of a thread begins: the address of its first element.
pub(super) fn row_address<'f, T: Element>(
    matrix: Value<'f, u64>,
    pitch: Value<'f, u64>,
    row: &FragmentRow<'f, f32>,
) -> Value<'f, u64> {
    let element = row.row.cast::<u64>().mul_add(pitch, row.column.cast::<u64>());
    matrix + element * u64::from(T::BITS / 8)
}

/// What a type of results adds to a kernel's name: those of 16 bits, nothing.
pub(super) fn element_suffix<T: Element>() -> String {
    if T::BITS == 16 { String::new() } else { format!("_{}", T::NAME) }
}
