//! A typed embedding of PTX in Rust: build a program once, then verify it, print it as PTX, or execute it in
//! an emulator.
//!
//! Use it to write kernels from Hopper's matrix instructions, with typed registers and without PTX text.
//!
//! # The rules of the language
//!
//! * A program is a [`Function`]: parameters, typed registers and a body. The builder makes a *structured* body: threads diverge at
//!   [`Builder::if_`] and reconverge after it, and [`Builder::break_if`] leaves a loop. The *flat* form of a program
//!   ([`Function::flattened`]), with labels and branches, is what is printed, and what programs from elsewhere have.
//! * A [`Value`] is a `Copy` handle to a constant, or to the content of a register at the time it was read.
//!   Operators on values append instructions. Operators on integer constants are evaluated on the host and
//!   emit nothing.
//! * A [`Var`] is a register that can be written more than once: loop state, accumulators.
//! * A host `for` unrolls. [`Builder::repeat`] and [`Builder::while_`] emit loops.
//! * The instruction set is a closed enum, [`Inst`]. The documentation of each variant names its section of
//!   the PTX ISA. There is no inline PTX text.
//! * [`Function::verify`] checks everything that can be checked without running the program. It reports each
//!   violation with the line of *your* source that built the statement. Only a [`Verified`] function can be
//!   printed.
//!
//! # A whole program
//!
//! ```
//! use ptx::{Builder, Entry, Function, Special, Target};
//!
//! let entry =
//!     Entry { name: "scale".into(), target: Target::Sm90a, threads: 128, shared_bytes: 0, cluster: [1, 1, 1] };
//! let function = Function::build(entry, |f: &Builder| {
//!     let data = f.param::<u64>("data");
//!     let count = f.param::<u32>("count");
//!     let factor = f.param::<f32>("factor");
//!     let index = f.special(Special::CtaX) * 128 + f.special(Special::ThreadX);
//!     f.if_(index.less_than(count), || {
//!         let address = data + index.mul_wide(4);
//!         let old = f.load_global::<f32>(address, 0);
//!         f.store_global(address, 0, [old * factor]);
//!     });
//! });
//! let verified = function.verify()?;
//! assert!(ptx::module_text(&verified).contains("mul.rn.f32"));
//! # Ok::<(), ptx::VerifyError>(())
//! ```
//!
//! # When not to use it
//!
//! For general kernels: the instruction set has only what GEMM-like kernels on Hopper need. For other
//! kernels, use a crate that compiles Rust functions for the device.

pub mod abi;
mod asynchronous;
mod builder;
mod flat;
mod fold;
mod function;
pub mod inst;
pub mod mutate;
mod name;
mod param;
mod print;
pub mod read;
mod site;
mod target;
mod types;
mod value;
mod verify;

pub use asynchronous::{WgmmaOperands, WgmmaSource};
pub use builder::{Builder, BulkLoad, Entry, Location, MapChange, MapPlace, TensorLoad};
pub use function::{Function, Guard, Region, Statement};
pub use inst::{
    AtomicOp, AtomicSem, AtomicType, Inst, LoadOrder, MbarrierOrder, Operand, ProxySpace, Reg, Scope,
    Special, StoreOrder, WgmmaSparse, WgmmaTypes,
};
pub use name::Name;
pub use param::{Param, ParamKind, Variable};
pub use print::module_text;
pub use site::SourceSite;
pub use target::{Target, TargetLimits};
pub use types::{Integer, Number, Scalar, Space, Type};
pub use value::{Bits, Source, Value, Var};
pub use verify::{Verified, VerifyError, Violation};
