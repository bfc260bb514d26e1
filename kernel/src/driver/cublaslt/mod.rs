//! cuBLASLt, the peer that kernels are measured against, on the same stream and with the same events.
//!
//! The library is loaded when a [`CublasLt`] is asked for and needed for nothing else.
//!
//! ```no_run
//! use cute_rs::atom::Major;
//! use kernel::driver::cublaslt::{CublasLt, Precision, Product};
//! use kernel::driver::Gpu;
//! use kernel::{Engine, GemmProblem};
//!
//! let mut gpu = Gpu::new(0)?;
//! let size = GemmProblem { m: 4096, n: 4096, k: 4096 };
//! let matrices = [gpu.allocate(32 << 20)?, gpu.allocate(32 << 20)?, gpu.allocate(32 << 20)?];
//! let [a, b, d] = matrices.map(|matrix| matrix.address);
//!
//! let product = Product { size, precision: Precision::Bf16, a: Major::K, b: Major::K };
//! let plan = CublasLt::new(&gpu)?.plan(&product)?;
//! let usual = plan.with(0, a, b, d)?;
//! let best = plan.with(plan.fastest(&mut gpu, a, b, d)?, a, b, d)?;
//! println!("{} s, {} s", gpu.time_many(&[&usual], 20)?, gpu.time_many(&[&best], 20)?);
//! # Ok::<(), kernel::EngineError>(())
//! ```
#![allow(unsafe_code, reason = "calls cuBLASLt and the CUDA driver")]

use core::fmt;
use core::ptr;
use std::path::Path;
use std::sync::Arc;

use cudarc::cublaslt::sys;
use cudarc::driver::{CudaContext, result};

use super::gpu::Gpu;
use super::{call, library};
use crate::error::EngineError;

mod plan;
mod product;
mod symbols;

pub use plan::{Algorithm, Plan, Run};
pub use product::{Activation, Fused, Precision, Product};
use symbols::Symbols;

/// Bytes of scratch memory that algorithms may use.
pub const WORKSPACE_BYTES: usize = 64 << 20;

/// A handle of cuBLASLt with its workspace.
///
/// All plans share the workspace, so run them on one stream at a time.
#[derive(Clone, Debug)]
pub struct CublasLt {
    handle: Arc<Handle>,
}

impl CublasLt {
    /// Loads the newest cuBLASLt that the system's loader finds and the driver supports.
    ///
    /// # Errors
    /// The library is not there, or a call of it failed.
    pub fn new(gpu: &Gpu) -> Result<Self, EngineError> {
        let (major, _) = library::driver()?.version;
        Self::with_symbols(gpu, Symbols::find(major)?)
    }

    /// Loads cuBLASLt from a file, for installations that the system's loader does not know.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn from_file(gpu: &Gpu, path: &Path) -> Result<Self, EngineError> {
        Self::with_symbols(gpu, Symbols::load(path)?)
    }

    fn with_symbols(gpu: &Gpu, symbols: Symbols) -> Result<Self, EngineError> {
        call::bind(gpu.context())?;
        let mut raw = ptr::null_mut();
        // SAFETY: the context is current, and one handle is written.
        status("cublasLtCreate", unsafe { (symbols.create)(&mut raw) })?;
        let mut handle = Handle { symbols, raw, context: Arc::clone(gpu.context()), workspace: 0 };
        // SAFETY: nothing but cuBLASLt uses the memory, as scratch.
        handle.workspace = call::driver("cuMemAlloc", unsafe { result::malloc_sync(WORKSPACE_BYTES) })?;
        Ok(Self { handle: Arc::new(handle) })
    }

    /// The library's version, as `13.0.2`.
    pub fn version(&self) -> String {
        // SAFETY: it takes nothing and returns a number.
        version_text(unsafe { (self.handle.symbols.version)() })
    }

    /// Asks the heuristic for algorithms, best first.
    ///
    /// # Errors
    /// It has none, or a call failed.
    pub fn plan(&self, product: &Product) -> Result<Plan, EngineError> {
        Plan::new(Arc::clone(&self.handle), product, None)
    }

    /// As [`plan`](Self::plan) for a product with one of the library's own fused epilogues.
    ///
    /// # Errors
    /// The heuristic has no algorithm, or a call failed.
    pub fn plan_fused(&self, product: &Product, fused: Fused) -> Result<Plan, EngineError> {
        Plan::new(Arc::clone(&self.handle), product, Some(fused))
    }
}

/// What a handle owns.
struct Handle {
    symbols: Symbols,
    raw: sys::cublasLtHandle_t,
    context: Arc<CudaContext>,
    /// Device address of [`WORKSPACE_BYTES`], or zero before they are there.
    workspace: u64,
}

// SAFETY: the library documents its handle as usable from any thread, and the context is made current before each use.
unsafe impl Send for Handle {}
// SAFETY: as above; every entry that takes the handle may be called concurrently.
unsafe impl Sync for Handle {}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").field("workspace", &self.workspace).finish_non_exhaustive()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if call::bind(&self.context).is_ok() {
            // SAFETY: handle and workspace are this value's own, and no plan is left that could use them. Freeing
            // waits for work in flight.
            unsafe {
                if self.workspace != 0 {
                    let _ = result::free_sync(self.workspace);
                }
                let _ = (self.symbols.destroy)(self.raw);
            }
        }
    }
}

/// A status as a result.
fn status(call: &'static str, status: sys::cublasStatus_t) -> Result<(), EngineError> {
    status.result().map_err(|error| EngineError::CublasLt { call, status: format!("{:?}", error.0) })
}

/// The library's number, `major * 10000 + minor * 100 + patch`, in words.
fn version_text(number: usize) -> String {
    format!("{}.{}.{}", number / 10_000, number % 10_000 / 100, number % 100)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{Symbols, version_text};
    use crate::error::EngineError;

    #[test]
    fn versions_read_as_people_write_them() {
        for (number, want) in [(120_304, "12.3.4"), (130_002, "13.0.2"), (130_100, "13.1.0")] {
            assert_eq!(version_text(number), want);
        }
    }

    #[test]
    fn a_missing_library_is_an_error_that_names_it() {
        let error = Symbols::load(Path::new("/nowhere/libcublasLt.so.13")).unwrap_err();
        let EngineError::NoLibrary { library, reason } = &error else { panic!("{error}") };
        assert_eq!(*library, "libcublasLt");
        assert!(reason.contains("/nowhere/libcublasLt.so.13"), "{reason}");
    }

    #[test]
    fn names_that_were_tried_are_listed() {
        match Symbols::find(99) {
            Ok(_) => {}
            Err(error) => assert!(error.to_string().contains("13"), "{error}"),
        }
    }
}
