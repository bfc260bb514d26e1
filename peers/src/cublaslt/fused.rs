//! cuBLASLt's own fused epilogues.

/// An activation function, applied to the fused result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FusedActivation {
    /// No activation: `x`.
    Identity,
    /// `max(x, 0)`.
    Relu,
    /// GELU, approximated by tanh.
    Gelu,
}

/// One of cuBLASLt's own fused epilogues.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fused {
    /// `D = activation(A * B + beta * C + bias)`.
    Bias {
        /// The activation.
        activation: FusedActivation,
        /// Device address of the bias: N elements of D's type.
        bias: u64,
        /// The factor of C; see [`Run::with_c`](super::Run::with_c).
        beta: f32,
    },
    /// `D = rows * A * B * columns` for 8-bit floats: one scale per row of A and per column of B.
    Scaled {
        /// Device address of M scales in `f32`.
        rows: u64,
        /// Device address of N scales in `f32`.
        columns: u64,
    },
}
