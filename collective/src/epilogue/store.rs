//! Two ways of storing a fragment: straight to global memory, or through shared memory and a tensor copy.

use core::marker::PhantomData;

use cute_rs::atom::tma::{self, TmaTiles};
use cute_rs::atom::{Major, SwizzleMode, smem, stmatrix};
use cute_rs::{ComposedLayout, Tensor};
use ptx::abi::{Argument, TensorMap};
use ptx::{Builder, ProxySpace, Value};
use typenum::{U2, Unsigned};

use super::Extent;
use crate::element::Element;
use crate::form::{Batch, displaced};
use crate::mainloop::{Fragment, FragmentRow, tensor_swizzle};
use crate::plan::{Plan, StagingPlan};
use crate::record::Described;

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
    fn packed<T: Element>(
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

/// A row of D as a thread stores it.
struct OutputRow<'f> {
    /// The address of the thread's first element.
    base: Value<'f, u64>,
    /// How many columns lie between that and the edge; zero where the row is outside.
    columns: Value<'f, u32>,
}

impl<'f> OutputRow<'f> {
    fn new<T: Element>(
        device: DirectDevice<'f>,
        extent: Extent<'f>,
        fragment: &Fragment<'f, f32>,
        row: &FragmentRow<'f, f32>,
        halvings: u32,
    ) -> Self {
        let mut row = row.part(0, 0);
        if halvings > 0 {
            let first = fragment.first[1];
            row.column = (first >> halvings) + (row.column - first);
        }
        let base = row_address::<T>(device.address, device.pitch, &row);
        Self { base, columns: row.columns_inside(Extent { n: extent.n >> halvings, ..extent }) }
    }

    /// Stores two neighbouring columns, the first of them counted from the thread's first.
    fn store<T: Element>(&self, f: &'f Builder, access: Access, column: u32, packed: T::Packed<'f>) {
        let inside = |column: u32| self.columns.more_than(column);
        let offset = |column: u32| (column * T::BITS / 8).cast_signed();
        if access.pairs && access.whole {
            T::store_global(f, self.base, offset(column), packed);
        } else if access.pairs {
            f.if_(inside(column), || T::store_global(f, self.base, offset(column), packed));
        } else {
            for (column, element) in (column..).zip(T::unpack(f, packed)) {
                f.if_(inside(column), || f.store_global(self.base, offset(column), [element]));
            }
        }
    }
}

/// What a type of results adds to a kernel's name: those of 16 bits, nothing.
fn element_suffix<T: Element>() -> String {
    if T::BITS == 16 { String::new() } else { format!("_{}", T::NAME) }
}

/// Registers to global memory, each thread its own elements; any address and pitch.
#[derive(Clone, Copy, Debug)]
pub struct DirectStore;

/// Where [`DirectStore`] stores.
#[derive(Clone, Copy, Debug)]
pub struct DirectDevice<'f> {
    address: Value<'f, u64>,
    pitch: Value<'f, u64>,
    /// Bytes from one output to the next, if there are several.
    batch: Option<Value<'f, u64>>,
}

impl<'f> DirectDevice<'f> {
    /// The output of a group.
    fn of(self, extent: Extent<'f>) -> Self {
        match extent.record {
            Some(record) => {
                let Described { address, pitch } = record.d(self.address.builder());
                Self { address, pitch, batch: None }
            }
            None => Self { address: displaced(self.address, self.batch, extent.group), ..self },
        }
    }

    /// D's address and pitch.
    pub(super) fn place(self, extent: Extent<'f>) -> [Value<'f, u64>; 2] {
        let Self { address, pitch, .. } = self.of(extent);
        [address, pitch]
    }
}

impl<T: Element> Store<T> for DirectStore {
    type Device<'f> = DirectDevice<'f>;
    const STAGED_BITS: u32 = 0;
    const BUFFERS: u32 = 0;
    const ALIGNMENT: u64 = (T::BITS / 8) as u64;
    const USES_PAIRS: bool = true;

    fn suffix() -> String {
        element_suffix::<T>()
    }

    fn declare<'f>(f: &'f Builder, plan: &Plan) -> DirectDevice<'f> {
        if plan.form.described() {
            return DirectDevice { address: f.constant(0), pitch: f.constant(0), batch: None };
        }
        let [address, pitch] = ["d", "d_pitch"].map(|name| f.param(name));
        DirectDevice { address, pitch, batch: plan.form.outputs().then(|| f.param("d_batch")) }
    }

    fn parameters(plan: &Plan, output: Output) -> Vec<Argument> {
        if plan.form.described() {
            return Vec::new();
        }
        let mut parameters = vec![output.address.into(), output.pitch.into()];
        if plan.form.outputs() {
            parameters.push((output.batch.stride * u64::from(T::BITS / 8)).into());
        }
        parameters
    }

    fn store<'f>(
        f: &'f Builder,
        plan: &Plan,
        device: DirectDevice<'f>,
        extent: Extent<'f>,
        fragment: &Fragment<'f, f32>,
        access: Access,
        combine: Combine<'_, 'f>,
    ) {
        let device = device.of(extent);
        let start = fragment.start();
        let halvings = plan.epilogue.halvings;
        let output =
            |row: &FragmentRow<'f, f32>| OutputRow::new::<T>(device, extent, fragment, row, halvings);
        for (block, _) in (0u32..).zip(&fragment.blocks) {
            let rows = fragment.rows(start, block);
            if let Some(pairs_at_once) = combine.pairs_at_once {
                let outputs: Vec<_> = rows.iter().map(output).collect();
                let parts = rows.first().map_or(0, |row| row.pairs.len()) >> halvings;
                for first in (0..parts).step_by(pairs_at_once) {
                    let part: Vec<_> = rows
                        .iter()
                        .map(|row| row.part(first << halvings, pairs_at_once << halvings))
                        .collect();
                    for (output, pairs) in outputs.iter().zip((combine.values)(block, &part)) {
                        for (column, pair) in (first as u32 * 8..).step_by(8).zip(pairs) {
                            output.store::<T>(f, access, column, T::pack(f, pair));
                        }
                    }
                }
                continue;
            }
            for row in rows {
                let output = output(&row);
                let values = (combine.values)(block, core::slice::from_ref(&row));
                for (pair, values) in row.pairs.iter().zip(values.into_iter().flatten()) {
                    output.store::<T>(f, access, pair.column, T::pack(f, values));
                }
            }
        }
    }

    fn finish(_f: &Builder, _plan: &Plan, _thread: Value<'_, u32>) {}
}

/// Registers to swizzled shared memory by `stmatrix` (elements of 16 bits) or by stores of pairs, and from there by tensor copies, which go on while the next
/// tile is computed and leave out what lies beyond the edge: rows below it, and whole 16-byte chunks to the right of
/// it. (Measured on an H200: a chunk that the edge cuts through is written whole.)
///
/// Each consumer warpgroup has up to `Buffers` buffers of its own, 64 rows of one swizzle width (64 columns of 16 bits),
/// and waits for nobody but itself: for the last copy from a buffer to have read it, then for its own threads to have
/// filled it. Two let one be filled while the other is read; more take the place of pipeline stages.
#[derive(Clone, Copy, Debug)]
pub struct TmaStore<Buffers = U2>(PhantomData<Buffers>);

/// The named barriers of the consumer warpgroups begin here; 0 is the CTA's.
pub(crate) const FIRST_BARRIER: u32 = 1;

/// How a part of a block goes through a buffer.
pub(super) struct Through<'a, 'f, T: Element> {
    /// Emits the stores of the packed pairs of a thread's two rows into the buffer at a shared address.
    pub(super) fill: Fill<'a, 'f, T>,
    /// Emits the copy from there to the output, where the part begins at this row and column.
    pub(super) copy: &'a dyn Fn(Value<'f, u32>, [Value<'f, u32>; 2]),
    /// What becomes of parts that no copy may store whole; `None` where there are none.
    pub(super) partly: Option<Partly<'a, 'f>>,
}

/// How a part is stored behind whose columns those of another group may lie.
#[derive(Clone, Copy)]
pub(super) struct Partly<'a, 'f> {
    /// One past the last column of the own group.
    pub(super) end: Value<'f, u32>,
    /// Emitted for all threads of a warpgroup: stores so many columns of the buffer at a shared address to the output, where
    /// the part begins at this row and column.
    pub(super) store: &'a dyn Fn(Value<'f, u32>, [Value<'f, u32>; 2], Value<'f, u32>),
}

/// See [`Through`].
pub(super) type Fill<'a, 'f, T> = &'a dyn Fn(Value<'f, u32>, [&[<T as Element>::Packed<'f>]; 2]);

/// Parts that are computed and stored between two meetings of a warpgroup that has a buffer for each.
const TOGETHER: usize = 2;

/// One 64-row block of a tile in shared memory and the copies that store it.
pub(super) struct Staging {
    /// The rows of one buffer.
    buffer: ComposedLayout,
    copies: TmaTiles,
    /// Columns of a buffer.
    pub(super) columns: u32,
}

impl Staging {
    pub(super) fn new<T: Element>(plan: &Plan) -> Self {
        let (n, mode) = (plan.output_tile_n(), plan.staging.swizzle);
        let columns = mode.elements(T::BITS);
        let planned = "the plan has rows of whole 16 bytes";
        let buffer = smem::tile(Major::K, mode, T::BITS, 64, columns).expect(planned);
        let copies = TmaTiles::new(Major::K, mode, T::BITS, 64, n).expect(planned);
        Self { buffer, copies, columns }
    }

    /// Emits the stores of a warpgroup's part of a tile, buffer by buffer.
    pub(super) fn store<'f, T: Element>(
        &self,
        f: &'f Builder,
        plan: &Plan,
        fragment: &Fragment<'f, f32>,
        combine: Combine<'_, 'f>,
        through: &Through<'_, 'f, T>,
    ) {
        let StagingPlan { buffers, buffer_bytes, .. } = plan.staging;
        let base = self.base(plan, fragment.shared, fragment.warpgroup);
        let (barrier, issues) = (fragment.barrier(), fragment.thread.equals(0));

        let parts = self.parts(plan);
        let rows = self.rows(plan, fragment);
        let part = |index| self.packed::<T>(f, plan, &rows, index, combine);
        let buffer = |index: u32| base + index % buffers * buffer_bytes;
        let fill = |index: u32, packed: Vec<Vec<T::Packed<'f>>>| {
            if let [upper, lower] = &packed[..] {
                (through.fill)(buffer(index), [upper, lower]);
            }
        };
        let at = |index: u32| {
            let [m, n] = fragment.first;
            self.coordinates([m, n >> plan.epilogue.halvings], index)
        };
        let copy = |index: u32| (through.copy)(buffer(index), at(index));
        // Where there is much to compute and a buffer for each part, the warpgroup meets before the first part and behind every
        // other one. More between two branches the assembler mingles until registers do not suffice.
        if combine.pairs_at_once.is_some() && buffers >= parts && through.partly.is_none() {
            let mut first = Some(part(0));
            f.if_(issues, || f.bulk_wait(0, true));
            f.barrier_sync(barrier, 128);
            for begin in (0..parts).step_by(TOGETHER) {
                let these = begin..parts.min(begin + TOGETHER as u32);
                these.clone().for_each(|index| fill(index, first.take().unwrap_or_else(|| part(index))));
                f.fence_proxy_async(ProxySpace::Shared);
                f.barrier_sync(barrier, 128);
                f.if_(issues, || {
                    these.for_each(copy);
                    f.bulk_commit();
                });
            }
            return;
        }
        let store = |index: u32, begins: bool, pending: u32, copy: &dyn Fn()| {
            if begins || buffers == 1 {
                f.if_(issues, || f.bulk_wait(pending, true));
                f.barrier_sync(barrier, 128);
            }
            fill(index, part(index));
            f.fence_proxy_async(ProxySpace::Shared);
            // The barrier that says "filled" also says that the next buffer is free.
            if index + 1 < parts && buffers > 1 {
                f.if_(issues, || f.bulk_wait(buffers - 2, true));
            }
            f.barrier_sync(barrier, 128);
            copy();
        };
        for index in 0..parts {
            let copy = || {
                f.if_(issues, || {
                    copy(index);
                    f.bulk_commit();
                });
            };
            let Some(Partly { end, store: by_threads }) = through.partly else {
                // Copies finish reading in order. A tile's first ones meet the last of the tile before, which ended with
                // another buffer unless the buffers divide the parts.
                let pending = if parts.is_multiple_of(buffers) { buffers - 1 } else { 0 };
                store(index, index == 0, pending, &copy);
                continue;
            };
            // Parts behind the end are left out, so that a block's first one meets any part before it.
            let [_, column] = at(index);
            let left = (end - column).where_or(column.less_than(end), 0).min(self.columns);
            f.if_(left.more_than(0), || {
                store(index, index.is_multiple_of(self.copies.count), 0, &|| {
                    let whole = left.equals(self.columns);
                    f.if_else(whole, copy, || by_threads(buffer(index), at(index), left));
                });
            });
        }
    }

    /// Shared address of a warpgroup's first buffer.
    pub(super) fn base<'f>(
        &self,
        plan: &Plan,
        shared: Value<'f, u32>,
        warpgroup: Value<'f, u32>,
    ) -> Value<'f, u32> {
        let StagingPlan { buffers, buffer_bytes, .. } = plan.staging;
        shared + (warpgroup * (buffers * buffer_bytes) + plan.epilogue_offset)
    }

    /// Parts of a warpgroup's part of a tile, each of which fills a buffer.
    pub(super) fn parts(&self, plan: &Plan) -> u32 {
        plan.blocks() * self.copies.count
    }

    /// Where a part begins in D, if the warpgroup's part of the tile begins at `first`.
    pub(super) fn coordinates<'f>(&self, [m, n]: [Value<'f, u32>; 2], index: u32) -> [Value<'f, u32>; 2] {
        let (block, part) = (index / self.copies.count, self.copies.get(index % self.copies.count));
        [m + block * 64, n + part.k]
    }

    /// The rows of each block of a fragment.
    pub(super) fn rows<'f>(
        &self,
        plan: &Plan,
        fragment: &Fragment<'f, f32>,
    ) -> Vec<Vec<FragmentRow<'f, f32>>> {
        let start = fragment.start();
        (0..plan.blocks()).map(|block| fragment.rows(start, block)).collect()
    }

    /// A part's results, packed, by row.
    pub(super) fn packed<'f, T: Element>(
        &self,
        f: &'f Builder,
        plan: &Plan,
        rows: &[Vec<FragmentRow<'f, f32>>],
        index: u32,
        combine: Combine<'_, 'f>,
    ) -> Vec<Vec<T::Packed<'f>>> {
        let (block, part) = (index / self.copies.count, self.copies.get(index % self.copies.count));
        let (first, pairs) = ((part.k / 8) as usize, self.columns as usize / 8);
        let halvings = plan.epilogue.halvings;
        let of_part: Vec<_> =
            rows[block as usize].iter().map(|row| row.part(first << halvings, pairs << halvings)).collect();
        combine.packed::<T>(f, block, &of_part)
    }
}

/// Where [`TmaStore`] stores.
#[derive(Clone, Copy, Debug)]
pub struct TmaDevice<'f> {
    /// Null where device memory says where outputs lie.
    pub(super) map: Value<'f, u64>,
    /// The same output for tiles that no copy may store: those with rows of another group behind their own, and outputs that
    /// have no map.
    direct: Option<DirectDevice<'f>>,
}

impl<'f> TmaDevice<'f> {
    pub(super) fn declare<T: Element>(f: &'f Builder, plan: &Plan) -> Self {
        let direct = || <DirectStore as Store<T>>::declare(f, plan);
        if plan.form.described() {
            return Self { map: f.constant(0), direct: Some(direct()) };
        }
        Self { map: f.tensor_map("d_map"), direct: plan.form.shares_rows().then(direct) }
    }

    pub(super) fn parameters<T: Element>(plan: &Plan, output: Output, map: TensorMap) -> Vec<Argument> {
        if plan.form.described() {
            return Vec::new();
        }
        let mut parameters = vec![map.into()];
        if plan.form.shares_rows() {
            parameters.extend(<DirectStore as Store<T>>::parameters(plan, output));
        }
        parameters
    }

    /// D's address and pitch, where they are known beside the map.
    pub(super) fn place(self, extent: Extent<'f>) -> Option<[Value<'f, u64>; 2]> {
        self.direct.map(|direct| direct.place(extent))
    }

    /// Where to store a tile that copies may not store.
    pub(super) fn directly(self, access: Access) -> Option<DirectDevice<'f>> {
        self.direct.filter(|_| !access.copies)
    }
}

impl<T: Element, B: Unsigned + 'static> Store<T> for TmaStore<B> {
    type Device<'f> = TmaDevice<'f>;
    const STAGED_BITS: u32 = T::BITS;
    const BUFFERS: u32 = {
        assert!(B::U32 > 0, "TmaStore has no buffer to store from: use TmaStore<U1> or more");
        B::U32
    };
    const ALIGNMENT: u64 = 16;
    const USES_PAIRS: bool = false;

    fn suffix() -> String {
        let buffers = if B::U32 == 2 { String::new() } else { B::U32.to_string() };
        format!("_tma{buffers}{}", element_suffix::<T>())
    }

    fn declare<'f>(f: &'f Builder, plan: &Plan) -> TmaDevice<'f> {
        TmaDevice::declare::<T>(f, plan)
    }

    fn parameters(plan: &Plan, output: Output) -> Vec<Argument> {
        let (swizzle, n) = (plan.staging.swizzle, plan.output_tile_n());
        let box_dims = tma::box_dims(Major::K, swizzle, T::BITS, 64, n);
        TmaDevice::parameters::<T>(plan, output, output.tensor_map::<T>(plan, box_dims, swizzle))
    }

    fn store<'f>(
        f: &'f Builder,
        plan: &Plan,
        device: TmaDevice<'f>,
        extent: Extent<'f>,
        fragment: &Fragment<'f, f32>,
        access: Access,
        combine: Combine<'_, 'f>,
    ) {
        if let Some(device) = device.directly(access) {
            return <DirectStore as Store<T>>::store(f, plan, device, extent, fragment, access, combine);
        }
        let staging = Staging::new::<T>(plan);
        let matrices = Self::matrices::<T>(&staging, fragment.thread);
        let of_lane = matrices.at(0).expect("a buffer is small") * (T::BITS / 8);
        let copy = |buffer, [row, column]: [Value<'f, u32>; 2]| {
            extent.tensor_store(f, plan, device.map, buffer, [column, row]);
        };
        staging.store::<T>(
            f,
            plan,
            fragment,
            combine,
            &Through {
                fill: &|buffer, rows| Self::fill::<T>(f, &matrices.layout, [of_lane, buffer], rows),
                copy: &copy,
                partly: None,
            },
        );
    }

    fn finish(f: &Builder, _plan: &Plan, thread: Value<'_, u32>) {
        f.if_(thread.equals(0), || f.bulk_wait(0, false));
    }
}

impl<B> TmaStore<B> {
    /// Whether a thread hands rows over to `stmatrix`, which moves 16-bit elements, or stores its own pairs.
    const fn by_matrices<T: Element>() -> bool {
        T::BITS == 16
    }

    /// Where a thread writes in a buffer. By `stmatrix` the modes are the eight elements of a row of a matrix, then the
    /// matrices above each other (one), then those beside each other; otherwise the elements of a matrix that the thread
    /// holds, in pairs, and the same two.
    pub(super) fn matrices<'f, T: Element>(
        staging: &Staging,
        thread: Value<'f, u32>,
    ) -> Tensor<ComposedLayout, Value<'f, u32>> {
        // A buffer of 8 columns has but one matrix a row.
        let matrices = if staging.columns < 16 { 2 } else { 4 };
        let copy = stmatrix::stmatrix(matrices, false).and_then(|warp| warp.in_groups(&[4, 1]));
        let parts = copy.and_then(|warps| match Self::by_matrices::<T>() {
            true => warps.partition_d(&staging.buffer),
            false => warps.partition_s(&staging.buffer),
        });
        let start = thread.builder().constant(0);
        parts.and_then(|parts| parts.tensor(start, &[Some(thread)])).expect("a buffer consists of matrices")
    }

    /// Stores the packed pairs of a thread's two rows into a buffer, where `of_lane` is a lane's first row, or its first
    /// element, in bytes. The swizzle is linear over exclusive or, so a static column joins that with one operation.
    pub(super) fn fill<'f, T: Element>(
        f: &'f Builder,
        matrices: &ComposedLayout,
        [of_lane, buffer]: [Value<'f, u32>; 2],
        [upper, lower]: [&[T::Packed<'f>]; 2],
    ) {
        let address = |value: i64, column: i64| {
            let place = u32::try_from(matrices.at_modes(&[value, 0, column])).expect("a buffer is small");
            (of_lane ^ f.constant(place * (T::BITS / 8))) + buffer
        };
        for (column, (upper, lower)) in (0i64..).zip(upper.chunks(2).zip(lower.chunks(2))) {
            if !Self::by_matrices::<T>() {
                for (index, pairs) in (0i64..).zip(upper.iter().zip(lower)) {
                    for (row, &pair) in (0i64..).zip([pairs.0, pairs.1]) {
                        T::store_shared(f, address(4 * index + 2 * row, column), 0, pair);
                    }
                }
                continue;
            }
            let words = |pairs: &[T::Packed<'f>]| pairs.iter().filter_map(|&pair| T::word(f, pair)).collect();
            let (upper, lower): (Vec<_>, Vec<_>) = (words(upper), words(lower));
            match (&upper[..], &lower[..]) {
                ([a, c], [b, d]) => f.store_matrix(address(0, column), [*a, *b, *c, *d], false),
                ([a], [b]) => f.store_matrix(address(0, column), [*a, *b], false),
                _ => {}
            }
        }
    }

    /// The opposite of [`fill`](Self::fill): loads as many pairs of a thread's two rows from a buffer.
    pub(super) fn drain<'f, T: Element>(
        f: &'f Builder,
        matrices: &ComposedLayout,
        [of_lane, buffer]: [Value<'f, u32>; 2],
        pairs: usize,
    ) -> [Vec<[Value<'f, f32>; 2]>; 2] {
        let address = |value: i64, column: i64| {
            let place = u32::try_from(matrices.at_modes(&[value, 0, column])).expect("a buffer is small");
            (of_lane ^ f.constant(place * (T::BITS / 8))) + buffer
        };
        let [mut upper, mut lower] = [Vec::new(), Vec::new()];
        for (column, first) in (0i64..).zip((0..pairs).step_by(2)) {
            let count = (pairs - first).min(2);
            if Self::by_matrices::<T>() {
                let wide = |word| f.unpack::<T::Memory>(word).map(T::widen);
                let words = match count {
                    2 => f.load_matrix::<4>(address(0, column), false).to_vec(),
                    _ => f.load_matrix::<2>(address(0, column), false).to_vec(),
                };
                for both in words.chunks_exact(2) {
                    upper.push(wide(both[0]));
                    lower.push(wide(both[1]));
                }
                continue;
            }
            for index in (0i64..).take(count) {
                for (row, values) in (0i64..).zip([&mut upper, &mut lower]) {
                    let at = address(4 * index + 2 * row, column);
                    values.push(f.load_shared_vector::<T::Memory, 2>(at, 0).map(T::widen));
                }
            }
        }
        [upper, lower]
    }
}
