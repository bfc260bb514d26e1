//! Loads a peer's library and looks functions up in it. What is missing is an error, never a panic.
#![allow(unsafe_code, reason = "loads shared libraries and looks functions up by name")]

use std::path::{Path, PathBuf};

use kernel::EngineError;
use libloading::Library;

/// Loads the first of these files that the system's loader finds.
///
/// # Errors
/// [`EngineError::NoLibrary`] with the names that were tried.
///
/// # Safety
/// The code that these files run when they are loaded and unloaded must be sound on any thread.
pub(crate) unsafe fn find(library: &'static str, names: &[PathBuf]) -> Result<Library, EngineError> {
    // SAFETY: guaranteed by the caller.
    names.iter().find_map(|name| unsafe { Library::new(name) }.ok()).ok_or_else(|| {
        let tried: Vec<_> = names.iter().map(|name| name.display().to_string()).collect();
        missing(library, format!("looked for {} in the loader's search path", tried.join(", ")))
    })
}

/// Loads a file.
///
/// # Errors
/// [`EngineError::NoLibrary`] with the path.
///
/// # Safety
/// As [`find`].
pub(crate) unsafe fn open(library: &'static str, path: &Path) -> Result<Library, EngineError> {
    // SAFETY: guaranteed by the caller.
    let loaded = unsafe { Library::new(path) };
    loaded.map_err(|error| missing(library, format!("{}: {error}", path.display())))
}

/// The table of a library's functions: a field, the function's name in the library, and its type.
macro_rules! functions {
    ($library:ident: $($field:ident = $name:literal ($($argument:ty),*) -> $result:ty;)+) => {
        /// The functions that every version of the library has.
        pub(super) struct Functions {
            $(pub(super) $field: unsafe extern "C" fn($($argument),*) -> $result,)+
        }

        impl Functions {
            /// Looks up every function.
            ///
            /// # Safety
            /// It must be that library, and must stay loaded as long as the functions are called.
            unsafe fn look_up(library: &Library) -> Result<Self, EngineError> {
                // SAFETY: each field's type is that of the function of this name in the library's header.
                unsafe { Ok(Self { $($field: $crate::library::get($library, library, $name)?,)+ }) }
            }
        }
    };
}
pub(crate) use functions;

/// Looks up one function.
///
/// # Errors
/// [`EngineError::NoLibrary`] with the function's name.
///
/// # Safety
/// `F` must be the type of that function. The function must not be called after the library is unloaded.
pub(crate) unsafe fn get<F: Copy>(
    library: &'static str,
    loaded: &Library,
    function: &str,
) -> Result<F, EngineError> {
    // SAFETY: guaranteed by the caller.
    let symbol = unsafe { loaded.get::<F>(function.as_bytes()) };
    symbol.map(|symbol| *symbol).map_err(|error| missing(library, error.to_string()))
}

/// The error for a library that is missing, or not as it is needed.
pub(crate) fn missing(library: &'static str, reason: String) -> EngineError {
    EngineError::NoLibrary { library, reason }
}
