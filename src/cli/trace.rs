//! `falchion trace`: records what a kernel does in the emulator, as a timeline.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::explore::run::by_statement;
use crate::verify::family;
use clap::ValueEnum;
use emulator::{Event, Schedule, SharedAccess, Trace};
use kernel::{AnyGemm, Call, GemmProblem, LinearArguments};

use crate::cli::call::Launched;
use crate::cli::engine::{machine, patiently};
use crate::cli::options::{Given, Verb};
use crate::cli::output::out;
use crate::cli::{Command, Failure, catalogue, files, memory, named};

pub(crate) const COMMAND: Command = Command {
    verb: Verb::TRACE,
    about: "Run a kernel in the emulator and record what each warp and each asynchronous unit did.

Without --kernel it is the first that `falchion plan` ranks, as for `falchion gemm`. Open the file of -o in https://ui.perfetto.dev. Times are steps of the emulator, not seconds: the timeline shows which warp waits \
for which, and what overlaps. Shared-memory bank conflicts are printed per instruction.",
    examples: "Examples:\n  falchion trace --m 512 --n 512 --k 256 --svg trace.svg\n  falchion trace --kernel 128x256-direct-bf16-kk --m 256 --n 256 --k 512 -o trace.json --svg trace.svg",
    run: trace,
};

/// The emulator's schedules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Pace {
    /// All warps run at the same pace; asynchronous work takes a nominal number of steps.
    #[default]
    Paced,
    /// Warps run in round-robin order; asynchronous work completes only when no warp can continue.
    Default,
    /// As `default`, with the warps in reverse order.
    Latest,
    /// Random order, from --seed.
    Random,
}

impl Pace {
    fn schedule(self) -> Schedule {
        match self {
            Self::Paced => Schedule::Paced,
            Self::Default => Schedule::Default,
            Self::Latest => Schedule::Latest,
            Self::Random => Schedule::Random,
        }
    }
}

/// One GEMM on random matrices in the emulator, to be recorded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    pub(crate) problem: GemmProblem,
    /// Factor of C.
    pub(crate) beta: f64,
    /// Number of clusters that run at the same time.
    pub(crate) clusters: u32,
    pub(crate) schedule: Schedule,
    /// Seed of the random schedule.
    pub(crate) seed: u64,
}

impl Default for Run {
    fn default() -> Self {
        let problem = GemmProblem { m: 0, n: 0, k: 0 };
        Self { problem, beta: 0.0, clusters: 1, schedule: Schedule::Paced, seed: 0 }
    }
}

impl Run {
    /// What the kernel did, and how the run ended. A run that ends in a trap has a trace too.
    pub(crate) fn traced(&self, entry: &AnyGemm) -> Result<(Trace, Result<(), Failure>), Failure> {
        self.possible(entry)?;
        let how = (self.clusters, self.schedule, self.seed);
        let traced = patiently("tracing", || family::trace(entry, (&self.call(entry), &[]), how));
        let Some((trace, outcome)) = traced.map_err(Failure::environment)? else {
            refuse!("--m or --n is 0, at least 1 was needed");
        };
        Ok((trace, outcome.map_err(|failure| Failure::environment(format!("{failure}")))))
    }

    /// Fails if the GEMM or its trace is too large. Checked before anything is allocated.
    fn possible(&self, entry: &AnyGemm) -> Result<(), Failure> {
        let Self { problem, clusters, .. } = *self;
        let GemmProblem { m, n, k } = problem;
        for (name, extent) in [("--m", m), ("--n", n)] {
            if extent == 0 {
                refuse!("{name} is 0, at least 1 was needed");
            }
        }
        let what = format!("--m {m}, --n {n}, --k {k}");
        memory::traced(&what, entry, &self.call(entry), (clusters, "--m, --n or --k"))
    }

    /// The call, without memory.
    fn call(&self, entry: &AnyGemm) -> Call {
        let call = Call { workspace: None, ..catalogue::legal(entry, self.problem) };
        let c = (self.beta != 0.0).then_some(call.d);
        call.with(LinearArguments { beta: self.beta, c, ..LinearArguments::default() })
    }
}

/// The files that a trace is written to.
pub(crate) struct Kept([Option<PathBuf>; 2]);

impl Kept {
    /// Takes the options.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub(crate) fn read(given: &Given) -> Result<Self, Failure> {
        let kept = Self(["out", "svg"].map(|name| given.get(name)));
        kept.0.iter().flatten().try_for_each(|path| files::writable(path))?;
        Ok(kept)
    }

    /// Prints a trace, and writes the files.
    pub(crate) fn keep(&self, trace: &Trace) -> Result<(), Failure> {
        show(trace)?;
        let texts = [Trace::chrome_json, Trace::svg];
        self.0.iter().zip(texts).try_for_each(|(path, text)| match path {
            Some(path) => write(path, &text(trace)),
            None => Ok(()),
        })
    }
}

/// The schedule of the options, and its seed.
pub(crate) fn schedule(given: &Given) -> (Schedule, u64) {
    let schedule = given.value::<Pace>("schedule").schedule();
    // The other schedules are not random.
    (schedule, if schedule == Schedule::Random { given.value("seed") } else { 0 })
}

fn trace(given: &Given) -> Result<(), Failure> {
    let kept = Kept::read(given)?;
    let instead = |plain: &str, _: &str| {
        format!("a trace has no arguments for it; trace {plain}, the same kernel without it")
    };
    let named = named::plain(given, instead)?;
    named.iter().try_for_each(catalogue::one_product)?;
    let [m, n, k] = ["m", "n", "k"].map(|name| given.value(name));
    let problem = GemmProblem { m, n, k };
    let is_chosen = named.is_none();
    let entry = match named {
        Some(entry) => entry,
        None => catalogue::chosen(given, &Launched::shape(problem, None), None, machine())?,
    };
    let (schedule, seed) = self::schedule(given);
    let (beta, clusters) = (given.value("beta"), given.value("clusters"));
    given.unused("seed", "a schedule that is not random");
    given.finish("--kernel")?;
    let run = Run { problem, beta, clusters, schedule, seed };
    let (trace, outcome) = run.traced(&entry)?;
    if is_chosen {
        writeln!(out(), "chosen    {}", entry.name())?;
    }
    kept.keep(&trace)?;
    // A trace that ends in a trap is written too: it is the most useful kind.
    outcome
}

fn show(trace: &Trace) -> io::Result<()> {
    writeln!(out(), "kernel    {}", trace.kernel)?;
    writeln!(
        out(),
        "events    {} in {} steps of the emulator (not a time)",
        trace.events.len(),
        trace.steps()
    )?;
    for (words, share) in waits(&trace.events) {
        writeln!(out(), "waits     {:>5.1} % of the warps' steps: {words}", share * 100.0)?;
    }
    if trace.shared.is_empty() {
        writeln!(out(), "banks     no warp reads or writes shared memory by its own loads and stores")?;
    }
    for (access, instructions) in by_statement(&trace.shared) {
        writeln!(out(), "banks     {}", conflicts(&access, instructions))?;
    }
    Ok(())
}

/// The fraction of all warps' steps that each kind of wait takes, largest first.
fn waits(events: &[Event]) -> Vec<(&'static str, f64)> {
    let mut all = 0u64;
    let mut sums: Vec<(&'static str, u64)> = Vec::new();
    for event in events.iter().filter(|event| matches!(event.track, emulator::Track::Warp(_))) {
        let steps = event.end - event.start;
        all += steps;
        if matches!(event.activity, emulator::Activity::Wait(_)) {
            match sums.iter_mut().find(|(label, _)| *label == event.label()) {
                Some((_, sum)) => *sum += steps,
                None => sums.push((event.label(), steps)),
            }
        }
    }
    sums.sort_by_key(|(_, sum)| core::cmp::Reverse(*sum));
    sums.into_iter().map(|(label, sum)| (label, sum as f64 / all.max(1) as f64)).collect()
}

/// The printed line of one statement.
fn conflicts(access: &SharedAccess, instructions: u64) -> String {
    let SharedAccess { instruction, executed, wavefronts, ideal, scopes, site } = access;
    let factor = *wavefronts as f64 / (*ideal).max(1) as f64;
    let place = site.as_ref().map_or(String::new(), |site| format!(" ({site})"));
    let scopes = scopes.join(" / ");
    format!(
        "{factor:.2} x the wavefronts without conflicts ({wavefronts} of {ideal}): {instructions} {instruction} in \
         {scopes}{place}, {executed} executed"
    )
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    files::write_text(path, text)?;
    Ok(writeln!(out(), "written   {}", path.display())?)
}
