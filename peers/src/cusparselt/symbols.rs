//! The functions of cuSPARSELt that are used, looked up once.
#![allow(unsafe_code, reason = "looks functions up by name")]

use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use core::fmt;
use core::mem::ManuallyDrop;
use std::path::{Path, PathBuf};

use libloading::Library;

use kernel::EngineError;

use crate::library;

/// `cusparseStatus_t`.
pub(super) type Status = c_int;
/// A pointer to one of the library's structures.
pub(super) type Raw = *mut c_void;

/// Bytes of the largest of the library's structures in any version, and some.
const ROOM: usize = 16 << 10;

/// Memory of one structure, as aligned as the library wants it.
#[repr(C, align(16))]
struct Room([u8; ROOM]);

/// One of the library's structures. It stays where it is, since others point to it.
pub(super) struct Opaque(Box<UnsafeCell<Room>>);

// SAFETY: it is plain memory, and every call that takes it is made under the lock of its handle.
unsafe impl Send for Opaque {}
// SAFETY: as above.
unsafe impl Sync for Opaque {}

impl Opaque {
    /// Room that the library fills.
    pub(super) fn new() -> Self {
        Self(Box::new(UnsafeCell::new(Room([0; ROOM]))))
    }

    pub(super) fn raw(&self) -> Raw {
        self.0.get().cast()
    }
}

/// Numbers of `cusparseOrder_t`, `cusparseOperation_t` and `cusparseComputeType`.
pub(super) mod number {
    use core::ffi::c_int;

    pub(in super::super) const ROW_MAJOR: c_int = 2;
    pub(in super::super) const AS_IT_IS: c_int = 0;
    pub(in super::super) const TRANSPOSED: c_int = 1;
    pub(in super::super) const COMPUTE_S32: c_int = 0;
    pub(in super::super) const COMPUTE_F32: c_int = 2;
}

/// Numbers of `cusparseLtMatmulAlgAttribute_t`.
pub(super) mod algorithm {
    use core::ffi::c_int;

    pub(in super::super) const ID: c_int = 0;
    pub(in super::super) const ALL: c_int = 1;
    pub(in super::super) const SPLIT_K: c_int = 3;
    pub(in super::super) const SPLIT_K_MODE: c_int = 4;
}

/// A status by its name in the header, and what it means here where the name does not say it.
pub(super) fn status_name(status: Status) -> String {
    let name = match status {
        1 => "CUSPARSE_STATUS_NOT_INITIALIZED",
        2 => "CUSPARSE_STATUS_ALLOC_FAILED",
        3 => "CUSPARSE_STATUS_INVALID_VALUE",
        4 => "CUSPARSE_STATUS_ARCH_MISMATCH",
        5 => "CUSPARSE_STATUS_MAPPING_ERROR",
        6 => "CUSPARSE_STATUS_EXECUTION_FAILED",
        7 => "CUSPARSE_STATUS_INTERNAL_ERROR",
        8 => "CUSPARSE_STATUS_MATRIX_TYPE_NOT_SUPPORTED",
        9 => "CUSPARSE_STATUS_ZERO_PIVOT",
        10 => "CUSPARSE_STATUS_NOT_SUPPORTED",
        11 => "CUSPARSE_STATUS_INSUFFICIENT_RESOURCES",
        _ => return format!("status {status}"),
    };
    name.to_owned()
}

/// `cusparseLtDenseDescriptorInit`: handle, descriptor, rows, columns, leading dimension, alignment, type, order.
type DenseInit = unsafe extern "C" fn(Raw, Raw, i64, i64, i64, u32, c_int, c_int) -> Status;
/// `cusparseLtStructuredDescriptorInit`: the same and the sparsity.
type SparseInit = unsafe extern "C" fn(Raw, Raw, i64, i64, i64, u32, c_int, c_int, c_int) -> Status;
/// `cusparseLtMatmulDescriptorInit`: handle, descriptor, operations of A and B, descriptors of A, B, C and D, compute type.
type MatmulInit = unsafe extern "C" fn(Raw, Raw, c_int, c_int, Raw, Raw, Raw, Raw, c_int) -> Status;
/// `cusparseLtSpMMACompress2`: handle, descriptor, whether it is A, operation, dense, compressed, scratch, stream.
type Compress = unsafe extern "C" fn(Raw, Raw, c_int, c_int, Raw, Raw, Raw, *mut c_void) -> Status;
/// `cusparseLtMatmul`: handle, plan, alpha, A, B, beta, C, D, workspace, streams and their number.
type Matmul = unsafe extern "C" fn(
    Raw,
    Raw,
    *const c_void,
    Raw,
    Raw,
    *const c_void,
    Raw,
    Raw,
    Raw,
    *mut *mut c_void,
    i32,
) -> Status;

/// The library and its functions.
pub(super) struct Symbols {
    pub(super) init: unsafe extern "C" fn(Raw) -> Status,
    pub(super) destroy: unsafe extern "C" fn(Raw) -> Status,
    pub(super) property: unsafe extern "C" fn(c_int, *mut c_int) -> Status,
    pub(super) dense: DenseInit,
    pub(super) sparse: SparseInit,
    pub(super) matrix_destroy: unsafe extern "C" fn(Raw) -> Status,
    pub(super) matmul_init: MatmulInit,
    pub(super) algorithm_init: unsafe extern "C" fn(Raw, Raw, Raw, c_int) -> Status,
    /// Older libraries have nothing to destroy.
    pub(super) algorithm_destroy: Option<unsafe extern "C" fn(Raw) -> Status>,
    pub(super) algorithm_get: unsafe extern "C" fn(Raw, Raw, c_int, *mut c_void, usize) -> Status,
    pub(super) algorithm_set: unsafe extern "C" fn(Raw, Raw, c_int, *const c_void, usize) -> Status,
    pub(super) plan_init: unsafe extern "C" fn(Raw, Raw, Raw, Raw) -> Status,
    pub(super) plan_destroy: unsafe extern "C" fn(Raw) -> Status,
    pub(super) workspace: unsafe extern "C" fn(Raw, Raw, *mut usize) -> Status,
    pub(super) compressed_size: unsafe extern "C" fn(Raw, Raw, *mut usize, *mut usize) -> Status,
    pub(super) compress: Compress,
    pub(super) matmul: Matmul,
    /// Stays loaded until the process ends: its kernels belong to contexts, which may outlive every handle.
    _library: ManuallyDrop<Library>,
}

impl fmt::Debug for Symbols {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Symbols").finish_non_exhaustive()
    }
}

/// The library's name in errors.
const LIBRARY: &str = "libcusparseLt";

impl Symbols {
    /// Looks for the library where the system's loader does.
    pub(super) fn find() -> Result<Self, EngineError> {
        let names = names();
        // SAFETY: these are the library's own names.
        // SAFETY: these are the library's own names, and the type is that of its functions.
        unsafe { Self::look_up(library::find(LIBRARY, &names)?) }
    }

    /// Loads a file.
    ///
    /// # Safety
    /// It is cuSPARSELt.
    pub(super) unsafe fn load(path: &Path) -> Result<Self, EngineError> {
        // SAFETY: the caller guarantees the file.
        unsafe { Self::look_up(library::open(LIBRARY, path)?) }
    }

    /// # Safety
    /// It is cuSPARSELt.
    unsafe fn look_up(library: Library) -> Result<Self, EngineError> {
        // SAFETY: each field's type is that of the function of this name in `cusparseLt.h`; the library stays loaded.
        let symbols = unsafe {
            Self {
                init: library::get(LIBRARY, &library, "cusparseLtInit")?,
                destroy: library::get(LIBRARY, &library, "cusparseLtDestroy")?,
                property: library::get(LIBRARY, &library, "cusparseLtGetProperty")?,
                dense: library::get(LIBRARY, &library, "cusparseLtDenseDescriptorInit")?,
                sparse: library::get(LIBRARY, &library, "cusparseLtStructuredDescriptorInit")?,
                matrix_destroy: library::get(LIBRARY, &library, "cusparseLtMatDescriptorDestroy")?,
                matmul_init: library::get(LIBRARY, &library, "cusparseLtMatmulDescriptorInit")?,
                algorithm_init: library::get(LIBRARY, &library, "cusparseLtMatmulAlgSelectionInit")?,
                algorithm_destroy: library::get(LIBRARY, &library, "cusparseLtMatmulAlgSelectionDestroy")
                    .ok(),
                algorithm_get: library::get(LIBRARY, &library, "cusparseLtMatmulAlgGetAttribute")?,
                algorithm_set: library::get(LIBRARY, &library, "cusparseLtMatmulAlgSetAttribute")?,
                plan_init: library::get(LIBRARY, &library, "cusparseLtMatmulPlanInit")?,
                plan_destroy: library::get(LIBRARY, &library, "cusparseLtMatmulPlanDestroy")?,
                workspace: library::get(LIBRARY, &library, "cusparseLtMatmulGetWorkspace")?,
                compressed_size: library::get(LIBRARY, &library, "cusparseLtSpMMACompressedSize2")?,
                compress: library::get(LIBRARY, &library, "cusparseLtSpMMACompress2")?,
                matmul: library::get(LIBRARY, &library, "cusparseLtMatmul")?,
                _library: ManuallyDrop::new(library),
            }
        };
        let version = symbols.version();
        if version < OLDEST {
            let [major, minor, patch] = version;
            return Err(library::missing(
                LIBRARY,
                format!("it is version {major}.{minor}.{patch}, 0.6 or newer was needed"),
            ));
        }
        Ok(symbols)
    }

    /// Major, minor, patch.
    pub(super) fn version(&self) -> [i32; 3] {
        [0, 1, 2].map(|part| {
            let mut number = 0;
            // SAFETY: one number is written.
            let status = unsafe { (self.property)(part, &mut number) };
            if status == 0 { number } else { 0 }
        })
    }
}

/// The first version whose enumerations have the numbers above.
const OLDEST: [i32; 3] = [0, 6, 0];

/// File names, best first.
fn names() -> Vec<PathBuf> {
    let names: &[&str] =
        if cfg!(windows) { &["cusparseLt.dll"] } else { &["libcusparseLt.so.0", "libcusparseLt.so"] };
    names.iter().map(PathBuf::from).collect()
}
