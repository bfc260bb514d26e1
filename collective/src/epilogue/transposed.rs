//! Stores of tiles whose rows are D's columns.
//!
//! `D^T = B^T A^T`: a kernel whose A is the caller's B, and whose B is the caller's A, computes the transpose of D. Where
//! D has few rows, they then fill an instruction's N, which may be 8, and not its M, which is 64. D is row-major all the
//! same, so in the kernel's eyes it is column-major, which these stores are for.

use core::marker::PhantomData;

use cute_rs::ComposedLayout;
use cute_rs::atom::{Major, SwizzleMode, smem};
use ptx::abi::Argument;
use ptx::{Builder, Value};
use typenum::Unsigned;

use super::Extent;
use super::store::{
    Access, Combine, DirectDevice, DirectStore, Output, Staging, Store, Through, TmaDevice, TmaStore,
};
use crate::element::Element;
use crate::mainloop::{Fragment, FragmentRow};
use crate::plan::Plan;

/// Stores the transpose of a tile as `S` would store the tile: [`DirectStore`] or [`TmaStore`].
///
/// A kernel with such a store exchanges the operands of a call: its mainloop's operand A is the caller's B. Callers
/// notice nothing.
///
/// ```
/// use collective::{Cooperative, Epilogue, KMajor, LinearCombination, Mainloop, MnMajor, Operands, Plan};
/// use collective::{Tile, TmaStore, TmaWgmma, Transposed};
/// use cute_rs::atom::Major;
/// use half::bf16;
/// use typenum::{U1, U16, U64, U128};
///
/// /// For 16 rows of A at a time: the caller's A is K-major, its B lies in rows of N.
/// type M = TmaWgmma<Operands<MnMajor<bf16>, KMajor<bf16>>, Tile<U64, U16, U128>, Cooperative<U1>>;
/// type E = LinearCombination<bf16, Transposed<TmaStore>>;
/// const PLAN: Plan = Plan::checked(M::SPEC, E::SPEC);
/// assert_eq!(PLAN.majors(), [Major::K, Major::Mn]);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Transposed<S>(PhantomData<S>);

/// A row of a thread's fragment as a column of a row-major matrix.
pub(super) struct Line<'f> {
    base: Value<'f, u64>,
    /// Bytes from one row of the matrix to the next.
    pitch: Value<'f, u64>,
    /// Rows of the matrix from the thread's first one on.
    rows: Value<'f, u32>,
}

impl<'f> Line<'f> {
    /// `matrix` is an address and a pitch in elements.
    pub(super) fn new<T: Element>(
        [address, pitch]: [Value<'f, u64>; 2],
        extent: Extent<'f>,
        row: &FragmentRow<'f, f32>,
    ) -> Self {
        let bytes = u64::from(T::BITS / 8);
        let element = row.column.cast::<u64>().mul_add(pitch, row.row.cast::<u64>());
        Self { base: address + element * bytes, pitch: pitch * bytes, rows: row.columns_inside(extent) }
    }

    /// Whether the `column`-th element is inside of the matrix, counted from the thread's first.
    pub(super) fn inside(&self, column: u32) -> Value<'f, bool> {
        self.rows.more_than(column)
    }

    /// Where it is.
    pub(super) fn address(&self, column: u32) -> Value<'f, u64> {
        self.base + self.pitch * u64::from(column)
    }
}

impl<T: Element> Store<T> for Transposed<DirectStore> {
    type Device<'f> = DirectDevice<'f>;
    const STAGED_BITS: u32 = 0;
    const BUFFERS: u32 = 0;
    const ALIGNMENT: u64 = <DirectStore as Store<T>>::ALIGNMENT;
    const USES_PAIRS: bool = true;
    const TRANSPOSED: bool = true;

    fn suffix() -> String {
        "_transposed".to_owned()
    }

    fn declare<'f>(f: &'f Builder, plan: &Plan) -> DirectDevice<'f> {
        <DirectStore as Store<T>>::declare(f, plan)
    }

    fn parameters(plan: &Plan, output: Output) -> Vec<Argument> {
        <DirectStore as Store<T>>::parameters(plan, output)
    }

    fn store<'f>(
        f: &'f Builder,
        _plan: &Plan,
        device: DirectDevice<'f>,
        extent: Extent<'f>,
        fragment: &Fragment<'f, f32>,
        access: Access,
        combine: Combine<'_, 'f>,
    ) {
        let matrix = device.place(extent);
        // Two lanes hold the same columns of neighbouring rows, which are neighbours in D's rows. They exchange elements, so
        // that the even one has both of a pair's first column and the other those of the second.
        let odd = fragment.thread >> 2 & 1;
        let start = fragment.start();
        for (block, _) in (0u32..).zip(&fragment.blocks) {
            for row in fragment.rows(start, block) {
                let mut own = row.part(0, 0);
                if access.pairs {
                    (own.row, own.column) = (row.row - odd, row.column + odd);
                }
                let line = Line::new::<T>(matrix, extent, &own);
                let values = (combine.values)(block, core::slice::from_ref(&row));
                for (pair, [low, high]) in row.pairs.iter().zip(values.into_iter().flatten()) {
                    if access.pairs {
                        let second = odd.equals(1);
                        let other = f.shuffle_xor(low.where_or(second, high), 4);
                        let packed = T::pack(f, [other.where_or(second, low), high.where_or(second, other)]);
                        let address = line.address(pair.column);
                        f.if_(line.inside(pair.column), || T::store_global(f, address, 0, packed));
                    } else {
                        for (column, element) in (pair.column..).zip(T::unpack(f, T::pack(f, [low, high]))) {
                            let address = line.address(column);
                            f.if_(line.inside(column), || f.store_global(address, 0, [element]));
                        }
                    }
                }
            }
        }
    }

    fn finish(_f: &Builder, _plan: &Plan, _thread: Value<'_, u32>) {}
}

/// The swizzle of a buffer, whose lines are 64 elements of a row of D.
const SWIZZLE: SwizzleMode = SwizzleMode::B128;

impl<T: Element, B: Unsigned + 'static> Store<T> for Transposed<TmaStore<B>> {
    type Device<'f> = TmaDevice<'f>;
    const STAGED_BITS: u32 = {
        assert!(SWIZZLE.elements(T::BITS) == 64, "transposed tiles are stored through matrices of 16 bits");
        T::BITS
    };
    const BUFFERS: u32 = <TmaStore<B> as Store<T>>::BUFFERS;
    const ALIGNMENT: u64 = <TmaStore<B> as Store<T>>::ALIGNMENT;
    const USES_PAIRS: bool = false;
    const TRANSPOSED: bool = true;

    fn suffix() -> String {
        format!("_transposed{}", <TmaStore<B> as Store<T>>::suffix())
    }

    fn declare<'f>(f: &'f Builder, plan: &Plan) -> TmaDevice<'f> {
        <TmaStore<B> as Store<T>>::declare(f, plan)
    }

    fn parameters(plan: &Plan, output: Output) -> Vec<Argument> {
        let box_dims = [64, plan.staging.swizzle.elements(T::BITS)];
        TmaDevice::parameters::<T>(plan, output, output.tensor_map::<T>(plan, box_dims, SWIZZLE))
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
            return <Transposed<DirectStore> as Store<T>>::store(
                f, plan, device, extent, fragment, access, combine,
            );
        }
        let staging = Staging::new::<T>(plan);
        let planned = "a buffer has 64 rows, and a multiple of 8 columns";
        let buffer = smem::tile(Major::Mn, SWIZZLE, T::BITS, 64, staging.columns).expect(planned);
        // A lane hands over a column of an 8 x 8 matrix: lanes go through those of matrices beside each other, two or one,
        // then below each other.
        let (lane, warp) = (fragment.thread % 32, fragment.thread / 32);
        let beside = staging.columns.min(16);
        let first = [warp * 16 + lane / beside % 2 * 8, lane % beside];
        let of_lane = buffer.apply_modes(&first).expect(planned) * (T::BITS / 8);
        let through = Through {
            fill: &|address, rows| fill::<T>(f, &buffer, address + of_lane, rows),
            copy: &|address, coords| extent.tensor_store(f, plan, device.map, address, coords),
        };
        staging.store::<T>(f, plan, fragment, combine, &through);
    }

    fn finish(f: &Builder, plan: &Plan, thread: Value<'_, u32>) {
        <TmaStore<B> as Store<T>>::finish(f, plan, thread);
    }
}

/// Stores the packed pairs of a thread's two rows into a buffer, where `of_lane` is the lane's first column. Sixteen
/// columns are whole periods of the swizzle.
fn fill<'f, T: Element>(
    f: &'f Builder,
    buffer: &ComposedLayout,
    of_lane: Value<'f, u32>,
    [upper, lower]: [&[T::Packed<'f>]; 2],
) {
    let words = |pairs: &[T::Packed<'f>]| pairs.iter().filter_map(|&pair| T::word(f, pair)).collect();
    let (upper, lower): (Vec<_>, Vec<_>) = (words(upper), words(lower));
    for (column, (upper, lower)) in (0i64..).step_by(16).zip(upper.chunks(2).zip(lower.chunks(2))) {
        let offset = u32::try_from(buffer.at_modes(&[0, column])).expect("a buffer is small");
        let address = of_lane + offset * (T::BITS / 8);
        match (upper, lower) {
            ([a, b], [c, d]) => f.store_matrix(address, [*a, *b, *c, *d], true),
            ([a], [b]) => f.store_matrix(address, [*a, *b], true),
            _ => {}
        }
    }
}
