//! The GPU as an engine: memory, compilation, launches and timing through the CUDA driver.
//!
//! Nothing from CUDA is needed to build. The driver library is loaded when the first [`Gpu`] or [`Context`]
//! is made; if it is missing, that is an error. All `unsafe` code of this crate is in this module.
//!
//! ```
//! use kernel::EngineError;
//! use kernel::driver::Gpu;
//!
//! match Gpu::new(0) {
//!     Ok(gpu) => println!("{gpu:?}"),
//!     Err(EngineError::NoDriver { library }) => println!("no {library} here: take the emulator"),
//!     Err(other) => println!("{other}"),
//! }
//! ```
//!
//! # From cudarc and candle
//!
//! [`Context::primary`] is the context that cudarc, candle and the CUDA runtime use too. [`Loaded`] checks
//! calls, remembers them, and launches on memory that its owners lend as [`DeviceSlice`]s. Buffers of a
//! [`Gpu`] can be lent; so can slices of cudarc, on streams of cudarc (feature and module `cudarc`). Plain
//! addresses are `unsafe`, because nothing proves that they are addresses of live device memory.
//! [`Loaded::launch_raw`] launches on any stream with plain addresses:
//!
//! ```no_run
//! use kernel::driver::{Context, Loaded};
//! use kernel::{AnyGemm, Call};
//!
//! fn load(gemm: AnyGemm) -> Result<Loaded, Box<dyn std::error::Error>> {
//!     let context = Context::primary(0)?; // the application's own
//!     let program = gemm.program()?;
//!     Ok(Loaded::load_in(&context, gemm, program)?) // milliseconds; keep it
//! }
//!
//! /// # Safety
//! /// The stream is alive and of that context, and so are the matrices at the call's addresses.
//! unsafe fn multiply(gemm: &Loaded, call: &Call, stream: *mut core::ffi::c_void) -> Result<(), kernel::EngineError> {
//!     unsafe { gemm.launch_raw(stream, call) }
//! }
//! ```
//!
//! # Ways to launch
//!
//! There are three. [`Engine::launch`](crate::Engine::launch) runs a program with its arguments to its end, on a [`Gpu`] as in the emulator;
//! [`Gpu::prepare`] keeps such a launch, to be timed or captured. [`Loaded`] launches calls of a kernel, with all of its programs, on a stream;
//! a kernel of your own type is one too ([`Gemm::load`](crate::Gemm::load)). [`Chooser`] chooses a GEMM's kernel, loads it and launches it.
//!
//! # Compiled kernels on disk
//!
//! By default the driver compiles a program when it loads it. The driver has its own cache of what it
//! compiled.
//!
//! If the environment variable `FALCHION_PTXAS` holds the path of NVIDIA's assembler, the assembler makes the
//! binary, and the driver only loads it. The binary and the assembler's log are kept in a folder
//! ([`disk`](crate::disk)), so the next process does not run the assembler. The environment variable
//! `FALCHION_CACHE` names the folder; if it is empty, nothing is kept. A file is made again if it is damaged,
//! if it belongs to another driver or another version of the assembler, or if the driver rejects it. If the
//! assembler fails, that is an error: the driver does not compile in its place. [`LoadedProgram::origin`] says where
//! a kernel's binary came from, and [`LoadedProgram::warnings`] what was wrong with the folder.
//!
//! # What is trusted
//!
//! A program reads and writes memory from the addresses that it is given, as far as the extents that it is
//! given. The verifier and the emulator check that; the Rust compiler does not. If you write a role of your
//! own and run it on a GPU whose memory others use too, run it in the emulator first.

#![warn(clippy::undocumented_unsafe_blocks, clippy::missing_safety_doc)]

mod call;
mod calls;
mod captured;
mod card;
mod chooser;
mod context;
#[cfg(test)]
mod counting;
#[cfg(feature = "cudarc")]
pub mod cudarc;
mod gpu;
mod graph;
mod library;
mod load;
mod loaded;
mod loaded_program;
mod memory;
mod module;
mod reach;
mod records;
mod slice;
mod stream;
mod sys;
mod tensor_map;
mod timing;
#[cfg(feature = "tune")]
pub mod tune;
mod typed;
mod workspaces;

pub use captured::Capture;
pub use chooser::{Activation, Chooser, GemmDesc};
#[cfg(feature = "cudarc")]
pub use chooser::{RowMajorProducts, matmul};
pub use context::{Context, Current};
pub use gpu::Gpu;
pub use graph::Graph;
pub use load::Origin;
pub use loaded::{Loaded, Programs};
pub use loaded_program::LoadedProgram;
pub use memory::{DeviceMemory, Memories};
pub use records::DeviceRecords;
pub use slice::DeviceSlice;
pub use stream::{Held, Stream, StreamRef};
pub use timing::{Enqueue, Prepared};
#[cfg(feature = "tune")]
pub use tune::{Chosen, RECORDED, Tuned, Tuning, chosen, recorded, stop_measuring, times_kept, tuned};
pub use typed::{DeviceElement, InContext};
