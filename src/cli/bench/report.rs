//! Reports the measurements: on the terminal, as JSON, as CSV.

use std::fmt::Write as _;
use std::io::{self, Write as _};

use kernel::{GemmProblem, Types};
use serde::Serialize;

use super::{Pick, suites};
use crate::bench::{PowerState, Rates};
use crate::cli::Failure;
use crate::cli::output::out;

/// The name of the multiply-only ceiling, which no kernel can exceed.
pub(super) const CEILING: &str = "ceiling";
/// cuBLASLt's first suggestion.
pub(super) const FIRST: &str = "cuBLASLt first";
/// The fastest of cuBLASLt's suggestions.
pub(super) const FASTEST: &str = "cuBLASLt fastest";

/// The same for sparse operands.
pub(super) const FIRST_SPARSE: &str = "cuSPARSELt first";
pub(super) const FASTEST_SPARSE: &str = "cuSPARSELt fastest";
/// Our dense kernel, at shapes of sparse operands.
pub(super) const DENSE: &str = "our dense kernel";

/// The names of a library's first suggestion, and of its fastest.
pub(super) const FIRSTS: [&str; 2] = [FIRST, FIRST_SPARSE];
pub(super) const FASTESTS: [&str; 2] = [FASTEST, FASTEST_SPARSE];

/// The fastest of our timed kernels at each shape.
const BEST: &str = "best of ours";

/// A whole run.
#[derive(Debug, Serialize)]
pub(super) struct Record {
    /// The GPU, its driver and compute capability.
    pub(super) card: String,
    /// Peak bandwidth of the GPU's memory, in TB/s.
    pub(super) memory_bandwidth: f64,
    /// cuBLASLt's version.
    pub(super) cublaslt: Option<String>,
    /// That of the peer of sparse operands, where it was there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cusparselt: Option<String>,
    pub(super) dtype: String,
    /// Contiguous dimension of A (k or m) and of B (k or n): kn is both row-major.
    pub(super) layout: String,
    pub(super) figures: Vec<Figure>,
    /// The host's cost of launches, if it was measured.
    pub(super) launches: Vec<LaunchCost>,
}

/// The host's time for one launch.
#[derive(Clone, Debug, Serialize)]
pub(super) struct LaunchCost {
    /// The way to launch.
    pub(super) path: String,
    /// Number of launches that were timed one by one.
    pub(super) count: usize,
    pub(super) median_nanoseconds: f64,
    /// The 99th percentile.
    pub(super) p99_nanoseconds: f64,
}

/// What was measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub(super) enum Of {
    /// A GEMM, or several that have these extents together.
    Gemm { m: u32, n: u32, k: u32 },
    /// A problem of another family.
    Problem { problem: String },
}

impl From<GemmProblem> for Of {
    fn from(GemmProblem { m, n, k }: GemmProblem) -> Self {
        Self::Gemm { m, n, k }
    }
}

impl From<String> for Of {
    fn from(problem: String) -> Self {
        Self::Problem { problem }
    }
}

/// One candidate at one shape in one state.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Figure {
    #[serde(flatten)]
    pub(super) of: Of,
    pub(super) candidate: String,
    pub(super) state: PowerState,
    /// Number of clusters that run at the same time, for our kernels.
    pub(super) slots: Option<u32>,
    /// TFLOP/s over the turns: minimum, median, maximum.
    pub(super) tflops: [f64; 3],
    /// Time from one launch to the next; for the ceiling, the time of the shape at the ceiling's speed.
    pub(super) microseconds: f64,
    /// Clock of the SMs, if it was read: in the sustained state only.
    pub(super) megahertz: Option<f64>,
    /// Power of the card.
    pub(super) watts: Option<f64>,
    pub(super) tflops_per_watt: Option<f64>,
    /// Energy per GEMM.
    pub(super) millijoules: Option<f64>,
}

impl Figure {
    /// The turns of a candidate of a problem that counts as a number of operations.
    pub(super) fn new(
        (of, operations): (&Of, f64),
        state: PowerState,
        (candidate, slots): (String, Option<u32>),
        turns: &Rates,
    ) -> Self {
        let tflops = turns.spread();
        let card = turns.card();
        let microseconds = operations / tflops[1] / 1e6;
        Self {
            of: of.clone(),
            candidate,
            state,
            slots,
            tflops,
            microseconds,
            megahertz: card.map(|[megahertz, _]| megahertz),
            watts: card.map(|[_, watts]| watts),
            tflops_per_watt: card.map(|[_, watts]| tflops[1] / watts),
            millijoules: card.map(|[_, watts]| watts * microseconds / 1e3),
        }
    }

    /// The extents of a GEMM; those of another problem are 0.
    pub(super) fn shape(&self) -> GemmProblem {
        match self.of {
            Of::Gemm { m, n, k } => GemmProblem { m, n, k },
            Of::Problem { .. } => GemmProblem { m: 0, n: 0, k: 0 },
        }
    }

    /// Whether it is one of our kernels.
    pub(super) fn ours(&self) -> bool {
        self.slots.is_some()
    }
}

/// The median of the first of some candidates that is there, among the figures of one shape in one state.
fn median<'f>(figures: impl IntoIterator<Item = &'f Figure> + Clone, names: &[&str]) -> Option<f64> {
    let of = |name: &&str| figures.clone().into_iter().find(|figure| figure.candidate == *name);
    names.iter().find_map(of).map(|figure| figure.tflops[1])
}

/// The median of our fastest kernel among the figures of one shape in one state.
fn best<'f>(figures: impl IntoIterator<Item = &'f Figure>) -> Option<f64> {
    let ours = figures.into_iter().filter(|figure| figure.ours());
    ours.map(|figure| figure.tflops[1]).max_by(f64::total_cmp)
}

/// A ratio, right-aligned; a dash if there is none.
fn cell(value: Option<f64>, width: usize, digits: usize) -> String {
    match value {
        Some(value) => format!("{value:width$.digits$}"),
        None => format!("{:>width$}", "-"),
    }
}

/// Prints the figures of one state without a comparison: TFLOP/s and microseconds.
pub(super) fn plain_table(state: PowerState, figures: &[Figure]) -> io::Result<()> {
    writeln!(out(), "{:10} {:30}         us    least  TFLOP/s     most", state.name(), "")?;
    for Figure { candidate, tflops: [least, median, most], microseconds, .. } in figures {
        writeln!(out(), "{:10} {candidate:30} {microseconds:10.1} {least:8.1} {median:8.1} {most:8.1}", "")?;
    }
    Ok(())
}

/// Prints the figures of one shape in one state.
pub(super) fn table(state: PowerState, figures: &[Figure]) -> io::Result<()> {
    let of = |names: &[&str]| median(figures, names);
    let (ceiling, first, fastest) = (of(&[CEILING]), of(&FIRSTS), of(&FASTESTS));
    let columns = "         us  TFLOP/s  spread      % ceiling  x Lt first  x Lt fastest  SM MHz     W  TFLOP/s/W        mJ";
    writeln!(out(), "{:10} {:22}{columns}", state.name(), "")?;
    for figure in figures {
        let [least, median, most] = figure.tflops;
        let over = |other: Option<f64>| other.map(|other| median / other);
        writeln!(
            out(),
            "{:10} {:22} {:10.2} {median:8.1}  {:11} {} {} {} {} {} {} {}",
            "",
            figure.candidate,
            figure.microseconds,
            format!("{least:.0}..{most:.0}"),
            cell(over(ceiling).map(|ratio| 100.0 * ratio), 9, 1),
            cell(over(first), 11, 3),
            cell(over(fastest), 13, 3),
            cell(figure.megahertz, 7, 0),
            cell(figure.watts, 5, 0),
            cell(figure.tflops_per_watt, 10, 3),
            cell(figure.millijoules, 9, 1),
        )?;
    }
    if let (Some(best), Some(dense)) = (best(figures), of(&[DENSE])) {
        writeln!(out(), "{:10} {BEST} over {DENSE}: {:.3}", "", best / dense)?;
    }
    Ok(())
}

/// A fused candidate's speed relative to the same candidate without the fusion, and to cuBLASLt's fusion.
fn over_plain_and_peer(figures: &[Figure], candidate: &str, fusion: &str, peer: &str) -> [Option<f64>; 2] {
    let of = |name: &str| median(figures, &[name]);
    let plain = candidate.strip_suffix(fusion).map(str::trim_end);
    let (Some(plain), Some(fused)) = (plain, of(candidate)) else { return [None; 2] };
    [of(plain), of(&format!("{peer} {fusion}"))].map(|other| other.map(|other| fused / other))
}

/// Prints the figures of one shape in one state, plain and with a fused epilogue. A fused candidate is
/// compared with the same candidate without the fusion, and with cuBLASLt's own fusion. The last line
/// compares our fastest kernels with and without it.
pub(super) fn fused_table(state: PowerState, figures: &[Figure], fusion: &str, peer: &str) -> io::Result<()> {
    writeln!(out(), "{:10} {:26}         us  TFLOP/s  spread       x plain x Lt fused", state.name(), "")?;
    let line = |name: &str, figure: &Figure, [plain, fused]: [Option<f64>; 2]| {
        let [least, median, most] = figure.tflops;
        writeln!(
            out(),
            "{:10} {name:26} {:10.2} {median:8.1}  {:11} {} {}",
            "",
            figure.microseconds,
            format!("{least:.0}..{most:.0}"),
            cell(plain, 8, 3),
            cell(fused, 10, 3),
        )
    };
    for figure in figures {
        line(&figure.candidate, figure, over_plain_and_peer(figures, &figure.candidate, fusion, peer))?;
    }
    let fastest = |fused: bool| {
        let ours = figures.iter().filter(|figure| figure.ours());
        ours.filter(|figure| figure.candidate.ends_with(fusion) == fused)
            .max_by(|a, b| a.tflops[1].total_cmp(&b.tflops[1]))
    };
    if let (Some(plain), Some(fused)) = (fastest(false), fastest(true)) {
        let [_, over_peer] = over_plain_and_peer(figures, &fused.candidate, fusion, peer);
        line(BEST, fused, [Some(fused.tflops[1] / plain.tflops[1]), over_peer])?;
    }
    Ok(())
}

/// A kernel's geometric means over shapes, relative to cuBLASLt.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Mean {
    pub(super) candidate: String,
    pub(super) shapes: usize,
    pub(super) first: f64,
    pub(super) fastest: f64,
}

/// Geometric means of the speeds relative to cuBLASLt's, per kernel of ours and for our best kernel at each
/// shape.
pub(super) fn means(figures: &[Figure], state: PowerState) -> Vec<Mean> {
    let groups = by_shape(figures, state);
    let mut names: Vec<&str> = Vec::new();
    for figure in figures.iter().filter(|figure| figure.ours()) {
        if !names.contains(&figure.candidate.as_str()) {
            names.push(&figure.candidate);
        }
    }
    let named = |group: &[&Figure], names: &[&str]| median(group.iter().copied(), names);
    let mean = |candidate: &str, speed: &dyn Fn(&[&Figure]) -> Option<f64>| {
        let mut logs = [0.0; 2];
        let mut shapes = 0;
        for group in groups.iter().filter(|group| suites::counts(group[0].shape())) {
            let of_library = (named(group, &FIRSTS), named(group, &FASTESTS));
            if let (Some(ours), (Some(first), Some(fastest))) = (speed(group), of_library) {
                logs[0] += (ours / first).ln();
                logs[1] += (ours / fastest).ln();
                shapes += 1;
            }
        }
        let [first, fastest] = logs.map(|log| (log / shapes as f64).exp());
        Mean { candidate: candidate.to_owned(), shapes, first, fastest }
    };
    let mut means: Vec<Mean> = names.iter().map(|name| mean(name, &|group| named(group, &[name]))).collect();
    if names.len() > 1 {
        means.push(mean(BEST, &|group| best(group.iter().copied())));
    }
    means.retain(|mean| mean.shapes > 0);
    means
}

/// The figures of a state, grouped by shape, in the order of measurement.
fn by_shape(figures: &[Figure], state: PowerState) -> Vec<Vec<&Figure>> {
    let mut groups: Vec<Vec<&Figure>> = Vec::new();
    for figure in figures.iter().filter(|figure| figure.state == state) {
        match groups.iter_mut().find(|group| group[0].shape() == figure.shape()) {
            Some(group) => group.push(figure),
            None => groups.push(vec![figure]),
        }
    }
    groups
}

/// Prints the geometric means of a state, if there are several shapes.
pub(super) fn print_means(figures: &[Figure], state: PowerState) -> io::Result<()> {
    let means = means(figures, state);
    if means.iter().all(|mean| mean.shapes < 2) {
        return Ok(());
    }
    writeln!(out(), "\n{} geometric means over shapes of at least 10 GFLOP", state.name())?;
    writeln!(out(), "{:33} {:>7} {:>11} {:>13}", "", "shapes", "x Lt first", "x Lt fastest")?;
    for Mean { candidate, shapes, first, fastest } in means {
        writeln!(out(), "{:10} {candidate:22} {shapes:7} {first:11.3} {fastest:13.3}", "")?;
    }
    Ok(())
}

/// Prints what results cost whose bits do not depend on the shape, if they were compared: the time of the first kernel that sums in
/// one order, over that of the first of all.
pub(super) fn print_price(figures: &[Figure], picks: &[Pick], state: PowerState) -> io::Result<()> {
    let mut logs = Vec::new();
    for group in by_shape(figures, state) {
        let time = |name: &str| group.iter().find(|of| of.candidate == name).map(|of| of.microseconds);
        let pick = picks.iter().find(|pick| pick.shape == group[0].shape());
        let times = pick.and_then(|pick| time(pick.reproducible.as_deref()?).zip(time(&pick.name)));
        let Some((same, first)) = times else { continue };
        if logs.is_empty() {
            writeln!(out(), "\n{:10} {:>22}         us reproducible us x time", state.name(), "")?;
        }
        let GemmProblem { m, n, k } = group[0].shape();
        let shape = format!("{m} x {n} x {k}");
        writeln!(out(), "{:10} {shape:>22} {first:10.2} {same:15.2} {:6.3}", "", same / first)?;
        logs.push((same / first).ln());
    }
    if logs.is_empty() {
        return Ok(());
    }
    let (count, most) = (logs.len(), logs.iter().copied().fold(f64::MIN, f64::max).exp());
    let mean = (logs.iter().sum::<f64>() / count as f64).exp();
    writeln!(
        out(),
        "reproducible results take {mean:.3} x the time, geometric mean of {count}, {most:.3} x at most"
    )
}

impl Record {
    /// The peer of such operands.
    pub(super) fn library(&self) -> &'static str {
        if Types::named(&self.dtype).is_some_and(|types| types.has_sparse()) {
            "cuSPARSELt"
        } else {
            "cuBLASLt"
        }
    }

    pub(super) fn json(&self) -> Result<String, Failure> {
        serde_json::to_string_pretty(self)
            .map_err(|error| Failure::environment(format!("the figures do not serialise: {error}")))
    }

    /// One line per figure, with the ratios that the table prints. A field that does not apply is empty.
    pub(super) fn csv(&self) -> String {
        let library = self.library().to_lowercase();
        let mut text = format!(
            "m,n,k,dtype,layout,state,candidate,microseconds,tflops_least,tflops,tflops_most,percent_ceiling,\
             times_{library}_first,times_{library}_fastest,sm_mhz,watts,tflops_per_watt,millijoules\n"
        );
        for figure in &self.figures {
            let beside = |other: &&Figure| (other.state, other.shape()) == (figure.state, figure.shape());
            let group = self.figures.iter().filter(beside);
            let [least, tflops, most] = figure.tflops;
            let over = |names: &[&str], scale: f64| {
                let other = median(group.clone(), names);
                other.map_or(String::new(), |other| format!("{:.4}", scale * tflops / other))
            };
            let read = |value: Option<f64>| value.map_or(String::new(), |value| format!("{value:.3}"));
            let GemmProblem { m, n, k } = figure.shape();
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "{m},{n},{k},{},{},{},{},{:.3},{least:.2},{tflops:.2},{most:.2},{},{},{},{},{},{},{}",
                self.dtype,
                self.layout,
                figure.state.name(),
                figure.candidate,
                figure.microseconds,
                over(&[CEILING], 100.0),
                over(&FIRSTS, 1.0),
                over(&FASTESTS, 1.0),
                read(figure.megahertz),
                read(figure.watts),
                read(figure.tflops_per_watt),
                read(figure.millijoules),
            );
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use kernel::GemmProblem;

    use super::{
        CEILING, DENSE, FASTEST, FASTEST_SPARSE, FIRST, FIRST_SPARSE, Figure, Mean, PowerState, Record,
        means, over_plain_and_peer,
    };

    fn figure(extent: u32, candidate: &str, tflops: f64) -> Figure {
        let slots = (!candidate.starts_with("cuBLASLt") && candidate != CEILING).then_some(132);
        let shape = GemmProblem { m: extent, n: extent, k: extent };
        Figure {
            of: shape.into(),
            candidate: candidate.to_owned(),
            state: PowerState::Burst,
            slots,
            tflops: [tflops - 1.0, tflops, tflops + 1.0],
            microseconds: shape.operations() / tflops / 1e6,
            megahertz: None,
            watts: (candidate == "two").then_some(500.0),
            tflops_per_watt: (candidate == "two").then_some(tflops / 500.0),
            millijoules: (candidate == "two").then_some(0.5 * shape.operations() / tflops / 1e6),
        }
    }

    fn figures() -> Vec<Figure> {
        let shape = |extent, speeds: [f64; 5]| {
            let names = [CEILING, "one", "two", FIRST, FASTEST];
            names.into_iter().zip(speeds).map(move |(name, tflops)| figure(extent, name, tflops))
        };
        // The last shape is too small to count.
        let shapes = [
            (4096, [900.0, 800.0, 400.0, 400.0, 800.0]),
            (2048, [900.0, 200.0, 400.0, 800.0, 800.0]),
            (64, [900.0, 1.0, 1.0, 100.0, 100.0]),
        ];
        shapes.into_iter().flat_map(|(extent, speeds)| shape(extent, speeds)).collect()
    }

    #[test]
    fn means_are_geometric_and_leave_small_shapes_out() {
        let near = |mean: &Mean, first: f64, fastest: f64| {
            (mean.first - first).abs() < 1e-9 && (mean.fastest - fastest).abs() < 1e-9 && mean.shapes == 2
        };
        let all = means(&figures(), PowerState::Burst);
        let names: Vec<_> = all.iter().map(|mean| mean.candidate.as_str()).collect();
        assert_eq!(names, ["one", "two", "best of ours"]);
        // sqrt(2 * 1/4), sqrt(1 * 1/4); sqrt(1 * 1/2), sqrt(1/2 * 1/2); sqrt(2 * 1/2), sqrt(1 * 1/2).
        assert!(near(&all[0], 0.5_f64.sqrt(), 0.5), "{all:?}");
        assert!(near(&all[1], 0.5_f64.sqrt(), 0.5), "{all:?}");
        assert!(near(&all[2], 1.0, 0.5_f64.sqrt()), "{all:?}");
        assert_eq!(means(&figures(), PowerState::Sustained), []);
    }

    #[test]
    fn fused_candidates_are_held_against_their_plain_ones_and_the_peers_fused_one() {
        let speeds =
            [("wide", 800.0), ("wide bias", 600.0), ("Lt", 700.0), ("Lt bias", 400.0), ("other bias", 1.0)];
        let figures: Vec<_> = speeds.into_iter().map(|(name, tflops)| figure(4096, name, tflops)).collect();
        for (candidate, want) in [
            ("wide", [None, None]),
            ("wide bias", [Some(0.75), Some(1.5)]),
            ("Lt bias", [Some(400.0 / 700.0), Some(1.0)]),
            ("other bias", [None, Some(1.0 / 400.0)]),
        ] {
            assert_eq!(over_plain_and_peer(&figures, candidate, "bias", "Lt"), want, "{candidate}");
        }
    }

    /// Sparse operands have another peer. Our dense kernel is not compared with it.
    #[test]
    fn sparse_figures_are_held_against_their_own_peer() {
        let speeds = [("one", 1200.0), (FIRST_SPARSE, 800.0), (FASTEST_SPARSE, 1000.0), (DENSE, 750.0)];
        let mut figures: Vec<_> =
            speeds.into_iter().map(|(name, tflops)| figure(4096, name, tflops)).collect();
        for figure in figures.iter_mut().filter(|figure| figure.candidate != "one") {
            figure.slots = None;
        }
        let all = means(&figures, PowerState::Burst);
        let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
        assert!(all.len() == 1 && near(all[0].first, 1.5) && near(all[0].fastest, 1.2), "{all:?}");
        let record = record("bf16-sparse-a", figures);
        let csv = record.csv();
        assert!(csv.contains(",times_cusparselt_first,times_cusparselt_fastest,"), "{csv}");
        assert!(csv.lines().nth(1).is_some_and(|line| line.ends_with(",,1.5000,1.2000,,,,")), "{csv}");
    }

    fn record(dtype: &str, figures: Vec<Figure>) -> Record {
        Record {
            card: String::new(),
            memory_bandwidth: 4.8,
            cublaslt: None,
            cusparselt: None,
            dtype: dtype.to_owned(),
            layout: "kk".to_owned(),
            figures,
            launches: Vec::new(),
        }
    }

    #[test]
    fn csv_has_the_ratios() {
        let record = record("bf16", figures());
        let csv = record.csv();
        let lines: Vec<_> = csv.lines().collect();
        assert_eq!(lines.len(), 16);
        let fields = lines[0].split(',').count();
        assert!(lines.iter().all(|line| line.split(',').count() == fields), "{csv}");
        assert_eq!(
            lines[2],
            "4096,4096,4096,bf16,kk,burst,one,171.799,799.00,800.00,801.00,88.8889,2.0000,1.0000,,,,"
        );
        assert!(lines[3].ends_with(",,500.000,0.800,171.799"), "{}", lines[3]);
    }
}
