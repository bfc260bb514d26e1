//! Operations of the arithmetic, logic and comparison instructions.
//!
//! ```
//! use ptx::inst::{BinaryOp, Inst, Operand, Reg};
//! use ptx::Scalar;
//!
//! let shift = Inst::Binary { op: BinaryOp::Shl, ty: u32::TYPE, dst: Reg(1), a: Operand::Reg(Reg(0)), b: Operand::Imm(3) };
//! assert_eq!(shift.name(), "arithmetic");
//! ```

/// A two-operand operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BinaryOp {
    /// `a + b`; integers wrap.
    Add,
    /// `a - b`; integers wrap.
    Sub,
    /// `a * b`; the low half for integers.
    Mul,
    /// The high half of an integer product.
    MulHigh,
    /// `a / b`; integers truncate, floats round to nearest even.
    Div,
    /// Integer remainder with the dividend's sign.
    Rem,
    /// The smaller. If one float is NaN, the other.
    Min,
    /// The larger. If one float is NaN, the other.
    Max,
    /// Bitwise and; logical for predicates.
    And,
    /// Bitwise or; logical for predicates.
    Or,
    /// Bitwise exclusive or; logical for predicates.
    Xor,
    /// Shift left. Counts of the type's width or more give zero.
    Shl,
    /// Shift right, arithmetic for signed types. Counts of the type's width or more give zero, or all sign
    /// bits for signed types.
    Shr,
}

impl BinaryOp {
    /// Whether it is a logic operation or a shift. Those exist for integers only; the logic operations also
    /// for predicates.
    pub const fn is_bitwise(self) -> bool {
        matches!(self, Self::And | Self::Or | Self::Xor | Self::Shl | Self::Shr)
    }
}

/// A one-operand operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UnaryOp {
    /// `-a`.
    Neg,
    /// `|a|`.
    Abs,
    /// Bitwise complement; logical for predicates.
    Not,
}

/// A relation between two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CompareOp {
    /// `a == b`.
    Eq,
    /// `a != b`.
    Ne,
    /// `a < b`.
    Lt,
    /// `a <= b`.
    Le,
    /// `a > b`.
    Gt,
    /// `a >= b`.
    Ge,
}
