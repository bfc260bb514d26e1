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
//! How to run it: [`kernel`]'s first example, or `examples/gemm.rs`.
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
        AlongM, AlongN, Atomic, DividedTail, Dynamic, EveryTile, Grouped, Heuristic, Hilbert, OneTile,
        Ordered, Persistent, Remainder, Separate, StreamK,
    };
    pub use typenum::{U1, U2, U3, U4, U5, U6, U7, U8, U12, U16, U32, U64, U96, U128, U160, U192, U256};
}
