//! Builds the wheel of `adapters/python`, installs it in a fresh virtual environment, and runs its tests there.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::cargo;
use crate::error::Error;

/// What the tests need from the package index.
const PACKAGES: [&str; 4] = ["maturin>=1.9,<2", "numpy", "ml_dtypes", "pytest"];

/// Runs the tests. Returns why they were skipped, if they were.
pub(crate) fn run(target: &Path) -> Result<Option<String>, Error> {
    let home = target.join("python");
    let (environment, wheels) = (home.join("environment"), home.join("wheels"));
    // What an earlier run left is not part of a fresh environment; it may not be there.
    let _ = fs::remove_dir_all(&home);
    let made = Command::new("python3").args(["-m", "venv"]).arg(&environment).stdin(Stdio::null()).status();
    if !made.is_ok_and(|status| status.success()) {
        return Ok(Some("no python3 with venv and pip".to_owned()));
    }
    let program = |name: &str| environment.join("bin").join(name);
    let install = ["-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check"];
    let mut packages = Command::new(program("python"));
    start(packages.args(install).args(PACKAGES))?;
    // With the libraries that the adapter for C was built with.
    let mut build = Command::new(program("maturin"));
    build.args(["build", "--profile", "ci", "--manifest-path", "adapters/python/Cargo.toml", "--out"]);
    start(build.arg(&wheels).env("CARGO_TARGET_DIR", target))?;
    let mut wheel = Command::new(program("python"));
    start(wheel.args(install).arg("--no-index").arg("--find-links").arg(&wheels).arg("falchion"))?;
    let mut tests = Command::new(program("python"));
    start(tests.args(["-m", "pytest", "-q", "-p", "no:cacheprovider", "adapters/python/tests"]))?;
    Ok(None)
}

/// Prints a command and runs it.
fn start(command: &mut Command) -> Result<(), Error> {
    let words = core::iter::once(command.get_program()).chain(command.get_args());
    let shown = words.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ");
    eprintln!("\nxtask: {shown}");
    cargo::finish(shown, command)
}
