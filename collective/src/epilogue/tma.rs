//! Through shared memory, and from there by tensor copies.

use core::marker::PhantomData;

use cute_rs::atom::{Major, stmatrix, tma};
use cute_rs::{ComposedLayout, Tensor};
use ptx::abi::{Argument, TensorMap};
use ptx::{Builder, Value};
use typenum::{U2, Unsigned};

use super::Extent;
use super::direct::{DirectDevice, DirectStore};
use super::staging::{Staging, Through};
use super::store::{Access, Combine, Output, Store, element_suffix};
use crate::element::Element;
use crate::mainloop::Fragment;
use crate::plan::Plan;

/// Registers to swizzled shared memory by `stmatrix` (elements of 16 bits) or by stores of pairs, and from there by tensor copies, which go on while the next
/// tile is computed and leave out what lies beyond the edge: rows below it, and whole 16-byte chunks to the right of
/// it. (Measured on an H200: a chunk that the edge cuts through is written whole.)
///
/// Each consumer warpgroup has up to `Buffers` buffers of its own, 64 rows of one swizzle width (64 columns of 16 bits),
/// and waits for nobody but itself: for the last copy from a buffer to have read it, then for its own threads to have
/// filled it. Two let one be filled while the other is read; more take the place of pipeline stages.
#[derive(Clone, Copy, Debug)]
pub struct TmaStore<Buffers = U2>(PhantomData<Buffers>);

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
