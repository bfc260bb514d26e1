//! Random specs, legal and illegal: a legal one must agree with the oracle, an illegal one must be refused
//! with a sentence.

use falchion::verify::random::{Trial, trial};
use rayon::prelude::*;

/// Number of trials of a normal run, with a fixed seed; `falchion verify --random-specs` draws others.
const TRIALS: u64 = 400;

#[test]
fn random_specs_are_right_or_refused() {
    let trials: Vec<_> = (0..TRIALS).into_par_iter().map(|seed| (seed, trial(seed))).collect();
    let count = |counts: fn(&Trial) -> bool| trials.iter().filter(|(_, (_, trial))| counts(trial)).count();
    let wrong: Vec<String> = trials
        .iter()
        .filter_map(|(seed, (spec, trial))| match trial {
            Trial::Wrong(words) => Some(format!("seed {seed}: {spec}: {words}")),
            Trial::Right { .. } | Trial::Refused(_) | Trial::Unfit(_) => None,
        })
        .collect();
    assert_eq!(wrong, [""; 0]);
    // Both legal and illegal specs occur.
    let right = count(|trial| matches!(trial, Trial::Right { .. }));
    let refused = count(|trial| matches!(trial, Trial::Refused(_)));
    assert!(right >= 60 && refused >= 60, "{right} right, {refused} refused of {TRIALS}");
}
