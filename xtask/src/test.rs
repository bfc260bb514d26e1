//! `cargo xtask test`: every test of the workspace, in one build of profile `ci`.
//!
//! That is release without what takes long to optimise and runs once (the root's `Cargo.toml` says what): emulator runs
//! dominate, and one profile means one build. It also keeps the tests' outputs away from the running `xtask` program,
//! which some systems would refuse to replace.

use crate::cargo;
use crate::error::Error;
use crate::ptxas;

const TEST: [&str; 6] = ["test", "--workspace", "--all-features", "--profile", "ci", "--no-fail-fast"];

/// The tests that need the assembler are marked `ignore`, so that a plain `cargo test` says what it leaves out.
const WITH_IGNORED: [&str; 2] = ["--", "--include-ignored"];

/// The programs that must not compile are built by the tests in the profile of development: nobody debugs them.
const QUICK: [(&str, &str); 1] = [("CARGO_PROFILE_DEV_DEBUG", "0")];

/// Runs all tests, and lets those that assemble kernels find the assembler.
pub(crate) fn with_ptxas() -> Result<(), Error> {
    let ptxas = ptxas::ensure()?;
    eprintln!("xtask: kernels are assembled by {} ({})", ptxas.path.display(), ptxas.release);
    cargo::run(&[&TEST[..], &WITH_IGNORED].concat(), |command| {
        command.env(ptxas::VARIABLE, &ptxas.path).envs(QUICK);
    })?;
    outside()
}

/// Runs the crate that depends on the library from outside of the workspace.
fn outside() -> Result<(), Error> {
    let target = cargo::target_directory()?;
    cargo::run(&["run", "--profile", "ci", "--manifest-path", "tests/outside/Cargo.toml"], |command| {
        command.env("CARGO_TARGET_DIR", target);
    })
}

/// Runs all tests but those that assemble kernels, and says so before and after.
pub(crate) fn without_ptxas() -> Result<(), Error> {
    let notice = "xtask: no kernel is assembled in this run (--no-ptxas)";
    eprintln!("{notice}");
    let outcome = cargo::run(&TEST, |command| {
        command.env_remove(ptxas::VARIABLE).envs(QUICK);
    });
    eprintln!("\n{notice}");
    outcome
}
