//! The functions of cuBLASLt that are used, looked up once.
#![allow(unsafe_code, reason = "looks functions up by name")]

use core::ffi::{c_int, c_void};
use core::fmt;
use std::path::{Path, PathBuf};

use cudarc::cublaslt::sys::{
    cublasComputeType_t as ComputeType, cublasLtHandle_t as RawHandle, cublasLtMatmulAlgo_t as RawAlgorithm,
    cublasLtMatmulDesc_t as Operation, cublasLtMatmulDescAttributes_t as OperationAttribute,
    cublasLtMatmulHeuristicResult_t as HeuristicResult, cublasLtMatmulPreference_t as Preference,
    cublasLtMatmulPreferenceAttributes_t as PreferenceAttribute, cublasLtMatrixLayout_t as Layout,
    cublasStatus_t as Status, cudaDataType as DataType, cudaStream_t as Stream,
};
use libloading::Library;

use super::super::library;
use crate::error::EngineError;

/// The library and its functions.
///
/// The bindings' own loader panics where the library or a function is missing, and looks for the versions of the
/// toolkit that was there when the program was built; so only the bindings' types are used.
pub(super) struct Symbols {
    pub(super) create: unsafe extern "C" fn(*mut RawHandle) -> Status,
    pub(super) destroy: unsafe extern "C" fn(RawHandle) -> Status,
    pub(super) version: unsafe extern "C" fn() -> usize,
    pub(super) operation_create: unsafe extern "C" fn(*mut Operation, ComputeType, DataType) -> Status,
    pub(super) operation_set:
        unsafe extern "C" fn(Operation, OperationAttribute, *const c_void, usize) -> Status,
    pub(super) operation_destroy: unsafe extern "C" fn(Operation) -> Status,
    pub(super) layout_create: unsafe extern "C" fn(*mut Layout, DataType, u64, u64, i64) -> Status,
    pub(super) layout_destroy: unsafe extern "C" fn(Layout) -> Status,
    pub(super) preference_create: unsafe extern "C" fn(*mut Preference) -> Status,
    pub(super) preference_set:
        unsafe extern "C" fn(Preference, PreferenceAttribute, *const c_void, usize) -> Status,
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
        Stream,
    ) -> Status,
    /// Keeps the functions where they are.
    _library: Library,
}

impl fmt::Debug for Symbols {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Symbols").finish_non_exhaustive()
    }
}

impl Symbols {
    /// Looks for the library of the driver's CUDA version, then for older ones.
    pub(super) fn find(newest: i32) -> Result<Self, EngineError> {
        let names = names(newest);
        match names.iter().find_map(|name| library::open(name).ok()) {
            Some(library) => Self::look_up(library),
            None => {
                let tried: Vec<_> = names.iter().map(|name| name.display().to_string()).collect();
                Err(missing(format!("looked for {}", tried.join(", "))))
            }
        }
    }

    /// Loads a file.
    pub(super) fn load(path: &Path) -> Result<Self, EngineError> {
        Self::look_up(library::open(path).map_err(|error| missing(format!("{}: {error}", path.display())))?)
    }

    fn look_up(library: Library) -> Result<Self, EngineError> {
        // SAFETY: each field's type is that of the function of this name in `cublasLt.h`, and the library stays
        // loaded as long as the fields.
        unsafe {
            Ok(Self {
                create: get(&library, "cublasLtCreate")?,
                destroy: get(&library, "cublasLtDestroy")?,
                version: get(&library, "cublasLtGetVersion")?,
                operation_create: get(&library, "cublasLtMatmulDescCreate")?,
                operation_set: get(&library, "cublasLtMatmulDescSetAttribute")?,
                operation_destroy: get(&library, "cublasLtMatmulDescDestroy")?,
                layout_create: get(&library, "cublasLtMatrixLayoutCreate")?,
                layout_destroy: get(&library, "cublasLtMatrixLayoutDestroy")?,
                preference_create: get(&library, "cublasLtMatmulPreferenceCreate")?,
                preference_set: get(&library, "cublasLtMatmulPreferenceSetAttribute")?,
                preference_destroy: get(&library, "cublasLtMatmulPreferenceDestroy")?,
                heuristic: get(&library, "cublasLtMatmulAlgoGetHeuristic")?,
                matmul: get(&library, "cublasLtMatmul")?,
                _library: library,
            })
        }
    }
}

/// One function.
///
/// # Safety
/// `F` is the type of that function, and it is not called once the library is unloaded.
unsafe fn get<F: Copy>(library: &Library, name: &str) -> Result<F, EngineError> {
    // SAFETY: the caller's promise.
    let symbol = unsafe { library.get::<F>(name.as_bytes()) };
    symbol.map(|symbol| *symbol).map_err(|error| missing(error.to_string()))
}

/// File names, best first.
fn names(newest: i32) -> Vec<PathBuf> {
    let majors = (12..=newest.clamp(12, 13)).rev();
    if cfg!(windows) {
        majors.map(|major| format!("cublasLt64_{major}.dll").into()).collect()
    } else {
        let versioned = majors.map(|major| format!("libcublasLt.so.{major}").into());
        versioned.chain([PathBuf::from("libcublasLt.so")]).collect()
    }
}

fn missing(reason: String) -> EngineError {
    EngineError::NoLibrary { library: "libcublasLt", reason }
}
