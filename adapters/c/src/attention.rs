//! The attention kernel of the C interface: described, chosen or tuned, loaded, launched, emulated.

use core::ffi::{c_char, c_int, c_void};
use std::ffi::CString;

use falchion::attention::{Attention, AttentionCall};
use falchion::kernel::operands::Memory;
use falchion::kernel::{Buffer, Kernel};
use falchion_core::{ARRAY, ATTENTION, Heads, NamedArray, Picked, aligned, bind};

use crate::fields::Values;
use crate::object::{Choice, Object, emulate, failed, launch, load};
use crate::{Failure, Status, create, destroy, invalid, text, write_bytes};

/// An attention kernel for one shape: `falchion_attention`.
pub struct AttentionKernel {
    name: CString,
    ptx: CString,
    attend: Picked<Attention>,
    /// What was described, with a call whose addresses are 0.
    heads: Heads,
    /// Most bytes that a call needs.
    workspace: u64,
    args_size: usize,
}

impl core::fmt::Debug for AttentionKernel {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("AttentionKernel").field("name", &self.name).finish_non_exhaustive()
    }
}

impl AttentionKernel {
    /// # Safety
    /// The description is null, or has as many bytes as its size says, and its strings are null or end in a zero.
    unsafe fn new(description: *const c_void, budget: Option<u32>) -> Result<Self, Failure> {
        // SAFETY: the caller guarantees it.
        let values = unsafe { Values::sized(ATTENTION.described, description) }?;
        let mut heads = Heads::default();
        ATTENTION.described.say(&mut heads, &values.all, ATTENTION.without)?;
        let asked = heads.asked()?;
        let attend = Choice::of(&values, budget).kernel::<Attention>(&asked.request)?;
        // What a launch would refuse, whatever the addresses are.
        let mut tried = asked.largest();
        let bytes = attend.workspace(&tried).unwrap_or(0);
        attend.kernel().visit(&mut tried, &mut |memory: Memory<'_>| {
            // What is written shares memory with nothing.
            let alignment = if memory.writes && !asked.request.aligned { 4 } else { 256 };
            if memory.extents.bytes() > 0 {
                *memory.address = (if memory.writes { 1 << 47 } else { 1 << 46 }) | aligned(alignment);
            }
        });
        tried.workspace = Some(Buffer::new(1 << 45 | aligned(256), bytes));
        attend.kernel().launch(&tried, 1).or_else(|error| invalid(error.to_string()))?;
        Ok(Self {
            name: text(attend.name()),
            ptx: text(attend.program().map_err(|error| failed(&error))?.text()),
            attend,
            heads: heads.of(asked),
            workspace: bytes,
            args_size: values.number("args_size") as usize,
        })
    }
}

impl Object for AttentionKernel {
    const NAME: &'static str = "attention";
    const NOT_LOADED: &'static str = "the kernel is not loaded: call falchion_attention_load first";
    type Family = Attention;

    fn picked(&self) -> &Picked<Attention> {
        &self.attend
    }

    unsafe fn call(&self, arguments: *const c_void) -> Result<AttentionCall, Failure> {
        // SAFETY: the caller guarantees it.
        let values = unsafe { Values::given(ATTENTION.given, arguments, self.args_size) }?;
        let mut heads = self.heads.clone();
        let memory = ATTENTION.given.say(&mut heads, &values.all, &[])?;
        bind(self.attend.kernel(), &mut heads.call, &memory)?;
        // SAFETY: the caller guarantees it.
        unsafe { arrays(&values, &mut heads) }?;
        heads.call.workspace = values.workspace()?;
        Ok(heads.call)
    }
}

/// The arrays of formulas, which are given by their names.
///
/// # Safety
/// As [`Object::call`].
pub(crate) unsafe fn arrays(values: &Values<'_, Heads>, heads: &mut Heads) -> Result<(), Failure> {
    let [address, count, size] =
        ["arrays", "array_count", "array_size"].map(|name| values.number(name) as usize);
    if address == 0 && count > 0 {
        return invalid(format!("arrays is NULL and array_count {count}, arrays were needed"));
    }
    let size = if size == 0 { ARRAY.laid_out().1 } else { size };
    let first = core::ptr::with_exposed_provenance::<c_void>(address);
    for i in 0..count {
        // SAFETY: the caller guarantees that number of them, of that size.
        let values = unsafe { Values::read(ARRAY, first.byte_add(i * size), size) }?;
        let mut array = NamedArray::new();
        ARRAY.say(&mut array, &values.all, &[])?;
        heads.arrays.push(array.given());
    }
    heads.call.arrays = heads.ordered(&heads.request)?;
    Ok(())
}

/// # Safety
/// As [`falchion_attention_create`].
unsafe fn make(
    description: *const c_void,
    budget: Option<u32>,
    attention: *mut *mut AttentionKernel,
) -> Status {
    // SAFETY: the caller guarantees valid pointers, and they are used only here.
    unsafe { create(attention, "attention", || AttentionKernel::new(description, budget)) }
}

/// Chooses a kernel for a description, or takes the kernel that its spec names.
///
/// # Safety
/// Both pointers are null or valid, the description has as many bytes as its size says, and its strings are null or end
/// in a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn falchion_attention_create(
    description: *const c_void,
    attention: *mut *mut AttentionKernel,
) -> Status {
    // SAFETY: the caller guarantees it.
    unsafe { make(description, None, attention) }
}

/// Measures kernels for a description on its card, and returns the fastest.
///
/// # Safety
/// As [`falchion_attention_create`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn falchion_attention_tune(
    description: *const c_void,
    budget: u32,
    attention: *mut *mut AttentionKernel,
) -> Status {
    // SAFETY: the caller guarantees it.
    unsafe { make(description, Some(budget), attention) }
}

/// Frees a kernel; null is ignored.
///
/// # Safety
/// The kernel is null, or [`falchion_attention_create`] made it and it is no longer used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn falchion_attention_destroy(attention: *mut AttentionKernel) {
    // SAFETY: the caller guarantees it.
    unsafe { destroy(attention) }
}

/// Returns the text of the kernel's spec; that of the default kernel is empty.
///
/// # Safety
/// The kernel is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn falchion_attention_name(attention: *const AttentionKernel) -> *const c_char {
    // SAFETY: the caller guarantees it.
    unsafe { attention.as_ref() }.map_or(core::ptr::null(), |attention| attention.name.as_ptr())
}

/// Returns the kernel's program as PTX.
///
/// # Safety
/// The kernel is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn falchion_attention_ptx(attention: *const AttentionKernel) -> *const c_char {
    // SAFETY: the caller guarantees it.
    unsafe { attention.as_ref() }.map_or(core::ptr::null(), |attention| attention.ptx.as_ptr())
}

/// Returns the kernel's time: measured if it was tuned, otherwise predicted.
///
/// # Safety
/// The kernel is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn falchion_attention_microseconds(attention: *const AttentionKernel) -> f64 {
    // SAFETY: the caller guarantees it.
    unsafe { attention.as_ref() }.map_or(f64::NAN, |attention| attention.attend.microseconds())
}

/// Compiles the kernel for a card, in its primary context.
///
/// # Safety
/// The kernel is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn falchion_attention_load(attention: *mut AttentionKernel, device: c_int) -> Status {
    // SAFETY: the caller guarantees it.
    unsafe { load(attention, device) }
}

/// Writes the size in bytes of the workspace that a launch needs at most.
///
/// # Safety
/// The kernel is null or valid, and `bytes` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn falchion_attention_workspace(
    attention: *const AttentionKernel,
    bytes: *mut u64,
) -> Status {
    // SAFETY: the caller guarantees it.
    unsafe { write_bytes(attention, "attention", bytes, |attention| Ok(attention.workspace)) }
}

/// Enqueues attention on a stream.
///
/// # Safety
/// Kernel and arguments are null or valid. The stream is alive and belongs to the card's primary context. The
/// tensors have the described sizes, and are in memory that the device can access until the launch has
/// ended. No other work uses O and the log-sum-exp meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn falchion_attention_launch(
    attention: *mut AttentionKernel,
    stream: *mut c_void,
    arguments: *const c_void,
) -> Status {
    // SAFETY: the caller guarantees it.
    unsafe { launch(attention, stream, arguments) }
}

/// Runs the kernel in the emulator, on the host's memory.
///
/// # Safety
/// Kernel and arguments are null or valid. The tensors are in the host's memory and have the described
/// sizes. No other thread uses O and the log-sum-exp meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn falchion_attention_emulate(
    attention: *mut AttentionKernel,
    arguments: *const c_void,
) -> Status {
    // SAFETY: the caller guarantees it.
    unsafe { emulate(attention, arguments) }
}
