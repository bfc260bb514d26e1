//! Compiled kernels and tuning records on disk, so that the next process need not make them again.
//!
//! An entry belongs to a [`Key`]: card, driver version, version of this library, and the digest of a program.
//! An entry of another key is never used. The module `driver` (feature `driver`) looks for a kernel's binary
//! here before it assembles or compiles the kernel. It keeps binaries of the assembler that `FALCHION_PTXAS`
//! names; their digest also covers the assembler's version. What the driver compiles is not kept here, but in
//! the driver's own cache. Tuning records (feature `records`) are in the same folder.
//!
//! ```
//! use kernel::disk::{Cache, Digest, Key, Kind};
//!
//! # let folder = std::env::temp_dir().join(format!("falchion-disk-{}", std::process::id()));
//! let cache = Cache::at(&folder);
//! let key = Key::new("NVIDIA H200", "580.159.04, CUDA 13.0", Digest::of("a program's text"))?;
//! assert_eq!(cache.get(Kind::Kernel, &key), Ok(None));
//! cache.put(Kind::Kernel, &key, b"what was made of it")?;
//! assert_eq!(cache.get(Kind::Kernel, &key)?.as_deref(), Some(&b"what was made of it"[..]));
//! # std::fs::remove_dir_all(folder).expect("it is there");
//! # Ok::<(), kernel::disk::CacheError>(())
//! ```
//!
//! # The folder
//!
//! The environment variable `FALCHION_CACHE` names it. If the variable is not set, the folder is `falchion`
//! in the platform's folder for caches: on Linux `$XDG_CACHE_HOME/falchion` or `~/.cache/falchion`. If the
//! variable is set but empty, no entry is kept or read. Files in the folder that are not entries are never
//! read, written or removed.
//!
//! # Safety of the data
//!
//! A file is complete when it appears under its name: it is written under another name in the same folder,
//! synced, and renamed. Many processes may read, write, trim and clear one folder at once. A file is an entry
//! only if its header, its key, its length and its checksum are right. Any other file counts as missing, and
//! a [`CacheError`] says why.
//!
//! The checksum guards against accidents, not against attackers: anyone who may write to the folder decides
//! what runs on the GPU. Therefore only the user who makes a new folder has access to it and its files.

#[cfg(feature = "driver")]
mod compiled;
mod entry;
mod error;
mod files;
mod folder;
mod key;
#[cfg(feature = "records")]
mod lock;
#[cfg(feature = "records")]
pub mod records;

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

#[cfg(feature = "driver")]
pub(crate) use compiled::Compiled;
pub use error::CacheError;
pub use files::{Entry, Limit, Removed};
pub use key::{Digest, Key, Kind};
#[cfg(feature = "records")]
pub use records::Records;

/// The environment variable that names the folder.
pub const VARIABLE: &str = "FALCHION_CACHE";

/// Largest size of an entry in bytes. A longer file is not read.
const MOST_BYTES: u64 = 1 << 30;

/// Prefix of the names of files that are not complete yet.
const TEMPORARY: &str = ".falchion-";

/// The time of an entry's last use is updated if it is older than this.
const USE_INTERVAL: Duration = Duration::from_secs(3600);

/// A folder of entries.
///
/// It holds no state in memory: what one process has written, the next call of another process finds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cache {
    folder: PathBuf,
    named: bool,
}

impl Cache {
    /// The folder at a path. It is made when the first entry is written.
    pub fn at(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into(), named: true }
    }

    /// The folder that the environment chooses; `None` if `FALCHION_CACHE` is empty.
    ///
    /// # Errors
    /// [`CacheError::NoHome`] if `FALCHION_CACHE` is not set and the user has no home.
    pub fn of_environment() -> Result<Option<Self>, CacheError> {
        folder::choose(std::env::var_os(VARIABLE), folder::of_platform)
    }

    /// The path of the folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Whether the user named the folder; otherwise it is the platform's default.
    pub fn is_named(&self) -> bool {
        self.named
    }

    /// Makes the folder, with access for its user only, unless it exists.
    ///
    /// # Errors
    /// [`CacheError::Folder`] if it cannot be made, or if something else has its name.
    pub fn create(&self) -> Result<(), CacheError> {
        folder::create(&self.folder).map_err(|error| CacheError::Folder {
            path: self.folder.clone(),
            named: self.named,
            reason: error.to_string(),
        })
    }

    /// The path of an entry's file, whether the file exists or not.
    pub fn path(&self, kind: Kind, key: &Key) -> PathBuf {
        self.folder.join(key.file_name(kind))
    }

    /// The payload of an entry; `None` if there is none.
    ///
    /// # Errors
    /// There is a file, but it cannot be read, or it is not the entry of that key. It counts as missing, and
    /// the next [`put`](Self::put) replaces it.
    pub fn get(&self, kind: Kind, key: &Key) -> Result<Option<Vec<u8>>, CacheError> {
        let path = self.path(kind, key);
        let Some(bytes) = self.read(&path)? else { return Ok(None) };
        let payload = entry::open(bytes, kind, key).map_err(|why| CacheError::damaged(&path, why))?;
        note_use(&path);
        Ok(Some(payload))
    }

    /// Reads a whole file; `None` if there is none. A device or a pipe with that name is not opened.
    fn read(&self, path: &Path) -> Result<Option<Vec<u8>>, CacheError> {
        let unread = |error: std::io::Error| match files::is_missing(&error) {
            true => Ok(None),
            false => Err(CacheError::file("read", path, &error)),
        };
        let bytes = match fs::metadata(path) {
            Ok(metadata) if !metadata.is_file() => return Err(CacheError::damaged(path, "it is no file")),
            Ok(metadata) => metadata.len(),
            Err(error) => return unread(error),
        };
        if bytes > MOST_BYTES {
            return Err(CacheError::damaged(
                path,
                format!("it has {bytes} B, an entry has {MOST_BYTES} B at most"),
            ));
        }
        let mut read = Vec::with_capacity(usize::try_from(bytes).unwrap_or(0));
        match File::open(path).and_then(|file| file.take(MOST_BYTES).read_to_end(&mut read)) {
            Ok(_) => Ok(Some(read)),
            Err(error) => unread(error),
        }
    }

    /// Writes an entry, and replaces an existing one. Other processes see the old one or the new one.
    ///
    /// # Errors
    /// The folder cannot be made, or the file cannot be written. An existing entry then stays.
    pub fn put(&self, kind: Kind, key: &Key, payload: &[u8]) -> Result<(), CacheError> {
        self.create()?;
        let path = self.path(kind, key);
        let write = || -> std::io::Result<()> {
            let mut file = tempfile::Builder::new().prefix(TEMPORARY).tempfile_in(&self.folder)?;
            file.write_all(entry::header(kind, key, payload).as_bytes())?;
            file.write_all(payload)?;
            file.as_file().sync_all()?;
            file.persist(&path).map_err(|error| error.error)?;
            Ok(())
        };
        write().map_err(|error| CacheError::file("write", &path, &error))?;
        folder::sync(&self.folder);
        Ok(())
    }

    /// Removes an entry, whatever its file holds. Returns whether it existed.
    ///
    /// # Errors
    /// The file cannot be removed.
    pub fn remove(&self, kind: Kind, key: &Key) -> Result<bool, CacheError> {
        files::remove(&self.path(kind, key))
    }
}

/// Records that an entry was used now. If that cannot be written, the entry may be trimmed a little earlier.
fn note_use(path: &Path) {
    let now = SystemTime::now();
    let last = fs::metadata(path).and_then(|metadata| metadata.modified());
    if last.is_ok_and(|last| now.duration_since(last).is_ok_and(|age| age > USE_INTERVAL)) {
        let _ = File::open(path).and_then(|file| file.set_modified(now));
    }
}

#[cfg(test)]
mod tests;
