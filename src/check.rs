//! Proves anybody's PTX: runs a kernel in the emulator under many schedules, and reports races, hangs, missing fences, accesses out of
//! bounds and wrong results, each with its line.
//!
//! Use it for a kernel that a compiler or a person wrote, and that is not one of this library: its PTX, and a [`Launch`], which says
//! what it is launched with. `falchion check` is the same as a command.
//!
//! ```
//! use falchion::check::{Launch, Options, check};
//!
//! let mut launch = Launch::read(r#"
//!     ptx = "copy.ptx"
//!     grid = [1, 1, 1]
//!     threads = [32, 1, 1]
//!
//!     [[buffer]]
//!     name = "x"
//!     element = "f32"
//!     count = 32
//!     random = { seed = 1, low = -1.0, high = 1.0 }
//!     unchanged = true
//!
//!     [[buffer]]
//!     name = "y"
//!     element = "f32"
//!     count = 32
//!
//!     [[argument]]
//!     buffer = "x"
//!
//!     [[argument]]
//!     buffer = "y"
//! "#)?;
//! # let entry = ptx::Entry { name: "copy".into(), target: ptx::Target::Sm90a, threads: 32, shared_bytes: 0, cluster: [1; 3] };
//! # let function = ptx::Function::build(entry, |f: &ptx::Builder| {
//! #     let (x, y) = (f.param::<u64>("x"), f.param::<u64>("y"));
//! #     let offset = f.special(ptx::Special::ThreadX).mul_wide(4);
//! #     let value = f.load_global::<f32>(x + offset, 0);
//! #     f.store_global(y + offset, 0, [value]);
//! # });
//! # let text = ptx::module_text(&function.verify()?);
//! launch.load(&|file| {
//!     assert_eq!(file, "copy.ptx");
//!     Ok(text.clone().into_bytes()) // std::fs::read(file), usually
//! })?;
//! let report = check(&launch, &Options::default())?;
//! assert!(report.findings.is_empty(), "{report}");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # A launch as text
//!
//! Extents are `[x, y, z]`, sizes and offsets are bytes, lists of tensor maps are innermost dimension first. A key that does not exist is
//! an error.
//!
//! | key | meaning | default |
//! |---|---|---|
//! | `ptx` | the PTX file | that of the command line |
//! | `entry` | the kernel's name | the only one of its module |
//! | `grid` | CTAs | |
//! | `threads` | threads per CTA | what the PTX requires |
//! | `cluster` | CTAs per cluster | what the PTX requires, or 1 |
//! | `shared` | dynamic shared memory per CTA | 0 |
//! | `dependent` | whether the kernel may begin before those before it have ended (programmatic dependent launch) | false |
//! | `launches` | how often it is launched on the same memory: the second launch finds what the first one left | 2 |
//! | `any_elected` | whether `elect.sync` may choose any lane, as the PTX ISA says, or the lowest one, as all cards so far do and CUTLASS relies on | false |
//! | `suppress` | rules whose findings are expected: `["shared-race:120-140"]` | |
//! | `[[buffer]]` | memory, see below | |
//! | `[[argument]]` | the arguments in order, see below | |
//! | `[[kernel]]` | several kernels that run one after the other, each with the keys `ptx` to `dependent` and `[[kernel.argument]]` | |
//!
//! A buffer:
//!
//! | key | meaning | default |
//! |---|---|---|
//! | `name` | its name | |
//! | `element` | [type of the elements](Element): `f16`, `bf16`, `f32`, `f64`, `e4m3`, `e5m2`, `s8`, `u8` to `s64`, `u64` | |
//! | `count` or `shape` | number of elements, or extents, outermost first; or `bytes` without an element | |
//! | `align` | alignment of its address, a power of two; below 256 the address has no larger one | 256 |
//! | `zeros = true`, `random = { seed, low, high }`, `range = { from, step }`, `file` (and `at`, an offset in it), `hex` | what it holds at first: one of these. A file is raw elements, little-endian | unwritten: a read is found |
//! | `pointers = [{ at, buffer, offset }]` | addresses in it | |
//! | `tensor_maps`, `im2col_maps` | tensor maps in it, each with `at` | |
//! | `restore = true` | it gets its content again before each launch | |
//! | `unchanged = true` | it must not change | |
//! | `want = { file, at, element, rtol, atol }` | what it must hold after each launch, within `atol + rtol * abs(want)` in f64; `hex` instead of a file | |
//! | `scratch = true` | what it holds afterwards means nothing | one that depends on the schedule is a warning |
//!
//! An argument is one of these; `name` is for readers:
//!
//! | keys | meaning |
//! |---|---|
//! | `buffer`, `offset` | an address in a buffer |
//! | `null = true` | the address 0 |
//! | `scalar`, `value` | a number of a type: `scalar = "s32"`, `value = 7`; a text for what TOML has no numbers for: `"0xffffffffffffffff"` |
//! | `tensor_map = { buffer, offset, element, dims, strides, box, swizzle, promotion }` | a tiled tensor map: strides in bytes of all dimensions but the first; swizzle `none`, `32B`, `64B` or `128B`; also `steps`, `interleave` and `fill`, of which only 1, `none` and `zero` are modelled |
//! | `im2col_map = { buffer, offset, element, dims, strides, lower, upper, channels, pixels, steps, swizzle }` | an im2col tensor map |
//! | `bytes`, and `file` and `at`, or `hex` | a structure: without a file, zeros. In it, each with its place `at`: `values = [{ at, scalar, value }]`, `pointers`, `tensor_maps`, `im2col_maps` |
//!
//! # What is run
//!
//! Each schedule of [`Schedule::sweep`](emulator::Schedule::sweep) gets memory of its own, in which the kernels are launched
//! [`launches`](Launch::launches) times. It ends at the first fault. [`Finding`]s of all schedules are collected: equal ones are one, with
//! the number of schedules that found it, and the first.
//!
//! A read of memory or of a register that nobody has written is no fault in itself: kernels compute with rows beyond the end, and do not store
//! them. There the schedule is run twice, with other bytes in what is unwritten. If anything else happens, or another result comes out, the
//! read is an error, and a warning otherwise. Two stores of the same value to one place are a warning, too.
//!
//! The emulator's documentation says what it finds, and what it does not model. Buffers are far from each other: what a kernel reads or
//! writes beyond one is found.

mod against;
mod baseline;
#[cfg(test)]
mod broken;
mod compiler;
mod description;
mod element;
mod finding;
mod launch;
mod mutants;
mod needless;
mod place;
mod report;
mod rules;
mod run;
mod sarif;
mod source;
mod suppress;

pub use against::{BufferDifference, Comparison, Excuse, FirstDifference, against};
pub use baseline::{Baseline, Known};
pub use compiler::{CompilerReport, MicroReport, WrongWord, compiler, compiler_program};
#[cfg(feature = "driver")]
pub use compiler::{KnownCompiler, known_compiler};
pub use description::DescriptionError;
pub use element::{Element, Number};
pub use finding::{Finding, Severity, Spot, Status};
pub use launch::{
    Argument, Buffer, Content, Data, Expect, Fetch, Kernel, Launch, Map, MapKind, Pointer, Want,
};
pub use mutants::{Mutant, Mutants, Verdict, mutants};
pub use report::{Ran, Report};
pub use rules::all as rules;
pub use run::{Options, check, trace};
pub use sarif::Sarif;
pub use suppress::Suppression;

/// Why a launch was not run. What a kernel does wrong is no error, but a [`Finding`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckError {
    /// The description of the launch is wrong.
    #[error(transparent)]
    Description(#[from] DescriptionError),
    /// The PTX is not read.
    #[error(transparent)]
    Read(#[from] ptx::read::ReadError),
    /// The module has no kernel, several, or another one.
    #[error("{file}: {why}; its kernels are: {}", entries.join(", "))]
    Entry {
        /// The PTX file.
        file: String,
        /// What was asked.
        why: String,
        /// The kernels of the module.
        entries: Vec<String>,
    },
    /// The PTX is read, but is no legal program.
    #[error("{file}: {error}")]
    Verify {
        /// The PTX file.
        file: String,
        /// What is wrong.
        error: ptx::VerifyError,
    },
    /// An argument does not fit its parameter.
    #[error("{0}")]
    Argument(String),
    /// The buffers are larger than what is emulated.
    #[error("the buffers have {bytes} B, at most {most} B are emulated")]
    Memory {
        /// Bytes of all buffers.
        bytes: u64,
        /// The limit.
        most: u64,
    },
    /// The emulator cannot run the launch.
    #[error(transparent)]
    Emulator(#[from] emulator::EmulatorError),
    /// The machine that the emulator is compared with.
    #[error(transparent)]
    Engine(#[from] kernel::EngineError),
    /// The emulator stops: there is nothing to compare with.
    #[error(
        "the emulator stops, so that there is nothing to compare with: check the launch without a device first; {0}"
    )]
    Faulty(Box<emulator::Trap>),
    /// The caller ended the check ([`Options::stop`]).
    #[error("the check was stopped")]
    Stopped,
}

#[cfg(test)]
#[path = "../kernel/tests/support/skipped.rs"]
mod skipped;
#[cfg(test)]
mod tests;
