//! What a GEMM should give, and how far a correct kernel may be from it.
//!
//! [`HostMatrix`] holds A, B and C, of elements of a [`Format`]; [`Sums`] are their products in f64; [`Expected`] is an
//! element of D with the bound that follows from K and the formats ([`bound`]). Where an epilogue is a tree, [`memory`]
//! says what all of device memory holds after a run. [`wgmma`] is what single instructions sum, bit for bit.
//!
//! ```
//! use reference::{Expected, Format, HostMatrix, Order, Sums};
//!
//! let a = HostMatrix::from_fn(Format::Bf16, [2, 3], Order::RowMajor, 3, |row, k| f64::from(row * 3 + k));
//! let b = HostMatrix::from_fn(Format::Bf16, [3, 1], Order::ColumnMajor, 3, |k, _| 1.0 - f64::from(k));
//! let sums = Sums::of(&a, &b, &|_| ());
//! assert_eq!(sums.sums, [(-2.0, 2.0), (-2.0, 8.0)]); // 0 + 0 - 2 and 3 + 0 - 5, then the same of magnitudes
//!
//! let expected = Expected::new(Format::Bf16, a.columns, [1.0, 0.0], sums.sums[0], None);
//! assert!(expected.admits(Format::Bf16, -2.0) && !expected.admits(Format::Bf16, -2.1));
//! ```
#![forbid(unsafe_code)]

pub mod bound;
pub mod element;
pub mod format;
pub mod matrix;
pub mod memory;
pub mod oracle;
pub mod wgmma;

pub use bound::Expected;
pub use element::{Element, Wanted};
pub use format::Format;
pub use matrix::{HostMatrix, Order};
pub use oracle::Sums;
