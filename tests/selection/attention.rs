//! The records of attention and its gradient that come with the library.
//!
//! `RECORDS=write cargo test --profile ci --test selection shipped` rewrites the texts in [`TEXTS`] from the files there, which are of
//! `falchion tune --family attention --problem .. --jsonl FILE`.
//!
//! A problem ships if the kernel that the model takes now took at least [`GAIN`] times as long as the fastest in the same run: where the
//! model is right, nothing ships. Of several lines of a problem the last one says which kernel that is, and all of them must say so.
//!
//! Kernels of the gradient whose programs have changed since they were measured are not in the files.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use collective::Format;
use falchion::attention::backward::AttentionBackward;
use falchion::attention::{Attention, AttentionProblem, AttentionRequest, Lengths, Mask};
use kernel::{Card, Family, Machine};
use serde::Deserialize;

use super::shipped::text::{Kernels, digits, is_writing, read, written};

/// By how much the model's first is slower at least.
const GAIN: f64 = 1.01;

/// Texts of the crate, and the lines that they are made of.
const TEXTS: [[&str; 2]; 2] = [
    ["attention/src/h200.txt", include_str!("attention_h200.jsonl")],
    ["attention/src/backward/h200.txt", include_str!("backward_h200.jsonl")],
];

/// A line of a record.
#[derive(Deserialize)]
struct Line {
    family: String,
    problem: String,
    state: String,
    kernels: Vec<Timed>,
}

#[derive(Clone, Deserialize)]
struct Timed {
    spec: String,
    /// Microseconds of a few launches, and of its turns if it was near the best.
    quick: f64,
    microseconds: Option<f64>,
}

impl Timed {
    /// The kernel of a spec that is legal now.
    fn spec<K: Family>(&self) -> Option<K::Spec> {
        let text = if self.spec == "the default" { "" } else { &self.spec };
        text.parse().ok().filter(|spec| K::of_spec(spec).is_ok())
    }

    /// By what it takes longer than another one.
    fn over(&self, other: &Self) -> f64 {
        match (self.microseconds, other.microseconds) {
            (Some(own), Some(other)) => own / other,
            _ => self.quick / other.quick,
        }
    }
}

/// The fastest kernel of a problem's lines, if it ships.
fn record<K: Family>(problem: &str, lines: &[&Line], machine: &Machine) -> Option<(String, Kernels)> {
    let request = K::request(problem).unwrap_or_else(|error| panic!("{problem}: {error}"));
    let alone = K::unrecorded(&request);
    let model = K::first(&alone, machine).ok()?.kernel.spec()?;
    let space = K::ranked(&alone, machine, usize::MAX).ok()?;
    let is_known = |spec: &K::Spec| space.iter().any(|of| of.kernel.spec().as_ref() == Some(spec));
    let find = |line: &&Line, spec: &K::Spec| {
        line.kernels.iter().find(|of| of.spec::<K>().as_ref() == Some(spec)).cloned()
    };
    let last = lines.iter().rfind(|line| find(line, &model).is_some())?;
    let near = last.kernels.iter().filter(|of| of.microseconds.is_some());
    let near = near.filter_map(|of| Some((of, of.spec::<K>().filter(is_known)?)));
    let (best, spec) = near.min_by(|a, b| a.0.over(b.0).total_cmp(&1.0))?;
    let over = |line: &&Line| Some(find(line, &model)?.over(&find(line, &spec)?));
    let gains: Vec<f64> = lines.iter().filter_map(over).collect();
    println!("{} {problem}: {spec}; {model} takes {gains:.3?}", K::NAME);
    let kernel = (digits(best.microseconds?), spec.to_string());
    gains.iter().all(|gain| *gain >= GAIN).then(|| (K::problem(&request).to_string(), vec![kernel]))
}

/// Compares a text with its lines, or writes it. Gives the problems and their kernels.
fn shipped<K: Family>([path, lines]: [&str; 2], machine: &Machine) -> Vec<(String, Kernels)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    let before = fs::read_to_string(&path).expect("the file is part of the crate");
    let read_line = |line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    let lines: Vec<Line> = lines.lines().map(read_line).collect();
    assert!(lines.iter().all(|line| (&*line.family, &*line.state) == (K::NAME, "burst")));
    let mut problems: BTreeMap<&str, Vec<&Line>> = BTreeMap::new();
    lines.iter().for_each(|line| problems.entry(&line.problem).or_default().push(line));
    let records: BTreeMap<_, _> =
        problems.iter().filter_map(|(problem, lines)| record::<K>(problem, lines, machine)).collect();
    let text = written(&before, records.into_iter());
    if is_writing() {
        fs::write(&path, text).expect("a writable folder");
        return Vec::new();
    }
    assert_eq!(before, text, "{}: what follows from the lines and the model; RECORDS=write", path.display());
    read(&text)
}

/// The choice of a problem that ships is its record, on that card alone; and no other problem has it. Gives the number of records.
fn chosen<K>(text: [&str; 2]) -> usize
where
    K: for<'r> Family<Request<'r> = AttentionRequest, Problem = String>,
{
    let (h200, h100) = (Machine::h200(), Machine::of(&Card::H100));
    let shipped = shipped::<K>(text, &h200);
    let first = |request: &AttentionRequest, machine: &Machine| {
        let first =
            K::first(request, machine).unwrap_or_else(|error| panic!("{}: {error}", K::problem(request)));
        let ranked = K::ranked(request, machine, 3).expect("the same kernels");
        if !first.reason.is_empty() {
            assert_eq!(ranked[0].kernel.spec(), first.kernel.spec());
        }
        (first.kernel.spec().expect("a spec").to_string(), first.reason)
    };
    for (problem, kernels) in &shipped {
        let request = K::request(problem).unwrap_or_else(|error| panic!("{problem}: {error}"));
        assert_eq!(K::problem(&request), *problem, "as it is written");
        let [(time, spec)] = &kernels[..] else { panic!("{problem}: one kernel was needed") };
        let kernel = spec.parse().ok().and_then(|spec| K::of_spec(&spec).ok());
        let kernel: K = kernel.unwrap_or_else(|| panic!("{problem}: `{spec}` is no spec"));
        kernel.serves(&request).unwrap_or_else(|error| panic!("{problem}: {error}"));
        let time: f64 = time.parse().expect("microseconds");
        assert_eq!(first(&request, &h200), (spec.clone(), format!("measured, {time:.1} us")), "{problem}");
        let alone = K::unrecorded(&request);
        assert_ne!(first(&alone, &h200).0, *spec, "{problem}: the model is right");
        assert_eq!(first(&request, &h100), first(&alone, &h100), "{problem}: another card");
        let without = AttentionRequest { log_sum_exp: false, ..request };
        assert_eq!(first(&without, &h200).0, *spec, "{problem}: without the log-sum-exp");
        let (own, _) = first(&AttentionRequest { workspace: false, ..request }, &h200);
        let lent = ["parts=", "order=drawn"].into_iter().any(|word| own.contains(word));
        assert!(!lent, "{problem}: {own} without a workspace");
        for other in others(&request) {
            let text = K::problem(&other);
            if K::request(&text).is_ok() && shipped.iter().all(|(problem, _)| *problem != text) {
                assert_eq!(first(&other, &h200), first(&K::unrecorded(&other), &h200), "{problem}: {text}");
            }
        }
    }
    shipped.len()
}

/// Requests that differ from one in one thing each.
fn others(request: &AttentionRequest) -> Vec<AttentionRequest> {
    let of = *request;
    let AttentionProblem { batch, heads: [heads, shared], queries, keys, .. } = of.problem;
    let problems = [
        AttentionProblem { batch: batch + 1, ..of.problem },
        AttentionProblem { heads: [2 * heads, shared], ..of.problem },
        AttentionProblem { heads: [2 * heads, 2 * shared], ..of.problem },
        AttentionProblem { queries: queries + 1, ..of.problem },
        AttentionProblem { keys: keys + 1, ..of.problem },
    ];
    let mask = if of.mask == Mask::Full { Mask::Causal } else { Mask::Full };
    let mut all: Vec<_> = problems.into_iter().map(|problem| AttentionRequest { problem, ..of }).collect();
    all.extend([
        AttentionRequest { format: Format::F16, output: Format::F16, ..of },
        AttentionRequest { head: of.head.map(|d| if d == 128 { 64 } else { 128 }), ..of },
        AttentionRequest { mask, ..of },
        AttentionRequest { mask: Mask::Window, numbers: [64, 0], ..of },
        AttentionRequest { lengths: Lengths::Packed, ..of },
        AttentionRequest { fixed: true, ..of },
        AttentionRequest { aligned: false, ..of },
        AttentionRequest { pages: Some(64), ..of },
        AttentionRequest { cache: Some(Format::E4m3), ..of },
    ]);
    all
}

#[test]
fn shipped_records_of_attention_are_its_choices() {
    assert!(chosen::<Attention>(TEXTS[0]) > 0 || is_writing(), "there are records");
}

#[test]
fn shipped_records_of_gradients_are_its_choices() {
    chosen::<AttentionBackward>(TEXTS[1]);
}
