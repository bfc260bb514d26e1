//! Errors of the folder on disk. If a kernel can be compiled anyway, they are only warnings: values, never
//! printed.

use std::path::{Path, PathBuf};

use super::VARIABLE;

/// Why something was not read from the folder of entries, or not written to it.
///
/// An entry that cannot be used counts as missing. So wherever the entry can be made again, this is only a
/// warning.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CacheError {
    /// There is no folder for caches: no environment variable names one, and the user has no home folder.
    #[error(
        "no folder for compiled kernels: {VARIABLE} is not set and the user has no home folder with an absolute path; \
         set {VARIABLE} to a folder, or to nothing to keep none"
    )]
    NoHome,
    /// The folder does not exist and cannot be made, or is not a folder.
    #[error("the folder {} of compiled kernels{} cannot be used: {reason}", path.display(), named_words(*named))]
    Folder {
        /// The folder's path.
        path: PathBuf,
        /// Whether the user named it; otherwise it is the platform's default.
        named: bool,
        /// The operating system's error message.
        reason: String,
    },
    /// A file or a folder cannot be read, written or removed, for example because the disk is full or the folder is read-only.
    #[error("cannot {action} {}: {reason}", path.display())]
    File {
        /// What was tried: `read`, `write` or `remove`.
        action: &'static str,
        /// Its path.
        path: PathBuf,
        /// The operating system's error message.
        reason: String,
    },
    /// A file is not the entry that its name says: it is truncated, changed, of another format or of another
    /// key.
    #[error("{} was ignored: {why}", path.display())]
    Damaged {
        /// Its path.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The driver rejected a compiled kernel, which was then removed.
    #[error("{} was removed: the driver refused it ({reason})", path.display())]
    Refused {
        /// Its path.
        path: PathBuf,
        /// The driver's error message.
        reason: String,
    },
    /// Another process holds the lock of the folder.
    #[error("{} has been locked by another process for {seconds} s: nothing was saved, try again", path.display())]
    Locked {
        /// The file that is locked.
        path: PathBuf,
        /// How long this process waited, in seconds.
        seconds: u64,
    },
    /// A part of a key that a file cannot hold.
    #[error("{field} `{}` cannot be part of a key: {needed} was needed", value.escape_debug())]
    Key {
        /// The field.
        field: &'static str,
        /// The value that was given.
        value: String,
        /// What is needed.
        needed: &'static str,
    },
    /// A tuning record, or a measurement in one, that is not legal.
    #[error("tuning record: {field} is `{}`, {needed} was needed", value.escape_debug())]
    Record {
        /// The field.
        field: &'static str,
        /// The value that was given.
        value: String,
        /// What is needed.
        needed: String,
    },
    /// A line of a file of tuning records, or a measurement in it, was left out.
    #[error("line {line} of {} was left out: {why}", path.display())]
    Line {
        /// The file's path.
        path: PathBuf,
        /// The line's number among the lines of records, from 1.
        line: usize,
        /// What is wrong with it.
        why: String,
    },
}

impl CacheError {
    pub(super) fn file(action: &'static str, path: &Path, reason: &std::io::Error) -> Self {
        Self::File { action, path: path.to_owned(), reason: reason.to_string() }
    }

    pub(super) fn damaged(path: &Path, why: impl ToString) -> Self {
        Self::Damaged { path: path.to_owned(), why: why.to_string() }
    }
}

fn named_words(named: bool) -> String {
    if named { format!(" (from {VARIABLE})") } else { String::new() }
}
