//! The command line of the library's own families.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    falchion::cli::run(&[])
}
