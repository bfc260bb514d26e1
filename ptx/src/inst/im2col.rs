//! Tensor copies in im2col mode.
//!
//! Source: PTX ISA "cp.async.bulk.tensor", "cp.reduce.async.bulk.tensor", "cp.async.bulk.prefetch.tensor" and
//! 5.5 "Tensors". The coordinates (channel; width, height, depth; image) are the base of a filter, inside the
//! map's bounding box. A load adds a filter offset (width, height, depth) to the base; a store has no offset.
//!
//! ```
//! # let entry = ptx::Entry { name: "example".into(), target: ptx::Target::Sm90a, threads: 128, shared_bytes: 4096, cluster: [1, 1, 1] };
//! let function = ptx::Function::build(entry, |f| {
//!     let (map, shared) = (f.tensor_map("image"), f.shared_base());
//!     let (dst, barrier) = (shared, shared + 2048);
//!     let load = ptx::TensorLoad { map, dst, barrier, multicast: None, hint: None };
//!     f.if_(f.special(ptx::Special::ThreadX).equals(0), || {
//!         f.mbarrier_init(barrier, 1);
//!         f.mbarrier_arrive_expect(barrier, 1024);
//!         // From channel 0, at column 3 and row 5 of image 1; the filter's second column.
//!         let base = [0, 3, 5, 1].map(|coordinate: i32| f.constant(coordinate));
//!         f.im2col_load(load, base, [1, 0].map(|offset: u16| f.constant(offset)));
//!     });
//! });
//! let text = ptx::module_text(&function.verify()?);
//! assert!(text.contains(".im2col."));
//! # Ok::<(), ptx::VerifyError>(())
//! ```

use super::operands::Operands;
use super::{AtomicOp, Operand};
use crate::types::Type;

/// A copy through an im2col tensor map, of rank 3 to 5.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Im2col {
    /// `cp.async.bulk.tensor.<d>d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes`.
    Load {
        /// Generic address of the tensor map.
        map: Operand,
        /// `.s32` coordinates of the base.
        coords: Vec<Operand>,
        /// `.u16` filter offsets, two fewer than coordinates.
        offsets: Vec<Operand>,
        /// Shared address of the copy.
        dst: Operand,
        /// Shared address of the mbarrier that counts the bytes (complete-tx).
        barrier: Operand,
        /// Mask of the CTA ranks that receive the bytes, one bit per rank; a `.u16`. `None` for this CTA
        /// only.
        multicast: Option<Operand>,
        /// L2 cache policy; `None` for the default.
        hint: Option<u64>,
    },
    /// `cp{.reduce}.async.bulk.tensor.<d>d.global.shared::cta{.<op>}.im2col_no_offs.bulk_group`.
    Store {
        /// The reduction; `None` to store the elements.
        reduce: Option<AtomicOp>,
        /// Generic address of the tensor map.
        map: Operand,
        /// `.s32` coordinates of the base.
        coords: Vec<Operand>,
        /// Shared address of the source.
        src: Operand,
        /// L2 cache policy; `None` for the default.
        hint: Option<u64>,
    },
    /// `cp.async.bulk.prefetch.tensor.<d>d.L2.global.im2col`.
    Prefetch {
        /// Generic address of the tensor map.
        map: Operand,
        /// `.s32` coordinates of the base.
        coords: Vec<Operand>,
        /// `.u16` filter offsets, two fewer than coordinates.
        offsets: Vec<Operand>,
    },
}

impl Im2col {
    pub(super) fn operands(&self) -> Operands {
        let none = Operands::default();
        match self {
            Self::Load { map, coords, offsets, dst, barrier, multicast, .. } => {
                let all = none.read(*map, Type::U64).read_all(coords, Type::S32).read_all(offsets, Type::U16);
                let all = all.read_all(&[*dst, *barrier], Type::U32);
                multicast.iter().fold(all, |all, &mask| all.read(mask, Type::U16))
            }
            Self::Store { map, coords, src, .. } => {
                none.read(*map, Type::U64).read_all(coords, Type::S32).read(*src, Type::U32)
            }
            Self::Prefetch { map, coords, offsets } => {
                none.read(*map, Type::U64).read_all(coords, Type::S32).read_all(offsets, Type::U16)
            }
        }
    }

    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::Load { .. } | Self::Store { reduce: None, .. } => "cp.async.bulk.tensor",
            Self::Store { .. } => "cp.reduce.async.bulk.tensor",
            Self::Prefetch { .. } => "cp.async.bulk.prefetch.tensor",
        }
    }

    /// Checks the rank, the number of offsets and the reduction.
    ///
    /// # Errors
    /// The rule that is broken, as a sentence.
    pub fn check(&self) -> Result<(), String> {
        let (coords, offsets) = match self {
            Self::Load { coords, offsets, .. } | Self::Prefetch { coords, offsets, .. } => {
                (coords, Some(offsets))
            }
            Self::Store { coords, .. } => (coords, None),
        };
        let (name, rank) = (self.name(), coords.len());
        if !(3..=5).contains(&rank) {
            return Err(format!("{name} in im2col mode of {rank} dimensions, not 3..=5"));
        }
        if let Self::Store { reduce: Some(AtomicOp::Exchange | AtomicOp::CompareSwap), .. } = self {
            return Err(format!("{name} in im2col mode of an exchange"));
        }
        match offsets.map(Vec::len) {
            Some(count) if count + 2 != rank => Err(format!(
                "{name} in im2col mode of {rank} dimensions with {count} offsets, not {}",
                rank - 2
            )),
            _ => Ok(()),
        }
    }
}
