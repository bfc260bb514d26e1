//! Loads shared libraries at run time. A missing library is an error, never a panic.
#![allow(unsafe_code, reason = "loads shared libraries and looks symbols up in them")]

use std::path::Path;
use std::sync::OnceLock;

use libloading::Library;

use super::sys::{Functions, Status};
use crate::error::EngineError;

/// File names of the CUDA driver.
const DRIVER: &[&str] = if cfg!(windows) { &["nvcuda.dll"] } else { &["libcuda.so.1", "libcuda.so"] };

/// The oldest driver that knows Hopper's instructions, as `cuDriverGetVersion` reports it: CUDA 12.0, PTX 8.0. Some programs
/// need a newer one: [`needed`].
const OLDEST_VERSION: i32 = 12_000;

/// The CUDA version whose driver loads a program of a PTX version.
pub(super) fn needed(ptx: (u32, u32)) -> (i32, i32) {
    match ptx {
        // PTX 8.0 to 8.5 are of CUDA 12.0 to 12.5.
        (8, minor @ 0..=5) => (12, minor.cast_signed()),
        (8, 6) => (12, 7),
        _ => (12, 8),
    }
}

/// The CUDA driver of this process, after it was found, is new enough, and has every function.
pub(super) struct Driver {
    pub(super) functions: Functions,
    /// The CUDA version, major and minor.
    pub(super) version: (i32, i32),
    /// Keeps the library, and with it the functions, loaded.
    _library: Library,
}

impl Driver {
    /// Its version on one line: that of the kernel module, if the system shows it, and CUDA's.
    pub(super) fn name(&self) -> String {
        let (major, minor) = self.version;
        match module_version() {
            Some(module) => format!("{module}, CUDA {major}.{minor}"),
            None => format!("CUDA {major}.{minor}"),
        }
    }
}

/// Finds the driver. Everything else in this folder calls the driver through the returned value. It is searched for until it is found.
///
/// # Errors
/// There is no driver, it is too old, or it lacks a function.
pub(super) fn driver() -> Result<&'static Driver, EngineError> {
    static FOUND: OnceLock<Driver> = OnceLock::new();
    match FOUND.get() {
        Some(driver) => Ok(driver),
        None => find().map(|driver| FOUND.get_or_init(|| driver)),
    }
}

/// A CUDA version, major and minor.
fn split(version: i32) -> (i32, i32) {
    (version / 1000, version % 1000 / 10)
}

fn find() -> Result<Driver, EngineError> {
    let none = EngineError::NoDriver { library: DRIVER[0] };
    // SAFETY: the file name is the driver's, and the driver's initialiser may run on any thread.
    let library = DRIVER.iter().find_map(|name| unsafe { open(Path::new(name)) }.ok()).ok_or(none)?;
    let missing = |function| EngineError::MissingFunction { function };
    // Check the version first: an old driver may lack functions only because it is old.
    let (name, mut version) = ("cuDriverGetVersion", 0);
    // SAFETY: the type is that of the function in `cuda.h`, and it writes one integer.
    let status = unsafe {
        let get = library.get::<unsafe extern "C" fn(*mut i32) -> Status>(name.as_bytes());
        get.map_err(|_| missing(name))?(&mut version)
    };
    if status != super::sys::SUCCESS {
        let (code, reason) = unexplained(status);
        return Err(EngineError::Driver { call: name, code, reason });
    }
    if version < OLDEST_VERSION {
        return Err(EngineError::OldDriver { version: split(version), needed: split(OLDEST_VERSION) });
    }
    // SAFETY: this is the driver, and `Driver` keeps it loaded.
    let functions = unsafe { Functions::look_up(&library) }.map_err(missing)?;
    Ok(Driver { functions, version: split(version), _library: library })
}

/// Loads a library, by path or by a name that the system's loader knows.
///
/// # Safety
/// The code that the file runs when it is loaded and unloaded must be sound on any thread.
pub(super) unsafe fn open(path: &Path) -> Result<Library, libloading::Error> {
    // SAFETY: the caller guarantees the file.
    unsafe { Library::new(path) }
}

/// The version of the kernel module, for example `580.159`, if the system shows it.
pub(super) fn module_version() -> Option<String> {
    parse_module_version(&std::fs::read_to_string("/proc/driver/nvidia/version").ok()?)
}

/// The first word of the first line that consists of two or more numbers joined by dots.
fn parse_module_version(text: &str) -> Option<String> {
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let is_version = |word: &&str| word.contains('.') && word.split('.').all(is_number);
    text.lines().next()?.split_whitespace().find(is_version).map(str::to_owned)
}

/// A name and a message for an error that the driver has no text for.
pub(super) fn unexplained(status: Status) -> (String, String) {
    (format!("CUDA error {status}"), "the driver has no message for it".to_owned())
}

#[cfg(test)]
mod tests {
    use super::parse_module_version;

    #[test]
    fn kernel_module_versions_are_read() {
        for (why, text, want) in [
            (
                "the closed module",
                "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\nGCC 9.4.0",
                Some("535.104.05"),
            ),
            (
                "the open module",
                "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159  Release Build  (root)\n",
                Some("580.159"),
            ),
            ("no version on the first line", "NVRM version: unknown\nGCC version: 9.4.0\n", None),
            ("an empty file", "", None),
        ] {
            assert_eq!(parse_module_version(text).as_deref(), want, "{why}");
        }
    }
}
