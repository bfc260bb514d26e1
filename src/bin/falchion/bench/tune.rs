//! `falchion tune`: measures the kernels that the model ranks first, and writes down what it saw.

use std::collections::HashSet;
use std::fs::OpenOptions;
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use kernel::disk::Cache;
use kernel::disk::records::{Measurement, Problem, Records};
use kernel::driver::Enqueue;
use kernel::driver::cublaslt::{CublasLt, Product};
use kernel::{AnyGemm, Call, Engine, GemmProblem, Gpu, KernelSpec, Known, Machine, Program, Request, Types};
use rayon::prelude::*;
use serde::Serialize;

use super::arena::{self, Arena, Set};
use super::compilers::Compilers;
use super::measure::{Candidate, Protocol, State};
use super::suites;
use crate::output::out;
use crate::types::TypeArgs;
use crate::{Failure, catalogue, files};

/// Measure the kernels that the model ranks first at each shape, beside cuBLASLt, on the GPU.
///
/// Each gets a few launches after a rest; those near the best get turns, and after two turns those that are still near it get the
/// others. A line for each shape says the best kernel, the model's, and what cuBLASLt's first and fastest algorithms take. What had
/// turns is added to the tuning records on disk (`falchion cache`).
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  falchion tune --shape 1000x5000x2056\n  falchion tune --shapes shapes.txt --budget 24 --record seen.jsonl"
)]
pub(crate) struct TuneArgs {
    /// A file of shapes, `MxNxK` a line.
    #[arg(long, value_name = "FILE", required_unless_present = "shape")]
    shapes: Option<PathBuf>,
    /// Shapes of your own.
    #[arg(long, value_name = "MxNxK", value_parser = suites::parse, conflicts_with = "shapes")]
    shape: Vec<GemmProblem>,
    /// How many kernels are measured at each shape.
    #[arg(long, value_name = "N", default_value_t = 24, value_parser = clap::value_parser!(u32).range(1..))]
    budget: u32,
    #[command(flatten)]
    types: TypeArgs,
    /// Contiguous directions of A and B, as in kernel names.
    #[arg(long, default_value = "kk", value_parser = ["kk", "kn", "mk", "mn"])]
    layout: String,
    /// Turns that each candidate gets that is near the best.
    #[arg(long, default_value_t = 5)]
    turns: usize,
    /// Measure with the card busy for seconds, too.
    #[arg(long)]
    sustained: bool,
    /// Begin no shape after so many seconds.
    #[arg(long, value_name = "SECONDS")]
    seconds: Option<u64>,
    /// Add what was measured to this file, a line of JSON for each shape.
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
}

/// What was measured at a shape.
#[derive(Debug, Serialize)]
struct Tuned<'a> {
    m: u32,
    n: u32,
    k: u32,
    dtype: String,
    #[serde(skip)]
    types: Types,
    layout: &'a str,
    state: State,
    kernels: Vec<Timed>,
    cublaslt_first: Option<f64>,
    cublaslt_fastest: Option<f64>,
}

/// A kernel that was measured.
#[derive(Clone, Debug, Serialize)]
struct Timed {
    /// Without the format of A and the directions, which the line says.
    spec: String,
    predicted: f64,
    slots: u32,
    /// From a few launches alone.
    quick: f64,
    /// The median of its turns, where it had any.
    microseconds: Option<f64>,
}

/// What is this much slower than the best after two turns gets no further ones.
const NEAR: f64 = 1.04;

/// How many times as long as a few launches the card rests before the next.
const REST: f64 = 12.0;

/// What is this much slower than the best of a few launches gets no turns.
const SLOWER: f64 = 1.12;

impl TuneArgs {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let begun = Instant::now();
        let shapes = self.shapes()?;
        shapes.iter().try_for_each(|&shape| arena::possible(shape))?;
        let types = self.types.types()?;
        let mut gpu = Gpu::new(0)?;
        writeln!(out(), "{}", gpu.describe())?;
        let peer = super::peer(&gpu)?;
        let arena = Arena::new(&mut gpu, types, &shapes)?;
        let mut record = match &self.record {
            Some(path) => {
                files::writable(path)?;
                Some(BufWriter::new(OpenOptions::new().create(true).append(true).open(path)?))
            }
            None => None,
        };
        let (mut all, mut kept): (Vec<Tuned<'_>>, Records) = Default::default();
        let chosen: Vec<Vec<(AnyGemm, f64)>> =
            shapes.iter().map(|&shape| self.candidates(types, shape)).collect();
        let names =
            |gemms: &Vec<(AnyGemm, f64)>| gemms.iter().map(|(gemm, _)| gemm.name().to_owned()).collect();
        // Some processors are left to launch.
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let compilers = Compilers::new((processors * 3 / 4).max(1), chosen.iter().map(names).collect());
        for (i, (&shape, candidates)) in shapes.iter().zip(chosen).enumerate() {
            compilers.wait(i);
            if self.seconds.is_some_and(|most| begun.elapsed() > Duration::from_secs(most)) {
                writeln!(out(), "stopped after {} of {} shapes", all.len(), shapes.len())?;
                break;
            }
            let tuned = self.shape(&mut gpu, peer.as_ref(), &arena, (shape, candidates))?;
            for tuned in tuned {
                if let Some(file) = &mut record {
                    let line = serde_json::to_string(&tuned).map_err(Failure::environment)?;
                    writeln!(file, "{line}")?;
                    file.flush()?;
                }
                tuned.print()?;
                tuned.keep(&mut kept)?;
                all.push(tuned);
            }
        }
        for state in [State::Burst, State::Sustained] {
            means(&all, state)?;
        }
        if !kept.is_empty() {
            save(&gpu, kept)?;
        }
        arena.free(&mut gpu)
    }

    fn shapes(&self) -> Result<Vec<GemmProblem>, Failure> {
        let Some(path) = &self.shapes else { return Ok(self.shape.clone()) };
        let text = std::fs::read_to_string(path)
            .map_err(|error| Failure::usage(format!("--shapes {}: {error}", path.display())))?;
        let shapes = text.split_whitespace().map(suites::parse).collect::<Result<Vec<_>, _>>();
        match shapes {
            Ok(shapes) if shapes.is_empty() => {
                Err("it has no shape; MxNxK was needed, one a line".to_owned())
            }
            other => other,
        }
        .map_err(|error| Failure::usage(format!("--shapes {}: {error}", path.display())))
    }

    /// The kernels that are measured at a shape, with their predicted times.
    fn candidates(&self, types: Types, problem: GemmProblem) -> Vec<(AnyGemm, f64)> {
        let request = Request::packed(types, catalogue::majors(&self.layout), problem);
        let request = request.known(Known::Nothing);
        let selection = kernel::search(&request, &Machine::h200(), self.budget as usize);
        selection.ranked.into_iter().map(|ranked| (ranked.gemm, ranked.prediction.microseconds)).collect()
    }

    fn shape(
        &self,
        gpu: &mut Gpu,
        peer: Option<&CublasLt>,
        arena: &Arena,
        (problem, candidates): (GemmProblem, Vec<(AnyGemm, f64)>),
    ) -> Result<Vec<Tuned<'_>>, Failure> {
        let ([a, b], types, sets) = (catalogue::majors(&self.layout), arena.types(), arena.sets(problem));
        let scales = sets.first().map_or([0; 2], |set| set.scales);
        let product = Product { a, b, scales, ..Product::new(types, problem) };
        let plan = super::planned(peer, &product)?;
        let programs: Vec<(AnyGemm, f64, Program)> = candidates
            .into_par_iter()
            .map(|(gemm, predicted)| gemm.program().map(|program| (gemm, predicted, program)))
            .collect::<Result<_, _>>()?;
        let all: Vec<&Program> = programs.iter().map(|(_, _, program)| program).collect();
        gpu.compile(&all)?;
        let (mut timed, mut launches, mut workspaces) = (Vec::new(), Vec::new(), Vec::new());
        let mut rest = Duration::from_millis(60);
        for (gemm, predicted, program) in &programs {
            let slots = gpu.slots(program)?;
            let needed = gemm.workspace(&Call::of(problem), slots);
            let workspace = gpu.workspace(needed)?;
            workspaces.extend(workspace.map(|workspace| workspace.buffer()));
            let own = prepare(gpu, gemm, program, slots, (problem, &sets, workspace))?;
            let refs: Vec<&dyn Enqueue> = own.iter().map(AsRef::as_ref).collect();
            // The card's clock falls while it is busy: without a rest, who comes late is slow.
            std::thread::sleep(rest);
            gpu.time_many(&refs, 1)?;
            let quick = (0..2).map(|_| gpu.time_many(&refs, 4)).collect::<Result<Vec<_>, _>>()?;
            let quick = quick.into_iter().fold(f64::INFINITY, f64::min) * 1e6;
            rest = Duration::from_secs_f64((quick * 9e-6 * REST).clamp(0.002, 0.06));
            timed.push(Timed {
                spec: own_words(gemm.name()),
                predicted: *predicted,
                slots,
                quick,
                microseconds: None,
            });
            launches.push(own);
        }
        let best = timed.iter().map(|timed| timed.quick).fold(f64::INFINITY, f64::min);
        let chosen: Vec<usize> =
            (0..timed.len()).filter(|&i| i == 0 || timed[i].quick <= SLOWER * best + 1.0).collect();
        let keep: HashSet<usize> = chosen.iter().copied().collect();
        let mut candidates: Vec<Candidate<'_>> = launches
            .into_iter()
            .enumerate()
            .filter(|(i, _)| keep.contains(i))
            .map(|(i, launches)| Candidate {
                name: timed[i].spec.clone(),
                launches,
                operations: problem.operations(),
                slots: Some(timed[i].slots),
            })
            .collect();
        if let (Some(plan), Some(set)) = (&plan, sets.first()) {
            let fastest = plan.fastest(gpu, set.a, set.b, set.d)?;
            candidates.extend(super::candidates(Vec::new(), Some((plan, fastest)), &sets, problem, None)?);
        }
        let mut states = vec![State::Burst];
        states.extend(self.sustained.then_some(State::Sustained));
        let protocol = Protocol {
            states: states.clone(),
            turns: self.turns,
            rest: Duration::from_millis(80),
            burst: 0.006,
            near: Some(NEAR),
        };
        let mut tuned = Vec::new();
        for state in states {
            let turns = protocol.measure(gpu, None, &candidates, state, &|| {})?;
            let times: Vec<f64> =
                turns.iter().map(|turns| problem.operations() / turns.spread()[1] / 1e6).collect();
            let mut kernels = timed.clone();
            for (&i, &time) in chosen.iter().zip(&times) {
                kernels[i].microseconds = Some(time);
            }
            let GemmProblem { m, n, k } = problem;
            tuned.push(Tuned {
                m,
                n,
                k,
                dtype: types.to_string(),
                types,
                layout: &self.layout,
                state,
                kernels,
                cublaslt_first: times.get(chosen.len()).copied(),
                cublaslt_fastest: times.get(chosen.len() + 1).copied(),
            });
        }
        drop(candidates);
        for buffer in workspaces {
            gpu.free(buffer)?;
        }
        Ok(tuned)
    }
}

/// A spec's words, without A's format and the directions.
fn own_words(spec: &str) -> String {
    let own = |word: &&str| !word.starts_with("dtype=") && !word.starts_with("layout=");
    spec.split(' ').filter(own).collect::<Vec<_>>().join(" ")
}

/// Launches of a kernel, one a set.
fn prepare<'a>(
    gpu: &mut Gpu,
    gemm: &AnyGemm,
    program: &Program,
    slots: u32,
    (problem, sets, workspace): (GemmProblem, &[Set], Option<kernel::WorkspaceRef>),
) -> Result<Vec<Box<dyn Enqueue + 'a>>, Failure> {
    sets.iter()
        .map(|set| {
            let launch = gemm.launch(&set.call(problem, gemm, workspace), slots)?;
            let launch = launch.ok_or_else(|| Failure::usage("an empty product takes no time"))?;
            let prepared = gpu.prepare(program, launch.grid, &launch.arguments)?;
            Ok(Box::new(prepared) as Box<dyn Enqueue>)
        })
        .collect()
}

impl Tuned<'_> {
    /// The best kernel with its time.
    fn best(&self) -> Option<(&Timed, f64)> {
        let times = self.kernels.iter().filter_map(|timed| Some((timed, timed.microseconds?)));
        times.min_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// cuBLASLt's faster time.
    fn fastest(&self) -> Option<f64> {
        Some(self.cublaslt_first?.min(self.cublaslt_fastest?))
    }

    /// cuBLASLt's first choice over the model's, its fastest over the best kernel.
    fn ratios(&self) -> Option<[f64; 2]> {
        let model = self.kernels.first()?.microseconds?;
        Some([self.cublaslt_first? / model, self.fastest()? / self.best()?.1])
    }

    /// Adds the kernels that had turns after a rest.
    fn keep(&self, records: &mut Records) -> Result<(), Failure> {
        if self.state != State::Burst {
            return Ok(());
        }
        let problem = Problem::single(&*self.dtype, catalogue::majors(self.layout), [self.m, self.n, self.k]);
        for Timed { spec, microseconds, .. } in &self.kernels {
            let spec = format!("{spec} dtype={} layout={}", self.types.a.name(), self.layout);
            if let (Ok(spec), Some(time)) = (KernelSpec::parse(&spec), microseconds) {
                records
                    .insert(problem.clone(), Measurement::now(spec, *time))
                    .map_err(Failure::environment)?;
            }
        }
        Ok(())
    }

    fn print(&self) -> Result<(), Failure> {
        let Some((best, time)) = self.best() else { return Ok(()) };
        let model = self.kernels.first().and_then(|first| first.microseconds).unwrap_or(f64::NAN);
        let [first, fastest] = self.ratios().unwrap_or([f64::NAN; 2]);
        let shape = format!("{}x{}x{}", self.m, self.n, self.k);
        let Self { state, .. } = self;
        writeln!(
            out(),
            "{shape:>20} {:9} best {time:8.1} us, model's {model:8.1} (predicted {:8.1}); x cuBLASLt: model's over its first \
             {first:.3}, best over its fastest {fastest:.3}; {}",
            state.name(),
            self.kernels.first().map_or(f64::NAN, |first| first.predicted),
            best.spec
        )?;
        Ok(out().flush()?)
    }
}

/// Adds records to those on disk, where there is a folder for them.
fn save(gpu: &Gpu, mut records: Records) -> Result<(), Failure> {
    let Some(cache) = Cache::of_environment().map_err(Failure::environment)? else {
        writeln!(out(), "the records are kept nowhere: FALCHION_CACHE is empty")?;
        return Ok(());
    };
    let key = gpu.context().key(Records::digest())?;
    let count = records.len();
    for warning in records.save(&cache, &key).map_err(Failure::environment)? {
        writeln!(out(), "warning: {warning}")?;
    }
    writeln!(out(), "kept what was measured of {count} shapes in {}", cache.folder().display())?;
    Ok(())
}

fn means(all: &[Tuned<'_>], state: State) -> Result<(), Failure> {
    let of_state: Vec<&Tuned<'_>> = all.iter().filter(|tuned| tuned.state == state).collect();
    let ratios: Vec<[f64; 2]> = of_state.iter().filter_map(|tuned| tuned.ratios()).collect();
    if ratios.is_empty() {
        return Ok(());
    }
    let mean = |i: usize| (ratios.iter().map(|ratio| ratio[i].ln()).sum::<f64>() / ratios.len() as f64).exp();
    let near = of_state.iter().filter(|tuned| {
        let model = tuned.kernels.first().and_then(|first| first.microseconds);
        model.zip(tuned.best()).is_some_and(|(model, (_, best))| model <= 1.03 * best)
    });
    let part = |least: f64| ratios.iter().filter(|ratio| ratio[1] >= least).count();
    writeln!(
        out(),
        "{}: {} shapes; geometric means: model's over cuBLASLt's first {:.3}, best over its fastest {:.3}; {} shapes >= 0.98, \
         {} >= 0.95; the model's choice is within 3 % of the best at {}",
        state.name(),
        ratios.len(),
        mean(0),
        mean(1),
        part(0.98),
        part(0.95),
        near.count(),
    )?;
    Ok(())
}
