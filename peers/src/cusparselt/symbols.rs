//! The functions of cuSPARSELt that are used, looked up once.
#![allow(unsafe_code, reason = "looks functions up by name")]

use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use core::fmt;
use core::mem::ManuallyDrop;
use std::path::{Path, PathBuf};

use libloading::Library;

use kernel::EngineError;

use crate::library::{self, functions};

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

functions! { LIBRARY:
    init = "cusparseLtInit" (Raw) -> Status;
    destroy = "cusparseLtDestroy" (Raw) -> Status;
    property = "cusparseLtGetProperty" (c_int, *mut c_int) -> Status;
    // Handle, descriptor, rows, columns, leading dimension, alignment, type, order.
    dense = "cusparseLtDenseDescriptorInit" (Raw, Raw, i64, i64, i64, u32, c_int, c_int) -> Status;
    // The same and the sparsity.
    sparse = "cusparseLtStructuredDescriptorInit" (Raw, Raw, i64, i64, i64, u32, c_int, c_int, c_int) -> Status;
    matrix_destroy = "cusparseLtMatDescriptorDestroy" (Raw) -> Status;
    // Handle, descriptor, operations of A and B, descriptors of A, B, C and D, compute type.
    matmul_init = "cusparseLtMatmulDescriptorInit" (Raw, Raw, c_int, c_int, Raw, Raw, Raw, Raw, c_int) -> Status;
    algorithm_init = "cusparseLtMatmulAlgSelectionInit" (Raw, Raw, Raw, c_int) -> Status;
    algorithm_get = "cusparseLtMatmulAlgGetAttribute" (Raw, Raw, c_int, *mut c_void, usize) -> Status;
    algorithm_set = "cusparseLtMatmulAlgSetAttribute" (Raw, Raw, c_int, *const c_void, usize) -> Status;
    plan_init = "cusparseLtMatmulPlanInit" (Raw, Raw, Raw, Raw) -> Status;
    plan_destroy = "cusparseLtMatmulPlanDestroy" (Raw) -> Status;
    workspace = "cusparseLtMatmulGetWorkspace" (Raw, Raw, *mut usize) -> Status;
    compressed_size = "cusparseLtSpMMACompressedSize2" (Raw, Raw, *mut usize, *mut usize) -> Status;
    // Handle, descriptor, whether it is A, operation, dense, compressed, scratch, stream.
    compress = "cusparseLtSpMMACompress2" (Raw, Raw, c_int, c_int, Raw, Raw, Raw, *mut c_void) -> Status;
    // Handle, plan, alpha, A, B, beta, C, D, workspace, streams and their number.
    matmul = "cusparseLtMatmul" (
        Raw, Raw, *const c_void, Raw, Raw, *const c_void, Raw, Raw, Raw, *mut *mut c_void, i32
    ) -> Status;
}

/// The library and its functions.
pub(super) struct Symbols {
    pub(super) functions: Functions,
    /// Older libraries have nothing to destroy.
    pub(super) algorithm_destroy: Option<unsafe extern "C" fn(Raw) -> Status>,
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
        // SAFETY: the caller guarantees the library, which stays loaded; the optional function's type is that in its header.
        let symbols = unsafe {
            Self {
                functions: Functions::look_up(&library)?,
                algorithm_destroy: library::get(LIBRARY, &library, "cusparseLtMatmulAlgSelectionDestroy")
                    .ok(),
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
            let status = unsafe { (self.functions.property)(part, &mut number) };
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
