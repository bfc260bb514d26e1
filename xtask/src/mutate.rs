//! `cargo xtask mutate`: proves that the emulator finds broken synchronisation, by breaking it.
//!
//! Every kernel of the catalogue is broken in every way that [`ptx::mutate`] knows, one step at a time, and each
//! mutant runs on the emulator under several schedules. A mutant that behaves as its origin is either equivalent,
//! for a reason that the `equivalent` module states and checks, or it has survived, which is a hole in the proof.
//!
//! The task needs the kernels and the emulator, optimised. It therefore builds itself again, with the feature
//! `proof` and in release, and hands its arguments over.

#[cfg(feature = "proof")]
mod class;
#[cfg(feature = "proof")]
mod equivalent;
#[cfg(feature = "proof")]
mod extra;
#[cfg(feature = "proof")]
mod fused;
#[cfg(feature = "proof")]
mod journal;
#[cfg(feature = "proof")]
mod products;
#[cfg(feature = "proof")]
mod proof;
#[cfg(feature = "proof")]
mod record;
#[cfg(feature = "proof")]
mod report;
#[cfg(feature = "proof")]
mod subject;
#[cfg(feature = "proof")]
mod trial;

use clap::Args;

/// What to break, and how long to look.
#[derive(Debug, Default, Args)]
pub(crate) struct Mutate {
    /// Only the kernels whose names contain this; may be given again
    #[arg(long)]
    kernel: Vec<String>,
    /// Random schedules that a mutant must survive, beside the fixed ones
    #[arg(long, default_value_t = 8)]
    schedules: u64,
    /// Run the unbroken kernels instead, under this many random schedules, and expect no complaint
    #[arg(long)]
    false_alarms: Option<u64>,
    /// Only the mutants whose descriptions contain this, as `bar.sync id + 1`; leaves the record alone
    #[arg(long)]
    mutant: Option<String>,
    /// Only every n-th mutant; leaves the record alone
    #[arg(long, default_value_t = 1)]
    every: usize,
    /// Host threads; all processors by default
    #[arg(long)]
    jobs: Option<usize>,
    /// Only one kernel of each class of which docs/proof.tsv knows none as it is now
    #[arg(long)]
    stale: bool,
    /// Only the mutants that survived, by docs/proof.tsv, of kernels that are as they were
    #[arg(long, conflicts_with_all = ["stale", "mutant", "every", "false_alarms"])]
    survivors: bool,
    /// Put the results into docs/proof.tsv, and the tables of all results there into docs/proof.md
    #[arg(long)]
    write: bool,
    /// Run nothing: put the tables of what docs/proof.tsv knows into docs/proof.md
    #[arg(long)]
    tables: bool,
}

/// Builds this program with the kernels in it, and runs it again.
#[cfg(not(feature = "proof"))]
pub(crate) fn run(_arguments: &Mutate) -> Result<(), crate::error::Error> {
    let mut command = vec!["run", "--release", "--quiet", "--package", "xtask", "--features", "proof", "--"];
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    command.extend(arguments.iter().map(String::as_str));
    crate::cargo::run(&command, |_| {})
}

#[cfg(feature = "proof")]
pub(crate) use proof::run;
