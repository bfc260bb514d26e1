//! Records launches of CUDA kernels for `falchion check`: their PTX, grid, arguments, tensor maps and memory.
//!
//! The library is named in `LD_PRELOAD`. It takes the place of the functions of CUDA's driver that load modules, encode tensor maps and
//! launch kernels, each of which calls the driver's own; whatever the program asks for comes from the driver. A launch that is recorded
//! waits for the device before it, and is then made as it was asked for. The README has the settings.
//!
//! What is chosen is written by one function, `record::before`, which follows a launch from its arguments to its files:
//! `known` has what was loaded, `source` finds the PTX, `arguments` the values, `memory` the bytes, and `describe` the text.
//!
//! No panic unwinds into the program: each hook runs its own part under `guard`.
#![cfg_attr(test, allow(dead_code, reason = "the library's tests do not take the driver's place"))]
#![cfg(all(target_os = "linux", target_env = "gnu", any(target_arch = "x86_64", target_arch = "aarch64")))]

mod arguments;
mod counts;
mod describe;
mod driver;
mod elf;
mod entry;
mod fatbin;
mod files;
mod hooks;
mod image;
mod known;
mod maps;
mod memory;
mod record;
mod settings;
mod source;
mod symbols;

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Writes a line to the standard error.
pub(crate) fn say(words: &str) {
    use std::io::Write;
    // In one write, so that lines of threads are not mixed. Where nobody reads them, nothing is wrong with the program.
    let _ = std::io::stderr().write_all(format!("falchion-record: {words}\n").as_bytes());
}

/// Runs a part of this library. A panic in it is a line, and no panic of the program.
pub(crate) fn guard<T>(part: impl FnOnce() -> T) -> Option<T> {
    let ran = catch_unwind(AssertUnwindSafe(part)).ok();
    if ran.is_none() {
        say("a mistake of this library; the program goes on without the recording");
    }
    ran
}
