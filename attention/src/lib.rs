//! Attention for Hopper: `O = softmax(scale * Q * K^T) * V`, per head, from the parts that GEMM kernels are made
//! of.
//!
//! An [`AttentionSpec`] is a kernel as plain data; an [`AttentionPlan`] has every number of it; [`Attention`] is
//! the kernel, which runs on any engine of `kernel`. Masks and score functions are types: [`Scores`].
//!
//! # How it works
//!
//! A CTA has a producer warpgroup and one to three consumer warpgroups of 64 queries each. One thread of the
//! producer starts the tensor copies of Q, K and V, into three rings. A consumer multiplies its queries by a block
//! of keys, turns the scores into weights, and multiplies these, from registers, by the block of values. While its
//! instructions run it computes the weights of the next block. Consumers take turns to multiply, so that the
//! tensor cores have work while others compute weights.
//!
//! K and V in `e4m3` are converted to Q's format by the other warps of the producer warpgroup, from rings of their own into those
//! that consumers read. Their factors are multiplied into scores and into O.
//!
//! In latent attention V is the first columns of K, and is not loaded. Two consumers have the same 64 queries, and half of O's columns
//! each. They compute the scores of every second block, and exchange weights through shared memory. Blocks are loaded and given back slab
//! by slab; with `loaders=4` the warps of the producer load slabs side by side.
//!
//! Blocks of keys that no query of a tile sees are left out. Producer and consumers compute the range of blocks
//! by the same function, from [`Scores::seen`]. Only blocks that some query does not see whole are masked; they
//! have a loop of their own.
//!
//! CTAs are persistent. The tiles of a head follow each other, so that its K and V are read from memory once. If
//! later queries see more keys, the longest tiles of a round of heads come first, and every second round is dealt out
//! in the reverse order.
#![forbid(unsafe_code)]

mod arrays;
pub mod backward;
mod call;
mod count;
mod emit;
mod error;
#[cfg(feature = "records")]
mod expected;
mod factors;
#[cfg(feature = "records")]
mod family;
pub mod formula;
mod head;
mod kernel;
mod launch;
mod masks;
#[cfg(feature = "records")]
mod model;
mod numbers;
mod order;
mod parts;
mod plan;
mod problem;
#[cfg(feature = "records")]
mod request;
mod scores;
#[cfg(feature = "records")]
mod shortlist;
#[cfg(feature = "records")]
mod space;
mod spec;
mod tiles;

pub use crate::kernel::Attention;
pub use arrays::ArrayRef;
pub use call::AttentionCall;
pub use collective::heads::{HeadsRef, Packed, Pages};
pub use count::Count;
pub use error::AttentionError;
pub use factors::Factors;
pub use formula::{HostArrays, MaskFormula, ScoreFormula};
pub use masks::{Alibi, Causal, Chunked, Full, SoftCap, Window};
pub use numbers::HeadNumbers;
pub use plan::{AttentionPlan, HalvesPlan, NarrowPlan};
pub use problem::AttentionProblem;
#[cfg(feature = "records")]
pub use request::{AttentionRequest, ChoiceKey};
pub use scores::{Scope, Scores, consistent};
#[cfg(feature = "records")]
pub use shortlist::Shortlist;
pub use spec::{AttentionSpec, Lengths, Mask, Order, OutputStore, Parts};
