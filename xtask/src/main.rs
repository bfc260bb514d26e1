//! Repository tasks, run as `cargo xtask <task>`.
//!
//! - `test` is the one command a contributor runs before sending a change: it fetches NVIDIA's assembler and
//!   runs every test of the workspace.
//! - `check` judges what a compiler can judge without running anything: format, lints, documentation, and the
//!   Rust version that the dependencies need.
//! - `mutate` breaks every kernel's synchronisation in every way it knows and demands that the emulator notices.
//! - `ptxas` fetches the assembler alone and prints where it lies.
//!
//! The tasks run cargo in the caller's folder and environment, and change only what each task names.

#![forbid(unsafe_code)]

mod cargo;
mod check;
mod error;
mod msrv;
mod mutate;
mod ptxas;
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
    /// Fetch ptxas, then run every test of the workspace
    Test {
        /// Run without NVIDIA's assembler: the tests that assemble each kernel are left out
        #[arg(long)]
        no_ptxas: bool,
    },
    /// Check format, lints, documentation and the Rust version that dependencies need
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
        Task::Test { no_ptxas: true } => test::without_ptxas(),
        Task::Test { no_ptxas: false } => test::with_ptxas(),
        Task::Check => check::all(),
        Task::Mutate(arguments) => mutate::run(arguments),
        Task::Ptxas => {
            println!("{}", ptxas::ensure()?.path.display());
            Ok(())
        }
    }
}
