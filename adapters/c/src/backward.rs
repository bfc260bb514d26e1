//! The gradient of attention in the C interface: described as attention is, loaded, launched, emulated.

use core::ffi::{c_int, c_void};

use falchion::attention::backward::{AttentionBackward, BackwardCall};
use falchion::attention::{AttentionCall, AttentionRequest, HeadsRef, Lengths, Packed};
use falchion_core::Picked;

use crate::attention::{
    Asked, AttentionDescription, CAUSAL, DETERMINISTIC, PACKED, WINDOW, check_flags, largest, read,
    refuse_begins,
};
use crate::description::sized;
use crate::object::{Choice, Object, emulate, launch, load, workspace};
use crate::{Failure, INVALID, Status, create, destroy, invalid, write_bytes};

/// The arguments of a run: `falchion_attention_backward_args`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct BackwardArguments {
    /// Address of Q.
    pub q: *const c_void,
    /// Address of K.
    pub k: *const c_void,
    /// Address of V.
    pub v: *const c_void,
    /// Address of O.
    pub o: *const c_void,
    /// Address of the gradient of O, with O's strides.
    pub d_o: *const c_void,
    /// Address of the log-sum-exp.
    pub log_sum_exp: *const c_void,
    /// Address of the gradient of Q, with Q's strides.
    pub d_q: *mut c_void,
    /// Address of the gradient of K, with K's strides.
    pub d_k: *mut c_void,
    /// Address of the gradient of V, with V's strides.
    pub d_v: *mut c_void,
    /// Workspace in device memory.
    pub workspace: *mut c_void,
    /// Size of the workspace in bytes.
    pub workspace_bytes: u64,
    /// Where sequences of queries, and of keys, begin, with `FALCHION_PACKED`.
    pub begins: [*const c_void; 2],
    /// Number of queries, and of keys, of all sequences.
    pub all: [u32; 2],
}

/// The kernels for the gradient of attention of one shape: `falchion_attention_backward`.
pub struct BackwardKernel {
    backward: Picked<AttentionBackward>,
    /// The forward pass, whose addresses are 0.
    call: AttentionCall,
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
    /// The description has as many bytes as its size says, and its strings are null or end in a zero.
    unsafe fn new(description: *const AttentionDescription) -> Result<Self, Failure> {
        // SAFETY: the caller guarantees it.
        let (description, (Asked { request, call, .. }, spec)) = unsafe {
            let description = read(description)?;
            (description, description.asked()?)
        };
        let known = ["CAUSAL", "WINDOW", "PACKED", "DETERMINISTIC"].into_iter();
        check_flags(&description, &known.zip([CAUSAL, WINDOW, PACKED, DETERMINISTIC]).collect::<Vec<_>>())?;
        if spec.is_some() || request.pages.is_some() || request.output != request.format {
            return invalid(format!(
                "page is {} and the output {}: 0 and {} were needed, and no spec, for a gradient",
                description.page, request.output, request.format
            ));
        }
        if !description.alignment.is_multiple_of(16) {
            return invalid(format!(
                "alignment is {}, 0 or a multiple of 16 was needed for a gradient",
                description.alignment
            ));
        }
        request.check().map_err(|error| Failure(INVALID, error.to_string()))?;
        let fixed = description.flags & DETERMINISTIC != 0;
        let request = AttentionRequest { fixed, aligned: true, ..request };
        let choice = Choice { budget: None, card: description.card, spec: None };
        let backward = choice.kernel::<AttentionBackward>(&request)?;
        let workspace = backward.kernel().workspace(&call.problem, &largest(&call, None).packed);
        Ok(Self { backward, call, workspace, args_size: description.args_size })
    }
}

impl Object for BackwardKernel {
    const NAME: &'static str = "backward";
    const NOT_LOADED: &'static str =
        "the kernels are not loaded: call falchion_attention_backward_load first";
    type Family = AttentionBackward;
    type Arguments = BackwardArguments;

    fn picked(&self) -> &Picked<AttentionBackward> {
        &self.backward
    }

    unsafe fn call(&self, arguments: *const BackwardArguments) -> Result<BackwardCall, Failure> {
        let whole = size_of::<BackwardArguments>();
        let size = if self.args_size == 0 { whole } else { self.args_size };
        // SAFETY: the caller guarantees it.
        let arguments = unsafe { sized(arguments, size, (whole, "falchion_attention_backward_args")) }?;
        let address = |pointer: *const c_void| pointer.expose_provenance() as u64;
        let at = |of: HeadsRef, pointer| HeadsRef { address: address(pointer), ..of };
        let AttentionCall { q, k, v, o, .. } = self.call;
        let packed = self.backward.kernel().plan().spec.lengths == Lengths::Packed;
        refuse_begins(packed, false, arguments.begins, arguments.all)?;
        let forward = AttentionCall {
            q: at(q, arguments.q),
            k: at(k, arguments.k),
            v: at(v, arguments.v),
            o: at(o, arguments.o),
            log_sum_exp: address(arguments.log_sum_exp),
            packed: Packed { begins: arguments.begins.map(address), rows: arguments.all },
            ..self.call.clone()
        };
        let gradients = [at(q, arguments.d_q), at(k, arguments.d_k), at(v, arguments.d_v)];
        Ok(BackwardCall {
            workspace: workspace(arguments.workspace, arguments.workspace_bytes)?,
            ..BackwardCall::of(forward, at(o, arguments.d_o), gradients)
        })
    }
}

/// Makes the kernels for the gradient of described attention.
///
/// # Safety
/// Both pointers are null or valid, the description has as many bytes as its size says, and its strings are null or end
/// in a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn falchion_attention_backward_create(
    description: *const AttentionDescription,
    backward: *mut *mut BackwardKernel,
) -> Status {
    // SAFETY: the caller guarantees valid pointers, and they are used only here.
    unsafe { create(backward, "backward", || BackwardKernel::new(description)) }
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
    arguments: *const BackwardArguments,
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
    arguments: *const BackwardArguments,
) -> Status {
    // SAFETY: the caller guarantees it.
    unsafe { emulate(backward, arguments) }
}
