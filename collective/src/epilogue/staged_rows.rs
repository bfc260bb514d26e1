//! Rows of a fragment in shared memory: as threads write them there, to be copied on, or read them.

use cute_rs::atom::stmatrix;
use cute_rs::{ComposedLayout, Layout, LayoutError};
use ptx::{Builder, Value};

use crate::element::{Format, Packed};
use crate::plan::element_offset;

/// The places in a buffer of shared memory that a thread of a warpgroup writes: those of the pairs of
/// accumulators that it holds of 64 rows. Pairs of 16-bit elements go there by `stmatrix`, others by plain
/// stores.
///
/// A buffer that is filled is copied on by a tensor store, after `fence.proxy.async` and a barrier.
#[derive(Clone, Debug)]
pub struct StagedRows<'f> {
    format: Format,
    /// The modes are, for `stmatrix`: the eight elements of a row of a matrix, the matrices below each other
    /// (one), and the matrices next to each other. Otherwise: the elements of a matrix that the thread holds,
    /// in pairs, and the same two.
    matrices: ComposedLayout,
    /// Byte offset of the thread's first row, or of its first element.
    of_lane: Value<'f, u32>,
}

/// Whether a thread passes rows to `stmatrix`, which moves 16-bit elements, instead of storing its own pairs.
const fn by_matrices(format: Format) -> bool {
    format.bits() == 16
}

impl<'f> StagedRows<'f> {
    /// The places of `thread` of a warpgroup in a buffer with the layout `(row, column) -> element`, which has
    /// these extents.
    ///
    /// # Panics
    /// If the buffer does not consist of matrices of 8 x 8 elements.
    #[track_caller]
    pub fn new(format: Format, buffer: ComposedLayout, extents: [u32; 2], thread: Value<'f, u32>) -> Self {
        Self::found(format, buffer, extents, thread).expect("a buffer consists of matrices of 8 x 8 elements")
    }

    #[track_caller]
    fn found(
        format: Format,
        buffer: ComposedLayout,
        [rows, columns]: [u32; 2],
        thread: Value<'f, u32>,
    ) -> Result<Self, LayoutError> {
        // A buffer of 8 columns has only one matrix per row. If the number of matrices per row is odd, the
        // layout goes on for one more, which no thread writes.
        let (matrices, buffer) = match columns {
            8 => (2, buffer),
            columns if columns.is_multiple_of(16) => (4, buffer),
            columns => {
                let wide = [rows, columns + 8].map(i64::from);
                let layout = Layout::flat(&wide, &[columns.into(), 1])?;
                (4, ComposedLayout { layout, ..buffer })
            }
        };
        let warps = stmatrix::stmatrix(matrices, false)?.in_groups(&[4, 1])?;
        let parts = match by_matrices(format) {
            true => warps.partition_d(&buffer)?,
            false => warps.partition_s(&buffer)?,
        };
        // (ROWS, COLUMNS) -> (VAL, 1, MATRICES), per thread
        let matrices = parts.tensor(thread.builder().constant(0), &[Some(thread)])?;
        let of_lane = matrices.at(0)? * format.bytes();
        Ok(Self { format, matrices: matrices.layout, of_lane })
    }

    /// Shared address of what the thread writes at these coordinates of `matrices`. A swizzle is linear over
    /// exclusive or, so a constant column is added with one operation.
    fn address(&self, buffer: Value<'f, u32>, [value, column]: [i64; 2]) -> Value<'f, u32> {
        let Self { format, matrices, of_lane } = self;
        let place = element_offset(matrices.at_modes(&[value, 0, column]));
        let place = place * format.bytes();
        if matrices.swizzle.bits == 0 {
            return *of_lane + buffer + place;
        }
        (*of_lane ^ of_lane.builder().constant(place)) + buffer
    }

    /// Stores the packed pairs of the thread's two rows into the buffer at a shared address.
    #[track_caller]
    pub fn fill(&self, f: &'f Builder, buffer: Value<'f, u32>, [upper, lower]: [&[Packed<'f>]; 2]) {
        for (column, (upper, lower)) in (0i64..).zip(upper.chunks(2).zip(lower.chunks(2))) {
            if !by_matrices(self.format) {
                for (index, pairs) in (0i64..).zip(upper.iter().zip(lower)) {
                    for (row, &pair) in (0i64..).zip([pairs.0, pairs.1]) {
                        pair.store_shared(self.address(buffer, [4 * index + 2 * row, column]));
                    }
                }
                continue;
            }
            let words = |pairs: &[Packed<'f>]| pairs.iter().filter_map(|pair| pair.word()).collect();
            let (upper, lower): (Vec<_>, Vec<_>) = (words(upper), words(lower));
            match (&upper[..], &lower[..]) {
                ([a, c], [b, d]) => {
                    f.store_matrix(self.address(buffer, [0, column]), [*a, *b, *c, *d], false);
                }
                ([a], [b]) => f.store_matrix(self.address(buffer, [0, column]), [*a, *b], false),
                _ => {}
            }
        }
    }

    /// The inverse of [`fill`](Self::fill): loads `pairs` pairs of each of the thread's two rows.
    pub(super) fn drain(
        &self,
        f: &'f Builder,
        buffer: Value<'f, u32>,
        pairs: usize,
    ) -> [Vec<[Value<'f, f32>; 2]>; 2] {
        let format = self.format;
        let [mut upper, mut lower] = [Vec::new(), Vec::new()];
        for (column, first) in (0i64..).zip((0..pairs).step_by(2)) {
            let count = (pairs - first).min(2);
            if by_matrices(format) {
                let wide = |word| format.of_word(f, word).map(|pair| pair.map(|value| format.widen(value)));
                let address = self.address(buffer, [0, column]);
                let words = match count {
                    2 => f.load_matrix::<4>(address, false).to_vec(),
                    _ => f.load_matrix::<2>(address, false).to_vec(),
                };
                for both in words.chunks_exact(2) {
                    upper.extend(wide(both[0]));
                    lower.extend(wide(both[1]));
                }
                continue;
            }
            for index in (0i64..).take(count) {
                for (row, values) in (0i64..).zip([&mut upper, &mut lower]) {
                    let at = self.address(buffer, [4 * index + 2 * row, column]);
                    values.push(format.load_shared_pair(f, at).map(|value| format.widen(value)));
                }
            }
        }
        [upper, lower]
    }
}
