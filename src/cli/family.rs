//! `--family`: plan, emit, verify, trace, explore, bench and tune for kernels of any family.

use core::fmt;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::OnceLock;

use crate::attention::Attention;
use crate::attention::backward::AttentionBackward;
use crate::rows::Rows;
use crate::verify::family::{self, Agreed, Checks, FamilyError};
use emulator::Schedule;
use kernel::operands::Contents;
use kernel::{AnyGemm, Engine, EngineError, Family, Machine, Predicted};

use crate::cli::engine::{Engines, Found, machine, patiently};
use crate::cli::options::{Given, Verb};
use crate::cli::output::{is_stdout, out};
use crate::cli::verify::Count;
use crate::cli::{Failure, bench, catalogue, explore, files, memory, trace};

/// A family of kernels for the command line.
#[derive(Clone, Copy)]
pub struct AnyFamily {
    name: &'static str,
    commands: fn(Verb) -> Option<Run>,
}

impl fmt::Debug for AnyFamily {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AnyFamily").field(&self.name).finish()
    }
}

impl AnyFamily {
    /// A family with all commands.
    pub const fn of<K: Family>() -> Self {
        Self { name: K::NAME, commands: of::<K> }
    }
}

/// The library's own families. GEMM is the first; without `--family` its commands have options of their own.
const OWN: [AnyFamily; 4] = [
    AnyFamily::of::<AnyGemm>(),
    AnyFamily::of::<Attention>(),
    AnyFamily::of::<AttentionBackward>(),
    AnyFamily::of::<Rows>(),
];

/// The families of others.
static OTHERS: OnceLock<Vec<AnyFamily>> = OnceLock::new();

/// Adds families of others, once.
pub(crate) fn register(families: &[AnyFamily]) {
    OTHERS.get_or_init(|| families.to_vec());
}

fn all() -> impl Iterator<Item = &'static AnyFamily> {
    OWN.iter().chain(OTHERS.get().into_iter().flatten())
}

/// The names of the families.
pub(crate) fn names() -> Vec<&'static str> {
    all().map(|of| of.name).collect()
}

/// A command.
type Run = fn(&Given) -> Result<(), Failure>;

/// The command for the family that was given; `None` if none was, for GEMMs by options.
pub(crate) fn command(given: &Given, verb: Verb) -> Option<Run> {
    let name = given.get::<String>("family")?;
    (all().find(|of| of.name == name)?.commands)(verb)
}

/// The commands of a family.
fn of<K: Family>(verb: Verb) -> Option<Run> {
    match verb {
        Verb::PLAN => Some(plan::<K>),
        Verb::EMIT => Some(emit::<K>),
        Verb::VERIFY => Some(verify::<K>),
        Verb::TRACE => Some(traced::<K>),
        Verb::BENCH => Some(bench::family::<K>),
        Verb::TUNE => Some(bench::tune::family::<K>),
        Verb::EXPLORE => Some(explore::family::<K>),
        _ => None,
    }
}

/// A problem: its text and its request.
pub(crate) type Problem<K> = (String, <K as Family>::Request<'static>);

/// The problems of `--problem`, at least one.
pub(crate) fn problems<K: Family>(given: &Given) -> Result<Vec<Problem<K>>, Failure> {
    let texts: Vec<String> = given.list("problem");
    if texts.is_empty() {
        refuse!("--family {} needs --problem", K::NAME);
    }
    let read = |text: String| {
        let request = K::request(&text).map_err(|error| usage!("--problem {text}: {error}"));
        request.map(|request| (K::problem(&request).to_string(), request))
    };
    texts.into_iter().map(read).collect()
}

/// The kernels of `--kernel`.
pub(crate) fn kernels<K: Family>(texts: &[String]) -> Result<Vec<K>, Failure> {
    let read = |text: &String| {
        let spec = text.parse::<K::Spec>().map_err(|error| error.to_string());
        let kernel = spec.and_then(|spec| K::of_spec(&spec));
        kernel.map_err(|error| usage!("--kernel {text}: {error}"))
    };
    texts.iter().map(read).collect()
}

/// The kernels that are ranked first for a request.
pub(crate) fn ranked<K: Family>(
    request: &K::Request<'_>,
    machine: &Machine,
    most: usize,
) -> Result<Vec<Predicted<K>>, Failure> {
    let about = |error| usage!("--problem {}: {error}", K::problem(request));
    K::ranked(request, machine, most).map_err(about)
}

/// What a kernel is called.
pub(crate) fn name<K: Family>(kernel: &K) -> String {
    let spec = kernel.spec().map(|spec| spec.to_string());
    spec.filter(|spec| !spec.is_empty()).unwrap_or_else(|| "the default".to_owned())
}

/// The kernel of `--kernel`.
fn kernel<K: Family>(given: &Given) -> Result<Option<K>, Failure> {
    let text = given.get::<String>("kernel").into_iter().collect::<Vec<_>>();
    Ok(kernels(&text)?.pop())
}

fn needed<K: Family>(given: &Given) -> Result<K, Failure> {
    kernel(given)?.ok_or_else(|| usage!("--kernel was needed: the words of a spec"))
}

/// Number of kernels that a ranking shows.
const SHOWN: usize = 12;

fn plan<K: Family>(given: &Given) -> Result<(), Failure> {
    let (kernel, card): (Option<K>, String) = (kernel(given)?, given.value("card"));
    if let Some(kernel) = kernel {
        given.finish("--kernel")?;
        return explain(&kernel);
    }
    let machine = catalogue::machine(&card);
    let problems = problems::<K>(given)?;
    given.finish(&format!("--family {}", K::NAME))?;
    for (problem, request) in problems {
        let ranked = ranked::<K>(&request, &machine, SHOWN)?;
        writeln!(out(), "{problem}, predicted for {}\n", card.to_uppercase())?;
        writeln!(out(), "{:>10} {:>8}  kernel", "us", "TFLOP/s")?;
        let operations = K::operations(&request);
        for (i, Predicted { kernel, microseconds, reason }) in ranked.into_iter().enumerate() {
            let rate = operations / microseconds / 1e6;
            writeln!(out(), "{microseconds:10.1} {rate:8.0}  {}", name(&kernel))?;
            if i == 0 && !reason.is_empty() {
                writeln!(out(), "{:21}{reason}", "")?;
            }
        }
    }
    Ok(())
}

fn explain<K: Family>(kernel: &K) -> Result<(), Failure> {
    let program = kernel.program()?;
    let function = program.function();
    let [x, y, z] = function.cluster;
    let own = [
        ("cluster", format!("{x}x{y}x{z}"), "CTAs"),
        ("threads", function.threads().to_string(), "per CTA"),
        ("shared bytes", function.shared_bytes.to_string(), "of the 232448 that a CTA can have"),
    ];
    writeln!(out(), "{} ({})", name(kernel), program.name())?;
    let own = own.map(|(what, value, why)| [what.to_owned(), value, why.to_owned()]);
    for [what, value, why] in own.into_iter().chain(kernel.numbers()) {
        writeln!(out(), "{what:24} {value:>12}  {why}")?;
    }
    Ok(())
}

fn emit<K: Family>(given: &Given) -> Result<(), Failure> {
    catalogue::printed(given, &needed::<K>(given)?.program()?)
}

/// Number of kernels that are checked if none is given.
const CHECKED: usize = 4;

fn verify<K: Family>(given: &Given) -> Result<(), Failure> {
    let (engines, seed, rows): (Engines, u64, u32) =
        (given.value("engine"), given.value("seed"), given.value("compare"));
    let (own, problems) = (kernel::<K>(given)?, problems::<K>(given)?);
    given.finish(&format!("--family {}", K::NAME))?;
    let mut count = Count::default();
    for Found { name: at, engine, .. } in engines.open()? {
        let mut engine = match engine {
            Ok(engine) => engine,
            Err(error) => {
                writeln!(out(), "skip {} problems on a GPU: {error}", problems.len())?;
                count.skipped += problems.len();
                continue;
            }
        };
        for (problem, request) in &problems {
            let kernels = match &own {
                Some(kernel) => vec![kernel.clone()],
                None => ranked::<K>(request, machine(), CHECKED)?.into_iter().map(|of| of.kernel).collect(),
            };
            let wrong = check((at, &mut *engine), (problem, request), &kernels, (seed, rows as usize))?;
            count.passed += kernels.len() - wrong;
            count.failed += wrong;
        }
    }
    count.close(&mut out())
}

/// Checks kernels on the same random inputs, and prints what was found. Returns how many are wrong.
///
/// # Errors
/// One cannot compute the problem; the engine failed.
pub(crate) fn check<K: Family>(
    (at, engine): (&str, &mut dyn Engine),
    (problem, request): (&str, &K::Request<'_>),
    kernels: &[K],
    sample: (u64, usize),
) -> Result<usize, Failure> {
    let Some(first) = kernels.first() else { return Ok(0) };
    let begun = Checks::new(engine, first, request, sample);
    let checks = begun.map_err(|error| refused((problem, at), first, &error))?;
    let mut wrong = 0;
    for kernel in kernels {
        let right = judged((problem, at), kernel, checks.check(engine, kernel, request))?;
        wrong += usize::from(!right);
    }
    checks.free(engine).map_err(Failure::environment)?;
    Ok(wrong)
}

/// A kernel that was not checked.
fn refused<K: Family>((problem, at): (&str, &str), kernel: &K, error: &FamilyError) -> Failure {
    use FamilyError::{Call, Engine, Other, Unexpected};
    let too_much =
        |error: &EngineError| matches!(error, EngineError::Memory { .. } | EngineError::Work { .. });
    let asked =
        matches!(error, Call(_) | Other(_) | Unexpected(_)) || matches!(error, Engine(of) if too_much(of));
    match asked {
        true => usage!("{problem}: {} on {at}: {error}", name(kernel)),
        false => Failure::environment(error),
    }
}

/// Prints what was found of a kernel. Returns whether it is right.
///
/// # Errors
/// It cannot compute the problem; the engine failed.
pub(crate) fn judged<K: Family>(
    (problem, at): (&str, &str),
    kernel: &K,
    found: Result<Agreed, FamilyError>,
) -> Result<bool, Failure> {
    use FamilyError::{Call, Engine, Other, Program, Unexpected};
    let what = format!("{problem}: {} on {at}", name(kernel));
    match found {
        Ok(Agreed { compared, total, ratio, .. }) => {
            writeln!(out(), "ok   {what}: {compared} of {total} elements, {ratio:.2} of the bound")?;
            Ok(true)
        }
        Err(error @ (Engine(_) | Program(_) | Call(_) | Other(_) | Unexpected(_))) => {
            Err(refused((problem, at), kernel, &error))
        }
        Err(error) => {
            writeln!(out(), "FAIL {what}: {error}")?;
            Ok(false)
        }
    }
}

/// The problem and the kernel of a command that runs one in the emulator: those of `--problem` and `--kernel`, or the kernel
/// that is ranked first.
pub(crate) fn one<K: Family>(given: &Given, clusters: u32) -> Result<(Problem<K>, K), Failure> {
    let own: Option<K> = kernel(given)?;
    let mut problems = problems::<K>(given)?;
    let (Some((problem, request)), true) = (problems.pop(), problems.is_empty()) else {
        refuse!("one --problem is traced");
    };
    let kernel = match own {
        Some(kernel) => kernel,
        None => {
            let first = ranked::<K>(&request, machine(), 1)?.pop();
            first.ok_or_else(|| usage!("no kernel was ranked"))?.kernel
        }
    };
    kernel.serves(&request).map_err(|error| usage!("--kernel {}: {error}", name(&kernel)))?;
    let what = format!("--problem {problem}");
    memory::traced(&what, &kernel, &K::call(&request), (clusters, "its extents"))?;
    Ok(((problem, request), kernel))
}

/// A run in the emulator, and how it ended.
pub(crate) fn recorded<K: Family>(
    ((problem, request), kernel): (&Problem<K>, &K),
    how: (u32, Schedule, u64),
) -> Result<family::Traced, Failure> {
    let words = K::words(request, Contents::Table);
    let traced = patiently("tracing", || family::trace(kernel, (&K::call(request), &words), how));
    let traced = traced.map_err(Failure::environment)?;
    traced.ok_or_else(|| usage!("--problem {problem} has nothing to compute"))
}

fn traced<K: Family>(given: &Given) -> Result<(), Failure> {
    let kept = trace::Kept::read(given)?;
    let clusters = given.value("clusters");
    let ((problem, kernel), schedule) = (one::<K>(given, clusters)?, trace::schedule(given));
    given.finish(&format!("--family {}", K::NAME))?;
    let (trace, outcome) = recorded((&problem, &kernel), (clusters, schedule.0, schedule.1))?;
    kept.keep(&trace)?;
    outcome.map_err(Failure::environment)
}

/// A file of lines of JSON to append to, if one is given.
pub(crate) fn lines(path: Option<&PathBuf>) -> Result<Option<Box<dyn Write>>, Failure> {
    let Some(path) = path else { return Ok(None) };
    files::writable(path)?;
    if is_stdout(path) {
        return Ok(Some(Box::new(io::stdout())));
    }
    Ok(Some(Box::new(io::BufWriter::new(OpenOptions::new().create(true).append(true).open(path)?))))
}
