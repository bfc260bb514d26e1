//! `falchion verify`: runs the embedded case tables on the available engines.

mod fused;
mod instructions;

use std::io::{self, Write};
use std::path::PathBuf;

use clap::ValueEnum;
use emulator::{Numerics, Schedule};
use falchion::verify::tables::{Case, Repeated, Share, Verdict, tables};

use falchion::verify::random::{self, Place, Trial, trial_of};
use kernel::{Emulator, Engine, Gpu, KernelSpec};
use rayon::prelude::*;

use crate::Failure;
use crate::named;
use crate::output::{out, shortened};

/// Run the embedded case tables. The last line is `N passed, N failed, N skipped`.
///
/// A case is one kernel at one problem, checked against an f64 reference. It is skipped if its engine is missing. In the emulator `quick` takes minutes, and `full` about ten
/// times as long.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  falchion verify\n  falchion verify --engine all --suite full\n  \
                        falchion verify --filter special-values")]
pub(crate) struct VerifyArgs {
    /// Where to run the cases.
    #[arg(long, value_enum, default_value = "auto")]
    engine: Engines,
    /// Run only cases whose name or kernel contains this text.
    #[arg(long, default_value = "")]
    filter: String,
    /// Suite to run: `quick`, `full` or `all` of the case tables; `fusions` for every kernel with a fused
    /// epilogue; `instructions` for one program per form of an instruction, compared bit by bit.
    #[arg(long, default_value = "quick")]
    suite: String,
    /// Print the verdicts of --suite instructions as JSON.
    #[arg(long)]
    json: bool,
    /// Write the GPU's outputs of --suite instructions to this file.
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Read the GPU's outputs of --suite instructions from this file, which --record wrote, in place of a
    /// GPU.
    #[arg(long, value_name = "FILE", conflicts_with = "record")]
    replay: Option<PathBuf>,
    /// Run each case in the emulator under every fixed schedule of warps and asynchronous work, and under
    /// this many random schedules. A failure names the schedule and the seed that reproduce it.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    schedules: Option<u64>,
    /// Accumulate in the emulator exactly as the hardware does, which takes about three times as long. With
    /// `--engine all`, also compare the GPU's results with the emulator's, bit for bit.
    #[arg(long)]
    exact: bool,
    /// Number of runs of each GEMM of the tables. The first result is compared with the reference, every
    /// other result with the first, bit for bit, on the device.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,
    /// Run the kernel of these `key=value` words on random problems. The emulator runs each under a random
    /// schedule.
    #[arg(long, value_name = "WORDS", conflicts_with = "suite", value_parser = named::spec)]
    spec: Option<KernelSpec>,
    /// Number of random specs, legal and illegal; each legal one runs on a random problem. With --spec, the
    /// number of random problems for that kernel [default: 20 with --spec]. The emulator runs them unless
    /// --engine is `gpu` or `all`.
    #[arg(long, value_name = "N", conflicts_with = "suite", value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    random_specs: Option<u64>,
    /// Seed of the random matrices, problems and specs.
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

/// Number of problems for `--spec` without `--random-specs`.
const PROBLEMS: u64 = 20;

/// The engines that run the cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Engines {
    /// The GPU if there is a usable one, else the emulator.
    Auto,
    /// The emulator.
    Emulator,
    /// The GPU, or an error.
    Gpu,
    /// Both. Without a GPU, its cases are skipped.
    All,
}

#[derive(Default)]
struct Count {
    passed: usize,
    failed: usize,
    skipped: usize,
}

impl VerifyArgs {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        if self.repeat > 1 && ["instructions", "fusions"].contains(&self.suite.as_str()) {
            return Err(Failure::usage(format!(
                "--repeat {} is for the GEMMs of the tables, --suite is `{}`",
                self.repeat, self.suite
            )));
        }
        if self.spec.is_some() || self.random_specs.is_some() {
            return self.random(&mut out());
        }
        if self.suite == "instructions" {
            return self.instructions();
        }
        if self.json || self.record.is_some() || self.replay.is_some() {
            return Err(Failure::usage("--json, --record and --replay need --suite instructions"));
        }
        if self.suite == "fusions" {
            let (mut count, mut out) = (Count::default(), out());
            self.fusions(&mut count, &mut out)?;
            return count.close(&mut out);
        }
        let cases: Vec<Case> =
            tables()?.into_iter().filter(|case| self.suite == "all" || case.suite == self.suite).collect();
        if cases.is_empty() {
            return Err(Failure::usage(format!(
                "--suite is `{}`, one of quick, full, all, fusions and instructions was needed",
                shortened(&self.suite)
            )));
        }
        let shares: Vec<_> = cases
            .iter()
            .flat_map(Case::shares)
            .filter(|share| share.case.name.contains(&self.filter) || share.kernel.contains(&self.filter))
            .collect();
        if shares.is_empty() {
            let (suite, filter) = (&self.suite, shortened(&self.filter));
            return Err(Failure::usage(format!(
                "no case or kernel of --suite {suite} has `{filter}` in its name; --suite all has every case"
            )));
        }
        let mut why = "as asked".to_owned();
        let gpu = match self.engine {
            Engines::Emulator => None,
            Engines::Gpu => Some(Ok(Gpu::new(0)?)),
            Engines::Auto => match Gpu::new(0) {
                Ok(gpu) => Some(Ok(gpu)),
                Err(error) => {
                    why = format!("no usable GPU here: {error}");
                    None
                }
            },
            Engines::All => Some(Gpu::new(0)),
        };
        let emulate = matches!(self.engine, Engines::Emulator | Engines::All) || gpu.is_none();
        let mut count = Count::default();
        let mut out = out();
        let mut emulated: Vec<Verdict> = Vec::new();
        if emulate {
            writeln!(out, "engine: {} ({why})", Emulator::new().describe())?;
            let verdicts: Vec<_> = shares.par_iter().map(|share| self.emulate(share)).collect();
            for (share, verdict) in shares.iter().zip(verdicts) {
                count.line(&mut out, "emulator", share, &verdict)?;
                emulated.push(verdict);
            }
        }
        match gpu {
            None => {}
            Some(Ok(mut gpu)) => {
                writeln!(out, "engine: {}", gpu.describe())?;
                for (i, share) in shares.iter().enumerate() {
                    let mut verdict = share.run_times(&mut gpu, self.repeated());
                    let other = emulated.get(i).is_some_and(|emulated| emulated.digest != verdict.digest);
                    if self.exact && other && verdict.failure.is_none() {
                        verdict.failure = Some("other bits than the emulator's".to_owned());
                    }
                    count.line(&mut out, "gpu", share, &verdict)?;
                }
            }
            Some(Err(error)) => {
                writeln!(out, "skip {} cases on a GPU: {error}", shares.len())?;
                count.skipped += shares.len();
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
    /// Random problems for one spec, or random specs.
    fn random(&self, out: &mut impl Write) -> Result<(), Failure> {
        let trials = self.random_specs.unwrap_or(PROBLEMS);
        let (mut count, mut right, mut refused) = (Count::default(), 0, 0);
        let first = self.seed.wrapping_mul(1 << 32);
        let spec_of = |seed| self.spec.unwrap_or_else(|| random::spec(seed));
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
        for begin in (0..trials).step_by(PART as usize) {
            let seeds: Vec<u64> = (begin..trials.min(begin + PART)).map(|i| first.wrapping_add(i)).collect();
            let in_emulator = || if self.exact { Place::Exact } else { Place::Emulator };
            let mut ended: Vec<_> = seeds
                .par_iter()
                .map(|&seed| (seed, spec_of(seed)))
                .map(|(seed, spec)| (seed, spec, emulate.then(|| trial_of(&spec, seed, in_emulator()))))
                .collect();
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
        writeln!(out, "{right} legal specs computed the right result, {refused} illegal ones were refused")?;
        count.close(out)
    }

    fn repeated(&self) -> Repeated {
        Repeated { seed: self.seed, runs: self.repeat }
    }

    /// Runs a share of a case under the default schedule, or under every fixed one and `--schedules` random
    /// ones.
    fn emulate(&self, share: &Share<'_>) -> Verdict {
        let numerics = if self.exact { Numerics::Exact } else { Numerics::Fast };
        let emulator = || Emulator::new().with_numerics(numerics);
        let Some(random) = self.schedules else { return share.run_times(&mut emulator(), self.repeated()) };
        let mut all = Verdict::default();
        for (schedule, seed) in Schedule::sweep(random) {
            let verdict = share.run_times(&mut emulator().with_schedule(schedule, seed), self.repeated());
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
    fn close(&self, out: &mut impl Write) -> Result<(), Failure> {
        writeln!(out, "{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)?;
        out.flush()?;
        if self.failed == 0 { Ok(()) } else { Err(Failure::Wrong) }
    }

    fn line(
        &mut self,
        out: &mut impl Write,
        engine: &str,
        share: &Share<'_>,
        verdict: &Verdict,
    ) -> io::Result<()> {
        let what = format!("{} {} on {engine}", share.case.name, share.kernel);
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
