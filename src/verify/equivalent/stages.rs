//! Checks of the program for reasons about stages without any bytes, whose barriers only count.

use ptx::inst::{BinaryOp, Inst, MbarrierArrive, Operand};
use ptx::mutate::{Mutation, numbered};
use ptx::{Function, Region};

use super::checks::{arrives, next_step};
use super::threads::{Writes, writes};

/// What a ring calls the barriers of its empty stages.
const EMPTY: &str = "the empty barrier of ";

/// Whether the statement is about the empty barrier of stages without any bytes.
pub(super) fn without_bytes(function: &Function, mutation: &Mutation) -> bool {
    let all = numbered(function);
    let inst = all.get(mutation.index).and_then(|statement| statement.inst());
    inst.is_some_and(|inst| empties_nothing(function, inst))
}

/// Whether the statement is swapped with an arrival at such a barrier.
pub(super) fn without_bytes_next(function: &Function, mutation: &Mutation) -> bool {
    next_step(function, mutation).is_some_and(|next| arrives(next) && empties_nothing(function, next))
}

fn empties_nothing(function: &Function, inst: &Inst) -> bool {
    let (Inst::MbarrierArrive(MbarrierArrive { barrier, .. }) | Inst::MbarrierWait { barrier, .. }) = inst
    else {
        return false;
    };
    let writes = writes(function);
    let Some(offset) = constant(&writes, *barrier) else { return false };
    let holds =
        |region: &&Region| (region.offset..region.offset + region.stride * region.count).contains(&offset);
    let mut stages =
        function.regions.iter().filter(holds).filter_map(|region| region.name.strip_prefix(EMPTY));
    let Some(stage) = stages.next() else { return false };
    let of_ring = || function.regions.iter().filter(|region| region.name == stage);
    stages.next().is_none() && of_ring().next().is_some() && of_ring().all(|region| region.bytes == 0)
}

/// The constant in an address in shared memory: the sum of the numbers that are added to the address of shared memory and to a multiple of a
/// stage's number.
fn constant(writes: &Writes<'_>, address: Operand) -> Option<u32> {
    let reg = match address {
        Operand::Imm(bits) => return u32::try_from(bits).ok(),
        Operand::Reg(reg) => reg,
    };
    let written = (*writes.get(&reg)?)?;
    if let Inst::Binary { op: BinaryOp::Add, a, b, .. } = written {
        return Some(constant(writes, *a)?.wrapping_add(constant(writes, *b)?));
    }
    if let Inst::Move { src, .. } = written {
        return constant(writes, *src);
    }
    if let Inst::SharedBase { offset, .. } = written {
        return Some(*offset);
    }
    let of_stage =
        matches!(written, Inst::Binary { op: BinaryOp::Mul | BinaryOp::Shl, b: Operand::Imm(_), .. });
    of_stage.then_some(0)
}
