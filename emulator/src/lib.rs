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
//! Exact. The second column names what makes it true: tables of `docs/evidence/hazards.md`, each with many bugs that are
//! found and twins that pass, or test files. A test checks the names.
//!
//! | claim | tested by |
//! |---|---|
//! | Integer and logic operations, floats of 16, 32 and 64 bits, `fma`, division and conversions: bit for bit what PTX defines. Where PTX defines nothing, the result is that of an H200 (`docs/hardware.md`): NaNs are canonical, except after the conversions that keep a sign; NaN converted to an integer; bit fields that run beyond a word. Division of integers by zero gives all ones. | `src/step/alu/tests.rs`, `src/step/arith.rs`, `src/float.rs` |
//! | Lanes and divergence in any control flow, structured or not; votes, matches, `redux`, shuffles; `ldmatrix` and `stmatrix`. PTX does not say where lanes reconverge: here as early as they can, where no other lane of the warp may still come ([`ptx::Statement`] has both forms of control flow). Each thread makes progress: branches of a warp may wait for each other, and lanes that have left a loop can continue while other lanes stay in it. Lanes may meet in `bar.warp.sync` at different places. | Lanes; Unusual and legal; `tests/instructions/warps.rs`, `tests/machine.rs`, `tests/flat/graphs.rs`; Lanes in turn; Registers that prove nothing |
//! | Threads that have ended by `exit` or `ret`: instructions of a warp and barriers of all threads of the CTA no longer wait for them (ISA "exit": barriers are released; "shfl.sync", "vote.sync", "barrier": the non-exited threads). Such an instruction is `.aligned` for the threads that are left. | `tests/flat/machine.rs` |
//! | Parameters in parts and by address, local memory, generic addresses: each names a byte of global, shared, local or parameter memory. | `tests/flat/spaces.rs` |
//! | Named barriers; the cluster barrier; mbarriers with phases, states, arrivals (also dropped and `.noComplete` ones) and signed byte counts; registers of `setmaxnreg`. | Barriers, clusters, registers, ends; Rings of stages; Collectives; Two buffers on one mbarrier; Fills and drains; Skipped steps of a ring; Barriers that only some threads reach; Copies by every lane |
//! | Atomics of every type, space, scope and order. | Locks, queues, counters; `tests/instructions/atomics.rs` |
//! | Vector clocks follow what acquires and releases order, per thread and per word, in the whole grid: through barriers, mbarriers, fences, atomics and ordered accesses. Among the instructions of one warp, only `bar.warp.sync` orders memory. | Flags; Orders and scopes of mbarriers; Shared memory; Lanes; Flags raised before the CTA has agreed; What a read has observed; Polls that give up; Counts that cover nothing |
//! | What one lane knows, its warp does not. An access of a whole warp (`wgmma`, `ldmatrix`, `stmatrix`, `tensormap.cp_fenceproxy`) comes after what *every* lane knows. So does an access of several lanes to the same bytes in one instruction. A lane that arrives, waits or fences does so for itself alone. | What one lane knows |
//! | Races. Two accesses of different threads to the same byte of shared or global memory trap if at least one writes and nothing orders them. This does not depend on the values or the schedule. The report names both instructions. Two atomic accesses count as plain accesses to each other if their sizes or their proxies differ, or if the scope of one does not include the other thread. | Global memory between CTAs; Shared memory; Clusters; Words that decide a branch; Global memory without a barrier of the grid; A second launch |
//! | Sums of floating-point numbers that a program promises to make in a fixed order: two additions to a word that nothing orders trap. | Sums in order |
//! | Proxies. An asynchronous access must come after a proxy fence that follows the stores of threads to the same bytes, and the asynchronous writes of other CTAs. A fence of `.shared::cta` counts for the shared memory of its own CTA. | Proxies; Proxies between CTAs; Sources of copies, and staging memory; Fences and waits of another thread |
//! | How long copies and multiplies read. A copy owns its source and its tensor map, a multiply owns its operands. A thread may overwrite them only after it has waited for the copy or multiply, or has synchronised with a thread that has. Of several copies, it needs all. | What copies and multiplies still read; All copies of a source; Multiplies and matrices; Bulk groups of another thread |
//! | Completion and peers. These trap: a wait that comes two phases late; an access to bytes that a copy wrote, by a thread that has not observed the copy's mbarrier; an access to the shared memory of another CTA that is not ordered after the start and before the exit of that CTA. | Tensor copies and multiplies; Copies of threads; Clusters; Peers that are not ready; The own CTA in place of a peer |
//! | The lifetime of an mbarrier. If another thread initialised it, a use traps unless it is ordered after the initialisation. An invalidation traps unless it is ordered after all uses by other threads. | Beginnings and ends of mbarriers and peers; Memory of mbarriers used again |
//! | Which bytes tensor copies read and write: strides, all swizzles on absolute shared addresses, clipping on every side, multicast; in im2col mode, which pixels follow the base and which offset moves them. The mbarrier is credited with the bytes of the whole box, also where the box is clipped. | im2col; `tests/machine.rs`, `tests/instructions/bulk.rs` |
//! | Bulk copies and reductions of every type and direction, `st.async` and `red.async`. Each element is written in one step. The bytes are owned from the issue until the mbarrier's phase completes or the wait for the group ends. Reductions of the same bytes may be in flight together; who reads them needs all. | Bulk copies and asynchronous stores; Stores and reductions in flight together; `tests/instructions/bulk.rs` |
//! | Tensor maps in memory: every field that can be replaced. A write to a map must be released through the tensormap proxy, then acquired by the CTA that uses the map, at the address of the map. No copy in flight may use the map during the write. | Tensor maps that change; Maps of other CTAs, and grids before this one; `tests/instructions/tensor_maps.rs`; Tensor maps from zeros |
//! | Grids before this one. With [`Options::dependent`], an access to global memory traps unless it is ordered after a `griddepcontrol.wait`. | Grids before this one, role by role |
//! | Several GPUs ([`launch_together`]): launches that run at the same time, memory that they share, and scopes: threads of different GPUs synchronise in the scope of the system. A GPU begins early or late, and may leave first. | `tests/gpus.rs` |
//! | Bounds, alignment and values that were never written, in memory and in registers. | Plain accesses |
//! | Where `wgmma` finds its operands: through matrix descriptors in every swizzle and both majors, in registers, and by the metadata of a sparse A. Integer results. | `tests/wgmma.rs`, `tests/gemm/main.rs` |
//! | Floating-point results of `wgmma` with [`Numerics::Exact`], which documents the rule; those of `mma.sync` always. | `src/numerics/tests.rs` |
//!
//! Bounded:
//!
//! * Floating-point results of `wgmma` with [`Numerics::Fast`], the default, which documents the error bound.
//!   The hardware aligns and truncates instead. For 16-bit types and `.tf32` its error has a bound of the
//!   same form. Its sums of 8-bit floats keep 13 fraction bits, so a `Fast` sum is much closer to the exact
//!   result.
//! * `ex2`, `lg2`, `sin`, `cos`, `tanh`, `rcp`, `sqrt`, `rsqrt` with `.approx`: the host's functions, rounded
//!   to the type. PTX bounds the errors and does not define the bits.
//! * Several lanes that store to one address in one instruction: the last lane wins. Under
//!   [`Schedule::Latest`] the first lane wins, and under [`Schedule::Random`] either. This is no race, but if
//!   the values differ, a lane that reads the word without a `bar.warp.sync` traps.
//! * A program that only computes wrong values in some schedules is found if it checks its values, as the
//!   programs under *Weak memory* and *Orders of writes* in `docs/evidence/hazards.md` do.
//!
//! # What is remembered
//!
//! Each kind of state, what is kept of it, what is dropped, and what that can hide:
//!
//! | state | kept | dropped, and what it hides |
//! |---|---|---|
//! | accesses of threads and copies to 16 bytes | all that no kept one implies, however many there are | nothing |
//! | reads of global memory by copies | the same; lines with the same reads share one list | nothing |
//! | what a thread knows | a count per lane of each warp of the grid, shared between threads that know the same, and per mbarrier and warpgroup of each cluster | counts of mbarriers beyond the 4000th of a cluster, for other clusters: a copy's source that such an mbarrier guards counts as read when the copy is issued |
//! | writes of a word, under [`Schedule::Latest`] and [`Schedule::Random`] | the last eight in coherence order, each with its releases | older ones: a read never returns the ninth-newest value. A plain store or copy to the word drops all: no read returns a value from before it |
//! | the coherence order of a word | each write takes any place that is allowed among the kept ones | a read that returns a write of which the execution is still to come (load buffering) is never tried |
//! | reads of a word | the last one of each thread, however many threads there are | nothing. A thread that has missed the last write four times sees it, so that polls end |
//! | relaxed reads until a fence or acquire | the releases of all of them | nothing |
//! | strong writes that a thread has seen without an acquire, which come before what it does next | the last eight chains of each word; of each thread, the last four writes to a word | older ones: a plain access after one of them is reported as a race |
//! | fences of a thread | the last of each scope | nothing |
//! | proxy fences | how far each lane's accesses are fenced, for lanes with equal knowledge together | a lane that learns of another lane's store, but not of the proxy fence which both executed after it, counts as fenced |
//! | asynchronous writes of shared memory | the last one of each byte, and the last reduction through each mbarrier after it | nothing: a write must have come after the one before |
//! | asynchronous reads of shared memory in flight | whole units of 16 bytes, as copies and multiplies read them | nothing |
//! | multiplies that read 16 bytes | the last one of each warpgroup | nothing: multiplies of a warpgroup end in order |
//! | uses of an mbarrier; accesses and arrivals of peers | the last one of each thread | nothing |
//!
//! Not modelled:
//!
//! * Time. Schedules ([`Schedule`]) replace it: they make events happen early or late.
//! * Occupancy: any cluster may wait for any other through global memory, as if the whole grid were resident.
//! * The hardware's encoding of tensor maps: their 128 bytes are the emulator's own, opaque to programs.
//! * Interleaved tensor maps (16 B and 32 B), steps of an im2col map's channels and images, and fills other
//!   than zeros: descriptions of tensor maps cannot express them.
//! * Prefetches to L2 (only their operands are checked) and L2 hints.
//! * Grids of one GPU that overlap: its launches run one after the other. With [`Options::dependent`] an access before
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

mod banks;
mod barrier;
mod clock;
mod descriptor;
mod error;
mod flight;
mod float;
mod graph;
mod hash;
mod lanes;
mod launch;
mod lower;
mod machine;
mod mbarrier;
mod meetings;
mod memory;
mod multiply;
mod numerics;
mod observe;
mod program;
mod progress;
mod race;
mod run;
mod schedule;
mod shared;
mod step;
mod tensor_map;
mod trace;
mod trap;
mod trie;
mod views;
mod warp;
mod word;

pub use error::{EmulatorError, Failure};
pub use launch::Report;
pub use meetings::{Meetings, Met};
pub use memory::Memory;
pub use numerics::Numerics;
pub use program::Program;
pub use run::{Together, launch_together};
pub use schedule::{Options, Schedule};
pub use trace::{Activity, Class, Event, Lane, Phase, Recorder, SharedAccess, Trace, Track};
pub use trap::{Fault, OwnFault, Owner, Place, Rule, TensorFault, Trap, Wait, Waiting, Warnings};
