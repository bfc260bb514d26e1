//! `falchion tune`: measures the kernels that the model ranks first, and records their times.
//!
//! [`kernel::driver::tune`] measures, as it does for callers of the library.

pub(super) mod seen;

use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::verify;
use collective::Formula;
use kernel::disk::records::{Records, RecordsOf};
use kernel::driver::tune::{BURST, Inputs, REST, Screening};
use kernel::{
    AnyGemm, Arguments, Engine, Family, GemmProblem, Gpu, Known, Predicted, Ranked, Request, Types,
};

use super::compilers::Compilers;
use super::contest::{Contest, Peers, View};
use super::job::Job;
use super::report::{self, Figure};
use super::suites;
use crate::bench::{PowerState, Protocol};
use crate::cli::call::Launched;
use crate::cli::engine::machine;
use crate::cli::options::{Given, Verb};
use crate::cli::output::out;
use crate::cli::{Command, Failure, catalogue, family, files, types};
use seen::{Others, Timed, Tuned};

pub(crate) const COMMAND: Command = Command {
    verb: Verb::TUNE,
    about: "Measure on the GPU the kernels that the model ranks first at each shape, and compare them with cuBLASLt.

Every candidate is first timed briefly, after a rest. Candidates near the best are timed again, alternating; after two turns only \
those that are still near the best continue. One line per shape names the best kernel and the model's choice, and compares them \
with cuBLASLt's fastest and first algorithms if cuBLASLt has such a GEMM. With a sparse operand, the comparison is with \
cuSPARSELt and with our dense kernel. Results are added to the tuning records on disk (see `falchion cache`).",
    examples: "Examples:\n  falchion tune --shape 1000x5000x2056\n  falchion tune --shapes shapes.txt --budget 24 --jsonl seen.jsonl\n  \
                  falchion tune --shape 4096x4096x512 --epilogue bias-gelu\n  falchion tune --shape 64x64x4096 --batch 96 --dtype f16\n  \
                  falchion tune --rows 300,0,17,512 --n 4096 --k 7168 --dtype e4m3 --scale-block-a 1x128 --scale-block-b 128x128\n  \
                  falchion tune --rows 50,50,50,50 --max-rows 512 --n 4096 --k 7168\n  \
                  falchion tune --shape 8192x8192x8192 --sparse a\n  \
                  falchion tune --family attention --problem \"4x16x4096 mask=causal\"",
    run: |given| TuneArgs::run(given),
};

/// The options of a measurement.
#[derive(Debug)]
struct TuneArgs {
    layout: String,
    turns: usize,
    sustained: bool,
}

/// Largest file of shapes in bytes: more shapes than anybody has time for.
const MOST_SHAPES: u64 = 1 << 20;

/// A candidate that is slower than the best by this factor after two turns gets no further turns.
const NEAR: f64 = 1.04;

impl TuneArgs {
    fn run(given: &Given) -> Result<(), Failure> {
        let begun = Instant::now();
        let (types, layout) = types::laid(given, given.has("rows"))?;
        let args =
            Self { layout, turns: given.value::<u32>("turns") as usize, sustained: given.flag("sustained") };
        let budget = given.value::<u32>("budget") as usize;
        let known = if given.flag("no-records") { Known::Nothing } else { Known::Shipped };
        let (seconds, path) = (given.get::<u64>("seconds"), given.get::<PathBuf>("jsonl"));
        let jobs = args.jobs(given, types)?;
        given.finish(if given.has("rows") { "--rows" } else { "--shape and --shapes" })?;
        // The kernels to measure for each problem, with their predicted times.
        let candidates = |job: &Job| -> Result<Vec<Ranked>, Failure> {
            let selection = job.search(budget, known);
            catalogue::first(&selection, &job.request())?;
            Ok(selection.ranked)
        };
        let chosen = jobs.iter().map(candidates).collect::<Result<Vec<_>, _>>()?;
        path.as_deref().map_or(Ok(()), files::writable)?;
        let mut gpu = Gpu::new(0)?;
        writeln!(out(), "{}", gpu.describe())?;
        let peers = Peers::new(&gpu, types)?;
        let mut record = family::lines(path.as_ref())?;
        let (mut all, mut kept): (Vec<Tuned>, Records) = Default::default();
        let names =
            |ranked: &Vec<Ranked>| ranked.iter().map(|ranked| ranked.gemm.name().to_owned()).collect();
        // Leave some processors for the launches.
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let compilers = Compilers::new((processors * 3 / 4).max(1), chosen.iter().map(names).collect());
        for (i, (job, candidates)) in jobs.iter().zip(chosen).enumerate() {
            compilers.wait(i);
            if seconds.is_some_and(|most| begun.elapsed() > Duration::from_secs(most)) {
                writeln!(out(), "stopped after {} of {} shapes", all.len(), jobs.len())?;
                break;
            }
            for tuned in args.measure(&mut gpu, &peers, job, candidates)? {
                if let Some(file) = &mut record {
                    writeln!(file, "{}", tuned.line()?)?;
                    file.flush()?;
                }
                tuned.print()?;
                tuned.keep(&mut kept)?;
                all.push(tuned);
            }
        }
        for state in [PowerState::Burst, PowerState::Sustained] {
            seen::means(&all, state)?;
        }
        if !kept.is_empty() {
            seen::save(&gpu, kept)?;
        }
        Ok(())
    }

    /// The problems to tune, in order.
    fn jobs(&self, given: &Given, types: Types) -> Result<Vec<Job>, Failure> {
        let with = (given.get::<Formula>("epilogue"), given.flag("reproducible"));
        let majors = catalogue::majors(&self.layout);
        let launched = if given.has("rows") {
            vec![Launched::read(given, |_| Err(usage!("--rows needs --n and --k")))?]
        } else {
            let batch = given.get("batch");
            shapes(given)?.into_iter().map(|shape| Launched::shape(shape, batch)).collect()
        };
        launched.into_iter().map(|launched| Job::new(types, majors, with, launched)).collect()
    }

    fn measure(
        &self,
        gpu: &mut Gpu,
        peers: &Peers,
        job: &Job,
        candidates: Vec<Ranked>,
    ) -> Result<Vec<Tuned>, Failure> {
        let request = job.request();
        let predicted: Vec<f64> = candidates.iter().map(|ranked| ranked.prediction.microseconds).collect();
        let kernels = candidates.into_iter().map(|ranked| ranked.gemm).collect();
        let planned;
        let mut contest = Contest::new(request.call.problem, request.operations());
        let (inputs, Screening { kernels, near, candidates }) = heat(gpu, &request, kernels)?;
        contest.candidates = candidates;
        // The libraries are not timed for several GEMMs.
        planned = if job.is_one() { peers.invite(gpu, &request, &inputs, &mut contest)? } else { None };
        planned.iter().try_for_each(|planned| planned.join(&mut contest))?;
        let figures = contest.run(gpu, &protocol(self.turns, self.sustained), &QUIET)?;
        let mut tuned = Vec::new();
        for figures in figures.chunks(contest.candidates.len().max(1)) {
            let timed = kernels.iter().zip(&predicted).enumerate();
            let timed = timed.map(|(i, (of, &predicted))| {
                let spec = catalogue::own_words(of.kernel.name());
                Timed::new((spec, of.kernel.spec()), of, predicted, time(figures, &near, i))
            });
            let named = |names: &[&str]| {
                let named = figures.iter().find(|figure| names.contains(&figure.candidate.as_str()));
                named.map(|figure| figure.microseconds)
            };
            let others = Others {
                first: named(&report::FIRSTS),
                fastest: named(&report::FASTESTS),
                dense: named(&[report::DENSE]),
            };
            tuned.push(Tuned::new(&request, &self.layout, figures[0].state, timed.collect(), others));
        }
        drop(contest);
        planned.map_or(Ok(()), |planned| planned.free(gpu))?;
        inputs.free(gpu)?;
        Ok(tuned)
    }
}

/// Nothing is printed of single candidates.
const QUIET: View<'static> = View { monitor: None, step: &|| (), table: &|_, _| Ok(()) };

fn protocol(turns: usize, sustained: bool) -> Protocol {
    let mut states = vec![PowerState::Burst];
    states.extend(sustained.then_some(PowerState::Sustained));
    Protocol { states, turns, rest: REST, burst: BURST, near: Some(NEAR) }
}

/// The time of a kernel in microseconds, if it was near the best.
fn time(figures: &[Figure], near: &[usize], kernel: usize) -> Option<f64> {
    Some(figures[near.iter().position(|&of| of == kernel)?].microseconds)
}

/// Tunes kernels of a family.
pub(crate) fn family<K: Family>(given: &Given) -> Result<(), Failure> {
    let (budget, drawn, turns): (u32, u32, u32) =
        (given.value("budget"), given.value("drawn"), given.value("turns"));
    let protocol = protocol(turns as usize, given.flag("sustained"));
    let (mut problems, path) = (family::problems::<K>(given)?, given.get::<PathBuf>("jsonl"));
    if given.flag("no-records") {
        problems.iter_mut().for_each(|(_, request)| *request = K::unrecorded(request));
    }
    given.finish(&format!("--family {}", K::NAME))?;
    path.as_deref().map_or(Ok(()), files::writable)?;
    let mut gpu = Gpu::new(0)?;
    writeln!(out(), "{}", gpu.describe())?;
    let (mut lines, mut kept) = (family::lines(path.as_ref())?, RecordsOf::<K>::default());
    for (problem, request) in &problems {
        let ranked = looked_at::<K>(request, [budget, drawn].map(|count| count as usize))?;
        let predicted: Vec<f64> = ranked.iter().map(|of| of.microseconds).collect();
        let kernels: Vec<K> = ranked.into_iter().map(|of| of.kernel).collect();
        let inputs = Inputs::of(&mut gpu, &kernels, request)?;
        let operations = K::operations(request);
        let Screening { kernels, near, candidates } = Screening::run(&mut gpu, &inputs, operations, kernels)?;
        inputs.free(&mut gpu)?;
        let mut contest = Contest::new(problem.clone(), operations);
        contest.candidates = candidates;
        let figures = contest.run(&mut gpu, &protocol, &QUIET)?;
        for figures in figures.chunks(contest.candidates.len().max(1)) {
            let state = figures[0].state;
            let timed = kernels.iter().zip(&predicted).enumerate().map(|(i, (of, &predicted))| {
                Timed::new((family::name(&of.kernel), None), of, predicted, time(figures, &near, i))
            });
            let line = seen::OfFamily { family: K::NAME, problem, state, kernels: timed.collect() };
            line.print()?;
            if let Some(file) = &mut lines {
                writeln!(file, "{}", serde_json::to_string(&line).map_err(Failure::environment)?)?;
                file.flush()?;
            }
            for (i, of) in kernels.iter().enumerate().filter(|_| state == PowerState::Burst) {
                if let Some(time) = time(figures, &near, i) {
                    let kept = kept.keep(K::problem(request), &of.kernel, time);
                    kept.map_err(Failure::environment)?;
                }
            }
        }
    }
    if kept.is_empty() { Ok(()) } else { seen::save(&gpu, kept) }
}

/// The kernels that the model ranks first, and some that are drawn from the rest.
fn looked_at<K: Family>(
    request: &K::Request<'_>,
    [budget, drawn]: [usize; 2],
) -> Result<Vec<Predicted<K>>, Failure> {
    let most = if drawn > 0 { usize::MAX } else { budget };
    let mut first = family::ranked::<K>(request, machine(), most)?;
    let mut rest = first.split_off(budget.min(first.len()));
    fastrand::Rng::with_seed(1).shuffle(&mut rest);
    first.extend(rest.into_iter().take(drawn));
    Ok(first)
}

/// The shapes of --shape and --shapes.
fn shapes(given: &Given) -> Result<Vec<GemmProblem>, Failure> {
    let Some(path) = given.get::<PathBuf>("shapes") else {
        let shapes = given.list("shape");
        let missing = "--shape, --shapes or --rows was needed";
        return if shapes.is_empty() { Err(Failure::usage(missing)) } else { Ok(shapes) };
    };
    let text = files::text(&path, MOST_SHAPES)
        .map_err(|error| usage!("cannot read --shapes {}: {error}", path.display()))?;
    let shapes = text.split_whitespace().map(suites::parse).collect::<Result<Vec<_>, _>>();
    match shapes {
        Ok(shapes) if shapes.is_empty() => Err("it has no shape; MxNxK was needed, one per line".to_owned()),
        other => other,
    }
    .map_err(|error| usage!("--shapes {}: {error}", path.display()))
}

/// Times a few launches of each kernel, with random arguments for the epilogue. The inputs are those of the launches.
fn heat(gpu: &mut Gpu, request: &Request<'_>, kernels: Vec<AnyGemm>) -> Result<(Inputs, Screening), Failure> {
    let Some(fusion) = request.fusion else {
        return screened(gpu, request, &request.call.epilogue, kernels);
    };
    let GemmProblem { m, n, .. } = request.call.problem;
    let mut bench = verify::Bench::aligned(gpu, 0);
    let shape = collective::tree::Shape { m, n: n >> fusion.halvings() };
    let arguments = bench.sample(fusion, request.types.a, shape)?;
    let buffers = bench.buffers();
    let screened = screened(gpu, request, &arguments, kernels)?;
    for buffer in buffers {
        gpu.free(buffer)?;
    }
    Ok(screened)
}

fn screened<E: Arguments + Clone>(
    gpu: &mut Gpu,
    request: &Request<'_>,
    epilogue: &E,
    kernels: Vec<AnyGemm>,
) -> Result<(Inputs, Screening), Failure> {
    let inputs = Inputs::with_epilogue(gpu, request, epilogue)?;
    let screening = Screening::run(gpu, &inputs, request.operations(), kernels)?;
    Ok((inputs.without_epilogue(), screening))
}
