//! The model that chooses kernels, held against what was measured.
//!
//! `examples/fit` fits its numbers to half of the shapes; by the other half they are judged alone, and by all together. The
//! present numbers are older than the halves and were fitted to all.
//!
//! `tests/selection/*.json` are records of `falchion bench --suite selection --all-configs --json FILE`. Kernels that
//! have come since are left out of a ranking, kernels that have gone out of a record.

#[path = "../examples/fit/half.rs"]
mod half;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use cute_rs::atom::Major;
use kernel::{AnyGemm, GemmProblem, Machine, Request, rank};
use serde::Deserialize;

/// The first choice may be this much slower than the best kernel.
const WITHIN: f64 = 1.03;

/// Of this part of all shapes.
const PART: f64 = 0.9;

/// Of this part of the shapes that are not fitted to, of which one in a record is a twentieth.
const JUDGED: f64 = 0.8;

/// Shapes that a record holds at least, and that it judges by.
const SHAPES: [usize; 2] = [30, 15];

#[derive(Deserialize)]
struct Record {
    dtype: String,
    layout: String,
    figures: Vec<Figure>,
}

#[derive(Deserialize)]
struct Figure {
    m: u32,
    n: u32,
    k: u32,
    candidate: String,
    state: String,
    /// Clusters that ran at once; none for candidates that are not ours.
    slots: Option<u32>,
    microseconds: f64,
}

fn records() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/selection");
    let files = fs::read_dir(folder).expect("the folder of records");
    let mut paths: Vec<PathBuf> = files.map(|file| file.expect("a file").path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    paths.sort();
    assert!(!paths.is_empty(), "there is no record");
    paths
}

fn read(path: &Path) -> Record {
    let text = fs::read_to_string(path).expect("a readable record");
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

impl Record {
    /// Microseconds of the catalogue's kernels by shape.
    fn shapes(&self) -> Vec<(GemmProblem, BTreeMap<&str, f64>)> {
        let ours = |figure: &&Figure| {
            figure.slots.is_some() && figure.state == "burst" && kernel::find(&figure.candidate).is_ok()
        };
        let mut shapes: BTreeMap<[u32; 3], BTreeMap<&str, f64>> = BTreeMap::new();
        for figure in self.figures.iter().filter(ours) {
            let times = shapes.entry([figure.m, figure.n, figure.k]).or_default();
            times.insert(&figure.candidate, figure.microseconds);
        }
        shapes.into_iter().map(|([m, n, k], times)| (GemmProblem { m, n, k }, times)).collect()
    }

    fn majors(&self) -> [Major; 2] {
        let major = |letter| if letter == 'k' { Major::K } else { Major::Mn };
        let letters: Vec<char> = self.layout.chars().collect();
        [major(letters[0]), major(letters[1])]
    }
}

#[test]
fn the_first_choice_is_nearly_the_best() {
    for path in records() {
        let record = read(&path);
        let (mut good, mut judged_good, mut misses, mut known) = (0, 0, Vec::new(), 0);
        let shapes = record.shapes();
        let judges = |problem: &GemmProblem| !half::fitted([problem.m, problem.n, problem.k]);
        let judged = shapes.iter().filter(|(problem, _)| judges(problem)).count();
        for (problem, times) in &shapes {
            let measured = |gemm: &AnyGemm| times.contains_key(gemm.name());
            let kernels: Vec<_> = kernel::catalogue().into_iter().filter(|gemm| measured(gemm)).collect();
            known = known.max(kernels.len());
            let request = Request::packed(&record.dtype, record.majors(), *problem);
            let selection = rank(kernels, &request, &Machine::h200());
            let pick = selection.ranked.first().expect("a measured kernel can do the shape").gemm.name();
            let best = times.values().copied().fold(f64::INFINITY, f64::min);
            if times[pick] <= WITHIN * best {
                good += 1;
                judged_good += usize::from(judges(problem));
            } else {
                misses.push(format!("{problem:?}: {pick} takes {:.3} of the best", times[pick] / best));
            }
        }
        let name = path.display();
        assert!(shapes.len() >= SHAPES[0] && known > 1, "{name}: {} shapes, {known} kernels", shapes.len());
        assert!(judged >= SHAPES[1] && shapes.len() - judged >= SHAPES[1], "{name}: an uneven division");
        let parts = [good as f64 / shapes.len() as f64, judged_good as f64 / judged as f64];
        println!("{name}: good at {good} of {}, {judged_good} of {judged}; {misses:#?}", shapes.len());
        for (part, least) in parts.into_iter().zip([PART, JUDGED]) {
            assert!(part >= least, "{name}: only {:.0} %: {misses:#?}", 100.0 * part);
        }
    }
}

/// The model counts the clusters that run at once as the driver does.
#[test]
fn slots_are_those_of_the_driver() {
    for path in records() {
        for figure in read(&path).figures {
            if let (Some(slots), Ok(gemm)) = (figure.slots, kernel::find(&figure.candidate)) {
                assert_eq!(Machine::h200().slots(&gemm.plan()), slots, "{}", figure.candidate);
            }
        }
    }
}
