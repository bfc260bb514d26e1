//! Checks of the program for reasons about groups of multiplies.

use ptx::inst::Inst;
use ptx::mutate::{Mutation, numbered};
use ptx::{Function, Statement};

use super::checks::next_step;

/// Groups beyond this number are not counted.
const MOST: u32 = 8;

/// Whether the end of a group is swapped with a step that neither starts a multiply nor ends groups or waits for them.
pub(super) fn ends_later(function: &Function, mutation: &Mutation) -> bool {
    let of_groups = |inst: &Inst| inst.name().starts_with("wgmma.") && !matches!(inst, Inst::WgmmaFence);
    next_step(function, mutation).is_some_and(|next| !of_groups(next))
}

/// Whether the end of a group is swapped with a wait that lets as many groups run as there are at most, this one included.
pub(super) fn waits_for_none(function: &Function, mutation: &Mutation) -> bool {
    let Some(Inst::WgmmaWait { pending }) = next_step(function, mutation) else { return false };
    most_groups(function, mutation).is_some_and(|groups| groups < *pending)
}

/// Whether a wait lets as many groups run as there are at most.
pub(super) fn waits_for_nothing(function: &Function, mutation: &Mutation) -> bool {
    let all = numbered(function);
    let wait = all.get(mutation.index).and_then(|statement| statement.inst());
    let Some(Inst::WgmmaWait { pending }) = wait else { return false };
    most_groups(function, mutation).is_some_and(|groups| groups <= *pending)
}

/// The largest number of groups in flight where the statement begins, if they are counted.
fn most_groups(function: &Function, mutation: &Mutation) -> Option<u32> {
    let all = numbered(function);
    let &statement = all.get(mutation.index)?;
    let mut count = Count { statement, there: None, at_end: vec![0] };
    count.block(&function.body, 0);
    count.there.filter(|&groups| groups < MOST)
}

/// The largest number of groups in flight, on any path.
struct Count<'a> {
    statement: &'a Statement,
    /// When the statement begins.
    there: Option<u32>,
    /// When each of the loops around ends.
    at_end: Vec<u32>,
}

impl Count<'_> {
    /// The number after a block, from that before it.
    fn block(&mut self, block: &[Statement], before: u32) -> u32 {
        block.iter().fold(before, |groups, statement| self.after(statement, groups))
    }

    fn after(&mut self, statement: &Statement, groups: u32) -> u32 {
        if core::ptr::eq(statement, self.statement) {
            self.there = Some(self.there.unwrap_or(0).max(groups));
        }
        match statement {
            Statement::Inst { inst: Inst::WgmmaCommit, .. } => (groups + 1).min(MOST),
            Statement::Inst { inst: Inst::WgmmaWait { pending }, .. } => groups.min(*pending),
            Statement::Inst { .. } => groups,
            Statement::Break { .. } => {
                if let Some(at_end) = self.at_end.last_mut() {
                    *at_end = groups.max(*at_end);
                }
                groups
            }
            Statement::Scope { body, .. } => self.block(body, groups),
            Statement::If { then, otherwise, .. } => {
                self.block(then, groups).max(self.block(otherwise, groups))
            }
            Statement::Loop { body, .. } => {
                self.at_end.push(0);
                let mut first = groups;
                loop {
                    let again = self.block(body, first).max(first);
                    if again == first {
                        break;
                    }
                    first = again;
                }
                self.at_end.pop().unwrap_or(MOST)
            }
            // Anything may come before a label.
            Statement::Label(_) | Statement::Branch { .. } | Statement::Exit { .. } => MOST,
        }
    }
}
