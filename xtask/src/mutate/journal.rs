//! What became of a kernel's mutants one by one, in a file, so that a run that is cut off goes on where it was.
//!
//! `target/mutants/<kernel>-<class>-<random schedules>-<program>.tsv` has a line for each mutant that is through: its number and the
//! fields of its [`Kind`], parted by tabs. *Program* is a digest of this very program: what another emulator found is nobody's.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::path::PathBuf;
use std::sync::Mutex;

use super::record::{self, Kind};
use crate::error::Error;

/// The mutants that are through.
pub(super) struct Journal {
    path: PathBuf,
    known: BTreeMap<usize, Kind>,
    file: Mutex<File>,
}

impl Journal {
    /// That of a kernel, with what an earlier run has left.
    pub(super) fn open(kernel: &str, class: u64, random: u64) -> Result<Self, Error> {
        let failed = |error| Error::Proof(format!("the journal of {kernel}: {error}"));
        let mut program = DefaultHasher::new();
        let path = std::env::current_exe().map_err(failed)?;
        std::fs::read(path).map_err(failed)?.hash(&mut program);
        let folder = record::root().join("target/mutants");
        std::fs::create_dir_all(&folder).map_err(failed)?;
        let path = folder.join(format!("{kernel}-{class:016x}-{random}-{:016x}.tsv", program.finish()));
        let mut file = OpenOptions::new().append(true).create(true).open(&path).map_err(failed)?;
        let text = std::fs::read_to_string(&path).map_err(failed)?;
        if !text.is_empty() && !text.ends_with('\n') {
            // Whoever wrote the last line did not come to its end.
            writeln!(file).map_err(failed)?;
        }
        let known = text.split_inclusive('\n').filter_map(line).collect();
        Ok(Self { path, known, file: Mutex::new(file) })
    }

    /// How many mutants are through.
    pub(super) fn len(&self) -> usize {
        self.known.len()
    }

    /// What became of a mutant: as an earlier run says, or by trying it.
    pub(super) fn kind(&self, index: usize, attempt: impl FnOnce() -> Kind) -> Result<Kind, Error> {
        if let Some(kind) = self.known.get(&index) {
            return Ok(kind.clone());
        }
        let kind = attempt();
        let mut file = self.file.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        writeln!(file, "{index}\t{kind}").map_err(|error| Error::Proof(format!("the journal: {error}")))?;
        Ok(kind)
    }

    /// Forgets all: the record has it.
    pub(super) fn remove(self) -> Result<(), Error> {
        std::fs::remove_file(&self.path)
            .map_err(|error| Error::Proof(format!("{}: {error}", self.path.display())))
    }
}

/// A whole line.
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
        let journal = Journal::open(&name, 1, 8).expect("a folder");
        assert_eq!(journal.kind(3, || kind(Outcome::Trap)).expect("room"), kind(Outcome::Trap));
        // A line that was cut off.
        write!(journal.file.lock().expect("nobody panicked"), "4\tbar.sync").expect("room");
        let journal = Journal::open(&name, 1, 8).expect("a folder");
        assert_eq!(journal.len(), 1);
        assert_eq!(journal.kind(3, || unreachable!("it is known")).expect("room"), kind(Outcome::Trap));
        assert_eq!(journal.kind(4, || kind(Outcome::Hang)).expect("room"), kind(Outcome::Hang));
        let journal = Journal::open(&name, 1, 8).expect("a folder");
        assert_eq!(journal.len(), 2);
        assert_eq!(Journal::open(&name, 2, 8).expect("a folder").len(), 0, "another class");
        Journal::open(&name, 2, 8).expect("a folder").remove().expect("it is there");
        journal.remove().expect("it is there");
    }
}
