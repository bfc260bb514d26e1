//! What cuBLASLt multiplies, in this library's terms and in its own.

use cute_rs::atom::Major;

use crate::problem::GemmProblem;
use crate::types::Types;

/// One GEMM for cuBLASLt: `D (M, N) = A (M, K) * B (K, N)`, with D row-major and all matrices packed.
///
/// Floats are accumulated in `f32`, integers in `s32`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Product {
    /// Extents M, N and K.
    pub size: GemmProblem,
    /// Element types, and which operands have block scales.
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

/// An activation function, applied to the fused result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Activation {
    /// No activation: `x`.
    Identity,
    /// `max(x, 0)`.
    Relu,
    /// GELU, approximated by tanh.
    Gelu,
}

/// One of cuBLASLt's own fused epilogues.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fused {
    /// `D = activation(A * B + beta * C + bias)`.
    Bias {
        /// The activation.
        activation: Activation,
        /// Device address of the bias: N elements of D's type.
        bias: u64,
        /// The factor of C; see [`Run::with_c`](super::Run::with_c).
        beta: f32,
    },
    /// `D = rows * A * B * columns` for 8-bit floats: one scale per row of A and per column of B.
    Scaled {
        /// Device address of M scales in `f32`.
        rows: u64,
        /// Device address of N scales in `f32`.
        columns: u64,
    },
}

/// A matrix as cuBLASLt sees it: column-major, `rows` elements contiguous.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stored {
    pub(super) rows: u32,
    pub(super) columns: u32,
    pub(super) transposed: bool,
}

impl Product {
    /// A GEMM of K-major operands without scales, with fast accumulation.
    pub fn new(types: impl Into<Types>, size: GemmProblem) -> Self {
        Self { size, types: types.into(), a: Major::K, b: Major::K, scales: [0; 2], fast: true }
    }

    /// The operands of the GEMM that cuBLASLt computes.
    ///
    /// Its matrices are column-major. A row-major D is the column-major `D^T = B^T * A^T`, so B comes first.
    pub(super) fn operands(&self) -> [Stored; 2] {
        let GemmProblem { m, n, k } = self.size;
        // A K-major operand is stored as a column-major `(K, M or N)`. This is the transpose of `B^T (N, K)`,
        // and `A^T (K, M)` itself.
        let stored = |major, mn, transposed_if| match major {
            Major::K => Stored { rows: k, columns: mn, transposed: transposed_if == Major::K },
            Major::Mn => Stored { rows: mn, columns: k, transposed: transposed_if == Major::Mn },
        };
        [stored(self.b, n, Major::K), stored(self.a, m, Major::Mn)]
    }
}

#[cfg(test)]
mod tests {
    use collective::Format;
    use cute_rs::atom::Major;

    use super::{Product, Stored};
    use crate::problem::GemmProblem;

    #[test]
    fn the_product_is_computed_transposed() {
        let size = GemmProblem { m: 3, n: 5, k: 7 };
        for (why, a, b, want) in [
            ("both along K: T N, the usual case", Major::K, Major::K, [(7, 5, true), (7, 3, false)]),
            ("A along M, B along N", Major::Mn, Major::Mn, [(5, 7, false), (3, 7, true)]),
            ("A along K, B along N: plain row-major", Major::K, Major::Mn, [(5, 7, false), (7, 3, false)]),
            ("A along M, B along K", Major::Mn, Major::K, [(7, 5, true), (3, 7, true)]),
        ] {
            let operands = Product { a, b, ..Product::new(Format::Bf16, size) }.operands();
            let want = want.map(|(rows, columns, transposed)| Stored { rows, columns, transposed });
            assert_eq!(operands, want, "{why}");
            // The first operand is (N, K), the second (K, M).
            let shape = |s: Stored| if s.transposed { (s.columns, s.rows) } else { (s.rows, s.columns) };
            assert_eq!(operands.map(shape), [(5, 7), (7, 3)], "{why}");
        }
    }
}
