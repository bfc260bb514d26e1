//! Transposed stores, for swap-AB: the rows of a tile are D's columns.
//!
//! `D^T = B^T A^T`: a kernel whose A is the caller's B, and whose B is the caller's A, computes the transpose
//! of D. Use it if D has few rows. They then fill an instruction's N, which may be 8, instead of its M, which
//! is 64. The caller's D is still row-major, so the kernel sees it as column-major. These stores write it.

use core::marker::PhantomData;

use cute_rs::ComposedLayout;
use ptx::{Builder, Value};
use typenum::Unsigned;

use super::direct::{DirectDevice, DirectStore};
use super::staging::{Partly, Staging, Through};
use super::store::{Combine, Store, StorePath, Stored};
use super::tma::{TmaDevice, TmaStore};
use crate::element::{Format, Packed};
use crate::extent::Extent;
use crate::mainloop::FragmentRow;
use crate::plan::{Plan, element_offset, element_place};

/// Stores the transpose of a tile in the way that `S`, [`DirectStore`] or [`TmaStore`], would store the tile.
///
/// A kernel with such a store uses swap-AB: its operand A is the caller's B, and the other way round. Callers
/// pass their operands as usual.
///
/// ```
/// use collective::{Cooperative, Epilogue, KMajor, LinearCombination, Mainloop, MnMajor, Operands, Plan};
/// use collective::{Tile, TmaStore, TmaWgmma, Transposed};
/// use cute_rs::atom::Major;
/// use half::bf16;
/// use typenum::{U1, U16, U64, U128};
///
/// /// For 16 rows of A at a time: the caller's A is K-major, its B is N-major.
/// type M = TmaWgmma<Operands<MnMajor<bf16>, KMajor<bf16>>, Tile<U64, U16, U128>, Cooperative<U1>>;
/// type E = LinearCombination<bf16, Transposed<TmaStore>>;
/// const PLAN: Plan = Plan::checked(M::SPEC, E::SPEC);
/// assert_eq!(PLAN.majors(), [Major::K, Major::Mn]);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Transposed<S>(PhantomData<S>);

/// A row of a thread's fragment, as a column of a row-major matrix.
pub(super) struct Line<'f> {
    base: Value<'f, u64>,
    /// Bytes from one row of the matrix to the next.
    ld: Value<'f, u64>,
    /// Number of rows of the matrix from the thread's first one on.
    rows: Value<'f, u32>,
}

impl<'f> Line<'f> {
    /// `matrix` is an address and a leading dimension in elements.
    pub(super) fn new(
        format: Format,
        [address, ld]: [Value<'f, u64>; 2],
        extent: Extent<'f>,
        row: &FragmentRow<'f, f32>,
    ) -> Self {
        let bytes = u64::from(format.bytes());
        let element = row.column.cast::<u64>().mul_add(ld, row.row.cast::<u64>());
        Self { base: address + element * bytes, ld: ld * bytes, rows: row.columns_inside(extent) }
    }

    /// Whether element `column`, relative to the thread's first, is inside the matrix.
    pub(super) fn inside(&self, column: u32) -> Value<'f, bool> {
        self.rows.more_than(column)
    }

    /// Address of element `column`, relative to the thread's first.
    pub(super) fn address(&self, column: u32) -> Value<'f, u64> {
        self.base + self.ld * u64::from(column)
    }
}

impl Store for Transposed<DirectStore> {
    const WAY: StorePath = StorePath::Direct;
    const TRANSPOSED: bool = true;
}

impl<B: Unsigned + 'static> Store for Transposed<TmaStore<B>> {
    const WAY: StorePath = <TmaStore<B> as Store>::WAY;
    const TRANSPOSED: bool = true;
}

/// Emitted for a consumer warpgroup: stores its fragment of a tile from registers.
pub(super) fn store_directly<'f>(
    format: Format,
    f: &'f Builder,
    device: DirectDevice<'f>,
    &Stored { extent, fragment, access }: &Stored<'_, 'f>,
    combine: Combine<'_, 'f>,
) {
    let matrix = device.place(extent);
    let odd = fragment.thread >> 2 & 1;
    let start = fragment.start();
    let line = |row: &FragmentRow<'f, f32>| {
        let mut own = row.part(0, 0);
        if access.pairs {
            (own.row, own.column) = (row.row - odd, row.column + odd);
        }
        Line::new(format, matrix, extent, &own)
    };
    let store = |line: &Line<'f>, column: u32, pair: [Value<'f, f32>; 2]| {
        if access.pairs {
            let packed = format.pack(f, exchange(f, odd, pair));
            let address = line.address(column);
            if access.whole {
                return packed.store_global(address, 0);
            }
            return f.if_(line.inside(column), || packed.store_global(address, 0));
        }
        for (column, element) in (column..).zip(format.unpack(f, format.pack(f, pair))) {
            let address = line.address(column);
            f.if_(line.inside(column), || element.store_global(address, 0));
        }
    };
    // If D is also C, lanes that exchange elements store to places that other lanes have read.
    let meet = || {
        if (access.pairs || combine.turns) && combine.reads {
            f.warp_sync();
        }
    };
    for (block, _) in (0u32..).zip(&fragment.blocks) {
        let rows = fragment.rows(start, block);
        let Some(pairs_at_once) = combine.pairs_at_once else {
            for row in rows {
                let line = line(&row);
                let values = (combine.values)(block, core::slice::from_ref(&row));
                meet();
                for (pair, values) in row.pairs.iter().zip(values.into_iter().flatten()) {
                    store(&line, pair.column, values);
                }
            }
            continue;
        };
        let lines: Vec<_> = rows.iter().map(line).collect();
        let pairs = rows.first().map_or(0, |row| row.pairs.len());
        for first in (0..pairs).step_by(pairs_at_once) {
            let part: Vec<_> = rows.iter().map(|row| row.part(first, pairs_at_once)).collect();
            let values = (combine.values)(block, &part);
            meet();
            for (line, (row, values)) in lines.iter().zip(part.iter().zip(values)) {
                for (pair, values) in row.pairs.iter().zip(values) {
                    store(line, pair.column, values);
                }
            }
        }
    }
}

/// Two lanes hold the same columns of neighbouring rows; these rows are neighbours in a row of D. The even
/// lane gets both elements of the first column, the odd lane both of the second.
fn exchange<'f>(
    f: &'f Builder,
    odd: Value<'f, u32>,
    [low, high]: [Value<'f, f32>; 2],
) -> [Value<'f, f32>; 2] {
    let second = odd.equals(1);
    let other = f.shuffle_xor(low.where_or(second, high), 4);
    [other.where_or(second, low), high.where_or(second, other)]
}

/// Emitted for a consumer warpgroup: stores its fragment of a tile through shared memory.
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
        return store_directly(format, f, device, tile, combine);
    }
    let staging = Staging::new(format, plan);
    let (swizzle, buffer) = (plan.staging.swizzle, &staging.buffer);
    let place = |at: [Value<'f, u32>; 2]| element_place(buffer, at) * format.bytes();
    let (lane, warp) = (fragment.thread % 32, fragment.thread / 32);
    // Lines longer than the swizzle width are stored in blocks of that width; one copy moves each block to D.
    let width = swizzle.elements(format.bits());
    let copy = |address: Value<'f, u32>, [row, column]: [Value<'f, u32>; 2]| {
        for (block, skipped) in (0..).zip((0..staging.rows).step_by(width as usize)) {
            let source = address + block * staging.columns * swizzle.bytes();
            extent.tensor_store(f, plan, device.map, source, [row + skipped, column]);
        }
    };
    // Threads store a line of a buffer, 64 elements, 16 bytes each, next to each other.
    let output = device.place(extent);
    let chunks = format.bits() / 2;
    let by_threads = |address, [row, column]: [Value<'f, u32>; 2], left: Value<'f, u32>| {
        let Some([d, ld]) = output else { return };
        let first = fragment.thread % chunks * (128 / format.bits());
        let inside = (row + first).less_than(extent.m);
        for lines in (0..staging.columns).step_by(128 / chunks as usize) {
            let line = fragment.thread / chunks + lines;
            let chunk = address + place([first, line]);
            f.if_(inside & line.less_than(left), || {
                let element = (column + line).cast::<u64>().mul_add(ld, (row + first).cast());
                let values = f.load_shared_vector::<u32, 4>(chunk, 0);
                f.store_global(d + element * u64::from(format.bytes()), 0, values);
            });
        }
    };
    let partly = plan.form.shares_rows().then_some(Partly { end: extent.n, store: &by_threads });
    if format.bits() == 16 {
        // A lane supplies one column of an 8 x 8 matrix. The lanes cover the matrices next to each other, two
        // or one, then those below.
        let of_lane = |beside: u32| place([warp * 16 + lane / beside % 2 * 8, lane % beside]);
        let two = (staging.columns >= 16).then(|| of_lane(16));
        let one = (!staging.columns.is_multiple_of(16)).then(|| of_lane(8));
        let through = Through {
            fill: &|address, rows| {
                let of_lane = [two, one].map(|place| place.map(|it| address + it));
                fill_matrices(format, f, buffer, of_lane, rows);
            },
            copy: &copy,
            partly,
        };
        return staging.store(f, plan, fragment, combine, &through);
    }
    let odd = lane >> 2 & 1;
    let values = |block: u32, rows: &[FragmentRow<'f, f32>]| {
        let row =
            |pairs: Vec<[Value<'f, f32>; 2]>| pairs.into_iter().map(|pair| exchange(f, odd, pair)).collect();
        (combine.values)(block, rows).into_iter().map(row).collect::<Vec<_>>()
    };
    let first = [warp * 16 + (lane >> 2) - odd, (lane & 3) * 2 + odd];
    let of_rows = [0, 8].map(|below| place([first[0] + below, first[1]]));
    let through = Through {
        fill: &|address, rows| fill_pairs(format, buffer, of_rows.map(|row| address + row), rows),
        copy: &copy,
        partly,
    };
    staging.store(f, plan, fragment, Combine { values: &values, ..combine }, &through);
}

/// Stores pairs of neighbours of a column into a buffer, one below the other in `of_rows`. Eight columns are
/// whole periods of the swizzle.
fn fill_pairs<'f>(
    format: Format,
    buffer: &ComposedLayout,
    of_rows: [Value<'f, u32>; 2],
    rows: [&[Packed<'f>]; 2],
) {
    for (row, pairs) in of_rows.into_iter().zip(rows) {
        for (column, &pair) in (0i64..).step_by(8).zip(pairs) {
            let offset = element_offset(buffer.at_modes(&[0, column]));
            pair.store_shared(row + offset * format.bytes());
        }
    }
}

/// Stores the packed pairs of a thread's two rows into a buffer. `of_lane` are the addresses of the lane's first
/// column where two matrices are next to each other, and where there is one. Sixteen columns are whole periods
/// of the swizzle.
fn fill_matrices<'f>(
    format: Format,
    f: &'f Builder,
    buffer: &ComposedLayout,
    [two, one]: [Option<Value<'f, u32>>; 2],
    [upper, lower]: [&[Packed<'f>]; 2],
) {
    let words = |pairs: &[Packed<'f>]| pairs.iter().filter_map(|pair| pair.word()).collect();
    let (upper, lower): (Vec<_>, Vec<_>) = (words(upper), words(lower));
    for (column, (upper, lower)) in (0i64..).step_by(16).zip(upper.chunks(2).zip(lower.chunks(2))) {
        let offset = element_offset(buffer.at_modes(&[0, column]));
        match (upper, lower, two, one) {
            ([a, b], [c, d], Some(two), _) => {
                f.store_matrix(two + offset * format.bytes(), [*a, *b, *c, *d], true);
            }
            ([a], [b], _, Some(one)) => f.store_matrix(one + offset * format.bytes(), [*a, *b], true),
            _ => {}
        }
    }
}
