//! Repository tasks, run as `cargo xtask <task>`.
//!
//! - `test` is the one command a contributor runs before sending a change: it fetches NVIDIA's assembler and
//!   runs every test of the workspace, then every example.
//! - `check` judges what can be judged without running anything: format, lints, documentation, the dependencies'
//!   Rust version, licences and sources, and the files of the packages.
//! - `mutate` breaks every kernel's synchronisation in every way it knows and demands that the emulator notices.
//! - `ptxas` fetches the assembler alone and prints where it lies.
//!
//! The tasks run cargo in the caller's folder and environment, and change only what each task names.

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
mod skipped;
mod test;

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
    /// Fetch ptxas, then run every test of the workspace and every example
    Test {
        /// Run without NVIDIA's assembler: the tests that assemble each kernel are left out
        #[arg(long)]
        no_ptxas: bool,
        /// Try all of what a shorter run samples, and let property tests draw cases that no run before has had; one that fails
        /// is kept in a file to try again
        #[arg(long)]
        long: bool,
    },
    /// Check format, lints, documentation, the dependencies' Rust version and licences, and the packages' files
    Check,
    /// Break every kernel's synchronisation, step by step, and see the emulator find each break
    Mutate(mutate::Mutate),
    /// Fetch ptxas and print its path
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
        Task::Check => check::all(),
        Task::Mutate(arguments) => mutate::run(arguments),
        Task::Ptxas => {
            println!("{}", ptxas::ensure()?.path.display());
            Ok(())
        }
    }
}
