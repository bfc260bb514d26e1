//! `falchion bench`: times our kernels, cuBLASLt and the multiply-only ceiling, in one process and one power
//! state.
//!
//! *Burst* is about ten milliseconds after a rest. *Sustained* keeps the GPU busy for seconds, so that its
//! power limit decides. In both states the candidates alternate, and the median over their turns counts.
//! Inputs rotate over sets of matrices that together do not fit in the L2 cache.

mod arena;
mod ceiling;
pub(crate) mod chart;
pub(crate) mod compilers;
mod epilogue;
mod fused;
mod grouped;
mod k_grouped;
mod launch;
mod measure;
mod peer;
mod plot;
mod report;
mod sparse;
pub(crate) mod suites;
mod svg;
pub(crate) mod tune;

use std::cell::Cell;
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use cute_rs::atom::Major;
use kernel::driver::cublaslt::CublasLt;
use kernel::driver::tune::{Candidate, Inputs};
use kernel::driver::{Enqueue, Monitor};
use kernel::{
    AnyGemm, Call, Engine, GemmProblem, Gpu, KernelSpec, LinearArguments, Machine, Program, Request, Types,
    WorkspaceRef,
};

use ceiling::Ceiling;
use measure::{Protocol, State};
use peer::{candidates, fastest, peer, planned};
use report::{Figure, Record};
use sparse::Rivals;
use suites::Suite;

use crate::engine::Progress;
use crate::named;
use crate::output::out;
use crate::types::TypeArgs;
use crate::{Failure, catalogue, files, memory, types};

/// Time our kernels on the GPU, and compare them with cuBLASLt and the multiply-only ceiling.
///
/// Kernels with a sparse operand are compared with cuSPARSELt and with our dense kernel. TFLOP/s count the
/// operations of the dense GEMM.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  falchion bench\n  falchion bench --shape 4096x14336x4096 --shape 1024x1024x1024\n  \
                        falchion bench --suite public --json public.json --csv public.csv\n  \
                        falchion bench --suite selection --all-configs --json table.json\n  \
                        falchion bench --epilogue bias-gelu --shape 4096x4096x512\n  \
                        falchion bench --rows 300,0,17,512 --n 4096 --k 7168\n  \
                        falchion bench --k-groups 4096,4096,8192 --m 4096 --n 7168 --layout mn\n  \
                        falchion bench --sparse a"
)]
pub(crate) struct BenchArgs {
    /// Rows of A and D.
    #[arg(long, default_value_t = 8192, value_parser = clap::value_parser!(u32).range(1..))]
    m: u32,
    /// Columns of B and D.
    #[arg(long, default_value_t = 8192, value_parser = clap::value_parser!(u32).range(1..))]
    n: u32,
    /// Columns of A, rows of B.
    #[arg(long, default_value_t = 8192, value_parser = clap::value_parser!(u32).range(1..))]
    k: u32,
    /// Shape to time, in place of --m, --n and --k. Repeatable.
    #[arg(long, value_name = "MxNxK", value_parser = suites::parse, allow_hyphen_values = true, conflicts_with_all = ["m", "n", "k"])]
    shape: Vec<GemmProblem>,
    /// List of shapes to time.
    #[arg(long, value_enum, conflicts_with_all = ["m", "n", "k", "shape"])]
    suite: Option<Suite>,
    /// Rows of each group of an MoE grouped GEMM, comma-separated, with --n and --k; each group has its own B,
    /// N x K. Measures what --suite grouped does.
    #[arg(long, value_name = "ROWS,ROWS,..", value_delimiter = ',', allow_hyphen_values = true, conflicts_with_all = ["m", "shape", "suite"],
        value_parser = crate::numbers::rows)]
    rows: Option<Vec<u32>>,
    /// K of each group along K, comma-separated, with --m and --n: the weight gradients of experts. The groups are
    /// ranges of K of the same A and B, and each has its own D. Times the four kernels with the shortest predicted
    /// times, or those of --config and --spec.
    #[arg(long, value_name = "K,K,..", value_delimiter = ',', allow_hyphen_values = true, value_parser = crate::numbers::lengths,
        conflicts_with_all = ["k", "shape", "suite", "rows", "all_configs", "epilogue", "launch", "plot"])]
    k_groups: Option<Vec<u32>>,
    /// Kernel to time, from `falchion configs` [default: at each shape, the one that `falchion plan` ranks
    /// first]. Repeatable.
    #[arg(long, value_name = "NAME")]
    config: Vec<String>,
    /// Kernel to time as `key=value` words. Words that are left out have the defaults that `falchion plan
    /// --spec ""` prints. Repeatable.
    #[arg(long, value_name = "WORDS", value_parser = named::spec)]
    spec: Vec<KernelSpec>,
    /// Time every kernel of the catalogue that can compute the shape; with --epilogue, every one with that fusion.
    #[arg(long, conflicts_with_all = ["config", "spec"])]
    all_configs: bool,
    /// Name of a fused epilogue. Times the four kernels with the shortest predicted times, with and without
    /// it, and cuBLASLt's own fusion if there is one. A and B are K-major.
    #[arg(long, value_name = "NAME", value_parser = crate::gemm::fusion_names(),
        conflicts_with_all = ["config", "spec", "layout", "launch", "plot"])]
    epilogue: Option<String>,
    #[command(flatten)]
    types: TypeArgs,
    /// Contiguous dimension of A (k or m) and of B (k or n). With --config, that of the first kernel.
    #[arg(long, default_value = "kk", value_parser = ["kk", "kn", "mk", "mn"])]
    layout: String,
    /// Number of times that each candidate is timed, per state [default: 7; 3 for --suite selection].
    #[arg(long)]
    turns: Option<usize>,
    /// Measure only the burst state, not the sustained one.
    #[arg(long)]
    burst_only: bool,
    /// Time the host's cost of a launch instead, and replay a launch from a CUDA graph.
    #[arg(long, conflicts_with_all = ["suite", "shape", "rows", "m", "n", "k", "config", "spec", "all_configs", "csv", "plot"])]
    launch: bool,
    /// Write every figure to this JSON file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write every figure to this CSV file.
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Draw a roofline and the ratios to the library's fastest to this SVG file.
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

/// One of our kernels, ready to launch.
struct Ours {
    entry: AnyGemm,
    program: Program,
    slots: u32,
    /// Large enough for the largest problem so far.
    workspace: Option<WorkspaceRef>,
}

/// The setup that all shapes share.
struct Bench {
    gpu: Gpu,
    peer: Option<CublasLt>,
    rivals: Option<Rivals>,
    monitor: Option<Monitor>,
    types: Types,
    ceiling: Option<Ceiling>,
    ours: Vec<Ours>,
    protocol: Protocol,
    majors: [Major; 2],
    choice: Choice,
}

type Launches = Vec<Candidate<'static>>;
type Refusals = Vec<(String, String)>;

/// Which of the kernels are timed at a shape.
#[derive(Clone, Debug)]
enum Choice {
    /// The named kernels. A kernel that cannot compute the only shape is an error. With several shapes it is
    /// left out, with the reason.
    Named { only: bool },
    /// All kernels that can compute the shape.
    All,
    /// Per shape, the name of the kernel that the model ranks first.
    First(Vec<(GemmProblem, String)>),
}

impl Choice {
    fn includes(&self, shape: GemmProblem, name: &str) -> bool {
        match self {
            Self::Named { .. } | Self::All => true,
            Self::First(picks) => picks.iter().any(|(of, pick)| *of == shape && pick == name),
        }
    }
}

impl BenchArgs {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        for path in [&self.json, &self.csv, &self.plot].into_iter().flatten() {
            files::writable(path)?;
        }
        let shapes = match self.suite {
            Some(suite) => suite.shapes(),
            None if !self.shape.is_empty() => self.shape.clone(),
            None => vec![GemmProblem { m: self.m, n: self.n, k: self.k }],
        };
        if self.rows.is_none() && self.k_groups.is_none() {
            shapes.iter().try_for_each(|&shape| arena::possible(shape))?;
        }
        // Named kernels determine the directions.
        if self.config.is_empty() && self.spec.is_empty() {
            let types = self.types.types()?;
            catalogue::multiplied_as_they_lie(types, &self.layout)?;
            types::sparse_as_it_lies(types, &self.layout, false)?;
        }
        if self.epilogue.is_some() {
            shapes.iter().try_for_each(|&shape| memory::drawn(shape))?;
        }
        if self.rows.is_some() || self.suite == Some(Suite::Grouped) {
            return self.grouped();
        }
        if let Some(lengths) = &self.k_groups {
            return self.k_grouped(lengths);
        }
        if let Some(name) = &self.epilogue {
            return self.fused(name, &shapes);
        }
        if self.launch && self.types.types()?.has_sparse() {
            return Err(Failure::usage("--launch times dense products: leave out --sparse"));
        }
        let launched = match self.launch {
            true => Some(launch::small(self.types.types()?, &self.layout)?),
            false => None,
        };
        let (kernels, choice) = self.kernels(&shapes)?;
        let mut gpu = Gpu::new(0)?;
        writeln!(out(), "{}", gpu.describe())?;
        if let Some(kernel) = launched {
            let mut record = self.record(&gpu, None, Types::of_kernel(&kernel))?;
            record.launches = launch::measure(&mut gpu, kernel)?;
            return self.write(&record);
        }
        // This suite is for the selection, which chooses among our kernels: nothing else is timed.
        let alone = self.suite == Some(Suite::Selection);
        let ours = kernels.into_iter().map(|entry| {
            let program = entry.program()?;
            let slots = gpu.slots(&program)?;
            Ok(Ours { entry, program, slots, workspace: None })
        });
        let ours = ours.collect::<Result<Vec<_>, Failure>>()?;
        let majors = ours.first().map_or([Major::K; 2], |ours| ours.entry.plan().majors());
        let types = ours.first().map_or(self.types.types(), |ours| Ok(Types::of_kernel(&ours.entry)))?;
        let peer = if alone || types.has_sparse() { None } else { peer(&gpu)? };
        let rivals = if alone { None } else { Rivals::new(&gpu, types)? };
        let ceiling = if alone { None } else { Some(Ceiling::new(&mut gpu, types)?) };
        let mut record = self.record(&gpu, peer.as_ref(), types)?;
        record.cusparselt = rivals.as_ref().and_then(Rivals::version);
        if let Some(first) = ours.first() {
            record.layout = catalogue::layout(&first.entry);
        }
        let protocol = self.protocol(alone);
        let monitor = if protocol.states.contains(&State::Sustained) { monitor(&gpu)? } else { None };
        let mut bench = Bench { gpu, peer, rivals, monitor, types, ceiling, ours, protocol, majors, choice };
        let outcome = bench.all(&shapes, &mut record.figures);
        if outcome.is_err() && !record.figures.is_empty() {
            self.write(&record)?; // keep the measurements so far
        }
        outcome?;
        for &state in &bench.protocol.states {
            report::print_means(&record.figures, state)?;
        }
        self.write(&record)?;
        bench.close()
    }

    /// Times MoE layers.
    fn grouped(&self) -> Result<(), Failure> {
        if self.all_configs || self.epilogue.is_some() || self.layout != "kk" {
            return Err(Failure::usage(
                "products of several experts are timed plain and K-major, with all kernels that are for them unless --config \
                 names some: leave out --all-configs, --epilogue and --layout",
            ));
        }
        let types = self.types.types()?;
        if types.has_sparse() {
            return Err(Failure::usage(
                "products of several experts are timed dense here: leave out --sparse, or take `falchion tune --rows … --sparse b`",
            ));
        }
        let layers = match &self.rows {
            Some(rows) => vec![grouped::Layer::new(rows, self.n, self.k, types.b.bytes())?],
            None => grouped::layers(),
        };
        let kernels = grouped::kernels(&self.config, types)?;
        if kernels.is_empty() {
            layers.iter().try_for_each(|layer| layer.ranked(types).map(|_| ()))?;
        }
        let mut gpu = Gpu::new(0)?;
        writeln!(out(), "{}", gpu.describe())?;
        let peer = peer(&gpu)?;
        let mut record = self.record(&gpu, peer.as_ref(), types)?;
        let protocol = self.protocol(false);
        let timed = grouped::Timed { peer: peer.as_ref(), kernels, types, protocol };
        record.figures = timed.layers(&mut gpu, &layers)?;
        self.write(&record)
    }

    /// Times groups along K.
    fn k_grouped(&self, lengths: &[u32]) -> Result<(), Failure> {
        let named = self.named()?;
        let types = named.first().map_or(self.types.types(), |entry| Ok(Types::of_kernel(entry)))?;
        if types.has_sparse() || types.has_weights() {
            return Err(Failure::usage(
                "groups along K are of dense operands, with or without block scales: leave out --sparse and weights in few bits",
            ));
        }
        let layout = named.first().map_or(self.layout.clone(), catalogue::layout);
        let groups = k_grouped::Groups::new(types, catalogue::majors(&layout), (lengths, self.m, self.n))?;
        let kernels = groups.kernels(named)?;
        let mut gpu = Gpu::new(0)?;
        writeln!(out(), "{}", gpu.describe())?;
        let peer = peer(&gpu)?;
        let record = self.record(&gpu, peer.as_ref(), types)?;
        let protocol = self.protocol(false);
        let figures = k_grouped::measure(&mut gpu, peer.as_ref(), &groups, &kernels, &protocol)?;
        self.write(&Record { layout, figures, ..record })
    }

    /// Times kernels with a fused epilogue.
    fn fused(&self, name: &str, shapes: &[GemmProblem]) -> Result<(), Failure> {
        let types = self.types.types()?;
        let fusion = epilogue::fusion(name, types)?;
        let mut gpu = Gpu::new(0)?;
        writeln!(out(), "{}", gpu.describe())?;
        let peer = peer(&gpu)?;
        let mut record = self.record(&gpu, peer.as_ref(), types)?;
        let protocol = self.protocol(false);
        let mut bench = epilogue::Bench::new(&mut gpu, peer, protocol, (fusion, self.all_configs), types)?;
        for &shape in shapes {
            record.figures.extend(bench.shape(shape)?);
        }
        self.write(&record)
    }

    fn record(&self, gpu: &Gpu, peer: Option<&CublasLt>, types: Types) -> Result<Record, Failure> {
        Ok(Record {
            card: gpu.describe(),
            memory_bandwidth: gpu.memory_bandwidth()? / 1e12,
            cublaslt: peer.map(CublasLt::version),
            cusparselt: None,
            dtype: types.to_string(),
            layout: self.layout.clone(),
            figures: Vec::new(),
            launches: Vec::new(),
        })
    }

    fn protocol(&self, alone: bool) -> Protocol {
        let mut states = vec![State::Burst];
        if !self.burst_only && !alone {
            states.push(State::Sustained);
        }
        let (turns, rest, burst) = if alone { (3, 30, 0.004) } else { (7, 120, 0.010) };
        let rest = Duration::from_millis(rest);
        Protocol { states, turns: self.turns.unwrap_or(turns), rest, burst, near: None }
    }

    /// The kernels of --config and --spec.
    fn named(&self) -> Result<Vec<AnyGemm>, Failure> {
        let names = self.config.iter().cloned().chain(self.spec.iter().map(KernelSpec::to_string));
        let named = names.map(|name| timed(&name)).collect::<Result<Vec<_>, Failure>>()?;
        self.of_types(&named)?;
        Ok(named)
    }

    fn kernels(&self, shapes: &[GemmProblem]) -> Result<(Vec<AnyGemm>, Choice), Failure> {
        let named = self.named()?;
        if !named.is_empty() {
            return Ok((named, Choice::Named { only: shapes.len() == 1 }));
        }
        let types = self.types.types()?;
        if self.all_configs {
            return Ok((catalogue::of(types, &self.layout), Choice::All));
        }
        let first = |&shape: &GemmProblem| {
            let request = Request::packed(types, catalogue::majors(&self.layout), shape);
            let name = catalogue::first(&kernel::select(&request, &Machine::h200()))?.gemm.name().to_owned();
            Ok((shape, name))
        };
        let picks = shapes.iter().map(first).collect::<Result<Vec<_>, Failure>>()?;
        let mut names: Vec<&String> = picks.iter().map(|(_, name)| name).collect();
        names.sort_unstable();
        names.dedup();
        let kernels = names.into_iter().map(|name| timed(name)).collect::<Result<Vec<_>, Failure>>()?;
        Ok((kernels, Choice::First(picks)))
    }

    /// Fails if the kernels and the command line need different matrices.
    fn of_types(&self, named: &[AnyGemm]) -> Result<(), Failure> {
        let (Some(first), given) = (named.first(), self.types.given()?) else { return Ok(()) };
        let types = given.unwrap_or(Types::of_kernel(first));
        match named.iter().find(|entry| Types::of_kernel(entry) != types) {
            None => Ok(()),
            Some(other) => {
                let of = Types::of_kernel(other);
                let needed = format!("kernel {} is for {of}, {types} was needed", other.name());
                Err(Failure::usage(needed))
            }
        }
    }

    fn write(&self, record: &Record) -> Result<(), Failure> {
        if let Some(path) = &self.json {
            files::write_text(path, &record.json()?)?;
        }
        if let Some(path) = &self.csv {
            files::write_text(path, &record.csv())?;
        }
        if let Some(path) = &self.plot {
            files::write_text(path, &plot::svg(record))?;
        }
        Ok(())
    }
}

/// The kernel of a name or of a spec's text, if it has no fused epilogue.
fn timed(name: &str) -> Result<AnyGemm, Failure> {
    let instead = |_: &str, fusion: &str| {
        format!("time it with --epilogue {fusion}, next to the same kernel without it")
    };
    catalogue::plain(name, instead)
}

fn monitor(gpu: &Gpu) -> io::Result<Option<Monitor>> {
    match Monitor::new(gpu) {
        Ok(monitor) => Ok(Some(monitor)),
        Err(error) => {
            writeln!(out(), "without clock and power: {error}")?;
            Ok(None)
        }
    }
}

impl Bench {
    fn all(&mut self, shapes: &[GemmProblem], figures: &mut Vec<Figure>) -> Result<(), Failure> {
        let progress = Progress::new("measuring");
        for (i, &shape) in shapes.iter().enumerate() {
            let done = |part| progress.show((i * 1000 + part) as u64, (shapes.len() * 1000) as u64);
            self.shape(shape, figures, &progress, &done)?;
        }
        progress.show(1, 1);
        Ok(())
    }

    /// Measures one shape. `step` is called with the progress in thousandths.
    fn shape(
        &mut self,
        problem: GemmProblem,
        figures: &mut Vec<Figure>,
        progress: &Progress,
        step: &dyn Fn(usize),
    ) -> Result<(), Failure> {
        let inputs = Inputs::new(&mut self.gpu, &Request::packed(self.types, self.majors, problem))?;
        let dense = arena::dense(&mut self.gpu, self.types, self.majors, problem)?;
        let peers = dense.as_ref().map_or(inputs.sets(), Inputs::sets);
        let measured = self.measured(problem, [inputs.sets(), peers], figures, progress, step);
        inputs.free(&mut self.gpu)?;
        dense.map_or(Ok(()), |dense| dense.free(&mut self.gpu))?;
        measured
    }

    /// Measures one shape: our kernels on some sets of matrices, cuBLASLt on others.
    fn measured(
        &mut self,
        problem: GemmProblem,
        [sets, peers]: [&[Call<()>]; 2],
        figures: &mut Vec<Figure>,
        progress: &Progress,
        step: &dyn Fn(usize),
    ) -> Result<(), Failure> {
        let (ours, refused) = self.prepared(problem, sets)?;
        let product = arena::product(self.types, self.majors, problem, peers.first());
        let plan = planned(self.peer.as_ref(), &product, None)?;
        let fastest = fastest(&mut self.gpu, plan.as_ref(), peers)?;
        let mut candidates =
            candidates(ours, plan.as_ref().zip(fastest), (peers, &[]), problem, self.ceiling.as_ref())?;
        if let Some(rivals) = &self.rivals {
            let of = (self.types, self.majors);
            candidates.extend(rivals.candidates(&mut self.gpu, of, problem, peers)?);
        }
        let GemmProblem { m, n, k } = problem;
        progress.aside(|| writeln!(out(), "\n{m} x {n} x {k} {}", self.types))?;
        for (name, reason) in refused {
            progress.aside(|| writeln!(out(), "           {name} is left out: {reason}"))?;
        }
        if !candidates.iter().any(|candidate| candidate.slots.is_some()) {
            progress.aside(|| writeln!(out(), "           none of the kernels takes this shape"))?;
            return Ok(());
        }
        let whole = candidates.len() * self.protocol.turns.max(1) * self.protocol.states.len();
        let done = Cell::new(0);
        for &state in &self.protocol.states {
            let monitor = self.monitor.as_ref();
            let turns = self.protocol.measure(&mut self.gpu, monitor, &candidates, state, &|| {
                done.set(done.get() + 1);
                step(done.get() * 1000 / whole.max(1));
            })?;
            let first = figures.len();
            figures.extend(
                candidates
                    .iter()
                    .zip(&turns)
                    .map(|(candidate, turns)| Figure::new(problem, state, candidate, turns)),
            );
            progress.aside(|| report::table(state, &figures[first..]))?;
        }
        Ok(())
    }

    /// Launches of our kernels, one per set of matrices; and the named kernels that cannot compute the
    /// problem, with the reason.
    fn prepared(&mut self, problem: GemmProblem, sets: &[Call<()>]) -> Result<(Launches, Refusals), Failure> {
        let (mut all, mut refused) = (Vec::new(), Vec::new());
        for Ours { entry, program, slots, workspace } in &mut self.ours {
            if !self.choice.includes(problem, entry.name()) {
                continue;
            }
            let needed = entry.workspace(&Call::of(problem), *slots);
            if workspace.is_none_or(|given| given.bytes < needed) {
                if let Some(small) = workspace.take() {
                    self.gpu.free(small.buffer())?;
                }
                *workspace = self.gpu.workspace(needed)?;
            }
            let launches: Result<Vec<Box<dyn Enqueue>>, Failure> = sets
                .iter()
                .map(|set| {
                    let call = Call { workspace: *workspace, ..set.with(LinearArguments::default()) };
                    let launch = entry.launch(&call, *slots)?;
                    let launch = launch.ok_or_else(|| Failure::usage("an empty product takes no time"))?;
                    let prepared = self.gpu.prepare(program, launch.grid, &launch.arguments)?;
                    Ok(Box::new(prepared) as Box<dyn Enqueue>)
                })
                .collect();
            match launches {
                Ok(launches) => all.push(Candidate {
                    name: entry.name().to_owned(),
                    launches,
                    operations: problem.operations(),
                    slots: Some(*slots),
                }),
                Err(_) if matches!(self.choice, Choice::All) => {}
                Err(Failure::Usage(reason)) if matches!(self.choice, Choice::Named { only: false }) => {
                    refused.push((entry.name().to_owned(), reason));
                }
                Err(error) => return Err(error),
            }
        }
        Ok((all, refused))
    }

    fn close(mut self) -> Result<(), Failure> {
        match self.ceiling {
            Some(ceiling) => ceiling.free(&mut self.gpu),
            None => Ok(()),
        }
    }
}
