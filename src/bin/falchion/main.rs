//! The falchion command line.
//!
//! Exit codes: 0 success, 1 a wrong result, 2 bad usage or an environment that cannot do what was asked, 141
//! the reader of standard output closed it.
#![forbid(unsafe_code)]
// The macros panic where standard output cannot be written: see `output`.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod bench;
mod cache;
mod catalogue;
mod engine;
mod explore;
mod failure;
mod files;
mod gemm;
mod layout;
mod memory;
mod named;
mod numbers;
mod output;
mod packed;
mod scales;
mod schedule;
mod several;
mod trace;
mod types;
mod unranked;
mod verify;
mod weights;

use std::io::Write;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use failure::Failure;

/// GEMM kernels for Hopper as Rust types: run, check, print and time them.
///
/// Only `bench` and `tune` need a GPU; the other commands also run without one, in the emulator. Exit codes:
/// 0 success, 1 a wrong result, 2 bad usage or an environment that cannot do what was asked, 141 the reader
/// of standard output closed it.
#[derive(Debug, Parser)]
#[command(name = "falchion", version, max_term_width = 110)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Gemm(Box<gemm::GemmArgs>),
    /// List the named kernels.
    Configs,
    Plan(catalogue::PlanArgs),
    Emit(catalogue::EmitArgs),
    Verify(verify::VerifyArgs),
    Trace(trace::TraceArgs),
    Bench(bench::BenchArgs),
    Tune(bench::tune::TuneArgs),
    Chart(bench::chart::ChartArgs),
    #[command(hide = true)]
    Compile(bench::compilers::CompileArgs),
    Layout(layout::LayoutArgs),
    Schedule(schedule::ScheduleArgs),
    Explore(explore::ExploreArgs),
    Cache(cache::CacheArgs),
}

fn main() -> ExitCode {
    let cli = match output::parse::<Cli>() {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    let result = match cli.command {
        Command::Gemm(args) => args.run(),
        Command::Configs => catalogue::configs(),
        Command::Plan(args) => args.run(),
        Command::Emit(args) => args.run(),
        Command::Verify(args) => args.run(),
        Command::Trace(args) => args.run(),
        Command::Bench(args) => args.run(),
        Command::Tune(args) => args.run(),
        Command::Chart(args) => args.run(),
        Command::Compile(args) => args.run(),
        Command::Layout(args) => args.run(),
        Command::Schedule(args) => args.run(),
        Command::Explore(args) => args.run(),
        Command::Cache(args) => args.run(),
    };
    match result.and_then(|()| Ok(output::out().flush()?)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
