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

use kernel::{AnyGemm, Engine, Kernel, MatrixRef, Transpose, Transposition};

use super::product::{RunError, of_kernels, orders};
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

/// Transposes an operand on an engine. Returns the same matrix in the other order, and the device time.
pub(super) fn transposed(
    engine: &mut dyn Engine,
    matrix: &HostMatrix,
) -> Result<(HostMatrix, Duration), RunError> {
    let place = engine.upload(&matrix.bytes())?;
    let (transpose, mut what, bytes) =
        transposition(matrix, MatrixRef::new(place.address, matrix.ld.into()))?;
    // An unwritten element is poison.
    let poison = vec![matrix.format.poison(); bytes / transpose.bytes() as usize];
    let there = engine.upload(&matrix.format.memory(&poison))?;
    what.d.address = there.address;
    let time = transpose.run(engine, &what);
    let bits = engine.read(there).map(|bytes| matrix.format.elements(&bytes));
    [place, there].into_iter().try_for_each(|buffer| engine.free(buffer))?;
    let time = time?.unwrap_or_default();
    let order = if matrix.order == Order::RowMajor { Order::ColumnMajor } else { Order::RowMajor };
    let ld = u32::try_from(what.d.ld).unwrap_or(u32::MAX);
    let turned = HostMatrix { order, ld, bits: bits?, ..*matrix };
    let places = (0..matrix.rows).flat_map(|row| (0..matrix.columns).map(move |column| (row, column)));
    let bits = |of: &HostMatrix, row, column| of.bits[of.index(row, column)];
    match { places }.find(|&(row, column)| bits(&turned, row, column) != bits(matrix, row, column)) {
        Some((row, column)) => Err(RunError::Transposed { row, column }),
        None => Ok((turned, time)),
    }
}
