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

use super::convert::Cvt;
use super::spell::{Line, bits_spelling};
use super::{Division, FloatRelation, Operand, Reg};
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

/// An operation on pairs of 16-bit integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PairOp {
    /// `a + b`, modulo 2^16.
    Add,
    /// The smaller.
    Min,
    /// The larger.
    Max,
}

impl PairOp {
    /// All operations.
    pub const ALL: [Self; 3] = [Self::Add, Self::Min, Self::Max];

    /// PTX's name.
    const fn name(self) -> &'static str {
        match self {
            Self::Add => "add",
            Self::Min => "min",
            Self::Max => "max",
        }
    }
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
    /// `{rcp|sqrt}.<rounding>.ftz.f32`: subnormal operands and results become zeros with the same sign. ISA "rcp", "sqrt".
    ExactFlush {
        /// Whether it is the reciprocal; otherwise the square root.
        reciprocal: bool,
        /// Rounding mode of the result.
        rounding: Rounding,
    },
    /// `{min|max}.ftz{.NaN}.f32`. ISA "min", "max".
    FlushExtreme {
        /// Whether it is the maximum; otherwise the minimum.
        max: bool,
        /// `.NaN`: whether the result is NaN if either operand is NaN.
        nan: bool,
    },
    /// `div.{approx|full|<rounding>}{.ftz}` of `.f32`, or `.f64` with a rounding. ISA "div".
    Divide {
        /// How exact the quotient is.
        division: Division,
        /// `.f32` or `.f64`.
        ty: Type,
        /// `.ftz`: whether subnormals become zeros; of `.f32` only.
        flush: bool,
    },
    /// `setp.<relation>{.ftz}` of floats, for what [`Compare`](super::Inst::Compare) does not have: relations of numbers without an order,
    /// 16-bit floats, `.ftz`. The result is a predicate. ISA "setp".
    FloatCompare {
        /// The relation.
        relation: FloatRelation,
        /// `.f16`, `.bf16`, `.f32` or `.f64`.
        ty: Type,
        /// `.ftz`: whether subnormal operands count as zeros; not of `.bf16` and `.f64`.
        flush: bool,
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
    /// `{add|min|max}.{s16x2|u16x2}`: of each half of two words. ISA "add", "min", "max".
    Pair {
        /// The operation.
        op: PairOp,
        /// Whether the halves are signed.
        signed: bool,
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
            Self::ExactFlush { .. } => (vec![F32], F32),
            Self::FlushExtreme { .. } => (vec![F32; 2], F32),
            Self::Divide { division: Division::Exact(_), ty: F64, flush: false } => (vec![F64; 2], F64),
            Self::Divide { ty: F32, .. } => (vec![F32; 2], F32),
            Self::FloatCompare { ty: Type::Bf16 | F64, flush: true, .. } => return None,
            Self::FloatCompare { ty, .. } if ty.is_float() => (vec![ty; 2], Type::Pred),
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
            Self::Pair { .. } => (PAIR.to_vec(), U32),
            Self::Cvt(cvt) if !cvt.exists() => return None,
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
            | Self::Divide { .. }
            | Self::FloatCompare { .. }
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
            Self::Exact { reciprocal: true, .. } | Self::ExactFlush { reciprocal: true, .. } => "rcp",
            Self::Exact { reciprocal: false, .. } | Self::ExactFlush { reciprocal: false, .. } => "sqrt",
            Self::FlushExtreme { max: true, .. } => "max",
            Self::FlushExtreme { max: false, .. } => "min",
            Self::Divide { .. } => "div",
            Self::FloatCompare { .. } => "setp",
            Self::Float { op, .. } | Self::Half { op, .. } => op.name(),
            Self::NanExtreme { max: true } => "max.NaN",
            Self::NanExtreme { max: false } => "min.NaN",
            Self::CopySign(_) => "copysign",
            Self::HalfSign { negate: true, .. } => "neg",
            Self::HalfSign { negate: false, .. } => "abs",
            Self::Pair { op, .. } => op.name(),
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
            Self::ExactFlush { rounding, .. } => write!(f, "{name}.{}.ftz.f32", rounding.suffix()),
            Self::FlushExtreme { nan, .. } => write!(f, "{name}.ftz{}.f32", if nan { ".NaN" } else { "" }),
            Self::Divide { division, ty, flush } => {
                write!(f, "{name}.{}{}.{ty}", division.suffix(), if flush { ".ftz" } else { "" })
            }
            Self::FloatCompare { relation, ty, flush } => {
                write!(f, "{name}.{}{}.{ty}", relation.suffix(), if flush { ".ftz" } else { "" })
            }
            Self::NanExtreme { .. } => write!(f, "{name}.f32"),
            Self::Half { op: FloatOp::Min | FloatOp::Max, ty, nan, .. } => {
                write!(f, "{name}{}.{}", if nan { ".NaN" } else { "" }, ty.suffix())
            }
            Self::Half { ty, relu, .. } => write!(f, "{name}.rn{}.{}", rectified(relu), ty.suffix()),
            Self::HalfSign { ty, .. } => write!(f, "{name}.{}", ty.suffix()),
            Self::Pair { signed, .. } => write!(f, "{name}.{}", if signed { "s16x2" } else { "u16x2" }),
            Self::Cvt(cvt) => cvt.fmt(f),
        }
    }
}

pub(super) const fn rectified(relu: bool) -> &'static str {
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
        if let (AluOp::Cvt(Cvt::Scalar { .. }), [src], [from]) = (self.op, &self.src[..], &sources[..]) {
            return line.set_extended(self.dst, result).read_low(*src, *from);
        }
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
        if matches!(self.op, AluOp::Half { .. } | AluOp::HalfSign { .. } | AluOp::Pair { .. })
            && self.src.iter().any(|source| matches!(source, Operand::Imm(_)))
        {
            return Err(format!(
                "{name} of halves and pairs takes only registers: put a constant into a variable"
            ));
        }
        let (needed, given) = (sources.len(), self.src.len());
        if needed == given { Ok(()) } else { Err(format!("{name} of {given} operands, it has {needed}")) }
    }
}
