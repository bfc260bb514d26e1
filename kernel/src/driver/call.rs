//! LaunchCache of the driver, and their errors as text.
#![allow(unsafe_code, reason = "calls the CUDA driver")]

use core::ffi::{CStr, c_char};
use core::ptr;

use super::library::{self, Driver, unexplained};
use super::sys::{SUCCESS, Status};
use crate::error::EngineError;

/// Turns a status into an error with the call's name and the driver's name and message for it.
pub(super) fn check(driver: &Driver, call: &'static str, status: Status) -> Result<(), EngineError> {
    if status == SUCCESS {
        return Ok(());
    }
    let (code, reason) = explain(driver, status);
    Err(EngineError::Driver { call, code, reason })
}

/// An error's name, for example `CUDA_ERROR_ILLEGAL_ADDRESS`, and the driver's message for it.
pub(super) fn explain(driver: &Driver, status: Status) -> (String, String) {
    let functions = &driver.functions;
    let words = |ask: unsafe extern "C" fn(Status, *mut *const c_char) -> Status| {
        let mut text = ptr::null();
        // SAFETY: the driver writes one pointer: null, or the address of a constant.
        let known = unsafe { ask(status, &mut text) } == SUCCESS && !text.is_null();
        // SAFETY: a pointer that is not null points to NUL-terminated text that is never freed.
        known.then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
    };
    let (code, reason) = unexplained(status);
    (words(functions.error_name).unwrap_or(code), words(functions.error_string).unwrap_or(reason))
}

/// Initialises the driver. Later calls do nothing.
pub(super) fn initialised() -> Result<&'static Driver, EngineError> {
    let driver = library::driver()?;
    // SAFETY: the flags are 0, as the function requires.
    check(driver, "cuInit", unsafe { (driver.functions.init)(0) })?;
    Ok(driver)
}
