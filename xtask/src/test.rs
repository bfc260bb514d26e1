//! `cargo xtask test`: all tests of the workspace, in one build of profile `ci`, and all examples.
//!
//! Profile `ci` is release with less optimisation for some crates (see the root's `Cargo.toml`): emulator
//! runs dominate the time, and one profile means one build. It also keeps the build outputs away from the
//! running `xtask` program, which some systems would refuse to replace.

use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::cargo;
use crate::error::Error;
use crate::examples;
use crate::ptxas;
use crate::python;
use crate::skipped::{self, Skipped};

const TEST: [&str; 8] = [
    "test",
    "--workspace",
    BENCHMARKS[0],
    BENCHMARKS[1],
    "--all-features",
    "--profile",
    "ci",
    "--no-fail-fast",
];

/// What is built for benchmarks alone.
const BENCHMARKS: [&str; 2] = ["--exclude", "benchmarks"];

/// Builds what [`TEST`] runs, and the libraries for C and Python: of the same packages, which decide the features of what they need.
/// Lints compile the benchmarks.
const BUILD: [&str; 11] = [
    "build",
    "--workspace",
    BENCHMARKS[0],
    BENCHMARKS[1],
    "--all-features",
    "--lib",
    "--bins",
    "--tests",
    "--examples",
    "--profile",
    "ci",
];

/// Tests that need the assembler are marked `ignore`, so that a plain `cargo test` reports that it skips
/// them.
const WITH_IGNORED: [&str; 2] = ["--", "--include-ignored"];

/// Tests build the programs that must not compile in the `dev` profile, without debug information.
const QUICK: (&str, &str) = ("CARGO_PROFILE_DEV_DEBUG", "0");

/// Set for long runs. Then all programs are assembled, not only K-major `bf16` and one of eight of the others, also 500
/// random ones, and `wgmma` with every N. Pages are clicked through in both windows. All cases of the tables run, not only a part. Configurations run
/// under three schedules, and ten times as many mutants. The library is checked with made-up toolkits, and compile times
/// are measured.
const LONG: (&str, &str) = ("FALCHION_LONG", "1");

/// The seed of property tests: the same cases in every run, so that only the change itself can make a test
/// fail.
const SEED: (&str, &str) = ("PROPTEST_RNG_SEED", "20260401");

/// Tests do not read or write the user's cache of compiled kernels.
const NO_CACHE: (&str, &str) = ("FALCHION_CACHE", "");

/// Which tests run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Choice {
    /// Whether kernels are assembled.
    pub(crate) ptxas: bool,
    /// Whether property tests draw new cases, and all cases run instead of a sample.
    pub(crate) fresh: bool,
}

/// Builds all tests and runs them; beside them, [`outside`]. Without the assembler it reports that the tests that need it
/// are skipped.
pub(crate) fn run(choice: Choice) -> Result<(), Error> {
    let notice = "xtask: no kernel is assembled in this run (--no-ptxas)";
    let ptxas = if choice.ptxas {
        let ptxas = ptxas::ensure()?;
        eprintln!("xtask: kernels are assembled by {} ({})", ptxas.path.display(), ptxas.release);
        Some(ptxas)
    } else {
        eprintln!("{notice}");
        None
    };
    built(None)?;
    let skipped = Skipped::begin()?;
    let outside = Beside::start(choice)?;
    let arguments = if choice.ptxas { [&TEST[..], &WITH_IGNORED].concat() } else { TEST.to_vec() };
    let tested = cargo::run(&arguments, |command| {
        command.envs([QUICK, NO_CACHE, python::MODULE]).env(skipped::VARIABLE, skipped.path());
        match &ptxas {
            Some(ptxas) => command.env(ptxas::VARIABLE, &ptxas.path),
            None => command.env_remove(ptxas::VARIABLE),
        };
        command.envs(seed(choice.fresh)).envs(choice.fresh.then_some(LONG));
    });
    let outside = outside.end();
    eprintln!("\n{}", skipped.report());
    if !choice.ptxas {
        eprintln!("{notice}");
    }
    tested.and(outside)
}

/// Builds everything. Where an assembler is named, `tests/ahead` makes binaries by it.
fn built(ptxas: Option<&Path>) -> Result<(), Error> {
    cargo::run(&BUILD, |command| {
        command.envs([python::MODULE]).env_remove(ptxas::VARIABLE);
        command.envs(ptxas.map(|path| (ptxas::VARIABLE, path)));
    })
}

/// `cargo xtask outside` in a process of its own: few tests keep two cores busy until their end. What it prints is kept until
/// the tests have printed all of theirs.
struct Beside {
    process: Child,
    log: PathBuf,
}

impl Beside {
    fn start(choice: Choice) -> Result<Self, Error> {
        let log = cargo::target_directory()?.join("outside.log");
        let file = File::create(&log).and_then(|file| Ok((file.try_clone()?, file)));
        let (out, error) = file.map_err(|source| Error::CannotWrite { path: log.clone(), source })?;
        // By the path that it was started by itself: another command may have replaced the file, with which the system would find nothing there.
        let own = env::args_os().next().unwrap_or_else(|| "xtask".into());
        let mut command = Command::new(own);
        command
            .arg("outside")
            .args(choice.fresh.then_some("--long"))
            .args((!choice.ptxas).then_some("--no-ptxas"));
        command.stdin(Stdio::null()).stdout(out).stderr(error);
        match command.spawn() {
            Ok(process) => Ok(Self { process, log }),
            Err(source) => Err(Error::CannotStart { command: OUTSIDE.to_owned(), source }),
        }
    }

    fn end(mut self) -> Result<(), Error> {
        let status = self.process.wait();
        eprint!("{}", fs::read_to_string(&self.log).unwrap_or_default());
        match status {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(Error::CommandFailed { command: OUTSIDE.to_owned(), status }),
            Err(source) => Err(Error::CannotStart { command: OUTSIDE.to_owned(), source }),
        }
    }
}

const OUTSIDE: &str = "cargo xtask outside";

/// The seed of property tests, or `None` for new cases in each run. Failing cases are kept in files
/// `*.proptest-regressions` either way.
fn seed(fresh: bool) -> Option<(&'static str, &'static str)> {
    (!fresh).then_some(SEED)
}

/// Runs the examples and `tests/outside`, on what [`run`] has built; and where kernels are assembled, the tests of the adapter for
/// Python, and `tests/ahead`, which makes kernels ahead of time: built without an assembler and with one.
pub(crate) fn outside(choice: Choice) -> Result<(), Error> {
    eprintln!("xtask: {} examples ran", examples::run()?);
    let program = cargo::target_directory()?.join("ci/outside");
    cargo::finish(program.display().to_string(), &mut Command::new(&program))?;
    if !choice.ptxas {
        return Ok(());
    }
    let (target, ptxas) = (cargo::target_directory()?, ptxas::ensure()?);
    if let Some(reason) = python::run(&target, choice.fresh)? {
        skipped::add("the adapter for Python", &reason)?;
    }
    let program = target.join("ci/ahead");
    let ahead = || cargo::finish(program.display().to_string(), &mut Command::new(&program));
    ahead()?;
    built(Some(&ptxas.path))?;
    ahead()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_repeats_itself_unless_fresh_cases_are_asked_for() {
        assert!(
            seed(false)
                .is_some_and(|(name, value)| name == "PROPTEST_RNG_SEED" && value.parse::<u64>().is_ok())
        );
        assert_eq!(seed(true), None);
    }
}
