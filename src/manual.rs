//! The manual: from an empty folder to your own kernels in production, chapter by chapter.
//!
//! | chapter | you learn to |
//! |---|---|
//! | [`getting_started`] | write a kernel, run it, and check it against an f64 reference, without a GPU |
//! | [`from_cutlass`] | find the counterpart of a CUTLASS name, and rewrite a CUTLASS kernel |
//! | [`layouts`] | read, draw and compose layouts, and give a tile your own layout |
//! | [`epilogues`] | write your own function, reduction and epilogue tree |
//! | [`schedulers`] | choose which CTA computes which tile, and prove that every tile is computed once |
//! | [`mainloops`] | write a mainloop from the library's parts |
//! | [`families`] | make your kernels a family: chosen, tuned, checked, proven, with every command |
//! | [`attention`] | attention kernels, and masks of your own |
//! | [`tuning`] | find the fastest kernel for a shape once, and keep the result |
//! | [`races`] | find a race with the emulator |
//! | [`foreign`] | find the race or the hang of anybody's PTX, from the symptom to the line |
//! | [`numerics`] | know the largest error that a result may have |
//! | [`glossary`] | look up the names that this library made up |
//!
//! The tests of this repository compile and run all code of the manual.
//!
//! ```
//! // Start here: your own kernel is a type.
//! use falchion::prelude::*;
//!
//! type MyGemm = Composed<
//!     TmaWgmma<Operands<KMajor<bf16>, KMajor<bf16>>, Tile<U64, U32, U64>, Cooperative<U1>>,
//!     LinearCombination<bf16>,
//!     OneTile<AlongM>,
//! >;
//! assert!(Gemm::<MyGemm>::name().contains("64x32x64"));
//! ```

#[doc = include_str!("manual/getting_started.md")]
pub mod getting_started {}

#[doc = include_str!("manual/from_cutlass.md")]
pub mod from_cutlass {}

#[doc = include_str!("manual/layouts.md")]
pub mod layouts {}

#[doc = include_str!("manual/epilogues.md")]
pub mod epilogues {}

#[doc = include_str!("manual/schedulers.md")]
#[doc = concat!("```text\n", include_str!("manual/own_scheduler.rs"), "```")]
///
/// Two tests prove a scheduler without a GPU, in 14 lines. `check_schedule` checks two things: every k-tile of every
/// tile is computed exactly once, and the device code does what the host model says. `Bench` then runs a whole
/// kernel with the scheduler. Here the emulated GPU has three SMs, so that each worker computes several tiles.
///
/// ```
/// use falchion::prelude::*;
/// use falchion::scheduler::{TileScheduler, Tiles};
/// # type Runs = Persistent<AlongM>;
///
/// type MyGemm = Composed<
///     TmaWgmma<Operands<KMajor<bf16>, KMajor<bf16>>, Tile<U64, U64, U64>, Cooperative<U1>>,
///     LinearCombination<bf16>,
///     Runs,
/// >;
/// for slots in [1, 4, 132] {
///     falchion::kernel::check_schedule(&*Runs::schedule(), Tiles { m: 9, n: 7, k: 3 }, slots)?;
/// }
/// let mut engine = Emulator::new().with_multiprocessors(3);
/// let problem = GemmProblem { m: 270, n: 136, k: 200 };
/// falchion::verify::Bench::new(&mut engine, 1).check::<MyGemm>(problem, &LinearArguments::scaled(1.0))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// If the device code is wrong, the error names the worker, the work unit, and what host and device computed.
/// Any mainloop and epilogue can use the scheduler. The command
/// `falchion schedule --kernel KERNEL --m 2048 --n 2048 --k 512` draws the schedule of one of the library's kernels.
/// The tests compile the file above in a crate outside the workspace, and run it in kernels.
///
#[doc = include_str!("manual/schedulers_given.md")]
pub mod schedulers {}

#[doc = include_str!("manual/mainloops.md")]
#[doc = concat!("```text\n", include_str!("manual/own_mainloop.rs"), "```")]
pub mod mainloops {}

#[doc = include_str!("manual/families.md")]
#[doc = concat!("```text\n", include_str!("manual/own_family.rs"), "```")]
pub mod families {}

#[doc = include_str!("manual/attention.md")]
pub mod attention {}

#[doc = include_str!("manual/tuning.md")]
pub mod tuning {}

#[doc = include_str!("manual/races.md")]
pub mod races {}

#[doc = include_str!("manual/foreign.md")]
pub mod foreign {}

#[doc = include_str!("manual/numerics.md")]
pub mod numerics {}

#[doc = include_str!("manual/glossary.md")]
pub mod glossary {}
