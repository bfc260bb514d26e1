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

use collective::Formula;
use cute_rs::atom::Major;
use kernel::driver::Enqueue;
use kernel::driver::tune::{Candidate, Inputs};
use kernel::{
    AnyGemm, Call, Engine, GemmProblem, Gpu, LinearArguments, Program, Request, Types, WorkspaceRef,
};
use peers::Monitor;
use peers::cublaslt::CublasLt;

use ceiling::Ceiling;
use measure::{Protocol, State};
use peer::{candidates, fastest, peer, planned};
use report::{Figure, Record};
use sparse::Rivals;
use suites::Suite;

use crate::engine::{Progress, machine};
use crate::named;
use crate::options::{Given, Verb};
use crate::output::out;
use crate::types::TypeArgs;
use crate::{Command, Failure, catalogue, files, memory, types};

pub(crate) const COMMAND: Command = Command {
    verb: Verb::Bench,
    about: "Time our kernels on the GPU, and compare them with cuBLASLt and the multiply-only ceiling.

Kernels with a sparse operand are compared with cuSPARSELt and with our dense kernel. TFLOP/s count the operations of the dense \
GEMM. With --rows it measures what --suite grouped does; with --k-groups the four kernels with the shortest predicted times, or \
those of --kernel.",
    examples: "Examples:\n  falchion bench\n  falchion bench --shape 4096x14336x4096 --shape 1024x1024x1024\n  \
                        falchion bench --suite public --json public.json --csv public.csv\n  \
                        falchion bench --suite selection --all-kernels --json table.json\n  \
                        falchion bench --epilogue bias-gelu --shape 4096x4096x512\n  \
                        falchion bench --rows 300,0,17,512 --n 4096 --k 7168\n  \
                        falchion bench --k-groups 4096,4096,8192 --m 4096 --n 7168 --layout mn\n  \
                        falchion bench --sparse a",
    run: |given| BenchArgs::read(given).run(given),
};

/// The options that every kind of measurement takes.
#[derive(Debug)]
struct BenchArgs {
    json: Option<PathBuf>,
    csv: Option<PathBuf>,
    svg: Option<PathBuf>,
    layout: String,
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
    /// Per shape, the kernel that the model ranks first.
    First(Vec<Pick>),
}

/// What the model ranks first at a shape.
#[derive(Clone, Debug)]
struct Pick {
    shape: GemmProblem,
    /// The kernel's name.
    name: String,
    /// The name of the first of the kernels that sum in one order whatever the shape, if both are compared.
    reproducible: Option<String>,
}

impl Choice {
    fn includes(&self, shape: GemmProblem, name: &str) -> bool {
        match self {
            Self::Named { .. } | Self::All => true,
            Self::First(picks) => picks.iter().any(|pick| {
                pick.shape == shape && (pick.name == name || pick.reproducible.as_deref() == Some(name))
            }),
        }
    }
}

impl BenchArgs {
    fn read(given: &Given) -> Self {
        Self { json: given.get("json"), csv: None, svg: None, layout: "kk".to_owned() }
    }

    fn run(mut self, given: &Given) -> Result<(), Failure> {
        if given.flag("launch") {
            return self.launches(given);
        }
        self.csv = given.get("csv");
        let suite = given.get::<Suite>("suite");
        let grouped = given.has("rows") || suite == Some(Suite::Grouped);
        if grouped || !(given.has("k-groups") || given.has("epilogue")) {
            self.svg = given.get("svg");
        }
        self.writable()?;
        let protocol = protocol(given, suite == Some(Suite::Selection));
        if grouped {
            return self.grouped(given, protocol);
        }
        if given.has("k-groups") {
            return self.k_grouped(given, protocol);
        }
        let extents = ["m", "n", "k"].map(|name| given.value(name));
        let shapes = match (suite, given.list("shape")) {
            (Some(suite), _) => suite.shapes(),
            (None, shapes) if !shapes.is_empty() => shapes,
            (None, _) => vec![GemmProblem { m: extents[0], n: extents[1], k: extents[2] }],
        };
        shapes.iter().try_for_each(|&shape| arena::possible(shape))?;
        match given.get::<Formula>("epilogue") {
            Some(fusion) => self.fused(given, fusion, &shapes, protocol),
            None => self.plain(given, &shapes, protocol, suite == Some(Suite::Selection)),
        }
    }

    /// Fails unless the files can be written.
    fn writable(&self) -> Result<(), Failure> {
        [&self.json, &self.csv, &self.svg].into_iter().flatten().try_for_each(|path| files::writable(path))
    }

    /// The requested types, in the requested directions.
    fn types(&mut self, given: &Given) -> Result<Types, Failure> {
        let types = TypeArgs::read(given).types()?;
        self.layout = given.get("layout").unwrap_or_else(|| "kk".to_owned());
        catalogue::multiplied_as_they_lie(types, &self.layout)?;
        types::sparse_as_it_lies(types, &self.layout, false)?;
        Ok(types)
    }

    /// Times the host's cost of launches.
    fn launches(&mut self, given: &Given) -> Result<(), Failure> {
        let types = self.types(given)?;
        given.finish("--launch")?;
        self.writable()?;
        if types.has_sparse() {
            return Err(Failure::usage("--launch times dense products: leave out --sparse"));
        }
        let kernel = launch::small(types, &self.layout)?;
        let mut gpu = Gpu::new(0)?;
        writeln!(out(), "{}", gpu.describe())?;
        let mut record = self.record(&gpu, None, Types::of_kernel(&kernel))?;
        record.launches = launch::measure(&mut gpu, kernel)?;
        self.write(&record)
    }

    /// Times kernels without a fused epilogue. This suite is for the selection if `alone`, which chooses among our
    /// kernels: nothing else is timed.
    fn plain(
        &mut self,
        given: &Given,
        shapes: &[GemmProblem],
        protocol: Protocol,
        alone: bool,
    ) -> Result<(), Failure> {
        let named = named(given)?;
        let types = match named.first() {
            Some(first) => Types::of_kernel(first),
            None => self.types(given)?,
        };
        let (kernels, choice) = if !named.is_empty() {
            (named, Choice::Named { only: shapes.len() == 1 })
        } else if given.flag("all-kernels") {
            (catalogue::of(types, &self.layout), Choice::All)
        } else {
            self.first(types, shapes, given.flag("reproducible"))?
        };
        given.finish(if given.has("kernel") { "--kernel" } else { "such a measurement" })?;
        let mut gpu = Gpu::new(0)?;
        writeln!(out(), "{}", gpu.describe())?;
        let ours = kernels.into_iter().map(|entry| {
            let program = entry.program()?;
            let slots = gpu.slots(&program)?;
            Ok(Ours { entry, program, slots, workspace: None })
        });
        let ours = ours.collect::<Result<Vec<_>, Failure>>()?;
        let majors = ours.first().map_or([Major::K; 2], |ours| ours.entry.plan().majors());
        let peer = if alone || types.has_sparse() { None } else { peer(&gpu)? };
        let rivals = if alone { None } else { Rivals::new(&gpu, types)? };
        let ceiling = if alone { None } else { Some(Ceiling::new(&mut gpu, types)?) };
        let mut record = self.record(&gpu, peer.as_ref(), types)?;
        record.cusparselt = rivals.as_ref().and_then(Rivals::version);
        if let Some(first) = ours.first() {
            record.layout = catalogue::layout(&first.entry);
        }
        let monitor = if protocol.states.contains(&State::Sustained) { monitor(&gpu)? } else { None };
        let mut bench = Bench { gpu, peer, rivals, monitor, types, ceiling, ours, protocol, majors, choice };
        let outcome = bench.all(shapes, &mut record.figures);
        if outcome.is_err() && !record.figures.is_empty() {
            self.write(&record)?; // keep the measurements so far
        }
        outcome?;
        for &state in &bench.protocol.states {
            report::print_means(&record.figures, state)?;
            if let Choice::First(picks) = &bench.choice {
                report::print_price(&record.figures, picks, state)?;
            }
        }
        self.write(&record)?;
        bench.close()
    }

    /// Times MoE layers.
    fn grouped(&mut self, given: &Given, protocol: Protocol) -> Result<(), Failure> {
        let names = kernel_names(given)?;
        let types = match names.first() {
            Some(name) => Types::of_kernel(&catalogue::find(name)?),
            None => TypeArgs::read(given).types()?,
        };
        if types.has_sparse() {
            return Err(Failure::usage(
                "products of several experts are timed dense here: leave out --sparse, or take `falchion tune --rows … --sparse b`",
            ));
        }
        let layers = match given.list::<u32>("rows") {
            rows if rows.is_empty() => grouped::layers(),
            rows => vec![grouped::Layer::new(&rows, given.value("n"), given.value("k"), types.b.bytes())?],
        };
        let flag = if given.has("rows") { "--rows" } else { "--suite grouped" };
        given.finish(&format!("{flag}, which times experts plain and K-major, by all kernels for them unless --kernel names some"))?;
        let kernels = grouped::kernels(&names, types)?;
        if kernels.is_empty() {
            layers.iter().try_for_each(|layer| layer.ranked(types).map(|_| ()))?;
        }
        let mut gpu = Gpu::new(0)?;
        writeln!(out(), "{}", gpu.describe())?;
        let peer = peer(&gpu)?;
        let mut record = self.record(&gpu, peer.as_ref(), types)?;
        let timed = grouped::Timed { peer: peer.as_ref(), kernels, types, protocol };
        record.figures = timed.layers(&mut gpu, &layers)?;
        self.write(&record)
    }

    /// Times groups along K.
    fn k_grouped(&mut self, given: &Given, protocol: Protocol) -> Result<(), Failure> {
        let lengths = given.list::<u32>("k-groups");
        let named = named(given)?;
        let types = match named.first() {
            Some(first) => {
                self.layout = catalogue::layout(first);
                Types::of_kernel(first)
            }
            None => self.types(given)?,
        };
        if types.has_sparse() || types.has_weights() {
            return Err(Failure::usage(
                "groups along K are of dense operands, with or without block scales: leave out --sparse, and the weights in few bits of --dtype or --dtype-b",
            ));
        }
        let extents = (&lengths[..], given.value("m"), given.value("n"));
        given.finish("--k-groups")?;
        let groups = k_grouped::Groups::new(types, catalogue::majors(&self.layout), extents)?;
        let kernels = groups.kernels(named)?;
        let mut gpu = Gpu::new(0)?;
        writeln!(out(), "{}", gpu.describe())?;
        let peer = peer(&gpu)?;
        let record = self.record(&gpu, peer.as_ref(), types)?;
        let figures = k_grouped::measure(&mut gpu, peer.as_ref(), &groups, &kernels, &protocol)?;
        self.write(&Record { figures, ..record })
    }

    /// Times kernels with a fused epilogue.
    fn fused(
        &mut self,
        given: &Given,
        fusion: Formula,
        shapes: &[GemmProblem],
        protocol: Protocol,
    ) -> Result<(), Failure> {
        let types = TypeArgs::read(given).types()?;
        let all = given.flag("all-kernels");
        given.finish("--epilogue, which is timed with K-major operands")?;
        shapes.iter().try_for_each(|&shape| memory::drawn(shape))?;
        epilogue::can_be_timed(fusion, types)?;
        let mut gpu = Gpu::new(0)?;
        writeln!(out(), "{}", gpu.describe())?;
        let peer = peer(&gpu)?;
        let mut record = self.record(&gpu, peer.as_ref(), types)?;
        let mut bench = epilogue::Bench::new(&mut gpu, peer, protocol, (fusion, all), types)?;
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

    /// Per shape, the kernel that the model ranks first; if `reproducible` is set, also the first of those that sum in one order.
    fn first(
        &self,
        types: Types,
        shapes: &[GemmProblem],
        reproducible: bool,
    ) -> Result<(Vec<AnyGemm>, Choice), Failure> {
        let name = |request: &Request<'_>| -> Result<String, Failure> {
            Ok(catalogue::first(&kernel::select(request, machine()), request)?.gemm.name().to_owned())
        };
        let first = |&shape: &GemmProblem| {
            let request = Request::packed(types, catalogue::majors(&self.layout), shape);
            let same = reproducible.then(|| name(&request.reproducible())).transpose()?;
            Ok(Pick { shape, name: name(&request)?, reproducible: same })
        };
        let picks = shapes.iter().map(first).collect::<Result<Vec<_>, Failure>>()?;
        let mut names: Vec<&String> =
            picks.iter().flat_map(|pick| pick.reproducible.iter().chain([&pick.name])).collect();
        names.sort_unstable();
        names.dedup();
        let kernels = names.into_iter().map(|name| timed(name)).collect::<Result<Vec<_>, Failure>>()?;
        Ok((kernels, Choice::First(picks)))
    }

    fn write(&self, record: &Record) -> Result<(), Failure> {
        if let Some(path) = &self.json {
            files::write_text(path, &record.json()?)?;
        }
        if let Some(path) = &self.csv {
            files::write_text(path, &record.csv())?;
        }
        if let Some(path) = &self.svg {
            files::write_text(path, &plot::svg(record))?;
        }
        Ok(())
    }
}

/// How candidates are timed.
fn protocol(given: &Given, alone: bool) -> Protocol {
    let mut states = vec![State::Burst];
    // The selection is timed in the burst state alone.
    if !alone && !given.flag("burst-only") {
        states.push(State::Sustained);
    }
    let (turns, rest, burst) = if alone { (3, 30, 0.004) } else { (7, 120, 0.010) };
    let rest = Duration::from_millis(rest);
    let turns = given.get::<u32>("turns").map_or(turns, |turns| turns as usize);
    Protocol { states, turns, rest, burst, near: None }
}

/// The texts of --kernel.
fn kernel_names(given: &Given) -> Result<Vec<String>, Failure> {
    given.list::<String>("kernel").iter().map(|words| named::text(words)).collect()
}

/// The kernels of --kernel, which all take matrices of the same types and directions.
fn named(given: &Given) -> Result<Vec<AnyGemm>, Failure> {
    let named = kernel_names(given)?.iter().map(|name| timed(name)).collect::<Result<Vec<_>, Failure>>()?;
    let what = |entry: &AnyGemm| (Types::of_kernel(entry), catalogue::layout(entry));
    let Some(first) = named.first().map(what) else { return Ok(named) };
    match named.iter().find(|entry| what(entry) != first) {
        None => Ok(named),
        Some(other) => {
            let (types, layout) = what(other);
            Err(Failure::usage(format!(
                "kernel {} is for {types} in directions {layout}, and the first is for {} in directions {}: all must be \
                 for the same matrices",
                other.name(),
                first.0,
                first.1
            )))
        }
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
