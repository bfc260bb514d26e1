//! Builder methods for atomics, and for loads and stores with memory ordering.

use super::{Builder, operands};
use crate::inst::{
    Address, AtomicInst, AtomicOp, AtomicSem, AtomicType, Inst, LoadOrder, Operand, OrderedInst, Reg, Scope,
    StoreOrder,
};
use crate::types::{Scalar, Space, Type};
use crate::value::Value;

/// A location in memory: a state space and an address in it.
#[derive(Clone, Copy, Debug)]
pub struct Location {
    space: Space,
    address: Address,
}

impl Location {
    /// `offset` bytes after an address in global memory.
    pub fn global(address: Value<'_, u64>, offset: i32) -> Self {
        Self { space: Space::Global, address: Address { base: address.operand(), offset } }
    }

    /// `offset` bytes after an address in the CTA's own shared memory.
    pub fn shared(address: Value<'_, u32>, offset: i32) -> Self {
        Self { space: Space::Shared, address: Address { base: address.operand(), offset } }
    }

    /// `offset` bytes after an address in the shared memory of any CTA of the cluster, from
    /// [`Builder::map_shared`].
    pub fn cluster(address: Value<'_, u32>, offset: i32) -> Self {
        Self { space: Space::SharedCluster, address: Address { base: address.operand(), offset } }
    }

    /// The state space.
    pub fn space(self) -> Space {
        self.space
    }

    /// The address.
    pub fn address(self) -> Address {
        self.address
    }
}

/// The atomic type for a scalar. A predicate and a narrow integer have none: they become a `.u32`, and the verifier
/// refuses the operand.
fn atomic_type(ty: Type) -> AtomicType {
    match ty {
        Type::S32 => AtomicType::S32,
        Type::U64 => AtomicType::U64,
        Type::S64 => AtomicType::S64,
        Type::F32 => AtomicType::F32,
        Type::F64 => AtomicType::F64,
        Type::F16 => AtomicType::F16,
        Type::Bf16 => AtomicType::Bf16,
        Type::U32
        | Type::U16
        | Type::S16
        | Type::U8
        | Type::S8
        | Type::Pred
        | Type::B8
        | Type::B16
        | Type::B32
        | Type::B64 => AtomicType::U32,
    }
}

impl Builder {
    /// `atom`: changes a word of memory atomically and returns the old value.
    #[track_caller]
    pub fn atomic<'f, T: Scalar>(
        &'f self,
        op: AtomicOp,
        at: Location,
        value: Value<'f, T>,
        (sem, scope): (AtomicSem, Scope),
    ) -> Value<'f, T> {
        let ty = atomic_type(T::TYPE);
        let Location { space, address } = at;
        let src = vec![value.operand()];
        self.define(|dst| {
            Inst::Atomic(AtomicInst { op, ty, space, sem, scope, dst: vec![dst], address, src, swap: None })
        })
    }

    /// `atom.cas`: stores `new` if the word equals `old`, atomically, and returns the old value.
    #[track_caller]
    pub fn compare_swap<'f, T: Scalar>(
        &'f self,
        at: Location,
        old: Value<'f, T>,
        new: Value<'f, T>,
        (sem, scope): (AtomicSem, Scope),
    ) -> Value<'f, T> {
        let (op, ty) = (AtomicOp::CompareSwap, atomic_type(T::TYPE));
        let Location { space, address } = at;
        let (src, swap) = (vec![old.operand()], Some(new.operand()));
        self.define(|dst| {
            Inst::Atomic(AtomicInst { op, ty, space, sem, scope, dst: vec![dst], address, src, swap })
        })
    }

    /// `red`: changes `N` consecutive words of memory, each atomically. Returns nothing.
    #[track_caller]
    pub fn reduce<'f, T: Scalar, const N: usize>(
        &'f self,
        op: AtomicOp,
        at: Location,
        values: [Value<'f, T>; N],
        order: (AtomicSem, Scope),
    ) {
        self.reduce_as(op, atomic_type(T::TYPE), at, values, order);
    }

    /// As [`reduce`](Self::reduce), with the element type given: [`AtomicType::F16x2`] or
    /// [`AtomicType::Bf16x2`] for packed elements.
    #[track_caller]
    pub fn reduce_as<'f, T: Scalar, const N: usize>(
        &'f self,
        op: AtomicOp,
        ty: AtomicType,
        at: Location,
        values: [Value<'f, T>; N],
        (sem, scope): (AtomicSem, Scope),
    ) {
        let src = operands(values);
        let Location { space, address } = at;
        self.emit(Inst::Atomic(AtomicInst {
            op,
            ty,
            space,
            sem,
            scope,
            dst: Vec::new(),
            address,
            src,
            swap: None,
        }));
    }

    /// `ld` with memory ordering, of `N` (1, 2 or 4) consecutive elements.
    #[track_caller]
    pub fn load_ordered<T: Scalar, const N: usize>(
        &self,
        order: LoadOrder,
        at: Location,
    ) -> [Value<'_, T>; N] {
        let dst: [Reg; N] = core::array::from_fn(|_| self.register(T::TYPE));
        let Location { space, address } = at;
        self.emit(Inst::Ordered(OrderedInst::Load { order, space, ty: T::TYPE, dst: dst.to_vec(), address }));
        dst.map(|reg| Value::new(self, Operand::Reg(reg)))
    }

    /// `st` with memory ordering, of `N` (1, 2 or 4) consecutive elements.
    #[track_caller]
    pub fn store_ordered<'f, T: Scalar, const N: usize>(
        &'f self,
        order: StoreOrder,
        at: Location,
        values: [Value<'f, T>; N],
    ) {
        let src = operands(values);
        let Location { space, address } = at;
        self.emit(Inst::Ordered(OrderedInst::Store { order, space, ty: T::TYPE, src, address }));
    }
}
