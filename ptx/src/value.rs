//! Device values: `Copy` handles with operators.
//!
//! A [`Value`] is the content of a register at the time it was read. A [`Var`] is the register itself, which
//! can be written again. Comparisons are methods, because `if a < b` in Rust would decide while the program
//! is built.

use core::fmt;
use core::marker::PhantomData;
use core::ops::{Add, BitAnd, BitOr, BitXor, Div, Mul, Neg, Not, Rem, Shl, Shr, Sub};

use crate::builder::Builder;
use crate::inst::{BinaryOp, CompareOp, Inst, Operand, Reg, UnaryOp};
use crate::types::{Integer, Number, Scalar, Type};

/// A device value of type `T`: a register that is written once, or a constant.
pub struct Value<'f, T> {
    builder: &'f Builder,
    operand: Operand,
    scalar: PhantomData<T>,
}

/// A device variable of type `T`: a register that may be written many times.
pub struct Var<'f, T> {
    builder: &'f Builder,
    reg: Reg,
    scalar: PhantomData<T>,
}

impl<T> Clone for Value<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Value<'_, T> {}

impl<T> Clone for Var<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Var<'_, T> {}

impl<T> fmt::Debug for Value<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.operand.fmt(f)
    }
}

impl<T> fmt::Debug for Var<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reg.fmt(f)
    }
}

/// A source operand of type `T`: a device value, or a host constant that becomes an immediate.
pub trait Source<'f, T> {
    /// The operand as instructions have it.
    fn operand(self) -> Operand;
}

impl<'f, T> Source<'f, T> for Value<'f, T> {
    fn operand(self) -> Operand {
        self.operand
    }
}

impl<T: Scalar> Source<'_, T> for T {
    fn operand(self) -> Operand {
        Operand::Imm(self.to_bits64())
    }
}

impl<'f, T: Scalar> Var<'f, T> {
    pub(crate) fn new(builder: &'f Builder, reg: Reg) -> Self {
        Self { builder, reg, scalar: PhantomData }
    }

    /// The register.
    pub fn reg(self) -> Reg {
        self.reg
    }

    /// Reads the variable: appends a `mov` of its present content to a new register.
    #[track_caller]
    pub fn get(self) -> Value<'f, T> {
        self.builder.define(|dst| Inst::Move { ty: T::TYPE, dst, src: Operand::Reg(self.reg) })
    }

    /// Writes the variable: appends a `mov`.
    #[track_caller]
    pub fn set(self, value: impl Source<'f, T>) {
        self.builder.emit(Inst::Move { ty: T::TYPE, dst: self.reg, src: value.operand() });
    }
}

impl<'f, T: Scalar> Value<'f, T> {
    pub(crate) fn new(builder: &'f Builder, operand: Operand) -> Self {
        Self { builder, operand, scalar: PhantomData }
    }

    /// The register or immediate that the handle refers to.
    pub fn operand(self) -> Operand {
        self.operand
    }

    /// The builder that the value belongs to.
    pub fn builder(self) -> &'f Builder {
        self.builder
    }

    /// The bits of a constant, zero-extended. `None` for a register.
    pub fn known_bits(self) -> Option<u64> {
        match self.operand {
            Operand::Imm(bits) => Some(bits),
            Operand::Reg(_) => None,
        }
    }

    /// Converts the value to another scalar type. See [`Inst::Convert`] for the rounding.
    #[track_caller]
    pub fn cast<U: Scalar>(self) -> Value<'f, U> {
        let widens = T::TYPE.is_integer() && !T::TYPE.is_signed() && U::TYPE.is_integer();
        match self.operand {
            Operand::Imm(bits) if widens && U::TYPE.bits() >= T::TYPE.bits() => {
                Value::new(self.builder, Operand::Imm(bits))
            }
            src if T::TYPE != U::TYPE => {
                self.builder.define(|dst| Inst::Convert { from: T::TYPE, to: U::TYPE, dst, src })
            }
            Operand::Imm(_) | Operand::Reg(_) => Value::new(self.builder, self.operand),
        }
    }

    /// The same bits read as another type of the same width.
    #[track_caller]
    pub fn bits_as<U: Scalar>(self) -> Value<'f, U> {
        self.builder.define(|dst| Inst::Move { ty: U::TYPE, dst, src: self.operand })
    }

    /// `self` where `cond` holds, else `other`.
    #[track_caller]
    pub fn where_or(self, cond: Value<'f, bool>, other: impl Source<'f, T>) -> Self {
        let b = other.operand();
        match cond.operand {
            Operand::Imm(0) => Self::new(self.builder, b),
            Operand::Imm(_) => self,
            cond @ Operand::Reg(_) => {
                self.builder.define(|dst| Inst::Select { ty: T::TYPE, dst, a: self.operand, b, cond })
            }
        }
    }
}

macro_rules! comparisons {
    ($($(#[$doc:meta])* $name:ident => $op:ident;)*) => {$(
        $(#[$doc])*
        #[track_caller]
        pub fn $name(self, other: impl Source<'f, T>) -> Value<'f, bool> {
            self.builder.compare::<T>(CompareOp::$op, self.operand, other.operand())
        }
    )*};
}

impl<'f, T: Number> Value<'f, T> {
    comparisons! {
        /// `self == other`.
        equals => Eq;
        /// `self != other`.
        differs_from => Ne;
        /// `self < other`.
        less_than => Lt;
        /// `self <= other`.
        at_most => Le;
        /// `self > other`.
        more_than => Gt;
        /// `self >= other`.
        at_least => Ge;
    }

    /// The smaller of the two.
    #[track_caller]
    pub fn min(self, other: impl Source<'f, T>) -> Self {
        self.builder.binary(BinaryOp::Min, self.operand, other.operand())
    }

    /// The larger of the two.
    #[track_caller]
    pub fn max(self, other: impl Source<'f, T>) -> Self {
        self.builder.binary(BinaryOp::Max, self.operand, other.operand())
    }

    /// `self * factor + addend`, one rounding for floats.
    #[track_caller]
    pub fn mul_add(self, factor: impl Source<'f, T>, addend: impl Source<'f, T>) -> Self {
        let (a, b, c) = (self.operand, factor.operand(), addend.operand());
        self.builder.define(|dst| Inst::MulAdd { ty: T::TYPE, dst, a, b, c })
    }

    /// `|self|`. An unsigned value is returned as it is, without an instruction.
    #[track_caller]
    pub fn abs(self) -> Self {
        if T::TYPE.is_integer() && !T::TYPE.is_signed() {
            return self;
        }
        self.builder.define(|dst| Inst::Unary { op: UnaryOp::Abs, ty: T::TYPE, dst, a: self.operand })
    }
}

impl<'f> Value<'f, u32> {
    /// The full 64-bit product.
    #[track_caller]
    pub fn mul_wide(self, factor: impl Source<'f, u32>) -> Value<'f, u64> {
        match (self.operand, factor.operand()) {
            (Operand::Imm(a), Operand::Imm(b)) => self.builder.constant(a * b),
            (a, b) => self.builder.define(|dst| Inst::MulWide { dst, a, b }),
        }
    }

    /// `self / divisor`, rounded up.
    #[track_caller]
    pub fn div_ceil(self, divisor: u32) -> Self {
        (self + divisor.saturating_sub(1)) / divisor
    }
}

macro_rules! operators {
    ($($bound:ident: $trait:ident $method:ident => $op:ident;)*) => {$(
        impl<'f, T: $bound> $trait<Value<'f, T>> for Value<'f, T> {
            type Output = Self;
            #[track_caller]
            fn $method(self, other: Value<'f, T>) -> Self {
                self.builder.binary(BinaryOp::$op, self.operand, other.operand)
            }
        }
        impl<'f, T: $bound> $trait<T> for Value<'f, T> {
            type Output = Self;
            #[track_caller]
            fn $method(self, other: T) -> Self {
                self.builder.binary(BinaryOp::$op, self.operand, Operand::Imm(other.to_bits64()))
            }
        }
    )*};
}

/// A scalar with bitwise logic: the integers and the predicate.
pub trait Bits: Scalar {}
impl<T: Integer> Bits for T {}
impl Bits for bool {}

operators! {
    Number: Add add => Add;
    Number: Sub sub => Sub;
    Number: Mul mul => Mul;
    Number: Div div => Div;
    Integer: Rem rem => Rem;
    Bits: BitAnd bitand => And;
    Bits: BitOr bitor => Or;
    Bits: BitXor bitxor => Xor;
}

impl<T: Integer> Shl<u32> for Value<'_, T> {
    type Output = Self;
    #[track_caller]
    fn shl(self, count: u32) -> Self {
        self.builder.binary(BinaryOp::Shl, self.operand, Operand::Imm(count.into()))
    }
}

impl<'f, T: Integer> Shl<Value<'f, u32>> for Value<'f, T> {
    type Output = Self;
    #[track_caller]
    fn shl(self, count: Value<'f, u32>) -> Self {
        self.builder.binary(BinaryOp::Shl, self.operand, count.operand)
    }
}

impl<T: Integer> Shr<u32> for Value<'_, T> {
    type Output = Self;
    #[track_caller]
    fn shr(self, count: u32) -> Self {
        self.builder.binary(BinaryOp::Shr, self.operand, Operand::Imm(count.into()))
    }
}

impl Not for Value<'_, bool> {
    type Output = Self;
    #[track_caller]
    fn not(self) -> Self {
        match self.operand {
            Operand::Imm(bit) => self.builder.constant(bit == 0),
            a @ Operand::Reg(_) => {
                self.builder.define(|dst| Inst::Unary { op: UnaryOp::Not, ty: Type::Pred, dst, a })
            }
        }
    }
}

impl<T: Number> Neg for Value<'_, T> {
    type Output = Self;
    #[track_caller]
    fn neg(self) -> Self {
        self.builder.define(|dst| Inst::Unary { op: UnaryOp::Neg, ty: T::TYPE, dst, a: self.operand })
    }
}
