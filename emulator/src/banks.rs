//! Which registers multiplies use together.
//!
//! A multiply lends many registers at once, and the next one mostly the same. Registers that occur in the same multiplies, in the
//! same roles, form a *bank*: they are always lent together, so that a warp keeps the state of loans once per bank.

use std::collections::HashMap;

use ptx::inst::{Inst, Reg, WgmmaA};

use crate::program::Operation;

/// The registers that a multiply uses while it runs: its accumulators, and its inputs (fragments and
/// metadata).
pub(crate) fn lent(inst: &Inst) -> (&[Reg], [&[Reg]; 2]) {
    let Inst::Wgmma { d, a, sparse, .. } = inst else { return (&[], [&[]; 2]) };
    let fragment: &[Reg] = match a {
        WgmmaA::Shared(_) => &[],
        WgmmaA::Registers(fragment) => fragment,
    };
    (d, [fragment, sparse.as_ref().map_or(&[], |sparse| core::slice::from_ref(&sparse.metadata))])
}

/// The banks of a program. Bank 0 has the registers that no multiply uses.
#[derive(Clone, Debug, Default)]
pub(crate) struct Banks {
    /// The bank of each register.
    pub(crate) of: Vec<u32>,
    /// Number of banks.
    pub(crate) count: usize,
    /// By operation: the banks of the accumulators of a multiply. Empty for others.
    pub(crate) accumulators: Vec<Box<[u32]>>,
}

impl Banks {
    pub(crate) fn new(ops: &[Operation], registers: usize) -> Self {
        // By register: the lists that it is in.
        let mut lists: HashMap<&[Reg], usize> = HashMap::new();
        let mut within: Vec<Vec<usize>> = vec![Vec::new(); registers];
        for (accumulators, inputs) in ops.iter().filter_map(|op| op.action.inst()).map(lent) {
            for list in [accumulators].into_iter().chain(inputs).filter(|list| !list.is_empty()) {
                let (known, number) = (lists.len(), lists.entry(list).or_insert(usize::MAX));
                if *number == usize::MAX {
                    *number = known;
                    list.iter().for_each(|reg| within[reg.0 as usize].push(known));
                }
            }
        }
        let mut numbers: HashMap<&[usize], u32> = HashMap::from([(&[][..], 0)]);
        let mut of = Vec::with_capacity(registers);
        for lists in &within {
            let next = u32::try_from(numbers.len()).unwrap_or(u32::MAX);
            of.push(*numbers.entry(lists).or_insert(next));
        }
        let banks = |inst: &Inst| {
            let mut banks: Vec<u32> = lent(inst).0.iter().map(|reg| of[reg.0 as usize]).collect();
            banks.sort_unstable();
            banks.dedup();
            banks.into()
        };
        let accumulators = ops.iter().map(|op| op.action.inst().map_or_else(Box::default, banks)).collect();
        Self { count: numbers.len(), accumulators, of }
    }
}
