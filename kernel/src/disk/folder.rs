//! Chooses the folder, and makes it.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use etcetera::BaseStrategy as _;

use super::{Cache, CacheError};

/// The folder that the variable names, or else the platform's; `None` if the variable is empty.
pub(super) fn choose(
    variable: Option<OsString>,
    of_platform: impl FnOnce() -> Option<PathBuf>,
) -> Result<Option<Cache>, CacheError> {
    match variable {
        Some(named) if named.is_empty() => Ok(None),
        Some(named) => {
            // An absolute path stays valid when the process changes its working directory.
            let folder = std::path::absolute(&named).unwrap_or_else(|_| named.into());
            Ok(Some(Cache { folder, named: true }))
        }
        None => match of_platform() {
            // A relative path would be another folder for each working directory.
            Some(caches) if caches.is_absolute() => {
                Ok(Some(Cache { folder: caches.join("falchion"), named: false }))
            }
            Some(_) | None => Err(CacheError::NoHome),
        },
    }
}

/// The platform's folder for caches.
pub(super) fn of_platform() -> Option<PathBuf> {
    etcetera::base_strategy::choose_native_strategy().ok().map(|platform| platform.cache_dir())
}

/// Makes a folder and its parents, with access for the user only. Does nothing if it exists.
pub(super) fn create(folder: &Path) -> io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

/// Writes a folder's list of file names to disk, where the system can do that. Otherwise a name may be lost
/// when the machine stops, and its entry is made again.
pub(super) fn sync(folder: &Path) {
    #[cfg(unix)]
    let _ = fs::File::open(folder).and_then(|folder| folder.sync_all());
    #[cfg(not(unix))]
    let _ = folder;
}

#[cfg(test)]
mod tests {
    use super::{CacheError, choose};

    #[test]
    fn the_environment_chooses_the_folder() {
        let here = std::env::current_dir().expect("a folder");
        let root = if cfg!(windows) { "C:\\caches" } else { "/caches" };
        for (why, variable, platform, want) in [
            ("nothing is set", None, Some(root), Ok(Some((format!("{root}/falchion"), false)))),
            ("a folder is named", Some(root), None, Ok(Some((root.to_owned(), true)))),
            ("no home matters then", Some(root), Some(""), Ok(Some((root.to_owned(), true)))),
            ("a relative one", Some("k"), None, Ok(Some((here.join("k").display().to_string(), true)))),
            ("set to nothing", Some(""), Some(root), Ok(None)),
            ("nothing, and no home", Some(""), None, Ok(None)),
            ("no home", None, None, Err(CacheError::NoHome)),
            ("an empty home", None, Some(""), Err(CacheError::NoHome)),
            ("a relative home", None, Some("home/.cache"), Err(CacheError::NoHome)),
        ] {
            let chosen = choose(variable.map(Into::into), || platform.map(Into::into));
            let chosen = chosen.map(|cache| cache.map(|cache| (cache.folder.clone(), cache.named)));
            assert_eq!(chosen, want.map(|want| want.map(|(folder, named)| (folder.into(), named))), "{why}");
        }
    }
}
