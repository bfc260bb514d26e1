//! Repository tasks, run as `cargo xtask <task>`.
//!
//! - `test` installs NVIDIA's assembler, then runs all tests of the workspace and all examples. Run it before
//!   you send a change.
//! - `outside` is the part of `test` that is no test of the workspace: examples, crates outside it, and tests in Python.
//! - `check` makes the checks that run no code of the workspace: format, lints, documentation, dependencies
//!   (Rust version, licences, sources), lock files of the adapters, the files and
//!   profiles of the packages, and the shape of the code.
//! - `shape` measures the shape of the code: in how many places one change must be made. It fails on a step back from `shape.toml`,
//!   and with `--patches` builds the changes that are counted.
//! - `mutate` breaks the synchronisation of kernels and checks that the emulator finds each break.
//! - `package` builds the published packages outside the repository, as their users do.
//! - `ptxas` installs the assembler and prints its path.
//!
//! The tasks run cargo in the caller's folder and environment.

#![forbid(unsafe_code)]

mod cargo;
mod check;
mod dependencies;
mod error;
mod examples;
mod msrv;
mod mutate;
mod package;
mod ptxas;
mod python;
mod shape;
mod skipped;
mod test;
mod unpacked;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::error::Error;

/// Repository tasks.
#[derive(Debug, Parser)]
#[command(name = "xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Install ptxas, then run all tests of the workspace and all examples
    Test {
        /// Skip the tests that assemble kernels; ptxas is not needed then
        #[arg(long)]
        no_ptxas: bool,
        /// Run all cases, not a sample, and draw new cases for property tests; a failing case is kept in a
        /// file `*.proptest-regressions`
        #[arg(long)]
        long: bool,
    },
    /// Run the examples, the crates outside the workspace and the tests in Python, on what `test` has built; `test` does it, too
    Outside {
        /// Run the examples alone; ptxas is not needed then
        #[arg(long)]
        no_ptxas: bool,
        /// Test the adapter for Python as a wheel
        #[arg(long)]
        long: bool,
    },
    /// Check format, lints, documentation, dependencies (Rust version, licences, sources), the files of
    /// the packages and the shape of the code
    Check,
    /// Measure the shape of the code: in how many places one change must be made
    Shape(shape::Shape),
    /// Break the synchronisation of kernels, one statement at a time, and check that the emulator finds each
    /// break
    Mutate(mutate::Mutate),
    /// Pack the published packages, unpack them outside the repository, and build their pages and the
    /// command line there
    Package,
    /// Install ptxas and print its path
    Ptxas,
}

fn main() -> ExitCode {
    match perform(&Cli::parse().task) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("\nerror: {error}");
            ExitCode::FAILURE
        }
    }
}

fn perform(task: &Task) -> Result<(), Error> {
    match task {
        Task::Test { no_ptxas, long } => test::run(test::Choice { ptxas: !no_ptxas, fresh: *long }),
        Task::Outside { no_ptxas, long } => test::outside(test::Choice { ptxas: !no_ptxas, fresh: *long }),
        Task::Check => check::all(),
        Task::Shape(options) => shape::run(options),
        Task::Mutate(arguments) => mutate::run(arguments),
        Task::Package => unpacked::run(),
        Task::Ptxas => {
            println!("{}", ptxas::ensure()?.path.display());
            Ok(())
        }
    }
}
