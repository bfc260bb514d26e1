//! Block scales of an operand on the host.
//!
//! ```
//! use reference::Scales;
//!
//! assert_eq!(Scales::extents([300, 512], 1), [300, 4]); // blocks of 1 x 128
//! assert_eq!(Scales::extents([300, 512], 128), [3, 4]); // blocks of 128 x 128
//! ```

use crate::{DotProduct, Format, HostMatrix, Order};

/// K of a block.
const BLOCK: u32 = 128;

/// The block scales of an operand: one `f32` per block of `rows` rows of A (or columns of B) by 128 of K.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scales {
    /// The number of rows of A (or columns of B) per block: 1 or 128.
    pub rows: u32,
    /// The scales: one row per block along M (or N), one column per block along K. Column-major if `rows` is
    /// 1, row-major if it is 128.
    pub values: HostMatrix,
}

impl Scales {
    /// The number of blocks along M (or N) and along K, for an operand `(mn, k)` and blocks of `rows` rows.
    pub fn extents([mn, k]: [u32; 2], rows: u32) -> [u32; 2] {
        [mn.div_ceil(rows), k.div_ceil(BLOCK)]
    }

    /// The contiguous direction of the scales in memory.
    pub fn order(rows: u32) -> Order {
        if rows == 1 { Order::ColumnMajor } else { Order::RowMajor }
    }

    /// Random scales between 1/16 and 16 for an operand `(mn, k)`. The leading dimension is a multiple of 4
    /// elements.
    pub fn random(extents: [u32; 2], rows: u32, random: &mut fastrand::Rng) -> Self {
        let [lines, blocks] = Self::extents(extents, rows);
        let order = Self::order(rows);
        let ld = if order == Order::RowMajor { blocks } else { lines }.next_multiple_of(4).max(4);
        let value = |_, _| (random.f64() * 8.0 - 4.0).exp2();
        Self { rows, values: HostMatrix::from_fn(Format::F32, [lines, blocks], order, ld, value) }
    }

    /// The scale of a row of the operand in a block along K.
    pub(crate) fn get(&self, row: u32, block: u32) -> f64 {
        self.values.get(row / self.rows, block)
    }

    /// The scales of `length` elements along K from element `first` on, which begins a block.
    #[must_use]
    pub fn along_k(&self, [first, length]: [u32; 2]) -> Self {
        let (first, count) = (first / BLOCK, length.div_ceil(BLOCK));
        let HostMatrix { format, rows: lines, order, .. } = self.values;
        let ld = if order == Order::RowMajor { count } else { lines }.next_multiple_of(4).max(4);
        let value = |line, block| self.values.get(line, first + block);
        Self { rows: self.rows, values: HostMatrix::from_fn(format, [lines, count], order, ld, value) }
    }

    /// The scales of `rows` rows of the operand from `first` on, with one scale per row.
    #[must_use]
    pub fn part(&self, first: u32, rows: u32) -> Self {
        let HostMatrix { columns, order, .. } = self.values;
        let value = |row, block| self.get(first + row, block);
        let ld = rows.next_multiple_of(4).max(4);
        Self { rows: 1, values: HostMatrix::from_fn(Format::F32, [rows, columns], order, ld, value) }
    }
}

/// The product of a row of A and a column of B with block scales. `scales` gives the scale of a block along
/// K, A's times B's. `block` gives the sum of one block without scales.
///
/// The sum of a block has the error that it has without scales. The product of two scales rounds once, and
/// each addition of a scaled block rounds once more.
pub(crate) fn sum(
    [a, b]: [&[f64]; 2],
    scales: impl Fn(u32) -> f64,
    block: impl Fn(&[f64], &[f64]) -> DotProduct,
) -> DotProduct {
    let blocks = (0..).zip(a.chunks(BLOCK as usize).zip(b.chunks(BLOCK as usize)));
    let mut all = DotProduct::single(0, 0.0, 0.0);
    for (index, (a, b)) in blocks {
        let (scale, sum) = (scales(index), block(a, b));
        all.value += scale * sum.value;
        all.magnitude += scale.abs() * sum.magnitude;
        all.error += scale.abs() * sum.error;
    }
    let count = (a.len() as u32).div_ceil(BLOCK);
    all.error += DotProduct::single(count, 0.0, all.magnitude + all.error).error;
    all
}
