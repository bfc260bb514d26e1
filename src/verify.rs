//! Checks kernels: case tables, random inputs, an f64 reference, and an error bound per element.
//!
//! A [`GemmCase`] is a GEMM call with its matrices on the host. [`GemmCase::run`] runs a kernel of the
//! catalogue or of a spec on an engine, and compares every element with the reference ([`oracle`]), within a
//! bound derived from K and the formats ([`bound`]). D is poisoned before the run, and the memory around it
//! must not change.
//!
//! Use a [`Bench`] for kernels whose epilogue is a tree, and for your own kernels ([`tree`]).
//!
//! [`family`] checks kernels of any family (feature `records`): attention, kernels over rows, and families of your own.
//!
//! [`instructions`] checks single instructions, bit by bit.
//!
//! Matrices, formats, reference and bound are re-exports of crate `reference`.
//!
//! The tables under `tests/cases` are embedded, so a binary contains its tests ([`tables`]).
//!
//! ```
//! use falchion::prelude::*;
//! use falchion::verify::Bench;
//!
//! type MyGemm = Composed<
//!     TmaWgmma<Operands<KMajor<bf16>, KMajor<bf16>>, Tile<U64, U32, U64>, Cooperative<U1>>,
//!     LinearCombination<bf16>,
//!     OneTile<AlongM>,
//! >;
//! let mut emulator = Emulator::new();
//! let checked = Bench::new(&mut emulator, 1).check::<MyGemm>(GemmProblem { m: 70, n: 40, k: 64 }, &LinearArguments::default());
//! checked.expect("every element of D is right, and nothing else was written");
//! ```

#[cfg(feature = "records")]
pub mod equivalent;
pub mod family;
pub mod fusions;
pub mod instructions;
pub mod product;
pub mod random;
mod repeat;
pub mod sample;
mod session;
pub mod several;
pub mod storage;
pub mod tables;
#[cfg(test)]
mod tampered;
pub mod transposed;
pub mod tree;

pub use collective::Formula;
pub use fusions::{FusedGemm, fused_catalogue};
pub use product::{GemmCase, Mismatch, Outcome, RunError};
pub use reference::{
    AccumulatorPrecision, Format, HostMatrix, Order, Scales, Sums, Weights, bound, format, matrix, oracle,
    weights,
};
pub use sample::Sample;
pub use several::SeveralProducts;
pub use tree::{Bench, TreeError};

/// FNV-1a, 64 bits.
fn fnv(bytes: &[u8]) -> u64 {
    fnv_from(0xCBF2_9CE4_8422_2325, bytes)
}

/// Continues the hash `hash` with these bytes.
fn fnv_from(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3))
}
