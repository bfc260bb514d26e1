//! Staged stores: through shared memory, and from there by tensor copies.

use core::marker::PhantomData;

use cute_rs::ComposedLayout;
use ptx::{Builder, Value};
use typenum::{U2, Unsigned};

use super::direct::{self, DirectDevice};
use super::staging::{Staging, Through};
use super::store::{Access, Combine, Output, Store, StorePath, Stored};
use crate::element::Format;
use crate::extent::Extent;
use crate::operand::{TileAtom, Widest};
use crate::operands::Visit;
use crate::plan::Plan;

/// Stores through swizzled shared memory: registers are written there by `stmatrix` (16-bit elements) or by
/// stores of pairs, and tensor copies move the data to D while the next tile is computed. Copies skip what is
/// outside D: rows below its edge, and whole 16-byte chunks to the right of it. (Measured on an H200: a chunk
/// that the edge cuts through is written whole.) So D's address, rows and leading dimension must be multiples
/// of 16 bytes.
///
/// Each consumer warpgroup has up to `Buffers` buffers of its own, each with 64 rows of one swizzle width (64
/// columns of 16 bits). It waits only for itself: first until the last copy from a buffer has read it, then
/// until its own threads have filled it. With two buffers, the default, one is filled while the other is
/// read. More buffers take memory from pipeline stages.
///
/// `L` is the layout atom of a buffer, as a type of `cute_rs`: 8 rows of one swizzle width. Default:
/// [`Widest`].
#[derive(Clone, Copy, Debug)]
pub struct TmaStore<Buffers = U2, L = Widest>(PhantomData<(Buffers, L)>);

/// The name of the kernel parameter: D's tensor map.
const D_MAP: &str = "d_map";

/// The output of [`TmaStore`] on the device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TmaDevice<'f> {
    /// The tensor map; null in a grouped launch, where device memory describes the outputs.
    pub(super) map: Value<'f, u64>,
    /// The same output for tiles that no copy may store: those with rows of the next group, and outputs
    /// without a map.
    direct: Option<DirectDevice<'f>>,
}

impl<'f> TmaDevice<'f> {
    /// Finds the kernel parameters.
    pub(super) fn of_kernel(f: &'f Builder, plan: &Plan) -> Self {
        let direct = || DirectDevice::of_kernel(f, plan);
        if plan.form.described() {
            return Self { map: f.constant(0), direct: Some(direct()) };
        }
        Self { map: f.parameter(D_MAP), direct: plan.form.shares_rows().then(direct) }
    }

    /// D's address and leading dimension, if they are known in addition to the map.
    pub(super) fn place(self, extent: Extent<'f>) -> Option<[Value<'f, u64>; 2]> {
        self.direct.map(|direct| direct.place(extent))
    }

    /// Where to store a tile that copies may not store.
    pub(super) fn directly(self, access: Access) -> Option<DirectDevice<'f>> {
        self.direct.filter(|_| !access.copies)
    }
}

impl<B: Unsigned + 'static, L: TileAtom> Store for TmaStore<B, L> {
    const WAY: StorePath = StorePath::Tma { buffers: B::U32 };
    const ATOM: Option<ComposedLayout> = L::ATOM;
}

/// States the kernel parameters.
pub(super) fn state(format: Format, plan: &Plan, output: Option<Output>, visit: &mut dyn Visit) {
    if plan.form.described() {
        return;
    }
    visit.tensor_map(D_MAP, "D", output.map(|output| output.tensor_map(format, plan)));
    if plan.form.shares_rows() {
        direct::state(format, plan, output, visit);
    }
}

/// Emitted for a consumer warpgroup: stores its fragment of a tile.
pub(super) fn store<'f>(
    format: Format,
    f: &'f Builder,
    plan: &Plan,
    device: TmaDevice<'f>,
    tile: &Stored<'_, 'f>,
    combine: Combine<'_, 'f>,
) {
    let Stored { extent, fragment, access } = *tile;
    if let Some(device) = device.directly(access) {
        return direct::store(format, f, plan, device, tile, combine);
    }
    let staging = Staging::new(format, plan);
    let rows = staging.staged_rows(fragment.thread);
    let copy = |buffer, [row, column]: [Value<'f, u32>; 2]| {
        extent.tensor_store(f, plan, device.map, buffer, [column, row]);
    };
    staging.store(
        f,
        plan,
        fragment,
        combine,
        &Through { fill: &|buffer, pairs| rows.fill(f, buffer, pairs), copy: &copy, partly: None },
    );
}
