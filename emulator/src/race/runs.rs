//! The byte ranges that the lanes of a warp access, with neighbouring accesses merged.

use super::By;
use crate::lanes::{Lanes, lanes};

/// A contiguous range of bytes that lanes of a warp access together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) start: u64,
    pub(crate) bytes: u64,
    pub(crate) by: By,
    /// The last lane of the range.
    last: usize,
}

/// The ranges that the `active` lanes of a warp access, `bytes` bytes per lane, with neighbours merged.
pub(crate) fn runs(addresses: &Lanes<u64>, bytes: u32, active: u32) -> Vec<Run> {
    let mut order: Lanes<u8> = [0; 32];
    let mut count = 0;
    let (mut sorted, mut before) = (true, 0);
    for lane in lanes(active) {
        (order[count], count) = (lane as u8, count + 1);
        sorted &= before <= addresses[lane];
        before = addresses[lane];
    }
    let order = &mut order[..count];
    if !sorted {
        order.sort_by_key(|&lane| addresses[usize::from(lane)]);
    }
    let shift = bytes.max(1).ilog2() as u8;
    let all = u64::from(bytes);
    let mut runs: Vec<Run> = Vec::new();
    for lane in order.iter().map(|&lane| usize::from(lane)) {
        let start = addresses[lane];
        if let Some(run) = runs.last_mut() {
            if run.start == start && run.bytes == all {
                let known = match run.by {
                    By::All(mask) => mask,
                    By::Copy { lane, .. } => 1 << lane,
                    By::Each { first, .. } => 1 << first,
                };
                run.by = By::All(known | 1 << lane);
                continue;
            }
            let follows = run.start.wrapping_add(run.bytes) == start && run.last + 1 == lane;
            if follows && matches!(run.by, By::Each { .. }) && bytes.is_power_of_two() {
                (run.bytes, run.last) = (run.bytes + all, lane);
                continue;
            }
        }
        // Lanes with the same address are not merged into a longer run. Only the last lane of a run can share
        // its address.
        let by =
            if bytes.is_power_of_two() { By::Each { first: lane as u32, shift } } else { By::lane(lane) };
        let shared =
            runs.last().is_some_and(|run| start < run.start.wrapping_add(run.bytes) && start > run.start);
        if shared && let Some(run) = runs.last_mut() {
            // The last lane of the run accesses the same bytes: cut it off.
            run.bytes -= all;
            let last = run.last;
            runs.push(Run { start, bytes: all, by: By::All(1 << last | 1 << lane), last });
            continue;
        }
        runs.push(Run { start, bytes: all, by, last: lane });
    }
    for run in &mut runs {
        if let (By::Each { first, .. }, true) = (run.by, run.bytes == all) {
            run.by = By::lane(first as usize);
        }
    }
    runs
}
