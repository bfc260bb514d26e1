//! Modules: PTX text that the driver's loader compiles, or a binary; with what the compiler had to say.
#![allow(unsafe_code, reason = "calls the CUDA driver")]

use core::ffi::{c_int, c_uint, c_void};
use core::fmt;
use core::ptr;
use std::ffi::CString;
use std::sync::Arc;

use super::call;
use super::context::Context;
use super::sys::{RawFunction, RawModule, STICKY, SUCCESS, Status, jit};
use crate::disk::Compiled;
use crate::error::EngineError;

/// Bytes kept of each of the compiler's two logs.
const LOG_BYTES: usize = 32 * 1024;

/// What the compiler says of its work, and of what it refuses.
struct Logs {
    info: Vec<u8>,
    errors: Vec<u8>,
}

impl Logs {
    fn new() -> Self {
        Self { info: vec![0; LOG_BYTES], errors: vec![0; LOG_BYTES] }
    }

    /// How many options there are, `CUjit_option`s, and their values: addresses of both logs.
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

    /// What the compiler said of its work.
    fn info(&self) -> String {
        log_text(&self.info)
    }

    /// Fails where a call did: with the log, if the compiler wrote one.
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

/// A log buffer up to its NUL.
fn log_text(buffer: &[u8]) -> String {
    let end = buffer.iter().position(|&byte| byte == 0).unwrap_or(buffer.len());
    String::from_utf8_lossy(&buffer[..end]).trim().to_owned()
}

/// One loaded module.
pub(super) struct Module {
    raw: RawModule,
    context: Arc<Context>,
    log: String,
}

// SAFETY: a module is a handle that the driver accepts from any thread on which its context is current.
unsafe impl Send for Module {}
// SAFETY: as above; nothing behind a shared reference is changed.
unsafe impl Sync for Module {}

impl fmt::Debug for Module {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Module").field("log", &self.log).finish_non_exhaustive()
    }
}

impl Module {
    /// Compiles and loads a module; `kernel` is its name in errors.
    ///
    /// # Errors
    /// The compiler's log where it refused the text, or a driver error.
    pub(super) fn compile(context: &Arc<Context>, kernel: &str, text: &str) -> Result<Self, EngineError> {
        context.bind()?;
        let image = CString::new(text).map_err(|_| {
            let log = "the text holds a NUL character".to_owned();
            EngineError::Compile { kernel: kernel.to_owned(), log }
        })?;
        let mut logs = Logs::new();
        let (count, mut options, mut values) = logs.options();
        let mut raw = ptr::null_mut();
        // SAFETY: the image ends in NUL; there are as many options as values, each value of the kind its option
        // takes, and both buffers are as long as stated and outlive the call.
        let status = unsafe {
            (context.functions().module_load)(
                &mut raw,
                image.as_ptr().cast(),
                count,
                options.as_mut_ptr(),
                values.as_mut_ptr(),
            )
        };
        logs.judge(context, kernel, "cuModuleLoadDataEx", status)?;
        Ok(Self { raw, context: Arc::clone(context), log: logs.info() })
    }

    /// Loads a binary; `log` is what its compiler said.
    ///
    /// # Errors
    /// The driver refuses the binary, or another driver error.
    pub(super) fn load(
        context: &Arc<Context>,
        kernel: &str,
        Compiled { cubin, log }: Compiled,
    ) -> Result<Self, EngineError> {
        context.bind()?;
        let mut raw = ptr::null_mut();
        // SAFETY: the image is a whole ELF file, whose header says how long it is: the assembler that the user named wrote it,
        // or an entry on disk holds it whose checksum is right, or the caller of an unsafe function vouches for it. It outlives
        // the call.
        let status = unsafe {
            (context.functions().module_load)(
                &mut raw,
                cubin.as_ptr().cast(),
                0,
                ptr::null_mut(),
                ptr::null_mut(),
            )
        };
        context.check_kernel(kernel, "cuModuleLoadDataEx", status)?;
        Ok(Self { raw, context: Arc::clone(context), log })
    }

    /// The context it is loaded in.
    pub(super) fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// What the compiler said; empty where the driver took the binary from its own cache.
    pub(super) fn log(&self) -> &str {
        &self.log
    }

    /// An entry of the module. It is valid as long as the module is.
    pub(super) fn function(&self, name: &str) -> Result<RawFunction, EngineError> {
        self.context.bind()?;
        let c_name = CString::new(name).unwrap_or_default();
        let mut function = ptr::null_mut();
        // SAFETY: the module is loaded until `self` is dropped; one handle is written.
        let status =
            unsafe { (self.context.functions().module_function)(&mut function, self.raw, c_name.as_ptr()) };
        self.context.check_kernel(name, "cuModuleGetFunction", status)?;
        Ok(function)
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        // A launch of it may be in flight.
        self.context.wait();
        if self.context.bind().is_ok() {
            // SAFETY: it was loaded once and nothing uses it after this. After a fault the driver answers with that
            // fault, and there is nothing left to release.
            let _ = unsafe { (self.context.functions().module_unload)(self.raw) };
        }
    }
}

/// Lines of a compiler's log that foretell a slow kernel: advisories C75xx (`wgmma` made serial, `setmaxnreg`
/// ignored) and spills or stack frames of more than no bytes.
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
