//! The operands of each instruction: what it reads and writes, and as which type. The verifier, the emulator
//! and [`mutate`](crate::mutate) use this table.
//!
//! ```
//! use ptx::inst::{BinaryOp, Expect, Inst, Operand, Reg};
//! use ptx::Scalar;
//!
//! let shift = Inst::Binary { op: BinaryOp::Shl, ty: u64::TYPE, dst: Reg(1), a: Operand::Reg(Reg(0)), b: Operand::Imm(3) };
//! let operands = shift.operands(|_| None);
//! assert_eq!(operands.writes, [(Reg(1), Expect::Type(u64::TYPE))]);
//! // The count of a shift is a `.u32`, whatever is shifted.
//! assert_eq!(operands.reads[1], (Operand::Imm(3), Expect::Type(u32::TYPE)));
//! ```

use super::{BinaryOp, Inst, Operand, Reg, WgmmaA};
use crate::types::{Space, Type};

/// What an instruction accepts as an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// A register of exactly this type, or an immediate.
    Type(Type),
    /// A register of this width in bits, of any type, or an immediate.
    Bits(u32),
    /// An accumulator register of 32 bits, updated in place. It is not read if the instruction overwrites it.
    Accumulator,
}

/// The operands of an instruction, in the order of PTX.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Operands {
    /// The operands that are read. Accumulators are listed in `writes` only.
    pub reads: Vec<(Operand, Expect)>,
    /// The registers that are written.
    pub writes: Vec<(Reg, Expect)>,
}

impl Operands {
    pub(super) fn read(mut self, operand: Operand, ty: Type) -> Self {
        self.reads.push((operand, Expect::Type(ty)));
        self
    }

    pub(super) fn read_bits(mut self, operand: Operand, bits: u32) -> Self {
        self.reads.push((operand, Expect::Bits(bits)));
        self
    }

    pub(super) fn read_all(mut self, operands: &[Operand], ty: Type) -> Self {
        self.reads.extend(operands.iter().map(|&operand| (operand, Expect::Type(ty))));
        self
    }

    pub(super) fn write(mut self, reg: Reg, ty: Type) -> Self {
        self.writes.push((reg, Expect::Type(ty)));
        self
    }

    pub(super) fn write_bits(mut self, reg: Reg, bits: u32) -> Self {
        self.writes.push((reg, Expect::Bits(bits)));
        self
    }

    fn writes(mut self, regs: &[Reg], expect: Expect) -> Self {
        self.writes.extend(regs.iter().map(|&reg| (reg, expect)));
        self
    }
}

impl Inst {
    /// The instruction's operands; `types` gives the type of a register.
    pub fn operands(&self, types: impl Fn(Reg) -> Option<Type>) -> Operands {
        let none = Operands::default();
        let width = |reg: &Reg| types(*reg).map_or(0, Type::bits);
        match self {
            Self::Move { dst, src } => none.read_bits(*src, width(dst)).write_bits(*dst, width(dst)),
            Self::Binary { op: BinaryOp::Shl | BinaryOp::Shr, ty, dst, a, b } => {
                none.read(*a, *ty).read(*b, Type::U32).write(*dst, *ty)
            }
            Self::Binary { ty, dst, a, b, .. } => none.read(*a, *ty).read(*b, *ty).write(*dst, *ty),
            Self::MulAdd { ty, dst, a, b, c } => none.read_all(&[*a, *b, *c], *ty).write(*dst, *ty),
            Self::MulWide { dst, a, b } => none.read_all(&[*a, *b], Type::U32).write(*dst, Type::U64),
            Self::Unary { ty, dst, a, .. } => none.read(*a, *ty).write(*dst, *ty),
            Self::Compare { ty, dst, a, b, .. } => none.read_all(&[*a, *b], *ty).write(*dst, Type::Pred),
            Self::Select { ty, dst, a, b, cond } => {
                none.read_all(&[*a, *b], *ty).read(*cond, Type::Pred).write(*dst, *ty)
            }
            Self::Convert { from, dst, src } => none.read(*src, *from).write_bits(*dst, width(dst)),
            Self::Pack { dst, low, high, .. } => {
                none.read_all(&[*low, *high], Type::F32).write(*dst, Type::U32)
            }
            Self::Unpack { low, high, src } => {
                none.read_bits(*src, 32).write_bits(*low, 16).write_bits(*high, 16)
            }
            Self::ReadSpecial { dst, special } => none.write(*dst, special.ty()),
            Self::SharedBase { dst } => none.write(*dst, Type::U32),
            Self::ShuffleIndex { dst, src, lane } => {
                none.read_bits(*src, 32).read(*lane, Type::U32).write_bits(*dst, 32)
            }
            Self::ShuffleXor { dst, src, .. } => none.read_bits(*src, 32).write_bits(*dst, 32),
            Self::Elect { dst } => none.write(*dst, Type::Pred),
            Self::LoadParam { dst, .. } => none.write_bits(*dst, width(dst)),
            Self::ParamAddress { dst, .. } => none.write(*dst, Type::U64),
            Self::Load { space, ty, dst, address } => {
                none.read(address.base, space.address_type()).writes(dst, Expect::Type(*ty))
            }
            Self::Store { space, ty, src, address } => {
                none.read(address.base, space.address_type()).read_all(src, *ty)
            }
            Self::MapShared { dst, address, rank } => {
                none.read_all(&[*address, *rank], Type::U32).write(*dst, Type::U32)
            }
            Self::BarrierSync { id, .. } | Self::BarrierArrive { id, .. } => none.read(*id, Type::U32),
            Self::MbarrierInvalidate { barrier } => none.read(*barrier, Type::U32),
            Self::MbarrierInit { barrier, count } | Self::MbarrierArrive { barrier, count, .. } => {
                none.read_all(&[*barrier, *count], Type::U32)
            }
            Self::MbarrierArriveExpectTx { barrier, bytes, .. }
            | Self::MbarrierExpectTx { barrier, bytes, .. } => none.read_all(&[*barrier, *bytes], Type::U32),
            Self::MbarrierTryWait { dst, barrier, parity, .. } => {
                none.read_all(&[*barrier, *parity], Type::U32).write(*dst, Type::Pred)
            }
            Self::MbarrierWait { barrier, parity, .. } => none.read_all(&[*barrier, *parity], Type::U32),
            Self::TensorLoad { map, coords, dst, barrier, multicast, .. } => {
                let all = none.read(*map, Type::U64).read_all(coords, Type::S32);
                let all = all.read_all(&[*dst, *barrier], Type::U32);
                match multicast {
                    Some(mask) => all.read(*mask, Type::U16),
                    None => all,
                }
            }
            Self::TensorStore { map, coords, src, .. } => {
                none.read(*map, Type::U64).read_all(coords, Type::S32).read(*src, Type::U32)
            }
            Self::PrefetchTensorMap { map } => none.read(*map, Type::U64),
            Self::TensorMap(map) => map.operands(),
            Self::Bulk(bulk) => bulk.operands(),
            Self::MbarrierMore(inst) => inst.operands(),
            Self::BarrierReduce(reduce) => reduce.operands(),
            Self::Wgmma { d, a, b, accumulate, sparse, .. } => {
                let all = match a {
                    WgmmaA::Shared(descriptor) => none.read(*descriptor, Type::U64),
                    WgmmaA::Registers(regs) => {
                        regs.iter().fold(none, |all, &reg| all.read_bits(Operand::Reg(reg), 32))
                    }
                };
                let all = all.read(*b, Type::U64);
                let all = match sparse {
                    Some(sparse) => all.read(Operand::Reg(sparse.metadata), Type::U32),
                    None => all,
                };
                all.read(*accumulate, Type::Pred).writes(d, Expect::Accumulator)
            }
            Self::Atomic(atomic) => atomic.operands(),
            Self::Ordered(access) => access.operands(),
            Self::CopyAsync(copy) => copy.operands(),
            Self::WarpMatrix(matrix) => matrix.operands(),
            Self::Warp(exchange) => exchange.operands(),
            Self::Alu(alu) => alu.operands(),
            Self::StoreMatrix { address, src, .. } => none.read(*address, Type::U32).read_all(src, Type::U32),
            Self::SetMaxRegisters { .. }
            | Self::GridDependency { .. }
            | Self::Trap
            | Self::WarpSync
            | Self::ClusterArrive { .. }
            | Self::ClusterWait
            | Self::FenceMbarrierInit
            | Self::FenceProxyAsync { .. }
            | Self::Fence { .. }
            | Self::BulkCommit
            | Self::BulkWait { .. }
            | Self::WgmmaFence
            | Self::WgmmaCommit
            | Self::WgmmaWait { .. } => none,
        }
    }

    /// The instruction's name in reports: PTX's name without suffixes.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Move { .. } => "mov",
            Self::Binary { .. } => "arithmetic",
            Self::MulAdd { .. } => "mad",
            Self::MulWide { .. } => "mul.wide",
            Self::Unary { .. } => "arithmetic",
            Self::Compare { .. } => "setp",
            Self::Select { .. } => "selp",
            Self::Convert { .. } | Self::Pack { .. } => "cvt",
            Self::Unpack { .. } => "mov",
            Self::ReadSpecial { .. } | Self::SharedBase { .. } => "mov",
            Self::ShuffleIndex { .. } | Self::ShuffleXor { .. } => "shfl.sync",
            Self::Elect { .. } => "elect.sync",
            Self::SetMaxRegisters { .. } => "setmaxnreg",
            Self::Trap => "trap",
            Self::GridDependency { .. } => "griddepcontrol",
            Self::LoadParam { .. } => "ld.param",
            Self::ParamAddress { .. } => "cvta.param",
            Self::Load { space: Space::Global, .. } => "ld.global",
            Self::Load { .. } => "ld.shared",
            Self::Store { space: Space::Global, .. } => "st.global",
            Self::Store { .. } => "st.shared",
            Self::MapShared { .. } => "mapa",
            Self::BarrierSync { .. } => "bar.sync",
            Self::BarrierArrive { .. } => "bar.arrive",
            Self::WarpSync => "bar.warp.sync",
            Self::ClusterArrive { .. } => "barrier.cluster.arrive",
            Self::ClusterWait => "barrier.cluster.wait",
            Self::MbarrierInit { .. } => "mbarrier.init",
            Self::MbarrierInvalidate { .. } => "mbarrier.inval",
            Self::MbarrierArrive { .. } => "mbarrier.arrive",
            Self::MbarrierArriveExpectTx { .. } => "mbarrier.arrive.expect_tx",
            Self::MbarrierExpectTx { .. } => "mbarrier.expect_tx",
            Self::MbarrierTryWait { .. } | Self::MbarrierWait { .. } => "mbarrier.try_wait",
            Self::FenceMbarrierInit => "fence.mbarrier_init",
            Self::FenceProxyAsync { .. } => "fence.proxy.async",
            Self::Fence { .. } => "fence",
            Self::TensorLoad { .. } | Self::TensorStore { .. } => "cp.async.bulk.tensor",
            Self::BulkCommit => "cp.async.bulk.commit_group",
            Self::BulkWait { .. } => "cp.async.bulk.wait_group",
            Self::PrefetchTensorMap { .. } => "prefetch.tensormap",
            Self::TensorMap(map) => map.name(),
            Self::Bulk(bulk) => bulk.name(),
            Self::MbarrierMore(inst) => inst.name(),
            Self::BarrierReduce(_) => "bar.red",
            Self::WgmmaFence => "wgmma.fence",
            Self::WgmmaCommit => "wgmma.commit_group",
            Self::WgmmaWait { .. } => "wgmma.wait_group",
            Self::Wgmma { .. } => "wgmma.mma_async",
            Self::Atomic(atomic) => atomic.name(),
            Self::Ordered(access) => access.name(),
            Self::CopyAsync(copy) => copy.name(),
            Self::WarpMatrix(matrix) => matrix.name(),
            Self::Warp(exchange) => exchange.name(),
            Self::Alu(alu) => alu.op.name(),
            Self::StoreMatrix { .. } => "stmatrix",
        }
    }
}
