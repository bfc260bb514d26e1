//! Checks kernels: case tables, random inputs, an f64 reference, and an error bound per element.
//!
//! [`family::Checks`] is the harness of all checks (feature `records`): it gives any kernel memory, runs it on an engine, and compares everything
//! that it writes with the reference, within a bound derived from K and the formats ([`bound`]). Results are poisoned before the run, and the memory
//! around them must not change. It checks kernels of any family: GEMM, attention, kernels over rows, and families of your own.
//!
//! A [`GemmCase`] is a GEMM call with its matrices on the host, and [`SeveralProducts`] are the GEMMs of one launch.
//!
//! Use a [`Bench`] for kernels whose epilogue is a tree, and for your own kernels ([`tree`]).
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

pub mod equivalent;
#[cfg(feature = "records")]
pub mod family;
#[cfg(feature = "records")]
pub mod fusions;
pub mod instructions;
#[cfg(feature = "records")]
pub mod product;
#[cfg(feature = "records")]
pub mod random;
#[cfg(feature = "records")]
pub mod sample;
#[cfg(feature = "records")]
pub mod several;
#[cfg(feature = "records")]
pub mod storage;
#[cfg(feature = "records")]
pub mod tables;
#[cfg(test)]
mod tampered;
#[cfg(feature = "records")]
pub mod transposed;
#[cfg(feature = "records")]
pub mod tree;

pub use collective::Formula;
#[cfg(feature = "records")]
pub use fusions::{FusedGemm, fused_catalogue};
#[cfg(feature = "records")]
pub use product::{GemmCase, Mismatch, Outcome, RunError};
pub use reference::{
    AccumulatorPrecision, Format, HostMatrix, Order, Scales, Sums, Weights, bound, format, matrix, oracle,
    weights,
};
#[cfg(feature = "records")]
pub use sample::Sample;
#[cfg(feature = "records")]
pub use several::SeveralProducts;
#[cfg(feature = "records")]
pub use tree::{Bench, TreeError};

/// FNV-1a, 64 bits.
pub(crate) fn fnv(bytes: &[u8]) -> u64 {
    fnv_from(0xCBF2_9CE4_8422_2325, bytes)
}

/// Continues the hash `hash` with these bytes.
fn fnv_from(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3))
}
