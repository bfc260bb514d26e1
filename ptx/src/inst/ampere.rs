//! The copies and matrix instructions of Ampere: `cp.async`, `ldmatrix`, `mma.sync`.
//!
//! Source: PTX ISA "cp.async", "ldmatrix", "mma".
//!
//! ```
//! # let entry = ptx::Entry { name: "example".into(), target: ptx::Target::Sm90a, threads: 128, shared_bytes: 4096, cluster: [1, 1, 1] };
//! let function = ptx::Function::build(entry, |f| {
//!     let (shared, src) = (f.shared_base(), f.param::<u64>("source"));
//!     // 16 bytes by each thread, which waits for its own.
//!     let own = f.special(ptx::Special::ThreadX) * 16;
//!     f.copy_async(16, shared + own, (src + own.mul_wide(1), 0), None);
//!     f.copy_commit();
//!     f.copy_wait(0);
//!     f.barrier_sync(0, 128);
//! });
//! let text = ptx::module_text(&function.verify()?);
//! assert!(text.contains("cp.async.cg.shared"));
//! assert!(text.contains("cp.async.wait_group"));
//! # Ok::<(), ptx::VerifyError>(())
//! ```

use super::spell::Line;
use super::{Address, Expect, Operand, Reg};
use crate::types::{Space, Type};

/// `cp.async` and its commit, wait and arrive operations. A thread starts copies and waits for them itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CopyAsync {
    /// `cp.async.{ca|cg}.shared::cta.global`. ISA "cp.async".
    Copy {
        /// Size in bytes: 4, 8 or 16; with `past_l1` only 16.
        bytes: u32,
        /// `.cg`: cached in L2 only, not in L1.
        past_l1: bool,
        /// Shared address, a multiple of `bytes`.
        dst: Operand,
        /// Global address, a multiple of `bytes`.
        src: Address,
        /// The number of bytes that are read, at most `bytes`; the others become zeros. `None` for all.
        size: Option<Operand>,
    },
    /// `cp.async.commit_group`. ISA "cp.async.commit_group".
    Commit,
    /// `cp.async.wait_group`. ISA "cp.async.wait_group".
    Wait {
        /// The number of the most recent groups that may stay pending.
        pending: u32,
    },
    /// `cp.async.wait_all`. ISA "cp.async.wait_all".
    WaitAll,
    /// `cp.async.mbarrier.arrive{.noinc}.shared::cta.b64`: an arrival when all earlier `cp.async` of the
    /// thread are complete. ISA "cp.async.mbarrier.arrive".
    Arrive {
        /// Shared address of the mbarrier.
        barrier: Operand,
        /// `.noinc`: whether the barrier's expected count includes this arrival. Otherwise the pending count
        /// of this phase is incremented for it.
        counted: bool,
    },
}

impl CopyAsync {
    pub(super) fn spell<'l>(&self, line: Line<'l>) -> Line<'l> {
        match self {
            Self::Copy { bytes, past_l1, dst, src, size } => {
                let cache = if *past_l1 { "cg" } else { "ca" };
                let line = line.op("cp.async", format_args!(".{cache}.shared::cta.global"));
                let line = line.at(*dst, Type::U32).address(*src, Space::Global);
                line.also(bytes).option(*size, Type::U32)
            }
            Self::Commit => line.op("cp.async.commit_group", ""),
            Self::Wait { pending } => line.op("cp.async.wait_group", "").also(pending),
            Self::WaitAll => line.op("cp.async.wait_all", ""),
            Self::Arrive { barrier, counted } => {
                let noinc = if *counted { ".noinc" } else { "" };
                let line = line.op("cp.async.mbarrier.arrive", noinc).raw(".shared::cta.b64");
                line.at(*barrier, Type::U32)
            }
        }
    }

    /// Checks the sizes of a copy.
    ///
    /// # Errors
    /// The rule that is broken, as a sentence.
    pub fn check(&self) -> Result<(), String> {
        match self {
            Self::Copy { bytes, past_l1, .. }
                if !matches!(bytes, 4 | 8 | 16) || (*past_l1 && *bytes != 16) =>
            {
                Err(format!("cp.async of {bytes} B: 4, 8 or 16 B are possible, and past L1 only 16 B"))
            }
            Self::Copy { size: Some(Operand::Imm(size)), bytes, .. } if *size > u64::from(*bytes) => {
                Err(format!("cp.async reads {size} of {bytes} B"))
            }
            Self::Copy { .. } | Self::Commit | Self::Wait { .. } | Self::WaitAll | Self::Arrive { .. } => {
                Ok(())
            }
        }
    }
}

/// Element types of `mma.sync`: of A and B, then of the accumulators.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MmaTypes {
    /// `m16n8k16.f32.bf16.bf16.f32`.
    Bf16F32,
    /// `m16n8k16.f32.f16.f16.f32`.
    F16F32,
    /// `m16n8k16.f16.f16.f16.f16`.
    F16F16,
    /// `m16n8k8.f32.tf32.tf32.f32`; the low 13 bits of an operand are ignored.
    Tf32F32,
    /// `m16n8k32.s32` of 8-bit integers.
    Int8 {
        /// Whether A is `.s8`; otherwise `.u8`.
        signed_a: bool,
        /// Whether B is `.s8`; otherwise `.u8`.
        signed_b: bool,
        /// Whether accumulators saturate (`.satfinite`); otherwise they wrap.
        saturate: bool,
    },
    /// `m16n8k8.f64.f64.f64.f64`, from sm_90 on.
    F64,
}

impl MmaTypes {
    /// K of one instruction; M is 16 and N is 8.
    pub const fn k(self) -> u32 {
        match self {
            Self::Bf16F32 | Self::F16F32 | Self::F16F16 => 16,
            Self::Tf32F32 | Self::F64 => 8,
            Self::Int8 { .. } => 32,
        }
    }

    /// The register type of A and B. A thread has four registers of A and two of B.
    pub const fn operand(self) -> Type {
        match self {
            Self::F64 => Type::F64,
            Self::Bf16F32 | Self::F16F32 | Self::F16F16 | Self::Tf32F32 | Self::Int8 { .. } => Type::U32,
        }
    }

    /// The register type of the accumulators, and their number per thread.
    pub const fn accumulators(self) -> (Type, usize) {
        match self {
            Self::Bf16F32 | Self::F16F32 | Self::Tf32F32 => (Type::F32, 4),
            Self::F16F16 => (Type::U32, 2),
            Self::Int8 { .. } => (Type::S32, 4),
            Self::F64 => (Type::F64, 4),
        }
    }

    /// The types of D, A, B and C as PTX writes them.
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::Bf16F32 => "f32.bf16.bf16.f32",
            Self::F16F32 => "f32.f16.f16.f32",
            Self::F16F16 => "f16.f16.f16.f16",
            Self::Tf32F32 => "f32.tf32.tf32.f32",
            Self::F64 => "f64.f64.f64.f64",
            Self::Int8 { signed_a: true, signed_b: true, .. } => "s32.s8.s8.s32",
            Self::Int8 { signed_a: true, signed_b: false, .. } => "s32.s8.u8.s32",
            Self::Int8 { signed_a: false, signed_b: true, .. } => "s32.u8.s8.s32",
            Self::Int8 { signed_a: false, signed_b: false, .. } => "s32.u8.u8.s32",
        }
    }
}

/// Matrix instructions of one warp: `ldmatrix` and `mma.sync`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WarpMatrix {
    /// `ldmatrix.sync.aligned.m8n8.x{1,2,4}{.trans}.shared::cta.b16`. ISA "ldmatrix".
    Load {
        /// 1, 2 or 4 registers of two 16-bit elements.
        dst: Vec<Reg>,
        /// Shared address of this lane's 16-byte row.
        address: Operand,
        /// Whether to load each matrix transposed.
        transpose: bool,
    },
    /// `mma.sync.aligned.m16n8kK.row.col`: `D = A * B + C`. ISA "mma".
    Multiply {
        /// Element types; they determine K.
        types: MmaTypes,
        /// Receives the result.
        d: Vec<Reg>,
        /// Four registers of A, of 32 bits each, or 64 for `f64`.
        a: [Operand; 4],
        /// Two registers of B.
        b: [Operand; 2],
        /// The addend.
        c: Vec<Operand>,
    },
}

impl WarpMatrix {
    pub(super) fn spell<'l>(&self, line: Line<'l>) -> Line<'l> {
        match self {
            Self::Load { dst, address, transpose } => {
                let (count, transpose) = (dst.len(), if *transpose { ".trans" } else { "" });
                let line = line.op("ldmatrix", format_args!(".sync.aligned.m8n8.x{count}{transpose}"));
                let line = line.raw(".shared::cta.b16").set_group(dst, Expect::Type(Type::U32));
                line.at(*address, Type::U32)
            }
            Self::Multiply { types, d, a, b, c } => {
                let ((ty, _), of) = (types.accumulators(), types.operand());
                let saturate = matches!(types, MmaTypes::Int8 { saturate: true, .. });
                let saturate = if saturate { ".satfinite" } else { "" };
                let (k, suffix) = (types.k(), types.suffix());
                let line = line.op("mma.sync", format_args!(".aligned.m16n8k{k}.row.col{saturate}.{suffix}"));
                line.set_group(d, Expect::Type(ty)).group(a, of).group(b, of).group(c, ty)
            }
        }
    }

    /// Checks the number of registers.
    ///
    /// # Errors
    /// The rule that is broken, as a sentence.
    pub fn check(&self) -> Result<(), String> {
        match self {
            Self::Load { dst, .. } if !matches!(dst.len(), 1 | 2 | 4) => {
                Err(format!("ldmatrix of {} matrices, not 1, 2 or 4", dst.len()))
            }
            Self::Multiply { types, d, c, .. } => {
                let (_, needed) = types.accumulators();
                if d.len() == needed && c.len() == needed {
                    return Ok(());
                }
                let (d, c) = (d.len(), c.len());
                Err(format!("mma .{} with {d} results and {c} addends, each has {needed}", types.suffix()))
            }
            Self::Load { .. } => Ok(()),
        }
    }
}
