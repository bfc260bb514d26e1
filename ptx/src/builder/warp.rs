//! Builder methods for warp-level instructions, arithmetic beyond the operators, `cp.async`, `ldmatrix` and
//! `mma.sync`.

use super::{Builder, operands};
use crate::inst::{
    Address, Alu, AluOp, CopyAsync, Inst, MmaTypes, Operand, ReduceOp, Reg, Shuffle, Special, Vote, WarpInst,
    WarpMatrix,
};
use crate::types::Scalar;
use crate::value::{Source, Value};

/// Every lane of a warp.
const ALL: Operand = Operand::Imm(u32::MAX as u64);

impl Builder {
    /// Reads a 64-bit special register.
    #[track_caller]
    pub fn special_wide(&self, special: Special) -> Value<'_, u64> {
        self.define(|dst| Inst::ReadSpecial { dst, special })
    }

    /// Appends an arithmetic instruction. The operands are in PTX's order; `T` is the type of the result.
    #[track_caller]
    pub fn alu<T: Scalar>(&self, op: AluOp, src: &[Operand]) -> Value<'_, T> {
        self.define(|dst| Inst::Alu(Alu { op, dst, src: src.to_vec() }))
    }

    /// `vote.sync` of the whole warp.
    #[track_caller]
    pub fn vote<'f>(&'f self, vote: Vote, value: Value<'f, bool>) -> Value<'f, bool> {
        self.define(|dst| Inst::Warp(WarpInst::Vote { vote, dst, src: value.operand(), members: ALL }))
    }

    /// `vote.sync.ballot` of the lanes `members`: a mask of the lanes where the value is true.
    #[track_caller]
    pub fn ballot<'f>(&'f self, value: Value<'f, bool>, members: impl Source<'f, u32>) -> Value<'f, u32> {
        let members = members.operand();
        self.define(|dst| Inst::Warp(WarpInst::Ballot { dst, src: value.operand(), members }))
    }

    /// `redux.sync` of the whole warp; `T` is `u32` or `i32`.
    #[track_caller]
    pub fn reduce_lanes<'f, T: Scalar>(&'f self, op: ReduceOp, value: Value<'f, T>) -> Value<'f, T> {
        let (ty, src) = (T::TYPE, value.operand());
        self.define(|dst| Inst::Warp(WarpInst::Reduce { op, ty, dst, src, members: ALL }))
    }

    /// `match.any.sync` of the whole warp: a mask of the lanes with the same value. `T` is `u32` or `u64`.
    #[track_caller]
    pub fn match_any<'f, T: Scalar>(&'f self, value: Value<'f, T>) -> Value<'f, u32> {
        let (ty, src) = (T::TYPE, value.operand());
        self.define(|dst| Inst::Warp(WarpInst::MatchAny { ty, dst, src, members: ALL }))
    }

    /// `match.all.sync` of the whole warp: whether all lanes have the same value. `T` is `u32` or `u64`.
    #[track_caller]
    pub fn match_all<'f, T: Scalar>(&'f self, value: Value<'f, T>) -> Value<'f, bool> {
        let (ty, src) = (T::TYPE, value.operand());
        let dst = self.register(<u32 as Scalar>::TYPE);
        self.define(|all| Inst::Warp(WarpInst::MatchAll { ty, dst, all, src, members: ALL }))
    }

    /// `shfl.sync` of the whole warp in segments of `width` lanes. Returns the value, and whether the source
    /// lane was inside the segment.
    #[track_caller]
    pub fn shuffle_segment<'f, T: Scalar>(
        &'f self,
        mode: Shuffle,
        value: Value<'f, T>,
        lane: impl Source<'f, u32>,
        width: u32,
    ) -> (Value<'f, T>, Value<'f, bool>) {
        let (src, lane) = (value.operand(), lane.operand());
        let found = self.register(<bool as Scalar>::TYPE);
        let taken = self.define(|dst| {
            Inst::Warp(WarpInst::Shuffle { mode, dst, found: Some(found), src, lane, width, members: ALL })
        });
        (taken, Value::new(self, Operand::Reg(found)))
    }

    /// `activemask`: a mask of the lanes that execute this instruction together.
    #[track_caller]
    pub fn active_mask(&self) -> Value<'_, u32> {
        self.define(|dst| Inst::Warp(WarpInst::ActiveMask { dst }))
    }

    /// `nanosleep`: suspends the thread for about this time, 0 to 1 000 000 ns.
    #[track_caller]
    pub fn sleep<'f>(&'f self, nanoseconds: impl Source<'f, u32>) {
        self.emit(Inst::Warp(WarpInst::Sleep { nanoseconds: nanoseconds.operand() }));
    }

    /// `cp.async` of `bytes` (4, 8 or 16) bytes from global to shared memory. With `size`, only that number
    /// of bytes is read and the others become zeros.
    #[track_caller]
    pub fn copy_async<'f>(
        &'f self,
        bytes: u32,
        dst: Value<'f, u32>,
        (src, offset): (Value<'f, u64>, i32),
        size: Option<Value<'f, u32>>,
    ) {
        let src = Address { base: src.operand(), offset };
        let (past_l1, size) = (bytes == 16, size.map(Value::operand));
        self.emit(Inst::CopyAsync(CopyAsync::Copy { bytes, past_l1, dst: dst.operand(), src, size }));
    }

    /// `cp.async.commit_group`: closes this thread's group of `cp.async` operations.
    #[track_caller]
    pub fn copy_commit(&self) {
        self.emit(Inst::CopyAsync(CopyAsync::Commit));
    }

    /// `cp.async.wait_group`: waits until at most `pending` of this thread's `cp.async` groups are
    /// unfinished.
    #[track_caller]
    pub fn copy_wait(&self, pending: u32) {
        self.emit(Inst::CopyAsync(CopyAsync::Wait { pending }));
    }

    /// `cp.async.wait_all`: waits for all `cp.async` operations of this thread.
    #[track_caller]
    pub fn copy_wait_all(&self) {
        self.emit(Inst::CopyAsync(CopyAsync::WaitAll));
    }

    /// `cp.async.mbarrier.arrive.noinc`: an arrival on the mbarrier when all earlier `cp.async` operations of
    /// this thread are complete. The mbarrier's expected count must include it.
    #[track_caller]
    pub fn copy_arrive(&self, barrier: Value<'_, u32>) {
        self.emit(Inst::CopyAsync(CopyAsync::Arrive { barrier: barrier.operand(), counted: true }));
    }

    /// `ldmatrix`: loads `N` (1, 2 or 4) 8x8 matrices of 16-bit elements. Each lane gives the address of a
    /// row.
    #[track_caller]
    pub fn load_matrix<const N: usize>(
        &self,
        address: Value<'_, u32>,
        transpose: bool,
    ) -> [Value<'_, u32>; N] {
        let dst: [Reg; N] = core::array::from_fn(|_| self.register(<u32 as Scalar>::TYPE));
        let address = address.operand();
        self.emit(Inst::WarpMatrix(WarpMatrix::Load { dst: dst.to_vec(), address, transpose }));
        dst.map(|reg| Value::new(self, Operand::Reg(reg)))
    }

    /// `mma.sync`: returns `A * B + C`. `O` is the register type of A and B (`u32` or `f64`), `T` the
    /// register type of the accumulators, and `N` the number of accumulator registers.
    #[track_caller]
    pub fn multiply<'f, O: Scalar, T: Scalar, const N: usize>(
        &'f self,
        types: MmaTypes,
        a: [Value<'f, O>; 4],
        b: [Value<'f, O>; 2],
        c: [Value<'f, T>; N],
    ) -> [Value<'f, T>; N] {
        let d: [Reg; N] = core::array::from_fn(|_| self.register(T::TYPE));
        self.emit(Inst::WarpMatrix(WarpMatrix::Multiply {
            types,
            d: d.to_vec(),
            a: a.map(Value::operand),
            b: b.map(Value::operand),
            c: operands(c),
        }));
        d.map(|reg| Value::new(self, Operand::Reg(reg)))
    }
}
