//! CUTLASS for Rust: GEMM kernels for Hopper (sm_90a) as types, run and checked without a GPU.
//!
//! A *kernel is a type*. Its mainloop, epilogue and tile scheduler are trait parameters. The compiler checks
//! that they fit together, and the type becomes one PTX kernel. The same program is verified statically and
//! executed by an emulator on the CPU, so everything here runs on any machine.
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
//! # On the GPU
//!
//! With cudarc (feature `cudarc`), a launch takes typed slices and needs no `unsafe`:
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
//!     gemm.multiply(stream, problem, x, w, y)?;
//!     // Or let the library choose a kernel for row-major matrices. It keeps the loaded kernel for the next call.
//!     falchion::matmul(stream, problem, x, w, y)
//! }
//! # }
//! ```
//!
//! Without cudarc, pass memory as [`DeviceSlice`](kernel::driver::DeviceSlice)s or as plain device addresses,
//! on any stream:
//!
//! ```no_run
//! # #[cfg(feature = "driver")]
//! # mod of_the_driver {
//! # use falchion::prelude::*;
//! use core::ffi::c_void;
//!
//! use falchion::kernel::EngineError;
//! use falchion::kernel::driver::{Context, Loaded};
//! # type MyGemm = Composed<
//! #     TmaWgmma<Operands<KMajor<bf16>, KMajor<bf16>>, Tile<U128, U256, U64>, Cooperative<U2>>,
//! #     LinearCombination<bf16, TmaStore>,
//! #     Persistent<Grouped<AlongM, U8>>,
//! # >;
//!
//! fn load() -> Result<Loaded<Gemm<MyGemm>>, EngineError> {
//!     Gemm::<MyGemm>::load(&Context::primary(0)?) // the CUDA runtime uses the same context
//! }
//!
//! /// # Safety
//! /// The stream is alive, and A, B and D are at these addresses.
//! unsafe fn layer(gemm: &Loaded<Gemm<MyGemm>>, stream: *mut c_void, at: [u64; 3]) -> Result<(), EngineError> {
//!     let problem = GemmProblem { m: 300, n: 200, k: 136 };
//!     unsafe { gemm.launch_raw(stream, &Gemm::<MyGemm>::packed(problem, at)) }
//! }
//! # }
//! ```
//!
//! The first example of [`kernel`] and `examples/gemm.rs` run a kernel in the emulator.
//!
//! # Where to find what
//!
//! * [`kernel`]: composes, checks and runs kernels, and holds the catalogue. Start here. [`kernel::build`]
//!   writes kernels in a build script. Module `disk` (feature `disk`) keeps compiled kernels and tuning
//!   records on disk.
//! * [`attention`]: attention kernels, with masks and score functions of your own.
//! * [`rows`]: kernels over rows: sums, gathered rows, the parts of a cross entropy.
//! * [`collective`]: mainloops, epilogues, and the [`Plan`](collective::Plan) with every number of a kernel.
//! * [`scheduler`]: which CTA computes which tile, in which order.
//! * [`cute_rs`]: layouts, their algebra, and the layouts that instructions require.
//! * [`ptx`]: the typed program of a kernel, and its printer and verifier.
//! * [`emulator`]: runs programs on the CPU and reports their errors.
//! * [`check`]: PTX that anybody wrote, checked under many schedules.
//! * [`manual`]: from an empty folder to kernels of your own, chapter by chapter, with a
//!   [glossary](manual::glossary).
//! * [`verify`]: case tables, an f64 reference and derived error bounds. Your own kernels can use them.
#![forbid(unsafe_code)]

pub use attention;
pub use collective;
pub use cute_rs;
pub use emulator;
pub use kernel;
#[cfg(feature = "measure")]
pub use peers;
pub use ptx;
pub use rows;
pub use scheduler;

#[cfg(feature = "cudarc")]
pub use kernel::driver::matmul;

#[cfg(all(feature = "measure", feature = "tune"))]
pub mod bench;
pub mod check;
#[cfg(feature = "cli")]
pub mod cli;
#[cfg(feature = "explore")]
pub mod explore;
pub mod manual;
mod report;
pub mod verify;

pub use report::Report;

/// Every name needed to write a kernel's type.
pub mod prelude {
    pub use crate::Report;
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
        Batched, Call, Composed, Emulator, Engine, Gemm, GemmConfig, GemmProblem, GroupedContiguous,
        GroupedMasked, GroupedProblem, KGrouped, LinearArguments, MatrixRef, PointerArray, Tree,
    };
    pub use scheduler::orders::*;
    pub use scheduler::{
        Atomic, ClusterK, DividedTail, Dynamic, EveryTile, Heuristic, NarrowTail, OneTile, Ordered,
        Persistent, Remainder, Separate, StreamK,
    };
    pub use typenum::{U1, U2, U3, U4, U5, U6, U7, U8, U12, U16, U32, U64, U96, U128, U160, U192, U256};

    /// The names to write a family of kernels with: its traits, those of a mainloop, what a call's interface states, and a program.
    #[cfg(feature = "records")]
    pub mod family {
        pub use collective::operands::{Contents, Extents, Memory, OwnSite, Visit};
        pub use collective::{
            DeviceMainloop, Format, Mainloop, MainloopNeeds, MainloopSite, MainloopSpec, Matrix, TileShape,
            WarpRoles,
        };
        pub use kernel::words::{Numbers, Sizes};
        pub use kernel::{
            Addressed, AnyGemm, ConvProblem, Expected, Family, GemmFamily, Inputs, Kernel, Launch,
            LaunchError, Machine, OwnGemm, Predicted, Program, WithMainloop, cheapest, check_accessed,
            check_heads,
        };
        pub use ptx::{Builder, Entry, Special, Target, Value, VerifyError};
    }
}
