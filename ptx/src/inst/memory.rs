//! Addresses.

use super::Operand;

/// `[base + offset]`: a base in the address type of its space and a constant displacement in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    /// A `.u32` for shared memory, a `.u64` for global memory.
    pub base: Operand,
    /// Bytes added to the base.
    pub offset: i32,
}
