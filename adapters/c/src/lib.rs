//! falchion for C: the functions that `include/falchion.h` declares. The header documents them for callers.
//!
//! No panic unwinds into C: each function is one call of `guard`, which turns errors and panics into a status
//! and a message.

mod attention;
mod backward;
mod fields;
mod gemm;
mod object;
mod prepare;
mod rows;

use core::cell::RefCell;
use core::ffi::{c_char, c_int, c_void};
use std::ffi::CString;
use std::panic::{AssertUnwindSafe, catch_unwind};

pub use attention::{
    AttentionKernel, falchion_attention_create, falchion_attention_destroy, falchion_attention_emulate,
    falchion_attention_launch, falchion_attention_load, falchion_attention_microseconds,
    falchion_attention_name, falchion_attention_ptx, falchion_attention_tune, falchion_attention_workspace,
};
pub use backward::{
    BackwardKernel, falchion_attention_backward_create, falchion_attention_backward_destroy,
    falchion_attention_backward_emulate, falchion_attention_backward_launch,
    falchion_attention_backward_load, falchion_attention_backward_microseconds,
    falchion_attention_backward_name, falchion_attention_backward_tune,
    falchion_attention_backward_workspace,
};
pub use gemm::Gemm;
pub use prepare::{
    falchion_sparse_compress, falchion_sparse_sizes, falchion_weights_bytes, falchion_weights_reorder,
};
pub use rows::{
    falchion_append_pages, falchion_append_pages_emulate, falchion_merge_attention,
    falchion_merge_attention_emulate,
};

/// The status that a function returns: `falchion_status`.
pub type Status = c_int;

/// `FALCHION_OK`.
pub const OK: Status = 0;
/// `FALCHION_INVALID`.
pub const INVALID: Status = 1;
/// `FALCHION_NO_KERNEL`.
pub const NO_KERNEL: Status = 2;
/// `FALCHION_DRIVER`.
pub const DRIVER: Status = 3;
/// `FALCHION_FAULT`.
pub const FAULT: Status = 4;
/// `FALCHION_INTERNAL`.
pub const INTERNAL: Status = 5;

/// An error: a status and its message.
pub(crate) struct Failure(pub(crate) Status, pub(crate) String);

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

fn invalid<T>(words: String) -> Result<T, Failure> {
    Err(Failure(INVALID, words))
}

/// A string for C. It ends at its first zero.
pub(crate) fn text(words: &str) -> CString {
    let end = words.find('\0').unwrap_or(words.len());
    CString::new(&words[..end]).unwrap_or_default()
}

fn guard(call: impl FnOnce() -> Result<(), Failure>) -> Status {
    let result = catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| {
        let words = panic.downcast_ref::<String>().map(String::as_str);
        let words = words.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no words");
        Err(Failure(INTERNAL, format!("a mistake of this library: {words}")))
    });
    match result {
        Ok(()) => OK,
        Err(Failure(status, words)) => {
            LAST.with(|last| *last.borrow_mut() = text(&words));
            status
        }
    }
}

/// The value that a pointer points to, or an error for a null pointer.
///
/// # Safety
/// The pointer is null, or points to a valid value that does not change meanwhile.
unsafe fn given<'a, T>(pointer: *const T, name: &str) -> Result<&'a T, Failure> {
    // SAFETY: the caller guarantees it.
    unsafe { pointer.as_ref() }.ok_or_else(|| Failure(INVALID, format!("{name} is NULL, one was needed")))
}

/// Makes a value for a caller, who gets its address.
///
/// # Safety
/// The pointer is null or may be written.
unsafe fn create<T>(out: *mut *mut T, name: &str, make: impl FnOnce() -> Result<T, Failure>) -> Status {
    guard(|| {
        // SAFETY: the caller guarantees it.
        let out = unsafe { out.as_mut() };
        let out = out.ok_or_else(|| Failure(INVALID, format!("{name} is NULL, one was needed")))?;
        *out = core::ptr::null_mut();
        *out = Box::into_raw(Box::new(make()?));
        Ok(())
    })
}

/// Frees a value; null is ignored.
///
/// # Safety
/// The pointer is null, or [`create`] made it and it is no longer used.
unsafe fn destroy<T>(value: *mut T) {
    if !value.is_null() {
        guard(|| {
            // SAFETY: `Box::into_raw` made the pointer.
            drop(unsafe { Box::from_raw(value) });
            Ok(())
        });
    }
}

/// Writes a number of bytes that a value knows.
///
/// # Safety
/// The value is null or valid, and `bytes` is null or may be written.
unsafe fn write_bytes<T>(
    value: *const T,
    name: &str,
    bytes: *mut u64,
    of: impl FnOnce(&T) -> Result<u64, Failure>,
) -> Status {
    guard(|| {
        // SAFETY: the caller guarantees it.
        let (value, bytes) = unsafe { (given(value, name)?, bytes.as_mut()) };
        let bytes = bytes.ok_or_else(|| Failure(INVALID, "bytes is NULL, one was needed".to_owned()))?;
        *bytes = of(value)?;
        Ok(())
    })
}

/// Returns the library's version, for example `0.1.0`.
#[unsafe(no_mangle)]
pub extern "C" fn falchion_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// Returns the message of the thread's last call that failed; empty if none did.
#[unsafe(no_mangle)]
pub extern "C" fn falchion_last_error() -> *const c_char {
    LAST.with(|last| last.borrow().as_ptr())
}

/// # Safety
/// As [`falchion_gemm_create`].
unsafe fn make(description: *const c_void, budget: Option<u32>, gemm: *mut *mut Gemm) -> Status {
    // SAFETY: the caller guarantees valid pointers, and they are used only here.
    unsafe { create(gemm, "gemm", || Gemm::new(description, budget)) }
}

/// Chooses a kernel for a description, or takes the kernel that its spec names.
///
/// # Safety
/// Both pointers are null or valid, the description has as many bytes as its size says, and its strings are null or end
/// in a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn falchion_gemm_create(description: *const c_void, gemm: *mut *mut Gemm) -> Status {
    // SAFETY: the caller guarantees it.
    unsafe { make(description, None, gemm) }
}

/// Measures kernels for a description on its card, and returns the fastest.
///
/// # Safety
/// As [`falchion_gemm_create`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn falchion_gemm_tune(
    description: *const c_void,
    budget: u32,
    gemm: *mut *mut Gemm,
) -> Status {
    // SAFETY: the caller guarantees it.
    unsafe { make(description, Some(budget), gemm) }
}

/// Returns the kernel's time: measured if it was tuned, otherwise predicted.
///
/// # Safety
/// The kernel is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn falchion_gemm_microseconds(gemm: *const Gemm) -> f64 {
    // SAFETY: the caller guarantees it.
    unsafe { gemm.as_ref() }.map_or(f64::NAN, Gemm::microseconds)
}

/// Frees a kernel; null is ignored.
///
/// # Safety
/// The kernel is null, or [`falchion_gemm_create`] made it and it is no longer used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn falchion_gemm_destroy(gemm: *mut Gemm) {
    // SAFETY: the caller guarantees it.
    unsafe { destroy(gemm) }
}

/// Returns the text of the kernel's spec.
///
/// # Safety
/// The kernel is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn falchion_gemm_name(gemm: *const Gemm) -> *const c_char {
    // SAFETY: the caller guarantees it.
    unsafe { gemm.as_ref() }.map_or(core::ptr::null(), |gemm| gemm.name.as_ptr())
}

/// Returns the kernel's program as PTX.
///
/// # Safety
/// The kernel is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn falchion_gemm_ptx(gemm: *const Gemm) -> *const c_char {
    // SAFETY: the caller guarantees it.
    unsafe { gemm.as_ref() }.map_or(core::ptr::null(), |gemm| gemm.ptx.as_ptr())
}

/// Compiles the kernel for a card, in its primary context.
///
/// # Safety
/// The kernel is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn falchion_gemm_load(gemm: *mut Gemm, device: c_int) -> Status {
    // SAFETY: the caller guarantees it.
    unsafe { object::load(gemm, device) }
}

/// Writes the size in bytes of the workspace that a launch needs in addition to its matrices.
///
/// # Safety
/// The kernel is null or valid, and `bytes` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn falchion_gemm_workspace(gemm: *const Gemm, bytes: *mut u64) -> Status {
    // SAFETY: the caller guarantees it.
    unsafe { write_bytes(gemm, "gemm", bytes, Gemm::workspace) }
}

/// Enqueues a GEMM on a stream.
///
/// # Safety
/// Kernel and arguments are null or valid. The stream is alive and belongs to the card's primary context. The
/// matrices have the described sizes, and are in memory that the device can access until the launch has
/// ended. No other work uses D and the workspace meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn falchion_gemm_launch(
    gemm: *mut Gemm,
    stream: *mut c_void,
    arguments: *const c_void,
) -> Status {
    // SAFETY: the caller guarantees it.
    unsafe { object::launch(gemm, stream, arguments) }
}

/// Runs the kernel in the emulator, on the host's memory.
///
/// # Safety
/// Kernel and arguments are null or valid. The matrices are in the host's memory and have the described
/// sizes. No other thread uses D meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn falchion_gemm_emulate(gemm: *mut Gemm, arguments: *const c_void) -> Status {
    // SAFETY: the caller guarantees it.
    unsafe { object::emulate(gemm, arguments) }
}
