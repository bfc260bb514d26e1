//! Output that cannot be written: to a closed pipe, or to a full disk.

use std::fs::{self, File, OpenOptions};
use std::process::{Command, Stdio};

use crate::folder;

/// Each command, with arguments that run quickly.
const COMMANDS: [&[&str]; 12] = [
    &["configs"],
    &["emit", "--kernel", "128x256-direct-bf16-kk"],
    &["plan", "--kernel", "128x256-direct-bf16-kk"],
    &["plan", "--m", "512", "--n", "512", "--k", "512"],
    &["layout", "(4,8)", "--table"],
    &["schedule", "--kernel", "64x64-direct-bf16-kk", "--m", "512", "--n", "512", "--k", "512"],
    &["trace", "--kernel", "64x64-direct-bf16-kk", "--m", "64", "--n", "64", "--k", "64"],
    &["gemm", "--engine", "emulator", "--m", "64", "--n", "64", "--k", "64"],
    &["gemm", "--engine", "emulator", "--batch", "2", "--m", "64", "--n", "64", "--k", "64"],
    &["verify", "--engine", "emulator", "--filter", "alpha-zero"],
    &["--help"],
    &["gemm", "--help"],
];

fn run(arguments: &[&str], stdout: impl Into<Stdio>, stderr: impl Into<Stdio>) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_falchion"));
    let output = command.args(arguments).stdout(stdout).stderr(stderr).output().expect("the binary runs");
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// A closed pipe ends every command quietly, with the exit code that shells report for SIGPIPE. So no caller
/// can take the result as verified.
#[test]
fn output_that_nobody_reads_is_no_panic() {
    for arguments in COMMANDS {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let (code, stderr) = run(arguments, writer, Stdio::piped());
        assert_eq!((code, stderr.as_str()), (Some(141), ""), "{arguments:?}");
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_full_disk_is_an_error() {
    let full = || OpenOptions::new().write(true).open("/dev/full").expect("Linux has it");
    for arguments in COMMANDS {
        let (code, stderr) = run(arguments, full(), Stdio::piped());
        assert_eq!(code, Some(2), "{arguments:?}: {stderr}");
        let sentence = "falchion: error: cannot write to standard output: No space left on device";
        assert!(stderr.starts_with(sentence) && stderr.lines().count() == 1, "{arguments:?}: {stderr}");
    }
    // Where standard error cannot be written either, only the exit code reports the failure.
    for arguments in
        [&["gemm", "--m", "0"][..], &["plan", "--kernel", "nothing"], &["gemm", "--nothing"], &["configs"]]
    {
        let out = if arguments == ["configs"] { full().into() } else { Stdio::null() };
        assert_eq!(run(arguments, out, full()).0, Some(2), "{arguments:?}");
    }
    for arguments in [
        &["gemm", "--engine", "emulator", "--out", "/dev/full/d.npy"][..],
        &["emit", "--kernel", "64x64-direct-bf16-kk", "-o", "/dev/full"],
        &[
            "trace",
            "--kernel",
            "64x64-direct-bf16-kk",
            "--m",
            "64",
            "--n",
            "64",
            "--k",
            "64",
            "-o",
            "/dev/full",
        ],
        &[
            "schedule",
            "--kernel",
            "64x64-direct-bf16-kk",
            "--m",
            "64",
            "--n",
            "64",
            "--k",
            "64",
            "--svg",
            "/dev/full",
        ],
        &["layout", "(4,8)", "--svg", "/dev/full"],
    ] {
        let (code, stderr) = run(arguments, Stdio::null(), Stdio::piped());
        assert_eq!(code, Some(2), "{arguments:?}: {stderr}");
        assert!(stderr.contains("cannot write /dev/full"), "{arguments:?}: {stderr}");
    }
}

/// The command checks that a file can be written before it computes anything: standard output is empty.
#[test]
fn files_that_cannot_be_written_are_found_first() {
    let folder = folder("unwritable");
    let nowhere = folder.join("no-folder").join("file").display().to_string();
    let kept = folder.join("kept.npy");
    fs::write(&kept, "as it was").expect("a writable folder");
    for arguments in [
        &["gemm", "--engine", "emulator", "--out", &nowhere][..],
        &["trace", "--kernel", "64x64-direct-bf16-kk", "-o", &nowhere],
        &["trace", "--kernel", "64x64-direct-bf16-kk", "--svg", &nowhere],
        &[
            "schedule",
            "--kernel",
            "64x64-direct-bf16-kk",
            "--m",
            "64",
            "--n",
            "64",
            "--k",
            "64",
            "--svg",
            &nowhere,
        ],
        &["layout", "(4,8)", "--latex", &nowhere],
        &["emit", "--kernel", "64x64-direct-bf16-kk", "-o", &nowhere],
        &["verify", "--suite", "instructions", "--record", &nowhere],
    ] {
        let path = folder.join("stdout");
        let (code, stderr) = run(arguments, File::create(&path).expect("a file"), Stdio::piped());
        assert_eq!(code, Some(2), "{arguments:?}: {stderr}");
        assert!(stderr.contains("cannot write") && stderr.contains("no-folder"), "{arguments:?}: {stderr}");
        assert_eq!(fs::read_to_string(&path).expect("a file"), "", "{arguments:?}");
    }
    // A command that fails later leaves an existing file unchanged.
    let kept_name = kept.display().to_string();
    let (code, _) = run(&["gemm", "--m", "0", "--out", &kept_name], Stdio::null(), Stdio::piped());
    assert_eq!((code, fs::read_to_string(&kept).expect("a file").as_str()), (Some(2), "as it was"));
}
