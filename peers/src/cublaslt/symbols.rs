//! The functions of cuBLASLt that are used. They are looked up once.
#![allow(unsafe_code, reason = "looks functions up by name")]

use core::ffi::{c_int, c_void};
use core::fmt;
use std::path::{Path, PathBuf};

use libloading::Library;

use kernel::EngineError;

use crate::library::{self, functions};

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

functions! { LIBRARY:
    create = "cublasLtCreate" (*mut RawHandle) -> Status;
    destroy = "cublasLtDestroy" (RawHandle) -> Status;
    version = "cublasLtGetVersion" () -> usize;
    operation_create = "cublasLtMatmulDescCreate" (*mut Operation, c_int, c_int) -> Status;
    operation_set = "cublasLtMatmulDescSetAttribute" (Operation, c_int, *const c_void, usize) -> Status;
    operation_destroy = "cublasLtMatmulDescDestroy" (Operation) -> Status;
    layout_create = "cublasLtMatrixLayoutCreate" (*mut Layout, c_int, u64, u64, i64) -> Status;
    layout_destroy = "cublasLtMatrixLayoutDestroy" (Layout) -> Status;
    preference_create = "cublasLtMatmulPreferenceCreate" (*mut Preference) -> Status;
    preference_set = "cublasLtMatmulPreferenceSetAttribute" (Preference, c_int, *const c_void, usize) -> Status;
    preference_destroy = "cublasLtMatmulPreferenceDestroy" (Preference) -> Status;
    heuristic = "cublasLtMatmulAlgoGetHeuristic" (
        RawHandle, Operation, Layout, Layout, Layout, Layout, Preference, c_int, *mut HeuristicResult, *mut c_int
    ) -> Status;
    matmul = "cublasLtMatmul" (
        RawHandle, Operation, *const c_void, *const c_void, Layout, *const c_void, Layout, *const c_void,
        *const c_void, Layout, *mut c_void, Layout, *const RawAlgorithm, *mut c_void, usize, *mut c_void
    ) -> Status;
}

/// The library and its functions.
pub(super) struct Symbols {
    pub(super) functions: Functions,
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
        // SAFETY: the caller guarantees the library, and it is kept with its functions.
        Ok(Self { functions: unsafe { Functions::look_up(&library)? }, _library: library })
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
