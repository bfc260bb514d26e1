//! The records that come with the library: those of the files in [`CARDS`], and the fastest kernel of some other
//! shapes.
//!
//! `RECORDS=write cargo test --release --test selection shipped` rewrites `kernel/src/select/h200.txt` and the others from
//! these files. Shapes with one kernel stay unchanged, unless a file has them. [`text`] has what texts of all families share.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use kernel::KernelSpec;

use super::{Line, read};

#[path = "text.rs"]
pub(super) mod text;

use text::{digits, is_writing};

/// What is known of a shape: whether launches were replayed in graphs, and microseconds and specs, the fastest first.
type Kernels = (bool, text::Kernels);

/// All times of each spec of a shape.
type Times = BTreeMap<String, Vec<f64>>;

/// The word behind a shape that was measured in graphs.
const GRAPHS: &str = " graphs";

/// What ships for a card, its formats, the files that it is made of, and the least number of shapes.
const CARDS: [(&str, &str, &[&str], usize); 4] = [
    (
        "h200.txt",
        "bf16",
        &[
            "fitted.jsonl",
            "added.jsonl",
            "h200_streams.jsonl",
            "h200_graphs.jsonl",
            "h200_kept.jsonl",
            "h200_front.jsonl",
            "h200_varied.jsonl",
            "h200_ragged.jsonl",
            "h200_few.jsonl",
            "h200_last.jsonl",
            "h200_few_last.jsonl",
            "h200_ahead.jsonl",
            "h200_few_ahead.jsonl",
            "h200_drawn.jsonl",
            "h200_few_drawn.jsonl",
            "h200_lines.jsonl",
            "h200_eight.jsonl",
            "h200_past.jsonl",
        ],
        1170,
    ),
    (
        "h200_scaled.txt",
        "e4m3-1x128-128x128",
        &[
            "scaled_h200_streams.jsonl",
            "scaled_h200_graphs.jsonl",
            "scaled_h200_kept.jsonl",
            "scaled_h200_varied.jsonl",
        ],
        80,
    ),
    (
        "h100.txt",
        "bf16",
        &["h100.jsonl", "h100_latest.jsonl", "h100_drawn.jsonl", "h100_fresh.jsonl", "h100_added.jsonl"],
        290,
    ),
    (
        "h100_scaled.txt",
        "e4m3-1x128-128x128",
        &["scaled_h100.jsonl", "scaled_h100_drawn.jsonl", "scaled_h100_named.jsonl"],
        70,
    ),
];

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("kernel/src/select").join(name)
}

/// The text of a spec that is legal now, without the words that all specs share.
fn text(line: &Line, spec: &str) -> Option<String> {
    let spec =
        KernelSpec::parse(&format!("{spec} dtype={} layout={}", line.types().a.name(), line.layout)).ok()?;
    spec.plan().ok()?;
    let text = spec.to_string();
    let words = text.split(' ').filter(|word| !matches!(*word, "dtype=bf16" | "layout=kk"));
    Some(words.collect::<Vec<_>>().join(" "))
}

/// The measurements of these files; several times of a kernel count as their mean.
fn measured(types: &str, files: &[&str]) -> BTreeMap<[u32; 3], Kernels> {
    let mut all: BTreeMap<[u32; 3], (bool, Times)> = BTreeMap::new();
    let lines: Vec<Line> = files.iter().flat_map(|name| read(name)).collect();
    for line in lines.iter().filter(|line| line.dtype == types && line.layout == "kk") {
        for timed in &line.kernels {
            let Some((spec, kernel)) = text(line, &timed.spec).zip(line.kernel(timed)) else { continue };
            let Some(time) = line.today(&kernel, timed) else { continue };
            let (in_graphs, kernels) = all.entry([line.m, line.n, line.k]).or_default();
            *in_graphs |= line.stream == 0.0;
            kernels.entry(spec).or_default().push(time);
        }
    }
    let mean = |times: &[f64]| times.iter().sum::<f64>() / times.len() as f64;
    let ranked = |(in_graphs, kernels): (bool, Times)| {
        let mut kernels: Vec<(f64, String)> =
            kernels.into_iter().map(|(spec, times)| (mean(&times), spec)).collect();
        kernels.sort_by(|a, b| a.0.total_cmp(&b.0).then_with(|| a.1.cmp(&b.1)));
        (in_graphs, kernels.into_iter().map(|(time, spec)| (digits(time), spec)).collect())
    };
    all.into_iter().map(|(shape, kernels)| (shape, ranked(kernels))).collect()
}

/// The content of the file.
fn shipped(text: &str) -> BTreeMap<[u32; 3], Kernels> {
    let shape = |(shape, kernels): (String, text::Kernels)| {
        let graphs = shape.strip_suffix(GRAPHS);
        let extents = graphs.unwrap_or(&shape).split('x').filter_map(|extent| extent.parse().ok());
        let extents = extents.collect::<Vec<u32>>().try_into().expect("M, N and K");
        (extents, (graphs.is_some(), kernels))
    };
    text::read(text).into_iter().map(shape).collect()
}

fn written(before: &str, shapes: &BTreeMap<[u32; 3], Kernels>) -> String {
    let problem = |(&[m, n, k], (in_graphs, kernels)): (&[u32; 3], &Kernels)| {
        (format!("{m}x{n}x{k}{}", if *in_graphs { GRAPHS } else { "" }), kernels.clone())
    };
    text::written(before, shapes.iter().map(problem))
}

#[test]
fn shipped_records_are_what_was_measured() {
    for (name, types, files, least) in CARDS {
        let before = fs::read_to_string(path(name)).expect("the file is part of the crate");
        let (measured, shipped) = (measured(types, files), shipped(&before));
        if is_writing() {
            let mut all = shipped;
            all.retain(|_, (_, kernels)| kernels.len() == 1);
            all.extend(measured);
            fs::write(path(name), written(&before, &all)).expect("a writable folder");
            continue;
        }
        assert!(measured.len() >= least, "{name}: {} shapes", measured.len());
        for (shape, kernels) in &measured {
            assert_eq!(shipped.get(shape), Some(kernels), "{name}: {shape:?}");
        }
        for (shape, (_, kernels)) in shipped.iter().filter(|(shape, _)| !measured.contains_key(*shape)) {
            assert_eq!(kernels.len(), 1, "{name}: {shape:?} is in no file");
        }
        assert_eq!(written(&before, &shipped), before, "{name}: as it is written");
    }
}
