//! Commands for several GPUs. They are those of `falchion-parallel`, a program of its own: nothing here depends on NCCL.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use crate::cli::failure::Failure;

/// The program.
const PROGRAM: &str = "falchion-parallel";

/// The variable that names the program, if it is neither next to this one nor in the path.
const NAMED: &str = "FALCHION_PARALLEL";

/// The program's arguments for ours, if the command is one of it: `topology`, or `bench --suite parallel`.
fn arguments(given: &[OsString]) -> Option<Vec<OsString>> {
    let (command, rest) = given.split_first()?;
    if command == "topology" {
        return Some(given.to_vec());
    }
    let at =
        (command == "bench").then(|| rest.windows(2).position(|pair| pair == ["--suite", "parallel"]))?;
    let one = rest.iter().position(|word| word == "--suite=parallel");
    let (at, words) = at.map(|at| (at, 2)).or(one.map(|at| (at, 1)))?;
    let mut own = given.to_vec();
    own.drain(at + 1..at + 1 + words);
    Some(own)
}

/// Runs the command there, if it is one of `falchion-parallel`.
pub(crate) fn run() -> Option<Result<ExitCode, Failure>> {
    let given: Vec<OsString> = std::env::args_os().skip(1).collect();
    let own = arguments(&given)?;
    let beside =
        std::env::current_exe().ok().map(|path| path.with_file_name(PROGRAM)).filter(|of| of.exists());
    let program = std::env::var_os(NAMED).map(PathBuf::from).or(beside).unwrap_or_else(|| PROGRAM.into());
    let status = Command::new(&program).args(own).status().map_err(|error| {
        Failure::environment(format_args!(
            "commands for several GPUs are those of {}: {error}. Build it in the folder `parallel`, or name it in {NAMED}",
            program.display()
        ))
    });
    Some(
        status.map(|status| {
            ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
        }),
    )
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::arguments;

    #[test]
    fn two_commands_are_run_elsewhere() {
        for (given, expected) in [
            ("topology --gpus 0,1", Some("topology --gpus 0,1")),
            ("bench --gpus 0,1 --suite parallel --tokens 512", Some("bench --gpus 0,1 --tokens 512")),
            ("bench --suite=parallel", Some("bench")),
            ("bench --suite public", None),
            ("gemm --suite parallel", None),
            ("", None),
        ] {
            let words = |text: &str| text.split_whitespace().map(OsString::from).collect::<Vec<_>>();
            assert_eq!(arguments(&words(given)), expected.map(words), "{given}");
        }
    }
}
