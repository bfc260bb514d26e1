//! Builder methods for copies through tensor maps.

use super::{Builder, operands};
use crate::inst::{AtomicOp, Inst, Operand};
use crate::value::Value;

/// One tensor copy from global to shared memory.
#[derive(Clone, Copy, Debug)]
pub struct TensorLoad<'f> {
    /// Generic address of the tensor map.
    pub map: Value<'f, u64>,
    /// Shared address of the box.
    pub dst: Value<'f, u32>,
    /// Shared address of the mbarrier that counts the bytes (complete-tx).
    pub barrier: Value<'f, u32>,
    /// Mask of the CTA ranks that receive the box, one bit per rank. `None` for this CTA only.
    pub multicast: Option<Value<'f, u16>>,
    /// L2 cache policy, see [`inst::tma`](crate::inst::tma); `None` for the default.
    pub hint: Option<u64>,
}

impl Builder {
    /// Starts a copy of the box at `coords` (elements, innermost first) into shared memory. Coordinates may
    /// be negative. The first coordinate must be a multiple of 16 bytes, otherwise the hardware traps.
    #[track_caller]
    pub fn tensor_load<'f>(&'f self, load: TensorLoad<'f>, coords: impl IntoIterator<Item = Value<'f, i32>>) {
        self.load_tensor(load, operands(coords), None);
    }

    /// Starts a copy of pixels from the tensor into shared memory. The pixels begin at the base `coords`
    /// (channel, width.., image), moved by the filter offset `offsets` (width..). There are two offsets fewer
    /// than coordinates.
    #[track_caller]
    pub fn im2col_load<'f>(
        &'f self,
        load: TensorLoad<'f>,
        coords: impl IntoIterator<Item = Value<'f, i32>>,
        offsets: impl IntoIterator<Item = Value<'f, u16>>,
    ) {
        self.load_tensor(load, operands(coords), Some(operands(offsets)));
    }

    #[track_caller]
    fn load_tensor(&self, load: TensorLoad<'_>, coords: Vec<Operand>, im2col: Option<Vec<Operand>>) {
        let (map, dst, barrier) = (load.map.operand(), load.dst.operand(), load.barrier.operand());
        let (multicast, hint) = (load.multicast.map(Value::operand), load.hint.map(Operand::Imm));
        self.emit(Inst::TensorLoad { map, coords, im2col, dst, barrier, multicast, hint });
    }

    /// Starts a copy of a box from shared memory to `coords` (elements, innermost first). No coordinate may
    /// be negative, and the first must be a multiple of 16 bytes; otherwise the hardware traps.
    #[track_caller]
    pub fn tensor_store<'f>(
        &'f self,
        map: Value<'f, u64>,
        src: Value<'f, u32>,
        coords: impl IntoIterator<Item = Value<'f, i32>>,
    ) {
        self.store_tensor(None, map, src, operands(coords), false);
    }

    /// Starts the reduction of a box in shared memory into the tensor at `coords` (elements, innermost
    /// first). The rules of [`tensor_store`](Self::tensor_store) apply.
    #[track_caller]
    pub fn tensor_reduce<'f>(
        &'f self,
        op: AtomicOp,
        map: Value<'f, u64>,
        src: Value<'f, u32>,
        coords: impl IntoIterator<Item = Value<'f, i32>>,
    ) {
        self.store_tensor(Some(op), map, src, operands(coords), false);
    }

    /// Starts a copy of pixels from shared memory into the tensor, beginning at the base `coords` (channel,
    /// width.., image). With `reduce`, the pixels are reduced into the tensor.
    ///
    /// The bounding box must be inside the tensor, no coordinate may be negative, and the first coordinate
    /// must be a multiple of 16 bytes; otherwise the hardware traps.
    #[track_caller]
    pub fn im2col_store<'f>(
        &'f self,
        map: Value<'f, u64>,
        src: Value<'f, u32>,
        coords: impl IntoIterator<Item = Value<'f, i32>>,
        reduce: Option<AtomicOp>,
    ) {
        self.store_tensor(reduce, map, src, operands(coords), true);
    }

    #[track_caller]
    fn store_tensor(
        &self,
        reduce: Option<AtomicOp>,
        map: Value<'_, u64>,
        src: Value<'_, u32>,
        coords: Vec<Operand>,
        im2col: bool,
    ) {
        let (map, src) = (map.operand(), src.operand());
        self.emit(Inst::TensorStore { reduce, map, coords, im2col, src, hint: None });
    }

    /// Prefetches the box at `coords` (elements, innermost first) to L2.
    #[track_caller]
    pub fn tensor_prefetch<'f>(
        &'f self,
        map: Value<'f, u64>,
        coords: impl IntoIterator<Item = Value<'f, i32>>,
    ) {
        self.emit(Inst::TensorPrefetch { map: map.operand(), coords: operands(coords), im2col: None });
    }

    /// Prefetches the pixels that [`im2col_load`](Self::im2col_load) would copy to L2.
    #[track_caller]
    pub fn im2col_prefetch<'f>(
        &'f self,
        map: Value<'f, u64>,
        coords: impl IntoIterator<Item = Value<'f, i32>>,
        offsets: impl IntoIterator<Item = Value<'f, u16>>,
    ) {
        let (map, coords, im2col) = (map.operand(), operands(coords), Some(operands(offsets)));
        self.emit(Inst::TensorPrefetch { map, coords, im2col });
    }
}
