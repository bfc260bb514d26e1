//! The journal: a file with the result of each mutant of a kernel, so that an interrupted run can be resumed.
//!
//! `target/mutants/<kernel>-<class>-<random schedules>-<every>-<seed>-<program>.tsv` has one line per finished mutant: its
//! number and the fields of its [`Kind`], separated by tabs. *Program* is a digest of the xtask program:
//! results of another build are not used.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::path::PathBuf;
use std::sync::Mutex;

use super::record::{self, Kind};
use crate::error::Error;

/// The results of finished mutants.
pub(super) struct Journal {
    path: PathBuf,
    known: BTreeMap<usize, Kind>,
    file: Mutex<File>,
}

impl Journal {
    /// Opens the journal of a kernel, with the results of an interrupted run.
    pub(super) fn open(
        kernel: &str,
        class: u64,
        random: u64,
        (every, seed): (usize, Option<u64>),
    ) -> Result<Self, Error> {
        let failed = |error| Error::Proof(format!("the journal of {kernel}: {error}"));
        let mut program = DefaultHasher::new();
        let path = std::env::current_exe().map_err(failed)?;
        std::fs::read(path).map_err(failed)?.hash(&mut program);
        let folder = record::root().join("target/mutants");
        std::fs::create_dir_all(&folder).map_err(failed)?;
        let path = folder.join(format!(
            "{kernel}-{class:016x}-{random}-{every}-{}-{:016x}.tsv",
            seed.unwrap_or(0),
            program.finish()
        ));
        let mut file = OpenOptions::new().append(true).create(true).open(&path).map_err(failed)?;
        let text = std::fs::read_to_string(&path).map_err(failed)?;
        if !text.is_empty() && !text.ends_with('\n') {
            // The last line is incomplete: the run was interrupted.
            writeln!(file).map_err(failed)?;
        }
        let known = text.split_inclusive('\n').filter_map(line).collect();
        Ok(Self { path, known, file: Mutex::new(file) })
    }

    /// The number of finished mutants.
    pub(super) fn len(&self) -> usize {
        self.known.len()
    }

    /// The result of a mutant, from the journal or else from `attempt`.
    pub(super) fn kind(&self, index: usize, attempt: impl FnOnce() -> Kind) -> Result<Kind, Error> {
        if let Some(kind) = self.known.get(&index) {
            return Ok(kind.clone());
        }
        let kind = attempt();
        let mut file = self.file.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        writeln!(file, "{index}\t{kind}").map_err(|error| Error::Proof(format!("the journal: {error}")))?;
        Ok(kind)
    }

    /// Deletes the journal, after the results have been written to the record.
    pub(super) fn remove(self) -> Result<(), Error> {
        std::fs::remove_file(&self.path)
            .map_err(|error| Error::Proof(format!("{}: {error}", self.path.display())))
    }
}

/// Parses a complete line.
fn line(text: &str) -> Option<(usize, Kind)> {
    let (index, kind) = text.strip_suffix('\n')?.split_once('\t')?;
    Some((index.parse().ok()?, kind.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mutate::record::Outcome;

    #[test]
    fn what_is_through_is_not_tried_again() {
        let kind = |outcome| Kind {
            target: "bar.sync".into(),
            change: "deleted".into(),
            outcome,
            note: "Default".into(),
        };
        let name = format!("test-{}", std::process::id());
        let journal = Journal::open(&name, 1, 8, (1, None)).expect("a folder");
        assert_eq!(journal.kind(3, || kind(Outcome::Trap)).expect("room"), kind(Outcome::Trap));
        // A line that was cut off.
        write!(journal.file.lock().expect("nobody panicked"), "4\tbar.sync").expect("room");
        let journal = Journal::open(&name, 1, 8, (1, None)).expect("a folder");
        assert_eq!(journal.len(), 1);
        assert_eq!(journal.kind(3, || unreachable!("it is known")).expect("room"), kind(Outcome::Trap));
        assert_eq!(journal.kind(4, || kind(Outcome::Hang)).expect("room"), kind(Outcome::Hang));
        let journal = Journal::open(&name, 1, 8, (1, None)).expect("a folder");
        assert_eq!(journal.len(), 2);
        assert_eq!(Journal::open(&name, 2, 8, (1, None)).expect("a folder").len(), 0, "another class");
        Journal::open(&name, 2, 8, (1, None)).expect("a folder").remove().expect("it is there");
        journal.remove().expect("it is there");
    }
}
