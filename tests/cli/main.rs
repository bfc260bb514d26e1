//! The command line as users see it: output, errors and exit codes.

mod cache;
mod catalogue;
mod chart;
mod check;
mod effects;
mod family;
mod files;
mod limits;
mod options;
#[cfg(target_os = "linux")]
mod out;
mod pipes;
mod products;
mod refusals;
mod scales;
mod schedules;
mod sparse;
mod verify;
mod weights;
mod words;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The output of a run of the binary.
struct Run {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

fn falchion(arguments: &[&str]) -> Run {
    let output =
        Command::new(env!("CARGO_BIN_EXE_falchion")).args(arguments).output().expect("the binary runs");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Run { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// A run that must end within half a minute, also on a busy machine. Without the refusal, it would take many
/// minutes.
fn quickly(arguments: &[&str]) -> Run {
    let mut command = Command::new(env!("CARGO_BIN_EXE_falchion"));
    let mut child = command
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let start = Instant::now();
    while child.try_wait().expect("a child").is_none() {
        if start.elapsed() > Duration::from_secs(30) {
            child.kill().expect("a child");
            child.wait().expect("a child");
            panic!("{arguments:?} was still running after 30 s");
        }
        sleep(Duration::from_millis(5));
    }
    let output = child.wait_with_output().expect("its output");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Run { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// Runs each row's arguments. They must be refused quickly, with all words of the row, and without messages
/// of a library.
fn refused(command: &str, rows: &[(&str, &[&str], &[&str])]) {
    for (why, arguments, words) in rows {
        let run = quickly(&[&[command], *arguments].concat());
        assert_eq!(run.code, Some(2), "{why}: {}{}", run.stdout, run.stderr);
        for word in *words {
            assert!(run.stderr.contains(word), "{why}: no `{word}` in {}", run.stderr);
        }
        for word in ["panicked", "backtrace", "unexpected argument", "call `", "launch_"] {
            assert!(!run.stderr.contains(word), "{why}: `{word}` in {}", run.stderr);
        }
    }
}

fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(&folder).expect("a writable folder");
    folder
}

fn npy(path: &Path, kind: &str, fortran: bool, shape: &str, data: &[u8]) -> String {
    let order = if fortran { "True" } else { "False" };
    let mut header = format!("{{'descr': '{kind}', 'fortran_order': {order}, 'shape': {shape}, }}");
    while (header.len() + 11) % 64 != 0 {
        header.push(' ');
    }
    header.push('\n');
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend(u16::try_from(header.len()).expect("short").to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend(data);
    fs::write(path, bytes).expect("a writable folder");
    path.display().to_string()
}

fn safetensors(path: &Path, tensors: &[(&str, &str, [usize; 2], Vec<u8>)]) -> String {
    let mut entries = Vec::new();
    let mut data: Vec<u8> = Vec::new();
    for (name, kind, [rows, columns], bytes) in tensors {
        let (begin, end) = (data.len(), data.len() + bytes.len());
        entries.push(format!(
            r#""{name}":{{"dtype":"{kind}","shape":[{rows},{columns}],"data_offsets":[{begin},{end}]}}"#
        ));
        data.extend(bytes);
    }
    let header = format!("{{{}}}", entries.join(","));
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.extend(data);
    fs::write(path, bytes).expect("a writable folder");
    path.display().to_string()
}

fn f32s(count: usize) -> Vec<f32> {
    (0..count).map(|i| (i % 17) as f32 / 4.0 - 2.0).collect()
}

fn bytes<const N: usize>(values: &[f32], narrow: impl Fn(f32) -> [u8; N]) -> Vec<u8> {
    values.iter().flat_map(|&value| narrow(value)).collect()
}
