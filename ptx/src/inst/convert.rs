//! Conversions between formats that [`Convert`](super::Inst::Convert) does not have.
//!
//! Source: PTX ISA "cvt", "cvt.pack".
//!
//! ```
//! use ptx::inst::{Cvt, Rounding};
//!
//! assert_eq!(Cvt::ToSigned(Rounding::Down).to_string(), "cvt.rmi.s32.f32");
//! ```

use core::fmt;

use super::alu::{Rounding, rectified};
use crate::types::Type;

/// A conversion between formats that [`Convert`](super::Inst::Convert) does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cvt {
    /// `cvt.rn.satfinite{.relu}.{e4m3x2|e5m2x2}.f32 d, high, low`: two `.f32` into a `.u16`.
    PackFp8 {
        /// Whether the format is E5M2; otherwise E4M3.
        e5m2: bool,
        /// Whether negative values become 0.
        relu: bool,
    },
    /// `cvt.rn.satfinite{.relu}.{e4m3x2|e5m2x2}.f16x2`: a pair of `.f16` into a `.u16`.
    NarrowFp8 {
        /// Whether the format is E5M2; otherwise E4M3.
        e5m2: bool,
        /// Whether negative values become 0.
        relu: bool,
    },
    /// `cvt.rn{.relu}.f16x2.{e4m3x2|e5m2x2}`: a `.u16` into a pair of `.f16`, exactly.
    WidenFp8 {
        /// Whether the format is E5M2; otherwise E4M3.
        e5m2: bool,
        /// Whether negative values become 0.
        relu: bool,
    },
    /// `cvt.{rn|rz}{.relu}.{f16x2|bf16x2}.f32 d, high, low`.
    PackHalf {
        /// Whether the format is `.bf16x2`; otherwise `.f16x2`.
        bf16: bool,
        /// Whether to round toward zero; otherwise to nearest even.
        toward_zero: bool,
        /// Whether negative values become 0.
        relu: bool,
    },
    /// `cvt.rna.tf32.f32`: rounds to 10 mantissa bits, to nearest, ties away from zero, into a `.u32`.
    Tf32,
    /// `cvt.{rni|rzi|rmi|rpi}.f32.f32`: rounds to an integral value.
    Integral(Rounding),
    /// `cvt.{rni|rzi|rmi|rpi}.s32.f32`, saturated.
    ToSigned(Rounding),
    /// `cvt.{rni|rzi|rmi|rpi}.u32.f32`, saturated.
    ToUnsigned(Rounding),
    /// `cvt{.<rounding>}{.ftz}{.sat}{.relu}.<to>.<from>` of scalars, in all forms. Receives and gives what fits the register: the source may
    /// be the low bits of a wider one, and the result is extended to a wider one.
    Scalar {
        /// Type of the source.
        from: Type,
        /// Type of the result.
        to: Type,
        /// The rounding. `None` where the result is exact, or of integers.
        rounding: Option<Rounding>,
        /// Whether the rounding is to an integral value (`.rni` and so on).
        integral: bool,
        /// `.ftz`: whether subnormal `.f32` operands and results become zeros.
        flush: bool,
        /// `.sat`: integers are limited to the range of the result's type, floats to 0..=1, NaN to 0.
        saturate: bool,
        /// `.relu`: whether negative results become 0.
        relu: bool,
    },
    /// `cvt.pack.sat.{s8|u8}.s32.b32 d, a, b, c`: saturates a and b to 8 bits in the low half of d; the high
    /// half is the low half of c.
    PackInt8 {
        /// Whether the format is `.s8`; otherwise `.u8`.
        signed: bool,
    },
}

impl Cvt {
    /// The types of the sources, and the type of the result.
    pub const fn types(self) -> (&'static [Type], Type) {
        match self {
            Self::PackFp8 { .. } => (&[Type::F32, Type::F32], Type::U16),
            Self::NarrowFp8 { .. } => (&[Type::U32], Type::U16),
            Self::WidenFp8 { .. } => (&[Type::U16], Type::U32),
            Self::PackHalf { .. } => (&[Type::F32, Type::F32], Type::U32),
            Self::Tf32 => (&[Type::F32], Type::U32),
            Self::Integral(_) => (&[Type::F32], Type::F32),
            Self::ToSigned(_) => (&[Type::F32], Type::S32),
            Self::ToUnsigned(_) => (&[Type::F32], Type::U32),
            Self::Scalar { from, to, .. } => (one(from), to),
            Self::PackInt8 { .. } => (&[Type::S32, Type::S32, Type::U32], Type::U32),
        }
    }

    /// Whether the form exists.
    pub(super) fn exists(self) -> bool {
        let Self::Scalar { from, to, rounding, integral, flush, saturate, relu } = self else { return true };
        let number = |ty: Type| ty.is_integer() || ty.is_float() || matches!(ty, Type::U8 | Type::S8);
        let (of_float, to_float) = (from.is_float(), to.is_float());
        let narrows = to_float && (!of_float || to.bits() < from.bits());
        let rounded = match rounding {
            Some(_) if integral => of_float && (!to_float || from == to),
            Some(_) => narrows,
            None => !narrows && (!of_float || to_float) && !integral,
        };
        let single = from == Type::F32 || to == Type::F32;
        let changes = from != to || of_float;
        let rectified = changes && (!relu || from == Type::F32 && to.is_float() && to.bits() == 16);
        number(from)
            && number(to)
            && rounded
            && rectified
            && (!flush || single)
            && !(saturate && of_float && !to_float)
    }
}

/// A list of one type.
const fn one(ty: Type) -> &'static [Type] {
    match ty {
        Type::Pred => &[Type::Pred],
        Type::U8 => &[Type::U8],
        Type::S8 => &[Type::S8],
        Type::U16 => &[Type::U16],
        Type::S16 => &[Type::S16],
        Type::U32 => &[Type::U32],
        Type::S32 => &[Type::S32],
        Type::U64 => &[Type::U64],
        Type::S64 => &[Type::S64],
        Type::F16 => &[Type::F16],
        Type::Bf16 => &[Type::Bf16],
        Type::F32 => &[Type::F32],
        Type::F64 => &[Type::F64],
        Type::B8 => &[Type::B8],
        Type::B16 => &[Type::B16],
        Type::B32 => &[Type::B32],
        Type::B64 => &[Type::B64],
    }
}

impl fmt::Display for Cvt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fp8 = |e5m2: bool| if e5m2 { "e5m2x2" } else { "e4m3x2" };
        match *self {
            Self::PackFp8 { e5m2, relu } => {
                write!(f, "cvt.rn.satfinite{}.{}.f32", rectified(relu), fp8(e5m2))
            }
            Self::NarrowFp8 { e5m2, relu } => {
                write!(f, "cvt.rn.satfinite{}.{}.f16x2", rectified(relu), fp8(e5m2))
            }
            Self::WidenFp8 { e5m2, relu } => write!(f, "cvt.rn{}.f16x2.{}", rectified(relu), fp8(e5m2)),
            Self::PackHalf { bf16, toward_zero, relu } => {
                let (rounding, half) =
                    (if toward_zero { "rz" } else { "rn" }, if bf16 { "bf16x2" } else { "f16x2" });
                write!(f, "cvt.{rounding}{}.{half}.f32", rectified(relu))
            }
            Self::Tf32 => f.write_str("cvt.rna.tf32.f32"),
            Self::Integral(rounding) => write!(f, "cvt.{}i.f32.f32", rounding.suffix()),
            Self::ToSigned(rounding) => write!(f, "cvt.{}i.s32.f32", rounding.suffix()),
            Self::ToUnsigned(rounding) => write!(f, "cvt.{}i.u32.f32", rounding.suffix()),
            Self::Scalar { from, to, rounding, integral, flush, saturate, relu } => {
                let (dot, rounding) = rounding.map_or(("", ""), |rounding| (".", rounding.suffix()));
                let integral = if integral { "i" } else { "" };
                let (flush, saturate) = (if flush { ".ftz" } else { "" }, if saturate { ".sat" } else { "" });
                write!(f, "cvt{dot}{rounding}{integral}{flush}{saturate}{}.{to}.{from}", rectified(relu))
            }
            Self::PackInt8 { signed } => {
                write!(f, "cvt.pack.sat.{}.s32.b32", if signed { "s8" } else { "u8" })
            }
        }
    }
}
