//! [`Meetings`] see what races: in the program with the hazard two statements meet that do not meet in its twin.

use emulator::{Failure, Fault, Meetings, Met, Options, Schedule};

use super::table::groups;
use super::{Case, FUEL, launch};

/// Hazards that they do not see, since they know nothing of flags and locks, of fences, memory orders and scopes, and of the lanes of one
/// instruction. If one is seen, it must be removed here.
const UNSEEN: &[&str] = &[
    "a producer that sees the operands given back by a relaxed wait",
    "a flag in shared memory that is not acquired",
    "a flag in shared memory that is not released",
    "a relaxed arrival at the cluster's barrier publishes nothing",
    "a flag at a peer raised for its own CTA alone",
    "a counter at a peer added to for the own CTA alone",
    "a lock in shared memory given back without releasing",
    "a word that two lanes store to in one instruction, and read back at once",
    "a word that all lanes overwrite, and one of them has waited for its reader",
    "one lane acquires a flag: wgmma of A",
    "one lane acquires a flag: wgmma of B",
    "one lane acquires a flag: ldmatrix",
    "one lane acquires a flag: stmatrix",
    "one lane acquires a flag: tensormap.cp_fenceproxy",
    "a barrier made without its fence before a relaxed barrier of the cluster",
    "all lanes store 7 to a word of shared memory, then one lane stores 9",
    "a mark that all lanes set, and one lane clears in the same round",
    "lanes that replace one field of a map together, each with its own value",
    "a barrier without a fence that a relaxed barrier of the cluster tells a peer",
    "parts of warps that a relaxed count in shared memory stands for",
];

/// What meets under some schedules, and whether a race in shared memory was found.
fn run(case: &Case, broken: bool) -> (Met, bool) {
    let (meetings, mut races) = (Meetings::new(), false);
    for (schedule, seed) in Schedule::sweep(4) {
        let watched = Options { meetings: Some(&meetings), fuel: FUEL, threads: 1, ..Options::default() };
        let Err(Failure::Trap(trap)) = launch(case, broken, &Options { schedule, seed, ..watched }) else {
            continue;
        };
        races |= matches!(trap.fault, Fault::SharedRace { .. } | Fault::SharedInFlight { .. });
    }
    (meetings.into_met(), races)
}

#[test]
fn statements_that_race_meet() {
    let (mut races, mut unseen) = (0, Vec::new());
    for case in groups().into_iter().flat_map(|(_, cases)| cases) {
        let (broken, true) = run(&case, true) else { continue };
        let (twin, false) = run(&case, false) else { panic!("{}: the twin races", case.why) };
        races += 1;
        let seen = broken.iter().any(|(pair, at)| twin.get(pair).is_none_or(|known| !at.is_subset(known)));
        if !seen {
            unseen.push(case.why);
        }
    }
    assert_eq!(unseen, UNSEEN, "of {races}");
    assert!(races > 150, "{races}");
}
