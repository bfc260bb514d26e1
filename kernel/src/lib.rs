//! GEMM kernels as Rust types: composed from three roles, planned at compile time, checked and run.
//!
//! `D (M, N) = alpha * A (M, K) * B (K, N) + beta * C (M, N)`. A [`GemmConfig`] names a kernel's three roles:
//! mainloop, epilogue and tile scheduler. [`Gemm`] makes one program of the three. An [`Engine`] runs the
//! program: the GPU through the CUDA driver, or the emulator on a CPU.
//!
//! ```
//! use collective::{Cooperative, KMajor, LinearCombination, Operands, Plan, Tile, TmaWgmma};
//! use half::bf16;
//! use kernel::{Call, Emulator, Engine, Gemm, GemmConfig, GemmProblem, LinearArguments};
//! use scheduler::{AlongN, OneTile};
//! use typenum::{U1, U32, U64};
//!
//! struct MyGemm;
//! impl GemmConfig for MyGemm {
//!     type Mainloop = TmaWgmma<Operands<KMajor<bf16>, KMajor<bf16>>, Tile<U64, U32, U64>, Cooperative<U1>>;
//!     type Epilogue = LinearCombination<bf16>;
//!     type Scheduler = OneTile<AlongN>;
//! }
//! const _: Plan = Gemm::<MyGemm>::PLAN; // illegal numbers stop the build here
//!
//! let problem = GemmProblem { m: 100, n: 40, k: 64 };
//! let ones = |count: u32| bf16::ONE.to_le_bytes().repeat(count as usize);
//! let mut engine = Emulator::new();
//! let (a, b) = (engine.upload(&ones(100 * 64))?, engine.upload(&ones(40 * 64))?);
//! let d = engine.allocate(100 * 40 * 2)?;
//! let call = Call::of(problem).a(a.address, 64).b(b.address, 64).d(d.address, 40);
//! let call = call.with(LinearArguments::scaled(0.5)); // no workspace: this scheduler divides no tile
//! let program = Gemm::<MyGemm>::program()?;
//! if let Some(launch) = Gemm::<MyGemm>::launch(&call, engine.resident_clusters(&program)?)? {
//!     engine.launch(&program, launch.grid, &launch.arguments)?;
//! }
//! assert_eq!(engine.read(d)?, bf16::from_f32(32.0).to_le_bytes().repeat(100 * 40));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Conventions
//!
//! *Operands* are K-major or MN-major, as the kernel's type says. A K-major A is `(M, K)` in row-major order;
//! a K-major B is `(N, K)` in row-major order. An MN-major operand is the transpose of that. C and D are
//! row-major. Leading dimensions are in elements. For kernels that load by tensor copies, the addresses and
//! leading dimensions of A and B must be multiples of 16 bytes. The leading dimensions of C and D are free
//! where D is stored directly.
//!
//! *As in BLAS*: if `M = 0` or `N = 0`, nothing is done. If `K = 0` or `alpha = 0`, A and B are not read and
//! the result is `beta * C`. If `beta = 0`, C is not read. D may be exactly C: the same address,
//! leading dimension and stride. What is written shares no other byte with anything that a call accesses; views whose lines interleave
//! share none ([`check_apart`]).
//!
//! *As in IEEE 754*: NaN and infinities in A, B and C reach D.
//!
//! # When not to use it
//!
//! On GPUs other than Hopper. The programs are for sm_90a, which no other GPU runs; without such a GPU they
//! run in the emulator.

mod accessed;
mod arguments;
mod assembler;
#[cfg(any(feature = "tune", test))]
mod bandwidth;
mod buffer;
pub mod build;
mod call;
mod catalogue;
mod ceiling;
mod check;
mod compress;
mod config;
mod conv;
mod demand;
#[cfg(feature = "disk")]
pub mod disk;
#[cfg(feature = "driver")]
pub mod driver;
mod emit;
mod emulated;
mod engine;
mod error;
#[cfg(feature = "records")]
mod family;
mod filled;
mod form;
mod gemm;
mod groups;
mod heads;
pub mod host;
mod interface;
mod kernel;
mod launch;
pub mod legal;
mod lent;
mod matrix_rule;
mod named;
pub mod operands;
mod outputs;
mod overlap;
#[cfg(feature = "records")]
mod own;
mod problem;
mod products;
mod program;
mod rust_type;
mod schedule;
mod scheduled;
mod select;
mod sheet;
#[cfg(test)]
#[path = "../tests/support/skipped.rs"]
mod skipped;
mod spec;
mod summation;
mod transpose;
mod types;
pub mod words;
pub use accessed::{Addressed, check_accessed};
pub use arguments::{
    Arguments, EpilogueArgs, GemmArguments, OfMainloop, OfScheduler, RoleArguments, Tree, WithMainloop,
    WithRole, WithScheduler,
};
pub use buffer::Buffer;
pub use call::Call;
pub use catalogue::{UnknownConfig, all, by_threads, catalogue, find, fused, several};
pub use ceiling::{Ceiling, Rounds};
pub use collective::{LinearArguments, MatrixRef};
pub use compress::{Compress, Compression};
pub use config::{Composed, Gemm, GemmConfig};
pub use conv::ConvProblem;
pub use demand::Demand;
#[cfg(feature = "driver")]
pub use driver::Gpu;
pub use emulated::{Emulator, Progress};
pub use engine::Engine;
pub use error::{EngineError, LaunchError};
#[cfg(feature = "records")]
pub use family::{
    Allowed, Blocks, Expected, Family, Filled, Inputs, Needed, Predicted, ShippedOf, Unanswered, alike,
    asked, cheapest, measured_first,
};
pub use filled::Launch;
pub use form::{Batched, GroupedContiguous, GroupedMasked, KGrouped, PointerArray};
pub use gemm::AnyGemm;
pub use heads::{MOST_ROWS, check_extent, check_heads, check_packed, check_pages};
pub use kernel::{Kernel, declare};
pub use lent::Lent;
pub use matrix_rule::MatrixRule;
pub use overlap::check_apart;
#[cfg(feature = "records")]
pub use own::{GemmFamily, OwnGemm};
pub use problem::GemmProblem;
pub use products::GroupedProblem;
pub use program::Program;
pub use schedule::{ScheduleError, check_schedule};
pub use select::{
    Calibration, Card, Known, Machine, Prediction, RANKED, Ranked, Refused, Request, Selection, fastest,
    rank, search, select,
};
pub use spec::{EpilogueKind, KernelSpec, SpecError};
pub use summation::Summation;
pub use transpose::{KMajorRequest, Transpose, Transposition};
pub use types::Types;
