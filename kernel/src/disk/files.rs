//! The files of the folder: listing, trimming and clearing.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::entry::{self, MOST_HEADER};
use super::{Cache, CacheError, Key, Kind, TEMPORARY};

/// An incomplete file is removed when it is older than this: the process that wrote it has ended.
const UNFINISHED: Duration = Duration::from_secs(3600);

/// An entry of the folder, as its header describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The entry's kind, from its file name.
    pub kind: Kind,
    /// The path of its file.
    pub path: PathBuf,
    /// What it belongs to; `None` if its header is damaged or of another format.
    pub key: Option<Key>,
    /// Size of its file in bytes.
    pub bytes: u64,
    /// When it was written or last used, to the hour.
    pub used: SystemTime,
}

impl Entry {
    /// Time since it was last used; zero if the clock was set back since then.
    pub fn age(&self) -> Duration {
        SystemTime::now().duration_since(self.used).unwrap_or_default()
    }
}

/// What [`Cache::trim`] keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// At most this number of bytes. Compiled kernels are removed before tuning records, because a kernel is
    /// compiled again in milliseconds and a record takes minutes of measuring. Within each kind, the least
    /// recently used go first.
    Bytes(u64),
    /// Entries that were used within this time.
    Age(Duration),
}

/// What was removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// Number of entries.
    pub entries: usize,
    /// Total size of their files in bytes.
    pub bytes: u128,
}

impl Cache {
    /// All entries, the most recently used last. Entries that other processes write or remove at the same
    /// time may be missing or present.
    ///
    /// # Errors
    /// The folder cannot be read. A folder that does not exist has no entries.
    pub fn entries(&self) -> Result<Vec<Entry>, CacheError> {
        let mut entries: Vec<Entry> = self.files()?.into_iter().filter_map(|path| describe(&path)).collect();
        entries.sort_by(|a, b| (a.used, &a.path).cmp(&(b.used, &b.path)));
        Ok(entries)
    }

    /// Removes entries until the limit is met, and old files that were never completed.
    ///
    /// # Errors
    /// The folder cannot be read; or the first file that cannot be removed, after all others have been
    /// removed.
    pub fn trim(&self, limit: Limit) -> Result<Removed, CacheError> {
        let mut entries = self.entries()?;
        // Within a kind, the most recently used stay last.
        entries.sort_by_key(|entry| entry.kind);
        let mut left: u128 = entries.iter().map(|entry| u128::from(entry.bytes)).sum();
        let goes = |entry: &Entry| {
            let goes = match limit {
                Limit::Bytes(most) => left > most.into(),
                Limit::Age(most) => entry.age() > most,
            };
            left -= if goes { u128::from(entry.bytes) } else { 0 };
            goes
        };
        self.remove_all(entries.into_iter().filter(goes))
    }

    /// Removes every entry, and old files that were never completed. The folder and all other files in it
    /// stay.
    ///
    /// # Errors
    /// As [`Cache::trim`].
    pub fn clear(&self) -> Result<Removed, CacheError> {
        self.remove_all(self.entries()?.into_iter())
    }

    fn remove_all(&self, entries: impl Iterator<Item = Entry>) -> Result<Removed, CacheError> {
        let (mut removed, mut failed) = (Removed::default(), None);
        for entry in entries {
            match remove(&entry.path) {
                Ok(true) => {
                    removed.entries += 1;
                    removed.bytes += u128::from(entry.bytes);
                }
                // Another process removed it first.
                Ok(false) => {}
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        for path in self.files()? {
            if is_unfinished(&path) {
                // Another process may own it; nothing reads it.
                let _ = remove(&path);
            }
        }
        match failed {
            Some(error) => Err(error),
            None => Ok(removed),
        }
    }

    fn files(&self) -> Result<Vec<PathBuf>, CacheError> {
        let unread = |error| CacheError::file("read", &self.folder, &error);
        match fs::read_dir(&self.folder) {
            // A file that vanishes while the folder is read is not an error.
            Ok(files) => Ok(files.filter_map(|file| Some(file.ok()?.path())).collect()),
            Err(error) if is_missing(&error) => Ok(Vec::new()),
            Err(error) => Err(unread(error)),
        }
    }
}

/// Whether the error says that the file does not exist.
pub(super) fn is_missing(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
}

/// Removes a file. Returns whether it existed.
pub(super) fn remove(path: &Path) -> Result<bool, CacheError> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if is_missing(&error) => Ok(false),
        Err(error) => Err(CacheError::file("remove", path, &error)),
    }
}

/// The kind of an entry, from its file name: 64 hexadecimal digits, and the kind's name as extension.
fn kind(path: &Path) -> Option<Kind> {
    let (stem, word) = path.file_name()?.to_str()?.split_once('.')?;
    super::Digest::parse(stem)?;
    Kind::ALL.into_iter().find(|kind| kind.name() == word)
}

/// Describes a file if it is a regular file with the name of an entry.
fn describe(path: &Path) -> Option<Entry> {
    let kind = kind(path)?;
    let metadata = fs::symlink_metadata(path).ok().filter(fs::Metadata::is_file)?;
    let mut head = Vec::with_capacity(MOST_HEADER);
    let read = File::open(path).and_then(|file| file.take(MOST_HEADER as u64).read_to_end(&mut head));
    let header = read.ok().and_then(|_| entry::parse(&head).ok());
    let whole = |header: &entry::Header| {
        header.kind == kind
            && header.bytes.checked_add(header.length as u64) == Some(metadata.len())
            && path.file_name().is_some_and(|name| name == header.key.file_name(kind).as_str())
    };
    let key = header.filter(whole).map(|header| header.key);
    let used = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
    Some(Entry { kind, path: path.to_owned(), key, bytes: metadata.len(), used })
}

/// Whether a file was begun long ago and never completed.
fn is_unfinished(path: &Path) -> bool {
    let ours =
        path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(TEMPORARY));
    let modified = || fs::symlink_metadata(path).ok().filter(fs::Metadata::is_file)?.modified().ok();
    ours && modified().is_some_and(|at| at.elapsed().is_ok_and(|age| age > UNFINISHED))
}
