//! Executes a [`ptx`] program on the CPU as a Hopper GPU would, and reports its errors: races, hangs, invalid
//! accesses. Use it to run and test a kernel without a GPU, or to find what a GPU does not report.
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
//! * Integer and logic operations, floats of 16, 32 and 64 bits, `fma`, division and conversions: bit for bit
//!   what PTX defines. Where PTX defines nothing, the result is that of an H200 (`docs/hardware.md`): NaNs
//!   are canonical, except after the conversions that keep a sign; NaN converted to an integer; bit fields
//!   that run beyond a word. Division of integers by zero gives all ones.
//! * Lanes, divergence and reconvergence of structured control flow; votes, matches, `redux`, shuffles;
//!   `ldmatrix` and `stmatrix`. Each thread makes progress: branches of a warp may wait for each other, and
//!   lanes that have left a loop can continue while other lanes stay in it.
//! * Named barriers; the cluster barrier; mbarriers with phases, states, arrivals (also dropped and
//!   `.noComplete` ones) and signed byte counts; registers of `setmaxnreg`.
//! * Atomics of every type, space, scope and order. Vector clocks follow what acquires and releases order,
//!   per thread and per word, in the whole grid: through barriers, mbarriers, fences, atomics and ordered
//!   accesses. Among the instructions of one warp, only `bar.warp.sync` orders memory.
//! * Races. Two accesses of different threads to the same byte of shared or global memory trap if at least
//!   one writes and nothing orders them. This does not depend on the values or the schedule. The report names
//!   both instructions. Two atomic accesses count as plain accesses to each other if their sizes differ, or
//!   if the scope of one does not include the other thread. Asynchronous work must be ordered after the
//!   accesses of threads to the same bytes, and traps if no proxy fence separates it from their stores.
//! * How long copies and multiplies read. A copy owns its source and its tensor map, a multiply owns its
//!   operands. A thread may overwrite them only after it has waited for the copy or multiply, or has
//!   synchronised with a thread that has.
//! * Completion and peers. These trap: a wait that comes two phases late; an access to bytes that a copy
//!   wrote, by a warp that has not observed the copy's mbarrier; an access to the shared memory of another
//!   CTA that is not ordered after the start and before the exit of that CTA.
//! * The lifetime of an mbarrier. If another warp initialised it, a use traps unless it is ordered after the
//!   initialisation. An invalidation traps unless it is ordered after all uses by other warps.
//! * Which bytes tensor copies read and write: strides, all swizzles on absolute shared addresses, clipping
//!   on every side, multicast; in im2col mode, which pixels follow the base and which offset moves them. The
//!   mbarrier is credited with the bytes of the whole box, also where the box is clipped.
//! * Bulk copies and reductions of every type and direction, `st.async` and `red.async`. Each element is
//!   written in one step. The bytes are owned from the issue until the mbarrier's phase completes or the wait
//!   for the group ends.
//! * Tensor maps in memory: every field that can be replaced. A write to a map must be released through the
//!   tensormap proxy, then acquired by the CTA that uses the map, at the address of the map. No copy in
//!   flight may use the map during the write.
//! * Where `wgmma` finds its operands: through matrix descriptors in every swizzle and both majors, in
//!   registers, and by the metadata of a sparse A. Integer results.
//! * Floating-point results of `wgmma` with [`Numerics::Exact`], which documents the rule; those of
//!   `mma.sync` always.
//!
//! Bounded:
//!
//! * Floating-point results of `wgmma` with [`Numerics::Fast`], the default, which documents the error bound.
//!   The hardware aligns and truncates instead. For 16-bit types and `.tf32` its error has a bound of the
//!   same form. Its sums of 8-bit floats keep 13 fraction bits, so a `Fast` sum is much closer to the exact
//!   result.
//! * `ex2`, `lg2`, `sin`, `cos`, `tanh`, `rcp`, `sqrt`, `rsqrt` with `.approx`: the host's functions, rounded
//!   to the type. PTX bounds the errors and does not define the bits.
//! * For each 16 bytes, the emulator remembers the last 64 accesses that nothing orders, and at least one of
//!   the tensor copies that read them from global memory. It does not find a race with an access that is no
//!   longer remembered.
//! * Weak memory. Under [`Schedule::Latest`] a relaxed or volatile read of a word returns the oldest value
//!   that the memory model allows; under [`Schedule::Random`] it returns any allowed value. The last eight
//!   values are kept. A thread that polls a word sees the last value after four reads. Elements of a vector
//!   are read one by one. Two effects are not tried: a read that returns the value of a later write of the
//!   program (load buffering), and writes to one word that take effect in an order other than their order of
//!   execution.
//! * Several lanes that store to one address in one instruction: the last lane wins. Under
//!   [`Schedule::Latest`] the first lane wins, and under [`Schedule::Random`] either.
//! * Ownership of shared memory by asynchronous work is tracked in units of 16 bytes.
//! * The lanes of the warp that initialises or invalidates an mbarrier are not checked against each other.
//!
//! Not modelled:
//!
//! * Time. Schedules ([`Schedule`]) replace it: they make events happen early or late.
//! * Occupancy: any cluster may wait for any other through global memory, as if the whole grid were resident.
//! * The hardware's encoding of tensor maps: their 128 bytes are the emulator's own, opaque to programs.
//! * Interleaved tensor maps (16 B and 32 B), steps of an im2col map's channels and images, and fills other
//!   than zeros: descriptions of tensor maps cannot express them.
//! * Prefetches to L2 (only their operands are checked) and L2 hints.
//! * Grids that overlap: launches run one after the other. With [`Options::dependent`] an access before
//!   `griddepcontrol.wait` traps nevertheless.
//!
//! # What traps
//!
//! [`Fault`] lists everything that traps. A fault comes with its [`Place`]: CTA, warp, lane, the scopes
//! around the statement, and the line in the kernel's source. A hang lists each waiting warp and what it
//! waits for.
//!
//! # Traces
//!
//! [`Options::trace`] takes a [`Recorder`]. It records a timeline of every warp and every asynchronous
//! engine, and the bank conflicts of each access to shared memory. [`Schedule::sweep`] lists the schedules
//! that a program must survive.

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
