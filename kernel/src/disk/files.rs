//! The files of the folder: what there is, and what is removed.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::entry::{self, MOST_HEADER};
use super::{Cache, CacheError, Key, Kind, TEMPORARY};

/// A file that was never finished is removed once it is so old: whoever wrote it is gone.
const UNFINISHED: Duration = Duration::from_secs(3600);

/// An entry of the folder, as its header describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What it holds, by its name.
    pub kind: Kind,
    /// Its file.
    pub path: PathBuf,
    /// What it belongs to; `None` if its header is damaged or of another format.
    pub key: Option<Key>,
    /// Bytes of its file.
    pub bytes: u64,
    /// When it was written, or used last: to the hour.
    pub used: SystemTime,
}

impl Entry {
    /// How long ago it was used last; none at all where the clock was set back since.
    pub fn age(&self) -> Duration {
        SystemTime::now().duration_since(self.used).unwrap_or_default()
    }
}

/// What [`Cache::trim`] leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// So many bytes at most. Compiled kernels go before tuning records, and of either those first that were not used for
    /// longest: a kernel is compiled again in milliseconds, a record takes minutes of measuring.
    Bytes(u64),
    /// What was used in this time.
    Age(Duration),
}

/// What was removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// Entries.
    pub entries: usize,
    /// Bytes of their files.
    pub bytes: u64,
}

impl Cache {
    /// All entries, those used last at the end. What other processes write or remove meanwhile may be missing or not.
    ///
    /// # Errors
    /// The folder cannot be read. A folder that is not there has no entries.
    pub fn entries(&self) -> Result<Vec<Entry>, CacheError> {
        let mut entries: Vec<Entry> = self.files()?.into_iter().filter_map(|path| describe(&path)).collect();
        entries.sort_by(|a, b| (a.used, &a.path).cmp(&(b.used, &b.path)));
        Ok(entries)
    }

    /// Removes entries until the limit is kept, and files that were never finished.
    ///
    /// # Errors
    /// The folder cannot be read, or the first file that cannot be removed; the others are removed all the same.
    pub fn trim(&self, limit: Limit) -> Result<Removed, CacheError> {
        let mut entries = self.entries()?;
        // Within a kind, those used last stay at the end.
        entries.sort_by_key(|entry| entry.kind);
        let mut left: u64 = entries.iter().map(|entry| entry.bytes).sum();
        let goes = |entry: &Entry| {
            let goes = match limit {
                Limit::Bytes(most) => left > most,
                Limit::Age(most) => entry.age() > most,
            };
            left -= if goes { entry.bytes } else { 0 };
            goes
        };
        self.remove_all(entries.into_iter().filter(goes))
    }

    /// Removes every entry, and files that were never finished. The folder and what else lies there stay.
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
                    removed.bytes += entry.bytes;
                }
                // Another process was first.
                Ok(false) => {}
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        for path in self.files()? {
            if is_unfinished(&path) {
                // It may be somebody else's to remove; nothing reads it.
                let _ = remove(&path);
            }
        }
        match failed {
            Some(error) => Err(error),
            None => Ok(removed),
        }
    }

    fn files(&self) -> Result<Vec<PathBuf>, CacheError> {
        let unread = |error| CacheError::read(&self.folder, &error);
        match fs::read_dir(&self.folder) {
            // A file that vanishes while the folder is read is no error.
            Ok(files) => Ok(files.filter_map(|file| Some(file.ok()?.path())).collect()),
            Err(error) if is_missing(&error) => Ok(Vec::new()),
            Err(error) => Err(unread(error)),
        }
    }
}

/// Whether nothing has the name.
pub(super) fn is_missing(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
}

/// Removes a file; says whether it was there.
pub(super) fn remove(path: &Path) -> Result<bool, CacheError> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if is_missing(&error) => Ok(false),
        Err(error) => Err(CacheError::Remove { path: path.to_owned(), reason: error.to_string() }),
    }
}

/// The kind of an entry by the name of its file: 64 digits, and the kind's word.
fn kind(path: &Path) -> Option<Kind> {
    let (stem, word) = path.file_name()?.to_str()?.split_once('.')?;
    super::Digest::parse(stem)?;
    Kind::ALL.into_iter().find(|kind| kind.name() == word)
}

/// What a file is, if its name is that of an entry and it is a file.
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

/// Whether a file was begun long ago and never finished.
fn is_unfinished(path: &Path) -> bool {
    let ours =
        path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(TEMPORARY));
    let modified = || fs::symlink_metadata(path).ok().filter(fs::Metadata::is_file)?.modified().ok();
    ours && modified().is_some_and(|at| at.elapsed().is_ok_and(|age| age > UNFINISHED))
}
