//! Stores of a fragment, and what they share: the output, the values that replace accumulators, and how
//! memory may be accessed.

use cute_rs::ComposedLayout;
use cute_rs::atom::Major;
use ptx::abi::TensorMap;
use ptx::{Builder, Value};

use super::direct::{self, DirectDevice};
use super::tma::{self, TmaDevice};
use super::transposed;
use crate::element::{Format, Packed};
use crate::extent::Extent;
use crate::form::Batch;
use crate::mainloop::{Fragment, FragmentRow, tensor_swizzle};
use crate::operands::Visit;
use crate::plan::{EpilogueSpec, Peers, Plan, TileLayout, TileNeeds};
use crate::tensor_map::{Dimension, tensor_map};

/// A row-major output matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Output {
    /// Device address of the first element.
    pub address: u64,
    /// Rows.
    pub m: u32,
    /// Columns.
    pub n: u32,
    /// Leading dimension: elements from one row to the next.
    pub ld: u64,
    /// The batch of outputs of which it is the first.
    pub batch: Batch,
}

impl Output {
    /// Its tensor map, with boxes of one buffer. Rows are dimension 1; if there are several outputs, their
    /// index is dimension 2.
    pub(super) fn tensor_map(self, format: Format, plan: &Plan) -> TensorMap {
        let [columns, rows] = plan.stored_box();
        let dimensions = [
            Dimension::contiguous(self.n, columns),
            Dimension { extent: self.m, stride: self.ld, copied: rows },
        ];
        let batch = plan.form.outputs().then_some(self.batch);
        let swizzle = tensor_swizzle(plan.staging.swizzle);
        TensorMap { swizzle, ..tensor_map(format.tensor(), self.address, &dimensions, batch) }
    }
}

impl<'f> Extent<'f> {
    /// Starts the copy of a buffer to the box of the output that begins at `coords`, innermost coordinate
    /// first.
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

/// The values that replace the accumulators of some rows of a block: by row, pairs of columns.
pub(crate) type Values<'a, 'f, T = f32> =
    &'a dyn Fn(u32, &[FragmentRow<'f, T>]) -> Vec<Vec<[Value<'f, T>; 2]>>;

/// How an epilogue computes the values that are stored, from accumulators.
#[derive(Clone, Copy)]
pub(crate) struct Combine<'a, 'f, T = f32> {
    /// `Some(n)`: all rows of a block at once, `n` pairs of the output at a time. `None`: row by row, with
    /// any number of pairs.
    pub pairs_at_once: Option<usize>,
    /// Whether the values depend on memory that may be the same as D.
    pub reads: bool,
    /// Whether lanes compute elements that other lanes store.
    pub turns: bool,
    /// The values for rows of a block. The first argument is the block's index.
    pub values: Values<'a, 'f, T>,
}

impl<T> core::fmt::Debug for Combine<'_, '_, T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Combine").field("pairs_at_once", &self.pairs_at_once).finish_non_exhaustive()
    }
}

impl<'f> Combine<'_, 'f> {
    /// The values for rows of a block, packed.
    pub(super) fn packed(
        self,
        format: Format,
        f: &'f Builder,
        block: u32,
        rows: &[FragmentRow<'f, f32>],
    ) -> Vec<Vec<Packed<'f>>> {
        let pack =
            |pairs: Vec<[Value<'f, f32>; 2]>| pairs.into_iter().map(|pair| format.pack(f, pair)).collect();
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

/// How the memory of a tile may be accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Access {
    /// D's rows consist of aligned pairs.
    pub pairs: bool,
    /// The whole tile is inside D.
    pub whole: bool,
    /// Tensor copies may store the tile: it has no rows of the next group.
    pub copies: bool,
}

/// A store as a type: how results get to global memory.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no way of storing results",
    note = "write `DirectStore` (any address) or `TmaStore` (16-byte aligned rows)"
)]
pub trait Store: 'static {
    /// The path to global memory.
    const WAY: StorePath;
    /// Whether it stores the transpose of D (swap-AB): its rows are D's columns.
    const TRANSPOSED: bool = false;
    /// The layout atom of its buffers, K-major; `None` for the widest.
    const ATOM: Option<ComposedLayout> = None;
}

/// The path of a tile to global memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StorePath {
    /// [`DirectStore`](super::DirectStore).
    Direct,
    /// [`TmaStore`](super::TmaStore), with at most this number of buffers per consumer warpgroup.
    Tma {
        /// Each of 64 rows of one swizzle width.
        buffers: u32,
    },
}

/// A store as plain data: how results get to global memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StoreSpec {
    /// Format of D's elements.
    pub format: Format,
    /// The path of the elements to global memory.
    pub way: StorePath,
    /// Layout of a buffer in shared memory, if there is one.
    pub layout: TileLayout,
    /// Whether it stores the transpose of D (swap-AB): its rows are D's columns.
    pub transposed: bool,
}

impl EpilogueSpec {
    /// The spec of an epilogue that only stores.
    pub const fn of(store: StoreSpec) -> Self {
        Self {
            output: store.format,
            alignment: store.alignment(),
            staged_bits: store.staged_bits(),
            buffers: store.buffers(),
            staging: store.layout,
            registers: 0,
            halvings: 0,
            split: false,
            needs: TileNeeds::NONE,
            transposed: store.transposed,
            sourced: false,
        }
    }
}

/// The output of a store, on the device.
#[derive(Clone, Copy, Debug)]
pub(crate) enum StoreDevice<'f> {
    /// For [`StorePath::Direct`].
    Direct(DirectDevice<'f>),
    /// For [`StorePath::Tma`].
    Tma(TmaDevice<'f>),
}

impl StoreSpec {
    /// How `S` stores elements of a format. A store with zero buffers stops the build.
    ///
    /// # Panics
    /// At compile time, with the error's sentence.
    pub(super) const fn of<S: Store>(format: Format) -> Self {
        assert!(
            !matches!(S::WAY, StorePath::Tma { buffers: 0 }),
            "TmaStore has no buffer to store from: use TmaStore<U1> or more"
        );
        let layout = TileLayout::checked(S::ATOM, Major::K, format.bits());
        Self { format, way: S::WAY, layout, transposed: S::TRANSPOSED }
    }

    /// Bits of an element that is staged through shared memory; 0 if none is.
    pub const fn staged_bits(self) -> u32 {
        match self.way {
            StorePath::Direct => 0,
            StorePath::Tma { .. } => self.format.bits(),
        }
    }

    /// Most buffers per consumer warpgroup; each has 64 rows of one swizzle width.
    pub const fn buffers(self) -> u32 {
        match self.way {
            StorePath::Direct => 0,
            StorePath::Tma { buffers } => buffers,
        }
    }

    /// What D's address, row length and leading dimension must be a multiple of, in bytes.
    pub const fn alignment(self) -> u32 {
        match self.way {
            StorePath::Direct => self.format.bytes(),
            StorePath::Tma { .. } => 16,
        }
    }

    /// Whether it emits different code if rows consist of aligned pairs.
    pub const fn uses_pairs(self) -> bool {
        matches!(self.way, StorePath::Direct)
    }

    /// Whether it can itself store a tile whose last rows belong to the next group, by threads where copies
    /// may not.
    pub const fn keeps_inside(self) -> bool {
        self.transposed && matches!(self.way, StorePath::Tma { .. })
    }

    /// Its part of a kernel's name; it omits 16-bit formats.
    pub fn suffix(self) -> String {
        let transposed = if self.transposed { "_transposed" } else { "" };
        let way = match self.way {
            StorePath::Direct => String::new(),
            StorePath::Tma { buffers: 2 } => "_tma".to_owned(),
            StorePath::Tma { buffers } => format!("_tma{buffers}"),
        };
        let element = if self.format.bits() == 16 { String::new() } else { format!("_{}", self.format) };
        let layout = match self.layout {
            TileLayout::Widest => String::new(),
            TileLayout::Slabs(mode) => format!("_in{}", mode.bytes()),
        };
        format!("{transposed}{way}{layout}{element}")
    }

    /// The same store with the format of the registers it moves: 32-bit integers are moved as `f32`.
    pub(super) const fn moved(self) -> Self {
        Self { format: if matches!(self.format, Format::S32) { Format::F32 } else { self.format }, ..self }
    }

    /// Finds the kernel parameters that [`state`](Self::state) states.
    pub(crate) fn device<'f>(self, f: &'f Builder, plan: &Plan) -> StoreDevice<'f> {
        match self.way {
            StorePath::Direct => StoreDevice::Direct(DirectDevice::of_kernel(f, plan)),
            StorePath::Tma { .. } => StoreDevice::Tma(TmaDevice::of_kernel(f, plan)),
        }
    }

    /// States the kernel parameters, of this output if a launch is made.
    pub(crate) fn state(self, plan: &Plan, output: Option<Output>, visit: &mut dyn Visit) {
        match self.way {
            StorePath::Direct => direct::state(self.format, plan, output, visit),
            StorePath::Tma { .. } => tma::state(self.format, plan, output, visit),
        }
    }

    /// Emitted for a consumer warpgroup: stores its fragment of a tile.
    pub(crate) fn store<'f>(
        self,
        f: &'f Builder,
        plan: &Plan,
        device: StoreDevice<'f>,
        tile: &Stored<'_, 'f>,
        combine: Combine<'_, 'f>,
    ) {
        match (device, self.transposed) {
            (StoreDevice::Direct(device), false) => {
                direct::store(self.format, f, plan, device, tile, combine);
            }
            (StoreDevice::Direct(device), true) => {
                transposed::store_directly(self.format, f, device, tile, combine);
            }
            (StoreDevice::Tma(device), false) => tma::store(self.format, f, plan, device, tile, combine),
            (StoreDevice::Tma(device), true) => {
                transposed::store(self.format, f, plan, device, tile, combine);
            }
        }
    }

    /// Emitted after a consumer warpgroup's last tile: waits for outstanding copies. They must have read the buffers; the
    /// grid's end completes them. (Only where CTAs end at different times does it matter that they are not awaited.)
    pub fn finish(self, f: &Builder, plan: &Plan, thread: Value<'_, u32>) {
        let read = plan.cta(1, false).peers == Peers::Drain;
        match self.way {
            StorePath::Direct => {}
            StorePath::Tma { .. } => f.if_(thread.equals(0), || f.bulk_wait(0, read)),
        }
    }
}

/// A warpgroup's fragment of a tile, to be stored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stored<'a, 'f, T = f32> {
    /// The output's extent.
    pub extent: Extent<'f>,
    /// The accumulators.
    pub fragment: &'a Fragment<'f, T>,
    /// How memory may be accessed.
    pub access: Access,
}

/// Address of the first element of a thread's row.
pub(super) fn row_address<'f, T>(
    format: Format,
    matrix: Value<'f, u64>,
    ld: Value<'f, u64>,
    row: &FragmentRow<'f, T>,
) -> Value<'f, u64> {
    let element = row.row.cast::<u64>().mul_add(ld, row.column.cast::<u64>());
    matrix + element * u64::from(format.bytes())
}
