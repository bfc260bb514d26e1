//! The backward pass: dQ, dK and dV from Q, K, V, O, the gradient of O, and the log-sum-exp.
//!
//! With `P = exp(scale * Q K^T - log-sum-exp)` and `D = rowsum(dO * O)`, per head:
//!
//! ```text
//! dV = P^T dO        dS = P * (dO V^T - D)        dK = scale * dS^T Q        dQ = scale * dS K
//! ```
//!
//! Three programs run one after the other ([`Step`]):
//!
//! 1. *Prepare*: `D` and the exponent `log2(e) * log-sum-exp` of each query in `f32`, and zeros for the sums of dQ, or for the
//!    numbers of blocks that were added to them.
//! 2. *Main*: a CTA has a block of keys. Their K and V stay in shared memory. It walks over the tiles of queries that see
//!    some of its keys. Each consumer warpgroup has 64 keys; it keeps their dK and dV in registers. It computes the transposed
//!    scores `K Q^T`, so that P and dS are operand A of the products for dV and dK without leaving registers. Only dS goes
//!    through shared memory, because dQ needs all keys of the block. A warp of the producer adds the tile's part of dQ to the
//!    sums in memory, by bulk reductions. Under a mask, or with 64 elements, CTAs draw one block after the other if there are more blocks than
//!    CTAs; that warp stores dK and dV, while consumers compute the next block. Otherwise they have one block each, also those that share blocks
//!    or keep an order.
//! 3. *Finish*: dQ from its sums, with the scale, in 16 bits.
//!
//! The registers of a consumer hold dV or dK of more than 128 elements. Two consumers have the same 64 keys then ([`PairPlan`]): the
//! first one computes P and keeps dV, and the second one, to which it passes P in `f32`, computes dS and keeps dK. Both read dS, and
//! compute half of the columns of dQ each.
//!
//! Heads of queries that share a head of keys follow each other in a CTA, so dK and dV are summed in registers.
//!
//! Sums of dQ are added in any order, so their last bits differ from run to run. With
//! [`deterministic`](BackwardSpec::deterministic) they are added in a fixed order, from the last block of keys to the
//! first one; the last block's part is stored, and not added.

mod ahead;
mod call;
mod emit;
#[cfg(feature = "records")]
mod expected;
#[cfg(feature = "records")]
mod family;
mod kernel;
#[cfg(feature = "records")]
mod model;
mod plan;
mod spec;

pub use call::BackwardCall;
pub use kernel::{AttentionBackward, Step};
pub use plan::{BackwardPlan, BackwardProducts, BackwardRings, BackwardTiles, PairPlan};
pub use spec::BackwardSpec;
