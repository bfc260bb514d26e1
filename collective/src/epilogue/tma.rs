//! Staged stores: through shared memory, and from there by tensor copies.

use core::marker::PhantomData;

use cute_rs::atom::stmatrix;
use cute_rs::{ComposedLayout, Layout, Tensor};
use ptx::abi::{Argument, TensorMap};
use ptx::{Builder, Value};
use typenum::{U2, Unsigned};

use super::direct::{self, DirectDevice};
use super::staging::{Staging, Through};
use super::store::{Access, Combine, Output, Store, Stored, Way};
use crate::element::{Format, Packed};
use crate::extent::Extent;
use crate::operand::{TileAtom, Widest};
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

/// The output of [`TmaStore`] on the device.
#[derive(Clone, Copy, Debug)]
pub struct TmaDevice<'f> {
    /// The tensor map; null in a grouped launch, where device memory describes the outputs.
    pub(super) map: Value<'f, u64>,
    /// The same output for tiles that no copy may store: those with rows of the next group, and outputs
    /// without a map.
    direct: Option<DirectDevice<'f>>,
}

impl<'f> TmaDevice<'f> {
    pub(super) fn declare(f: &'f Builder, plan: &Plan) -> Self {
        let direct = || DirectDevice::declare(f, plan);
        if plan.form.described() {
            return Self { map: f.constant(0), direct: Some(direct()) };
        }
        Self { map: f.tensor_map("d_map"), direct: plan.form.shares_rows().then(direct) }
    }

    /// The values of the kernel parameters, given D's tensor map.
    pub(super) fn parameters(format: Format, plan: &Plan, output: Output, map: TensorMap) -> Vec<Argument> {
        if plan.form.described() {
            return Vec::new();
        }
        let mut parameters = vec![map.into()];
        if plan.form.shares_rows() {
            parameters.extend(direct::parameters(format, plan, output));
        }
        parameters
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
    const WAY: Way = Way::Tma { buffers: B::U32 };
    const ATOM: Option<ComposedLayout> = L::ATOM;
}

/// The values of the kernel parameters.
pub(super) fn parameters(format: Format, plan: &Plan, output: Output) -> Vec<Argument> {
    TmaDevice::parameters(format, plan, output, output.tensor_map(format, plan))
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
    let matrices = matrices(format, &staging, fragment.thread);
    let of_lane = matrices.at(0).expect("a buffer is small") * format.bytes();
    let copy = |buffer, [row, column]: [Value<'f, u32>; 2]| {
        extent.tensor_store(f, plan, device.map, buffer, [column, row]);
    };
    staging.store(
        f,
        plan,
        fragment,
        combine,
        &Through {
            fill: &|buffer, rows| fill(format, f, &matrices.layout, [of_lane, buffer], rows),
            copy: &copy,
            partly: None,
        },
    );
}

/// Whether a thread passes rows to `stmatrix`, which moves 16-bit elements, instead of storing its own pairs.
const fn by_matrices(format: Format) -> bool {
    format.bits() == 16
}

/// The places in a buffer that a thread writes. For `stmatrix` the modes are the eight elements of a row of a
/// matrix, the matrices below each other (one), and the matrices next to each other. Otherwise they are the
/// elements of a matrix that the thread holds, in pairs, and the same two.
pub(super) fn matrices<'f>(
    format: Format,
    staging: &Staging,
    thread: Value<'f, u32>,
) -> Tensor<ComposedLayout, Value<'f, u32>> {
    // A buffer of 8 columns has only one matrix per row. If the number of matrices per row is odd, the layout
    // goes on for one more, which no thread writes.
    let (matrices, buffer) = match staging.columns {
        8 => (2, staging.buffer),
        columns if columns.is_multiple_of(16) => (4, staging.buffer),
        columns => {
            let wide = [staging.rows, columns + 8].map(i64::from);
            let layout = Layout::flat(&wide, &[columns.into(), 1]).expect("a buffer is small");
            (4, ComposedLayout { layout, ..staging.buffer })
        }
    };
    let copy = stmatrix::stmatrix(matrices, false).and_then(|warp| warp.in_groups(&[4, 1]));
    let parts = copy.and_then(|warps| match by_matrices(format) {
        true => warps.partition_d(&buffer),
        false => warps.partition_s(&buffer),
    });
    let start = thread.builder().constant(0);
    parts.and_then(|parts| parts.tensor(start, &[Some(thread)])).expect("a buffer consists of matrices")
}

/// Shared address of what a thread writes at these coordinates of [`matrices`]. `of_lane` is the byte offset
/// of its first row, or of its first element. A swizzle is linear over exclusive or, so a constant column is
/// added with one operation.
fn address<'f>(
    format: Format,
    matrices: &ComposedLayout,
    [of_lane, buffer]: [Value<'f, u32>; 2],
    [value, column]: [i64; 2],
) -> Value<'f, u32> {
    let place = u32::try_from(matrices.at_modes(&[value, 0, column])).expect("a buffer is small");
    let place = place * format.bytes();
    if matrices.swizzle.bits == 0 {
        return of_lane + buffer + place;
    }
    (of_lane ^ of_lane.builder().constant(place)) + buffer
}

/// Stores the packed pairs of a thread's two rows into a buffer.
pub(super) fn fill<'f>(
    format: Format,
    f: &'f Builder,
    matrices: &ComposedLayout,
    place: [Value<'f, u32>; 2],
    [upper, lower]: [&[Packed<'f>]; 2],
) {
    let address = |value: i64, column: i64| address(format, matrices, place, [value, column]);
    for (column, (upper, lower)) in (0i64..).zip(upper.chunks(2).zip(lower.chunks(2))) {
        if !by_matrices(format) {
            for (index, pairs) in (0i64..).zip(upper.iter().zip(lower)) {
                for (row, &pair) in (0i64..).zip([pairs.0, pairs.1]) {
                    pair.store_shared(address(4 * index + 2 * row, column));
                }
            }
            continue;
        }
        let words = |pairs: &[Packed<'f>]| pairs.iter().filter_map(|pair| pair.word()).collect();
        let (upper, lower): (Vec<_>, Vec<_>) = (words(upper), words(lower));
        match (&upper[..], &lower[..]) {
            ([a, c], [b, d]) => f.store_matrix(address(0, column), [*a, *b, *c, *d], false),
            ([a], [b]) => f.store_matrix(address(0, column), [*a, *b], false),
            _ => {}
        }
    }
}

/// The inverse of [`fill`](Self::fill): loads `pairs` pairs of each of a thread's two rows from a buffer.
pub(super) fn drain<'f>(
    format: Format,
    f: &'f Builder,
    matrices: &ComposedLayout,
    place: [Value<'f, u32>; 2],
    pairs: usize,
) -> [Vec<[Value<'f, f32>; 2]>; 2] {
    let address = |value: i64, column: i64| address(format, matrices, place, [value, column]);
    let [mut upper, mut lower] = [Vec::new(), Vec::new()];
    for (column, first) in (0i64..).zip((0..pairs).step_by(2)) {
        let count = (pairs - first).min(2);
        if by_matrices(format) {
            let wide = |word| format.of_word(f, word).map(|pair| pair.map(|value| format.widen(value)));
            let words = match count {
                2 => f.load_matrix::<4>(address(0, column), false).to_vec(),
                _ => f.load_matrix::<2>(address(0, column), false).to_vec(),
            };
            for both in words.chunks_exact(2) {
                upper.extend(wide(both[0]));
                lower.extend(wide(both[1]));
            }
            continue;
        }
        for index in (0i64..).take(count) {
            for (row, values) in (0i64..).zip([&mut upper, &mut lower]) {
                let at = address(4 * index + 2 * row, column);
                values.push(format.load_shared_pair(f, at).map(|value| format.widen(value)));
            }
        }
    }
    [upper, lower]
}
