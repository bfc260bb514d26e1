//! What a call of the backward pass computes, and where its tensors are.

use kernel::Buffer;

use crate::problem::{AttentionCall, AttentionProblem, HeadsRef, Packed};

/// A call of the backward pass: the problem, and where its tensors are.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BackwardCall {
    /// The extents, those of the forward pass.
    pub problem: AttentionProblem,
    /// Queries.
    pub q: HeadsRef,
    /// Keys.
    pub k: HeadsRef,
    /// Values.
    pub v: HeadsRef,
    /// The output of the forward pass.
    pub o: HeadsRef,
    /// The gradient of the output.
    pub d_o: HeadsRef,
    /// Device address of the log-sum-exp that the forward pass has stored: `f32`, packed `(batch, heads, queries)`.
    pub log_sum_exp: u64,
    /// Where sequences begin, if the spec has `lengths=packed`.
    pub packed: Packed,
    /// The gradient of the queries.
    pub d_q: HeadsRef,
    /// The gradient of the keys. It has as many heads as the keys: those of a group are summed.
    pub d_k: HeadsRef,
    /// The gradient of the values, likewise.
    pub d_v: HeadsRef,
    /// Memory for what the steps pass on, of at least
    /// [`AttentionBackward::workspace`](crate::backward::AttentionBackward::workspace) bytes. Its contents do not
    /// matter.
    pub workspace: Option<Buffer>,
    /// The values of [`Scores::COUNTS`](crate::Scores::COUNTS).
    pub counts: Vec<i32>,
    /// The values of [`Scores::REALS`](crate::Scores::REALS).
    pub reals: Vec<f32>,
}

impl BackwardCall {
    /// The backward pass of a call that has stored its log-sum-exp: the gradient of O, and those of Q, K and V. It has no workspace.
    pub fn of(forward: AttentionCall, d_o: HeadsRef, [d_q, d_k, d_v]: [HeadsRef; 3]) -> Self {
        let AttentionCall { problem, q, k, v, o, log_sum_exp, packed, counts, reals, .. } = forward;
        let workspace = None;
        Self { problem, q, k, v, o, d_o, log_sum_exp, packed, d_q, d_k, d_v, workspace, counts, reals }
    }
}
