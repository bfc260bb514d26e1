//! falchion for C: what `include/falchion.h` declares.
//!
//! Nothing unwinds into C: each function is one call of [`guard`], which turns errors, and panics, into a status and words.

mod gemm;

use core::cell::RefCell;
use core::ffi::{c_char, c_int, c_void};
use std::ffi::CString;
use std::panic::{AssertUnwindSafe, catch_unwind};

pub use gemm::{Arguments, Description, Gemm};

/// What a function returns: `falchion_status`.
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

/// What is wrong: a status and its words.
pub(crate) struct Failure(pub(crate) Status, pub(crate) String);

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// A text for C. It ends at its first zero.
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

/// What a pointer points to, if it is one.
///
/// # Safety
/// It is null, or points to such a value that nobody changes meanwhile.
unsafe fn given<'a, T>(pointer: *const T, name: &str) -> Result<&'a T, Failure> {
    // SAFETY: the caller says so.
    unsafe { pointer.as_ref() }.ok_or_else(|| Failure(INVALID, format!("{name} is NULL, one was needed")))
}

/// The library's version.
#[unsafe(no_mangle)]
pub extern "C" fn falchion_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// What was wrong with the thread's last call that failed.
#[unsafe(no_mangle)]
pub extern "C" fn falchion_last_error() -> *const c_char {
    LAST.with(|last| last.borrow().as_ptr())
}

/// Chooses or names a kernel.
///
/// # Safety
/// Both pointers are null or valid, and the description's texts are null or end in a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn falchion_gemm_create(
    description: *const Description,
    gemm: *mut *mut Gemm,
) -> Status {
    guard(|| {
        // SAFETY: the caller's pointers, which are looked at here alone.
        unsafe {
            let out =
                gemm.as_mut().ok_or_else(|| Failure(INVALID, "gemm is NULL, one was needed".to_owned()))?;
            *out = core::ptr::null_mut();
            *out = Box::into_raw(Box::new(Gemm::new(given(description, "desc")?)?));
        }
        Ok(())
    })
}

/// Frees a kernel.
///
/// # Safety
/// It is null, or [`falchion_gemm_create`] made it and nobody uses it any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn falchion_gemm_destroy(gemm: *mut Gemm) {
    if !gemm.is_null() {
        guard(|| {
            // SAFETY: it was made by `Box::into_raw`.
            drop(unsafe { Box::from_raw(gemm) });
            Ok(())
        });
    }
}

/// The kernel's words.
///
/// # Safety
/// The kernel is null or one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn falchion_gemm_name(gemm: *const Gemm) -> *const c_char {
    // SAFETY: the caller says so.
    unsafe { gemm.as_ref() }.map_or(core::ptr::null(), |gemm| gemm.name.as_ptr())
}

/// The kernel's program.
///
/// # Safety
/// The kernel is null or one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn falchion_gemm_ptx(gemm: *const Gemm) -> *const c_char {
    // SAFETY: the caller says so.
    unsafe { gemm.as_ref() }.map_or(core::ptr::null(), |gemm| gemm.ptx.as_ptr())
}

/// Compiles the kernel for a card.
///
/// # Safety
/// The kernel is null or one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn falchion_gemm_load(gemm: *mut Gemm, device: c_int) -> Status {
    // SAFETY: the caller says so.
    guard(|| unsafe { given(gemm, "gemm") }?.load(device))
}

/// Bytes of device memory that a launch needs beside its matrices.
///
/// # Safety
/// The kernel is null or one, and a number is written where `bytes` is no null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn falchion_gemm_workspace(gemm: *const Gemm, bytes: *mut u64) -> Status {
    guard(|| {
        // SAFETY: the caller says so.
        let (gemm, bytes) = unsafe { (given(gemm, "gemm")?, bytes.as_mut()) };
        let bytes = bytes.ok_or_else(|| Failure(INVALID, "bytes is NULL, one was needed".to_owned()))?;
        *bytes = gemm.workspace()?;
        Ok(())
    })
}

/// Enqueues a product.
///
/// # Safety
/// Kernel and arguments are null or valid; the stream is alive and of the card's primary context; the matrices lie, as large as they were said to be, in
/// memory that the device reaches until the launch has ended, and nobody else uses D and the workspace meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn falchion_gemm_launch(
    gemm: *mut Gemm,
    stream: *mut c_void,
    arguments: *const Arguments,
) -> Status {
    // SAFETY: the caller says so.
    guard(|| unsafe { given(gemm, "gemm")?.launch(stream, given(arguments, "args")?) })
}

/// Runs the kernel on the host's memory.
///
/// # Safety
/// Kernel and arguments are null or valid; the matrices lie in the host's memory, as large as they were said to be, and nobody else uses D meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn falchion_gemm_emulate(gemm: *mut Gemm, arguments: *const Arguments) -> Status {
    // SAFETY: the caller says so.
    guard(|| unsafe { given(gemm, "gemm")?.emulate(given(arguments, "args")?) })
}
