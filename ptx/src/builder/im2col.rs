//! Builder methods for tensor copies in im2col mode.

use super::Builder;
use crate::asynchronous::TensorLoad;
use crate::inst::{AtomicOp, Bulk, Im2col, Inst};
use crate::value::Value;

impl Builder {
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
        self.emit(Inst::Bulk(Bulk::Im2col(Im2col::Load {
            map: load.map.operand(),
            coords: coords.into_iter().map(Value::operand).collect(),
            offsets: offsets.into_iter().map(Value::operand).collect(),
            dst: load.dst.operand(),
            barrier: load.barrier.operand(),
            multicast: load.multicast.map(Value::operand),
            hint: load.hint,
        })));
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
        let coords = coords.into_iter().map(Value::operand).collect();
        let (map, src) = (map.operand(), src.operand());
        self.emit(Inst::Bulk(Bulk::Im2col(Im2col::Store { reduce, map, coords, src, hint: None })));
    }

    /// Prefetches the pixels that [`im2col_load`](Self::im2col_load) would copy to L2.
    #[track_caller]
    pub fn im2col_prefetch<'f, const D: usize, const O: usize>(
        &'f self,
        map: Value<'f, u64>,
        coords: [Value<'f, i32>; D],
        offsets: [Value<'f, u16>; O],
    ) {
        let coords = coords.iter().map(|coord| coord.operand()).collect();
        let offsets = offsets.iter().map(|offset| offset.operand()).collect();
        let map = map.operand();
        self.emit(Inst::Bulk(Bulk::Im2col(Im2col::Prefetch { map, coords, offsets })));
    }
}
