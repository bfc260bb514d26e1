//! Modules: PTX text that the driver's loader compiles, or a binary. Each keeps the compiler's log.
#![allow(unsafe_code, reason = "calls the CUDA driver")]

use core::ffi::{c_int, c_uint, c_void};
use core::ptr;
use std::ffi::CString;
use std::sync::Arc;

use super::call;
use super::context::Context;
use super::sys::{RawFunction, RawModule, STICKY, SUCCESS, Status, jit};
use crate::disk::Compiled;
use crate::error::EngineError;

/// Size of each of the compiler's two log buffers, in bytes.
const LOG_BYTES: usize = 32 * 1024;

/// The compiler's log, and its error log.
struct Logs {
    info: Vec<u8>,
    errors: Vec<u8>,
}

impl Logs {
    fn new() -> Self {
        Self { info: vec![0; LOG_BYTES], errors: vec![0; LOG_BYTES] }
    }

    /// The number of options, the options (`CUjit_option`), and their values: addresses and sizes of both
    /// logs.
    fn options(&mut self) -> (c_uint, [c_int; 5], [*mut c_void; 5]) {
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

    /// Turns a failed status into an error, with the error log if the compiler wrote one.
    fn judge(
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

/// The text of a log buffer, up to its NUL.
fn log_text(buffer: &[u8]) -> String {
    let end = buffer.iter().position(|&byte| byte == 0).unwrap_or(buffer.len());
    String::from_utf8_lossy(&buffer[..end]).trim().to_owned()
}

/// A loaded module, and its entry.
#[derive(Debug)]
pub(super) struct Module {
    raw: RawModule,
    function: RawFunction,
    context: Arc<Context>,
    log: String,
}

// SAFETY: a module is a handle that the driver accepts from any thread on which its context is current.
unsafe impl Send for Module {}
// SAFETY: as above; nothing is changed through a shared reference.
unsafe impl Sync for Module {}

impl Module {
    /// Compiles and loads a module. `kernel` is the name of its entry.
    ///
    /// # Errors
    /// The compiler's log if the driver rejected the text, or a driver error.
    pub(super) fn compile(context: &Arc<Context>, kernel: &str, text: &str) -> Result<Self, EngineError> {
        let image = CString::new(text).map_err(|_| {
            let log = "the text holds a NUL character".to_owned();
            EngineError::Compile { kernel: kernel.to_owned(), log }
        })?;
        // SAFETY: the image ends in NUL, and outlives the call.
        unsafe { Self::of_image(context, kernel, image.as_ptr().cast(), None) }
    }

    /// Loads a binary. `log` is its compiler's log.
    ///
    /// # Errors
    /// The driver rejects the binary, or another driver error.
    pub(super) fn load(
        context: &Arc<Context>,
        kernel: &str,
        Compiled { cubin, log }: Compiled,
    ) -> Result<Self, EngineError> {
        // SAFETY: the image is a whole ELF file, whose header says how long it is. The assembler that the
        // user named wrote it, or it comes from an entry on disk with a correct checksum, or the caller of an
        // unsafe function guarantees it. It outlives the call.
        unsafe { Self::of_image(context, kernel, cubin.as_ptr().cast(), Some(log)) }
    }

    /// Loads an image, which the driver compiles if there is no log yet, and looks its entry up.
    ///
    /// # Safety
    /// The image must be text that ends in NUL, or a whole ELF file.
    unsafe fn of_image(
        context: &Arc<Context>,
        kernel: &str,
        image: *const c_void,
        log: Option<String>,
    ) -> Result<Self, EngineError> {
        let current = context.bind()?;
        let mut logs = Logs::new();
        let (count, mut options, mut values) = logs.options();
        let count = if log.is_none() { count } else { 0 };
        let mut raw = ptr::null_mut();
        let (load, options, values) =
            (current.functions().module_load, options.as_mut_ptr(), values.as_mut_ptr());
        // SAFETY: the caller guarantees the image. There are as many options as values, and each value is of
        // the kind that its option needs. Both buffers are as long as stated and outlive the call.
        let status = unsafe { load(&mut raw, image, count, options, values) };
        logs.judge(context, kernel, "cuModuleLoadDataEx", status)?;
        let log = log.unwrap_or_else(|| log_text(&logs.info));
        let mut module = Self { raw, function: ptr::null_mut(), context: Arc::clone(context), log };
        let (find, name) = (current.functions().module_function, CString::new(kernel).unwrap_or_default());
        // SAFETY: the module is loaded until it is dropped; one handle is written.
        let status = unsafe { find(&mut module.function, raw, name.as_ptr()) };
        context.check_kernel(kernel, "cuModuleGetFunction", status)?;
        Ok(module)
    }

    /// The context in which the module is loaded.
    pub(super) fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// The compiler's log; empty if the driver took the binary from its own cache.
    pub(super) fn log(&self) -> &str {
        &self.log
    }

    /// The module's entry. It is valid as long as the module lives.
    pub(super) fn function(&self) -> RawFunction {
        self.function
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        // One of its launches may still be running.
        self.context.wait();
        if let Ok(current) = self.context.bind() {
            // SAFETY: it was loaded once, and nothing uses it after this. After a fault the driver returns
            // that fault, and there is nothing left to release.
            let _ = unsafe { (current.functions().module_unload)(self.raw) };
        }
    }
}

/// Lines of a compiler's log that predict a slow kernel: advisories C75xx (`wgmma` serialised, `setmaxnreg`
/// ignored), and spills or stack frames of more than 0 bytes.
pub(super) fn advisories(log: &str) -> Vec<String> {
    let nonzero_before = |line: &str, words: &str| {
        line.split(words).next().filter(|before| before.len() < line.len()).is_some_and(|before| {
            before
                .split_whitespace()
                .next_back()
                .is_some_and(|number| number.parse().is_ok_and(|n: u64| n > 0))
        })
    };
    let suspicious = |line: &&str| {
        line.contains("C75")
            || ["bytes stack frame", "bytes spill stores", "bytes spill loads"]
                .iter()
                .any(|words| nonzero_before(line, words))
    };
    log.lines().filter(suspicious).map(|line| line.trim().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::{advisories, log_text};

    #[test]
    fn logs_end_at_their_nul() {
        assert_eq!(log_text(b" a log\n\0rest"), "a log");
        assert_eq!(log_text(b"no end"), "no end");
        assert_eq!(log_text(b"\0"), "");
    }

    #[test]
    fn advisories_are_found_in_logs() {
        for (why, line, found) in [
            ("a clean kernel", "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads", false),
            ("a stack frame", "    16 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads", true),
            ("spill stores", "    0 bytes stack frame, 8 bytes spill stores, 0 bytes spill loads", true),
            ("spill loads", "    0 bytes stack frame, 0 bytes spill stores, 120 bytes spill loads", true),
            ("a serial wgmma", "info : (C7510) Potential Performance Loss: wgmma.mma_async", true),
            ("resources", "ptxas info    : Used 168 registers, used 8 barriers, 424 bytes cmem[0]", false),
        ] {
            let log = format!("info : compiling\n{line}\n");
            let want: Vec<_> = if found { vec![line.trim().to_owned()] } else { Vec::new() };
            assert_eq!(advisories(&log), want, "{why}");
        }
    }
}
