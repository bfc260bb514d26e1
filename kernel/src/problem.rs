//! The extents of one GEMM.

use core::fmt;
use core::str::FromStr;

use crate::error::LaunchError;
use crate::words::Sizes;

/// Extents of one GEMM, `D (M, N) = alpha * A (M, K) * B (K, N) + beta * C (M, N)`, in elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GemmProblem {
    /// Rows of A, C and D.
    pub m: u32,
    /// Columns of B, C and D.
    pub n: u32,
    /// Columns of A, rows of B.
    pub k: u32,
}

impl GemmProblem {
    /// Checks that the extents are small enough to number tiles and count bytes.
    pub(crate) fn limited(&self) -> Result<(), LaunchError> {
        let Self { m, n, k } = *self;
        let large = [("M", m), ("N", n), ("K", k)].into_iter().find(|&(_, extent)| extent >= EXTENT_LIMIT);
        match large {
            Some((name, extent)) => {
                Err(LaunchError::Extent { name, extent: extent.into(), limit: EXTENT_LIMIT })
            }
            None => Ok(()),
        }
    }

    /// The transposed problem: M and N swapped.
    #[must_use]
    pub fn transposed(self) -> Self {
        Self { m: self.n, n: self.m, k: self.k }
    }

    /// Number of floating-point operations: `2 * M * N * K`.
    pub fn operations(&self) -> f64 {
        2.0 * f64::from(self.m) * f64::from(self.n) * f64::from(self.k)
    }
}

/// For example `128x256x64`: M, N and K.
impl fmt::Display for GemmProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Sizes([self.m, self.n, self.k]).fmt(f)
    }
}

impl FromStr for GemmProblem {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Sizes([m, n, k]) = text.parse().map_err(|_| format!("`{text}` was found, MxNxK was needed"))?;
        Ok(Self { m, n, k })
    }
}

/// Every extent is below this limit, so that tile indices and byte offsets stay in range.
pub(crate) const EXTENT_LIMIT: u32 = 1 << 31;
