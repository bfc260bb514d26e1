//! Data flow: which registers the addresses and parities of mbarriers are computed from, and which values
//! differ between the threads of a CTA.
//!
//! Both are sets of registers closed under data flow. Control flow is ignored: the trip count of a loop
//! decides how often a barrier is used, not which one.

use crate::function::{Function, Statement};
use crate::inst::{BinaryOp, Bulk, Inst, MbarrierArrive, MbarrierPhase, MbarrierTest, Operand, Special};

/// Properties of each register.
pub(super) struct Flow {
    /// An mbarrier's address or parity, or the destination of a copy, is computed from the register.
    feeds: Vec<bool>,
    /// The register is a variable: more than one `mov` writes it.
    variable: Vec<bool>,
    /// The value depends on lane, thread or election.
    thread: Vec<bool>,
    /// The value may differ between the lanes of a warp.
    lane: Vec<bool>,
}

impl Flow {
    pub(super) fn new(function: &Function) -> Self {
        let instructions = Statement::instructions(&function.body);
        let registers = function.registers.len();
        let edges: Vec<(Vec<usize>, Vec<usize>)> = instructions
            .iter()
            .map(|inst| {
                let operands = inst.operands();
                let reads = operands.reads.iter().filter_map(|(operand, _)| index(*operand, registers));
                let writes = operands.writes.iter().map(|(reg, _)| reg.0 as usize);
                (reads.collect(), writes.filter(|&reg| reg < registers).collect())
            })
            .collect();

        let mut feeds = vec![false; registers];
        let mut thread = vec![false; registers];
        let mut lane = vec![false; registers];
        let mut moves = vec![0u32; registers];
        for (inst, (_, writes)) in instructions.iter().zip(&edges) {
            for reg in places(inst).into_iter().flatten().filter_map(|operand| index(operand, registers)) {
                feeds[reg] = true;
            }
            for &reg in writes {
                moves[reg] += u32::from(matches!(inst, Inst::Move { .. }));
                thread[reg] |= differs(inst);
                lane[reg] |= differs(inst);
            }
        }
        // Variables make cycles in the data flow, so both closures are iterated until nothing changes.
        let mut changed = true;
        while changed {
            changed = false;
            for (inst, (reads, writes)) in instructions.iter().zip(&edges) {
                if !unites(inst) && reads.iter().any(|&reg| lane[reg]) {
                    changed |= mark(&mut lane, writes);
                }
                if writes.iter().any(|&reg| feeds[reg]) {
                    changed |= mark(&mut feeds, reads);
                }
                if reads.iter().any(|&reg| thread[reg]) {
                    changed |= mark(&mut thread, writes);
                }
            }
        }
        Self { feeds, variable: moves.iter().map(|&count| count > 1).collect(), thread, lane }
    }

    /// Whether the instruction updates a position in a ring: it writes a variable from which an mbarrier's
    /// address or parity is computed, or it is the comparison with the end of the ring.
    #[expect(clippy::wildcard_enum_match_arm, reason = "positions are kept by these two alone")]
    pub(super) fn leads_to_barrier(&self, inst: &Inst) -> bool {
        let known = |set: &[bool], reg: crate::inst::Reg| set.get(reg.0 as usize).copied().unwrap_or(false);
        match inst {
            Inst::Move { dst, .. } => known(&self.feeds, *dst) && known(&self.variable, *dst),
            Inst::Compare { dst, b: Operand::Imm(_), .. } => known(&self.feeds, *dst),
            _ => false,
        }
    }

    /// Whether a condition may differ between the lanes of a warp.
    pub(super) fn chooses_lanes(&self, cond: Operand) -> bool {
        index(cond, self.lane.len()).is_some_and(|reg| self.lane[reg])
    }

    /// Whether a condition may differ between the threads of a CTA.
    pub(super) fn chooses_threads(&self, cond: Operand) -> bool {
        index(cond, self.thread.len()).is_some_and(|reg| self.thread[reg])
    }
}

/// Whether the result is the same in all lanes of a warp, although the operands differ.
#[expect(clippy::wildcard_enum_match_arm, reason = "no other instruction unites the lanes")]
fn unites(inst: &Inst) -> bool {
    use crate::inst::WarpInst::{Ballot, Reduce, Vote};
    match inst {
        Inst::ShuffleIndex { lane: Operand::Imm(_), .. }
        | Inst::Warp(Ballot { .. } | Reduce { .. } | Vote { .. }) => true,
        // The number of a thread's warp or warpgroup.
        Inst::Binary { op: BinaryOp::Div, b: Operand::Imm(by), .. } => *by > 0 && by.is_multiple_of(32),
        Inst::Binary { op: BinaryOp::Shr, b: Operand::Imm(by), .. } => *by >= 5,
        _ => false,
    }
}

fn index(operand: Operand, registers: usize) -> Option<usize> {
    match operand {
        Operand::Reg(reg) => Some(reg.0 as usize).filter(|&reg| reg < registers),
        Operand::Imm(_) => None,
    }
}

fn mark(set: &mut [bool], registers: &[usize]) -> bool {
    let before = registers.iter().filter(|&&reg| set[reg]).count();
    for &reg in registers {
        set[reg] = true;
    }
    before != registers.len()
}

/// The operands that select the barrier, the parity and the stage.
#[expect(clippy::wildcard_enum_match_arm, reason = "no other instruction names an mbarrier's place")]
fn places(inst: &Inst) -> [Option<Operand>; 2] {
    match inst {
        Inst::MbarrierArrive(MbarrierArrive { barrier, .. }) | Inst::MbarrierTransact { barrier, .. } => {
            [Some(*barrier), None]
        }
        Inst::MbarrierTest(MbarrierTest { barrier, phase, .. }) => match phase {
            MbarrierPhase::Parity(parity) => [Some(*barrier), Some(*parity)],
            MbarrierPhase::State(_) => [Some(*barrier), None],
        },
        Inst::MbarrierWait { barrier, parity, .. } => [Some(*barrier), Some(*parity)],
        Inst::TensorLoad { dst, barrier, .. }
        | Inst::Bulk(
            Bulk::Load { dst, barrier, .. }
            | Bulk::Share { dst, barrier, .. }
            | Bulk::AsyncStore { dst, barrier, .. }
            | Bulk::AsyncReduce { dst, barrier, .. },
        ) => [Some(*dst), Some(*barrier)],
        _ => [None, None],
    }
}

/// Whether the instruction itself gives different results in different threads.
fn differs(inst: &Inst) -> bool {
    matches!(inst, Inst::Elect { .. } | Inst::ReadSpecial { special: Special::ThreadX | Special::Lane, .. })
}
