//! What is multiplied, in our terms and in cuSPARSELt's.

use core::ffi::c_int;

use cute_rs::atom::Major;

use super::symbols::number;
use crate::problem::GemmProblem;
use crate::types::Types;

/// `D (M, N) = A (M, K) * B (K, N)` with D row-major, all matrices packed, and A or B 2:4 sparse along K.
///
/// Floats are summed in `f32`, integers in `s32`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Product {
    /// Extents.
    pub size: GemmProblem,
    /// Elements, and which operand is sparse.
    pub types: Types,
    /// The directions in which A and B are contiguous.
    pub majors: [Major; 2],
}

/// A matrix as cuSPARSELt sees it: row-major, `columns` contiguous.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stored {
    pub(super) rows: u32,
    pub(super) columns: u32,
    pub(super) transposed: bool,
}

impl Stored {
    /// The library's number of what is done to the matrix before it is multiplied.
    pub(super) const fn operation(self) -> c_int {
        if self.transposed { number::TRANSPOSED } else { number::AS_IT_IS }
    }
}

impl Product {
    /// A product of such types, both operands along K.
    pub fn new(types: Types, size: GemmProblem) -> Self {
        Self { size, types, majors: [Major::K; 2] }
    }

    /// Whether the sparse operand is B.
    pub(super) const fn of_b(&self) -> bool {
        self.types.sparse[1]
    }

    /// A and B.
    ///
    /// The library takes row-major matrices, so that D is its D. An operand that lies along K is A as it is, and the transpose of B.
    pub(super) fn operands(&self) -> [Stored; 2] {
        let GemmProblem { m, n, k } = self.size;
        let stored = |major, mn, along_k: [bool; 2]| match major {
            Major::K => Stored { rows: mn, columns: k, transposed: along_k[0] },
            Major::Mn => Stored { rows: k, columns: mn, transposed: along_k[1] },
        };
        [stored(self.majors[0], m, [false, true]), stored(self.majors[1], n, [true, false])]
    }
}

#[cfg(test)]
mod tests {
    use collective::Format;

    use super::*;

    #[test]
    fn operands_are_row_major() {
        let size = GemmProblem { m: 3, n: 5, k: 7 };
        let product = Product::new(Types::of(Format::Bf16).sparse([true, false]), size);
        for (why, majors, want) in [
            ("both along K: N T", [Major::K, Major::K], [(3, 7, false), (5, 7, true)]),
            ("A along M, B along N", [Major::Mn, Major::Mn], [(7, 3, true), (7, 5, false)]),
            ("A along K, B along N: plain row-major", [Major::K, Major::Mn], [(3, 7, false), (7, 5, false)]),
            ("A along M, B along K", [Major::Mn, Major::K], [(7, 3, true), (5, 7, true)]),
        ] {
            let operands = Product { majors, ..product }.operands();
            let want = want.map(|(rows, columns, transposed)| Stored { rows, columns, transposed });
            assert_eq!(operands, want, "{why}");
            // The first operand comes out as (M, K), the second as (K, N).
            let shape = |s: Stored| if s.transposed { (s.columns, s.rows) } else { (s.rows, s.columns) };
            assert_eq!(operands.map(shape), [(3, 7), (7, 5)], "{why}");
        }
    }
}
