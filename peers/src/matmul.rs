//! What a peer multiplies, in this library's terms and in its own.

use cute_rs::atom::Major;
use kernel::{GemmProblem, Types};

/// One GEMM: `D (M, N) = A (M, K) * B (K, N)`, with D row-major and all matrices packed.
///
/// Floats are accumulated in `f32`, integers in `s32`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Matmul {
    /// Extents M, N and K.
    pub size: GemmProblem,
    /// Element types, which operands have block scales, and which operand is 2:4 sparse along K.
    pub types: Types,
    /// The contiguous direction of A.
    pub a: Major,
    /// The contiguous direction of B.
    pub b: Major,
    /// Device addresses of the packed block scales of A and of B, if `types` has them. The leading dimension
    /// of scales of 128 rows is a multiple of 4, as in [`BlockScales`](collective::BlockScales).
    pub scales: [u64; 2],
    /// For 8-bit floats without block scales: accumulate as fast as the library can (`true`), or with more
    /// digits.
    pub fast: bool,
}

/// A matrix as a library sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stored {
    pub(crate) rows: u32,
    pub(crate) columns: u32,
    pub(crate) transposed: bool,
}

impl Matmul {
    /// A GEMM of K-major operands without scales, with fast accumulation.
    pub fn new(types: impl Into<Types>, size: GemmProblem) -> Self {
        Self { size, types: types.into(), a: Major::K, b: Major::K, scales: [0; 2], fast: true }
    }

    /// The operands of the GEMM that a library of column-major matrices computes, `rows` elements contiguous.
    ///
    /// A row-major D is the column-major `D^T = B^T * A^T`, so B comes first.
    pub(crate) fn column_major(&self) -> [Stored; 2] {
        let GemmProblem { m, n, k } = self.size;
        // A K-major operand is stored as a column-major `(K, M or N)`. This is the transpose of `B^T (N, K)`,
        // and `A^T (K, M)` itself.
        let stored = |major, mn, transposed_if| match major {
            Major::K => Stored { rows: k, columns: mn, transposed: transposed_if == Major::K },
            Major::Mn => Stored { rows: mn, columns: k, transposed: transposed_if == Major::Mn },
        };
        [stored(self.b, n, Major::K), stored(self.a, m, Major::Mn)]
    }

    /// A and B for a library of row-major matrices, `columns` elements contiguous. An operand that is K-major is A
    /// itself, and the transpose of B.
    pub(crate) fn row_major(&self) -> [Stored; 2] {
        let [b, a] = self.column_major();
        let turned = |stored: Stored| Stored {
            rows: stored.columns,
            columns: stored.rows,
            transposed: stored.transposed,
        };
        [turned(a), turned(b)]
    }
}

#[cfg(test)]
mod tests {
    use collective::Format;

    use super::*;

    const SIZE: GemmProblem = GemmProblem { m: 3, n: 5, k: 7 };

    /// Directions of A and B, and the operands as `(rows, columns, transposed)` for either kind of library.
    type Row = (&'static str, [Major; 2], [(u32, u32, bool); 2], [(u32, u32, bool); 2]);

    #[test]
    fn operands_are_stored_as_libraries_read_them() {
        let rows: [Row; 4] = [
            (
                "both along K: T N, the usual case",
                [Major::K, Major::K],
                [(7, 5, true), (7, 3, false)],
                [(3, 7, false), (5, 7, true)],
            ),
            (
                "A along M, B along N",
                [Major::Mn, Major::Mn],
                [(5, 7, false), (3, 7, true)],
                [(7, 3, true), (7, 5, false)],
            ),
            (
                "A along K, B along N: plain row-major",
                [Major::K, Major::Mn],
                [(5, 7, false), (7, 3, false)],
                [(3, 7, false), (7, 5, false)],
            ),
            (
                "A along M, B along K",
                [Major::Mn, Major::K],
                [(7, 5, true), (3, 7, true)],
                [(7, 3, true), (5, 7, true)],
            ),
        ];
        for (why, [a, b], column_major, row_major) in rows {
            let matmul = Matmul { a, b, ..Matmul::new(Format::Bf16, SIZE) };
            let told = |stored: Stored| (stored.rows, stored.columns, stored.transposed);
            assert_eq!(matmul.column_major().map(told), column_major, "{why}");
            assert_eq!(matmul.row_major().map(told), row_major, "{why}");
            // What is multiplied: (N, K) by (K, M), or (M, K) by (K, N).
            let shape = |s: Stored| if s.transposed { (s.columns, s.rows) } else { (s.rows, s.columns) };
            assert_eq!(matmul.column_major().map(shape), [(5, 7), (7, 3)], "{why}");
            assert_eq!(matmul.row_major().map(shape), [(3, 7), (7, 5)], "{why}");
        }
    }
}
