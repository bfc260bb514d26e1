//! `falchion verify`: runs the embedded case tables on the available engines.

mod fused;
mod instructions;

use std::io::{self, Write};
use std::path::PathBuf;

use crate::verify::tables::{Case, CaseVerdict, KernelCase, Repeated, tables};
use emulator::{Numerics, Schedule};

use crate::verify::random::{self, Place, Trial, trial_of};
use kernel::{AnyGemm, Emulator, Gpu};

use self::instructions::Files;
use crate::cli::engine::{Engines, Found, Progress};
use crate::cli::options::{Given, Verb};
use crate::cli::output::{out, shortened};
use crate::cli::{Command, Failure, catalogue, named};

pub(crate) const COMMAND: Command = Command {
    verb: Verb::VERIFY,
    about: "Run the embedded case tables. The last line is `N passed, N failed, N skipped`.

A case is one kernel at one problem, checked against an f64 reference. It is skipped if its engine is missing. In the emulator \
`quick` takes minutes, and `full` about ten times as long. With --kernel: random problems for one kernel. With --random-specs: \
random kernels.",
    examples: "Examples:\n  falchion verify\n  falchion verify --engine all --suite full\n  \
                        falchion verify --filter special-values\n  falchion verify --kernel \"tile=128x64x64\" --problems 5",
    run: verify,
};

/// The suites of cases.
pub(crate) const SUITES: [&str; 5] = ["quick", "full", "all", "fusions", "instructions"];

/// The options that every suite takes.
#[derive(Debug)]
struct VerifyArgs {
    engine: Engines,
    exact: bool,
    filter: String,
    schedules: Option<u64>,
    repeat: u32,
    seed: u64,
}

/// Number of problems for `--kernel` without `--problems`.
const PROBLEMS: u64 = 20;

/// Numbers of cases.
#[derive(Default)]
pub(crate) struct Count {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    pub(crate) skipped: usize,
}

fn verify(given: &Given) -> Result<(), Failure> {
    let (engine, seed) = (given.value("engine"), given.value("seed"));
    let mut args =
        VerifyArgs { engine, exact: false, filter: String::new(), schedules: None, repeat: 1, seed };
    let kernel = named::kernel(given)?.map(|name| catalogue::find(&name)).transpose()?;
    let random = given.get::<u64>("random-specs");
    if kernel.is_some() || random.is_some() {
        // The emulator is exact or not.
        args.exact = engine != Engines::Gpu && given.flag("exact");
        if engine == Engines::Gpu {
            given.unused("exact", "--engine gpu: only the emulator is exact or not");
        }
        let trials = match kernel {
            Some(_) => given.get("problems").unwrap_or(PROBLEMS),
            None => random.unwrap_or(0),
        };
        given.finish(if kernel.is_some() { "--kernel" } else { "--random-specs" })?;
        return args.random(kernel.as_ref(), trials, &mut out());
    }
    args.filter = given.get("filter").unwrap_or_default();
    let suite: String = given.value("suite");
    let with = format!("--suite {suite}");
    match suite.as_str() {
        "instructions" => {
            let [json, record, replay] = ["json", "record", "replay"].map(|name| given.get::<PathBuf>(name));
            given.finish(&with)?;
            args.instructions(&Files { json, record, replay })
        }
        "fusions" => {
            given.finish(&with)?;
            let (mut count, mut out) = (Count::default(), out());
            args.fusions(&mut count, &mut out)?;
            count.close(&mut out)
        }
        _ => {
            args.repeat = given.value("repeat");
            // Only the emulator has schedules, and is exact or not.
            if engine != Engines::Gpu {
                (args.exact, args.schedules) = (given.flag("exact"), given.get("schedules"));
                // Which a GPU, if one is here, has not.
                if engine == Engines::Auto && (args.exact || args.schedules.is_some()) {
                    args.engine = Engines::Emulator;
                }
            }
            given.finish(if engine == Engines::Gpu { "--engine gpu" } else { &with })?;
            args.tables(&suite)
        }
    }
}

impl VerifyArgs {
    /// Runs the case tables.
    fn tables(&self, suite: &str) -> Result<(), Failure> {
        let cases: Vec<Case> =
            tables()?.into_iter().filter(|case| suite == "all" || case.suite == suite).collect();
        let kernel_cases: Vec<_> = cases
            .iter()
            .flat_map(Case::kernel_cases)
            .filter(|kernel_case| {
                kernel_case.case.name.contains(&self.filter) || kernel_case.kernel.contains(&self.filter)
            })
            .collect();
        if kernel_cases.is_empty() {
            let filter = shortened(&self.filter);
            refuse!(
                "no case or kernel of --suite {suite} has `{filter}` in its name; --suite all has every case"
            );
        }
        let (mut count, mut out) = (Count::default(), out());
        let mut emulated: Vec<CaseVerdict> = Vec::new();
        for Found { name, engine, why } in self.engine.open()? {
            let mut engine = match engine {
                Ok(engine) => engine,
                Err(error) => {
                    writeln!(out, "skip {} cases on a GPU: {error}", kernel_cases.len())?;
                    count.skipped += kernel_cases.len();
                    continue;
                }
            };
            writeln!(out, "engine: {} ({why})", engine.describe())?;
            if name == "emulator" {
                emulated = Progress::new("verifying").each(
                    &kernel_cases,
                    (0, kernel_cases.len() as u64),
                    |kernel_case| self.emulate(kernel_case),
                );
                for (kernel_case, verdict) in kernel_cases.iter().zip(&emulated) {
                    count.line(&mut out, name, kernel_case, verdict)?;
                }
                continue;
            }
            for (i, kernel_case) in kernel_cases.iter().enumerate() {
                let mut verdict = kernel_case.run_times(&mut *engine, self.repeated());
                let other = emulated.get(i).is_some_and(|emulated| emulated.digest != verdict.digest);
                if self.exact && other && verdict.failure.is_none() {
                    verdict.failure = Some("other bits than the emulator's".to_owned());
                }
                count.line(&mut out, name, kernel_case, &verdict)?;
            }
        }
        count.close(&mut out)
    }
}

/// The combined result of a trial in the emulator and on a GPU.
fn both(emulated: Option<Trial>, there: Trial, exact: bool) -> Trial {
    let bits = |trial: &Trial| if let Trial::Right { digest, .. } = trial { *digest } else { None };
    let digests = [emulated.as_ref().and_then(bits), bits(&there)];
    match (digests, there) {
        ([Some(here), Some(device)], _) if exact && here != device => {
            Trial::Wrong("on the GPU: other bits than the emulator's".to_owned())
        }
        (_, Trial::Wrong(words)) => Trial::Wrong(format!("on the GPU: {words}")),
        (_, there) => there,
    }
}

impl VerifyArgs {
    /// Random problems for one kernel, or random specs.
    fn random(&self, kernel: Option<&AnyGemm>, trials: u64, out: &mut impl Write) -> Result<(), Failure> {
        let one = kernel.and_then(AnyGemm::spec);
        let (mut count, mut right, mut refused) = (Count::default(), 0, 0);
        let first = self.seed.wrapping_mul(1 << 32);
        let spec_of = |seed| one.unwrap_or_else(|| random::spec(seed));
        let emulate = self.engine != Engines::Gpu;
        let mut gpu = match self.engine {
            Engines::Gpu => Some(Gpu::new(0)?),
            Engines::All => match Gpu::new(0) {
                Ok(gpu) => Some(gpu),
                Err(error) => {
                    writeln!(out, "skip {trials} trials on a GPU: {error}")?;
                    count.skipped += usize::try_from(trials).unwrap_or(usize::MAX);
                    None
                }
            },
            Engines::Auto | Engines::Emulator => None,
        };
        // In parts, so that failures are printed while the search continues.
        const PART: u64 = 1000;
        let progress = Progress::new("verifying");
        for begin in (0..trials).step_by(PART as usize) {
            let seeds: Vec<u64> = (begin..trials.min(begin + PART)).map(|i| first.wrapping_add(i)).collect();
            let in_emulator = || if self.exact { Place::Exact } else { Place::Emulator };
            let mut ended = progress.each(&seeds, (begin, trials), |&seed| {
                let spec = spec_of(seed);
                (seed, spec, emulate.then(|| trial_of(&spec, seed, in_emulator())))
            });
            if let Some(gpu) = &mut gpu {
                for (seed, spec, ended) in &mut ended {
                    // A launch that is refused on one engine is refused on the other.
                    if matches!(ended, None | Some(Trial::Right { .. })) {
                        let there = trial_of(spec, *seed, Place::On(gpu));
                        *ended = Some(both(ended.take(), there, self.exact));
                    }
                }
            }
            for (seed, spec, trial) in ended {
                let Some(trial) = trial else { continue };
                match trial {
                    Trial::Right { .. } => right += 1,
                    Trial::Refused(_) => refused += 1,
                    Trial::Unfit(words) => {
                        count.skipped += 1;
                        writeln!(out, "skip {spec}: {words} (seed {seed})")?;
                    }
                    Trial::Wrong(words) => {
                        count.failed += 1;
                        writeln!(out, "FAIL {spec}: {words} (seed {seed})")?;
                    }
                }
            }
        }
        count.passed = right + refused;
        match kernel {
            Some(_) => writeln!(out, "{right} problems had the right result, {refused} were refused")?,
            None => writeln!(
                out,
                "{right} legal specs computed the right result, {refused} illegal ones were refused"
            )?,
        }
        count.close(out)
    }

    fn repeated(&self) -> Repeated {
        Repeated { seed: self.seed, runs: self.repeat }
    }

    /// Runs a case for one kernel under the default schedule, or under every fixed one and `--schedules` random
    /// ones.
    fn emulate(&self, kernel_case: &KernelCase<'_>) -> CaseVerdict {
        let numerics = if self.exact { Numerics::Exact } else { Numerics::Fast };
        let emulator = || Emulator::new().with_numerics(numerics);
        let Some(random) = self.schedules else {
            return kernel_case.run_times(&mut emulator(), self.repeated());
        };
        let mut all = CaseVerdict::default();
        for (schedule, seed) in Schedule::sweep(random) {
            let verdict =
                kernel_case.run_times(&mut emulator().with_schedule(schedule, seed), self.repeated());
            all.products += verdict.products;
            all.digest = verdict.digest;
            all.ratio = all.ratio.max(verdict.ratio);
            if let Some(failure) = verdict.failure {
                all.failure = Some(format!("{schedule:?} schedule, seed {seed}: {failure}"));
                break;
            }
        }
        all
    }
}

impl Count {
    /// Prints the last line, and fails if a case failed.
    pub(crate) fn close(&self, out: &mut impl Write) -> Result<(), Failure> {
        writeln!(out, "{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)?;
        out.flush()?;
        if self.failed == 0 { Ok(()) } else { Err(Failure::Wrong) }
    }

    fn line(
        &mut self,
        out: &mut impl Write,
        engine: &str,
        kernel_case: &KernelCase<'_>,
        verdict: &CaseVerdict,
    ) -> io::Result<()> {
        let what = format!("{} {} on {engine}", kernel_case.case.name, kernel_case.kernel);
        match &verdict.failure {
            None => {
                self.passed += 1;
                writeln!(out, "ok   {what}: {} products, {:.2} of the bound", verdict.products, verdict.ratio)
            }
            Some(failure) => {
                self.failed += 1;
                writeln!(out, "FAIL {what}: {failure}")
            }
        }
    }
}
