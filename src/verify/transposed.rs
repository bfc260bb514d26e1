//! Operands in a direction that a kernel does not read: transposes them on the engine before the kernel runs.
//!
//! ```
//! use falchion::kernel::KernelSpec;
//! use falchion::verify::matrix::Distribution;
//! use falchion::verify::transposed::turned;
//! use falchion::verify::{Format, HostMatrix, Order};
//!
//! // Kernels read 8-bit operands only K-major.
//! let gemm = "dtype=e4m3 tile=64x32x128 consumers=1".parse::<KernelSpec>()?.kernel()?;
//! let mut random = fastrand::Rng::new();
//! let mut fill = |order| HostMatrix::random(Format::E4m3, [64, 64], order, 1, Distribution::Normal, &mut random);
//! let [rows, columns] = [fill(Order::RowMajor), fill(Order::ColumnMajor)];
//! assert_eq!(turned(&gemm, [&rows, &columns]), [false, false]);
//! assert_eq!(turned(&gemm, [&columns, &columns]), [true, false]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::time::Duration;

use kernel::{AnyGemm, Kernel, MatrixRef, Transpose, Transposition};

use super::product::{RunError, of_kernels, orders};
use super::session::{Session, Upload};
use super::{HostMatrix, Order};

/// Whether A, and B, must be transposed for a kernel. Never for operands in few bits and sparse operands:
/// these are uploaded in the kernel's direction.
pub fn turned(entry: &AnyGemm, operands: [&HostMatrix; 2]) -> [bool; 2] {
    let (orders, of) = (orders(entry), entry.plan().call_operands());
    [0, 1].map(|i| operands[i].order != orders[i] && of[i].weights.is_none() && !of[i].sparse)
}

/// The transpose of an operand, its call without the destination address, and the bytes of the destination.
///
/// # Errors
/// [`RunError::Direction`] for elements that [`Transpose`] does not take.
pub fn transposition(
    matrix: &HostMatrix,
    a: MatrixRef,
) -> Result<(Transpose, Transposition, usize), RunError> {
    let format = of_kernels(matrix.format);
    let transpose = Transpose::of(format).ok_or(RunError::Direction { format })?;
    let [rows, columns] = match matrix.order {
        Order::RowMajor => [matrix.rows, matrix.columns],
        Order::ColumnMajor => [matrix.columns, matrix.rows],
    };
    let bytes = transpose.bytes() as usize;
    let ld = (rows as usize).next_multiple_of(16 / bytes);
    let d = MatrixRef::new(0, ld as u64);
    Ok((transpose, Transposition { rows, columns, count: 1, a, d }, columns as usize * ld * bytes))
}

/// Transposes an operand in device memory. Returns the place of the transpose, and the device time.
pub(super) fn transpose(
    session: &mut Session<'_>,
    matrix: &HostMatrix,
    place: MatrixRef,
) -> Result<(MatrixRef, Duration), RunError> {
    let (transpose, mut what, bytes) = transposition(matrix, place)?;
    // Poison the destination, so that an unwritten element makes the result wrong.
    let poison = vec![matrix.format.poison(); bytes / transpose.bytes() as usize];
    what.d.address = session.upload(&matrix.format.memory(&poison))?;
    let time = transpose.run(session.engine, &what)?.unwrap_or_default();
    Ok((what.d, time))
}
