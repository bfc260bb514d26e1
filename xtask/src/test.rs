//! `cargo xtask test`: every test of the workspace, in one build of profile `ci`, and every example.
//!
//! That is release without what takes long to optimise and runs once (the root's `Cargo.toml` says what): emulator runs
//! dominate, and one profile means one build. It also keeps the tests' outputs away from the running `xtask` program,
//! which some systems would refuse to replace.

use std::path::Path;

use crate::cargo;
use crate::error::Error;
use crate::examples;
use crate::ptxas;
use crate::skipped::{self, Skipped};

const TEST: [&str; 6] = ["test", "--workspace", "--all-features", "--profile", "ci", "--no-fail-fast"];

/// The tests that need the assembler are marked `ignore`, so that a plain `cargo test` says what it leaves out.
const WITH_IGNORED: [&str; 2] = ["--", "--include-ignored"];

/// The programs that must not compile are built by the tests in the profile of development: nobody debugs them.
const QUICK: (&str, &str) = ("CARGO_PROFILE_DEV_DEBUG", "0");

/// Set where tests may take their time: every program is assembled, not one of eight beside its twin of K-major `bf16`, and 500
/// random ones; all of the tables' cases run, not one of four or eight where the twin runs them; the library is checked with toolkits that are made up; and
/// the compiler is measured.
const LONG: (&str, &str) = ("FALCHION_LONG", "1");

/// Property tests draw the same cases in every run, so that a change is judged by what it changes.
const SEED: (&str, &str) = ("PROPTEST_RNG_SEED", "20260401");

/// Tests keep no compiled kernels where a user keeps them, and read none.
const NO_CACHE: (&str, &str) = ("FALCHION_CACHE", "");

/// Which tests run, and on what.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Choice {
    /// Whether kernels are assembled.
    pub(crate) ptxas: bool,
    /// Whether property tests draw cases that nobody has seen, and all is tried.
    pub(crate) fresh: bool,
}

/// Runs all tests, lets those that assemble kernels find the assembler or says that they are left out, then the examples.
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
    let arguments = if choice.ptxas { [&TEST[..], &WITH_IGNORED].concat() } else { TEST.to_vec() };
    let skipped = Skipped::begin()?;
    let tested = cargo::run(&arguments, |command| {
        command.envs([QUICK, NO_CACHE]).env(skipped::VARIABLE, skipped.path());
        match &ptxas {
            Some(ptxas) => command.env(ptxas::VARIABLE, &ptxas.path),
            None => command.env_remove(ptxas::VARIABLE),
        };
        command.envs(seed(choice.fresh)).envs(choice.fresh.then_some(LONG));
    });
    let report = skipped.report();
    let examples = if tested.is_ok() { examples::run().map(Some) } else { Ok(None) };
    let outside = match &ptxas {
        Some(ptxas) if tested.is_ok() => outside(&ptxas.path),
        Some(_) | None => Ok(()),
    };
    eprintln!("\n{report}");
    if let Ok(Some(count)) = examples {
        eprintln!("xtask: {count} examples ran");
    }
    if !choice.ptxas {
        eprintln!("{notice}");
    }
    tested.and(examples.map(|_| ())).and(outside)
}

/// The environment of property tests; none for cases of their own in each run. Those that fail are kept in files
/// `*.proptest-regressions` either way.
fn seed(fresh: bool) -> Option<(&'static str, &'static str)> {
    (!fresh).then_some(SEED)
}

/// Runs the crates that depend on the library from outside of the workspace, and the tests of the adapter for C. The one that makes kernels ahead of time is built
/// without an assembler and with one.
fn outside(ptxas: &Path) -> Result<(), Error> {
    let target = cargo::target_directory()?;
    for (manifest, ptxas) in [
        ("tests/outside/Cargo.toml", None),
        ("tests/ahead/Cargo.toml", None),
        ("tests/ahead/Cargo.toml", Some(ptxas)),
    ] {
        cargo::run(&["run", "--profile", "ci", "--manifest-path", manifest], |command| {
            command.env("CARGO_TARGET_DIR", &target).env_remove(ptxas::VARIABLE);
            command.envs(ptxas.map(|path| (ptxas::VARIABLE, path)));
        })?;
    }
    // The C compiler is the one that links Rust's programs.
    cargo::run(&["test", "--profile", "ci", "--manifest-path", "adapters/c/Cargo.toml"], |command| {
        command.env("CARGO_TARGET_DIR", &target).env_remove(ptxas::VARIABLE);
    })
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
