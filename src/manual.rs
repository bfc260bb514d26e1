//! The manual: from an empty folder to kernels of one's own in production, chapter by chapter.
//!
//! | chapter | you learn to |
//! |---|---|
//! | [`getting_started`] | write a kernel, run it, and hold it to the exact result, without a GPU |
//! | [`from_cutlass`] | find CUTLASS's names here, and rewrite one of its kernels |
//! | [`layouts`] | read, draw and compose layouts, and give a tile one of your own |
//! | [`epilogues`] | write a function, a reduction, a tree of your own |
//! | [`schedulers`] | say which CTA computes which tile, and prove it |
//! | [`mainloops`] | write another mainloop from the library's parts |
//! | [`tuning`] | find the fastest kernel for a shape, once, and keep it |
//! | [`races`] | find a race with the emulator |
//! | [`numerics`] | know how far a result may be off |
//!
//! All of its code is compiled and run by the tests of this repository.
//!
//! ```
//! // Where to begin: a kernel of one's own is a type.
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
/// Whether it computes everything once, and its device code what its host model says, is a line of a test:
///
/// ```
/// # use falchion::scheduler::{AlongM, Persistent, TileScheduler, Tiles};
/// # type Runs = Persistent<AlongM>;
/// let tiles = Tiles { m: 9, n: 7, k: 3 };
/// falchion::kernel::check_schedule(&*Runs::schedule(), tiles, 4)?;
/// # Ok::<(), falchion::kernel::ScheduleError>(())
/// ```
///
/// Any mainloop and epilogue take it: `Composed<TmaWgmma<…>, LinearCombination<bf16>, Runs>`. `falchion schedule KERNEL --m 2048 --n 2048 --k 512` draws what the
/// library's do. The tests compile the file above in a crate outside of the workspace, and run it in kernels.
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
