//! The GPU as an engine: memory, compiling, launching and timing through the CUDA driver.
//!
//! Nothing of CUDA is needed to build: the driver is looked for when a [`Gpu`] is asked for, and its absence is an
//! error. All `unsafe` code of the workspace is in this module.
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
//! [`Kernel::load_in`] compiles into a context that exists already, and [`Kernel::launch_raw`] launches on any stream
//! of it with device addresses as plain numbers: it allocates nothing and waits for nothing. [`Loaded`] puts the checks
//! and a memory of earlier calls in front of that; launches can be captured into graphs ([`Gpu::capture`], or on a
//! stream of the application's own).
//!
//! ```no_run
//! use kernel::driver::{CudaContext, Kernel, parameter_block};
//! use kernel::{AnyGemm, Call};
//!
//! fn multiply(gemm: &AnyGemm, call: &Call) -> Result<(), Box<dyn std::error::Error>> {
//!     let context = CudaContext::new(0)?; // the application's own
//!     let stream = context.default_stream();
//!     let program = gemm.program()?;
//!     let kernel = Kernel::load_in(&context, &program)?; // milliseconds; keep it
//!     if let Some(launch) = gemm.launch(call, 132)? {
//!         let block = parameter_block(&program, &launch.arguments)?;
//!         // SAFETY: the stream is alive and of that context, and `call` holds addresses of matrices that are alive.
//!         unsafe { kernel.launch_raw(stream.cu_stream().cast(), launch.grid, &block)? };
//!     }
//!     Ok(())
//! }
//! ```

#![warn(clippy::undocumented_unsafe_blocks, clippy::missing_safety_doc)]

mod call;
mod calls;
#[cfg(test)]
mod counting;
pub mod cublaslt;
mod gpu;
mod graph;
mod kernel;
mod library;
mod loaded;
mod module;
mod monitor;
mod tensor_map;
mod timing;

pub use cudarc::driver::{CudaContext, CudaStream};
pub use gpu::Gpu;
pub use graph::Graph;
pub use kernel::{Kernel, parameter_block};
pub use loaded::{AnyCall, Loaded};
pub use monitor::{Monitor, Readings};
pub use tensor_map::{encode_im2col_map, encode_tensor_map};
pub use timing::{Enqueue, Prepared};
