//! Tests that need a GPU report it if there is none, because the test runner cannot.

use std::fs::OpenOptions;
use std::io::Write;

/// The variable that names a file for the skipped tests' names. `cargo xtask test` counts them.
const COLLECTED: &str = "FALCHION_SKIPPED";

/// Reports that the running test lacks a GPU or a library, and tested nothing.
pub(crate) fn skipped(missing: &str) {
    let thread = std::thread::current();
    let line = format!("skipped: {} (no {missing})\n", thread.name().unwrap_or("a test"));
    // Written directly to stderr: the test runner hides what a passing test prints.
    let _ = std::io::stderr().write_all(line.as_bytes());
    if let Some(path) = std::env::var_os(COLLECTED) {
        let file = OpenOptions::new().create(true).append(true).open(path);
        let written = file.and_then(|mut file| file.write_all(line.as_bytes()));
        assert!(written.is_ok(), "{COLLECTED} names no file that can be written: {written:?}");
    }
}
