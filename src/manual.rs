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
//! | [`tuning`] | find the fastest kernel for a shape once, and keep the result |
//! | [`races`] | find a race with the emulator |
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
/// One line of a test checks two things: every k-tile of every tile is computed exactly once, and the device
/// code does what the host model says.
///
/// ```
/// # use falchion::scheduler::{AlongM, Persistent, TileScheduler, Tiles};
/// # type Runs = Persistent<AlongM>;
/// let tiles = Tiles { m: 9, n: 7, k: 3 };
/// falchion::kernel::check_schedule(&*Runs::schedule(), tiles, 4)?;
/// # Ok::<(), falchion::kernel::ScheduleError>(())
/// ```
///
/// Any mainloop and epilogue can use it: `Composed<TmaWgmma<…>, LinearCombination<bf16>, Runs>`. The command
/// `falchion schedule KERNEL --m 2048 --n 2048 --k 512` draws the schedule of one of the library's kernels.
/// The tests compile the file above in a crate outside the workspace, and run it in kernels.
pub mod schedulers {}

#[doc = include_str!("manual/mainloops.md")]
#[doc = concat!("```text\n", include_str!("manual/own_mainloop.rs"), "```")]
pub mod mainloops {}

#[doc = include_str!("manual/tuning.md")]
pub mod tuning {}

#[doc = include_str!("manual/races.md")]
pub mod races {}

#[doc = include_str!("manual/numerics.md")]
pub mod numerics {}

#[doc = include_str!("manual/glossary.md")]
pub mod glossary {}
