//! `cargo xtask shape`: the shape of the code in numbers, and that none of them steps back.
//!
//! Lines say little about code; what a change has to touch says more. The table `xtask/shape.toml` has each measure with its last
//! value and the wanted one. A value that is worse than the committed one fails, and so does a better one until it is written down
//! with `--write`: what is committed is always true. The kinds of measures:
//!
//! - *Lists* (`shape/lists.rs`): the items in which a new parameter of a kernel must be stated by hand.
//! - *Own arithmetic* (`shape/own.rs`): the part of a family's code that no other family writes again.
//! - *Traits and tools* (`shape/roles.rs`): what one implements for a role, and what a family from outside gets.
//! - *Entries* (`shape/entries.rs`): harnesses, grammars, ways to launch, and models of epilogues, each of which should be one.
//! - *Counts* (`shape/counts.rs`): names public in two places, long functions, macros, `expect` in emitters.
//! - *Patches* (`shape/patch.rs`, `shape/trial.rs`): canonical changes as patches, by the number of shipped files that each touches.
//!   A *walk* is such a patch that gives a datum a type of its own. `cargo xtask shape` counts the files of each patch and checks
//!   that it applies; with `--patches` it also builds them: the patch's test must fail without the change and pass with it.
//!
//! Only shipped code counts (`shape/sources.rs`): no tests, examples, benchmarks, or tasks. Lines are lines of code
//! (`shape/code.rs`): blank lines, comments and documentation are none.
//!
//! It reads code with `syn`, which other tasks do not need: the task runs this program again with the feature `shape`.

#[cfg(feature = "shape")]
mod code;
#[cfg(feature = "shape")]
mod counts;
#[cfg(feature = "shape")]
mod entries;
#[cfg(feature = "shape")]
mod lists;
#[cfg(feature = "shape")]
mod measured;
#[cfg(feature = "shape")]
mod own;
#[cfg(feature = "shape")]
mod patch;
#[cfg(feature = "shape")]
mod roles;
#[cfg(feature = "shape")]
mod sources;
#[cfg(feature = "shape")]
mod table;
#[cfg(feature = "shape")]
mod taken;
#[cfg(feature = "shape")]
mod trial;

use clap::Args;

#[cfg(feature = "shape")]
pub(crate) use measured::{check, run};

/// The options of `cargo xtask shape`.
#[derive(Debug, Args)]
pub(crate) struct Shape {
    /// Write the values of today into the table
    #[arg(long, conflicts_with = "patches")]
    write: bool,
    /// Show what was counted, of the measures whose names contain this text (of all, if it is empty)
    #[arg(long, value_name = "TEXT", num_args = 0..=1, default_missing_value = "")]
    list: Option<String>,
    /// Build the patches, and run the test of each without its change and with it; of these names, or all
    #[arg(long, value_name = "NAME", num_args = 0..)]
    patches: Option<Vec<String>>,
    /// Build one patch, drawn by the commit
    #[arg(long, requires = "patches")]
    drawn: bool,
}

/// Builds this program with the feature `shape` and runs it with the same arguments.
#[cfg(not(feature = "shape"))]
pub(crate) fn run(_options: &Shape) -> Result<(), crate::error::Error> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    again(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Measures all but the trials of patches, and prints the table.
///
/// # Errors
/// A measure steps back, or ahead of what is written down.
#[cfg(not(feature = "shape"))]
pub(crate) fn check() -> Result<(), crate::error::Error> {
    again(&["shape"])
}

#[cfg(not(feature = "shape"))]
fn again(arguments: &[&str]) -> Result<(), crate::error::Error> {
    let mut command = vec!["run", "--quiet", "--package", "xtask", "--features", "shape", "--"];
    command.extend(arguments);
    crate::cargo::run(&command, |_| {})
}
