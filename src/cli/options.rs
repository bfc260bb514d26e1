//! The options of every command: [`table`] lists them once, clap's definitions are made from it, and [`Given`]
//! reads what was given.
//!
//! No option is ignored. A command takes each option from [`Given`] where it uses it, and calls
//! [`Given::finish`] before it works: an option that was given and not taken is refused by name. What leaves an option
//! without effect says so by [`Given::unused`], where it decides.

mod layout;
#[cfg(test)]
mod page;
mod table;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use clap::builder::ValueParser;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches};

use crate::cli::{Failure, output};

/// A command that has options, by the words of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Verb(pub(crate) &'static str);

/// Commands whose options, or whose commands for families, are in tables.
impl Verb {
    pub(crate) const GEMM: Self = Self("gemm");
    pub(crate) const CONFIGS: Self = Self("configs");
    pub(crate) const PLAN: Self = Self("plan");
    pub(crate) const EMIT: Self = Self("emit");
    pub(crate) const VERIFY: Self = Self("verify");
    pub(crate) const CHECK: Self = Self("check");
    pub(crate) const TRACE: Self = Self("trace");
    pub(crate) const BENCH: Self = Self("bench");
    pub(crate) const TUNE: Self = Self("tune");
    pub(crate) const CALIBRATE: Self = Self("calibrate");
    pub(crate) const CHART: Self = Self("chart");
    pub(crate) const COMPILE: Self = Self("compile");
    pub(crate) const LAYOUT: Self = Self("layout");
    pub(crate) const SCHEDULE: Self = Self("schedule");
    pub(crate) const EXPLORE: Self = Self("explore");
    pub(crate) const CACHE: Self = Self("cache");
    pub(crate) const TRIM: Self = Self("trim");
    pub(crate) const CLEAR: Self = Self("clear");

    /// The words of the command.
    pub(crate) const fn name(self) -> &'static str {
        self.0
    }
}

/// The value of an option that is not given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Preset {
    /// The option is then not there.
    None,
    /// This text is read.
    Is(&'static str),
    /// What the command does then, in words.
    Says(&'static str),
}

/// How often an option can be given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Many {
    /// Once.
    Once,
    /// Several times, one value each.
    Repeated,
    /// Several times, and each time with values that commas separate.
    List,
    /// Once, without its name.
    Positional,
    /// Several times, without its name.
    Positionals,
}

/// An option: one row of the table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    /// The name without dashes.
    pub(crate) name: &'static str,
    pub(crate) short: Option<char>,
    /// What the help calls the value; empty for a switch.
    pub(crate) value: &'static str,
    pub(crate) parser: fn() -> ValueParser,
    /// Whether a value may begin with a dash, as negative numbers do.
    pub(crate) signed: bool,
    pub(crate) many: Many,
    /// The unit of a number; empty if it has none.
    pub(crate) unit: &'static str,
    pub(crate) help: &'static str,
    /// The commands that take it, each with its default.
    pub(crate) takes: &'static [(Verb, Preset)],
    /// One of these must be given too, in commands that have one of them.
    pub(crate) needs: &'static [&'static str],
    /// None of these can be given too.
    pub(crate) excludes: &'static [&'static str],
}

impl Row {
    fn default(&self, verb: Verb) -> Option<Preset> {
        self.takes.iter().find(|(of, _)| *of == verb).map(|(_, default)| *default)
    }

    /// Whether values stand alone, without its name.
    fn is_positional(&self) -> bool {
        matches!(self.many, Many::Positional | Many::Positionals)
    }

    /// The name as it is typed.
    fn flag(&self) -> String {
        if self.is_positional() { self.value.to_owned() } else { format!("--{}", self.name) }
    }

    fn arg(&self, default: Preset) -> Arg {
        let mut help = self.help.to_owned();
        match self.many {
            Many::Repeated => help += " Repeatable.",
            Many::List => help += " Comma-separated or repeated.",
            Many::Once | Many::Positional | Many::Positionals => {}
        }
        if !self.unit.is_empty() {
            help += &format!(" [unit: {}]", self.unit);
        }
        if let Preset::Says(words) = default {
            help += &format!(" [default: {words}]");
        }
        let arg = Arg::new(self.name).help(help);
        let arg = match (self.is_positional(), self.short) {
            (true, _) => arg,
            (false, None) => arg.long(self.name),
            (false, Some(short)) => arg.long(self.name).short(short),
        };
        if self.value.is_empty() {
            return arg.action(ArgAction::SetTrue);
        }
        // Every value may be a negative number, so that the error is about the value.
        let arg = arg.value_name(self.value).value_parser((self.parser)()).allow_negative_numbers(true);
        let arg = arg.allow_hyphen_values(self.signed);
        let arg = match self.many {
            Many::Once | Many::Positional => arg,
            Many::Repeated | Many::Positionals => arg.action(ArgAction::Append),
            Many::List => arg.action(ArgAction::Append).value_delimiter(','),
        };
        if let Preset::Is(value) = default { arg.default_value(value) } else { arg }
    }
}

/// The options of a command.
fn rows(verb: Verb) -> impl Iterator<Item = &'static Row> {
    table::ROWS.iter().filter(move |row| row.default(verb).is_some())
}

/// clap's definitions of a command's options.
pub(crate) fn args(verb: Verb) -> Vec<Arg> {
    rows(verb).filter_map(|row| Some(row.arg(row.default(verb)?))).collect()
}

/// The options of one run.
#[derive(Debug)]
pub(crate) struct Given {
    verb: Verb,
    matches: ArgMatches,
    /// Whether D is column-major.
    turned: bool,
    taken: Mutex<BTreeSet<&'static str>>,
    /// Why an option has no effect.
    reasons: Mutex<BTreeMap<&'static str, String>>,
    /// Whether the command ends where it would begin to work.
    #[cfg(test)]
    dry: bool,
}

impl Given {
    /// # Errors
    /// An option needs another one, or excludes another one.
    pub(crate) fn new(verb: Verb, matches: ArgMatches) -> Result<Self, Failure> {
        let mut given = Self {
            verb,
            matches,
            turned: false,
            taken: Mutex::default(),
            reasons: Mutex::default(),
            #[cfg(test)]
            dry: false,
        };
        for row in rows(verb).filter(|row| given.has(row.name)) {
            let other = |name: &&&str| given.has(name);
            if let Some(other) = row.excludes.iter().find(other) {
                refuse!("{} cannot be used with --{other}", row.flag());
            }
            let needs: Vec<&str> =
                row.needs.iter().copied().filter(|name| rows(verb).any(|of| of.name == *name)).collect();
            if !needs.is_empty() && !needs.iter().any(|name| given.has(name)) {
                let needs: Vec<String> = needs.iter().map(|name| format!("--{name}")).collect();
                refuse!("{} needs {}", row.flag(), needs.join(" or "));
            }
        }
        given.turned = given.turns()?;
        Ok(given)
    }

    /// Whether the option was given. This does not take it.
    pub(crate) fn has(&self, name: &str) -> bool {
        rows(self.verb).any(|row| row.name == name)
            && self.matches.value_source(name) == Some(ValueSource::CommandLine)
    }

    /// The option that is read for this one.
    fn read<'n>(&self, name: &'n str) -> &'n str {
        if self.turned { layout::exchanged(name) } else { name }
    }

    fn take(&self, name: &str) {
        if let Some(row) = rows(self.verb).find(|row| row.name == name) {
            self.taken.lock().unwrap_or_else(PoisonError::into_inner).insert(row.name);
        }
    }

    /// Takes an option.
    pub(crate) fn get<T: Clone + Send + Sync + 'static>(&self, name: &str) -> Option<T> {
        let name = self.read(name);
        self.take(name);
        self.matches.get_one(name).cloned()
    }

    /// Takes an option that has a default.
    pub(crate) fn value<T: Clone + Default + Send + Sync + 'static>(&self, name: &str) -> T {
        self.get(name).unwrap_or_default()
    }

    /// Takes an option that can be given several times.
    pub(crate) fn list<T: Clone + Send + Sync + 'static>(&self, name: &str) -> Vec<T> {
        self.take(name);
        self.matches.get_many(name).into_iter().flatten().cloned().collect()
    }

    /// Takes a switch.
    pub(crate) fn flag(&self, name: &str) -> bool {
        self.value(name)
    }

    /// Whether the file that an option names is standard output. This does not take it.
    pub(crate) fn writes_stdout(&self, name: &str) -> bool {
        let file = || self.matches.get_one::<PathBuf>(name);
        self.has(name) && file().is_some_and(|file| output::is_stdout(file))
    }

    /// The first of some options that was given. This does not take it.
    pub(crate) fn first<'n>(&self, names: &[&'n str]) -> Option<&'n str> {
        names.iter().copied().find(|name| self.has(name))
    }

    /// Says what an option cannot be used with, and why it then has no effect. [`finish`](Self::finish) refuses it if it was given.
    pub(crate) fn unused(&self, name: &'static str, with: impl Into<String>) {
        self.reasons.lock().unwrap_or_else(PoisonError::into_inner).insert(name, with.into());
    }

    /// Refuses every option that was given and not taken. `with` is what it cannot be used with, unless
    /// [`unused`](Self::unused) said it.
    pub(crate) fn finish(&self, with: &str) -> Result<(), Failure> {
        let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let left: Vec<&Row> =
            rows(self.verb).filter(|row| self.has(row.name) && !taken.contains(row.name)).collect();
        #[cfg(test)]
        if left.is_empty() && self.dry {
            return Err(Failure::Closed);
        }
        if left.is_empty() {
            return Ok(());
        }
        let reasons = self.reasons.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((row, why)) = left.iter().find_map(|row| Some((row, reasons.get(row.name)?))) {
            return Err(usage!("{} cannot be used with {why}: leave it out", row.flag()));
        }
        let words = if left.len() == 1 { "it" } else { "them" };
        let left: Vec<String> = left.into_iter().map(Row::flag).collect();
        Err(usage!("{} cannot be used with {with}: leave {words} out", left.join(", ")))
    }
}

#[cfg(test)]
mod tests;
