//! Flat bodies: the statements that some lanes of a warp jump over.

use std::collections::BTreeMap;

use super::flow::Flow;
use crate::function::Statement;

/// Whether each statement of a flat body, in pre-order, is between a branch that may differ between the lanes of a warp and its label,
/// or between two such places. All false for a structured body.
pub(super) fn apart(body: &[Statement], flow: &Flow) -> Vec<bool> {
    let all = Statement::all(body);
    let labels: BTreeMap<&str, usize> = (0..)
        .zip(&all)
        .filter_map(
            |(at, statement)| if let Statement::Label(name) = statement { Some((&**name, at)) } else { None },
        )
        .collect();
    let mut apart = vec![false; all.len()];
    for (at, statement) in all.iter().enumerate() {
        let Statement::Branch { guard, target, .. } = statement else { continue };
        let Some(&to) = labels.get(&**target) else { continue };
        // Where lanes are apart, the end of a branch leads around the other one.
        let chooses = guard.map_or(apart[at], |guard| apart[at] || flow.chooses_lanes(guard.cond));
        if chooses && to > at {
            apart[at + 1..to].fill(true);
        }
    }
    apart
}
