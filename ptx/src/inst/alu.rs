//! Arithmetic beyond the plain operators: bit operations, rounding modes, approximations, 16-bit floats,
//! conversions to narrow formats.
//!
//! Source: PTX ISA "Integer Arithmetic", "Logic and Shift", "Floating Point", "Half Precision", "cvt".
//!
//! ```
//! # let entry = ptx::Entry { name: "example".into(), target: ptx::Target::Sm90a, threads: 128, shared_bytes: 4096, cluster: [1, 1, 1] };
//! use ptx::Scalar;
//! use ptx::inst::{AluOp, BitOp};
//!
//! let function = ptx::Function::build(entry, |f| {
//!     let (out, x) = (f.param::<u64>("out"), f.param::<u32>("x"));
//!     let bits: ptx::Value<'_, u32> = f.alu(AluOp::Bits(BitOp::Population, u32::TYPE), &[x.operand()]);
//!     f.store_global(out, 0, [bits]);
//! });
//! let text = ptx::module_text(&function.verify()?);
//! assert!(text.contains("popc.b32"));
//! # Ok::<(), ptx::VerifyError>(())
//! ```

use core::fmt;

use super::spell::{Line, bits_spelling};
use super::{Operand, Reg};
use crate::types::Type;

/// An operation on the bits of one integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BitOp {
    /// `popc`: the number of bits that are set.
    Population,
    /// `clz`: the number of leading zeros.
    LeadingZeros,
    /// `brev`: the bits in reverse order.
    Reverse,
}

/// A function that the hardware approximates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ApproxOp {
    /// `ex2.approx`: 2^x, relative error 2^-22.
    Exp2,
    /// `lg2.approx`: log2 x, absolute error 2^-22 near 1, relative 2^-22 elsewhere.
    Log2,
    /// `rcp.approx`: 1/x, 1 ulp.
    Reciprocal,
    /// `rsqrt.approx`: x^-1/2, relative error 2^-22.9.
    ReciprocalRoot,
    /// `sqrt.approx`: x^1/2, relative error 2^-23.
    Root,
    /// `sin.approx`: absolute error 2^-20.5 in -pi..pi.
    Sin,
    /// `cos.approx`: absolute error 2^-20.5 in -pi..pi.
    Cos,
    /// `tanh.approx`: relative error 2^-11.
    Tanh,
}

/// A rounding mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rounding {
    /// `.rn`: to the nearest, ties to even.
    Nearest,
    /// `.rz`: toward zero.
    Zero,
    /// `.rm`: down.
    Down,
    /// `.rp`: up.
    Up,
}

impl Rounding {
    /// All modes.
    pub const ALL: [Self; 4] = [Self::Nearest, Self::Zero, Self::Down, Self::Up];

    /// PTX's suffix.
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::Nearest => "rn",
            Self::Zero => "rz",
            Self::Down => "rm",
            Self::Up => "rp",
        }
    }
}

/// An operation on floats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FloatOp {
    /// `a + b`.
    Add,
    /// `a - b`.
    Sub,
    /// `a * b`.
    Mul,
    /// `a * b + c`, rounded once.
    Fma,
    /// The smaller. NaN if both are NaN; with the `nan` option, if either is NaN.
    Min,
    /// The larger. NaN if both are NaN; with the `nan` option, if either is NaN.
    Max,
}

/// The type of operations on 16-bit floats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HalfType {
    /// `.f16`.
    F16,
    /// `.bf16`.
    Bf16,
    /// Two `.f16` in a `.u32`.
    F16x2,
    /// Two `.bf16` in a `.u32`.
    Bf16x2,
}

impl HalfType {
    /// All types.
    pub const ALL: [Self; 4] = [Self::F16, Self::Bf16, Self::F16x2, Self::Bf16x2];

    /// The register's type.
    pub const fn register(self) -> Type {
        match self {
            Self::F16 => Type::F16,
            Self::Bf16 => Type::Bf16,
            Self::F16x2 | Self::Bf16x2 => Type::U32,
        }
    }

    /// PTX's suffix.
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::F16x2 => "f16x2",
            Self::Bf16x2 => "bf16x2",
        }
    }
}

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
            Self::PackInt8 { .. } => (&[Type::S32, Type::S32, Type::U32], Type::U32),
        }
    }
}

/// An arithmetic operation: a pure function of registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AluOp {
    /// `popc clz brev` of [`Type::U32`] or [`Type::U64`]; counts are `.u32`. ISA "popc", "clz", "brev".
    Bits(BitOp, Type),
    /// `prmt.b32 d, a, b, selector`: each nibble of the selector selects a byte of `b:a`. If the top bit of
    /// the nibble is set, the sign of the byte is replicated. ISA "prmt".
    Permute,
    /// `fns.b32`: the position of the n-th set bit of the first operand, from the bit in the second operand
    /// on. ISA "fns".
    FindNth,
    /// `lop3.b32 d, a, b, c`: a bitwise function of three operands, given as a look-up table. ISA "lop3".
    Logic3(u8),
    /// `shf.{l|r}.{wrap|clamp}.b32 d, low, high, count`. ISA "shf".
    Funnel {
        /// Whether to shift left and keep the high word; otherwise right, and the low word is kept.
        left: bool,
        /// Whether the count is taken modulo 32; otherwise it is clamped to 32.
        wrap: bool,
    },
    /// `bfe d, a, position, length`, sign-extended for signed types. ISA "bfe".
    Extract(Type),
    /// `bfi d, field, into, position, length` of [`Type::U32`] or [`Type::U64`]. ISA "bfi".
    Insert(Type),
    /// `mul.wide d, a, b` of `.u32` or `.s32`: the 64-bit product. ISA "mul".
    MulWide(Type),
    /// `mad.wide d, a, b, c` of `.u32` or `.s32`, where c has 64 bits. ISA "mad".
    MadWide(Type),
    /// `mad.hi d, a, b, c`: the high half of the product, plus c. ISA "mad".
    MadHigh(Type),
    /// `{ex2|lg2|rcp|…}.approx.f32`, without `.ftz`. ISA "Floating Point".
    Approx(ApproxOp),
    /// `{ex2|lg2|rcp|rsqrt|sqrt|sin|cos}.approx.ftz.f32`: subnormal operands and results become zeros with
    /// the same sign. Some forms are then one machine instruction in place of four or six. ISA "Floating
    /// Point".
    ApproxFlush(ApproxOp),
    /// `tanh.approx` or `ex2.approx` of 16-bit floats. ISA "Half Precision".
    ApproxHalf(ApproxOp, HalfType),
    /// `{rcp|sqrt}.<rounding>.f32`, or `.f64` to nearest. ISA "rcp", "sqrt".
    Exact {
        /// Whether it is the reciprocal; otherwise the square root.
        reciprocal: bool,
        /// `.f32` or `.f64`.
        ty: Type,
        /// Rounding mode of the result.
        rounding: Rounding,
    },
    /// `{add|sub|mul|fma}.<rounding>{.ftz}{.sat}` of `.f32`, `.f64`. ISA "Floating Point".
    Float {
        /// The operation: not `Min` or `Max`.
        op: FloatOp,
        /// `.f32`, or `.f64` to nearest without `flush` and `saturate`.
        ty: Type,
        /// Rounding mode of the result.
        rounding: Rounding,
        /// `.ftz`: whether subnormals become zeros.
        flush: bool,
        /// `.sat`: whether the result is clamped to 0..=1, NaN to 0.
        saturate: bool,
    },
    /// `{min|max}.NaN.f32`: NaN if either operand is NaN. ISA "min", "max".
    NanExtreme {
        /// Whether it is the maximum; otherwise the minimum.
        max: bool,
    },
    /// `copysign d, a, b` of `.f32` or `.f64`: |b| with the sign of a. ISA "copysign".
    CopySign(Type),
    /// `{add|sub|mul|fma|min|max}` of 16-bit floats; subnormals are kept. ISA "Half Precision".
    Half {
        /// The operation.
        op: FloatOp,
        /// The type.
        ty: HalfType,
        /// `.NaN`: whether `min` and `max` give NaN if either operand is NaN.
        nan: bool,
        /// `.relu`: whether a negative result of `fma` becomes 0.
        relu: bool,
    },
    /// `{neg|abs}` of 16-bit floats. ISA "Half Precision".
    HalfSign {
        /// The type.
        ty: HalfType,
        /// Whether it is `-a`; otherwise `|a|`.
        negate: bool,
    },
    /// A conversion between formats. ISA "cvt".
    Cvt(Cvt),
}

/// An arithmetic instruction: an operation and its operands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alu {
    /// The operation.
    pub op: AluOp,
    /// Receives the result.
    pub dst: Reg,
    /// The operands, in PTX's order.
    pub src: Vec<Operand>,
}

const PAIR: [Type; 2] = [Type::U32, Type::U32];

impl AluOp {
    /// The types of the operands in PTX's order, and the type of the result. `None` if the form does not
    /// exist.
    pub fn types(self) -> Option<(Vec<Type>, Type)> {
        use Type::{F32, F64, S32, S64, U32, U64};
        let wide = |ty| if ty == S32 { S64 } else { U64 };
        Some(match self {
            Self::Bits(op, ty @ (U32 | U64)) => (vec![ty], if op == BitOp::Reverse { ty } else { U32 }),
            Self::FindNth => (vec![U32, U32, S32], U32),
            Self::Permute | Self::Logic3(_) | Self::Funnel { .. } => (vec![U32; 3], U32),
            Self::Extract(ty @ (U32 | S32 | U64 | S64)) => ([&[ty][..], &PAIR].concat(), ty),
            Self::Insert(ty @ (U32 | U64)) => ([&[ty, ty][..], &PAIR].concat(), ty),
            Self::MulWide(ty @ (U32 | S32)) => (vec![ty; 2], wide(ty)),
            Self::MadWide(ty @ (U32 | S32)) => (vec![ty, ty, wide(ty)], wide(ty)),
            Self::MadHigh(ty @ (U32 | S32 | U64 | S64)) => (vec![ty; 3], ty),
            Self::ApproxFlush(ApproxOp::Tanh) => return None,
            Self::Approx(_) | Self::ApproxFlush(_) => (vec![F32], F32),
            Self::ApproxHalf(ApproxOp::Tanh | ApproxOp::Exp2, ty) => (vec![ty.register()], ty.register()),
            Self::Exact { ty: F64, rounding, .. } if rounding != Rounding::Nearest => return None,
            Self::Exact { ty: ty @ (F32 | F64), .. } => (vec![ty], ty),
            Self::Float { op: FloatOp::Min | FloatOp::Max, .. } => return None,
            Self::Float { ty: F64, flush, saturate, rounding, .. }
                if flush || saturate || rounding != Rounding::Nearest =>
            {
                return None;
            }
            Self::Float { op, ty: ty @ (F32 | F64), .. } => {
                (vec![ty; if op == FloatOp::Fma { 3 } else { 2 }], ty)
            }
            Self::NanExtreme { .. } => (vec![F32; 2], F32),
            Self::CopySign(ty @ (F32 | F64)) => (vec![ty; 2], ty),
            Self::Half { op, nan, relu, .. }
                if (nan && !matches!(op, FloatOp::Min | FloatOp::Max)) || (relu && op != FloatOp::Fma) =>
            {
                return None;
            }
            Self::Half { op, ty, .. } => {
                (vec![ty.register(); if op == FloatOp::Fma { 3 } else { 2 }], ty.register())
            }
            Self::HalfSign { ty, .. } => (vec![ty.register()], ty.register()),
            Self::Cvt(cvt) => {
                let (sources, result) = cvt.types();
                (sources.to_vec(), result)
            }
            Self::Bits(..)
            | Self::Extract(_)
            | Self::Insert(_)
            | Self::MulWide(_)
            | Self::MadWide(_)
            | Self::MadHigh(_)
            | Self::ApproxHalf(..)
            | Self::Exact { .. }
            | Self::Float { .. }
            | Self::CopySign(_) => return None,
        })
    }

    /// PTX's name, without its modifiers.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bits(BitOp::Population, _) => "popc",
            Self::Bits(BitOp::LeadingZeros, _) => "clz",
            Self::Bits(BitOp::Reverse, _) => "brev",
            Self::Permute => "prmt",
            Self::FindNth => "fns",
            Self::Logic3(_) => "lop3",
            Self::Funnel { .. } => "shf",
            Self::Extract(_) => "bfe",
            Self::Insert(_) => "bfi",
            Self::MulWide(_) => "mul.wide",
            Self::MadWide(_) => "mad.wide",
            Self::MadHigh(_) => "mad.hi",
            Self::Approx(op) | Self::ApproxFlush(op) | Self::ApproxHalf(op, _) => op.name(),
            Self::Exact { reciprocal: true, .. } => "rcp",
            Self::Exact { reciprocal: false, .. } => "sqrt",
            Self::Float { op, .. } | Self::Half { op, .. } => op.name(),
            Self::NanExtreme { max: true } => "max.NaN",
            Self::NanExtreme { max: false } => "min.NaN",
            Self::CopySign(_) => "copysign",
            Self::HalfSign { negate: true, .. } => "neg",
            Self::HalfSign { negate: false, .. } => "abs",
            Self::Cvt(_) => "cvt",
        }
    }
}

/// PTX's name with its modifiers.
impl fmt::Display for AluOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name();
        match *self {
            Self::Bits(BitOp::Population | BitOp::LeadingZeros | BitOp::Reverse, ty) | Self::Insert(ty) => {
                write!(f, "{name}.{}", bits_spelling(ty))
            }
            Self::Permute | Self::FindNth | Self::Logic3(_) => write!(f, "{name}.b32"),
            Self::Funnel { left, wrap } => {
                write!(f, "shf.{}.{}.b32", if left { "l" } else { "r" }, if wrap { "wrap" } else { "clamp" })
            }
            Self::Extract(ty)
            | Self::MulWide(ty)
            | Self::MadWide(ty)
            | Self::MadHigh(ty)
            | Self::CopySign(ty) => write!(f, "{name}.{ty}"),
            Self::Approx(_) => write!(f, "{name}.approx.f32"),
            Self::ApproxFlush(_) => write!(f, "{name}.approx.ftz.f32"),
            Self::ApproxHalf(_, ty) => {
                let brain = matches!(ty, HalfType::Bf16 | HalfType::Bf16x2) && name == "ex2";
                write!(f, "{name}.approx{}.{}", if brain { ".ftz" } else { "" }, ty.suffix())
            }
            Self::Exact { ty, rounding, .. } => write!(f, "{name}.{}.{ty}", rounding.suffix()),
            Self::Float { ty, rounding, flush, saturate, .. } => {
                let (flush, saturate) = (if flush { ".ftz" } else { "" }, if saturate { ".sat" } else { "" });
                write!(f, "{name}.{}{flush}{saturate}.{ty}", rounding.suffix())
            }
            Self::NanExtreme { .. } => write!(f, "{name}.f32"),
            Self::Half { op: FloatOp::Min | FloatOp::Max, ty, nan, .. } => {
                write!(f, "{name}{}.{}", if nan { ".NaN" } else { "" }, ty.suffix())
            }
            Self::Half { ty, relu, .. } => write!(f, "{name}.rn{}.{}", rectified(relu), ty.suffix()),
            Self::HalfSign { ty, .. } => write!(f, "{name}.{}", ty.suffix()),
            Self::Cvt(cvt) => cvt.fmt(f),
        }
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
            Self::PackInt8 { signed } => {
                write!(f, "cvt.pack.sat.{}.s32.b32", if signed { "s8" } else { "u8" })
            }
        }
    }
}

const fn rectified(relu: bool) -> &'static str {
    if relu { ".relu" } else { "" }
}

impl ApproxOp {
    /// All functions.
    pub const ALL: [Self; 8] = [
        Self::Exp2,
        Self::Log2,
        Self::Reciprocal,
        Self::ReciprocalRoot,
        Self::Root,
        Self::Sin,
        Self::Cos,
        Self::Tanh,
    ];

    /// PTX's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Exp2 => "ex2",
            Self::Log2 => "lg2",
            Self::Reciprocal => "rcp",
            Self::ReciprocalRoot => "rsqrt",
            Self::Root => "sqrt",
            Self::Sin => "sin",
            Self::Cos => "cos",
            Self::Tanh => "tanh",
        }
    }
}

impl FloatOp {
    /// All operations.
    pub const ALL: [Self; 6] = [Self::Add, Self::Sub, Self::Mul, Self::Fma, Self::Min, Self::Max];

    /// PTX's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Add => "add",
            Self::Sub => "sub",
            Self::Mul => "mul",
            Self::Fma => "fma",
            Self::Min => "min",
            Self::Max => "max",
        }
    }
}

impl Alu {
    pub(super) fn spell<'l>(&self, line: Line<'l>) -> Line<'l> {
        let line = line.named(self.op.name(), self.op);
        // A form that does not exist has no operands either.
        let Some((sources, result)) = self.op.types() else { return line };
        let line = line.set(self.dst, result);
        let line = self.src.iter().zip(sources).fold(line, |line, (&src, ty)| line.read(src, ty));
        if let AluOp::Logic3(table) = self.op { line.also(format_args!("{table:#04x}")) } else { line }
    }

    /// Checks that the form exists: the types and the number of operands.
    ///
    /// # Errors
    /// The rule that is broken, as a sentence.
    pub fn check(&self) -> Result<(), String> {
        let name = self.op.name();
        let (sources, _) = self.op.types().ok_or_else(|| format!("{name}: no such form, {:?}", self.op))?;
        if matches!(self.op, AluOp::Half { .. } | AluOp::HalfSign { .. })
            && self.src.iter().any(|source| matches!(source, Operand::Imm(_)))
        {
            return Err(format!("{name} of halves takes only registers: put a constant into a variable"));
        }
        let (needed, given) = (sources.len(), self.src.len());
        if needed == given { Ok(()) } else { Err(format!("{name} of {given} operands, it has {needed}")) }
    }
}
