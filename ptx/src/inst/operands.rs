//! The operands of each instruction: what it reads and writes, and as which type. The verifier, the emulator
//! and [`mutate`](crate::mutate) use this table.
//!
//! ```
//! use ptx::inst::{BinaryOp, Expect, Inst, Operand, Reg};
//! use ptx::Scalar;
//!
//! let shift = Inst::Binary { op: BinaryOp::Shl, ty: u64::TYPE, dst: Reg(1), a: Operand::Reg(Reg(0)), b: Operand::Imm(3) };
//! let operands = shift.operands();
//! assert_eq!(operands.writes, [(Reg(1), Expect::Type(u64::TYPE))]);
//! // The count of a shift is a `.u32`, whatever is shifted.
//! assert_eq!(operands.reads[1], (Operand::Imm(3), Expect::Type(u32::TYPE)));
//! ```

use crate::types::Type;

/// A virtual register: an index into [`Function::registers`](crate::Function::registers).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Reg(pub u32);

/// A source operand: a register, or the bits (zero-extended) of an immediate of the instruction's type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operand {
    /// A register.
    Reg(Reg),
    /// An immediate.
    Imm(u64),
}

/// What an instruction accepts as an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// A register that [fits](Type::fits) this type, or an immediate.
    Type(Type),
    /// A register that [holds](Type::holds) this type, or an immediate.
    Holds(Type),
    /// An accumulator register of 32 bits, updated in place. It is not read if the instruction overwrites it.
    Accumulator,
}

/// The operands of an instruction, in the order of PTX.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OperandList {
    /// The operands that are read. Accumulators are listed in `writes` only.
    pub reads: Vec<(Operand, Expect)>,
    /// The registers that are written.
    pub writes: Vec<(Reg, Expect)>,
}
