//! The model that chooses kernels, compared with measurements.
//!
//! `tests/selection/*.jsonl` are records of `falchion tune --jsonl FILE` on an H200 (driver 580.159.04,
//! burst). `examples/fit` fitted the model's parameters to `fitted.jsonl`. `fresh.jsonl` has other shapes of
//! the next draw; it judges the model and the records of the fitted shapes that come with the library.
//! `formats.jsonl` has shapes of other formats: 60 drawn ones (seed 20261123, extents rounded up to multiples
//! of 16), and seven for which others publish figures. `scaled.jsonl` has shapes with block scales (seed
//! 90417); three parameters are fitted to those of `scaled_fitted.jsonl` (seed 77023). `published.jsonl` has
//! the seven shapes with block scales. `public.jsonl` and `public_sustained.jsonl` have the shapes of
//! `falchion bench --suite public` from 10 GFLOP on, `wide.jsonl` large weights with few rows. `unseen.jsonl`
//! has shapes of seed 60611 that were in no record, `later.jsonl` all 120 of seed 118877. `latest.jsonl` (seed 270612) and
//! `added.jsonl` (seeds 270613 and 270614) have shapes that were in no record; those of `added.jsonl` come with the library since.
//! `scaled_latest.jsonl` has block scales (seed 270611). Those with `h100` in their names are of H100s: `h100_drawn.jsonl` and
//! `scaled_h100_drawn.jsonl` (seed 20261128, and shapes for which DeepGEMM was timed) are of one turn and come with the library, without 9 of 1332 timings that were disturbed;
//! `scaled_h100_named.jsonl` has the named kernels of DeepGEMM's table in `docs/evidence/performance.md`, which `falchion bench` timed;
//! `h100_kept.jsonl` (seed 20261127) and `h100_fresh.jsonl` (seed 20261203) have shapes that were in no record; those of the latter come
//! with the library since, and those of `h100_added.jsonl` (seed 20261211, one turn). `h100_last.jsonl` (seed 20261212) is of the next draw. `h100_kn.jsonl` and
//! `h100_mn.jsonl` (seed 271127) have an N-major B, and an M-major A too. `h200_streams.jsonl` and `h200_graphs.jsonl` (seed 20261301, from
//! 17 µs on and below), `h200_kept.jsonl` (seed 20261303) and `h200_front.jsonl` (seed 611281) come with the library, and so do `h200_varied.jsonl` (seeds 902001 and 904512), `h200_ragged.jsonl` (extents that are no
//! multiples of 64, and shapes that were slow) and `h200_few.jsonl` (few rows of large weights), whose kernels are of more kinds than the model ranks first, after rests of 12 ms. `h200_last.jsonl` (seed 1205177) and
//! `h200_few_last.jsonl`, with few rows of large weights, come with the library since `h200_ahead.jsonl` (seed 88022), the draw on the front page, and `h200_few_ahead.jsonl`, with other rows of such weights, were measured; these were in no record. `scaled_h200_streams.jsonl` and `scaled_h200_graphs.jsonl` (seed 20261304, and DeepGEMM's shapes), `scaled_h200_kept.jsonl` (seed 20261302) and
//! `scaled_h200_varied.jsonl` (seed 904513) come with the library too, and `scaled_h200_last.jsonl` (seed 1205178) does not. `weights.jsonl` has
//! GEMMs with quantised weights and the same GEMMs in `bf16`, and groups of rows of both. `fused.jsonl` has
//! two fused epilogues at 40 drawn shapes each (seed 20261125), and `groups.jsonl` experts of equal and of
//! skewed sizes. 22 timings of kernels that are refused since are left out. Most of these kernels spilled;
//! none was the fastest at its shape. A line gives what its specs leave out: the element type and the directions.

#[path = "selection/shipped.rs"]
mod shipped;

use std::fs;
use std::path::Path;

use collective::{CachePolicy, Form, Format, Formula, Producer};
use cute_rs::atom::Major;
use kernel::{AnyGemm, Card, GemmProblem, KernelSpec, Known, Machine, Request, Types, rank};
use scheduler::{ReductionKind, Rule};
use serde::Deserialize;

/// The first choice may take this many times the time of the best kernel.
const WITHIN: f64 = 1.03;

/// Records of kernels that end without a barrier of their cluster.
const WITHOUT_BARRIER: [&str; 19] = [
    "h100_fresh.jsonl",
    "h100_added.jsonl",
    "h100_last.jsonl",
    "h200_streams.jsonl",
    "h200_graphs.jsonl",
    "h200_kept.jsonl",
    "h200_front.jsonl",
    "h200_varied.jsonl",
    "h200_ragged.jsonl",
    "h200_few.jsonl",
    "scaled_h200_streams.jsonl",
    "scaled_h200_graphs.jsonl",
    "scaled_h200_kept.jsonl",
    "scaled_h200_varied.jsonl",
    "h200_last.jsonl",
    "h200_few_last.jsonl",
    "scaled_h200_last.jsonl",
    "h200_ahead.jsonl",
    "h200_few_ahead.jsonl",
];

/// Microseconds that kernels in clusters took longer in all other records: they ended with a barrier. On an H100 2048 cubed
/// took 25.85 µs in clusters of 2x1, and takes 25.05. Kernels of one tile per CTA in clusters along M gained half of it.
const BARRIER: f64 = 0.8;

/// Records of launches that were replayed in graphs.
const IN_GRAPHS: [&str; 14] = [
    "h200_graphs.jsonl",
    "h200_kept.jsonl",
    "h200_front.jsonl",
    "h200_varied.jsonl",
    "h200_ragged.jsonl",
    "h200_few.jsonl",
    "scaled_h200_graphs.jsonl",
    "scaled_h200_kept.jsonl",
    "scaled_h200_varied.jsonl",
    "h200_last.jsonl",
    "h200_few_last.jsonl",
    "scaled_h200_last.jsonl",
    "h200_ahead.jsonl",
    "h200_few_ahead.jsonl",
];

/// Microseconds that a launch took longer in all other records, in which launches were enqueued one by one. On an H200 the median
/// over 228 kernels of at most 17 µs is 0.47, and the same for kernels of one tile per CTA, in clusters or persistent.
const STREAM: f64 = 0.45;

/// Records of kernels whose roles wait for the kernels before by themselves, and prefetch before.
const BY_ROLE: [&str; 2] = ["h200_ahead.jsonl", "h200_few_ahead.jsonl"];

/// Microseconds that Stream-K kernels took longer in all other records, because all threads waited before they found their first work unit:
/// the median of seven on an H200, 0.39 to 0.89.
const AWAITED: f64 = 0.5;

/// Fraction of the time for operands that are evicted first and read once, which is saved by prefetching the first of them, and most
/// microseconds of it: of nine shapes on an H200, 0.7 to 2.0.
const AHEAD: [f64; 2] = [0.1, 1.3];

/// A line of a record: one shape.
#[derive(Deserialize)]
struct Line {
    m: u32,
    n: u32,
    k: u32,
    dtype: String,
    layout: String,
    #[serde(default)]
    epilogue: String,
    state: String,
    /// Rows of each group; empty for one GEMM.
    #[serde(default)]
    rows: Vec<u32>,
    kernels: Vec<Timed>,
    cublaslt_first: Option<f64>,
    cublaslt_fastest: Option<f64>,
    cusparselt_first: Option<f64>,
    cusparselt_fastest: Option<f64>,
    dense: Option<f64>,
    /// Microseconds that its kernels in clusters would take less today.
    #[serde(skip)]
    barrier: f64,
    /// Microseconds that its kernels would take less in a graph.
    #[serde(skip)]
    stream: f64,
    /// Whether roles wait by themselves, and the card's bytes per microsecond.
    #[serde(skip)]
    by_role: bool,
    #[serde(skip)]
    dram: f64,
}

#[derive(Deserialize)]
struct Timed {
    spec: String,
    /// Number of clusters that ran at once.
    slots: u32,
    /// Median time of its turns, if it was timed.
    microseconds: Option<f64>,
}

impl Line {
    fn kernel(&self, timed: &Timed) -> Option<AnyGemm> {
        let text = format!("{} dtype={} layout={}", timed.spec, self.types().a.name(), self.layout);
        KernelSpec::parse(&text).ok()?.named(timed.spec.clone()).ok()
    }

    /// Microseconds that a kernel takes today, if it was timed.
    fn today(&self, kernel: &AnyGemm, timed: &Timed) -> Option<f64> {
        let plan = kernel.plan();
        let of_one_tile = kernel.spec().is_some_and(|spec| spec.scheduler.rule == Rule::OneTile);
        let gained = match of_one_tile && plan.mainloop.cluster[0] > 1 {
            true => 0.5 * self.barrier,
            false => self.barrier,
        };
        let gained = if plan.cluster_size() > 1 { gained } else { 0.0 };
        Some(timed.microseconds? - self.stream - gained - self.before_the_wait(kernel))
    }

    /// Microseconds that a kernel takes less since its roles wait by themselves.
    fn before_the_wait(&self, kernel: &AnyGemm) -> f64 {
        let plan = kernel.plan();
        let overlaps = kernel.spec().is_some_and(|spec| spec.overlaps);
        let alone = plan.form == Form::Single && plan.mainloop.producer == Producer::Thread;
        let alone = alone && !plan.mainloop.is_scaled();
        if self.by_role || !overlaps || !alone || kernel.draws() {
            return 0.0;
        }
        let streamed = kernel.reduction().is_some_and(|kind| kind != ReductionKind::Clustered);
        let problem = GemmProblem { m: self.m, n: self.n, k: self.k };
        let tiles = kernel.tiles(problem);
        let [m, n] = plan.oriented([self.m, self.n]).map(f64::from);
        let once = [(m, tiles.n), (n, tiles.m)].into_iter().zip(plan.mainloop.operands);
        let once = once.filter(|((_, others), operand)| {
            *others == 1 && operand.cache == CachePolicy::EvictFirst && operand.weights.is_none()
        });
        let bits =
            once.map(|((rows, _), operand)| rows * f64::from(self.k) * f64::from(operand.format.bits()));
        let [part, most] = AHEAD;
        let ahead = bits.sum::<f64>() / 8.0 * part / self.dram;
        f64::from(u8::from(streamed)) * AWAITED + ahead.min(most)
    }

    /// Microseconds of the fastest kernel.
    fn best(&self) -> f64 {
        self.kernels.iter().filter_map(|timed| timed.microseconds).fold(f64::INFINITY, f64::min)
    }

    fn types(&self) -> Types {
        Types::named(&self.dtype).unwrap_or_else(|| panic!("no types {}", self.dtype))
    }

    fn majors(&self) -> [Major; 2] {
        let letters: Vec<char> = self.layout.chars().collect();
        [0, 1].map(|i| if letters[i] == 'k' { Major::K } else { Major::Mn })
    }
}

/// The card of a record.
fn machine(name: &str) -> Machine {
    if name.contains("h100") { Machine::of(&Card::H100) } else { Machine::h200() }
}

fn read(name: &str) -> Vec<Line> {
    read_in(name, "burst")
}

fn read_in(name: &str, state: &str) -> Vec<Line> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/selection").join(name);
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let barrier = if WITHOUT_BARRIER.contains(&name) { 0.0 } else { BARRIER };
    let stream = if IN_GRAPHS.contains(&name) { 0.0 } else { STREAM };
    let line = |line: &str| {
        let line = serde_json::from_str(line).unwrap_or_else(|error| panic!("{name}: {error}"));
        Line { barrier, stream, by_role: BY_ROLE.contains(&name), dram: machine(name).dram, ..line }
    };
    text.lines().map(line).filter(|line: &Line| line.state == state).collect()
}

/// The fraction of shapes where the first choice among the measured kernels is nearly the best of them, and
/// its mean cost.
fn judge<'l>(name: &str, lines: impl IntoIterator<Item = &'l Line>, known: Known<'_>) -> [f64; 2] {
    let machine = machine(name);
    let (mut good, mut logarithms, mut misses, mut count) = (0, 0.0, Vec::new(), 0);
    for line in lines {
        count += 1;
        let measured: Vec<(AnyGemm, f64)> = line
            .kernels
            .iter()
            .filter_map(|timed| {
                let kernel = line.kernel(timed)?;
                let time = line.today(&kernel, timed)?;
                Some((kernel, time))
            })
            .collect();
        let problem = GemmProblem { m: line.m, n: line.n, k: line.k };
        let request = Request::packed(line.types(), line.majors(), problem).known(known);
        let request = Request { fusion: Formula::named(&line.epilogue), ..request };
        let kernels = measured.iter().map(|(gemm, _)| gemm.clone()).collect();
        let selection = rank(kernels, &request, &machine);
        let pick = selection.ranked.first().expect("a measured kernel can do the shape").gemm.name();
        let time = |name: &str| measured.iter().find(|(gemm, _)| gemm.name() == name).map(|(_, time)| *time);
        let best = measured.iter().map(|(_, time)| *time).fold(f64::INFINITY, f64::min);
        let ratio = time(pick).expect("it was measured") / best;
        good += usize::from(ratio <= WITHIN);
        logarithms += ratio.ln();
        if ratio > WITHIN {
            misses.push(format!("{}x{}x{}: {pick} takes {ratio:.3} of the best", line.m, line.n, line.k));
        }
    }
    let reached = [good as f64 / f64::from(count), (logarithms / f64::from(count)).exp()];
    println!("{name}, {known:?}: good at {good} of {count}, costs {:.4}; {misses:#?}", reached[1]);
    reached
}

#[test]
fn the_first_choice_is_nearly_the_best() {
    for (name, shapes, part, cost) in [
        ("fitted.jsonl", 250, 0.72, 1.035),
        ("h200_last.jsonl", 42, 0.65, 1.04),
        ("h200_ahead.jsonl", 20, 0.65, 1.04),
    ] {
        let lines = read(name);
        assert!(lines.len() >= shapes, "{name}: {} shapes", lines.len());
        let reached = judge(name, &lines, Known::Nothing);
        assert!(reached[0] >= part && reached[1] <= cost, "{name}: {reached:?}");
    }
}

/// Other formats and block scales. Three of the model's parameters are fitted to other shapes with block
/// scales.
#[test]
fn the_first_choice_of_other_formats_is_near_the_best() {
    for (name, types, shapes, part, cost) in [
        ("formats.jsonl", "e4m3", 60, 0.7, 1.04),
        ("formats.jsonl", "s8", 60, 0.6, 1.045),
        ("formats.jsonl", "tf32", 60, 0.6, 1.04),
        ("scaled.jsonl", "e4m3-1x128-128x128", 22, 0.65, 1.04),
        ("scaled.jsonl", "e4m3-1x128-1x128", 59, 0.65, 1.04),
    ] {
        let lines = read(name);
        let of_types: Vec<&Line> = lines.iter().filter(|line| line.dtype == types).collect();
        assert!(of_types.len() >= shapes, "{types}: {} shapes", of_types.len());
        let reached = judge(types, of_types, Known::Nothing);
        assert!(reached[0] >= part && reached[1] <= cost, "{types}: {reached:?}");
    }
}

/// Fused epilogues. Three of the model's parameters are fitted to these; each half of the shapes gives the
/// same values.
#[test]
fn the_first_choice_under_fused_epilogues_is_near_the_best() {
    let lines = read("fused.jsonl");
    for (epilogue, part, cost) in [("bias-gelu", 0.65, 1.04), ("row-column-scaled", 0.7, 1.035)] {
        let of_it = lines.iter().filter(|line| line.epilogue == epilogue);
        let reached = judge(epilogue, of_it, Known::Nothing);
        assert!(reached[0] >= part && reached[1] <= cost, "{epilogue}: {reached:?}");
    }
}

/// Large GEMMs for which others publish figures.
const PUBLISHED: [[u32; 3]; 7] = [
    [4096, 7168, 16384],
    [4096, 4096, 7168],
    [4096, 24576, 1536],
    [4096, 7168, 2048],
    [4096, 2112, 7168],
    [4096, 32768, 512],
    [8192, 8192, 8192],
];

/// Tables of `docs/evidence/performance.md`: shapes, the best kernel over cuBLASLt's fastest (mean and least), the model's
/// first choice over cuBLASLt's first.
#[test]
fn ratios_are_those_of_the_records() {
    for (name, types, count, best, least, first) in [
        ("formats.jsonl", "e4m3", 60, 1.235, 0.971, 1.245),
        ("formats.jsonl", "s8", 60, 1.328, 1.018, 1.365),
        ("formats.jsonl", "tf32", 60, 1.218, 0.976, 1.215),
        ("scaled.jsonl", "e4m3-1x128-128x128", 22, 1.399, 1.012, 1.369),
        ("scaled.jsonl", "e4m3-1x128-1x128", 59, 1.313, 0.986, 1.334),
        ("scaled_latest.jsonl", "e4m3-1x128-128x128", 40, 1.336, 1.070, 1.300),
        ("scaled_latest.jsonl", "e4m3-1x128-1x128", 40, 1.241, 1.034, 1.258),
        ("scaled_h100.jsonl", "e4m3-1x128-128x128", 19, 1.244, 1.080, 1.186),
        ("published.jsonl", "e4m3-1x128-128x128", 7, 1.075, 0.983, 1.040),
        ("published.jsonl", "e4m3-1x128-1x128", 7, 1.062, 1.003, 1.045),
        ("h200_kept.jsonl", "bf16", 43, 1.097, 0.877, 1.111),
        ("h200_front.jsonl", "bf16", 40, 1.048, 0.917, 1.058),
        ("h200_last.jsonl", "bf16", 42, 1.071, 0.982, 1.088),
        ("h200_few_last.jsonl", "bf16", 10, 1.063, 1.014, 1.065),
        ("h200_ahead.jsonl", "bf16", 20, 1.100, 0.979, 1.107),
        ("h200_few_ahead.jsonl", "bf16", 10, 1.118, 1.051, 1.143),
        ("scaled_h200_last.jsonl", "e4m3-1x128-128x128", 4, 1.127, 1.065, 1.118),
        ("scaled_h200_kept.jsonl", "e4m3-1x128-128x128", 34, 1.285, 1.064, 1.250),
        ("scaled_h200_kept.jsonl", "e4m3-1x128-1x128", 15, 1.155, 1.006, 1.144),
        ("public.jsonl", "bf16", 14, 1.037, 1.002, 1.046),
        ("wide.jsonl", "bf16", 9, 1.050, 1.000, 1.049),
    ] {
        let lines = read(name);
        let published =
            |line: &Line| name == "formats.jsonl" && PUBLISHED.contains(&[line.m, line.n, line.k]);
        let drawn = |line: &&Line| line.dtype == types && !published(line);
        let ratios = lines.iter().filter(drawn).filter_map(|line| {
            let (peer, fastest) = (line.cublaslt_first?, line.cublaslt_fastest?);
            let times = line.kernels.iter().filter_map(|timed| timed.microseconds);
            let best = times.fold(f64::INFINITY, f64::min);
            Some([peer.min(fastest) / best, peer / line.kernels.first()?.microseconds?])
        });
        let ratios: Vec<[f64; 2]> = ratios.collect();
        let mean = |i: usize| (ratios.iter().map(|of| of[i].ln()).sum::<f64>() / ratios.len() as f64).exp();
        let worst = ratios.iter().map(|of| of[0]).fold(f64::INFINITY, f64::min);
        let found = [mean(0), worst, mean(1)];
        println!("{types}: {} shapes, {found:.3?}", ratios.len());
        assert_eq!(ratios.len(), count, "{types}");
        for (found, wanted) in found.into_iter().zip([best, least, first]) {
            assert!((found - wanted).abs() < 6e-4, "{types}: {found:.4}, the page says {wanted}");
        }
    }
}

/// The tables of `docs/evidence/performance.md`, "Weights in few bits": the speed of the best kernel relative to
/// `bf16`, by rows of A or of each group.
#[test]
fn figures_of_weights_are_those_of_the_record() {
    let lines = read("weights.jsonl");
    let best = |types: &str, [m, groups]: [u32; 2]| {
        let found = |line: &&Line| {
            let of_groups = line.rows.first().map_or([line.m, 0], |&rows| [rows, line.rows.len() as u32]);
            line.dtype == types && of_groups == [m, groups]
        };
        lines.iter().find(found).unwrap_or_else(|| panic!("no {types} of {m} x {groups}")).best()
    };
    for (types, shape, times) in [
        ("bf16-s4g128", [1, 0], 3.22),
        ("bf16-s4g128", [8, 0], 3.26),
        ("bf16-s4g128", [16, 0], 3.07),
        ("bf16-s4g128", [64, 0], 2.13),
        ("bf16-s4g128", [4096, 0], 1.03),
        ("bf16-e2m1g32", [1, 0], 2.68),
        ("bf16-e2m1g32", [8, 0], 2.68),
        ("bf16-e2m1g32", [16, 0], 2.58),
        ("bf16-e2m1g32", [64, 0], 1.98),
        ("bf16-e2m1g32", [4096, 0], 1.09),
        ("bf16-e2m1g32", [8, 64], 3.01),
        ("bf16-e2m1g32", [16, 64], 2.84),
        ("bf16-e2m1g32", [64, 64], 2.11),
    ] {
        let found = best("bf16", shape) / best(types, shape);
        assert!((found - times).abs() < 6e-3, "{types}, {shape:?}: {found:.4}, the page says {times}");
    }
}

/// The table of `docs/evidence/performance.md`, "2:4 sparse operands": the dense kernel's time and the shorter of
/// cuSPARSELt's times over that of the best sparse kernel.
#[test]
fn figures_of_sparse_operands_are_those_of_the_record() {
    let want = [
        [1.59, 1.16],
        [1.97, 1.25],
        [1.03, 1.18],
        [1.14, 1.43],
        [1.03, 1.47],
        [1.37, 1.49],
        [1.19, 1.50],
        [1.16, 1.47],
        [2.90, 1.10],
    ];
    let lines = read("sparse.jsonl");
    assert_eq!(lines.len(), want.len());
    let mut means = [0.0; 2];
    for (line, want) in lines.iter().zip(want) {
        let [first, fastest, dense] =
            [line.cusparselt_first, line.cusparselt_fastest, line.dense].map(|time| time.expect("timed"));
        let found = [first.min(fastest), dense].map(|time| time / line.best());
        for (i, (found, want)) in found.into_iter().zip(want).enumerate() {
            assert!((found - want).abs() < 6e-3, "{} x {} x {}: {found:.4}", line.m, line.n, line.k);
            means[i] += found.ln() / lines.len() as f64;
        }
    }
    let [library, dense] = means.map(f64::exp);
    assert!((library - 1.40).abs() < 6e-3 && (dense - 1.33).abs() < 6e-3, "{library:.4}, {dense:.4}");
}

/// The tables of `docs/evidence/performance.md`, "bf16", and of earlier draws in `docs/evidence/lab-notes.md`: geometric means of
/// the model's first over cuBLASLt's first and of the best over cuBLASLt's fastest, the number of shapes where the
/// best has at least 0.98 and 0.95 of that, and the number where the model's choice is within 3 % of the best.
#[test]
fn figures_of_drawn_shapes_are_those_of_the_record() {
    for (name, state, shapes, want, counts) in [
        ("latest.jsonl", "burst", 60, [1.184, 1.169], [58, 60, 46]),
        ("added.jsonl", "burst", 412, [1.171, 1.164], [397, 409, 336]),
        ("h100_latest.jsonl", "burst", 36, [1.154, 1.148], [35, 36, 24]),
        ("h100.jsonl", "burst", 48, [1.183, 1.167], [45, 48, 40]),
        ("h100_kept.jsonl", "burst", 29, [1.189, 1.187], [28, 29, 23]),
        ("h100_kn.jsonl", "burst", 16, [1.087, 1.091], [16, 16, 11]),
        ("h100_mn.jsonl", "burst", 16, [1.014, 1.036], [14, 14, 13]),
        ("h100_fresh.jsonl", "burst", 60, [1.109, 1.105], [59, 60, 47]),
        ("h100_last.jsonl", "burst", 14, [1.142, 1.190], [14, 14, 4]),
        ("later.jsonl", "burst", 120, [1.138, 1.129], [117, 119, 99]),
        ("unseen.jsonl", "burst", 100, [1.180, 1.161], [98, 100, 84]),
        ("drawn.jsonl", "burst", 120, [1.166, 1.162], [107, 114, 84]),
        ("sustained.jsonl", "burst", 28, [1.126, 1.103], [24, 26, 27]),
        ("sustained.jsonl", "sustained", 28, [1.113, 1.093], [25, 26, 25]),
        ("public_sustained.jsonl", "burst", 14, [1.041, 1.034], [14, 14, 13]),
        ("public_sustained.jsonl", "sustained", 14, [1.030, 1.029], [14, 14, 13]),
    ] {
        let lines = read_in(name, state);
        assert_eq!(lines.len(), shapes, "{name} {state}");
        let (mut logarithms, mut found) = ([0.0; 2], [0; 3]);
        for line in &lines {
            let [first, fastest] =
                [line.cublaslt_first, line.cublaslt_fastest].map(|time| time.expect("timed"));
            let own = line.kernels.first().and_then(|timed| timed.microseconds).expect("timed");
            let best = line.best();
            // The faster of cuBLASLt's first and fastest.
            let fastest = fastest.min(first);
            logarithms[0] += (first / own).ln();
            logarithms[1] += (fastest / best).ln();
            for (i, good) in
                [fastest / best >= 0.98, fastest / best >= 0.95, own <= WITHIN * best].into_iter().enumerate()
            {
                found[i] += usize::from(good);
            }
        }
        let means = logarithms.map(|sum| (sum / lines.len() as f64).exp());
        let off = |(mean, want): (&f64, &f64)| (mean - want).abs() > 6e-4;
        assert!(!means.iter().zip(&want).any(off), "{name} {state}: {means:.4?}, the page says {want:?}");
        assert_eq!(found, counts, "{name} {state}");
    }
}

/// The table of `docs/evidence/performance.md`, "Fused epilogues": geometric mean, median and least of the best kernel
/// over the faster of cuBLASLt's first and fastest.
#[test]
fn figures_of_fused_epilogues_are_those_of_the_record() {
    let lines = read("fused.jsonl");
    for (epilogue, want) in
        [("bias-gelu", [1.115, 1.037, 0.892]), ("row-column-scaled", [1.573, 1.249, 1.010])]
    {
        let ratio = |line: &Line| {
            let peer = line.cublaslt_first.expect("timed").min(line.cublaslt_fastest.expect("timed"));
            peer / line.best()
        };
        let mut ratios: Vec<f64> = lines.iter().filter(|line| line.epilogue == epilogue).map(ratio).collect();
        ratios.sort_by(f64::total_cmp);
        assert_eq!(ratios.len(), 40, "{epilogue}");
        let mean = (ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / 40.0).exp();
        let found = [mean, (ratios[19] + ratios[20]) / 2.0, ratios[0]];
        let off = |(found, want): (&f64, &f64)| (found - want).abs() > 6e-4;
        assert!(!found.iter().zip(&want).any(off), "{epilogue}: {found:.4?}, the page says {want:?}");
    }
}

/// The tables of `docs/evidence/performance.md`, "Experts of equal and of skewed sizes": microseconds of the best kernel.
#[test]
fn figures_of_experts_are_those_of_the_record() {
    let lines = read("groups.jsonl");
    for (types, [groups, rows, n], want) in [
        ("bf16", [8, 2048, 4096], 169.3),
        ("bf16", [8, 2037, 4096], 193.5),
        ("bf16", [64, 16384, 4096], 1335.2),
        ("bf16", [64, 16863, 4096], 1565.4),
        ("bf16", [128, 32768, 4096], 2665.7),
        ("bf16", [128, 32184, 4096], 3059.7),
        ("bf16", [8, 2037, 7168], 104.7),
        ("bf16", [64, 16863, 7168], 818.3),
        ("bf16", [128, 16384, 7168], 1021.9),
        ("bf16", [128, 16300, 7168], 1156.0),
        ("e4m3-1x128-128x128", [4, 32768, 4096], 1504.1),
        ("e4m3-1x128-128x128", [64, 16384, 4096], 862.7),
        ("e4m3-1x128-128x128", [64, 17376, 4096], 1082.7),
        ("e4m3-1x128-128x128", [64, 17376, 7168], 578.1),
        ("e4m3-1x128-128x128", [64, 4576, 4096], 562.1),
    ] {
        let of = |line: &&Line| {
            line.dtype == types && [line.rows.len() as u32, line.m, line.n] == [groups, rows, n]
        };
        let best = lines.iter().find(of).unwrap_or_else(|| panic!("no {groups} groups")).best();
        assert!((best - want).abs() < 0.06, "{types}, {groups} groups: {best:.2}, the page says {want}");
    }
}

/// The records that come with the library must improve the choice at other shapes.
#[test]
fn records_of_near_shapes_improve_the_choice() {
    let known: Vec<Line> = ["fitted.jsonl", "added.jsonl"].into_iter().flat_map(read).collect();
    let extents = |line: &Line| [line.m, line.n, line.k];
    for (name, least, part) in [("fresh.jsonl", 20, 0.8), ("latest.jsonl", 60, 0.75)] {
        let mut lines = read(name);
        lines.retain(|line| !known.iter().any(|other| extents(other) == extents(line)));
        assert!(lines.len() >= least, "{name}: {} shapes", lines.len());
        let model = judge(name, &lines, Known::Nothing);
        let near = judge(name, &lines, Known::Shipped);
        assert!(
            near[0] >= part && near[0] > model[0] && near[1] < model[1],
            "{name}: {near:?}, {model:?} by the model alone"
        );
    }
}

/// `docs/evidence/performance.md`, "Calibrated": shapes of an H100 that are in no record that ships.
#[test]
fn the_choice_on_an_h100_is_near_the_best() {
    for (name, part, cost) in [("h100_last.jsonl", 0.7, 1.03), ("h100_kept.jsonl", 0.79, 1.02)] {
        let reached = judge(name, &read(name), Known::Shipped);
        assert!(reached[0] >= part && reached[1] <= cost, "{name}: {reached:?}");
    }
}

/// The same on an H200, of the draws on the front page.
#[test]
fn the_choice_on_an_h200_is_near_the_best() {
    for (name, types, part, cost) in [
        ("h200_ahead.jsonl", "bf16", 0.85, 1.015),
        ("h200_few_ahead.jsonl", "bf16", 0.8, 1.015),
        ("scaled_latest.jsonl", "e4m3-1x128-128x128", 0.8, 1.03),
    ] {
        let lines = read(name);
        let reached = judge(name, lines.iter().filter(|line| line.dtype == types), Known::Shipped);
        assert!(reached[0] >= part && reached[1] <= cost, "{name}: {reached:?}");
    }
}

/// Experts of the tables in `docs/evidence/performance.md`, "Mixtures of experts", with the measured microseconds by
/// kind. The rows are those of `falchion bench --suite grouped`, or equal.
#[test]
fn experts_are_predicted_as_they_were_measured() {
    let mut random = fastrand::Rng::with_seed(3);
    let mut mixed = |experts: usize| -> Vec<u32> { (0..experts).map(|_| random.u32(0..=512)).collect() };
    let (few, many) = (mixed(8), mixed(64));
    assert_eq!([few.iter().sum::<u32>(), many.iter().sum()], [2409, 15613]);
    let machine = Machine::h200();
    let (mut errors, mut costs): (Vec<f64>, Vec<f64>) = Default::default();
    for (rows, n, k, measured) in [
        (few.clone(), 4096, 7168, &[("-step32", 227.2), ("", 238.7), ("-step32-tail", 254.1)][..]),
        (few, 7168, 2048, &[("-step32", 115.1), ("", 126.1), ("-step32-tail", 116.9)]),
        (many.clone(), 4096, 7168, &[("-step32-2x1", 1469.3), ("", 1640.1), ("-step32-tail", 1472.9)]),
        (many, 7168, 2048, &[("-step32-2x1", 756.5), ("", 864.3), ("-step32-tail", 761.0)]),
        (vec![128; 64], 4096, 7168, &[("-step32-2x1", 984.0)]),
        (vec![256; 64], 4096, 7168, &[("-step32-2x1", 1336.0)]),
        (vec![512; 64], 4096, 7168, &[("-step32-2x1", 2485.0)]),
        (vec![1024; 16], 4096, 7168, &[("-step32-2x1", 1209.0)]),
        (vec![2048; 8], 4096, 7168, &[("-step32-2x1", 1200.0)]),
    ] {
        let groups: Vec<GemmProblem> = rows.iter().map(|&m| GemmProblem { m, n, k }).collect();
        let all = GemmProblem { m: rows.iter().sum(), n, k };
        let request = Request::packed(Format::Bf16, [Major::K; 2], all).ragged(&groups);
        let predicted: Vec<f64> = measured
            .iter()
            .map(|(kind, time)| {
                let name = format!("ragged-128x256{kind}-bf16-kk");
                let predicted = machine.predict(&kernel::find(&name).expect("a name"), &request).microseconds;
                println!("{} experts, {all:?}: {name} {time} us, predicted {predicted:.1}", rows.len());
                errors.push((predicted / time).ln().abs());
                predicted
            })
            .collect();
        if measured.len() > 1 {
            let order = |a: &usize, b: &usize| predicted[*a].total_cmp(&predicted[*b]);
            let taken = (0..measured.len()).min_by(order).expect("some");
            costs.push(measured[taken].1 / measured[0].1);
            let first = kernel::fastest(&request, &machine).expect("a kernel");
            println!("the space's first: {} {:.1}", first.gemm.name(), first.prediction.microseconds);
            assert!(first.prediction.microseconds <= 1.001 * predicted[taken], "{}", first.gemm.name());
        }
    }
    let mean = errors.iter().sum::<f64>() / errors.len() as f64;
    println!("off by {mean:.3} in the mean; the choice costs {costs:?}");
    assert!(mean < 0.03 && errors.iter().all(|error| *error < 0.15), "{errors:?}");
    // Of the second few experts, the kernel in clusters took 116.9 µs with a barrier at its end.
    assert!(costs.iter().all(|cost| *cost < 1.016), "{costs:?}");
}

/// The model counts the clusters that run at once as the driver does.
#[test]
fn slots_are_those_of_the_driver() {
    for name in ["fitted.jsonl", "fresh.jsonl", "formats.jsonl"] {
        for line in read(name) {
            for timed in &line.kernels {
                let gemm = line.kernel(timed).unwrap_or_else(|| panic!("{}: no spec", timed.spec));
                let at_once = Machine::h200().at_once(gemm.cluster_size(), &gemm.plan());
                assert_eq!(at_once, timed.slots, "{}", timed.spec);
            }
        }
    }
}

/// Ranking a whole space takes less than 20 ms.
#[test]
fn ranking_is_quick() {
    let request = |n| Request::packed(Format::Bf16, [Major::K; 2], GemmProblem { m: 4096, n, k: 4096 });
    let machine = Machine::h200();
    kernel::fastest(&request(4096), &machine).expect("a kernel");
    let begun = std::time::Instant::now();
    for n in 1..=50 {
        kernel::fastest(&request(n * 64), &machine).expect("a kernel");
    }
    let each = begun.elapsed() / 50;
    println!("{each:?} a shape");
    assert!(each < std::time::Duration::from_millis(20), "{each:?}");
}
