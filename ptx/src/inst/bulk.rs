//! Bulk copies without a tensor map, bulk reductions, prefetches, and asynchronous stores to another CTA of
//! the cluster.
//!
//! Source: PTX ISA "cp.async.bulk", "cp.reduce.async.bulk", "cp.async.bulk.prefetch",
//! "cp.reduce.async.bulk.tensor", "cp.async.bulk.prefetch.tensor", "st.async", "red.async". The size and both
//! addresses of a bulk copy are multiples of 16 bytes.
//!
//! ```
//! # let entry = ptx::Entry { name: "example".into(), target: ptx::Target::Sm90a, threads: 128, shared_bytes: 4096, cluster: [1, 1, 1] };
//! let function = ptx::Function::build(entry, |f| {
//!     let (dst, shared) = (f.param::<u64>("out"), f.shared_base());
//!     f.fence_proxy_async(ptx::ProxySpace::Shared);
//!     f.barrier_sync(0, 128);
//!     f.if_(f.special(ptx::Special::ThreadX).equals(0), || {
//!         f.bulk_store(dst, shared, 1024);
//!         f.bulk_commit();
//!         f.bulk_wait(0, true);
//!     });
//! });
//! let text = ptx::module_text(&function.verify()?);
//! assert!(text.contains("cp.async.bulk.global.shared::cta.bulk_group"));
//! # Ok::<(), ptx::VerifyError>(())
//! ```

use super::spell::{BYTES, Line, hinted, multicast, width};
use super::{AtomicOp, AtomicType, Operand};
use crate::types::Type;

/// The reduction of a bulk copy: each element is combined with the destination instead of stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Reduction {
    /// The operation: any except exchange and compare-and-swap.
    pub op: AtomicOp,
    /// The element type.
    pub ty: AtomicType,
}

/// Asynchronous copies without a tensor map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bulk {
    /// `cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes`. ISA "cp.async.bulk".
    Load {
        /// Shared address.
        dst: Operand,
        /// Global address.
        src: Operand,
        /// Number of bytes.
        bytes: Operand,
        /// Shared address of the mbarrier that counts the bytes (complete-tx).
        barrier: Operand,
        /// Mask of the CTA ranks that receive the bytes, one bit per rank; a `.u16`. `None` for this CTA
        /// only.
        multicast: Option<Operand>,
        /// L2 cache policy, a `.u64`; `None` for the default.
        hint: Option<Operand>,
    },
    /// `cp{.reduce}.async.bulk.global.shared::cta.bulk_group`. ISA "cp.async.bulk", "cp.reduce.async.bulk".
    Store {
        /// Global address.
        dst: Operand,
        /// Shared address.
        src: Operand,
        /// Number of bytes.
        bytes: Operand,
        /// The reduction; `None` to store the bytes.
        reduce: Option<Reduction>,
        /// L2 cache policy, a `.u64`; `None` for the default.
        hint: Option<Operand>,
    },
    /// `cp{.reduce}.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes`. ISA
    /// "cp.async.bulk", "cp.reduce.async.bulk".
    Share {
        /// Shared address in any CTA of the cluster.
        dst: Operand,
        /// Shared address in this CTA.
        src: Operand,
        /// Number of bytes.
        bytes: Operand,
        /// Shared address, in the CTA of `dst`, of the mbarrier that counts the bytes (complete-tx).
        barrier: Operand,
        /// The reduction; `None` to store the bytes.
        reduce: Option<Reduction>,
    },
    /// `cp.async.bulk.prefetch.L2.global`. ISA "cp.async.bulk.prefetch".
    Prefetch {
        /// Global address.
        src: Operand,
        /// Number of bytes.
        bytes: Operand,
    },
    /// `st.async.weak.shared::cluster.mbarrier::complete_tx::bytes`. ISA "st.async".
    AsyncStore {
        /// Element type, 32 or 64 bits wide.
        ty: Type,
        /// 1, 2 or 4 operands.
        src: Vec<Operand>,
        /// Shared address in any CTA of the cluster, aligned to the total number of bytes stored.
        dst: Operand,
        /// Shared address, in that CTA, of the mbarrier that counts the bytes (complete-tx).
        barrier: Operand,
    },
    /// `red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes`. ISA "red.async".
    AsyncReduce {
        /// The operation and the type.
        reduce: Reduction,
        /// The operand.
        src: Operand,
        /// Shared address in any CTA of the cluster.
        dst: Operand,
        /// Shared address, in that CTA, of the mbarrier that counts the bytes (complete-tx).
        barrier: Operand,
    },
}

impl Reduction {
    /// Whether a bulk copy to global memory has this reduction.
    pub const fn in_global(self) -> bool {
        use AtomicType::{Bf16, F16, F32, F64, S32, S64, U32, U64};
        match self.op {
            AtomicOp::Add => matches!(self.ty, U32 | S32 | U64 | F16 | Bf16 | F32 | F64),
            AtomicOp::Min | AtomicOp::Max => matches!(self.ty, U32 | S32 | U64 | S64 | F16 | Bf16),
            AtomicOp::Inc | AtomicOp::Dec => matches!(self.ty, U32),
            AtomicOp::And | AtomicOp::Or | AtomicOp::Xor => matches!(self.ty, U32 | U64),
            AtomicOp::Exchange | AtomicOp::CompareSwap => false,
        }
    }

    /// Whether a bulk copy to shared memory has this reduction.
    pub const fn in_shared(self) -> bool {
        use AtomicType::{S32, U32, U64};
        match self.op {
            AtomicOp::Add => matches!(self.ty, U32 | S32 | U64),
            AtomicOp::Min | AtomicOp::Max => matches!(self.ty, U32 | S32),
            AtomicOp::Inc | AtomicOp::Dec | AtomicOp::And | AtomicOp::Or | AtomicOp::Xor => {
                matches!(self.ty, U32)
            }
            AtomicOp::Exchange | AtomicOp::CompareSwap => false,
        }
    }

    /// Whether `red.async` has this reduction.
    pub const fn of_one(self) -> bool {
        self.in_shared() || matches!((self.op, self.ty), (AtomicOp::Add, AtomicType::S64))
    }

    /// PTX's suffix, for example `.add.noftz.bf16`.
    pub fn suffix(self) -> String {
        let half = matches!(self.ty, AtomicType::F16 | AtomicType::Bf16);
        let noftz = if half && matches!(self.op, AtomicOp::Add) { ".noftz" } else { "" };
        format!(".{}{noftz}.{}", self.op.name(), self.op.element(self.ty))
    }
}

impl Bulk {
    pub(super) fn spell<'l>(&self, line: Line<'l>) -> Line<'l> {
        let u32 = Type::U32;
        let reduced = |reduce: &Option<Reduction>| match reduce {
            Some(reduce) => ("cp.reduce.async.bulk", reduce.suffix()),
            None => ("cp.async.bulk", String::new()),
        };
        match self {
            Self::Load { dst, src, bytes, barrier, multicast: mask, hint } => {
                let line = line.op("cp.async.bulk", format_args!(".shared::cluster.global.{BYTES}"));
                let line = line.raw(multicast(*mask)).raw(hinted(*hint)).at(*dst, u32).at(*src, Type::U64);
                line.read(*bytes, u32).at(*barrier, u32).option(*mask, Type::U16).policy(*hint)
            }
            Self::Store { dst, src, bytes, reduce, hint } => {
                let ((name, op), hinted) = (reduced(reduce), hinted(*hint));
                let line = line.op(name, format_args!(".global.shared::cta.bulk_group{hinted}{op}"));
                line.at(*dst, Type::U64).at(*src, u32).read(*bytes, u32).policy(*hint)
            }
            Self::Share { dst, src, bytes, barrier, reduce } => {
                let (name, op) = reduced(reduce);
                let line = line.op(name, format_args!(".shared::cluster.shared::cta.{BYTES}{op}"));
                line.at(*dst, u32).at(*src, u32).read(*bytes, u32).at(*barrier, u32)
            }
            Self::Prefetch { src, bytes } => {
                line.op("cp.async.bulk.prefetch", ".L2.global").at(*src, Type::U64).read(*bytes, u32)
            }
            Self::AsyncStore { ty, src, dst, barrier } => {
                let wide = width(src.len());
                let line = line.op("st.async", format_args!(".weak.shared::cluster.{BYTES}{wide}.{ty}"));
                line.at(*dst, u32).vector(src, *ty).at(*barrier, u32)
            }
            Self::AsyncReduce { reduce, src, dst, barrier } => {
                let op = reduce.suffix();
                let line = line.op("red.async", format_args!(".relaxed.cluster.shared::cluster.{BYTES}{op}"));
                line.at(*dst, u32).read(*src, reduce.ty.register()).at(*barrier, u32)
            }
        }
    }

    /// Checks that the form exists: reduction and sizes. `name` is the instruction's.
    ///
    /// # Errors
    /// The rule that is broken, as a sentence.
    pub(crate) fn check(&self, name: &str) -> Result<(), String> {
        let (exists, what) = match self {
            Self::Store { reduce: Some(reduce), .. } => (reduce.in_global(), reduce.suffix()),
            Self::Share { reduce: Some(reduce), .. } => (reduce.in_shared(), reduce.suffix()),
            Self::AsyncReduce { reduce, .. } => (reduce.of_one(), reduce.suffix()),
            Self::AsyncStore { ty, src, .. } => {
                let count = src.len();
                let bytes = count * ty.bytes() as usize;
                let legal = matches!(count, 1 | 2 | 4) && ty.bits() >= 32 && bytes <= 16;
                (legal, format!(" of {count} x .{ty}"))
            }
            Self::Load { .. } | Self::Store { .. } | Self::Share { .. } | Self::Prefetch { .. } => {
                (true, String::new())
            }
        };
        if !exists {
            return Err(format!("{name}{what} does not exist"));
        }
        match self {
            Self::Load { bytes: Operand::Imm(bytes), .. }
            | Self::Store { bytes: Operand::Imm(bytes), .. }
            | Self::Share { bytes: Operand::Imm(bytes), .. }
            | Self::Prefetch { bytes: Operand::Imm(bytes), .. }
                if !bytes.is_multiple_of(16) =>
            {
                Err(format!("{name} of {bytes} B, not a multiple of 16"))
            }
            Self::Load { .. }
            | Self::Store { .. }
            | Self::Share { .. }
            | Self::Prefetch { .. }
            | Self::AsyncStore { .. }
            | Self::AsyncReduce { .. } => Ok(()),
        }
    }
}
