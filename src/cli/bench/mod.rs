//! `falchion bench`: times our kernels, cuBLASLt and the multiply-only ceiling, in one process and one power
//! state.
//!
//! *Burst* is about ten milliseconds after a rest. *Sustained* keeps the GPU busy for seconds, so that its
//! power limit decides. In both states the candidates alternate, and the median over their turns counts.
//! Inputs rotate over up to eight sets of matrices, which together do not fit in the L2 cache unless they are small.

mod arena;
mod ceiling;
pub(crate) mod chart;
pub(crate) mod compilers;
mod contest;
mod epilogue;
mod fused;
mod grouped;
mod job;
mod launch;
mod plot;
mod report;
mod sparse;
pub(crate) mod suites;
pub(crate) mod tune;

use std::cell::Cell;
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use collective::{Format, Formula};
use cute_rs::atom::Major;
use kernel::driver::tune::Inputs;
use kernel::{AnyGemm, Engine, Family, GemmProblem, Gpu, Request, Types};
use peers::Monitor;
use peers::cublaslt::CublasLt;

use crate::bench::{self, BenchError, PowerState, Protocol, Rated};
use ceiling::Ceiling;
use contest::{Contest, Peers, View, plain};
use job::Job;
use report::{Figure, Record};
use sparse::Rivals;
use suites::Suite;

use crate::cli::call::Launched;
use crate::cli::engine::{Progress, machine};
use crate::cli::named;
use crate::cli::options::{Given, Verb};
use crate::cli::output::out;
use crate::cli::types::TypeArgs;
use crate::cli::{Command, Failure, catalogue, family, files, memory, types};

pub(crate) const COMMAND: Command = Command {
    verb: Verb::BENCH,
    about: "Time our kernels on the GPU, and compare them with cuBLASLt and the multiply-only ceiling.

Kernels with a sparse operand are compared with cuSPARSELt and with our dense kernel. TFLOP/s count the operations of the dense \
GEMM. With --rows it measures what --suite grouped does; with --k-groups the four kernels with the shortest predicted times, or \
those of --kernel. With --family it times the four kernels with the shortest predicted times, or those of --kernel, at each --problem, after a check.",
    examples: "Examples:\n  falchion bench\n  falchion bench --shape 4096x14336x4096 --shape 1024x1024x1024\n  \
                        falchion bench --suite public --json public.json --csv public.csv\n  \
                        falchion bench --suite selection --all-kernels --json table.json\n  \
                        falchion bench --epilogue bias-gelu --shape 4096x4096x512\n  \
                        falchion bench --rows 300,0,17,512 --n 4096 --k 7168\n  \
                        falchion bench --k-groups 4096,4096,8192 --m 4096 --n 7168 --layout mn\n  \
                        falchion bench --sparse a\n  \
                        falchion bench --family attention --problem \"4x16x4096 mask=causal\"",
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

/// The setup that all shapes share.
struct Bench {
    gpu: Gpu,
    peers: Peers,
    monitor: Option<Monitor>,
    types: Types,
    ceiling: Option<Ceiling>,
    ours: Vec<AnyGemm>,
    protocol: Protocol,
    majors: [Major; 2],
    choice: Choice,
}

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
        let (types, layout) = types::laid(given, false)?;
        self.layout = layout;
        Ok(types)
    }

    /// Times the host's cost of launches.
    fn launches(&mut self, given: &Given) -> Result<(), Failure> {
        let types = self.types(given)?;
        given.finish("--launch")?;
        self.writable()?;
        if types.has_sparse() {
            refuse!("--launch times dense products: leave out --sparse");
        }
        let kernel = launch::small(types, &self.layout)?;
        let mut gpu = Gpu::new(0)?;
        writeln!(out(), "{}", gpu.describe())?;
        let mut record = self.record(&gpu, None, Types::of_plan(&kernel.plan()))?;
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
            Some(first) => Types::of_plan(&first.plan()),
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
        let majors = kernels.first().map_or([Major::K; 2], |first| first.plan().majors());
        let peers = if alone { Peers::default() } else { Peers::new(&gpu, types)? };
        let ceiling = if alone { None } else { Some(Ceiling::new(&mut gpu, types)?) };
        let mut record = self.record(&gpu, peers.cublaslt.as_ref(), types)?;
        record.cusparselt = peers.rivals.as_ref().and_then(Rivals::version);
        if let Some(first) = kernels.first() {
            record.layout = catalogue::layout(first);
        }
        let monitor = if protocol.states.contains(&PowerState::Sustained) { monitor(&gpu)? } else { None };
        let mut bench =
            Bench { gpu, peers, monitor, types, ceiling, ours: kernels, protocol, majors, choice };
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
            Some(name) => Types::of_plan(&catalogue::find(name)?.plan()),
            None => TypeArgs::read(given).types()?,
        };
        if types.has_sparse() {
            refuse!(
                "products of several experts are timed dense here: leave out --sparse, or take `falchion tune --rows … --sparse b`"
            );
        }
        let layers = if given.has("rows") {
            vec![Job::new(types, [Major::K; 2], (None, false), launched(given)?)?]
        } else {
            grouped::layers(types)?
        };
        let flag = if given.has("rows") { "--rows" } else { "--suite grouped" };
        given.finish(&format!("{flag}, which times experts plain and K-major, by all kernels for them unless --kernel names some"))?;
        let groups = layers.iter().map(|layer| layer.launched.groups.len()).max().unwrap_or(0);
        let kernels = grouped::kernels(&names, types, groups)?;
        self.layers(&layers, &kernels, types, &protocol)
    }

    /// Times several GEMMs per launch.
    fn layers(
        &self,
        layers: &[Job],
        kernels: &[AnyGemm],
        types: Types,
        protocol: &Protocol,
    ) -> Result<(), Failure> {
        // What no kernel can compute is refused before anything is measured.
        let none =
            layers.iter().filter(|_| kernels.is_empty()).try_for_each(|layer| layer.ranked().map(|_| ()));
        none?;
        let mut gpu = Gpu::new(0)?;
        writeln!(out(), "{}", gpu.describe())?;
        let peer = contest::cublaslt(&gpu)?;
        let mut record = self.record(&gpu, peer.as_ref(), types)?;
        for layer in layers {
            record.figures.extend(layer.measure(&mut gpu, peer.as_ref(), kernels, protocol)?);
        }
        self.write(&record)
    }

    /// Times groups along K.
    fn k_grouped(&mut self, given: &Given, protocol: Protocol) -> Result<(), Failure> {
        let named = named(given)?;
        let types = match named.first() {
            Some(first) => {
                self.layout = catalogue::layout(first);
                Types::of_plan(&first.plan())
            }
            None => self.types(given)?,
        };
        if types.has_sparse() || types.has_weights() {
            refuse!(
                "groups along K are of dense operands, with or without block scales: leave out --sparse, and the weights in few bits of --dtype or --dtype-b"
            );
        }
        let launched = launched(given)?;
        given.finish("--k-groups")?;
        let layer = Job::new(types, catalogue::majors(&self.layout), (None, false), launched)?;
        for kernel in &named {
            layer.launched.suits(kernel.name(), kernel.form())?;
            layer.launched.begin_at_tiles(kernel)?;
        }
        self.layers(&[layer], &named, types, &protocol)
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
        let peer = contest::cublaslt(&gpu)?;
        let mut record = self.record(&gpu, peer.as_ref(), types)?;
        writeln!(out(), "epilogue  D = {}", fusion.text())?;
        for &shape in shapes {
            let with = (fusion, types, all);
            record.figures.extend(epilogue::measure(&mut gpu, peer.as_ref(), &protocol, with, shape)?);
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

/// Number of kernels that are timed if none is given.
const TIMED: usize = 4;

/// Times kernels of a family at problems, after a check of what they compute.
pub(crate) fn family<K: Family>(given: &Given) -> Result<(), Failure> {
    let mut args = BenchArgs::read(given);
    args.layout.clear();
    args.writable()?;
    let own = family::kernels::<K>(&given.list("kernel"))?;
    let (problems, protocol) = (family::problems::<K>(given)?, protocol(given, false));
    given.finish(&format!("--family {}", K::NAME))?;
    let mut gpu = Gpu::new(0)?;
    writeln!(out(), "{}", gpu.describe())?;
    let monitor = if protocol.states.contains(&PowerState::Sustained) { monitor(&gpu)? } else { None };
    let mut record =
        Record { dtype: K::NAME.to_owned(), ..args.record(&gpu, None, Types::of(Format::Bf16))? };
    for (problem, request) in &problems {
        let ranked =
            if own.is_empty() { family::ranked::<K>(request, machine(), TIMED)? } else { Vec::new() };
        let kernels: Vec<K> = own.iter().cloned().chain(ranked.into_iter().map(|of| of.kernel)).collect();
        writeln!(out(), "\n{problem}")?;
        let rated = match bench::bench(&mut gpu, &kernels, request, &protocol, monitor.as_ref()) {
            Ok(rated) => rated,
            Err(BenchError::Kernel { kernel, source }) => {
                family::judged((problem, "gpu"), &kernel, Err(source))?;
                return Err(Failure::Wrong);
            }
            Err(BenchError::Empty) => refuse!("{}", BenchError::<K>::Empty),
            Err(BenchError::Engine(error)) => return Err(error.into()),
        };
        for Rated { kernel, agreed, .. } in &rated {
            family::judged((problem, "gpu"), kernel, Ok(*agreed))?;
        }
        let of = (&problem.clone().into(), K::operations(request));
        for (i, &state) in protocol.states.iter().enumerate() {
            let figure = |Rated { kernel, resident, rates, .. }: &Rated<K>| {
                Figure::new(of, state, (family::name(kernel), Some(*resident)), &rates[i].1)
            };
            let figures: Vec<_> = rated.iter().map(figure).collect();
            report::plain_table(state, &figures)?;
            record.figures.extend(figures);
        }
    }
    args.write(&record)
}

/// How candidates are timed.
fn protocol(given: &Given, alone: bool) -> Protocol {
    let mut states = vec![PowerState::Burst];
    // The selection is timed in the burst state alone.
    if !alone && !given.flag("burst-only") {
        states.push(PowerState::Sustained);
    }
    let (turns, rest, burst) = if alone { (3, 30, 0.004) } else { (7, 120, 0.010) };
    let rest = Duration::from_millis(rest);
    let turns = given.get::<u32>("turns").map_or(turns, |turns| turns as usize);
    Protocol { states, turns, rest, burst, near: None }
}

/// The GEMMs of the options, whose extents have defaults.
fn launched(given: &Given) -> Result<Launched, Failure> {
    Launched::read(given, |name| Err(usage!("--{name} was needed")))
}

/// The texts of --kernel.
fn kernel_names(given: &Given) -> Result<Vec<String>, Failure> {
    given.list::<String>("kernel").iter().map(|words| named::text(words)).collect()
}

/// The kernels of --kernel, which all take matrices of the same types and directions.
fn named(given: &Given) -> Result<Vec<AnyGemm>, Failure> {
    let named = kernel_names(given)?.iter().map(|name| timed(name)).collect::<Result<Vec<_>, Failure>>()?;
    let what = |entry: &AnyGemm| (Types::of_plan(&entry.plan()), catalogue::layout(entry));
    let Some(first) = named.first().map(what) else { return Ok(named) };
    match named.iter().find(|entry| what(entry) != first) {
        None => Ok(named),
        Some(other) => {
            let (types, layout) = what(other);
            Err(usage!(
                "kernel {} is for {types} in directions {layout}, and the first is for {} in directions {}: all must be \
                 for the same matrices",
                other.name(),
                first.0,
                first.1
            ))
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
        let Self { gpu, peers, monitor, types, ceiling, ours, protocol, majors, choice } = self;
        let request = Request::packed(*types, *majors, problem);
        let inputs = Inputs::new(gpu, &request)?;
        let planned;
        let mut contest = Contest::of(problem);
        ceiling.iter().for_each(|ceiling| contest.ceiling(ceiling));
        let (mut refused, calls) = (Vec::new(), plain(inputs.sets()));
        for kernel in ours.iter().filter(|kernel| choice.includes(problem, kernel.name())) {
            match (contest.kernel(gpu, kernel.name(), kernel, &calls), &*choice) {
                (Err(Failure::Usage(reason)), Choice::Named { only: false }) => {
                    refused.push((kernel.name().to_owned(), reason));
                }
                (Err(_), Choice::All) => {}
                (other, _) => other?,
            }
        }
        planned = peers.invite(gpu, &request, &inputs, &mut contest)?;
        planned.iter().try_for_each(|planned| planned.join(&mut contest))?;
        let GemmProblem { m, n, k } = problem;
        progress.aside(|| writeln!(out(), "\n{m} x {n} x {k} {}", types))?;
        for (name, reason) in refused {
            progress.aside(|| writeln!(out(), "           {name} is left out: {reason}"))?;
        }
        if contest.candidates.iter().any(|candidate| candidate.resident.is_some()) {
            let whole = contest.candidates.len() * protocol.turns.max(1) * protocol.states.len();
            let done = Cell::new(0);
            let step = || {
                done.set(done.get() + 1);
                step(done.get() * 1000 / whole.max(1));
            };
            let table = |state, figures: &[Figure]| progress.aside(|| report::table(state, figures));
            let view = View { monitor: monitor.as_ref(), step: &step, table: &table };
            figures.extend(contest.run(gpu, protocol, &view)?);
        } else {
            progress.aside(|| writeln!(out(), "           none of the kernels takes this shape"))?;
        }
        drop(contest);
        planned.map_or(Ok(()), |planned| planned.free(gpu))?;
        Ok(inputs.free(gpu)?)
    }

    fn close(mut self) -> Result<(), Failure> {
        match self.ceiling {
            Some(ceiling) => ceiling.free(&mut self.gpu),
            None => Ok(()),
        }
    }
}
