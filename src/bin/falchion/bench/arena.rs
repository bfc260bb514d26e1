//! What can be measured at all.

use collective::BlockScales;
use kernel::driver::cublaslt::Product;
use kernel::driver::tune::Inputs;
use kernel::{Call, GemmProblem, Gpu, Request, Types};

use cute_rs::atom::Major;

use crate::{Failure, memory};

/// Bytes of inputs beside those of one set: sets are several only where they are small.
const ROTATION_BYTES: u128 = 200_000_000;

/// Fails for a shape whose matrices cannot be numbered, or held on this machine.
pub(super) fn possible(shape: GemmProblem) -> Result<(), Failure> {
    several(shape, 1)
}

/// The same for so many products of a shape.
pub(super) fn several(shape: GemmProblem, count: u32) -> Result<(), Failure> {
    let GemmProblem { m, n, k } = shape;
    for (name, extent) in [("M", m), ("N", n), ("K", k)] {
        if extent > i32::MAX as u32 {
            return Err(Failure::usage(format!(
                "{name} is {extent} in {m} x {n} x {k}, at most {} is possible",
                i32::MAX
            )));
        }
    }
    // No element is larger than 4 B.
    let ([m, n, k], count) = ([m, n, k].map(u128::from), u128::from(count));
    let all = ROTATION_BYTES + 4 * count * (m * k + n * k + m * n);
    memory::enough(&format!("{m} x {n} x {k}"), all, "M, N or K")
}

/// Memory for the peer's product, where it multiplies other matrices than ours: 16 bits where ours lie in few, and every element where
/// ours are sparse.
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

/// The peer's product of the same matrices, of 16 bits where ours lie in few.
pub(super) fn product(
    types: Types,
    [a, b]: [Major; 2],
    size: GemmProblem,
    set: Option<&Call<()>>,
) -> Product {
    let scales = set.and_then(|set| set.scales).unwrap_or(BlockScales::NONE);
    Product { a, b, scales: [scales.a.address, scales.b.address], ..Product::new(types.dense(), size) }
}
