//! The driver's compiler: its logs, and its linker, which gives the binary away.
#![allow(unsafe_code, reason = "calls the CUDA driver")]

use core::ffi::{c_int, c_uint, c_void};
use core::ptr;
use std::ffi::CString;

use super::call;
use super::context::Context;
use super::sys::{INPUT_PTX, RawLink, STICKY, SUCCESS, Status, jit};
use crate::disk::Compiled;
use crate::error::EngineError;

/// Bytes kept of each of the compiler's two logs.
const LOG_BYTES: usize = 32 * 1024;

/// What the compiler says of its work, and of what it refuses.
pub(super) struct Logs {
    info: Vec<u8>,
    errors: Vec<u8>,
}

impl Logs {
    pub(super) fn new() -> Self {
        Self { info: vec![0; LOG_BYTES], errors: vec![0; LOG_BYTES] }
    }

    /// How many options there are, `CUjit_option`s, and their values: addresses of both logs.
    pub(super) fn options(&mut self) -> (c_uint, [c_int; 5], [*mut c_void; 5]) {
        let number = ptr::without_provenance_mut::<c_void>;
        let options =
            [jit::INFO_LOG, jit::INFO_LOG_BYTES, jit::ERROR_LOG, jit::ERROR_LOG_BYTES, jit::VERBOSE];
        let values = [
            self.info.as_mut_ptr().cast(),
            number(LOG_BYTES),
            self.errors.as_mut_ptr().cast(),
            number(LOG_BYTES),
            number(1),
        ];
        (options.len() as c_uint, options, values)
    }

    /// What the compiler said of its work.
    pub(super) fn info(&self) -> String {
        log_text(&self.info)
    }

    /// Fails where a call did: with the log, if the compiler wrote one.
    pub(super) fn judge(
        &self,
        context: &Context,
        kernel: &str,
        call: &'static str,
        status: Status,
    ) -> Result<(), EngineError> {
        let errors = log_text(&self.errors);
        if status == SUCCESS || errors.is_empty() || STICKY.contains(&status) {
            return context.check_kernel(kernel, call, status);
        }
        let log = format!("{}: {errors}", call::explain(context.driver(), status).0);
        Err(EngineError::Compile { kernel: kernel.to_owned(), log })
    }
}

/// A log buffer up to its NUL.
fn log_text(buffer: &[u8]) -> String {
    let end = buffer.iter().position(|&byte| byte == 0).unwrap_or(buffer.len());
    String::from_utf8_lossy(&buffer[..end]).trim().to_owned()
}

/// A PTX module as the driver takes it.
///
/// # Errors
/// The text holds a NUL character.
pub(super) fn text(kernel: &str, text: &str) -> Result<CString, EngineError> {
    CString::new(text).map_err(|_| {
        let log = "the text holds a NUL character".to_owned();
        EngineError::Compile { kernel: kernel.to_owned(), log }
    })
}

/// A linker, while it works.
struct Link<'c> {
    context: &'c Context,
    raw: RawLink,
}

impl Drop for Link<'_> {
    fn drop(&mut self) {
        // SAFETY: it was created once, and nothing uses it or its binary after this.
        let _ = unsafe { (self.context.functions().link_destroy)(self.raw) };
    }
}

/// Compiles PTX text to a binary for the context's card, and loads nothing.
///
/// # Errors
/// The compiler's log where it refused the text, or a driver error.
pub(super) fn compile(context: &Context, kernel: &str, ptx: &str) -> Result<Compiled, EngineError> {
    context.bind()?;
    let image = text(kernel, ptx)?;
    let image = image.as_bytes_with_nul();
    // The linker writes to logs and values until it is dropped, which is before they are.
    let mut logs = Logs::new();
    let (count, mut options, mut values) = logs.options();
    let functions = context.functions();
    let mut raw = ptr::null_mut();
    // SAFETY: there are as many options as values, each value of the kind its option takes; both logs are as long as stated; they
    // and the values, to which the linker writes the logs' lengths, outlive it; one handle is written.
    let status =
        unsafe { (functions.link_create)(count, options.as_mut_ptr(), values.as_mut_ptr(), &mut raw) };
    context.check_kernel(kernel, "cuLinkCreate", status)?;
    let link = Link { context, raw };
    // SAFETY: the text is as long as stated, ends in NUL, and is only read; its name is a literal; there are no options.
    let status = unsafe {
        (functions.link_add)(
            link.raw,
            INPUT_PTX,
            image.as_ptr().cast_mut().cast(),
            image.len(),
            c"kernel.ptx".as_ptr(),
            0,
            ptr::null_mut(),
            ptr::null_mut(),
        )
    };
    logs.judge(context, kernel, "cuLinkAddData", status)?;
    let (mut binary, mut bytes) = (ptr::null_mut(), 0);
    // SAFETY: an address and a number are written.
    let status = unsafe { (functions.link_complete)(link.raw, &mut binary, &mut bytes) };
    logs.judge(context, kernel, "cuLinkComplete", status)?;
    let cubin = if binary.is_null() {
        Vec::new()
    } else {
        // SAFETY: the linker owns so many bytes there until it is dropped.
        unsafe { core::slice::from_raw_parts(binary.cast::<u8>(), bytes) }.to_vec()
    };
    drop(link);
    Ok(Compiled { cubin, log: logs.info() })
}

#[cfg(test)]
mod tests {
    use super::log_text;

    #[test]
    fn logs_end_at_their_nul() {
        assert_eq!(log_text(b" a log\n\0rest"), "a log");
        assert_eq!(log_text(b"no end"), "no end");
        assert_eq!(log_text(b"\0"), "");
    }
}
