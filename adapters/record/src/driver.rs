//! The driver's functions that a recording asks: each call is past all hooks, and a missing function is no answer.
#![allow(unsafe_code, reason = "calls the CUDA driver")]

use core::ffi::{CStr, c_char, c_int, c_void};

use crate::symbols::Slot;

/// `CUresult`.
pub(crate) type Status = c_int;

/// `CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND`: the driver lacks a function.
pub(crate) const MISSING: Status = 302;

/// Calls a function of the driver. `None` if there is no such function, or it fails.
///
/// # Safety
/// `F` must be the type of the function of this name in `cuda.h`.
unsafe fn ask<F: Copy>(slot: &Slot, call: impl FnOnce(F) -> Status) -> Option<()> {
    const { assert!(size_of::<F>() == size_of::<usize>()) };
    let address = Some(slot.get()).filter(|&address| address != 0)?;
    // SAFETY: it is the address of that function, and a function pointer is an address.
    let status = call(unsafe { core::mem::transmute_copy::<usize, F>(&address) });
    (status == 0).then_some(())
}

/// Waits for everything that the context has been given.
pub(crate) fn synchronize() -> Option<()> {
    type Synchronize = unsafe extern "C" fn() -> Status;
    static SLOT: Slot = Slot::new(c"cuCtxSynchronize");
    // SAFETY: the type is that in `cuda.h`.
    unsafe { ask(&SLOT, |call: Synchronize| call()) }
}

/// Whether a stream is being captured. A driver that does not say so has no captures.
pub(crate) fn is_captured(stream: usize) -> bool {
    type Capturing = unsafe extern "C" fn(usize, *mut c_int) -> Status;
    static SLOT: Slot = Slot::new(c"cuStreamIsCapturing");
    let mut status = 0;
    // SAFETY: the type is that in `cuda.h`, and one integer is written.
    let said = unsafe { ask(&SLOT, |call: Capturing| call(stream, &raw mut status)) };
    said.is_some() && status != 0
}

/// Exchanges the thread's mode for captures with this one.
fn exchange(mode: &mut c_int) -> Option<()> {
    type Exchange = unsafe extern "C" fn(*mut c_int) -> Status;
    static SLOT: Slot = Slot::new(c"cuThreadExchangeStreamCaptureMode");
    // SAFETY: the type is that in `cuda.h`, and one integer is read and written.
    unsafe { ask(&SLOT, |call: Exchange| call(mode)) }
}

/// `CU_STREAM_CAPTURE_MODE_RELAXED`.
const RELAXED: c_int = 2;

/// Runs something while captures of other threads do not forbid it.
pub(crate) fn relaxed<T>(part: impl FnOnce() -> T) -> T {
    let mut mode = RELAXED;
    let was_changed = exchange(&mut mode).is_some();
    let made = part();
    if was_changed {
        exchange(&mut mode);
    }
    made
}

/// The allocation of an address: where it begins, and its bytes.
pub(crate) fn allocation(address: u64) -> Option<(u64, u64)> {
    type Range = unsafe extern "C" fn(*mut u64, *mut usize, u64) -> Status;
    static SLOT: Slot = Slot::new(c"cuMemGetAddressRange_v2");
    let (mut base, mut bytes) = (0u64, 0usize);
    // SAFETY: the type is that in `cuda.h`, and two numbers are written.
    unsafe { ask(&SLOT, |call: Range| call(&raw mut base, &raw mut bytes, address)) }?;
    (base <= address && address - base < bytes as u64).then_some((base, bytes as u64))
}

/// Reads device memory.
pub(crate) fn read(address: u64, bytes: usize) -> Option<Vec<u8>> {
    type Copy = unsafe extern "C" fn(*mut c_void, u64, usize) -> Status;
    static SLOT: Slot = Slot::new(c"cuMemcpyDtoH_v2");
    let mut memory = vec![0u8; bytes];
    let to = memory.as_mut_ptr().cast::<c_void>();
    // SAFETY: the type is that in `cuda.h`, and as many bytes are written as there are.
    unsafe { ask(&SLOT, |call: Copy| call(to, address, bytes)) }?;
    Some(memory)
}

/// Offset and size of a parameter of a function, or of a kernel of a library.
pub(crate) fn parameter(handle: usize, is_kernel: bool, number: usize) -> Option<(usize, usize)> {
    type Info = unsafe extern "C" fn(usize, usize, *mut usize, *mut usize) -> Status;
    static OF_FUNCTION: Slot = Slot::new(c"cuFuncGetParamInfo");
    static OF_KERNEL: Slot = Slot::new(c"cuKernelGetParamInfo");
    let slot = if is_kernel { &OF_KERNEL } else { &OF_FUNCTION };
    let (mut offset, mut size) = (0usize, 0usize);
    // SAFETY: both have the type in `cuda.h`, and two numbers are written.
    unsafe { ask(slot, |call: Info| call(handle, number, &raw mut offset, &raw mut size)) }?;
    Some((offset, size))
}

/// The name of a function or of a kernel of a library, and whether it is the latter.
pub(crate) fn name(handle: usize) -> Option<(String, bool)> {
    type Name = unsafe extern "C" fn(*mut *const c_char, usize) -> Status;
    static OF_FUNCTION: Slot = Slot::new(c"cuFuncGetName");
    static OF_KERNEL: Slot = Slot::new(c"cuKernelGetName");
    let mut text: *const c_char = core::ptr::null();
    // SAFETY: both have the type in `cuda.h`, and one pointer is written.
    let mut named = |slot| unsafe { ask(slot, |call: Name| call(&raw mut text, handle)) };
    let is_kernel = named(&OF_FUNCTION).is_none();
    if is_kernel {
        named(&OF_KERNEL)?;
    }
    if text.is_null() {
        return None;
    }
    // SAFETY: the driver has given a text, which lives as long as the function.
    let name = unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned();
    Some((name, is_kernel))
}

/// The module of a function.
pub(crate) fn module(function: usize) -> Option<usize> {
    type Module = unsafe extern "C" fn(*mut usize, usize) -> Status;
    static SLOT: Slot = Slot::new(c"cuFuncGetModule");
    let mut module = 0usize;
    // SAFETY: the type is that in `cuda.h`, and one handle is written.
    unsafe { ask(&SLOT, |call: Module| call(&raw mut module, function)) }?;
    Some(module)
}
