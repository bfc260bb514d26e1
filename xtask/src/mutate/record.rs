//! What became of each kernel's mutants, in a file, so that tables can be made from many runs.
//!
//! `docs/proof.tsv` holds a block for each kernel: `kernel <name> <fingerprint> <random schedules>`, then a line for each
//! way to break a kind of statement and what came of it, with how often. All fields are parted by tabs.

use core::fmt::Write as _;
use std::collections::BTreeMap;

use ptx::mutate::Mutation;

use super::trial::Verdict;
use crate::error::Error;

/// Where the record is kept.
const FILE: &str = "docs/proof.tsv";

/// How a mutant ended, in the order of the table's columns.
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
    /// For a killed one, the schedule; for an equivalent one, the name of the reason; for a survivor, where it is.
    pub(super) note: String,
}

/// What became of one kernel's mutants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) kernel: String,
    /// Of the program and its list of mutants.
    pub(super) fingerprint: u64,
    /// Random schedules that each mutant was tried under, beside the repeating ones.
    pub(super) random: u64,
    pub(super) kinds: BTreeMap<Kind, usize>,
}

impl Row {
    pub(super) fn new(kernel: &str, fingerprint: u64, random: u64, results: &[(Mutation, Verdict)]) -> Self {
        let mut kinds = BTreeMap::new();
        for (mutation, verdict) in results {
            let (outcome, note) = match verdict {
                Verdict::Refused => (Outcome::Refused, String::new()),
                Verdict::Killed { by, schedule, .. } => (*by, format!("{:?}", schedule.0)),
                Verdict::Equivalent(reason) => (Outcome::Equivalent, (*reason).to_owned()),
                Verdict::Alive => (Outcome::Survived, mutation.to_string()),
            };
            let (target, change) = (mutation.target.to_owned(), mutation.change.to_string());
            *kinds.entry(Kind { target, change, outcome, note }).or_default() += 1;
        }
        Self { kernel: kernel.to_owned(), fingerprint, random, kinds }
    }

    pub(super) fn count(&self, is: impl Fn(Outcome) -> bool) -> usize {
        self.kinds.iter().filter(|(kind, _)| is(kind.outcome)).map(|(_, count)| count).sum()
    }

    pub(super) fn survived(&self) -> usize {
        self.count(|outcome| outcome == Outcome::Survived)
    }
}

/// FNV-1a, 64 bits.
pub(super) fn fingerprint(text: &str, mutations: &[Mutation]) -> u64 {
    let mut whole = text.to_owned();
    for Mutation { target, change, index, .. } in mutations {
        let _ = write!(whole, "{target} {change} {index};");
    }
    whole.bytes().fold(0xCBF2_9CE4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3)
    })
}

/// Rows as text.
fn print(rows: &[Row]) -> String {
    let mut text = String::new();
    for row in rows {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "kernel\t{}\t{:016x}\t{}", row.kernel, row.fingerprint, row.random);
        for (Kind { target, change, outcome, note }, count) in &row.kinds {
            let _ = writeln!(text, "{target}\t{change}\t{}\t{note}\t{count}", outcome.name());
        }
    }
    text
}

/// Rows from text, or the first line that is none.
fn parse(text: &str) -> Result<Vec<Row>, String> {
    let mut rows: Vec<Row> = Vec::new();
    for line in text.lines() {
        let bad = || format!("{FILE}: {line:?} is no line of the record");
        let fields: Vec<&str> = line.split('\t').collect();
        match (fields.as_slice(), rows.last_mut()) {
            (["kernel", kernel, fingerprint, random], _) => rows.push(Row {
                kernel: (*kernel).to_owned(),
                fingerprint: u64::from_str_radix(fingerprint, 16).map_err(|_| bad())?,
                random: random.parse().map_err(|_| bad())?,
                kinds: BTreeMap::new(),
            }),
            ([target, change, outcome, note, count], Some(row)) => {
                let outcome = Outcome::ALL.into_iter().find(|known| known.name() == *outcome);
                let [target, change, note] = [target, change, note].map(|field| (*field).to_owned());
                let kind = Kind { target, change, outcome: outcome.ok_or_else(bad)?, note };
                row.kinds.insert(kind, count.parse().map_err(|_| bad())?);
            }
            _ => return Err(bad()),
        }
    }
    Ok(rows)
}

/// The rows of all runs so far.
pub(super) fn load() -> Result<Vec<Row>, Error> {
    let text = std::fs::read_to_string(FILE)
        .map_err(|error| Error::Proof(format!("{FILE} could not be read: {error}")))?;
    parse(&text).map_err(Error::Proof)
}

/// Puts rows in the place of those of the same kernels, keeps the order of `names`, and drops what is in it no more.
pub(super) fn merge(known: Vec<Row>, new: &[Row], names: &[String]) -> Vec<Row> {
    let mut rows = known;
    rows.retain(|row| !new.iter().any(|other| other.kernel == row.kernel));
    rows.extend(new.iter().cloned());
    let place = |row: &Row| names.iter().position(|name| *name == row.kernel);
    rows.retain(|row| place(row).is_some());
    rows.sort_by_key(place);
    rows
}

/// Writes the record.
pub(super) fn store(rows: &[Row]) -> Result<(), Error> {
    let failed = |error| Error::Proof(format!("{FILE} could not be written: {error}"));
    std::fs::write(FILE, print(rows)).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(kernel: &str, random: u64, count: usize) -> Row {
        let kind = |outcome, note: &str| Kind {
            target: "bar.sync".to_owned(),
            change: "id + 1".to_owned(),
            outcome,
            note: note.to_owned(),
        };
        let kinds = [(kind(Outcome::Trap, "Latest"), count), (kind(Outcome::Refused, ""), 1)];
        Row { kernel: kernel.to_owned(), fingerprint: 7, random, kinds: BTreeMap::from(kinds) }
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let rows = vec![row("one", 8, 3), row("two", 8, 5)];
        assert_eq!(parse(&print(&rows)), Ok(rows));
        for bad in
            ["kernel\tone\tx\t8", "bar.sync\tid + 1\ttrap\t\t3", "kernel\tone\t7\t8\nbar\tid\twent\t\t1"]
        {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn new_rows_replace_those_of_the_same_kernel() {
        let names = ["two", "one", "three"].map(str::to_owned);
        let known = vec![row("one", 8, 3), row("gone", 8, 4), row("two", 8, 5)];
        let merged = merge(known, &[row("one", 8, 9), row("three", 8, 1)], &names);
        assert_eq!(merged, [row("two", 8, 5), row("one", 8, 9), row("three", 8, 1)]);
    }
}
