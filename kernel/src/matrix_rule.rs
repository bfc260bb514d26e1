//! What one matrix of a call must satisfy.

use collective::operands::Extents;
use collective::{Batch, LinearArguments, MatrixRef};

use crate::error::LaunchError;

/// What a matrix must satisfy. A [`Kernel`](crate::Kernel) of your own checks its calls with it.
#[derive(Clone, Copy, Debug)]
pub struct MatrixRule {
    /// The matrix's name in errors.
    pub name: &'static str,
    /// Number of contiguous elements per row (or column).
    pub contiguous: u32,
    /// Number of such rows or columns.
    pub lines: u32,
    /// Bits per element.
    pub bits: u64,
    /// The matrix's address, its leading dimension and its stride must be multiples of this number of bytes.
    pub alignment: u64,
}

impl MatrixRule {
    /// Checks a matrix.
    ///
    /// # Errors
    /// [`LaunchError::Null`], [`LaunchError::Address`], [`LaunchError::ShortLd`], [`LaunchError::Pitch`] (also
    /// 2^40 B or more) or [`LaunchError::End`].
    pub fn check(&self, matrix: MatrixRef) -> Result<(), LaunchError> {
        let Self { name, contiguous, lines, bits, alignment } = *self;
        self.begins(matrix.address)?;
        if matrix.ld < u64::from(contiguous) {
            return Err(LaunchError::ShortLd { name, ld: matrix.ld, needed: contiguous });
        }
        let pitch_bytes = u128::from(matrix.ld) * u128::from(bits) / 8;
        if !pitch_bytes.is_multiple_of(alignment.into()) || pitch_bytes >= 1 << 40 {
            return Err(LaunchError::Pitch { name, bytes: pitch_bytes, alignment });
        }
        let last = u128::from(lines.saturating_sub(1)) * pitch_bytes;
        within(name, matrix.address, last + u128::from(contiguous) * u128::from(bits) / 8)
    }

    /// Checks an address.
    pub(crate) fn begins(&self, address: u64) -> Result<(), LaunchError> {
        let Self { name, alignment, .. } = *self;
        match address {
            0 => Err(LaunchError::Null { name }),
            _ if !address.is_multiple_of(alignment) => Err(LaunchError::Address { name, address, alignment }),
            _ => Ok(()),
        }
    }

    /// Checks the distance between `count` matrices, of which this is the first.
    ///
    /// # Errors
    /// [`LaunchError::Distance`] or [`LaunchError::End`].
    pub fn batch(
        &self,
        count: u32,
        MatrixRef { address, stride, .. }: MatrixRef,
    ) -> Result<Batch, LaunchError> {
        let Self { name, bits, alignment, .. } = *self;
        if count <= 1 {
            return Ok(Batch { count, stride: 0 });
        }
        let bytes = u128::from(stride) * u128::from(bits) / 8;
        if !bytes.is_multiple_of(alignment.into()) || bytes >= 1 << 40 {
            return Err(LaunchError::Distance { name, bytes, alignment });
        }
        within(name, address, u128::from(count - 1) * bytes + u128::from(bits / 8))?;
        Ok(Batch { count, stride })
    }

    /// The rule of matrices of these extents.
    pub(crate) fn of(name: &'static str, extents: &Extents, alignment: u64) -> Self {
        let Extents { bits, length, lines, .. } = *extents;
        let contiguous = u32::try_from(length).unwrap_or(u32::MAX);
        Self { name, contiguous, lines, bits: bits.into(), alignment }
    }
}

/// Checks C.
pub(crate) fn check_c(arguments: &LinearArguments, c_bits: u32, [m, n]: [u32; 2]) -> Result<(), LaunchError> {
    match arguments.c {
        _ if arguments.beta == 0.0 => Ok(()),
        None => Err(LaunchError::MissingC { beta: arguments.beta }),
        Some(_) if m == 0 || n == 0 => Ok(()),
        Some(c) => {
            let (bits, alignment) = (c_bits.into(), u64::from(c_bits / 8));
            MatrixRule { name: "C", contiguous: n, lines: m, bits, alignment }.check(c)
        }
    }
}

/// Checks that an address plus a number of bytes does not pass the end of the address space.
pub(crate) fn within(name: &'static str, address: u64, bytes: u128) -> Result<(), LaunchError> {
    if u128::from(address) + bytes > 1 << 64 {
        return Err(LaunchError::End { name, address, bytes });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
