//! Scalar types of registers and instructions, and the Rust types that stand for them.
//!
//! In PTX the type of a register and the type as which an instruction reads it may differ. Here each register
//! has one type. [`Value::bits_as`](crate::Value::bits_as) reads a value as another type of the same width. A program that is read has
//! registers of the untyped widths ([`Type::is_untyped`]), which hold any type of their width.

use core::fmt;

use half::{bf16, f16};

/// The type of a register or of an instruction, as in PTX ISA 5.2 "Types".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Type {
    /// `.pred`: one bit.
    Pred,
    /// `.u8`, in a 16-bit register. It can be loaded, stored, selected and converted; it has no arithmetic.
    U8,
    /// `.s8`, as `.u8`.
    S8,
    /// `.u16`.
    U16,
    /// `.s16`.
    S16,
    /// `.u32`.
    U32,
    /// `.s32`.
    S32,
    /// `.u64`.
    U64,
    /// `.s64`.
    S64,
    /// `.f16`, IEEE binary16.
    F16,
    /// `.bf16`, the upper half of a binary32.
    Bf16,
    /// `.f32`, IEEE binary32.
    F32,
    /// `.f64`, IEEE binary64.
    F64,
    /// `.b8`: 8 bits of any type.
    B8,
    /// `.b16`: 16 bits of any type.
    B16,
    /// `.b32`: 32 bits of any type.
    B32,
    /// `.b64`: 64 bits of any type.
    B64,
}

impl Type {
    /// Width in bits; 1 for a predicate.
    #[inline]
    pub const fn bits(self) -> u32 {
        match self {
            Self::Pred => 1,
            Self::U8 | Self::S8 | Self::B8 => 8,
            Self::U16 | Self::S16 | Self::F16 | Self::Bf16 | Self::B16 => 16,
            Self::U32 | Self::S32 | Self::F32 | Self::B32 => 32,
            Self::U64 | Self::S64 | Self::F64 | Self::B64 => 64,
        }
    }

    /// Width in bytes; 0 for a predicate, which cannot be in memory.
    pub const fn bytes(self) -> u32 {
        self.bits() / 8
    }

    /// Whether this is an integer type with arithmetic.
    #[inline]
    pub const fn is_integer(self) -> bool {
        matches!(self, Self::U16 | Self::S16 | Self::U32 | Self::S32 | Self::U64 | Self::S64)
    }

    /// Whether this is a signed integer type.
    #[inline]
    pub const fn is_signed(self) -> bool {
        matches!(self, Self::S8 | Self::S16 | Self::S32 | Self::S64)
    }

    /// Whether this is a floating-point type.
    #[inline]
    pub const fn is_float(self) -> bool {
        matches!(self, Self::F16 | Self::Bf16 | Self::F32 | Self::F64)
    }

    /// Whether this is bits without a type: `.b8` to `.b64`.
    #[inline]
    pub const fn is_untyped(self) -> bool {
        matches!(self, Self::B8 | Self::B16 | Self::B32 | Self::B64)
    }

    /// The type of the same width that holds any type.
    pub const fn untyped(self) -> Self {
        match self.bits() {
            1 => Self::Pred,
            8 => Self::B8,
            16 => Self::B16,
            32 => Self::B32,
            _ => Self::B64,
        }
    }

    /// Whether a register of this type is one where `wanted` is needed: the types are the same, or one of them is bits of the
    /// width of the other. ISA "Operands", "Type Checking".
    pub const fn fits(self, wanted: Self) -> bool {
        self as u8 == wanted as u8
            || self.bits() == wanted.bits() && (self.is_untyped() || wanted.is_untyped())
    }

    /// Whether a register of this type holds a value of the type `held`: it [fits](Self::fits), or it is untyped and wider. Loads, stores
    /// and conversions accept such registers, and extend what they write. ISA "Operand Size Exceeding Instruction-Type Size".
    pub const fn holds(self, held: Self) -> bool {
        self.fits(held) || self.is_untyped() && self.bits() > held.bits() && held.bits() > 1
    }

    /// The letter of the registers of the type in printed programs.
    pub(crate) const fn class(self) -> &'static str {
        match self {
            Self::Pred => "p",
            Self::U8 | Self::S8 | Self::B8 | Self::U16 | Self::S16 | Self::F16 | Self::Bf16 | Self::B16 => {
                "h"
            }
            Self::U32 | Self::S32 | Self::B32 => "r",
            Self::F32 => "f",
            Self::U64 | Self::S64 | Self::B64 => "d",
            Self::F64 => "e",
        }
    }

    /// The low bits of a number that fit into the type.
    #[inline]
    pub const fn wrap(self, bits: u64) -> u64 {
        match self.bits() {
            64 => bits,
            width => bits & ((1 << width) - 1),
        }
    }

    /// The bits of the type as a signed number.
    #[inline]
    pub const fn extend(self, bits: u64) -> i64 {
        let unused = 64 - self.bits();
        (bits << unused).cast_signed() >> unused
    }

    /// The type's suffix in PTX, without the dot.
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::Pred => "pred",
            Self::U8 => "u8",
            Self::S8 => "s8",
            Self::U16 => "u16",
            Self::S16 => "s16",
            Self::U32 => "u32",
            Self::S32 => "s32",
            Self::U64 => "u64",
            Self::S64 => "s64",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::F32 => "f32",
            Self::F64 => "f64",
            Self::B8 => "b8",
            Self::B16 => "b16",
            Self::B32 => "b32",
            Self::B64 => "b64",
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.suffix())
    }
}

/// The state space of an address, as in PTX ISA 5.1 "State Spaces".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Space {
    /// `.global`, 64-bit addresses.
    Global,
    /// `.shared::cta`, 32-bit addresses of the executing CTA's own shared memory.
    Shared,
    /// `.shared::cluster`, 32-bit addresses of any CTA of the cluster.
    SharedCluster,
    /// `.local`, 64-bit addresses of the executing thread's own memory.
    Local,
    /// `.param`, 64-bit addresses in the block of the kernel's parameters, which are only read.
    Param,
    /// Generic addresses, of 64 bits: each names a byte of one of the other spaces.
    Generic,
}

impl Space {
    /// PTX's name; empty for generic addresses.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Global => "global",
            Self::Shared => "shared::cta",
            Self::SharedCluster => "shared::cluster",
            Self::Local => "local",
            Self::Param => "param",
            Self::Generic => "",
        }
    }

    /// Whether it is the shared memory of the CTA or of the cluster.
    pub const fn is_shared(self) -> bool {
        matches!(self, Self::Shared | Self::SharedCluster)
    }

    /// The type of an address in this space.
    pub const fn address_type(self) -> Type {
        match self {
            Self::Global | Self::Local | Self::Param | Self::Generic => Type::U64,
            Self::Shared | Self::SharedCluster => Type::U32,
        }
    }
}

mod sealed {
    pub trait Sealed {}
}

/// A Rust type that a register can hold.
pub trait Scalar: Copy + fmt::Debug + sealed::Sealed + 'static {
    /// The register's type.
    const TYPE: Type;
    /// The value's bits, zero-extended.
    fn to_bits64(self) -> u64;
}

/// A scalar with arithmetic.
pub trait Number: Scalar {}

/// An integer scalar.
pub trait Integer: Number {}

macro_rules! scalars {
    ($($rust:ty => $ty:ident, $v:ident => $bits:expr;)*) => {$(
        impl sealed::Sealed for $rust {}
        impl Scalar for $rust {
            const TYPE: Type = Type::$ty;
            fn to_bits64(self) -> u64 { let $v = self; $bits }
        }
    )*};
}

scalars! {
    bool => Pred, v => v.into();
    u8 => U8, v => v.into();
    u16 => U16, v => v.into();
    u32 => U32, v => v.into();
    i32 => S32, v => v.cast_unsigned().into();
    u64 => U64, v => v;
    i64 => S64, v => v.cast_unsigned();
    f16 => F16, v => v.to_bits().into();
    bf16 => Bf16, v => v.to_bits().into();
    f32 => F32, v => v.to_bits().into();
    f64 => F64, v => v.to_bits();
}

impl Number for u16 {}
impl Number for u32 {}
impl Number for i32 {}
impl Number for u64 {}
impl Number for i64 {}
impl Number for f32 {}
impl Number for f64 {}
impl Integer for u16 {}
impl Integer for u32 {}
impl Integer for i32 {}
impl Integer for u64 {}
impl Integer for i64 {}
