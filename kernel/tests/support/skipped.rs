//! Tests that need a GPU say so where there is none, as the test runner cannot.

use std::fs::OpenOptions;
use std::io::Write;

/// A file that collects the names, if there is one: `cargo xtask test` counts them.
const COLLECTED: &str = "FALCHION_SKIPPED";

/// Says that the running test lacks a GPU or a library, and has tried nothing.
pub(crate) fn skipped(missing: &str) {
    let thread = std::thread::current();
    let line = format!("skipped: {} (no {missing})\n", thread.name().unwrap_or("a test"));
    // Written past the test runner, which keeps what a test prints that does not fail.
    let _ = std::io::stderr().write_all(line.as_bytes());
    if let Some(path) = std::env::var_os(COLLECTED) {
        let file = OpenOptions::new().create(true).append(true).open(path);
        let written = file.and_then(|mut file| file.write_all(line.as_bytes()));
        assert!(written.is_ok(), "{COLLECTED} names no file that can be written: {written:?}");
    }
}
