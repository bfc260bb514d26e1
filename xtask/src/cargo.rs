//! Runs cargo, the same one that runs this program, and reads its metadata.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::error::Error;

/// A cargo command with these arguments. Its output goes to the caller's terminal.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo")));
    command.args(arguments).stdin(Stdio::null());
    command
}

/// Prints `cargo <arguments>` and runs it. Fails if the command fails.
pub(crate) fn run(arguments: &[&str], configure: impl FnOnce(&mut Command)) -> Result<(), Error> {
    let shown = format!("cargo {}", arguments.join(" "));
    eprintln!("\nxtask: {shown}");
    let mut command = cargo(arguments);
    configure(&mut command);
    finish(shown, &mut command)
}

/// Runs a command that must succeed. `shown` is what errors call it.
pub(crate) fn finish(shown: String, command: &mut Command) -> Result<(), Error> {
    match command.stdin(Stdio::null()).status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(Error::CommandFailed { command: shown, status }),
        Err(source) => Err(Error::CannotStart { command: shown, source }),
    }
}

/// The standard output of a cargo command.
pub(crate) fn output(arguments: &[&str]) -> Result<String, Error> {
    let shown = format!("cargo {}", arguments.join(" "));
    let output = match cargo(arguments).stderr(Stdio::inherit()).output() {
        Ok(output) => output,
        Err(source) => return Err(Error::CannotStart { command: shown, source }),
    };
    if !output.status.success() {
        return Err(Error::CommandFailed { command: shown, status: output.status });
    }
    String::from_utf8(output.stdout).map_err(|error| Error::Metadata(error.to_string()))
}

/// The output of `cargo metadata` with additional arguments.
pub(crate) fn metadata(arguments: &[&str]) -> Result<Value, Error> {
    let text = output(&[&["metadata", "--format-version", "1"], arguments].concat())?;
    serde_json::from_str(&text).map_err(|error| Error::Metadata(error.to_string()))
}

/// The folder of build outputs, as set by the caller's environment and configuration.
pub(crate) fn target_directory() -> Result<PathBuf, Error> {
    match metadata(&["--no-deps"])?["target_directory"].as_str() {
        Some(path) => Ok(PathBuf::from(path)),
        None => Err(Error::Metadata("it names no target_directory".to_owned())),
    }
}
