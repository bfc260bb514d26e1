//! Linear layers (also of 8 bits and of few), batched GEMMs, attention and mixtures of experts for [candle](candle_core)'s
//! tensors, with falchion's kernels for Hopper. Use [`Linear`] in place of `candle_nn::Linear`, and
//! [`matmul`] in place of `Tensor::matmul`.
//!
//! ```
//! use candle_core::{DType, Device, Tensor};
//! use candle_nn::Module;
//! use falchion_candle::{Activation, Linear};
//!
//! let device = Device::Cpu; // or Device::new_cuda(0)?, with the feature `cuda`
//! let weight = Tensor::randn(0f32, 1., (64, 32), &device)?.to_dtype(DType::BF16)?;
//! let bias = Tensor::zeros(64, DType::BF16, &device)?;
//! let layer = Linear::new(weight, Some(bias)).with_activation(Activation::Gelu);
//! let x = Tensor::randn(0f32, 1., (2, 7, 32), &device)?.to_dtype(DType::BF16)?;
//! assert_eq!(layer.forward(&x)?.dims(), [2, 7, 64]);
//! # Ok::<(), candle_core::Error>(())
//! ```
//!
//! On the card, tensors are `bf16` or `f16`, accumulators are `f32`, and kernels are enqueued on candle's own
//! stream. The first GEMM of a shape takes milliseconds, because its kernel is chosen and compiled; the
//! kernel is then kept. On a CPU the same operations are plain loops with `f32` sums, and tensors may be
//! `f32` too. The CPU is for tests of models, not for speed.

mod attention;
mod cpu;
#[cfg(feature = "cuda")]
mod cuda;
mod experts;
mod fewbit;
mod linear;
mod operation;
mod plain;
mod product;
mod routing;
mod rows;
mod scaled;

pub use attention::{
    Attention, Lines, attention, attention_paged, attention_varlen, attention_with_sums, tuned,
};
pub use experts::experts;
pub use falchion_core::{Activation, FewBits};
pub use fewbit::{FewBitExperts, FewBitLinear};
pub use linear::Linear;
pub use product::matmul;
pub use routing::Routing;
pub use rows::{append_pages, merge_attention};
pub use scaled::{ScaledLinear, quantize_rows, quantize_weight, scaled_matmul};

/// Chooses and compiles the kernels of a layer for these numbers of rows of `inputs` elements, by running it on zeros. Call it before a
/// graph is captured: inside of one, nothing can be compiled.
///
/// # Errors
/// Those of the layer.
pub fn prepare(
    layer: &impl candle_nn::Module,
    (rows, inputs): (&[usize], usize),
    (dtype, device): (candle_core::DType, &candle_core::Device),
) -> candle_core::Result<()> {
    for &rows in rows {
        layer.forward(&candle_core::Tensor::zeros((rows, inputs), dtype, device)?)?;
    }
    device.synchronize()
}

/// Applies an activation by candle's own operation.
fn activated(activation: Activation, y: candle_core::Tensor) -> candle_core::Result<candle_core::Tensor> {
    match activation {
        Activation::Identity => Ok(y),
        Activation::Relu => y.relu(),
        Activation::Gelu => y.gelu(),
        Activation::Silu => y.silu(),
    }
}
