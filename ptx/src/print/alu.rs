//! Prints arithmetic beyond the plain operators.

use super::Printer;
use crate::inst::{Alu, AluOp, BitOp, Cvt, FloatOp, Rounding};
use crate::types::Type;

fn fp8(e5m2: bool) -> &'static str {
    if e5m2 { "e5m2x2" } else { "e4m3x2" }
}

fn relu(on: bool) -> &'static str {
    if on { ".relu" } else { "" }
}

/// The suffix of rounding to integral values.
fn whole(rounding: Rounding) -> String {
    format!("{}i", rounding.suffix())
}

fn cvt(cvt: Cvt) -> String {
    match cvt {
        Cvt::PackFp8 { e5m2, relu: on } => format!("cvt.rn.satfinite{}.{}.f32", relu(on), fp8(e5m2)),
        Cvt::NarrowFp8 { e5m2, relu: on } => format!("cvt.rn.satfinite{}.{}.f16x2", relu(on), fp8(e5m2)),
        Cvt::WidenFp8 { e5m2, relu: on } => format!("cvt.rn{}.f16x2.{}", relu(on), fp8(e5m2)),
        Cvt::PackHalf { bf16, toward_zero, relu: on } => {
            let rounding = if toward_zero { "rz" } else { "rn" };
            format!("cvt.{rounding}{}.{}.f32", relu(on), if bf16 { "bf16x2" } else { "f16x2" })
        }
        Cvt::Tf32 => "cvt.rna.tf32.f32".to_owned(),
        Cvt::Integral(rounding) => format!("cvt.{}.f32.f32", whole(rounding)),
        Cvt::ToSigned(rounding) => format!("cvt.{}.s32.f32", whole(rounding)),
        Cvt::ToUnsigned(rounding) => format!("cvt.{}.u32.f32", whole(rounding)),
        Cvt::PackInt8 { signed } => format!("cvt.pack.sat.{}.s32.b32", if signed { "s8" } else { "u8" }),
    }
}

fn spelled(op: AluOp) -> String {
    let name = op.name();
    match op {
        AluOp::Bits(BitOp::Population | BitOp::LeadingZeros | BitOp::Reverse, ty) => {
            format!("{name}.b{}", ty.bits())
        }
        AluOp::Permute | AluOp::FindNth | AluOp::Logic3(_) => format!("{name}.b32"),
        AluOp::Funnel { left, wrap } => {
            format!("shf.{}.{}.b32", if left { "l" } else { "r" }, if wrap { "wrap" } else { "clamp" })
        }
        AluOp::Insert(ty) => format!("bfi.b{}", ty.bits()),
        AluOp::Extract(ty)
        | AluOp::MulWide(ty)
        | AluOp::MadWide(ty)
        | AluOp::MadHigh(ty)
        | AluOp::CopySign(ty) => {
            format!("{name}.{ty}")
        }
        AluOp::Approx(_) => format!("{name}.approx.f32"),
        AluOp::ApproxFlush(_) => format!("{name}.approx.ftz.f32"),
        // Only `ex2.approx` of `.bf16` needs an explicit `.ftz`.
        AluOp::ApproxHalf(_, ty) => {
            let brain = matches!(ty.suffix(), "bf16" | "bf16x2") && name == "ex2";
            format!("{name}.approx{}.{}", if brain { ".ftz" } else { "" }, ty.suffix())
        }
        AluOp::Exact { ty, rounding, .. } => format!("{name}.{}.{ty}", rounding.suffix()),
        AluOp::Float { ty, rounding, flush, saturate, .. } => {
            let (flush, saturate) = (if flush { ".ftz" } else { "" }, if saturate { ".sat" } else { "" });
            format!("{name}.{}{flush}{saturate}.{ty}", rounding.suffix())
        }
        AluOp::NanExtreme { .. } => format!("{name}.f32"),
        AluOp::Half { op: FloatOp::Min | FloatOp::Max, ty, nan, .. } => {
            format!("{name}{}.{}", if nan { ".NaN" } else { "" }, ty.suffix())
        }
        AluOp::Half {
            op: FloatOp::Add | FloatOp::Sub | FloatOp::Mul | FloatOp::Fma, ty, relu: on, ..
        } => {
            format!("{name}.rn{}.{}", relu(on), ty.suffix())
        }
        AluOp::HalfSign { ty, .. } => format!("{name}.{}", ty.suffix()),
        AluOp::Cvt(form) => cvt(form),
    }
}

impl Printer<'_> {
    pub(super) fn alu(&self, alu: &Alu) -> String {
        let types = alu.op.types().map_or_else(Vec::new, |(sources, _)| sources);
        let sources: Vec<String> = alu
            .src
            .iter()
            .zip(types.iter().chain(core::iter::repeat(&Type::U32)))
            .map(|(&src, &ty)| self.op(src, ty))
            .collect();
        let table = if let AluOp::Logic3(table) = alu.op { format!(", {table:#04x}") } else { String::new() };
        format!("{} {}, {}{table};", spelled(alu.op), self.name(alu.dst), sources.join(", "))
    }
}
