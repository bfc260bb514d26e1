//! Counts skipped tests: tests that need something that is missing, such as a GPU. They pass and report that
//! they were skipped.

use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::PathBuf;

use crate::cargo;
use crate::error::Error;

/// The environment variable with the path of the file to which each skipped test writes a line.
pub(crate) const VARIABLE: &str = "FALCHION_SKIPPED";

/// The file of one run; empty at first.
#[derive(Debug)]
pub(crate) struct Skipped(PathBuf);

impl Skipped {
    /// Empties the file of an earlier run.
    pub(crate) fn begin() -> Result<Self, Error> {
        let path = path()?;
        let emptied = path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(&path, ""));
        match emptied {
            Ok(()) => Ok(Self(path)),
            Err(source) => Err(Error::CannotWrite { path, source }),
        }
    }

    pub(crate) fn path(&self) -> &OsStr {
        self.0.as_os_str()
    }

    /// The summary at the end of the run.
    pub(crate) fn report(&self) -> String {
        summary(&fs::read_to_string(&self.0).unwrap_or_default())
    }
}

/// Adds tests that this program itself has skipped, as tests that write beside it do.
pub(crate) fn add(tests: &str, reason: &str) -> Result<(), Error> {
    let path = path()?;
    let file = OpenOptions::new().create(true).append(true).open(&path);
    let added = file.and_then(|mut file| file.write_all(format!("skipped: {tests} ({reason})\n").as_bytes()));
    added.map_err(|source| Error::CannotWrite { path, source })
}

fn path() -> Result<PathBuf, Error> {
    Ok(cargo::target_directory()?.join("skipped.txt"))
}

fn summary(text: &str) -> String {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    let names: String = lines.iter().map(|line| format!("\n{line}")).collect();
    match lines.len() {
        0 => "xtask: no test was skipped".to_owned(),
        1 => format!("xtask: 1 test was skipped, which counts as passed above{names}"),
        count => format!("xtask: {count} tests were skipped, which count as passed above{names}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skipped_tests_are_counted() {
        for (text, want) in [
            ("", "xtask: no test was skipped"),
            (
                "skipped: a (no GPU)\n",
                "xtask: 1 test was skipped, which counts as passed above\nskipped: a (no GPU)",
            ),
            (
                "skipped: b (no GPU)\nskipped: a (no GPU)\n",
                "xtask: 2 tests were skipped, which count as passed above\nskipped: a (no GPU)\nskipped: b (no GPU)",
            ),
        ] {
            assert_eq!(summary(text), want);
        }
    }
}
