//! The attention kernel of the C interface: described, chosen or tuned, loaded, launched, emulated.

use core::ffi::{c_char, c_int, c_void};
use std::ffi::CString;

use falchion::attention::{
    Attention, AttentionCall, AttentionProblem, AttentionRequest, HeadsRef, Lengths, Packed, Pages,
};
use falchion::collective::Format;
use falchion::kernel::{Buffer, Kernel};
use falchion_core::{Picked, aligned as aligned_address, call_of, masked, refuse_unused};

use crate::description::{sized, words};
use crate::object::{
    Choice, Object, emulate, failed, launch, load, refuse_numbers, refuse_pointers, workspace,
};
use crate::{Failure, Status, create, destroy, given, invalid, text, write_bytes};

/// The description of attention: `falchion_attention_desc`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct AttentionDescription {
    /// Size of the caller's structure in bytes.
    pub size: usize,
    /// `bf16` or `f16`; `bf16-f32` stores O in `f32`.
    pub types: *const c_char,
    /// Number of sequences.
    pub batch: u32,
    /// Heads of Q and O.
    pub heads: u32,
    /// Heads of K and V; 0 means as many as of Q.
    pub kv_heads: u32,
    /// Queries of a sequence.
    pub queries: u32,
    /// Keys of a sequence.
    pub keys: u32,
    /// Elements of a head of Q and K.
    pub d: u32,
    /// Elements of a head of V and O; 0 means `d`.
    pub dv: u32,
    /// Factor of the scores; 0 means `1 / sqrt(d)`.
    pub scale: f32,
    /// `FALCHION_CAUSAL` and the other flags of attention.
    pub flags: u32,
    /// The card to choose for, counted from 1; 0 is an H200, whether there is a card or not.
    pub card: u32,
    /// Text of the kernel's spec; null lets the library choose.
    pub spec: *const c_char,
    /// Elements from one row to the next, of Q, K, V and O; 0 is packed.
    pub rows: [u64; 4],
    /// Elements from one head to the next; 0 is packed.
    pub head_strides: [u64; 4],
    /// Elements from one sequence to the next; 0 is packed.
    pub sequences: [u64; 4],
    /// Bytes of which O's address is a multiple; 0 is 256. Q, K and V need 16.
    pub alignment: u32,
    /// Zero.
    pub reserved: u32,
    /// Size of the caller's structure of arguments.
    pub args_size: usize,
    /// The end of the structure's first version. Most keys before a query's own and after it, with `FALCHION_WINDOW`; a negative number
    /// is no limit.
    pub window: [i32; 2],
    /// Keys of a page of a cache; 0 is no cache of pages.
    pub page: u32,
    /// Zero.
    pub reserved_too: u32,
}

/// `FALCHION_CAUSAL`.
pub const CAUSAL: u32 = 1;
/// `FALCHION_WINDOW`.
pub const WINDOW: u32 = 2;
/// `FALCHION_PACKED`.
pub const PACKED: u32 = 4;
/// `FALCHION_WORKSPACE`.
pub const WORKSPACE: u32 = 8;
/// `FALCHION_DETERMINISTIC`.
pub const DETERMINISTIC: u32 = 16;

/// The arguments of a run: `falchion_attention_args`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct AttentionArguments {
    /// Address of Q.
    pub q: *const c_void,
    /// Address of K.
    pub k: *const c_void,
    /// Address of V.
    pub v: *const c_void,
    /// Address of O.
    pub o: *mut c_void,
    /// Address of the log-sum-exp, `f32`, packed; null if it is not needed.
    pub log_sum_exp: *mut c_void,
    /// The end of the structure's first version. Where sequences of queries, and of keys, begin, with `FALCHION_PACKED`.
    pub begins: [*const c_void; 2],
    /// Number of queries, and of keys, of all sequences.
    pub all: [u32; 2],
    /// Number of keys of each sequence, with pages.
    pub lengths: *const c_void,
    /// Each sequence's pages.
    pub table: *const c_void,
    /// Entries of the table per sequence.
    pub each: u32,
    /// Pages of the cache.
    pub pages: u32,
    /// Workspace in device memory.
    pub workspace: *mut c_void,
    /// Size of the workspace in bytes.
    pub workspace_bytes: u64,
}

/// An attention kernel for one shape: `falchion_attention`.
pub struct AttentionKernel {
    name: CString,
    ptx: CString,
    attend: Picked<Attention>,
    /// The call, whose addresses are 0.
    call: AttentionCall,
    /// Most bytes that a call needs.
    workspace: u64,
    /// Whether a call may have a workspace.
    lends: bool,
    args_size: usize,
}

impl core::fmt::Debug for AttentionKernel {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("AttentionKernel").field("name", &self.name).finish_non_exhaustive()
    }
}

/// What a description asks for.
pub(crate) struct Asked {
    pub(crate) request: AttentionRequest,
    /// The call, whose addresses are 0.
    pub(crate) call: AttentionCall,
}

/// Whether there are no flags but these, and reserved fields are zero.
pub(crate) fn check_flags(description: &AttentionDescription, known: &[(&str, u32)]) -> Result<(), Failure> {
    let &AttentionDescription { flags, reserved, reserved_too, .. } = description;
    let all = known.iter().fold(0, |all, (_, flag)| all | flag);
    if flags & !all == 0 && [reserved, reserved_too] == [0; 2] {
        return Ok(());
    }
    let names: Vec<_> = known.iter().map(|(name, _)| *name).collect();
    invalid(format!(
        "flags is {flags:#x}, reserved {reserved} and reserved_too {reserved_too}: flags of {} and zeros were needed",
        names.join(", ")
    ))
}

impl AttentionDescription {
    /// # Safety
    /// The strings are null or end in a zero.
    pub(crate) unsafe fn asked<'a>(&self) -> Result<(Asked, Option<&'a str>), Failure> {
        let Self { batch, heads, queries, keys, d, flags, alignment, page, .. } = *self;
        // SAFETY: the caller guarantees it.
        let (types, spec) = unsafe { (words(self.types, "types")?, words(self.spec, "spec")?) };
        let (format, output) = match types {
            Some("bf16") => (Format::Bf16, Format::Bf16),
            Some("f16") => (Format::F16, Format::F16),
            Some("bf16-f32") => (Format::Bf16, Format::F32),
            Some("f16-f32") => (Format::F16, Format::F32),
            other => {
                let given = other.unwrap_or("NULL");
                return invalid(format!(
                    "types is \"{given}\", one of bf16, f16, bf16-f32, f16-f32 was needed"
                ));
            }
        };
        if alignment != 0 && !alignment.is_power_of_two() {
            return invalid(format!("alignment is {alignment}, 0 or a power of two was needed"));
        }
        let why = (flags & WINDOW == 0).then_some("flags has no FALCHION_WINDOW");
        for (field, value) in ["window[0]", "window[1]"].into_iter().zip(self.window) {
            refuse_unused(field, value, value != 0, why, "0")?;
        }
        let shared = if self.kv_heads == 0 { heads } else { self.kv_heads };
        let dv = if self.dv == 0 { d } else { self.dv };
        let problem = AttentionProblem::new(batch, heads, [queries, keys], d);
        let scale = if self.scale == 0.0 { problem.scale } else { self.scale };
        let problem = AttentionProblem { heads: [heads, shared], scale, ..problem };
        let window = (flags & WINDOW != 0).then_some(self.window);
        let (mask, numbers) = masked(flags & CAUSAL != 0, window)?;
        let packed = flags & PACKED != 0;
        for (i, field) in ["sequence[0]", "sequence[1]", "sequence[2]", "sequence[3]"].into_iter().enumerate()
        {
            let follow = packed && (page == 0 || i.is_multiple_of(3));
            refuse_numbers(
                [(field, self.sequences[i])],
                follow.then_some("packed sequences follow each other"),
            )?;
        }
        let at = |i: usize, [heads, length, d]: [u32; 3]| {
            let of = |given: u64, packed: u64| if given == 0 { packed } else { given };
            // The rows of packed sequences have all heads: how many there are is not known here.
            let behind = packed && (page == 0 || i.is_multiple_of(3));
            let row = of(self.rows[i], u64::from(d) * if behind { u64::from(heads) } else { 1 });
            let head = if behind { d.into() } else { u64::from(length).saturating_mul(row) };
            let head = of(self.head_strides[i], head);
            HeadsRef {
                address: 0,
                row,
                head,
                batch: of(self.sequences[i], u64::from(heads).saturating_mul(head)),
            }
        };
        let rows = if page == 0 { keys } else { page };
        let read = [at(0, [heads, queries, d]), at(1, [shared, rows, d]), at(2, [shared, rows, dv])];
        let o = at(3, [heads, queries, dv]);
        let views = [self.rows[2], self.head_strides[2], self.sequences[2]];
        let bytes = u64::from(output.bytes());
        let address = if alignment == 0 { 256 } else { u64::from(alignment) };
        let places = [address, o.row, o.head, o.batch];
        let places = [1, bytes, bytes, bytes].into_iter().zip(places).map(|(by, of)| of.wrapping_mul(by));
        let aligned = places.into_iter().all(|at| at.is_multiple_of(16));
        let request = AttentionRequest {
            aligned,
            format,
            output,
            head: [d, dv],
            mask,
            numbers,
            lengths: if packed { Lengths::Packed } else { Lengths::Equal },
            pages: (page > 0).then_some(page),
            workspace: flags & WORKSPACE != 0,
            ..AttentionRequest::new(problem, d)
        };
        let [q, k, mut v] = read;
        if request.is_latent() {
            if views != [0; 3] {
                return invalid(format!(
                    "the strides of V are {views:?}, zeros were needed: it is the first {dv} of the {d} elements of K's heads"
                ));
            }
            v = HeadsRef::default();
        }
        Ok((Asked { request, call: call_of(&request, problem, [q, k, v], o)? }, spec))
    }
}

/// Size of the structures' first versions.
const FIRST: [usize; 2] =
    [core::mem::offset_of!(AttentionDescription, window), core::mem::offset_of!(AttentionArguments, begins)];

/// The description at an address.
///
/// # Safety
/// It has as many bytes as its size says.
pub(crate) unsafe fn read(address: *const AttentionDescription) -> Result<AttentionDescription, Failure> {
    // SAFETY: the caller guarantees it.
    unsafe {
        let size = given(address.cast::<usize>(), "desc")?;
        sized(address, *size, (FIRST[0], "falchion_attention_desc"))
    }
}

/// Packed sequences and pages of a size that a description allows, at addresses that fit.
pub(crate) fn largest(call: &AttentionCall, page: Option<u32>) -> AttentionCall {
    let AttentionProblem { batch, queries, keys, .. } = call.problem;
    let (table, page) = (aligned_address(256), page.unwrap_or(1).max(1));
    let each = keys.div_ceil(page);
    let rows = [queries, keys].map(|rows| batch.saturating_mul(rows).min((1 << 31) - 1));
    AttentionCall {
        packed: Packed { begins: [table; 2], rows },
        pages: Pages { lengths: table, table, each, count: each.max(1) },
        ..call.clone()
    }
}

impl AttentionKernel {
    /// # Safety
    /// The description has as many bytes as its size says, and its strings are null or end in a zero.
    unsafe fn new(address: *const AttentionDescription, budget: Option<u32>) -> Result<Self, Failure> {
        // SAFETY: the caller guarantees it.
        let (description, (asked, spec)) = unsafe {
            let description = read(address)?;
            let known = ["CAUSAL", "WINDOW", "PACKED", "WORKSPACE"].into_iter();
            check_flags(&description, &known.zip([CAUSAL, WINDOW, PACKED, WORKSPACE]).collect::<Vec<_>>())?;
            (description, description.asked()?)
        };
        let Asked { request, call } = asked;
        let attend = Choice { budget, card: description.card, spec }.kernel::<Attention>(&request)?;
        // What a launch would refuse, whatever the addresses are.
        let tried = largest(&call, request.pages);
        let far = |of: HeadsRef, base: u64, bytes| HeadsRef { address: base | aligned_address(bytes), ..of };
        let read = |of: HeadsRef| far(of, 1 << 46, 256);
        let bytes = attend.workspace(&tried).unwrap_or(0);
        let AttentionCall { q, k, v, o, .. } = call;
        let tried = AttentionCall {
            q: read(q),
            k: read(k),
            v: if request.is_latent() { v } else { read(v) },
            // What is written shares memory with nothing.
            o: far(o, 1 << 47, if request.aligned { 256 } else { 4 }),
            workspace: Some(Buffer::new(1 << 45 | aligned_address(256), bytes)),
            ..tried
        };
        attend.kernel().launch(&tried, 1).or_else(|error| invalid(error.to_string()))?;
        let args_size = description.args_size;
        Ok(Self {
            name: text(attend.name()),
            ptx: text(attend.program().map_err(|error| failed(&error))?.text()),
            attend,
            call,
            workspace: bytes,
            lends: request.workspace,
            args_size,
        })
    }
}

impl Object for AttentionKernel {
    const NAME: &'static str = "attention";
    const NOT_LOADED: &'static str = "the kernel is not loaded: call falchion_attention_load first";
    type Family = Attention;
    type Arguments = AttentionArguments;

    fn picked(&self) -> &Picked<Attention> {
        &self.attend
    }

    unsafe fn call(&self, arguments: *const AttentionArguments) -> Result<AttentionCall, Failure> {
        let size = if self.args_size == 0 { FIRST[1] } else { self.args_size };
        // SAFETY: the caller guarantees it.
        let arguments = unsafe { sized(arguments, size, (FIRST[1], "falchion_attention_args")) }?;
        let address = |pointer: *const c_void| pointer.expose_provenance() as u64;
        let at = |of: HeadsRef, pointer| HeadsRef { address: address(pointer), ..of };
        let AttentionCall { q, k, v, o, .. } = self.call;
        let AttentionArguments { begins, all, lengths, table, each, pages, .. } = arguments;
        let spec = self.attend.kernel().plan().spec;
        let why = (spec.pages.is_none()).then_some("desc.page is 0");
        refuse_pointers([("lengths", lengths), ("table", table)], why)?;
        refuse_numbers([("each", each.into()), ("pages", pages.into())], why)?;
        refuse_begins(spec.lengths == Lengths::Packed, spec.pages.is_some(), begins, all)?;
        let why = (!self.lends).then_some("flags has no FALCHION_WORKSPACE");
        refuse_pointers([("workspace", arguments.workspace.cast_const())], why)?;
        Ok(AttentionCall {
            q: at(q, arguments.q),
            k: at(k, arguments.k),
            v: at(v, arguments.v),
            o: at(o, arguments.o),
            log_sum_exp: address(arguments.log_sum_exp),
            packed: Packed { begins: begins.map(address), rows: all },
            pages: Pages { lengths: address(lengths), table: address(table), each, count: pages },
            workspace: workspace(arguments.workspace, arguments.workspace_bytes)?,
            ..self.call.clone()
        })
    }
}

/// Refuses where sequences begin, if they are not packed, or their keys are in pages.
pub(crate) fn refuse_begins(
    packed: bool,
    in_pages: bool,
    begins: [*const c_void; 2],
    all: [u32; 2],
) -> Result<(), Failure> {
    let no_flag = (!packed).then_some("flags has no FALCHION_PACKED");
    let why = [no_flag, no_flag.or(in_pages.then_some("keys are in pages: lengths says how many"))];
    for (i, why) in why.into_iter().enumerate() {
        refuse_pointers([(["begins_q", "begins_k"][i], begins[i])], why)?;
        refuse_numbers([(["all_queries", "all_keys"][i], all[i].into())], why)?;
    }
    Ok(())
}

/// # Safety
/// As [`falchion_attention_create`].
unsafe fn make(
    description: *const AttentionDescription,
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
    description: *const AttentionDescription,
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
    description: *const AttentionDescription,
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
    arguments: *const AttentionArguments,
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
    arguments: *const AttentionArguments,
) -> Status {
    // SAFETY: the caller guarantees it.
    unsafe { emulate(attention, arguments) }
}
