//! Results of driver calls as errors of ours, and the context of the calling thread.
#![allow(unsafe_code, reason = "calls the CUDA driver")]

use cudarc::driver::result::DriverError;
use cudarc::driver::{CudaContext, result};

use crate::error::EngineError;

/// Adds the call's name, and the driver's own name and words for the error.
pub(super) fn driver<T>(call: &'static str, result: Result<T, DriverError>) -> Result<T, EngineError> {
    result.map_err(|error| {
        let (code, reason) = explain(error);
        EngineError::Driver { call, code, reason }
    })
}

/// The same for a call that concerns one kernel.
pub(super) fn kernel<T>(
    kernel: &str,
    call: &'static str,
    result: Result<T, DriverError>,
) -> Result<T, EngineError> {
    result.map_err(|error| {
        let (code, reason) = explain(error);
        EngineError::Fault { kernel: kernel.to_owned(), call, code, reason }
    })
}

/// An error's name, as `CUDA_ERROR_ILLEGAL_ADDRESS`, and the driver's sentence about it.
pub(super) fn explain(error: DriverError) -> (String, String) {
    let code = match error.error_name() {
        Ok(name) => name.to_string_lossy().into_owned(),
        Err(_) => format!("{:?}", error.0),
    };
    let reason = match error.error_string() {
        Ok(words) => words.to_string_lossy().into_owned(),
        Err(_) => "the driver has no words for it".to_owned(),
    };
    (code, reason)
}

/// Makes a context the calling thread's current one.
///
/// Unlike [`CudaContext::bind_to_thread`] it leaves errors that the context remembers for its owner.
pub(super) fn bind(context: &CudaContext) -> Result<(), EngineError> {
    let current = driver("cuCtxGetCurrent", result::ctx::get_current())?;
    if current == Some(context.cu_ctx()) {
        return Ok(());
    }
    // SAFETY: the context is alive while `context` is borrowed.
    driver("cuCtxSetCurrent", unsafe { result::ctx::set_current(context.cu_ctx()) })
}
