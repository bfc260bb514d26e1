//! The record: a file with the results of each kernel's mutants, so that the tables can be made from many
//! runs.
//!
//! `docs/evidence/proof.tsv` has a block per kernel: `kernel <name> <class> <random schedules> <one in so many was drawn>`, then one line per
//! kind of statement, change and outcome, with the count. At the end it has one line per unbroken kernel:
//! `unbroken <name> <class> <schedules> <problems> <runs> <complaints>`. All fields are separated by tabs.

use core::fmt;
use core::fmt::Write as _;
use core::str::FromStr;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use ptx::mutate::Mutation;

use super::trial::Verdict;
use crate::error::Error;

/// The file of the record.
const FILE: &str = "docs/evidence/proof.tsv";

/// The result of a mutant, in the order of the table's columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Outcome {
    Refused,
    Trap,
    Hang,
    Livelock,
    WrongOutput,
    Equivalent,
    Survived,
}

impl Outcome {
    pub(super) const ALL: [Self; 7] = [
        Self::Refused,
        Self::Trap,
        Self::Hang,
        Self::Livelock,
        Self::WrongOutput,
        Self::Equivalent,
        Self::Survived,
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Trap => "trap",
            Self::Hang => "hang",
            Self::Livelock => "livelock",
            Self::WrongOutput => "wrong output",
            Self::Equivalent => "equivalent",
            Self::Survived => "survived",
        }
    }

    pub(super) const fn killed(self) -> bool {
        !matches!(self, Self::Equivalent | Self::Survived)
    }
}

/// Mutants that are counted together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Kind {
    pub(super) target: String,
    pub(super) change: String,
    pub(super) outcome: Outcome,
    /// For a killed mutant the schedule, for an equivalent one the name of the reason, for a survivor its
    /// description.
    pub(super) note: String,
}

/// The results of one kernel's mutants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) kernel: String,
    /// The class of the program's synchronisation when it ran.
    pub(super) class: u64,
    /// The number of random schedules per mutant, in addition to the repeating ones.
    pub(super) random: u64,
    /// One in so many mutants of each statement and change was drawn.
    pub(super) every: usize,
    pub(super) kinds: BTreeMap<Kind, usize>,
}

impl Kind {
    /// The kind of a mutant with a verdict.
    pub(super) fn of(mutation: &Mutation, verdict: &Verdict) -> Self {
        let (outcome, note) = match verdict {
            Verdict::Refused => (Outcome::Refused, String::new()),
            Verdict::Killed { by, schedule, .. } => (*by, format!("{:?}", schedule.0)),
            Verdict::Equivalent(reason) => (Outcome::Equivalent, (*reason).to_owned()),
            Verdict::Alive => (Outcome::Survived, mutation.to_string()),
        };
        Self { target: mutation.target.to_owned(), change: mutation.change.to_string(), outcome, note }
    }
}

/// Prints the fields, separated by tabs.
impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { target, change, outcome, note } = self;
        write!(f, "{target}\t{change}\t{}\t{note}", outcome.name())
    }
}

impl FromStr for Kind {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let fields: Vec<&str> = text.split('\t').collect();
        let [target, change, outcome, note] = fields[..] else { return Err(()) };
        let outcome = Outcome::ALL.into_iter().find(|known| known.name() == outcome).ok_or(())?;
        let [target, change, note] = [target, change, note].map(str::to_owned);
        Ok(Self { target, change, outcome, note })
    }
}

impl Row {
    pub(super) fn new(kernel: &str, class: u64, random: u64, results: Vec<Kind>) -> Self {
        let mut kinds = BTreeMap::new();
        for kind in results {
            *kinds.entry(kind).or_default() += 1;
        }
        Self { kernel: kernel.to_owned(), class, random, every: 1, kinds }
    }

    pub(super) fn count(&self, is: impl Fn(Outcome) -> bool) -> usize {
        self.kinds.iter().filter(|(kind, _)| is(kind.outcome)).map(|(_, count)| count).sum()
    }

    /// Whether a mutant of the same statement and change survived. (Its line may have another number since.)
    pub(super) fn has_survivor_like(&self, mutation: &Mutation) -> bool {
        self.changes_that_survived().contains(&(mutation.target.to_owned(), mutation.change.to_string()))
    }

    /// The row with the results of all mutants that are like survivors replaced by those in `tried`.
    pub(super) fn with_survivors_as(mut self, tried: Self) -> Self {
        let again = self.changes_that_survived();
        self.kinds.retain(|kind, _| !again.contains(&(kind.target.clone(), kind.change.clone())));
        self.kinds.extend(tried.kinds);
        self
    }

    /// The statements and changes of all survivors.
    fn changes_that_survived(&self) -> BTreeSet<(String, String)> {
        let survivors = self.kinds.keys().filter(|kind| kind.outcome == Outcome::Survived);
        survivors.map(|kind| (kind.target.clone(), kind.change.clone())).collect()
    }

    /// The kinds of mutants of another run that are killed, equivalent or alive where none of this row's of their statement and change is.
    pub(super) fn others<'r>(&'r self, other: &'r Self) -> impl Iterator<Item = &'r Kind> {
        let verdict = |kind: &Kind| if kind.outcome.killed() { None } else { Some(kind.outcome) };
        let known: BTreeSet<_> =
            self.kinds.keys().map(|kind| (&kind.target, &kind.change, verdict(kind))).collect();
        other.kinds.keys().filter(move |kind| !known.contains(&(&kind.target, &kind.change, verdict(kind))))
    }

    pub(super) fn survived(&self) -> usize {
        self.count(|outcome| outcome == Outcome::Survived)
    }
}

/// The results of one unbroken kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unbroken {
    pub(super) kernel: String,
    /// As in [`Row`].
    pub(super) class: u64,
    /// The number of schedules, including the repeating ones.
    pub(super) schedules: usize,
    pub(super) problems: usize,
    /// The number of all launches. The long problems do not run under every schedule.
    pub(super) runs: usize,
    /// The number of launches that trapped, hung or had a different output.
    pub(super) complaints: usize,
}

/// A kernel's name, and the class of its synchronisation.
pub(super) type Named<'a> = (&'a str, u64);

/// A result of a kernel.
pub(super) trait Known {
    fn of(&self) -> Named<'_>;
}

impl Known for Row {
    fn of(&self) -> Named<'_> {
        (&self.kernel, self.class)
    }
}

impl Known for Unbroken {
    fn of(&self) -> Named<'_> {
        (&self.kernel, self.class)
    }
}

/// The content of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) rows: Vec<Row>,
    pub(super) unbroken: Vec<Unbroken>,
}

/// The record as text.
fn print(record: &Record) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    for row in &record.rows {
        let _ = writeln!(text, "kernel\t{}\t{:016x}\t{}\t{}", row.kernel, row.class, row.random, row.every);
        for (kind, count) in &row.kinds {
            let _ = writeln!(text, "{kind}\t{count}");
        }
    }
    for Unbroken { kernel, class, schedules, problems, runs, complaints } in &record.unbroken {
        let _ =
            writeln!(text, "unbroken\t{kernel}\t{class:016x}\t{schedules}\t{problems}\t{runs}\t{complaints}");
    }
    text
}

/// Parses a record. The error names the first line that is not valid.
fn parse(text: &str) -> Result<Record, String> {
    let mut record = Record::default();
    for line in text.lines() {
        let bad = || format!("{FILE}: {line:?} is no line of the record");
        let number = |field: &str| field.parse::<usize>().map_err(|_| bad());
        let class = |field: &str| u64::from_str_radix(field, 16).map_err(|_| bad());
        let fields: Vec<&str> = line.split('\t').collect();
        match (fields.as_slice(), record.rows.last_mut()) {
            (["kernel", kernel, of, random, every], _) => record.rows.push(Row {
                kernel: (*kernel).to_owned(),
                class: class(of)?,
                random: random.parse().map_err(|_| bad())?,
                every: number(every)?,
                kinds: BTreeMap::new(),
            }),
            (["unbroken", kernel, of, schedules, problems, runs, complaints], _) => {
                record.unbroken.push(Unbroken {
                    kernel: (*kernel).to_owned(),
                    class: class(of)?,
                    schedules: number(schedules)?,
                    problems: number(problems)?,
                    runs: number(runs)?,
                    complaints: number(complaints)?,
                });
            }
            (_, Some(row)) => {
                let (kind, count) = line.rsplit_once('\t').ok_or_else(bad)?;
                row.kinds.insert(kind.parse().map_err(|()| bad())?, number(count)?);
            }
            (_, None) => return Err(bad()),
        }
    }
    Ok(record)
}

/// Loads the record.
pub(super) fn load() -> Result<Record, Error> {
    let text = std::fs::read_to_string(path(FILE))
        .map_err(|error| Error::Proof(format!("{FILE} could not be read: {error}")))?;
    parse(&text).map_err(Error::Proof)
}

/// Replaces the result of a kernel by a new one. Keeps the order of `names`, and drops kernels that are not
/// among them.
pub(super) fn merge<T: Known>(known: &mut Vec<T>, new: T, names: &[&str]) {
    known.retain(|row| row.of().0 != new.of().0);
    known.push(new);
    let place = |row: &T| names.iter().position(|name| *name == row.of().0);
    known.retain(|row| place(row).is_some());
    known.sort_by_key(place);
}

/// Writes the record atomically: a concurrent reader sees the old record or the new one.
pub(super) fn store(record: &Record) -> Result<(), Error> {
    let failed = |error| Error::Proof(format!("{FILE} could not be written: {error}"));
    let (file, next) = (path(FILE), path("docs/evidence/.proof.tsv.next"));
    std::fs::write(&next, print(record)).and_then(|()| std::fs::rename(&next, &file)).map_err(failed)
}

/// The root of the repository, relative to the current folder: the root itself, or this crate, where tests
/// run.
pub(super) fn root() -> &'static Path {
    Path::new(if Path::new("docs").is_dir() { "." } else { ".." })
}

/// A file of the repository.
pub(super) fn path(file: &str) -> PathBuf {
    root().join(file)
}

#[cfg(test)]
mod tests {
    use ptx::inst::BinaryOp;
    use ptx::mutate::Change;

    use super::*;

    fn row(kernel: &str, random: u64, count: usize) -> Row {
        let kind = |outcome, note: &str| Kind {
            target: "bar.sync".to_owned(),
            change: "id + 1".to_owned(),
            outcome,
            note: note.to_owned(),
        };
        let kinds = [(kind(Outcome::Trap, "Latest"), count), (kind(Outcome::Refused, ""), 1)];
        Row { kernel: kernel.to_owned(), class: 7, random, every: count, kinds: BTreeMap::from(kinds) }
    }

    fn unbroken(kernel: &str) -> Unbroken {
        Unbroken {
            kernel: kernel.to_owned(),
            class: 9,
            schedules: 204,
            problems: 7,
            runs: 1000,
            complaints: 0,
        }
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let rows = vec![row("one", 8, 3), row("two", 8, 5)];
        let record = Record { rows, unbroken: vec![unbroken("two"), unbroken("one")] };
        assert_eq!(parse(&print(&record)), Ok(record));
        for bad in [
            "kernel\tone\tx\t8\t1",
            "kernel\tone\t7\t8",
            "bar.sync\tid + 1\ttrap\t\t3",
            "kernel\tone\t7\t8\t1\nbar\tid\twent\t\t1",
            "unbroken\tone\t7\t204",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn survivors_are_tried_again_with_all_mutants_of_their_kind() {
        let kind = |change: &str, outcome, note: &str| Kind {
            target: "mapa".to_owned(),
            change: change.to_owned(),
            outcome,
            note: note.to_owned(),
        };
        let row = |kinds: &[(Kind, usize)]| Row {
            kernel: "one".to_owned(),
            class: 7,
            random: 8,
            every: 1,
            kinds: kinds.iter().cloned().collect(),
        };
        let (rank, deleted) = (Change::Operand { name: "rank", op: BinaryOp::Xor, by: 1 }, Change::Delete);
        let mutation = |change| Mutation {
            target: "mapa",
            change,
            scopes: Vec::new(),
            site: ptx::SourceSite::caller(),
            index: 0,
            within: None,
        };
        let trap = |change| kind(change, Outcome::Trap, "Default");
        let survivor = kind("rank ^ 1", Outcome::Survived, "mapa at line 1");
        let before = row(&[(trap("rank ^ 1"), 5), (trap("deleted"), 3), (survivor, 2)]);
        assert!(before.has_survivor_like(&mutation(rank)) && !before.has_survivor_like(&mutation(deleted)));
        let tried = row(&[(trap("rank ^ 1"), 6), (kind("rank ^ 1", Outcome::Equivalent, "same"), 1)]);
        let after = before.with_survivors_as(tried.clone());
        assert_eq!((after.survived(), after.count(|_| true)), (0, 10));
        let all: BTreeMap<_, _> = row(&[(trap("deleted"), 3)]).kinds.into_iter().chain(tried.kinds).collect();
        assert_eq!(after.kinds, all);
    }

    #[test]
    fn new_rows_replace_those_of_the_same_kernel() {
        let mut known = vec![row("one", 8, 3), row("gone", 8, 4), row("two", 8, 5)];
        for new in [row("one", 8, 9), row("three", 8, 1)] {
            merge(&mut known, new, &["two", "one", "three"]);
        }
        assert_eq!(known, [row("two", 8, 5), row("one", 8, 9), row("three", 8, 1)]);
    }
}
