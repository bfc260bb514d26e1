//! The files of a recording: they begin with the kernel's name and a number that no other recording in the folder has.

use std::fs::OpenOptions;
use std::io::Error;
use std::path::{Path, PathBuf};

/// Most characters of a kernel's name in files' names.
const LONGEST: usize = 60;

/// The names of a recording's files.
#[derive(Debug)]
pub(crate) struct Files {
    folder: PathBuf,
    stem: String,
}

impl Files {
    /// Takes the next free number. Processes may share the folder.
    pub(crate) fn new(folder: &Path, kernel: &str) -> Result<Self, Error> {
        std::fs::create_dir_all(folder)?;
        let plain = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' };
        let name: String = kernel.chars().take(LONGEST).map(plain).collect();
        let mut number = 0u64;
        loop {
            let files = Self { folder: folder.to_owned(), stem: format!("{name}-{number}") };
            match OpenOptions::new().write(true).create_new(true).open(files.path(DESCRIPTION)) {
                Ok(_) => return Ok(files),
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => number += 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// The name of a file by its ending.
    pub(crate) fn name(&self, ending: &str) -> String {
        format!("{}.{ending}", self.stem)
    }

    /// The path of a file by its ending.
    pub(crate) fn path(&self, ending: &str) -> PathBuf {
        self.folder.join(self.name(ending))
    }

    /// Writes a file; returns its name.
    pub(crate) fn write(&self, ending: &str, bytes: &[u8]) -> Result<String, Error> {
        std::fs::write(self.path(ending), bytes)?;
        Ok(self.name(ending))
    }
}

/// The ending of the description.
pub(crate) const DESCRIPTION: &str = "launch.toml";
