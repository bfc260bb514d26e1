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

use super::operands::Operands;
use super::{AtomicOp, AtomicType, Im2col, Operand};
use crate::types::Type;

/// The reduction of a bulk copy: each element is combined with the destination instead of stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Reduction {
    /// The operation: any except exchange and compare-and-swap.
    pub op: AtomicOp,
    /// The element type.
    pub ty: AtomicType,
}

/// Asynchronous copies other than the loads and stores of tiled tensor maps.
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
        /// L2 cache policy; `None` for the default.
        hint: Option<u64>,
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
        /// L2 cache policy; `None` for the default.
        hint: Option<u64>,
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
    /// `cp.reduce.async.bulk.tensor.<d>d.global.shared::cta.<op>.tile.bulk_group`. The element type is that
    /// of the map. ISA "cp.reduce.async.bulk.tensor".
    TensorReduce {
        /// The operation.
        op: AtomicOp,
        /// Generic address of the tensor map.
        map: Operand,
        /// `.s32` start coordinates in elements, innermost first.
        coords: Vec<Operand>,
        /// Shared address of the box.
        src: Operand,
        /// L2 cache policy; `None` for the default.
        hint: Option<u64>,
    },
    /// `cp.async.bulk.prefetch.tensor.<d>d.L2.global.tile`. ISA "cp.async.bulk.prefetch.tensor".
    TensorPrefetch {
        /// Generic address of the tensor map.
        map: Operand,
        /// `.s32` start coordinates in elements, innermost first.
        coords: Vec<Operand>,
    },
    /// A copy in im2col mode.
    Im2col(Im2col),
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
        let ty = if self.op.is_untyped() {
            format!("b{}", self.ty.bytes() * 8)
        } else {
            self.ty.suffix().to_owned()
        };
        format!(".{}{noftz}.{ty}", self.op.name())
    }
}

impl Bulk {
    pub(super) fn operands(&self) -> Operands {
        let none = Operands::default();
        match self {
            Self::Load { dst, src, bytes, barrier, multicast, .. } => {
                let all = none.read(*src, Type::U64).read_all(&[*dst, *bytes, *barrier], Type::U32);
                multicast.iter().fold(all, |all, &mask| all.read(mask, Type::U16))
            }
            Self::Store { dst, src, bytes, .. } => {
                none.read(*dst, Type::U64).read_all(&[*src, *bytes], Type::U32)
            }
            Self::Share { dst, src, bytes, barrier, .. } => {
                none.read_all(&[*dst, *src, *bytes, *barrier], Type::U32)
            }
            Self::Prefetch { src, bytes } => none.read(*src, Type::U64).read(*bytes, Type::U32),
            Self::TensorReduce { map, coords, src, .. } => {
                none.read(*map, Type::U64).read_all(coords, Type::S32).read(*src, Type::U32)
            }
            Self::TensorPrefetch { map, coords } => none.read(*map, Type::U64).read_all(coords, Type::S32),
            Self::Im2col(im2col) => im2col.operands(),
            Self::AsyncStore { ty, src, dst, barrier } => {
                none.read_all(&[*dst, *barrier], Type::U32).read_all(src, *ty)
            }
            Self::AsyncReduce { reduce, src, dst, barrier } => {
                none.read_all(&[*dst, *barrier], Type::U32).read(*src, reduce.ty.register())
            }
        }
    }

    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::Load { .. } | Self::Store { reduce: None, .. } | Self::Share { reduce: None, .. } => {
                "cp.async.bulk"
            }
            Self::Store { .. } | Self::Share { .. } => "cp.reduce.async.bulk",
            Self::Prefetch { .. } => "cp.async.bulk.prefetch",
            Self::TensorReduce { .. } => "cp.reduce.async.bulk.tensor",
            Self::TensorPrefetch { .. } => "cp.async.bulk.prefetch.tensor",
            Self::Im2col(im2col) => im2col.name(),
            Self::AsyncStore { .. } => "st.async",
            Self::AsyncReduce { .. } => "red.async",
        }
    }

    /// Checks that the form exists: reduction, sizes, rank.
    ///
    /// # Errors
    /// The rule that is broken, as a sentence.
    pub fn check(&self) -> Result<(), String> {
        let (exists, what) = match self {
            Self::Im2col(im2col) => return im2col.check(),
            Self::Store { reduce: Some(reduce), .. } => (reduce.in_global(), reduce.suffix()),
            Self::Share { reduce: Some(reduce), .. } => (reduce.in_shared(), reduce.suffix()),
            Self::AsyncReduce { reduce, .. } => (reduce.of_one(), reduce.suffix()),
            Self::TensorReduce { op, .. } => {
                (!matches!(op, AtomicOp::Exchange | AtomicOp::CompareSwap), format!(".{}", op.name()))
            }
            Self::AsyncStore { ty, src, .. } => {
                let count = src.len();
                let bytes = count * ty.bytes() as usize;
                let legal = matches!(count, 1 | 2 | 4) && ty.bits() >= 32 && bytes <= 16;
                (legal, format!(" of {count} x .{ty}"))
            }
            Self::Load { .. }
            | Self::Store { .. }
            | Self::Share { .. }
            | Self::Prefetch { .. }
            | Self::TensorPrefetch { .. } => (true, String::new()),
        };
        if !exists {
            return Err(format!("{}{what} does not exist", self.name()));
        }
        let (Self::TensorReduce { coords, .. } | Self::TensorPrefetch { coords, .. }) = self else {
            let sizes = match self {
                Self::Load { bytes, .. }
                | Self::Store { bytes, .. }
                | Self::Share { bytes, .. }
                | Self::Prefetch { bytes, .. } => Some(bytes),
                Self::TensorReduce { .. }
                | Self::TensorPrefetch { .. }
                | Self::Im2col(_)
                | Self::AsyncStore { .. }
                | Self::AsyncReduce { .. } => None,
            };
            return match sizes {
                Some(Operand::Imm(bytes)) if !bytes.is_multiple_of(16) => {
                    Err(format!("{} of {bytes} B, not a multiple of 16", self.name()))
                }
                _ => Ok(()),
            };
        };
        match coords.len() {
            1..=5 => Ok(()),
            rank => Err(format!("{} of {rank} dimensions, not 1..=5", self.name())),
        }
    }
}
