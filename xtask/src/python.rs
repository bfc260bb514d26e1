//! Runs the tests of `adapters/python` in a fresh virtual environment: on the module that the tests' build has made, or on a wheel.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::cargo;
use crate::error::Error;

/// What the tests need from the package index.
const PACKAGES: [&str; 4] = ["numpy", "ml_dtypes", "pytest", "triton>=3.9"];

/// What checks the package's annotations. It takes as long as many of the other tests, so it comes with the wheel.
const MYPY: &str = "mypy";

/// What makes the wheel.
const MATURIN: &str = "maturin>=1.9,<2";

/// The environment variable, and its value, with which the module does not link a Python of its own. A wheel is built with it, too.
pub(crate) const MODULE: (&str, &str) = ("PYO3_BUILD_EXTENSION_MODULE", "1");

/// The environment variable, and its value, without which tests of Triton's kernels are skipped where there is no Triton.
const TRITON: (&str, &str) = ("FALCHION_TRITON", "needed");

/// Runs the tests. Returns why they were skipped, if they were.
pub(crate) fn run(target: &Path, wheel: bool) -> Result<Option<String>, Error> {
    let home = target.join("python");
    let environment = home.join("environment");
    // What an earlier run left is not part of a fresh environment; it may not be there.
    let _ = fs::remove_dir_all(&home);
    let made = Command::new("python3").args(["-m", "venv"]).arg(&environment).stdin(Stdio::null()).status();
    if !made.is_ok_and(|status| status.success()) {
        return Ok(Some("no python3 with venv and pip".to_owned()));
    }
    let python = || Command::new(environment.join("bin/python"));
    let install = ["-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check"];
    start(python().args(install).args(PACKAGES).args(wheel.then_some(MYPY)))?;
    let mut tests = python();
    tests.envs([TRITON]);
    tests.args(["-m", "pytest", "-q", "-p", "no:cacheprovider", "adapters/python/tests"]);
    if wheel {
        let wheels = home.join("wheels");
        start(python().args(install).arg(MATURIN))?;
        let mut build = Command::new(environment.join("bin/maturin"));
        build.args(["build", "--profile", "ci", "--manifest-path", "adapters/python/Cargo.toml", "--out"]);
        start(build.arg(&wheels).env("CARGO_TARGET_DIR", target))?;
        start(python().args(install).arg("--no-index").arg("--find-links").arg(&wheels).arg("falchion"))?;
    } else {
        tests.env("PYTHONPATH", packages(&home, &target.join("ci"))?);
    }
    start(&mut tests)?;
    Ok(None)
}

/// A folder with the package, as a wheel has it: the files in Python beside the module that is in `built`.
fn packages(home: &Path, built: &Path) -> Result<PathBuf, Error> {
    let packages = home.join("packages");
    let package = packages.join("falchion");
    let wrong = |path: &Path, source| Error::CannotWrite { path: path.to_owned(), source };
    fs::create_dir_all(&package).map_err(|source| wrong(&package, source))?;
    let sources = Path::new("adapters/python/python/falchion");
    let files = fs::read_dir(sources).map_err(|source| wrong(sources, source))?;
    for file in files {
        let file = file.map_err(|source| wrong(sources, source))?;
        // What Python has left there is a folder.
        if file.path().is_file() {
            let to = package.join(file.file_name());
            fs::copy(file.path(), &to).map_err(|source| wrong(&to, source))?;
        }
    }
    let module = built.join("lib_native.so");
    fs::copy(&module, package.join("_native.abi3.so")).map_err(|source| wrong(&module, source))?;
    Ok(packages)
}

/// Prints a command and runs it.
fn start(command: &mut Command) -> Result<(), Error> {
    let words = core::iter::once(command.get_program()).chain(command.get_args());
    let shown = words.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ");
    eprintln!("\nxtask: {shown}");
    cargo::finish(shown, command)
}
