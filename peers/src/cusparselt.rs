//! cuSPARSELt, the peer that kernels of sparse operands are measured against, on the same stream and with the same events.
//!
//! The library is loaded when a [`CusparseLt`] is asked for and needed for nothing else.
//!
//! ```no_run
//! use collective::Format;
//! use kernel::driver::Gpu;
//! use kernel::{Engine, GemmProblem, Types};
//! use peers::Matmul;
//! use peers::cusparselt::{Choice, CusparseLt};
//!
//! let mut gpu = Gpu::new(0)?;
//! let size = GemmProblem { m: 4096, n: 4096, k: 4096 };
//! // A has a zero for each element that is not kept.
//! let matrices = [gpu.allocate(32 << 20)?, gpu.allocate(32 << 20)?, gpu.allocate(32 << 20)?];
//! let [a, b, d] = matrices.map(|matrix| matrix.address);
//!
//! let plan = CusparseLt::new(&gpu)?.plan(&Matmul::new(Types::of(Format::Bf16).sparse([true, false]), size))?;
//! let a = plan.compress(&mut gpu, a)?;
//! let usual = plan.algorithm(Choice::FIRST)?.with(&a, b, d)?;
//! let best = plan.algorithm(plan.fastest(&mut gpu, &a, b, d)?)?.with(&a, b, d)?;
//! println!("{} s, {} s", gpu.time_many(&[&usual], 20)?, gpu.time_many(&[&best], 20)?);
//! # Ok::<(), kernel::EngineError>(())
//! ```
#![allow(unsafe_code, reason = "calls cuSPARSELt")]

use core::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use kernel::EngineError;
use kernel::driver::{Context, Gpu, Memories};

use crate::Matmul;

mod algorithm;
mod plan;
mod symbols;

pub use algorithm::{Algorithm, Choice, Run, Split, WORKSPACE_BYTES};
pub use plan::{CompressedMatrix, Plan};
use symbols::{Opaque, Raw, Status, Symbols, status_name};

/// A handle of cuSPARSELt.
#[derive(Clone, Debug)]
pub struct CusparseLt {
    handle: Arc<Handle>,
}

impl CusparseLt {
    /// Loads the cuSPARSELt that the system's loader finds.
    ///
    /// # Errors
    /// The library is not there or too old, or a call of it failed.
    pub fn new(gpu: &Gpu) -> Result<Self, EngineError> {
        Self::with_symbols(gpu, Symbols::find()?)
    }

    /// Loads cuSPARSELt from a file, for installations that the system's loader does not know.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    ///
    /// # Safety
    /// The file is NVIDIA's cuSPARSELt: what it runs when it is loaded and called is taken on trust.
    pub unsafe fn from_file(gpu: &Gpu, path: &Path) -> Result<Self, EngineError> {
        // SAFETY: the caller vouches for the file.
        Self::with_symbols(gpu, unsafe { Symbols::load(path)? })
    }

    fn with_symbols(gpu: &Gpu, symbols: Symbols) -> Result<Self, EngineError> {
        let context = Arc::clone(gpu.context());
        let current = context.bind()?;
        let raw = Opaque::new();
        // SAFETY: the context is current, and there is room for the handle.
        status("cusparseLtInit", unsafe { (symbols.functions.init)(raw.raw()) })?;
        drop(current);
        let memories = Arc::clone(gpu.memories());
        let calls = Mutex::new(());
        Ok(Self { handle: Arc::new(Handle { symbols, raw, calls, context, memories }) })
    }

    /// The library's version, as `0.8.0`.
    pub fn version(&self) -> String {
        self.handle.symbols.version().map(|part| part.to_string()).join(".")
    }

    /// Describes a product.
    ///
    /// # Errors
    /// Not one operand of it is sparse, or the library does not multiply such matrices.
    pub fn plan(&self, matmul: &Matmul) -> Result<Plan, EngineError> {
        Plan::new(Arc::clone(&self.handle), matmul)
    }
}

/// What a handle owns.
struct Handle {
    symbols: Symbols,
    raw: Opaque,
    /// Held while the library is called: what it says of threads is not relied on.
    calls: Mutex<()>,
    context: Arc<Context>,
    /// The GPU's buffers, which products are computed in.
    memories: Arc<Memories>,
}

impl Handle {
    /// Calls a function of the library with the handle, while nobody else does, and the context is current.
    fn call(
        &self,
        name: &'static str,
        function: impl FnOnce(&Symbols, Raw) -> Status,
    ) -> Result<(), EngineError> {
        let _current = self.context.bind()?;
        let _alone = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        status(name, function(&self.symbols, self.raw.raw()))
    }

    /// The same where there is nothing to be done about a failure.
    fn destroy(&self, function: impl FnOnce(&Symbols) -> Status) {
        // Nobody looks at what the call says.
        let _ = self.call("destroy", |symbols, _| function(symbols));
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").field("version", &self.symbols.version()).finish_non_exhaustive()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // A product may be in flight.
        self.context.wait();
        // SAFETY: the handle is this value's own, and no plan is left that could use it.
        self.destroy(|symbols| unsafe { (symbols.functions.destroy)(self.raw.raw()) });
    }
}

/// A status as a result.
fn status(call: &'static str, status: Status) -> Result<(), EngineError> {
    if status == 0 { Ok(()) } else { Err(refused(call, status_name(status))) }
}

/// What is wrong with a call before the library is asked.
fn refused(call: &'static str, status: String) -> EngineError {
    EngineError::Library { library: "cuSPARSELt", call, status }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use kernel::EngineError;

    use super::{Symbols, status};

    #[test]
    fn a_missing_library_is_an_error_that_names_it() {
        // SAFETY: there is no such file.
        let error = unsafe { Symbols::load(Path::new("/nowhere/libcusparseLt.so.0")) }.unwrap_err();
        let EngineError::NoLibrary { library, reason } = &error else { panic!("{error}") };
        assert_eq!(*library, "libcusparseLt");
        assert!(reason.contains("/nowhere/libcusparseLt.so.0"), "{reason}");
    }

    #[test]
    fn names_that_were_tried_are_listed() {
        match Symbols::find() {
            Ok(found) => assert!(found.version() >= [0, 6, 0], "{found:?}"),
            Err(error) => assert!(error.to_string().contains("libcusparseLt.so.0"), "{error}"),
        }
    }

    #[test]
    fn failures_name_the_call_and_the_status() {
        let error = status("cusparseLtMatmul", 10).unwrap_err().to_string();
        assert_eq!(error, "cuSPARSELt: cusparseLtMatmul failed with CUSPARSE_STATUS_NOT_SUPPORTED");
        assert!(status("cusparseLtMatmul", 99).unwrap_err().to_string().ends_with("status 99"));
        assert!(status("cusparseLtMatmul", 0).is_ok());
    }
}
