//! The functions of cuBLASLt that are used. They are looked up once.
#![allow(unsafe_code, reason = "looks functions up by name")]

use core::ffi::{c_int, c_void};
use core::fmt;
use std::path::{Path, PathBuf};

use libloading::Library;

use kernel::EngineError;

use crate::library;

/// `cublasStatus_t`.
pub(super) type Status = c_int;
/// `cublasLtHandle_t`.
pub(super) type RawHandle = *mut c_void;
/// `cublasLtMatmulDesc_t`.
pub(super) type Operation = *mut c_void;
/// `cublasLtMatrixLayout_t`.
pub(super) type Layout = *mut c_void;
/// `cublasLtMatmulPreference_t`.
pub(super) type Preference = *mut c_void;

/// `cublasLtMatmulAlgo_t`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct RawAlgorithm {
    data: [u64; 8],
}

/// `cublasLtMatmulHeuristicResult_t`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct HeuristicResult {
    pub(super) algorithm: RawAlgorithm,
    pub(super) workspace: usize,
    pub(super) state: Status,
    pub(super) waves: f32,
    reserved: [c_int; 4],
}

impl HeuristicResult {
    /// An empty result, marked as no algorithm: `CUBLAS_STATUS_NOT_SUPPORTED`.
    pub(super) const NONE: Self = Self {
        algorithm: RawAlgorithm { data: [0; 8] },
        workspace: 0,
        state: 15,
        waves: 0.0,
        reserved: [0; 4],
    };
}

/// Values of `cublasComputeType_t`.
pub(super) mod compute {
    pub(in super::super) const F32: i32 = 68;
    pub(in super::super) const F64: i32 = 70;
    pub(in super::super) const S32: i32 = 72;
    pub(in super::super) const TF32: i32 = 77;
}

/// Values of `cublasLtMatmulMatrixScale_t`.
pub(super) mod scale_mode {
    /// One scale per row of A, or column of B.
    pub(in super::super) const VECTOR: i32 = 3;
    /// One scale per 128 elements of K of a row.
    pub(in super::super) const ROWS: i32 = 4;
    /// One scale per 128 elements of K of 128 rows.
    pub(in super::super) const BLOCKS: i32 = 5;
}

/// Values of `cublasLtMatmulDescAttributes_t`.
pub(super) mod operation {
    pub(in super::super) const TRANSPOSE_A: i32 = 3;
    pub(in super::super) const TRANSPOSE_B: i32 = 4;
    pub(in super::super) const EPILOGUE: i32 = 7;
    pub(in super::super) const BIAS: i32 = 8;
    pub(in super::super) const SCALE_POINTER_A: i32 = 17;
    pub(in super::super) const SCALE_POINTER_B: i32 = 18;
    pub(in super::super) const FAST_ACCUMULATION: i32 = 25;
    pub(in super::super) const SCALE_MODE_A: i32 = 31;
    pub(in super::super) const SCALE_MODE_B: i32 = 32;
}

/// Values of `cublasLtEpilogue_t`.
pub(super) mod epilogue {
    pub(in super::super) const BIAS: i32 = 4;
    pub(in super::super) const RELU_BIAS: i32 = 6;
    pub(in super::super) const GELU_BIAS: i32 = 36;
}

/// `CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES`.
pub(super) const MOST_WORKSPACE: c_int = 1;

/// A status's name in the header.
pub(super) fn status_name(status: Status) -> String {
    let name = match status {
        1 => "CUBLAS_STATUS_NOT_INITIALIZED",
        3 => "CUBLAS_STATUS_ALLOC_FAILED",
        7 => "CUBLAS_STATUS_INVALID_VALUE",
        8 => "CUBLAS_STATUS_ARCH_MISMATCH",
        11 => "CUBLAS_STATUS_MAPPING_ERROR",
        13 => "CUBLAS_STATUS_EXECUTION_FAILED",
        14 => "CUBLAS_STATUS_INTERNAL_ERROR",
        15 => "CUBLAS_STATUS_NOT_SUPPORTED",
        16 => "CUBLAS_STATUS_LICENSE_ERROR",
        _ => return format!("status {status}"),
    };
    name.to_owned()
}

/// The library and its functions.
pub(super) struct Symbols {
    pub(super) create: unsafe extern "C" fn(*mut RawHandle) -> Status,
    pub(super) destroy: unsafe extern "C" fn(RawHandle) -> Status,
    pub(super) version: unsafe extern "C" fn() -> usize,
    pub(super) operation_create: unsafe extern "C" fn(*mut Operation, c_int, c_int) -> Status,
    pub(super) operation_set: unsafe extern "C" fn(Operation, c_int, *const c_void, usize) -> Status,
    pub(super) operation_destroy: unsafe extern "C" fn(Operation) -> Status,
    pub(super) layout_create: unsafe extern "C" fn(*mut Layout, c_int, u64, u64, i64) -> Status,
    pub(super) layout_destroy: unsafe extern "C" fn(Layout) -> Status,
    pub(super) preference_create: unsafe extern "C" fn(*mut Preference) -> Status,
    pub(super) preference_set: unsafe extern "C" fn(Preference, c_int, *const c_void, usize) -> Status,
    pub(super) preference_destroy: unsafe extern "C" fn(Preference) -> Status,
    pub(super) heuristic: unsafe extern "C" fn(
        RawHandle,
        Operation,
        Layout,
        Layout,
        Layout,
        Layout,
        Preference,
        c_int,
        *mut HeuristicResult,
        *mut c_int,
    ) -> Status,
    pub(super) matmul: unsafe extern "C" fn(
        RawHandle,
        Operation,
        *const c_void,
        *const c_void,
        Layout,
        *const c_void,
        Layout,
        *const c_void,
        *const c_void,
        Layout,
        *mut c_void,
        Layout,
        *const RawAlgorithm,
        *mut c_void,
        usize,
        *mut c_void,
    ) -> Status,
    /// Keeps the library, and with it the functions, loaded.
    _library: Library,
}

impl fmt::Debug for Symbols {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Symbols").finish_non_exhaustive()
    }
}

/// The library's name in errors.
const LIBRARY: &str = "libcublasLt";

impl Symbols {
    /// Looks for the library of the driver's CUDA version, then for older ones.
    pub(super) fn find(newest: i32) -> Result<Self, EngineError> {
        let names = names(newest);
        // SAFETY: these are the library's own file names.
        // SAFETY: these are the library's own names, and the type is that of its functions.
        unsafe { Self::look_up(library::find(LIBRARY, &names)?) }
    }

    /// Loads a file.
    ///
    /// # Safety
    /// The file must be cuBLASLt.
    pub(super) unsafe fn load(path: &Path) -> Result<Self, EngineError> {
        // SAFETY: the caller guarantees the file.
        unsafe { Self::look_up(library::open(LIBRARY, path)?) }
    }

    /// # Safety
    /// The library must be cuBLASLt.
    unsafe fn look_up(library: Library) -> Result<Self, EngineError> {
        // SAFETY: each field's type is that of the function of this name in `cublasLt.h`; the library stays
        // loaded as long as the fields.
        unsafe {
            Ok(Self {
                create: library::get(LIBRARY, &library, "cublasLtCreate")?,
                destroy: library::get(LIBRARY, &library, "cublasLtDestroy")?,
                version: library::get(LIBRARY, &library, "cublasLtGetVersion")?,
                operation_create: library::get(LIBRARY, &library, "cublasLtMatmulDescCreate")?,
                operation_set: library::get(LIBRARY, &library, "cublasLtMatmulDescSetAttribute")?,
                operation_destroy: library::get(LIBRARY, &library, "cublasLtMatmulDescDestroy")?,
                layout_create: library::get(LIBRARY, &library, "cublasLtMatrixLayoutCreate")?,
                layout_destroy: library::get(LIBRARY, &library, "cublasLtMatrixLayoutDestroy")?,
                preference_create: library::get(LIBRARY, &library, "cublasLtMatmulPreferenceCreate")?,
                preference_set: library::get(LIBRARY, &library, "cublasLtMatmulPreferenceSetAttribute")?,
                preference_destroy: library::get(LIBRARY, &library, "cublasLtMatmulPreferenceDestroy")?,
                heuristic: library::get(LIBRARY, &library, "cublasLtMatmulAlgoGetHeuristic")?,
                matmul: library::get(LIBRARY, &library, "cublasLtMatmul")?,
                _library: library,
            })
        }
    }
}

/// File names of the library, the best first.
fn names(newest: i32) -> Vec<PathBuf> {
    let majors = (12..=newest.clamp(12, 13)).rev();
    if cfg!(windows) {
        majors.map(|major| format!("cublasLt64_{major}.dll").into()).collect()
    } else {
        let versioned = majors.map(|major| format!("libcublasLt.so.{major}").into());
        versioned.chain([PathBuf::from("libcublasLt.so")]).collect()
    }
}
