//! Random specs, legal and illegal: a legal one must agree with the oracle, an illegal one must be refused
//! with a sentence.

use std::collections::BTreeMap;

use falchion::kernel::{AnyGemm, KernelSpec};
use falchion::verify::random::{Trial, spec, trial};
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

/// What a process keeps by kernel, it keeps by the entry's name. Each spec takes every word of another one in turn, and loses each of its own.
#[test]
fn kernels_of_one_name_have_one_program() {
    let of = |words: &BTreeMap<&str, &str>| {
        let words: Vec<_> = words.iter().map(|(key, value)| format!("{key}={value}")).collect();
        words.join(" ").parse::<KernelSpec>().ok()?.kernel().ok()
    };
    let differ = |seed: u64| {
        let texts = [seed, seed + TRIALS].map(|seed| spec(seed).to_string());
        let [own, other] = texts
            .each_ref()
            .map(|text| text.split(' ').filter_map(|word| word.split_once('=')).collect::<BTreeMap<_, _>>());
        let Some(kernel) = of(&own) else { return (0, Vec::new()) };
        let given = other.into_iter().map(|(key, value)| (key, Some(value)));
        let changes = given
            .chain(own.keys().map(|&key| (key, None)))
            .filter(|(key, value)| own.get(key).copied() != *value);
        let changed = changes.filter_map(|(key, value)| {
            let mut words = own.clone();
            words.remove(key);
            words.extend(value.map(|value| (key, value)));
            Some((key, of(&words)?))
        });
        let changed: Vec<_> = changed.collect();
        let text = |kernel: &AnyGemm| kernel.program().map(|program| program.text().to_owned());
        let same = changed
            .iter()
            .filter(|(_, of)| of.entry_name() == kernel.entry_name() && text(of) != text(&kernel));
        (changed.len(), same.map(|(key, of)| format!("{key} of {}: {}", texts[0], of.entry_name())).collect())
    };
    let all: Vec<_> = (0..TRIALS).into_par_iter().map(differ).collect();
    let wrong: Vec<_> = all.iter().flat_map(|(_, same)| same).collect();
    assert_eq!(wrong, [""; 0]);
    let compared: usize = all.iter().map(|(compared, _)| compared).sum();
    assert!(compared >= 500, "{compared} of {TRIALS}");
}
