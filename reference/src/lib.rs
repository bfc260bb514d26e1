//! The reference for GEMM kernels: results in f64, and error bounds for a correct kernel.
//!
//! Use it to check the output of a kernel on any engine.
//!
//! | item | content |
//! |---|---|
//! | [`HostMatrix`] | A, B or C on the host, with elements of a [`Format`] |
//! | [`Sums`] | the elements of `A * B` in f64, and error bounds of the accumulators |
//! | [`Expected`] | an element of D, with the error bound that follows from K and the formats ([`bound`]) |
//! | [`attention`] | a row of attention's output and its log-sum-exp; rows of its gradients |
//! | [`wgmma`] | the result of a single `wgmma`, bit for bit |
//!
//! ```
//! use reference::{Expected, Format, HostMatrix, Order, Sums};
//!
//! let a = HostMatrix::from_fn(Format::Bf16, [2, 3], Order::RowMajor, 3, |row, k| f64::from(row * 3 + k));
//! let b = HostMatrix::from_fn(Format::Bf16, [3, 1], Order::ColumnMajor, 3, |k, _| 1.0 - f64::from(k));
//! let sums = Sums::of(&a, &b, &|_| ());
//! // 0 + 0 - 2 and 3 + 0 - 5, then the same of magnitudes.
//! assert_eq!(sums.sums.iter().map(|sum| (sum.value, sum.magnitude)).collect::<Vec<_>>(), [(-2.0, 2.0), (-2.0, 8.0)]);
//!
//! let expected = Expected::new(Format::Bf16, a.columns, [1.0, 0.0], sums.sums[0], None);
//! assert!(expected.admits(Format::Bf16, -2.0) && !expected.admits(Format::Bf16, -2.1));
//! ```
#![forbid(unsafe_code)]

pub mod attention;
pub mod bound;
#[cfg(test)]
mod facts;
pub mod format;
#[cfg(test)]
mod held;
pub mod matrix;
pub mod oracle;
pub mod scales;
pub mod wanted;
pub mod weights;
pub mod wgmma;

pub use bound::Expected;
pub use format::Format;
pub use matrix::{HostMatrix, Order};
pub use oracle::{AccumulatorPrecision, DotProduct, Elements, Sums};
pub use scales::Scales;
pub use wanted::Wanted;
pub use weights::Weights;
