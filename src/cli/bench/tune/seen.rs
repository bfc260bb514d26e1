//! The measurements of a shape: as lines of JSON, as tuning records, and as a table.

use std::io::Write;

use collective::Form;
use kernel::disk::Cache;
use kernel::disk::records::{Measurement, Problem, Records, RecordsOf};
use kernel::driver::tune;
use kernel::{Family, Gpu, GroupedProblem, KernelSpec, Request};
use serde::{Deserialize, Serialize};

use crate::bench::PowerState;
use crate::cli::Failure;
use crate::cli::output::out;

/// The measurements of one shape, as a line of a record.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::cli::bench) struct Line {
    pub(in crate::cli::bench) m: u32,
    pub(in crate::cli::bench) n: u32,
    pub(in crate::cli::bench) k: u32,
    pub(in crate::cli::bench) dtype: String,
    layout: String,
    /// The rest of the problem, if it is no plain GEMM.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(in crate::cli::bench) epilogue: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(in crate::cli::bench) rows: Vec<u32>,
    /// Rows of the buffer of each group, if each has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_rows: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::cli::bench) batch: Option<u32>,
    pub(in crate::cli::bench) state: PowerState,
    kernels: Vec<Timed>,
    cublaslt_first: Option<f64>,
    cublaslt_fastest: Option<f64>,
    /// The peer of sparse operands, and our dense kernel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cusparselt_first: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cusparselt_fastest: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    dense: Option<f64>,
}

/// The measurements of one shape, and what was asked.
#[derive(Debug)]
pub(super) struct Tuned {
    line: Line,
    problem: Problem,
}

/// Microseconds of a library's first and fastest algorithms, and for a sparse operand of our dense kernel.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Others {
    pub(super) first: Option<f64>,
    pub(super) fastest: Option<f64>,
    pub(super) dense: Option<f64>,
}

/// A kernel that was measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::cli::bench) struct Timed {
    /// The spec without A's format and the directions, which the line says.
    spec: String,
    /// Microseconds. The oldest records have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    predicted: Option<f64>,
    slots: u32,
    /// The time of a few launches, in microseconds.
    quick: f64,
    /// The median of its turns, if it had any.
    microseconds: Option<f64>,
    #[serde(skip)]
    kernel: Option<KernelSpec>,
}

impl Timed {
    pub(super) fn new<K>(
        (spec, kernel): (String, Option<KernelSpec>),
        &tune::Timed { resident: slots, quick, .. }: &tune::Timed<K>,
        predicted: f64,
        microseconds: Option<f64>,
    ) -> Self {
        Self { spec, predicted: Some(predicted), slots, quick, microseconds, kernel }
    }

    /// The best of some kernels with its time.
    fn best(kernels: &[Self]) -> Option<(&Self, f64)> {
        let times = kernels.iter().filter_map(|timed| Some((timed, timed.microseconds?)));
        times.min_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// Prints the best of some kernels, and the model's choice, which is the first.
    fn print(problem: &str, state: PowerState, kernels: &[Self]) -> std::io::Result<()> {
        let Some((_, time)) = Self::best(kernels) else { return Ok(()) };
        let first = kernels.first();
        let model = first.and_then(|first| first.microseconds).unwrap_or(f64::NAN);
        let predicted = first.and_then(|first| first.predicted).unwrap_or(f64::NAN);
        let state = state.name();
        write!(
            out(),
            "{problem:>20} {state:9} best {time:8.1} us, model's {model:8.1} (predicted {predicted:8.1}); "
        )
    }
}

/// The measurements of a problem of another family, as a line of a record.
#[derive(Debug, Serialize)]
pub(super) struct OfFamily<'a> {
    pub(super) family: &'static str,
    pub(super) problem: &'a str,
    pub(super) state: PowerState,
    pub(super) kernels: Vec<Timed>,
}

impl OfFamily<'_> {
    pub(super) fn print(&self) -> std::io::Result<()> {
        Timed::print(self.problem, self.state, &self.kernels)?;
        let best = Timed::best(&self.kernels).map_or("", |(best, _)| &best.spec);
        writeln!(out(), "{best}")?;
        out().flush()
    }
}

impl Line {
    /// The best kernel with its time.
    fn best(&self) -> Option<(&Timed, f64)> {
        Timed::best(&self.kernels)
    }

    /// The times of the library's first choice, and of the faster of its two.
    fn peer(&self) -> Option<[f64; 2]> {
        let first = self.cublaslt_first.or(self.cusparselt_first)?;
        Some([first, first.min(self.cublaslt_fastest.or(self.cusparselt_fastest)?)])
    }

    /// The library's name.
    pub(in crate::cli::bench) fn library(&self) -> &'static str {
        if self.cusparselt_first.is_some() { "cuSPARSELt" } else { "cuBLASLt" }
    }

    /// The time of the library's fastest over that of the best kernel.
    pub(in crate::cli::bench) fn ratio(&self) -> Option<f64> {
        Some(self.peer()?[1] / self.best()?.1)
    }

    /// Two ratios of times: the library's first choice over the model's choice, and its fastest over the best
    /// kernel.
    fn ratios(&self) -> Option<[f64; 2]> {
        Some([self.peer()?[0] / self.kernels.first()?.microseconds?, self.ratio()?])
    }
}

impl Tuned {
    /// The measurements of a request, with the times of cuBLASLt's first and fastest algorithms.
    pub(super) fn new(
        request: &Request<'_>,
        layout: &str,
        state: PowerState,
        kernels: Vec<Timed>,
        Others { first, fastest, dense }: Others,
    ) -> Self {
        let kernel::GemmProblem { m, n, k } = request.call.problem;
        let products = request.call.products;
        let sparse = request.types.has_sparse();
        let [dense_peer, sparse_peer] =
            if sparse { [[None; 2], [first, fastest]] } else { [[first, fastest], [None; 2]] };
        let max_rows =
            if let GroupedProblem::GroupedMasked { room, .. } = products { Some(room) } else { None };
        let batch = (products.form() == Form::Batched).then(|| products.count());
        let line = Line {
            m,
            n,
            k,
            dtype: request.types.to_string(),
            layout: layout.to_owned(),
            epilogue: request.fusion.map_or_else(String::new, |fusion| fusion.name().to_owned()),
            rows: request.shapes.iter().map(|group| group.m).collect(),
            max_rows,
            batch,
            state,
            kernels,
            cublaslt_first: dense_peer[0],
            cublaslt_fastest: dense_peer[1],
            cusparselt_first: sparse_peer[0],
            cusparselt_fastest: sparse_peer[1],
            dense,
        };
        Self { line, problem: Problem::of(request) }
    }

    /// A line of JSON.
    pub(super) fn line(&self) -> Result<String, Failure> {
        serde_json::to_string(&self.line).map_err(Failure::environment)
    }

    /// Adds the kernels that were measured in the burst state to the records.
    pub(super) fn keep(&self, records: &mut Records) -> Result<(), Failure> {
        if self.line.state != PowerState::Burst {
            return Ok(());
        }
        for Timed { kernel, microseconds, .. } in &self.line.kernels {
            if let (Some(spec), Some(time)) = (kernel, microseconds) {
                records
                    .insert(self.problem.clone(), Measurement::now(*spec, *time))
                    .map_err(Failure::environment)?;
            }
        }
        Ok(())
    }

    pub(super) fn print(&self) -> Result<(), Failure> {
        let line = &self.line;
        let Some((best, time)) = line.best() else { return Ok(()) };
        Timed::print(&format!("{}x{}x{}", line.m, line.n, line.k), line.state, &line.kernels)?;
        if let Some([first, fastest]) = line.ratios() {
            write!(
                out(),
                "x {}: model's over its first {first:.3}, best over its fastest {fastest:.3}; ",
                line.library()
            )?;
        }
        if let Some(dense) = line.dense {
            write!(out(), "best over our dense kernel {:.3}; ", dense / time)?;
        }
        writeln!(out(), "{}", best.spec)?;
        Ok(out().flush()?)
    }
}

/// Adds records to those on disk, if there is a folder for them.
pub(super) fn save<K: Family>(gpu: &Gpu, mut records: RecordsOf<K>) -> Result<(), Failure> {
    let Some(cache) = Cache::of_environment().map_err(Failure::environment)? else {
        writeln!(out(), "the records are kept nowhere: FALCHION_CACHE is empty")?;
        return Ok(());
    };
    let key = gpu.context().key(RecordsOf::<K>::digest())?;
    let count = records.len();
    for warning in records.save(&cache, &key).map_err(Failure::environment)? {
        writeln!(out(), "warning: {warning}")?;
    }
    writeln!(out(), "kept what was measured of {count} problems in {}", cache.folder().display())?;
    Ok(())
}

pub(super) fn means(all: &[Tuned], state: PowerState) -> Result<(), Failure> {
    let of_state: Vec<&Line> =
        all.iter().map(|tuned| &tuned.line).filter(|line| line.state == state).collect();
    let ratios: Vec<[f64; 2]> = of_state.iter().filter_map(|line| line.ratios()).collect();
    if ratios.is_empty() {
        return Ok(());
    }
    let mean = |i: usize| (ratios.iter().map(|ratio| ratio[i].ln()).sum::<f64>() / ratios.len() as f64).exp();
    let near = of_state.iter().filter(|line| {
        let model = line.kernels.first().and_then(|first| first.microseconds);
        model.zip(line.best()).is_some_and(|(model, (_, best))| model <= 1.03 * best)
    });
    let part = |least: f64| ratios.iter().filter(|ratio| ratio[1] >= least).count();
    writeln!(
        out(),
        "{}: {} shapes; geometric means: model's over {}'s first {:.3}, best over its fastest {:.3}; {} shapes >= 0.98, \
         {} >= 0.95; the model's choice is within 3 % of the best at {}",
        state.name(),
        ratios.len(),
        of_state.first().map_or("cuBLASLt", |line| line.library()),
        mean(0),
        mean(1),
        part(0.98),
        part(0.95),
        near.count(),
    )?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use collective::Format;
    use cute_rs::atom::Major;
    use kernel::{GemmProblem, Known, Machine, Types};

    use crate::cli::catalogue;

    use super::*;

    const ONE: GemmProblem = GemmProblem { m: 317, n: 512, k: 256 };

    /// The two kernels that the model ranks first, as if both had turns after a rest, or one of them.
    fn seen(request: &Request<'_>, times: [Option<f64>; 2]) -> Tuned {
        let selection = kernel::search(&request.known(Known::Nothing), &Machine::h200(), 2);
        let timed = selection.ranked.into_iter().zip(times).map(|(ranked, time)| {
            let of = tune::Timed { kernel: ranked.gemm, resident: 132, quick: 9.5 };
            Timed::new((catalogue::own_words(of.kernel.name()), of.kernel.spec()), &of, 10.25, time)
        });
        Tuned::new(request, "kk", PowerState::Burst, timed.collect(), Others::default())
    }

    #[test]
    fn lines_say_what_was_tuned() {
        let groups = [300, 0, 17].map(|m| GemmProblem { m, ..ONE });
        let scaled = Types::of(Format::E4m3).scaled([1, 128]);
        let packed = |types: Types| Request::packed(types, [Major::K; 2], ONE);
        let bf16 = packed(Types::of(Format::Bf16));
        for (why, request, words) in [
            ("a product", bf16, r#""dtype":"bf16","layout":"kk","state":"burst","kernels""#),
            ("a batch", bf16.batched(7), r#""layout":"kk","batch":7,"state""#),
            (
                "a fused epilogue",
                bf16.fused("bias-gelu".parse().expect("a formula")),
                r#""layout":"kk","epilogue":"bias-gelu","state""#,
            ),
            (
                "groups of scaled blocks",
                packed(scaled).ragged(&groups),
                r#""dtype":"e4m3-1x128-128x128","layout":"kk","rows":[300,0,17],"state""#,
            ),
        ] {
            let line = seen(&request, [Some(8.0), None]).line().expect("text");
            assert!(
                line.starts_with(r#"{"m":317,"n":512,"k":256,"#) && line.contains(words),
                "{why}: {line}"
            );
            assert!(line.contains(r#""quick":9.5,"microseconds":8.0},"#), "{why}: {line}");
            assert!(line.ends_with(r#""cublaslt_first":null,"cublaslt_fastest":null}"#), "{why}: {line}");
        }
    }

    /// With a sparse operand the library is cuSPARSELt, and our dense kernel is timed too.
    #[test]
    fn lines_of_sparse_operands_say_who_else_was_timed() {
        let types = Types::of(Format::Bf16).sparse([true, false]);
        let request = Request::packed(types, [Major::K; 2], ONE).known(Known::Nothing);
        let kernels = seen(&request, [Some(8.0), Some(7.5)]).line.kernels;
        let others = Others { first: Some(10.0), fastest: Some(9.0), dense: Some(12.0) };
        let tuned = Tuned::new(&request, "kk", PowerState::Burst, kernels, others);
        let line = tuned.line().expect("text");
        assert!(line.contains(r#""dtype":"bf16-sparse-a""#), "{line}");
        let end = r#""cublaslt_first":null,"cublaslt_fastest":null,"cusparselt_first":10.0,"cusparselt_fastest":9.0,"dense":12.0}"#;
        assert!(line.ends_with(end), "{line}");
        assert_eq!(
            (tuned.line.library(), tuned.line.ratios()),
            ("cuSPARSELt", Some([10.0 / 8.0, 9.0 / 7.5]))
        );
    }

    /// The library finds for a request what was kept for the same request.
    #[test]
    fn records_are_those_of_the_request() {
        let groups = [300, 0, 17].map(|m| GemmProblem { m, ..ONE });
        let bf16 = Request::packed(Format::Bf16, [Major::K; 2], ONE);
        let e4m3 = Request::packed(Format::E4m3, [Major::K; 2], ONE);
        let sparse = |sides| Request::packed(Types::of(Format::Bf16).sparse(sides), [Major::K; 2], ONE);
        for request in [
            bf16,
            bf16.batched(7),
            bf16.fused("bias-gelu".parse().expect("a formula")),
            e4m3.ragged(&groups),
            sparse([true, false]),
            sparse([false, true]).ragged(&groups),
        ] {
            let tuned = seen(&request, [Some(8.0), Some(7.5)]);
            let mut records = Records::default();
            tuned.keep(&mut records).expect("legal");
            let problem = Problem::of(&request);
            let found = records.lookup(&problem);
            let times: Vec<f64> = found.iter().map(|of| of.microseconds).collect();
            assert_eq!((records.len(), times), (1, vec![7.5, 8.0]), "{problem:?}");
            let known: Vec<_> = found.iter().map(|of| (of.spec, of.microseconds)).collect();
            let best = kernel::fastest(&request.known(Known::Measured(&known)), &Machine::h200());
            assert_eq!(best.expect("a kernel").measured, Some(7.5), "{problem:?}");
            let mut none = Records::default();
            Tuned { line: Line { state: PowerState::Sustained, ..tuned.line }, ..tuned }
                .keep(&mut none)
                .expect("nothing");
            assert!(none.is_empty(), "what was not measured after a rest is not kept");
        }
    }
}
