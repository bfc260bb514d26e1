//! CUTLASS for Rust: GEMM kernels for Hopper (sm_90a) as types, run and proven without a GPU.
//!
//! A *kernel is a type*. Its mainloop, epilogue and tile scheduler are trait parameters; the compiler checks that they
//! fit together; the type becomes one PTX kernel. The same program is verified statically and executed by an emulator on
//! the CPU, so everything here runs on any machine.
//!
//! ```
//! use falchion::prelude::*;
//!
//! struct MyGemm;
//! impl GemmConfig for MyGemm {
//!     type Mainloop = TmaWgmma<Operands<KMajor<bf16>, KMajor<bf16>>, Tile<U128, U256, U64>, Cooperative<U2>>;
//!     type Epilogue = LinearCombination<bf16, TmaStore>;
//!     type Scheduler = Persistent<Grouped<AlongM, U8>>;
//! }
//! const PLAN: Plan = Gemm::<MyGemm>::PLAN; // illegal numbers stop the build here, with the reason
//! assert_eq!((PLAN.ring.stages, PLAN.threads), (4, 384));
//!
//! let program = Gemm::<MyGemm>::program()?; // verified; milliseconds
//! assert!(program.text().starts_with(".version"));
//! # Ok::<(), falchion::ptx::VerifyError>(())
//! ```
//!
//! # On the card
//!
//! From cudarc (feature `cudarc`), on slices that say their element types, without `unsafe`:
//!
//! ```no_run
//! # #[cfg(feature = "cudarc")]
//! # mod of_cudarc {
//! use std::sync::Arc;
//!
//! use cudarc::driver::{CudaSlice, CudaStream};
//! use falchion::kernel::EngineError;
//! use falchion::prelude::*;
//!
//! type MyGemm = Composed<
//!     TmaWgmma<Operands<KMajor<bf16>, KMajor<bf16>>, Tile<U128, U256, U64>, Cooperative<U2>>,
//!     LinearCombination<bf16, TmaStore>,
//!     Persistent<Grouped<AlongM, U8>>,
//! >;
//! type Slice = CudaSlice<bf16>;
//!
//! fn layer(stream: &Arc<CudaStream>, x: &Slice, w: &Slice, y: &mut Slice) -> Result<(), EngineError> {
//!     let problem = GemmProblem { m: 300, n: 200, k: 136 };
//!     let gemm = Gemm::<MyGemm>::load(stream)?; // milliseconds: keep it
//!     gemm.launch(stream, problem, x, w, y)?;
//!     // Or a kernel that is chosen, of row-major matrices; what was loaded is kept.
//!     falchion::matmul(stream, problem, x, w, y)
//! }
//! # }
//! ```
//!
//! From everybody else: memory as [`DeviceSlice`](kernel::driver::DeviceSlice)s, or plain addresses, on any stream.
//!
//! ```no_run
//! # #[cfg(feature = "driver")]
//! # mod of_the_driver {
//! # use falchion::prelude::*;
//! use core::ffi::c_void;
//!
//! use falchion::kernel::EngineError;
//! use falchion::kernel::driver::{Context, LoadedGemm};
//! # type MyGemm = Composed<
//! #     TmaWgmma<Operands<KMajor<bf16>, KMajor<bf16>>, Tile<U128, U256, U64>, Cooperative<U2>>,
//! #     LinearCombination<bf16, TmaStore>,
//! #     Persistent<Grouped<AlongM, U8>>,
//! # >;
//!
//! fn load() -> Result<LoadedGemm<MyGemm>, EngineError> {
//!     Gemm::<MyGemm>::load(&Context::primary(0)?) // the context that the CUDA runtime uses, too
//! }
//!
//! /// # Safety
//! /// The stream is alive, and A, B and D lie at these addresses.
//! unsafe fn layer(gemm: &LoadedGemm<MyGemm>, stream: *mut c_void, at: [u64; 3]) -> Result<(), EngineError> {
//!     unsafe { gemm.launch_raw(stream, GemmProblem { m: 300, n: 200, k: 136 }, at) }
//! }
//! # }
//! ```
//!
//! How to run kernels in the emulator: [`kernel`]'s first example, or `examples/gemm.rs`.
//!
//! # What is where
//!
//! * [`kernel`]: compose, check and run kernels; the catalogue. Start here. [`kernel::build`] makes
//!   kernels in a build script; module `disk` (feature `disk`) keeps what was assembled, and tuning records, on disk.
//! * [`collective`]: mainloops, epilogues, the plan of numbers.
//! * [`scheduler`]: which CTA computes which tile, in which order.
//! * [`cute_rs`]: layouts, their algebra, and the layout facts of instructions.
//! * [`ptx`]: the typed program behind a kernel.
//! * [`emulator`]: runs programs on the CPU and says what is wrong with them.
//! * [`manual`]: from an empty folder to kernels of your own, chapter by chapter.
//! * [`verify`]: case tables, an f64 oracle and derived bounds, for kernels of your own too.
#![forbid(unsafe_code)]

pub use collective;
pub use cute_rs;
pub use emulator;
pub use kernel;
pub use ptx;
pub use scheduler;

#[cfg(feature = "cudarc")]
pub use kernel::driver::matmul;

pub mod manual;
pub mod verify;

/// Everything that a kernel's type is written with.
pub mod prelude {
    pub use collective::{
        AsManyAsFit, BlockScaled, Cluster, Cooperative, CopyWgmma, DirectStore, EachThread, EachWarp,
        EvictFirst, EvictLast, F4E2M1, F8E4M3, F8E5M2, Fitted, InHalf, Int4, KMajor, LinearCombination,
        MmaSync, MnMajor, Operands, Pingpong, Plan, Promoted, Quantized, RowMajor, Simt, Sparse, Sw,
        Swizzled, Tf32, Tile, TmaStore, TmaWgmma, Transposed, TreeEpilogue, Uint4, Unspecialised, ZeroPoints,
    };
    pub use half::{bf16, f16};
    #[cfg(feature = "driver")]
    pub use kernel::Gpu;
    pub use kernel::{
        Batched, Call, Composed, Emulator, Engine, Gemm, GemmConfig, GemmProblem, LinearArguments, Masked,
        MatrixRef, PointerArray, Products, Ragged, Tree,
    };
    pub use scheduler::{
        AlongM, AlongN, Atomic, ClusterK, DividedTail, Dynamic, EveryTile, Grouped, Heuristic, Hilbert,
        OneTile, Ordered, Persistent, Remainder, Separate, StreamK,
    };
    pub use typenum::{U1, U2, U3, U4, U5, U6, U7, U8, U12, U16, U32, U64, U96, U128, U160, U192, U256};
}
