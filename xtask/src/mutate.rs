//! `cargo xtask mutate`: the mutation proof that the emulator finds broken synchronisation.
//!
//! Kernels are broken in each way that [`ptx::mutate`] knows, one statement at a time. Each mutant runs on
//! the emulator under several schedules. A mutant that behaves as the original kernel is either equivalent,
//! for a reason that `falchion::verify::equivalent` states and checks, or it has survived, which is a gap in the
//! proof.
//!
//! The task needs the kernels and the emulator with optimisation. So it builds this program again, in release
//! and with the feature `proof`, and passes the arguments on.

#[cfg(feature = "proof")]
mod class;
#[cfg(feature = "proof")]
mod extra;
#[cfg(feature = "proof")]
mod fused;
#[cfg(feature = "proof")]
mod journal;
#[cfg(feature = "proof")]
mod preparations;
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

/// Which kernels and mutants to run, and under how many schedules.
#[derive(Debug, Default, Args)]
pub(crate) struct Mutate {
    /// Run only kernels whose names contain this text; repeatable
    #[arg(long)]
    kernel: Vec<String>,
    /// Number of random schedules per mutant, in addition to the fixed ones
    #[arg(long, default_value_t = 8)]
    schedules: u64,
    /// Run the unbroken kernels instead, under this number of random schedules, and expect no fault
    #[arg(long)]
    false_alarms: Option<u64>,
    /// Run only mutants whose descriptions contain this text, for example `bar.sync id + 1`; not with --write
    #[arg(long)]
    mutant: Option<String>,
    /// Run only every n-th mutant; with --write only with --seed
    #[arg(long, default_value_t = 1, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..))]
    every: usize,
    /// Draw one in --every mutants of each statement and change with this seed. Without --write: of the kernels that
    /// docs/evidence/proof.tsv has, and fail for a verdict that it does not have there
    #[arg(long, conflicts_with_all = ["mutant", "false_alarms"])]
    seed: Option<u64>,
    /// Number of host threads [default: all processors]
    #[arg(long)]
    jobs: Option<usize>,
    /// Run only one kernel of each class that has no result in docs/evidence/proof.tsv
    #[arg(long)]
    stale: bool,
    /// Run only mutants of the statements and changes that survived according to docs/evidence/proof.tsv, of kernels that have
    /// not changed since
    #[arg(long, conflicts_with_all = ["stale", "mutant", "every", "seed", "false_alarms"])]
    survivors: bool,
    /// Write the results to docs/evidence/proof.tsv, and the tables of all results to docs/evidence/proof.md
    #[arg(long)]
    write: bool,
    /// Run nothing; write the tables of the results in docs/evidence/proof.tsv to docs/evidence/proof.md
    #[arg(long)]
    tables: bool,
}

/// Builds this program with the feature `proof` and runs it with the same arguments.
#[cfg(not(feature = "proof"))]
pub(crate) fn run(_arguments: &Mutate) -> Result<(), crate::error::Error> {
    let mut command = vec!["run", "--release", "--quiet", "--package", "xtask", "--features", "proof", "--"];
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    command.extend(arguments.iter().map(String::as_str));
    crate::cargo::run(&command, |_| {})
}

#[cfg(feature = "proof")]
pub(crate) use proof::run;
