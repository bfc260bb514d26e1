//! What depends on time, or on the order of threads: it is not compared.

use std::collections::{BTreeSet, HashSet};

use ptx::inst::{Inst, OrderedInst, Reg, Special, WarpInst};

use super::flow::Flow;
use super::kinds::register;

/// What depends on time, or on the order of threads, directly or by others.
#[derive(Default)]
pub(super) struct Timed {
    /// Registers that hold such a value somewhere.
    pub(super) regs: HashSet<Reg>,
    /// Statements that are executed or not, or how often, for such a reason: the rounds of a poll.
    pub(super) nodes: BTreeSet<usize>,
}

impl Timed {
    /// Beside those of which an instruction tells it, these statements load what depends on time.
    pub(super) fn new(flow: &Flow<'_>, loads: &BTreeSet<usize>) -> Self {
        let mut timed = Self::default();
        let mut branches = BTreeSet::new();
        loop {
            let before = (timed.regs.len(), timed.nodes.len());
            for (number, node) in flow.nodes.iter().enumerate() {
                if let Some(inst) = node.statement.inst() {
                    let operands = inst.operands();
                    let reads = operands.reads.iter().filter_map(|(operand, _)| register(*operand));
                    let by_others = timed.nodes.contains(&number)
                        || reads.chain(node.guards.iter().copied()).any(|reg| timed.regs.contains(&reg));
                    if by_others || is_loose(inst) || loads.contains(&number) {
                        timed.regs.extend(operands.writes.iter().map(|(reg, _)| *reg));
                    }
                }
                let is_timed = node.decides().is_some_and(|reg| timed.regs.contains(&reg));
                if is_timed && branches.insert(number) {
                    timed.nodes.extend(flow.decided(number));
                }
            }
            if before == (timed.regs.len(), timed.nodes.len()) {
                return timed;
            }
        }
    }
}

/// Whether what an instruction writes depends on the order of threads, or on time.
#[expect(clippy::wildcard_enum_match_arm, reason = "the others do not")]
fn is_loose(inst: &Inst) -> bool {
    match inst {
        Inst::Atomic(_)
        | Inst::Ordered(OrderedInst::Load { .. })
        | Inst::MbarrierTest(_)
        | Inst::MbarrierArrive(_)
        | Inst::MbarrierPending { .. }
        | Inst::Warp(WarpInst::ActiveMask { .. }) => true,
        Inst::ReadSpecial { special, .. } => matches!(
            special,
            Special::WarpSlot
                | Special::Multiprocessor
                | Special::Multiprocessors
                | Special::Clock
                | Special::Clock64
                | Special::GlobalTimer
        ),
        _ => false,
    }
}
