//! Checks that a shape can be measured, and allocates memory for cuBLASLt's matrices.

use collective::BlockScales;
use kernel::driver::tune::Inputs;
use kernel::{Call, GemmProblem, Gpu, Request, Types};
use peers::Matmul;

use cute_rs::atom::Major;

use crate::cli::{Failure, memory};

/// Bytes of inputs in addition to one set of matrices: there are several sets only if they are small.
const ROTATION_BYTES: u128 = 200_000_000;

/// Fails for a shape whose extents are too large, or whose matrices do not fit in this machine's memory.
pub(super) fn possible(shape: GemmProblem) -> Result<(), Failure> {
    several(shape, 1)
}

/// The same check for a batch of `count` GEMMs of a shape.
pub(super) fn several(shape: GemmProblem, count: u32) -> Result<(), Failure> {
    let GemmProblem { m, n, k } = shape;
    for (name, extent) in [("M", m), ("N", n), ("K", k)] {
        if extent > i32::MAX as u32 {
            refuse!("{name} is {extent} in {m} x {n} x {k}, at most {} is possible", i32::MAX);
        }
    }
    // An element has at most 4 B.
    let ([m, n, k], count) = ([m, n, k].map(u128::from), u128::from(count));
    let all = ROTATION_BYTES + 4 * count * (m * k + n * k + m * n);
    memory::enough(&format!("{m} x {n} x {k}"), all, "M, N or K")
}

/// Memory for the peer's GEMM if it needs other matrices than ours: 16-bit ones in place of weights in few
/// bits, and all elements in place of a sparse operand.
pub(super) fn dense(
    gpu: &mut Gpu,
    types: Types,
    majors: [Major; 2],
    size: GemmProblem,
) -> Result<Option<Inputs>, Failure> {
    let request = Request::packed(types.dense(), majors, size);
    let differ = types.dense() != types;
    Ok(if differ { Some(Inputs::pruned(gpu, &request, types.sparse)?) } else { None })
}

/// cuBLASLt's GEMM of the same matrices, with 16 bits in place of weights in few bits.
pub(super) fn product(types: Types, [a, b]: [Major; 2], size: GemmProblem, set: Option<&Call<()>>) -> Matmul {
    let scales = set.and_then(|set| set.scales).unwrap_or(BlockScales::NONE);
    Matmul { a, b, scales: [scales.a.address, scales.b.address], ..Matmul::new(types.dense(), size) }
}
