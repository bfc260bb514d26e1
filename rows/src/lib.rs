//! Kernels over rows for Hopper, for what surrounds the products of layers, and attention. One CTA computes a row after the other, or of heads several at a time.
//!
//! | kernel | call | what it computes |
//! |---|---|---|
//! | [`RowAdd`] | [`Added`] | `D = D + X` |
//! | [`RowGather`] | [`Gathered`] | rows of a table by their numbers: copies, sums, weighted sums |
//! | [`RowPeak`] | [`Peaked`] | of a rank's logits: the largest of a row, the sum of exponentials, the target's |
//! | [`RowMerge`] | [`Merged`] | the cross entropy of each row, from all ranks' statistics |
//! | [`RowGradient`] | [`Differentiated`] | the gradient of these losses, by a rank's logits |
//! | [`RowMergeAttention`] | [`MergedAttention`] | two results of attention over different keys, as one |
//! | [`RowAppendPages`] | [`AppendedPages`] | new keys and values, in pages of a cache |
//!
//! Each is a [`Kernel`](kernel::Kernel), which runs on any engine. Formats are `bf16` and `f16`, of results of attention also `f32`; sums are in `f32`. [`Rows`] is any of
//! them, by a [`RowSpec`]: a family of kernels, whose problems are [`RowProblem`]s.
#![forbid(unsafe_code)]

mod add;
mod common;
#[cfg(feature = "records")]
mod expected;
#[cfg(feature = "records")]
mod family;
mod gather;
mod loss;
mod pages;
mod problem;
mod rows;
mod spec;
mod states;

pub use crate::rows::{RowCall, Rows};
pub use add::{Added, RowAdd};
pub use gather::{Gathered, Gathering, RowGather};
pub use loss::{Differentiated, Logits, Merged, Peaked, RowGradient, RowMerge, RowPeak};
pub use pages::{AppendedPages, RowAppendPages};
pub use problem::RowProblem;
pub use spec::{RowKind, RowSpec};
pub use states::{MergedAttention, RowMergeAttention};
