//! Executes a [`ptx`] program on the CPU as Hopper would, and says where it is wrong.
//!
//! ```
//! use emulator::{Memory, Options, Program};
//! use ptx::abi::Grid;
//! use ptx::{Builder, Entry, Function, Special, Target};
//!
//! let entry =
//!     Entry { name: "scale".into(), target: Target::Sm90a, threads: 32, shared_bytes: 0, cluster: [1, 1, 1] };
//! let function = Function::build(entry, |f: &Builder| {
//!     let data = f.param::<u64>("data");
//!     let address = data + f.special(Special::ThreadX).mul_wide(4);
//!     let old = f.load_global::<f32>(address, 0);
//!     f.store_global(address, 0, [old * 2.0]);
//! });
//! let program = Program::new(&function.verify()?);
//!
//! let mut memory = Memory::new();
//! let data = memory.upload(&1.5f32.to_le_bytes().repeat(32));
//! let report = program.launch(Grid { ctas: [1, 1, 1] }, &[data.into()], &memory, &Options::default())?;
//! assert_eq!(memory.read(data, 4)?, 3.0f32.to_le_bytes());
//! assert_eq!(report.ctas, 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What is exact, what is bounded, what is not modelled
//!
//! Exact:
//!
//! * Integer and logic operations, floats of 16, 32 and 64 bits, `fma`, division and conversions: bit for bit what PTX
//!   defines, and where it defines nothing what an H200 gives (`docs/hardware.md`): canonical NaNs but for the conversions
//!   that keep a sign, integers of NaN, fields beyond a word. Division of integers by zero gives all ones.
//! * Lanes, divergence and reconvergence of structured control flow; votes, matches, `redux`, shuffles; `ldmatrix` and
//!   `stmatrix`. Branches of a warp may wait for each other, and lanes that have left a loop go on though others stay in
//!   it: each thread makes progress.
//! * Named barriers, the cluster barrier, mbarriers with phases, states, arrivals (dropped and `.noComplete` ones too) and
//!   signed byte counts, registers of `setmaxnreg`.
//! * Atomics of every type, space, scope and order. What acquires and releases order, thread by thread, word by word and in
//!   the whole grid: vector clocks through barriers, mbarriers, fences, atomics and ordered accesses. Of the instructions of
//!   one warp `bar.warp.sync` alone orders memory.
//! * Races: two accesses of threads to one byte of shared or global memory of which one writes and that nothing orders
//!   trap, whatever the values and the schedule, with both instructions in the report. Atomic accesses of different sizes, or
//!   with a scope that the other thread is not in, are plain ones for each other. Asynchronous work has to come after what
//!   threads did to the bytes, and traps where no proxy fence separates it from their stores.
//! * How long copies and multiplies read: what a copy takes from global or shared memory, the tensor map that it goes by
//!   and the operands of a multiply belong to it until who overwrites them has been told that it was waited for.
//! * Who knows that an mbarrier's phase has completed: a wait two phases late, a reader of what a copy brought that has
//!   not observed the barrier, and an access to a peer that nothing orders after its start and before its exit trap.
//! * When an mbarrier is there: a warp that uses one of whose initialisation by another warp nothing has told it traps, and
//!   so does an invalidation that does not come after all uses by other warps.
//! * Where tensor copies put and find each byte: strides, all swizzles on absolute shared addresses, clipping on
//!   every side, multicast; in im2col mode which pixels follow the base, moved by which offset. Bytes credited are the
//!   whole box.
//! * Bulk copies and reductions of every type and direction, `st.async` and `red.async`: each element in one step, the bytes
//!   owned from the issue to the end of the barrier's phase or of the wait for the group.
//! * Tensor maps in memory: each replaced field, and who may use a map that was written: writes have to be released and
//!   acquired through the tensormap proxy, for the CTA and the very address, and no copy in flight may use the map.
//! * Where `wgmma` finds its operands: through matrix descriptors in every swizzle and both majors, in registers, and
//!   by the metadata of a sparse A. Sums of integers.
//! * The sums of floating-point `wgmma`s with [`Numerics::Exact`], which says by which rule; those of `mma.sync` always.
//!
//! Bounded:
//!
//! * The sums of floating-point `wgmma`s with [`Numerics::Fast`], the default, which says how far off they are.
//!   Hardware aligns and truncates instead, for 16-bit types and `.tf32` inside a bound of the same form; its sums of
//!   8-bit floats keep 13 fraction bits, so that a Fast sum is much nearer to the exact one there.
//! * `ex2`, `lg2`, `sin`, `cos`, `tanh`, `rcp`, `sqrt`, `rsqrt` with `.approx`: the host's functions, rounded to the type; PTX
//!   bounds the errors and defines no bits.
//! * Each 16 bytes remember their last 64 accesses that nothing orders, and of tensor copies that read global memory at least
//!   one: a race with an access that others have pushed out goes unseen.
//! * Weak memory: under [`Schedule::Latest`] a relaxed or volatile read of a word returns the oldest value that the memory
//!   model allows it, under [`Schedule::Random`] any, of the last eight; a thread that looks again and again sees the last
//!   one after four looks. Elements of a vector are read one by one. Reads that are given what a later write of the program
//!   brings (load buffering) and writes to one word that take effect in another order than they are executed in are not tried.
//! * Several lanes that store to one place in one instruction: one of them wins, the last under the schedules that repeat
//!   themselves but [`Schedule::Latest`], where it is the first.
//! * Shared memory that asynchronous work owns is known in units of 16 bytes.
//! * Lanes of the warp that has initialised an mbarrier, or invalidates it, go together as far as the mbarrier goes.
//!
//! Not modelled:
//!
//! * Time. Schedules ([`Schedule`]) stand in for it: what may happen early or late does.
//! * Residency: any cluster may wait through global memory for any other, as if all of a grid ran at once.
//! * The hardware's encoding of tensor maps: their 128 bytes are the emulator's own, opaque to programs.
//! * Interleaved tensor maps (16 B and 32 B), steps of an im2col map's channels and images, and fills other than zeros: no
//!   description has them.
//! * Prefetches to L2, but for the check of their operands; L2 hints, and grids that overlap: launches
//!   follow each other. With [`Options::dependent`] an access before `griddepcontrol.wait` traps all the same.
//!
//! # What traps
//!
//! [`Fault`] lists it. A fault comes with its [`Place`]: CTA, warp, lane, the scopes around the statement and its
//! line in the kernel author's source. A hang lists each waiting warp with what it waits for.
//!
//! # Seeing it run
//!
//! [`Options::trace`] takes a [`Recorder`], which gives a timeline of every warp and every asynchronous machine and the
//! bank conflicts of each access to shared memory. [`Schedule::sweep`] lists the schedules that a program should survive.

#![forbid(unsafe_code)]

mod clock;
mod descriptor;
mod error;
mod float;
mod launch;
mod machine;
mod mbarrier;
mod memory;
mod numerics;
mod program;
mod race;
mod residents;
mod schedule;
mod shared;
mod step;
mod strand;
mod tensor_map;
mod trace;
mod trap;
mod views;
mod warp;
mod word;

pub use error::{EmulatorError, Failure};
pub use launch::Report;
pub use memory::Memory;
pub use numerics::Numerics;
pub use program::Program;
pub use schedule::{Options, Schedule};
pub use trace::{Activity, Class, Event, Lane, Phase, Recorder, SharedAccess, Trace, Track};
pub use trap::{Fault, Owner, Place, Trap, Wait, Waiting};
