//! Builder methods that change tensor maps.

use super::Builder;
use crate::abi::{TensorElement, TensorSwizzle};
use crate::inst::{Address, Inst, MapField, MapInst, Operand, Scope, Special};
use crate::types::{Space, Type};
use crate::value::Value;

/// The address of a tensor map in memory that a kernel can change, a multiple of 128 bytes.
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

/// A field of a tensor map and its new value. Dimensions are numbered from the innermost, 0.
#[derive(Clone, Copy, Debug)]
pub enum MapChange<'f> {
    /// The tensor's global address, a multiple of 16 bytes.
    Address(Value<'f, u64>),
    /// The number of dimensions, 1 to 5.
    Rank(u32),
    /// A dimension, and the extent of the box along it in elements.
    Box(u32, Value<'f, u32>),
    /// A dimension, and the extent of the tensor along it in elements.
    Extent(u32, Value<'f, u32>),
    /// A dimension, 1 to 4, and the tensor's stride along it in bytes, a multiple of 16.
    Stride(u32, Value<'f, u64>),
    /// A dimension, and the traversal stride along it in elements: a copy takes every n-th element.
    ElementStride(u32, Value<'f, u32>),
    /// The element type.
    Element(TensorElement),
    /// The swizzle of the box in shared memory.
    Swizzle(TensorSwizzle),
}

impl Builder {
    /// Copies a tensor map (a parameter, or in global memory) to the CTA's shared memory. The whole warp
    /// copies, 4 bytes per lane. The warp must synchronise before another lane replaces fields of the copy.
    #[track_caller]
    pub fn copy_tensor_map<'f>(&'f self, map: Value<'f, u64>, shared: Value<'f, u32>) {
        let lane = self.special(Special::Lane);
        let address = (map + lane.mul_wide(4)).operand();
        let word = self.load_word(address);
        self.store_shared(shared + lane * 4, 0, [word]);
    }

    /// Loads one 32-bit word of a tensor map (a parameter, or in global memory): lane `i` gets word `i`.
    #[track_caller]
    pub fn tensor_map_word<'f>(&'f self, map: Value<'f, u64>) -> Value<'f, u32> {
        self.load_word((map + self.special(Special::Lane).mul_wide(4)).operand())
    }

    /// The 32 bits at a generic address.
    #[track_caller]
    fn load_word(&self, base: Operand) -> Value<'_, u32> {
        let (space, ty, address) = (Space::Generic, Type::B32, Address { base, offset: 0 });
        self.define(|dst| Inst::Load { space, ty, dst: vec![dst], address })
    }

    /// `tensormap.replace`: replaces a field of a tensor map in memory.
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

    /// `tensormap.cp_fenceproxy`: copies a tensor map from shared to global memory and releases it for a
    /// scope. The whole warp executes it, converged.
    #[track_caller]
    pub fn publish_tensor_map<'f>(&'f self, dst: Value<'f, u64>, src: Value<'f, u32>, scope: Scope) {
        self.emit(Inst::TensorMap(MapInst::Publish { dst: dst.operand(), src: src.operand(), scope }));
    }

    /// Release fence of the tensormap proxy: makes changes of tensor maps that are visible to this thread
    /// usable by threads of the scope, after their acquire.
    #[track_caller]
    pub fn release_tensor_maps(&self, scope: Scope) {
        self.emit(Inst::TensorMap(MapInst::Release { scope }));
    }

    /// Acquire fence of the tensormap proxy: later copies of this thread use the tensor map in global memory
    /// as it was released.
    #[track_caller]
    pub fn acquire_tensor_map<'f>(&'f self, map: Value<'f, u64>, scope: Scope) {
        self.emit(Inst::TensorMap(MapInst::Acquire { map: map.operand(), scope }));
    }
}
