//! Shared libraries found at run time, and never a panic where one is missing.
#![allow(unsafe_code, reason = "loads shared libraries and looks symbols up in them")]

use std::path::Path;
use std::sync::OnceLock;

use cudarc::driver::{result::DriverError, sys};
use libloading::Library;

use super::call;
use crate::error::EngineError;

/// File names of the CUDA driver.
const DRIVER: &[&str] = if cfg!(windows) { &["nvcuda.dll"] } else { &["libcuda.so.1", "libcuda.so"] };

/// The oldest driver that takes the printed PTX version, as `cuDriverGetVersion` writes it: CUDA 12.4, PTX 8.4.
const OLDEST_VERSION: i32 = 12_040;

/// The CUDA driver of this process, once it is known to be there and new enough.
pub(super) struct Driver {
    library: &'static Library,
    /// CUDA version, major and minor.
    pub(super) version: (i32, i32),
}

/// Finds the driver. Everything else in this folder calls it only after this has succeeded.
///
/// # Errors
/// There is no driver, or it is too old.
pub(super) fn driver() -> Result<Driver, EngineError> {
    static LIBRARY: OnceLock<Option<Library>> = OnceLock::new();
    let library = LIBRARY.get_or_init(|| DRIVER.iter().find_map(|name| open(Path::new(name)).ok()));
    let library = library.as_ref().ok_or(EngineError::NoDriver { library: DRIVER[0] })?;
    let mut version = 0;
    // SAFETY: every driver has this function, and it writes one integer.
    call::driver("cuDriverGetVersion", unsafe { sys::cuDriverGetVersion(&mut version) }.result())?;
    let split = |version: i32| (version / 1000, version % 1000 / 10);
    if version < OLDEST_VERSION {
        return Err(EngineError::OldDriver { version: split(version), needed: split(OLDEST_VERSION) });
    }
    Ok(Driver { library, version: split(version) })
}

/// `cuEventElapsedTime`.
type ElapsedTime = unsafe extern "C" fn(*mut f32, sys::CUevent, sys::CUevent) -> sys::CUresult;

impl Driver {
    /// Milliseconds from one event to another that both have happened.
    ///
    /// The bindings ask for `cuEventElapsedTime_v2`, which drivers before CUDA 12.8 do not have; all have this one.
    ///
    /// # Safety
    /// Both events are alive.
    pub(super) unsafe fn elapsed(&self, start: sys::CUevent, end: sys::CUevent) -> Result<f32, EngineError> {
        let mut milliseconds = 0.0;
        // SAFETY: the type is that of the function in `cuda.h`.
        let elapsed = unsafe { self.library.get::<ElapsedTime>(b"cuEventElapsedTime\0") };
        let result = match elapsed {
            // SAFETY: the caller vouches for the events, and one float is written.
            Ok(elapsed) => unsafe { elapsed(&mut milliseconds, start, end) }.result(),
            Err(_) => Err(DriverError(sys::CUresult::CUDA_ERROR_NOT_FOUND)),
        };
        call::driver("cuEventElapsedTime", result)?;
        Ok(milliseconds)
    }
}

/// Loads a library by path or by the name that the system's loader knows.
pub(super) fn open(path: &Path) -> Result<Library, libloading::Error> {
    // SAFETY: only NVIDIA's libraries, or a file that the caller named as one, are loaded; their initialisers may
    // run on any thread.
    unsafe { Library::new(path) }
}

/// The version of the kernel module, as `580.159`, where the system shows it.
pub(super) fn module_version() -> Option<String> {
    parse_module_version(&std::fs::read_to_string("/proc/driver/nvidia/version").ok()?)
}

/// The first word of the first line that is two or more numbers joined by dots.
fn parse_module_version(text: &str) -> Option<String> {
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let is_version = |word: &&str| word.contains('.') && word.split('.').all(is_number);
    text.lines().next()?.split_whitespace().find(is_version).map(str::to_owned)
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
