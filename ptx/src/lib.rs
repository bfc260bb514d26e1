//! A typed embedding of PTX in Rust: build a program once, then verify it, print it, or execute it elsewhere.
//!
//! # The rules of the language
//!
//! * A program is a [`Function`]: parameters, typed registers and a *structured* body. Threads part at
//!   [`Builder::if_`] and meet behind it; loops are left by [`Builder::break_if`]. There is no `goto`.
//! * A [`Value`] is a `Copy` handle to what a register held when it was read, or a constant. Operators on values
//!   append instructions; operators on constants are done at once and cost nothing ("immediates fold").
//! * A [`Var`] is a register that can be written again: loop state, accumulators.
//! * A host `for` unrolls. [`Builder::repeat`] and [`Builder::while_`] emit loops.
//! * The instruction set is a closed enum, [`Inst`], each variant naming its section of the PTX ISA. What is not
//!   there cannot be printed; nobody writes PTX text by hand.
//! * [`Function::verify`] checks everything that can be checked without running, and reports each violation with
//!   the line of *your* source that built the statement. Only a [`Verified`] function can be printed.
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
//! For kernels that are not built from Hopper's matrix machinery: the instruction set holds what GEMM-like kernels
//! need and nothing else. Crates that compile Rust functions for the device serve general kernels better.

pub mod abi;
mod asynchronous;
mod builder;
mod fold;
mod function;
pub mod inst;
pub mod mutate;
mod print;
mod target;
mod types;
mod value;
mod verify;

pub use asynchronous::{TensorLoad, WgmmaOperands, WgmmaSource};
pub use builder::{Builder, BulkLoad, Entry, Location, MapChange, MapPlace};
pub use function::{Function, Param, ParamKind, Site, Statement};
pub use inst::{
    AtomicOp, AtomicSem, AtomicType, Inst, LoadOrder, MbarrierOrder, Operand, ProxySpace, Reg, Scope,
    Special, StoreOrder, WgmmaSparse, WgmmaTypes,
};
pub use print::module_text;
pub use target::{Limits, Target};
pub use types::{Integer, Number, Scalar, Space, Type};
pub use value::{Bits, Source, Value, Var};
pub use verify::{Verified, VerifyError, Violation};
