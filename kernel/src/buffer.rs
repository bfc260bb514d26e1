//! Device memory, by its address.

/// A span of an engine's device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Buffer {
    /// Device address, a multiple of 256.
    pub address: u64,
    /// Bytes.
    pub bytes: usize,
}
