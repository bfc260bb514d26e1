//! cuBLASLt, to compare kernels with: on the same stream, timed by the same events.
//!
//! The library is loaded when a [`CublasLt`] is made. Nothing else needs it.
//!
//! ```no_run
//! use collective::Format;
//! use kernel::driver::Gpu;
//! use kernel::{Engine, GemmProblem};
//! use peers::Matmul;
//! use peers::cublaslt::CublasLt;
//!
//! let mut gpu = Gpu::new(0)?;
//! let size = GemmProblem { m: 4096, n: 4096, k: 4096 };
//! let matrices = [gpu.allocate(32 << 20)?, gpu.allocate(32 << 20)?, gpu.allocate(32 << 20)?];
//! let [a, b, d] = matrices.map(|matrix| matrix.address);
//!
//! let plan = CublasLt::new(&gpu)?.plan(&Matmul::new(Format::Bf16, size))?;
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

use kernel::EngineError;
use kernel::driver::{Context, DeviceMemory, Gpu, Memories};

use crate::Matmul;

mod fused;
mod plan;
mod symbols;

pub use fused::{Fused, FusedActivation};
pub use plan::{HeuristicEstimate, Plan, Run};
use symbols::{RawHandle, Status, Symbols, status_name};

/// Bytes of workspace that algorithms may use.
pub const WORKSPACE_BYTES: usize = 64 << 20;

/// A handle of cuBLASLt, with its workspace.
///
/// All plans share the workspace, so run them on only one stream at a time.
#[derive(Clone, Debug)]
pub struct CublasLt {
    handle: Arc<Handle>,
}

impl CublasLt {
    /// Loads the newest cuBLASLt that the system's loader finds and the driver supports.
    ///
    /// # Errors
    /// The library was not found, or a call of it failed.
    pub fn new(gpu: &Gpu) -> Result<Self, EngineError> {
        let (major, _) = gpu.context().cuda_version();
        Self::with_symbols(gpu, Symbols::find(major)?)
    }

    /// Loads cuBLASLt from a file, for an installation that the system's loader does not find.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    ///
    /// # Safety
    /// The file must be NVIDIA's cuBLASLt of CUDA 12 or 13. The code that it runs when it is loaded and
    /// called is trusted.
    pub unsafe fn from_file(gpu: &Gpu, path: &Path) -> Result<Self, EngineError> {
        // SAFETY: the caller guarantees the file.
        Self::with_symbols(gpu, unsafe { Symbols::load(path)? })
    }

    fn with_symbols(gpu: &Gpu, symbols: Symbols) -> Result<Self, EngineError> {
        let context = Arc::clone(gpu.context());
        let current = context.bind()?;
        // Only cuBLASLt uses this memory, as its workspace.
        let workspace = DeviceMemory::new(&context, WORKSPACE_BYTES)?;
        let mut raw = ptr::null_mut();
        // SAFETY: the context is current, and one handle is written.
        status("cublasLtCreate", unsafe { (symbols.functions.create)(&mut raw) })?;
        drop(current);
        let memories = Arc::clone(gpu.memories());
        Ok(Self { handle: Arc::new(Handle { symbols, raw, context, workspace, memories }) })
    }

    /// The library's version, for example `13.0.2`.
    pub fn version(&self) -> String {
        // SAFETY: it takes nothing and returns a number.
        version_text(unsafe { (self.handle.symbols.functions.version)() })
    }

    /// Asks the heuristic for algorithms, the best first.
    ///
    /// # Errors
    /// The heuristic has no algorithm, or a call failed.
    pub fn plan(&self, matmul: &Matmul) -> Result<Plan, EngineError> {
        Plan::new(Arc::clone(&self.handle), matmul, None)
    }

    /// The same, for a GEMM with one of cuBLASLt's own fused epilogues.
    ///
    /// # Errors
    /// The heuristic has no algorithm, or a call failed.
    pub fn plan_fused(&self, matmul: &Matmul, fused: Fused) -> Result<Plan, EngineError> {
        Plan::new(Arc::clone(&self.handle), matmul, Some(fused))
    }
}

/// What a handle owns.
struct Handle {
    symbols: Symbols,
    raw: RawHandle,
    context: Arc<Context>,
    /// [`WORKSPACE_BYTES`] bytes.
    workspace: DeviceMemory,
    /// The GPU's buffers, which hold the matrices.
    memories: Arc<Memories>,
}

// SAFETY: the library documents its handle as usable from any thread, and the context is made current before each use.
unsafe impl Send for Handle {}
// SAFETY: as above; every entry that takes the handle may be called concurrently.
unsafe impl Sync for Handle {}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").field("workspace", &self.workspace.bytes()).finish_non_exhaustive()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // A GEMM may still be running.
        self.context.wait();
        if let Ok(_current) = self.context.bind() {
            // SAFETY: the handle belongs to this value, and no plan is left that could use it.
            let _ = unsafe { (self.symbols.functions.destroy)(self.raw) };
        }
    }
}

/// Turns a status into a result.
fn status(call: &'static str, status: Status) -> Result<(), EngineError> {
    if status == 0 { Ok(()) } else { Err(failed(call, status_name(status))) }
}

fn failed(call: &'static str, status: String) -> EngineError {
    EngineError::Library { library: "cuBLASLt", call, status }
}

/// The library's version number, `major * 10000 + minor * 100 + patch`, as text.
fn version_text(number: usize) -> String {
    format!("{}.{}.{}", number / 10_000, number % 10_000 / 100, number % 100)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use kernel::EngineError;

    use super::{Symbols, version_text};

    #[test]
    fn versions_read_as_people_write_them() {
        for (number, want) in [(120_304, "12.3.4"), (130_002, "13.0.2"), (130_100, "13.1.0")] {
            assert_eq!(version_text(number), want);
        }
    }

    #[test]
    fn a_missing_library_is_an_error_that_names_it() {
        // SAFETY: there is no such file.
        let error = unsafe { Symbols::load(Path::new("/nowhere/libcublasLt.so.13")) }.unwrap_err();
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
