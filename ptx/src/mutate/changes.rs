//! The table of changes per instruction. Add the mutants of a new instruction here.

use crate::inst::barrier::EVERYONE;
use crate::inst::{
    Arrival, AtomicInst, AtomicSem, AtomicType, BarrierReduce, BinaryOp, Bulk, CopyAsync, Inst, LoadOrder,
    MapInst, MbarrierArrive, MbarrierOrder, MbarrierPhase, MbarrierTest, Operand, OrderedInst, Reg, Scope,
    StoreOrder,
};
use crate::types::Type;

use super::Change;

const fn plus(name: &'static str, by: u32) -> Change {
    Change::Operand { name, op: BinaryOp::Add, by }
}

const fn minus(name: &'static str, by: u32) -> Change {
    Change::Operand { name, op: BinaryOp::Sub, by }
}

const fn grow(name: &'static str, by: i32) -> Change {
    Change::Field { name, by }
}

const FLIP: Change = Change::Operand { name: "parity", op: BinaryOp::Xor, by: 1 };
/// The barrier in the next 8 bytes: usually the next one of the ring.
const NEIGHBOUR: Change = plus("barrier", 8);
/// Another CTA of the cluster.
const OTHER_RANK: Change = Change::Operand { name: "rank", op: BinaryOp::Xor, by: 1 };
/// Adds the first CTA of the cluster to the receivers, or removes it.
const OTHER_MASK: Change = Change::Operand { name: "mask", op: BinaryOp::Xor, by: 1 };
const COUNTED: &[Change] = &[Change::Delete, plus("count", 1), minus("count", 1)];
const ANNOUNCED: &[Change] = &[
    Change::Delete,
    plus("bytes", 16),
    minus("bytes", 16),
    Change::Operand { name: "bytes", op: BinaryOp::Mul, by: 2 },
];
const RECOUNTED: &[Change] = &[plus("count", 1), minus("count", 1)];
const RESIZED: &[Change] = &[plus("bytes", 16), minus("bytes", 16)];
const RENAMED: &[Change] = &[plus("id", 1), grow("threads", 32), grow("threads", -32)];
const WAITED: &[Change] = &[Change::Delete, FLIP];
const NAMED: &[Change] = &[Change::Delete, plus("id", 1), grow("threads", 32), grow("threads", -32)];
const OTHER_BARRIER: &[Change] = &[plus("id", 1)];
const NUMBERED: &[Change] = &[Change::Delete, plus("id", 1)];
const PENDING: &[Change] = &[Change::Delete, grow("pending", 1), grow("pending", -1)];
const LAST: &[Change] = &[Change::Delete, grow("pending", 1)];
const END: &[Change] = &[plus("end", 1), minus("end", 1)];
const BUDGET: &[Change] = &[Change::Delete, grow("count", 8), grow("count", -8)];

/// The ways to break an instruction's synchronisation. Empty if it does not synchronise.
#[expect(clippy::wildcard_enum_match_arm, reason = "the table of the others is complete")]
pub(super) fn of(inst: &Inst) -> Vec<Change> {
    match inst {
        Inst::Atomic(atomic) => of_atomic(atomic),
        Inst::Ordered(ordered) => of_ordered(ordered),
        inst => {
            let order = order(inst);
            let weakened = those(&[
                (order.is_some_and(MbarrierOrder::synchronises), Change::Relax),
                (order.is_some_and(|order| order.scope() != Scope::Cta), Change::Narrow),
                (names_barrier(inst), NEIGHBOUR),
                (receivers(inst).is_some(), OTHER_MASK),
            ]);
            [of_fixed(inst), &weakened].concat()
        }
    }
}

/// The memory ordering of an arrival at an mbarrier or of a wait for it.
fn order(inst: &Inst) -> Option<MbarrierOrder> {
    let mut copy = inst.clone();
    order_mut(&mut copy).map(|order| *order)
}

#[expect(clippy::wildcard_enum_match_arm, reason = "no other instruction orders by an mbarrier")]
fn order_mut(inst: &mut Inst) -> Option<&mut MbarrierOrder> {
    match inst {
        Inst::MbarrierArrive(MbarrierArrive { arrival: Arrival::NoComplete(_), .. }) => None,
        Inst::MbarrierArrive(MbarrierArrive { order, .. })
        | Inst::MbarrierTest(MbarrierTest { order, .. })
        | Inst::MbarrierWait { order, .. } => Some(order),
        _ => None,
    }
}

/// Whether the instruction names an mbarrier to arrive at, to wait for, or to count the bytes of a copy.
fn names_barrier(inst: &Inst) -> bool {
    matches!(
        inst,
        Inst::MbarrierArrive(_)
            | Inst::MbarrierTransact { .. }
            | Inst::MbarrierTest(MbarrierTest { phase: MbarrierPhase::Parity(_), patient: true, .. })
            | Inst::MbarrierWait { .. }
            | Inst::TensorLoad { .. }
            | Inst::Bulk(Bulk::Load { .. })
    )
}

/// The mask of the CTAs that receive a copy.
#[expect(clippy::wildcard_enum_match_arm, reason = "no other copy has receivers")]
fn receivers(inst: &Inst) -> Option<Operand> {
    match inst {
        Inst::TensorLoad { multicast, .. } | Inst::Bulk(Bulk::Load { multicast, .. }) => *multicast,
        _ => None,
    }
}

/// Whether the instruction synchronises, defines no value and starts no work: then it can be moved.
pub(super) fn is_step(inst: &Inst) -> bool {
    let gives = matches!(
        inst,
        Inst::MbarrierTest(_)
            | Inst::MbarrierArrive(MbarrierArrive { state: Some(_), .. })
            | Inst::MbarrierPending { .. }
            | Inst::BarrierReduce(_)
            | Inst::MapShared { .. }
    ) || matches!(inst, Inst::Atomic(AtomicInst { dst, .. }) if !dst.is_empty())
        || matches!(inst, Inst::Ordered(OrderedInst::Load { .. }));
    !gives && !starts_work(inst) && !of(inst).is_empty()
}

/// Whether an instruction only computes in registers.
pub fn computes(inst: &Inst) -> bool {
    matches!(
        inst,
        Inst::Move { .. }
            | Inst::Binary { .. }
            | Inst::MulAdd { .. }
            | Inst::MulWide { .. }
            | Inst::Unary { .. }
            | Inst::Compare { .. }
            | Inst::Select { .. }
            | Inst::Convert { .. }
            | Inst::ReadSpecial { .. }
            | Inst::MapShared { .. }
            | Inst::SharedBase { .. }
            | Inst::LocalBase { .. }
            | Inst::ConvertAddress { .. }
    )
}

/// Whether a thread waits by the instruction for what others do, and each lane of a warp by itself.
pub(super) fn waits(inst: &Inst) -> bool {
    success(inst).is_some() || matches!(inst, Inst::MbarrierWait { .. } | Inst::GridDependency { wait: true })
}

/// The predicate that says whether a wait that may fail has succeeded.
#[expect(clippy::wildcard_enum_match_arm, reason = "no other wait may fail")]
pub(super) fn success(inst: &Inst) -> Option<Reg> {
    match inst {
        Inst::MbarrierTest(MbarrierTest { dst, .. }) => Some(*dst),
        _ => None,
    }
}

/// The ways to break an instruction that do not depend on its operands.
fn of_fixed(inst: &Inst) -> &'static [Change] {
    match inst {
        Inst::MbarrierInit { .. } => COUNTED,
        Inst::MbarrierArrive(MbarrierArrive { state, arrival, .. }) => match (state, arrival) {
            (None, Arrival::Expect(_)) => ANNOUNCED,
            (None, Arrival::Count(_) | Arrival::NoComplete(_)) => COUNTED,
            // A state is needed later: the arrival cannot be deleted.
            (Some(_), Arrival::Expect(_)) => RESIZED,
            (Some(_), Arrival::Count(_) | Arrival::NoComplete(_)) => RECOUNTED,
        },
        Inst::MbarrierTransact { .. } => ANNOUNCED,
        Inst::MbarrierTest(MbarrierTest { phase: MbarrierPhase::Parity(_), .. }) => &[FLIP],
        Inst::MbarrierTest(_) | Inst::MbarrierPending { .. } => &[],
        Inst::BarrierReduce(BarrierReduce { threads: EVERYONE, .. }) => OTHER_BARRIER,
        Inst::BarrierReduce(_) => RENAMED,
        Inst::MbarrierWait { .. } => WAITED,
        // Deleting a single try would leave its result undefined, which the verifier refuses.
        Inst::BarrierSync { threads: EVERYONE, .. } => NUMBERED,
        Inst::BarrierSync { .. } | Inst::BarrierArrive { .. } => NAMED,
        Inst::CopyAsync(CopyAsync::Wait { pending: 0 })
        | Inst::BulkWait { pending: 0, .. }
        | Inst::WgmmaWait { pending: 0 } => LAST,
        Inst::BulkWait { .. } | Inst::WgmmaWait { .. } => PENDING,
        Inst::SetMaxRegisters { .. } => BUDGET,
        Inst::MapShared { .. } => &[OTHER_RANK],
        Inst::WarpSync
        | Inst::GridDependency { .. }
        | Inst::Loose(_)
        | Inst::ClusterArrive { .. }
        | Inst::ClusterWait
        | Inst::MbarrierInvalidate { .. }
        | Inst::FenceMbarrierInit
        | Inst::FenceProxyAsync { .. }
        | Inst::TensorMap(MapInst::Replace { .. })
        | Inst::Fence { scope: Scope::Cta, .. }
        | Inst::BulkCommit
        | Inst::WgmmaFence
        | Inst::WgmmaCommit => &[Change::Delete],
        Inst::TensorMap(MapInst::Publish { .. } | MapInst::Release { .. } | MapInst::Acquire { .. })
        | Inst::Fence { .. } => &[Change::Delete, Change::Narrow],
        Inst::CopyAsync(CopyAsync::Wait { .. }) => PENDING,
        Inst::CopyAsync(CopyAsync::Commit | CopyAsync::WaitAll | CopyAsync::Arrive { .. }) => {
            &[Change::Delete]
        }
        Inst::CopyAsync(CopyAsync::Copy { .. }) | Inst::WarpMatrix(_) | Inst::Warp(_) | Inst::Alu(_) => &[],
        Inst::Trap
        | Inst::Move { .. }
        | Inst::Binary { .. }
        | Inst::MulAdd { .. }
        | Inst::MulWide { .. }
        | Inst::Unary { .. }
        | Inst::Compare { .. }
        | Inst::Select { .. }
        | Inst::Convert { .. }
        | Inst::Pack { .. }
        | Inst::Unpack { .. }
        | Inst::Split { .. }
        | Inst::Join { .. }
        | Inst::ReadSpecial { .. }
        | Inst::ShuffleIndex { .. }
        | Inst::ShuffleXor { .. }
        | Inst::Elect { .. }
        | Inst::LoadParam { .. }
        | Inst::ParamAddress { .. }
        | Inst::SharedBase { .. }
        | Inst::LocalBase { .. }
        | Inst::ConvertAddress { .. }
        | Inst::IsSpace { .. }
        | Inst::CtaRank { .. }
        | Inst::LoadConstant { .. }
        | Inst::Load { .. }
        | Inst::Store { .. }
        | Inst::TensorLoad { .. }
        | Inst::TensorStore { .. }
        | Inst::TensorPrefetch { .. }
        | Inst::PrefetchTensorMap { .. }
        | Inst::Bulk(_)
        | Inst::Wgmma { .. }
        | Inst::StoreMatrix { .. }
        | Inst::Atomic(_)
        | Inst::Ordered(_) => &[],
    }
}

/// The ways to break an atomic or a reduction. One that defines a value cannot be deleted. Only integer
/// operands are changed: floats are data, not synchronisation.
fn of_atomic(AtomicInst { ty, sem, scope, dst, src, .. }: &AtomicInst) -> Vec<Change> {
    let counts = matches!(ty, AtomicType::U32 | AtomicType::S32 | AtomicType::U64 | AtomicType::S64);
    those(&[
        (dst.is_empty(), Change::Delete),
        (*sem != AtomicSem::Relaxed, Change::Relax),
        (*scope != Scope::Cta, Change::Narrow),
        (counts && src.len() == 1, plus("value", 1)),
    ])
}

/// The ways to break a load or a store with memory ordering.
fn of_ordered(ordered: &OrderedInst) -> Vec<Change> {
    match ordered {
        OrderedInst::Load { order, .. } => those(&[
            (matches!(order, LoadOrder::Acquire(_)), Change::Relax),
            (order.scope() != Scope::Cta, Change::Narrow),
        ]),
        OrderedInst::Store { order, ty, src, .. } => those(&[
            (true, Change::Delete),
            (matches!(order, StoreOrder::Release(_)), Change::Relax),
            (order.scope() != Scope::Cta, Change::Narrow),
            (matches!(ty, Type::U32 | Type::U64) && src.len() == 1, plus("value", 1)),
        ]),
    }
}

fn those(changes: &[(bool, Change)]) -> Vec<Change> {
    changes.iter().filter(|(exists, _)| *exists).map(|(_, change)| *change).collect()
}

/// The ways to break the update of a position in a ring.
#[expect(clippy::wildcard_enum_match_arm, reason = "positions are kept by these two alone")]
pub(super) fn of_position(inst: &Inst) -> &'static [Change] {
    match inst {
        Inst::Move { .. } => &[Change::Delete, Change::Operand { name: "src", op: BinaryOp::Xor, by: 1 }],
        Inst::Compare { .. } => END,
        _ => &[],
    }
}

/// Makes the memory ordering `.relaxed`.
#[expect(clippy::wildcard_enum_match_arm, reason = "no other instruction has an order")]
pub(super) fn relax(inst: &mut Inst) {
    match inst {
        Inst::Atomic(atomic) => atomic.sem = AtomicSem::Relaxed,
        Inst::Ordered(OrderedInst::Load { order, .. }) => *order = LoadOrder::Relaxed(order.scope()),
        Inst::Ordered(OrderedInst::Store { order, .. }) => *order = StoreOrder::Relaxed(order.scope()),
        inst => {
            if let Some(order) = order_mut(inst) {
                *order = MbarrierOrder::Relaxed(order.scope());
            }
        }
    }
}

/// Makes the scope `.cta`.
#[expect(clippy::wildcard_enum_match_arm, reason = "no other instruction has a scope")]
pub(super) fn narrow(inst: &mut Inst) {
    match inst {
        Inst::Atomic(atomic) => atomic.scope = Scope::Cta,
        Inst::Ordered(OrderedInst::Load { order, .. }) => {
            *order = match order {
                LoadOrder::Acquire(_) => LoadOrder::Acquire(Scope::Cta),
                LoadOrder::Relaxed(_) | LoadOrder::Volatile => LoadOrder::Relaxed(Scope::Cta),
            }
        }
        Inst::Ordered(OrderedInst::Store { order, .. }) => {
            *order = match order {
                StoreOrder::Release(_) => StoreOrder::Release(Scope::Cta),
                StoreOrder::Relaxed(_) | StoreOrder::Volatile => StoreOrder::Relaxed(Scope::Cta),
            }
        }
        Inst::Fence { scope, .. }
        | Inst::TensorMap(
            MapInst::Publish { scope, .. } | MapInst::Release { scope } | MapInst::Acquire { scope, .. },
        ) => *scope = Scope::Cta,
        inst => {
            if let Some(order) = order_mut(inst) {
                *order = match order {
                    MbarrierOrder::Sync(_) => MbarrierOrder::CTA,
                    MbarrierOrder::Relaxed(_) => MbarrierOrder::Relaxed(Scope::Cta),
                };
            }
        }
    }
}

/// Whether the instruction starts asynchronous work.
pub(super) fn starts_work(inst: &Inst) -> bool {
    matches!(
        inst,
        Inst::TensorLoad { .. }
            | Inst::TensorStore { .. }
            | Inst::Wgmma { .. }
            | Inst::Bulk(
                Bulk::Load { .. }
                    | Bulk::Store { .. }
                    | Bulk::Share { .. }
                    | Bulk::AsyncStore { .. }
                    | Bulk::AsyncReduce { .. }
            )
            | Inst::CopyAsync(CopyAsync::Copy { .. })
    )
}

/// The operand with a name.
pub(super) fn operand<'i>(inst: &'i mut Inst, name: &str) -> Option<&'i mut Operand> {
    match (inst, name) {
        (Inst::MbarrierInit { count, .. }, "count") => Some(count),
        (Inst::MbarrierArrive(MbarrierArrive { arrival, .. }), "count" | "bytes") => Some(match arrival {
            Arrival::Count(number) | Arrival::NoComplete(number) | Arrival::Expect(number) => number,
        }),
        (
            Inst::MbarrierArrive(MbarrierArrive { barrier, .. })
            | Inst::MbarrierTransact { barrier, .. }
            | Inst::MbarrierTest(MbarrierTest { barrier, .. })
            | Inst::MbarrierWait { barrier, .. }
            | Inst::TensorLoad { barrier, .. }
            | Inst::Bulk(Bulk::Load { barrier, .. }),
            "barrier",
        ) => Some(barrier),
        (Inst::TensorLoad { multicast, .. } | Inst::Bulk(Bulk::Load { multicast, .. }), "mask") => {
            multicast.as_mut()
        }
        (Inst::MapShared { rank, .. }, "rank") => Some(rank),
        (Inst::MbarrierTransact { bytes, .. }, "bytes") => Some(bytes),
        (Inst::MbarrierTest(MbarrierTest { phase: MbarrierPhase::Parity(parity), .. }), "parity") => {
            Some(parity)
        }
        (Inst::BarrierReduce(BarrierReduce { id, .. }), "id") => Some(id),
        (Inst::MbarrierWait { parity, .. }, "parity") => Some(parity),
        (Inst::BarrierSync { id, .. } | Inst::BarrierArrive { id, .. }, "id") => Some(id),
        (Inst::Move { src, .. }, "src") => Some(src),
        (Inst::Atomic(AtomicInst { src, .. }) | Inst::Ordered(OrderedInst::Store { src, .. }), "value") => {
            src.first_mut()
        }
        (Inst::Compare { b, .. }, "end") => Some(b),
        _ => None,
    }
}

/// The type of the operand with a name.
#[expect(clippy::wildcard_enum_match_arm, reason = "every other operand is a .u32")]
pub(super) fn operand_type(inst: &Inst, name: &str) -> Type {
    match inst {
        Inst::Move { ty, .. } if name == "src" => *ty,
        Inst::Compare { ty, .. } => *ty,
        Inst::Atomic(atomic) => atomic.ty.register(),
        Inst::Ordered(OrderedInst::Store { ty, .. }) => *ty,
        Inst::TensorLoad { .. } | Inst::Bulk(Bulk::Load { .. }) if name == "mask" => Type::U16,
        _ => Type::U32,
    }
}

/// The constant field with a name.
pub(super) fn field<'i>(inst: &'i mut Inst, name: &str) -> Option<&'i mut u32> {
    match (inst, name) {
        (
            Inst::BarrierSync { threads, .. }
            | Inst::BarrierArrive { threads, .. }
            | Inst::BarrierReduce(BarrierReduce { threads, .. }),
            "threads",
        ) => Some(threads),
        (
            Inst::CopyAsync(CopyAsync::Wait { pending })
            | Inst::BulkWait { pending, .. }
            | Inst::WgmmaWait { pending },
            "pending",
        ) => Some(pending),
        (Inst::SetMaxRegisters { count, .. }, "count") => Some(count),
        _ => None,
    }
}
