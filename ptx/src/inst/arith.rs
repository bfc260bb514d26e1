//! Operations of the arithmetic, logic and comparison instructions.
//!
//! ```
//! use ptx::inst::{BinaryOp, Inst, Operand, Reg};
//! use ptx::Scalar;
//!
//! let shift = Inst::Binary { op: BinaryOp::Shl, ty: u32::TYPE, dst: Reg(1), a: Operand::Reg(Reg(0)), b: Operand::Imm(3) };
//! assert_eq!(shift.name(), "arithmetic");
//! ```

use crate::types::Type;

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

    /// The result for integers of a type, or for predicates, as zero-extended bits. A division by zero gives
    /// all ones.
    #[inline]
    pub const fn of_integers(self, ty: Type, a: u64, b: u64) -> u64 {
        let (x, y) = (ty.extend(a), ty.extend(b));
        let (signed, width) = (ty.is_signed(), ty.bits() as u64);
        ty.wrap(match self {
            Self::Add => a.wrapping_add(b),
            Self::Sub => a.wrapping_sub(b),
            Self::Mul => a.wrapping_mul(b),
            Self::MulHigh if signed => ((x as i128 * y as i128) >> width) as u64,
            Self::MulHigh => ((a as u128 * b as u128) >> width) as u64,
            Self::Div | Self::Rem if b == 0 => u64::MAX,
            Self::Div if signed => x.wrapping_div(y).cast_unsigned(),
            Self::Div => a / b,
            Self::Rem if signed => x.wrapping_rem(y).cast_unsigned(),
            Self::Rem => a % b,
            Self::Min if (signed && x < y) || (!signed && a < b) => a,
            Self::Min => b,
            Self::Max if (signed && x > y) || (!signed && a > b) => a,
            Self::Max => b,
            Self::And => a & b,
            Self::Or => a | b,
            Self::Xor => a ^ b,
            Self::Shl if b < width => a << b,
            Self::Shr if signed => (x >> if b < width { b } else { width - 1 }).cast_unsigned(),
            Self::Shr if b < width => a >> b,
            Self::Shl | Self::Shr => 0,
        })
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

impl CompareOp {
    /// Whether the relation holds. Only `Ne` holds for numbers that have no order.
    #[inline]
    pub fn holds<T: PartialOrd>(self, a: T, b: T) -> bool {
        match self {
            Self::Eq => a == b,
            Self::Ne => a != b,
            Self::Lt => a < b,
            Self::Le => a <= b,
            Self::Gt => a > b,
            Self::Ge => a >= b,
        }
    }
}
