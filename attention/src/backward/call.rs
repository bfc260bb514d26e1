//! What a call of the backward pass computes, and where its tensors are.

use collective::heads::HeadsRef;
use kernel::Buffer;

use crate::call::AttentionCall;

/// A call of the backward pass: that of the forward pass, and where the gradients are.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BackwardCall {
    /// The call of the forward pass, which has stored O and its log-sum-exp. It has no pages and no factors; its sinks and workspace are not read.
    pub forward: AttentionCall,
    /// The gradient of the output.
    pub d_o: HeadsRef,
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
}

impl BackwardCall {
    /// The backward pass of a call: the gradient of O, and those of Q, K and V. It has no workspace.
    pub fn of(forward: AttentionCall, d_o: HeadsRef, [d_q, d_k, d_v]: [HeadsRef; 3]) -> Self {
        Self { forward, d_o, d_q, d_k, d_v, workspace: None }
    }
}
