//! Linear layers, also of files in few bits, and batched GEMMs for [burn](https://burn.dev)'s tensors, with falchion's kernels for
//! Hopper. Use [`Linear`] in place of
//! `burn::nn::Linear`, and [`matmul`] in place of `Tensor::matmul`.
//!
//! ```
//! use burn::tensor::{Device, Tensor};
//! use falchion_burn::{Activation, Linear};
//!
//! # fn main() -> Result<(), falchion_burn::Error> {
//! // With the feature `cuda`: `Device::cuda(0)`, configured for `bf16` or `f16`.
//! let device = Device::flex();
//! let layer = burn::nn::LinearConfig::new(64, 32).init(&device);
//! let layer = Linear::from(layer).with_activation(Activation::Gelu);
//! let x = Tensor::<3>::ones([4, 10, 64], &device);
//! assert_eq!(layer.forward(x)?.dims(), [4, 10, 32]);
//! # Ok(())
//! # }
//! ```

mod activation;
mod error;
mod fewbit;
mod gradient;
mod linear;
mod plain;
mod product;

#[cfg(feature = "cuda")]
mod cuda;

pub use error::Error;
pub use falchion_core::{Activation, FewBits};
pub use fewbit::FewBitLinear;
pub use linear::Linear;
pub use product::{Product, linear, matmul, product};
pub use safetensors::SafeTensors;
