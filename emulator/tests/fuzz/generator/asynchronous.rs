//! Generates copies, barriers, tensor maps and matrix instructions.

use ptx::abi::{TensorElement, TensorSwizzle};
use ptx::inst::{
    Address, Arrival, AtomicOp, AtomicType, BarrierOp, BarrierReduce, Bulk, CopyAsync, FenceSem, Fp8, Int8,
    MapField, MapInst, MbarrierArrive, MbarrierOrder, MbarrierPhase, MbarrierTest, MmaTypes, ProxySpace,
    Reduction, Scope, WarpMatrix, WgmmaA,
};
use ptx::{Inst, Operand, Reg, Space, Type, WgmmaTypes};

use super::Generator;

impl Generator<'_, '_> {
    pub(super) fn copy(&mut self) {
        let copy = match self.below(6) {
            0 | 1 => {
                let bytes = self.pick(&[4, 8, 16]);
                let (dst, base) = (self.shared(), self.global());
                let src = Address { base, offset: 0 };
                let size = (self.below(4) == 0)
                    .then(|| self.operand(Type::U32))
                    .filter(|size| *size != Operand::Imm(31));
                CopyAsync::Copy { bytes, past_l1: bytes == 16, dst, src, size }
            }
            2 => CopyAsync::Commit,
            3 => CopyAsync::Wait { pending: self.below(2) },
            4 => CopyAsync::WaitAll,
            _ => CopyAsync::Arrive { barrier: self.barrier(), counted: self.flag() },
        };
        if copy.check().is_ok() {
            self.f.emit(Inst::CopyAsync(copy));
        }
    }

    fn order(&mut self) -> MbarrierOrder {
        let scope = self.pick(&[Scope::Cta, Scope::Cluster]);
        if self.below(4) == 0 { MbarrierOrder::Relaxed(scope) } else { MbarrierOrder::Sync(scope) }
    }

    pub(super) fn synchronise(&mut self) {
        let (scope, order) = (self.pick(&Scope::ALL), self.order());
        let barrier = self.barrier();
        let (parity, threads) =
            (Operand::Imm(self.below(2).into()), 32 * (1 + self.below(self.threads / 32)));
        let id =
            if self.below(8) == 0 { self.operand(Type::U32) } else { Operand::Imm(self.below(3).into()) };
        let id = if matches!(id, Operand::Imm(id) if id > 15) { Operand::Imm(1) } else { id };
        let inst = match self.below(28) {
            24..=27 => return self.count(id, threads),
            0..=2 => Inst::MbarrierInit { barrier, count: Operand::Imm(self.below(4).into()) },
            3 => Inst::MbarrierInvalidate { barrier },
            4 => {
                let space = self.pick(&[Space::Shared, Space::SharedCluster]);
                let arrival = Arrival::Count(self.operand(Type::U32));
                let (drop, state) = (false, None);
                Inst::MbarrierArrive(MbarrierArrive { barrier, space, arrival, drop, state, order })
            }
            5 => {
                let (space, arrival) = (Space::Shared, Arrival::Expect(Operand::Imm(1024)));
                let (drop, state) = (false, None);
                Inst::MbarrierArrive(MbarrierArrive { barrier, space, arrival, drop, state, order })
            }
            6 => {
                let (space, bytes, scope) = (Space::Shared, self.operand(Type::U32), order.scope());
                Inst::MbarrierTransact { complete: false, barrier, space, bytes, scope }
            }
            7 => {
                let (phase, patient) = (MbarrierPhase::Parity(parity), true);
                let test = |dst| MbarrierTest { dst, barrier, phase, patient, order };
                return self.result(Type::Pred, |dst| Inst::MbarrierTest(test(dst)));
            }
            8 => Inst::MbarrierWait { barrier, parity, order },
            9 => Inst::FenceMbarrierInit,
            10 => {
                use ProxySpace::{All, Global, Shared, SharedCluster};
                Inst::FenceProxyAsync { space: self.pick(&[All, Global, Shared, SharedCluster]) }
            }
            11 => {
                let sem = self.pick(&[FenceSem::AcquireRelease, FenceSem::SequentiallyConsistent]);
                Inst::Fence { sem, scope }
            }
            12 => Inst::BarrierArrive { id, threads },
            13 => Inst::ClusterArrive { relaxed: self.flag() },
            14 => Inst::ClusterWait,
            15 => Inst::WarpSync,
            16 => Inst::SetMaxRegisters { grow: self.flag(), count: 24 + 8 * self.below(26) },
            17 => Inst::Trap,
            18 => Inst::GridDependency { wait: self.flag() },
            _ => Inst::BarrierSync { id, threads },
        };
        self.f.emit(inst);
    }

    pub(super) fn tensor(&mut self) {
        let map = match self.below(8) {
            0 if self.flag() => self.operand(Type::U64),
            0 => self.pixels.operand(),
            1 => (self.out + 1024).operand(),
            _ => self.map.operand(),
        };
        let coords = self.starts();
        let (shared, barrier) = (self.shared(), self.barrier());
        let inst = match self.below(14) {
            12 | 13 => return self.pixels(),
            8 | 9 => return self.change_map(),
            10 | 11 => return self.bulk(),
            0..=2 => {
                let multicast = (self.below(4) == 0).then(|| self.operand(Type::U16));
                Inst::TensorLoad { map, coords, im2col: None, dst: shared, barrier, multicast, hint: None }
            }
            3 | 4 => {
                let (reduce, im2col) = (None, false);
                Inst::TensorStore { reduce, map, coords, im2col, src: shared, hint: None }
            }
            5 => Inst::BulkCommit,
            6 => Inst::BulkWait { pending: self.below(2), read: self.flag() },
            _ => Inst::PrefetchTensorMap { map },
        };
        self.f.emit(inst);
    }

    /// Start coordinates of a box of two dimensions, mostly at a multiple of 16 bytes.
    fn starts(&mut self) -> Vec<Operand> {
        let start = |of: &mut Self| match of.below(8) {
            0 => of.operand(Type::S32),
            1 => Operand::Imm((-8i64).cast_unsigned() & 0xFFFF_FFFF),
            _ => Operand::Imm((8 * of.below(3)).into()),
        };
        vec![start(self), start(self)]
    }

    fn bulk(&mut self) {
        let (dst, src, barrier, line) = (self.shared(), self.shared(), self.barrier(), self.global());
        let bytes = if self.below(6) == 0 { self.operand(Type::U32) } else { Operand::Imm(64) };
        let (op, ty): (AtomicOp, AtomicType) = (self.pick(&AtomicOp::ALL), self.pick(&AtomicType::ALL));
        let reduce = self.flag().then_some(Reduction { op, ty });
        let (map, coords) = (self.map.operand(), self.starts());
        let word = self.pick(&[Type::U32, Type::F32, Type::U64]);
        let bulk = match self.below(8) {
            0 | 1 => {
                let multicast = (self.below(4) == 0).then(|| self.operand(Type::U16));
                Bulk::Load { dst, src: line, bytes, barrier, multicast, hint: None }
            }
            2 => Bulk::Store { dst: line, src, bytes, reduce, hint: None },
            3 => Bulk::Share { dst, src, bytes, barrier, reduce },
            4 => {
                let (reduce, im2col) = (Some(op), false);
                return self.emit_legal(Inst::TensorStore { reduce, map, coords, im2col, src, hint: None });
            }
            5 if self.flag() => Bulk::Prefetch { src: line, bytes },
            5 => return self.emit_legal(Inst::TensorPrefetch { map, coords, im2col: None }),
            6 => {
                let count = self.pick(&[1, 2, 4]);
                Bulk::AsyncStore { ty: word, src: self.operands(word, count), dst, barrier }
            }
            _ => {
                let src = self.operand(ty.register());
                Bulk::AsyncReduce { reduce: Reduction { op, ty }, src, dst, barrier }
            }
        };
        self.emit_legal(Inst::Bulk(bulk));
    }

    fn emit_legal(&mut self, inst: Inst) {
        if inst.check().is_ok() {
            self.f.emit(inst);
        }
    }

    /// A copy in im2col mode, mostly with the rank of its map and a base inside its bounding box.
    fn pixels(&mut self) {
        let map = if self.below(8) == 0 { self.map } else { self.pixels }.operand();
        let rank = if self.below(8) == 0 { 2 + self.below(4) as usize } else { 4 };
        let coords: Vec<Operand> = (0..rank)
            .map(|_| match self.below(12) {
                0 => self.operand(Type::S32),
                1 => Operand::Imm((-1i64).cast_unsigned() & 0xFFFF_FFFF),
                _ => Operand::Imm(0),
            })
            .collect();
        let offsets: Vec<Operand> = (2..rank)
            .map(|_| {
                if self.below(8) == 0 { self.operand(Type::U16) } else { Operand::Imm(self.below(3).into()) }
            })
            .collect();
        let (dst, barrier) = (self.shared(), self.barrier());
        let inst = match self.below(4) {
            0 | 1 => {
                let multicast = (self.below(4) == 0).then(|| self.operand(Type::U16));
                let im2col = Some(offsets);
                Inst::TensorLoad { map, coords, im2col, dst, barrier, multicast, hint: None }
            }
            2 => {
                let reduce = self.flag().then(|| self.pick(&AtomicOp::ALL));
                Inst::TensorStore { reduce, map, coords, im2col: true, src: dst, hint: None }
            }
            _ => Inst::TensorPrefetch { map, coords, im2col: Some(offsets) },
        };
        self.emit_legal(inst);
    }

    /// One of the rarer operations on mbarriers, or a barrier that reduces.
    fn count(&mut self, id: Operand, threads: u32) {
        let (barrier, parity, order) = (self.barrier(), Operand::Imm(self.below(2).into()), self.order());
        let number = if self.below(3) == 0 { self.operand(Type::U32) } else { Operand::Imm(1) };
        let space = self.pick(&[Space::Shared, Space::SharedCluster]);
        let (one, other) = (Space::Shared, Space::SharedCluster);
        let arrive = |space, arrival, drop, state, order| {
            Inst::MbarrierArrive(MbarrierArrive { barrier, space, arrival, drop, state, order })
        };
        let (count, expect) = (Arrival::Count(number), Arrival::Expect(number));
        match self.below(12) {
            0 | 1 => self.result(Type::U64, |dst| arrive(one, count, false, Some(dst), order)),
            2 => self.result(Type::U64, |dst| arrive(one, expect, false, Some(dst), order)),
            8 => {
                let (drop, count) = (self.flag(), Arrival::NoComplete(number));
                self.result(Type::U64, |dst| arrive(one, count, drop, Some(dst), MbarrierOrder::CTA));
            }
            9 => self.result(Type::U64, |dst| arrive(one, count, true, Some(dst), order)),
            10 if self.flag() => self.f.emit(arrive(other, expect, true, None, order)),
            10 => self.result(Type::U64, |dst| arrive(one, expect, true, Some(dst), order)),
            3 => self.f.emit(arrive(space, count, true, None, order)),
            4 if self.flag() => self.f.emit(arrive(other, expect, false, None, order)),
            4 => {
                let (space, scope) = (other, order.scope());
                self.f.emit(Inst::MbarrierTransact { complete: false, barrier, space, bytes: number, scope });
            }
            5 => {
                let scope = order.scope();
                self.f.emit(Inst::MbarrierTransact { complete: true, barrier, space, bytes: number, scope });
            }
            6 => {
                let (phase, patient) = (MbarrierPhase::State(self.operand(Type::U64)), self.flag());
                let test = |dst| MbarrierTest { dst, barrier, phase, patient, order };
                self.result(Type::Pred, |dst| Inst::MbarrierTest(test(dst)));
            }
            7 if self.flag() => {
                let (phase, patient) = (MbarrierPhase::Parity(parity), false);
                let test = |dst| MbarrierTest { dst, barrier, phase, patient, order };
                self.result(Type::Pred, |dst| Inst::MbarrierTest(test(dst)));
            }
            7 => {
                let state = self.operand(Type::U64);
                self.result(Type::U32, |dst| Inst::MbarrierPending { dst, state });
            }
            _ => {
                let op = self.pick(&[BarrierOp::Population, BarrierOp::And, BarrierOp::Or]);
                let src = self.operand(Type::Pred);
                let ty = if op == BarrierOp::Population { Type::U32 } else { Type::Pred };
                self.result(ty, |dst| Inst::BarrierReduce(BarrierReduce { op, id, threads, dst, src }));
            }
        }
    }

    fn change_map(&mut self) {
        let dim = self.below(6);
        let element = self.pick(&TensorElement::ALL);
        let swizzle = self.pick(&[TensorSwizzle::None, TensorSwizzle::B32, TensorSwizzle::B128]);
        let field = self.pick(&[
            MapField::Address,
            MapField::Rank,
            MapField::Box(dim),
            MapField::Extent(dim),
            MapField::Stride(dim),
            MapField::ElementStride(dim),
            MapField::Element(element),
            MapField::Swizzle(swizzle),
        ]);
        let (scope, src) = (self.pick(&Scope::ALL), (self.base + 4096).operand());
        let dst = if self.below(8) == 0 { self.global() } else { (self.out + 1024).operand() };
        let map = match self.below(8) {
            0..=2 => return self.f.copy_tensor_map(self.map, self.base + 4096),
            3 => {
                let value = if field.named().is_some() { Operand::Imm(0) } else { self.operand(field.ty()) };
                MapInst::Replace { space: Space::Shared, map: src, field, value }
            }
            4 => {
                let value = if field.named().is_some() { Operand::Imm(0) } else { self.operand(field.ty()) };
                MapInst::Replace { space: Space::Global, map: dst, field, value }
            }
            5 => MapInst::Publish { dst, src, scope },
            6 => MapInst::Release { scope },
            _ => MapInst::Acquire { map: dst, scope },
        };
        if map.check().is_ok() {
            self.f.emit(Inst::TensorMap(map));
        }
    }

    pub(super) fn matrix(&mut self) {
        let address = self.shared();
        let matrices = self.pick(&[1, 2, 4]);
        let transpose = self.flag();
        match self.below(10) {
            0 => {
                let src = self.operands(Type::U32, matrices);
                self.f.emit(Inst::StoreMatrix { address, src, transpose });
            }
            1 => {
                let dst: Vec<Reg> = (0..matrices).map(|_| self.fresh(Type::U32)).collect();
                for &reg in &dst {
                    self.keep(Type::U32, reg);
                }
                self.f.emit(Inst::WarpMatrix(WarpMatrix::Load { dst, address, transpose }));
            }
            2 | 3 => {
                let [signed_a, signed_b, saturate] = [0; 3].map(|_| self.flag());
                let types = self.pick(&[
                    MmaTypes::Bf16F32,
                    MmaTypes::F16F32,
                    MmaTypes::F16F16,
                    MmaTypes::Tf32F32,
                    MmaTypes::Int8 { signed_a, signed_b, saturate },
                ]);
                let (ty, count) = types.accumulators();
                let (a, b) = (self.operands(Type::U32, 4), self.operands(Type::U32, 2));
                let (c, d) =
                    (self.operands(ty, count), (0..count).map(|_| self.fresh(ty)).collect::<Vec<_>>());
                for &reg in &d {
                    self.keep(ty, reg);
                }
                let (a, b) = ([a[0], a[1], a[2], a[3]], [b[0], b[1]]);
                self.f.emit(Inst::WarpMatrix(WarpMatrix::Multiply { types, d, a, b, c }));
            }
            4 => self.f.wgmma_fence(),
            5 => self.f.wgmma_commit(),
            6 => self.f.wgmma_wait(self.below(2)),
            _ => self.warpgroup(),
        }
    }

    fn warpgroup(&mut self) {
        let (a_format, b_format) = (self.pick(&[Fp8::E4m3, Fp8::E5m2]), self.pick(&[Fp8::E4m3, Fp8::E5m2]));
        let (a, b) = (self.pick(&[Int8::S8, Int8::U8]), self.pick(&[Int8::S8, Int8::U8]));
        let saturate = self.flag();
        let types = self.pick(&[
            WgmmaTypes::Bf16F32,
            WgmmaTypes::F16F32,
            WgmmaTypes::F16F16,
            WgmmaTypes::Tf32F32,
            WgmmaTypes::Fp8F32(a_format, b_format),
            WgmmaTypes::Fp8F16(a_format, b_format),
            WgmmaTypes::Int8 { a, b, saturate },
            WgmmaTypes::B1,
        ]);
        let n = self.pick(&[8, 16, 32]);
        let d: Vec<Reg> = (0..types.accumulators(n)).map(|_| self.fresh(Type::U32)).collect();
        let descriptor = |this: &mut Self| {
            if this.below(6) == 0 {
                return this.operand(Type::U64);
            }
            let offset = this.below(16) * 256;
            let start = (((this.base + offset) & 0x3_FFFF) >> 4).cast::<u64>();
            let strides = this.pick(&[
                64u64 << 16 | 8 << 32,
                64 << 32 | 1 << 62,
                64 << 32 | 2 << 62,
                32 << 32 | 3 << 62,
            ]);
            (start | strides).operand()
        };
        let a = if self.below(4) == 0 {
            WgmmaA::Registers([0; 4].map(|_| self.register(Type::U32)))
        } else {
            WgmmaA::Shared(descriptor(self))
        };
        let b = descriptor(self);
        let inst = Inst::Wgmma {
            types,
            n,
            sparse: None,
            d,
            a,
            b,
            accumulate: Operand::Imm(self.below(2).into()),
            negate_a: false,
            negate_b: false,
            transpose_a: false,
            transpose_b: false,
        };
        self.f.emit(inst);
    }
}
