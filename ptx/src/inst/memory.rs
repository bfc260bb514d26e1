//! Memory addresses of instructions.
//!
//! ```
//! use ptx::inst::{Address, Operand, Reg};
//!
//! // `[%r7 + 16]`
//! let address = Address { base: Operand::Reg(Reg(7)), offset: 16 };
//! assert_eq!(address.offset, 16);
//! ```

use super::Operand;

/// `[base + offset]`: a base of the address type of its state space, and a constant offset in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    /// A `.u32` for shared memory, a `.u64` for global memory.
    pub base: Operand,
    /// Bytes added to the base.
    pub offset: i32,
}
