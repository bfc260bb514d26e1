//! Votes, matches, reductions and shuffles between lanes of a warp.

use ptx::Type;
use ptx::inst::{Operand, ReduceOp, Shuffle, Vote, WarpInst};

use super::control::leader;
use crate::lanes::lanes;
use crate::schedule::Options;
use crate::trap::Fault;
use crate::warp::{Registers, Warp};

/// The lanes of the member mask. It must name exactly the lanes that execute the instruction now, and be the same in all
/// of them. Lanes that have ended do not count (ISA "vote.sync": non-exited threads).
fn members(registers: &mut Registers<'_>, operand: Operand) -> Result<u32, Fault> {
    let members = registers.uniform(operand, "member mask")?;
    let active = registers.active;
    if members & registers.alive == active { Ok(active) } else { Err(Fault::Members { members, active }) }
}

/// The lane that a lane's value comes from, and whether it is in range. If not, it is the lane itself.
fn source(mode: Shuffle, lane: u32, j: u32, width: u32) -> (u32, bool) {
    let first = lane & !(width - 1);
    let last = first + width - 1;
    let j = j & 31;
    let (from, found) = match mode {
        Shuffle::Up => (lane.wrapping_sub(j), lane >= first + j),
        Shuffle::Down => (lane + j, lane + j <= last),
        Shuffle::Butterfly => (lane ^ j, lane ^ j <= last),
        Shuffle::Index => (first | (j & (width - 1)), true),
    };
    if found { (from, true) } else { (lane, false) }
}

fn reduced(op: ReduceOp, ty: Type, a: u32, b: u32) -> u32 {
    let signed = ty.is_signed();
    match op {
        ReduceOp::Add => a.wrapping_add(b),
        ReduceOp::Min if signed => a.cast_signed().min(b.cast_signed()).cast_unsigned(),
        ReduceOp::Min => a.min(b),
        ReduceOp::Max if signed => a.cast_signed().max(b.cast_signed()).cast_unsigned(),
        ReduceOp::Max => a.max(b),
        ReduceOp::And => a & b,
        ReduceOp::Or => a | b,
        ReduceOp::Xor => a ^ b,
    }
}

/// Executes the instruction. Lanes that name different masks execute it apart. `apart`: lanes that `activemask` does not
/// find together with the others.
pub(super) fn exchange(
    warp: &mut Warp<'_>,
    inst: &WarpInst,
    (options, apart): (&Options<'_>, u32),
) -> Result<(), Fault> {
    let active = warp.registers.active;
    let Some(mask) = inst.members() else { return together(warp, inst, (options, apart)) };
    let masks = warp.registers.read(mask)?;
    let mut left = active;
    while left != 0 {
        let first = masks[left.trailing_zeros() as usize];
        let group = lanes(left).filter(|&lane| masks[lane] == first).fold(0, |all, lane| all | 1 << lane);
        warp.registers.active = group;
        let done = together(warp, inst, (options, apart));
        warp.registers.active = active;
        done?;
        left &= !group;
    }
    Ok(())
}

fn together(
    warp: &mut Warp<'_>,
    inst: &WarpInst,
    (options, apart): (&Options<'_>, u32),
) -> Result<(), Fault> {
    let registers = &mut warp.registers;
    match inst {
        WarpInst::Vote { vote, dst, src, members: mask } => {
            let mask = members(registers, *mask)?;
            let votes = registers.predicate(*src)? & mask;
            let holds = match vote {
                Vote::All => votes == mask,
                Vote::Any => votes != 0,
                Vote::Uniform => votes == mask || votes == 0,
            };
            registers.write_predicate(*dst, if holds { u32::MAX } else { 0 })
        }
        WarpInst::Ballot { dst, src, members: mask } => {
            let mask = members(registers, *mask)?;
            let votes = registers.predicate(*src)? & mask;
            registers.write(*dst, &[votes; 32])
        }
        WarpInst::MatchAny { ty, dst, src, members: mask } => {
            let mask = members(registers, *mask)?;
            let values = registers.read_as(*ty, *src)?;
            let alike = |lane: usize| {
                lanes(mask)
                    .filter(|&other| values[other] == values[lane])
                    .fold(0, |all, other| all | 1 << other)
            };
            registers.write(*dst, &core::array::from_fn(alike))
        }
        WarpInst::MatchAll { ty, dst, all, src, members: mask } => {
            let mask = members(registers, *mask)?;
            let values = registers.read_as(*ty, *src)?;
            let first = values[mask.trailing_zeros().min(31) as usize];
            let same = lanes(mask).all(|lane| values[lane] == first);
            registers.write(*dst, &[if same { mask } else { 0 }; 32])?;
            registers.write_predicate(*all, if same { u32::MAX } else { 0 })
        }
        WarpInst::Reduce { op, ty, dst, src, members: mask } => {
            let mask = members(registers, *mask)?;
            let values = registers.read(*src)?;
            let joined = lanes(mask).map(|lane| values[lane]).reduce(|a, b| reduced(*op, *ty, a, b));
            registers.write(*dst, &[joined.unwrap_or(0); 32])
        }
        WarpInst::Shuffle { mode, dst, found, src, lane, width, members: mask } => {
            let mask = members(registers, *mask)?;
            let (values, by) = (registers.read(*src)?, registers.read(*lane)?);
            let (mut taken, mut there) = (values, 0);
            for lane in lanes(mask) {
                let (from, found) = source(*mode, lane as u32, by[lane], *width);
                if mask >> from & 1 == 0 {
                    return Err(Fault::ShuffleSource { from, members: mask });
                }
                taken[lane] = values[from as usize];
                there |= u32::from(found) << lane;
            }
            registers.write(*dst, &taken)?;
            found.map_or(Ok(()), |found| registers.write_predicate(found, there))
        }
        WarpInst::Elect { dst, lane, members: mask } => {
            let mask = members(registers, *mask)?;
            let chosen = leader(mask, options);
            if let Some(lane) = lane {
                registers.write(*lane, &[chosen.trailing_zeros() & 31; 32])?;
            }
            registers.write_predicate(*dst, chosen)
        }
        WarpInst::Sync { members: mask } => {
            let mask = members(registers, *mask)?;
            warp.views.meet(mask);
            Ok(())
        }
        WarpInst::ActiveMask { dst } => {
            // Nothing says which of the lanes execute it together. ISA "activemask".
            let (some, others) = (registers.active & apart, registers.active & !apart);
            registers
                .write(*dst, &core::array::from_fn(|lane| if apart >> lane & 1 == 1 { some } else { others }))
        }
        WarpInst::Sleep { nanoseconds } => registers.read(*nanoseconds).map(drop),
    }
}
