//! A lock of the folder, for data that is read, changed and written again.

use std::fs::{File, OpenOptions};
use std::time::{Duration, Instant};

use fs4::{FileExt, TryLockError};

use super::{Cache, CacheError};

/// How long a process waits for the lock. Each process holds it for milliseconds, or for seconds where the disk is busy.
const PATIENCE: Duration = Duration::from_secs(30);

/// A lock. It is held until it is dropped or the process ends.
#[derive(Debug)]
pub(super) struct Lock {
    /// Closing the file releases the lock.
    _file: File,
}

impl Cache {
    /// Waits for the folder's lock. The lock's file is never removed: removing it would let two processes
    /// hold the lock.
    ///
    /// # Errors
    /// The file cannot be made or locked, or another process holds the lock too long.
    pub(super) fn lock(&self) -> Result<Lock, CacheError> {
        self.lock_within(PATIENCE)
    }

    fn lock_within(&self, patience: Duration) -> Result<Lock, CacheError> {
        self.create()?;
        let path = self.folder.join("lock");
        let failed = |error| CacheError::file("write", &path, &error);
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path).map_err(failed)?;
        let start = Instant::now();
        loop {
            match FileExt::try_lock(&file) {
                Ok(()) => return Ok(Lock { _file: file }),
                Err(TryLockError::WouldBlock) if start.elapsed() < patience => {
                    std::thread::sleep(Duration::from_millis(2));
                }
                Err(TryLockError::WouldBlock) => {
                    return Err(CacheError::Locked { path, seconds: patience.as_secs() });
                }
                Err(TryLockError::Error(error)) => return Err(failed(error)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_one_holders() {
        let folder = tempfile::tempdir().expect("a folder");
        let cache = Cache::at(folder.path());
        let held = cache.lock().expect("nobody holds it");
        let error = cache.lock_within(Duration::from_millis(20)).expect_err("it is held");
        assert!(matches!(error, CacheError::Locked { seconds: 0, .. }), "{error}");
        cache.clear().expect("readable");
        assert!(cache.lock_within(Duration::ZERO).is_err(), "clearing does not break it");
        drop(held);
        assert!(cache.lock_within(Duration::ZERO).is_ok());
    }
}
