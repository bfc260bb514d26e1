//! Block scales of 8-bit operands, as callers pass them.

use ptx::Builder;
use ptx::abi::TensorElement;

use super::{MainloopSite, WorkUnit};
use crate::operand::{Matrix, MatrixRef};
use crate::operands::Visit;
use crate::plan::{FETCHED_SCALES, Plan, SCALED_K, scaled_blocks, scales_of_rows};
use crate::stage::{AnyTile, BoxTile, OperandMap};
use crate::tensor_map::{self, Companion, Dimension};

/// The addresses of a GEMM's block scales, in `f32`. The result is the sum of `scale(A) * scale(B) * A * B`.
///
/// Addresses, leading dimensions and strides are multiples of 16 bytes. Shapes and layouts depend on the
/// operand's type; they are those of cuBLASLt's `VEC128` and `BLK128x128`:
///
/// * [`BlockScaled<_, U1>`](crate::BlockScaled): each row has one scale per 128 of K. Scales of A are `(M,
///   ceil(K / 128))`, of B `(N, ceil(K / 128))`, with M or N contiguous. The leading dimension is the
///   distance from one block of K to the next.
/// * `BlockScaled<_, U128>`: 128 rows share a scale. Scales of A are `(ceil(M / 128), ceil(K / 128))`, of B
///   the same with N, with K contiguous. The leading dimension is the distance from one block of 128 rows to
///   the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockScales {
    /// A's scales. `stride` is the distance from one GEMM of a batch to the next, in scales.
    pub a: MatrixRef,
    /// B's scales, as A's.
    pub b: MatrixRef,
}

impl BlockScales {
    /// No scales.
    pub const NONE: Self = Self { a: MatrixRef::NONE, b: MatrixRef::NONE };

    /// Extents of the scales of an operand `(mn, k)` in which `rows` rows share a scale. The contiguous
    /// extent is last.
    pub const fn extents(mn: u32, k: u32, rows: u32) -> [u32; 2] {
        let blocks = k.div_ceil(SCALED_K);
        if rows == 1 { [blocks, mn] } else { [mn.div_ceil(rows), blocks] }
    }

    /// Extents of packed scales of A and of B for a GEMM `[m, n, k]`; `a_rows` and `b_rows` rows share a
    /// scale. The contiguous extent is last, rounded up to a multiple of 16 bytes.
    pub const fn packed_extents([m, n, k]: [u32; 3], [a_rows, b_rows]: [u32; 2]) -> [[u64; 2]; 2] {
        let [a, a_inner] = Self::extents(m, k, if a_rows == 0 { 1 } else { a_rows });
        let [b, b_inner] = Self::extents(n, k, if b_rows == 0 { 1 } else { b_rows });
        let fetched = FETCHED_SCALES as u64;
        [
            [a as u64, (a_inner as u64).next_multiple_of(fetched)],
            [b as u64, (b_inner as u64).next_multiple_of(fetched)],
        ]
    }

    /// Packed scales with these extents, at these addresses.
    pub fn packed([a, b]: [u64; 2], [[_, a_ld], [_, b_ld]]: [[u64; 2]; 2]) -> Self {
        Self { a: MatrixRef::new(a, a_ld), b: MatrixRef::new(b, b_ld) }
    }

    /// The scales of A and those of B, each with the name of its memory.
    pub const fn named(&mut self) -> [(&'static str, &mut MatrixRef); 2] {
        let Self { a, b } = self;
        [(SCALES[0], a), (SCALES[1], b)]
    }

    /// Checks the scales of the kernel's operands A and B.
    ///
    /// # Errors
    /// A sentence: which operand's scales, the value found, and what is allowed.
    pub fn check(&self, plan: &Plan, operands: [Matrix; 2]) -> Result<(), String> {
        [0, 1].iter().try_for_each(|&i| self.companion(plan, operands[i], i).check())
    }

    /// The scales of operand A (0) or B (1).
    fn companion(&self, plan: &Plan, operand: Matrix, i: usize) -> Companion<2> {
        let (rows, tile) = (plan.mainloop.operands[i].scaled, plan.mainloop.tile[i]);
        let (name, given) = named(plan, *self, i);
        let [outer, inner] = Self::extents(operand.mn, operand.k, rows);
        let row = [scales_of_rows(tile, plan.begins_anywhere()[i]), 1];
        let [columns, lines] = if rows == 1 { row } else { [FETCHED_SCALES, scaled_blocks(tile)] };
        Companion {
            name,
            element: TensorElement::F32,
            given,
            operand,
            batched: plan.operand_batches()[i],
            dimensions: [
                Dimension::contiguous(inner, columns),
                Dimension { extent: outer, stride: given.ld, copied: lines },
            ],
        }
    }
}

/// The names of the memory, of the caller's A and B.
pub const SCALES: [&str; 2] = ["A's scales", "B's scales"];

/// The scales of the kernel's A (0) or B (1), and the name of their memory.
fn named(plan: &Plan, mut scales: BlockScales, i: usize) -> (&'static str, MatrixRef) {
    plan.oriented(scales.named().map(|(name, scales)| (name, *scales)))[i]
}

/// The names of the kernel parameters.
const NAMES: [[&str; 2]; 2] = [["a_scales_map", "a_scales_step"], ["b_scales_map", "b_scales_step"]];

/// States the kernel parameters, if the operands have block scales.
pub(crate) fn state(of: &MainloopSite<'_>, visit: &mut dyn Visit) {
    let plan = of.plan;
    for (i, names) in NAMES.into_iter().enumerate().filter(|_| plan.mainloop.is_scaled()) {
        let value = of.operands.map(|of| of.scales.companion(plan, of.matrices[i], i).map());
        let (name, _) = named(plan, BlockScales::NONE, i);
        tensor_map::state(names, name, (plan.operand_batches()[i], value), visit);
    }
}

/// The tiles of a stage: A's scales and B's, if the operands have block scales.
pub(crate) fn tiles<'f>(f: &'f Builder, plan: &Plan) -> Vec<AnyTile<'f>> {
    let tile = |(i, names): (usize, _)| {
        let (rows, anywhere) = (plan.mainloop.operands[i].scaled, plan.begins_anywhere()[i]);
        // (BLK_MN, 1, PIPE), or (4, BLK_MN / 128, PIPE)
        let map = OperandMap::of(f, names, plan.operand_batches()[i]);
        BoxTile::of(map, plan.ring.place(2 + i), move |unit: WorkUnit<'f>, k_tile| {
            let first = [unit.m, unit.n][i];
            match rows {
                // A copy begins at a multiple of 16 bytes.
                1 if anywhere => vec![first / FETCHED_SCALES * FETCHED_SCALES, k_tile],
                1 => vec![first, k_tile],
                rows => vec![k_tile / FETCHED_SCALES * FETCHED_SCALES, first / rows],
            }
        })
    };
    let scaled = plan.mainloop.is_scaled();
    NAMES.into_iter().enumerate().filter(|_| scaled).map(tile).collect()
}
