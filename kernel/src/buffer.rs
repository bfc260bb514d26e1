//! Device memory, by its address.

/// A range of an engine's device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Buffer {
    /// Device address, a multiple of 256 bytes.
    pub address: u64,
    /// Size in bytes.
    pub bytes: usize,
}
