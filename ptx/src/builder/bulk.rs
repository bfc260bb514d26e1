//! Builder methods for bulk copies and asynchronous stores.

use super::{Builder, operands};
use crate::inst::{AtomicOp, AtomicType, Bulk, Inst, Operand, Reduction};
use crate::types::Scalar;
use crate::value::{Source, Value};

/// A bulk copy from global to shared memory.
#[derive(Clone, Copy, Debug)]
pub struct BulkLoad<'f> {
    /// Global address, a multiple of 16 bytes.
    pub src: Value<'f, u64>,
    /// Shared address, a multiple of 16 bytes.
    pub dst: Value<'f, u32>,
    /// Shared address of the mbarrier that counts the bytes (complete-tx).
    pub barrier: Value<'f, u32>,
    /// Mask of the CTA ranks that receive the bytes, one bit per rank. `None` for this CTA only.
    pub multicast: Option<Value<'f, u16>>,
    /// L2 cache policy; `None` for the default.
    pub hint: Option<u64>,
}

impl Builder {
    /// Starts a copy of `bytes` bytes, a multiple of 16, from global to shared memory.
    #[track_caller]
    pub fn bulk_load<'f>(&'f self, load: BulkLoad<'f>, bytes: impl Source<'f, u32>) {
        self.emit(Inst::Bulk(Bulk::Load {
            dst: load.dst.operand(),
            src: load.src.operand(),
            bytes: bytes.operand(),
            barrier: load.barrier.operand(),
            multicast: load.multicast.map(Value::operand),
            hint: load.hint.map(Operand::Imm),
        }));
    }

    /// Starts a copy of `bytes` bytes, a multiple of 16, from shared to global memory. It belongs to this
    /// thread's open bulk group.
    #[track_caller]
    pub fn bulk_store<'f>(&'f self, dst: Value<'f, u64>, src: Value<'f, u32>, bytes: impl Source<'f, u32>) {
        let (dst, src, bytes) = (dst.operand(), src.operand(), bytes.operand());
        self.emit(Inst::Bulk(Bulk::Store { dst, src, bytes, reduce: None, hint: None }));
    }

    /// As [`Builder::bulk_store`], but reduces each element into global memory with `op`.
    #[track_caller]
    pub fn bulk_reduce<'f>(
        &'f self,
        (op, ty): (AtomicOp, AtomicType),
        dst: Value<'f, u64>,
        src: Value<'f, u32>,
        bytes: impl Source<'f, u32>,
    ) {
        let (dst, src, bytes) = (dst.operand(), src.operand(), bytes.operand());
        let reduce = Some(Reduction { op, ty });
        self.emit(Inst::Bulk(Bulk::Store { dst, src, bytes, reduce, hint: None }));
    }

    /// Starts a copy from this CTA's shared memory to that of any CTA of the cluster. The mbarrier, in the
    /// destination CTA, counts the bytes. With `reduce`, elements are reduced into the destination.
    #[track_caller]
    pub fn bulk_share<'f>(
        &'f self,
        (dst, barrier): (Value<'f, u32>, Value<'f, u32>),
        src: Value<'f, u32>,
        bytes: impl Source<'f, u32>,
        reduce: Option<(AtomicOp, AtomicType)>,
    ) {
        let (dst, src, bytes, barrier) = (dst.operand(), src.operand(), bytes.operand(), barrier.operand());
        let reduce = reduce.map(|(op, ty)| Reduction { op, ty });
        self.emit(Inst::Bulk(Bulk::Share { dst, src, bytes, barrier, reduce }));
    }

    /// Prefetches `bytes` bytes, a multiple of 16, to L2.
    #[track_caller]
    pub fn bulk_prefetch<'f>(&'f self, src: Value<'f, u64>, bytes: impl Source<'f, u32>) {
        self.emit(Inst::Bulk(Bulk::Prefetch { src: src.operand(), bytes: bytes.operand() }));
    }

    /// `st.async`: stores `N` (1, 2 or 4) elements to the shared memory of any CTA of the cluster. The
    /// mbarrier, in that CTA, counts the bytes.
    #[track_caller]
    pub fn store_async<'f, T: Scalar, const N: usize>(
        &'f self,
        (dst, barrier): (Value<'f, u32>, Value<'f, u32>),
        values: [Value<'f, T>; N],
    ) {
        let src = operands(values);
        let (dst, barrier) = (dst.operand(), barrier.operand());
        self.emit(Inst::Bulk(Bulk::AsyncStore { ty: T::TYPE, src, dst, barrier }));
    }

    /// `red.async`: reduces a value into the shared memory of any CTA of the cluster. The mbarrier, in that
    /// CTA, counts the bytes.
    #[track_caller]
    pub fn reduce_async<'f, T: Scalar>(
        &'f self,
        (op, ty): (AtomicOp, AtomicType),
        (dst, barrier): (Value<'f, u32>, Value<'f, u32>),
        value: Value<'f, T>,
    ) {
        let (dst, barrier, src) = (dst.operand(), barrier.operand(), value.operand());
        self.emit(Inst::Bulk(Bulk::AsyncReduce { reduce: Reduction { op, ty }, src, dst, barrier }));
    }

    // ---- barriers ----
}
