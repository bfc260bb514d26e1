//! Building atomics, and loads and stores with an order.

use super::Builder;
use crate::inst::{
    Address, Atomic, AtomicOp, AtomicSem, AtomicType, Inst, LoadOrder, Operand, Ordered, Reg, Scope,
    StoreOrder,
};
use crate::types::{Scalar, Space, Type};
use crate::value::Value;

/// A place in memory: a state space and an address in it.
#[derive(Clone, Copy, Debug)]
pub struct Location {
    space: Space,
    address: Address,
}

impl Location {
    /// `offset` bytes behind an address in global memory.
    pub fn global(address: Value<'_, u64>, offset: i32) -> Self {
        Self { space: Space::Global, address: Address { base: address.operand(), offset } }
    }

    /// `offset` bytes behind an address in the own CTA's shared memory.
    pub fn shared(address: Value<'_, u32>, offset: i32) -> Self {
        Self { space: Space::Shared, address: Address { base: address.operand(), offset } }
    }

    /// `offset` bytes behind an address in the shared memory of a CTA of the cluster, as
    /// [`Builder::map_shared`] gives it.
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

/// The atomic type whose elements a scalar holds; a predicate holds none and is taken for its bits, which the
/// verifier refuses.
fn atomic_type(ty: Type) -> AtomicType {
    match ty {
        Type::S32 => AtomicType::S32,
        Type::U64 => AtomicType::U64,
        Type::S64 => AtomicType::S64,
        Type::F32 => AtomicType::F32,
        Type::F64 => AtomicType::F64,
        Type::F16 => AtomicType::F16,
        Type::Bf16 => AtomicType::Bf16,
        Type::U32 | Type::U16 | Type::U8 | Type::Pred => AtomicType::U32,
    }
}

impl Builder {
    /// `atom`: changes a word of memory in one step and returns what it was.
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
            Inst::Atomic(Atomic { op, ty, space, sem, scope, dst: vec![dst], address, src, swap: None })
        })
    }

    /// `atom.cas`: stores `new` where the word is `old`, in one step, and returns what it was.
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
            Inst::Atomic(Atomic { op, ty, space, sem, scope, dst: vec![dst], address, src, swap })
        })
    }

    /// `red`: changes `N` neighbouring words of memory, each in one step.
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

    /// `red` of packed elements, as [`AtomicType::F16x2`] or [`AtomicType::Bf16x2`].
    #[track_caller]
    pub fn reduce_as<'f, T: Scalar, const N: usize>(
        &'f self,
        op: AtomicOp,
        ty: AtomicType,
        at: Location,
        values: [Value<'f, T>; N],
        (sem, scope): (AtomicSem, Scope),
    ) {
        let src: Vec<Operand> = values.iter().map(|value| value.operand()).collect();
        let Location { space, address } = at;
        self.emit(Inst::Atomic(Atomic {
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

    /// `ld` with an order: `N` (1, 2 or 4) consecutive elements.
    #[track_caller]
    pub fn load_ordered<T: Scalar, const N: usize>(
        &self,
        order: LoadOrder,
        at: Location,
    ) -> [Value<'_, T>; N] {
        let dst: [Reg; N] = core::array::from_fn(|_| self.register(T::TYPE));
        let Location { space, address } = at;
        self.emit(Inst::Ordered(Ordered::Load { order, space, ty: T::TYPE, dst: dst.to_vec(), address }));
        dst.map(|reg| Value::new(self, Operand::Reg(reg)))
    }

    /// `st` with an order: `N` (1, 2 or 4) consecutive elements.
    #[track_caller]
    pub fn store_ordered<'f, T: Scalar, const N: usize>(
        &'f self,
        order: StoreOrder,
        at: Location,
        values: [Value<'f, T>; N],
    ) {
        let src = values.iter().map(|value| value.operand()).collect();
        let Location { space, address } = at;
        self.emit(Inst::Ordered(Ordered::Store { order, space, ty: T::TYPE, src, address }));
    }
}
