//! The gradient of attention in the C interface: described as attention is, loaded, launched, emulated.

use core::ffi::{c_char, c_int, c_void};
use std::ffi::CString;

use falchion::attention::backward::{AttentionBackward, BackwardCall};
use falchion_core::{GRADIENT, Heads, Picked, bind};

use crate::fields::Values;
use crate::object::{Choice, Object, emulate, launch, load};
use crate::{Failure, Status, create, destroy, invalid, text, write_bytes};

/// The kernels for the gradient of attention of one shape: `falchion_attention_backward`.
pub struct BackwardKernel {
    name: CString,
    backward: Picked<AttentionBackward>,
    /// What was described, with a call of the forward pass whose addresses are 0.
    heads: Heads,
    /// Most bytes that a call needs.
    workspace: u64,
    args_size: usize,
}

impl core::fmt::Debug for BackwardKernel {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.backward.fmt(f)
    }
}

impl BackwardKernel {
    /// # Safety
    /// The description is null, or has as many bytes as its size says, and its strings are null or end in a zero.
    unsafe fn new(description: *const c_void, budget: Option<u32>) -> Result<Self, Failure> {
        // SAFETY: the caller guarantees it.
        let values = unsafe { Values::sized(GRADIENT.described, description) }?;
        let mut heads = Heads::default();
        GRADIENT.described.say(&mut heads, &values.all, GRADIENT.without)?;
        if !heads.alignment.is_multiple_of(16) {
            return invalid(format!(
                "alignment is {}, 0 or a multiple of 16 was needed for a gradient",
                heads.alignment
            ));
        }
        let asked = heads.asked()?;
        let backward = Choice::of(&values, budget).kernel::<AttentionBackward>(&asked.request)?;
        let largest = asked.largest();
        let workspace = backward.kernel().workspace(&largest.problem, &largest.packed);
        let args_size = values.number("args_size") as usize;
        Ok(Self { name: text(backward.name()), backward, heads: heads.of(asked), workspace, args_size })
    }
}

impl Object for BackwardKernel {
    const NAME: &'static str = "backward";
    const NOT_LOADED: &'static str =
        "the kernels are not loaded: call falchion_attention_backward_load first";
    type Family = AttentionBackward;

    fn picked(&self) -> &Picked<AttentionBackward> {
        &self.backward
    }

    unsafe fn call(&self, arguments: *const c_void) -> Result<BackwardCall, Failure> {
        // SAFETY: the caller guarantees it.
        let values = unsafe { Values::given(GRADIENT.given, arguments, self.args_size) }?;
        let mut heads = self.heads.clone();
        let memory = GRADIENT.given.say(&mut heads, &values.all, &[])?;
        // SAFETY: the caller guarantees it.
        unsafe { crate::attention::arrays(&values, &mut heads) }?;
        let mut call = heads.backward();
        bind(self.backward.kernel(), &mut call, &memory)?;
        call.workspace = values.workspace()?;
        Ok(call)
    }
}

/// # Safety
/// As [`falchion_attention_backward_create`].
unsafe fn make(
    description: *const c_void,
    budget: Option<u32>,
    backward: *mut *mut BackwardKernel,
) -> Status {
    // SAFETY: the caller guarantees valid pointers, and they are used only here.
    unsafe { create(backward, "backward", || BackwardKernel::new(description, budget)) }
}

/// Makes the kernels for the gradient of described attention.
///
/// # Safety
/// Both pointers are null or valid, the description has as many bytes as its size says, and its strings are null or end
/// in a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn falchion_attention_backward_create(
    description: *const c_void,
    backward: *mut *mut BackwardKernel,
) -> Status {
    // SAFETY: the caller guarantees it.
    unsafe { make(description, None, backward) }
}

/// Measures kernels for a description on its card, and returns the fastest.
///
/// # Safety
/// As [`falchion_attention_backward_create`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn falchion_attention_backward_tune(
    description: *const c_void,
    budget: u32,
    backward: *mut *mut BackwardKernel,
) -> Status {
    // SAFETY: the caller guarantees it.
    unsafe { make(description, Some(budget), backward) }
}

/// Frees the kernels; null is ignored.
///
/// # Safety
/// The pointer is null, or [`falchion_attention_backward_create`] made it and it is no longer used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn falchion_attention_backward_destroy(backward: *mut BackwardKernel) {
    // SAFETY: the caller guarantees it.
    unsafe { destroy(backward) }
}

/// Returns the text of the kernels' spec; that of the default is empty.
///
/// # Safety
/// The pointer is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn falchion_attention_backward_name(backward: *const BackwardKernel) -> *const c_char {
    // SAFETY: the caller guarantees it.
    unsafe { backward.as_ref() }.map_or(core::ptr::null(), |backward| backward.name.as_ptr())
}

/// Returns the kernels' time: measured if they were tuned, otherwise predicted.
///
/// # Safety
/// The pointer is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn falchion_attention_backward_microseconds(backward: *const BackwardKernel) -> f64 {
    // SAFETY: the caller guarantees it.
    unsafe { backward.as_ref() }.map_or(f64::NAN, |backward| backward.backward.microseconds())
}

/// Compiles the kernels for a card, in its primary context.
///
/// # Safety
/// The pointer is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn falchion_attention_backward_load(
    backward: *mut BackwardKernel,
    device: c_int,
) -> Status {
    // SAFETY: the caller guarantees it.
    unsafe { load(backward, device) }
}

/// Writes the size in bytes of the workspace that a launch needs.
///
/// # Safety
/// The kernels are null or valid, and `bytes` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn falchion_attention_backward_workspace(
    backward: *const BackwardKernel,
    bytes: *mut u64,
) -> Status {
    // SAFETY: the caller guarantees it.
    unsafe { write_bytes(backward, "backward", bytes, |backward| Ok(backward.workspace)) }
}

/// Enqueues the gradient on a stream.
///
/// # Safety
/// As `falchion_attention_launch`; the gradients and the workspace are written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn falchion_attention_backward_launch(
    backward: *mut BackwardKernel,
    stream: *mut c_void,
    arguments: *const c_void,
) -> Status {
    // SAFETY: the caller guarantees it.
    unsafe { launch(backward, stream, arguments) }
}

/// Runs the kernels in the emulator, on the host's memory.
///
/// # Safety
/// As `falchion_attention_emulate`; the gradients are written. The workspace is the emulator's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn falchion_attention_backward_emulate(
    backward: *mut BackwardKernel,
    arguments: *const c_void,
) -> Status {
    // SAFETY: the caller guarantees it.
    unsafe { emulate(backward, arguments) }
}
