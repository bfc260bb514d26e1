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
//! `h200_few_last.jsonl`, with few rows of large weights, come with the library too, and so do `h200_ahead.jsonl` (seed 88022) and `h200_few_ahead.jsonl`, with other rows of such weights,
//! `h200_drawn.jsonl` (seed 91341), `h200_few_drawn.jsonl`, and `h200_lines.jsonl`, of shapes whose rows begin inside of lines or that are just too many for a tile, and of near ones.
//! `h200_past.jsonl` (seeds 73519 and 91511) and `h200_eight.jsonl` (seeds 60119, 70411 and 88123, and shapes that were slow, with clusters of eight) too.
//! `h200_fresh.jsonl` (seed 40127), the draw on the front page, has shapes that were in no record when they were measured. `h200_formats.jsonl` has the first shapes of seed 91341 in other formats and with fused epilogues, and the shapes of `h200_few_drawn.jsonl` with
//! weights in few bits, `h200_sparse.jsonl` five with a sparse A. `scaled_h200_streams.jsonl` and `scaled_h200_graphs.jsonl` (seed 20261304, and DeepGEMM's shapes), `scaled_h200_kept.jsonl` (seed 20261302) and
//! `scaled_h200_varied.jsonl` (seed 904513) come with the library too, and `scaled_h200_last.jsonl` (seed 1205178) and `scaled_h200_fresh.jsonl`, measured beside DeepGEMM, do not. `weights.jsonl` has
//! GEMMs with quantised weights and the same GEMMs in `bf16`, and groups of rows of both. `fused.jsonl` has
//! two fused epilogues at 40 drawn shapes each (seed 20261125), and `groups.jsonl` experts of equal and of
//! skewed sizes. 22 timings of kernels that are refused since are left out. Most of these kernels spilled;
//! none was the fastest at its shape. A line gives what its specs leave out: the element type and the directions.
//! `attention_h200.jsonl` and `backward_h200.jsonl` are of attention and its gradient: [`attention`] says what comes of them.

#[path = "selection/attention.rs"]
mod attention;
#[path = "selection/figures.rs"]
mod figures;
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

/// Records of kernels that end without a barrier of their cluster; those in graphs are such, too.
const WITHOUT_BARRIER: [&str; 5] = [
    "h100_fresh.jsonl",
    "h100_added.jsonl",
    "h100_last.jsonl",
    "h200_streams.jsonl",
    "scaled_h200_streams.jsonl",
];

/// Microseconds that kernels in clusters took longer in all other records, of an H200 and of an H100: they ended with a barrier. On an
/// H100 2048 cubed took 25.85 µs in clusters of 2x1, and takes 25.05. On an H200 it is what records in graphs differ by from older ones, in
/// kernels with clusters and without. Kernels of one tile per CTA in clusters along M gained half of it.
const BARRIER: [f64; 2] = [0.55, 0.8];

/// Records of launches that were replayed in graphs; those of kernels whose roles wait are such, too.
const IN_GRAPHS: [&str; 13] = [
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
    "scaled_h200_fresh.jsonl",
];

/// Microseconds that a launch took longer in all other records, in which launches were enqueued one by one. On an H200 the median
/// over 228 kernels of at most 17 µs is 0.47, and the same for kernels of one tile per CTA, in clusters or persistent.
const STREAM: f64 = 0.45;

/// Records of kernels whose roles wait for the kernels before by themselves, and prefetch before.
const BY_ROLE: [&str; 10] = [
    "h200_lines.jsonl",
    "h200_past.jsonl",
    "h200_eight.jsonl",
    "h200_fresh.jsonl",
    "h200_ahead.jsonl",
    "h200_few_ahead.jsonl",
    "h200_drawn.jsonl",
    "h200_few_drawn.jsonl",
    "h200_formats.jsonl",
    "h200_sparse.jsonl",
];

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
    let by_role = BY_ROLE.contains(&name);
    let in_graphs = by_role || IN_GRAPHS.contains(&name);
    let of_card = BARRIER[usize::from(name.contains("h100"))];
    let barrier = if in_graphs || WITHOUT_BARRIER.contains(&name) { 0.0 } else { of_card };
    let stream = if in_graphs { 0.0 } else { STREAM };
    let line = |line: &str| {
        let line = serde_json::from_str(line).unwrap_or_else(|error| panic!("{name}: {error}"));
        Line { barrier, stream, by_role, dram: machine(name).dram, ..line }
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
        ("h200_drawn.jsonl", 37, 0.65, 1.035),
        ("h200_fresh.jsonl", 60, 0.6, 1.045),
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

/// The same on an H200, of the draw on the front page.
#[test]
fn the_choice_on_an_h200_is_near_the_best() {
    for (name, types, part, cost) in
        [("h200_fresh.jsonl", "bf16", 0.75, 1.025), ("scaled_latest.jsonl", "e4m3-1x128-128x128", 0.8, 1.03)]
    {
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
