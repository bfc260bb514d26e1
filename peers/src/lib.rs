//! NVIDIA's libraries that Falchion's kernels are compared with: [`cublaslt`] and [`cusparselt`], on the same
//! stream and timed by the same events, and a card's clock and power while something runs ([`Monitor`]).
//!
//! Each library is loaded at run time, when it is first asked for. A missing one is
//! [`EngineError::NoLibrary`].

#![warn(clippy::undocumented_unsafe_blocks, clippy::missing_safety_doc)]

pub mod cublaslt;
pub mod cusparselt;
mod data_type;
mod library;
mod matmul;
mod monitor;

use kernel::EngineError;
use kernel::driver::{DeviceMemory, Memories};

pub use matmul::Matmul;
pub use monitor::{Monitor, Readings};

/// The GPU's buffer that contains a packed matrix with elements of `bytes` bytes.
fn buffer(
    memories: &Memories,
    address: u64,
    [rows, columns]: [impl Into<u64>; 2],
    bytes: u32,
) -> Result<DeviceMemory, EngineError> {
    let bytes = rows.into().saturating_mul(columns.into()).saturating_mul(bytes.into());
    memories.containing(address, bytes).ok_or_else(|| {
        let needed = usize::try_from(bytes).unwrap_or(usize::MAX);
        EngineError::Buffer { address, bytes: 0, needed }
    })
}
