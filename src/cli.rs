//! The command line, for any families of kernels: the program `falchion` is [`run`] without more than the library's own.
//!
//! Exit codes: 0 success, 1 a wrong result, 2 bad usage or an environment that cannot do what was asked, 141
//! the reader of standard output closed it.
//!
//! A crate with a family of its own gets every command that `--family` has, `plan`, `emit`, `verify`, `trace`, `bench`, `tune` and
//! `explore`, by a program of a few lines:
//!
//! ```no_run
//! use falchion::cli::{self, AnyFamily};
//! # use falchion::attention::Attention as Mine;
//!
//! fn main() -> std::process::ExitCode {
//!     cli::run(&[AnyFamily::of::<Mine>()])
//! }
//! ```
// The macros panic where standard output cannot be written: see `output`.
#![deny(clippy::print_stdout, clippy::print_stderr)]

#[macro_use]
mod failure;

mod bench;
mod cache;
mod calibrate;
mod call;
mod catalogue;
mod check;
mod elsewhere;
mod engine;
mod explore;
mod family;
mod files;
mod gemm;
mod layout;
mod memory;
mod named;
mod numbers;
mod options;
mod output;
mod packed;
mod scales;
mod schedule;
mod svg;
mod trace;
mod types;
mod verify;
mod weights;

use std::io::Write;
use std::process::ExitCode;

use failure::Failure;
use options::{Given, Verb};

pub use family::AnyFamily;

/// A command of the command line.
#[derive(Clone, Copy)]
struct Command {
    verb: Verb,
    /// The first paragraph is what the list of commands shows.
    about: &'static str,
    examples: &'static str,
    run: fn(&Given) -> Result<(), Failure>,
}

const ABOUT: &str = "GEMM kernels for Hopper as Rust types: run, check, print and time them.

Only `bench`, `tune` and `calibrate` need a GPU; the other commands also run without one, in the emulator. Exit codes: 0 success, 1 a \
wrong result, 2 bad usage or an environment that cannot do what was asked, 141 the reader of standard output closed it. \
A file that is written may be `-`, standard output; the report then goes to standard error.";

const COMMANDS: &[Command] = &[
    gemm::COMMAND,
    catalogue::CONFIGS,
    catalogue::PLAN,
    catalogue::EMIT,
    verify::COMMAND,
    check::COMMAND,
    trace::COMMAND,
    bench::COMMAND,
    bench::tune::COMMAND,
    calibrate::COMMAND,
    bench::chart::COMMAND,
    bench::compilers::COMMAND,
    layout::COMMAND,
    schedule::COMMAND,
    explore::COMMAND,
    cache::COMMAND,
];

impl Command {
    /// clap's definition of the command.
    fn definition(&self) -> clap::Command {
        let command = described(clap::Command::new(self.verb.name()), self.about);
        let command = command.args(options::args(self.verb)).after_help(self.examples);
        let command = command.hide(self.verb == Verb::COMPILE);
        if self.verb == Verb::CACHE {
            return command.subcommands([cache::TRIM, cache::CLEAR].map(|of| of.definition()));
        }
        if self.verb == Verb::LAYOUT { command.after_long_help(layout::help()) } else { command }
    }

    /// Runs the command for the family that was given.
    fn begin(&self, given: &Given) -> Result<(), Failure> {
        family::command(given, self.verb).unwrap_or(self.run)(given)
    }

    /// Runs the command, or its own command.
    fn run(&self, matches: &clap::ArgMatches) -> Result<(), Failure> {
        let own = matches.subcommand();
        let own = own.and_then(|(name, of)| {
            [cache::TRIM, cache::CLEAR].into_iter().find(|own| own.verb.name() == name).zip(Some(of))
        });
        if let Some((command, matches)) = own {
            return command.run(matches);
        }
        let given = Given::new(self.verb, matches.clone())?;
        output::redirect(&given)?;
        self.begin(&given)?;
        // Each command has refused what it does not take before it began. This finds a command that did not.
        given.finish(&format!("`falchion {}`", self.verb.name()))
    }
}

/// A command with its description: short, its first paragraph; long, all of it.
fn described(command: clap::Command, about: &'static str) -> clap::Command {
    let first = about.split("\n\n").next().unwrap_or(about);
    command.about(first.trim_end_matches('.')).long_about(about)
}

/// clap's definition of the command line.
fn definition() -> clap::Command {
    let cli = described(clap::Command::new("falchion"), ABOUT);
    let cli = cli.version(env!("CARGO_PKG_VERSION")).max_term_width(110);
    cli.subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands(COMMANDS.iter().map(Command::definition))
}

/// Runs the command of the process's arguments. `--family` takes the library's own families, and these. The first call says which they
/// are.
///
/// The exit code is 0 after success, 1 for a wrong result, 2 for bad usage or an environment that cannot do what was asked, and 141 if
/// the reader of standard output closed it.
pub fn run(families: &[AnyFamily]) -> ExitCode {
    family::register(families);
    if let Some(there) = elsewhere::run() {
        return there.unwrap_or_else(Failure::report);
    }
    let matches = match output::parse(definition()) {
        Ok(matches) => matches,
        Err(code) => return code,
    };
    let command = matches.subcommand().and_then(|(name, of)| {
        COMMANDS.iter().find(|command| command.verb.name() == name).map(|command| (command, of))
    });
    let result = command.map_or(Ok(()), |(command, matches)| command.run(matches));
    match result.and_then(|()| Ok(output::out().flush()?)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
