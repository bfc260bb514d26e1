//! Runs the examples on the emulator, each with a time limit.

use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::cargo;
use crate::error::Error;
use crate::msrv::list;

/// Time limit per example. Most take a second.
const LIMIT: Duration = Duration::from_secs(180);

/// Command-line arguments of the examples that need them.
const ARGUMENTS: [(&str, &[&str]); 1] = [("fit", &["1", "tests/selection/fresh.jsonl"])];

/// Runs all examples that `cargo test` has built in profile `ci`. Returns their number.
pub(crate) fn run() -> Result<usize, Error> {
    let metadata = cargo::metadata(&["--no-deps"])?;
    let folder = cargo::target_directory()?.join("ci/examples");
    let mut names: Vec<String> = Vec::new();
    for package in list(&metadata, "packages")? {
        let examples = list(package, "targets")?.iter().filter(|target| target["kind"][0] == "example");
        names.extend(examples.filter_map(|example| example["name"].as_str()).map(str::to_owned));
    }
    let failed: Vec<String> = names
        .iter()
        .filter_map(|name| {
            eprintln!("\nxtask: example {name}");
            let start = Instant::now();
            let arguments = ARGUMENTS.iter().find(|(of, _)| of == name).map_or(&[][..], |(_, given)| given);
            let problem = one(&folder.join(name), arguments, LIMIT).err();
            eprintln!("xtask: {:.1} s", start.elapsed().as_secs_f64());
            problem.map(|problem| format!("{name}: {problem}"))
        })
        .collect();
    let what = format!("{} examples failed; see their output above", failed.len());
    Error::if_any(failed, what).map(|()| names.len())
}

/// Runs one program, and kills it if it exceeds the limit. The program sees no GPU.
fn one(program: &Path, arguments: &[&str], limit: Duration) -> Result<(), String> {
    let mut command = Command::new(program);
    command.args(arguments).env("CUDA_VISIBLE_DEVICES", "").stdin(Stdio::null());
    let mut child =
        command.spawn().map_err(|error| format!("{} could not be started: {error}", program.display()))?;
    let start = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(status)) => return Err(status.to_string()),
            Ok(None) if start.elapsed() < limit => sleep(Duration::from_millis(20)),
            Ok(None) => {
                let ended = child.kill().and_then(|()| child.wait());
                return Err(format!("it took longer than {} s ({ended:?})", limit.as_secs_f64()));
            }
            Err(error) => return Err(error.to_string()),
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn programs_that_fail_or_hang_are_noticed() {
        let limit = Duration::from_millis(300);
        for (why, script, want) in [
            ("a program that ends well", "exit 0", None),
            ("one that fails", "exit 3", Some("exit status: 3")),
            ("one that hangs", "exec sleep 20", Some("it took longer than 0.3 s")),
            ("it sees no GPU", "test -z \"$CUDA_VISIBLE_DEVICES\"", None),
        ] {
            let got = one(Path::new("/bin/sh"), &["-c", script], limit);
            match (got, want) {
                (Ok(()), None) => {}
                (Err(got), Some(want)) => assert!(got.contains(want), "{why}: {got}"),
                (got, want) => panic!("{why}: got {got:?}, want {want:?}"),
            }
        }
        let missing = one(Path::new("/no/such/program"), &[], limit).expect_err("there is none");
        assert!(missing.contains("could not be started"), "{missing}");
    }
}
