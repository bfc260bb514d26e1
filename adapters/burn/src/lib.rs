//! Linear layers and batched GEMMs for [burn](https://burn.dev)'s tensors, with falchion's kernels for
//! Hopper. Use [`Linear`] in place of
//! `burn::nn::Linear`, and [`matmul`] in place of `Tensor::matmul`.
//!
//! ```
//! use burn::backend::NdArray;
//! use burn::tensor::Tensor;
//! use falchion_burn::{Activation, Linear};
//!
//! # fn main() -> Result<(), falchion_burn::Error> {
//! // With the feature `cuda`: `burn::backend::Cuda<half::bf16>`.
//! type B = NdArray;
//! let device = Default::default();
//! let layer = burn::nn::LinearConfig::new(64, 32).init::<B>(&device);
//! let layer = Linear::from(layer).with_activation(Activation::Gelu);
//! let x = Tensor::<B, 3>::ones([4, 10, 64], &device);
//! assert_eq!(layer.forward(x)?.dims(), [4, 10, 32]);
//! # Ok(())
//! # }
//! ```

mod activation;
mod error;
mod gradient;
mod linear;
mod plain;
mod product;

#[cfg(feature = "cuda")]
mod cuda;

pub use activation::Activation;
pub use error::Error;
pub use linear::Linear;
pub use product::{Backend, Product, linear, matmul};
