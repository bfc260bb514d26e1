//! Building changes of tensor maps.

use super::Builder;
use crate::abi::{TensorElement, TensorSwizzle};
use crate::inst::{Inst, MapField, MapInst, Operand, Scope, Special};
use crate::types::Space;
use crate::value::Value;

/// A tensor map in memory that a kernel can change, at a multiple of 128 bytes.
#[derive(Clone, Copy, Debug)]
pub enum MapPlace<'f> {
    /// In the CTA's own shared memory.
    Shared(Value<'f, u32>),
    /// In global memory.
    Global(Value<'f, u64>),
}

impl<'f> From<Value<'f, u32>> for MapPlace<'f> {
    fn from(address: Value<'f, u32>) -> Self {
        Self::Shared(address)
    }
}

impl<'f> From<Value<'f, u64>> for MapPlace<'f> {
    fn from(address: Value<'f, u64>) -> Self {
        Self::Global(address)
    }
}

/// A part of a tensor map and its new value. Dimensions count from the innermost, 0.
#[derive(Clone, Copy, Debug)]
pub enum MapChange<'f> {
    /// The tensor's global address, a multiple of 16 bytes.
    Address(Value<'f, u64>),
    /// The number of dimensions, 1 to 5.
    Rank(u32),
    /// Elements of the box along a dimension.
    Box(u32, Value<'f, u32>),
    /// Elements of the tensor along a dimension.
    Extent(u32, Value<'f, u32>),
    /// Bytes from one element to the next along a dimension 1 to 4, a multiple of 16.
    Stride(u32, Value<'f, u64>),
    /// Every how many elements a copy takes one along a dimension.
    ElementStride(u32, Value<'f, u32>),
    /// The elements' type.
    Element(TensorElement),
    /// The swizzle of the image in shared memory.
    Swizzle(TensorSwizzle),
}

impl Builder {
    /// The warp copies a tensor map (a parameter's address, or one in global memory) to its own shared memory, 4 bytes a
    /// lane. The warp has to synchronise before another lane replaces parts of it.
    #[track_caller]
    pub fn copy_tensor_map<'f>(&'f self, map: Value<'f, u64>, shared: Value<'f, u32>) {
        let lane = self.special(Special::Lane);
        let address = (map + lane.mul_wide(4)).operand();
        let word = self.define::<u32>(|dst| Inst::TensorMap(MapInst::Word { dst, address }));
        self.store_shared(shared + lane * 4, 0, [word]);
    }

    /// The word of a tensor map (a parameter's address, or one in global memory) that has the executing lane's number.
    #[track_caller]
    pub fn tensor_map_word<'f>(&'f self, map: Value<'f, u64>) -> Value<'f, u32> {
        let address = (map + self.special(Special::Lane).mul_wide(4)).operand();
        self.define(|dst| Inst::TensorMap(MapInst::Word { dst, address }))
    }

    /// Replaces a part of a tensor map in memory.
    #[track_caller]
    pub fn replace_tensor_map<'f>(&'f self, map: impl Into<MapPlace<'f>>, change: MapChange<'f>) {
        let (space, map) = match map.into() {
            MapPlace::Shared(address) => (Space::Shared, address.operand()),
            MapPlace::Global(address) => (Space::Global, address.operand()),
        };
        let (field, value) = match change {
            MapChange::Address(address) => (MapField::Address, address.operand()),
            MapChange::Rank(rank) => (MapField::Rank, Operand::Imm(rank.wrapping_sub(1).into())),
            MapChange::Box(dim, extent) => (MapField::Box(dim), extent.operand()),
            MapChange::Extent(dim, extent) => (MapField::Extent(dim), extent.operand()),
            MapChange::Stride(dim, bytes) => (MapField::Stride(dim), bytes.operand()),
            MapChange::ElementStride(dim, stride) => (MapField::ElementStride(dim), stride.operand()),
            MapChange::Element(element) => (MapField::Element(element), Operand::Imm(0)),
            MapChange::Swizzle(swizzle) => (MapField::Swizzle(swizzle), Operand::Imm(0)),
        };
        self.emit(Inst::TensorMap(MapInst::Replace { space, map, field, value }));
    }

    /// The converged warp copies a tensor map from shared to global memory and releases it in a scope.
    #[track_caller]
    pub fn publish_tensor_map<'f>(&'f self, dst: Value<'f, u64>, src: Value<'f, u32>, scope: Scope) {
        self.emit(Inst::TensorMap(MapInst::Publish { dst: dst.operand(), src: src.operand(), scope }));
    }

    /// Releases the tensor maps in global memory that this thread knows to have been changed.
    #[track_caller]
    pub fn release_tensor_maps(&self, scope: Scope) {
        self.emit(Inst::TensorMap(MapInst::Release { scope }));
    }

    /// Lets later copies of this thread use a tensor map in global memory as it was released.
    #[track_caller]
    pub fn acquire_tensor_map<'f>(&'f self, map: Value<'f, u64>, scope: Scope) {
        self.emit(Inst::TensorMap(MapInst::Acquire { map: map.operand(), scope }));
    }
}
