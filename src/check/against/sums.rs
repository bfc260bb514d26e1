//! Where accumulators of `wgmma` are recorded: before the first statement that reads them. They are the device's until a wait, and which wait
//! it is depends on the way that a thread has come.

use std::collections::{BTreeMap, BTreeSet};

use ptx::inst::{Inst, Reg};

use super::flow::Flow;
use super::kinds::register;
use super::timed::Timed;

/// For each statement, the accumulators that it may be the first to read, each with the multiply that has written it.
pub(super) fn first_reads(flow: &Flow<'_>, timed: &Timed) -> BTreeMap<usize, Vec<(Reg, usize)>> {
    let all: BTreeSet<Reg> = multiplies(flow).flat_map(|(_, inst)| writes(inst)).collect();
    let numbers: BTreeMap<Reg, usize> = all.iter().enumerate().map(|(number, reg)| (*reg, number)).collect();
    let words = all.len().div_ceil(64);
    // For each statement, the accumulators that are written and not recorded before it on some way.
    let mut open = vec![vec![0_u64; words]; flow.nodes.len() + 1];
    let mut left: BTreeSet<usize> = multiplies(flow).map(|(node, _)| node).collect();
    while let Some(node) = left.pop_first() {
        let mut after = open[node].clone();
        if let Some(inst) = flow.nodes.get(node).and_then(|node| node.statement.inst()) {
            let mut set = |reg: &Reg, value: bool| {
                if let Some(number) = numbers.get(reg) {
                    let bit = 1 << (number % 64);
                    after[number / 64] = after[number / 64] & !bit | if value { bit } else { 0 };
                }
            };
            if matches!(inst, Inst::Wgmma { .. }) {
                writes(inst).for_each(|reg| set(&reg, true));
            } else if !timed.nodes.contains(&node) {
                reads(inst).for_each(|reg| set(&reg, false));
                writes(inst).for_each(|reg| set(&reg, false));
            }
        }
        for &next in flow.next(node) {
            let mut changed = false;
            for (held, new) in open[next].iter_mut().zip(&after) {
                changed |= *held | new != *held;
                *held |= new;
            }
            if changed {
                left.insert(next);
            }
        }
    }
    let mut wrote: BTreeMap<Reg, Vec<usize>> = BTreeMap::new();
    multiplies(flow)
        .for_each(|(node, inst)| writes(inst).for_each(|reg| wrote.entry(reg).or_default().push(node)));
    let mut first = BTreeMap::new();
    for (number, node) in flow.nodes.iter().enumerate() {
        let Some(inst) = node.statement.inst().filter(|inst| !matches!(inst, Inst::Wgmma { .. })) else {
            continue;
        };
        let is_open = |reg: &Reg| {
            numbers.get(reg).is_some_and(|index| open[number][index / 64] >> (index % 64) & 1 != 0)
        };
        let read: BTreeSet<Reg> = reads(inst).filter(is_open).collect();
        // The last one before it in the text, or else the last one of a loop.
        let by = |reg: Reg| {
            let by = wrote.get(&reg)?;
            let before = by.iter().rev().find(|&&node| node < number).or(by.last())?;
            Some((reg, *before))
        };
        if !read.is_empty() && !timed.nodes.contains(&number) {
            first.insert(number, read.into_iter().filter_map(by).collect());
        }
    }
    first
}

fn multiplies<'a>(flow: &'a Flow<'_>) -> impl Iterator<Item = (usize, &'a Inst)> {
    let insts = flow.nodes.iter().enumerate();
    insts
        .filter_map(|(number, node)| Some((number, node.statement.inst()?)))
        .filter(|(_, inst)| matches!(inst, Inst::Wgmma { .. }))
}

fn writes(inst: &Inst) -> impl Iterator<Item = Reg> + use<> {
    inst.operands().writes.into_iter().map(|(reg, _)| reg)
}

fn reads(inst: &Inst) -> impl Iterator<Item = Reg> + use<> {
    inst.operands().reads.into_iter().filter_map(|(operand, _)| register(operand))
}
