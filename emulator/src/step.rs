//! Executes one operation of one warp.
//!
//! [`Machine::step`] is the only place that decides which family an instruction belongs to. Each submodule
//! implements a family. A new instruction does not compile until it is handled here.

mod alu;
mod arith;
mod atomic;
mod barrier;
mod bulk;
mod control;
mod copy;
mod exchange;
mod matrix;
mod mbarrier;
mod memory;
mod note;
mod own;
mod tensor_map;
mod tma;
mod wgmma;

pub(crate) use own::Local;

use ptx::inst::{Inst, WarpInst};

use crate::lanes::ALL;
use crate::machine::Machine;
use crate::program::Action;
use crate::trap::{Fault, Stop};
use crate::warp::Blocked;

/// What a warp does after an operation.
#[derive(Debug)]
pub(crate) enum Flow {
    /// It executes the next operation.
    Next,
    /// It executes the operation at this index.
    Jump(usize),
    /// A poll failed: it executes the next operation after the other warps had a turn.
    Yield,
    /// It executes the next operation once it is no longer blocked.
    Block(Blocked),
    /// It executes this operation again once it is no longer blocked.
    Retry(Blocked),
    /// It executes this operation again once other lanes of the warp have reached it. Those lanes run next.
    Join,
    /// It has ended.
    Exit,
}

impl Machine<'_> {
    /// Executes the operation at the warp's program counter.
    pub(crate) fn step(&mut self, warp: usize) -> Result<Flow, Stop> {
        let program = self.program;
        match &program.ops[self.warps[warp].pc].action {
            Action::Inst(inst) => self.instruction(warp, inst),
            Action::Guarded(guard, inst) => {
                let taken = control::guarded(&mut self.warps[warp], *guard)?;
                if taken == 0 {
                    return Ok(Flow::Next);
                }
                let all = core::mem::replace(&mut self.warps[warp].registers.active, taken);
                let flow = self.instruction(warp, inst);
                self.warps[warp].registers.active = all;
                flow
            }
            Action::Branch { guard, edge } => Ok(control::branch(&mut self.warps[warp], *guard, *edge)?),
            Action::Meet => Ok(control::join(&mut self.warps[warp])),
            Action::Exit { stated } => self.exit(warp, *stated),
        }
    }

    fn instruction(&mut self, warp: usize, inst: &Inst) -> Result<Flow, Stop> {
        self.counts.instructions += 1;
        if let Some((access, address)) = own::generic(inst) {
            return self.by_generic(warp, access, address);
        }
        let state = &mut self.warps[warp];
        let registers = &mut state.registers;
        match inst {
            Inst::Move { ty, dst, src } => arith::copy(registers, *ty, *dst, *src)?,
            Inst::Binary { op, ty, dst, a, b } => arith::binary(registers, (*op, *ty), *dst, *a, *b)?,
            Inst::MulAdd { ty, dst, a, b, c } => arith::mul_add(registers, *ty, *dst, [*a, *b, *c])?,
            Inst::MulWide { dst, a, b } => arith::mul_wide(registers, *dst, *a, *b)?,
            Inst::Unary { op, ty, dst, a } => arith::unary(registers, *op, *ty, *dst, *a)?,
            Inst::Compare { op, ty, dst, a, b } => arith::compare(registers, (*op, *ty), *dst, *a, *b)?,
            Inst::Select { ty, dst, a, b, cond } => arith::select(registers, *ty, *dst, [*a, *b, *cond])?,
            Inst::Convert { from, to, dst, src } => arith::convert(registers, (*from, *to), *dst, *src)?,
            Inst::Pack { ty, dst, low, high } => arith::pack(registers, *ty, *dst, *low, *high)?,
            Inst::Unpack { low, high, src } => arith::unpack(registers, *low, *high, *src)?,
            Inst::Split { ty, dst, src } => arith::split(registers, *ty, dst, *src)?,
            Inst::Join { ty, dst, src } => arith::join(registers, *ty, *dst, src)?,
            Inst::ShuffleIndex { dst, src, lane } => control::shuffle(state, *dst, *src, *lane)?,
            Inst::ShuffleXor { dst, src, mask } => control::shuffle_xor(state, *dst, *src, *mask)?,
            Inst::Elect { dst } => control::elect(state, *dst, &self.options)?,
            Inst::WarpSync => {
                let flow = control::meet(state);
                if matches!(flow, Flow::Jump(_)) {
                    self.lanes_meet(warp, ALL);
                }
                return Ok(flow);
            }
            Inst::Fence { sem, scope } => return Ok(self.fence(warp, *sem, *scope)),
            Inst::ReadSpecial { dst, special } => return self.read_special(warp, *dst, *special),
            Inst::SetMaxRegisters { grow, count } => return self.set_max_registers(warp, *grow, *count),
            Inst::Alu(inst) => alu::alu(registers, inst)?,
            Inst::Warp(inst) => {
                let apart = self.apart();
                exchange::exchange(&mut self.warps[warp], inst, (&self.options, apart))?;
                if matches!(inst, WarpInst::Sync { .. }) {
                    self.lanes_meet(warp, self.warps[warp].registers.active);
                }
            }
            Inst::CopyAsync(copy) => return self.copy_async(warp, copy),
            Inst::WarpMatrix(matrix) => return self.warp_matrix(warp, matrix),
            Inst::Atomic(atomic) => return self.atomic(warp, atomic),
            Inst::Ordered(access) => return self.ordered(warp, access),
            Inst::GridDependency { wait } => return Ok(self.grid_dependency(warp, *wait)),
            Inst::Trap => return Err(Fault::Trapped.into()),
            Inst::LoadParam { ty, dst, param, offset } => {
                return self.load_param(warp, *ty, dst, (*param, *offset));
            }
            Inst::ParamAddress { generic, dst, param, offset } => {
                return self.param_address(warp, *dst, (*param, *offset), *generic);
            }
            Inst::SharedBase { dst, offset } => return self.shared_base(warp, *dst, *offset),
            Inst::LocalBase { dst, offset } => {
                registers.write_wide(*dst, &[u64::from(*offset); 32])?;
            }
            Inst::ConvertAddress { space, to, dst, src } => {
                own::convert_address(registers, (*space, *to), *dst, *src)?;
            }
            Inst::Load { space, ty, dst, address } => return self.load(warp, *space, *ty, dst, *address),
            Inst::Store { space, ty, src, address } => return self.store(warp, *space, *ty, src, *address),
            Inst::LoadConstant { ty, dst, address } => {
                return self.load_constant(warp, *ty, dst, *address);
            }
            Inst::IsSpace { space, dst, src } => return self.is_space(warp, *space, *dst, *src),
            Inst::CtaRank { dst, address } => return self.cta_rank(warp, *dst, *address),
            Inst::Loose(barrier) => return self.loose(warp, *barrier),
            Inst::MapShared { dst, address, rank } => return self.map_shared(warp, *dst, *address, *rank),
            Inst::StoreMatrix { address, src, transpose } => {
                return self.store_matrix(warp, *address, src, *transpose);
            }
            Inst::BarrierSync { id, threads } => return self.named_barrier(warp, *id, *threads, true),
            Inst::BarrierArrive { id, threads } => return self.named_barrier(warp, *id, *threads, false),
            Inst::ClusterArrive { relaxed } => return self.cluster_arrive(warp, *relaxed),
            Inst::ClusterWait => return self.cluster_wait(warp),
            Inst::MbarrierInit { barrier, count } => return self.mbarrier_init(warp, *barrier, *count),
            Inst::MbarrierInvalidate { barrier } => return self.mbarrier_invalidate(warp, *barrier),
            Inst::MbarrierArrive(arrive) => return self.mbarrier_arrive(warp, arrive),
            Inst::MbarrierTransact { complete, barrier, space, bytes, scope } => {
                return self.mbarrier_transact(warp, (*barrier, *space, *bytes), (*complete, *scope));
            }
            Inst::MbarrierTest(test) => return self.mbarrier_test(warp, test),
            Inst::MbarrierPending { dst, state } => return self.mbarrier_pending(warp, *dst, *state),
            Inst::MbarrierWait { barrier, parity, order } => {
                return self.mbarrier_wait(warp, (*barrier, *parity), *order);
            }
            Inst::FenceMbarrierInit => return self.fence_mbarrier_init(warp),
            Inst::FenceProxyAsync { space } => return self.fence_proxy(warp, *space),
            Inst::TensorLoad { map, coords, im2col, dst, barrier, multicast, hint: _ } => {
                let tensor = (*map, &coords[..], im2col.as_deref());
                return self.tensor_load(warp, tensor, (*dst, *barrier), *multicast);
            }
            Inst::TensorStore { reduce, map, coords, im2col, src, hint: _ } => {
                return self.tensor_store(warp, (*map, coords, im2col.then_some(&[])), *src, *reduce);
            }
            Inst::TensorPrefetch { map, coords, im2col } => {
                return self.tensor_prefetch(warp, (*map, coords, im2col.as_deref()));
            }
            Inst::BulkCommit => return self.bulk_commit(warp),
            Inst::BulkWait { pending, read } => return self.bulk_wait(warp, *pending, *read),
            Inst::Bulk(bulk) => return self.bulk(warp, bulk),
            Inst::BarrierReduce(reduce) => return self.barrier_reduce(warp, reduce),
            Inst::TensorMap(inst) => return self.map_instruction(warp, inst),
            Inst::PrefetchTensorMap { map } => return self.prefetch_tensor_map(warp, *map),
            Inst::WgmmaFence => return self.wgmma_fence(warp),
            Inst::WgmmaCommit => return self.wgmma_commit(warp),
            Inst::WgmmaWait { pending } => return self.wgmma_wait(warp, *pending),
            Inst::Wgmma { .. } => return self.wgmma(warp, inst),
        }
        Ok(Flow::Next)
    }
}
