//! The driver's functions that a recording asks: each call is past all hooks, and a missing function is no answer.
#![allow(unsafe_code, reason = "calls the CUDA driver")]

use core::ffi::{CStr, c_char, c_int, c_void};

use crate::symbols::Slot;

/// `CUresult`.
pub(crate) type Status = c_int;

/// `CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND`: the driver lacks a function.
pub(crate) const MISSING: Status = 302;

/// Calls a function of the driver: its name, and the arguments with their types. `None` if there is no such function, or it fails.
macro_rules! ask {
    ($name:literal, $($value:expr => $ty:ty),*) => {{
        static SLOT: Slot = Slot::new($name);
        match SLOT.get() {
            0 => None,
            address => {
                // SAFETY: the types are those of the function of this name in `cuda.h`.
                let function: unsafe extern "C" fn($($ty),*) -> Status = unsafe { core::mem::transmute(address) };
                // SAFETY: what is pointed to are values of this function's caller.
                (unsafe { function($($value),*) } == 0).then_some(())
            }
        }
    }};
}

/// Waits for everything that the context has been given.
pub(crate) fn synchronize() -> Option<()> {
    ask!(c"cuCtxSynchronize",)
}

/// Whether a stream is being captured. A driver that does not say so has no captures.
pub(crate) fn is_captured(stream: usize) -> bool {
    let mut status = 0;
    ask!(c"cuStreamIsCapturing", stream => usize, &raw mut status => *mut c_int).is_some() && status != 0
}

/// Runs something while captures of other threads do not forbid it.
pub(crate) fn relaxed<T>(part: impl FnOnce() -> T) -> T {
    let mut mode: c_int = 2;
    let was_changed = ask!(c"cuThreadExchangeStreamCaptureMode", &raw mut mode => *mut c_int).is_some();
    let made = part();
    if was_changed {
        ask!(c"cuThreadExchangeStreamCaptureMode", &raw mut mode => *mut c_int);
    }
    made
}

/// The allocation of an address: where it begins, and its bytes.
pub(crate) fn allocation(address: u64) -> Option<(u64, u64)> {
    let (mut base, mut bytes) = (0u64, 0usize);
    let (to, size) = (&raw mut base, &raw mut bytes);
    ask!(c"cuMemGetAddressRange_v2", to => *mut u64, size => *mut usize, address => u64)?;
    (base <= address && address - base < bytes as u64).then_some((base, bytes as u64))
}

/// Reads device memory.
pub(crate) fn read(address: u64, bytes: usize) -> Option<Vec<u8>> {
    let mut memory = vec![0u8; bytes];
    let to = memory.as_mut_ptr().cast::<c_void>();
    ask!(c"cuMemcpyDtoH_v2", to => *mut c_void, address => u64, bytes => usize)?;
    Some(memory)
}

/// Offset and size of a parameter of a kernel.
pub(crate) fn parameter(function: usize, is_kernel: bool, number: usize) -> Option<(usize, usize)> {
    let (mut offset, mut size) = (0usize, 0usize);
    let (at, bytes) = (&raw mut offset, &raw mut size);
    if is_kernel {
        let kernel = function;
        ask!(c"cuKernelGetParamInfo", kernel => usize, number => usize, at => *mut usize, bytes => *mut usize)?;
    } else {
        ask!(c"cuFuncGetParamInfo", function => usize, number => usize, at => *mut usize, bytes => *mut usize)?;
    }
    Some((offset, size))
}

/// The name of a function, and whether it is a kernel of a library.
pub(crate) fn name(function: usize) -> Option<(String, bool)> {
    let mut text: *const c_char = core::ptr::null();
    let to = &raw mut text;
    let is_function = ask!(c"cuFuncGetName", to => *mut *const c_char, function => usize).is_some();
    if !is_function {
        ask!(c"cuKernelGetName", to => *mut *const c_char, function => usize)?;
    }
    if text.is_null() {
        return None;
    }
    // SAFETY: the driver has given a text, which lives as long as the function.
    let name = unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned();
    Some((name, !is_function))
}

/// The module of a function.
pub(crate) fn module(function: usize) -> Option<usize> {
    let mut module = 0usize;
    ask!(c"cuFuncGetModule", &raw mut module => *mut usize, function => usize)?;
    Some(module)
}
