//! Block scales of 8-bit operands, as callers pass them.

use ptx::abi::{Argument, Promotion, TensorElement, TensorMap, TensorSwizzle};

use crate::operand::{Matrix, MatrixRef};
use crate::plan::{FETCHED_SCALES, Plan, SCALED_K, scaled_blocks, scales_of_rows};

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

/// Leading dimensions and strides must be less than this, in scales: tensor copies have strides below 2^40
/// bytes.
const MOST_PITCH: u64 = 1 << 38;

impl BlockScales {
    /// No scales.
    pub const NONE: Self = Self { a: MatrixRef::NONE, b: MatrixRef::NONE };

    /// The scales for a kernel that computes the transpose of D (swap-AB): A's and B's are swapped.
    #[must_use]
    pub fn transposed(self) -> Self {
        Self { a: self.b, b: self.a }
    }

    /// Extents of the scales of an operand `(mn, k)` in which `rows` rows share a scale. The contiguous
    /// extent is last.
    pub const fn extents(mn: u32, k: u32, rows: u32) -> [u32; 2] {
        let blocks = k.div_ceil(SCALED_K);
        if rows == 1 { [blocks, mn] } else { [mn.div_ceil(rows), blocks] }
    }

    /// Extents of packed scales of A and of B for a GEMM `[m, n, k]`; `a_rows` and `b_rows` rows share a
    /// scale. The contiguous extent is last, rounded up to a multiple of 16 bytes.
    pub const fn packed_extents([m, n, k]: [u32; 3], [a_rows, b_rows]: [u32; 2]) -> [[u32; 2]; 2] {
        let [a, a_inner] = Self::extents(m, k, if a_rows == 0 { 1 } else { a_rows });
        let [b, b_inner] = Self::extents(n, k, if b_rows == 0 { 1 } else { b_rows });
        [[a, a_inner.next_multiple_of(FETCHED_SCALES)], [b, b_inner.next_multiple_of(FETCHED_SCALES)]]
    }

    /// Packed scales with these extents, at these addresses.
    pub fn packed([a, b]: [u64; 2], [[_, a_pitch], [_, b_pitch]]: [[u32; 2]; 2]) -> Self {
        Self { a: MatrixRef::new(a, a_pitch.into()), b: MatrixRef::new(b, b_pitch.into()) }
    }

    /// The values of the kernel parameters that follow the operands' own, for the kernel's operands A and B.
    ///
    /// # Errors
    /// A sentence: which operand's scales, the value found, and what is allowed.
    pub fn arguments(&self, plan: &Plan, [a, b]: [Matrix; 2]) -> Result<Vec<Argument>, String> {
        let mut arguments = Vec::new();
        let names = if plan.swapped() { ["B", "A"] } else { ["A", "B"] };
        let batches = plan.operand_batches();
        for (i, (scales, matrix)) in [(self.a, a), (self.b, b)].into_iter().enumerate() {
            let (rows, tile) = (plan.mainloop.operands[i].scaled, plan.mainloop.tile[i]);
            check(names[i], scales, matrix, rows)?;
            let row_box = [scales_of_rows(tile, plan.begins_anywhere()[i]), 1];
            let box_dims = if rows == 1 { row_box } else { [FETCHED_SCALES, scaled_blocks(tile)] };
            arguments.push(map(scales, matrix, rows, (box_dims, batches[i])).into());
            if batches[i] {
                arguments.push(u32::from(scales.stride != 0).into());
            }
        }
        Ok(arguments)
    }
}

fn check(name: &str, scales: MatrixRef, matrix: Matrix, rows: u32) -> Result<(), String> {
    if matrix.k == 0 {
        return Ok(());
    }
    let MatrixRef { address, pitch, stride } = scales;
    let [_, contiguous] = BlockScales::extents(matrix.mn, matrix.k, rows);
    if address == 0 || !address.is_multiple_of(16) {
        return Err(format!("{name}'s scales are at {address:#x}, a multiple of 16 above 0 was needed"));
    }
    if pitch < contiguous.into() || pitch >= MOST_PITCH || !pitch.is_multiple_of(4) {
        return Err(format!(
            "the leading dimension of {name}'s scales is {pitch}, a multiple of 4 from {contiguous} on, below {MOST_PITCH}, was needed"
        ));
    }
    if !stride.is_multiple_of(4) || stride >= MOST_PITCH {
        return Err(format!(
            "the stride of {name}'s scales is {stride}, a multiple of 4 below {MOST_PITCH} was needed"
        ));
    }
    Ok(())
}

/// The tensor map of the scales, `rows` rows per scale, with a box for one tile.
fn map(scales: MatrixRef, matrix: Matrix, rows: u32, (box_dims, batched): ([u32; 2], bool)) -> TensorMap {
    let [outer, inner] = BlockScales::extents(matrix.mn, matrix.k, rows);
    // If K is 0, nothing is read; the leading dimension was not checked and may be anything.
    let pitch = if matrix.k == 0 { FETCHED_SCALES.into() } else { scales.pitch };
    let mut map = TensorMap {
        element: TensorElement::F32,
        address: scales.address,
        dims: vec![u64::from(inner).max(1), u64::from(outer).max(1)],
        strides: vec![pitch * 4],
        box_dims: box_dims.to_vec(),
        swizzle: TensorSwizzle::None,
        promotion: Promotion::B128,
    };
    if batched {
        let several = scales.stride != 0 && matrix.k > 0;
        map.dims.push(if several { matrix.batch.count.into() } else { 1 });
        map.strides.push(if several { scales.stride } else { pitch } * 4);
        map.box_dims.push(1);
    }
    map
}
