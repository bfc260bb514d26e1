//! The structures of the header as Rust lays them out, and the functions that take them: what a caller has.
#![allow(dead_code, reason = "each test uses some")]

use core::ffi::{c_char, c_void};

pub use falchion_c::*;

/// The description of a GEMM: `falchion_gemm_desc`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Description {
    /// Size of the caller's structure in bytes.
    pub size: usize,
    /// Number formats of A, B and D, for example `bf16` or `e4m3-e5m2-bf16`; scales, weights and sparse operands.
    pub types: *const c_char,
    /// Contiguous directions of A and B: `kk`, `kn`, `mk` or `mn`; null is `kk`.
    pub layout: *const c_char,
    /// Rows of A and D.
    pub m: u32,
    /// Columns of B and D.
    pub n: u32,
    /// Columns of A and rows of B.
    pub k: u32,
    /// Number of GEMMs, or of groups, in one launch; 0 means 1.
    pub batch: u32,
    /// Text of the kernel's spec; null lets the library choose.
    pub spec: *const c_char,
    /// Leading dimensions of A, B, C and D, in elements; 0 is packed.
    pub lds: [u64; 4],
    /// Elements from one GEMM's matrix to the next one's, for A, B, C and D; 0 is packed.
    pub strides: [u64; 4],
    /// Bytes of which every matrix address is a multiple; 0 is 256.
    pub alignment: u32,
    /// The card to choose for, counted from 1; 0 is an H200, whether there is a card or not.
    pub card: u32,
    /// The end of the structure's first version.
    pub args_size: usize,
    /// Text of the epilogue; null is `alpha * A * B + beta * C`.
    pub epilogue: *const c_char,
    /// `FALCHION_REPRODUCIBLE`.
    pub flags: u32,
    /// How `batch` divides the GEMMs: `falchion_form`.
    pub form: u32,
    /// Rows of each group's buffer, for `FALCHION_MASKED_ROWS`.
    pub room: u32,
    /// Zero.
    pub reserved: u32,
    /// Leading dimensions of the scales of A, of B, and of groups of weights; 0 is packed.
    pub scale_lds: [u64; 3],
}

/// The arguments of a run: `falchion_gemm_args`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Arguments {
    /// Address of A.
    pub a: *const c_void,
    /// Address of B.
    pub b: *const c_void,
    /// Address of C; not read where `beta` is 0.
    pub c: *const c_void,
    /// Address of D.
    pub d: *mut c_void,
    /// Factor of `A * B`.
    pub alpha: f32,
    /// Factor of C.
    pub beta: f32,
    /// Workspace in device memory, in addition to the matrices.
    pub workspace: *mut c_void,
    /// Size of the workspace in bytes.
    pub workspace_bytes: u64,
    /// The end of the structure's first version. Scales of A's blocks.
    pub scale_a: *const c_void,
    /// Scales of B's blocks.
    pub scale_b: *const c_void,
    /// Scales of groups of weights.
    pub group_scales: *const c_void,
    /// Zero points of groups of weights.
    pub group_zeros: *const c_void,
    /// Metadata of a sparse operand.
    pub metadata: *const c_void,
    /// Where groups begin, or how many rows they use.
    pub groups: *const c_void,
    /// The arguments of the epilogue's text.
    pub inputs: *const NamedInput,
    /// Number of these.
    pub input_count: usize,
    /// Size of one of them, or 0: that of [`NamedInput`] today, or of its first version if the arguments are of a version without this field.
    pub input_size: usize,
    /// Alpha in `f64`; 0 if it is `alpha`.
    pub alpha_f64: f64,
    /// Beta in `f64`; 0 if it is `beta`.
    pub beta_f64: f64,
}

/// An argument of the epilogue's text: `falchion_input`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct NamedInput {
    /// Its name in the text.
    pub name: *const c_char,
    /// Address of a vector or a matrix.
    pub address: *const c_void,
    /// Elements from one row of a matrix to the next; 0 is packed.
    pub ld: u64,
    /// Bytes from one GEMM's to the next one's; 0 is packed.
    pub stride: u64,
    /// A number, or the probability of a mask.
    pub value: f32,
    /// Zero.
    pub reserved: u32,
    /// Seed and offset of a mask.
    pub mask: [u64; 2],
    /// The end of the structure's first version. A number in `f64`; 0 if it is `value`.
    pub value_f64: f64,
}

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
    /// What scores are capped to; 0 if they are not.
    pub softcap: f32,
    /// Format of K and V in memory, if it is another one.
    pub cache: *const c_char,
    /// Scores as text.
    pub score: *const c_char,
    /// The mask as text.
    pub sees: *const c_char,
}

/// An array of a formula: `falchion_array`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ArrayArgument {
    /// Its name.
    pub name: *const c_char,
    /// Its address.
    pub address: *const c_void,
    /// Elements along each dimension; 0 after the last one.
    pub shape: [u32; 4],
    /// Elements from one to the next along each dimension.
    pub strides: [u64; 4],
}

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
    /// What scores fall by, with `FALCHION_ALIBI`.
    pub slopes: *const c_void,
    /// The sinks, with `FALCHION_SINKS`.
    pub sinks: *const c_void,
    /// The factors of Q, K and V.
    pub factors: [*const c_void; 3],
    /// The arrays of formulas.
    pub arrays: *const ArrayArgument,
    /// How many there are.
    pub array_count: usize,
    /// The size of their structure; 0 is that of today.
    pub array_size: usize,
}

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
    /// The end of the structure's first version. What scores fall by, with `FALCHION_ALIBI`.
    pub slopes: *const c_void,
    /// The arrays of formulas, as in the arguments of the forward pass.
    pub arrays: *const ArrayArgument,
    /// How many there are.
    pub array_count: usize,
    /// The size of their structure; 0 is that of today.
    pub array_size: usize,
}

/// What is merged: `falchion_merge_attention_args`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct MergeArguments {
    /// Size of the caller's structure in bytes.
    pub size: usize,
    /// `bf16`, `f16` or `f32`.
    pub types: *const c_char,
    /// Sequences, heads, rows of a head and elements of a row.
    pub shape: [u32; 4],
    /// Zero.
    pub reserved: u32,
    /// Elements from one row to the next, of O_a, O_b and O; 0 is packed.
    pub rows: [u64; 3],
    /// Elements from one head to the next; 0 is packed.
    pub heads: [u64; 3],
    /// Elements from one sequence to the next; 0 is packed.
    pub sequences: [u64; 3],
    /// Address of O_a.
    pub o_a: *const c_void,
    /// Address of its log-sum-exp.
    pub lse_a: *const c_void,
    /// Address of O_b.
    pub o_b: *const c_void,
    /// Address of its log-sum-exp.
    pub lse_b: *const c_void,
    /// Address of O.
    pub o: *mut c_void,
    /// Address of its log-sum-exp.
    pub log_sum_exp: *mut c_void,
}

/// What is appended: `falchion_append_pages_args`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct AppendArguments {
    /// Size of the caller's structure in bytes.
    pub size: usize,
    /// `bf16` or `f16`.
    pub types: *const c_char,
    /// New rows.
    pub tokens: u32,
    /// Heads of K and V.
    pub kv_heads: u32,
    /// Elements of a head of K.
    pub d: u32,
    /// Elements of a head of V; 0 means `d`, or none without a V.
    pub dv: u32,
    /// Pages of the cache.
    pub pages: u32,
    /// Keys of a page.
    pub page: u32,
    /// 32 or 64; 0 means 32.
    pub slot_bits: u32,
    /// Zero.
    pub reserved: u32,
    /// Elements from one row to the next, of K, V and their caches; 0 is packed.
    pub rows: [u64; 4],
    /// Elements from one head to the next; 0 is packed.
    pub heads: [u64; 4],
    /// Elements from one page to the next, of both caches; 0 is packed.
    pub page_steps: [u64; 2],
    /// Address of K.
    pub k: *const c_void,
    /// Address of V.
    pub v: *const c_void,
    /// Address of the cache of K.
    pub k_cache: *mut c_void,
    /// Address of the cache of V.
    pub v_cache: *mut c_void,
    /// A slot per row.
    pub slots: *const c_void,
}

/// `FALCHION_REPRODUCIBLE`.
pub const REPRODUCIBLE: u32 = 1;
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
/// `FALCHION_ALIBI`.
pub const ALIBI: u32 = 32;
/// `FALCHION_SLOPES_PER_SEQUENCE`.
pub const SLOPES_PER_SEQUENCE: u32 = 64;
/// `FALCHION_SINKS`.
pub const SINKS: u32 = 128;
/// `FALCHION_FACTORS_PER_HEAD`.
pub const FACTORS_PER_HEAD: u32 = 256;

/// # Safety
/// As the function of the library.
pub unsafe fn falchion_gemm_create(of: *const Description, made: *mut *mut Gemm) -> Status {
    // SAFETY: the caller guarantees it.
    unsafe { falchion_c::falchion_gemm_create(of.cast(), made) }
}

/// # Safety
/// As the function of the library.
pub unsafe fn falchion_gemm_tune(of: *const Description, budget: u32, made: *mut *mut Gemm) -> Status {
    // SAFETY: the caller guarantees it.
    unsafe { falchion_c::falchion_gemm_tune(of.cast(), budget, made) }
}

/// # Safety
/// As the function of the library.
pub unsafe fn falchion_attention_create(
    of: *const AttentionDescription,
    made: *mut *mut AttentionKernel,
) -> Status {
    // SAFETY: the caller guarantees it.
    unsafe { falchion_c::falchion_attention_create(of.cast(), made) }
}

/// # Safety
/// As the function of the library.
pub unsafe fn falchion_attention_tune(
    of: *const AttentionDescription,
    budget: u32,
    made: *mut *mut AttentionKernel,
) -> Status {
    // SAFETY: the caller guarantees it.
    unsafe { falchion_c::falchion_attention_tune(of.cast(), budget, made) }
}

/// # Safety
/// As the function of the library.
pub unsafe fn falchion_attention_backward_create(
    of: *const AttentionDescription,
    made: *mut *mut BackwardKernel,
) -> Status {
    // SAFETY: the caller guarantees it.
    unsafe { falchion_c::falchion_attention_backward_create(of.cast(), made) }
}

/// # Safety
/// As the function of the library.
pub unsafe fn falchion_attention_backward_tune(
    of: *const AttentionDescription,
    budget: u32,
    made: *mut *mut BackwardKernel,
) -> Status {
    // SAFETY: the caller guarantees it.
    unsafe { falchion_c::falchion_attention_backward_tune(of.cast(), budget, made) }
}

/// # Safety
/// As the function of the library.
pub unsafe fn falchion_gemm_launch(
    of: *mut Gemm,
    stream: *mut c_void,
    arguments: *const Arguments,
) -> Status {
    // SAFETY: the caller guarantees it.
    unsafe { falchion_c::falchion_gemm_launch(of, stream, arguments.cast()) }
}

/// # Safety
/// As the function of the library.
pub unsafe fn falchion_gemm_emulate(of: *mut Gemm, arguments: *const Arguments) -> Status {
    // SAFETY: the caller guarantees it.
    unsafe { falchion_c::falchion_gemm_emulate(of, arguments.cast()) }
}

/// # Safety
/// As the function of the library.
pub unsafe fn falchion_attention_launch(
    of: *mut AttentionKernel,
    stream: *mut c_void,
    arguments: *const AttentionArguments,
) -> Status {
    // SAFETY: the caller guarantees it.
    unsafe { falchion_c::falchion_attention_launch(of, stream, arguments.cast()) }
}

/// # Safety
/// As the function of the library.
pub unsafe fn falchion_attention_emulate(
    of: *mut AttentionKernel,
    arguments: *const AttentionArguments,
) -> Status {
    // SAFETY: the caller guarantees it.
    unsafe { falchion_c::falchion_attention_emulate(of, arguments.cast()) }
}

/// # Safety
/// As the function of the library.
pub unsafe fn falchion_attention_backward_launch(
    of: *mut BackwardKernel,
    stream: *mut c_void,
    arguments: *const BackwardArguments,
) -> Status {
    // SAFETY: the caller guarantees it.
    unsafe { falchion_c::falchion_attention_backward_launch(of, stream, arguments.cast()) }
}

/// # Safety
/// As the function of the library.
pub unsafe fn falchion_attention_backward_emulate(
    of: *mut BackwardKernel,
    arguments: *const BackwardArguments,
) -> Status {
    // SAFETY: the caller guarantees it.
    unsafe { falchion_c::falchion_attention_backward_emulate(of, arguments.cast()) }
}

/// # Safety
/// As the function of the library.
pub unsafe fn falchion_merge_attention_emulate(arguments: *const MergeArguments) -> Status {
    // SAFETY: the caller guarantees it.
    unsafe { falchion_c::falchion_merge_attention_emulate(arguments.cast()) }
}

/// # Safety
/// As the function of the library.
pub unsafe fn falchion_append_pages_emulate(arguments: *const AppendArguments) -> Status {
    // SAFETY: the caller guarantees it.
    unsafe { falchion_c::falchion_append_pages_emulate(arguments.cast()) }
}
